"""Reading event streams a little at a time, so that a remote server that floods is slowed down by its own connection.

The rules are those of a child's pipe (`intake`): a turn of a millisecond, a budget for what nobody asked for, and an
end for a flood without one. All streams of a server share one budget. While it is overdrawn nothing more is read, so
the buffers fill and the server waits.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from io import BytesIO
from time import thread_time
from typing import TYPE_CHECKING, Final, Protocol

from muxway.servers.transports.intake import BREATH, TURN, Budget
from muxway.wire import large
from muxway.wire.framing import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from muxway.wire.sse import SseEvent, SseParser


class Take(Protocol):
    """Takes an event, and what came of it if it was opened in steps."""

    def __call__(self, event: SseEvent, opened: large.Opened | None = None, /) -> int:
        """Returns how much of it nobody had asked for."""
        ...


_PIECE: Final = 2048
"""Bytes that are parsed between two looks at the clock."""
_SLICE: Final = 16
"""The same for events."""
_READ: Final = 100e-6
"""What a read costs beside what is done with it, about."""
_COPIED: Final = 256 * 1024
"""Bytes of a large message that are copied between two looks."""


class HttpIntake:
    """Takes the events of all streams of one server."""

    def __init__(self, on_flood: Callable[[], None]) -> None:
        """`on_flood` is called, once, when a flood goes on for too long."""
        self._budget = Budget(on_flood)

    async def read(self, data: bytes, parser: SseParser, take: Take, already: float = 0.0) -> None:
        """Take the events that this piece of a stream completes; wait until more of the stream may be read.

        So many seconds of work were done to have it.
        """
        await self._work(_parsed(data, parser, take), _READ + already)

    async def hear(self, events: Sequence[SseEvent], take: Take) -> None:
        """The same for events that were kept."""
        await self._work(_heard(events, take))

    async def open(self, frame: bytes) -> tuple[bytes, large.Opened | None]:
        """Open a message that came by itself, if it is large."""
        if len(frame) <= large.STEPPED:
            return frame, None
        opened: large.Opened | None = None

        def steps() -> Iterator[float]:
            nonlocal frame, opened
            frame, opened = yield from _opened(frame)

        # Whoever has its bytes put together, or takes what they say, does that in another turn.
        await asyncio.sleep(0)
        await self._work(steps())
        await asyncio.sleep(0)
        return frame, opened

    async def _work(self, steps: Iterator[float], already: float = 0.0) -> None:
        """Do this step by step. Each says what part of it nobody asked for."""
        began = before = thread_time()
        owed, unasked = 0.0, 0.0
        for unasked in steps:
            now = thread_time()
            owed += (now - before) * unasked
            before = now
            if now - began > TURN:
                await asyncio.sleep(max(self._budget.pay(owed), owed * BREATH))
                began = before = thread_time()
                owed = 0.0
        pause = self._budget.pay(owed + already * unasked)
        if pause:
            await asyncio.sleep(pause)


def _parsed(data: bytes, parser: SseParser, take: Take) -> Iterator[float]:
    for start in range(0, len(data), _PIECE):
        wasted = parser.wasted
        events = parser.feed(data[start : start + _PIECE])
        if events:
            yield from _heard(events, take)
        else:
            # A part of a large event may belong to an answer.
            yield float(parser.wasted != wasted)


def _heard(events: Sequence[SseEvent], take: Take) -> Iterator[float]:
    for start in range(0, len(events), _SLICE):
        part = events[start : start + _SLICE]
        unasked = 0
        for event in part:
            if len(event.data) > large.STEPPED and not event.cut:
                frame, opened = yield from _opened(event.data)
                unasked += take(replace(event, data=frame), opened)
            else:
                unasked += take(event)
        # A batch of answers counts for several.
        yield max(unasked, 0) / len(part)


def _opened(frame: bytes) -> Generator[float, None, tuple[bytes, large.Opened]]:
    """A large message in one line, and what came of it."""
    if b"\n" in frame or b"\r" in frame:
        line = BytesIO()
        for start in range(0, len(frame), _COPIED):
            line.write(one_line(frame[start : start + _COPIED]))
            yield 0.0
        frame = line.getvalue()
    steps = large.opening(frame)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return frame, stop.value
        # Whether anybody asked for it shows in the end.
        yield 0.0
