"""One live connection to an upstream: requests out, answers paired, silence noticed.

A link lives from a successful `open` of its channel until it is lost or closed, and is
never reused: whatever an old process still says cannot reach a request made to a new one.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from muxway.calls.incidents import internal
from muxway.calls.leases import Leases
from muxway.calls.ports import Waiter
from muxway.calls.server_request import ServerRequest
from muxway.calls.sinks import Nobody
from muxway.errors import InvalidParams, InvalidRequest, MethodNotFound, ParseError, RpcError, UpstreamError
from muxway.exchange.open_sessions import NOBODY, user_after
from muxway.log import EventLog
from muxway.servers.counters import ServerCounters
from muxway.servers.junk import Junk
from muxway.servers.limits import DEFAULT, Circuit, ServerLimits
from muxway.servers.transports.port import UNTOLD, Outgoing
from muxway.wire import asking, envelopes
from muxway.wire.envelopes import ABSENT, NotAnEnvelope
from muxway.wire.peer import Peer
from muxway.wire.revisions import (
    CLIENT_CAPABILITIES,
    HOP_KEYS,
    LOG_LEVEL,
    LOG_LEVELS,
    NEWEST_HANDSHAKE,
    PROGRESS_TOKEN,
    RELATED_TASK,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muxway.calls.call import Call, Caller
    from muxway.calls.ports import Client, Sink
    from muxway.errors import Reason
    from muxway.servers.transports.port import ServerTransport
    from muxway.wire.envelopes import Buffer, Envelope
    from muxway.wire.framing import Oversized
    from muxway.wire.revisions import Revision

_SWEEP: Final = 0.25
"""Seconds between two looks at the deadlines: one timer for all calls instead of one each."""
_QUEUE_LIMIT: Final = 64 * 1024 * 1024
_FIRST_IDS: Final = 2**30
"""Our ids count up from anywhere below this: what others get a server to print cannot name a call that they do not know
of. There is room for as many calls again before an id is more than 32 bits, which is all that some servers keep."""
_MANY: Final = 16
"""Lines that come at once, from which on most may be junk."""
_NEVER_CANCELLED: Final = frozenset(("server/discover", "initialize"))
_IN_HEAD: Final = frozenset(("name", "uri", "ref", "_meta"))
"""Params that are written anew for each upstream."""
_TASK_METHODS: Final = frozenset(("tasks/get", "tasks/result", "tasks/update", "tasks/cancel"))
_REMEMBERED: Final = 1000
_MOST_CONSULTED: Final = 32
"""Questions that a client may be asked at once outside any call."""
_TAKEN_UP: Final = 0.2
"""Seconds that a server gets to make use of what its client answered: server-filesystem looks up the roots on disk."""
_SET_LEVEL: Final = 10.0
_LINGERS: Final = 60.0
"""Seconds for which an upstream that answers no more may still be at a request that was cancelled."""
_MOST_ASKS: Final = 4096
"""Questions that a server may have no answer to yet: as many as calls may be parked, and a few."""
_NEVER_ASKED: Final = len(LOG_LEVELS)
_SOON: Final = 1.0
"""Seconds after which a call that was refused for want of room may be tried again."""

log = EventLog("upstream")


class Pending(msgspec.Struct, eq=False):
    """A request of ours that waits for its answer. A Struct, as its constructor runs for every call."""

    link: Connection
    id: int
    sink: Sink
    idle: float
    began: float
    deadline: float
    limit_at: float
    wants_progress: bool
    caller: Caller | None = None
    """Who waits for it; None if only the gateway does."""
    tell: bool = True
    """Whether the upstream is told when we give up: an era probe and `initialize` must not be cancelled."""
    last_progress: float = float("-inf")
    asks: dict[bytes, ServerRequest] | None = None
    """What the upstream asked in the course of it and has no answer to yet, by the ids of these questions."""
    paused_at: float = 0.0
    """Since when it waits for the caller and not for the upstream; 0 if it does not."""
    task: str = ""
    """The task whose result it fetches: what the upstream asks for that task is asked here."""

    def cancel(self, reason: str | None) -> None:
        """Give up on the request and tell the upstream, unless it has been answered meanwhile."""
        if self.link.give_up(self, reason) and self.caller is not None:
            self.link.stats.cancelled += 1

    @property
    def endless(self) -> bool:
        """Whether it may stay open for ever."""
        return self.idle == float("inf")

    def withdraw_asks(self) -> None:
        """The request is over: nobody need answer what was asked in its course."""
        asks, self.asks = self.asks or {}, None
        for id_, ask in asks.items():
            self.link.asked.pop(id_, None)
            # The roots are the client's and not the call's: many ask for them whenever they hear that they changed.
            if ask.method != asking.ROOTS or self.link.client is None:
                ask.withdraw()
                self.link.ask_another(id_, ask)


class Queued:
    """A call that waits for its turn: the upstream has enough to do. Implements `core.ports.Running`."""

    __slots__ = ("_link", "_ticket", "call", "head", "idle", "limit", "sink", "until")

    def __init__(self, link: Connection, head: bytes, call: Call, sink: Sink, idle: float, limit: float) -> None:
        self.head = head
        self.call = call
        self.sink = sink
        self.idle = idle
        self.limit = limit
        self.until = 0.0
        """When it has waited for long enough."""
        self._link = link
        self._ticket: Pending | None = None

    def go(self, ticket: Pending) -> None:
        """It has been sent."""
        self._ticket = ticket

    def cancel(self, reason: str | None) -> None:
        """Give up on it. If it has not been sent, it never will be."""
        if self._ticket is not None:
            self._ticket.cancel(reason)
        else:
            self._link.leave_queue(self)


class Connection:
    """A connection to the upstream `name` over a channel. Implements `core.ports.Link`."""

    # Beyond 30 attributes, CPython 3.11 keeps them in a plain dict, and each look at one costs a search.
    __slots__ = (
        "__weakref__",  # Whoever asked it for log messages, or named its tasks, does not keep it.
        "_answers",
        "_bare",
        "_cancelled",
        "_channel",
        "_circuit",
        "_clogged",
        "_consulting",
        "_exempt",
        "_gone",
        "_junk",
        "_limits",
        "_loop",
        "_meta_head",
        "_queue",
        "_remote",
        "_sweeper",
        "_unasked",
        "_unsure",
        "asked",
        "client",
        "heard",
        "leases",
        "log_level",
        "name",
        "on_log",
        "on_lost",
        "on_notice",
        "on_timeout",
        "own_process",
        "peer",
        "revision",
        "stats",
        "used",
        "user",
    )

    def __init__(
        self,
        name: str,
        channel: ServerTransport,
        limits: ServerLimits = DEFAULT,
        stats: ServerCounters | None = None,
        mask: Callable[[str], str] = str,
        bare: Callable[[], bool] = bool,
    ) -> None:
        """Prepare; `mask` hides secrets in what is shown of what the upstream sent.

        `bare` says whether its words need no label: there may come to be other servers, or none.
        """
        self.name = name
        self._bare = bare
        self.revision: Revision = NEWEST_HANDSHAKE
        self.peer: Peer[Pending, None] = Peer(secrets.randbelow(_FIRST_IDS))
        self.stats = stats or ServerCounters()
        self._junk = Junk(name, self.stats, mask)
        self.heard = 0.0
        """When something was last heard on it."""
        self.on_timeout: Callable[[], None] | None = None
        """Called when a caller's request was given up because the upstream was silent."""
        self.used = 0.0
        """When a request was last made on it."""
        self.user: object = NOBODY
        """Who has called over it: one who can be told from others, or `NOBODY`, or `SEVERAL`; see `core.audience`."""
        self.leases = Leases()
        self.log_level = _NEVER_ASKED
        self.on_notice: Callable[[str, envelopes.Params], None] | None = None
        """Called with what the upstream says of itself: lists that changed, resources that were updated."""
        self.on_log: Callable[[dict[str, Buffer]], None] | None = None
        """Called with log messages that belong to no call."""
        self.on_lost: Callable[[str], None] | None = None
        self._channel = channel
        self._remote = channel.remote
        self.own_process = channel.own_process
        self._limits = limits
        self._exempt = 0
        """How many of our open requests are no calls under way: those of the gateway itself, and paused ones."""
        self._queue: deque[Queued] = deque()
        """Not empty only while as many calls are under way as may be."""
        self._answers = 0
        self._circuit = Circuit()
        self._meta_head = b""
        self.client: Client | None = None
        """Whom the connection is for, if it is for one client: it is asked what is asked outside any call."""
        self._consulting: dict[bytes, ServerRequest] = {}
        """What that client was asked, by the ids of these questions."""
        self._unasked = asyncio.Event()
        self.asked: dict[bytes, Pending] = {}
        """The upstream's open questions, by their ids → the request in whose course each was asked."""
        self._unsure: dict[bytes, list[Pending]] = {}
        """Those of them that may belong to another request of the same party → all that were under way then."""
        self._cancelled: dict[bytes, tuple[float, object]] = {}
        """Requests that the upstream may still be at, though nobody waits for them: until when, and whose they were."""
        self._loop = asyncio.get_running_loop()
        self._sweeper: asyncio.TimerHandle | None = None
        self._gone: str | None = None
        self._clogged = False
        """Whether something was still waiting to be written at the last look."""

    async def open(self) -> None:
        """Connect the channel. Raises SpawnError."""
        await self._channel.open(self._hear_all, self._lost, self._hear_failure)

    def speak(self, revision: Revision, meta: bytes = b"") -> None:
        """From now on, the revision spoken; `meta` is what a stateless one wants in every `_meta`, as JSON members.

        The capabilities are not among them: they are those of whoever calls.
        """
        self.revision = revision
        self._meta_head = meta

    async def close(self, *, at_once: bool = False) -> None:
        """End the upstream. Whatever still waits fails."""
        self.on_lost = None
        self._fail_all("was stopped")
        await self._channel.close(at_once=at_once)

    def introduced(self) -> None:
        """The greeting is over."""
        self._channel.introduced()

    @property
    def label(self) -> str:
        """What its words are labelled with where people read them: it may become one of several, or the only one."""
        return "" if self._bare() else self.name

    @property
    def answered(self) -> bool:
        """Whether anything that was asked has got an answer."""
        return self._answers > 0

    @property
    def called(self) -> bool:
        """Whether something of somebody's is under way: a request, or what holds a lease between its requests."""
        if self.leases.any or any(ticket.caller is not None for ticket in self.peer.ours.values()):
            return True
        return bool(self._still_cancelled())

    @property
    def in_flight(self) -> int:
        """Calls that the upstream is at. What waits for its caller is none."""
        return len(self.peer.ours) - self._exempt

    @property
    def waiting(self) -> int:
        """Calls that wait for their turn."""
        return len(self._queue)

    @property
    def gone(self) -> bool:
        """Whether the connection has ended."""
        return self._gone is not None

    def check(self) -> None:
        """Raise UpstreamError if the connection has ended."""
        if self._gone is not None:
            raise self._error("lost", self._gone)

    # --- sending ------------------------------------------------------------------------------

    def request(self, head: bytes, call: Call, sink: Sink, *, idle: float, limit: float) -> Pending | Queued:
        """Send a call on its way, or let it wait for its turn; see `core.ports.Link`."""
        most = self._limits.concurrency
        if len(self.peer.ours) >= most and self.in_flight >= most:
            return self._enqueue(Queued(self, head, call, sink, idle, limit))
        return self._request(head, call, sink, idle, limit)

    def _request(self, head: bytes, call: Call, sink: Sink, idle: float, limit: float) -> Pending:
        meta = call.meta
        if (call.caller.principal or call.caller.party) != self.user:
            self.user = user_after(self.user, call.caller)
        # First what may fail: a ticket that nobody holds would be answered a second time when its time is over.
        told = asking.told(call.caller.capabilities, call.caller.revision).with_calls if self._meta_head else b""
        ticket = self._ticket(sink, idle, limit, call.caller, progress=meta is not None and PROGRESS_TOKEN in meta)
        if call.method in _TASK_METHODS:
            # Nothing is asked in the course of a request about a task, unless it waits for the task's result.
            ticket.task = "" if call.method != "tasks/result" else _related_task(call.meta)
            if not ticket.task:
                ticket.caller = None
                self._exempt += 1
        frame: list[Buffer] = [b'{"jsonrpc":"2.0","id":%d,' % ticket.id, head]
        for name, raw in call.params.items():
            if name == "arguments":
                frame += (b',"arguments":', raw)
            elif name not in _IN_HEAD:
                frame += (envelopes.key(name), raw)
        if meta is not None or self._meta_head:
            frame += self._meta(meta, ticket, call.caller, told)
        frame.append(b"}}\n")
        self._channel.send(frame, UNTOLD if not self._remote else self._told(ticket, head, call))
        return ticket

    def _told(self, ticket: Pending, head: bytes, call: Call) -> Outgoing:
        """A call, for a transport that must know what it carries."""
        params: Mapping[str, Buffer] = {}
        if self._meta_head:
            # A stateless server wants some of it repeated in headers.
            written = envelopes.members((envelopes.members(b"{%b}}" % head) or {}).get("params", b"")) or {}
            params = {**call.params, **written, "_meta": b"{" + self._meta_head + b"}"}
        return Outgoing(call.method, b"%d" % ticket.id, params)

    def _meta(self, meta: envelopes.Params | None, ticket: Pending, caller: Caller, told: bytes) -> list[Buffer]:
        """`_meta` for this hop: ours in place of the caller's envelope, its other keys as they came."""
        parts: list[Buffer] = []
        if self._meta_head:
            parts += (b"," + self._meta_head, envelopes.key(CLIENT_CAPABILITIES), told)
            if caller.log_level is not None:
                parts += (envelopes.key(LOG_LEVEL), envelopes.encode(LOG_LEVELS[caller.log_level]))
        if ticket.wants_progress:
            parts.append(b',"progressToken":%d' % ticket.id)
        for name, raw in (meta or {}).items():
            if name not in HOP_KEYS:
                parts += (envelopes.key(name), raw)
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
        ticket = self._own_ticket(waiter, timeout)
        ticket.tell = method not in _NEVER_CANCELLED
        if self._meta_head and "_meta" not in params:
            meta = self._meta_head + envelopes.key(CLIENT_CAPABILITIES) + b"{}"
            params = {**params, "_meta": b"{" + meta + b"}"}
        frame = envelopes.request(ticket.id, method, envelopes.object_of(params.items()))
        self._channel.send(frame, Outgoing(method, b"%d" % ticket.id, params))
        return await waiter.outcome(ticket)

    def listen(self, wanted: bytes, sink: Sink) -> Pending:
        """Open a `subscriptions/listen` with this filter. It may last as long as the connection: no clock runs for it.

        What it brings goes to `on_notice`, only its end to the sink. Raises UpstreamError if the connection is gone.
        """
        ticket = self._own_ticket(sink, float("inf"))
        meta = self._meta_head + envelopes.key(CLIENT_CAPABILITIES) + b"{}"
        params: dict[str, Buffer] = {"notifications": wanted, "_meta": b"{" + meta + b"}"}
        frame = envelopes.request(ticket.id, "subscriptions/listen", envelopes.object_of(params.items()))
        self._channel.send(frame, Outgoing("subscriptions/listen", b"%d" % ticket.id, params))
        return ticket

    def notify(self, method: str) -> None:
        """Send a notification without params."""
        self._channel.send(envelopes.notification(method), Outgoing(method))

    def set_log_level(self, level: int) -> None:
        """Ask the upstream for log messages from this level on; its answer does not matter."""
        if self.revision.stateless:
            self.log_level = level
            return
        try:
            ticket = self._own_ticket(Nobody(), _SET_LEVEL)
        except UpstreamError as error:
            # Whoever wants these messages must not fail for it; the next call that wants them asks again.
            log.debug("log level not set", upstream=self.name, error=error)
            return
        self.log_level = level
        method, params = "logging/setLevel", b'{"level":' + envelopes.encode(LOG_LEVELS[level]) + b"}"
        self._channel.send(envelopes.request(ticket.id, method, params), Outgoing(method, b"%d" % ticket.id))

    def tell_cancelled(self, id_: int, reason: str | None) -> None:
        """Tell the upstream that nobody waits for this answer any more."""
        method = "notifications/cancelled"
        params: dict[str, Buffer] = {"requestId": b"%d" % id_}
        if reason is not None:
            params["reason"] = envelopes.encode(reason)
        frame = envelopes.notification(method, envelopes.object_of(params.items()))
        self._channel.send(frame, Outgoing(method, params=params))

    def note_cancelled(self, id_: int, caller: Caller) -> None:
        """The upstream may go on with this request for a while, and ask or log something in its course."""
        if len(self._cancelled) >= _REMEMBERED:
            del self._cancelled[next(iter(self._cancelled))]
        self._cancelled[b"%d" % id_] = (self._loop.time() + _LINGERS, caller.party)

    def _still_cancelled(self) -> list[object]:
        """Whose requests were cancelled that the upstream may still be at."""
        now = self._loop.time()
        while self._cancelled and next(iter(self._cancelled.values()))[0] < now:
            del self._cancelled[next(iter(self._cancelled))]
        return [party for _, party in self._cancelled.values()]

    def _ticket(self, sink: Sink, idle: float, limit: float, caller: Caller | None, *, progress: bool) -> Pending:
        if self._gone is not None:
            self.check()
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP, self._sweep)
        elif self._clogged and self._channel.queued > _QUEUE_LIMIT:
            raise self._error("overloaded", "does not read its input; try again later", _SOON)
        peer = self.peer
        now = self._loop.time()
        if caller is not None:
            # What the gateway asks for itself must not keep a server awake.
            self.used = now
        id_ = peer.mint()
        deadline = now + (min(limit, idle))
        ticket = peer.ours[id_] = Pending(self, id_, sink, idle, now, deadline, now + limit, progress, caller)
        return ticket

    def _own_ticket(self, sink: Sink, timeout: float) -> Pending:
        """A request of the gateway's own: it is no call."""
        ticket = self._ticket(sink, timeout, timeout, None, progress=False)
        self._exempt += 1
        return ticket

    def give_up(self, ticket: Pending, reason: str | None) -> bool:
        """Nobody waits for this request any more: tell the upstream. False if it has been answered meanwhile."""
        if self.peer.ours.pop(ticket.id, None) is None:
            return False
        if ticket.caller is not None:
            self.stats.calls += 1
            self.note_cancelled(ticket.id, ticket.caller)
        if ticket.tell:
            self.tell_cancelled(ticket.id, reason)
        self._over(ticket)
        return True

    def _over(self, ticket: Pending) -> None:
        """A request has left the table: what was asked in its course needs no answer, and others may be let in."""
        if ticket.asks is not None:
            ticket.withdraw_asks()
        if ticket.paused_at or ticket.caller is None:
            ticket.paused_at = 0.0
            self._exempt -= 1
        if self._queue:
            self._let_in()

    def _answer(self, frame: Sequence[Buffer]) -> None:
        """Send what the upstream asked for."""
        self._channel.send(frame, UNTOLD)

    # --- waiting ------------------------------------------------------------------------------

    def _enqueue(self, call: Queued) -> Queued:
        if self._gone is not None:
            self.check()
        if len(self._queue) >= self._limits.queue:
            self.stats.refused += 1
            raise self._overloaded(f"and {len(self._queue)} more that wait, as many as may (maxQueue)")
        call.until = self._loop.time() + self._limits.wait
        self._queue.append(call)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP, self._sweep)
        return call

    def adjust(self, limits: ServerLimits) -> None:
        """Let as many calls be under way, and wait, as this says from now on."""
        self._limits = limits
        self._let_in()

    def leave_queue(self, call: Queued) -> None:
        """A call need not be sent any more."""
        if call in self._queue:
            self._queue.remove(call)

    def _let_in(self) -> None:
        """Send what waits, as far as there is room for it."""
        while self._queue and self.in_flight < self._limits.concurrency:
            call = self._queue.popleft()
            try:
                call.go(self._request(call.head, call.call, call.sink, call.idle, call.limit))
            except Exception as error:  # noqa: BLE001 - those behind it wait for their turn
                self._tell_failed(call.sink, internal(error, upstream=self.name))

    def _refuse_late(self, now: float) -> None:
        while self._queue and self._queue[0].until <= now:
            call = self._queue.popleft()
            self.stats.refused += 1
            waited = f"and none ended in time for this one, which waited {self._limits.wait:g} s (queueWait)"
            self._tell_failed(call.sink, self._overloaded(waited))

    def _overloaded(self, what: str) -> UpstreamError:
        why = f"has {self.in_flight} calls under way (maxConcurrency) {what}; this call did not run: try again later"
        return self._error("overloaded", why, _SOON)

    # --- clocks -------------------------------------------------------------------------------

    def _sweep(self) -> None:
        now = self._loop.time()
        self._clogged = self._channel.queued > 0
        for ticket in [ticket for ticket in self.peer.ours.values() if ticket.deadline <= now]:
            self._time_out(ticket)
        self._refuse_late(now)
        # What was cancelled must not keep its party in memory for longer than is needed.
        goes_on = self._gone is None and (self._has_clocks or self._queue or self._still_cancelled())
        self._sweeper = self._loop.call_later(_SWEEP, self._sweep) if goes_on else None

    def _time_out(self, ticket: Pending) -> None:
        if not self.give_up(ticket, "timeout"):
            return
        hard = ticket.deadline == ticket.limit_at and ticket.last_progress >= 0
        why = "took longer than any call may (callMax)" if hard else f"gave no sign for {ticket.idle:g} s"
        # What we asked ourselves, as at a start, is told by whoever asked.
        tell = log.debug if ticket.caller is None else log.warning
        tell("call timed out", upstream=self.name, request=ticket.id, why=why)
        if ticket.caller is not None:
            self.stats.timeouts += 1
            self.stats.failed += 1
        said = f"{why}, so the call was given up; it may have run{self._junk.about(ticket.id)}"
        self._tell_failed(ticket.sink, self._error("timeout", said))
        if not hard and ticket.caller is not None and self.on_timeout is not None:
            self.on_timeout()
        if not hard and self._remote and self.heard < ticket.began:
            # Else it is only slow with this one.
            self._note_broken(why)

    @property
    def _has_clocks(self) -> bool:
        return any(not ticket.endless for ticket in self.peer.ours.values())

    # --- hearing ------------------------------------------------------------------------------

    def _hear_all(self, frames: Sequence[bytes | Oversized], about: bytes = b"", opened: Envelope | None = None) -> int:
        """Take what the upstream sent; `about` is the id of the request on whose stream it came, if it came on one.

        Returns how much of it nobody had asked for.
        """
        self.heard = self._loop.time()
        count, answers = len(frames), self._answers
        if count > _MANY:
            frames = self._junk.sift(self.heard, frames)
        for frame in frames:
            try:
                if isinstance(frame, bytes):
                    self._hear(frame, about, opened)
                else:
                    self._hear_oversized(frame)
            except Exception as error:  # noqa: BLE001 - whatever became of this message, the next is heard
                internal(error, upstream=self.name)
        return count - self._answers + answers

    def _hear(self, frame: bytes, about: bytes, opened: Envelope | None = None) -> None:
        try:
            envelope = opened or envelopes.decode(frame)
        except ParseError as error:
            salvaged = envelopes.salvage(frame, requests=False)
            if salvaged is None:
                parts = envelopes.unglue(frame)
                for part in parts:
                    self._hear(part, about)
                if not parts:
                    self._unreadable(frame, error.message)
                return
            envelope = salvaged
        except NotAnEnvelope as error:
            if not envelopes.is_batch(frame):
                self._unreadable(frame, str(error))
            else:
                self._hear_batch(frame, about)
            return
        if len(frame) > envelopes.MAX_DIGITS and envelopes.has_huge_integer(frame):
            self._hear_huge(envelope, frame)
        elif envelope.method is None:
            self._hear_answer(envelope, frame)
        elif envelope.id is ABSENT:
            self._hear_notice(envelope, envelope.method, about)
        else:
            self._hear_request(envelope, envelope.method, about)

    def _hear_batch(self, frame: bytes, about: bytes) -> None:
        try:
            parts = envelopes.decode_batch(frame)
        except NotAnEnvelope as error:
            self._unreadable(frame, str(error))
            return
        for part in parts:
            if envelopes.is_batch(part):
                self._unreadable(part, "a batch inside a batch")
            else:
                self._hear(part, about)

    def _hear_answer(self, envelope: Envelope, frame: bytes) -> None:
        id_ = bytes(envelope.id)
        nameless = id_ in (b"", b"null")
        if nameless and envelope.error is ABSENT and envelope.result is ABSENT:
            self._unreadable(frame, "neither a request nor an answer")
            return
        ticket = self._take_only() if nameless else self.peer.take(id_)
        if ticket is None:
            self.stats.dropped += 1
            if self._cancelled:
                self._cancelled.pop(id_.strip(b'"'), None)
            log.debug("answer to no open request", upstream=self.name, dropped=self.peer.dropped)
            return
        self._answers += 1
        called = ticket.caller is not None
        if called:
            self.stats.answered(self.heard - ticket.began)
        self._over(ticket)
        if nameless and envelope.error is ABSENT:
            # It may as well be a late answer to a call that was given up: no ground to deliver it.
            error = self._malformed(frame, "a result without an id")
        elif envelope.error is not ABSENT:
            said = envelopes.said_error(envelope.error)
            if said is not None:
                said.connection = self
                self.stats.said += called
                self._tell_failed(ticket.sink, said)
                return
            error = self._malformed(frame, "an error without an integer code")
        elif envelope.result is not ABSENT and envelopes.is_object(envelope.result):
            try:
                ticket.sink.done(envelope.result)
            except Exception as raised:  # noqa: BLE001 - the caller waits for an outcome, and others for theirs
                self._tell_failed(ticket.sink, internal(raised, upstream=self.name))
            return
        else:
            error = self._malformed(frame, "a result that is not an object")
        self.stats.failed += called
        self._tell_failed(ticket.sink, error)

    def _tell_failed(self, sink: Sink, error: RpcError) -> None:
        """A request has failed. Whatever its sink does, the others have their own outcomes."""
        try:
            sink.failed(error)
        except Exception as raised:  # noqa: BLE001 - nothing more can be done for this one
            internal(raised, upstream=self.name)

    def _fell(self, ticket: Pending, raised: Exception) -> None:
        """What takes the outcome of a request could not take what comes before it: so it will get none."""
        error = internal(raised, upstream=self.name)
        if self.give_up(ticket, "internal error"):
            self.stats.failed += ticket.caller is not None
            self._tell_failed(ticket.sink, error)

    def _hear_failure(self, id_: bytes, error: RpcError, *, broken: bool) -> None:
        """The channel could not bring a request to the upstream, or its answer back."""
        ticket = self.peer.find(id_)
        if ticket is not None:
            del self.peer.ours[ticket.id]
            self._fail(ticket, error)
        if broken:
            self._note_broken(error.message.removeprefix(f'server "{self.name}" '))

    def _note_broken(self, why: str) -> None:
        verdict = self._circuit.failed(self._loop.time(), self._answers)
        if verdict is not None:
            self._lost(f"{verdict}, the last because it {why}")

    def _take_only(self) -> Pending | None:
        """The only request that an answer without an id may be meant for; an open stream is not waiting for one."""
        waiting = [ticket for ticket in self.peer.ours.values() if not ticket.endless]
        return self.peer.ours.pop(waiting[0].id) if len(waiting) == 1 else self.peer.take_only()

    def _hear_notice(self, envelope: Envelope, method: str, about: bytes) -> None:
        params = envelope.params or {}
        if method == "notifications/progress":
            self._hear_progress(params)
        elif method == "notifications/message":
            self._hear_log(params, about)
        elif method == "notifications/cancelled":
            self._hear_cancelled(params.get("requestId", envelopes.ABSENT))
        elif self.on_notice is not None:
            self.on_notice(method, params)

    def _hear_cancelled(self, id_: envelopes.Raw) -> None:
        if bytes(id_) in self.asked:
            self._withdraw(bytes(id_))
            return
        if (consulting := self._consulting.pop(bytes(id_), None)) is not None:
            consulting.withdraw()
            return
        ticket = self.peer.find(id_)
        if ticket is not None and ticket.endless:
            # The only request of ours that an upstream may end like this.
            del self.peer.ours[ticket.id]
            self._fail(ticket, self._error("lost", "ended the subscription"))

    def _hear_log(self, params: envelopes.Params, about: bytes) -> None:
        said: dict[str, Buffer] = dict(params)
        if label := self.label:
            logger = envelopes.text(params.get("logger"))
            said["logger"] = envelopes.encode(f"{label}/{logger}" if logger else label)
        tickets = self._meant(about)
        if tickets:
            ticket = _likeliest(tickets)
            try:
                ticket.sink.log(said)
            except Exception as error:  # noqa: BLE001 - somebody else's messages may come next
                self._fell(ticket, error)
        elif self.on_log is not None and not about:
            self.on_log(said)

    def _hear_progress(self, params: envelopes.Params) -> None:
        ticket = self.peer.find(params.get(PROGRESS_TOKEN))
        progress = envelopes.number(params.get("progress"))
        if ticket is None or progress is None or progress <= ticket.last_progress:
            self.peer.dropped += 1
            self.stats.dropped += 1
            return
        ticket.last_progress = progress
        if not ticket.paused_at:
            ticket.deadline = min(self._loop.time() + ticket.idle, ticket.limit_at)
        if ticket.wants_progress:
            try:
                ticket.sink.progress({name: raw for name, raw in params.items() if name != PROGRESS_TOKEN})
            except Exception as error:  # noqa: BLE001 - somebody else's messages may come next
                self._fell(ticket, error)

    def _hear_request(self, envelope: Envelope, method: str, about: bytes) -> None:
        if not envelopes.is_id(envelope.id):
            self._answer(envelopes.failure(None, InvalidRequest("an id is a string or an integer")))
        elif method == "ping":
            self._answer(envelopes.result(envelope.id, b"{}"))
        elif method in asking.METHODS:
            self._hear_ask(bytes(envelope.id), method, envelope.params or {}, about)
        else:
            # Programs such as `cat` send back what they are told.
            echo = method in ("initialize", "server/discover")
            why = f"{method}: " + (
                "this is what the client said; a program that repeats it is no MCP server"
                if echo
                else "this client declared no such capability"
            )
            self._answer(envelopes.failure(envelope.id, MethodNotFound(why)))

    def _hear_ask(self, id_: bytes, method: str, params: envelopes.Params, about: bytes) -> None:
        tickets = self._meant_by(params, about)
        if not tickets and self.client is not None and len(self._consulting) < _MOST_CONSULTED:
            self._consult(self.client, id_, method, params)
            return
        if not tickets:
            why = f"{method}: it cannot be told for which call this is asked"
            hint = "several callers share the server, or none calls; see `isolation`"
            # Many ask for the roots right after the handshake, when there is nobody yet who could be asked.
            called = any(one.caller is not None for one in self.peer.ours.values())
            tell = log.warning if called else log.debug
            tell("question refused", upstream=self.name, method=method, why=hint)
            self._answer(envelopes.failure(id_, InvalidParams(why)))
            return
        self._put(id_, method, params, tickets)

    def ask_another(self, id_: bytes, ask: ServerRequest) -> None:
        """The request is over in whose course this was asked. If it may have been that of another one, that is not."""
        others = [ticket for ticket in self._unsure.pop(id_, ()) if self.peer.ours.get(ticket.id) is ticket]
        if others:
            self._put(id_, ask.method, ask.params, others)

    def _put(self, id_: bytes, method: str, params: envelopes.Params, tickets: list[Pending]) -> None:
        """Ask something in the course of one of these requests, which are all of one party."""
        ticket = _likeliest(tickets)

        def answer(result: bytes) -> None:
            # First what starts the clock of the request again: it must not wait for ever, whatever the channel does.
            settled()
            self._answer(envelopes.result(id_, result))

        def refuse(error: RpcError) -> None:
            settled()
            self._answer(envelopes.failure(id_, error))

        def settled() -> None:
            self.asked.pop(id_, None)
            self._unsure.pop(id_, None)
            if ticket.asks is not None:
                ticket.asks.pop(id_, None)
            self._go_on(ticket)

        if id_ in self.asked:
            # Whoever uses an id again does not wait for the first answer any more.
            self._withdraw(id_)
        if len(self.asked) >= _MOST_ASKS or len(ticket.asks or ()) >= asking.MOST_OPEN:
            why = f"{method}: at most {asking.MOST_OPEN} questions of a call, and {_MOST_ASKS} in all, may be open"
            self._answer(envelopes.failure(id_, RpcError(why)))
            return
        ask = ServerRequest(
            self.name,
            self.revision,
            method,
            params,
            answer=answer,
            refuse=refuse,
            connection=self,
            label=self.label,
        )
        self.asked[id_] = ticket
        if len(tickets) > 1:
            self._unsure[id_] = tickets
        if ticket.asks is None:
            ticket.asks = {}
        ticket.asks[id_] = ask
        if not ticket.paused_at:
            # From here on it is the caller who takes time, and whoever asks the caller has a limit for that.
            ticket.paused_at = self._loop.time()
            ticket.limit_at -= ticket.paused_at
            ticket.deadline = float("inf")
            self._exempt += 1
            self._let_in()
        try:
            ticket.sink.ask(ask)
        except Exception as error:  # noqa: BLE001 - somebody else's messages may come next
            ask.refuse(RpcError(f"{method}: the gateway could not put this question"))
            self._fell(ticket, error)

    def _consult(self, client: Client, id_: bytes, method: str, params: envelopes.Params) -> None:
        """Ask the client of this connection, which makes no call."""

        def settle(answer: Sequence[Buffer]) -> None:
            if self._consulting.get(id_) is ask:
                del self._consulting[id_]
            self._answer(answer)
            if not self._consulting:
                self._unasked.set()

        ask = ServerRequest(
            self.name,
            self.revision,
            method,
            params,
            answer=lambda result: settle(envelopes.result(id_, result)),
            refuse=lambda error: settle(envelopes.failure(id_, error)),
            connection=self,
            label=self.label,
        )
        self._consulting[id_] = ask
        self._unasked.clear()
        client.consult(ask)

    async def consulted(self, timeout: float) -> None:
        """Wait until what the upstream has asked outside any call is answered: the first call may depend on it."""
        try:
            async with asyncio.timeout(timeout):
                # Once it answers this, it has heard `notifications/initialized` and has asked what it wants to know.
                await self.ask("ping", {}, timeout=timeout)
                if self._consulting:
                    await self._unasked.wait()
                    await self.ask("ping", {}, timeout=timeout)
                if self._unasked.is_set():
                    # A ping is answered by the side of that. Nothing tells when it is over.
                    await asyncio.sleep(_TAKEN_UP)
        except (TimeoutError, RpcError) as error:
            log.debug("not waited for", upstream=self.name, why=error)

    def _withdraw(self, id_: bytes) -> None:
        """The upstream does not want to know any more what it asked."""
        ticket = self.asked.pop(id_)
        self._unsure.pop(id_, None)
        ask = None if ticket.asks is None else ticket.asks.pop(id_, None)
        if ask is not None:
            ask.withdraw()
        self._go_on(ticket)

    def _go_on(self, ticket: Pending) -> None:
        if ticket.paused_at and not ticket.asks:
            now = self._loop.time()
            ticket.paused_at = 0.0
            self._exempt -= 1
            ticket.limit_at += now
            ticket.deadline = min(now + ticket.idle, ticket.limit_at)

    def _meant_by(self, params: envelopes.Params, about: bytes) -> list[Pending]:
        """The requests of one party of which one is that a question belongs to; none if that cannot be told."""
        task = _related_task(envelopes.members(params["_meta"])) if "_meta" in params else ""
        if not task:
            return self._meant(about)
        waiting = [ticket for ticket in self.peer.ours.values() if ticket.task == task]
        return waiting[:1] or (self._meant(about) if about else [])

    def _meant(self, about: bytes) -> list[Pending]:
        """The requests of one party of which one is that something unasked belongs to; none if that cannot be told."""
        if about:
            ticket = self.peer.find(about)
            return [ticket] if ticket is not None and ticket.caller is not None else []
        # A pipe does not say. If all requests under way are of one party, no other one can learn of it.
        tickets = [ticket for ticket in self.peer.ours.values() if ticket.caller is not None]
        parties = [ticket.caller.party for ticket in tickets if ticket.caller is not None] + self._still_cancelled()
        if not tickets or len(set(parties)) != 1 or (None in parties and len(parties) > 1):
            return []
        return tickets

    # --- trouble ------------------------------------------------------------------------------

    def _unreadable(self, frame: bytes, why: str) -> None:
        if frame.isspace():
            return
        self._note_junk("not a message", frame, why)
        meant = self.peer.meant(frame)
        if envelopes.claims_to_answer(frame):
            self._fail_meant(meant, "malformed", f"sent an answer that cannot be read ({why})")
        elif meant is not None:
            # What servers print may have any number in it.
            self._junk.mentioned(meant, frame)

    def _hear_oversized(self, line: Oversized) -> None:
        """A line that was too long to be kept: its beginning, its end, or both."""
        if line.head:
            self._note_junk("line over the size limit", line.head, "maxMessageBytes")
        meant = self.peer.named(line.head) or self.peer.named(line.tail)
        self._fail_meant(meant, "too_large", "sent an answer over the size limit (maxMessageBytes)")

    def _hear_huge(self, envelope: Envelope, frame: bytes) -> None:
        """A message that would pass us, but not the clients behind us."""
        self._note_junk("message refused", frame, envelopes.HUGE_INTEGER)
        ticket = self.peer.take(bytes(envelope.id)) if envelope.method is None else None
        if ticket is not None:
            self._fail(ticket, self._error("malformed", f"answered with {envelopes.HUGE_INTEGER}"))
        elif envelope.method is not None and envelope.id is not ABSENT:
            self._answer(envelopes.failure(envelope.id, InvalidParams(envelopes.HUGE_INTEGER)))

    def _fail_meant(self, meant: int | None, reason: Reason, why: str) -> None:
        if meant is not None:
            self._fail(self.peer.ours.pop(meant), self._error(reason, why))

    def _malformed(self, frame: bytes, what: str) -> RpcError:
        self._note_junk("malformed answer", frame, what)
        return self._error("malformed", f"answered with {what}")

    def _note_junk(self, event: str, frame: bytes, why: str) -> None:
        self._junk.note(self.heard, event, frame, why)

    @property
    def first_junk(self) -> str | None:
        """The first line that was no message, as it may be shown."""
        return self._junk.first

    def _fail(self, ticket: Pending, error: RpcError) -> None:
        """A request that was taken off the table ends without a usable answer."""
        if ticket.caller is not None:
            self.stats.calls += 1
            self.stats.failed += 1
        self._over(ticket)
        self._tell_failed(ticket.sink, error)

    def _lost(self, why: str) -> None:
        if self._gone is not None:
            return
        words = self._channel.last_words()
        self._fail_all(why if words is None else f"{why}; its last stderr line: {words}")
        if self.on_lost is not None:
            self.on_lost(self._gone or why)

    def _fail_all(self, why: str) -> None:
        self._gone = self._gone or why
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._cancelled.clear()
        consulting, self._consulting = self._consulting, {}
        for ask in consulting.values():
            ask.withdraw()
        queued = list(self._queue)
        self._queue.clear()
        for ticket in self.peer.lost():
            self._fail(ticket, self._error("lost", self._gone))
        for call in queued:
            why = f"{self._gone}; this call had not been sent, so it did not run"
            self._tell_failed(call.sink, self._error("not_running", why))

    def _error(self, reason: Reason, what: str, retry_after: float | None = None) -> UpstreamError:
        return UpstreamError(self.name, reason, f'server "{self.name}" {what}', retry_after=retry_after)


def _likeliest(tickets: list[Pending]) -> Pending:
    """The last of these requests that does not wait for its caller; if all do, the last."""
    return next((ticket for ticket in reversed(tickets) if not ticket.paused_at), tickets[-1])


def _related_task(meta: envelopes.Params | None) -> str:
    """The task that `_meta` speaks of; empty if it speaks of none."""
    related = envelopes.members((meta or {}).get(RELATED_TASK, b""))
    return "" if related is None else envelopes.text(related.get("taskId")) or ""
