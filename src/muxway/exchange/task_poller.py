"""Calls that a server runs as tasks, seen through to their result: to whoever makes them they are calls like any other.

Two kinds of tasks, alike but in every word. In 2025-11-25 the caller says `task: {}`, asks `tasks/get` until the task
has ended or wants something, and fetches `tasks/result`, on which the server asks its questions. In the extension of
2026-07-28 the server decides, and `tasks/get` brings everything: its questions become those of the call itself.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import Raw

from muxway.calls.call import Call
from muxway.calls.incidents import attempt, deliver
from muxway.calls.sinks import Nobody
from muxway.errors import InvalidParams, MethodNotFound, RpcError, UpstreamError, UpstreamSaid
from muxway.exchange.seal import LIFETIME
from muxway.wire import asking, envelopes
from muxway.wire.revisions import NEWEST, RELATED_TASK

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.call import Caller
    from muxway.calls.ports import Clock, Running, Sink, Timer
    from muxway.calls.server_request import ServerRequest
    from muxway.errors import Reason
    from muxway.exchange.exchange import Way
    from muxway.wire.envelopes import Buffer, Params

_FASTEST: Final = 0.05
_SLOWEST: Final = 5.0
_UNHURRIED: Final = 2.0
"""Seconds between two looks at a task whose server gives no interval, after the first few."""
_GLANCE: Final = 0.5
"""Seconds between two looks at the connection: a call must not outlive it for long."""
_CANCEL: Final = 10.0
_TOO_LONG: Final = "took longer than any call may (callMax), so the call was given up; it may have run"
ENDED: Final = frozenset(("completed", "failed", "cancelled"))
_STATE: Final = "muxway-task:"
"""How a `requestState` begins that names a task which asks; others are the server's own."""


def is_task_state(state: str | None) -> bool:
    """Whether the questions that came with this state are those of a task, so that it gets the answers."""
    return state is not None and state.startswith(_STATE)


def wants_tasks(error: RpcError) -> bool:
    """Whether this is how a stateless server says that the call can only be run as a task."""
    data: object = error.data
    needed = cast("dict[str, Any]", data).get("requiredCapabilities") if isinstance(data, dict) else None
    extensions = cast("dict[str, Any]", needed).get("extensions") if isinstance(needed, dict) else None
    return isinstance(extensions, dict) and asking.TASKS_EXTENSION in extensions


def poller(way: Way, clock: Clock, on_created: Callable[[], None]) -> TaskPoller:
    """One sending of a call that is run as a task; `on_created` is called when its server has made one of it."""
    kind = StatelessTaskPoller if way.connection.revision.stateless else TaskPoller
    return kind(way, clock, on_created)


class _Step:
    """The sink of one request about the task."""

    __slots__ = ("_otherwise", "_poller", "_then")

    def __init__(
        self, poller: TaskPoller, then: Callable[[bytes], None], otherwise: Callable[[RpcError], None]
    ) -> None:
        self._poller = poller
        self._then = then
        self._otherwise = otherwise

    def done(self, *result: Buffer) -> None:
        self._then(b"".join(result))

    def failed(self, error: RpcError) -> None:
        self._otherwise(error)

    def progress(self, params: dict[str, Buffer]) -> None:
        self._poller.progress(params)

    def log(self, params: dict[str, Buffer]) -> None:
        self._poller.log(params)

    def ask(self, ask: ServerRequest) -> None:
        self._poller.ask(ask)


