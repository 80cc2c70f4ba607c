"""Bytes → HTTP requests. A wish for another protocol is not granted, and so means nothing (RFC 9110 §7.8)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING
from urllib.parse import unquote

import httptools

from muxway.calls.incidents import internal
from muxway.clients.transports.http_request import Known, RequestHead

if TYPE_CHECKING:
    from muxway.clients.transports.http_server import Limits


class BadRequest(Exception):
    """What has arrived is answered with this status and these words, and is the last that is heard."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class RequestParser:
    """Takes the bytes of one connection."""

    __slots__ = (
        "_body",
        "_header_size",
        "_headers",
        "_limits",
        "_max_body",
        "_parser",
        "_piece",
        "_trailing",
        "_url",
        "coming",
        "discards",
        "known",
        "receiving",
        "size",
        "whole",
    )

    def __init__(self, limits: Limits, max_body: int) -> None:
        self._limits, self._max_body = limits, max_body
        self._parser: httptools.HttpRequestParser | None = None
        self.whole: deque[tuple[RequestHead, bytes]] = deque()
        """Requests that are there, in their order. Whoever takes one takes it out."""
        self.known: Known | None = None
        """The head of the last of them, if the next may have the same."""
        # Of the request that is being received.
        self.receiving = True
        self.coming: RequestHead | None = None
        """Its head, once that is there."""
        self.discards = False
        """Whether its body is of no interest: it is answered without."""
        self.size = 0
        """Bytes of its body so far."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._header_size = 0
        """What arrived of its header in earlier pieces."""
        self._piece = b""
        """What has just arrived, while it is looked at."""
        self._body: bytes | bytearray = b""
        self._trailing = 0
        """Bytes since the last of its body: of the chunks' own header, and of what follows them."""

    def close(self) -> None:
        """Nothing more comes."""
        # It holds us as we hold it.
        self._parser = None

    @property
    def silent(self) -> bool:
        """Whether nothing of the next request has arrived."""
        return self.coming is None and self._header_size == 0

    def feed(self, data: bytes) -> None:
        """Take what has arrived. Raises BadRequest."""
        self._piece = data
        size = self.size
        try:
            self._feed(data)
        except httptools.HttpParserCallbackError as error:
            raised = error.__context__
            if isinstance(raised, BadRequest):
                raise raised from None
            internal(raised if isinstance(raised, Exception) else error)
            raise BadRequest(500, "internal error of the gateway") from None
        except httptools.HttpParserError:
            raise BadRequest(400, "Invalid HTTP request received.") from None
        self._piece = b""
        if self.receiving:
            if self.coming is None:
                self._header_size += len(data)
            else:
                self._trailing = self._trailing + len(data) if self.size == size else 0
            if max(self._header_size, self._trailing) > self._limits.header_bytes:
                raise BadRequest(431, "the header is too long")

    def _feed(self, data: bytes) -> None:
        while True:
            parser = self._parser
            if parser is None:
                parser = self._parser = httptools.HttpRequestParser(self)
                # What follows a request that closes the connection is not looked at, and is no reason to refuse it.
                parser.set_dangerous_leniencies(lenient_data_after_close=True)
            try:
                parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # The parser has stopped behind the header, as if there were no body. Another one hears it without the
                # wish.
                first = b"%b %b HTTP/%b" % (parser.get_method(), self._url, parser.get_http_version().encode())
                lines = [b"%b: %b" % line for line in self._headers if line[0] != b"upgrade"]
                self._parser, self._piece = None, b""
                data = b"\r\n".join((first, *lines, b"", data[upgrade.args[0] :]))
            else:
                return

    # --- called by the parser -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._url, self._headers = b"", []
        self.coming = None
        self.receiving = True
        self._header_size = 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # What follows a body in chunks is of no interest.
        if self.coming is None:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser is None:
            return
        if self._header_is_too_long():
            raise BadRequest(431, "the header is too long")
        method = parser.get_method().decode()
        if method == "CONNECT":
            raise BadRequest(405, "this is no proxy")
        if parser.should_upgrade():
            return
        try:
            url = httptools.parse_url(self._url)
        except httptools.HttpParserInvalidURLError:
            raise BadRequest(400, "Invalid HTTP request received.") from None
        path = unquote((url.path or b"").decode("latin-1"))
        current = parser.get_http_version() != "1.0"
        lasts = current and parser.should_keep_alive()
        self.coming = RequestHead(method, path, url.query or b"", self._headers, keep_alive=lasts, chunked=current)
        self.discards = False
        self._body, self.size, self._trailing = b"", 0, 0

    def _header_is_too_long(self) -> bool:
        limits = self._limits
        if len(self._headers) > limits.header_count:
            return True
        if self._header_size + len(self._piece) <= limits.header_bytes:
            return False  # Not even all that has arrived is.
        return len(self._url) + sum(len(name) + len(value) for name, value in self._headers) > limits.header_bytes

    def on_body(self, body: bytes) -> None:
        # What is more than may be is not kept, but for the piece that shows it.
        if not self.discards and self.size <= self._max_body:
            # There may be millions of pieces: they are joined as they come.
            if not self._body:
                self._body = body
            elif isinstance(self._body, bytearray):
                self._body += body
            else:
                self._body = bytearray(self._body) + body
        self.size += len(body)

    def on_message_complete(self) -> None:
        head = self.coming
        if head is None:
            return
        self.receiving = False
        if not self.discards:
            body = self._body if isinstance(self._body, bytes) else bytes(self._body)
            self.whole.append((head, body))
            self.known = Known.of(self._piece, body, head) if self._header_size == 0 and head.keep_alive else None
        self.coming, self._body, self._trailing = None, b"", 0
