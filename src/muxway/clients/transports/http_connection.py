"""One TCP connection of the HTTP door: uvicorn's, with the clocks and limits that uvicorn leaves out.

Cut are: whoever takes too long over a request, sends more header than anybody needs, or does not read what
it asked for. The application learns here, by a callback rather than by a task, that its client has gone.

Most requests are small POSTs to `/mcp` that arrive in one piece and are answered with JSON. These may be taken
by the application's `quick` at once, without the task and the messages that ASGI needs for each request, and
if they repeat the header of the one before, without parsing it again.
"""

from __future__ import annotations

import asyncio
import re
import resource
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from muxway.calls.incidents import internal
from muxway.clients.transports.lingering import linger, part
from muxway.log import EventLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from httptools import HttpRequestParser

    from muxway.net.metronome import Metronome

CONNECTION: Final = "muxway.connection"
"""Where in an ASGI scope the application finds the connection."""
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)(?=\r\n)", re.IGNORECASE).finditer
_MOST_DIGITS: Final = 10
_SPARE_FILES: Final = 1024
"""File descriptors that are left for servers and all else, if the system gives us plenty; else a quarter of them."""
_NOTED_EVERY: Final = 60.0
"""Seconds between two log lines about too many connections."""
_FRAMING: Final = frozenset((b"content-length", b"transfer-encoding"))
"""The headers that say where a body ends."""
_QUICK_PATH = re.compile(rb"/mcp(?:/[A-Za-z0-9._-]+)?").fullmatch


log = EventLog("http")


class _Never:
    """Stands where uvicorn keeps an event that nobody waits for."""

    def set(self) -> None: ...


class QuickCycle:
    """A request that is being answered without ASGI: what uvicorn must be able to ask of it."""

    __slots__ = ("disconnected", "keep_alive", "response_complete", "scope")
    message_event = _Never()

    def __init__(self, scope: dict[str, Any]) -> None:
        self.scope = scope
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = True


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


