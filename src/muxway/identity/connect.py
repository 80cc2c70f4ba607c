"""The page `/connect`, where each user of a gateway logs in to servers, and out of them.

It is served by the gateway itself: plain forms, behind the sign-on of the company; for whoever runs the gateway on this
machine, behind nothing. A login begins with a form of ours, and what comes back from the authorization server counts
only in the browser, and for the user, that it began with.
"""

from __future__ import annotations

import asyncio
import getpass
import secrets
import time
from dataclasses import dataclass, field
from functools import partial
from html import escape
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from urllib.parse import quote, urlsplit

from muxway.clients.pages import PageAnswer, read_fields
from muxway.errors import MuxwayError
from muxway.exchange.logins import LoginPage
from muxway.identity.credentials import login_key
from muxway.identity.gateway_client import DOCUMENT, GatewayClient
from muxway.identity.login import LIFETIME, LoginDeclined
from muxway.identity.sign_in import SignIn, sign_out
from muxway.identity.sign_on import CALLBACK, LASTS, SignedOn, csrf_field, is_own_form
from muxway.identity.store import LOCAL, TokenStore
from muxway.identity.user_values import WrongValue, checked, values_key
from muxway.identity.web_pages import say, send_to, show
from muxway.log import EventLog, printable
from muxway.net.sealed_files import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from muxway.calls.identity import Identity, Owner
    from muxway.clients.pages import PageHandler, PageRequest
    from muxway.config.model import ServerConfig
    from muxway.identity.login import PendingLogin
    from muxway.identity.sealed_cookies import SealedCookies
    from muxway.identity.sign_on import SignOn

PATH: Final = "/connect"
BACK: Final = "/connect/callback"
"""Where authorization servers of servers send browsers back to."""
_OPERATOR: Final = "operator"
_MOST_PENDING: Final = 1000
_MOST_OF_ONE: Final = 10
"""Logins that one user may have begun."""
_BEGIN: Final = 20.0
"""Seconds to find out where to log in."""

log = EventLog("identity")


class Connectable(Protocol):
    """What the page needs of the gateway: its logins at servers."""

    def those_with_logins(self) -> Iterable[ServerConfig]:
        """The servers that are known to want a login."""
        ...

    def may_use(self, name: str, identity: Identity | None) -> bool:
        """Whether rules leave a user anything of a server."""
        ...

    def user_logged_in(self, name: str, owner: Owner | None, pages: Iterable[str] = ()) -> None:
        """A user, or for None whoever runs the gateway, has logged in to a server, or out of it."""
        ...


@dataclass(slots=True)
class _OpenLogin:
    """A login at a server that has begun."""

    sign_in: SignIn
    pending: PendingLogin
    server: str
    owner: Owner
    browser: str
    """What tells the browser, and the sign-on in it, from any other."""
    ends: float = field(default_factory=lambda: time.monotonic() + LIFETIME)


class _Linked(NamedTuple):
    """A link that a client was given for its user."""

    server: str
    owner: Owner
    ends: float


class _PageReader(NamedTuple):
    """Who looks at the page."""

    who: SignedOn
    owner: Owner
    headers: tuple[tuple[str, str], ...] = ()
    """What the browser is to keep."""

    @property
    def user(self) -> Owner | None:
        """As the gateway knows the user; None: whoever runs it."""
        return None if self.owner == LOCAL else self.owner

    @property
    def identity(self) -> Identity | None:
        return None if self.owner == LOCAL else self.who.identity


