"""Requests to addresses that somebody else named, such as a server's metadata: never to where only we can reach.

Https only, and only to addresses of the open internet; each name is looked up once, and the connection goes to an
address that was looked at. What the user wrote into the configuration may be elsewhere: then what a server there names
may lie in the same zone, on this machine or in the same kind of private network, and nowhere else.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDictProxy
from yarl import URL

from muxway import __version__
from muxway.errors import MuxwayError
from muxway.log import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

_TIME: Final = 10.0
_CONNECT: Final = 5.0
_DOWNLOAD: Final = 300.0
_LARGEST: Final = 256 * 1024
_MOST_REDIRECTS: Final = 3
_SHOWN: Final = 120

GLOBAL, LOOPBACK, PRIVATE, NOWHERE = "global", "loopback", "private", "nowhere"
"""Where an address leads: to the internet, to this machine, to a network of our own, to where nobody has a server."""

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_ISATAP: Final = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")
_UNIQUE_LOCAL: Final = ipaddress.ip_network("fc00::/7")
_OWN: Final = tuple(map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))


class FetchError(MuxwayError):
    """There is no answer, or the address is one that must not be asked. The message names the host, never the query."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        """Whether it was not even asked."""


class FetchAnswer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str

    @property
    def ok(self) -> bool:
        """Whether it is what was asked for."""
        return 200 <= self.status < 300


def zone(address: str) -> str:
    """Where an IP address leads; the IPv4 address inside an IPv6 one counts, too."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return NOWHERE
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.scope_id is not None:
            return NOWHERE
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo is not None else None)
        if inner is None and (ip in _NAT64 or ip.packed[8:12] in _ISATAP or not any(ip.packed[:12])):
            inner = None if ip.is_loopback else ipaddress.IPv4Address(ip.packed[12:])
        if inner is not None:
            # However it is wrapped, that is where it ends; to have our own wrapped is nothing that anybody needs.
            return GLOBAL if zone(str(inner)) == GLOBAL else NOWHERE
        if ip in _UNIQUE_LOCAL:
            return PRIVATE
    elif any(ip in network for network in _OWN):
        return PRIVATE
    if ip.is_loopback:
        return LOOPBACK
    return GLOBAL if ip.is_global and not ip.is_multicast else NOWHERE


class _Guard(AbstractResolver):
    """Looks names up, and gives back only what may be asked."""

    def __init__(self, fetch: GuardedFetch) -> None:
        self._fetch = fetch

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys((kind, str(address[0])) for kind, _, _, _, address in found))
        for _, address in addresses:
            # All of them: one that leads inside is a sign of ill will, or of a name that flips.
            self._fetch.check_address(host, address)
        self._fetch.note_place(host, [address for _, address in addresses])
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=flags)
            for kind, address in addresses
        ]

    async def close(self) -> None:
        """Nothing is kept."""


