"""Calls that cross from one era to the other, or from stateless to stateless: what becomes of questions on the way.

|                  | upstream with a handshake: asks mid-call      | stateless upstream: ends the call with questions  |
|------------------|-----------------------------------------------|---------------------------------------------------|
| handshake caller | passed on as they are (no class here)         | `Asking`: asked here, then the call is made again |
| stateless caller | `Parking`: the call waits for the answers     | `Wrapping`: passed on, the state sealed in ours   |

Each is the sink of the upstream's call and the running call of the door. A call that asks nothing pays for none of it.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from muxway.calls.incidents import attempt
from muxway.calls.leases import PassedTasks
from muxway.calls.ports import aside, clock, later, log
from muxway.calls.server_request import ServerRequest
from muxway.calls.sinks import CONVERTED, Nobody, Passing, is_large
from muxway.errors import (
    MISSING_CAPABILITY,
    URL_ELICITATION_REQUIRED,
    InvalidParams,
    RpcError,
    UpstreamError,
    UpstreamSaid,
)
from muxway.exchange.holding import Holding, own_call, size_of
from muxway.exchange.questions import Questions
from muxway.exchange.seal import INVALID, LIFETIME, Claims, Seal, StateTooLarge, digest
from muxway.exchange.task_poller import TaskPoller, is_task_state, wants_tasks
from muxway.routing.target import Trace
from muxway.wire import asking, envelopes
from muxway.wire.asking import BadAnswer
from muxway.wire.result_types import InputRequired, TaskMade
from muxway.wire.revisions import SERVER_INFO

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.call import Call
    from muxway.calls.ports import LiveConnection, Running, Sink, Timer
    from muxway.wire.envelopes import Buffer, Params
    from muxway.wire.result_types import Converter

_MOST_ROUNDS: Final = 10
_GATHERING: Final = 0.02
"""Seconds to wait for further questions of one call before the caller is asked them all at once."""
_PAUSES: Final = (0.05, 0.1, 0.2, 0.25)
"""Seconds before a call is made again that an upstream put off without a question."""
_FULL: Final = "too many calls wait for answers; try again later"
_RETRY_KEYS: Final = frozenset(("inputResponses", "requestState"))


class Way(msgspec.Struct, frozen=True):
    """How to reach an upstream: what is needed to send it a call, and to send it again."""

    upstream: str
    link: LiveConnection
    convert: Converter
    """Turns its results into the caller's spelling."""
    server_info: bytes
    idle: float
    limit: float
    large: int = CONVERTED
    """Bytes of a result from which on it is converted beside the event loop."""


class Desk:
    """What the calls that ask have in common: the seal, and those that are parked."""

    def __init__(self, seal: Seal) -> None:
        self.seal = seal
        self.passed = PassedTasks()
        self.parked: dict[str, Parking] = {}
        self.holding = Holding()

    def close(self) -> None:
        """The gateway has stopped: nobody comes back."""
        parked, self.parked = list(self.parked.values()), {}
        for call in parked:
            call.forget()


