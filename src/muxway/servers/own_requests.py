"""What the gateway asks a server for itself: no caller waits for it, and no limit on calls counts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muxway.calls.ports import Waiter
from muxway.servers.transports.port import Outgoing
from muxway.wire import envelopes
from muxway.wire.revisions import CLIENT_CAPABILITIES

if TYPE_CHECKING:
    from muxway.calls.ports import Sink
    from muxway.servers.connection import Connection
    from muxway.servers.pending import Pending
    from muxway.wire.envelopes import Buffer

_NEVER_CANCELLED: Final = frozenset(("server/discover", "initialize"))


class OwnRequests:
    """The gateway's own requests on one connection."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def begin(self, sink: Sink, timeout: float) -> Pending:
        """Note one that is about to be sent. Raises UpstreamError if the connection is gone."""
        pending = self._connection.begin(sink, timeout, timeout, None)
        self._connection.queue.exempt += 1
        return pending

    async def ask(self, method: str, params: dict[str, Buffer], *, timeout: float) -> bytes:
        """Make a request. Returns the result's JSON.

        Raises:
            UpstreamSaid: it answered with an error.
            UpstreamError: it did not answer in time, or the connection ended first.
        """
        waiter = Waiter()
        pending = self.begin(waiter, timeout)
        pending.tell = method not in _NEVER_CANCELLED
        if self._connection.meta_head and "_meta" not in params:
            params = {**params, "_meta": self._meta()}
        self._send(pending, method, params)
        return await waiter.outcome(pending)

    def listen(self, wanted: bytes, sink: Sink) -> Pending:
        """Open a `subscriptions/listen` with this filter. It may last as long as the connection: no clock runs for it.

        What it brings goes to `notices`, only its end to the sink. Raises UpstreamError if the connection is gone.
        """
        pending = self.begin(sink, float("inf"))
        self._send(pending, "subscriptions/listen", {"notifications": wanted, "_meta": self._meta()})
        return pending

    def notify(self, method: str) -> None:
        """Send a notification without params."""
        self._connection.transport.send(envelopes.notification(method), Outgoing(method))

    def _meta(self) -> bytes:
        return b"{" + self._connection.meta_head + envelopes.key(CLIENT_CAPABILITIES) + b"{}}"

    def _send(self, pending: Pending, method: str, params: dict[str, Buffer]) -> None:
        frame = envelopes.request(pending.id, method, envelopes.object_of(params.items()))
        self._connection.transport.send(frame, Outgoing(method, b"%d" % pending.id, params))
