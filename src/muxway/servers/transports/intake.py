"""Reading from a child a little at a time, so that one that floods is slowed down by its own pipe.

What comes at once is taken in slices of a millisecond; between two of them everybody else has a turn. A large message
is opened in steps, and what follows it waits. What nobody asked for (junk, notices, blank lines) is paid for from a
budget: a burst is free, and after that it may take a share of the processor and no more. While the budget is overdrawn
the pipe is not read, so its writer waits. Answers to what we asked cost nothing, however many there are.
"""

from __future__ import annotations

import asyncio
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Final

from muxway.net.pipes import PipeReader
from muxway.wire import large

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from muxway.net.pipes import Turn
    from muxway.wire.framing import LineFramer, Oversized

TURN: Final = 0.001
"""Seconds of work after which others have their turn."""
_SLICE: Final = 64
"""Lines that are taken between two looks at the clock."""
_BURST: Final = 0.5
_SHARE: Final = 0.05
"""Seconds of work on what nobody asked for: at once, and after that in each second."""
BREATH: Final = 2
"""How many times as long as a turn's work on what nobody asked for nothing follows."""
FLOOD_SECONDS: Final = 20.0
"""How long the budget may be overdrawn without a break before it is told."""
_READ: Final = 20e-6
"""What a read costs beside what is done with it, about."""
_MOST_DRAINED: Final = 0.5
_MOST_READS: Final = 64
"""Seconds of work on the last words of a process that is gone, and reads: two full pipes."""


class Budget:
    """What may be spent on what nobody asked for."""

    __slots__ = ("_at", "_credit", "_on_flood", "_since")

    def __init__(self, on_flood: Callable[[], None] | None = None) -> None:
        """`on_flood` is called, once, when it was overdrawn for too long."""
        self._on_flood = on_flood
        self._credit = _BURST
        self._at = 0.0
        self._since = 0.0

    def pay(self, seconds: float) -> float:
        """Work was done just now. Returns for how long none may follow."""
        if not seconds:
            return 0.0
        now = perf_counter()
        pause = self.spend(now, seconds)
        if pause and self._on_flood is not None and self.overdrawn(now) > FLOOD_SECONDS:
            on_flood, self._on_flood = self._on_flood, None
            on_flood()
        return pause

    def spend(self, now: float, seconds: float) -> float:
        """Work was done. Returns for how long none may follow."""
        credit = min(_BURST, self._credit + (now - self._at) * _SHARE)
        if credit == _BURST:
            # It was quiet for long enough.
            self._since = 0.0
        self._credit, self._at = credit - seconds, now
        if self._credit >= 0:
            return 0.0
        self._since = self._since or now
        return -self._credit / _SHARE

    def overdrawn(self, now: float) -> float:
        """For how many seconds it has been overdrawn again and again, without a break."""
        return now - self._since if self._since else 0.0


class Intake:
    """Takes the lines of one pipe of a child."""

    def __init__(
        self,
        fd: int,
        turn: Turn,
        framer: LineFramer,
        hear: Callable[[Sequence[bytes | Oversized]], int],
        on_end: Callable[[], None],
        on_flood: Callable[[], None] | None = None,
        hear_large: Callable[[bytes, large.Opened], int] | None = None,
    ) -> None:
        """Begin to read.

        Args:
            fd: the pipe.
            turn: whose turn the reading is a part of.
            framer: cuts what is read into lines.
            hear: takes lines, and says how many of them nobody had asked for.
            on_end: called when no more will come.
            on_flood: called, once, when a flood goes on for too long.
            hear_large: takes a message that was opened in steps, as `hear` does others; None where none can be large.
        """
        self._turn = turn
        self._framer = framer
        self._hear, self._hear_large = hear, hear_large
        self._budget = Budget(on_flood)
        self._waiting: list[bytes | Oversized] = []
        """What was read and has not been taken yet. Nothing is read meanwhile."""
        self._taken = 0
        self._opening: Generator[None, None, large.Opened] | None = None
        """The steps that the first of them takes, if it is large."""
        self._spent = 0.0
        """Seconds that these have taken."""
        self._timer: asyncio.Handle | None = None
        self._loop = asyncio.get_running_loop()
        self._reader = PipeReader(fd, turn, self._read, on_end)

    def _read(self, data: bytes) -> None:
        framer = self._framer
        wasted = framer.wasted
        frames = framer.feed(data)
        first = frames[0] if frames else b""
        # Only the first one can be longer than what was read.
        if isinstance(first, bytes) and len(first) > large.STEPPED and self._hear_large is not None:
            # Later: to put it together was enough for this turn.
            self._opening = large.opening(first)
            self._waiting += frames
            self._reader.pause()
            self._charge(0.0)
        elif len(frames) > _SLICE:
            self._waiting += frames
            self._reader.pause()
            self._work(perf_counter() - self._turn.began + _READ)
        # Also without a whole line: who is amid a long one is busy, and not silent.
        elif self._hear(frames) or framer.wasted != wasted:
            self._charge(perf_counter() - self._turn.began + _READ)

    def _work(self, already: float = 0.0) -> None:
        """Take what waits, for as long as a turn may last; so many seconds of it are over."""
        # Dearer than the other clock, but it counts only what we do, however crowded the machine is.
        began = thread_time()
        if self._opening is not None and self._hear_large is not None:
            self._charge(self._open(self._opening, self._hear_large) + already)
            return
        unasked = taken = 0
        try:
            while self._taken < len(self._waiting):
                part = self._waiting[self._taken : self._taken + _SLICE]
                self._taken += len(part)
                taken += len(part)
                unasked += self._hear(part)
                if thread_time() - began + already > TURN:
                    break
        finally:
            if self._taken >= len(self._waiting):
                self._waiting, self._taken = [], 0
            # A batch of answers counts for several.
            self._charge((thread_time() - began + already) * max(unasked, 0) / max(taken, 1))

    def _open(self, opening: Generator[None, None, large.Opened], hear: Callable[[bytes, large.Opened], int]) -> float:
        """Go on with a large message. Returns for how many seconds of work nobody asked."""
        began = thread_time()
        opened: large.Opened | None = None
        try:
            while thread_time() - began <= TURN:
                next(opening)
        except StopIteration as stop:
            opened = stop.value
        self._spent += thread_time() - began
        if opened is None:
            return 0.0
        spent, self._spent, self._opening = self._spent, 0.0, None
        frame = self._waiting.pop(0)
        return spent if isinstance(frame, bytes) and hear(frame, opened) > 0 else 0.0

    def _charge(self, seconds: float) -> None:
        """Pay for work on what nobody asked for; then go on when that may be."""
        pause = self._budget.pay(seconds)
        if self._waiting:
            # Even while it is free it must leave most of the time to others.
            pause = max(pause, seconds * BREATH)
        if self._timer is None and (pause or self._waiting or self._reader.paused):
            self._reader.pause()
            self._timer = self._loop.call_later(pause, self._go_on) if pause else self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        if self._waiting:
            self._work()
        else:
            self._reader.resume()

    async def drain(self) -> None:
        """Take what is in the pipe already: the last words of a process that is gone. Others have their turns."""
        self._stop_timer()
        end = perf_counter() + _MOST_DRAINED
        for _ in range(_MOST_READS):
            # Not until it is empty: others may hold its other end, and write without end.
            if not self._waiting and not self._reader.read_now():
                return
            while self._waiting and perf_counter() < end:
                await asyncio.sleep(0)
                self._work()
            self._stop_timer()
            await asyncio.sleep(0)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Stop for good."""
        self._stop_timer()
        self._waiting, self._opening = [], None
        self._reader.close()
