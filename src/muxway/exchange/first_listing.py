"""How long the first listings wait for servers that are being started. Many clients list once, when they connect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muxway.calls.ports import later, steady

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muxway.calls.ports import Timer

STRAGGLER: Final = 2.0
"""Seconds that a server may hold up a list when others are there."""
FETCHED: Final = 10.0
"""Seconds since the start that are ordinary for a server whose launcher looks up, or downloads, what it starts."""
LONGEST: Final = 45.0
"""Seconds for which a list stays unanswered while there is nothing at all to list. Many clients give up after 60."""


def answer_at(began: float, arrived: float, unknown: Sequence[bool], *, shows: bool, limit: float | None) -> float:
    """When to answer, whoever is missing by then.

    Args:
        began: when the gateway was started.
        arrived: when a server last became ready, or failed, or else `began`.
        unknown: for each server of which nothing is known yet, whether it may have to be fetched.
        shows: whether any server has something to show.
        limit: seconds after the start that are allowed, if somebody has chosen them.
    """
    if not unknown:
        return began
    if limit is not None:
        return began + limit
    if not shows:
        return began + LONGEST
    at = arrived + STRAGGLER
    if any(unknown):
        # Where the others took long, one more launcher may take as long again.
        at = max(at, began + FETCHED, arrived + (arrived - began))
    return min(at, began + LONGEST)


class FirstListing:
    """Waits, and says once when the listings that came meanwhile can be answered."""

    def __init__(self, release: Callable[[], None], limit: float | None) -> None:
        """Begin to wait. `release` is called once; `limit` is as for `answer_at`."""
        self.over = False
        self._release = release
        self._limit = limit
        self._began = self._arrived = steady()
        self._missing = 0
        self._timer: Timer | None = None

    def look(self, unknown: Sequence[bool], *, shows: bool) -> None:
        """Something about a server may have changed."""
        if self.over:
            return
        now = steady()
        if len(unknown) < self._missing:
            self._arrived = now
        self._missing = len(unknown)
        if self._timer is not None:
            self._timer.cancel()
        at = answer_at(self._began, self._arrived, unknown, shows=shows, limit=self._limit)
        if at <= now:
            self._end()
        else:
            self._timer = later(at - now, self._end)

    def _end(self) -> None:
        self.over = True
        self._release()
