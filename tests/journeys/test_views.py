"""Views: what some callers see of a gateway, from the configuration to every method."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from muxway.config import parse_config
from muxway.errors import ConfigError
from muxway.testing import RawClient, ScriptedServer
from tests.conftest import REVISIONS, World, a_world, said
from tests.journeys.test_subscriptions import news, subscribe
from tests.noting import notes

if TYPE_CHECKING:
    from collections.abc import Callable

OFF = {"command": "none", "disabled": True}
SERVERS = {"a": OFF, "b": OFF}


def _servers() -> dict[str, ScriptedServer]:
    reads = {"annotations": {"readOnlyHint": True}}
    schema = {"inputSchema": {"type": "object", "properties": {"x": {"type": "integer"}}}}
    return {
        "a": ScriptedServer(
            tools={"get": None, "drop": None},
            definitions=[{"name": "get", **schema, **reads}, {"name": "drop", **schema}],
            prompts={"p": None, "q": None},
            resources={"file:///a/one": "1", "file:///a/two": "2", "file:///same": "of a"},
            instructions="About A.",
        ),
        "b": ScriptedServer(
            tools={"get": None, "list": None},
            prompts={"p": None},
            resources={"file:///b/one": "3", "file:///same": "of b"},
            templates={"file:///b/{name}": None},
            instructions="About B.",
        ),
    }


def _world(views: dict[str, Any], servers: dict[str, ScriptedServer] | None = None, **top: Any) -> Any:
    return a_world(servers or _servers(), mcpServers=SERVERS, views=views, **top)


async def _client(world: World, view: str | None, revision: str = "2025-11-25") -> RawClient:
    client = RawClient(world.gateway.memory_door(view), revision=revision)
    await client.hello()
    return client


async def _names(client: RawClient, method: str, member: str, key: str) -> list[str]:
    return [item[key] for item in (await client.ask(method)).result[member]]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ({}, ["All", "a__get", "a__drop", "b__get", "b__list"]),
        ({"servers": ["a"]}, ["a__get", "a__drop"]),
        ({"tools": ["*__get"]}, ["a__get", "b__get"]),
        ({"servers": ["b"], "tools": ["*__get", "A*"]}, ["All", "b__get"]),
        ({"hiddenTools": ["a__*", "All"]}, ["b__get", "b__list"]),
        ({"readOnly": True}, ["a__get"]),
        ({"tools": []}, []),
        ({"tools": ["b__list"], "shape": {"b__list": {"name": "ls"}}}, ["ls"]),
    ],
)
@pytest.mark.parametrize("revision", ["2024-11-05", "2026-07-28"])
async def test_a_view_lists_what_it_selects(view: dict[str, Any], expected: list[str], revision: str) -> None:
    """docs/views.md#what-is-in-it: named selections of servers and tools."""
    tools = {"All": {"description": "d", "subtools": {"a": {"tools": ["get"]}}}}
    async with _world({"v": view}, tools=tools) as world:
        assert await (await _client(world, "v", revision)).tools() == expected
        assert [tool.name for tool in world.gateway.tools("v")] == expected
        assert await (await _client(world, None, revision)).tools() == [
            "All", "a__get", "a__drop", "b__get", "b__list",
        ]  # fmt: skip


@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_is_not_in_the_view_looks_like_an_unknown_tool(revision: str) -> None:
    """docs/views.md#what-is-in-it: in every spelling, whether its server is up or not."""
    async with _world({"v": {"servers": ["a"], "tools": ["a__get", "b__*"]}}) as world:
        client = await _client(world, "v", revision)
        assert said((await client.call("a:get", {"x": 1})).result) == {"x": 1}
        unknown = (await client.call("c__nothing")).error
        for name in ("a__drop", "a:drop", "a.drop", "b__get", "b:list"):
            error = (await client.call(name)).error
            assert error["code"] == unknown["code"]
            assert error["message"] == f"Tool not found: {name}"
            assert not {"a__drop", "b__get"} & set(error.get("data", {}).get("muxway", {}).get("nearest", ()))
        world.servers["b"].end()
        await _until(lambda: is_down(world, "b"))
        assert (await client.call("b__get")).error["message"] == "Tool not found: b__get"
        whole = await _client(world, None, revision)
        assert "is not running" in (await whole.call("b__get")).error["message"]


