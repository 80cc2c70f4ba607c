"""Whatever clients and servers do, every call has one outcome, its own, and nobody hears of another's.

A machine plays clients of both eras, with equal ids and equal progress tokens, and servers that answer late, twice,
under wrong ids, crash, stay away and come back. The history that each client sees is the judge.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muxway.calls import ports
from muxway.servers import connection
from muxway.testing import ScriptedServer

from ..conftest import REVISIONS, a_world
from .virtual import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from muxway.clients.transports.memory import MemoryClientTransport

SERVERS = {"old": "2024-11-05", "usual": "2025-11-25", "new": "2026-07-28"}
MODERN = "2026-07-28"
ASKER = "usual"
"""The server that also asks questions."""
CAN = {"elicitation": {}}
IDLE_LIMIT = 60.0
"""Seconds of silence after which a call is given up (callTimeout)."""
HARD_LIMIT = 600.0
"""Seconds after which it is given up in any case (maxCallTime)."""
MOST_OPEN = 20
"""Calls that one client has open: fewer than a client may have."""

pick = st.integers(0, 1000)
names = st.sampled_from(sorted(SERVERS))
calls = st.tuples(pick, names, st.sampled_from([int, str]), st.booleans())
"""Who, which server, the JSON type of the id, whether with progress."""


class Player:
    """A server that does only what the machine says. Each connection to it is a new `ScriptedServer`."""

    def __init__(self, name: str, revision: str) -> None:
        self.name, self.revision = name, revision
        self.away = False
        """Whether it ends at once when it is started."""
        self.live: list[ScriptedServer] = []
        self.held: list[Held] = []

    async def serve(self, receive: Callable[[], Awaitable[bytes | None]], send: Callable[[bytes], None]) -> None:
        if self.away:
            return
        one = ScriptedServer(revision=self.revision, tools={"work": self._hold}, remember=False)
        self.live.append(one)
        try:
            await one.serve(receive, send)
        finally:
            self.live.remove(one)

    def _hold(self, one: ScriptedServer, request: dict[str, Any]) -> None:
        self.held.append(Held(one, request, request["params"]["arguments"]["token"]))


@dataclass
class Held:
    """A request that a server has got."""

    server: ScriptedServer
    request: dict[str, Any]
    token: str
    answered: bool = False

    @property
    def wants_progress(self) -> bool:
        return "progressToken" in self.request["params"].get("_meta", {})

    def answer(self, **changed: Any) -> None:
        self.answered = True
        content = [{"type": "text", "text": self.token}]
        self.server.reply({**self.request, **changed}, {"content": content})


@dataclass
class Expected:
    """A call as its client sees it."""

    token: str
    server: str
    progress: Any
    began: float
    may_fail: bool
    """Whether something has happened that may end it with an error of the gateway's."""
    told: bool = False
    """Whether its server has answered with an error of its own."""


@dataclass
class Client:
    """One connection and what it still waits for."""

    door: MemoryClientTransport
    revision: str
    ids: dict[type, itertools.count[int]] = field(
        default_factory=lambda: {int: itertools.count(1), str: itertools.count(1)}
    )
    open: dict[str, Expected] = field(default_factory=dict)
    """JSON of the id → the call."""
    made: set[str] = field(default_factory=set)
    """Tokens of all its calls, those that it gave up, too."""
    asked: set[str] = field(default_factory=set)
    """JSON of the ids of the questions it got."""
    left: bool = False

    async def say(self, message: dict[str, Any]) -> None:
        """Inside the loop, as every door is used."""
        self.door.send(json.dumps({"jsonrpc": "2.0", **message}).encode())


