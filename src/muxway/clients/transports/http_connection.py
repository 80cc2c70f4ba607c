"""One TCP connection of a client, from bytes to requests and back.

A request is given to its handler when all of it is there, and answered by calls from wherever its answer comes from: no
task is made for it. A header that repeats the one before it, as nearly all do, is not parsed again.

Cut are: whoever takes too long over a request, sends more header than anybody needs, or does not read its answers.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from muxway.calls.ports import TURN, stopwatch
from muxway.clients.transports.http_parser import BadRequest, RequestParser
from muxway.clients.transports.http_request import RequestHead, is_sole
from muxway.clients.transports.http_response import views
from muxway.clients.transports.lingering import linger
from muxway.log import EventLog
from muxway.net.peer_user import owner_of
from muxway.wire.sse import SseParser

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muxway.clients.transports.http_request import HeaderList, Known
    from muxway.clients.transports.http_response import Parts
    from muxway.clients.transports.http_server import HttpServer

_EVENTS: Final = (
    b"content-type: text/event-stream\r\n"
    b"cache-control: no-cache, no-transform\r\n"
    # nginx would hold events back until its buffer is full.
    b"x-accel-buffering: no\r\n"
)
_LARGE: Final = 64 * 1024
"""Bytes of a body that is not copied behind its header."""
_AT_ONCE: Final = 256 * 1024
"""Bytes that are written at once. What the socket does not take of them the transport copies."""
_MOST_AT_ONCE: Final = 16
"""How many times that in one turn of the loop, for a client that reads as fast."""
_UNASKED: Final = -1
_PIECE: Final = 16 * 1024
"""Bytes that are parsed at once: a read may have thousands of requests, or of chunks."""
_NO_HEAD: Final = RequestHead("", "", b"", (), keep_alive=False)

log = EventLog("http")


class UnderWay(Protocol):
    """A request that has no answer yet, or not all of it."""

    def late(self) -> None:
        """It takes long."""
        ...

    def lost(self) -> None:
        """The client has left."""
        ...

    def go_on(self) -> None:
        """The client has read what was written before."""
        ...


class Reminder:
    """A timer that is set and cleared by an assignment, as each request does both.

    To start and cancel a timer of the loop would cost more than the rest of a small answer. This one is left
    running, and when it strikes, it is set for what is then due, if anything is.
    """

    __slots__ = ("_loop", "_timer", "callback", "due", "strikes")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self.callback: Callable[[], None] | None = None
        """What to call; None: nothing."""
        self.due = 0.0
        """When, by the loop's clock."""
        self.strikes = math.inf
        """When the timer of the loop strikes. Whoever sets `due` to something earlier calls `start`."""

    def set(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call this in so long, instead of what was to be called before."""
        self.callback = callback
        self.due = due = self._loop.time() + seconds
        if due < self.strikes:
            self.start(seconds)

    def start(self, seconds: float) -> None:
        """Let the timer of the loop strike in so long, which is when something is due."""
        self.stop()
        self.strikes = self.due
        self._timer = self._loop.call_later(seconds, self._strike)

    def clear(self) -> None:
        """Call nothing."""
        self.callback = None

    def stop(self) -> None:
        """Stop the timer of the loop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self.strikes = None, math.inf

    def _strike(self) -> None:
        self._timer, self.strikes = None, math.inf
        callback = self.callback
        if callback is None:
            return
        left = self.due - self._loop.time()
        if left > 0:
            self.set(left, callback)
        else:
            self.callback = None
            callback()


class HttpConnection(asyncio.Protocol):
    """A connection that does not wait for ever."""

    __slots__ = (
        "_bad",
        "_clocked",
        "_closes",
        "_ends",
        "_head",
        "_idle_seconds",
        "_looked",
        "_metronome",
        "_parser",
        "_reminder",
        "_repeats",
        "_server",
        "_stall",
        "_unparsed",
        "_unread",
        "_unsent",
        "_user",
        "address",
        "asker",
        "is_behind",
        "loop",
        "shown",
        "transport",
        "under_way",
    )
    transport: asyncio.Transport

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._metronome = server.handler.metronome
        self._idle_seconds = server.limits.idle_seconds
        self.loop = loop
        self.address = ""
        """Where the client is."""
        self.under_way: UnderWay | None = None
        """The request that has been taken and is not answered yet. There is one at a time."""
        self.is_behind = False
        """Whether the client has yet to read much of what was written."""
        self._parser = RequestParser(server.limits, server.handler.max_body_bytes)
        self._unparsed = b""
        """What has arrived and waits for its turn, or for requests before it. Nothing more is read meanwhile."""
        self._bad: BadRequest | None = None
        """What came behind the last request, and is no request."""
        self._head = _NO_HEAD
        """That of the present request: the one that is, or was last, under way."""
        self._repeats: Known | None = None
        """What the next piece may repeat: the head that is known, while nothing is under way."""
        self._looked: RequestHead | None = None
        """The last head that the handler has seen before its body."""
        self._closes = False
        """Whether the answer to the request under way is the last word."""
        self._reminder = Reminder(loop)
        """The one clock of a connection: for what is received, for what is under way, for its rest."""
        self._clocked: object = self._parser
        """What it runs for while a request is received: its body, known by its head, or a header, by the parser."""
        self._unsent: deque[memoryview] | None = None
        """What is to be written when the client has read what was written before, if that is much."""
        self._ends = False
        """Whether the present request has its whole answer when that is written."""
        self._stall: asyncio.TimerHandle | None = None
        self._unread = 0
        self._user: int | None = _UNASKED
        self.shown: object = None
        """The credentials that were last found good here, at what, and under which terms."""
        self.asker: object = None
        """Whose they are."""

    @property
    def user(self) -> int | None:
        """The user of this machine whose program is at the other end; None if nobody can tell. Looked up once."""
        if self._user == _UNASKED:
            ends = (self.transport.get_extra_info(name) for name in ("peername", "sockname"))
            there, here = (end[:2] if end else ("", 0) for end in ends)
            self._user = owner_of(there, here)
        return self._user

    # --- its life -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # pyright: ignore[reportAttributeAccessIssue] - a stream's transport it is
        self._server.connections.add(self)
        peer: tuple[str, int] | None = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        if self._server.has_no_room():
            self.refuse(503, "too many connections are open: try again later", b"retry-after: 1\r\n")
        else:
            self._reminder.set(self._server.limits.header_seconds, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._server.left(self)
        self._reminder.stop()
        self._reminder.clear()
        self._parser.close()
        self._repeats, self._unparsed, self._unsent = None, b"", None
        if self._stall is not None:
            self._stall.cancel()
        under_way, self.under_way = self.under_way, None
        if under_way is not None:
            under_way.lost()

    def end(self) -> None:
        """Close the connection when the request under way is over, or now."""
        if self.under_way is None:
            self.transport.close()
        else:
            self._closes = True

    # --- receiving ----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        metronome = self._metronome
        if metronome is not None and perf_counter() > metronome.due:
            metronome.look()
        known = self._repeats
        if known is not None:
            self._repeats = None
            # Most often it is as long as the one before.
            alike = len(data) == known.size and data.startswith(known.last)
            body = data[len(known.last) :] if alike else known.body(data)
            if body is not None:
                self._head = head = known.head
                self._server.take(self, head, body)
                return
        if self._unparsed or (len(data) > _PIECE and not (self._parser.silent and is_sole(data))):
            self._unparsed += data
        else:
            self._parse(data)
        self._advance()
        if (self._parser.whole or self._unparsed or self._bad is not None) and not self.transport.is_closing():
            self.transport.pause_reading()

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed(data)
        except BadRequest as bad:
            self._bad, self._unparsed = bad, b""
            if bad.status == 400:
                log.info("a client sent what is no HTTP", client=self.address)

    def _parse_on(self) -> bool:
        """Look at what waits, up to the end of a request; whether the turn was long enough for it."""
        unparsed, parser = memoryview(self._unparsed), self._parser
        until, place = stopwatch() + TURN, 0
        self._unparsed = b""
        while place < len(unparsed) and not parser.whole and self._bad is None:
            if stopwatch() > until:
                self.loop.call_soon(self._advance)
                break
            self._parse(bytes(unparsed[place : place + _PIECE]))
            place += _PIECE
        if self._bad is None:
            self._unparsed = bytes(unparsed[place:])
        return not self._unparsed or bool(parser.whole)

    def _advance(self) -> None:
        """Take the next request if none is under way, and its client has read the answers before."""
        if self.under_way is not None or self.is_behind or self.transport.is_closing():
            return
        parser = self._parser
        if self._unparsed and not parser.whole and not self._parse_on():
            return
        if not self._unparsed and len(parser.whole) < 2 and self._bad is None:
            self.transport.resume_reading()
        if parser.whole:
            self._head, body = parser.whole.popleft()
            self._clocked = None
            self._server.take(self, self._head, body)
        elif self._bad is not None:
            self._refuse_rest(self._bad)
        elif not parser.receiving:
            self._clocked = None
            self._over()
        elif parser.coming is None or parser.discards or not self._look(parser.coming):
            self._expect_more()

    def _look(self, head: RequestHead, decided: asyncio.Future[Any] | None = None) -> bool:
        """Look at a request whose body is not all there; whether that is enough, for now."""
        parser, handler = self._parser, self._server.handler
        if self._looked is head and parser.size <= (head.limit or handler.max_body_bytes):
            return False
        self._head = self._looked = head
        # Before anything is answered: what is answered while a body comes is answered without it.
        parser.discards = True
        if handler.look(self, head, parser.size, decided):
            return True
        parser.discards = False
        if head.expects and not parser.size:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return False

    def hold(self, waiting: UnderWay) -> None:
        """Read no more of the present request until `look_again`: nobody knows yet whose it is."""
        self._parser.discards = False
        self.begin(waiting, None)
        self.transport.pause_reading()

    def look_again(self, decided: asyncio.Future[Any] | None) -> None:
        """That is known now, by this if it is not found out anew."""
        self.under_way = self._looked = None
        head = self._parser.coming
        if head is None:
            self._advance()
            return
        self.transport.resume_reading()
        if not self._look(head, decided):
            self._expect_more()

    def _refuse_rest(self, bad: BadRequest) -> None:
        """What came is no request. Those before it have their answers."""
        if self._parser.discards and self._parser.coming is not None:
            self._close(sending=True)  # So has this one: it was answered before its body went wrong.
        else:
            self.refuse(bad.status, bad.why)

    def _expect_more(self) -> None:
        """Only a request that does not arrive in one piece gets a clock."""
        stage = self._parser.coming or self._parser
        if stage is not self._clocked:
            self._clocked = stage
            limits = self._server.limits
            seconds = limits.header_seconds if stage is self._parser else limits.body_seconds
            self._reminder.set(seconds, self._too_slow)

    def _too_slow(self) -> None:
        if self._parser.discards or self._parser.silent:
            self.transport.close()  # It has its answer, or never said anything.
        else:
            self.refuse(408, "the request took too long to arrive")

    # --- answering ----------------------------------------------------------------------------

    def begin(self, request: UnderWay, seconds: float | None) -> None:
        """The present request is under way. Call its `late` in so long, or never."""
        self.under_way = request
        reminder = self._reminder
        if seconds is None:
            reminder.callback = None
            return
        reminder.callback = request.late
        reminder.due = due = self.loop.time() + seconds
        if due < reminder.strikes:
            reminder.start(seconds)

    def answer(self, status: int, body: bytes | Parts, headers: HeaderList = (), *, close: bool = False) -> None:
        """Answer the present request with JSON, or with nothing."""
        self.under_way = None
        transport = self.transport
        if transport.is_closing():
            return
        server, head, size = self._server, self._head, len(body)
        start = (server.ok or server.make_ok()) if status == 200 and body else server.start_of(status, json=bool(body))
        more = head.cors
        if headers:
            more = b"".join(b"%b: %b\r\n" % line for line in headers) + more
        if close or self._closes or not head.keep_alive:
            self._closes = True
            more += b"connection: close\r\n"
        if size <= _LARGE and head.method != "HEAD":
            transport.write(b"%bcontent-length: %d\r\n%b\r\n%b" % (start, size, more, body))
        else:
            transport.write(b"%bcontent-length: %d\r\n%b\r\n" % (start, size, more))
            if head.method != "HEAD":
                self._write_large(views(body))
        self._over()

    def answer_page(self, status: int, body: bytes, headers: HeaderList) -> None:
        """Answer the present request with what the headers say that it is."""
        self.under_way = None
        if self.transport.is_closing():
            return
        if self._closes or not self._head.keep_alive:
            self._closes = True
            headers = [*headers, (b"connection", b"close")]
        more = b"".join(b"%b: %b\r\n" % line for line in headers)
        start = self._server.start_of(status)
        self.transport.write(b"%bcontent-length: %d\r\n%b\r\n%b" % (start, len(body), more, body))
        self._over()

    def _over(self) -> None:
        """The present request has its whole answer: go on with what came behind it, or wait for the next."""
        if self._unsent is not None:
            self._ends = True
            self._reminder.clear()
            return
        parser = self._parser
        if self._closes:
            self._close(sending=parser.receiving)
        elif parser.receiving or parser.whole or self._unparsed or self._bad is not None or self.is_behind:
            self._clocked = None
            self._reminder.clear()
            self.loop.call_soon(self._advance)
        else:
            self._repeats = parser.known
            reminder = self._reminder
            reminder.callback = self.transport.close
            reminder.due = due = self.loop.time() + self._idle_seconds
            if due < reminder.strikes:
                reminder.start(self._idle_seconds)

    def _close(self, *, sending: bool) -> None:
        """Close the connection, perhaps of a client that still sends."""
        self._reminder.clear()
        if sending:
            linger(self.transport, self.loop)
        self.transport.close()

    def begin_events(self, response: UnderWay) -> None:
        """Answer the present request with events, which follow."""
        self.under_way = response
        head = self._head
        close = b"connection: close\r\n" if self._closes or not head.keep_alive else b""
        self._closes = bool(close)
        chunked = b"transfer-encoding: chunked\r\n" if head.chunked else b""
        start = self._server.start_of(200)
        self.transport.write(b"%b%b%b%b%b\r\n" % (start, _EVENTS, head.cors, close, chunked))
        self.remind()

    def remind(self) -> None:
        """Call the `late` of the request under way after the usual time of silence."""
        if self.under_way is not None:
            self._reminder.set(self._server.handler.keep_alive, self.under_way.late)

    def write_events(self, data: bytes | Parts) -> None:
        """Write a part of the answer that was begun with `begin_events`."""
        if len(data) > _LARGE:
            if self._head.chunked:
                self.transport.write(b"%x\r\n" % len(data))
            self._write_large((*views(data), memoryview(b"\r\n" if self._head.chunked else b"")))
        else:
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._head.chunked else bytes(data))
        self.remind()

    def end_events(self) -> None:
        """That was all."""
        self.under_way = None
        if self._head.chunked:
            if self._unsent is not None:
                self._unsent.append(memoryview(b"0\r\n\r\n"))
            else:
                self.transport.write(b"0\r\n\r\n")
        self._over()

    def refuse(self, status: int, why: str, header: bytes = b"") -> None:
        """Answer what is no request, and close the connection."""
        text = why.encode()
        more = b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: %d\r\n" % len(text)
        self.transport.write(self._server.start_of(status) + more + header + b"\r\n" + text)
        self._close(sending=True)

    # --- sending ------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self.is_behind = True
        self._unread = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(self._server.limits.stall_seconds, self._check_reader)

    def _write_large(self, data: Sequence[memoryview]) -> None:
        """Write this as fast as it is read: all that is written before that is copied, several times."""
        self._unsent = deque(data)
        self._write_on()

    def _write_on(self) -> None:
        self.is_behind = False
        unsent = self._unsent
        for _ in range(_MOST_AT_ONCE):
            if not unsent or self.is_behind:
                break
            rest = unsent.popleft()
            if len(rest) > _AT_ONCE:
                unsent.appendleft(rest[_AT_ONCE:])
            # This says if it is more than the client reads, by `pause_writing`.
            self.transport.write(rest[:_AT_ONCE])
        if not unsent:
            self._unsent = None
            if self._ends:
                self._ends = False
                self._over()
        elif not self.is_behind:
            self.is_behind = True
            self.loop.call_soon(self.resume_writing)

    def resume_writing(self) -> None:
        if self._unsent is not None:
            if self._stall is not None:
                self._stall.cancel()
                self._stall = None
            self._write_on()
            if self.is_behind:
                return
        self.is_behind = False
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        if self.under_way is not None:
            self.under_way.go_on()
        else:
            self._advance()

    def _check_reader(self) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread >= self._unread:
            seconds = self._server.limits.stall_seconds
            log.warning("a client was cut off: it read nothing", client=self.address, seconds=seconds, unread=unread)
            self.transport.abort()
            return
        # Slow, but reading.
        self._unread = unread
        self._stall = self.loop.call_later(self._server.limits.stall_seconds, self._check_reader)


class TracedConnection(HttpConnection):
    """One whose messages are shown on their way."""

    __slots__ = ()

    def answer(self, status: int, body: bytes | Parts, headers: HeaderList = (), *, close: bool = False) -> None:
        self._server.show(bytes(body), sent=True)
        super().answer(status, body, headers, close=close)

    def write_events(self, data: bytes | Parts) -> None:
        for event in SseParser(len(data)).feed(bytes(data)):
            self._server.show(event.data, sent=True)
        super().write_events(data)
