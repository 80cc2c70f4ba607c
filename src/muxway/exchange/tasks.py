"""Tasks of the 2026-07-28 extension, for callers that declare it on their request.

A task of a stateless server stays its own: only its name is ours, sealed, so that it leads nobody else there. Calls
of older servers become tasks of the gateway: those that take long, and those that the server itself runs as tasks.
Callers of 2025-11-25 are offered no tasks (`execution` is taken out of what is listed for them, and a `task` in their
calls is not passed on): what must be a task is polled for them, see `task_poller`.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from muxway.calls.incidents import attempt
from muxway.calls.ports import aside, log
from muxway.calls.server_request import ServerRequests
from muxway.calls.sinks import CONVERTED, REWRITTEN, Nobody, Passing, is_large
from muxway.errors import InvalidParams, MethodNotFound, RpcError, UpstreamError, UpstreamSaid
from muxway.exchange.holding import Holding
from muxway.exchange.seal import LIFETIME
from muxway.exchange.task_poller import ENDED
from muxway.wire import asking, envelopes
from muxway.wire.result_types import few_questions
from muxway.wire.revisions import SERVER_INFO

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muxway.calls.call import Call
    from muxway.calls.leases import PassedTasks
    from muxway.calls.ports import Clock, Running, Sink
    from muxway.calls.server_request import ServerRequest
    from muxway.exchange.exchange import Exchange, Services, Way
    from muxway.routing.target import Trace
    from muxway.wire.envelopes import Buffer, Params
    from muxway.wire.result_types import Converter

T = TypeVar("T")
METHODS: Final = frozenset(("tasks/get", "tasks/update", "tasks/cancel"))
PATIENCE: Final = 5.0
"""Seconds after which a call becomes a task."""
KEPT: Final = 600.0
"""Seconds for which the outcome of a task can be asked for."""
_POLL_MS: Final = 1000
_MOST_SAID: Final = 1024
"""Characters of an error that names a task which are told."""
_UNKNOWN: Final = "Unknown task: there is none of this name, or not any more"


class Tasks:
    """All tasks that callers may ask about."""

    def __init__(self, services: Services, reach: Callable[[str, Call], Way]) -> None:
        """`reach` gives the way to a server, and may raise what sending a call may."""
        self._services = services
        self._reach = reach
        self.on_ended: Callable[[str], None] | None = None
        """Called with the name of each task of our own that is over."""
        self._own: dict[str, Task] = {}
        self._calls, self._outcomes = Holding(), Holding()
        """What is kept of those that go on, and of those that are over. The first counts how many there are."""

    def __len__(self) -> int:
        return len(self._own)

    def handle(
        self, call: Call, sink: Sink, rewriters: Mapping[str, Converter], sees: Callable[[Trace], bool]
    ) -> Running | None:
        """Answer a request about a task.

        `rewriters` put the links in a result into our words; `sees` says whether the caller still sees the tool.

        Raises:
            RpcError: it can be refused at once.
            StillStarting: the server may have it in a moment.
        """
        caller = call.caller
        if not asking.knows_tasks(caller.capabilities, caller.revision):
            raise asking.needs_tasks(call.method)
        name = envelopes.text(call.params.get("taskId"))
        if name is None:
            raise InvalidParams("params.taskId must be a string")
        trace = self.trace_of(call)
        if trace is None or not sees(trace):
            raise InvalidParams(_UNKNOWN)
        own = self._own.get(name)
        if own is not None:
            sink.done(own.answer(call))
            return None
        upstream, native = trace.upstream, trace.task
        way = self._reach(upstream, call)
        # After a reload, the process that has the task may be another one than that which takes new calls.
        connection = self._services.passed.find(name, way.connection)
        if connection is None or not connection.revision.stateless:
            raise InvalidParams(_UNKNOWN)
        way = msgspec.structs.replace(way, connection=connection)
        head = b'"method":%b,"params":{"taskId":%b' % (envelopes.encode(call.method), envelopes.encode(native))
        params = {key: raw for key, raw in call.params.items() if key != "taskId"}
        answer = _Renaming(sink, way, call, name, native, rewriters.get(upstream), self._services.passed)
        return connection.request(
            head, msgspec.structs.replace(call, params=params), answer, idle=way.idle, limit=way.limit
        )

    def trace_of(self, call: Call) -> Trace | None:
        """The call that a request about a task is about; None if there is no such task of this caller's."""
        name = envelopes.text(call.params.get("taskId")) or ""
        own = self._own.get(name)
        if own is not None:
            return own.trace if own.principal == call.caller.principal else None
        return self._services.seal.find_task(name, call.caller)

    def be_patient(self, exchange: Exchange) -> None:
        """The call becomes a task if its caller has waited for long."""
        exchange.start("patience", PATIENCE, self.open)

    def open(self, exchange: Exchange) -> None:
        """Answer the caller of a call with a task, if it may have one more; the call goes on."""
        caller = exchange.call.caller
        knows = asking.knows_tasks(caller.capabilities, caller.revision)
        if not exchange.under_way or exchange.key or exchange.task is not None or not knows:
            return
        size = exchange.settle_down()
        if not self._calls.has_room(caller.principal, size):
            log.warning("too many tasks; a call is answered only when it is over", upstream=exchange.way.upstream)
            return
        task = Task(self, self._services.clock, secrets.token_urlsafe(24), exchange, size)
        self._calls.take(task.principal, size)
        self._own[task.name] = task
        sink, exchange.sink, exchange.task = exchange.sink, task, task
        exchange.asker = sink
        sink.done(task.shown("task"))

    def resize(self, task: Task, size: int) -> bool:
        """A task takes so many bytes now, if it goes on; whether that is not too much."""
        if task.ended:
            return True
        self._calls.resize(task.principal, size, task.size)
        task.size = size
        return not self._calls.is_over(task.principal)

    def keep(self, task: Task) -> None:
        """The task is over; its outcome is kept for a while, in place of its call."""
        if self.on_ended is not None:
            self.on_ended(task.name)
        self._calls.resize(task.principal, 0, task.size)
        task.size = task.outcome_size()
        self._outcomes.take(task.principal, task.size)
        self._services.clock.later(KEPT, self._forget, task)
        if not self._outcomes.is_over(task.principal):
            return
        # Whoever keeps too much loses the oldest of it; others do only if that was not enough.
        ended = [other for other in self._own.values() if other.ended]
        for other in sorted(ended, key=lambda other: other.principal != task.principal):
            if not self._outcomes.is_over(task.principal):
                break
            log.warning("too much to keep; the outcome of a task is forgotten early", bytes=other.size)
            self._forget(other)

    def _forget(self, task: Task) -> None:
        if self._own.pop(task.name, None) is not None:
            self._calls.give_back(task.principal, 0)
            self._outcomes.give_back(task.principal, task.size)


