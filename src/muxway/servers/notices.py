"""What a server says over one connection that is no answer: progress, log messages, what it does not want any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muxway.servers.attribution import likeliest
from muxway.wire import envelopes
from muxway.wire.revisions import PROGRESS_TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.servers.connection import Connection
    from muxway.wire.envelopes import Buffer


class ServerNotices:
    """Hears the notifications of one connection."""

    __slots__ = ("_connection", "on_log", "on_notice")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.on_notice: Callable[[str, envelopes.Params], None] | None = None
        """Called with what the server says of itself: lists that changed, resources that were updated."""
        self.on_log: Callable[[dict[str, Buffer]], None] | None = None
        """Called with log messages that belong to no call."""

    def hear(self, method: str, params: envelopes.Params, about: bytes) -> None:
        """The server says something; `about` is the id of the request on whose stream it came, if it came on one."""
        if method == "notifications/progress":
            self._progress(params)
        elif method == "notifications/message":
            self._log(params, about)
        elif method == "notifications/cancelled":
            self._cancelled(params.get("requestId", envelopes.ABSENT))
        elif self.on_notice is not None:
            self.on_notice(method, params)

    def _progress(self, params: envelopes.Params) -> None:
        connection = self._connection
        pending = connection.peer.find(params.get(PROGRESS_TOKEN))
        progress = envelopes.number(params.get("progress"))
        if pending is None or progress is None or progress <= pending.last_progress:
            connection.peer.dropped += 1
            connection.counters.dropped += 1
            return
        pending.last_progress = progress
        if not pending.paused_at:
            pending.deadline = min(connection.loop.time() + pending.idle, pending.limit_at)
        if pending.wants_progress:
            try:
                pending.sink.progress({name: raw for name, raw in params.items() if name != PROGRESS_TOKEN})
            except Exception as error:  # noqa: BLE001 - somebody else's messages may come next
                connection.fell(pending, error)

    def _log(self, params: envelopes.Params, about: bytes) -> None:
        connection = self._connection
        said: dict[str, Buffer] = dict(params)
        if label := connection.label:
            logger = envelopes.text(params.get("logger"))
            said["logger"] = envelopes.encode(f"{label}/{logger}" if logger else label)
        calls = connection.attribution.of(about)
        if calls:
            pending = likeliest(calls)
            try:
                pending.sink.log(said)
            except Exception as error:  # noqa: BLE001 - somebody else's messages may come next
                connection.fell(pending, error)
        elif self.on_log is not None and not about:
            self.on_log(said)

    def _cancelled(self, id_: envelopes.Raw) -> None:
        connection = self._connection
        if connection.questions.cancelled(bytes(id_)):
            return
        pending = connection.peer.find(id_)
        if pending is not None and pending.endless:
            # The only request of ours that a server may end like this.
            del connection.peer.ours[pending.id]
            connection.fail(pending, connection.error("lost", "ended the subscription"))