def is_down(world: World, name: str) -> bool:
    """Whether a server could not be started again."""
    return any(server.name == name and server.status == "failed" for server in world.gateway.servers())


async def _until(done: Callable[[], bool]) -> None:
    import asyncio

    async with asyncio.timeout(30):
        while not done():
            await asyncio.sleep(0.005)


async def test_a_server_of_the_view_that_is_down_is_not_unknown() -> None:
    """docs/behaviour.md: a tool of a server that is down says so."""
    async with _world({"v": {"servers": ["b"]}}) as world:
        client = await _client(world, "v")
        world.servers["b"].end()
        await _until(lambda: is_down(world, "b"))
        assert "is not running" in (await client.call("b__get")).error["message"]


async def test_prompts_resources_templates_and_instructions_are_those_of_the_view() -> None:
    """docs/views.md#what-is-in-it: what is not in a view does not exist there, of any kind."""
    views = {"v": {"servers": ["b"]}, "w": {"prompts": ["*__q"], "resources": ["file:///a/*"]}, "all": {}}
    async with _world(views) as world:
        v, w, everything = [await _client(world, name) for name in ("v", "w", "all")]
        assert await _names(v, "prompts/list", "prompts", "name") == ["b__p"]
        assert await _names(w, "prompts/list", "prompts", "name") == ["a__q"]
        wrapped = "muxway://b/file%3A%2F%2F%2Fsame"
        assert await _names(v, "resources/list", "resources", "uri") == ["file:///b/one", wrapped]
        assert await _names(w, "resources/list", "resources", "uri") == ["file:///a/one", "file:///a/two"]
        assert await _names(v, "resources/templates/list", "resourceTemplates", "uriTemplate") == ["file:///b/{name}"]
        assert await _names(w, "resources/templates/list", "resourceTemplates", "uriTemplate") == []
        assert len(await _names(everything, "resources/list", "resources", "uri")) == 5
        assert (await v.ask("prompts/get", {"name": "b__p"})).result
        assert (await v.ask("prompts/get", {"name": "a__p"})).error["message"] == "Prompt not found: a__p"
        assert (await v.ask("resources/read", {"uri": wrapped})).result["contents"][0]["text"] == "of b"
        assert (await w.ask("resources/read", {"uri": "file:///a/one"})).result["contents"][0]["text"] == "1"
        for uri in ("file:///b/one", "file:///same", wrapped, "muxway://a/file%3A%2F%2F%2Fsame", "file:///a/%2e./same"):
            assert (await w.ask("resources/read", {"uri": uri})).error["code"] == -32002, uri
        for uri in ("muxway://a/file%3A%2F%2F%2Fa%2Fone",):
            assert (await v.ask("resources/read", {"uri": uri})).error["code"] == -32002, uri
        ref = {"ref": {"type": "ref/prompt", "name": "a__p"}, "argument": {"name": "x", "value": ""}}
        assert (await v.ask("completion/complete", ref)).error["message"] == "Prompt not found: a__p"
        assert (await w.ask("resources/subscribe", {"uri": "file:///b/one"})).error["code"] == -32002
    async with _world(views) as world:
        client = RawClient(world.gateway.memory_door("v"))
        reply = await client.hello()
        assert reply is not None
        assert "About B." in reply.result["instructions"]
        assert "About A." not in reply.result["instructions"]


async def test_compound_tools_of_a_view_reach_what_it_does_not_list() -> None:
    """docs/views.md#what-is-in-it: included if their name matches."""
    tools = {"All": {"description": "d", "subtools": {"a": {"tools": ["drop"]}}}}
    async with _world({"v": {"tools": ["All"]}}, tools=tools) as world:
        client = await _client(world, "v")
        result = (await client.call("All", {"server": "a", "tool": "drop", "args": {"x": 2}})).result
        assert result["structuredContent"] == {"x": 2}


