"""One connection to a remote server: requests out, one after another, and their answers in.

HTTP/1.1 on httptools' parser. Of an answer so much is read as somebody takes, and a head has a limit.
"""

from __future__ import annotations

import asyncio
import ssl
from time import thread_time
from typing import TYPE_CHECKING, Final

import httptools

from muxway.net.http_errors import HttpTrouble, tls_refusal
from muxway.net.http_response import MOST_UNREAD, HttpResponse

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST_HEAD: Final = 64 * 1024
_MOST_FIELDS: Final = 256
_AT_ONCE: Final = 64 * 1024
"""Bytes of a body that are copied behind its head: two writes would be two packets."""
_PIECE: Final = 256 * 1024
"""Bytes that are written at once: all of a large body would hold up everybody else, above all if it is encrypted."""
_SWITCHING: Final = 101
_OK: Final = 200


class _NoAnswer(Exception):
    """What has come is none, or none that can be taken."""


class HttpLine(asyncio.Protocol):
    """A connection that is used again as long as both sides want that. A `http_response.Line`."""

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
                response.fail(HttpTrouble("broke off in the middle of an answer", broken=True))
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
            if response.unread > MOST_UNREAD:
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
        names = {name for name, _ in self._fields}
        self._to_the_end = b"content-length" not in names and b"transfer-encoding" not in names
        response.fields = self._fields
        response.begin(status)

    def on_body(self, body: bytes) -> None:
        if self._response is not None:
            self._response.put(body)

    def on_message_complete(self) -> None:
        if self._response is not None and self._response.status:
            self._ended = True