class Task:
    """A call that goes on after its caller was told its name. The sink of its outcome."""

    def __init__(self, tasks: Tasks, clock: Clock, name: str, exchange: Exchange, size: int) -> None:
        self.name = name
        self.principal = exchange.call.caller.principal
        self.trace = exchange.trace
        self.ended = ""
        """How it ended; empty while it goes on."""
        self.size = size
        """What it counts for: its call and its questions while it goes on, then its outcome."""
        self._tasks = tasks
        self._clock = clock
        self._exchange: Exchange | None = exchange
        """The call; None when it is over."""
        self._created = self._updated = clock.now()
        self._message: str | None = None
        self._outcome: dict[str, Buffer] = {}
        self._meta = envelopes.object_of([(SERVER_INFO, exchange.way.server_info)])

    def shown(self, kind: str = "complete") -> bytes:
        """The task as the answer to `tasks/get`; of the kind "task", as the answer to the call that became it."""
        asks = None if self._exchange is None else self._exchange.asks
        questions = {} if asks is None else asks.entries
        # It grows while the task goes on, so that none is ever forgotten before the time that was told.
        ttl = (self._updated if self.ended else self._clock.now()) - self._created + KEPT
        told: dict[str, Any] = {
            "resultType": kind,
            "taskId": self.name,
            "status": self.ended or ("input_required" if questions else "working"),
            "createdAt": _date(self._created),
            "lastUpdatedAt": _date(self._updated),
            "ttlMs": int(ttl * 1000),
            "pollIntervalMs": _POLL_MS,
            "_meta": Raw(self._meta),
        }
        if self._message is not None:
            told["statusMessage"] = self._message
        if kind != "task":
            told |= {key: Raw(raw) for key, raw in self._outcome.items()}
            if questions:
                told["inputRequests"] = Raw(envelopes.object_of(questions.items()))
        return envelopes.encode(told)

    def answer(self, call: Call) -> bytes:
        """The answer to a request about it. Raises InvalidParams."""
        if call.method == "tasks/get":
            return self.shown()
        if call.method == "tasks/update":
            answers = envelopes.members(call.params.get("inputResponses", b""))
            if answers is None:
                raise InvalidParams("params.inputResponses must be an object: key → answer")
            if self._exchange is not None:
                self._take(self._exchange, answers)
        elif self._exchange is not None:
            self._exchange.cancel("the client cancelled the task")
            self._end("cancelled")
        return b'{"resultType":"complete","_meta":' + self._meta + b"}"

    def _take(self, exchange: Exchange, answers: Params) -> None:
        """Answers to some of the questions; what answers none is ignored. Raises InvalidParams, and takes none."""
        asks = exchange.asking()
        fit, unfit = asks.check(answers)
        for key, error in unfit.items():
            raise InvalidParams(f"params.inputResponses.{key}: {error.message}")
        for key, answer in fit.items():
            asks.answer(key, answer)
        exchange.fits()
        self._touch()

    def asks(self) -> None:
        """The server asks something: whoever looks at the task is shown it, for as long as it has time to answer."""
        self._touch()
        if self._exchange is not None:
            self._exchange.start("expiry", LIFETIME, _do_without)

    def _touch(self) -> None:
        """Something about it is new."""
        self._updated = self._clock.now()

    # --- the sink -----------------------------------------------------------------------------

    def done(self, *result: Buffer) -> None:
        self._outcome["result"] = b"".join(result)
        self._end("completed")

    def failed(self, error: RpcError) -> None:
        self._outcome["error"] = envelopes.error_body(error)
        self._message = error.message
        self._end("failed")

    def progress(self, params: dict[str, Buffer]) -> None:
        said = envelopes.text(params.get("message"))
        if said:
            self._message = said
            self._touch()

    def log(self, params: dict[str, Buffer]) -> None:
        """Tasks have no log."""

    def ask(self, ask: ServerRequest) -> None:
        ask.refuse(MethodNotFound(f"{ask.method}: a task is not asked like this"))

    def _end(self, status: str) -> None:
        self.ended = status
        self._exchange = None
        self._touch()
        self._tasks.keep(self)

    def outcome_size(self) -> int:
        """Bytes of its outcome."""
        return sum(len(bytes(raw)) for raw in self._outcome.values())


