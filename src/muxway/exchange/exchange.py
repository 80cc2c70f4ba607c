"""The life of a call that needs more than passing: its result is converted, its server asks, it becomes a task.

|                  | server with a handshake: asks mid-call | stateless server: ends the call with questions     |
|------------------|----------------------------------------|----------------------------------------------------|
| handshake caller | `PASS`: questions pass as they are     | `REPEAT`: asked here, then the call is made again  |
| stateless caller | `PARK`: the call waits for the answers | `SEAL_THROUGH`: passed on, the state sealed in ours |

An `Exchange` has the state, one of these strategies (strategies.py, parking.py) decides. It is the sink of what its
server says and the running call of its caller. A call between two sides that speak alike has none.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec

from muxway.calls.incidents import attempt as attempted
from muxway.calls.incidents import internal
from muxway.calls.leases import PassedTasks
from muxway.calls.ports import aside, log
from muxway.calls.server_request import ServerRequests
from muxway.calls.sinks import CONVERTED
from muxway.errors import MISSING_CAPABILITY, RpcError, UpstreamError, UpstreamSaid
from muxway.exchange.holding import ParkedCalls, own_call, size_of
from muxway.exchange.seal import LIFETIME, Claims, StateTooLarge, digest
from muxway.exchange.task_poller import poller, wants_tasks
from muxway.exchange.tasks import Tasks
from muxway.routing.target import Trace
from muxway.wire import asking, envelopes
from muxway.wire.result_types import InputRequired, TaskMade
from muxway.wire.revisions import SERVER_INFO

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.call import Call
    from muxway.calls.ports import Clock, LiveConnection, Running, Sink, Timer
    from muxway.calls.server_request import ServerRequest
    from muxway.errors import Reason
    from muxway.exchange.seal import Seal
    from muxway.exchange.tasks import Task
    from muxway.wire.envelopes import Buffer, Params
    from muxway.wire.result_types import Converter

MOST_ROUNDS: Final = 10
"""How often a server may ask in one call."""
TimerName = Literal["gathering", "expiry", "patience", "pause"]


class Way(msgspec.Struct, frozen=True):
    """How a call reaches its server, and its result the caller: what it takes to send it, and to send it again."""

    upstream: str
    head: bytes
    """`"method":…,"params":{…` up to where the call's own params follow."""
    connection: LiveConnection
    convert: Converter
    """Turns its results into the caller's spelling."""
    server_info: bytes
    idle: float
    limit: float
    large: int = CONVERTED
    """Bytes of a result from which on it is converted beside the event loop."""
    as_task: bool = False
    """Whether the server runs the call as a task, which is then seen through here."""


class Attempt(Protocol):
    """One sending of a call."""

    @property
    def waits(self) -> bool:
        """Whether it ended with questions of a task, which waits for the answers at the server."""
        ...

    def request(self, call: Call, sink: Sink) -> None:
        """Send it; its outcome goes to the sink. Raises RpcError if it cannot be sent."""
        ...

    def cancel(self, reason: str | None) -> None:
        """Nobody waits for the outcome any more."""
        ...

    def abandon(self) -> None:
        """It ended with questions that nobody will answer."""
        ...


class Sending(msgspec.Struct, eq=False):
    """One sending of a call over a connection, as it is. Implements `Attempt`. A Struct, as exchanges are."""

    way: Way
    running: Running | None = None

    @property
    def waits(self) -> bool:
        return False

    def request(self, call: Call, sink: Sink) -> None:
        way = self.way
        self.running = way.connection.request(way.head, call, sink, idle=way.idle, limit=way.limit)

    def cancel(self, reason: str | None) -> None:
        if self.running is not None:
            self.running.cancel(reason)

    def abandon(self) -> None:
        """The server has ended the call; nothing waits there."""


