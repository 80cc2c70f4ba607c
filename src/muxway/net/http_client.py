"""The HTTP client of the transport to a remote server: requests to one origin, on connections that are kept.

HTTP/1.1, as much of it as a server of MCP speaks. It is imported when the first such transport opens, so that whoever
has none does not pay for it. Whatever goes wrong on the way becomes an `HttpTrouble`, in words that continue
`server "x" …`.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from yarl import URL

from muxway import __version__
from muxway.errors import SpawnError
from muxway.net.http_dialing import HttpDialer, credentials
from muxway.net.http_errors import HttpTrouble
from muxway.net.http_line import HttpLine

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from muxway.net.http_line import HttpResponse

_KEEP_ALIVE: Final = 4.0
"""Seconds an unused connection is kept: less than the 5 after which uvicorn and Node close it in our face."""
_AT_ONCE: Final = 1 << 20
_MOST_REDIRECTS: Final = 5
_LONGEST_ORIGIN: Final = 300
"""Characters that are shown of where a server would have us go: a host name has at most 253."""
_REDIRECTS: Final = {"GET": frozenset((301, 302, 303, 307, 308)), "POST": frozenset((307, 308))}
"""For a POST only those that keep it a POST."""
_HARMLESS: Final = frozenset(("GET", "DELETE"))
"""What may be sent again if its connection was closed in its face."""
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_UNSENDABLE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]").search


class HttpClient:
    """Requests to one server, on connections that are kept for the next ones."""

    def __init__(
        self, url: str, headers: Mapping[str, str], *, tls: ssl.SSLContext | None = None, proxy: str | None = None
    ) -> None:
        """Prepare.

        Args:
            url: where the server is; requests go to its origin alone.
            headers: what every request has.
            tls: how the server is known, if not by the system's authorities alone.
            proxy: what is on the way; the empty text: nothing; None: what the environment says.

        Raises:
            SpawnError: the URL, the proxy or a configured header cannot be used.
        """
        for name, value in headers.items():
            if _TOKEN(name) is None or _UNSENDABLE(value) is not None:
                raise SpawnError(f"its header `{name}` has characters that no HTTP header can have")
        try:
            given = URL(url)
            self._origin = given.origin()
        except ValueError as error:
            raise SpawnError(f"its `url` cannot be used: {error}") from None
        if self._origin.scheme not in ("http", "https"):
            raise SpawnError(f"its `url` must begin with http:// or https://, not {self._origin.scheme}://")
        written = {name.lower() for name in headers}
        self._dialer = HttpDialer(self._origin, tls, proxy)
        self._target, to_proxy = self._dialer.told_of_proxy
        ours = {"Host": self._origin.raw_authority, "User-Agent": f"muxway/{__version__}"}
        ours |= credentials("Authorization", given) | to_proxy
        self._headers = {**{name: value for name, value in ours.items() if name.lower() not in written}, **headers}
        accepted = {"Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
        self._accepted = {name: value for name, value in accepted.items() if name.lower() not in written}
        self._free: list[HttpLine] = []
        """The connections that wait for a request, the one used last at the end."""
        self._lines: set[HttpLine] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False
        self._last: tuple[str, str, Mapping[str, str], bytes] = ("", "", {}, b"")
        """The head that was made last, and of what: most requests have the same."""

    def join(self, base: str, address: str) -> str | None:
        """An address that the server gave, made absolute; None if it lies on another origin."""
        try:
            url = URL(base).join(URL(address))
            return str(url) if url.origin() == self._origin else None
        except ValueError:
            return None

    # --- requests -----------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        redirects: bool = True,
        sent: HttpResponse | None = None,
    ) -> HttpResponse:
        """Send a request; returns when the head of the answer is there. Follows redirects to the same origin, or none.

        What was `sent` already, by `post`, is not sent again.

        Raises:
            HttpTrouble: there is no answer, or it points elsewhere.
        """
        for _ in range(_MOST_REDIRECTS):
            response = await (self._ask(method, url, headers, body) if sent is None else _begun(sent))
            sent = None
            location = response.header("Location") if 300 <= response.status < 400 else None
            if location is None:
                return response
            response.close()
            if not redirects:
                raise HttpTrouble(f"redirects (status {response.status}), which is not followed here")
            if response.status not in _REDIRECTS.get(method, ()):
                raise HttpTrouble(f"redirects a {method} with status {response.status}, which would lose the message")
            target = self.join(url, location)
            if target is None:
                raise HttpTrouble(
                    f"redirects to another origin, {_origin_of(location)}, where headers meant for it must not go;"
                    " if that is right, put the new address into `url`"
                )
            url = target
        raise HttpTrouble("redirects in circles")

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> HttpResponse | None:
        """Send a POST at once, if a connection is free and its body is not large; None if not. Raises HttpTrouble.

        What comes back has no head yet; `request` waits for it.
        """
        line = None if len(body) > _AT_ONCE else self._free_line()
        return None if line is None else line.send(self._head("POST", url, headers, len(body)), body)

    async def _ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        head = self._head(method, url, headers, None if method == "GET" else len(body or b""))
        while True:
            line = self._free_line() or await self._connect()
            again = line.used and method in _HARMLESS
            try:
                if body is not None and len(body) > _AT_ONCE:
                    response = await line.upload(head, body)
                else:
                    response = line.send(head, body or b"")
                await response.until_begun()
            except HttpTrouble:
                if not again or self._closed:
                    raise
            except BaseException:
                line.abort()
                raise
            else:
                return response

    def _head(self, method: str, url: str, headers: Mapping[str, str], size: int | None) -> bytes:
        """All that is sent before a body of this size. Raises HttpTrouble."""
        known = self._last
        if (known[2] is headers or known[2] == headers) and known[0] == method and known[1] == url:
            start = known[3]
        else:
            # Ours last: a configured header must not change what the body says it is.
            ours = {name.lower() for name in headers}
            first = {name: value for name, value in self._headers.items() if name.lower() not in ours}
            sent = {
                **first,
                **headers,
                **{name: value for name, value in self._accepted.items() if name not in headers},
            }
            if any(_UNSENDABLE(value) is not None for value in sent.values()):
                raise HttpTrouble("could not be asked: a header has characters that no HTTP header can have")
            lines = [
                f"{method} {self._target}{URL(url).raw_path_qs} HTTP/1.1",
                *(f"{name}: {value}" for name, value in sent.items()),
            ]
            start = "\r\n".join(lines).encode("latin-1")
            self._last = (method, url, headers, start)
        return start + (b"\r\n\r\n" if size is None else b"\r\nContent-Length: %d\r\n\r\n" % size)

    # --- connections --------------------------------------------------------------------------

    def _free_line(self) -> HttpLine | None:
        free = self._free
        while free:
            line = free.pop()
            if not line.transport.is_closing():
                return line
        return None

    def _freed(self, line: HttpLine) -> None:
        loop = asyncio.get_running_loop()
        line.free_since = loop.time()
        self._free.append(line)
        if self._sweeper is None:
            self._sweeper = loop.call_later(_KEEP_ALIVE, self._sweep)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        old = loop.time() - _KEEP_ALIVE
        for line in [line for line in self._free if line.free_since <= old]:
            self._free.remove(line)
            line.transport.close()
        left = min((line.free_since - old for line in self._free), default=None)
        self._sweeper = None if left is None else loop.call_later(left, self._sweep)

    def _lost(self, line: HttpLine) -> None:
        self._lines.discard(line)
        if line in self._free:
            self._free.remove(line)

    async def _connect(self) -> HttpLine:
        """Make a new connection. Raises HttpTrouble."""
        line = await self._dialer.connect(lambda: HttpLine(self._freed, self._lost))
        if self._closed:
            line.abort()
            raise HttpTrouble("was stopped")
        self._lines.add(line)
        return line

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for line in list(self._lines):
            line.transport.abort()
        # They are closed when the loop comes to it.
        await asyncio.sleep(0)


async def _begun(response: HttpResponse) -> HttpResponse:
    try:
        await response.until_begun()
    except BaseException:
        response.close()
        raise
    return response


def _origin_of(location: str) -> str:
    try:
        return str(URL(location).origin())[:_LONGEST_ORIGIN]
    except ValueError:
        return "which cannot be read"
