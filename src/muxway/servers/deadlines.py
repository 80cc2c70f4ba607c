"""When a connection gives up on requests: one timer for all of them instead of one each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muxway.log import EventLog
from muxway.servers.call_queue import SOON

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from muxway.servers.connection import Connection
    from muxway.servers.pending import Pending

_SWEEP: Final = 0.25
"""Seconds between two looks at the deadlines."""
_QUEUE_LIMIT: Final = 64 * 1024 * 1024
_MUCH: Final = 64 * 1024
"""Bytes still to be written that are more than a turn's calls."""

log = EventLog("upstream")


class Deadlines:
    """The clock of one connection."""

    __slots__ = ("_connection", "clogged", "on_timeout", "timer")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.timer: asyncio.TimerHandle | None = None
        """Runs while anything has a deadline."""
        self.clogged = False
        """Whether much was still waiting to be written at the last look."""
        self.on_timeout: Callable[[], None] | None = None
        """Called when a caller's request was given up because the server was silent."""

    def watch(self) -> None:
        """Something has a deadline."""
        if self.timer is None:
            self.timer = self._connection.loop.call_later(_SWEEP, self._sweep)

    def check_clogged(self) -> None:
        """Raise UpstreamError if the server takes nothing of what is sent to it."""
        if self._connection.transport.queued > _QUEUE_LIMIT:
            raise self._connection.error("overloaded", "does not read its input; try again later", SOON)

    def stop(self) -> None:
        """The connection has ended."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _sweep(self) -> None:
        connection = self._connection
        now = connection.loop.time()
        self.clogged = connection.transport.queued > _MUCH
        connection.counters.sort_in()
        for pending in [pending for pending in connection.peer.ours.values() if pending.deadline <= now]:
            self._time_out(pending)
        connection.queue.refuse_late(now)
        # What was cancelled must not keep its party in memory for longer than is needed.
        clocks = any(not pending.endless for pending in connection.peer.ours.values())
        goes_on = clocks or connection.queue.waiting or connection.attribution.cancelled_parties()
        self.timer = connection.loop.call_later(_SWEEP, self._sweep) if goes_on and not connection.gone else None

    def _time_out(self, pending: Pending) -> None:
        connection = self._connection
        if not connection.give_up(pending, "timeout"):
            return
        hard = pending.deadline == pending.limit_at and pending.last_progress >= 0
        why = "took longer than any call may (callMax)" if hard else f"gave no sign for {pending.idle:g} s"
        # What we asked ourselves, as at a start, is told by whoever asked.
        tell = log.debug if pending.caller is None else log.warning
        tell("call timed out", upstream=connection.name, request=pending.id, why=why)
        if pending.caller is not None:
            connection.counters.timeouts += 1
            connection.counters.failed += 1
        said = f"{why}, so the call was given up; it may have run{connection.junk.about(pending.id)}"
        connection.tell_failed(pending.sink, connection.error("timeout", said))
        if not hard and pending.caller is not None and self.on_timeout is not None:
            self.on_timeout()
        if not hard and connection.transport.remote and connection.heard < pending.began:
            # Else it is only slow with this one.
            connection.note_broken(why)
