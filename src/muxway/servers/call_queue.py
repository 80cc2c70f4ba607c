"""Calls that wait for their turn on one connection, which has as many under way as may be."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from muxway.calls.incidents import internal

if TYPE_CHECKING:
    from muxway.errors import UpstreamError
    from muxway.servers.connection import Connection
    from muxway.servers.limits import ServerLimits
    from muxway.servers.pending import QueuedCall

SOON: Final = 1.0
"""Seconds after which a call that was refused for want of room may be tried again."""


class CallQueue:
    """The queue of one connection."""

    __slots__ = ("_connection", "_limits", "exempt", "most", "waiting")

    def __init__(self, connection: Connection, limits: ServerLimits) -> None:
        self._connection = connection
        self._limits = limits
        self.most = limits.concurrency
        """How many calls may be under way."""
        self.exempt = 0
        """How many of our open requests are no calls under way: those of the gateway itself, and paused ones."""
        self.waiting: deque[QueuedCall] = deque()
        """Not empty only while as many calls are under way as may be."""

    @property
    def in_flight(self) -> int:
        """Calls that the server is at. What waits for its caller is none."""
        return len(self._connection.peer.ours) - self.exempt

    def enter(self, call: QueuedCall) -> QueuedCall:
        """Let a call wait. Raises UpstreamError if too many do."""
        connection = self._connection
        connection.check()
        if len(self.waiting) >= self._limits.queue:
            connection.counters.refused += 1
            raise self._overloaded(f"and {len(self.waiting)} more that wait, as many as may (maxQueue)")
        call.until = connection.loop.time() + self._limits.wait
        self.waiting.append(call)
        connection.deadlines.watch()
        return call

    def adjust(self, limits: ServerLimits) -> None:
        """Let as many calls be under way, and wait, as this says from now on."""
        self._limits = limits
        self.most = limits.concurrency
        self.let_in()

    def leave(self, call: QueuedCall) -> None:
        """A call need not be sent any more."""
        if call in self.waiting:
            self.waiting.remove(call)

    def let_in(self) -> None:
        """Send what waits, as far as there is room for it."""
        while self.waiting and self.in_flight < self.most:
            call = self.waiting.popleft()
            try:
                call.go()
            except Exception as error:  # noqa: BLE001 - those behind it wait for their turn
                self._connection.tell_failed(call.sink, internal(error, upstream=self._connection.name))

    def refuse_late(self, now: float) -> None:
        """Those that have waited for long enough are not sent any more."""
        while self.waiting and self.waiting[0].until <= now:
            call = self.waiting.popleft()
            self._connection.counters.refused += 1
            waited = f"and none ended in time for this one, which waited {self._limits.wait:g} s (queueWait)"
            self._connection.tell_failed(call.sink, self._overloaded(waited))

    def empty(self) -> list[QueuedCall]:
        """The connection has ended: nothing that waits is ever sent. Returns what did."""
        waiting = list(self.waiting)
        self.waiting.clear()
        return waiting

    def _overloaded(self, what: str) -> UpstreamError:
        why = f"has {self.in_flight} calls under way (maxConcurrency) {what}; this call did not run: try again later"
        return self._connection.error("overloaded", why, SOON)
