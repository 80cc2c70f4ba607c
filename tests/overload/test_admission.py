"""What is above a limit is refused at once, by name, and with when to come again; nothing else is."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from muxway.clients.transports.guard import Guard
from muxway.exchange.admission import Admission
from muxway.testing import RawClient, ScriptedServer

from ..conftest import REVISIONS, a_world
from ..serve.harness import modern, request
from .piping import stdio

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from ..serve.harness import Web

    Webs = Callable[..., AbstractAsyncContextManager[Web]]


class Gate:
    """A tool that answers when it is told to."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waiting = 0

    async def __call__(self, server: ScriptedServer, message: dict[str, Any]) -> None:
        self.waiting += 1
        await self.open.wait()
        server.reply(message, {"content": []})

    async def holds(self, count: int) -> None:
        """Wait until so many calls have come."""
        async with asyncio.timeout(30):
            while self.waiting < count:
                await asyncio.sleep(0.001)


def served(gate: Gate) -> dict[str, ScriptedServer]:
    return {"s": ScriptedServer(tools={"hold": gate, "echo": None}, prompts={"p": None}, resources={"x://y": "text"})}


def is_overload(error: dict[str, Any], setting: str) -> bool:
    assert error["code"] == -32603
    said = error["data"]["muxway"]
    assert (said["reason"], said["retryAfterMs"]) == ("overloaded", 1000)
    assert setting in error["message"]
    assert "try again" in error["message"]
    return True


@pytest.mark.parametrize("revision", REVISIONS)
async def test_calls_above_the_limit_of_a_client_are_refused_and_others_are_not(revision: str) -> None:
    """docs/behaviour.md#too-much-at-once: of one client; the limit counts what is under way, not what was asked."""
    gate = Gate()
    async with a_world(served(gate), gateway={"maxCallsPerClient": 3}) as world:
        client, other = await world.client(revision), await world.client(revision)
        held = [client.start("tools/call", {"name": "s__hold", "arguments": {}}) for _ in range(3)]
        await gate.holds(3)
        assert is_overload((await client.call("s__echo")).error, "gateway.maxCallsPerClient")
        assert is_overload((await client.ask("prompts/get", {"name": "s__p"})).error, "gateway.maxCallsPerClient")
        assert is_overload((await client.ask("resources/read", {"uri": "x://y"})).error, "gateway.maxCallsPerClient")
        assert "result" in (await other.call("s__echo")).message
        gate.open.set()
        for id_ in held:
            assert "result" in (await client.answer(id_)).message
        assert "result" in (await client.call("s__echo")).message
        assert world.gateway.runtime.admission.running == 0


async def test_calls_above_the_limit_of_the_gateway_are_refused_whoever_makes_them() -> None:
    """docs/behaviour.md#too-much-at-once: of all clients together."""
    gate = Gate()
    async with a_world(served(gate), gateway={"maxCalls": 2}) as world:
        first, second, third = [await world.client() for _ in range(3)]
        for client in (first, second):
            client.start("tools/call", {"name": "s__hold", "arguments": {}})
        await gate.holds(2)
        assert is_overload((await third.call("s__echo")).error, "gateway.maxCalls")


async def test_lists_pings_and_greetings_are_never_refused() -> None:
    """docs/behaviour.md#too-much-at-once: only what makes servers work is."""
    gate = Gate()
    async with a_world(served(gate), gateway={"maxCalls": 1, "maxCallsPerClient": 1}) as world:
        client = await world.client()
        client.start("tools/call", {"name": "s__hold", "arguments": {}})
        await gate.holds(1)
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "ping"):
            assert "result" in (await client.ask(method)).message
        await world.client()
        stateless = await world.client("2026-07-28")
        assert "result" in (await stateless.ask("server/discover")).message
        gate.open.set()


async def test_a_cancelled_call_makes_room() -> None:
    """Ours: nobody waits for it any more."""
    gate = Gate()
    async with a_world(served(gate), gateway={"maxCallsPerClient": 1}) as world:
        client = await world.client()
        id_ = client.start("tools/call", {"name": "s__hold", "arguments": {}})
        await gate.holds(1)
        client.tell("notifications/cancelled", {"requestId": id_})
        assert "result" in (await client.call("s__echo")).message


async def test_a_client_that_leaves_makes_room() -> None:
    """Ours: what it had under way is cancelled, and counted off."""
    gate = Gate()
    async with a_world(served(gate), gateway={"maxCalls": 1}) as world:
        door = world.gateway.memory_door()
        door.send(json.dumps(request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}}, 0)).encode())
        door.send(json.dumps(request("tools/call", {"name": "s__hold", "arguments": {}})).encode())
        await gate.holds(1)
        await door.close()
        assert world.gateway.runtime.admission.running == 0
        assert "result" in (await (await world.client()).call("s__echo")).message