class GuardedFetch:
    """Asks small things of addresses that were named by others."""

    def __init__(self, written: Iterable[str], *, private: bool = False, keep_alive: bool = False) -> None:
        """Prepare.

        Args:
            written: URLs that the user wrote down. Their hosts may be asked wherever they are.
            private: whether it is known already that what was written answers from a private network.
            keep_alive: keep connections for further requests: for who has many.
        """
        self._keep_alive = keep_alive
        urls = [*map(URL, written)]
        hosts = [(url.host or "").lower() for url in urls]
        self._written = frozenset(hosts)
        self._plain = frozenset(host for host, url in zip(hosts, urls, strict=True) if url.scheme == "http")
        """Hosts that may be asked without TLS. To any other name only its certificate says that it leads there."""
        self._zones = {GLOBAL, PRIVATE} if private else {GLOBAL}
        """Where one may ask. What was written adds its own zone as soon as it has answered from there."""
        self._inside: set[str] = set()
        """Names of what was written that lead to a private network, and nowhere else."""
        for host in hosts:
            if host == "localhost" or host.endswith(".localhost") or zone(host) == LOOPBACK:
                self._zones.add(LOOPBACK)
            elif zone(host) == PRIVATE:
                self._zones.add(PRIVATE)
        self._session: aiohttp.ClientSession | None = None

    @property
    def private(self) -> bool:
        """Whether what was written answers from a private network, where what it names may lie, too."""
        return PRIVATE in self._zones

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close what is open."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def check(self, url: str) -> URL:
        """The parsed URL. Raises FetchError if it must not be asked, as far as its text shows."""
        try:
            if any(ord(char) <= 0x20 or char in "\\\x7f" for char in url):
                raise ValueError(url)
            parsed = URL(url)
            host = (parsed.host or "").lower()
            if not host or parsed.user is not None or parsed.password is not None or "%" in host:
                raise ValueError(url)
        except (ValueError, TypeError):
            raise FetchError(f"{_shown(url)} is no address that can be asked", refused=True) from None
        local = host == "localhost" or host.endswith(".localhost") or zone(host) == LOOPBACK
        if parsed.scheme == "http" and not (local and LOOPBACK in self._zones) and host not in self._plain:
            raise FetchError(f"{_shown(url)} must be https", refused=True)
        if parsed.scheme not in ("http", "https"):
            raise FetchError(f"{_shown(url)} must be https", refused=True)
        try:
            ipaddress.ip_address(host)
        except ValueError:
            pass
        else:
            self.check_address(host, host)
        return parsed

    def check_address(self, host: str, address: str) -> None:
        """Raise FetchError if this address of a host must not be asked."""
        if host.lower() in self._written:
            return
        where = zone(address)
        if where not in self._zones:
            place = {LOOPBACK: "on this machine", PRIVATE: "in a private network"}.get(where, "no place of a server")
            raise FetchError(
                f"{printable(host)[:_SHOWN]} is {place}, where a server may not send us; if that is right, "
                "write its address into `oauth`",
                refused=True,
            )

    def note_place(self, host: str, addresses: Iterable[str]) -> None:
        """A name was looked up. What it claims of itself opens nothing, before something has answered there."""
        if host.lower() in self._written and all(zone(address) == PRIVATE for address in addresses):
            self._inside.add(host.lower())
        else:
            self._inside.discard(host.lower())

    async def get(self, url: str, headers: Mapping[str, str] | None = None, *, largest: int = _LARGEST) -> FetchAnswer:
        """GET, following a few redirects within the same origin. Raises FetchError."""
        for _ in range(_MOST_REDIRECTS + 1):
            answer = await self._ask("GET", url, headers or {}, None, largest)
            location = answer.headers.get("Location")
            if not 300 <= answer.status < 400 or location is None:
                return answer
            here = URL(url)
            try:
                there = here.join(URL(location))
                elsewhere = there.origin() != here.origin()
            except ValueError:
                there, elsewhere = here, True
            if elsewhere:
                raise FetchError(f"{_shown(url)} redirects to another origin, which is not followed", refused=True)
            url = str(there)
        raise FetchError(f"{_shown(url)} redirects again and again")

    async def download(self, url: str, largest: int) -> bytes:
        """A file, also from where its host redirects to: whoever asks knows its digest. Raises FetchError."""
        for _ in range(_MOST_REDIRECTS + 1):
            answer = await self._ask("GET", url, {"Accept": "*/*"}, None, largest, _DOWNLOAD)
            location = answer.headers.get("Location")
            if not 300 <= answer.status < 400 or location is None:
                if answer.ok:
                    return answer.body
                raise FetchError(f"{_shown(url)} cannot be downloaded: status {answer.status}")
            try:
                url = str(URL(url).join(URL(location)))
            except ValueError:
                raise FetchError(f"{_shown(url)} redirects to what is no address", refused=True) from None
        raise FetchError(f"{_shown(url)} redirects again and again")

    async def refusal(self, url: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, list[str]]:
        """The status of an answer, and what it says of credentials; the rest of it is not read. Raises FetchError."""
        answer = await self._ask("GET" if body is None else "POST", url, headers, body, largest=0)
        challenges = (
            answer.headers.getall("WWW-Authenticate", []) if isinstance(answer.headers, CIMultiDictProxy) else []
        )
        return answer.status, challenges

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> FetchAnswer:
        """POST; a redirect is an answer like any other. Raises FetchError."""
        return await self._ask("POST", url, headers, body)

    async def _ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        largest: int = _LARGEST,
        seconds: float = _TIME,
    ) -> FetchAnswer:
        parsed = self.check(url)
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=_Guard(self), use_dns_cache=False, force_close=not self._keep_alive
                ),
                timeout=aiohttp.ClientTimeout(connect=_CONNECT),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                headers={"User-Agent": f"muxway/{__version__}", "Accept": "application/json"},
            )
        try:
            async with self._session.request(
                method,
                parsed,
                headers=headers,
                data=body,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=seconds, connect=_CONNECT),
            ) as response:
                if (parsed.host or "").lower() in self._inside:
                    # The server itself is in our own network: so may be who looks after its logins.
                    self._zones.add(PRIVATE)
                content = bytearray()
                while largest and not response.content.at_eof():
                    content += await response.content.read(largest + 1 - len(content))
                    if len(content) > largest:
                        raise FetchError(f"{_shown(url)} sent more than {largest} bytes")
                return FetchAnswer(response.status, response.headers, bytes(content), str(parsed))
        except FetchError:
            raise
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError) as error:
            raise FetchError(f"{_shown(url)} {_meaning(error, seconds)}") from error


def _meaning(error: Any, seconds: float) -> str:
    # What the library says may hold the URL, and in it a secret.
    if isinstance(error, aiohttp.ClientConnectorDNSError | socket.gaierror):
        return "cannot be reached: its host name is not known"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return "has no TLS certificate that can be trusted"
    if isinstance(error, TimeoutError):
        return f"did not answer within {seconds:g} s"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "cannot be reached"
    return "broke off, or answered with something that is not HTTP"


def _shown(url: str) -> str:
    """A URL without its query and whoever it names, for people."""
    scheme, slashes, rest = url.partition("?")[0].partition("#")[0].rpartition("//")
    return printable(scheme + slashes + rest.rpartition("@")[2])[:_SHOWN]
