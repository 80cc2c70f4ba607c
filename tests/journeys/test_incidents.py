"""A fault inside muxway ends one request, with an answer; its id is free again, and the next call works."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from muxway.calls import ports
from muxway.calls.backend import StillStarting
from muxway.calls.call import LIBRARY, Call
from muxway.calls.ports import Waiter
from muxway.catalog.naming import Naming
from muxway.clients import notifications
from muxway.clients.questions import ClientQuestions
from muxway.clients.session import ClientRequest, Session
from muxway.composed import running
from muxway.errors import RpcError
from muxway.exchange.dispatcher import Dispatcher
from muxway.exchange.exchange import Exchange
from muxway.exchange.runtime import Runtime
from muxway.routing.snapshot import Settings
from muxway.servers.connection import Connection
from muxway.servers.pool import Pool
from muxway.testing import RawClient, ScriptedServer
from muxway.wire import envelopes, result_types
from tests.conftest import a_world
from tests.exchange.faking import FakeBackend
from tests.faulting import Fault
from tests.noting import until

ERAS = ["2025-11-25", "2026-07-28"]
PORTS: dict[str, tuple[Any, str]] = {
    "before anything else": (Session, "_caller"),
    "the middle": (Dispatcher, "answer"),
    "the middleware's target": (Dispatcher, "target"),
    "the way to the server": (Pool, "choose"),
    "the connection": (Connection, "request"),
    "what is written to the server": (Connection, "_meta"),
    "the conversion between eras": (Exchange, "done"),
    "the converter": (result_types, "result_converter"),
    "the sink's result": (ClientRequest, "done"),
    "the frame of the answer": (envelopes, "result"),
    "the sink's progress": (ClientRequest, "progress"),
    "a progress notice": (notifications, "progress"),
    "the sink's log": (ClientRequest, "log"),
    "a log notice": (notifications, "log"),
    "the sink's question": (ClientRequest, "ask"),
    "a question": (ClientQuestions, "put"),
}


async def _talks(server: ScriptedServer, request: dict[str, Any]) -> None:
    """A tool that says everything a tool may say before its result."""
    server.progress(request, 1)
    server.say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": "d"}})
    if server.revision != "2026-07-28":
        server.say({"jsonrpc": "2.0", "id": "ask", "method": "roots/list"})
    server.reply(request, {"content": [], "ok": 1})


def _client(world: Any, revision: str) -> RawClient:
    client = RawClient(world.gateway.memory_door(), revision=revision, capabilities={"roots": {}})
    client.answers["roots/list"] = lambda _: {"roots": []}
    return client


def _talk(client: RawClient, **more: Any) -> Any:
    return client.start("tools/call", {"name": "up__talks", "arguments": {}, "_meta": {"progressToken": 1}}, **more)


LAYERS: dict[str, list[Any]] = {
    "bare": [],
    "looking": ["log", {"use": "limit", "concurrent": 4}],
    "plain": [{"use": "limit", "concurrent": 4}, "truncate"],
    "tasked": [{"use": "limit", "concurrent": 4}, {"use": "timeout", "seconds": 5}, "log"],
}


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("revision", ERAS)
async def test_a_fault_anywhere_is_an_answer_and_nothing_stays_behind(
    revision: str, server: str, layers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: an internal error with an incident number; id and count are given back (docs/behaviour.md)."""
    faults = {port: Fault(monkeypatch, *place) for port, place in PORTS.items()}
    up = ScriptedServer(revision=server, tools={"talks": _talks})
    async with a_world({"up": up}, gateway={"middleware": LAYERS[layers]}) as world:
        client = _client(world, revision)
        await client.hello()
        for port, fault in faults.items():
            for _ in range(5):  # More often than `concurrent` allows at once.
                fault.armed = True
                # The same id again and again: it must be free each time.
                reply = await client.answer(_talk(client, id_=7))
                fault.armed = False
                if "error" in reply.message:
                    assert reply.error["data"]["muxway"]["reason"] == "internal", port
                    assert reply.error["data"]["muxway"]["incident"] in reply.error["message"]
                assert world.gateway.runtime.admission.running == 0, port
            assert (await client.answer(_talk(client, id_=7))).result["ok"] == 1, port
        assert client.unread == 0
        assert sum(fault.hits for fault in faults.values()) > 20


