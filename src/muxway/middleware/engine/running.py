"""Chains of middleware: compiled for each method when they are put together, run around each request.

A middleware that awaits nothing but `go` (`plain`) is run by hand, step by step, where the request arrives: no task, no
future, no turn of the event loop. Any other one gets a task of its own, because it may use timeouts and sleeps.
Middlewares that only look (`before`, `after`) and stand next to each other share one step.
"""

from __future__ import annotations

import asyncio
import time
import types
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

import msgspec

from muxway import tracebacks
from muxway.calls.backend import StillStarting
from muxway.calls.call import LIBRARY, Call
from muxway.calls.incidents import deliver, internal
from muxway.calls.ports import Waiter, aside
from muxway.calls.server_request import ServerRequest
from muxway.errors import RpcError, UpstreamSaid
from muxway.log import EventLog
from muxway.middleware.engine.base import HOOKS, Aside, Middleware, Outcome, Request, Result
from muxway.middleware.engine.hiding import Hiding, may_hide
from muxway.routing.target import Target
from muxway.wire.revisions import NEWEST_HANDSHAKE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Mapping, Sequence

    from muxway.calls.call import Caller
    from muxway.calls.ports import Running, Sink
    from muxway.catalog.kinds import Kind
    from muxway.config.middlewares import MiddlewareSpec
    from muxway.middleware.engine.base import Next
    from muxway.wire.envelopes import Buffer, Params

    Answer = Callable[[Call, Sink], Running | None]
    Start = Callable[[Request, Sink, Sequence["_Stage"]], Running | None]

_LOG: Final = "notifications/message"
_REPEATABLE: Final = frozenset(HOOKS) - {"tools/call"}
_NOT_RUN: Final = frozenset({"not_running", "overloaded", "limited"})
_BLOCKED: Final = 0.25
"""Seconds after which a hook that lets nothing else happen is named in the log."""

_LONGEST: Final = 3600.0
"""Seconds after which a middleware is given up that neither goes on nor answers."""

_MOST_CHOSEN: Final = 20_000
"""Tools whose chains are remembered; their servers may list ever new ones."""

log = EventLog("middleware")


class Inside(Protocol):
    """What a chain stands around. `exchange.dispatcher.Dispatcher` is one."""

    def answer(self, call: Call, sink: Sink, target: Target | None = None, /) -> Running | None:
        """Start a request, about this if that is known."""
        ...

    def target(self, call: Call, *, wait: bool = True) -> Target:
        """What a request is about. Raises StillStarting if that will be known in a moment, and `wait` is set."""
        ...

    def listed(self, kind: Kind, caller: Caller) -> Mapping[str, object]:
        """What there is of a kind for a caller, by its public name; another object as soon as that changes."""
        ...

    def unknown(self, kind: Kind, name: str, caller: Caller) -> RpcError:
        """What is said of a name that nothing has, or nothing that a caller may know of."""
        ...

    def hold(self, wait: StillStarting, again: Answer, call: Call, sink: Sink, /) -> Running:
        """Keep a request until then."""
        ...


class MiddlewareError(RpcError):
    """A middleware did what it must not. Names it."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f'middleware "{name}" {what}', data={"muxway": {"reason": "middleware", "middleware": name}})


class Layer(NamedTuple):
    """A middleware in a chain."""

    name: str
    middleware: Middleware
    matches: Callable[[Request], bool] | None = None
    """Which requests it is for; None: all. For calls of a listed tool it is asked once, so it must go by the server and
    the listed name alone."""
    where: str = ""
    """Where it was configured."""
    server: str | None = None
    """The server whose it is; None: it is the gateway's, or a view's."""
    whose: str = ""
    """The same in words; empty: it was given in Python."""
    spec: MiddlewareSpec | None = None
    """What it was made of."""


class _Look(NamedTuple):
    layer: Layer
    before: Callable[[Request], None] | None
    after: Callable[[Request, Outcome], None] | None


class _Stage(NamedTuple):
    layer: Layer
    matches: Callable[[Request], bool] | None
    hook: Callable[[Request, Next], Coroutine[Any, Any, Result]]
    plain: bool = True
    watches: bool = False
    """Whether it wants to see questions and notices."""
    looks: tuple[_Look, ...] = ()
    """If there are any, that is all it does: the hook is not run."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Whose it is."""
        return tuple(look.layer for look in self.looks) or (self.layer,)


