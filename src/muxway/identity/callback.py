"""The page of this machine that a browser comes back to after a login. Open for one login, on the loopback alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import parse_qs, urlsplit

from muxway.identity.discovery import OAuthError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

PATH: Final = "/callback"
_LONGEST: Final = 16 * 1024
_PATIENCE: Final = 5.0
_HEAD: Final = (
    "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {length}\r\n"
    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
    "Connection: close\r\n{more}\r\n"
)
_PAGE: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>muxway</title>"
    "<meta name=viewport content='width=device-width'><style>:root{{color-scheme:light dark}}</style>"
    "<body style='font:16px/1.5 system-ui;max-width:32em;margin:4em auto;padding:0 1em'>"
    "<h1>{title}</h1><p>{text}</p></body></html>"
)

DONE: Final = (
    "200 OK",
    "Almost done",
    "You can close this window; muxway finishes the login, and shows the result where you started it.",
)
DECLINED: Final = ("200 OK", "Not logged in", "The login was refused or cancelled. Nothing has changed.")
WRONG: Final = ("400 Bad Request", "This is not the login that is open", "Begin again with <code>muxway login</code>.")
NOTHING: Final = ("404 Not Found", "Nothing is here", "This page is only for the end of a login.")


class Callback:
    """Waits for a browser."""

    def __init__(self, redirect_uri: str | None, take: Callable[[str], bool], cookie: str | None = None) -> None:
        """Prepare.

        Args:
            redirect_uri: where it must be; None: at any free port.
            take: gets the query of each request, and says whether that was what was waited for.
            cookie: what the browser must have, if it was given a cookie when it set out.
        """
        self._cookie = cookie
        self._wanted = redirect_uri
        self._take = take
        self._server: asyncio.Server | None = None
        self.redirect_uri = ""

    async def __aenter__(self) -> Self:
        parts = urlsplit(self._wanted or f"http://127.0.0.1:0{PATH}")
        host, port = parts.hostname or "127.0.0.1", parts.port or 0
        # A browser may take `localhost` for either.
        hosts = ["127.0.0.1", "::1"] if host == "localhost" else [host]
        try:
            self._server = await asyncio.start_server(self._serve, hosts, port, limit=_LONGEST)
        except OSError:
            try:
                self._server = await asyncio.start_server(self._serve, hosts[0], port, limit=_LONGEST)
            except OSError as error:
                raise OAuthError(
                    f"port {port} of this machine, where the browser is to come back to, cannot be had "
                    f"({os.strerror(error.errno or 0).lower()}): free it, or register another one and write it as "
                    "`oauth.callbackPort`"
                ) from None
        port = self._server.sockets[0].getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self._path = parts.path or "/"
        self.redirect_uri = f"http://{shown}:{port}{parts.path}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_head(reader)
        if head is not None:
            with contextlib.suppress(OSError):
                writer.write(answer_page(self._answer(head)))
                await writer.drain()
        writer.close()

    def _answer(self, head: bytes) -> tuple[str, str, str]:
        path, query = target_of(head)
        if path != self._path:
            return NOTHING
        if self._cookie is not None and f"muxway-login={self._cookie}" not in _cookies(head):
            return WRONG
        if not self._take(query):
            return WRONG
        return DECLINED if "error" in parse_qs(query) else DONE


async def read_head(reader: asyncio.StreamReader) -> bytes | None:
    """The head of a request; None if none comes."""
    try:
        async with asyncio.timeout(_PATIENCE):
            return await reader.readuntil(b"\r\n\r\n")
    except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
        return None


def target_of(head: bytes) -> tuple[str | None, str]:
    """The path and the query of a GET; None for the path of anything else."""
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    path, _, query = rest.rpartition(" ")[0].partition("?")
    return (path if method == "GET" else None), query


def answer_page(page: tuple[str, str, str], more: str = "") -> bytes:
    """A page as it goes to the browser: status, title and text; `more` are lines for its head."""
    status, title, text = page
    body = _PAGE.format(title=title, text=text).encode()
    return _HEAD.format(status=status, length=len(body), more=more).encode() + body


def _cookies(head: bytes) -> list[str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    given = [line.partition(":")[2] for line in lines if line.lower().startswith("cookie:")]
    return [cookie.strip() for text in given for cookie in text.split(";")]
