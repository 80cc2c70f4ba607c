"""Clients that cannot take everything get it in a form that they take, and nobody else does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from muxway.calls.identity import Identity
from muxway.testing import RawClient, ScriptedServer
from tests.conftest import a_world

if TYPE_CHECKING:
    import pytest

    from tests.conftest import World

UNION = {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
LONG = "It does this. " * 250
OFF = {"command": "none", "disabled": True}


def server(**more: Any) -> ScriptedServer:
    definitions = [
        {"name": "plain", "inputSchema": {"type": "object"}},
        {"name": "union", "description": "One of two.", "inputSchema": UNION},
        {"name": "long", "description": LONG, "inputSchema": {"type": "object"}},
    ]
    return ScriptedServer(tools={"plain": None, "union": None, "long": None}, definitions=definitions, **more)


async def client(world: World, name: str, view: str | None = None, **more: Any) -> RawClient:
    client = RawClient(world.gateway.memory_door(view, **more), name=name)
    await client.hello()
    return client


async def tools(client: RawClient) -> dict[str, Any]:
    return {tool["name"]: tool for tool in (await client.ask("tools/list")).result["tools"]}


async def test_each_client_gets_what_it_can_take(caplog: pytest.LogCaptureFixture) -> None:
    """docs/names.md#clients: by `clientInfo.name`; others get everything as it is. Told in the log once."""
    caplog.set_level("INFO", logger="muxway")
    async with a_world({"up": server()}) as world:
        code, other = await client(world, "claude-code"), await client(world, "somebody")
        listed, plain = await tools(code), await tools(other)
        assert "oneOf" not in listed["up__union"]["inputSchema"]
        assert listed["up__union"]["description"] == "One of two. Give exactly one of these: `a`; `b`."
        assert len(listed["up__long"]["description"]) <= 2048
        assert plain["up__union"]["inputSchema"] == UNION
        assert plain["up__long"]["description"] == LONG
        assert listed["up__plain"] == plain["up__plain"]
        assert (await code.call("up__union", {"a": 1})).result["structuredContent"] == {"a": 1}
        await client(world, "claude-code")
        told = [record for record in caplog.records if "lists adapted for a client" in record.getMessage()]
        assert len(told) == 1
        assert world.gateway.adapted()[0][1].name == "claude-code"


async def test_schemas_are_looked_through_beside_the_event_loop() -> None:
    """docs/behaviour.md: what a server lists holds nobody up, whichever client comes."""
    async with a_world({"up": server()}) as world:
        snapshot = world.gateway.runtime.snapshot
        assert snapshot.known(None, None, "claude-code") is None
        assert world.gateway.runtime.making(None, None, "claude-code") is not None
        assert "oneOf" not in (await tools(await client(world, "claude-code")))["up__union"]["inputSchema"]
        assert snapshot.known(None, None, "claude-code") is not None
        assert snapshot.known(None, None, "") is not None


async def test_it_can_be_switched_off_while_it_runs() -> None:
    """docs/configuration.md#gateway: `clientProfiles`."""
    async with a_world({"up": server()}, gateway={"clientProfiles": False}) as world:
        assert (await tools(await client(world, "claude-code")))["up__union"]["inputSchema"] == UNION


async def test_a_name_that_a_client_cannot_take_is_another_one_for_it_alone() -> None:
    """docs/names.md#clients: whichever of its names is called, rules and middlewares know it by the one they know."""
    top: dict[str, Any] = {
        "gateway": {"separator": ":"},
        "middleware": [{"use": "limit", "rate": "1/h", "match": ["up:once"]}],
    }
    scripted = ScriptedServer(tools={"get": None, "once": None, "drop": None})
    async with a_world({"up": scripted}, **top) as world:
        desktop, other = await client(world, "claude-ai"), await client(world, "x")
        assert [*await tools(desktop)] == ["up_get", "up_once", "up_drop"]
        assert [*await tools(other)] == ["up:get", "up:once", "up:drop"]
        for name in ("up_get", "up:get", "up.get", "up__get"):
            assert (await desktop.call(name, {"x": 1})).result["structuredContent"] == {"x": 1}
        assert "result" in (await desktop.call("up_once")).message
        assert "result" not in (await desktop.call("up_once")).message, "the limit is for it under its own name"
        assert (await other.call("up_get")).error["message"].startswith("Tool n")