class Crossing(Passing):
    """A call whose result is put in the caller's spelling."""

    __slots__ = ("_call", "_head", "_running", "_sent", "_way")

    def __init__(self, sink: Sink, way: Way, head: bytes, call: Call) -> None:
        super().__init__(sink)
        self._way = way
        self._head = head
        self._call = call
        self._sent = call
        self._running: Running | None = None

    def begin(self) -> None:
        """Send the call."""
        self._send(self._call)

    def _send(self, call: Call) -> None:
        way = self._way
        self._sent = call
        self._running = way.link.request(self._head, call, self, idle=way.idle, limit=way.limit)

    def cancel(self, reason: str | None) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.cancel(reason)

    def done(self, *result: Buffer) -> None:
        work = partial(self._way.convert, result[0] if len(result) == 1 else b"".join(result))
        if is_large(self._way.large, *result):
            # Nobody is above it then who hears what goes wrong.
            self._running = aside(work, lambda outcome: attempt(self._sink.failed, partial(self._converted, outcome)))
        else:
            self._converted(work)

    def _converted(self, outcome: Callable[[], Buffer]) -> None:
        self._running = None
        try:
            converted = outcome()
        except TaskMade as made:
            self.became_task(made.fields)
        except InputRequired as question:
            if self._call.method in asking.REPEATABLE:
                self.questioned(question.entries, question.state)
            else:
                Crossing.questioned(self, question.entries, question.state)
        else:
            self._sink.done(converted)

    def failed(self, error: RpcError) -> None:
        self._running = None
        if not self._goes_on_as_task(error):
            self._sink.failed(error)

    def _goes_on_as_task(self, error: RpcError) -> bool:
        """Whether the upstream runs the call only as a task: then it is made again, and the task seen through here."""
        way = self._way
        if error.code != MISSING_CAPABILITY or isinstance(way.link, TaskPoller) or not wants_tasks(error):
            return False
        if self._call.method != "tools/call":
            return False
        self._way = msgspec.structs.replace(way, link=TaskPoller(way.upstream, way.link))
        try:
            self._send(self._sent)
        except RpcError as trouble:
            self._sink.failed(trouble)
        return True

    def _leave_task(self) -> None:
        """If a task at the upstream waits for answers, there will be none."""
        if isinstance(self._way.link, TaskPoller):
            self._way.link.abandon()

    def became_task(self, fields: Params) -> None:
        """The upstream made a task of the call."""
        del fields
        why = f'server "{self._way.upstream}" made a task of a call whose caller knows none'
        self._sink.failed(UpstreamError(self._way.upstream, "malformed", why))

    def questioned(self, entries: Params | None, state: Buffer | None) -> None:
        """The upstream ended the call with questions."""
        del entries, state
        why = f'server "{self._way.upstream}" asks for input in a way that its revision does not have'
        self._sink.failed(UpstreamError(self._way.upstream, "malformed", why))