class TaskPoller:
    """One call as a task of 2025-11-25, from its making to its result. Implements `Attempt`."""

    INTERVAL = "pollInterval"

    def __init__(self, way: Way, clock: Clock, on_created: Callable[[], None]) -> None:
        self.waits = False
        """Whether it ended with questions of the task, which waits for the answers."""
        self._way = way
        self._link = way.connection
        self._clock = clock
        self._on_created = on_created
        self._ends = clock.steady() + way.limit
        self._looked = self._next = 0.0
        self._pause = _FASTEST
        self._call: Call
        self._sink: Sink = Nobody()
        self._task = ""
        """The server's name for it; empty until it has one."""
        self._leased = False
        self._over = False
        """Whether the caller has its outcome, or wants none."""
        self._running: Running | None = None
        """The request about it that is under way."""
        self._fetching: Running | None = None
        """The request for its result."""
        self._timer: Timer | None = None
        self._asks: list[ServerRequest] = []
        """What it asked in its course: while any is open no clock runs."""
        self._progress = 0.0
        self._said: str | None = None

    # --- from the caller ----------------------------------------------------------------------

    def request(self, call: Call, sink: Sink) -> None:
        """Make the call."""
        self._call, self._sink = call, sink
        call = msgspec.structs.replace(call, params={**call.params, "task": Raw(b"{}")})
        self._running = self._send(self._way.head, call, self._created, self._fail)

    def cancel(self, reason: str | None) -> None:
        if self._over:
            return
        self._over = True
        if not self._task and self._waits_to_cancel():
            return
        self._stop(reason)
        self._cancel_task()

    def abandon(self) -> None:
        """There will be no answers to what it ended with."""
        if self.waits:
            self.waits = False
            self._cancel_task()

    def _waits_to_cancel(self) -> bool:
        # Nothing stops a task whose name is not known; as soon as it is, see `_created`.
        return True

    def _cancel_task(self) -> None:
        """Tell the server that nobody waits for the task any more."""
        if self._task:
            self._link.leases.drop(self._task)
            # Where the connection is gone, so is the task.
            with contextlib.suppress(UpstreamError):
                call, head = self._about("tasks/cancel")
                self._link.request(head, call, Nobody(), idle=_CANCEL, limit=_CANCEL)

    def _lease(self) -> None:
        """From here on, the task is under way at the server whether a request about it is or not."""
        if not self._leased:
            self._leased = True
            self._link.leases.take()

    def _stop(self, reason: str | None) -> None:
        if self._leased:
            self._leased = False
            self._link.leases.give_back()
        if self._timer is not None:
            self._timer.cancel()
        for running in (self._running, self._fetching):
            if running is not None:
                running.cancel(reason)
        self._running = self._fetching = None

    # --- from the server --------------------------------------------------------------------

    def ask(self, ask: ServerRequest) -> None:
        if self._over:
            ask.refuse(MethodNotFound(f"{ask.method}: nobody waits for this task any more"))
            return
        self._asks = [*(one for one in self._asks if one.open), ask]
        self._sink.ask(ask)

    def progress(self, params: dict[str, Buffer]) -> None:
        progress = envelopes.number(params.get("progress"))
        if not self._over and progress is not None:
            self._progress = max(self._progress, progress)
            self._sink.progress(params)

    def log(self, params: dict[str, Buffer]) -> None:
        self._sink.log(params)

    def _created(self, result: bytes) -> None:
        self._running = None
        task = self._task_of(result)
        if task is None:
            # It has done the work already.
            self._done(result)
            return
        self._task = envelopes.text(task.get("taskId")) or ""
        if self._over:
            self._cancel_task()
        elif not self._task:
            self._trouble("malformed", "made a task of the call and gave no taskId")
        else:
            self._lease()
            self._on_created()
            self._begin(task)

    def _task_of(self, result: bytes) -> Params | None:
        fields = envelopes.members(result) or {}
        return envelopes.members(fields["task"]) if "task" in fields else None

    def _begin(self, task: Params) -> None:
        self._hear(task)

    def _hear(self, task: Params) -> None:
        """How the task is, in the server's words."""
        self._running = None
        if self._over:
            return
        said = envelopes.text(task.get("statusMessage"))
        if said and said != self._said:
            self._said = said
            self.progress({"progress": envelopes.encode(self._progress + 1), "message": envelopes.encode(said)})
        hint = envelopes.number(task.get(self.INTERVAL))
        self._pause = min(self._pause * 2, _UNHURRIED) if hint is None else min(max(hint / 1000, _FASTEST), _SLOWEST)
        if not self._settle(envelopes.text(task.get("status")), task) and not self._over:
            self._wait(self._pause)

    def _settle(self, status: str | None, task: Params) -> bool:
        """Do what the status asks for. Returns whether there is no more to look for."""
        del task
        ended = status in ENDED
        if not ended and status != "input_required":
            return False
        if self._fetching is None:
            # As long as the task goes on it is looked at, which shows that the server is alive.
            self._fetch(self._way.idle if ended else self._ends - self._clock.steady())
        elif ended:
            self._timer = self._clock.later(self._way.idle, self._silent)
        return ended

    def _fetch(self, idle: float) -> None:
        call, head = self._about("tasks/result")
        meta = {RELATED_TASK: Raw(envelopes.encode({"taskId": self._task}))}
        self._fetching = self._send(head, msgspec.structs.replace(call, meta=meta), self._fetched, self._fail, idle)

    def _fetched(self, result: bytes) -> None:
        self._fetching = None
        fields = envelopes.members(result) or {}
        meta = envelopes.members(fields.get("_meta", b"")) or {}
        if meta.pop(RELATED_TASK, None) is not None:
            kept: dict[str, Buffer] = {**fields, "_meta": envelopes.object_of(meta.items())}
            if not meta:
                del kept["_meta"]
            result = envelopes.object_of(kept.items())
        self._done(result)

    # --- looking ------------------------------------------------------------------------------

    def _wait(self, pause: float) -> None:
        self._looked = self._clock.steady()
        self._next = self._looked + pause
        self._look()

    def _look(self) -> None:
        self._timer = None
        if self._over:
            return
        now = self._clock.steady()
        if any(ask.open for ask in self._asks):
            # It is the caller who takes time.
            self._ends += now - self._looked
        self._looked = now
        try:
            self._link.check()
        except RpcError as error:
            self._fail(error)
            return
        if now >= self._ends:
            self._trouble("timeout", _TOO_LONG)
        elif now >= self._next:
            call, head = self._about("tasks/get")
            self._running = self._send(head, call, self._got, self._untold)
        else:
            self._timer = self._clock.later(min(self._next - now, _GLANCE), attempt, self._fail, self._look)

    def _got(self, result: bytes) -> None:
        self._hear(envelopes.members(result) or {})

    def _about(self, method: str) -> tuple[Call, bytes]:
        """A request about the task, and its head."""
        head = b'"method":"%b","params":{"taskId":%b' % (method.encode(), envelopes.encode(self._task))
        return Call(self._call.caller, method, {}), head

    def _send(
        self,
        head: bytes,
        call: Call,
        then: Callable[[bytes], None],
        otherwise: Callable[[RpcError], None],
        idle: float | None = None,
    ) -> Running | None:
        left = max(self._ends - self._clock.steady(), _FASTEST)
        step = _Step(self, then, otherwise)
        try:
            return self._link.request(head, call, step, idle=idle or self._way.idle, limit=left)
        except RpcError as error:
            if not self._task:
                # The call itself cannot be made: whoever makes it is told at once.
                raise
            otherwise(error)
            return None

    # --- the outcome --------------------------------------------------------------------------

    def _done(self, *result: Buffer) -> None:
        if not self._over:
            self._over = True
            self._stop(None)
            deliver(self._sink, *result)

    def _fail(self, error: RpcError) -> None:
        if self._over:
            return
        self._over = True
        self._stop("the call failed")
        if isinstance(error, UpstreamError) and error.reason != "lost":
            self._cancel_task()
            if error.reason == "timeout" and self._clock.steady() >= self._ends:
                # A request about the task was still under way when the time for all of them was over.
                error = self._error("timeout", _TOO_LONG)
        self._sink.failed(error)

    def _untold(self, error: RpcError) -> None:
        """The server does not say how the task is."""
        if isinstance(error, UpstreamSaid):
            said = error.message.replace(self._task, "…")
            self._trouble("lost", f"lost the task it made of this call, which may have run: {said}")
        else:
            self._fail(error)

    def _silent(self) -> None:
        self._trouble("timeout", f"gave no sign for {self._way.idle:g} s, so the call was given up; it may have run")

    def _trouble(self, reason: Reason, what: str) -> None:
        self._fail(self._error(reason, what))

    def _error(self, reason: Reason, what: str) -> UpstreamError:
        return UpstreamError(self._way.upstream, reason, f'server "{self._way.upstream}" {what}')


