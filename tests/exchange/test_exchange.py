"""The life of a call between eras, in every cell, without an event loop: time passes when a test says so."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec import Raw

from muxway.calls.call import Call, Caller
from muxway.calls.server_request import ServerRequest
from muxway.catalog.naming import Naming
from muxway.errors import InvalidParams, RpcError, UpstreamError, UpstreamSaid
from muxway.exchange import holding
from muxway.exchange.exchange import MOST_ROUNDS
from muxway.exchange.forwarding import Forwarder
from muxway.exchange.runtime import Runtime
from muxway.exchange.seal import INVALID, LIFETIME
from muxway.exchange.tasks import KEPT, PATIENCE
from muxway.routing.snapshot import Settings
from muxway.routing.target import Target
from muxway.wire.revisions import NEWEST, NEWEST_HANDSHAKE

from .faking import FakeClock, FakeLink, Heard, Sent, member

if TYPE_CHECKING:
    from muxway.calls.ports import Running
    from muxway.wire.envelopes import Buffer

ERAS = {"handshake": NEWEST_HANDSHAKE, "stateless": NEWEST}
CELLS = [(caller, server) for caller in ERAS for server in ERAS]
CAN: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}}
KNOWS_TASKS = {**CAN, "extensions": {"io.modelcontextprotocol/tasks": {}}}
FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
YES = {"action": "accept", "content": {}}
HEAD = b'"method":"tools/call","params":{"name":"native"'
RESULT = b'{"content":[]}'
ENTRY = {"sure": {"method": "elicitation/create", "params": FORM}}


def raw(value: object) -> Raw:
    """A value as it stands in a message."""
    return Raw(json.dumps(value).encode())


class Client(Heard):
    """A caller's sink. A stateless one shows questions to whoever parks them, the other keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[ServerRequest] = []
        self.logged = 0

    def log(self, params: dict[str, Buffer]) -> None:
        """The server logs something."""
        del params
        self.logged += 1

    def ask(self, ask: ServerRequest) -> None:
        """The server asks something."""
        if not ask.arrived():
            self.asked.append(ask)

    @property
    def state(self) -> str:
        """The state that it is to come back with."""
        assert self.value["resultType"] == "input_required", self.value
        return self.value["requestState"]


class Asked:
    """A question of a handshake server, and how it was answered."""

    def __init__(self, method: str = "elicitation/create", params: Any = FORM) -> None:
        self.answers: list[Any] = []
        self.refusals: list[str] = []
        self.codes: list[int] = []
        fields = {name: raw(value) for name, value in params.items()}
        self.request = ServerRequest("up", NEWEST_HANDSHAKE, method, fields, answer=self._answer, refuse=self._refuse)

    def _answer(self, result: bytes) -> None:
        self.answers.append(json.loads(result))

    def _refuse(self, error: RpcError) -> None:
        self.refusals.append(error.message)
        self.codes.append(error.code)