class Strategy:
    """What is done between a caller and a server of certain eras: here, what passes between two with a handshake.

    Without state: that is the exchange's.
    """

    repeats = False
    """Whether the gateway makes the call again by itself, so that its server may count progress anew."""
    asks_itself = False
    """Whether answers and states that come with a call are ours, and so none of the server's business."""

    def asked(self, exchange: Exchange, ask: ServerRequest) -> None:
        """The server asks something in the middle of the call."""
        exchange.sink.ask(ask)

    def input_required(self, exchange: Exchange, entries: Params | None, state: Buffer | None) -> None:
        """The server ended the call with questions; None: with something else in their place."""
        del entries, state
        exchange.fail_for("malformed", "asks for input in a way that its revision does not have")

    def task_made(self, exchange: Exchange, fields: Params) -> None:
        """The server ended the call with a task in place of a result."""
        del fields
        exchange.fail_for("malformed", "made a task of a call whose caller knows none")

    def failed(self, exchange: Exchange, error: RpcError) -> None:
        """The call failed, and its caller waits."""
        exchange.fail(error)


class Services:
    """What all exchanges of a gateway share, and what outlasts them."""

    def __init__(self, clock: Clock, seal: Seal, reach: Callable[[str, Call], Way]) -> None:
        """`reach` gives the way to a server for a request about a task, or raises why there is none."""
        self.clock = clock
        self.seal = seal
        """Another one after a reload with another key."""
        self.parked = ParkedCalls()
        self.passed = PassedTasks()
        """Tasks of stateless servers."""
        self.tasks = Tasks(self, reach)
        """Tasks of our own."""