async def test_an_incident_is_logged_once_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ours: the number in the answer leads to the traceback in the log (docs/errors.md)."""
    fault = Fault(monkeypatch, Pool, "choose")
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        client = await world.client()
        fault.armed = True
        number = (await client.call("up__echo")).error["data"]["muxway"]["incident"]
        lines = [record.getMessage() for record in caplog.records if number in record.getMessage()]
        assert len(lines) == 1
        assert "RuntimeError: a fault in choose" in lines[0]
        assert "Traceback" in lines[0]


SINKS = ["done", "failed", "progress", "log", "ask"]


@pytest.mark.parametrize("port", SINKS)
async def test_the_reader_of_a_server_hears_the_next_message_whatever_a_sink_does_with_one(
    port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: what stands behind a message in the same read is heard (docs/behaviour.md)."""
    held: list[dict[str, Any]] = []

    def hold(server: ScriptedServer, request: dict[str, Any]) -> None:
        held.append(request)
        if len(held) < 2:
            return
        bad, good = held if port not in ("log", "ask") else reversed(held)
        token = {"progressToken": bad["params"]["_meta"]["progressToken"], "progress": 1}
        first: dict[str, dict[str, Any]] = {
            "done": {"id": bad["id"], "result": {"content": []}},
            "failed": {"id": bad["id"], "error": {"code": 1, "message": "no"}},
            "progress": {"method": "notifications/progress", "params": token},
            "log": {"method": "notifications/message", "params": {"level": "error", "data": "d"}},
            "ask": {"id": "q", "method": "roots/list"},
        }
        second = {"id": good["id"], "result": {"content": [], "ok": 1}}
        # As one line, so that they are in one read.
        batch = [{"jsonrpc": "2.0", **message} for message in (first[port], second)]
        server.say(json.dumps(batch).encode())

    fault = Fault(monkeypatch, ClientRequest, port)
    async with a_world({"up": ScriptedServer(tools={"hold": hold})}) as world:
        one = await world.client()
        other = one if port in ("log", "ask") else await world.client()
        fault.armed = True
        for client, id_ in ((one, "bad"), (other, "good")):
            client.start("tools/call", {"name": "up__hold", "_meta": {"progressToken": id_}}, id_=id_)
        async with asyncio.timeout(30):
            if port in ("log", "ask"):
                # On a pipe these belong to the last call of the only party.
                assert (await one.answer("good")).error["data"]["muxway"]["reason"] == "internal"
                assert (await one.answer("bad")).result["ok"] == 1
                return
            assert (await other.answer("good")).result["ok"] == 1
            if port != "failed":  # Nothing more can be done for a sink that takes no failure.
                assert (await one.answer("bad")).error["data"]["muxway"]["reason"] == "internal"
        assert fault.hits == 1


async def test_a_fault_in_what_a_client_says_does_not_end_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: notifications and answers have nobody who waits; the next message is heard all the same."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        client = await world.client()
        for owner, name in ((Session, "_cancel"), (Session, "hear_answer"), (Session, "hear_batch")):
            fault = Fault(monkeypatch, owner, name)
            fault.armed = True
            client.tell("notifications/cancelled", {"requestId": 99})
            client.say(b'{"jsonrpc":"2.0","id":99,"result":{}}')
            client.say(b"[1]")
            assert (await client.call("up__echo", {"ok": 1})).result["structuredContent"] == {"ok": 1}
            assert fault.hits == 1