def compile_chain(layers: Sequence[Layer], method: str) -> tuple[_Stage, ...]:
    """What is run around requests of a method, the outermost first. Empty if no middleware cares."""
    stages: list[_Stage] = []
    for layer in layers:
        kind = type(layer.middleware)
        before = layer.middleware.before if kind.before is not Middleware.before else None
        after = layer.middleware.after if kind.after is not Middleware.after else None
        if before is not None or after is not None:
            look = _Look(layer, before, after)
            stages.append(_Stage(layer, layer.matches, layer.middleware.any_request, looks=(look,)))
        watches = kind.ask is not Middleware.ask or kind.notice is not Middleware.notice
        for name in ("any_request", HOOKS.get(method, "")):
            if name and getattr(kind, name) is not getattr(Middleware, name):
                hook = getattr(layer.middleware, name)
                stages.append(_Stage(layer, layer.matches, hook, kind.plain, watches))
                watches = False
        if watches:
            stages.append(_Stage(layer, layer.matches, layer.middleware.any_request, watches=True))
    return _merged(stages)


def _merged(stages: Iterable[_Stage]) -> tuple[_Stage, ...]:
    """The stages; of those that only look and are for all requests, neighbours are one."""
    merged: list[_Stage] = []
    for stage in stages:
        last = merged[-1] if merged else stage
        if merged and stage.looks and last.looks and stage.matches is last.matches is None:
            merged[-1] = last._replace(looks=last.looks + stage.looks)
        else:
            merged.append(stage)
    return tuple(merged)


def _fitting(request: Request, stages: Iterable[_Stage]) -> tuple[_Stage, ...]:
    """Those that are for a request, which need not be asked any more whether they are."""
    fitting = [stage for stage in stages if stage.matches is None or stage.matches(request)]
    return _merged(stage._replace(matches=None) for stage in fitting)


def did_not_run(error: RpcError) -> bool:
    """Whether a request that failed with this provably never reached a server: to make it again does no harm."""
    data: object = error.data
    if isinstance(error, UpstreamSaid) or not isinstance(data, dict):
        return False
    said: object = cast("dict[str, Any]", data).get("muxway")
    return isinstance(said, dict) and cast("dict[str, Any]", said).get("reason") in _NOT_RUN


def may_repeat(request: Request) -> bool:
    """Whether it does no harm to make this request twice."""
    if request.method in _REPEATABLE:
        return True
    hints = request.tool.get("annotations")
    if not isinstance(hints, dict):
        return False
    given = cast("dict[str, Any]", hints)
    return given.get("readOnlyHint") is True or given.get("idempotentHint") is True


def start(stages: Sequence[_Stage], first: int, request: Request, sink: Sink, last: Start) -> Running | None:
    """Run a request through the stages from the first one on, and in the end to `last`."""
    for index in range(first, len(stages)):
        stage = stages[index]
        if stage.matches is None or stage.matches(request):
            if stage.looks:
                return _Looked(stage.looks, request, sink).begin(stages, index + 1, last)
            run = (_Plain if stage.plain else _Tasked)(stage, request, sink, stages, index + 1, last)
            return run.begin()
    return last(request, sink, stages)


def _hand_back(sink: Sink, result: Result) -> None:
    """Give a result to what is further out; to another stage as it is, so that nothing is decoded twice."""
    if isinstance(sink, (_Plain, _Looked)):
        sink.came(result)
    else:
        deliver(sink, result.raw)


