"""Clients of each revision, and servers that say what some of them cannot parse."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muxway.testing import ScriptedServer
from muxway.wire import conversion, revisions
from tests.conftest import REVISIONS, a_world

OLD = ["2024-11-05", "2025-03-26"]
SERVERS = ["2025-11-25", "2026-07-28"]

AUDIO = {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "name": "log", "uri": "file:///x.log"}
TEXT = {"type": "text", "text": "hello"}
NUMBERS = {"type": "array", "items": {"type": "integer"}}


def says(result: dict[str, Any]) -> Any:
    """A tool that answers with this."""
    return lambda server, request: server.reply(request, result)


def a_server(revision: str) -> ScriptedServer:
    """A server with a tool for each kind of thing that older clients do not know."""
    members = {"inputSchema": {"type": "object"}, "x-vendor": {"n": 1}}
    rich = {
        "title": "Rich",
        "annotations": {"readOnlyHint": True},
        "icons": [{"src": "https://example.com/i.png"}],
        "execution": {"taskSupport": "optional"},
        "outputSchema": {"type": "object"},
    }
    definitions = [
        {"name": "plain", **members},
        {"name": "rich", **members, **rich},
        {"name": "numbers", **members, "outputSchema": NUMBERS},
    ]
    tools = {
        "plain": says({"content": [TEXT], "x-vendor": None}),
        "rich": says({"content": [AUDIO, LINK], "structuredContent": {"n": 1}, "x-vendor": None}),
        "numbers": says({"content": [], "structuredContent": [1, 2]}),
    }
    return ScriptedServer(revision, tools=tools, definitions=definitions)


def copy(text: str) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": text}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("client", REVISIONS)
async def test_each_client_is_shown_the_tools_in_its_own_words(client: str, server: str) -> None:
    """docs/compatibility.md#definitions-of-tools: converted or dropped, and what is unknown stays."""
    async with a_world({"up": a_server(server)}) as world:
        asking = await world.client(client)
        tools = {tool.pop("name"): tool for tool in (await asking.ask("tools/list")).result["tools"]}
    for tool in tools.values():
        assert tool.pop("inputSchema") == {"type": "object"}
        assert tool.pop("x-vendor") == {"n": 1}
    assert tools["up__plain"] == {}
    assert (
        tools["up__rich"].keys()
        == {
            "2024-11-05": set(),
            "2025-03-26": {"annotations"},
            "2025-06-18": {"annotations", "title", "outputSchema"},
            "2025-11-25": {"annotations", "title", "outputSchema", "icons"},
            "2026-07-28": {"annotations", "title", "outputSchema", "icons"},
        }[client]
    )
    if client == "2025-03-26":
        assert tools["up__rich"]["annotations"] == {"readOnlyHint": True, "title": "Rich"}
    wrapped = {"type": "object", "properties": {"result": NUMBERS}, "required": ["result"]}
    shown = {**dict.fromkeys(OLD), "2026-07-28": NUMBERS}.get(client, wrapped)
    assert tools["up__numbers"].get("outputSchema") == shown


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(
    ("client", "content", "structured"),
    [
        (
            "2024-11-05",
            [
                {
                    "type": "resource",
                    "resource": {"uri": "muxway://audio/0", "mimeType": "audio/wav", "blob": "AA=="},
                },
                copy("log: file:///x.log"),
                copy('{"n": 1}'),
            ],
            None,
        ),
        ("2025-03-26", [AUDIO, copy("log: file:///x.log"), copy('{"n": 1}')], None),
        ("2025-06-18", [AUDIO, LINK], {"n": 1}),
        ("2025-11-25", [AUDIO, LINK], {"n": 1}),
        ("2026-07-28", [AUDIO, LINK], {"n": 1}),
    ],
)
async def test_each_client_gets_results_it_can_parse(client: str, content: Any, structured: Any, server: str) -> None:
    """docs/compatibility.md#results: unknown types of content break typed clients."""
    async with a_world({"up": a_server(server)}) as world:
        result = (await (await world.client(client)).call("up__rich")).result
    assert result["content"] == content
    assert result.get("structuredContent") == structured
    assert ("structuredContent" in result) == (structured is not None)
    assert result["x-vendor"] is None


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("client", REVISIONS)
async def test_a_result_fits_the_schema_the_client_was_shown(client: str, server: str) -> None:
    """docs/compatibility.md#results: wrapped alike. A handshake server has no right to such a tool; some have one."""
    async with a_world({"up": a_server(server)}) as world:
        result = (await (await world.client(client)).call("up__numbers")).result
    if client == "2026-07-28":
        assert (result["content"], result["structuredContent"]) == ([], [1, 2])
    else:
        assert result["content"] == [copy("[1, 2]")]
        assert result.get("structuredContent") == (None if client in OLD else {"result": [1, 2]})


