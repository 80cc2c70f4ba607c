"""The little of HTTP that the transport to a remote server needs, on top of aiohttp.

The only module that knows aiohttp. It is imported when the first such transport opens, so that whoever has none
does not pay for it. Whatever goes wrong on the way becomes a `HttpTrouble`, in words that continue `server "x" …`.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import ssl
from ipaddress import ip_address
from time import thread_time
from typing import TYPE_CHECKING, Final, Self
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp
from yarl import URL

from muxway import __version__
from muxway.errors import SpawnError
from muxway.net.http_errors import CONNECT, HttpTrouble

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_KEEP_ALIVE: Final = 4.0
"""Seconds an unused connection is kept: less than the 5 after which uvicorn and Node close it in our face."""
_AT_ONCE: Final = 1 << 20
_DEARER: Final = 4
"""How many times as long as to put the parts of a body together it takes to find them, about."""
_MOST_REDIRECTS: Final = 5
_REDIRECTS: Final = {"GET": frozenset((301, 302, 303, 307, 308)), "POST": frozenset((307, 308))}
"""For a POST only those that keep it a POST."""
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_UNSENDABLE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]").search


class HttpResponse:
    """An answer whose body has not been read yet. Leaving it unread ends its connection, not the others."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._read = 0
        self.handling = 0.0
        """Seconds of work that the last piece of the body cost before anybody looked at it, where that is known."""
        self.status = response.status
        self.content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def headers(self, name: str) -> list[str]:
        """Every value of a header that may come several times."""
        return self._response.headers.getall(name, [])

    def header(self, name: str) -> str | None:
        """The value of a header, if it is there."""
        return self._response.headers.get(name)

    async def chunk(self, idle: float | None = None) -> bytes:
        """The next piece of the body, decompressed; empty at its end. Waits at most `idle` seconds. Raises Trouble."""
        try:
            async with asyncio.timeout(idle):
                # Empty also means: a chunk of the transfer ended here.
                while not (data := await self._piece()):
                    if self._response.content.at_eof():
                        return b""
                self._read += len(data)
                return data
        except TimeoutError:
            raise HttpTrouble(f"sent nothing for {idle:g} s", "timeout") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _trouble(error) from error

    async def _piece(self) -> bytes:
        content = self._response.content
        if content.total_bytes <= self._read:
            self.handling = 0.0
            return await content.readany()
        # All that waits comes in as many parts as the server sent: of a flood of tiny ones, this is what costs.
        began = thread_time()
        data = content.read_nowait()
        self.handling = (thread_time() - began) * _DEARER
        return data

    async def read(self, limit: int) -> bytes:
        """The whole body. Raises Trouble if it is larger or does not arrive whole."""
        pieces: list[bytes] = []
        size = 0
        while data := await self.chunk():
            size += len(data)
            if size > limit:
                raise HttpTrouble(f"sent an answer over the size limit of {limit} bytes (maxMessageBytes)", "too_large")
            pieces.append(data)
        return b"".join(pieces)

    async def start(self, limit: int, patience: float) -> bytes:
        """The first bytes of the body, as many as come in time: enough to show what is wrong."""
        data = b""
        try:
            async with asyncio.timeout(patience):
                while len(data) < limit and (chunk := await self.chunk()):
                    data += chunk
        except (TimeoutError, HttpTrouble):
            pass  # what has come will do
        return data[:limit]

    def close(self) -> None:
        """Done with it, read or not."""
        if not self._response.content.at_eof():
            self._response.close()


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
            self._origin = URL(url).origin()
        except ValueError as error:
            raise SpawnError(f"its `url` cannot be used: {error}") from None
        if self._origin.scheme not in ("http", "https"):
            raise SpawnError(f"its `url` must begin with http:// or https://, not {self._origin.scheme}://")
        agent = {} if any(name.lower() == "user-agent" for name in headers) else {"User-Agent": f"muxway/{__version__}"}
        self._headers = {**agent, **headers}
        self._tls: ssl.SSLContext | bool = True if tls is None else tls
        try:
            self._proxy = URL(proxy) if proxy else proxy_for(self._origin) if proxy is None else None
        except ValueError as error:
            raise SpawnError(f"its proxy cannot be used: {error}") from None
        self._session = aiohttp.ClientSession(
            # How many requests run at once is for the transport to say: it knows which of them must never wait.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            read_bufsize=1 << 18,
        )

    def join(self, base: str, address: str) -> str | None:
        """An address that the server gave, made absolute; None if it lies on another origin."""
        try:
            url = URL(base).join(URL(address))
            return str(url) if url.origin() == self._origin else None
        except ValueError:
            return None

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None, *, redirects: bool = True
    ) -> HttpResponse:
        """Send a request; returns when the head of the answer is there. Follows redirects to the same origin, or none.

        Raises:
            Trouble: there is no answer, or it points elsewhere.
        """
        # Ours last: a configured header must not change what the body says it is.
        ours = {name.lower() for name in headers}
        sent = {**{name: value for name, value in self._headers.items() if name.lower() not in ours}, **headers}
        for _ in range(_MOST_REDIRECTS):
            # A large one in pieces: written at once it would hold up everybody else.
            data = io.BytesIO(body) if body is not None and len(body) > _AT_ONCE else body
            try:
                response = await self._session.request(
                    *(method, URL(url)),
                    headers=sent,
                    data=data,
                    allow_redirects=False,
                    ssl=self._tls,
                    proxy=self._proxy,
                )
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise _trouble(error) from error
            location = response.headers.get("Location")
            if not 300 <= response.status < 400 or location is None:
                return HttpResponse(response)
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

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()


