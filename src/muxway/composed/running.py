"""Composed tools at work: steps as calls, in parallel where they can be, and one result of them.

To the rest a composed tool is a connection to a server that speaks the newest handshake revision: calls of
every kind of caller cross to it as to any other, so that questions of the steps' servers reach the caller, however
it wants to be asked. Each step's call goes through the gateway's own front, middleware and all.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Raw

from muxway.calls.call import Call
from muxway.calls.incidents import attempt, deliver
from muxway.calls.leases import Leases
from muxway.calls.ports import later, steady
from muxway.composed import evaluation, fitting
from muxway.composed.evaluation import StepOutcome, StepScope, Unfit
from muxway.config.composed import DEEPEST, DRY_RUN, needs, uses
from muxway.config.templates import plain, references
from muxway.errors import RpcError
from muxway.wire import envelopes
from muxway.wire.revisions import NEWEST_HANDSHAKE, PROGRESS_TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.ports import Running, Sink, Timer
    from muxway.calls.server_request import ServerRequest
    from muxway.config.model import CustomTool, Step
    from muxway.config.templates import Condition, Template
    from muxway.wire.envelopes import Buffer, Params

_AT_ONCE: Final = 8
"""Calls of one `forEach` that are under way at the same time."""

_TURN: Final = 0.005
"""Seconds for which steps are begun before others have their turn."""
_MOST_VALUES: Final = 100_000
"""Commas in the arguments of a call: each value is compared with the schema."""

REVISION: Final = replace(NEWEST_HANDSHAKE, any_structure=True)
"""What steps speak: results come whole, with structured content of any kind, whatever the caller itself understands."""


class Composition:
    """A composed tool as a connection. Implements `calls.ports.LiveConnection`."""

    revision = REVISION
    log_level = 0
    label = ""
    own_process = False

    def __init__(self, tool: CustomTool, handle: Callable[[Call, Sink], Running | None]) -> None:
        """Prepare.

        Args:
            tool: the tool.
            handle: where the steps' calls go, see `Dispatcher.handle`.
        """
        self.leases = Leases()
        self._tool = tool
        self._handle = handle

    def set_log_level(self, level: int) -> None:
        """Every step's server is asked on its own."""

    def check(self) -> None:
        """It cannot end."""

    def request(self, head: bytes, call: Call, sink: Sink, idle: float, limit: float) -> Running:
        """Run the steps. The tool's own deadline takes the place of `idle` and `limit`."""
        del head, idle, limit
        run = _Run(self._tool, self._handle, call, sink)
        run.guard(run.begin)
        return run