class Stage:
    """A forwarder before one server, and a caller."""

    def __init__(self, caller: str, server: str, capabilities: dict[str, Any] = CAN) -> None:
        self.clock = FakeClock()
        self.link = FakeLink(revision=ERAS[server], clock=self.clock)
        self.up = up = member(self.link)
        runtime = Runtime(Settings(name="gate", version="1.2", naming=Naming(), tools={}), {"up": up})
        self.forwarder = Forwarder({"up": up}, runtime, clock=self.clock)
        self.caller = Caller(revision=ERAS[caller], capabilities=raw(capabilities), principal=b"ann")
        self.running: Running | None = None

    def _call(self, **params: Any) -> Call:
        given = {"name": "up__native", "arguments": {"a": 1}, **params}
        return Call(self.caller, "tools/call", {name: raw(value) for name, value in given.items()})

    def call(self, *, tasked: bool = False) -> Client:
        """Make the call."""
        client = Client()
        self.running = self.forwarder.send(Target("up", head=HEAD, tasked=tasked), self._call(), client)
        return client

    def task(self) -> str:
        """Make the call, and wait until it is a task. Returns its name."""
        client = self.call()
        self.clock.pass_(PATIENCE + 1)
        return client.value["taskId"]

    def retry(self, state: str, answers: Any) -> Client:
        """Make it again with answers."""
        client = Client()
        call = self._call(requestState=state, inputResponses=answers)
        self.running = self.forwarder.retry(Target("up", head=HEAD), call, client)
        return client

    def about(self, method: str, task: str, **params: Any) -> Client:
        """A request about a task."""
        client = Client()
        call = Call(self.caller, method, {name: raw(value) for name, value in {"taskId": task, **params}.items()})
        self.forwarder.services.tasks.handle(call, client, {}, lambda _: True)
        return client

    @property
    def sent(self) -> Sent:
        """What the server was sent last."""
        return self.link.sent[-1]

    def ask(self, asked: Asked) -> Asked:
        """The server asks something in the middle of the call that it was sent last."""
        self.sent.sink.ask(asked.request)
        return asked

    def need(self, entries: Any = None, state: str | None = "theirs") -> None:
        """The server ends the call with questions."""
        told = {"resultType": "input_required", "inputRequests": ENTRY if entries is None else entries}
        self.sent.sink.done(json.dumps(told if state is None else {**told, "requestState": state}).encode())

    def settled(self) -> bool:
        """Whether nothing is left of the call: no timer, no lease, nothing parked."""
        parked = self.forwarder.services.parked
        return not self.clock.waiting and not self.link.leases.any and not list(parked)


# --- every cell -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("caller", "server"), CELLS)
def test_a_call_that_asks_nothing_leaves_nothing_behind(caller: str, server: str) -> None:
    """docs/design/decisions/0030-one-exchange.md: it pays for none of it."""
    stage = Stage(caller, server)
    client = stage.call()
    stage.sent.sink.progress({"progress": b"1"})
    stage.sent.sink.log({})
    assert (client.progressed, client.logged) == ([{"progress": b"1"}], 1)
    stage.sent.sink.done(RESULT)
    assert client.value["content"] == []
    assert stage.settled()


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("caller", ERAS)
def test_only_sides_that_speak_alike_have_nothing_between_them(caller: str, server: str) -> None:
    """docs/design/decisions/0030-one-exchange.md: a call that passes makes no exchange."""
    stage = Stage(caller, server)
    client = stage.call()
    assert (stage.sent.sink is client) == (stage.running is stage.sent) == (caller == server == "handshake")


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize(("caller", "server"), CELLS)
def test_a_call_that_is_cancelled_is_so_at_the_server_and_leaves_nothing_behind(
    caller: str, server: str, asked: bool
) -> None:
    """docs/behaviour.md: a cancel walks the same way as the call."""
    stage = Stage(caller, server)
    client = stage.call()
    if asked and server == "handshake":
        stage.ask(Asked())
    elif asked and caller == "handshake":
        stage.need()
    assert stage.running is not None
    stage.running.cancel("enough")
    if asked and (caller, server) == ("handshake", "stateless"):
        assert [ask.open for ask in client.asked] == [False]
    else:
        assert stage.sent.cancelled == ["enough"]
    assert (client.result, client.error) == (None, None)
    assert stage.settled()


@pytest.mark.parametrize(("caller", "server"), CELLS)
def test_a_call_that_cannot_be_sent_leaves_nothing_behind(caller: str, server: str) -> None:
    """Ours: whoever makes the call is told at once."""
    stage = Stage(caller, server, KNOWS_TASKS)

    def fails(*_: Any, **__: Any) -> Sent:
        raise UpstreamError("up", "lost", "gone")

    stage.link.request = fails  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(UpstreamError):
        stage.call()
    assert stage.settled()


