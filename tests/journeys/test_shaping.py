"""Shaped tools, from the configuration to the server and back, for callers and servers of every revision."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muxway.config import parse_config
from muxway.errors import ConfigError
from muxway.testing import RawClient, ScriptedServer
from tests.conftest import REVISIONS, a_world, said

DEFINITION = {
    "name": "search",
    "description": "Searches.",
    "inputSchema": {
        "type": "object",
        "properties": {"q": {"type": "string"}, "org": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["q", "org"],
    },
}
SHAPE = {
    "search": {
        "name": "find",
        "description": "Finds.",
        "arguments": {
            "q": {"rename": "query", "pattern": "^[a-z ]+$"},
            "org": {"hide": True, "value": "acme"},
            "limit": {"default": 5},
        },
    }
}


def _answers_with(result: dict[str, Any]) -> Any:
    return lambda server, request: server.reply(request, result)


def _server(revision: str = "2025-11-25", script: Any = None) -> ScriptedServer:
    return ScriptedServer(revision=revision, tools={"search": script}, definitions=[DEFINITION])


async def _listed(client: RawClient) -> dict[str, Any]:
    return {tool["name"]: tool for tool in (await client.ask("tools/list")).result["tools"]}


@pytest.mark.parametrize("served", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_shaped_tool_is_called_in_its_new_words(revision: str, served: str) -> None:
    """docs/behaviour.md#shapes-and-views: the server gets what it expects, from callers of every revision."""
    server = _server(served)
    async with a_world({"s": server}, entries={"s": {"shape": SHAPE}}) as world:
        client = await world.client(revision)
        (tool,) = (await _listed(client)).values()
        assert tool["name"] == "find"
        assert tool["description"] == "Finds."
        assert list(tool["inputSchema"]["properties"]) == ["query", "limit"]
        result = (await client.call("find", {"query": "cats"})).result
        assert said(result) == {"q": "cats", "limit": 5, "org": "acme"}
        params = server.heard[-1]["params"]
        assert (params["name"], params["arguments"]) == ("search", {"q": "cats", "limit": 5, "org": "acme"})
        heard = len(server.heard)
        error = (await client.call("find", {"query": "CATS"})).error
        assert error["code"] == -32602
        assert error["message"] == 'find: argument "query" must be text that matches ^[a-z ]+$'
        error = (await client.call("find", {"query": "x", "org": "evil"})).error
        assert error["message"] == 'find: there is no argument "org"'
        assert len(server.heard) == heard, "the server was not asked"


