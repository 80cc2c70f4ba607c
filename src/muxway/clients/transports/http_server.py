"""What listens for HTTP: connections as they come, how many there may be, and how every answer begins."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol

from muxway.clients.transports.http_connection import HttpConnection, TracedConnection
from muxway.clients.transports.tls_arrivals import TlsArrivals
from muxway.log import EventLog

if TYPE_CHECKING:
    import socket
    import ssl

    from muxway.clients.transports.http_request import RequestHead
    from muxway.net.message_trace import MessageTrace
    from muxway.net.metronome import Metronome

_SPARE_FILES: Final = 1024
"""File descriptors that are left for servers and all else, if the system gives us plenty; else a quarter of them."""
_NOTED_EVERY: Final = 60.0
"""Seconds between two log lines about too many connections."""
_BACKLOG: Final = 2048
"""Connections that the system keeps until we have time for them."""
_JSON: Final = b"content-type: application/json\r\n"
_STATUS_LINE: Final = {status: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}

log = EventLog("http")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a connection may take of us."""

    header_bytes: int = 32 * 1024
    """Longest request line and header together."""
    header_count: int = 100
    header_seconds: float = 10.0
    """From the first byte, or the opening of the connection, to the end of the header."""
    body_seconds: float = 30.0
    """From the end of the header to the end of the body."""
    idle_seconds: float = 75.0
    """How long a connection may stay open between two requests."""
    stall_seconds: float = 10.0
    """How long a client may not read anything of what waits for it."""
    connections: int = 16_000
    """Most connections at once, if there are file descriptors for so many."""

    def room(self) -> int:
        """How many connections there may be at present."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files == resource.RLIM_INFINITY:
            return self.connections
        return min(self.connections, files - min(_SPARE_FILES, files // 4))


class RequestHandler(Protocol):
    """Where requests go."""

    metronome: Metronome | None
    """Watches over the loop while they arrive."""
    max_body_bytes: int
    keep_alive: float
    """Seconds of silence on an event stream after which `UnderWay.late` is called."""

    def take(self, connection: HttpConnection, head: RequestHead, body: bytes) -> None:
        """Answer a request, now or later."""
        ...

    def look(
        self,
        connection: HttpConnection,
        head: RequestHead,
        size: int,
        decided: asyncio.Future[Any] | None = None,
    ) -> bool:
        """Answer a request of whose body so much is there, if that needs no more of it; whether it does not, for now.

        What its credentials are worth may have been decided since it was looked at last.
        """
        ...


class HttpServer:
    """Listens, and makes a connection of each client that comes."""

    def __init__(
        self, handler: RequestHandler, *, limits: Limits | None = None, trace: MessageTrace | None = None
    ) -> None:
        self.handler = handler
        self.limits = limits or Limits()
        self.connections: set[HttpConnection] = set()
        self._trace = trace
        """Who is told of every message, if somebody is."""
        self.take = handler.take if trace is None else self._show_and_take
        self._listening: asyncio.Server | TlsArrivals | None = None
        self._date: bytes | None = None
        self.ok: bytes | None = None
        self._crowd_noted = float("-inf")
        self._emptied: asyncio.Event | None = None

    async def start(self, listener: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Take connections, with TLS if there is a context for it."""
        kind = HttpConnection if self._trace is None else TracedConnection
        loop = asyncio.get_running_loop()

        def make() -> HttpConnection:
            return kind(self, loop)

        if tls is None:
            self._listening = await loop.create_server(make, sock=listener, backlog=_BACKLOG)
        else:
            listener.listen(_BACKLOG)
            self._listening = arrivals = TlsArrivals(tls, make, self.has_no_room, self.limits.header_seconds)
            arrivals.start(listener)

    async def stop(self, seconds: float = 1.0) -> None:
        """Take no more connections; end those that are open, as soon as their requests are over or after so long."""
        if self._listening is not None:
            self._listening.close()
        for connection in list(self.connections):
            connection.end()
        self._emptied = asyncio.Event()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), seconds)
        for connection in list(self.connections):
            connection.transport.abort()

    def _show_and_take(self, connection: HttpConnection, head: RequestHead, body: bytes) -> None:
        self.show(body, sent=False)
        self.handler.take(connection, head, body)

    def show(self, message: bytes, *, sent: bool) -> None:
        """A message was sent to a client, or came from one."""
        if message and self._trace is not None:
            self._trace.note("client", message, sent=sent)

    def left(self, connection: HttpConnection) -> None:
        """A connection is no more."""
        self.connections.discard(connection)
        if self._emptied is not None and not self.connections:
            self._emptied.set()

    def has_no_room(self, arriving: int = 0) -> bool:
        """Whether the newest connection is one too many, with so many that are to become some."""
        connections = len(self.connections) + arriving
        if connections <= self.limits.room():
            return False
        now = asyncio.get_running_loop().time()
        if now > self._crowd_noted + _NOTED_EVERY:
            self._crowd_noted = now
            log.warning("too many connections: new ones are refused", connections=connections - 1)
        return True

    def make_ok(self) -> bytes:
        """How an answer of JSON begins, with status 200; `ok` has it for a second."""
        self.ok = self.start_of(200, json=True)
        return self.ok

    def start_of(self, status: int, *, json: bool = False) -> bytes:
        """How any answer begins: status, date, and what it is if it is JSON."""
        if self._date is None:
            self._date = b"date: %b\r\n" % formatdate(usegmt=True).encode()
            asyncio.get_running_loop().call_later(1.0, self._forget_date)
        return _STATUS_LINE[HTTPStatus(status)] + self._date + (_JSON if json else b"")

    def _forget_date(self) -> None:
        self._date = self.ok = None
