"""When a server that has failed may be started again. Pure: it is told the time and throws dice it is given.

The first restart of a server that ran well comes at once. After that the pauses double, and a server that ends again
and again within a minute is only tried once a minute, for ever: a crash loop must cost little, and a server that can
work again must not need anybody to notice.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_FIRST: Final = 0.5
_LONGEST: Final = 30.0
BUDGET: Final = 5
"""Ends within a minute, after which a server counts as crash-looping."""
_MINUTE: Final = 60.0
_QUIET: Final = 60.0
"""Seconds after which a server that runs is forgiven what was before."""


class Restarts:
    """The history of one server's starts, as far as it matters for the next."""

    def __init__(self, dice: Callable[[], float] = random.random) -> None:
        """A clean record; `dice` gives numbers from 0 to 1, so that many servers do not come back in step."""
        self.looping = False
        """Whether it has used up its budget."""
        self._dice = dice
        self._ends: deque[float] = deque(maxlen=BUDGET)
        self._failures = 0
        self._ready_at: float | None = None

    def began(self, now: float) -> None:
        """A start has begun. If it ran before, it was put to sleep, which is no fault of it."""
        self._forgive_if_quiet(now)
        self._ready_at = None

    def ready(self, now: float) -> None:
        """It is running."""
        self._ready_at = now

    def failed(self, now: float) -> float:
        """It could not be started, or has ended by itself. Returns the seconds to wait before the next start."""
        ran = self._ready_at is not None
        self._forgive_if_quiet(now)
        self._ready_at = None
        self._failures += 1
        self._ends.append(now)
        if len(self._ends) == BUDGET and now - self._ends[0] < _MINUTE:
            self.looping = True
        if self.looping:
            return _MINUTE * (1.1 + 0.2 * self._dice())
        if ran and self._failures == 1:
            return 0.0
        return min(_FIRST * 2 ** (self._failures - 1), _LONGEST) * (0.5 + self._dice())

    def _forgive_if_quiet(self, now: float) -> None:
        if self._ready_at is not None and now - self._ready_at >= _QUIET:
            self.forgive()

    def forgive(self) -> None:
        """Whatever was before does not count any more."""
        self._failures = 0
        self._ends.clear()
        self.looping = False