def _failed(name: str, error: BaseException, **where: str) -> MiddlewareError:
    """Somebody else's code raised what it should not."""
    log.error("failed", middleware=name, **where, error=f"{type(error).__name__}: {error}")
    tracebacks.tell(log, error)
    return MiddlewareError(name, f"failed with {tracebacks.located(error)}")


def _passed(layer: Layer, request: Request, ask: ServerRequest) -> ServerRequest | None:
    """A question as a middleware passes it on; None if it keeps it, or fails."""
    try:
        return layer.middleware.ask(request, ask)
    except RpcError as error:
        ask.refuse(error)
    except Exception as error:  # noqa: BLE001 - somebody else's code
        ask.refuse(_failed(layer.name, error, hook="ask"))
    return None


def _say_blocked(name: str, seconds: float) -> None:
    log.warning("kept everybody waiting", middleware=name, ms=round(seconds * 1000))


class _Looked(msgspec.Struct, eq=False):
    """A stage that only looks, at work on one request."""

    looks: tuple[_Look, ...]
    request: Request
    sink: Sink
    began: float = 0.0
    running: Running | None = None
    over: bool = False

    def begin(self, stages: Sequence[_Stage], rest: int, last: Start) -> Running | None:
        request = self.request
        self.began = now = time.perf_counter()
        for look in self.looks:
            layer, before, _ = look
            if before is None:
                continue
            name = layer.name
            try:
                before(request)
            except Exception as error:  # noqa: BLE001 - somebody else's code: whatever it raises ends this call only
                # Who is further in never saw the request.
                self.looks = self.looks[: self.looks.index(look)]
                self.failed(error if isinstance(error, RpcError) else _failed(name, error, hook="before"))
                return None
            began, now = now, time.perf_counter()
            if now - began > _BLOCKED:
                _say_blocked(name, now - began)
        try:
            running = start(stages, rest, request, self, last) if rest < len(stages) else last(request, self, stages)
        except Exception as error:  # noqa: BLE001 - whoever looked before wants to look after
            self.failed(internal(error, method=request.method))
            return None
        if self.over:
            return None
        self.running = running
        return self

    def done(self, *result: Buffer) -> None:
        if self.over:
            return
        now = time.perf_counter()
        outcome = Outcome(now - self.began, None, result)
        self._tell(outcome, now)
        if isinstance(self.sink, (_Plain, _Looked)) and outcome.result is not None:
            self.sink.came(outcome.result)
        else:
            deliver(self.sink, *result)

    def came(self, result: Result) -> None:
        if not self.over:
            now = time.perf_counter()
            self._tell(Outcome(now - self.began, None, (), result), now)
            _hand_back(self.sink, result)

    def failed(self, error: RpcError) -> None:
        if not self.over:
            now = time.perf_counter()
            self._tell(Outcome(now - self.began, error), now)
            self.sink.failed(error)

    def progress(self, params: dict[str, Buffer]) -> None:
        self.sink.progress(params)

    def log(self, params: dict[str, Buffer]) -> None:
        self.sink.log(params)

    def ask(self, ask: ServerRequest) -> None:
        self.sink.ask(ask)

    def cancel(self, reason: str | None) -> None:
        if not self.over:
            running, self.running = self.running, None
            now = time.perf_counter()
            self._tell(Outcome(now - self.began), now)
            if running is not None:
                running.cancel(reason)

    def _tell(self, outcome: Outcome, now: float) -> None:
        self.over = True
        for layer, _, after in reversed(self.looks):
            if after is None:
                continue
            name = layer.name
            try:
                after(self.request, outcome)
            except Exception as error:  # noqa: BLE001 - somebody else's code
                # The request went as it went, whoever fails to take note of it.
                _failed(name, error, hook="after")
            began, now = now, time.perf_counter()
            if now - began > _BLOCKED:
                _say_blocked(name, now - began)