class Asking(Crossing):
    """A handshake caller's call to a stateless upstream: the caller is asked, then the upstream is called again."""

    __slots__ = ("_answers", "_leased", "_open", "_progress", "_rounds", "_state", "_timer")

    def __init__(self, sink: Sink, way: Way, head: bytes, call: Call) -> None:
        if not _RETRY_KEYS.isdisjoint(call.params):
            call = _without_retry(call)
        super().__init__(sink, way, head, call)
        self._rounds = 0
        self._open: dict[str, ServerRequest] = {}
        self._answers: dict[str, Buffer] = {}
        self._state: Buffer | None = None
        self._progress = float("-inf")
        self._timer: Timer | None = None
        self._leased = False

    def _lease(self, *, held: bool) -> None:
        """While the caller is asked the call is under way at the upstream, though no request of it is."""
        if held != self._leased:
            self._leased = held
            leases = self._way.link.leases
            leases.take() if held else leases.give_back()

    def cancel(self, reason: str | None) -> None:
        self._lease(held=False)
        if self._timer is not None:
            self._timer.cancel()
        self._withdraw()
        super().cancel(reason)

    def progress(self, params: dict[str, Buffer]) -> None:
        # Each time it is called anew the upstream may begin to count anew; for the caller it is one call.
        progress = envelopes.number(params.get("progress"))
        if progress is not None and progress > self._progress:
            self._progress = progress
            self._sink.progress(params)

    def failed(self, error: RpcError) -> None:
        self._running = None
        self._lease(held=False)
        if self._goes_on_as_task(error):
            return
        if error.code == MISSING_CAPABILITY:
            # Only a stateless caller could do something about it; here, the user has to read it.
            needs = ", ".join(_needs(error)) or "a capability"
            why = f'server "{self._way.upstream}" needs what this client does not offer ({needs})'
            self._fail(f"{why}: {error.message}")
        else:
            super().failed(error)

    def questioned(self, entries: Params | None, state: Buffer | None) -> None:
        self._rounds += 1
        self._state, self._answers = state, {}
        if self._rounds > _MOST_ROUNDS:
            self._fail(f'server "{self._way.upstream}" asked for input {_MOST_ROUNDS} times and still asks')
        elif entries is not None and len(entries) > asking.MOST_OPEN:
            self._fail(f'server "{self._way.upstream}" asked more than {asking.MOST_OPEN} questions at once')
        elif entries is None or (not entries and self._state is None):
            super().questioned(entries, state)
        elif not entries:
            pause = _PAUSES[min(self._rounds, len(_PAUSES)) - 1]
            self._lease(held=True)
            self._timer = later(pause, attempt, self.failed, self._again)
        else:
            self._lease(held=True)
            self._put(entries)

    def _put(self, entries: Params) -> None:
        way = self._way
        for key, raw in entries.items():
            entry = envelopes.members(raw) or {}
            method = envelopes.text(entry.get("method")) or ""
            answer, refuse = partial(self._answered, key), partial(self._refused, key, method)
            params = envelopes.members(entry.get("params", b"{}")) or {}
            self._open[key] = ServerRequest(
                way.upstream,
                way.link.revision,
                method,
                params,
                answer=answer,
                refuse=refuse,
                label=way.link.label,
            )
        caller = self._call.caller
        for ask in self._open.values():
            unfit = asking.refusal(caller.capabilities, caller.revision, ask.method, ask.params)
            if unfit is not None:
                self._open = {}
                self._fail(
                    f'server "{way.upstream}" asks for what it was told this client cannot give: {unfit.message}'
                )
                return
        for ask in list(self._open.values()):
            if ask.open:
                self._sink.ask(ask)

    def _answered(self, key: str, answer: bytes) -> None:
        self._open.pop(key, None)
        self._answers[key] = answer
        if not self._open:
            self._again()

    def _refused(self, key: str, method: str, error: RpcError) -> None:
        if method == asking.ELICIT:
            self._answered(key, asking.CANCELLED)
            return
        # There is no word for "no" in an answer to a stateless server, so the call ends here.
        self._open.pop(key, None)
        self._withdraw()
        self._fail(f'server "{self._way.upstream}" asked for {method} and the client refused: {error.message}', error)

    def _withdraw(self) -> None:
        asks, self._open = list(self._open.values()), {}
        for ask in asks:
            ask.withdraw()
        self._leave_task()

    def _again(self) -> None:
        self._timer = None
        params: dict[str, Any] = dict(self._call.params)
        if self._answers:
            params["inputResponses"] = msgspec.Raw(envelopes.object_of(self._answers.items()))
        if self._state is not None:
            params["requestState"] = self._state
        try:
            self._send(msgspec.structs.replace(self._call, params=params))
        except RpcError as error:
            super().failed(error)
        finally:
            self._lease(held=False)

    def _fail(self, why: str, error: RpcError | None = None) -> None:
        self._lease(held=False)
        self._leave_task()
        if self._call.method == "tools/call":
            content = [{"type": "text", "text": why}]
            self._sink.done(envelopes.encode({"content": content, "isError": True}))
        else:
            self._sink.failed(error or UpstreamError(self._way.upstream, "unsupported", why))


class _Sealing(Crossing):
    """A stateless caller's call: questions end it, and the caller makes it again with a sealed state."""

    __slots__ = ("_desk", "_round")

    def __init__(self, sink: Sink, way: Way, head: bytes, call: Call, desk: Desk, round_: int = 0) -> None:
        super().__init__(sink, way, head, call)
        self._desk = desk
        self._round: int = round_

    def _end_with_questions(self, sink: Sink, claims: Claims, entries: Params | dict[str, Buffer]) -> bool:
        try:
            state = self._desk.seal.close(claims)
        except StateTooLarge:
            why = f'server "{self._way.upstream}" asks with a state that is too large to be passed on'
            sink.failed(UpstreamError(self._way.upstream, "too_large", why))
            return False
        link = self._way.link
        if isinstance(link, TaskPoller) and claims.kind == "wrap" and is_task_state(claims.state):
            # The answers are for the process that has the task, whichever takes new calls by then.
            self._desk.passed.add(state, claims.principal, link.link, LIFETIME)
        parts = [b'{"resultType":"input_required",']
        if entries:
            parts += (b'"inputRequests":', envelopes.object_of(entries.items()), b",")
        meta = envelopes.object_of([(SERVER_INFO, self._way.server_info)])
        parts += (b'"requestState":', envelopes.encode(state), b',"_meta":', meta, b"}")
        sink.done(*parts)
        return True

    def _claims(self, kind: Any, state: str | None) -> Claims:
        caller = self._call.caller
        expires = clock() + LIFETIME
        upstream = self._way.upstream
        return Claims(kind, expires, caller.principal, digest(self._call), upstream, self._head, self._round, state)