async def test_streams_of_changes_are_no_calls() -> None:
    """Ours: a client that listens to much may still call."""
    async with a_world(served(Gate()), gateway={"maxCalls": 1, "maxCallsPerClient": 1}) as world:
        client = await world.client("2026-07-28")
        for _ in range(3):
            client.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            await client.notice("notifications/subscriptions/acknowledged")
        assert "result" in (await client.call("s__echo")).message


async def test_a_parked_call_is_not_under_way() -> None:
    """Ours: its caller is off fetching an answer, for as long as that takes."""

    async def curious(server: ScriptedServer, message: dict[str, Any]) -> None:
        await server.ask(
            "elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        )
        server.reply(message, {"content": []})

    scripted = {"s": ScriptedServer(tools={"ask": curious, "echo": None})}
    async with a_world(scripted, gateway={"maxCalls": 1, "maxCallsPerClient": 1}) as world:
        client = await world.client("2026-07-28")
        asking = {"_meta": {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}}
        reply = await client.ask("tools/call", {"name": "s__ask", "arguments": {}, **asking})
        assert reply.result["resultType"] == "input_required"
        assert world.gateway.runtime.admission.running == 0
        assert "result" in (await client.call("s__echo")).message


async def test_the_one_client_of_stdio_has_the_limit_of_all() -> None:
    """Ours: there is nobody to be fair to."""
    gate = Gate()
    async with (
        a_world(served(gate), gateway={"maxCalls": 5, "maxCallsPerClient": 2}) as world,
        stdio(world) as (pipes, _),
    ):
        client = RawClient(pipes)
        await client.hello()
        for _ in range(5):
            client.start("tools/call", {"name": "s__hold", "arguments": {}})
        await gate.holds(5)
        assert is_overload((await client.call("s__echo")).error, "gateway.maxCalls)")


# --- over HTTP --------------------------------------------------------------------------------


async def test_a_refused_call_of_a_session_is_an_answer_and_not_a_broken_connection(web: Webs) -> None:
    """Ours: the Python SDK 1.x ends the whole transport at a 503, so the error comes with status 200."""
    gate = Gate()
    async with web(served(gate), top={"gateway": {"maxCallsPerClient": 1}}) as http:
        client, other = await http.session(), await http.session()
        held = asyncio.create_task(client.ask("tools/call", {"name": "s__hold", "arguments": {}}, 7))
        await gate.holds(1)
        answer = await client.ask("tools/call", {"name": "s__echo", "arguments": {}}, 8)
        assert (answer.status, answer.json["id"]) == (200, 8)
        assert is_overload(answer.json["error"], "gateway.maxCallsPerClient")
        assert "result" in (await other.ask("tools/call", {"name": "s__echo", "arguments": {}})).json
        gate.open.set()
        assert "result" in (await held).json


@pytest.mark.parametrize("origin", [None, "http://localhost"])
async def test_a_stateless_client_is_whoever_has_the_token(origin: str | None, web: Webs) -> None:
    """Ours: as parties are told apart everywhere. With an Origin a request takes the long way through the door."""
    gate = Gate()
    guard = Guard(tokens=["mine", "yours"])
    async with web(served(gate), guard=guard, top={"gateway": {"maxCallsPerClient": 1}}) as http:

        async def call(tool: str, token: str) -> Any:
            headers = {"Authorization": f"Bearer {token}", "Origin": origin}
            return (await http.stateless("tools/call", {"name": tool, "arguments": {}}, headers)).json

        held = asyncio.create_task(call("s__hold", "mine"))
        await gate.holds(1)
        assert is_overload((await call("s__echo", "mine"))["error"], "gateway.maxCallsPerClient")
        assert "result" in await call("s__echo", "yours")
        gate.open.set()
        assert "result" in await held
        assert "result" in await call("s__echo", "mine")
        assert http.world.gateway.runtime.admission.running == 0


async def test_stateless_calls_without_a_token_have_the_limit_of_all(web: Webs) -> None:
    """Ours: nobody can tell whose they are."""
    gate = Gate()
    async with web(served(gate), top={"gateway": {"maxCalls": 3, "maxCallsPerClient": 1}}) as http:
        hold = {"name": "s__hold", "arguments": {}}
        held = [asyncio.create_task(http.stateless("tools/call", hold, id_=n)) for n in range(3)]
        await gate.holds(3)
        assert is_overload((await http.stateless("tools/call", hold)).json["error"], "gateway.maxCalls")
        assert "result" in (await http.stateless("tools/list")).json
        gate.open.set()
        assert ["result" in (await call).json for call in held] == [True] * 3


async def test_a_stateless_client_that_hangs_up_makes_room(web: Webs) -> None:
    """2026-07-28: the connection is the request's life."""
    gate = Gate()
    async with web(served(gate), top={"gateway": {"maxCalls": 1}}) as http:
        message, headers = modern("tools/call", {"name": "s__hold", "arguments": {}})
        body, given = json.dumps(message).encode(), {"Content-Type": "application/json", **headers}
        lines = [f"{name}: {value}" for name, value in {"Host": http.host, **given}.items()]
        head = "\r\n".join(["POST /mcp HTTP/1.1", *lines, f"Content-Length: {len(body)}", "", ""])
        opened = await http.raw(head.encode() + body)
        await gate.holds(1)
        admission = http.world.gateway.runtime.admission
        assert admission.running == 1
        opened.drop()
        async with asyncio.timeout(30):
            while admission.running:
                await asyncio.sleep(0.001)
        assert "result" in (await http.stateless("tools/call", {"name": "s__echo", "arguments": {}})).json


async def test_each_call_of_a_batch_is_counted(web: Webs) -> None:
    """Ours: one POST with a thousand calls is a thousand calls."""
    gate = Gate()
    async with web(served(gate), top={"gateway": {"maxCallsPerClient": 4}}) as http:
        client = await http.session("2025-03-26")
        hold = [request("tools/call", {"name": "s__hold", "arguments": {}}, n) for n in range(10)]
        answering = asyncio.create_task(http.post(hold, client.headers))
        await gate.holds(4)
        gate.open.set()
        answers = (await answering).json
        refused = [answer["error"] for answer in answers if "error" in answer]
        assert (len(answers), len(refused)) == (10, 6)
        assert all(is_overload(error, "gateway.maxCallsPerClient") for error in refused)


# --- memory -----------------------------------------------------------------------------------


class Memory:
    """How full it is, and how often somebody looked."""

    def __init__(self, share: float | None) -> None:
        self.share = share
        self.looks = 0

    def __call__(self) -> float | None:
        self.looks += 1
        return self.share


def ask(admission: Admission) -> str | None:
    """Ask for a call as a door does; why not, if so."""
    if admission.running < admission.most:
        return None
    refusal = admission.refusal()
    return None if refusal is None else refusal.message


async def test_without_memory_calls_are_refused_but_one_at_a_time_and_sessions_before_them() -> None:
    """docs/behaviour.md#too-much-at-once: memory, at 80 % and 90 %."""
    for share, takes_sessions, takes_calls in ((0.79, True, True), (0.81, False, True), (0.91, False, False)):
        admission = Admission()
        admission.allow(calls=10, each=10, fullness=Memory(share))
        assert admission.takes_sessions == takes_sessions
        assert ask(admission) is None
        admission.running = 1
        assert (ask(admission) is None) == takes_calls
        if not takes_calls:
            assert "gateway.maxMemory" in str(ask(admission))


async def test_memory_is_looked_at_once_a_second_and_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: no timer in an idle gateway."""
    monkeypatch.setattr("muxway.exchange.admission._MEASURED_FOR", 0.05)
    memory, admission = Memory(0.95), Admission()
    admission.allow(calls=10, each=10, fullness=memory)
    for _ in range(100):
        ask(admission)
    assert memory.looks == 1
    admission.running = 1
    assert ask(admission) is not None
    await asyncio.sleep(0.2)
    assert memory.looks == 1
    memory.share = 0.5
    assert ask(admission) is None
    assert memory.looks == 2


async def test_without_a_limit_memory_is_looked_for_once() -> None:
    """Ours: no limit, then nothing is measured."""
    memory, admission = Memory(None), Admission()
    admission.allow(calls=10, each=10, fullness=memory)
    for _ in range(3):
        assert ask(admission) is None
        assert admission.takes_sessions
    assert memory.looks == 1


async def test_short_of_memory_sessions_get_503_and_running_ones_go_on(web: Webs) -> None:
    """docs/behaviour.md#too-much-at-once: above 80 % of the memory no new sessions."""
    async with web(served(Gate())) as http:
        client = await http.session()
        http.world.gateway.runtime.admission.allow(calls=10, each=10, fullness=Memory(0.85))
        for answer in (
            await http.post(request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})),
            await http.ask("GET", "/sse", {"Accept": "text/event-stream"}),
        ):
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert "gateway.maxMemory" in answer.json["error"]["message"]
        assert "result" in (await client.ask("tools/call", {"name": "s__echo", "arguments": {}})).json
        assert http.door.sessions == 1