def proxy_for(origin: URL) -> URL | None:
    """The proxy that the environment names (HTTPS_PROXY, HTTP_PROXY, NO_PROXY). This machine needs none."""
    host = origin.host or ""
    proxies = getproxies_environment()
    named = proxies.get(origin.scheme) or proxies.get("all")
    if not named or _is_here(host) or proxy_bypass(f"{host}:{origin.port}", proxies):
        return None
    return URL(named if "://" in named else f"http://{named}")


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")


def _origin_of(location: str) -> str:
    try:
        return str(URL(location).origin())
    except ValueError:
        return "which cannot be read"


def _trouble(error: Exception) -> HttpTrouble:
    return HttpTrouble(_meaning(error), broken=True)


def _meaning(error: Exception) -> str:
    """What a library error means. Its own text may hold the URL with a token in it, so it is not shown."""
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return "cannot be reached: its proxy does not answer; check `proxy`, or the variable HTTPS_PROXY"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"cannot be reached: its proxy refuses with status {error.status}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        why = cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else "unknown reason"
        return (
            f"has no TLS certificate that can be trusted: {why[:1].lower()}{why[1:].rstrip('.')}; if it is of an "
            "authority of your own, name that under `tls.ca`"
        )
    # With TLS 1.3 the other side refuses our certificate only after the connection is made.
    for refusal in (error, error.__cause__, getattr(error, "os_error", None)):
        if isinstance(refusal, ssl.SSLError):
            alert = re.sub(r"^(SSL|TLS)V?[0-9]*_ALERT_", "", refusal.reason or "no reason given").replace("_", " ")
            return f"does not take the TLS connection ({alert.lower()})"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "cannot be reached: its host name is not known; check `url`"
    if isinstance(error, aiohttp.ServerTimeoutError | TimeoutError):
        return f"cannot be reached: no connection within {CONNECT:g} s; check `url`"
    if isinstance(error, aiohttp.ClientConnectorError):
        # When several addresses were tried there is no one number for it, and its words for all of them are long.
        why = os.strerror(error.errno) if error.errno else "connection refused"
        return f"cannot be reached: {why.lower()}; does it run, and is its URL right?"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "closed the connection without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "broke off in the middle of an answer"
    if isinstance(error, OSError):
        return "reset the connection"
    if isinstance(error, aiohttp.ClientResponseError):
        return "answered with something that is not HTTP"
    return f"could not be asked ({type(error).__name__})"