class ConnectPages:
    """The pages of one gateway."""

    def __init__(
        self,
        base: str,
        logins: Callable[[], Connectable | None],
        cookies: SealedCookies,
        sign_on: SignOn | None = None,
    ) -> None:
        """Prepare.

        Args:
            base: the base URL that browsers know the gateway by.
            logins: gives the gateway's logins at servers; None: it rests until somebody calls.
            cookies: what browsers keep for us.
            sign_on: where users sign on; None: the page is for whoever runs the gateway alone.
        """
        self._base, self._logins = base, logins
        self._cookies, self._sign_on = cookies, sign_on
        self._begun: dict[str, _OpenLogin] = {}
        self._links: dict[str, _Linked] = {}
        self._client = GatewayClient(base, base + BACK)

    @property
    def handlers(self) -> dict[str, PageHandler]:
        """Who answers, by path."""
        handlers: dict[str, PageHandler] = {PATH: self._page, BACK: self._back}
        if self._client.document_url is not None:
            handlers[DOCUMENT] = self._client.document
        return handlers if self._sign_on is None else {**handlers, CALLBACK: self._sign_on.callback}

    # --- links for clients --------------------------------------------------------------------

    def knows(self, owner: Owner) -> bool:
        """Whether somebody can sign on here at all: keys, and machines, have no browser."""
        return self._sign_on is not None and self._sign_on.issuer == owner[0]

    def link(self, server: str) -> str:
        """Where users log in to a server. The same for everybody."""
        return f"{self._base}{PATH}?server={quote(server, safe='')}"

    def page(self, server: str, owner: Owner) -> LoginPage:
        """The same for one user, whose client hears when it is done. The same while it is good."""
        now = time.monotonic()
        self._links = {id_: one for id_, one in self._links.items() if one.ends > now}
        known = (id_ for id_, one in self._links.items() if (one.server, one.owner) == (server, owner))
        id_ = next(known, None)
        if id_ is None:
            if len(self._links) >= _MOST_PENDING:
                del self._links[next(iter(self._links))]
            id_ = secrets.token_urlsafe(32)
            self._links[id_] = _Linked(server, owner, now + LIFETIME)
        return LoginPage(id_, f"{self._base}{PATH}?page={id_}")

    # --- who looks ----------------------------------------------------------------------------

    def _visitor(self, request: PageRequest) -> _PageReader | None:
        """Who looks at a page; None: nobody that is known."""
        if request.is_operator:
            who = self._cookies.get(request, self._base, _OPERATOR, SignedOn)
            if who is not None:
                return _PageReader(who, LOCAL)
            who = SignedOn(*LOCAL, getpass.getuser(), (), secrets.token_urlsafe(24))
            return _PageReader(who, LOCAL, (self._cookies.put(self._base, _OPERATOR, who, LASTS),))
        who = None if self._sign_on is None else self._sign_on.who(request)
        return None if who is None else _PageReader(who, who.identity.owner)

    async def _unknown(self, request: PageRequest, back: str) -> PageAnswer:
        if self._sign_on is None:
            return say(
                404, "There is no such page for you", "Who runs the gateway has not set up `gateway.auth.signOn`."
            )
        return await self._sign_on.begin(request, back)

    # --- the page -----------------------------------------------------------------------------

    async def _page(self, request: PageRequest) -> PageAnswer:
        try:
            return await self._answer(request)
        except StoreError as error:
            log.error("the page /connect cannot use its store", why=str(error))
            return say(503, "Not now", "The gateway's log says why. What was there before is as it was.")

    async def _answer(self, request: PageRequest) -> PageAnswer:
        if f"http://{request.host}" != self._base and self._base.startswith("http:"):
            # Cookies belong to one name of this machine.
            return send_to(f"{self._base}{PATH}?{request.query}" if request.query else f"{self._base}{PATH}")
        visitor = self._visitor(request)
        if visitor is None:
            return await self._unknown(request, f"{PATH}?{request.query}" if request.query else PATH)
        if request.method == "POST":
            return await self._change(request, visitor)
        asked = read_fields(request.query) or {}
        if "page" not in asked:
            return await self._show(visitor, asked.get("server"))
        link = self._links.get(asked["page"])
        if link is None or link.ends < time.monotonic():
            return say(404, "This link is not good any more", "Make the call again to get another one.")
        if link.owner != visitor.owner:
            log.warning("a link for another user was opened", upstream=link.server, user=visitor.who.user)
            return say(403, "This link is not for you", "It was given to a client of another user.")
        return await self._show(visitor, link.server)

    async def _show(
        self, visitor: _PageReader, only: str | None = None, note: str = "", status: int = 200
    ) -> PageAnswer:
        """The page for a user: all servers, or one."""
        shown = self._shown(visitor)
        if only is not None:
            shown = [one for one in shown if one.name == only]
        parts = await asyncio.to_thread(lambda: [_section(visitor, one, TokenStore()) for one in shown])
        if not parts:
            parts = ["<p class=soft>No server wants a login of yours.</p>"]
        if only is not None:
            parts.append(f"<p><a href='{PATH}'>All servers</a></p>")
        said = f"<p class=bad>{escape(note)}</p>" if note else ""
        body = f"{self._header(visitor)}{said}{''.join(parts)}"
        return show(status, "Your servers", body, visitor.headers)

    def _shown(self, visitor: _PageReader) -> list[ServerConfig]:
        """The servers that a user has something to do with here."""
        logins = self._logins()
        if logins is None:
            return []
        every = [one for one in logins.those_with_logins() if one.oauth.interactive]
        mine = [one for one in every if visitor.owner == LOCAL or not one.oauth.shared]
        return [one for one in mine if logins.may_use(one.name, visitor.identity)]

    def _header(self, visitor: _PageReader) -> str:
        off = "" if visitor.owner == LOCAL else _form(visitor, "", "sign-off", "Sign off")
        return (
            f"<header><h1>Your servers</h1><div class=soft>signed on as <b>{escape(visitor.who.user)}</b> {off}</div>"
            "</header><p class=soft>What you connect here is used for your calls alone, and kept sealed.</p>"
        )

    # --- what forms do ------------------------------------------------------------------------

    async def _change(self, request: PageRequest, visitor: _PageReader) -> PageAnswer:
        if visitor.headers or not is_own_form(request, self._base, visitor.who):
            return say(403, "This form is not yours", "Open the page again, and send the form from there.")
        action, name = request.form.get("do", ""), request.form.get("server", "")
        if action == "sign-off" and self._sign_on is not None:
            return say(
                200, "You are signed off", "Here, that is: not at the company's sign-on.", [self._sign_on.end(request)]
            )
        config = next((one for one in self._shown(visitor) if one.name == name), None)
        if config is not None and config.user_values and action in ("save", "remove"):
            return await self._keep_values(visitor, config, request.form if action == "save" else {})
        if config is None or config.user_values or action not in ("connect", "disconnect"):
            return say(404, "There is no such server for you", "It may have been removed. Open the page again.")
        if action == "connect":
            return await self._connect(visitor, config)
        return await self._disconnect(visitor, config)

    async def _connect(self, visitor: _PageReader, config: ServerConfig) -> PageAnswer:
        known_as = partial(self._client.known_as, config.name, config.oauth)
        try:
            sign_in = SignIn(config, TokenStore(), owner=visitor.owner)
            async with asyncio.timeout(_BEGIN):
                await self._client.look()
                pending = await sign_in.begin(self._base + BACK, known_as)
            link = pending.link
        except (MuxwayError, TimeoutError) as error:
            log.warning(
                "login failed", upstream=config.name, user=visitor.who.user, error=str(error) or "it takes too long"
            )
            return await self._show(visitor, config.name, f"{config.name}: {_told(error)}", 502)
        self._client.begun(config.name, pending)
        self._make_room(visitor.owner)
        self._begun[pending.state] = _OpenLogin(sign_in, pending, config.name, visitor.owner, visitor.who.csrf)
        return send_to(link)

    def _make_room(self, owner: Owner) -> None:
        now = time.monotonic()
        self._begun = {state: one for state, one in self._begun.items() if one.ends > now}
        its = [state for state, one in self._begun.items() if one.owner == owner]
        for state in its[: max(0, len(its) + 1 - _MOST_OF_ONE)]:
            del self._begun[state]
        while len(self._begun) >= _MOST_PENDING:
            del self._begun[next(iter(self._begun))]

    async def _keep_values(self, visitor: _PageReader, config: ServerConfig, form: Mapping[str, str]) -> PageAnswer:
        """Keep what a user has filled in, or forget what was; a field that is left empty stays as it was."""
        store, key = TokenStore(), values_key(config, visitor.owner)
        values = store.values(key) if form else {}
        try:
            for name in config.user_values:
                if given := form.get(f"value-{name}", "").strip():
                    values[name] = checked(name, given)
        except WrongValue as wrong:
            return await self._show(visitor, config.name, str(wrong), 400)
        store.keep_values(key, values)
        log.info("keys kept" if form else "keys forgotten", upstream=config.name, user=visitor.who.user)
        self._tell(config.name, visitor, self._done(config.name, visitor.owner))
        return send_to(self._base + PATH)

    def _done(self, server: str, owner: Owner) -> list[str]:
        """The links for this that are done."""
        done = [id_ for id_, one in self._links.items() if (one.server, one.owner) == (server, owner)]
        for id_ in done:
            del self._links[id_]
        return done

    async def _disconnect(self, visitor: _PageReader, config: ServerConfig) -> PageAnswer:
        store = TokenStore()
        login = store.read(login_key(config, visitor.owner))
        note = ""
        if login is not None:
            why = await sign_out(login, store, config)
            note = "" if why is None else f"{config.name}: {why}. It is forgotten here."
            log.info("logged out", upstream=config.name, user=visitor.who.user)
            self._tell(config.name, visitor)
        return await self._show(visitor, None, note) if note else send_to(self._base + PATH)

    # --- back from an authorization server ----------------------------------------------------

    async def _back(self, request: PageRequest) -> PageAnswer:
        if request.method != "GET":
            return say(405, "This page takes no forms", "It is only for the end of a login.")
        visitor = self._visitor(request)
        said = read_fields(request.query) or {}
        begun = self._begun.get(said.get("state", ""))
        if visitor is None or begun is None or begun.ends < time.monotonic():
            return say(400, "This is not a login that is open", f"Begin again at {self._base}{PATH}.")
        if (begun.owner, begun.browser) != (visitor.owner, visitor.who.csrf):
            # It stays open for the one who began it.
            log.warning("a login came back in another browser", upstream=begun.server, user=visitor.who.user)
            return say(403, "This login is not yours", "It began in another browser, or for another user.")
        del self._begun[begun.pending.state]
        try:
            await begun.sign_in.finish(begun.pending, request.query)
        except LoginDeclined as declined:
            self._client.came_back(begun.server, begun.pending)
            log.info("login declined", upstream=begun.server, user=visitor.who.user, why=declined)
            note = f"{begun.server}: {_told(declined)}. Nothing has changed; connect it below to try again."
            return await self._show(visitor, begun.server, note)
        except MuxwayError as error:
            log.warning("login failed", upstream=begun.server, user=visitor.who.user, error=error)
            return await self._show(visitor, begun.server, f"{begun.server}: {_told(error)}", 502)
        self._client.came_back(begun.server, begun.pending)
        log.info("logged in", upstream=begun.server, user=visitor.who.user)
        self._tell(begun.server, visitor, self._done(begun.server, begun.owner))
        return send_to(self._base + PATH)

    def _tell(self, server: str, visitor: _PageReader, done: Iterable[str] = ()) -> None:
        logins = self._logins()
        if logins is not None:
            logins.user_logged_in(server, visitor.user, done)