class _Run:
    """One call of a composed tool."""

    def __init__(
        self, tool: CustomTool, handle: Callable[[Call, Sink], Running | None], call: Call, sink: Sink
    ) -> None:
        self.tool = tool
        self.handle = handle
        self.caller = replace(call.caller, revision=REVISION, depth=call.caller.depth + 1)
        # With a token, progress of a step's server keeps its call alive, as it does that of any other call.
        self.meta: Params = {**(call.meta or {}), PROGRESS_TOKEN: Raw(b"1")}
        self.sink = sink
        self.outcomes: dict[str, StepOutcome] = {}
        self.input: Params = {}
        self._call = call
        self._known: dict[tuple[str | int, ...], Raw | None] = {}
        self._waiting = {step.name: step for step in tool.steps}
        self._needs = {step.name: needs(step) for step in tool.steps}
        self._works: dict[str, _Work] = {}
        self._room = tool.max_result_bytes
        self._over = False
        self._pumping = False
        self._told = 0.0
        self._clock = _RunClock(tool.deadline, lambda: self.guard(self._expire))

    def guard(self, do: Callable[[], None]) -> None:
        """Go on, whoever made it go on: what goes wrong here ends this call, and is nobody else's business."""
        attempt(self._break_off, do)

    def _break_off(self, error: RpcError) -> None:
        self._fail(f"{self.tool.name}: {error.message}")

    # --- the start ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Check the arguments and make the first calls."""
        if self.caller.depth > DEEPEST:
            self._fail(f"{self.tool.name}: composed tools are used more than {DEEPEST} deep")
            return
        self.input = dict(envelopes.members(self._call.params.get("arguments", b"{}")) or {})
        for name, value in fitting.defaults(self.tool).items():
            self.input.setdefault(name, Raw(envelopes.encode(value)))
        wrong = "; ".join(f"{'.'.join(map(str, place))} {why}" for place, why in self._misfits())
        if wrong:
            self._fail(f"{self.tool.name}: wrong arguments: {wrong}")
        elif self.tool.dry_run and bytes(self.input.pop(DRY_RUN, b"")) == b"true":
            self._end(self._plan())
        else:
            self._clock.start()
            self.pump()

    def _misfits(self) -> list[tuple[tuple[str | int, ...], str]]:
        if sum(bytes(raw).count(b",") for raw in self.input.values()) > _MOST_VALUES:
            return [((), f"hold more than {_MOST_VALUES:,} values")]
        try:
            given = {name: envelopes.value(raw) for name, raw in self.input.items()}
        except RpcError:
            return [((), "hold a number that is too large")]
        return [*fitting.misfits(given, fitting.input_schema(self.tool))][:10]

    def _plan(self) -> bytes:
        """What would be called, as far as that is known before anything is."""
        scope = StepScope(self.input, {})
        try:
            steps = [_planned(step, scope) for step in self.tool.steps]
        except Unfit as error:
            return evaluation.make_failure(f"{self.tool.name}: {error}")
        return evaluation.make_result(Raw(envelopes.encode({"dryRun": True, "steps": steps})))

    # --- steps --------------------------------------------------------------------------------

    def pump(self) -> None:
        """Begin whatever can begin. What ends meanwhile makes this go on, not begin anew: items may be many."""
        if self._pumping:
            return
        self._pumping = True
        until = steady() + _TURN
        try:
            while not self._over and (self._open_next() or any(work.next() for work in [*self._works.values()])):
                if steady() > until:
                    # There may be thousands of items, and others wait.
                    later(0.0, self.guard, self.pump)
                    return
        finally:
            self._pumping = False
        if not self._over and not self._waiting and not self._works:
            self._finish()

    def _open_next(self) -> bool:
        """Open a step whose time has come; False if there is none."""
        ready = (step for name, step in self._waiting.items() if self._needs[name] <= self.outcomes.keys())
        step = next(ready, None)
        if step is None:
            return False
        del self._waiting[step.name]
        if any(self.outcomes[name].skipped for name in uses(step)):
            self.settle(step, StepOutcome(skipped=True))
            return True
        try:
            self._open(step)
        except Unfit as error:
            self.failed_step(step, str(error))
        return True

    def _open(self, step: Step) -> None:
        scope = StepScope(self.input, self.outcomes, known=self._known)
        per_item = any(reference.root in ("item", "index") for _, reference in references(step.when))
        if step.when is not None and not per_item and not evaluation.holds(step.when, scope):
            self.settle(step, StepOutcome(skipped=True))
            return
        if step.for_each is None:
            self._works[step.name] = _Work(self, step, [scope])
            return
        items = evaluation.items_of(step.for_each, scope)
        if len(items) > step.max_items:
            raise Unfit(f"forEach has {len(items)} items, more than maxItems ({step.max_items})")
        scopes = [StepScope(self.input, self.outcomes, item, index, self._known) for index, item in enumerate(items)]
        if scopes:
            self._works[step.name] = _Work(self, step, scopes, step.when if per_item else None)
        else:
            self.settle(step, StepOutcome(Raw(b"[]")))

    def failed_step(self, step: Step, why: str) -> None:
        """A step, or one of its calls, failed: end everything, or note it."""
        if step.on_error == "fail":
            self._fail(f'{self.tool.name}: step "{step.name}" ({step.tool}) failed: {why}')
        else:
            self.settle(step, StepOutcome(error=why, skipped=step.on_error == "skip"))

    def settle(self, step: Step, outcome: StepOutcome) -> None:
        """A step is over."""
        self._works.pop(step.name, None)
        self.outcomes[step.name] = outcome
        self.report(f"{step.name}: {'skipped' if outcome.skipped else 'failed' if outcome.error else 'done'}")
        self.pump()

    def take(self, size: int) -> bool:
        """Whether there is room for a result of this size. What is taken is not given back."""
        if size > self._room:
            return False
        self._room -= size
        return True

    def report(self, message: str) -> None:
        """Tell a caller who wants to know how far this is."""
        if self._over or self._call.progress_token is None:
            return
        done = len(self.outcomes) + sum(work.share() for work in self._works.values())
        if done > self._told:
            self._told = done
            params = {"progress": envelopes.encode(round(done, 4)), "total": b"%d" % len(self.tool.steps)}
            self.sink.progress({**params, "message": envelopes.encode(message)})

    # --- the end ------------------------------------------------------------------------------

    def _finish(self) -> None:
        tool = self.tool
        if tool.output is None:
            value = self.outcomes[tool.steps[-1].name].result or Raw(b"null")
        else:
            value = Raw(
                envelopes.encode(evaluation.fill(tool.output, StepScope(self.input, self.outcomes, known=self._known)))
            )
        if memoryview(value).nbytes > tool.max_result_bytes:
            self._fail(f"{tool.name}: the output is larger than {tool.max_result_bytes} bytes (maxResultBytes)")
        else:
            self._end(evaluation.make_result(value))

    def _expire(self) -> None:
        """The deadline has passed: what is not over has failed, and whether all has depends on that."""
        works, waiting = [*self._works.values()], [*self._waiting.values()]
        unfinished = [*(work.step for work in works), *waiting]
        names = ", ".join(step.name for step in unfinished)
        why = f"the deadline of {self.tool.deadline:g} s passed first"
        if any(step.on_error == "fail" for step in unfinished):
            self._fail(
                f"{self.tool.name}: the deadline of {self.tool.deadline:g} s passed before these were done: {names}"
            )
            return
        self._pumping = True  # nothing new may begin
        self._waiting.clear()
        for work in works:
            work.give_up(why)
        for step in waiting:
            self.failed_step(step, why)
        self._pumping = False
        self._finish()

    def _fail(self, why: str) -> None:
        self._end(evaluation.make_failure(why))

    def _end(self, result: bytes) -> None:
        if not self._over:
            self._stop("the composed tool is over")
            deliver(self.sink, result)

    def cancel(self, reason: str | None) -> None:
        """The caller gave up."""
        self._stop(reason)

    def _stop(self, reason: str | None) -> None:
        self._over = True
        self._clock.stop()
        works, self._works = [*self._works.values()], {}
        self._waiting.clear()
        for work in works:
            work.cancel(reason)

    # --- meanwhile ----------------------------------------------------------------------------

    def ask(self, ask: ServerRequest, clock: _RunClock | None) -> None:
        """Pass on a question of a step's server. While the caller thinks, no clock of ours runs."""
        clocks = [self._clock] if clock is None else [self._clock, clock]

        def over() -> None:
            for one in clocks:
                one.resume()

        def answer(result: bytes) -> None:
            over()
            ask.answer(result)

        def refuse(error: RpcError) -> None:
            over()
            ask.refuse(error)

        passed = ask.passed_on(answer, refuse)

        def withdrawn() -> None:
            over()
            passed.withdraw()

        ask.on_withdrawn = withdrawn
        for one in clocks:
            one.pause()
        self.sink.ask(passed)