@pytest.mark.parametrize(
    ("caller", "server", "what"),
    [
        ("stateless", "handshake", {"resultType": "input_required", "inputRequests": ENTRY}),
        ("stateless", "handshake", {"resultType": "task", "taskId": "t"}),
        ("handshake", "stateless", {"resultType": "task", "taskId": "t"}),
        ("handshake", "stateless", {"resultType": "input_required", "inputRequests": []}),
        ("stateless", "stateless", {"resultType": "task", "taskId": "t"}),
        ("stateless", "stateless", {"resultType": "input_required"}),
    ],
)
def test_what_a_server_may_not_end_a_call_with_fails_it(caller: str, server: str, what: Any) -> None:
    """docs/errors.md: a server that does what its revision, or its caller's, does not have is malformed."""
    stage = Stage(caller, server)
    client = stage.call()
    stage.sent.sink.done(json.dumps(what).encode())
    assert cast("UpstreamError", client.refusal).reason == "malformed"
    assert stage.settled()


# --- parked ---------------------------------------------------------------------------------------


def parked(capabilities: dict[str, Any] = CAN) -> Stage:
    return Stage("stateless", "handshake", capabilities)


def test_questions_that_come_at_once_are_put_at_once() -> None:
    """Ours: they are gathered for 20 ms."""
    stage = parked()
    client = stage.call()
    stage.ask(Asked())
    stage.clock.pass_(0.019)
    stage.ask(Asked("sampling/createMessage", {"messages": [], "maxTokens": 1}))
    assert client.result is None
    stage.clock.pass_(0.002)
    assert set(client.value["inputRequests"]) == {"q1", "q2"}


def test_a_call_goes_on_with_the_answers_and_its_outcome_is_the_retrys() -> None:
    """docs/design/decisions/0030-one-exchange.md: only coming back and becoming a task change the sink."""
    stage = parked()
    client = stage.call()
    question = stage.ask(Asked())
    stage.clock.pass_(1)
    stage.sent.sink.progress({"progress": b"1"})
    stage.sent.sink.log({})
    assert (client.progressed, client.logged) == ([], 0)
    again = stage.retry(client.state, {"q1": YES})
    assert question.answers == [YES]
    stage.sent.sink.progress({"progress": b"2"})
    assert again.progressed == [{"progress": b"2"}]
    stage.sent.sink.done(RESULT)
    assert again.value["content"] == []
    assert len(stage.link.sent) == 1
    assert stage.settled()


def test_whoever_does_not_come_back_in_time_is_waited_for_no_more() -> None:
    """docs/questions.md: ten minutes; a form that nobody answers is cancelled."""
    stage = parked()
    client = stage.call()
    question = stage.ask(Asked())
    other = stage.ask(Asked("sampling/createMessage", {"messages": [], "maxTokens": 1}))
    stage.clock.pass_(LIFETIME)
    assert question.answers == []
    stage.clock.pass_(1)
    assert question.answers == [{"action": "cancel"}]
    assert other.refusals == ["nobody answered in time"]
    assert stage.sent.cancelled == ["nobody answered in time"]
    assert stage.settled()
    with pytest.raises(InvalidParams, match=INVALID):
        stage.retry(client.state, {"q1": YES})


def test_what_comes_while_the_client_is_away_is_copied() -> None:
    """docs/design/decisions/0030-one-exchange.md: a piece of what was received would keep all of that in memory."""
    stage = parked()
    client = stage.call()
    stage.ask(Asked())
    stage.clock.pass_(1)
    message = bytearray(b'"[late]"')
    late = Asked()
    late.request.params = {**late.request.params, "message": Raw(memoryview(message))}
    stage.ask(late)
    message[:] = b'"gone!!"'
    second = stage.retry(client.state, {"q1": YES})
    assert [entry["params"]["message"] for entry in second.value["inputRequests"].values()] == ["[up] [late]"]
    received = bytearray(b'{"content":[1]}')
    stage.sent.sink.done(memoryview(received))
    received[:] = b'{"content":[2]}'
    assert stage.retry(second.state, {}).value["content"] == [1]
    assert stage.settled()


