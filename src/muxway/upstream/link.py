"""One live connection to an upstream: requests out, answers paired, silence noticed.

A link lives from a successful `open` of its channel until it is lost or closed, and is
never reused: whatever an old process still says cannot reach a request made to a new one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from muxway.core.ports import Waiter
from muxway.errors import MethodNotFound, ParseError, RpcError, UpstreamError
from muxway.log import EventLog, printable
from muxway.protocol import messages
from muxway.protocol.era import HOP_KEYS, NEWEST_HANDSHAKE, PROGRESS_TOKEN
from muxway.protocol.messages import ABSENT, NotAnEnvelope
from muxway.protocol.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muxway.core.call import Call
    from muxway.core.ports import Sink
    from muxway.errors import Reason
    from muxway.protocol.era import Revision
    from muxway.protocol.framing import Oversized
    from muxway.protocol.messages import Buffer, Envelope
    from muxway.upstream.channel import Channel

_SWEEP: Final = 0.25
"""Seconds between two looks at the deadlines: one timer for all calls instead of one each."""
_QUEUE_LIMIT: Final = 64 * 1024 * 1024
_SHOWN: Final = 120
_NEVER_CANCELLED: Final = frozenset(("server/discover", "initialize"))

log = EventLog("upstream")


class Ticket(msgspec.Struct, eq=False):
    """A request of ours that waits for its answer. A Struct, as its constructor runs for every call."""

    link: Link
    id: int
    sink: Sink
    idle: float
    deadline: float
    limit_at: float
    wants_progress: bool
    tell: bool = True
    """Whether the upstream is told when we give up: an era probe and `initialize` must not be cancelled."""
    last_progress: float = float("-inf")

    def cancel(self, reason: str | None) -> None:
        """Give up on the request and tell the upstream, unless it has been answered meanwhile."""
        if self.link.peer.ours.pop(self.id, None) is not None and self.tell:
            self.link.tell_cancelled(self.id, reason)


class Link:
    """A connection to the upstream `name` over a channel. Implements `core.ports.Link`."""

    def __init__(self, name: str, channel: Channel) -> None:
        self.name = name
        self.revision: Revision = NEWEST_HANDSHAKE
        self.peer: Peer[Ticket, None] = Peer()
        self.junk = 0
        """Lines from the upstream that were no messages."""
        self.on_tools_changed: Callable[[], None] | None = None
        self.on_lost: Callable[[str], None] | None = None
        self._channel = channel
        self._meta_head = b""
        self._loop = asyncio.get_running_loop()
        self._sweeper: asyncio.TimerHandle | None = None
        self._gone: str | None = None
        self._clogged = False
        """Whether something was still waiting to be written at the last look."""

    async def open(self) -> None:
        """Connect the channel. Raises SpawnError."""
        await self._channel.open(self._hear_all, self._lost)

    def speak(self, revision: Revision, meta: bytes = b"") -> None:
        """From now on, the revision spoken; `meta` is what a stateless one wants in every `_meta`, as JSON members."""
        self.revision = revision
        self._meta_head = meta

    async def close(self) -> None:
        """End the upstream. Whatever still waits fails."""
        self.on_lost = None
        self._fail_all("was stopped")
        await self._channel.close()

    def introduced(self) -> None:
        """The greeting is over."""
        self._channel.introduced()

    def check(self) -> None:
        """Raise UpstreamError if the connection has ended."""
        if self._gone is not None:
            raise self._error("lost", self._gone)

    # --- sending ------------------------------------------------------------------------------

    def request(self, head: bytes, call: Call, sink: Sink, *, idle: float, limit: float) -> Ticket:
        """Send a call on its way; see `core.ports.Link`."""
        meta = call.meta
        ticket = self._ticket(sink, idle, limit, progress=meta is not None and PROGRESS_TOKEN in meta)
        frame: list[Buffer] = [b'{"jsonrpc":"2.0","id":%d,' % ticket.id, head]
        for name, raw in call.params.items():
            if name == "arguments":
                frame += (b',"arguments":', raw)
            elif name not in ("name", "_meta"):
                frame += (messages.key(name), raw)
        if meta is not None or self._meta_head:
            frame += self._meta(meta, ticket)
        frame.append(b"}}\n")
        self._channel.send(frame)
        return ticket

    def _meta(self, meta: messages.Params | None, ticket: Ticket) -> list[Buffer]:
        """`_meta` for this hop: ours in place of the caller's envelope, its other keys as they came."""
        parts: list[Buffer] = [b"," + self._meta_head] if self._meta_head else []
        if ticket.wants_progress:
            parts.append(b',"progressToken":%d' % ticket.id)
        for name, raw in (meta or {}).items():
            if name not in HOP_KEYS:
                parts += (messages.key(name), raw)
        if not parts:
            return []
        parts[0] = bytes(parts[0])[1:]
        return [b',"_meta":{', *parts, b"}"]

    async def ask(self, method: str, params: dict[str, Buffer], *, timeout: float) -> bytes:
        """A request of the gateway's own. Returns the result's JSON.

        Raises:
            UpstreamSaid: it answered with an error.
            UpstreamError: it did not answer in time, or the connection ended first.
        """
        waiter = Waiter()
        ticket = self._ticket(waiter, timeout, timeout, progress=False)
        ticket.tell = method not in _NEVER_CANCELLED
        if self._meta_head and "_meta" not in params:
            params = {**params, "_meta": b"{" + self._meta_head + b"}"}
        self._channel.send(messages.request(ticket.id, method, messages.object_of(params.items())))
        return await waiter.outcome(ticket)

    def notify(self, method: str) -> None:
        """Send a notification without params."""
        self._channel.send(messages.notification(method))

    def tell_cancelled(self, id_: int, reason: str | None) -> None:
        """Tell the upstream that nobody waits for this answer any more."""
        params: dict[str, object] = {"requestId": id_}
        if reason is not None:
            params["reason"] = reason
        self._channel.send(messages.notification("notifications/cancelled", messages.encode(params)))

    def _ticket(self, sink: Sink, idle: float, limit: float, *, progress: bool) -> Ticket:
        if self._gone is not None:
            self.check()
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP, self._sweep)
        elif self._clogged and self._channel.queued > _QUEUE_LIMIT:
            raise self._error("overloaded", "does not read its input; try again later")
        peer, now = self.peer, self._loop.time()
        id_ = peer.mint()
        deadline = now + (min(limit, idle))
        ticket = peer.ours[id_] = Ticket(self, id_, sink, idle, deadline, now + limit, progress)
        return ticket

    def _sweep(self) -> None:
        now = self._loop.time()
        self._clogged = self._channel.queued > 0
        for ticket in [ticket for ticket in self.peer.ours.values() if ticket.deadline <= now]:
            hard = ticket.deadline == ticket.limit_at and ticket.last_progress >= 0
            why = "took longer than any call may (callMax)" if hard else f"gave no sign for {ticket.idle:g} s"
            log.warning("call timed out", upstream=self.name, request=ticket.id, why=why)
            ticket.cancel("timeout")
            ticket.sink.failed(self._error("timeout", f"{why}, so the call was given up; it may have run"))
        self._sweeper = self._loop.call_later(_SWEEP, self._sweep) if self.peer.ours else None

    # --- hearing ------------------------------------------------------------------------------

    def _hear_all(self, frames: Sequence[bytes | Oversized]) -> None:
        for frame in frames:
            if isinstance(frame, bytes):
                self._hear(frame)
            else:
                self._fail_meant(frame.head, "too_large", "sent a line over the size limit (maxMessageBytes)")

    def _hear(self, frame: bytes) -> None:
        try:
            envelope = messages.decode(frame)
        except ParseError as error:
            salvaged = messages.salvage(frame)
            if salvaged is None:
                self._unreadable(frame, error.message)
                return
            envelope = salvaged
        except NotAnEnvelope as error:
            if not messages.is_batch(frame):
                self._unreadable(frame, str(error))
            else:
                self._hear_batch(frame)
            return
        if envelope.method is None:
            self._hear_answer(envelope, frame)
        elif envelope.id is ABSENT:
            self._hear_notice(envelope)
        else:
            self._hear_request(envelope)

    def _hear_batch(self, frame: bytes) -> None:
        for part in messages.decode_batch(frame):
            if messages.is_batch(part):
                self._unreadable(part, "a batch inside a batch")
            else:
                self._hear(part)

    def _hear_answer(self, envelope: Envelope, frame: bytes) -> None:
        id_ = bytes(envelope.id)
        nameless = id_ in (b"", b"null")
        ticket = self.peer.take_only() if nameless else self.peer.take(id_)
        if ticket is None:
            log.debug("answer to no open request", upstream=self.name, dropped=self.peer.dropped)
            return
        if nameless and envelope.error is ABSENT:
            # It may as well be a late answer to a call that was given up: no ground to deliver it.
            ticket.sink.failed(self._malformed(frame, "a result without an id"))
        elif envelope.error is not ABSENT:
            said = messages.said_error(envelope.error)
            ticket.sink.failed(said or self._malformed(frame, "an error without an integer code"))
        elif envelope.result is not ABSENT and messages.is_object(envelope.result):
            ticket.sink.done(envelope.result)
        else:
            ticket.sink.failed(self._malformed(frame, "a result that is not an object"))

    def _hear_notice(self, envelope: Envelope) -> None:
        if envelope.method == "notifications/progress" and envelope.params is not None:
            self._hear_progress(envelope.params)
        elif envelope.method == "notifications/tools/list_changed" and self.on_tools_changed is not None:
            self.on_tools_changed()

    def _hear_progress(self, params: messages.Params) -> None:
        ticket = self.peer.find(params.get(PROGRESS_TOKEN))
        progress = messages.number(params.get("progress"))
        if ticket is None or progress is None or progress <= ticket.last_progress:
            self.peer.dropped += 1
            return
        ticket.last_progress = progress
        ticket.deadline = min(self._loop.time() + ticket.idle, ticket.limit_at)
        if ticket.wants_progress:
            ticket.sink.progress({name: raw for name, raw in params.items() if name != PROGRESS_TOKEN})

    def _hear_request(self, envelope: Envelope) -> None:
        if envelope.method == "ping":
            self._channel.send(messages.result(envelope.id, b"{}"))
        else:
            why = f"{envelope.method}: this client declared no such capability"
            self._channel.send(messages.failure(envelope.id, MethodNotFound(why)))

    # --- trouble ------------------------------------------------------------------------------

    def _unreadable(self, frame: bytes, why: str) -> None:
        if not frame.strip():
            return
        self.junk += 1
        if self.junk <= 10 or self.junk % 1000 == 0:
            shown = printable(frame[:_SHOWN].decode("utf-8", "replace"))
            log.warning("not a message", upstream=self.name, line=shown, count=self.junk)
        self._fail_meant(frame, "malformed", f"sent an answer that cannot be read ({why})")

    def _fail_meant(self, frame: bytes, reason: Reason, why: str) -> None:
        meant = self.peer.meant(frame)
        if meant is not None:
            self.peer.ours.pop(meant).sink.failed(self._error(reason, why))

    def _malformed(self, frame: bytes, what: str) -> RpcError:
        self.junk += 1
        log.warning("malformed answer", upstream=self.name, what=what, line=frame[:_SHOWN].decode("utf-8", "replace"))
        return self._error("malformed", f"answered with {what}")

    def _lost(self, why: str) -> None:
        words = self._channel.last_words()
        self._fail_all(why if words is None else f"{why}; its last stderr line: {words}")
        if self.on_lost is not None:
            self.on_lost(self._gone or why)

    def _fail_all(self, why: str) -> None:
        self._gone = self._gone or why
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for ticket in self.peer.lost():
            ticket.sink.failed(self._error("lost", self._gone))

    def _error(self, reason: Reason, what: str) -> UpstreamError:
        return UpstreamError(self.name, reason, f'server "{self.name}" {what}')