class _RunClock:
    """A time limit that stands still while somebody is asked something."""

    def __init__(self, seconds: float, ring: Callable[[], None]) -> None:
        self._left = seconds
        self._ring = ring
        self._since = 0.0
        self._pauses = 0
        self._timer: Timer | None = None
        self._stopped = False

    def start(self) -> None:
        self._since = steady()
        self._timer = later(self._left, self._ring)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def pause(self) -> None:
        self._pauses += 1
        if self._pauses == 1 and self._timer is not None:
            self._timer.cancel()
            self._left = max(0.0, self._left - (steady() - self._since))

    def resume(self) -> None:
        self._pauses -= 1
        if self._pauses == 0 and not self._stopped:
            self.start()


class _Work:
    """A step under way: one call, or one for each item."""

    def __init__(self, run: _Run, step: Step, scopes: list[StepScope], when: Condition | None = None) -> None:
        """Prepare. `when` is asked about each item when its turn comes."""
        self.run = run
        self.step = step
        self._when = when
        self._queue = deque(enumerate(scopes))
        self._outcomes: list[StepOutcome | None] = [None] * len(scopes)
        self._jobs: dict[int, _Job] = {}
        self._done = 0
        self._shares: dict[int, float] = {}
        """How far the calls under way are, where their servers say so."""

    def next(self) -> bool:
        """Make the next call; False if there is none to make now."""
        if not self._queue or len(self._jobs) >= _AT_ONCE:
            return False
        number, scope = self._queue.popleft()
        if self._when is not None:
            try:
                wanted = evaluation.holds(self._when, scope)
            except Unfit as error:
                self.cancel(None)
                self.run.failed_step(self.step, str(error))
                return True
            if not wanted:
                self._outcomes[number] = StepOutcome(skipped=True)
                self._done += 1
                if not self._jobs and not self._queue:
                    self.run.settle(self.step, self._gathered())
                return True
        job = self._jobs[number] = _Job(self, number, scope)
        job.begin()
        return True

    def over(self, number: int, outcome: StepOutcome) -> None:
        """One of the calls is over."""
        del self._jobs[number]
        self._shares.pop(number, None)
        self._outcomes[number] = outcome
        self._done += 1
        step = self.step
        if outcome.error is not None and (step.for_each is None or step.on_error == "fail"):
            where = "" if step.for_each is None else f"item {number}: "
            self.run.failed_step(step, where + outcome.error)
        elif step.for_each is None:
            self.run.settle(step, outcome)
        elif self._jobs or self._queue:
            self.run.report(f"{step.name}: {self._done} of {len(self._outcomes)}")
            self.run.pump()
        else:
            self.run.settle(step, self._gathered())

    def _gathered(self) -> StepOutcome:
        """The outcome of all items, each of which has one."""
        ended = [outcome for outcome in self._outcomes if outcome is not None and not outcome.skipped]
        failed = [(index, one.error) for index, one in enumerate(ended) if one.error is not None]
        if self.step.on_error == "skip":
            failed, ended = [], [one for one in ended if one.error is None]
        results: list[Buffer] = [one.result or b"null" for one in ended]
        error = f"{len(failed)} of {len(ended)} failed, first item {failed[0][0]}: {failed[0][1]}" if failed else None
        return StepOutcome(Raw(b"[" + b",".join(results) + b"]"), error)

    def share(self) -> float:
        """How much of it is done, from 0 to 1."""
        return (self._done + sum(self._shares.values())) / len(self._outcomes)

    def advanced(self, number: int, share: float, message: str | None) -> None:
        """A call's server says how far it is."""
        self._shares[number] = max(share, self._shares.get(number, 0.0))
        self.run.report(f"{self.step.name}: {message}" if message else self.step.name)

    def give_up(self, why: str) -> None:
        """There is no time left: end with what there is."""
        self.cancel(why)
        if self.step.for_each is None:
            self.run.failed_step(self.step, why)
            return
        self._outcomes = [outcome or StepOutcome(error=why) for outcome in self._outcomes]
        self.run.settle(self.step, self._gathered())

    def cancel(self, reason: str | None) -> None:
        """Give up on all its calls."""
        jobs, self._jobs = [*self._jobs.values()], {}
        self._queue.clear()
        for job in jobs:
            job.cancel(reason)