class Isolation(RuleBasedStateMachine):
    """Clients, servers, and a judge that reads every line the clients get."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.stack = contextlib.AsyncExitStack()
        # What is tried twice must be the same twice: random first ids, and turns by the real clock, are not.
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(connection, "_FIRST_IDS", 1)
        self.patched.setattr(ports, "stopwatch", lambda: 0.0)
        self.players = {name: Player(name, revision) for name, revision in SERVERS.items()}
        self.clients: list[Client] = []
        self.tokens = itertools.count(1)
        self.questions: dict[asyncio.Task[dict[str, Any]], str] = {}
        """What servers have asked and have no answer to yet → the token of the call it is about."""

    # --- the world ----------------------------------------------------------------------------

    @initialize(revisions=st.lists(st.sampled_from(REVISIONS), min_size=2, max_size=4))
    def open(self, revisions: list[str]) -> None:
        """A gateway in front of all servers, and its first clients."""
        self.world = self.run(self.stack.enter_async_context(a_world(self.players)))  # type: ignore[arg-type]
        for revision in revisions:
            self.connect(revision)

    def run(self, waiting: Awaitable[Any]) -> Any:
        async def and_settle() -> Any:
            value = await waiting
            # No time passes here; everything that can happen without it does.
            for _ in range(40):
                await asyncio.sleep(0)
            return value

        return self.loop.run_until_complete(and_settle())

    def settle(self) -> None:
        self.run(asyncio.sleep(0))

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self.finish()
        finally:
            for asking in self.questions:
                asking.cancel()
            self.run(self.stack.aclose())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            self.patched.undo()
        assert not self.loop.unhandled, self.loop.unhandled

    def finish(self) -> None:
        """Answer what can be answered and wait out the rest: then nobody waits any more."""
        for held in self.unanswered():
            held.answer()
        self.settle()
        self.judge()
        self.pass_time(HARD_LIMIT + 1)
        assert [call for client in self.clients for call in client.open.values()] == [], "lost"

    # --- clients ------------------------------------------------------------------------------

    @precondition(lambda self: len(self.clients) < 8)
    @rule(revision=st.sampled_from(REVISIONS))
    def connect(self, revision: str) -> None:
        client = Client(self.world.gateway.memory_door(), revision)
        if revision != MODERN:
            info = {"name": "raw", "version": "1"}
            params = {"protocolVersion": revision, "capabilities": CAN, "clientInfo": info}
            self.run(client.say({"id": "hello", "method": "initialize", "params": params}))
            self.settle()
            assert json.loads(self.run(client.door.receive()))["result"]["protocolVersion"] == revision
            self.run(client.say({"method": "notifications/initialized"}))
        self.clients.append(client)

    @precondition(lambda self: any(self.callers()))
    @rule(calls=st.lists(calls, min_size=1, max_size=6))
    def call(self, calls: list[tuple[int, str, type, bool]]) -> None:
        """Several at once, by whom it may be."""
        for who, server, kind, progress in calls:
            if callers := self.callers():
                self.start(self.one_of(callers, who), server, kind, progress)
        self.settle()

    def start(self, client: Client, server: str, kind: type, progress: bool) -> None:
        """Ids and progress tokens count from 1 at every client, as numbers and as text."""
        id_ = kind(next(client.ids[kind]))
        call = Expected(
            token=str(next(self.tokens)),
            server=server,
            progress=id_ if progress else None,
            began=self.loop.now,
            may_fail=not self.players[server].live,
        )
        client.made.add(call.token)
        self.send(client, id_, call)

    def send(self, client: Client, id_: Any, call: Expected, **answers: Any) -> None:
        meta: dict[str, Any] = {} if call.progress is None else {"progressToken": call.progress}
        if client.revision == MODERN:
            meta["io.modelcontextprotocol/protocolVersion"] = MODERN
            meta["io.modelcontextprotocol/clientCapabilities"] = CAN
        params = {"name": f"{call.server}__work", "arguments": {"token": call.token}, **answers}
        client.open[json.dumps(id_)] = call
        message = {"id": id_, "method": "tools/call", "params": {**params, **({"_meta": meta} if meta else {})}}
        self.loop.run_until_complete(client.say(message))

    @precondition(lambda self: any(client.open for client in self.clients))
    @rule(who=pick, which=pick)
    def cancel(self, who: int, which: int) -> None:
        """Cancelled: from now on nothing of it may arrive."""
        client = self.one_of([client for client in self.clients if client.open], who)
        id_ = self.one_of(sorted(client.open), which)
        del client.open[id_]
        self.run(client.say({"method": "notifications/cancelled", "params": {"requestId": json.loads(id_)}}))
        self.settle()

    @precondition(lambda self: any(self.callers()))
    @rule(who=pick)
    def disconnect(self, who: int) -> None:
        client = self.one_of(self.callers(), who)
        self.run(client.door.close(0))
        self.judge()
        client.left = True
        client.open.clear()

    # --- servers ------------------------------------------------------------------------------

    @precondition(lambda self: self.unanswered())
    @rule(answers=st.lists(st.tuples(pick, st.integers(1, 3)), min_size=1, max_size=6))
    def answer(self, answers: list[tuple[int, int]]) -> None:
        """In any order, once or more often than asked."""
        for which, times in answers:
            if held := self.unanswered():
                one = self.one_of(held, which)
                for _ in range(times):
                    one.answer()
        self.settle()

    @precondition(lambda self: self.unanswered())
    @rule(which=pick)
    def answer_under_text(self, which: int) -> None:
        """The id comes back as text instead of a number; nothing is crossed, whatever is made of it."""
        held = self.one_of(self.unanswered(), which)
        held.answer(id=str(held.request["id"]))
        held.answer()
        self.settle()

    @precondition(lambda self: self.unanswered())
    @rule(which=pick)
    def refuse(self, which: int) -> None:
        held = self.one_of(self.unanswered(), which)
        held.answered = True
        for call in self.calls_of(held.token):
            call.told = True
        held.server.fail(held.request, -32000, held.token)
        self.settle()

    @precondition(lambda self: self.unanswered(ASKER))
    @rule(which=pick)
    def ask(self, which: int) -> None:
        """A question in the middle of a call, also a cancelled one: it may be refused, but reach only its caller."""
        held = self.one_of(self.unanswered(ASKER), which)
        schema = {"type": "object", "properties": {"token": {"type": "string"}}}
        asking = held.server.ask("elicitation/create", {"message": held.token, "requestedSchema": schema})
        self.questions[self.loop.create_task(asking)] = held.token
        self.settle()

    @precondition(lambda self: any(player.held for player in self.players.values()))
    @rule(which=pick)
    def answer_again(self, which: int) -> None:
        """Also what was answered, cancelled or given up, and also by a connection that has ended."""
        every = [held for player in self.players.values() for held in player.held if held.answered or not self.on(held)]
        if every:
            self.one_of(every, which).answer()
            self.settle()

    @precondition(lambda self: any(player.held for player in self.players.values()))
    @rule(whose=st.lists(st.one_of(pick, pick.map(lambda number: -1 - number)), min_size=1, max_size=6))
    def progress(self, whose: list[int]) -> None:
        """For a call that runs, one that is long over, or (below 0) one that never was."""
        every = [held for player in self.players.values() for held in player.held if held.wants_progress]
        for which in whose if every else []:
            held = self.one_of(every, which)
            if which < 0:
                held.server.progress({"params": {"_meta": {"progressToken": 10**6 - which}}}, 0)
            else:
                held.server.progress(held.request, int(held.token))
        self.settle()

    @rule(server=names, id_=st.one_of(st.none(), st.integers(10**6, 10**7), st.text()))
    def answer_to_nobody(self, server: str, id_: object) -> None:
        """Without an id it is held to mean the only call of that server, if there is just one."""
        if id_ is None:
            self.excuse(server)
        for one in self.players[server].live:
            one.say({"jsonrpc": "2.0", "id": id_, "result": {"content": [{"type": "text", "text": "nobody's"}]}})
        self.settle()

    @rule(
        server=names,
        line=st.sampled_from([b"\xff\xfe", b"{not json", b"[]", b"null", b"{}", b'{"jsonrpc":"2.0"}', b"", b"[1,2]"]),
    )
    def junk(self, server: str, line: bytes) -> None:
        """A message without anything in it is held to be an answer without an id."""
        if b"jsonrpc" in line:
            self.excuse(server)
        for one in self.players[server].live:
            one.say(line)
        self.settle()

    @rule(server=names, times=st.integers(1, 30))
    def news(self, server: str, times: int) -> None:
        for one in self.players[server].live:
            for _ in range(times):
                one.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        self.settle()

    @rule(server=names, away=st.booleans())
    def crash(self, server: str, away: bool) -> None:
        """It ends; with `away`, it also ends whenever it is started, until it comes back."""
        player = self.players[server]
        player.away = away
        self.excuse(server)
        for one in list(player.live):
            one.end()
        self.settle()

    @rule(server=names)
    def come_back(self, server: str) -> None:
        self.players[server].away = False

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.0, 5.0, 20.0, 70.0]))
    def pass_time(self, seconds: float) -> None:
        """Back-off, probes and time-outs come due."""
        for name, player in self.players.items():
            if not player.live:
                self.excuse(name)
        for client in self.clients:
            for call in client.open.values():
                call.may_fail |= self.loop.now + seconds - call.began >= IDLE_LIMIT
        self.run(asyncio.sleep(seconds))
        self.judge()

    # --- the judge ----------------------------------------------------------------------------

    @invariant()
    def judge(self) -> None:
        """Every line that any client got is one that it was to get."""
        for client in self.clients:
            while client.door.waiting():
                line = self.run(client.door.receive())
                assert not client.left, f"to a client that has left: {line!r}"
                self.hear(client, json.loads(line))
        for asking in [asking for asking in self.questions if asking.done()]:
            token, answer = self.questions.pop(asking), asking.result()
            assert answer.get("result", {}).get("content") in (None, {"token": token}), f"{answer} to {token}"
        seen = [held.token for player in self.players.values() for held in player.held]
        assert len({*seen}) == len(seen), "a call reached its server twice"
        assert not self.loop.unhandled, self.loop.unhandled

    def hear(self, client: Client, message: dict[str, Any]) -> None:
        if message.get("method") == "notifications/progress":
            params = message["params"]
            mine = [call for call in client.open.values() if call.token == str(params["progress"])]
            assert len(mine) == 1, f"progress of a call that is not open here: {message}"
            assert (type(params["progressToken"]), params["progressToken"]) == (
                type(mine[0].progress),
                mine[0].progress,
            )
        elif message.get("method") == "elicitation/create":
            token = _about(message["params"])
            client.asked.add(json.dumps(message["id"]))
            assert token in [call.token for call in client.open.values()], f"another's question: {message}"
            self.run(client.say({"id": message["id"], "result": _answer(token)}))
        elif message.get("method") == "notifications/cancelled":
            assert json.dumps(message["params"]["requestId"]) in client.asked, f"cancelled, but never asked: {message}"
        elif "method" in message:
            assert message["method"] == "notifications/tools/list_changed", message
        else:
            call = client.open.pop(json.dumps(message["id"]), None)
            assert call is not None, f"an outcome for nothing that is open: {message}"
            if message.get("result", {}).get("resultType") == "input_required":
                self.come_back_with_answers(client, call, message["result"])
            elif "result" in message:
                assert [part["text"] for part in message["result"]["content"]] == [call.token]
            elif "muxway" in message["error"].get("data", {}):
                assert call.may_fail, f"failed without a reason: {message}"
                assert message["error"]["data"]["muxway"]["upstream"] == call.server
            elif call.told:
                assert message["error"]["message"] == call.token
            else:
                assert call.may_fail, f"failed without a reason: {message}"

    def come_back_with_answers(self, client: Client, call: Expected, result: dict[str, Any]) -> None:
        """What a stateless client does with a question. What became of its call meanwhile may have ended it."""
        asked: dict[str, Any] = result["inputRequests"]
        # On a pipe a question does not say which call of its client it is about.
        assert {_about(entry["params"]) for entry in asked.values()} <= client.made, f"another's: {result}"
        call.may_fail = True
        answers = {key: _answer(_about(entry["params"])) for key, entry in asked.items()}
        self.send(
            client, next(client.ids[int]), call, inputResponses=answers, requestState=result.get("requestState", "")
        )
        self.settle()

    # --- picking ------------------------------------------------------------------------------

    @staticmethod
    def one_of(things: list[Any], index: int) -> Any:
        return things[index % len(things)]

    def callers(self) -> list[Client]:
        return [client for client in self.clients if not client.left and len(client.open) < MOST_OPEN]

    def unanswered(self, *servers: str) -> list[Held]:
        held = [held for name in servers or SERVERS for held in self.players[name].held]
        return [one for one in held if not one.answered and self.on(one)]

    def on(self, held: Held) -> bool:
        return any(held.server in player.live for player in self.players.values())

    def calls_of(self, token: str) -> list[Expected]:
        return [call for client in self.clients for call in client.open.values() if call.token == token]

    def excuse(self, server: str) -> None:
        for client in self.clients:
            for call in client.open.values():
                call.may_fail |= call.server == server


def _about(question: dict[str, Any]) -> str:
    """The token in a question, which is shown with the name of its server before it."""
    return question["message"].removeprefix(f"[{ASKER}] ")


def _answer(token: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"token": token}}


class TestIsolation(Isolation.TestCase):
    """docs/behaviour.md#under-all-of-it: 3,000 steps, the same ones each time."""

    settings = settings(
        max_examples=60,
        stateful_step_count=50,
        derandomize=True,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


@pytest.mark.long
@pytest.mark.timeout(1200)
class TestIsolationAtLength(Isolation.TestCase):
    """docs/behaviour.md#under-all-of-it: 40,000 steps, others each time."""

    settings = settings(TestIsolation.settings, max_examples=400, stateful_step_count=100, derandomize=False)
