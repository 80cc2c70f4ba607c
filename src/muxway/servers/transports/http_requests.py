"""Requests to one remote server: how many at once, and with the credentials that it wants at the moment."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from muxway.config.tls import ServerTls
from muxway.net.http_errors import HttpTrouble
from muxway.net.tls import Certificate, client_context

if TYPE_CHECKING:
    import ssl

    from muxway.config.model import ServerConfig
    from muxway.net.http_client import HttpClient
    from muxway.net.http_line import HttpResponse
    from muxway.servers.transports.port import Credentials

_AUTHORIZATION: Final = "Authorization"
_REFUSALS: Final = (401, 403)
_MOST_REFUSALS: Final = 3
"""How often one request is sent with other credentials."""


class Sent(NamedTuple):
    """A request that was sent, and nobody waits for its answer yet."""

    response: HttpResponse
    credentials: str | None
    """What it was sent with."""


class Turns:
    """How many messages may be under way at once; the others wait, first come, first served."""

    def __init__(self, most: int) -> None:
        self.most = self._free = most
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_now(self) -> bool:
        """Take a turn if there is one."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return True
        return False

    async def take(self, seconds: float) -> None:
        """Take a turn; wait for one as long as that. Raises TimeoutError."""
        if self.take_now():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except BaseException:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif not waiter.cancelled():
                self.give_back()  # It was given one just now.
            raise

    def give_back(self) -> None:
        """The turn is over: the next one's begins."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1


class HttpRequests:
    """Sends them, and sends them again where a server wants other credentials."""

    def __init__(self, config: ServerConfig, credentials: Credentials | None) -> None:
        self.url = config.url or ""
        self._config = config
        self.credentials = credentials
        # A server may send back the headers it got, in an error page for instance.
        sent = config.headers.values()
        self._written = config.secrets.union(sent, (value.rpartition(" ")[2] for value in sent))
        self.client: HttpClient | None = None
        """None before it is opened, and when it is closed."""
        self.greeted = False
        """Whether the server has taken a request."""

    async def open(self) -> None:
        """Prepare. Raises SpawnError, TlsFileError."""
        # Here, so that whoever has no remote server never loads the library.
        from muxway.net.http_client import HttpClient

        config = self._config
        # A context takes milliseconds to make: it reads all the system's authorities.
        tls = None if config.tls == ServerTls() else await asyncio.to_thread(tls_context, config.tls)
        self.client = HttpClient(self.url, config.headers, tls=tls, proxy=config.proxy)

    @property
    def secrets(self) -> frozenset[str]:
        """Texts that must never be shown."""
        return self._written if self.credentials is None else self._written | self.credentials.secrets

    @property
    def shown(self) -> str | None:
        """The credentials that there are, as Authorization says it."""
        return None if self.credentials is None else self.credentials.header

    def post(self, headers: dict[str, str], body: bytes) -> Sent | None:
        """Send a POST at once, if nothing has to be waited for; None if not. Raises HttpTrouble."""
        client, credentials, shown = self.client, self.credentials, None
        if client is None:
            return None
        if credentials is not None:
            if monotonic() >= credentials.good_until and credentials.due():
                return None
            shown = credentials.header
            headers = with_credentials(headers, shown) if shown is not None else headers
        response = client.post(self.url, headers, body)
        return None if response is None else Sent(response, shown)

    async def request(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None = None, sent: Sent | None = None
    ) -> HttpResponse:
        """Send a request, or go on with one that was `sent`; returns when the head of the answer is there.

        Raises HttpTrouble.
        """
        credentials = self.credentials
        for _ in range(_MOST_REFUSALS):
            if sent is None and credentials is not None and credentials.due():
                await credentials.prepare()
            if self.client is None:
                raise HttpTrouble("was stopped")
            shown = self.shown if sent is None else sent.credentials
            begun = None if sent is None else sent.response
            sent = None
            response = await self.client.request(method, url, with_credentials(headers, shown), body, sent=begun)
            if credentials is None or response.status not in _REFUSALS:
                return response
            # It was not taken, so it may be sent again.
            try:
                challenges = response.headers("WWW-Authenticate")
                again = await credentials.refused(response.status, challenges, shown, known=self.greeted)
            except BaseException:
                response.close()
                raise
            if not again:
                return response
            response.close()
        raise HttpTrouble("refuses every login that it has given")


def with_credentials(headers: dict[str, str], shown: str | None) -> dict[str, str]:
    """These headers, and credentials, if there are any."""
    return headers if shown is None else {**headers, _AUTHORIZATION: shown}


def tls_context(tls: ServerTls) -> ssl.SSLContext:
    """How a server is known, and we to it. Raises TlsFileError."""
    certificate = None if tls.cert is None else Certificate(tls.cert, tls.key)
    return client_context(tls.ca, certificate, verify=tls.verify)
