"""Requests of ours on one connection: under way, or waiting for their turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from muxway.calls.call import Call, Caller
    from muxway.calls.ports import Running, Sink
    from muxway.calls.server_request import ServerRequest
    from muxway.servers.connection import Connection


class Pending(msgspec.Struct, eq=False):
    """A request of ours without its answer yet. A Struct, as its constructor runs for every call."""

    connection: Connection
    id: int
    sink: Sink
    idle: float
    began: float
    deadline: float
    limit_at: float
    caller: Caller | None = None
    """Who waits for it; None if only the gateway does."""
    wants_progress: bool = False
    tell: bool = True
    """Whether the server is told when we give up: an era probe and `initialize` must not be cancelled."""
    last_progress: float = float("-inf")
    asks: dict[bytes, ServerRequest] | None = None
    """What the server asked in the course of it and has no answer to yet, by the ids of these questions."""
    paused_at: float = 0.0
    """Since when it waits for the caller and not for the server; 0 if it does not."""
    task: str = ""
    """The task whose result it fetches: what the server asks for that task is asked here."""

    def cancel(self, reason: str | None) -> None:
        """Give up on the request and tell the server, unless it has been answered meanwhile."""
        if self.connection.give_up(self, reason) and self.caller is not None:
            self.connection.counters.cancelled += 1

    @property
    def endless(self) -> bool:
        """Whether it may stay open for ever."""
        return self.idle == float("inf")


class QueuedCall:
    """A call that waits for its turn: the server has enough to do. Implements `calls.ports.Running`."""

    __slots__ = ("_connection", "_sent", "call", "head", "idle", "limit", "sink", "until")

    def __init__(self, connection: Connection, head: bytes, call: Call, sink: Sink, idle: float, limit: float) -> None:
        self.head = head
        self.call = call
        self.sink = sink
        self.idle = idle
        self.limit = limit
        self.until = 0.0
        """When it has waited for long enough."""
        self._connection = connection
        self._sent: Running | None = None

    def go(self) -> None:
        """Its turn has come. Raises UpstreamError if it cannot be sent."""
        self._sent = self._connection.request(self.head, self.call, self.sink, idle=self.idle, limit=self.limit)

    def cancel(self, reason: str | None) -> None:
        """Give up on it. If it has not been sent, it never will be."""
        if self._sent is not None:
            self._sent.cancel(reason)
        else:
            self._connection.queue.leave(self)
