"""How long the event loop is busy without a break: the processor time of its longest turn.

Everybody waits for a turn to end, so nothing that anybody sends may make one long. A timer beats every few
milliseconds while messages arrive. If it comes late, the loop was busy; how much of its own time it used since the
last beat says for how long, whatever else runs on the machine. A loop at rest has no beat, and a message costs one
comparison. What is measured may be too high by one beat, never too low. On some virtual machines the clock of a thread
jumps ahead, so no turn counts for more than the time that has passed.
"""

from __future__ import annotations

import asyncio
from time import monotonic, thread_time
from typing import Final

LONG: Final = 0.020
"""Seconds that no message may keep the loop busy for (docs/behaviour.md#size-limits)."""
_BEAT: Final = 0.002
_AT_REST: Final = 0.0002
"""Seconds of work between two beats below which there is no need for another one."""


class Metronome:
    """Watches over one event loop."""

    __slots__ = ("_always", "_at", "_before", "_since", "armed", "long_turns", "longest")

    def __init__(self) -> None:
        self.armed = False
        """Whether there will be a beat; whoever takes a message calls `arm` if not."""
        self.longest = 0.0
        """Seconds of processor time that the longest turn so far took."""
        self.long_turns = 0
        """How many took longer than LONG."""
        self._at = monotonic()
        self._before = self._since = 0.0
        self._always = False

    @property
    def ago(self) -> float:
        """Seconds since the longest turn."""
        return monotonic() - self._at

    def begin(self) -> None:
        """Count from here on: what a start takes is no message's doing."""
        self.longest, self.long_turns, self._at = 0.0, 0, monotonic()
        self._before, self._since = thread_time(), monotonic()

    def arm(self) -> None:
        """Something has arrived: watch until the loop is at rest again."""
        self.armed = True
        self._before, self._since = thread_time(), monotonic()
        asyncio.get_running_loop().call_later(_BEAT, self._beat)

    def watch(self) -> None:
        """Watch for good, whether anything arrives or not."""
        self._always = True
        if not self.armed:
            self.arm()

    def stop(self) -> None:
        """Watch only while messages arrive."""
        self._always = False

    def _beat(self) -> None:
        now, since = thread_time(), monotonic()
        used = min(now - self._before, since - self._since)
        if used > self.longest:
            self.longest, self._at = used, since
        if used > LONG:
            self.long_turns += 1
        if used > _AT_REST or self._always:
            self._before, self._since = now, since
            asyncio.get_running_loop().call_later(_BEAT, self._beat)
        else:
            self.armed = False
