"""Answers on their way out over HTTP: a JSON body if the answer comes alone, server-sent events if not.

Nobody waits: whoever has something to say calls, and what cannot be written yet is written when the client has read on.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from muxway.clients import notifications
from muxway.log import EventLog
from muxway.wire.framing import one_line
from muxway.wire.pieces import FEW_PARTS, LARGE_FRAME, PAYLOAD, is_large

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from muxway.clients.transports.http_connection import HttpConnection
    from muxway.clients.transports.http_sessions import HttpSession, Stream
    from muxway.wire.envelopes import Buffer

PING: Final = b": ping\n\n"
"""A comment, which clients skip and proxies take for life."""
_MOST_LOSSY: Final = 256
"""Progress and log messages that may wait for a client that is behind; the oldest make room. Answers always wait."""
_MOST_LOSSY_BYTES: Final = 1024 * 1024
"""The same in bytes, for every client: a server may say more at once than anybody can read."""
_COPIED: Final = 16 * 1024
"""Bytes of a result that may be copied once more, which is quicker than to look at the parts of its frame."""
_LOOKED_AT: Final = 256 * 1024
"""Bytes that are searched for line breaks at once."""
_CLOSED: Final = notifications.CLOSED

log = EventLog("http")


class Parts:
    """What is written as the parts that it has: to put 16 MiB together takes 10 ms, most of it for fresh memory."""

    __slots__ = ("_size", "views")

    def __init__(self, views: Sequence[memoryview]) -> None:
        self.views = views
        self._size = sum(map(len, views))

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self.views)


def views(data: bytes | Parts) -> Sequence[memoryview]:
    """What to write, one after the other."""
    return (memoryview(data),) if isinstance(data, bytes) else data.views


def event(data: bytes, id_: str | None = None, kind: bytes = b"message") -> bytes:
    """One server-sent event."""
    head = b"" if id_ is None else b"id: " + id_.encode() + b"\n"
    return b"%bevent: %b\ndata: %b\n\n" % (head, kind, one_line(data))


def message_event(frame: Sequence[Buffer], id_: str | None = None) -> tuple[bytes | Parts, bool]:
    """The event of a message, and whether it may be left out. Put together at once: each copy of a large one counts."""
    head = b"event: message\ndata: " if id_ is None else b"id: %b\nevent: message\ndata: " % id_.encode()
    if is_large(frame):
        return Parts((memoryview(head), *_in_one_line(_without_newline(frame)), memoryview(b"\n\n"))), False
    whole = b"".join((head, *frame, b"\n"))
    lossy = notifications.may_be_lost(whole, len(head))
    if whole.count(b"\n") > (3 if id_ is None else 4) or b"\r" in whole or not whole.endswith(b"\n\n"):
        whole = event(joined(frame), id_)
    return whole, lossy


def joined(frame: Sequence[Buffer]) -> bytes:
    """A frame as one piece, without its newline."""
    # Not stripped when it is whole: it may be large, and would be copied once more.
    return b"".join(_without_newline(frame))


def _large(frame: Sequence[Buffer]) -> bytes | Parts:
    """The same for one that may be too large to be put together."""
    return Parts([memoryview(part) for part in _without_newline(frame)]) if is_large(frame) else joined(frame)


def _without_newline(frame: Sequence[Buffer]) -> Sequence[Buffer]:
    return [*frame[:-1], bytes(frame[-1]).removesuffix(b"\n")] if frame else frame


def _in_one_line(frame: Sequence[Buffer]) -> Iterator[memoryview]:
    """A large frame without line breaks, a little at a time."""
    for part in frame:
        view = memoryview(part)
        for start in range(0, len(view), _LOOKED_AT):
            piece = bytes(view[start : start + _LOOKED_AT])
            line = one_line(piece)
            yield view[start : start + _LOOKED_AT] if line is piece else memoryview(line)


class Outlet:
    """What is to be written to one open event stream."""

    __slots__ = ("_chunks", "_last", "_lossy", "_lossy_bytes", "behind", "dropped", "ended", "on_ready", "waiting")

    def __init__(self) -> None:
        self.on_ready: Callable[[], None] = lambda: None
        """Called when there is something to write, or nothing more comes."""
        self.ended = False
        self.waiting = 0
        """Bytes that wait to be written."""
        self.behind = False
        """Whether the client has yet to read what was written last."""
        self.dropped = 0
        """How many messages were left out."""
        self._chunks: dict[int, bytes | Parts] = {}
        """By number, in their order."""
        self._last = 0
        self._lossy: deque[int] | None = None
        """The numbers of those that may be left out. There are none for most clients."""
        self._lossy_bytes = 0

    def put(self, chunk: bytes | Parts, *, lossy: bool = False) -> None:
        """Write this next. What is lossy may be left out if more of that comes than is read."""
        self._last += 1
        self._chunks[self._last] = chunk
        self.waiting += len(chunk)
        if lossy:
            self._make_room(len(chunk))
        self.on_ready()

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
        self.on_ready()

    def take(self) -> bytes | Parts:
        """All that waits to be written."""
        chunks, self._chunks = self._chunks, {}
        waiting, self.waiting = self.waiting, 0
        self._lossy_bytes, self._lossy = 0, None
        if waiting > LARGE_FRAME:
            return Parts([view for chunk in chunks.values() for view in views(chunk)])
        return b"".join(map(bytes, chunks.values()))


class EventResponse:
    """An outlet that is written to a connection until it ends or the client leaves. A `http_connection.UnderWay`."""

    __slots__ = ("_connection", "_on_over", "_outlet", "_planned")

    def __init__(self, connection: HttpConnection, outlet: Outlet, on_over: Callable[[], None]) -> None:
        """Begin to write; `on_over` is called once, when the last was written or the client has left."""
        self._connection, self._outlet, self._on_over = connection, outlet, on_over
        self._planned = False
        outlet.on_ready = self._plan
        connection.begin_events(self)
        self._plan()

    def _plan(self) -> None:
        """Write at the end of this turn of the loop: what is said in one turn is written at once."""
        if not self._planned:
            self._planned = True
            self._connection.loop.call_soon(self.go_on)

    def go_on(self) -> None:
        """Write what waits, if the client reads."""
        self._planned = False
        connection, outlet = self._connection, self._outlet
        if connection.under_way is not self:
            return
        outlet.behind = connection.is_behind
        if outlet.behind:
            return
        data = outlet.take()
        if data:
            connection.write_events(data)
            outlet.behind = connection.is_behind
        if outlet.ended:
            self._end()
            connection.end_events()

    def late(self) -> None:
        """Nothing was said for a while."""
        self._connection.remind()
        if not self._outlet.waiting:
            self._outlet.put(PING)

    def lost(self) -> None:
        """The client has left."""
        self._end()

    def _end(self) -> None:
        outlet = self._outlet
        outlet.on_ready = lambda: None
        if outlet.dropped:
            client = self._connection.address
            log.warning("a client read too slowly for all it was told", dropped=outlet.dropped, client=client)
        self._on_over()


class PlainEvents:
    """An event stream that ends with its connection: events without ids."""

    def __init__(self) -> None:
        self.outlet = Outlet()

    def add(self, frame: Sequence[Buffer], *, last: bool) -> None:
        """Send a message; the last one ends the stream."""
        message, lossy = message_event(frame)
        self.outlet.put(message, lossy=lossy)
        if last:
            self.outlet.end()

    def end(self) -> None:
        """Nothing more comes."""
        self.outlet.end()


class HttpReply(msgspec.Struct, eq=False):
    """What is said to one POST: one answer, perhaps notices before it. A `http_connection.UnderWay`.

    A Struct, as its constructor runs for every call.
    """

    connection: HttpConnection
    session: HttpSession | None = None
    """Whose streams outlive their connections."""
    events: Stream | PlainEvents | None = None
    answered: bool = False
    status: int = 200

    def say(self, frame: Sequence[Buffer]) -> None:
        """Take the answer; an empty one if the request was cancelled."""
        if self.answered:
            return
        self.answered = True
        if self.events is not None:
            if frame:
                self.events.add(frame, last=True)
            else:
                self.events.end()
        elif self.connection.under_way is self:
            if not frame:
                self.connection.answer(202, b"")
                return
            status, payload = self.status, frame[PAYLOAD]
            if payload is _CLOSED:
                status = 404
            elif frame[1] == b"null":
                # An error that could not be given under the request's id: only the status tells whose it is.
                status = 400
            small = len(payload) <= _COPIED and len(frame) <= FEW_PARTS
            self.connection.answer(status, b"".join(frame).removesuffix(b"\n") if small else _large(frame))

    def tell(self, frame: Sequence[Buffer]) -> None:
        """Take a notice."""
        if self.events is None:
            if self.connection.under_way is not self:
                return
            self.late()
        if self.events is not None:
            self.events.add(frame, last=False)

    def late(self) -> None:
        """It takes long, or there is something to say before the answer: go on with events."""
        if self.session is None:
            self.events = PlainEvents()
            outlet = self.events.outlet
        else:
            self.events, outlet = self.session.open_stream()
        EventResponse(self.connection, outlet, partial(self.over, outlet))

    def over(self, outlet: Outlet | None = None) -> None:
        """The client has its answer, or has left."""
        if self.session is not None and outlet is not None:
            self.session.left(outlet)

    def lost(self) -> None:
        """The client has left."""
        self.over()

    def go_on(self) -> None:
        """The client has read what was written before. There is nothing to write yet."""
