"""How long the first listings wait for servers that are being started. Many clients list once, when they connect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from muxway.calls.ports import later, steady

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muxway.calls.ports import Timer

STRAGGLER: Final = 2.0
"""Seconds that a server may hold up a list when others are there."""
FETCHED: Final = 10.0
"""Seconds since the start that are ordinary for a server whose launcher looks up, or downloads, what it starts."""
IDLE: Final = 1.0
"""Seconds after which it is looked again whether such a launcher is at work or hangs."""
WORK: Final = 0.05
"""Processor seconds in that time that are work: a process that only waits may still have a timer."""
LONGEST: Final = 45.0
"""Seconds for which a list stays unanswered while there is nothing at all to list. Many clients give up after 60."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """When to answer, whoever is missing by then."""

    at: float
    """If nothing says that those who are missing are at work."""
    latest: float
    """However hard their launchers work."""


def deadline(began: float, arrived: float, unknown: Sequence[bool], *, shows: bool, limit: float | None) -> Deadline:
    """Until when to wait.

    Args:
        began: when the gateway was started.
        arrived: when a server last became ready, or failed, or else `began`.
        unknown: for each server of which nothing is known yet, whether it may have to be fetched.
        shows: whether any server has something to show.
        limit: seconds after the start that are allowed, if somebody has chosen them.
    """
    if not unknown:
        return Deadline(began, began)
    if limit is not None:
        return Deadline(began + limit, began + limit)
    if not shows:
        return Deadline(began + LONGEST, began + LONGEST)
    at = latest = arrived + STRAGGLER
    if any(unknown):
        # Where the others took long, one more launcher may take as long again.
        latest = max(at, began + FETCHED, arrived + (arrived - began))
    return Deadline(min(at, began + LONGEST), min(latest, began + LONGEST))


class FirstListing:
    """Waits, and says once when the listings that came meanwhile can be answered."""

    def __init__(self, release: Callable[[], None], limit: float | None, work: Callable[[], float | None]) -> None:
        """Begin to wait.

        Args:
            release: called once, when they can be answered.
            limit: as for `deadline`.
            work: processor seconds that the launchers of missing servers have used so far; None if nobody can tell.
        """
        self.over = False
        self._release = release
        self._limit = limit
        self._work = work
        self._began = self._arrived = steady()
        self._missing = 0
        self._deadline = Deadline(self._began, self._began)
        self._worked: float | None = None
        """What `work` said when it was last asked."""
        self._timer: Timer | None = None

    def look(self, unknown: Sequence[bool], *, shows: bool) -> None:
        """Something about a server may have changed."""
        if self.over:
            return
        now = steady()
        if len(unknown) < self._missing:
            self._arrived = now
        self._missing = len(unknown)
        before, self._deadline = (
            self._deadline,
            deadline(self._began, self._arrived, unknown, shows=shows, limit=self._limit),
        )
        if self._deadline.latest <= now:
            self._end()
        elif self._timer is None or before != self._deadline:
            self._worked = self._work()
            self._wait_until(max(self._deadline.at, now))

    def _wait_until(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = later(at - steady(), self._due)

    def _due(self) -> None:
        """Nobody came for a while. A launcher that is at work may yet bring its server; one that idles hangs."""
        before, self._worked = self._worked, self._work()
        idle = before is not None and self._worked is not None and self._worked - before < WORK
        now = steady()
        if idle or now >= self._deadline.latest:
            self._end()
        else:
            self._wait_until(min(now + IDLE, self._deadline.latest))

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.over = True
        self._release()
