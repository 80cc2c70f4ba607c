"""Answers on their way out over HTTP: a JSON body if the answer comes alone, server-sent events if not.

Whoever produces an answer calls; the request's own task, which alone may write to the response, waits here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from muxway.clients import notifications

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muxway.wire.envelopes import Buffer

PING: Final = b": ping\n\n"
"""A comment, which clients skip and proxies take for life."""
_MOST_LOSSY: Final = 256
"""Progress and log messages that may wait for a client that is behind; the oldest make room. Answers always wait."""
_MOST_LOSSY_BYTES: Final = 1024 * 1024
"""The same in bytes, for every client: a server may say more at once than anybody can read."""


def event(data: bytes, id_: str | None = None, kind: bytes = b"message") -> bytes:
    """One server-sent event."""
    if b"\n" in data or b"\r" in data:
        # Between the tokens of JSON a line break means no more than a space, and here it would end the event.
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    head = b"" if id_ is None else b"id: " + id_.encode() + b"\n"
    return b"%bevent: %b\ndata: %b\n\n" % (head, kind, data)


def joined(frame: Sequence[Buffer]) -> bytes:
    """A frame as one piece, without its newline."""
    return b"".join(frame).rstrip(b"\n")


class _Wakeable:
    """Something one task waits for."""

    __slots__ = ("_waiter", "gone", "on_wake")

    def __init__(self) -> None:
        self.on_wake: Callable[[], None] | None = None
        """Called, instead of waking a task, when something has happened."""
        self.gone = False
        """Whether the client has left."""
        self._waiter: asyncio.Future[None] | None = None

    def lost(self) -> None:
        """The client has left."""
        self.gone = True
        self._wake()

    def _wake(self) -> None:
        if self.on_wake is not None:
            self.on_wake()
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Wait until something has happened, or for so long."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None


class Outlet(_Wakeable):
    """What is to be written to one open event stream."""

    __slots__ = ("_chunks", "_last", "_lossy", "_lossy_bytes", "behind", "dropped", "ended", "waiting")

    def __init__(self) -> None:
        super().__init__()
        self.ended = False
        self.waiting = 0
        """Bytes that wait to be written."""
        self.behind = False
        """Whether the client has yet to read what was written last."""
        self.dropped = 0
        """How many messages were left out."""
        self._chunks: dict[int, bytes] = {}
        """By number, in their order."""
        self._last = 0
        self._lossy: deque[int] | None = None
        """The numbers of those that may be left out. There are none for most clients."""
        self._lossy_bytes = 0

    @property
    def empty(self) -> bool:
        """Whether nothing waits to be written."""
        return not self._chunks

    def put(self, chunk: bytes, *, lossy: bool = False) -> None:
        """Write this next. What is lossy may be left out if more of that comes than is read."""
        self._last += 1
        self._chunks[self._last] = chunk
        self.waiting += len(chunk)
        if lossy:
            self._make_room(len(chunk))
        self._wake()

    def _make_room(self, size: int) -> None:
        lossy = self._lossy
        if lossy is None:
            lossy = self._lossy = deque()
        lossy.append(self._last)
        self._lossy_bytes += size
        most = _MOST_LOSSY if self.behind else len(lossy)
        while len(lossy) > most or (self._lossy_bytes > _MOST_LOSSY_BYTES and len(lossy) > 1):
            oldest = len(self._chunks.pop(lossy.popleft()))
            self._lossy_bytes -= oldest
            self.waiting -= oldest
            self.dropped += 1

    def end(self) -> None:
        """Nothing more comes."""
        self.ended = True
        self._wake()

    def take(self) -> bytes:
        """All that waits to be written."""
        chunks, self._chunks = self._chunks, {}
        self.waiting = self._lossy_bytes = 0
        self._lossy = None
        return b"".join(chunks.values())


class Events(Protocol):
    """An event stream that an answer may be put on."""

    def add(self, message: bytes, *, last: bool) -> None:
        """Send a message as an event; the last one ends the stream."""
        ...

    def end(self) -> None:
        """Nothing more comes."""
        ...


class PlainEvents:
    """An event stream that ends with its connection: events without ids."""

    def __init__(self) -> None:
        self.outlet = Outlet()

    def add(self, message: bytes, *, last: bool) -> None:
        self.outlet.put(event(message), lossy=notifications.may_be_lost(message))
        if last:
            self.outlet.end()

    def end(self) -> None:
        self.outlet.end()


class JsonReply(_Wakeable):
    """What is said to one POST: one answer, perhaps notices before it."""

    __slots__ = ("_events", "_notices", "answer", "answered", "status")

    def __init__(self) -> None:
        super().__init__()
        self.answered = False
        self.answer = b""
        """The answer's JSON; nothing if the request was cancelled."""
        self.status = 200
        self._notices: list[bytes] = []
        self._events: Events | None = None

    @property
    def alone(self) -> bool:
        """Whether the answer is there and nothing came before it."""
        return self.answered and not self._notices

    def say(self, frame: Sequence[Buffer]) -> None:
        """Take the answer."""
        if self.answered:
            return
        self.answered = True
        if self._events is None:
            self.answer = joined(frame)
            if len(frame) > 3:
                if frame[1] == b"null":
                    # An error that could not be given under the request's id: only the status tells whose it is.
                    self.status = 400
                elif frame[3] is notifications.CLOSED:
                    self.status = 404
            self._wake()
        elif frame:
            self._events.add(joined(frame), last=True)
        else:
            self._events.end()

    def tell(self, frame: Sequence[Buffer]) -> None:
        """Take a notice."""
        if self._events is not None:
            self._events.add(joined(frame), last=False)
        elif not self.gone:
            self._notices.append(joined(frame))
            self._wake()

    def stream(self, events: Events) -> None:
        """From now on everything goes here, first what has come already."""
        self._events = events
        for notice in self._notices:
            events.add(notice, last=False)
        self._notices = []
        if self.answered:
            if self.answer:
                events.add(self.answer, last=True)
            else:
                events.end()
