"""Compound tools, from the configuration to the subtool."""

from __future__ import annotations

import json

from muxway.testing import ScriptedServer
from tests.conftest import a_world

TOOLS = {
    "Everything": {
        "description": "Does it all.",
        "subtools": {
            "one": {"tools": [{"name": "a", "description": "Tool A"}]},
            "two": {"tools": [{"name": "b", "description": "Tool B"}, {"name": "c", "description": "Tool C"}]},
        },
    }
}


def _servers() -> dict[str, ScriptedServer]:
    return {"one": ScriptedServer(tools={"a": None, "z": None}), "two": ScriptedServer(tools={"b": None, "c": None})}


def _config() -> dict[str, object]:
    # The servers named in subtools must exist when the file is read; they are switched on at run time.
    off = {"command": "none", "disabled": True}
    return {"mcpServers": {"one": off, "two": off}, "tools": TOOLS}


async def test_a_compound_tool_lists_its_subtools_and_runs_the_one_asked_for() -> None:
    """docs/configuration.md#compound-tools: one tool whose schema names the servers and tools that it may run."""
    servers = _servers()
    async with a_world(servers, **_config()) as world:
        client = await world.client()
        tools = {tool["name"]: tool for tool in (await client.ask("tools/list")).result["tools"]}
        assert list(tools) == ["Everything", "one__a", "one__z", "two__b", "two__c"]
        tool = tools["Everything"]
        for word in ("Does it all.", "one", "Tool A", "two", "Tool B", "Tool C"):
            assert word in tool["description"]
        properties = tool["inputSchema"]["properties"]
        assert properties["server"]["enum"] == ["one", "two"]
        assert properties["tool"]["enum"] == ["a", "b", "c"]
        reply = await client.call("Everything", {"server": "two", "tool": "c", "args": {"x": [1, None]}})
        assert reply.result["structuredContent"] == {"x": [1, None]}
        assert servers["two"].heard[-1]["params"] == {"name": "c", "arguments": {"x": [1, None]}}
        assert (await client.call("Everything", {"server": "one", "tool": "a"})).result["structuredContent"] == {}


async def test_what_is_not_listed_is_refused_with_the_list_of_what_is() -> None:
    """docs/configuration.md#compound-tools: nothing but what is listed there can be run."""
    servers = _servers()
    async with a_world(servers, **_config()) as world:
        client = await world.client()
        before = json.dumps([server.heard for server in servers.values()])
        for arguments in (
            {},
            {"server": "one"},
            {"server": "one", "tool": "z"},
            {"server": "one", "tool": "b"},
            {"server": "three", "tool": "a"},
            {"server": ["one"], "tool": "a"},
        ):
            error = (await client.call("Everything", arguments)).error
            assert error["code"] == -32602
            assert "one/a, two/b, two/c" in error["message"]
        error = (await client.call("Everything", {"server": "one", "tool": "a", "args": [1]})).error
        assert "args must be an object" in error["message"]
        assert json.dumps([server.heard for server in servers.values()]) == before


async def test_a_subtool_of_a_server_that_is_down_says_so() -> None:
    """Ours: what happened, to whom."""
    async with a_world({"one": ScriptedServer(tools={"a": None})}, **_config()) as world:
        client = await world.client()
        error = (await client.call("Everything", {"server": "two", "tool": "b"})).error
        assert error["data"]["muxway"] == {"reason": "not_running", "upstream": "two"}
