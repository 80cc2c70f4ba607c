"""Pages of this machine that begin a login: what a client is sent to when a call needs one.

The link is ours and has nothing in it but a random name. It is for the user who runs the gateway: whoever else on this
machine opens it is turned away, as far as the system tells who that is. What comes back must come to the same browser.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from muxway.errors import MuxwayError
from muxway.exchange.logins import LoginPage
from muxway.identity.callback import answer_page, read_head, target_of
from muxway.identity.login import LIFETIME
from muxway.identity.sign_in import SignIn
from muxway.identity.store import TokenStore
from muxway.log import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.config.model import ServerConfig

_PATH: Final = "/login/"
_SOCKETS: Final = "/proc/net/tcp"
"""Where Linux says whose each socket is."""
_BEGIN: Final = 20.0
"""Seconds to find out where to log in."""
_GONE: Final = ("404 Not Found", "This link is not good any more", "Make the call again to get another one.")
_CANNOT: Final = (
    "502 Bad Gateway",
    "The login could not begin",
    "<code>muxway login</code> in a terminal, or the gateway's log, says why.",
)
_NOT_YOURS: Final = ("403 Forbidden", "This link is not for you", "It is for the user who runs the gateway.")

log = EventLog("identity")


@dataclass(slots=True)
class _Page:
    config: ServerConfig
    ends: float
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    begun: asyncio.Task[None] | None = None
    link: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class LoginPages:
    """The pages of one gateway."""

    def __init__(self, done: Callable[[str, str], None]) -> None:
        """Prepare; nothing listens before the first link is given. `done` hears the server and the id of each login."""
        self._done = done
        self._pages: dict[str, _Page] = {}
        self._socket: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None

    def page(self, config: ServerConfig) -> LoginPage | None:
        """A link for the login to a server, the same while it is good; None if no page can be had."""
        now = time.monotonic()
        for id_, page in list(self._pages.items()):
            if page.ends < now or (page.begun is not None and page.begun.done()):
                del self._pages[id_]
        id_ = next((known for known, page in self._pages.items() if page.config is config), None)
        if id_ is None:
            id_ = secrets.token_urlsafe(32)
            self._pages[id_] = _Page(config, now + LIFETIME)
        port = self._listen()
        return None if port is None else LoginPage(id_, f"http://127.0.0.1:{port}{_PATH}{id_}")

    def _listen(self) -> int | None:
        if self._socket is None:
            try:
                self._socket = socket.create_server(("127.0.0.1", 0))
            except OSError as error:
                log.warning("no page for logins can be served", error=error)
                return None
            self._serving = asyncio.get_running_loop().create_task(self._serve_all(self._socket))
        return self._socket.getsockname()[1]

    async def _serve_all(self, sock: socket.socket) -> None:
        server = await asyncio.start_server(self._serve, sock=sock)
        try:
            await server.serve_forever()
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_head(reader)
        if head is not None:
            with contextlib.suppress(OSError):
                writer.write(await self._answer(head, writer))
                await writer.drain()
        writer.close()

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter) -> bytes:
        path, _ = target_of(head)
        page = self._pages.get((path or "").removeprefix(_PATH)) if (path or "").startswith(_PATH) else None
        if not _is_own(writer.get_extra_info("peername"), writer.get_extra_info("sockname")):
            return answer_page(_NOT_YOURS)
        if page is None or page.ends < time.monotonic():
            return answer_page(_GONE)
        if page.begun is None:
            page.begun = asyncio.get_running_loop().create_task(self._log_in((path or "").removeprefix(_PATH), page))
        try:
            async with asyncio.timeout(_BEGIN):
                await asyncio.wait([page.begun, page.link], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            page.begun.cancel()
        if page.begun.done():
            return answer_page(_GONE if page.link.done() else _CANNOT)
        keep = f"Set-Cookie: muxway-login={page.cookie}; HttpOnly; SameSite=Lax; Path=/; Max-Age={LIFETIME:.0f}\r\n"
        return answer_page(("302 Found", "On to the login", "…"), f"Location: {page.link.result()}\r\n{keep}")

    async def _log_in(self, id_: str, page: _Page) -> None:
        try:
            await SignIn(page.config, TokenStore()).by_browser(page.link.set_result, cookie=page.cookie)
        except MuxwayError as error:
            log.warning("login failed", upstream=page.config.name, error=error)
        else:
            log.info("logged in", upstream=page.config.name)
            self._done(page.config.name, id_)

    async def close(self) -> None:
        """No link is good any more."""
        tasks = [page.begun for page in self._pages.values() if page.begun is not None]
        tasks += [] if self._serving is None else [self._serving]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._socket is not None:
            self._socket.close()


def _is_own(peer: tuple[str, int], here: tuple[str, int]) -> bool:
    """Whether a connection over the loopback is of the user who runs us, or of root; True where nobody can tell.

    A socket that its process has closed has no number any more, and shows as root's: it may have been anybody's.
    """
    try:
        rows = [line.split() for line in Path(_SOCKETS).read_text(encoding="ascii").splitlines()[1:]]
    except OSError:
        return True
    wanted = (_spelled(peer), _spelled(here))
    users = [int(row[7]) for row in rows if (row[1], row[2]) == wanted and row[9] != "0"]
    return bool(users) and users[0] in (os.geteuid(), 0)


def _spelled(address: tuple[str, int]) -> str:
    """As the kernel writes it: the bytes of an IPv4 address backwards, and the port."""
    return f"{socket.inet_aton(address[0])[::-1].hex().upper()}:{address[1]:04X}"