async def test_access_rules_hold_under_the_name_of_a_client() -> None:
    """docs/access.md: what is denied looks unknown, however it is called."""
    rules = [{"tools": ["up:drop"], "do": "deny"}]
    scripted = ScriptedServer(tools={"get": None, "drop": None})
    async with a_world({"up": scripted}, access=rules, gateway={"separator": ":"}) as world:
        desktop = await client(world, "claude-ai", identity=Identity(user="ann"))
        assert [*await tools(desktop)] == ["up_get"]
        assert "result" in (await desktop.call("up_get")).message
        for name in ("up_drop", "up:drop", "up__drop"):
            assert (await desktop.call(name)).error["code"] in (-32601, -32602), name
        assert sum(message.get("method") == "tools/call" for message in scripted.heard) == 1


async def test_views_pins_and_changes_work_for_clients_too() -> None:
    """docs/views.md: a client's form of a list is a list like any other."""
    scripted = server()
    async with a_world({"up": scripted}, views={"v": {"tools": ["up__union", "up__new"], "pin": True}}) as world:
        pinned, free = await client(world, "cursor-vscode", "v"), await client(world, "cursor-vscode")
        before = (await pinned.ask("tools/list", id_="L")).line
        assert b"oneOf" not in before
        assert scripted.definitions is not None
        scripted.definitions = [*scripted.definitions, {"name": "new", "inputSchema": UNION}]
        scripted.tools["new"] = None
        scripted.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await free.notice("notifications/tools/list_changed")
        assert "oneOf" not in (await tools(free))["up__new"]["inputSchema"]
        assert (await pinned.ask("tools/list", id_="L")).line == before
        assert "result" in (await pinned.call("up__new", {"a": 1})).message


async def test_lists_without_a_session_are_one_for_all() -> None:
    """docs/names.md#clients: MCP 2026-07-28 has lists that depend on who is asking, not on what is asking with."""
    async with a_world({"up": server()}) as world:
        stateless = await world.client("2026-07-28")
        meta = {"io.modelcontextprotocol/clientInfo": {"name": "claude-code", "version": "1"}}
        listed = (await stateless.ask("tools/list", {"_meta": meta})).result["tools"]
        assert listed[1]["inputSchema"] == UNION


async def test_composed_tools_use_what_there_is() -> None:
    """docs/composed-tools.md: the names in their steps are those of the configuration."""
    steps = [{"name": "one", "tool": "up:get", "args": {"x": 1}}]
    top: dict[str, Any] = {"gateway": {"separator": ":"}, "tools": {"both": {"description": "Both.", "steps": steps}}}
    async with a_world({"up": ScriptedServer(tools={"get": None})}, mcpServers={"up": OFF}, **top) as world:
        desktop = await client(world, "claude-ai")
        assert [*await tools(desktop)] == ["both", "up_get"]
        assert "result" in (await desktop.call("both")).message


async def test_instructions_share_the_room_that_a_client_has() -> None:
    """docs/names.md#clients: Claude Code reads 2 KB of them; no server takes the room of the others."""
    servers = {
        name: ScriptedServer(tools={"a": None}, instructions=f"{name} says this. " * 300) for name in ("one", "two")
    }
    async with a_world(servers) as world:
        door = RawClient(world.gateway.memory_door(), name="claude-code")
        hello = await door.hello()
        assert hello is not None
        text = hello.result["instructions"]
        assert len(text.encode()) <= 2048
        assert "one says this." in text
        assert "two says this." in text
        assert json.dumps(text)