class _ChainRun:
    """One stage at work on one request: a sink for what is further in, a running request for what is further out."""

    __slots__ = ("_gone_on", "_last", "_over", "_request", "_rest", "_running", "_sink", "_stage", "_stages")

    def __init__(
        self, stage: _Stage, request: Request, sink: Sink, stages: Sequence[_Stage], rest: int, last: Start
    ) -> None:
        self._stage = stage
        self._request = request
        self._sink = sink
        self._stages = stages
        self._rest = rest
        """The first of the stages that is further in."""
        self._last = last
        self._running: Running | None = None
        self._gone_on = False
        self._over = False

    @property
    def name(self) -> str:
        return self._stage.layer.name

    def _may_go_on(self, request: object) -> Request:
        """What the middleware gave to `go`, if that is a request it may make."""
        if not isinstance(request, Request):
            raise MiddlewareError(self.name, f"gave {type(request).__name__} to go(), which takes a request")
        if self._gone_on and not may_repeat(self._request):
            raise MiddlewareError(self.name, "went on twice with a call that may not be repeated")
        if request.method != self._request.method:
            raise MiddlewareError(self.name, "changed the method of a request")
        self._gone_on = True
        return request

    def _finish(self, result: object) -> None:
        if self._over:
            return
        self._over = True
        self._running = None
        if isinstance(result, dict):
            result = Result.of(cast("dict[str, Any]", result))
        if isinstance(result, Result):
            if self._request.caller.revision.stateless and result.mark("resultType") is None:
                result = result.replace(resultType="complete")
            _hand_back(self._sink, result)
        else:
            self._sink.failed(MiddlewareError(self.name, f"returned {type(result).__name__} instead of a result"))

    def _fail(self, error: BaseException) -> None:
        if self._over:
            return
        self._over = True
        self._running = None
        if isinstance(error, RpcError):
            self._sink.failed(error)
            return
        self._sink.failed(_failed(self.name, error, method=self._request.method))

    # --- what the server says meanwhile -------------------------------------------------------

    def progress(self, params: dict[str, Buffer]) -> None:
        shown = self._notice(params)
        if shown is not None:
            self._sink.progress(shown)

    def log(self, params: dict[str, Buffer]) -> None:
        shown = self._notice(params)
        if shown is not None:
            self._sink.log(shown)

    def _notice(self, params: dict[str, Buffer]) -> dict[str, Buffer] | None:
        if not self._stage.watches:
            return params
        try:
            return self._stage.layer.middleware.notice(self._request, params)
        except Exception as error:  # noqa: BLE001 - somebody else's code; a notice is not worth the call
            # Dropped rather than passed as it is: it may have been the very thing that was to be hidden.
            _failed(self.name, error, hook="notice")
            return None

    def ask(self, ask: ServerRequest) -> None:
        passed = _passed(self._stage.layer, self._request, ask) if self._stage.watches else ask
        if passed is not None:
            passed.park = passed.park or ask.park
            self._sink.ask(passed)


class _ChainQuestion:
    """What `go.ask_caller` gives to a plain middleware."""

    __slots__ = ("method", "params")

    def __init__(self, method: str, params: Params) -> None:
        self.method = method
        self.params = params

    def __await__(self) -> Generator[_ChainQuestion, bytes, bytes]:
        return (yield self)