class StatelessTaskPoller(TaskPoller):
    """One call as a task of the 2026-07-28 extension. Implements `Attempt`."""

    INTERVAL = "pollIntervalMs"

    def __init__(self, way: Way, clock: Clock, on_created: Callable[[], None]) -> None:
        super().__init__(way, clock, on_created)
        self._answered: set[str] = set()
        """The questions that the task need not have answered again."""

    def request(self, call: Call, sink: Sink) -> None:
        """Make the call; or go on with the task that asked, when the call brings its state."""
        self._call, self._sink = msgspec.structs.replace(call, caller=_declaring(call.caller)), sink
        state = envelopes.text(call.params.get("requestState"))
        if state is not None and is_task_state(state):
            self._go_on(state)
        else:
            self._running = self._send(self._way.head, self._call, self._created, self._fail)

    def _go_on(self, state: str) -> None:
        """The caller has answered what the task asked."""
        self._task, self._answered = _read_state(state)
        self._lease()
        self._link.leases.drop(self._task)
        answers = self._call.params.get("inputResponses")
        if answers is None:
            self._wait(0)
            return
        self._answered |= (envelopes.members(answers) or {}).keys()
        call, head = self._about("tasks/update")
        call = msgspec.structs.replace(call, params={"inputResponses": answers})
        self._running = self._send(head, call, lambda _: self._wait(0), self._untold)

    def _waits_to_cancel(self) -> bool:
        # It may as well do the work at once, and then the request is what there is to cancel.
        return False

    def _task_of(self, result: bytes) -> Params | None:
        fields = envelopes.members(result) or {}
        return fields if envelopes.text(fields.get("resultType")) == "task" else None

    def _begin(self, task: Params) -> None:
        # What it asks or has found out comes only with `tasks/get`.
        working = envelopes.text(task.get("status")) == "working"
        self._hear(task if working else {self.INTERVAL: Raw(b"0")})

    def _settle(self, status: str | None, task: Params) -> bool:
        if status == "completed":
            self._complete(task.get("result"))
        elif status == "failed":
            said = envelopes.said_error(task.get("error", Raw(b"null")))
            self._fail(said or self._error("malformed", "answered with a task that failed without an error"))
        elif status == "cancelled":
            self._trouble("lost", "cancelled the task it made of this call")
        elif status == "input_required":
            self._question(envelopes.members(task.get("inputRequests", b"{}")) or {})
        return self._over

    def _complete(self, result: Raw | None) -> None:
        if result is None or not envelopes.is_object(result):
            self._trouble("malformed", "answered with a task that was completed without a result")
        else:
            self._done(result)

    def _question(self, entries: Params) -> None:
        asked = {key: entry for key, entry in entries.items() if key not in self._answered}
        if not asked:
            return
        state = _STATE + envelopes.encode([self._task, sorted(self._answered)]).decode()
        questions: dict[str, Buffer] = {
            "resultType": b'"input_required"',
            "inputRequests": envelopes.object_of(asked.items()),
            "requestState": envelopes.encode(state),
        }
        self._link.leases.keep(self._task, LIFETIME)
        self.waits = True
        self._done(envelopes.object_of(questions.items()))


def _read_state(state: str) -> tuple[str, set[str]]:
    """The task that asked, and what it was answered before. Raises InvalidParams."""
    match envelopes.value(state.removeprefix(_STATE).encode()):
        case [str(task), [*answered]]:
            return task, {str(key) for key in answered}
        case _:
            # The server gave this state itself.
            raise InvalidParams("requestState names no task")


def _declaring(caller: Caller) -> Caller:
    """The caller, as one that knows tasks: the gateway does, in its place."""
    told = asking.declared(caller.capabilities, caller.revision)
    told["extensions"] = {**told.get("extensions", {}), asking.TASKS_EXTENSION: {}}
    return replace(caller, revision=NEWEST, capabilities=Raw(envelopes.encode(told)))