@pytest.mark.parametrize("served", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_result_is_reshaped_for_every_caller(revision: str, served: str) -> None:
    """docs/shaping.md#how-it-works: by JMESPath."""
    data = {"total": 2, "items": [{"name": "a", "secret": "x"}, {"name": "b", "secret": "y"}]}
    server = _server(served, _answers_with({"content": [{"type": "text", "text": json.dumps(data)}]}))
    shape = {"search": {"result": "{names: items[].name, total: total}"}}
    async with a_world({"s": server}, entries={"s": {"shape": shape}}) as world:
        client = await world.client(revision)
        reply = await client.call("s__search", {"q": "x", "org": "y"})
        assert said(reply.result) == {"names": ["a", "b"], "total": 2}
        assert b"secret" not in reply.line


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_an_expression_that_fails_costs_its_call_only(revision: str) -> None:
    """docs/behaviour.md#shapes-and-views: the call fails alone, the gateway stays up."""
    server = _server("2025-11-25", _answers_with({"content": [{"type": "text", "text": "not found"}]}))
    server.tools["other"] = None
    server.definitions = [DEFINITION, {"name": "other", "inputSchema": {"type": "object"}}]
    async with a_world({"s": server}, entries={"s": {"shape": {"search": {"result": "items"}}}}) as world:
        client = await world.client(revision)
        result = (await client.call("s__search", {"q": "x", "org": "y"})).result
        assert result["isError"] is True
        assert 'shape "search": it is no JSON' in result["content"][0]["text"]
        assert said((await client.call("s__other", {"n": 1})).result) == {"n": 1}


@pytest.mark.parametrize("served", ["2025-11-25", "2026-07-28"])
async def test_a_shaped_call_that_asks_goes_on_with_the_same_arguments(served: str) -> None:
    """Ours: the answers of a stateless client come with its own words, not with the server's."""
    asks = {"message": "sure?", "requestedSchema": {"type": "object", "properties": {}}}

    async def handshake(server: ScriptedServer, request: dict[str, Any]) -> None:
        answer = await server.ask("elicitation/create", asks)
        told = {"arguments": request["params"]["arguments"], "answer": answer["result"]["action"]}
        server.reply(request, {"content": [], "structuredContent": told})

    def stateless(server: ScriptedServer, request: dict[str, Any]) -> None:
        params = request["params"]
        if "inputResponses" not in params:
            server.need(request, {"k": {"method": "elicitation/create", "params": {"mode": "form", **asks}}}, "state")
            return
        told = {"arguments": params["arguments"], "answer": params["inputResponses"]["k"]["action"]}
        server.reply(request, {"content": [], "structuredContent": told})

    server = _server(served, handshake if served == "2025-11-25" else stateless)
    shape = {"search": {**SHAPE["search"], "result": "{got: arguments, answer: answer}"}}
    async with a_world({"s": server}, entries={"s": {"shape": shape}}) as world:
        client = RawClient(
            world.gateway.memory_door(), revision="2026-07-28", capabilities={"elicitation": {"form": {}}}
        )
        client.answers["elicitation/create"] = lambda _params: {"action": "accept", "content": {}}
        reply = await client.complete("tools/call", {"name": "find", "arguments": {"query": "cats"}})
        assert reply.result["structuredContent"] == {
            "got": {"q": "cats", "limit": 5, "org": "acme"},
            "answer": "accept",
        }


async def test_a_compound_call_that_asks_goes_on_with_the_answers() -> None:
    """docs/behaviour.md#questions-of-servers: also where the server gets other arguments than the caller gave."""
    asks = {"message": "sure?", "requestedSchema": {"type": "object", "properties": {}}}

    async def script(server: ScriptedServer, request: dict[str, Any]) -> None:
        answer = await server.ask("elicitation/create", asks)
        told = {"arguments": request["params"]["arguments"], "answer": answer["result"]["action"]}
        server.reply(request, {"content": [], "structuredContent": told})

    off = {"command": "none", "disabled": True}
    tools = {"All": {"description": "d", "subtools": {"s": {"tools": ["search"]}}}}
    async with a_world({"s": _server(script=script)}, mcpServers={"s": off}, tools=tools) as world:
        client = RawClient(
            world.gateway.memory_door(), revision="2026-07-28", capabilities={"elicitation": {"form": {}}}
        )
        client.answers["elicitation/create"] = lambda _params: {"action": "accept", "content": {}}
        arguments = {"server": "s", "tool": "search", "args": {"q": "cats"}}
        reply = await client.complete("tools/call", {"name": "All", "arguments": arguments})
        assert reply.result["structuredContent"] == {"arguments": {"q": "cats"}, "answer": "accept"}


async def test_a_task_of_a_stateless_server_brings_its_result_reshaped() -> None:
    """Ours: who asks after a task itself would get what the shape takes out."""

    def task(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.say(
            {
                "jsonrpc": "2.0",
                "id": request["id"],
                "result": {
                    "resultType": "task",
                    "taskId": "t1",
                    "status": "working",
                    "createdAt": "2026-01-01T00:00:00Z",
                    "lastUpdatedAt": "2026-01-01T00:00:00Z",
                    "ttlMs": 60000,
                    "pollIntervalMs": 10,
                },
            }
        )

    server = _server("2026-07-28", task)
    done = {"content": [], "structuredContent": {"public": 1, "secret": 2}}
    original = server._handle_more

    async def more(method: str, message: dict[str, Any]) -> bool:
        if method == "tasks/get":
            dates = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": 60000}
            server.reply(message, {"taskId": "t1", "status": "completed", **dates, "result": done})
            return True
        return await original(method, message)

    server._handle_more = more
    async with a_world({"s": server}, entries={"s": {"shape": {"search": {"result": "{public: public}"}}}}) as world:
        tasks = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        client = RawClient(world.gateway.memory_door(), revision="2026-07-28", capabilities=tasks)
        reply = await client.call("s__search", {"q": "x", "org": "y"})
        assert reply.result["structuredContent"] == {"public": 1}
        assert b"secret" not in reply.line


async def test_compound_tools_keep_to_the_shapes_of_what_they_run() -> None:
    """Ours: a fixed argument is fixed on every way to the tool, listed or not."""
    off = {"command": "none", "disabled": True}
    tools = {"All": {"description": "d", "subtools": {"s": {"tools": ["search"]}}}}
    for more in ({}, {"hiddenTools": ["search"]}):
        server = _server()
        entries = {"s": {"shape": SHAPE, **more}}
        async with a_world({"s": server}, entries=entries, mcpServers={"s": off}, tools=tools) as world:
            client = await world.client()
            result = (await client.call("All", {"server": "s", "tool": "search", "args": {"query": "x"}})).result
            assert result["structuredContent"] == {"q": "x", "limit": 5, "org": "acme"}
            error = (await client.call("All", {"server": "s", "tool": "search", "args": {"org": "evil"}})).error
            assert 'there is no argument "org"' in error["message"]


async def test_composed_tools_use_shaped_tools_as_clients_do() -> None:
    """docs/shaping.md: by their new names and arguments, listed or not."""
    off = {"command": "none", "disabled": True, "shape": SHAPE}
    step = {"arguments": {"query": "${input.word}"}}
    for more, name in (({}, "find"), ({"hiddenTools": ["search"]}, "s__search")):
        tools = {"Look": {"description": "d", "steps": {"one": {"tool": name, **step}}}}
        entries = {"s": {"shape": SHAPE, **more}}
        async with a_world({"s": _server()}, entries=entries, mcpServers={"s": off}, tools=tools) as world:
            client = await world.client()
            result = (await client.call("Look", {"word": "cats"})).result
            assert result["structuredContent"] == {"q": "cats", "limit": 5, "org": "acme"}
            definition = world.gateway.definition(name)
            assert definition is not None
            assert list(definition["inputSchema"]["properties"]) == ["query", "limit"]


async def test_a_value_of_the_environment_is_put_in_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRIBUTING: never show a value of the config, it may be a secret."""
    monkeypatch.setenv("THE_ORG", "very-secret-org")
    server = _server()
    shape = {"search": {"arguments": {"org": {"hide": True, "env": "THE_ORG"}}}}
    async with a_world({"s": server}, entries={"s": {"shape": shape}}) as world:
        client = await world.client()
        listing = await client.ask("tools/list")
        assert b"very-secret-org" not in listing.line
        await client.call("s__search", {"q": "x"})
        assert server.heard[-1]["params"]["arguments"] == {"q": "x", "org": "very-secret-org"}
        assert "very-secret-org" not in repr(world.gateway.servers())


def test_wrong_shapes_are_config_errors_that_name_their_place() -> None:
    """docs/shaping.md#what-is-checked: patterns, expressions, names, defaults and variables, when the file is read."""
    shape = {
        "a": {"name": "same", "result": "items["},
        "b": {"name": "same", "result": "nope(items)"},
        "c*": {"name": "x"},
        "d": {
            "arguments": {
                "one": {"value": 1},
                "two": {"hide": True, "env": "NOT_SET_ANYWHERE"},
                "three": {"pattern": "(", "enum": []},
                "four": {"rename": "z", "default": 1, "enum": [2]},
                "five": {"rename": "z", "default": 1, "pattern": "x"},
                "six": {"hide": True, "value": 1, "env": "HOME"},
            }
        },
        "e": {"annotations": [], "title": ""},
        "f": 3,
    }
    exposed = [
        {"original": "a", "exposed": "other"},
        {"original": "g", "exposed": "same"},
        {"original": "h*", "exposed": "i"},
    ]
    with pytest.raises(ConfigError) as wrong:
        parse_config(
            {"mcpServers": {"s": {"command": "x", "shape": shape, "exposedTools": exposed}}}, environ={"HOME": "/"}
        )
    told: dict[str, str] = {}
    for problem in wrong.value.details:
        told[problem.path] = told.get(problem.path, "") + problem.message
    at = "mcpServers.s.shape"
    expected = {
        f"{at}.a.result": "is no JMESPath expression",
        f"{at}.a.name": "in `exposedTools`",
        f"{at}.b.name": '"a" is given the same name',
        f"{at}.b.result": "JMESPath has no function `nope`",
        f"{at}.c*.name": "cannot all have one name",
        f"{at}.d.arguments.one.value": "write `hide: true`",
        f"{at}.d.arguments.two.env": "Missing environment variable: NOT_SET_ANYWHERE",
        f"{at}.d.arguments.three.pattern": "is no regular expression",
        f"{at}.d.arguments.three.enum": "at least one value",
        f"{at}.d.arguments.four.default": "is not one of `enum`",
        f"{at}.d.arguments.five.rename": '"four" is given the same name',
        f"{at}.d.arguments.five.default": "does not match `pattern`",
        f"{at}.d.arguments.six": "has both `value` and `env`",
        f"{at}.e.annotations": "must be an object",
        f"{at}.e.title": "title must",
        f"{at}.f": "must be an object",
        "mcpServers.s.exposedTools.2": "cannot all have one name",
    }
    assert {path: words for path, words in expected.items() if words not in told.get(path, "")} == {}, told
    assert told.keys() == expected.keys()