class _Plain(_ChainRun):
    """A stage that awaits nothing but `go`: its coroutine is driven by what comes back."""

    __slots__ = ("_ask", "_back", "_coroutine", "_stepping")

    def begin(self) -> Running | None:
        self._ask: ServerRequest | None = None
        self._stepping = False
        self._back: tuple[Any, Exception | None] | None = None
        """What came back at once, before the step that went on was over."""
        self._coroutine = self._stage.hook(self._request, self)
        self._step(None, None)
        return None if self._over else self

    @types.coroutine
    def __call__(self, request: Request, /) -> Generator[Request, Result, Result]:
        # Awaited, it comes out at the driver below.
        return (yield self._may_go_on(request))

    def ask_caller(self, method: str, params: Params) -> _ChainQuestion:
        return _ChainQuestion(method, params)

    def _put(self, question: _ChainQuestion) -> None:
        self._ask = ServerRequest(
            "muxway",
            NEWEST_HANDSHAKE,
            question.method,
            question.params,
            answer=lambda answer: self._step(answer, None),
            refuse=lambda error: self._step(None, error),
        )
        self._sink.ask(self._ask)

    def _worked(self, outcome: Callable[[], Any]) -> None:
        self._running = None
        try:
            made = outcome()
        except Exception as error:  # noqa: BLE001 - it belongs to the middleware, which may know what to do
            self._step(None, error)
        else:
            self._step(made, None)

    def _step(self, result: Any, error: Exception | None) -> None:
        if self._stepping:
            self._back = (result, error)
            return
        self._stepping = True
        try:
            # In a loop and not one inside the other: a hook may go on any number of times.
            self._step_once(result, error)
            while self._back is not None:
                (result, error), self._back = self._back, None
                self._step_once(result, error)
        finally:
            self._stepping = False

    def _step_once(self, result: Any, error: Exception | None) -> None:
        began = time.perf_counter()
        try:
            try:
                onward: object = self._coroutine.send(result) if error is None else self._coroutine.throw(error)
            finally:
                if (took := time.perf_counter() - began) > _BLOCKED:
                    _say_blocked(self.name, took)
        except StopIteration as stop:
            self._finish(stop.value)
        except Exception as raised:  # noqa: BLE001 - somebody else's code: whatever it raises ends this call only
            self._fail(raised)
        else:
            self._go(onward)

    def _go(self, onward: object) -> None:
        if isinstance(onward, Request):
            try:
                self._running = start(self._stages, self._rest, onward, self, self._last)
            except Exception as error:  # noqa: BLE001 - it waits for an outcome
                self._step(None, internal(error, method=onward.method))
        elif isinstance(onward, _ChainQuestion):
            self._put(onward)
        elif isinstance(onward, Aside):
            self._running = aside(onward.work, self._worked)
        else:
            self._coroutine.close()
            self._fail(MiddlewareError(self.name, "awaits something other than go(), so it may not be `plain`"))

    def done(self, *result: Buffer) -> None:
        if not self._over:
            self._running = None
            self._step(Result(bytes(result[0]) if len(result) == 1 else b"".join(result)), None)

    def came(self, result: Result) -> None:
        if not self._over:
            self._running = None
            self._step(result, None)

    def failed(self, error: RpcError) -> None:
        if not self._over:
            self._running = None
            self._gone_on = not did_not_run(error)
            self._step(None, error)

    def cancel(self, reason: str | None) -> None:
        self._over = True
        running, self._running = self._running, None
        if running is not None:
            running.cancel(reason)
        if self._ask is not None:
            self._ask.withdraw()
        try:
            self._coroutine.close()
        except Exception as error:  # noqa: BLE001 - somebody else's code, in a `finally`
            _failed(self.name, error, hook="cancel")