@pytest.mark.parametrize("client", REVISIONS[:-1])
async def test_a_handshake_servers_plain_result_arrives_byte_for_byte(client: str) -> None:
    """docs/behaviour.md#what-passes-untouched: what a client can parse passes as it came, odd spelling and all."""
    result = b'{ "content":[ {"type":"text","text":"\\u0041 \\/ audio"}, {"type":"image","n":1E5} ] ,"x":-0.0,"y":null}'

    def odd(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.say(b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (request["id"], result))

    async with a_world({"up": ScriptedServer("2025-06-18", tools={"odd": odd})}) as world:
        reply = await (await world.client(client)).call("up__odd")
        assert b'"result":' + result in reply.line


async def test_clients_of_all_revisions_at_once_each_get_their_own_listing() -> None:
    """docs/compatibility.md#definitions-of-tools: encoded once for each revision, and never mixed up."""
    async with a_world({"up": a_server("2026-07-28")}, gateway={"pageSize": 2}) as world:
        clients = [await world.client(revision) for revision in REVISIONS]
        first = [(await client.ask("tools/list")).result["tools"] for client in clients]
        again = [(await client.ask("tools/list")).result["tools"] for client in clients]
        assert first == again
        assert len({json.dumps(page) for page in first}) == 4  # The two newest differ on the second page only.
        for client in clients:
            assert await client.tools() == ["up__plain", "up__rich", "up__numbers"]


async def test_a_listing_is_converted_once_for_each_revision_and_shared_where_nothing_differs() -> None:
    """Ours: conversion costs nothing when nothing needs converting."""
    variants = [conversion.tool_converter(revision) for revision in revisions.REVISIONS.values()]
    async with a_world({"up": ScriptedServer(tools={"plain": None})}) as world:
        catalog = world.gateway.runtime.snapshot.whole.tools
        assert all(catalog.page(0, None, variant) is catalog.page(0, None) for variant in variants)
    async with a_world({"up": a_server("2025-11-25")}) as world:
        catalog = world.gateway.runtime.snapshot.whole.tools
        assert len({catalog.page(0, None, variant) for variant in variants}) == 5
        assert all(catalog.page(0, None, variant) is catalog.page(0, None, variant) for variant in variants)


async def test_a_compound_tool_converts_what_its_subtool_says() -> None:
    """docs/configuration.md#compound-tools: their results go the same way."""
    tools = {"All": {"description": "d", "subtools": {"up": {"tools": [{"name": "numbers"}]}}}}
    # The server named in subtools must exist when the file is read; it is switched on at run time.
    off = {"up": {"command": "none", "disabled": True}}
    async with a_world({"up": a_server("2026-07-28")}, mcpServers=off, tools=tools) as world:
        arguments = {"server": "up", "tool": "numbers"}
        newer = (await (await world.client("2025-06-18")).call("All", arguments)).result
        assert newer == {"content": [copy("[1, 2]")], "structuredContent": {"result": [1, 2]}}
        older = (await (await world.client("2025-03-26")).call("All", arguments)).result
        assert older == {"content": [copy("[1, 2]")]}