@pytest.mark.parametrize("middleware", [[], ["log"], [{"use": "limit", "concurrent": 1}]])
@pytest.mark.parametrize("revision", ERAS)
async def test_a_tool_whose_definition_python_cannot_hold_can_be_called(revision: str, middleware: list[Any]) -> None:
    """RFC 8259 §6: 1e999 is valid JSON. A middleware sees the definition without what cannot be held."""
    schema = '{"type":"object","properties":{"n":{"type":"number","maximum":1e999}}}'
    listed = json.loads('{"name":"odd","description":"d"}')

    def list_tools(server: ScriptedServer, request: dict[str, Any]) -> None:
        tool = json.dumps(listed)[:-1] + f',"inputSchema":{schema}}}'
        extra = '"resultType":"complete","ttlMs":0,"cacheScope":"private",' if server.revision == ERAS[1] else ""
        server.say(f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{{{extra}"tools":[{tool}]}}}}'.encode())

    class Odd(ScriptedServer):
        async def _handle(self, message: dict[str, Any], line: bytes) -> None:
            if message.get("method") == "tools/list":
                list_tools(self, message)
            else:
                await super()._handle(message, line)

    async with a_world({"up": Odd(tools={"odd": None})}, gateway={"middleware": middleware}) as world:
        client = await world.client(revision)
        for _ in range(3):
            assert (await client.call("up__odd", {"n": 1})).result["structuredContent"] == {"n": 1}
        assert b"1e999" in (await client.ask("tools/list")).line
        assert [tool.name for tool in world.gateway.tools()] == ["up__odd"]