class _Job:
    """One call of a step. Implements `calls.ports.Sink`."""

    def __init__(self, work: _Work, number: int, scope: StepScope) -> None:
        self._work = work
        self._number = number
        self._scope = scope
        self._running: Running | None = None
        self._over = False
        timeout = work.step.timeout
        self._clock = None if timeout is None else _RunClock(timeout, lambda: work.run.guard(self._late))

    def begin(self) -> None:
        """Make the call."""
        run, step = self._work.run, self._work.step
        try:
            arguments = envelopes.encode(evaluation.fill(step.arguments, self._scope, strict=True))
        except Unfit as error:
            self._end(StepOutcome(error=str(error)))
            return
        if len(arguments) > run.tool.max_result_bytes:
            self._end(
                StepOutcome(error=f"its arguments are larger than {run.tool.max_result_bytes} bytes (maxResultBytes)")
            )
            return
        params: Params = {"name": Raw(envelopes.encode(step.tool)), "arguments": Raw(arguments)}
        if self._clock is not None:
            self._clock.start()
        running = run.handle(Call(run.caller, "tools/call", params, run.meta), self)
        if not self._over:
            self._running = running

    def done(self, *result: Buffer) -> None:
        if not self._over:
            raw = b"".join(result)
            self._work.run.guard(lambda: self._came(raw))

    def _came(self, raw: bytes) -> None:
        run = self._work.run
        if run.take(len(raw)):
            self._end(evaluation.read_result(raw))
        else:
            limit = f"more than {run.tool.max_result_bytes} bytes of results (maxResultBytes of the tool)"
            self._end(StepOutcome(error=f"its result of {len(raw)} bytes would make {limit}"))

    def failed(self, error: RpcError) -> None:
        self._work.run.guard(lambda: self._end(StepOutcome(error=error.message)))

    def _end(self, outcome: StepOutcome) -> None:
        if not self._over:
            self._leave()
            self._work.over(self._number, outcome)

    def _late(self) -> None:
        running = self._running
        self._end(StepOutcome(error=f"gave no result within {self._work.step.timeout:g} s"))
        if running is not None:
            running.cancel("the step's timeout passed")

    def cancel(self, reason: str | None) -> None:
        """Nobody wants it any more."""
        running = self._running
        self._leave()
        if running is not None:
            running.cancel(reason)

    def _leave(self) -> None:
        self._over = True
        self._running = None
        if self._clock is not None:
            self._clock.stop()

    def progress(self, params: dict[str, Buffer]) -> None:
        done, total = envelopes.number(params.get("progress")), envelopes.number(params.get("total"))
        if not self._over and done is not None and total and total > 0:
            share, message = min(max(done / total, 0.0), 1.0), envelopes.text(params.get("message"))
            self._work.run.guard(lambda: self._work.advanced(self._number, share, message))

    def log(self, params: dict[str, Buffer]) -> None:
        if not self._over:
            self._work.run.sink.log(params)

    def ask(self, ask: ServerRequest) -> None:
        if not self._over:
            self._work.run.ask(ask, self._clock)


def _planned(step: Step, scope: StepScope) -> dict[str, Any]:
    known = {name: value for name, value in step.arguments.items() if _known(value)}
    later_on = {name: plain(value) for name, value in step.arguments.items() if name not in known}
    filled = cast("dict[str, Any]", evaluation.fill(known, scope, strict=True))
    planned: dict[str, Any] = {
        "name": step.name,
        "tool": step.tool,
        "after": sorted(needs(step)),
        "arguments": {**filled, **later_on},
    }
    if step.for_each is not None:
        planned["forEach"] = evaluation.fill(step.for_each, scope) if _known(step.for_each) else plain(step.for_each)
    if step.when is not None:
        planned["when"] = evaluation.holds(step.when, scope) if _known(step.when) else "known later"
    return planned


def _known(node: Template | Condition) -> bool:
    """Whether it needs no step to be filled in."""
    return all(reference.root == "input" for _, reference in references(node))
