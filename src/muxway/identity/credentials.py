"""What a server gets to see of us with each request, and what becomes of it when it says no. The port's other side.

A token is renewed a minute before its end, by one task of one process: the others wait for the file's lock, read it
again, and find the new one. Only when that fails for good is a person asked to log in.

What asks authorization servers is imported when one is asked: most servers want no login.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from typing import TYPE_CHECKING, Final

from muxway.calls.identity import key_name
from muxway.identity.challenges import Challenge, read_challenge
from muxway.identity.login_watch import LoginWatch
from muxway.identity.store import EARLY, LOCAL, Login, LoginKey, WantedLogin, canonical
from muxway.log import EventLog
from muxway.net.http_errors import HttpTrouble
from muxway.net.sealed_files import LostError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muxway.calls.identity import Owner
    from muxway.config.model import ServerConfig
    from muxway.identity.store import TokenStore
    from muxway.net.guarded_fetch import GuardedFetch

_LOOK: Final = 1.0
"""Seconds for which what was read of the store is taken for what is there."""
_AGAIN: Final = 15.0
"""Seconds before a token that is still good, and could not be renewed, is tried again."""
_NEW: Final = 60.0
"""Seconds within which a token that took the place of a refused one should not be refused."""
_MOST_STEPS: Final = 2
"""How often somebody is asked to log in again for the same scopes."""
_STEP_MEMORY: Final = 600.0
"""Seconds for which scopes that did not help are remembered."""
_NONE_FOR: Final = 60.0
"""Seconds for which a server that names no place to log in is not looked at again."""
_PATIENCE: Final = 5.0
"""Seconds to find out whether a server has logins at all."""
_FORBIDDEN: Final = 403

log = EventLog("identity")


class ServerCredentials:
    """One user's at one server."""

    def __init__(
        self,
        config: ServerConfig,
        store: TokenStore,
        *,
        owner: Owner = LOCAL,
        file: str | None = None,
        way: Callable[[], str] | None = None,
        needed: Callable[[], bool] = lambda: False,
    ) -> None:
        """Prepare; nothing is read.

        Args:
            config: the server.
            store: where logins are kept.
            owner: whose this one is.
            file: where the server is configured, for what people are told to type.
            way: what this user is told to do to log in; None: to type the command.
            needed: whether the server is known to let nobody in without a login, so that it need not be asked.
        """
        self.key = login_key(config, owner)
        self._way, self._needed = way, needed
        self.wanted = False
        self.header: str | None = None
        self.on_login: Callable[[], None] | None = None
        self.good_until = 0.0
        self._config = config
        self._oauth = config.oauth
        self._store = store
        self._file = file
        self._login: Login | None = None
        self._read = False
        self._seen: int = 0
        self._looked = 0.0
        self._due_at: float | None = None
        """When the token has to be renewed, on the clock of the day."""
        self._rejected: str | None = None
        """A token that the server does not take, whatever its time."""
        self._none_until = 0.0
        """Until when it is known that nothing says where to log in."""
        self._renewed = ("", 0.0)
        """The last token that took the place of a rejected one, and when."""
        self._renewal: asyncio.Task[None] | None = None
        # For API keys, as for whoever runs the gateway, a command logs in.
        self._watch = LoginWatch(self._is_logged_in, of_many=way is not None and key_name(owner) is None)
        self._steps: dict[frozenset[str], tuple[int, float]] = {}
        """How often a login was asked for to get these scopes, and when last."""
        self._lacking: str | None = None
        """The header that did not do, while a login is waited for."""

    @property
    def secrets(self) -> frozenset[str]:
        """Texts that must never be shown."""
        return frozenset() if self._login is None else self._login.secrets

    def fill(self, config: ServerConfig) -> ServerConfig:
        """See `Credentials`; a login is shown with each request."""
        return config

    # --- before a request ---------------------------------------------------------------------

    def due(self) -> bool:
        """Whether `prepare` has something to do before the next request."""
        left = _LOOK if self._due_at is None else self._due_at - time.time()
        if left <= 0:
            return True
        now = time.monotonic()
        if not self._read or now - self._looked >= _LOOK:
            self._looked = now
            if not self._read or self._store.stamp != self._seen:
                return True
        self.good_until = min(now + left, self._looked + _LOOK)
        return False

    async def prepare(self) -> None:
        """See to it that `header` is what to send now. Raises HttpTrouble."""
        self._reread()
        if self._login is not None and not self._login.token.lasts(EARLY):
            await self._renew_once()
        if self._login is None and self._needed():
            raise self._needs_login("")

    def _reread(self) -> None:
        """Take what the store has now."""
        stamp = self._store.stamp
        if self._read and stamp == self._seen:
            return
        try:
            found = self._store.read(self.key)
        except LostError as error:
            # A user of the gateway can do nothing about its files, but can log in again.
            log.warning("a login cannot be opened any more", upstream=self._config.name, why=error)
            raise self._needs_login("what is kept of the last one cannot be opened any more") from None
        except StoreError as error:
            self._keep_watch()
            raise HttpTrouble(f"cannot be logged in to: {error}", "login_needed") from None
        self._read, self._seen = True, stamp
        self._take(found)

    def _take(self, login: Login | None) -> None:
        self._login = login
        good = login is not None and login.token.access != self._rejected
        self.header = f"Bearer {login.token.access}" if login is not None and good else None
        self.wanted = self.wanted or self.header is not None
        self._due_at, self.good_until = None, 0.0
        if login is not None and login.token.expires_at is not None:
            self._due_at = login.token.expires_at - EARLY

    async def _renew_once(self, *, spent: bool = False) -> None:
        """Renew the token; whoever comes meanwhile waits for the same. `spent`: the server does not take it."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.get_running_loop().create_task(self._renew(self._login, spent=spent))
            self._renewal.add_done_callback(_heard)
        await asyncio.shield(self._renewal)

    async def _renew(self, used: Login | None, *, spent: bool) -> None:
        """Put another token in the place of one that is used up. Raises HttpTrouble if there is none."""
        try:
            async with self._store.locked(self.key):
                self._store.finish(self.key)
                kept = self._store.read(self.key)
                self._read, self._seen = True, self._store.stamp
                self._take(kept)
                if kept is not None and used is not None and kept.token.access != used.token.access:
                    # Another process was quicker.
                    spent = False
                    if kept.token.lasts(EARLY):
                        return
                if kept is None or not kept.token.refresh:
                    self._expire(kept, spent=spent)
                else:
                    await self._refresh(kept, spent=spent)
        except StoreError as error:
            raise HttpTrouble(f"cannot be logged in to: {error}", "login_needed") from None

    async def _refresh(self, login: Login, *, spent: bool) -> None:
        from muxway.identity import grants
        from muxway.identity.discovery import OAuthError
        from muxway.identity.oauth_client import TokenRefused

        good = login.token.lasts() and not spent
        try:
            async with fetch_for(self._config, login) as fetch:
                renewed = await grants.renew(fetch, login, self._oauth)
        except TokenRefused as refused:
            # Many authorization servers forget clients that registered themselves, and with them their logins.
            forgotten = refused.code == "invalid_client" and login.registration.kind == "registered"
            if (forgotten or refused.code == "invalid_grant") and not good:
                # With it goes the client id: the next login gets another one.
                self._store.remove(self.key)
                self._take(None)
                raise self._needs_login("the last one has ended") from None
            self._put_off(str(refused), good=good)
        except OAuthError as error:
            self._put_off(str(error), good=good)
        else:
            self._store.write(renewed)
            self._seen = self._store.stamp
            self._take(renewed)
            log.debug("token renewed", upstream=self._config.name)

    def _put_off(self, why: str, *, good: bool) -> None:
        """It could not be renewed now. What is still good goes on being used."""
        if not good:
            raise HttpTrouble(f"cannot be asked now, as its login could not be renewed: {why}", "lost", broken=True)
        log.info("token not renewed; the old one is still good", upstream=self._config.name, why=why)
        self._due_at = time.time() + _AGAIN

    def _expire(self, login: Login | None, *, spent: bool) -> None:
        """There is nothing to renew it with."""
        if login is not None and login.token.lasts() and not spent:
            self._due_at, self.good_until = login.token.expires_at, 0.0
        elif self._oauth.interactive:
            raise self._needs_login("the last one has ended")
        else:
            # The next request goes without, is refused, and gets a new one.
            self.header, self._due_at = None, None

    # --- after a refusal ----------------------------------------------------------------------

    async def refused(self, status: int, challenges: Sequence[str], sent: str | None, *, known: bool = False) -> bool:
        """The server has refused a request that came with this header; `known`: after it had taken others.

        Returns whether it may be sent again, with what `header` is now.

        Raises:
            HttpTrouble: somebody has to log in first.
        """
        challenge = read_challenge(challenges)
        if status == _FORBIDDEN and challenge.error != "insufficient_scope":
            return False
        self._seen = -1
        self._reread()
        if self.header != sent and self.header is not None:
            return True
        if not self._oauth.interactive:
            return await self._obtain(challenge)
        if status == _FORBIDDEN:
            raise self._needs_more(challenge)
        if self._login is not None and not self._is_new(self._login.token.access):
            # Whatever its time: it may have been taken back.
            self._rejected = self._login.token.access
            await self._renew_once(spent=True)
            if self.header != sent and self.header is not None:
                self._renewed = self._login.token.access, time.monotonic()
                return True
        unsaid = sent is None and challenge.resource_metadata is None
        # It may want a token of another kind. To look around takes time, which a call does not have.
        if unsaid and (known or not await self._has_login(challenge)):
            self._keep_watch()
            return False
        if self._login is not None:
            # A new one, and refused: another one of the same login would fare no better.
            self._rejected, self.header = self._login.token.access, None
        self._want(challenge)
        raise self._needs_login("" if sent is None else "the last one is not good any more")

    def _is_new(self, access: str) -> bool:
        """Whether this token was got a moment ago, because the one before was refused."""
        return self._renewed[0] == access and time.monotonic() - self._renewed[1] < _NEW

    async def _has_login(self, challenge: Challenge) -> bool:
        """Whether a server that says nothing of tokens in its refusal gives them all the same."""
        from muxway.identity.discovery import NoLogin, OAuthError, discover

        if time.monotonic() < self._none_until:
            return False
        try:
            async with asyncio.timeout(_PATIENCE), fetch_for(self._config) as fetch:
                found = await discover(fetch, self._config.url or "", challenge, pin=self._oauth.issuer)
                none = found.guessed
        except (NoLogin, TimeoutError):
            none = True
        except OAuthError as error:
            log.info("where to log in could not be found out", upstream=self._config.name, why=error)
            none = False
        if none:
            self._none_until = time.monotonic() + _NONE_FOR
        return not none

    def _needs_more(self, challenge: Challenge) -> HttpTrouble:
        """The token is good, but not for this."""
        scopes = frozenset(challenge.scope or ())
        now = time.monotonic()
        tries, at = self._steps.get(scopes, (0, 0.0))
        if now - at > _STEP_MEMORY:
            tries = 0
        if tries >= _MOST_STEPS:
            return HttpTrouble(
                f"does not allow this, nor did it after {_MOST_STEPS} logins for what it asked for; ask who runs it",
                "login_needed",
            )
        self._steps[scopes] = (tries + 1, now)
        self._want(challenge)
        self._keep_watch()
        return HttpTrouble(f"wants a login that allows more: {self.way}", "login_needed")

    def _needs_login(self, why: str) -> HttpTrouble:
        self._keep_watch()
        said = f" ({why})" if why else ""
        return HttpTrouble(f"needs {'a' if self._way is None else 'your'} login{said}: {self.way}", "login_needed")

    @property
    def way(self) -> str:
        """What a person has to do to log in."""
        return f"run `{self.command()}`" if self._way is None else self._way()

    def command(self) -> str:
        """What a person has to type to log in."""
        words = ["muxway", "login", self._config.name]
        return shlex.join([*words, "--config", self._file] if self._file else words)

    async def _obtain(self, challenge: Challenge) -> bool:
        """A machine's token: ask for one, once for all who want it."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.get_running_loop().create_task(self._obtain_once(challenge, self._login))
            self._renewal.add_done_callback(_heard)
        await asyncio.shield(self._renewal)
        return True

    async def _obtain_once(self, challenge: Challenge, before: Login | None) -> None:
        from muxway.identity import grants
        from muxway.identity.discovery import OAuthError, discover
        from muxway.identity.login import choose_scopes
        from muxway.identity.oauth_client import Unavailable

        try:
            async with self._store.locked(self.key), fetch_for(self._config) as fetch:
                found = await discover(fetch, self._config.url or "", challenge, pin=self._oauth.issuer)
                asked = before.asked if before is not None and challenge.error == "insufficient_scope" else ()
                scopes = choose_scopes(found, challenge, self._oauth, before=asked)
                login = await grants.obtain(fetch, self.key, found, self._oauth, scopes)
                self._store.write(login)
                self._seen = self._store.stamp
                self._take(login)
        except StoreError as error:
            raise HttpTrouble(f"cannot be logged in to: {error}", "login_needed") from None
        except Unavailable as error:
            raise HttpTrouble(f"cannot be asked now: {error}", "lost", broken=True) from None
        except OAuthError as error:
            raise HttpTrouble(f"could not be logged in to ({self._oauth.grant}): {error}", "login_needed") from None

    # --- a login made elsewhere ---------------------------------------------------------------

    def _want(self, challenge: Challenge) -> None:
        """Leave word for whoever makes the login what the server asks for."""
        if challenge.scope is None and challenge.resource_metadata is None:
            return
        more = challenge.error == "insufficient_scope"
        wanted = WantedLogin(
            scopes=challenge.scope, resource_metadata=challenge.resource_metadata, more=more, at=time.time()
        )
        try:
            self._store.want(self.key, wanted)
        except StoreError as error:
            log.info("what the server asks for cannot be noted", upstream=self._config.name, why=error)

    def _keep_watch(self) -> None:
        """Look now and then whether somebody has logged in."""
        self.wanted = True
        self._lacking = self.header
        if self.on_login is not None:
            self._watch.begin(self.on_login)

    def _is_logged_in(self) -> bool:
        # Whatever its stamp: that of two changes within one tick of the system's clock is the same.
        self._seen = -1
        with contextlib.suppress(HttpTrouble):  # a store that cannot be read has no login
            self._reread()
        return self.header not in (None, self._lacking)

    def close(self) -> None:
        """Nobody wants to know any more."""
        self.on_login = None
        self._watch.end()


def fetch_for(config: ServerConfig, login: Login | None = None) -> GuardedFetch:
    """Who asks for a server: what the user wrote about it is trusted to be where it is.

    Where a login was made in a private network, its authorization server may be asked there again.
    """
    from muxway.net.guarded_fetch import GuardedFetch

    oauth = config.oauth
    idp = None if oauth.idp is None else oauth.idp.token_endpoint
    private = login is not None and login.server.private
    return GuardedFetch((url for url in (config.url, oauth.issuer, idp) if url), private=private)


def login_key(config: ServerConfig, owner: Owner = LOCAL) -> LoginKey:
    """Under which a server's login is kept."""
    return LoginKey(*owner, config.name, canonical(config.url or ""))


def takes_login(config: ServerConfig) -> bool:
    """Whether muxway may log in to a server: it is remote, and has no credentials written down."""
    if config.url is None or config.transport == "stdio" or not config.oauth.enabled or config.user_values:
        return False
    if "@" in config.url.partition("//")[2].partition("/")[0]:
        return False
    return not any(name.lower() == "authorization" for name in config.headers)


def _heard(task: asyncio.Task[None]) -> None:
    # Whoever waited has heard how it ended; if nobody did, nobody needs to.
    if not task.cancelled():
        task.exception()
