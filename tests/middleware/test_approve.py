"""`approve`: what is held, who is asked and how, and that nothing runs without a yes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from muxway.calls.ports import LOOP_CLOCK
from muxway.clients.transports.guard import Guard
from muxway.middleware.builtin.approve import Approve
from muxway.middleware.engine.running import Layer
from muxway.testing import RawClient, ScriptedServer

from ..conftest import REVISIONS, a_world
from ..serve.harness import a_web, modern
from ..serve.harness import request as http_request
from .chained import chained, surround

if TYPE_CHECKING:
    from ..conftest import World
    from ..serve.harness import Web

FORMS: dict[str, Any] = {"elicitation": {"form": {}}}
CAN_ASK = ["2025-06-18", "2025-11-25", "2026-07-28"]
DEFINITIONS = [
    {"name": "read", "inputSchema": {}, "annotations": {"readOnlyHint": True}},
    {"name": "add", "inputSchema": {}, "annotations": {"destructiveHint": False}},
    {"name": "drop", "inputSchema": {}},
    {"name": "odd", "inputSchema": {}, "annotations": ["readOnlyHint"]},
]


def files(**more: Any) -> ScriptedServer:
    """A server with tools of every marking."""
    return ScriptedServer(tools={"read": None, "add": None, "drop": None, "odd": None}, definitions=DEFINITIONS, **more)


def ran(server: ScriptedServer) -> list[str]:
    """The tools that were really called."""
    return [message["params"]["name"] for message in server.heard if message.get("method") == "tools/call"]


async def asker(
    world: World, action: str = "accept", revision: str = "2025-11-25", capabilities: dict[str, Any] = FORMS
) -> tuple[RawClient, list[dict[str, Any]]]:
    """A client whose user always does the same, and what it was asked."""
    client = RawClient(world.gateway.memory_door(), revision=revision, capabilities=capabilities)
    asked: list[dict[str, Any]] = []
    client.answers["elicitation/create"] = lambda params: asked.append(params) or {"action": action, "content": {}}
    await client.hello()
    return client, asked


async def call(client: RawClient, tool: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    return (await client.complete("tools/call", {"name": tool, "arguments": arguments or {}})).result


@pytest.mark.parametrize("revision", CAN_ASK)
async def test_a_call_waits_for_a_yes_and_the_question_says_what_it_is_about(revision: str) -> None:
    server = files()
    async with chained({"fs": server}, Approve()) as world:
        client, asked = await asker(world, revision=revision)
        result = await call(client, "fs__drop", {"path": "/a\u202eb", "note": "x" * 5000})
        assert result["structuredContent"]["path"] == "/a\u202eb"
        assert not result.get("isError")
        assert ran(server) == ["drop"]
        (question,) = asked
        assert question["message"].startswith(
            '[muxway] Allow the tool "fs__drop" of the server "fs" to be called with {"path":"/a\\u202eb"'
        )
        assert len(question["message"]) < 700
        assert question["requestedSchema"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize("revision", CAN_ASK)
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_without_a_yes_nothing_runs(revision: str, action: str) -> None:
    server = files()
    async with chained({"fs": server}, Approve()) as world:
        client, asked = await asker(world, action, revision)
        result = await call(client, "fs__drop")
        assert result["isError"] is True
        assert "was not called" in result["content"][0]["text"]
        assert ("resultType" in result) == (revision == "2026-07-28")
        assert len(asked) == 1
        assert ran(server) == []


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_client_that_cannot_ask_is_told_how_to_allow_it(revision: str) -> None:
    server = files()
    async with chained({"fs": server}, Approve()) as world:
        client, asked = await asker(world, revision=revision, capabilities={})
        result = await call(client, "fs__drop")
        assert result["isError"] is True
        assert '{"use":"approve","allow":["fs__drop"]}' in result["content"][0]["text"]
        assert (asked, ran(server)) == ([], [])


async def test_a_client_that_answers_with_an_error_is_not_a_yes() -> None:
    server = files()
    async with chained({"fs": server}, Approve()) as world:
        client, _ = await asker(world)
        client.answers["elicitation/create"] = lambda _: ValueError("no screen")
        result = await call(client, "fs__drop")
        assert "could not be asked: no screen" in result["content"][0]["text"]
        client.answers["elicitation/create"] = lambda _: {"action": "yes, yes"}
        assert (await call(client, "fs__drop"))["isError"] is True
        assert ran(server) == []


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ({}, ["add", "drop", "odd"]),
        ({"destructive_only": True}, ["drop", "odd"]),
        ({"tools": ("fs__r*", "other__*")}, ["read"]),
        ({"allow": ("fs__d*", "*__odd")}, ["add"]),
    ],
)
async def test_what_is_held(options: dict[str, Any], held: list[str]) -> None:
    """MCP: a tool is not read-only, and destructive, unless it says otherwise."""
    server = files()
    async with chained({"fs": server}, Approve(**options)) as world:
        client, asked = await asker(world, "decline")
        for tool in server.tools:
            await call(client, f"fs__{tool}")
        assert len(asked) == len(held)
        assert ran(server) == [tool for tool in server.tools if tool not in held]


@pytest.mark.parametrize("spelling", ["fs:drop", "fs.drop", "fs__drop"])
async def test_another_spelling_of_the_name_is_no_way_around(spelling: str) -> None:
    server = files()
    async with chained({"fs": server}, Approve(tools=("fs__drop",))) as world:
        client, asked = await asker(world, "decline")
        assert (await call(client, spelling))["isError"] is True
        assert (len(asked), ran(server)) == (1, [])


async def test_a_tool_that_is_not_known_yet_is_held_whatever_its_name() -> None:
    """Ours: a call to a server that is still starting is held there, and runs as soon as the server is up."""
    async with chained({"fs": files()}, Approve(tools=("other__*",))) as world:
        client, asked = await asker(world, "decline")
        assert (await call(client, "fs__unknown"))["isError"] is True
        assert 'Allow the tool "fs__unknown" of the server "fs" to be called' in asked[0]["message"]


@pytest.mark.parametrize("revision", CAN_ASK)
async def test_a_yes_holds_for_a_while_for_this_caller_and_tool_only(
    revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(LOOP_CLOCK, "steady", lambda: now, raising=False)
    async with chained({"fs": files()}, Approve(remember=60)) as world:
        client, asked = await asker(world, revision=revision)
        for _ in range(3):
            assert "isError" not in await call(client, "fs__drop", {"n": 1})
        assert len(asked) == 1
        await call(client, "fs__add")
        assert len(asked) == 2
        stranger, strangers_questions = await asker(world, "decline", revision)
        assert (await call(stranger, "fs__drop"))["isError"] is True
        assert len(strangers_questions) == 1
        now = 61.0
        await call(client, "fs__drop")
        assert len(asked) == 3


async def test_a_refusal_is_not_remembered_as_a_yes() -> None:
    async with chained({"fs": files()}, Approve(remember=60)) as world:
        client, asked = await asker(world, "decline")
        await call(client, "fs__drop")
        await call(client, "fs__drop")
        assert len(asked) == 2


async def test_a_cancelled_call_takes_its_question_back_and_never_runs() -> None:
    server = files()
    async with chained({"fs": server}, Approve()) as world:
        client = RawClient(world.gateway.memory_door(), capabilities=FORMS)
        await client.hello()
        id_ = client.start("tools/call", {"name": "fs__drop", "arguments": {}})
        question = await client.notice("elicitation/create")
        client.tell("notifications/cancelled", {"requestId": id_})
        withdrawn = await client.notice("notifications/cancelled")
        assert withdrawn["params"]["requestId"] == question["id"]
        client.say(b'{"jsonrpc":"2.0","id":%d,"result":{"action":"accept","content":{}}}' % question["id"])
        await client.tools()
        assert ran(server) == []


async def test_a_stateless_answer_is_good_for_one_call_of_one_caller_only() -> None:
    """Ours: what the user agreed to is this call, with these arguments, once."""
    server = files()
    async with chained({"fs": server}, Approve()) as world:
        client, _ = await asker(world, revision="2026-07-28")
        params: dict[str, Any] = {"name": "fs__drop", "arguments": {"path": "a"}}
        state = (await client.ask("tools/call", params)).result["requestState"]
        yes = {"inputResponses": {"approve": {"action": "accept"}}, "requestState": state}
        other = {"name": "fs__drop", "arguments": {"path": "b"}}
        assert "Invalid or expired" in (await client.ask("tools/call", {**other, **yes})).error["message"]
        state = (await client.ask("tools/call", params)).result["requestState"]
        yes["requestState"] = state
        assert "result" in (await client.ask("tools/call", {**params, **yes})).message
        assert "Invalid or expired" in (await client.ask("tools/call", {**params, **yes})).error["message"]
        for forged in ("mwa1.x", "mw1.x", "x", 7, None):
            again = {**params, **yes, "requestState": forged}
            assert "Invalid or expired" in (await client.ask("tools/call", again)).error["message"]
        # No answer at all is no yes.
        state = (await client.ask("tools/call", params)).result["requestState"]
        assert (await client.ask("tools/call", {**params, "requestState": state})).result["isError"] is True
        assert ran(server) == ["drop"]


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("revision", CAN_ASK)
async def test_a_server_may_ask_something_itself_after_the_yes(revision: str, server_revision: str) -> None:
    form = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}

    async def curious(server: ScriptedServer, request: dict[str, Any]) -> None:
        if server.revision != "2026-07-28":
            await server.ask("elicitation/create", form)
        elif "inputResponses" not in request["params"]:
            server.need(request, {"q": {"method": "elicitation/create", "params": form}}, "s")
            return
        server.reply(request, {"content": [{"type": "text", "text": "done"}]})

    async with chained({"fs": ScriptedServer(server_revision, tools={"drop": curious})}, Approve()) as world:
        client, asked = await asker(world, revision=revision)
        assert (await call(client, "fs__drop"))["content"][0]["text"] == "done"
        assert [question["message"].partition(" ")[0] for question in asked] == ["[muxway]", "[fs]"]


async def test_a_round_of_the_server_cannot_be_made_twice_with_one_yes() -> None:
    calls = 0

    def curious(server: ScriptedServer, request: dict[str, Any]) -> None:
        nonlocal calls
        if "inputResponses" not in request["params"]:
            form = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
            server.need(request, {"q": {"method": "elicitation/create", "params": form}}, "s")
        else:
            calls += 1
            server.reply(request, {"content": []})

    async with chained({"fs": ScriptedServer("2026-07-28", tools={"drop": curious})}, Approve()) as world:
        client, _ = await asker(world, revision="2026-07-28")
        params: dict[str, Any] = {"name": "fs__drop", "arguments": {}}
        first = (await client.ask("tools/call", params)).result["requestState"]
        yes = {"inputResponses": {"approve": {"action": "accept"}}, "requestState": first}
        second = (await client.ask("tools/call", {**params, **yes})).result["requestState"]
        answer = {"inputResponses": {"q": {"action": "accept", "content": {}}}, "requestState": second}
        assert "result" in (await client.ask("tools/call", {**params, **answer})).message
        assert "Invalid or expired" in (await client.ask("tools/call", {**params, **answer})).error["message"]
        assert calls == 1


def around(web: Web, middleware: Approve) -> None:
    """Put it around what the web door serves."""
    surround(web.world.gateway, Layer("approve", middleware))


async def test_a_session_over_http_is_asked_on_the_stream_of_its_call() -> None:
    server = files()
    async with a_web({"fs": server}) as web:
        around(web, Approve())
        params = {"protocolVersion": "2025-11-25", "capabilities": FORMS, "clientInfo": {"name": "c", "version": "1"}}
        session = (await web.post(http_request("initialize", params, 0))).headers["mcp-session-id"]
        headers = {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
        await web.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
        stream = await web.open_post(http_request("tools/call", {"name": "fs__drop", "arguments": {}}, 1), headers)
        question = await stream.message()
        assert question["params"]["message"].startswith("[muxway] Allow")
        assert ran(server) == []
        await web.post({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {}}}, headers)
        assert "result" in await stream.message()
        assert ran(server) == ["drop"]


async def test_a_yes_is_good_only_with_the_token_it_was_asked_of() -> None:
    server = files()
    async with a_web({"fs": server}, guard=Guard(tokens=["one", "two"])) as web:
        around(web, Approve(remember=60))

        async def post(token: str, **params: Any) -> dict[str, Any]:
            meta = {"io.modelcontextprotocol/clientCapabilities": FORMS}
            given = {"name": "fs__drop", "arguments": {}, "_meta": meta, **params}
            message, headers = modern("tools/call", given, 1)
            return (await web.post(message, {**headers, "Authorization": f"Bearer {token}"})).json

        yes = {"inputResponses": {"approve": {"action": "accept"}}}
        state = (await post("one"))["result"]["requestState"]
        assert "error" in await post("two", requestState=state, **yes)
        state = (await post("one"))["result"]["requestState"]
        assert (await post("one", requestState=state, **yes))["result"]["resultType"] == "complete"
        assert (await post("one"))["result"]["resultType"] == "complete"
        assert (await post("two"))["result"]["resultType"] == "input_required"
        assert ran(server) == ["drop", "drop"]


async def test_what_is_remembered_is_bounded() -> None:
    middleware = Approve(remember=60)
    async with chained({"fs": files()}, middleware) as world:
        client, _ = await asker(world, revision="2026-07-28")
        for number in range(1100):
            await client.call("fs__drop", {"n": number})
        assert len(middleware._asked) == 1000


async def test_other_calls_go_on_while_one_waits() -> None:
    async with chained({"fs": files()}, Approve()) as world:
        client = RawClient(world.gateway.memory_door(), capabilities=FORMS)
        await client.hello()
        waiting = client.start("tools/call", {"name": "fs__drop", "arguments": {}})
        question = await client.notice("elicitation/create")
        assert "structuredContent" in (await asyncio.wait_for(client.call("fs__read", {"n": 1}), 5)).result
        client.say(b'{"jsonrpc":"2.0","id":%d,"result":{"action":"accept","content":{}}}' % question["id"])
        assert "structuredContent" in (await client.answer(waiting)).result


async def test_it_can_be_configured() -> None:
    server = files()
    around = [{"use": "approve", "destructiveOnly": True, "allow": ["fs__odd"], "remember": 60}]
    async with a_world({"fs": server}, middleware=around) as world:
        client, asked = await asker(world, "decline")
        for tool in server.tools:
            await call(client, f"fs__{tool}")
        assert (len(asked), ran(server)) == (1, ["read", "add", "odd"])


@pytest.mark.parametrize("options", [{"tools": ("x",), "destructive_only": True}, {"remember": -1}, {"remember": 1e9}])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"not both|must be"):
        Approve(**options)
