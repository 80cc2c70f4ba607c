"""When a remote server counts as broken: too many requests to it failed on the way."""

from __future__ import annotations

from collections import deque
from typing import Final

_IN_A_ROW: Final = 5
_WINDOW: Final = 10.0
_ENOUGH: Final = 20
"""Requests within the window that say enough about a server of which many fail, but not all."""


class Circuit:
    """Whether a remote server still answers often enough to be asked.

    Counts requests that failed on the way. Answers cost their connection one addition: they are read off here.
    """

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures: deque[tuple[float, int]] = deque()
        """When each of the last requests failed, and how many answers there had been by then."""

    def failed(self, now: float, answers: int) -> str | None:
        """A request failed, after so many answers so far. Returns why no more should be made, if so."""
        failures = self._failures
        failures.append((now, answers))
        while failures[0][0] < now - _WINDOW and failures[0][1] != answers:
            failures.popleft()
        count = len(failures)
        in_a_row = sum(1 for _, before in failures if before == answers)
        if in_a_row >= _IN_A_ROW:
            return f"{in_a_row} requests in a row failed"
        asked = count + answers - failures[0][1]
        if asked >= _ENOUGH and 2 * count >= asked:
            return f"{count} of {asked} requests failed within {_WINDOW:g} s"
        return None
