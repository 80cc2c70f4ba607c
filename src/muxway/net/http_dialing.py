"""Making connections to one origin: by all its addresses, through a proxy, with TLS."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from base64 import b64encode
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.request import getproxies_environment, proxy_bypass

import aiohappyeyeballs
from yarl import URL

from muxway.errors import SpawnError
from muxway.net.http_errors import CONNECT, HttpTrouble, tls_refusal

if TYPE_CHECKING:
    from collections.abc import Callable

_NEXT_ADDRESS: Final = 0.25
"""Seconds after which another address of a host is tried beside the one that does not answer (RFC 8305 §5)."""
_LONGEST_HEAD: Final = 64 * 1024
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})").match

P = TypeVar("P", bound=asyncio.Protocol)


class HttpDialer:
    """Makes connections to one origin."""

    def __init__(self, origin: URL, tls: ssl.SSLContext | None, proxy: str | None) -> None:
        """Prepare.

        Args:
            origin: where to.
            tls: how it is known, if not by the system's authorities alone.
            proxy: what is on the way; the empty text: nothing; None: what the environment says.

        Raises:
            SpawnError: the proxy cannot be used.
        """
        self._origin = origin
        self._tls = tls
        try:
            self._proxy = URL(proxy) if proxy else proxy_for(origin) if proxy is None else None
            if self._proxy is not None and self._proxy.scheme not in ("http", "https"):
                raise ValueError(f"{self._proxy.scheme}:// is no proxy for HTTP")
        except ValueError as error:
            raise SpawnError(f"its proxy cannot be used: {error}") from None

    @property
    def told_of_proxy(self) -> tuple[str, dict[str, str]]:
        """What a request says to a proxy that reads it: what its target begins with, and credentials."""
        if self._proxy is None or self._origin.scheme == "https":
            return "", {}
        return str(self._origin), credentials("Proxy-Authorization", self._proxy)

    async def connect(self, make: Callable[[], P]) -> P:
        """Make a connection. Raises HttpTrouble."""
        try:
            async with asyncio.timeout(CONNECT):
                return await (self._direct(make) if self._proxy is None else self._through(self._proxy, make))
        except (OSError, ValueError) as error:
            raise HttpTrouble(_meaning(error), broken=True) from error

    async def _direct(self, make: Callable[[], P]) -> P:
        return await _open(self._origin, make, await self._context())

    async def _through(self, proxy: URL, make: Callable[[], P]) -> P:
        loop, tls = asyncio.get_running_loop(), await self._context()
        trusted = await asyncio.to_thread(_system_tls) if proxy.scheme == "https" else None
        try:
            if tls is None:
                return await _open(proxy, make, trusted)
            tunnel = await _open(proxy, _Tunnel, trusted)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            why = "cannot be reached: its proxy does not answer; check `proxy`, or the variable HTTPS_PROXY"
            raise HttpTrouble(why, broken=True) from error
        try:
            status = await tunnel.open(self._origin, credentials("Proxy-Authorization", proxy))
            if not 200 <= status < 300:
                raise HttpTrouble(f"cannot be reached: its proxy refuses with status {status}", broken=True)
            line = make()
            # A server that speaks before it is asked is heard before this returns.
            line.connection_made(tunnel.transport)
            transport = await loop.start_tls(tunnel.transport, line, tls, server_hostname=self._origin.host)
        except BaseException:
            tunnel.transport.abort()
            raise
        if transport is None:
            raise HttpTrouble("closed the connection without an answer", broken=True)
        line.connection_made(transport)
        return line

    async def _context(self) -> ssl.SSLContext | None:
        if self._origin.scheme != "https":
            return None
        return self._tls or await asyncio.to_thread(_system_tls)


class _Tunnel(asyncio.Protocol):
    """A connection to a proxy until it leads elsewhere (RFC 9110 §9.3.6)."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._heard = b""
        self._answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # pyright: ignore[reportAttributeAccessIssue] - a stream's transport it is

    async def open(self, origin: URL, headers: dict[str, str]) -> int:
        """Ask for the way to a place; the status of the answer."""
        host = origin.raw_host or ""
        place = f"[{host}]:{origin.port}" if ":" in host else f"{host}:{origin.port}"
        more = (f"{name}: {value}" for name, value in headers.items())
        lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}", *more]
        self.transport.write("\r\n".join((*lines, "", "")).encode("latin-1"))
        return await self._answered

    def data_received(self, data: bytes) -> None:
        self._heard += data
        ends, status = b"\r\n\r\n" in self._heard, _STATUS(self._heard)
        if (ends or len(self._heard) > _LONGEST_HEAD) and not self._answered.done():
            if ends and status is not None:
                self._answered.set_result(int(status[1]))
            else:
                self._answered.set_exception(HttpTrouble("cannot be reached: its proxy speaks no HTTP", broken=True))

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if not self._answered.done():
            self._answered.set_exception(HttpTrouble("cannot be reached: its proxy hung up", broken=True))


async def _open(place: URL, make: Callable[[], P], tls: ssl.SSLContext | None) -> P:
    """A connection to a place itself. Raises OSError."""
    loop = asyncio.get_running_loop()
    host = place.host or ""
    addresses = await loop.getaddrinfo(host, place.port or 0, type=socket.SOCK_STREAM)
    connected = await aiohappyeyeballs.start_connection(  # pyright: ignore[reportUnknownMemberType] - its tuples
        addresses, happy_eyeballs_delay=_NEXT_ADDRESS
    )
    try:
        name = None if tls is None else host
        _, line = await loop.create_connection(make, sock=connected, ssl=tls, server_hostname=name)
    except BaseException:
        connected.close()
        raise
    return line


@cache
def _system_tls() -> ssl.SSLContext:
    """What certificates are checked with. Made once, in a thread: to read all that are trusted takes a while."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def credentials(name: str, url: URL) -> dict[str, str]:
    """The header that says what stands in a URL before its host, if anything does (RFC 7617)."""
    if url.user is None and url.password is None:
        return {}
    pair = f"{url.user or ''}:{url.password or ''}".encode()
    return {name: f"Basic {b64encode(pair).decode()}"}


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


def _meaning(error: Exception) -> str:
    """Why there is no connection. An error's own text may hold the URL with a token in it, so it is not shown."""
    if isinstance(error, ssl.SSLError):
        return tls_refusal(error)
    if isinstance(error, socket.gaierror | UnicodeError):
        return "cannot be reached: its host name is not known; check `url`"
    if isinstance(error, TimeoutError):
        return f"cannot be reached: no connection within {CONNECT:g} s; check `url`"
    # When several addresses were tried there is no one number for it.
    number = error.errno if isinstance(error, OSError) else None
    why = os.strerror(number) if number else "connection refused"
    return f"cannot be reached: {why.lower()}; does it run, and is its URL right?"
