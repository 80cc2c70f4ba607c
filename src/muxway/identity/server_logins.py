"""The logins of a gateway at its servers: what these are shown, and where users are sent to log in."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from muxway.calls.identity import key_name
from muxway.servers.state import State
from muxway.servers.users import each_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from muxway.calls.call import Caller
    from muxway.calls.identity import Identity, Owner
    from muxway.config.model import ServerConfig
    from muxway.exchange.logins import LoginPage
    from muxway.exchange.runtime import Runtime
    from muxway.identity.connect import ConnectPages
    from muxway.identity.pages import LoginPages
    from muxway.servers.managed_server import ManagedServer
    from muxway.servers.transports.port import Credentials


class ServerLogins:
    """Knows who is logged in where, and how others get there. Implements `Connectable` of the page `/connect`."""

    def __init__(
        self, servers: Mapping[str, ManagedServer], runtime: Runtime, source: Callable[[], str | None]
    ) -> None:
        """At these servers, as they come and go; `source` gives the file of the configuration, if there is one."""
        self._servers = servers
        self._runtime = runtime
        self._source = source
        self._login_pages: LoginPages | None = None
        self.connect_pages: ConnectPages | None = None
        """Where users log in who are not the one who runs the gateway; None: nowhere."""
        runtime.logins.page = self._page

    async def close(self) -> None:
        """Nobody can log in any more."""
        if self._login_pages is not None:
            await self._login_pages.close()

    def credentials(self, server: ServerConfig, owner: Owner | None) -> Credentials | None:
        """What muxway shows a remote server: the login of a user, or of the one who runs it."""
        # Only for those who have such servers.
        from muxway.identity.credentials import ServerCredentials, takes_login
        from muxway.identity.store import LOCAL, TokenStore

        source = self._source()
        # Whoever is told to run a command does so somewhere else than the gateway was started.
        source = None if source is None else str(Path(source).absolute())
        if server.user_values:
            from muxway.identity.user_values import UserValues

            command = shlex.join(["muxway", "login", server.name, *(["--config", source] if source else [])])
            way = (lambda: f"run `{command}`") if owner is None else partial(self._way, server.name, owner)
            return UserValues(server, TokenStore(), owner=owner or LOCAL, way=way)
        if not takes_login(server):
            return None
        if owner is None:
            return ServerCredentials(server, TokenStore(), file=source)
        return ServerCredentials(
            server,
            TokenStore(),
            owner=owner,
            way=partial(self._way, server.name, owner),
            needed=partial(self._lets_nobody_in, server.name),
        )

    @property
    def secrets(self) -> frozenset[str]:
        """What users have shown servers, and nobody else may see."""
        every = [one.instance.credentials for one in each_of(self._servers)]
        return frozenset[str]().union(*(one.secrets for one in every if one is not None))

    def those_with_logins(self) -> list[ServerConfig]:
        """The servers that are known to want a login."""
        shown = [(one.config, one.instance.credentials) for one in self._servers.values()]
        return [config for config, credentials in shown if credentials is not None and credentials.wanted]

    def may_use(self, name: str, identity: Identity | None) -> bool:
        """Whether rules leave a user anything of a server."""
        access = self._runtime.snapshot.settings.access
        judge = None if access is None else access.judge(identity, None)
        return judge is None or not judge.shuts(name)

    def user_logged_in(self, name: str, owner: Owner | None, pages: Iterable[str] = ()) -> None:
        """A user has logged in to a server, or out of it; these pages, which clients sent the user to, are done.

        None for the user who runs the gateway.
        """
        self._find_out(name, owner)
        for page in pages:
            self._runtime.sessions.page_done(self._runtime.logins, page)

    # --- inside -------------------------------------------------------------------------------

    def _find_out(self, name: str, owner: Owner | None) -> None:
        """What is there for a user now who has logged in to a server, or out of it."""
        server = self._servers.get(name)
        if server is None:
            return
        if owner is None:
            server.instance.renew()
            return
        if server.instance.credentials is not None:
            server.instance.credentials.wanted = True
        own = server.of_users.get(owner)
        if own is None:
            server.of(owner)
        else:
            own.instance.renew()

    def _lets_nobody_in(self, name: str) -> bool:
        """Whether a server is known to want a login of everybody, before anything else."""
        server = self._servers.get(name)
        return server is not None and server.first.state.now is State.LOGIN_NEEDED

    def _way(self, name: str, owner: Owner) -> str:
        """What somebody who is not the one who runs the gateway is told to do to log in to a server."""
        if (key := key_name(owner)) is not None:
            return f"ask who runs muxway for it (`{shlex.join(['muxway', 'login', name, '--key', key])}`)"
        if self.connect_pages is None or not self.connect_pages.knows(owner):
            # A program without a user can sign on nowhere.
            other = "an API key" if owner[0] == "client" else "a sign-on"
            return f"ask who runs muxway for a login that is shared (`oauth.shared`), or for {other}"
        return f"open {self.connect_pages.link(name)}"

    def _page(self, name: str, caller: Caller) -> LoginPage | None:
        """Where a caller's user can log in to a server."""
        server = self._servers.get(name)
        if server is None or server.instance.credentials is None or not server.config.oauth.interactive:
            return None
        if caller.identity is not None and server.make_own is not None:
            pages, owner = self.connect_pages, caller.identity.owner
            return None if pages is None or not pages.knows(owner) else pages.page(name, owner)
        if caller.principal or server.config.user_values:
            # The page logs in the user who runs the gateway, and this is another one, whoever it may be.
            return None
        if self._login_pages is None:
            from muxway.identity.pages import LoginPages

            self._login_pages = LoginPages(self._done)
        return self._login_pages.page(server.config)

    def _done(self, name: str, page: str) -> None:
        """The user has logged in to a server on such a page."""
        if (server := self._servers.get(name)) is not None:
            server.instance.pool.logged_in()
        self._runtime.sessions.page_done(self._runtime.logins, page)