def test_a_call_may_ask_so_often_and_no_more() -> None:
    """docs/questions.md: at most ten rounds."""
    stage = parked()
    client = stage.call()
    for _ in range(MOST_ROUNDS):
        stage.ask(Asked())
        stage.clock.pass_(1)
        client = stage.retry(client.state, dict.fromkeys(client.value["inputRequests"], YES))
    last = stage.ask(Asked())
    stage.clock.pass_(1)
    assert last.refusals == [f"no call may ask more than {MOST_ROUNDS} times"]
    assert client.result is None


def test_a_question_that_arrives_when_the_call_is_over_is_refused() -> None:
    """Ours: a middleware may take its time with a question; a call that has its answer gets no other."""
    stage = parked()
    held: list[ServerRequest] = []
    client = stage.call()
    client.ask = held.append  # type: ignore[method-assign]
    question = stage.ask(Asked())
    stage.sent.sink.done(RESULT)
    assert held.pop().arrived()
    stage.clock.pass_(1)
    assert question.refusals
    assert client.value["content"] == []
    assert stage.settled()


# --- repeated -------------------------------------------------------------------------------------


def test_a_handshake_caller_is_asked_and_the_call_made_again() -> None:
    """docs/questions.md: with the answers, and the server's own state."""
    stage = Stage("handshake", "stateless")
    client = stage.call()
    stage.sent.sink.progress({"progress": b"2"})
    stage.need()
    assert stage.link.leases.any
    client.asked.pop().answer(json.dumps(YES).encode())
    assert json.loads(stage.sent.params["inputResponses"]) == {"sure": YES}
    assert json.loads(stage.sent.params["requestState"]) == "theirs"
    stage.sent.sink.progress({"progress": b"1"})
    stage.sent.sink.progress({"progress": b"3"})
    assert client.progressed == [{"progress": b"2"}, {"progress": b"3"}]
    stage.sent.sink.done(RESULT)
    assert client.value == {"content": []}
    assert stage.settled()


def test_a_server_that_puts_a_call_off_is_called_again_after_a_pause_that_grows() -> None:
    """Ours: 50 ms, 100 ms, 200 ms, then 250 ms; at most ten times (docs/questions.md)."""
    stage = Stage("handshake", "stateless")
    client = stage.call()
    for number in range(MOST_ROUNDS):
        stage.need({})
        pause = (0.05, 0.1, 0.2, 0.25)[min(number, 3)]
        stage.clock.pass_(pause - 0.001)
        assert len(stage.link.sent) == number + 1
        stage.clock.pass_(0.002)
        assert len(stage.link.sent) == number + 2
    stage.need({})
    assert client.value["isError"]
    assert stage.settled()


def test_a_refusal_ends_the_call_and_withdraws_the_other_questions() -> None:
    """Ours: there is no word for "no" in an answer to a stateless server."""
    stage = Stage("handshake", "stateless")
    client = stage.call()
    poem = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
    stage.need({"poem": poem, **ENTRY})
    first, second = client.asked
    first.refuse(RpcError("no poems"))
    assert not second.open
    assert "no poems" in client.value["content"][0]["text"]
    assert stage.settled()


# --- sealed through -------------------------------------------------------------------------------


def test_a_stateless_servers_state_comes_back_to_it_and_in_time_only() -> None:
    """docs/questions.md: sealed, for ten minutes."""
    stage = Stage("stateless", "stateless")
    client = stage.call()
    stage.need()
    assert client.state != "theirs"
    assert client.value["inputRequests"]["sure"]["params"]["message"] == "Who?"
    assert stage.settled()
    stage.clock.pass_(LIFETIME - 1)
    again = stage.retry(client.state, {"sure": YES})
    assert json.loads(stage.sent.params["requestState"]) == "theirs"
    stage.sent.sink.done(RESULT)
    assert again.value["content"] == []
    stage.clock.pass_(2)
    with pytest.raises(InvalidParams, match=INVALID):
        stage.retry(client.state, {"sure": YES})