class Wrapping(_Sealing):
    """A stateless caller's call to a stateless upstream."""

    __slots__ = ()

    def questioned(self, entries: Params | None, state: Buffer | None) -> None:
        if self._round >= _MOST_ROUNDS:
            self._leave_task()
            why = f'server "{self._way.upstream}" asked for input {_MOST_ROUNDS} times and still asks'
            self._sink.failed(UpstreamError(self._way.upstream, "unsupported", why))
            return
        if entries is None or (not entries and state is None):
            super().questioned(entries, state)
            return
        upstream, link = self._way.upstream, self._way.link
        try:
            self._running = questions = Questions(upstream, link, self._call, entries, partial(self._asked, state))
        except RpcError as error:
            why = f'server "{upstream}" asks for what it was told this caller cannot give: {error.message}'
            self._sink.failed(UpstreamError(upstream, "unsupported", why))
            return
        questions.put(self._sink)

    def _asked(self, state: Buffer | None, questions: Questions) -> None:
        """The questions have passed what stands around the call."""
        self._running = None
        answers = envelopes.object_of(questions.answers.items())
        if questions.refusal:
            self._leave_task()
            why = f'server "{self._way.upstream}" asked, and {questions.refusal}'
            self._sink.failed(UpstreamError(self._way.upstream, "unsupported", why))
        elif questions.worded or not questions.answers:
            claims = self._claims("wrap", None if state is None else envelopes.text(state))
            kept = answers if questions.answers else b""
            self._end_with_questions(self._sink, msgspec.structs.replace(claims, answers=kept), questions.worded)
        else:
            self._again(state, answers)

    def _again(self, state: Buffer | None, answers: bytes) -> None:
        """Nothing is left to ask the caller."""
        self._round += 1
        params: dict[str, Any] = {name: raw for name, raw in self._call.params.items() if name not in _RETRY_KEYS}
        params["inputResponses"] = msgspec.Raw(answers)
        if state is not None:
            params["requestState"] = state
        try:
            self._send(msgspec.structs.replace(self._call, params=params))
        except RpcError as error:
            self._sink.failed(error)

    def became_task(self, fields: Params) -> None:
        native = envelopes.text(fields.get("taskId"))
        caller = self._call.caller
        known = self._call.method == "tools/call" and asking.knows_tasks(caller.capabilities, caller.revision)
        if native is None or not known:
            super().became_task(fields)
            return
        try:
            tool = envelopes.text(self._call.params.get("name")) or ""
            name = self._desk.seal.name_task(caller, Trace(self._way.upstream, tool, self._head, native))
        except StateTooLarge:
            super().became_task(fields)
            return
        ttl = envelopes.number(fields.get("ttlMs"))
        lifetime = LIFETIME if ttl is None else max(ttl / 1000, 0.0)
        self._desk.passed.add(name, caller.principal, self._way.link, lifetime)
        meta: dict[str, Buffer] = {**(envelopes.members(fields.get("_meta", b"")) or {})}
        meta[SERVER_INFO] = self._way.server_info
        task: dict[str, Buffer] = {**fields, "taskId": envelopes.encode(name)}
        task["_meta"] = envelopes.object_of(meta.items())
        self._sink.done(envelopes.object_of(task.items()))