class Reminder:
    """A timer that is set and cleared by an assignment, as each request does both.

    To start and cancel a timer of the loop would cost more than the rest of a quick answer. This one is left
    running, and when it strikes, it is set for what is then due, if anything is.
    """

    __slots__ = ("_callback", "_due", "_loop", "_strikes", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callback: Callable[[], None] | None = None
        self._due = self._strikes = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call this in so long, instead of what was to be called before."""
        self._callback = callback
        self._due = due = self._loop.time() + seconds
        if self._timer is None or due < self._strikes:
            self.stop()
            self._strikes = due
            self._timer = self._loop.call_later(seconds, self._strike)

    def clear(self) -> None:
        """Call nothing."""
        self._callback = None

    def stop(self) -> None:
        """Stop the timer of the loop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _strike(self) -> None:
        self._timer = None
        callback = self._callback
        if callback is None:
            return
        left = self._due - self._loop.time()
        if left > 0:
            self.set(left, callback)
        else:
            self._callback = None
            callback()


class Known:
    """The header of a request that was quick. Most clients send the same again, but for the length of the body.

    What has it, and is as long as it says, need not be parsed: byte for byte, it has been.
    """

    __slots__ = ("_after", "_before", "_headers", "_place", "scope")

    def __init__(self, scope: dict[str, Any], before: bytes, after: bytes) -> None:
        self.scope = scope
        self._before, self._after = before, after
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._place = [name for name, _ in self._headers].index(b"content-length")

    @classmethod
    def of(cls, data: bytes, body: bytes, scope: dict[str, Any]) -> Known | None:
        """The header of a request, if `data` is exactly this request with this body."""
        header = data[: len(data) - len(body)]
        lengths = list(_LENGTH(header))
        if not header.startswith(b"POST ") or header.find(b"\r\n\r\n") != len(header) - 4 or len(lengths) != 1:
            return None
        start, end = lengths[0].span(1)
        return cls(scope, header[:start], header[end:])

    def body(self, data: bytes) -> bytes | None:
        """The body, if `data` is exactly one request with this header."""
        if not data.startswith(self._before):
            return None
        start = len(self._before)
        end = data.find(b"\r", start, start + _MOST_DIGITS)
        length = data[start:end]
        if not data.startswith(self._after, end) or not length.isdigit():
            return None
        body = data[end + len(self._after) :]
        if len(body) != int(length):
            return None
        self._headers[self._place] = (b"content-length", length)
        return body


def new_parser(protocol: object) -> HttpRequestParser:
    """A parser as uvicorn makes them."""
    parser = httptools.HttpRequestParser(protocol)
    # What follows a request that closes the connection is not looked at, and is no reason to refuse that request.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


class HttpConnection(HttpToolsProtocol):
    """A connection that does not wait for ever."""

    limits = Limits()
    """Of every connection; another class is made for others."""
    _crowd_noted: ClassVar[float] = float("-inf")
    """When it was last logged that there are too many."""

    def __init__(self, *args: Any, **keys: Any) -> None:
        super().__init__(*args, **keys)
        self._on_gone: Callable[[], None] | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._receiving = True
        self._in_header = True
        self._header_size = 0
        """What arrived of the present header in earlier pieces."""
        self._piece = b""
        """What has just arrived, while it is looked at."""
        self._known: Known | None = None
        self._unread = 0
        self._reminder = Reminder(self.loop)
        """Ends a connection that rests for too long after a quick answer; uvicorn has a timer after all others."""
        self._default_headers: object = None
        self._ok = b""
        """How an answer with status 200 begins, as long as these are the headers of all answers."""
        app = cast("object", self.app)  # pyright: ignore[reportUnknownMemberType]
        self._quick: Callable[[HttpConnection, QuickCycle, bytes], bool] | None = getattr(app, "quick", None)
        self._told_again = False
        """Whether a parser is being told what is known of the present header."""
        self._metronome: Metronome | None = getattr(app, "metronome", None)
        self._parts: list[bytes] | None = None
        """The body of a request that may be quick, as long as it may."""

    def watch(self, on_gone: Callable[[], None] | None) -> None:
        """Call this, once, when the connection is lost while the present request is still being answered."""
        self._on_gone = on_gone
        if on_gone is not None:
            # uvicorn stops reading after a large body; the end of the connection must be read to be seen.
            self.flow.resume_reading()

    def remind(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call this in so long, unless the present request is answered by then or goes on the usual way."""
        self._reminder.set(seconds, callback)

    # --- receiving ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        if len(self.connections) > self.limits.room():
            self._turn_away()
            return
        self._clock = self.loop.call_later(self.limits.header_seconds, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        self._reminder.stop()
        self._known = None
        if self._stall is not None:
            self._stall.cancel()
        super().connection_lost(exc)
        on_gone, self._on_gone = self._on_gone, None
        if on_gone is not None:
            on_gone()

    def data_received(self, data: bytes) -> None:
        if self._metronome is not None and perf_counter() > self._metronome.due:
            self._metronome.look()
        if self._known is not None and self._takes_known(self._known, data):
            return
        self._piece = data
        self._unset_keepalive_if_required()
        self._feed(data)
        if self._parts is not None:
            self._take_usual_way(self._parts)
        if not self._receiving:
            if self._clock is not None:
                self._stop_clock()
        elif not self.transport.is_closing():
            self._expect_more()
        self._piece = b""

    def _feed(self, data: bytes) -> None:
        """Parse what has arrived. A wish for another protocol is not granted, and so means nothing (RFC 9110 §7.8)."""
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # The parser has stopped behind the header, as if there were no body.
                data = data[upgrade.args[0] :]
                self._parse_on()
                continue
            except httptools.HttpParserCallbackError as error:
                internal(error.__context__ if isinstance(error.__context__, Exception) else error)
                self.refuse(500, "internal error of the gateway")
            except httptools.HttpParserError:
                log.info("a client sent what is no HTTP", client=self._address)
                self.refuse(400, "Invalid HTTP request received.")
            return

    def _parse_on(self) -> None:
        """Go on behind a header that asked for another protocol: with its body, or with the next request."""
        self.parser = new_parser(self)
        framing = [(name, value) for name, value in self.headers if name in _FRAMING]
        if self._receiving and framing:
            # A new parser must be told what the header said of the body. The rest of it is known here already.
            url, headers = self.url, len(self.headers)
            self._told_again = True
            lines = b"".join(b"%b: %b\r\n" % line for line in framing)
            self.parser.feed_data(b"POST / HTTP/1.1\r\nhost: localhost\r\n%b\r\n" % lines)
            self._told_again = False
            self.url = url
            del self.headers[headers:]

    def _takes_known(self, known: Known, data: bytes) -> bool:
        """Take a request without parsing it, if nothing is under way and it has the header of the last quick one."""
        if self._receiving or not self._is_idle or self.transport.is_closing():
            return False
        body = known.body(data)
        if body is None or self._quick is None:
            return False
        self._unset_keepalive_if_required()
        self._reminder.clear()
        return self._quick(self, QuickCycle(known.scope), body)

    def _expect_more(self) -> None:
        """Only a request that does not arrive in one piece gets a clock."""
        limits = self.limits
        if self._in_header:
            self._header_size += len(self._piece)
            if self._header_size > limits.header_bytes:
                self.refuse(431, "the header is too long")
                return
        if self._clock is None:
            seconds = limits.header_seconds if self._in_header else limits.body_seconds
            self._clock = self.loop.call_later(seconds, self._too_slow)

    def on_message_begin(self) -> None:
        if self._told_again:
            return
        super().on_message_begin()
        self.scope[CONNECTION] = self  # pyright: ignore[reportGeneralTypeIssues]
        self._receiving = self._in_header = True
        self._header_size = 0
        self._reminder.clear()

    def on_headers_complete(self) -> None:
        if self._told_again:
            return
        self._in_header = False
        if self._clock is not None:
            self._stop_clock()
        if self._header_is_too_long():
            self.refuse(431, "the header is too long")
        elif self._may_be_quick():
            self._parts = []
        else:
            super().on_headers_complete()

    def _header_is_too_long(self) -> bool:
        limits = self.limits
        if len(self.headers) > limits.header_count:
            return True
        if self._header_size + len(self._piece) <= limits.header_bytes:
            return False  # Not even all that has arrived is.
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > limits.header_bytes

    def _may_be_quick(self) -> bool:
        if self._quick is None or _QUICK_PATH(self.url) is None or self.expect_100_continue:
            return False
        parser = self.parser
        # One that asks for another protocol is parsed in two steps; see `_parse_on`.
        plain = parser.get_method() == b"POST" and parser.should_keep_alive() and not parser.should_upgrade()
        return plain and self._is_idle

    def on_body(self, body: bytes) -> None:
        if self._parts is not None:
            self._parts.append(body)
        elif not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._body_follows():
            return
        self._receiving = False
        parts, self._parts = self._parts, None
        if self.transport.is_closing():
            return
        if parts is not None:
            scope = cast("dict[str, Any]", self.scope)
            scope["method"], scope["path"], scope["query_string"] = "POST", self.url.decode(), b""
            cycle = QuickCycle(scope)
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            if self._quick is not None and self._quick(self, cycle, body):
                if self._header_size == 0:
                    self._known = Known.of(self._piece, body, scope)
                return
            self._take_usual_way(parts)
        super().on_message_complete()

    def _body_follows(self) -> bool:
        """Whether the parser only says that the message is over because it asks for another protocol."""
        if not self.parser.should_upgrade():
            return False
        return any(name in _FRAMING and value.strip(b" 0") for name, value in self.headers)

    def _take_usual_way(self, parts: list[bytes]) -> None:
        """It is not quick after all, or not all of it is there."""
        self._parts = None
        if not self.transport.is_closing():
            super().on_headers_complete()
            for part in parts:
                super().on_body(part)

    @property
    def _cycle(self) -> QuickCycle | RequestResponseCycle | None:
        return self.cycle

    @property
    def _is_idle(self) -> bool:
        """Whether no request waits for its answer."""
        cycle = self._cycle
        return cycle is None or cycle.response_complete

    # --- quick answers ------------------------------------------------------------------------

    def begin(self, cycle: QuickCycle) -> None:
        """The request is taken, and not answered yet: what is sent after it has to wait."""
        self.cycle = cast("RequestResponseCycle", cycle)

    def answer(self, cycle: QuickCycle, status: int, body: bytes) -> None:
        """Answer the request with JSON."""
        cycle.response_complete = True
        if self.transport.is_closing():
            return
        close = b"" if cycle.keep_alive else b"connection: close\r\n"
        self.transport.write(b"%b%bcontent-length: %d\r\n\r\n%b" % (self._head(status), close, len(body), body))
        if cycle.keep_alive and not self.pipeline:
            self.server_state.total_requests += 1
            self._reminder.set(self.timeout_keep_alive, self.timeout_keep_alive_handler)
            return
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _head(self, status: int) -> bytes:
        """How a JSON answer begins."""
        headers = self.server_state.default_headers
        if status == 200 and headers is self._default_headers:
            return self._ok
        head = STATUS_LINE[status] + b"content-type: application/json\r\n"
        for name, value in headers:
            head += name + b": " + value + b"\r\n"
        if status == 200:
            self._default_headers, self._ok = headers, head
        return head

    def go_on(self, cycle: QuickCycle, app: Callable[[Any, Any, Any], Awaitable[None]]) -> None:
        """Answer the request the usual way after all: it needs a stream."""
        self._reminder.clear()
        usual = RequestResponseCycle(
            scope=cast("Any", cycle.scope),
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=cycle.keep_alive,
            on_response=self.on_response_complete,
        )
        usual.more_body = False
        if self._cycle is cycle:
            self.cycle = usual
        self._start_asgi_task(usual, cast("Any", app))

    def linger(self) -> None:
        """The present request is refused while its client still sends: once it is closed, let it see the answer."""
        linger(self.transport, self.loop)

    def refuse(self, status: int, why: str, header: bytes = b"") -> None:
        """Answer a request that the application has not answered, and close the connection."""
        text = why.encode()
        head = b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: %d\r\n" % len(text)
        self.transport.write(STATUS_LINE[status] + head + header + b"\r\n" + text)
        part(self.transport, self.loop)

    def _turn_away(self) -> None:
        """There are too many connections: answer this one before it asks."""
        now = self.loop.time()
        if now > HttpConnection._crowd_noted + _NOTED_EVERY:
            HttpConnection._crowd_noted = now
            log.warning("too many connections: new ones are refused", connections=len(self.connections) - 1)
        self.refuse(503, "too many connections are open: try again later", b"retry-after: 1\r\n")

    def _too_slow(self) -> None:
        self._clock = None
        if self.transport.is_closing():
            return
        if self._in_header and self._header_size == 0:
            self.transport.close()  # It never said anything: there is nothing to answer.
        else:
            self.refuse(408, "the request took too long to arrive")

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    @property
    def _address(self) -> str:
        return "" if self.client is None else self.client[0]

    # --- sending ------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(self.limits.stall_seconds, self._check_reader)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _check_reader(self) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread >= self._unread:
            seconds = self.limits.stall_seconds
            log.warning("a client was cut off: it read nothing", client=self._address, seconds=seconds, unread=unread)
            self.transport.abort()
            return
        # Slow, but reading.
        self._unread = unread
        self._stall = self.loop.call_later(self.limits.stall_seconds, self._check_reader)
