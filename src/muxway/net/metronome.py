"""How long the event loop is busy without a break: the processor time of its longest turn.

Everybody waits for a turn to end, so nothing that anybody sends may make one long. While messages arrive, whoever takes
one looks at the clock; every few milliseconds it is told how much of the processor the loop used since the last look,
whatever else runs on the machine. A timer looks in when messages fail to come, and ends with the work. It is a slow
one, because a quick one would make each wait of the loop set the machine's clock anew, which costs more than a fifth
of a small call; it is quick only while there is heavy work. A loop at rest has no timer. What is measured may be too
high by the work between two looks, never too low. On some virtual machines the clock of a thread jumps ahead, so no
turn counts for more than the time that has passed.
"""

from __future__ import annotations

import asyncio
from time import perf_counter, thread_time
from typing import Final

LONG: Final = 0.020
"""Seconds that no message may keep the loop busy for (docs/behaviour.md#size-limits)."""
BETWEEN: Final = 0.002
"""Seconds between two looks while messages arrive."""
_BEAT: Final = 0.020
"""Seconds between two looks while none do."""
_HEAVY: Final = 0.005
"""Seconds of work since the last look after which the next one comes as soon as if messages arrived."""
_AT_REST: Final = 0.0002
"""Seconds of work between two looks below which there is no need for another one."""


class Metronome:
    """Watches over one event loop."""

    __slots__ = ("_always", "_at", "_before", "_quiet", "_since", "_timer", "due", "long_turns", "longest")

    def __init__(self) -> None:
        self.due = 0.0
        """By `perf_counter`: whoever takes a message after that calls `look`."""
        self.longest = 0.0
        """Seconds of processor time that the longest turn so far took."""
        self.long_turns = 0
        """How many took longer than LONG."""
        self._at = perf_counter()
        self._before = self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._quiet = True
        """Whether nothing has arrived since it last did."""
        self._always = False

    @property
    def ago(self) -> float:
        """Seconds since the longest turn."""
        return perf_counter() - self._at

    def begin(self) -> None:
        """Count from here on: what a start takes is no message's doing."""
        self.longest, self.long_turns = 0.0, 0
        self._before, self._since = thread_time(), perf_counter()
        self._at = self._since

    def look(self) -> None:
        """Something has arrived, and the last look was a while ago."""
        self._quiet = False
        now = perf_counter()
        self.due = now + BETWEEN
        if self._timer is not None:
            self._count(now)
        else:
            self._before, self._since = thread_time(), now
            self._arm(_BEAT)

    def watch(self) -> None:
        """Look all the time, whether anything arrives or not."""
        self._always = True
        self._before, self._since = thread_time(), perf_counter()
        if self._timer is not None:
            self._timer.cancel()
        self._arm(BETWEEN)

    def stop(self) -> None:
        """Look only while messages arrive."""
        self._always = False

    def _arm(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._beat)

    def _beat(self) -> None:
        used = self._count(perf_counter())
        if self._quiet and used < _AT_REST and not self._always:
            self._timer, self.due = None, 0.0
            return
        self._quiet = True
        self._arm(BETWEEN if self._always or used > _HEAVY else _BEAT)

    def _count(self, now: float) -> float:
        spent = thread_time()
        used = min(spent - self._before, now - self._since)
        self._before, self._since = spent, now
        if used > self.longest:
            self.longest, self._at = used, now
        if used > LONG:
            self.long_turns += 1
        return used