class Exchange(msgspec.Struct, eq=False):
    """One call from its first sending to its end. A Struct, as its constructor runs for every call between eras."""

    call: Call
    """As its caller made it last."""
    way: Way
    sink: Sink
    """Where the outcome goes. Only coming back with answers and becoming a task change it."""
    strategy: Strategy
    services: Services
    round: int = 0
    """How often its caller was asked."""
    taskable: bool = False
    """Whether it may become a task: it is a tool's, and its caller knows them."""
    task: Task | None = None
    """What it has become."""
    asker: Sink | None = None
    """Of a task, the sink before that: questions still pass what stands around the call."""
    attempt: Attempt | None = None
    under_way: bool = False
    """Whether the server is at the call: one that is over must not become a task, which nothing would end."""
    sent: Call | None = None
    """As it was sent last."""
    converting: Running | None = None
    asks: ServerRequests | None = None
    """What the server asks; None if it never did."""
    timers: dict[TimerName, Timer] = {}
    leased: bool = False
    """Whether it keeps the connection in use, be a request of it under way or not."""
    reached: float = float("-inf")
    """The progress that its caller was told last, if the call is made again by itself."""
    key: str = ""
    """The name under which it is parked; empty while a caller waits for it."""
    outcome: tuple[bytes, RpcError | None] | None = None
    """How the call ended while it was parked."""
    size: int = 0
    """What it counts for while it is parked."""

    # --- sending ------------------------------------------------------------------------------

    def begin(self) -> None:
        """Send the call. Raises RpcError if it cannot be sent."""
        if self.taskable and not self.way.as_task:
            self.services.tasks.be_patient(self)
        try:
            self.send(self.call)
        except Exception:
            self.end()
            raise

    def send(self, call: Call) -> None:
        """Send the call, or send it again. Raises RpcError if it cannot be sent."""
        self.sent = call
        self.under_way = True
        way = self.way
        attempt = poller(way, self.services.clock, self._task_created) if way.as_task else Sending(way)
        self.attempt = attempt
        attempt.request(call, self)

    def again(self, call: Call) -> None:
        """Send it again; if it cannot be sent it has failed."""
        try:
            self.send(call)
        except RpcError as error:
            self.fail(error)

    def _task_created(self) -> None:
        """The server says itself that it will take long."""
        if self.taskable:
            self.services.tasks.open(self)

    def cancel(self, reason: str | None) -> None:
        """Nobody waits for it any more."""
        attempt, converting = self.attempt, self.converting
        self.end()
        self.services.parked.drop(self)
        if self.asks is not None:
            self.asks.withdraw()
        if converting is not None:
            converting.cancel(reason)
        if attempt is not None:
            attempt.abandon()
            attempt.cancel(reason)

    # --- the server says ----------------------------------------------------------------------

    def progress(self, params: dict[str, Buffer]) -> None:
        if self.strategy.repeats:
            # Each time it is called anew the server may begin to count anew; for the caller it is one call.
            progress = envelopes.number(params.get("progress"))
            if progress is None or progress <= self.reached:
                return
            self.reached = progress
        self.sink.progress(params)

    def log(self, params: dict[str, Buffer]) -> None:
        self.sink.log(params)

    def ask(self, ask: ServerRequest) -> None:
        self.strategy.asked(self, ask)

    def done(self, *result: Buffer) -> None:
        self.under_way = False
        if self.timers:
            self._stop_waiting()
        if self.key:
            self._keep(b"".join(result), None)
        else:
            self.convert(result[0] if len(result) == 1 else b"".join(result))

    def failed(self, error: RpcError) -> None:
        self.under_way = False
        if self.timers:
            self._stop_waiting()
        if self.key:
            self._keep(b"", error)
        elif not self._goes_on_as_task(error):
            self.strategy.failed(self, error)

    def _stop_waiting(self) -> None:
        """The server is not at it any more: no question comes to those that wait, nor need its caller be patient."""
        self.stop("gathering")
        self.stop("patience")

    def convert(self, result: Buffer) -> None:
        """Put the result in the caller's words, beside the event loop if it is large, and go on with it."""
        work = partial(self.way.convert, result)
        if memoryview(result).nbytes > self.way.large:
            # Nobody is above it then who hears what goes wrong.
            self.converting = aside(work, lambda outcome: attempted(self.fail, partial(self._converted, outcome)))
        else:
            self._converted(work)

    def _converted(self, outcome: Callable[[], Buffer]) -> None:
        self.converting = None
        try:
            converted = outcome()
        except TaskMade as made:
            self.strategy.task_made(self, made.fields)
        except InputRequired as question:
            if self.call.method in asking.REPEATABLE:
                self.strategy.input_required(self, question.entries, question.state)
            else:
                self.fail_for("malformed", "asks for input in a way that its revision does not have")
        else:
            self.finish(converted)

    def _goes_on_as_task(self, error: RpcError) -> bool:
        """Whether the server runs the call only as a task: then it is made again, and the task seen through here."""
        way = self.way
        if error.code != MISSING_CAPABILITY or way.as_task or self.sent is None or self.call.method != "tools/call":
            return False
        if not way.connection.revision.stateless or not wants_tasks(error):
            return False
        self.way = msgspec.structs.replace(way, as_task=True)
        self.again(self.sent)
        return True

    def _keep(self, result: bytes, error: RpcError | None) -> None:
        """The outcome of a parked call, until its caller comes back."""
        self.outcome = result, error
        self.attempt = None
        if self.asks is not None:
            self.asks.clear()
        if not self.fits():
            log.warning("too much to keep; the outcome of a parked call is dropped", upstream=self.way.upstream)
            why = "answered while the client was away, and too much waits for clients; the call has run"
            self.outcome = b"", self.error("too_large", why)
            self.fits()

    # --- the end ------------------------------------------------------------------------------

    def finish(self, *result: Buffer) -> None:
        """The caller gets its result."""
        self.end()
        self.sink.done(*result)

    def fail(self, error: RpcError) -> None:
        """The caller gets an error; nobody answers what the server may have asked."""
        if self.attempt is not None:
            self.attempt.abandon()
        self.end()
        self.sink.failed(error)

    def fail_for(self, reason: Reason, what: str) -> None:
        """It fails for what its server did."""
        self.fail(self.error(reason, what))

    def error(self, reason: Reason, what: str) -> UpstreamError:
        """What its server did, as an error."""
        return UpstreamError(self.way.upstream, reason, f'server "{self.way.upstream}" {what}')

    def end(self) -> None:
        """It is over: no timer rings any more, and the connection is not kept in use for it."""
        # The server's request holds us as we hold it: without this, each call would be left to the garbage collector.
        self.attempt = self.converting = None
        self.under_way = False
        if self.timers:
            for timer in self.timers.values():
                timer.cancel()
            self.timers.clear()
        if self.asks is not None:
            self.asks.on_settled = None
        if self.leased:
            self.lease(held=False)

    # --- what strategies use ------------------------------------------------------------------

    def asking(self) -> ServerRequests:
        """What the server asks."""
        if self.asks is None:
            self.asks = ServerRequests()
        return self.asks

    def read_questions(self, entries: Params, settled: Callable[[Exchange], None]) -> None:
        """Questions of a result: on their way to the caller, through what stands around the call, they get settled.

        Raises:
            RpcError: this caller cannot be asked them.
        """
        # The call is not over, though no request of it is under way at the server for a while.
        self.lease(held=True)
        asks = self.asking()
        asks.on_settled = partial(settled, self)
        asks.read(self.way.upstream, self.way.connection, self.call.caller, entries)
        asks.put(self.asker or self.sink)

    def end_with_questions(
        self,
        kind: Literal["park", "wrap", "url"],
        state: str | None,
        entries: dict[str, Buffer],
        answers: bytes = b"",
    ) -> None:
        """Answer the caller with questions and a sealed state, to make the call again with.

        Raises:
            StateTooLarge: the state cannot be sealed; nobody is answered.
        """
        way, services, principal = self.way, self.services, self.call.caller.principal
        expires = services.clock.now() + LIFETIME
        told = digest(self.call)
        claims = Claims(kind, expires, principal, told, way.upstream, way.head, self.round, state, answers)
        sealed = services.seal.close(claims)
        if self.attempt is not None and self.attempt.waits:
            # The answers are for the process that has the task, whichever takes new calls by then.
            services.passed.add(sealed, principal, way.connection, LIFETIME)
        parts = [b'{"resultType":"input_required",']
        if entries:
            parts += (b'"inputRequests":', envelopes.object_of(entries.items()), b",")
        meta = envelopes.object_of([(SERVER_INFO, way.server_info)])
        parts += (b'"requestState":', envelopes.encode(sealed), b',"_meta":', meta, b"}")
        self.sink.done(*parts)

    def ask_caller(self, kind: Literal["wrap", "url"], state: str | None, answers: bytes = b"") -> None:
        """End the call with what has to be asked: the caller makes it anew, with the answers."""
        entries = {} if self.asks is None else self.asks.entries
        try:
            self.end_with_questions(kind, state, entries, answers)
        except StateTooLarge:
            self.fail_for("too_large", "asks with a state that is too large to be passed on")
        else:
            self.end()

    def lease(self, *, held: bool) -> None:
        """Keep the connection in use, or no more: the call is under way there, though perhaps no request of it is."""
        if held != self.leased:
            self.leased = held
            leases = self.way.connection.leases
            leases.take() if held else leases.give_back()

    def start(self, timer: TimerName, seconds: float, do: Callable[[Exchange], None]) -> None:
        """Do something with it after a while, unless this timer is stopped or started again before."""
        self.stop(timer)
        self.timers[timer] = self.services.clock.later(seconds, self._ring, timer, do)

    def stop(self, timer: TimerName) -> None:
        """It need not be done any more."""
        running = self.timers.pop(timer, None)
        if running is not None:
            running.cancel()

    def _ring(self, timer: TimerName, do: Callable[[Exchange], None]) -> None:
        self.timers.pop(timer, None)
        try:
            do(self)
        except Exception as error:  # noqa: BLE001 - nobody is above a timer who hears what goes wrong
            self.fall(internal(error))

    def fall(self, error: RpcError) -> None:
        """Something went wrong here: the server is told that nobody waits, the caller that it failed."""
        if self.asks is not None:
            self.asks.give_up("the question could not be put")
        self.cancel("the question could not be put")
        self.sink.failed(error)

    # --- what is kept of it -------------------------------------------------------------------

    def settle_down(self) -> int:
        """It may outlast its caller's request by long: keep nothing of that but the call. Returns its size."""
        self.call = self.sent = own_call(self.call)
        return self.weight

    @property
    def weight(self) -> int:
        """Bytes of what is kept of it: its call, its questions, its outcome."""
        size = size_of(self.call)
        if self.asks is not None:
            size += self.asks.size
        if self.outcome is not None:
            result, error = self.outcome
            size += len(result) + (len(error.raw) if isinstance(error, UpstreamSaid) else 0)
        return size

    def fits(self) -> bool:
        """Count what is kept of it now, if anything is; whether that is not too much."""
        if self.task is not None:
            return self.services.tasks.resize(self.task, self.weight)
        return not self.key or self.services.parked.resize(self, self.weight)

    @property
    def trace(self) -> Trace:
        """What is remembered of the call."""
        return Trace(self.way.upstream, envelopes.text(self.call.params.get("name")) or "", self.way.head)
