"""An answer to a request of ours over HTTP: its head, and its body as it comes.

Whatever goes wrong on the way becomes an `HttpTrouble`, in words that continue `server "x" …`.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING, Final, Protocol, Self

from muxway.net.http_errors import HttpTrouble
from muxway.wire.pieces import Pieces

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

MOST_UNREAD: Final = 512 * 1024
"""Bytes of a body that wait for whoever reads it; while there are more, the server is not read."""
_INFLATED: Final = 256 * 1024
"""Bytes that a compressed body gives at a time, however much is in it."""
_PACKED: Final = 16 * 1024
"""Bytes that are looked at for it: the rest of them is copied each time."""
_GZIP: Final = zlib.MAX_WBITS | 16
_ZLIB: Final = 8
"""The low half of the first byte of compressed data that says what it is (RFC 1950 §2.2)."""
_BROKEN_OFF: Final = "broke off in the middle of an answer"


class Line(Protocol):
    """The connection that an answer comes by."""

    def go_on(self) -> None:
        """Read on, as there is room again."""
        ...

    def abort(self) -> None:
        """Nobody wants the rest."""
        ...


class _Inflation:
    """A compressed body, a little at a time (RFC 9110 §8.4.1)."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._inflater = zlib.decompressobj(_GZIP)
        self._begun = False
        self._packed = b""
        self._at = 0
        """How much of that is unpacked."""
        self._filled = False
        """Whether what was taken last was cut, so that there may be more, wherever it is kept."""

    @property
    def has_more(self) -> bool:
        """Whether what came may have more in it than was taken out."""
        return self._filled or self._at < len(self._packed)

    @property
    def is_whole(self) -> bool:
        """Whether it may end here."""
        return not self.has_more and (self._inflater.eof or not self._begun)

    def put(self, data: bytes) -> None:
        """More has come. Only when there is no more of what came before: what waits must not become ever more."""
        self._packed, self._at = data, 0

    def take(self) -> bytes:
        """What is in it, up to so much at once; perhaps nothing, though there is more. Raises zlib.error."""
        if not self.has_more:
            return b""
        piece = self._packed[self._at : self._at + _PACKED]
        if (self._inflater.eof and piece) or not self._begun:
            self._begun = True
            # Many servers send deflated data without the header that it should have.
            bare = self._coding == "deflate" and piece[0] & 0x0F != _ZLIB
            bits = _GZIP if self._coding != "deflate" else -zlib.MAX_WBITS if bare else zlib.MAX_WBITS
            self._inflater = zlib.decompressobj(bits)
        inflated = self._inflater.decompress(piece, _INFLATED)
        self._at += len(piece) - len(self._inflater.unconsumed_tail or self._inflater.unused_data)
        self._filled = len(inflated) == _INFLATED and not self._inflater.eof
        return inflated


class HttpResponse:
    """An answer. Leaving its body unread ends its connection, not the others."""

    __slots__ = (
        *("_inflation", "_line", "_pieces", "_trouble", "_wake"),
        *("content_type", "cost", "fields", "handling", "received", "status", "unread"),
    )

    def __init__(self, line: Line) -> None:
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
        self._inflation: _Inflation | None = None
        self._trouble: HttpTrouble | None = None
        self._wake: Callable[[], None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- its head -----------------------------------------------------------------------------

    def begin(self, status: int) -> None:
        """All of the head has come."""
        self.status = status
        self.content_type = (self.header("content-type") or "").partition(";")[0].strip().lower()
        coding = (self.header("content-encoding") or "").strip().lower()
        if coding in ("gzip", "x-gzip", "deflate"):
            self._inflation = _Inflation(coding)

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
        if self.unread > MOST_UNREAD and not self.received:
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


def _inflated(inflation: _Inflation) -> bytes:
    try:
        return inflation.take()
    except zlib.error:
        raise HttpTrouble(_BROKEN_OFF, broken=True) from None