def _section(visitor: _PageReader, config: ServerConfig, store: TokenStore) -> str:
    """What the page says of one server."""
    # A program by its name: where it is on the gateway's machine is nothing to its users.
    where, form = escape(urlsplit(config.url or "").netloc or PurePath(config.command or "").name), ""
    try:
        given = store.values(values_key(config, visitor.owner)) if config.user_values else {}
        login = None if config.user_values else store.read(login_key(config, visitor.owner))
        no_login = "not connected"
    except StoreError as error:
        log.warning(
            "what a user has at a server cannot be read", upstream=config.name, user=visitor.who.user, why=error
        )
        given, login, no_login = {}, None, "what was kept cannot be read any more: connect it again"
    if config.user_values:
        missing = [name for name in config.user_values if name not in given]
        said = f"needs your {escape(', '.join(missing))}" if missing else "has your keys"
        button = _form(visitor, config.name, "remove", "Remove") if given else ""
        form = _key_form(visitor, config, given)
    else:
        missing = [] if login is not None else ["login"]
        said = no_login if login is None else "connected"
        button = _form(visitor, config.name, "connect", "Connect" if missing else "Connect again", go=bool(missing))
        button += "" if missing else " " + _form(visitor, config.name, "disconnect", "Disconnect")
    return (
        f"<section><div><span><h2>{escape(config.name)}</h2><p class=soft>{where}</p>"
        f"<p class={'bad' if missing else 'ok'}>{said}</p></span><span>{button}</span></div>{form}</section>"
    )