def _do_without(exchange: Exchange) -> None:
    """The caller does not answer."""
    exchange.asking().give_up("nobody answered in time")
    exchange.fits()


class _Told(NamedTuple):
    """What a server says of a task."""

    ended: bool
    fields: dict[str, Buffer]
    """Its members, while it asks something."""
    entries: Params
    """What it asks."""
    whole: Buffer
    """All of it as the caller gets it, if it asks nothing."""


class _Renaming(Passing):
    """The sink of a request about a server's own task."""

    def __init__(
        self,
        sink: Sink,
        way: Way,
        call: Call,
        name: str,
        native: str,
        rewrite: Converter | None,
        passed: PassedTasks,
    ) -> None:
        super().__init__(sink)
        self._passed = passed
        self._way = way
        self._call = call
        self._name = name
        self._native = native
        self._rewrite = rewrite
        self._large = False

    def done(self, *result: Buffer) -> None:
        self._large = is_large(CONVERTED if self._rewrite is None else REWRITTEN, *result)
        self._work(partial(self._read, b"".join(result)), self._told)

    def _work(self, work: Callable[[], T], then: Callable[[Callable[[], T]], None]) -> None:
        """Do this, and go on with what comes of it; beside the event loop if the result is large."""
        if self._large:
            aside(work, lambda outcome: attempt(self._sink.failed, partial(then, outcome)))
        else:
            then(work)

    def _read(self, result: bytes) -> _Told:
        fields: dict[str, Buffer] = {**(envelopes.members(result) or {}), "resultType": b'"complete"'}
        ended = envelopes.text(fields.get("status")) in ENDED
        if "taskId" in fields:
            fields["taskId"] = envelopes.encode(self._name)
        if "result" in fields:
            fields["result"] = self._converted(fields["result"])
        entries = few_questions(fields.pop("inputRequests", b"{}")) or {}
        return _Told(ended, fields, entries, b"") if entries else _Told(ended, {}, {}, self._whole(fields))

    def _whole(self, fields: dict[str, Buffer]) -> Buffer:
        return self._way.convert(envelopes.object_of(fields.items()))

    def _told(self, outcome: Callable[[], _Told]) -> None:
        ended, fields, entries, whole = outcome()
        if ended:
            self._passed.ended(self._name)
        if not entries:
            self._sink.done(whole)
            return
        asks = ServerRequests()
        asks.on_settled = partial(self._show, fields, asks)
        try:
            asks.read(self._way.upstream, self._way.connection, self._call.caller, entries)
        except RpcError as error:
            self._fail(f"asks for what it was told this caller cannot give: {error.message}")
        else:
            asks.put(self._sink)

    def _show(self, fields: dict[str, Buffer], asks: ServerRequests) -> None:
        """The questions have passed what stands around the request."""
        asks.on_settled = None
        if asks.refusal is not None:
            method, error = asks.refusal
            self._fail(f"asked, and {method} was refused: {error.message}")
            return
        if asks.answers:
            self._update(asks.answers)
        if asks.entries:
            fields["inputRequests"] = envelopes.object_of(asks.entries.items())
        elif asks.answers:
            fields["status"] = b'"working"'
        self._work(partial(self._whole, fields), lambda whole: self._sink.done(whole()))

    def _update(self, answers: dict[str, Buffer]) -> None:
        """Give the server answers that a middleware gave."""
        head = b'"method":"tasks/update","params":{"taskId":' + envelopes.encode(self._native)
        params = {key: raw for key, raw in self._call.params.items() if key != "taskId"}
        params["inputResponses"] = Raw(envelopes.object_of(answers.items()))
        update = msgspec.structs.replace(self._call, method="tasks/update", params=params)
        self._way.connection.request(head, update, Nobody(), idle=self._way.idle, limit=self._way.limit)

    def _fail(self, what: str) -> None:
        upstream = self._way.upstream
        self._sink.failed(UpstreamError(upstream, "unsupported", f'server "{upstream}" {what}'))

    def _converted(self, result: Buffer) -> Buffer:
        fields = envelopes.members(result)
        if fields is None:
            return result
        converted = self._way.convert(envelopes.object_of({**fields, "resultType": b'"complete"'}.items()))
        return converted if self._rewrite is None else self._rewrite(converted)

    def failed(self, error: RpcError) -> None:
        if isinstance(error, UpstreamSaid) and self._call.method == "tasks/get":
            # It does not know the task, or not any more.
            self._passed.ended(self._name)
        if isinstance(error, UpstreamSaid) and self._native in error.raw.decode("utf-8", "replace"):
            # What the server calls the task is nobody's business. Ours is longer, and may stand in place of a letter.
            said = error.message[:_MOST_SAID].replace(self._native, self._name)
            error = RpcError(said, code=error.code)
        self._sink.failed(error)


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