def test_a_stateless_server_may_ask_so_often_and_no_more() -> None:
    """docs/questions.md: at most ten rounds."""
    stage = Stage("stateless", "stateless")
    client = stage.call()
    for _ in range(MOST_ROUNDS):
        stage.need()
        client = stage.retry(client.state, {"sure": YES})
    stage.need()
    assert "still asks" in client.refusal.message


def test_a_task_of_a_stateless_server_keeps_its_connection_for_its_ttl() -> None:
    """docs/tasks.md: it stays the server's own, under a name of ours."""
    stage = Stage("stateless", "stateless", KNOWS_TASKS)
    client = stage.call()
    stage.sent.sink.done(b'{"resultType":"task","taskId":"native","status":"working","ttlMs":5000}')
    assert client.value["taskId"] != "native"
    assert stage.link.leases.any
    stage.clock.pass_(5.1)
    assert stage.settled()


# --- tasks of our own -----------------------------------------------------------------------------


def test_a_call_that_takes_long_becomes_a_task_and_its_outcome_is_kept_for_a_while() -> None:
    """docs/tasks.md: after five seconds; ten minutes."""
    stage = parked(KNOWS_TASKS)
    client = stage.call()
    stage.clock.pass_(PATIENCE - 0.1)
    assert client.result is None
    stage.clock.pass_(0.2)
    task = client.value["taskId"]
    stage.sent.sink.progress({"progress": b"1", "message": b'"half"'})
    assert stage.about("tasks/get", task).value["statusMessage"] == "half"
    stage.sent.sink.done(RESULT)
    stage.clock.pass_(KEPT - 1)
    assert stage.about("tasks/get", task).value["result"]["content"] == []
    stage.clock.pass_(2)
    with pytest.raises(InvalidParams, match="Unknown task"):
        stage.about("tasks/get", task)
    assert not stage.forwarder.services.tasks
    assert stage.settled()


def test_outcomes_that_take_too_much_room_go_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: whoever keeps too much loses the oldest of it."""
    monkeypatch.setattr(holding, "MOST_BYTES", 2500)
    stage = parked(KNOWS_TASKS)
    names: list[str] = []
    for _ in range(3):
        names.append(stage.task())
        stage.sent.sink.done(json.dumps({"content": [{"type": "text", "text": "x" * 1000}]}).encode())
    with pytest.raises(InvalidParams, match="Unknown task"):
        stage.about("tasks/get", names[0])
    assert [stage.about("tasks/get", name).value["status"] for name in names[1:]] == ["completed"] * 2


def test_questions_of_tasks_are_counted_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: 64 MiB of a principal's (docs/tasks.md); here 10,000 bytes."""
    monkeypatch.setattr(holding, "MOST_BYTES_EACH", 10_000)
    stage = parked(KNOWS_TASKS)
    large = {**FORM, "message": "x" * 6000}
    first, server = stage.task(), stage.sent.sink
    stage.ask(Asked(params=large))
    second = stage.task()
    refused = stage.ask(Asked(params=large))
    assert refused.refusals == ["too many calls wait for answers; try again later"]
    stage.sent.sink.done(RESULT)
    assert stage.about("tasks/get", second).value["status"] == "completed"
    # What was answered counts no more, nor what was refused.
    asked = stage.about("tasks/get", first).value["inputRequests"]
    stage.about("tasks/update", first, inputResponses=dict.fromkeys(asked, YES))
    server.done(RESULT)
    third = stage.task()
    assert stage.ask(Asked(params=large)).refusals == []
    assert stage.about("tasks/get", third).value["status"] == "input_required"