def _key_form(visitor: _PageReader, config: ServerConfig, given: Iterable[str]) -> str:
    """Where keys are filled in. What is kept is never shown."""
    kept = " (kept; fill in to replace it)"
    fields = "".join(
        f"<label for='{escape(config.name)}-{name}'>{name}{kept if name in given else ''}</label>"
        f"<input id='{escape(config.name)}-{name}' type=password autocomplete=off name='value-{name}'>"
        for name in config.user_values
    )
    return (
        f"<form method=post action='{PATH}'>{csrf_field(visitor.who)}"
        f"<input type=hidden name=server value='{escape(config.name)}'>{fields}"
        "<p><button class=go name=do value=save>Save</button></p></form>"
    )


def _form(visitor: _PageReader, server: str, action: str, label: str, *, go: bool = False) -> str:
    kind = " class=go" if go else ""
    return (
        f"<form method=post action='{PATH}'>{csrf_field(visitor.who)}"
        f"<input type=hidden name=server value='{escape(server)}'>"
        f"<button{kind} name=do value={action}>{label}</button></form>"
    )


def _told(error: BaseException) -> str:
    """What a user is told of what went wrong. No secret is in it."""
    return (
        "takes too long to answer; try again later" if isinstance(error, TimeoutError) else printable(str(error))[:300]
    )
