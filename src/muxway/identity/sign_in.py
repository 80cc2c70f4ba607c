"""One login from its beginning to its end, whoever shows the link: the command, or a gateway that runs."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

import msgspec

from muxway.identity import device, oauth_client
from muxway.identity.callback import PATH, Callback
from muxway.identity.challenges import Challenge, read_challenge
from muxway.identity.credentials import fetch_for, login_key, takes_login
from muxway.identity.discovery import NoLogin, OAuthError, discover
from muxway.identity.login import LIFETIME, PendingLogin, begin, choose_scopes
from muxway.identity.store import LOCAL, Login, LoginKey
from muxway.net.guarded_fetch import FetchError, GuardedFetch
from muxway.net.sealed_files import LostError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from muxway.config.model import ServerConfig
    from muxway.identity.device import DeviceCode
    from muxway.identity.discovery import Discovered
    from muxway.identity.store import AuthorizationServer, Registration, TokenStore

_ACCEPT: Final = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
_HELLO: Final = msgspec.json.encode(
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "muxway", "version": "login"},
        },
    }
)


class SignIn:
    """Logs one user in to one server."""

    def __init__(
        self,
        config: ServerConfig,
        store: TokenStore,
        *,
        owner: tuple[str, str] = LOCAL,
        scopes: Sequence[str] = (),
    ) -> None:
        """Prepare.

        Args:
            config: the server.
            store: where the login is kept.
            owner: whose it is, as issuer and subject.
            scopes: what to ask for beside what the server asks for.

        Raises:
            OAuthError: muxway does not log in to this server.
        """
        if not takes_login(config):
            if config.url is None:
                raise OAuthError("it is a program on this machine, which needs no login by muxway")
            if not config.oauth.enabled:
                raise OAuthError("it has `oauth: false` in its configuration")
            raise OAuthError(
                "it has credentials in its configuration (the header Authorization, or in `url`); remove them"
            )
        self.key = login_key(config, owner)
        self.scopes: tuple[str, ...] = ()
        self.found: Discovered | None = None
        self.registration = ""
        self.reused = False
        """Whether the client id is one that was registered for an earlier login."""
        self._config, self._store, self._more = config, store, tuple(scopes)

    async def by_browser(
        self,
        show: Callable[[str], None],
        paste: Callable[[], Awaitable[str]] | None = None,
        *,
        cookie: str | None = None,
    ) -> Login:
        """Log in with a browser, on this machine or on another one.

        Args:
            show: gets the address to open.
            paste: gives the address that the browser ended at, as often as it is awaited, where somebody may copy it.
            cookie: what the browser must bring back, if it was given one.

        Raises:
            OAuthError, StoreError: it did not work; says why.
        """
        oauth = self._config.oauth
        async with fetch_for(self._config) as fetch:
            before = self._before()
            found = await self._discover(fetch, before)
            # The address that was registered, if it is free: so the same client id is good again.
            wanted = oauth.redirect_uri or _registered(before, found)
            came: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            pending: PendingLogin | None = None

            def take(query: str) -> bool:
                if pending is None or came.done() or not pending.is_ours(query):
                    return False
                came.set_result(query)
                return True

            async with _opened(wanted, take, cookie, fixed=oauth.redirect_uri is not None) as callback:
                pending = await begin(fetch, self.key, found, oauth, self.scopes, callback.redirect_uri, before)
                self.registration = pending.registration.kind
                self.reused = before is not None and pending.registration is before.registration
                show(pending.link)
                pasting = None if paste is None else asyncio.ensure_future(_pasted(paste, take))
                try:
                    async with asyncio.timeout(LIFETIME):
                        query = await came
                except TimeoutError:
                    raise OAuthError(f"nobody logged in within {LIFETIME / 60:g} minutes") from None
                finally:
                    if pasting is not None:
                        pasting.cancel()
                        with contextlib.suppress(asyncio.CancelledError):
                            await pasting
                return await self._keep(await pending.finish(fetch, query))

    async def begin(
        self, redirect_uri: str, known_as: Callable[[AuthorizationServer], Registration | None] = lambda _: None
    ) -> PendingLogin:
        """Begin a login whose answer comes to this address, which somebody else looks after. Raises as `by_browser`.

        `known_as` gives how we are known by this address at an authorization server, if we are.
        """
        async with fetch_for(self._config) as fetch:
            before = self._before()
            found = await self._discover(fetch, before)
            oauth = self._config.oauth
            known = known_as(found.server)
            pending = await begin(fetch, self.key, found, oauth, self.scopes, redirect_uri, before, registration=known)
            self.registration = pending.registration.kind
            return pending

    async def finish(self, pending: PendingLogin, query: str) -> Login:
        """End it with what came back. Raises as `by_browser`."""
        async with fetch_for(self._config) as fetch:
            return await self._keep(await pending.finish(fetch, query))

    async def by_device(self, show: Callable[[DeviceCode], None]) -> Login:
        """Log in with a code that is typed in on another device. Raises as `by_browser` does."""
        oauth = self._config.oauth
        async with fetch_for(self._config) as fetch:
            before = self._before()
            found = await self._discover(fetch, before)
            redirect_uri = oauth.redirect_uri or f"http://127.0.0.1{PATH}"
            pending = await begin(fetch, self.key, found, oauth, self.scopes, redirect_uri, device=True)
            self.registration = pending.registration.kind
            code = await device.ask_code(fetch, pending)
            show(code)
            return await self._keep(await device.wait(fetch, pending, code))

    def _before(self) -> Login | None:
        """The login that this one takes the place of. One that cannot be opened any more is no hindrance."""
        try:
            return self._store.read(self.key)
        except LostError:
            return None

    async def _discover(self, fetch: GuardedFetch, before: Login | None) -> Discovered:
        status, challenge = await self._asked_for(fetch)
        oauth = self._config.oauth
        if not oauth.interactive:
            raise OAuthError(f"no login is needed: its `oauth.grant` is {oauth.grant}")
        try:
            found = self.found = await discover(fetch, self._config.url or "", challenge, pin=oauth.issuer)
        except NoLogin as error:
            raise NoLogin(f"{error}{_hint(status)}") from None
        had = () if before is None or before.server.issuer != found.server.issuer else before.asked
        more = bool(self._more) or challenge.error == "insufficient_scope"
        self.scopes = choose_scopes(found, challenge, oauth, self._more, had if more else ())
        return found

    async def _asked_for(self, fetch: GuardedFetch) -> tuple[int, Challenge]:
        """What the server wants: as it tells somebody who says hello, unless it has said more since."""
        (status, said), wanted = await probe(fetch, self._config), self._store.wanted(self.key)
        if wanted is None:
            return status, said
        said = said._replace(bearer=True, resource_metadata=said.resource_metadata or wanted.resource_metadata)
        if wanted.more:
            return status, said._replace(scope=wanted.scopes, error="insufficient_scope")
        return status, said._replace(scope=said.scope if said.scope is not None else wanted.scopes)

    async def _keep(self, made: Login) -> Login:
        async with self._store.locked(self.key):
            self._store.write(made)
            self._store.want(self.key, None)
        return made


async def sign_out(login: Login, store: TokenStore, config: ServerConfig | None) -> str | None:
    """Give a login back and forget it. Returns why it could not be given back; None: it was. Raises StoreError."""
    key = LoginKey(*login.key)
    why: str | None = None
    async with store.locked(key):
        # What another process has renewed meanwhile is what must go.
        login = store.read(key) or login
        written = (login.key[3], *(() if config is None or config.oauth.issuer is None else (config.oauth.issuer,)))
        try:
            async with GuardedFetch(written, private=login.server.private) as fetch:
                oauth = None if config is None else config.oauth
                await oauth_client.revoke(fetch, login.server, login.registration, login.token, oauth)
        except OAuthError as error:
            why = str(error)
        store.remove(key)
    return why


async def probe(fetch: GuardedFetch, config: ServerConfig) -> tuple[int, Challenge]:
    """What a server says to somebody whom it does not know, and with which HTTP status. Raises OAuthError."""
    sse = config.transport == "sse"
    headers = {**config.headers, **({"Accept": "text/event-stream"} if sse else _ACCEPT)}
    try:
        status, challenges = await fetch.refusal(config.url or "", None if sse else _HELLO, headers)
    except FetchError as error:
        raise OAuthError(f"it cannot be asked: {error}") from None
    return status, read_challenge(challenges)


def _hint(status: int) -> str:
    """What the status of a server's answer tells somebody who wonders why there is no login."""
    if 200 <= status < 300:
        return ": it lets everybody in"
    return f": it answers with HTTP status {status}; is its `url` right?" if status >= 400 and status != 401 else ""


def _registered(before: Login | None, found: Discovered) -> str | None:
    if before is None or before.server.issuer != found.server.issuer:
        return None
    return before.registration.redirect_uri


@contextlib.asynccontextmanager
async def _opened(
    wanted: str | None, take: Callable[[str], bool], cookie: str | None, *, fixed: bool
) -> AsyncGenerator[Callback]:
    callback = Callback(wanted, take, cookie)
    try:
        await callback.__aenter__()
    except OAuthError:
        if fixed:
            raise
        callback = Callback(None, take, cookie)
        await callback.__aenter__()
    try:
        yield callback
    finally:
        await callback.__aexit__(None, None, None)


async def _pasted(paste: Callable[[], Awaitable[str]], take: Callable[[str], bool]) -> None:
    """Take what somebody copies from a browser elsewhere: the whole address, or what is after its question mark."""
    while True:
        # Some terminals and chats put quotes or angle brackets around what is copied from them.
        text = (await paste()).strip().strip("\"'<>")
        query = (text.partition("?")[2] or text).partition("#")[0]
        # The address of the login page has our state as well, and is at hand: it must not end the login.
        if not {"code", "error"}.isdisjoint(parse_qs(query)) and take(query):
            return