class _Tasked(_ChainRun):
    """A stage that may await anything: it has a task."""

    __slots__ = ("_task",)

    def begin(self) -> Running | None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def _run(self) -> None:
        try:
            async with asyncio.timeout(_LONGEST):
                result = await self._watched(self._stage.hook(self._request, self))
        except TimeoutError as error:
            self._fail(error if self._gone_on else MiddlewareError(self.name, f"did nothing for {_LONGEST:g} s"))
        except asyncio.CancelledError as error:
            if self._over:
                raise
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - somebody else's code: whatever it raises ends this call only
            self._fail(error)
        else:
            self._finish(result)

    @types.coroutine
    def _watched(self, coroutine: Coroutine[Any, Any, Result]) -> Generator[Any, Any, Result]:
        """The coroutine, with a look at the clock around each of its steps."""
        value: object = None
        error: BaseException | None = None
        while True:
            began = time.perf_counter()
            try:
                awaited = coroutine.send(value) if error is None else coroutine.throw(error)
            except StopIteration as stop:
                return stop.value
            finally:
                if (took := time.perf_counter() - began) > _BLOCKED:
                    _say_blocked(self.name, took)
            value, error = None, None
            try:
                value = yield awaited
            except BaseException as raised:  # noqa: BLE001 - it belongs to the coroutine
                error = raised

    async def ask_caller(self, method: str, params: Params) -> bytes:
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def answer(result: bytes) -> None:
            if not answered.done():
                answered.set_result(result)

        def refuse(error: RpcError) -> None:
            if not answered.done():
                answered.set_exception(error)

        ask = ServerRequest("muxway", NEWEST_HANDSHAKE, method, params, answer=answer, refuse=refuse)
        self._sink.ask(ask)
        try:
            return await answered
        finally:
            ask.withdraw()

    async def __call__(self, request: Request, /) -> Result:
        request = self._may_go_on(request)
        waiter = _Outcome(self)
        try:
            running = start(self._stages, self._rest, request, waiter, self._last)
        except Exception as error:
            raise internal(error, method=request.method) from error
        self._running = running
        try:
            return Result(await waiter.outcome(running))
        except RpcError as error:
            self._gone_on = not did_not_run(error)
            raise

    def cancel(self, reason: str | None) -> None:
        self._over = True
        running, self._running = self._running, None
        if running is not None:
            running.cancel(reason)
        self._task.cancel()


class _Outcome(Waiter):
    """The outcome of what is further in, awaited by a tasked stage; all else passes through the stage."""

    def __init__(self, run: _Tasked) -> None:
        super().__init__()
        self._run = run

    def progress(self, params: dict[str, Buffer]) -> None:
        self._run.progress(params)

    def log(self, params: dict[str, Buffer]) -> None:
        self._run.log(params)

    def ask(self, ask: ServerRequest) -> None:
        self._run.ask(ask)


class _HeldRequest:
    """A request that waits until it is known what its caller sees."""

    def __init__(self) -> None:
        self.running: Running | None = None
        self.cancelled = False
        self.over = False

    def cancel(self, reason: str | None) -> None:
        self.cancelled = True
        if self.running is not None:
            self.running.cancel(reason)


