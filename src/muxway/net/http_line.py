"""One connection to a remote server: requests out, one after another, and their answers in.

HTTP/1.1 on httptools' parser. Of an answer so much is read as somebody takes, and a head has a limit. Whatever goes
wrong on the way becomes an `HttpTrouble`, in words that continue `server "x" …`.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from time import thread_time
from typing import TYPE_CHECKING, Final, Self

import httptools

from muxway.net.http_errors import HttpTrouble, tls_refusal
from muxway.net.inflation import CODINGS, Inflation
from muxway.wire.pieces import Pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

_LONGEST_HEAD: Final = 64 * 1024
_MOST_FIELDS: Final = 256
_AT_ONCE: Final = 64 * 1024
"""Bytes of a body that are copied behind its head: two writes would be two packets."""
_PIECE: Final = 256 * 1024
"""Bytes that are written at once: all of a large body would hold up everybody else, above all if it is encrypted."""
_MOST_UNREAD: Final = 512 * 1024
"""Bytes of a body that wait for whoever reads it; while there are more, the server is not read."""
_BROKEN_OFF: Final = "broke off in the middle of an answer"
_SWITCHING: Final = 101
_OK: Final = 200


class _NoAnswer(Exception):
    """What has come is none, or none that can be taken."""


class HttpResponse:
    """An answer. Leaving its body unread ends its connection, not the others."""

    __slots__ = (
        *("_inflation", "_line", "_pieces", "_trouble", "_wake"),
        *("content_type", "cost", "fields", "handling", "received", "status", "unread"),
    )

    def __init__(self, line: HttpLine) -> None:
        self._line = line
        self.status = 0
        """Of the head, as all that is not about the body; 0 until it is there."""
        self.fields: list[tuple[bytes, bytes]] = []
        """Its header, with names in small letters."""
        self.content_type = ""
        self.received = False
        """Whether all of it has come."""
        self.unread = 0
        """Bytes of it that nobody has taken yet."""
        self.cost = 0.0
        """Seconds of work that what is unread has cost so far, where that is known."""
        self.handling = 0.0
        """The same for what was read last."""
        self._pieces: list[bytes] = []
        self._inflation: Inflation | None = None
        self._trouble: HttpTrouble | None = None
        self._wake: Callable[[], None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- its head -----------------------------------------------------------------------------

    def begin(self, status: int) -> Mapping[bytes, bytes]:
        """All of the head has come. Returns the first of its fields with each name."""
        self.status = status
        first = dict(reversed(self.fields))
        kind = first.get(b"content-type", b"")
        self.content_type = kind.decode("utf-8", "surrogateescape").partition(";")[0].strip().lower()
        coding = first.get(b"content-encoding", b"").strip().lower()
        if coding in CODINGS:
            self._inflation = Inflation(coding)
        return first

    def headers(self, name: str) -> list[str]:
        """Every value of a header that may come several times."""
        wanted = name.lower().encode()
        return [value.decode("utf-8", "surrogateescape") for known, value in self.fields if known == wanted]

    def header(self, name: str) -> str | None:
        """The value of a header, if it is there."""
        values = self.headers(name)
        return values[0] if values else None

    # --- as it comes --------------------------------------------------------------------------

    def put(self, piece: bytes) -> None:
        """A piece of the body has come."""
        self._pieces.append(piece)
        self.unread += len(piece)

    def fail(self, trouble: HttpTrouble) -> None:
        """No more will come."""
        if self._trouble is None and not self.received:
            self._trouble = trouble
            self.wake()

    def wake(self) -> None:
        """Something has come: tell whoever waits."""
        wake, self._wake = self._wake, None
        if wake is not None:
            wake()

    def on_next(self, wake: Callable[[], None]) -> None:
        """Call this once, when something has come, or no more will."""
        self._wake = wake

    async def _next(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        self._wake = wake
        try:
            await waiter
        finally:
            self._wake = None

    async def until_begun(self) -> None:
        """Wait for its head. Raises HttpTrouble."""
        while not self.status:
            if self._trouble is not None:
                raise self._trouble
            await self._next()

    # --- its body -----------------------------------------------------------------------------

    def _take(self) -> bytes:
        """What has come of the body, decompressed; a part of it if it is a lot. Raises HttpTrouble."""
        inflation = self._inflation
        if inflation is not None and inflation.has_more:
            self.handling = 0.0
            return _inflated(inflation)
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if self.unread > _MOST_UNREAD and not self.received:
            self._line.go_on()
        self.unread = 0
        self.handling, self.cost = self.cost, 0.0
        if inflation is None:
            return data
        inflation.put(data)
        return _inflated(inflation)

    @property
    def _has_more(self) -> bool:
        return self._inflation is not None and self._inflation.has_more

    def whole(self) -> bytes | None:
        """The body, if all of it has come and it needs no unpacking."""
        return self._take() if self.received and self._inflation is None else None

    async def chunk(self, idle: float | None = None) -> bytes:
        """The next piece of the body, decompressed; empty at its end. Waits at most `idle` seconds.

        Raises HttpTrouble.
        """
        if self._has_more:
            # Little of it may be much work, and there may be a lot: others have their turn.
            await asyncio.sleep(0)
        data = self._take()
        if data:
            return data
        try:
            async with asyncio.timeout(idle):
                while self._has_more or self._pieces or not self.received:
                    if self._has_more:
                        await asyncio.sleep(0)
                    elif not self._pieces:
                        if self._trouble is not None:
                            raise self._trouble
                        await self._next()
                    data = self._take()
                    if data:
                        return data
        except TimeoutError:
            raise HttpTrouble(f"sent nothing for {idle:g} s", "timeout") from None
        if self._inflation is not None and not self._inflation.is_whole:
            raise HttpTrouble(_BROKEN_OFF, broken=True)
        return b""

    async def read(self, limit: int) -> bytes:
        """The whole body. Raises HttpTrouble if it is larger or does not arrive whole."""
        pieces = Pieces()
        while data := await self.chunk():
            pieces.add(data)
            if pieces.size > limit:
                raise HttpTrouble(f"sent an answer over the size limit of {limit} bytes (maxMessageBytes)", "too_large")
        return pieces.take()

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
        if not self.received:
            self._line.abort()


def _inflated(inflation: Inflation) -> bytes:
    try:
        return inflation.take()
    except zlib.error:
        raise HttpTrouble(_BROKEN_OFF, broken=True) from None


class HttpLine(asyncio.Protocol):
    """A connection that is used again as long as both sides want that."""

    transport: asyncio.Transport

    def __init__(self, on_free: Callable[[HttpLine], None], on_lost: Callable[[HttpLine], None]) -> None:
        """Prepare one; `on_free` is called when another request may be sent, `on_lost` when none can be any more."""
        self._on_free, self._on_lost = on_free, on_lost
        self.free_since = 0.0
        self.used = False
        """Whether it has brought an answer before."""
        self._parser = httptools.HttpResponseParser(self)
        # Servers are what they are; what they may get wrong can harm nobody but their own answers.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._response: HttpResponse | None = None
        """What is under way."""
        self._fields: list[tuple[bytes, bytes]] = []
        self._bare = 0
        """Bytes since the last of a body: of a head, or of what stands between chunks and behind them."""
        self._to_the_end = False
        """Whether the body ends with the connection."""
        self._ended = self._lasts = False
        self._room: asyncio.Event | None = None
        """Where a body is uploaded: set while there is room for more of it."""

    # --- sending ------------------------------------------------------------------------------

    def send(self, head: bytes, body: bytes) -> HttpResponse:
        """Send a request; what comes back. Its body may be empty, but not large."""
        response = HttpResponse(self)
        if self.transport.is_closing():
            response.fail(HttpTrouble("reset the connection", broken=True))
            return response
        self._response = response
        self._bare = 0
        self._ended = self._lasts = False
        if len(body) > _AT_ONCE:
            self.transport.write(head)
            self.transport.write(body)
        else:
            self.transport.write(head + body)
        return response

    async def upload(self, head: bytes, body: bytes) -> HttpResponse:
        """The same for a large body: waits until it is sent, or the server has heard enough of it."""
        response = self.send(head, body[:_PIECE])
        room = self._room = asyncio.Event()
        room.set()
        response.on_next(room.set)
        for start in range(_PIECE, len(body), _PIECE):
            await room.wait()
            if self._response is not response or response.status or self.transport.is_closing():
                break
            self.transport.write(body[start : start + _PIECE])
            # Others have their turn, whether or not it fits into the system's buffer.
            await asyncio.sleep(0)
        else:
            self._room = None
        return response

    def pause_writing(self) -> None:
        if self._room is not None:
            self._room.clear()

    def resume_writing(self) -> None:
        if self._room is not None:
            self._room.set()

    # --- its life -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # pyright: ignore[reportAttributeAccessIssue] - a stream's transport it is

    def connection_lost(self, exc: Exception | None) -> None:
        response, self._response = self._response, None
        if self._room is not None:
            self._room.set()
        if response is not None:
            if isinstance(exc, ssl.SSLError):
                # With TLS 1.3 the other side refuses our certificate only after the connection is made.
                response.fail(HttpTrouble(tls_refusal(exc), broken=True))
            elif response.status and self._to_the_end and exc is None:
                response.received = True
                response.wake()
            elif response.status:
                response.fail(HttpTrouble(_BROKEN_OFF, broken=True))
            elif exc is None and not self._is_refused():
                response.fail(HttpTrouble("closed the connection without an answer", broken=True))
            else:
                response.fail(HttpTrouble("reset the connection", broken=True))
        self._on_lost(self)
        # It holds us as we hold it.
        del self._parser

    def _is_refused(self) -> bool:
        """Whether TLS was given up before anything was said: its reason often does not arrive (RFC 8446 §4.4.2.4)."""
        return not self.used and self.transport.get_extra_info("ssl_object") is not None

    def abort(self) -> None:
        """End it at once."""
        self._response = None
        self.transport.abort()

    def go_on(self) -> None:
        """Read on: there is room again."""
        self.transport.resume_reading()

    # --- receiving ----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:
            # What nobody asked for is no answer to what is asked next.
            self.transport.abort()
            return
        streams, unread = response.status, response.unread
        began = thread_time() if streams else 0.0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._ended, self._lasts = True, False  # What follows is not HTTP, and nobody wished for it.
        except (httptools.HttpParserError, httptools.HttpParserCallbackError):
            if not self._ended:
                self._refuse(response)
                return
            self._lasts = False  # It has said more than was asked.
        if streams:
            response.cost += thread_time() - began
        if self._ended:
            self._finish(response)
        elif response.unread != unread:
            self._bare = 0
            if response.unread > _MOST_UNREAD:
                self.transport.pause_reading()
            response.wake()
        else:
            self._bare += len(data)
            if self._bare > _LONGEST_HEAD:
                self._refuse(response)
            elif response.status:
                response.wake()

    def _refuse(self, response: HttpResponse) -> None:
        self._response, self._lasts = None, False
        self.transport.abort()
        response.fail(HttpTrouble("answered with something that is not HTTP", broken=True))

    def _finish(self, response: HttpResponse) -> None:
        """All of an answer has come."""
        self._response = None
        response.received = True
        if self._lasts and self._room is None and not self.transport.is_closing():
            self.used = True
            self._on_free(self)
        else:
            self.transport.close()
        response.wake()

    # --- called by the parser -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._ended:
            raise _NoAnswer
        self._fields = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value))
        if len(self._fields) > _MOST_FIELDS:
            raise _NoAnswer

    def on_headers_complete(self) -> None:
        response, status = self._response, self._parser.get_status_code()
        if response is None or (status < _OK and status != _SWITCHING):
            return  # A word before the answer (RFC 9110 §15.2).
        self._lasts = self._parser.should_keep_alive()
        response.fields = self._fields
        first = response.begin(status)
        self._to_the_end = b"content-length" not in first and b"transfer-encoding" not in first

    def on_body(self, body: bytes) -> None:
        if self._response is not None:
            self._response.put(body)

    def on_message_complete(self) -> None:
        if self._response is not None and self._response.status:
            self._ended = True
