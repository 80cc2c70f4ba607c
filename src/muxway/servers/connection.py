"""One live connection to a server: requests out, answers paired, silence noticed.

It lives from a successful `open` of its transport until it is lost or closed, and is never reused: whatever an old
process still says cannot reach a request made to a new one. Its parts each have a file: what waits for its turn
(`call_queue`), what the gateway asks for itself (`own_requests`), deadlines, what comes in beside answers (`notices`,
`odd_frames`, `junk`), what the server asks (`questions`), whose something is that says not for whom (`attribution`),
and when a remote server counts as broken (`circuit`).
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

from muxway.calls.incidents import internal
from muxway.calls.leases import Leases
from muxway.calls.sinks import Nobody
from muxway.errors import InvalidRequest, MethodNotFound, ParseError, RpcError, UpstreamError
from muxway.exchange.open_sessions import NOBODY, SEVERAL, user_after
from muxway.log import EventLog
from muxway.servers.attribution import Attribution, related_task
from muxway.servers.call_queue import CallQueue
from muxway.servers.circuit import Circuit
from muxway.servers.counters import ServerCounters
from muxway.servers.deadlines import Deadlines
from muxway.servers.junk import Junk
from muxway.servers.limits import DEFAULT, ServerLimits
from muxway.servers.notices import ServerNotices
from muxway.servers.odd_frames import OddFrames
from muxway.servers.own_requests import OwnRequests
from muxway.servers.pending import Pending, QueuedCall
from muxway.servers.questions import ServerQuestions
from muxway.servers.transports.port import UNTOLD, Outgoing
from muxway.wire import asking, envelopes, large
from muxway.wire.envelopes import ABSENT, Envelope, NotAnEnvelope
from muxway.wire.peer import Peer
from muxway.wire.revisions import (
    CLIENT_CAPABILITIES,
    HOP_KEYS,
    LOG_LEVEL,
    LOG_LEVELS,
    NEWEST_HANDSHAKE,
    PROGRESS_TOKEN,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muxway.calls.call import Call, Caller
    from muxway.calls.ports import Sink
    from muxway.errors import Reason
    from muxway.servers.transports.port import ServerTransport
    from muxway.wire.envelopes import Buffer
    from muxway.wire.framing import Oversized
    from muxway.wire.large import Opened
    from muxway.wire.revisions import Revision

_FIRST_IDS: Final = 2**30
"""Our ids count up from anywhere below this: what others get a server to print cannot name a call that they do not know
of. There is room for as many calls again before an id is more than 32 bits, which is all that some servers keep."""
_MANY: Final = 16
"""Lines that come at once, from which on most may be junk."""
_IN_HEAD: Final = frozenset(("name", "uri", "ref", "_meta"))
"""Params that are written anew for each server."""
_TASK_METHODS: Final = frozenset(("tasks/get", "tasks/result", "tasks/update", "tasks/cancel"))
_SET_LEVEL: Final = 10.0
_NEVER_ASKED: Final = len(LOG_LEVELS)

log = EventLog("upstream")


class Connection:
    """A connection to the server `name` over a transport. Implements `calls.ports.LiveConnection`."""

    __slots__ = (
        "__weakref__",  # Whoever asked it for log messages, or named its tasks, does not keep it.
        "_bare",
        "_circuit",
        "_gone",
        "_odd",
        "answers",
        "attribution",
        "counters",
        "deadlines",
        "heard",
        "junk",
        "leases",
        "log_level",
        "loop",
        "meta_head",
        "name",
        "notices",
        "on_lost",
        "own",
        "peer",
        "questions",
        "queue",
        "revision",
        "transport",
        "used",
        "user",
    )

    def __init__(
        self,
        name: str,
        transport: ServerTransport,
        limits: ServerLimits = DEFAULT,
        counters: ServerCounters | None = None,
        mask: Callable[[str], str] = str,
        bare: Callable[[], bool] = bool,
    ) -> None:
        """Prepare; `mask` hides secrets in what is shown of what the server sent.

        `bare` says whether its words need no label: there may come to be other servers, or none.
        """
        self.name = name
        self.transport = transport
        self.revision: Revision = NEWEST_HANDSHAKE
        self.peer: Peer[Pending, None] = Peer(secrets.randbelow(_FIRST_IDS))
        self.counters = counters or ServerCounters()
        self.loop = asyncio.get_running_loop()
        self.answers = 0
        """How many it has given to what was asked."""
        self.heard = 0.0
        """When something was last heard on it."""
        self.used = 0.0
        """When a request was last made on it."""
        self.user: object = NOBODY
        """Who has called over it: one who can be told from others, or `NOBODY`, or `SEVERAL`; see `open_sessions`."""
        self.leases = Leases()
        self.log_level = _NEVER_ASKED
        self.on_lost: Callable[[str], None] | None = None
        self._bare = bare
        self.meta_head = b""
        """What a stateless server wants in every `_meta`, as JSON members."""
        self._gone: str | None = None
        self.own = OwnRequests(self)
        self.queue = CallQueue(self, limits)
        self.deadlines = Deadlines(self)
        self.attribution = Attribution(self)
        self.questions = ServerQuestions(self)
        self.notices = ServerNotices(self)
        self.junk = Junk(name, self.counters, mask)
        self._odd = OddFrames(self)
        self._circuit = Circuit()

    async def open(self) -> None:
        """Connect the transport. Raises SpawnError."""
        await self.transport.open(self._hear_all, self._lost, self._hear_failure)

    def speak(self, revision: Revision, meta: bytes = b"") -> None:
        """From now on, the revision spoken; `meta` is what a stateless one wants in every `_meta`, as JSON members.

        The capabilities are not among them: they are those of whoever calls.
        """
        self.revision = revision
        self.meta_head = meta

    async def close(self, *, at_once: bool = False) -> None:
        """End the server. Whatever still waits fails."""
        self.on_lost = None
        self._fail_all("was stopped")
        await self.transport.close(at_once=at_once)

    # --- asked ----------------------------------------------------------------------------------

    @property
    def own_process(self) -> bool:
        """Whether the server is a process that ends with this connection, and all that it knows with it."""
        return self.transport.own_process

    @property
    def label(self) -> str:
        """What its words are labelled with where people read them: it may become one of several, or the only one."""
        return "" if self._bare() else self.name

    @property
    def called(self) -> bool:
        """Whether something of somebody's is under way: a request, or what holds a lease between its requests."""
        if self.leases.any or any(pending.caller is not None for pending in self.peer.ours.values()):
            return True
        return bool(self.attribution.cancelled_parties())

    @property
    def gone(self) -> bool:
        """Whether the connection has ended."""
        return self._gone is not None

    def check(self) -> None:
        """Raise UpstreamError if the connection has ended."""
        if self._gone is not None:
            raise self.error("lost", self._gone)

    # --- sending ------------------------------------------------------------------------------

    def request(self, head: bytes, call: Call, sink: Sink, idle: float, limit: float) -> Pending | QueuedCall:
        """Send a call on its way, or let it wait for its turn; see `calls.ports.LiveConnection`."""
        queue = self.queue
        if len(self.peer.ours) >= queue.most and queue.in_flight >= queue.most:
            return queue.enter(QueuedCall(self, head, call, sink, idle, limit))
        meta, caller = call.meta, call.caller
        if self.user is not SEVERAL and (caller.principal or caller.party) != self.user:
            self.user = user_after(self.user, caller)
        # First what may fail: a request that nobody holds would be answered a second time when its time is over.
        told = asking.told(caller.capabilities, caller.revision).with_calls if self.meta_head else b""
        pending = self.begin(sink, idle, limit, caller)
        if meta is not None and PROGRESS_TOKEN in meta:
            pending.wants_progress = True
        if call.method in _TASK_METHODS:
            # Nothing is asked in the course of a request about a task, unless it waits for the task's result.
            pending.task = "" if call.method != "tasks/result" else related_task(meta)
            if not pending.task:
                pending.caller = None
                queue.exempt += 1
        frame: list[Buffer] = [b'{"jsonrpc":"2.0","id":%d,' % pending.id, head]
        for name, raw in call.params.items():
            if name == "arguments":
                frame += (b',"arguments":', raw)
            elif name not in _IN_HEAD:
                frame += (envelopes.key(name), raw)
        if meta is not None or self.meta_head:
            frame += self._meta(meta, pending, caller, told)
        frame.append(b"}}\n")
        transport = self.transport
        transport.send(frame, self._told(pending, head, call) if transport.remote else UNTOLD)
        return pending

    def _told(self, pending: Pending, head: bytes, call: Call) -> Outgoing:
        """A call, for a transport that must know what it carries."""
        params: Mapping[str, Buffer] = {}
        if self.meta_head:
            # A stateless server wants some of it repeated in headers.
            written = envelopes.members((envelopes.members(b"{%b}}" % head) or {}).get("params", b"")) or {}
            params = {**call.params, **written, "_meta": b"{" + self.meta_head + b"}"}
        return Outgoing(call.method, b"%d" % pending.id, params)

    def _meta(self, meta: envelopes.Params | None, pending: Pending, caller: Caller, told: bytes) -> list[Buffer]:
        """`_meta` for this hop: ours in place of the caller's envelope, its other keys as they came."""
        parts: list[Buffer] = []
        if self.meta_head:
            parts += (b"," + self.meta_head, envelopes.key(CLIENT_CAPABILITIES), told)
            if caller.log_level is not None:
                parts += (envelopes.key(LOG_LEVEL), envelopes.encode(LOG_LEVELS[caller.log_level]))
        if pending.wants_progress:
            parts.append(b',"progressToken":%d' % pending.id)
        for name, raw in (meta or {}).items():
            if name not in HOP_KEYS:
                parts += (envelopes.key(name), raw)
        if not parts:
            return []
        parts[0] = bytes(parts[0])[1:]
        return [b',"_meta":{', *parts, b"}"]

    def set_log_level(self, level: int) -> None:
        """Ask the server for log messages from this level on; its answer does not matter."""
        if self.revision.stateless:
            self.log_level = level
            return
        try:
            pending = self.own.begin(Nobody(), _SET_LEVEL)
        except UpstreamError as error:
            # Whoever wants these messages must not fail for it; the next call that wants them asks again.
            log.debug("log level not set", upstream=self.name, error=error)
            return
        self.log_level = level
        method, params = "logging/setLevel", b'{"level":' + envelopes.encode(LOG_LEVELS[level]) + b"}"
        self.transport.send(envelopes.request(pending.id, method, params), Outgoing(method, b"%d" % pending.id))

    def answer(self, frame: Sequence[Buffer]) -> None:
        """Send what the server asked for."""
        self.transport.send(frame, UNTOLD)

    # --- open requests --------------------------------------------------------------------------

    def begin(self, sink: Sink, idle: float, limit: float, caller: Caller | None) -> Pending:
        """Note a request that is about to be sent. Raises UpstreamError if it cannot be."""
        if self._gone is not None:
            self.check()
        deadlines = self.deadlines
        if deadlines.timer is None:
            deadlines.watch()
        elif deadlines.clogged:
            deadlines.check_clogged()
        peer = self.peer
        now = self.loop.time()
        if caller is not None:
            # What the gateway asks for itself must not keep a server awake.
            self.used = now
        id_ = peer.mint()
        deadline = now + (idle if idle < limit else limit)  # noqa: FURB136 - `min` takes ten times as long
        pending = peer.ours[id_] = Pending(self, id_, sink, idle, now, deadline, now + limit, caller)
        return pending

    def give_up(self, pending: Pending, reason: str | None) -> bool:
        """Nobody waits for this request any more: tell the server. False if it has been answered meanwhile."""
        if self.peer.ours.pop(pending.id, None) is None:
            return False
        if pending.caller is not None:
            self.counters.calls += 1
            self.attribution.cancelled(pending.id, pending.caller)
        if pending.tell:
            method = "notifications/cancelled"
            params: dict[str, Buffer] = {"requestId": b"%d" % pending.id}
            if reason is not None:
                params["reason"] = envelopes.encode(reason)
            frame = envelopes.notification(method, envelopes.object_of(params.items()))
            self.transport.send(frame, Outgoing(method, params=params))
        self._over(pending)
        return True

    def _over(self, pending: Pending) -> None:
        """A request has left the table: what was asked in its course needs no answer, and others may be let in."""
        if pending.asks is not None:
            self.questions.over(pending)
        queue = self.queue
        if pending.paused_at or pending.caller is None:
            pending.paused_at = 0.0
            queue.exempt -= 1
        if queue.waiting:
            queue.let_in()

    # --- hearing ------------------------------------------------------------------------------

    def _hear_all(self, frames: Sequence[bytes | Oversized], about: bytes = b"", opened: Opened | None = None) -> int:
        """See `transports.port.Hear`."""
        self.heard = self.loop.time()
        count, answers = len(frames), self.answers
        if count > _MANY:
            frames = self.junk.sift(self.heard, frames)
        for frame in frames:
            try:
                if isinstance(frame, bytes):
                    self.hear(frame, about, opened)
                else:
                    self._odd.oversized(frame)
            except Exception as error:  # noqa: BLE001 - whatever became of this message, the next is heard
                internal(error, upstream=self.name)
        return count - self.answers + answers

    def hear(self, frame: bytes, about: bytes, opened: Opened | None = None) -> None:
        """Take one frame; `opened` is what came of it, if that is known."""
        if opened is None:
            try:
                envelope = envelopes.decode(frame)
            except (ParseError, NotAnEnvelope) as error:
                self._odd.hear(frame, about, error)
                return
        elif isinstance(opened, Envelope):
            envelope = opened
        else:
            self._odd.hear(frame, about, opened)
            return
        if len(frame) > envelopes.MAX_DIGITS and large.has_huge_integer(frame, envelope):
            self._odd.huge(envelope, frame)
        elif envelope.method is None:
            self._hear_answer(envelope, frame)
        elif len(frame) > large.LARGE_MESSAGE and self._odd.too_large(envelope, frame):
            pass
        elif envelope.id is ABSENT:
            self.notices.hear(envelope.method, envelope.params or {}, about)
        else:
            self._hear_request(envelope, envelope.method, about)

    def _hear_answer(self, envelope: Envelope, frame: bytes) -> None:
        id_ = bytes(envelope.id)
        nameless = id_ in (b"", b"null")
        if nameless and envelope.error is ABSENT and envelope.result is ABSENT:
            self._odd.unreadable(frame, "neither a request nor an answer")
            return
        pending = self._take_only() if nameless else self.peer.take(id_)
        if pending is None:
            self.counters.dropped += 1
            self.attribution.answered_late(id_)
            log.debug("answer to no open request", upstream=self.name, dropped=self.peer.dropped)
            return
        self.answers += 1
        called, counters = pending.caller is not None, self.counters
        if called:
            counters.calls += 1
            counters.took.append(self.heard - pending.began)
        self._over(pending)
        if nameless and envelope.error is ABSENT:
            # It may as well be a late answer to a call that was given up: no ground to deliver it.
            error = self._malformed(frame, "a result without an id")
        elif envelope.error is not ABSENT:
            said = large.said_error(envelope)
            if said is not None:
                said.connection = self
                self.counters.said += called
                self.tell_failed(pending.sink, said)
                return
            error = self._malformed(frame, "an error without an integer code")
        elif envelope.result is not ABSENT and envelopes.is_object(envelope.result):
            try:
                pending.sink.done(envelope.result)
            except Exception as raised:  # noqa: BLE001 - the caller waits for an outcome, and others for theirs
                self.tell_failed(pending.sink, internal(raised, upstream=self.name))
            return
        else:
            error = self._malformed(frame, "a result that is not an object")
        self.counters.failed += called
        self.tell_failed(pending.sink, error)

    def tell_failed(self, sink: Sink, error: RpcError) -> None:
        """A request has failed. Whatever its sink does, the others have their own outcomes."""
        try:
            sink.failed(error)
        except Exception as raised:  # noqa: BLE001 - nothing more can be done for this one
            internal(raised, upstream=self.name)

    def fell(self, pending: Pending, raised: Exception) -> None:
        """What takes the outcome of a request could not take what comes before it: so it will get none."""
        error = internal(raised, upstream=self.name)
        if self.give_up(pending, "internal error"):
            self.counters.failed += pending.caller is not None
            self.tell_failed(pending.sink, error)

    def _malformed(self, frame: bytes, what: str) -> RpcError:
        self._odd.note("malformed answer", frame, what)
        return self.error("malformed", f"answered with {what}")

    def _take_only(self) -> Pending | None:
        """The only request that an answer without an id may be meant for; an open stream is not waiting for one."""
        waiting = [pending for pending in self.peer.ours.values() if not pending.endless]
        return self.peer.ours.pop(waiting[0].id) if len(waiting) == 1 else self.peer.take_only()

    def _hear_request(self, envelope: Envelope, method: str, about: bytes) -> None:
        if not envelopes.is_id(envelope.id):
            self.answer(envelopes.failure(None, InvalidRequest("an id is a string or an integer")))
        elif method == "ping":
            self.answer(envelopes.result(envelope.id, b"{}"))
        elif method in asking.METHODS:
            self.questions.hear(bytes(envelope.id), method, envelope.params or {}, about)
        else:
            # Programs such as `cat` send back what they are told.
            echo = method in ("initialize", "server/discover")
            why = f"{method}: " + (
                "this is what the client said; a program that repeats it is no MCP server"
                if echo
                else "this client declared no such capability"
            )
            self.answer(envelopes.failure(envelope.id, MethodNotFound(why)))

    # --- trouble ------------------------------------------------------------------------------

    def _hear_failure(self, id_: bytes, error: RpcError, *, broken: bool) -> None:
        """The transport could not bring a request to the server, or its answer back."""
        pending = self.peer.find(id_)
        if pending is not None:
            del self.peer.ours[pending.id]
            self.fail(pending, error)
        if broken:
            self.note_broken(error.message.removeprefix(f'server "{self.name}" '))

    def note_broken(self, why: str) -> None:
        """A request failed on the way: a remote server of which many do counts as lost."""
        verdict = self._circuit.failed(self.loop.time(), self.answers)
        if verdict is not None:
            self._lost(f"{verdict}, the last because it {why}")

    def fail(self, pending: Pending, error: RpcError) -> None:
        """A request that was taken off the table ends without a usable answer."""
        if pending.caller is not None:
            self.counters.calls += 1
            self.counters.failed += 1
        self._over(pending)
        self.tell_failed(pending.sink, error)

    def _lost(self, why: str) -> None:
        if self._gone is not None:
            return
        words = self.transport.last_words()
        self._fail_all(why if words is None else f"{why}; its last stderr line: {words}")
        if self.on_lost is not None:
            self.on_lost(self._gone or why)

    def _fail_all(self, why: str) -> None:
        self._gone = self._gone or why
        self.deadlines.stop()
        self.attribution.forget()
        self.questions.lost()
        waiting = self.queue.empty()
        for pending in self.peer.lost():
            self.fail(pending, self.error("lost", self._gone))
        for call in waiting:
            unsent = f"{self._gone}; this call had not been sent, so it did not run"
            self.tell_failed(call.sink, self.error("not_running", unsent))

    def error(self, reason: Reason, what: str, retry_after: float | None = None) -> UpstreamError:
        """An error of ours about this server."""
        return UpstreamError(self.name, reason, f'server "{self.name}" {what}', retry_after=retry_after)