async def test_a_view_shapes_by_public_name_and_the_whole_stays_as_it_is() -> None:
    """docs/views.md#what-is-in-it: views with their own shaping."""
    shape = {"a__get": {"name": "fetch", "arguments": {"x": {"rename": "n", "enum": [1, 2]}}, "result": "x"}}
    tools = {"Own": {"description": "d", "subtools": {"a": {"tools": ["get"]}}}}
    own = {"Own": {"name": "Mine", "arguments": {"server": {"hide": True, "value": "a"}}, "result": "x"}}
    async with _world({"v": {"shape": {**shape, **own}}}, tools=tools) as world:
        client, whole = await _client(world, "v"), await _client(world, None)
        assert (await client.call("fetch", {"n": 2})).result["structuredContent"] == {"result": 2}
        assert "must be one of 1, 2" in (await client.call("fetch", {"n": 3})).error["message"]
        assert (await client.call("a__get", {"x": 2})).error["message"] == "Tool not found: a__get"
        assert (await whole.call("a__get", {"x": 3})).result["structuredContent"] == {"x": 3}
        assert (await client.call("Mine", {"tool": "get", "args": {"x": 7}})).result["structuredContent"] == {
            "result": 7
        }


async def test_a_view_hears_of_changes_in_its_own_lists_only() -> None:
    """docs/views.md#what-is-in-it: list_changed of a view only when that view's list changed."""
    async with _world({"a": {"servers": ["a"]}, "b": {"servers": ["b"]}}) as world:
        of_a, of_b, whole = [await _client(world, name) for name in ("a", "b", None)]
        server = world.servers["b"]
        server.tools["more"] = None
        server.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await whole.notice("notifications/tools/list_changed")
        await of_b.notice("notifications/tools/list_changed")
        assert "b__more" in await of_b.tools()
        assert await of_a.tools() == ["a__get", "a__drop"]
        assert of_a.notices == []


async def test_lists_of_a_view_do_not_depend_on_the_connection() -> None:
    """docs/views.md#what-is-in-it: the same bytes for all, whoever came first."""
    async with _world({"v": {"tools": ["*__get"]}}) as world:
        lines = set()
        for _ in range(3):
            client = await _client(world, "v")
            await client.call("a__get")
            lines.add((await client.ask("tools/list", id_=99)).line)
        assert len(lines) == 1


async def test_pages_of_a_view_have_cursors_of_their_own() -> None:
    """Ours: a cursor of the whole leads nowhere in a view of fewer pages."""
    async with _world({"v": {"tools": ["*__get"]}}, gateway={"pageSize": 1}) as world:
        client, whole = await _client(world, "v"), await _client(world, None)
        assert await client.tools() == ["a__get", "b__get"]
        assert len(await whole.tools()) == 4


async def test_middleware_of_a_view_is_around_its_calls_only() -> None:
    """docs/views.md#middleware: views with their own limits."""
    views = {"v": {"middleware": [{"use": "limit", "rate": "1/h", "match": ["a__get"]}]}, "w": {}}
    async with _world(views) as world:
        limited, free = await _client(world, "v"), await _client(world, "w")
        outcomes = [(await limited.call("a__get", {"x": 1})).message for _ in range(3)]
        assert "error" not in outcomes[0]
        assert any("limit" in json.dumps(outcome) for outcome in outcomes[1:])
        for _ in range(3):
            assert (await free.call("a__get", {"x": 1})).result["structuredContent"] == {"x": 1}


async def test_cached_lists_of_one_view_are_not_shown_in_another() -> None:
    """Ours: each view has middlewares of its own."""
    cache = [{"use": "cache", "seconds": 60}]
    views = {"v": {"tools": ["a__get"]}, "w": {"tools": ["b__get"]}}
    async with _world(views, middleware=cache) as world:
        for _ in range(2):
            assert await (await _client(world, "v")).tools() == ["a__get"]
            assert await (await _client(world, "w")).tools() == ["b__get"]


