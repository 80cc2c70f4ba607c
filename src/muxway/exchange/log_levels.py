"""Which log messages servers are asked for: from the most detailed level on that anybody who is still there wants.

A client says it once for its session, which ends; a stateless one with each request, so that it counts as there for a
moment after its last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from muxway.calls.ports import later
from muxway.wire.revisions import LOG_LEVELS

if TYPE_CHECKING:
    from muxway.calls.ports import LiveConnection, Timer

_USUAL: Final = LOG_LEVELS.index("info")
"""What a server is asked for when nobody is left who wanted more of it."""
_STAYS: Final = 60.0
"""Seconds for which a caller without a session counts as there."""


class LogLevels:
    """Who wants which level, and the connections that were asked for one."""

    def __init__(self) -> None:
        self._wanted: dict[object, int] = {}
        self._asked: WeakSet[LiveConnection] = WeakSet()
        self._passing: Timer | None = None

    @property
    def _least(self) -> int:
        return min(self._wanted.values(), default=_USUAL)

    def want(self, party: object, level: int) -> None:
        """A session wants log messages from this level on."""
        self._wanted[party] = level
        self._raise()

    def left(self, party: object) -> None:
        """A session has ended."""
        if self._wanted.pop(party, None) is not None:
            self._raise()

    def ask(self, connection: LiveConnection, level: int) -> None:
        """Ask a server for more than it gives, as somebody wants it."""
        self._asked.add(connection)
        connection.set_log_level(level)
        if level < self._least and self._passing is None:
            self._passing = later(_STAYS, self._pass)

    def _pass(self) -> None:
        self._passing = None
        self._raise()

    def _raise(self) -> None:
        """Ask for less where nobody wants so much any more."""
        least = self._least
        for connection in list(self._asked):
            if connection.log_level < least:
                connection.set_log_level(least)