def test_nobody_has_more_tasks_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: beyond the limit a call is simply answered when it is over."""
    monkeypatch.setattr(holding, "MOST_EACH", 2)
    monkeypatch.setattr(holding, "MOST", 3)
    stage = parked(KNOWS_TASKS)
    kinds: dict[bytes, list[str]] = {}
    for principal, calls in ((b"ann", 3), (b"bob", 2)):
        stage.caller = replace(stage.caller, principal=principal)
        made = [(stage.call(), stage.sent.sink) for _ in range(calls)]
        stage.clock.pass_(PATIENCE + 1)
        for client, server in made:
            server.done(RESULT)
            kinds.setdefault(principal, []).append(client.value["resultType"])
    assert kinds == {b"ann": ["task", "task", "complete"], b"bob": ["task", "complete"]}


def test_a_quick_call_becomes_no_task() -> None:
    """docs/tasks.md: only what takes long."""
    stage = parked(KNOWS_TASKS)
    client = stage.call()
    stage.sent.sink.done(RESULT)
    stage.clock.pass_(PATIENCE + 1)
    assert client.value["content"] == []
    assert stage.settled()


def test_patience_begins_anew_with_each_request_of_the_caller() -> None:
    """Ours: it is the caller's waiting that counts."""
    stage = parked(KNOWS_TASKS)
    client = stage.call()
    stage.ask(Asked())
    stage.clock.pass_(PATIENCE + 1)
    assert "inputRequests" in client.value
    again = stage.retry(client.state, {"q1": YES})
    stage.clock.pass_(PATIENCE - 0.1)
    assert again.result is None
    stage.clock.pass_(0.2)
    assert again.value["resultType"] == "task"


def test_a_question_of_a_task_that_nobody_answers_is_given_up_and_the_task_goes_on() -> None:
    """docs/tasks.md: ten minutes."""
    stage = parked(KNOWS_TASKS)
    task = stage.task()
    question = stage.ask(Asked())
    stage.clock.pass_(1)
    assert stage.about("tasks/get", task).value["status"] == "input_required"
    with pytest.raises(InvalidParams, match=r"inputResponses\.q1"):
        stage.about("tasks/update", task, inputResponses={"q1": 7})
    poem = stage.ask(Asked("sampling/createMessage", {"messages": [], "maxTokens": 1}))
    stage.clock.pass_(LIFETIME + 1)
    assert question.answers == [{"action": "cancel"}]
    assert poem.codes == [-32603]
    assert stage.about("tasks/get", task).value["status"] == "working"
    stage.sent.sink.done(RESULT)
    assert stage.about("tasks/get", task).value["status"] == "completed"


@pytest.mark.parametrize("agrees", [True, False])
def test_a_task_keeps_its_server_while_its_user_visits_pages(agrees: bool) -> None:
    """docs/design/decisions/0030-one-exchange.md: then no request is under way there."""
    stage = parked(KNOWS_TASKS)
    task = stage.task()
    pages = [{"mode": "url", "message": "Sign in", "url": f"https://x.test/{n}"} for n in range(2)]
    said = {"code": -32042, "message": "sign in", "data": {"elicitations": pages}}
    stage.sent.sink.failed(UpstreamSaid(json.dumps(said).encode(), "sign in", -32042, said["data"]))
    asked = stage.about("tasks/get", task).value["inputRequests"]
    assert len(asked) == 2
    assert stage.link.leases.any
    for key in asked:
        stage.about("tasks/update", task, inputResponses={key: YES if agrees else {"action": "decline"}})
    if agrees:
        assert len(stage.link.sent) == 2
        stage.sent.sink.done(RESULT)
    shown = stage.about("tasks/get", task).value
    assert shown["status"] == ("completed" if agrees else "failed")
    assert not stage.link.leases.any


# --- tasks of servers, seen through ---------------------------------------------------------------


def test_a_call_that_must_be_a_task_is_looked_at_as_often_as_its_server_says() -> None:
    """docs/tasks.md: callers that know no tasks notice nothing."""
    stage = Stage("handshake", "handshake")
    client = stage.call(tasked=True)
    assert stage.sent.params["task"] == b"{}"
    stage.sent.sink.done(b'{"task":{"taskId":"t","status":"working","pollInterval":3000}}')
    assert stage.link.leases.any
    stage.clock.pass_(2.9)
    assert len(stage.link.sent) == 1
    stage.clock.pass_(0.2)
    assert stage.sent.call.method == "tasks/get"
    stage.sent.sink.done(b'{"taskId":"t","status":"completed"}')
    assert stage.sent.call.method == "tasks/result"
    stage.sent.sink.done(RESULT)
    assert client.value == {"content": []}
    assert stage.settled()