class Parking(_Sealing):
    """A stateless caller's call to a handshake upstream: while the caller gathers answers the call waits here."""

    __slots__ = (
        "_asked",
        "_expiry",
        "_gathering",
        "_key",
        "_late",
        "_outcome",
        "_pending",
        "_refused",
        "_size",
        "principal",
    )

    def __init__(self, sink: Sink, way: Way, head: bytes, call: Call, desk: Desk, round_: int = 0) -> None:
        if not _RETRY_KEYS.isdisjoint(call.params) or "task" in call.params:
            call = _without_retry(call)
        super().__init__(sink, way, head, call, desk, round_)
        self.principal = call.caller.principal
        self._asked = 0
        self._pending: dict[str, tuple[ServerRequest, bytes]] = {}
        """Key → the question and how it is put, until it has its answer."""
        self._late: dict[ServerRequest, None] = {}
        """Questions that came while it was parked."""
        self._refused: dict[str, Any] = {}
        """Capabilities the caller would have needed."""
        self._gathering: Timer | None = None
        self._expiry: Timer | None = None
        self._key = ""
        """The name under which it is parked; empty while a caller waits for it."""
        self._outcome: tuple[tuple[Buffer, ...], RpcError | None] | None = None
        """How the call ended while it was parked."""
        self._size = 0
        """What it counts for while it is parked."""

    # --- the upstream asks --------------------------------------------------------------------

    def ask(self, ask: ServerRequest) -> None:
        if self._call.method not in asking.REPEATABLE:
            # It could never be made again with the answers.
            ask.refuse(InvalidParams(f"{ask.method}: {self._call.method} cannot ask a stateless caller"))
            return
        if self._key:
            # Whoever would see it is not there; the caller is asked when it comes back with the answers to the others.
            self._late[ask] = None
            ask.on_withdrawn = partial(self._drop_late, ask)
            if not self._fits():
                self._drop_late(ask)
                ask.refuse(RpcError(_FULL))
            return
        # To the door and back: what stands around the call sees each question, however its caller is asked.
        ask.park = self._put
        self._asker.ask(ask)

    @property
    def _asker(self) -> Sink:
        """What questions pass on their way to the caller."""
        return self._sink

    def _put(self, ask: ServerRequest) -> None:
        try:
            params = ask.worded(self._call.caller)
        except RpcError as error:
            self._refused |= asking.required(ask.method, ask.params)
            ask.refuse(error)
            return
        self._asked += 1
        key = f"q{self._asked}"
        entry: dict[str, Buffer] = {"method": envelopes.encode(ask.method)}
        if params is not None:
            entry["params"] = params
        self._pending[key] = (ask, envelopes.object_of(entry.items()))
        ask.on_withdrawn = partial(self._drop, key)
        if not self._fits():
            self._drop(key)
            ask.refuse(RpcError(_FULL))
        elif not self._key and self._gathering is None:
            self._gathering = later(_GATHERING, attempt, self._fall, self._park)

    def _drop(self, key: str) -> None:
        self._pending.pop(key, None)
        self._fits()

    def _drop_late(self, ask: ServerRequest) -> None:
        self._late.pop(ask, None)
        self._fits()

    @property
    def _weight(self) -> int:
        """Bytes of what is kept of it: its call, its questions, its outcome."""
        size = size_of(self._call) + sum(len(entry) for _, entry in self._pending.values())
        size += sum(memoryview(raw).nbytes for ask in self._late for raw in ask.params.values())
        if self._outcome is not None:
            result, error = self._outcome
            size += sum(memoryview(piece).nbytes for piece in result)
            size += len(error.raw) if isinstance(error, UpstreamSaid) else 0
        return size

    def _fits(self) -> bool:
        """Count what is kept of it now, if it is parked; whether that is not too much."""
        if self._key not in self._desk.parked:
            return True
        size = self._weight
        self._desk.holding.resize(self.principal, size, self._size)
        self._size = size
        return not self._desk.holding.is_over(self.principal)

    def _park(self) -> None:
        self._gathering = None
        if not self._pending or self._key:
            return
        self._round += 1
        if self._round > _MOST_ROUNDS:
            self._refuse_pending(f"no call may ask more than {_MOST_ROUNDS} times")
            return
        # Only here, where it is parked: of calls that are made all at once each would find room before that.
        self._call = self._sent = own_call(self._call)
        entries: dict[str, Buffer] = {key: entry for key, (_, entry) in self._pending.items()}
        size = self._weight
        if not self._desk.holding.has_room(self.principal, size):
            log.warning("too many parked calls; a question was refused", upstream=self._way.upstream)
            self._refuse_pending(_FULL)
            return
        self._key = secrets.token_urlsafe(16)
        if not self._end_with_questions(self._sink, self._claims("park", self._key), entries):
            self._give_up("the questions are too large")
            return
        # Nothing is kept of the request that has been answered now.
        self._sink = Nobody()
        self._size = size
        self._desk.holding.take(self.principal, size)
        self._desk.parked[self._key] = self
        self._expiry = later(LIFETIME, self._give_up, "nobody answered in time")

    def _fall(self, error: RpcError) -> None:
        """The caller cannot be asked, nor come back."""
        sink, self._key = self._sink, ""
        self._give_up("the question could not be put")
        sink.failed(error)

    def _refuse_pending(self, why: str) -> None:
        pending, self._pending = list(self._pending.values()), {}
        for ask, _ in pending:
            ask.refuse(RpcError(why))

    def _unpark(self) -> None:
        if self._desk.parked.pop(self._key, None) is not None:
            self._desk.holding.give_back(self.principal, self._size)

    def _give_up(self, why: str) -> None:
        """The caller has not come back."""
        self._unpark()
        open_ = [*(ask for ask, _ in self._pending.values()), *self._late]
        self._pending, self._late = {}, {}
        for ask in open_:
            ask.give_up(RpcError(why))
        super().cancel(why)

    def forget(self) -> None:
        """Nobody comes back, and the upstream is gone: nothing is left to do."""
        if self._expiry is not None:
            self._expiry.cancel()

    # --- the caller comes back ----------------------------------------------------------------

    def resume(self, call: Call, claims: Claims, sink: Sink) -> Running | None:
        """The caller makes the call again, with answers.

        Raises:
            InvalidParams: it answers questions of an earlier round, or answers wrongly.
        """
        if claims.round != self._round:
            raise InvalidParams(INVALID)
        answers = envelopes.members(call.params.get("inputResponses", b"{}"))
        if answers is None:
            raise InvalidParams("params.inputResponses must be an object: key → answer")
        given: dict[str, bytes] = {}
        wrong = ""
        for key, (ask, _) in self._pending.items():
            raw = answers.get(key)
            if raw is not None and not envelopes.is_null(raw):
                try:
                    given[key] = ask.check(raw)
                except BadAnswer as error:
                    if not envelopes.is_object(raw):
                        raise InvalidParams(error.message) from None
                    # It is asked again: a user may have left something out.
                    wrong = error.message
        self._unpark()
        self._key = ""
        if self._expiry is not None:
            self._expiry.cancel()
        self._call = call if _RETRY_KEYS.isdisjoint(call.params) else _without_retry(call)
        self._sink = sink
        if wrong:
            log.info("an answer did not fit; asking again", upstream=self._way.upstream, why=wrong)
        for key, answer in given.items():
            ask, _ = self._pending.pop(key)
            ask.answer(answer)
        if self._outcome is not None:
            self._deliver(*self._outcome)
            return None
        late, self._late = self._late, {}
        for ask in late:
            ask.on_withdrawn = None
            self.ask(ask)
        if self._pending:
            # What is missing is asked again, at once.
            self._park()
        return None if self._key else self

    # --- the upstream goes on -----------------------------------------------------------------

    def cancel(self, reason: str | None) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
        super().cancel(reason)

    def done(self, *result: Buffer) -> None:
        self._end(result, None)

    def failed(self, error: RpcError) -> None:
        self._end((), error)

    def _end(self, result: tuple[Buffer, ...], error: RpcError | None) -> None:
        self._running = None
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        if self._key:
            # Copied, as a piece of what was received would keep all of that in memory.
            self._outcome = ((b"".join(result),), error)
            self._pending.clear()
            self._late.clear()
            if not self._fits():
                log.warning("too much to keep; the outcome of a parked call is dropped", upstream=self._way.upstream)
                why = (
                    f'server "{self._way.upstream}" answered while the client was away, and too much waits for clients'
                )
                self._outcome = ((), UpstreamError(self._way.upstream, "too_large", f"{why}; the call has run"))
                self._fits()
        else:
            self._deliver(result, error)

    def _deliver(self, result: tuple[Buffer, ...], error: RpcError | None) -> None:
        if error is None:
            super().done(*result)
        elif error.code == URL_ELICITATION_REQUIRED and isinstance(error, UpstreamSaid):
            self._send_to_pages(error)
        elif self._refused and isinstance(error, UpstreamSaid):
            # The upstream failed after it was told that the caller has no answer for it: that is what to mend.
            data = {"requiredCapabilities": self._refused}
            self._sink.failed(RpcError(error.message, code=MISSING_CAPABILITY, data=data))
        else:
            self._sink.failed(error)

    def _send_to_pages(self, error: UpstreamSaid) -> None:
        """The upstream wants the user to visit web pages first, and to be called anew after that."""
        # Where the data is large it was not read, and nobody visits so many pages.
        said = {} if error.data is None else envelopes.members(error.raw) or {}
        listed = (envelopes.members(said.get("data", b"{}")) or {}).get("elicitations", b"[]")
        pages: Params = {}
        method = envelopes.encode(asking.ELICIT)
        for number, raw in enumerate((envelopes.items(listed) or [])[: asking.MOST_OPEN], 1):
            params: dict[str, Buffer] = {"mode": b'"url"', **(envelopes.members(raw) or {})}
            entry: dict[str, Buffer] = {"method": method, "params": envelopes.object_of(params.items())}
            pages[f"page{number}"] = msgspec.Raw(envelopes.object_of(entry.items()))
        self._round += 1
        if not pages or self._round > _MOST_ROUNDS:
            self._sink.failed(error)
            return
        try:
            self._running = questions = Questions(
                self._way.upstream, self._way.link, self._call, pages, self._pages_asked
            )
        except RpcError:
            data = {"requiredCapabilities": asking.required(asking.ELICIT, {"mode": msgspec.Raw(b'"url"')})}
            self._sink.failed(RpcError(error.message, code=MISSING_CAPABILITY, data=data))
        else:
            questions.put(self._asker)

    def _pages_asked(self, questions: Questions) -> None:
        """The pages have passed what stands around the call."""
        self._running = None
        if questions.answers and not agreed(questions.answers):
            self._sink.failed(declined(self._way.upstream))
        elif questions.worded:
            # The call that is then made anew must be made in the same way.
            way = "task" if isinstance(self._way.link, TaskPoller) else None
            self._end_with_questions(self._sink, self._claims("url", way), questions.worded)
        else:
            self._call_anew()

    def _call_anew(self) -> None:
        """The user has been where the upstream wanted."""
        try:
            self._send(self._call)
        except RpcError as error:
            self._sink.failed(error)

    def progress(self, params: dict[str, Buffer]) -> None:
        if not self._key:
            super().progress(params)

    def log(self, params: dict[str, Buffer]) -> None:
        if not self._key:
            super().log(params)


def agreed(answers: Params | dict[str, Buffer]) -> bool:
    """Whether the user agreed to visit every page that was asked for."""
    actions = [envelopes.text((envelopes.members(raw) or {}).get("action")) for raw in answers.values()]
    return bool(actions) and all(action == "accept" for action in actions)


def declined(upstream: str) -> InvalidParams:
    """What a call fails with whose user did not agree."""
    return InvalidParams(f'server "{upstream}" needs the user to visit a page first, who declined')


def _needs(error: RpcError) -> list[str]:
    """The capabilities that an upstream says are missing."""
    data: object = error.data
    needed = cast("dict[str, object]", data).get("requiredCapabilities") if isinstance(data, dict) else None
    return list(cast("dict[str, object]", needed)) if isinstance(needed, dict) else []


def _without_retry(call: Call) -> Call:
    """The call without what only the gateway, or only another era, understands."""
    params = {name: raw for name, raw in call.params.items() if name not in _RETRY_KEYS and name != "task"}
    return msgspec.structs.replace(call, params=params)