async def test_what_a_view_names_in_vain_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """docs/configuration.md#views: unknown tools in a view. Once, and not what is only away for the moment."""
    async with _world({"v": {"tools": ["a__gte", "a__get"], "prompts": ["z*"]}}, {"a": _servers()["a"]}) as world:
        assert world.gateway.notes("v") == [
            "view \"v\": tool 'a__gte': named in tools, but there is no such tool",
            "view \"v\": prompt 'z*': named in prompts, but there is none",
        ]
    told = [record.getMessage() for record in caplog.records if "view" in record.getMessage()]
    assert len(told) == 2
    assert not any("a__get'" in line for line in told)


def test_wrong_views_are_config_errors_that_name_their_place() -> None:
    """docs/configuration.md#views: unknown servers, two views with one token, bad names."""
    views = {
        "a b": {},
        "one": {"servers": ["gihub"], "tokens": ["same-token", ""]},
        "two": {"tokens": ["same-token", "main-token", "${NOT_SET}"]},
        "three": {"tools": "x", "shape": {"x": {"result": "["}}},
        "four": 4,
    }
    with pytest.raises(ConfigError) as wrong:
        parse_config(
            {"mcpServers": {"github": {"command": "x"}}, "views": views, "gateway": {"token": "main-token"}}, environ={}
        )
    told = {problem.path: problem.message for problem in wrong.value.details}
    expected = {
        "views.a b": "part of its URL",
        "views.one.servers.0": 'did you mean "github"?',
        "views.one.tokens.1": "empty",
        "views.two.tokens.0": "the same token as in views.one.tokens",
        "views.two.tokens.1": "the same token as in gateway.token",
        "views.two.tokens.2": "Missing environment variable: NOT_SET",
        "views.three.tools": "must be",
        "views.three.shape.x.result": "is no JMESPath expression",
        "views.four": "must be an object",
    }
    assert {path: words for path, words in expected.items() if words not in told.get(path, "")} == {}, told
    assert told.keys() == expected.keys()
    good = parse_config(
        {"mcpServers": {"github": {"command": "x"}}, "views": {"v": {"tokens": ["${THE_TOKEN}"]}}},
        environ={"THE_TOKEN": "a-long-secret"},
    )
    assert good.views["v"].tokens == ("a-long-secret",)
    assert good.views["v"].secrets == {"a-long-secret"}
    assert "a-long-secret" not in repr(good)
    assert "same-token" not in str(wrong.value)
    assert "main-token" not in str(wrong.value)


async def test_a_view_of_500_of_5000_tools_lists_as_fast_as_the_whole() -> None:
    """docs/views.md#cost: pages are encoded once for each view."""
    tools = {f"{'get' if n % 10 == 0 else 'set'}_{n}": None for n in range(5000)}
    servers = {"a": ScriptedServer(tools=tools, remember=False), "b": ScriptedServer()}
    async with _world({"v": {"tools": ["a__get_*"]}}, servers) as world:
        view, whole = await _client(world, "v"), await _client(world, None)
        assert len(await view.tools()) == 500
        assert len(await whole.tools()) == 5000

        async def seconds(client: RawClient) -> float:
            began = time.thread_time()
            for _ in range(20):
                client.start("tools/list", id_=7)
                await client._wire.receive()
            return time.thread_time() - began

        took = [(await seconds(view), await seconds(whole)) for _ in range(5)]
        # A tenth of the bytes, no work but joining them: it may not be slower than the whole.
        assert min(one for one, _ in took) <= min(other for _, other in took)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_view_and_the_whole_share_a_subscription_and_each_sees_its_own(revision: str) -> None:
    """Ours: one subscription at the server; a part that the view does not show goes by the name of what is seen."""
    server = notes()
    views = {"v": {"resources": ["note://a"]}}
    async with a_world({"up": server}, views=views) as world:
        client, whole = await _client(world, "v", revision), await _client(world, None, revision)
        assert await subscribe(client, "note://a") == ["note://a"]
        assert await subscribe(whole, "note://a", "note://b") == ["note://a", "note://b"]
        assert await subscribe(await _client(world, "v"), "note://b") == []
        assert server.times("resources/subscribe") == 2
        server.update("note://b")
        assert await news(whole) == "note://b"
        server.update("note://a/hidden/part")
        assert await news(whole) == "note://a/hidden/part"
        assert await news(client) == "note://a"
        assert client.notices == []