def test_a_task_that_takes_longer_than_any_call_may_is_given_up() -> None:
    """docs/tasks.md: `callMax`; the time that a caller takes to answer does not count."""
    stage = Stage("handshake", "handshake")
    client = stage.call(tasked=True)
    stage.sent.sink.done(b'{"task":{"taskId":"t","status":"input_required","pollInterval":5000}}')
    fetching = stage.sent
    assert fetching.call.method == "tasks/result"

    def look(seconds: int) -> None:
        for _ in range(seconds):
            stage.clock.pass_(1)
            if stage.sent.call.method == "tasks/get" and not stage.sent.cancelled and client.error is None:
                sent, stage.sent.cancelled = stage.sent, ["answered"]
                sent.sink.done(b'{"taskId":"t","status":"input_required","pollInterval":5000}')

    question = Asked()
    fetching.sink.ask(question.request)
    look(700)
    assert client.error is None
    client.asked.pop().answer(json.dumps(YES).encode())
    assert question.answers == [YES]
    look(601)
    assert "callMax" in client.refusal.message
    assert stage.sent.call.method == "tasks/cancel"
    assert stage.settled()


def test_a_servers_task_that_asks_gets_the_answers_on_the_connection_that_has_it() -> None:
    """Ours: whichever process takes new calls by then."""
    stage = Stage("stateless", "stateless")
    client = stage.call()
    needed = {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    stage.sent.sink.failed(UpstreamSaid(b"{}", "must be a task", -32021, needed))
    stage.sent.sink.done(b'{"resultType":"task","taskId":"t","status":"input_required"}')
    stage.clock.pass_(0.1)
    assert stage.sent.call.method == "tasks/get"
    told = {"taskId": "t", "status": "input_required", "inputRequests": ENTRY}
    stage.sent.sink.done(json.dumps(told).encode())
    assert "sure" in client.value["inputRequests"]
    assert stage.link.leases.any
    before = stage.link
    stage.link = stage.up.link = FakeLink(revision=NEWEST, clock=stage.clock)
    stage.retry(client.state, {"sure": YES})
    assert stage.link.sent == []
    assert before.sent[-1].call.method == "tasks/update"
    assert json.loads(bytes(before.sent[-1].call.params["inputResponses"])) == {"sure": YES}


def test_a_call_that_is_cancelled_while_its_task_asks_cancels_the_task() -> None:
    """Ours: nobody will answer it."""
    stage = Stage("handshake", "stateless")
    client = stage.call()
    needed = {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    stage.sent.sink.failed(UpstreamSaid(b"{}", "must be a task", -32021, needed))
    stage.sent.sink.done(b'{"resultType":"task","taskId":"t","status":"input_required"}')
    stage.clock.pass_(0.1)
    told = {"taskId": "t", "status": "input_required", "inputRequests": ENTRY}
    stage.sent.sink.done(json.dumps(told).encode())
    assert stage.running is not None
    stage.running.cancel(None)
    assert stage.sent.call.method == "tasks/cancel"
    assert not client.asked[0].open
    assert stage.settled()


def test_a_caller_that_no_longer_knows_tasks_gets_none() -> None:
    """Ours: a stateless caller says with each request what it knows."""
    stage = parked(KNOWS_TASKS)
    client = stage.call()
    stage.ask(Asked())
    stage.clock.pass_(1)
    stage.caller = replace(stage.caller, capabilities=raw(CAN))
    again = stage.retry(client.state, {"q1": YES})
    stage.clock.pass_(PATIENCE + 1)
    assert again.result is None
    stage.sent.sink.done(RESULT)
    assert again.value["content"] == []
