"""Whose call something belongs to that a server says or asks unasked: a pipe does not say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muxway.wire import envelopes
from muxway.wire.revisions import RELATED_TASK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.calls.call import Caller
    from muxway.servers.connection import Connection
    from muxway.servers.pending import Pending

_REMEMBERED: Final = 1000
_LINGERS: Final = 60.0
"""Seconds for which a server that answers no more may still be at a request that was cancelled."""


class Attribution:
    """Tells whose something is, on one connection."""

    __slots__ = ("_cancelled", "_connection")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cancelled: dict[bytes, tuple[float, object]] = {}
        """Requests that the server may still be at, though nobody waits for them: until when, and whose they were."""

    def cancelled(self, id_: int, caller: Caller) -> None:
        """The server may go on with this request for a while, and ask or log something in its course."""
        if len(self._cancelled) >= _REMEMBERED:
            del self._cancelled[next(iter(self._cancelled))]
        self._cancelled[b"%d" % id_] = (self._connection.loop.time() + _LINGERS, caller.party)

    def answered_late(self, id_: bytes) -> None:
        """It has answered something that nobody waits for."""
        if self._cancelled:
            self._cancelled.pop(id_.strip(b'"'), None)

    def cancelled_parties(self) -> list[object]:
        """Whose requests were cancelled that the server may still be at."""
        if not self._cancelled:
            return []
        now = self._connection.loop.time()
        while self._cancelled and next(iter(self._cancelled.values()))[0] < now:
            del self._cancelled[next(iter(self._cancelled))]
        return [party for _, party in self._cancelled.values()]

    def forget(self) -> None:
        """The connection has ended."""
        self._cancelled.clear()

    def of_question(self, params: envelopes.Params, about: bytes) -> list[Pending]:
        """The requests of one party of which one is that a question belongs to; none if that cannot be told."""
        task = related_task(envelopes.members(params["_meta"])) if "_meta" in params else ""
        if not task:
            return self.of(about)
        waiting = [pending for pending in self._connection.peer.ours.values() if pending.task == task]
        return waiting[:1] or (self.of(about) if about else [])

    def of(self, about: bytes) -> list[Pending]:
        """The requests of one party of which one is that something unasked belongs to; none if that cannot be told.

        `about` is the id of the request on whose stream it came, if it came on one.
        """
        peer = self._connection.peer
        if about:
            pending = peer.find(about)
            return [pending] if pending is not None and pending.caller is not None else []
        # If all requests under way are of one party, no other one can learn of it.
        calls = [pending for pending in peer.ours.values() if pending.caller is not None]
        parties = [call.caller.party for call in calls if call.caller is not None] + self.cancelled_parties()
        if not calls or len(set(parties)) != 1 or (None in parties and len(parties) > 1):
            return []
        return calls


def likeliest(calls: Sequence[Pending]) -> Pending:
    """The last of these requests that does not wait for its caller; if all do, the last."""
    return next((pending for pending in reversed(calls) if not pending.paused_at), calls[-1])


def related_task(meta: envelopes.Params | None) -> str:
    """The task that `_meta` speaks of; empty if it speaks of none."""
    related = envelopes.members((meta or {}).get(RELATED_TASK, b""))
    return "" if related is None else envelopes.text(related.get("taskId")) or ""