class Chains:
    """All chains of one gateway or view: wraps what handles its requests."""

    def __init__(self, layers: Sequence[Layer], inside: Inside) -> None:
        """Put them together: the layers, the outermost first, around what answers."""
        self.layers = layers
        self._inside = inside
        self._compiled: dict[str, tuple[_Stage, ...]] = {method: compile_chain(layers, method) for method in HOOKS}
        self._other = compile_chain(layers, "")
        self._hiding = Hiding(layers, self.handle, inside)
        self._chosen: dict[tuple[str, ...], tuple[_Stage, ...]] = {}
        """A tool → what is run around its calls."""

    def handle(self, call: Call, sink: Sink) -> Running | None:
        """Start a request; see `Dispatcher.handle`."""
        stages = self._compiled.get(call.method, self._other)
        if not stages and not self._hiding.kinds:
            return self._inside.answer(call, sink)
        return self._run(stages, call, sink, self._end)

    def around(self, call: Call, sink: Sink, answer: Answer) -> Running | None:
        """Start a request that a client's side answers by itself; see `Dispatcher.around`."""
        stages = self._compiled.get(call.method, self._other)
        if not stages and not self._hiding.kinds:
            return answer(call, sink)
        return self._run(stages, call, sink, partial(self._end_at, answer))

    def _run(self, stages: tuple[_Stage, ...], call: Call, sink: Sink, end: Start) -> Running | None:
        try:
            target = self._inside.target(call)
        except StillStarting as wait:
            # Nobody can judge yet what it is about.
            return self._inside.hold(wait, partial(self._run_again, stages, end), call, sink)
        except Exception as error:  # noqa: BLE001 - whoever made the call waits for an outcome
            sink.failed(error if isinstance(error, RpcError) else internal(error, method=call.method))
            return None
        if self._hiding.kinds:
            try:
                hidden = self._hiding.refusal(call, target)
            except KeyError:
                return self._look_first(stages, call, sink, end, target)
            if hidden is not None:
                return self._refuse(Request(target.call or call, target, self._resolve), sink, hidden)
        request = Request(target.call or call, target, self._resolve)
        return start(self._for(request, stages), 0, request, sink, end)

    def _refuse(self, request: Request, sink: Sink, why: RpcError) -> Running | None:
        """Refuse a request where what it is about is hidden: who stands further out sees it as any other."""
        assert request.target.kind is not None  # noqa: S101 - what is in no list is not hidden
        outside = compile_chain(self.layers[: self._hiding.kinds[request.target.kind]], request.call.method)

        def end(request: Request, sink: Sink, ran: Sequence[_Stage]) -> None:
            del request, ran
            sink.failed(why)

        return start(_fitting(request, outside), 0, request, sink, end)

    def _look_first(
        self, stages: tuple[_Stage, ...], call: Call, sink: Sink, end: Start, target: Target
    ) -> Running | None:
        """Find out what the caller gets listed, and go on then."""
        held = _HeldRequest()

        def settled(found: set[str] | RpcError) -> None:
            if held.cancelled:
                return
            if isinstance(found, RpcError):
                sink.failed(found)
            else:
                held.running = self._run(stages, call, sink, end)
            held.over = held.running is None

        self._hiding.look(cast("Kind", target.kind), call.caller, settled)
        return None if held.over else held

    def _run_again(self, stages: tuple[_Stage, ...], end: Start, call: Call, sink: Sink) -> Running | None:
        return self._run(stages, call, sink, end)

    def _resolve(self, call: Call) -> Target:
        return self._inside.target(call, wait=False)

    def _for(self, request: Request, stages: tuple[_Stage, ...]) -> tuple[_Stage, ...]:
        """Those of the stages that are for a request; for calls of a listed tool found once and not for each call."""
        target = request.target
        if not target.definition or request.call.method != "tools/call":
            return _fitting(request, stages)
        key = target.key
        chosen = self._chosen.get(key)
        if chosen is None:
            if len(self._chosen) >= _MOST_CHOSEN:
                self._chosen.clear()
            chosen = self._chosen[key] = _fitting(request, stages)
        return chosen

    def _end(self, request: Request, sink: Sink, ran: Sequence[_Stage]) -> Running | None:
        if request.moved and (more := self._missed(request, ran)):
            return start(more, len(ran), request, sink, self._end)
        return self._inside.answer(request.call, sink, request.target)

    def _end_at(self, answer: Answer, request: Request, sink: Sink, ran: Sequence[_Stage]) -> Running | None:
        if request.moved and (more := self._missed(request, ran)):
            return start(more, len(ran), request, sink, partial(self._end_at, answer))
        return answer(request.call, sink)

    def _missed(self, request: Request, ran: Sequence[_Stage]) -> Sequence[_Stage]:
        """What ran, and after it what is for a request that a middleware made another one, and has not run yet."""
        done = {id(layer.middleware) for stage in ran for layer in stage.layers}
        fitting = _fitting(request, self._compiled.get(request.call.method, self._other))
        more = [stage for stage in fitting if done.isdisjoint(id(layer.middleware) for layer in stage.layers)]
        return [*ran, *more] if more else ()

    @property
    def takes_unlisted(self) -> bool:
        """Whether no middleware goes by names, or may leave something out of a list: then any name may pass."""
        lists = [stage for method in ("tools/list", "prompts/list") for stage in self._compiled[method]]
        return all(stage.looks for stage in lists) and all(layer.matches is None for layer in self.layers)

    def relists(self, kind: Kind) -> bool:
        """Whether any middleware may make another list of a kind."""
        return not all(stage.looks for stage in self._compiled[kind.method])

    def hides(self, kind: Kind) -> bool:
        """Whether what middleware leaves out of such a list is hidden."""
        return kind in self._hiding.kinds

    def around_any(self, targets: Iterable[Target]) -> list[Layer]:
        """The middlewares around calls of any of these, the outermost first."""
        requests = [Request(Call(LIBRARY, "tools/call", {}), target) for target in targets]
        return [layer for layer in self.layers if layer.matches is None or any(map(layer.matches, requests))]

    async def hider(self, kind: Kind, name: str, caller: Caller) -> Layer | None:
        """The middleware that takes a name out of a caller's list, the innermost one; None if none does.

        Raises:
            RpcError: a middleware fails, or refuses the list.
        """
        for number in reversed(range(len(self.layers))):
            if may_hide(self.layers[number].middleware, kind):
                # As if there were none further out.
                further_in = Chains(self.layers[number:], self._inside)
                if name not in await further_in.seen(kind, caller):
                    return self.layers[number]
        return None

    async def seen(self, kind: Kind, caller: Caller) -> set[str]:
        """What a caller gets listed of a kind. Raises RpcError."""
        heard = asyncio.get_running_loop().create_future()
        self._hiding.look(kind, caller, heard.set_result)
        found: set[str] | RpcError = await heard
        if isinstance(found, RpcError):
            raise found
        return found

    def hidden(self, kind: Kind, caller: Caller, settled: Callable[[Collection[str] | RpcError], None]) -> None:
        """Give what a caller does not get listed of a kind, or why nobody knows, to `settled`."""
        self._hiding.hidden(kind, caller, settled)

    def screen(self, server: str, caller: Caller, params: dict[str, Buffer]) -> dict[str, Buffer] | None:
        """What a server logs outside of any call, as a caller may see it; None: not at all.

        It passes all that changes notices and may stand around the server: no name says what it is about.
        """
        request = Request(Call(caller, _LOG, {}), Target(server))
        for layer in reversed(self.layers):
            if type(layer.middleware).notice is Middleware.notice or layer.server not in (None, server):
                continue
            try:
                shown = layer.middleware.notice(request, params)
            except Exception as error:  # noqa: BLE001 - somebody else's code
                _failed(layer.name, error, hook="notice")
                return None
            if shown is None:
                return None
            params = shown
        return params

    def screen_ask(self, caller: Caller, ask: ServerRequest) -> ServerRequest | None:
        """What a server asks outside of any call, as a caller may be asked; None: not at all, or not now.

        It passes all that changes questions and may stand around the server, see `screen`.
        """
        request = Request(Call(caller, ask.method, {}), Target(ask.upstream))
        passed: ServerRequest | None = ask
        for layer in reversed(self.layers):
            if passed is None:
                break
            if type(layer.middleware).ask is not Middleware.ask and layer.server in (None, ask.upstream):
                passed = _passed(layer, request, passed)
        return passed

    async def close(self) -> None:
        """Close every middleware; one that fails does not keep the others."""
        await close_layers(self.layers)


def tell_layers(layers: Iterable[Layer], hook: str, told: object) -> None:
    """Call a hook of these middlewares that only takes note, as `forget` or `task_ended`; each one once."""
    for layer in {id(layer.middleware): layer for layer in layers}.values():
        try:
            getattr(layer.middleware, hook)(told)
        except Exception as error:  # noqa: BLE001 - somebody else's code
            _failed(layer.name, error, hook=hook)


async def close_layers(layers: Iterable[Layer]) -> None:
    """Close these middlewares; one that fails does not keep the others."""
    for layer in layers:
        try:
            await layer.middleware.close()
        except Exception as error:  # noqa: BLE001 - somebody else's code
            _failed(layer.name, error, hook="close")