async def test_a_condition_over_nested_data_is_answered_and_nobody_else_waits() -> None:
    """Ours: what a server's result does to a composed tool is that call's affair (docs/behaviour.md)."""
    deep = "[" * 800 + "]" * 800

    def nested(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.say(
            f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{{"content":[],"structuredContent":'
            f'{{"x":{deep},"y":{deep}}}}}}}'.encode()
        )

    tool: dict[str, Any] = {
        "description": "d",
        "steps": [
            {"name": "a", "tool": "up__nested"},
            {"name": "b", "tool": "up__echo", "when": "${steps.a.result.x} == ${steps.a.result.y}"},
        ],
    }
    up = ScriptedServer(tools={"nested": nested, "echo": None})
    known = {"mcpServers": {"up": {"command": "none", "disabled": True}}}
    async with a_world({"up": up}, **known, tools={"both": tool}) as world:
        client = await world.client()
        assert "result" in (await client.call("both")).message
        assert (await client.call("up__echo", {"ok": 1})).result["structuredContent"] == {"ok": 1}


async def test_a_fault_in_a_later_turn_of_a_composed_tool_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: a composed tool with many items goes on in further turns; a fault there ends it at once, too."""
    monkeypatch.setattr(running, "_TURN", -1.0)
    fault = Fault(monkeypatch, running._Work, "next")
    tool = {"description": "d", "steps": [{"name": "a", "tool": "up__echo", "forEach": [1, 2, 3]}]}
    known = {"mcpServers": {"up": {"command": "none", "disabled": True}}}
    async with a_world({"up": ScriptedServer(tools={"echo": None})}, **known, tools={"all": tool}) as world:
        client = await world.client()
        fault.armed = True
        async with asyncio.timeout(30):
            assert (await client.call("all")).result["isError"] is True
            assert fault.hits == 1
            assert "isError" not in (await client.call("all")).result


async def test_a_fault_in_a_call_that_was_held_is_the_end_of_no_other() -> None:
    """Ours: calls wait together for a server that is being started; each has an outcome of its own."""
    ended: list[Any] = []
    member = FakeBackend()
    dispatcher = Runtime(Settings(name="m", version="1", naming=Naming.of("__", 64)), {"up": member}).dispatcher()
    call = Call(LIBRARY, "tools/call", {})

    def again(call: Call, sink: Any) -> None:
        ended.append(sink)
        if sink is first:
            raise RuntimeError("a fault")

    first, second = Waiter(), Waiter()
    for sink in (first, second):
        dispatcher.hold(StillStarting(member), again, call, sink)
    member.waiting.release()
    # In turns: a turn may be over after the first one.
    await until(lambda: ended == [first, second])
    with pytest.raises(RpcError, match="internal error"):
        await first.outcome(None)


IDS = [b"01", b"-01", rb'"\x"', b'"a\x01b"', b"1.5", b"true", b"null", b"[1]", b'"\xff"', b'"\\ud800"', b"9" * 500]


@pytest.mark.parametrize("id_", IDS)
async def test_whatever_id_a_request_has_the_answer_is_json(id_: bytes) -> None:
    """JSON-RPC 2.0 §5: the id of the answer is that of the request, or null if it could not be determined."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        door = world.gateway.memory_door()
        client = RawClient(door)
        await client.hello()
        client.say(b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":{"name":"up__none"}}' % id_)
        async with asyncio.timeout(30):
            answer = json.loads(await door.receive())
        assert "error" in answer
        assert isinstance(answer["id"], str | int | None)
        assert (await client.call("up__echo", {"ok": 1})).result["structuredContent"] == {"ok": 1}


@pytest.mark.parametrize("spelled", ['"x/y"', r'"\u0078\/y"', r'"x\u002fy"'])
@pytest.mark.parametrize("cancelled", ['"x/y"', r'"\u0078/y"', r'"x\/\u0079"'])
async def test_a_request_is_cancelled_by_its_id_however_that_is_spelled(spelled: str, cancelled: str) -> None:
    """MCP, basic/utilities/cancellation: by the id of the request; RFC 8259 §8.3: strings are equal by value."""
    heard = asyncio.Event()
    up = ScriptedServer(tools={"waits": lambda *_: heard.set(), "echo": None})
    async with a_world({"up": up}) as world:
        client = await world.client()
        client.say(f'{{"jsonrpc":"2.0","id":{spelled},"method":"tools/call","params":{{"name":"up__waits"}}}}'.encode())
        await asyncio.wait_for(heard.wait(), 30)
        notice = f'{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{cancelled}}}}}'
        client.say(notice.encode())
        assert world.gateway.runtime.admission.running == 0
        assert (await client.call("up__echo", {"ok": 1})).result["structuredContent"] == {"ok": 1}


@pytest.mark.parametrize("start", [b"\xef\xbb\xbf", b""], ids=["byte order mark", "lone surrogate"])
async def test_a_line_that_is_mended_passes_no_huge_integer(start: bytes) -> None:
    """Ours: no program behind us is sent an integer that it cannot read (RFC 8259 §6)."""
    up = ScriptedServer(tools={"echo": None})
    async with a_world({"up": up}) as world:
        client = await world.client()
        arguments = b'{"s":"\\ud800","n":%b}' % (b"9" * 5000)
        client.say(
            start
            + b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"up__echo","arguments":%b}}' % arguments
        )
        assert (await client.answer(5)).error["code"] == -32600
        assert not any(message.get("method") == "tools/call" for message in up.heard)


async def test_calls_that_waited_together_go_on_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/behaviour.md#size-limits: what calls for unlisted names cost is spread over turns, however many waited."""
    monkeypatch.setattr(ports, "TURN", -1.0)
    went: list[int] = []
    member = FakeBackend()
    dispatcher = Runtime(Settings(name="m", version="1", naming=Naming.of("__", 64)), {"up": member}).dispatcher()
    for number in range(3):
        dispatcher.hold(
            StillStarting(member),
            lambda *_, number=number: went.append(number),
            Call(LIBRARY, "tools/call", {}),
            Waiter(),
        )
    member.waiting.release()
    assert went == [0]
    async with asyncio.timeout(30):
        while went != [0, 1, 2]:
            await asyncio.sleep(0)
