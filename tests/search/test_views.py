"""Search views: what they list, what a search finds, and calls by `call_tool`, in every revision and by both doors."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway, Middleware, Status
from muxway.calls.identity import Identity
from muxway.search import answers
from muxway.testing import RawClient, ScriptedServer
from tests.conftest import REVISIONS, World, a_world, said
from tests.journeys.test_asks import curious
from tests.journeys.test_tasks import KNOWS_TASKS, WORK, when
from tests.journeys.worker import Worker
from tests.noting import NoteServer, until
from tests.serve.harness import a_web

if TYPE_CHECKING:
    from pathlib import Path

    from muxway.middleware.engine.base import Next, Request, Result

SEARCHED: dict[str, Any] = {"gateway": {"discovery": "search"}}
ISSUE = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "state": {"enum": ["open", "closed"]},
    },
    "required": ["title"],
}
NESTED = {
    "type": "object",
    "properties": {"where": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
    "required": ["where"],
}
NOTHING: dict[str, Any] = {"type": "object"}


def hub() -> ScriptedServer:
    """A server with tools of every tier."""
    definitions: list[dict[str, Any]] = [
        {"name": "create_issue", "description": "Open a new issue. Needs a title.", "inputSchema": ISSUE,
         "annotations": {"readOnlyHint": False, "destructiveHint": False}},
        {"name": "list_issues", "description": "List issues of a repository.", "inputSchema": NOTHING,
         "annotations": {"readOnlyHint": True}},
        {"name": "delete_repo", "description": "Delete a repository for ever.", "inputSchema": NOTHING},
    ]  # fmt: skip
    tools = dict.fromkeys(("create_issue", "list_issues", "delete_repo"))
    return ScriptedServer(tools=tools, definitions=definitions, instructions="Be kind. " * 400)


def sky() -> ScriptedServer:
    """Another one, with a schema that no line can say."""
    forecast = {"name": "forecast", "description": "Weather of the next days", "inputSchema": NESTED}
    return ScriptedServer(tools={"forecast": None}, definitions=[forecast])


def world(**top: Any) -> Any:
    """Both, in a gateway that is searched."""
    off = {"command": "none", "disabled": True}
    return a_world({"hub": hub(), "sky": sky()}, mcpServers={"hub": off, "sky": off}, **{**SEARCHED, **top})


async def client_of(world: World, revision: str = "2025-11-25", view: str | None = None, **more: Any) -> RawClient:
    """A client of a view, or of the whole."""
    client = RawClient(world.gateway.memory_door(view), revision=revision, **more)
    await client.hello()
    return client


def text(result: dict[str, Any]) -> str:
    """What a tool said in words."""
    return result["content"][0]["text"]


async def search(client: RawClient, query: str = "", **more: Any) -> str:
    """What a search answers."""
    return text((await client.call("search_tools", {"query": query, **more})).result)


def calls(server: ScriptedServer) -> list[dict[str, Any]]:
    """The calls that reached a server."""
    return [message["params"] for message in server.heard if message.get("method") == "tools/call"]


# --- what is listed ---------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("tiers", [False, True])
async def test_it_lists_the_tools_by_which_others_are_found_and_called(revision: str, tiers: bool) -> None:
    """docs/discovery.md#what-a-model-sees: two tools, four with tiers, that clients must not defer."""
    async with world(gateway={"discovery": "search", "tiers": tiers}) as made:
        client = await client_of(made, revision)
        result = (await client.ask("tools/list")).result
        calling = ["call_tool_read", "call_tool_write", "call_tool_destructive"] if tiers else ["call_tool"]
        assert [tool["name"] for tool in result["tools"]] == ["search_tools", *calling]
        assert all(tool["_meta"] == {"anthropic/alwaysLoad": True} for tool in result["tools"])
        assert "hub, sky" in result["tools"][0]["description"]
        assert len(json.dumps(result, separators=(",", ":"))) <= 2400


async def test_pinned_tools_are_listed_beside_them() -> None:
    """docs/discovery.md#configuration: `pinned` are globs of public names; a view hides as ever."""
    views = {"v": {"discovery": "search", "pinned": ["*__create_*", "sky__*"], "servers": ["hub"]}}
    async with world(gateway={}, views=views) as made:
        assert await (await client_of(made, view="v")).tools() == ["search_tools", "call_tool", "hub__create_issue"]
        assert len(await (await client_of(made)).tools()) == 4
        listed = [tool.name for tool in await made.gateway.list_tools("v")]
        assert listed == ["search_tools", "call_tool", "hub__create_issue"]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_its_list_never_changes_and_nobody_is_told_of_changes(revision: str) -> None:
    """docs/discovery.md#lists-that-keep-prompt-caches: equal bytes, whatever servers do, and no `list_changed`."""
    server = NoteServer(tools={"one": None})
    async with a_world({"up": server}, **SEARCHED) as made:
        client = await client_of(made, revision)
        before = (await client.ask("tools/list")).line
        if revision != "2026-07-28":
            hello = RawClient(made.gateway.memory_door(), revision=revision)
            assert (await hello.hello()).result["capabilities"]["tools"] == {}
        server.tools["two"] = None
        server.change("tools")
        await until(lambda: len(made.gateway.tools()) == 2)
        assert "up__two" in await search(client, "two")
        server.end()
        await until(lambda: made.gateway.servers()[0].status is not Status.RUNNING)
        after = (await client.ask("tools/list")).line
        assert _without_id(after) == _without_id(before)
        assert not [note for note in client.notices if "tools" in note["method"]]


def _without_id(raw: bytes) -> Any:
    return {**json.loads(raw), "id": 0}


async def test_instructions_are_short_and_tell_of_search() -> None:
    """docs/discovery.md#what-a-model-sees: at most 2 KB, where some clients cut them."""
    async with world() as made:
        client = RawClient(made.gateway.memory_door())
        said_first = (await client.hello()).result["instructions"]
        assert said_first.startswith("Most tools are not listed: find them with search_tools.")
        assert "Be kind." in said_first
        assert len(said_first.encode()) <= 2048


# --- what is found ----------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
async def test_one_search_and_one_call_suffice(revision: str) -> None:
    """docs/discovery.md#what-a-model-sees: a line that says all, or the schema; then the call, as any other."""
    async with world() as made:
        client = await client_of(made, revision)
        found = await search(client, "open an issue")
        assert found.splitlines()[:2] == [
            'hub__create_issue(title: str, labels?: str[], state?: "open"|"closed") [write]',
            "Open a new issue.",
        ]
        called = await client.call("call_tool", {"name": "hub__create_issue", "arguments": {"title": "x"}})
        assert said(called.result) == {"title": "x"}
        nested = await search(client, "weather")
        assert json.loads(nested.split("schema: ")[1].split("\n")[0]) == NESTED
        assert said(
            (await client.call("call_tool", {"name": "sky__forecast", "arguments": {"where": {"city": "Rom"}}})).result
        )


async def test_names_of_every_spelling_are_found_first() -> None:
    """docs/discovery.md#what-a-model-sees: whatever name a call accepts is hit 1."""
    async with world() as made:
        client = await client_of(made)
        for name in ("hub__delete_repo", "hub:delete_repo", "hub.delete_repo", " hub__delete_repo "):
            assert (await search(client, name)).startswith("hub__delete_repo(")
            assert (await search(client, name)) == await search(client, name)


async def test_full_definitions_by_names() -> None:
    """docs/discovery.md#what-a-model-sees: `names` gives whole definitions, and says which there are not."""
    async with world() as made:
        client = await client_of(made)
        told = (await search(client, names=["sky.forecast", "sky__nothing"])).split("\n\n")
        assert json.loads(told[0])["inputSchema"] == NESTED
        assert told[1] == "Tool not found: sky__nothing"


async def test_who_finds_nothing_learns_what_there_is() -> None:
    """docs/discovery.md#what-a-model-sees: no hit, or no query, gives servers with counts."""
    async with world() as made:
        client = await client_of(made)
        assert "hub (3), sky (1)" in await search(client, "xylophone")
        assert "hub (3), sky (1)" in await search(client)
        assert (await search(client, server="sky")).startswith("sky__forecast(")
        assert "no server 'moon'" in await search(client, "weather", server="moon")
        assert "forecast" not in await search(client, "weather", server="hub")


@pytest.mark.parametrize(
    "arguments", [{"query": 5}, {"limit": "many"}, {"names": "one"}, {"names": [1]}, {"server": []}, {"query": ["a"]}]
)
async def test_a_search_that_cannot_be_used_says_why(arguments: dict[str, Any]) -> None:
    """docs/discovery.md#what-a-model-sees: as a result with `isError`, which models read."""
    async with world() as made:
        result = (await (await client_of(made)).call("search_tools", arguments)).result
        assert result["isError"]
        assert next(iter(arguments)) in text(result)


async def test_queries_of_any_size_and_script_get_an_answer() -> None:
    """docs/discovery.md#limits: 100 KB, nothing, other scripts, what is no text to people."""
    async with world() as made:
        client = await client_of(made)
        for query in ("issue " * 20_000, "x" * 100_000, "天気予報" * 1000, "\u0000\ud7ff\uffff", "🌧", "﷽" * 3000):
            assert "Servers" in (answer := await search(client, query)) or "hub__" in answer
            assert len(answer) < 8000


# --- calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
async def test_wrong_arguments_get_the_schema_and_nothing_runs(revision: str) -> None:
    """docs/discovery.md#what-a-model-sees: refused as a result that a model can learn from."""
    async with world() as made:
        client = await client_of(made, revision)
        for arguments, why in (
            ({}, "title is required"),
            ({"title": 5}, "title must be string"),
            ({"title": "x", "state": "new"}, 'state must be one of "open", "closed"'),
            ({"title": "x", "labels": ["a", 1]}, "labels[1] must be string"),
        ):
            result = (await client.call("call_tool", {"name": "hub__create_issue", "arguments": arguments})).result
            assert result["isError"]
            assert why in text(result)
            assert json.loads(text(result).split("schema: ")[1]) == ISSUE
        assert (await client.call("call_tool", {"arguments": {}})).result["isError"]
        assert not calls(made.servers["hub"])


@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_callers_may_not_see_is_neither_found_nor_called(revision: str) -> None:
    """docs/discovery.md#who-sees-what: hidden and denied are as unknown, with the same error."""
    rules = [{"tools": ["hub__delete_*"], "do": "deny"}]
    views = {"v": {"discovery": "search", "hiddenTools": ["sky__*"]}}
    async with world(gateway={}, views=views, access=rules) as made:
        client = await client_of(made, revision, "v")
        assert "delete_repo" not in await search(client, "delete repository")
        assert "hub (2), sky (0)" in await search(client, "weather", names=[])
        assert await search(client, names=["hub__delete_repo"]) == "Tool not found: hub__delete_repo"
        unknown = (await client.call("hub__nothing")).error
        for name in ("hub__delete_repo", "sky__forecast", "hub:delete_repo"):
            direct = (await client.call(name)).error
            assert (direct["code"], direct["message"]) == (unknown["code"], f"Tool not found: {name}")
            near = direct.get("data", {}).get("muxway", {}).get("nearest", [])
            called = await client.call("call_tool", {"name": name, "arguments": {"wrong": 1}})
            assert called.result["isError"]
            assert text(called.result) == answers.unknown(direct["message"], near)
        assert not calls(made.servers["hub"]) + calls(made.servers["sky"])
        assert (await client.call("call_tool", {"name": "call_tool"})).result["isError"]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_name_that_no_tool_has_gets_names_like_it_as_a_result(revision: str) -> None:
    """docs/discovery.md#what-a-model-sees: most clients keep protocol errors from the model that can mend the name."""
    async with world() as made:
        client = await client_of(made, revision)
        for name, why in (
            ("hub__creat_issue", "Tool not found: hub__creat_issue. Names like it: hub__create_issue, "),
            (
                "create_issue",
                "Tool name must be prefixed with server key: create_issue. Names like it: hub__create_issue.",
            ),
            ("xylophone__x", "Tool not found: xylophone__x. search_tools finds tools by what they do."),
            ("x" * 100_000, "xx"),
        ):
            result = (await client.call("call_tool", {"name": name, "arguments": {}})).result
            assert result["isError"]
            assert text(result).startswith("Nothing was called. ")
            assert why in text(result)
            assert len(text(result)) < 1000
        assert "hub__create_issue" in (await client.call("hub__creat_issue")).error["data"]["muxway"]["nearest"]
        assert not calls(made.servers["hub"])


async def test_rules_that_look_at_arguments_look_at_those_of_the_tool() -> None:
    """docs/access.md: a rule on an argument decides a call by `call_tool` as a direct one."""
    rules = [{"tools": ["hub__create_issue"], "arguments": {"title": ["secret*"]}, "do": "deny"}]
    async with world(access=rules) as made:
        client = await client_of(made)
        allowed = await client.call("call_tool", {"name": "hub__create_issue", "arguments": {"title": "x"}})
        assert said(allowed.result) == {"title": "x"}
        denied = await client.call("call_tool", {"name": "hub__create_issue", "arguments": {"title": "secret 1"}})
        assert "Tool not found: hub__create_issue. " in text(denied.result)
        assert text(denied.result).count("hub__create_issue") == 1


async def test_callers_of_different_rules_find_different_tools() -> None:
    """docs/discovery.md#who-sees-what: one index, and each caller its own answers."""
    rules = [{"users": ["ann"], "do": "allow"}, {"servers": ["hub"], "do": "deny"}]
    async with world(access=rules) as made:
        for name, sees in (("ann", True), ("bob", False)):
            identity = Identity(user=name)
            client = RawClient(made.gateway.memory_door(identity=identity))
            await client.hello()
            assert ("hub__create_issue" in await search(client, "open issue")) == sees
            assert ("hub" in (await client.ask("tools/list")).result["tools"][0]["description"]) == sees


@pytest.mark.parametrize(
    ("tool", "right"),
    [("hub__list_issues", "read"), ("hub__create_issue", "write"), ("hub__delete_repo", "destructive")],
)
async def test_a_call_in_the_wrong_tier_is_refused_and_told_the_right_one(tool: str, right: str) -> None:
    """docs/discovery.md#tiers: what a tool says of itself decides; one that says nothing may do anything."""
    async with world(gateway={"discovery": "search", "tiers": True}) as made:
        client = await client_of(made)
        arguments = {"title": "x"} if right == "write" else {}
        assert f"[{right}]" in (await search(client, tool)).splitlines()[0]
        for tier in ("read", "write", "destructive"):
            result = (await client.call(f"call_tool_{tier}", {"name": tool, "arguments": arguments})).result
            if tier == right:
                assert said(result) == arguments
            else:
                assert result["isError"]
                assert f"call_tool_{right}" in text(result)
        assert len(calls(made.servers["hub"])) == 1
        assert (await client.call("call_tool", {"name": tool})).error


async def test_audit_has_the_tool_that_was_called(tmp_path: Path) -> None:
    """docs/discovery.md#who-sees-what: middleware is around the real call, under its real name."""
    log = tmp_path / "audit.jsonl"
    gateway = {"discovery": "search", "middleware": [{"use": "audit", "path": str(log)}]}
    async with world(gateway=gateway) as made:
        client = await client_of(made)
        await search(client, "issue")
        await client.call("call_tool", {"name": "hub:create_issue", "arguments": {"title": "x"}})
        assert (await client.call("call_tool", {"name": "hub__create_issue"})).result["isError"]
        assert len(calls(made.servers["hub"])) == 1
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    named = [(line.get("name"), line.get("server")) for line in lines if line.get("method") == "tools/call"]
    assert named == [("search_tools", None), ("hub:create_issue", "hub"), ("hub__create_issue", "hub")]


class Hider(Middleware):
    """Takes tools out of every list."""

    async def list_tools(self, request: Request, go: Next) -> Result:
        """All but what deletes."""
        result = await go(request)
        return result.replace(tools=[tool for tool in result.value["tools"] if "delete" not in tool["name"]])


async def test_what_middleware_takes_out_of_lists_is_not_found_either() -> None:
    """docs/discovery.md#who-sees-what: and what it leaves there is."""
    config: Any = {"mcpServers": {"off": {"command": "none", "disabled": True}}, **SEARCHED}
    async with Gateway.open(config, middleware=[Hider()]) as gateway:
        await gateway.add("hub", server=hub())
        client = await client_of(World(gateway, {}))
        assert await client.tools() == ["search_tools", "call_tool"]
        found = await search(client, "repository issue delete")
        assert "delete_repo" not in found
        assert "hub__list_issues" in found
        assert "hub (2)" in await search(client, "xylophone")
        assert (await client.call("call_tool", {"name": "hub__list_issues"})).result
        refused = (await client.call("call_tool", {"name": "hub__delete_repo"})).result
        assert text(refused).startswith("Nothing was called. Tool not found: hub__delete_repo. ")


async def test_shapes_of_views_are_found_and_called() -> None:
    """docs/discovery.md#who-sees-what: by the names, words and arguments that the view gives its tools."""
    shape = {
        "sky__forecast": {
            "name": "umbrella",
            "description": "Whether it rains",
            "arguments": {"where": {"rename": "place"}},
        }
    }
    async with world(gateway={}, views={"v": {"discovery": "search", "shape": shape}}) as made:
        client = await client_of(made, view="v")
        assert (await search(client, "does it rain")).startswith("umbrella(place: ")
        result = (await client.call("call_tool", {"name": "umbrella", "arguments": {"place": {"city": "Rom"}}})).result
        assert said(result) == {"where": {"city": "Rom"}}
        wrong = (await client.call("call_tool", {"name": "umbrella", "arguments": {"where": {"city": "Rom"}}})).result
        assert "place is required" in text(wrong)


async def test_composed_and_compound_tools_are_found_and_called() -> None:
    """docs/discovery.md#who-sees-what: tools of the gateway itself, too."""
    tools = {
        "Both": {"description": "Two in one", "subtools": {"hub": {"tools": ["list_issues"]}}},
        "Chain": {
            "description": "Composed of steps",
            "inputs": {"title": {"type": "string"}},
            "steps": [{"name": "made", "tool": "hub__create_issue", "arguments": {"title": "${input.title}"}}],
        },
    }
    async with world(tools=tools) as made:
        client = await client_of(made)
        assert (await search(client, "two in one")).startswith("Both(")
        chosen = {"server": "hub", "tool": "list_issues", "args": {"a": 1}}
        assert said((await client.call("call_tool", {"name": "Both", "arguments": chosen})).result) == {"a": 1}
        assert said((await client.call("call_tool", {"name": "Chain", "arguments": {"title": "t"}})).result) == {
            "title": "t"
        }


async def test_arguments_pass_as_the_bytes_that_came() -> None:
    """docs/behaviour.md: payloads stay raw, also by way of `call_tool`."""
    async with world() as made:
        client = await client_of(made)
        arguments = b'{"title" : "\\u00e9", "n":1.50e3, "x":null}'
        params = b'{"name":"call_tool","arguments":{"name":"hub__create_issue","arguments":%b}}' % arguments
        client.say(b'{"jsonrpc":"2.0","id":77,"method":"tools/call","params":%b}' % params)
        await client.answer(77)
        assert arguments in made.servers["hub"].lines[-1]


# --- what a direct call can do ----------------------------------------------------------------


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
async def test_servers_may_ask_during_a_call(revision: str, server_revision: str) -> None:
    """docs/discovery.md#who-sees-what: questions reach the caller and the retry finds its call, as in a direct one."""
    server = ScriptedServer(revision=server_revision, tools={"curious": curious})
    async with a_world({"up": server}, **SEARCHED) as made:
        client = await client_of(
            made, revision, capabilities={"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
        )
        client.answers["elicitation/create"] = lambda _: {"action": "accept", "content": {"name": "Ann"}}
        hi = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}, "stopReason": "endTurn"}
        client.answers["sampling/createMessage"] = lambda _: hi
        client.answers["roots/list"] = lambda _: {"roots": [{"uri": "file:///w"}]}
        inner = {"name": "up__curious", "arguments": {"a": 1}}
        reply = await client.complete("tools/call", {"name": "call_tool", "arguments": inner})
        assert text(reply.result) == "Ann hi file:///w"


async def test_progress_and_cancel_pass() -> None:
    """docs/discovery.md#who-sees-what: the caller's token, and its cancellation."""
    begun = asyncio.Event()

    async def slow(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.progress(request, 1, total=2)
        begun.set()
        await asyncio.Event().wait()

    async with a_world({"up": ScriptedServer(tools={"slow": slow})}, **SEARCHED) as made:
        client = await client_of(made)
        params = {"name": "call_tool", "arguments": {"name": "up__slow"}, "_meta": {"progressToken": "p"}}
        id_ = client.start("tools/call", params)
        await begun.wait()
        progress = await client.notice("notifications/progress")
        assert progress["params"] == {"progressToken": "p", "progress": 1, "total": 2}
        client.tell("notifications/cancelled", {"requestId": id_})
        server = made.servers["up"]
        await until(lambda: any(one.get("method") == "notifications/cancelled" for one in server.heard))


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
async def test_tools_that_run_as_tasks_do_so(server_revision: str) -> None:
    """docs/discovery.md#who-sees-what: callers that know tasks get one, and ask after it as after any."""
    server = Worker(revision=server_revision, work=dict(WORK))
    try:
        async with a_world({"up": server}, **SEARCHED) as made:
            knows = await client_of(made, "2026-07-28", capabilities=KNOWS_TASKS)
            made_task = (await knows.call("call_tool", {"name": "up__quick", "arguments": {"x": 1}})).result
            if "taskId" in made_task:
                shown = await when(knows, made_task["taskId"], "completed")
                assert text(shown["result"]) == "worked"
            else:
                assert text(made_task) == "worked"
            plain = await client_of(made, "2025-06-18")
            assert text((await plain.call("call_tool", {"name": "up__quick"})).result) == "worked"
    finally:
        server.stop_jobs()


async def test_a_tool_that_changes_between_search_and_call_is_called_as_it_is_then() -> None:
    """docs/discovery.md#limits: a new schema refuses the old arguments, a tool that is gone is unknown."""
    definition = {"name": "get", "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}}}
    server = NoteServer(tools={"get": None}, definitions=[definition])
    async with a_world({"up": server}, **SEARCHED) as made:
        client = await client_of(made)
        assert "up__get(a?: str)" in await search(client, "get")
        inner = {"name": "up__get", "arguments": {"a": "x"}}
        assert said((await client.call("call_tool", inner)).result) == {"a": "x"}
        changed = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        server.definitions = [{"name": "get", "inputSchema": changed}]
        server.change("tools")
        await until(lambda: made.gateway.tools()[0].input_schema == changed)
        refused = (await client.call("call_tool", inner)).result
        assert "a must be integer" in text(refused)
        assert "up__get(a: int)" in await search(client, "get")
        server.definitions = []
        server.change("tools")
        await until(lambda: not made.gateway.tools())
        assert "Tool not found: up__get. search_tools" in text((await client.call("call_tool", inner)).result)
        assert "up (0)" in await search(client, "get")
        assert len(calls(server)) == 1


async def test_a_rule_that_asks_asks_about_the_tool() -> None:
    """docs/access.md: `ask` holds a call by `call_tool` as a direct one, and names the tool."""
    asked: list[str] = []
    async with world(access=[{"tools": ["hub__create_issue"], "do": "ask"}]) as made:
        client = await client_of(made, capabilities={"elicitation": {"form": {}}})

        def agree(params: dict[str, Any]) -> dict[str, Any]:
            asked.append(params["message"])
            return {"action": "accept", "content": {}}

        client.answers["elicitation/create"] = agree
        inner = {"name": "hub__create_issue", "arguments": {"title": "x"}}
        assert said((await client.call("call_tool", inner)).result) == {"title": "x"}
        assert len(asked) == 1
        assert "hub__create_issue" in asked[0]


async def test_three_searches_among_500_tools_cost_less_than_a_tenth_of_the_list() -> None:
    """docs/discovery.md: what it is for."""
    words = ("weather", "issue", "file", "mail", "calendar", "map", "invoice", "image", "video", "music")
    definitions = [
        {
            "name": f"{verb}_{word}_{number}",
            "description": f"Can {verb} one {word} of kind {number}. " + "It does so with all due care. " * 12,
            "inputSchema": {
                "type": "object",
                "properties": {
                    f"p{count}": {"type": "string", "description": "What to use it for."} for count in range(4)
                },
            },
        }
        for word in words
        for verb in ("get", "list", "create", "delete", "update")
        for number in range(10)
    ]
    server = ScriptedServer(tools={one["name"]: None for one in definitions}, definitions=definitions)
    views = {"v": {"discovery": "search"}}
    async with a_world({"up": server}, views=views) as made:
        full = len((await (await client_of(made)).ask("tools/list")).line)
        client = await client_of(made, view="v")
        cost = len((await client.ask("tools/list")).line)
        for query in ("create an invoice", "delete a file", "list my calendar"):
            reply = await client.call("search_tools", {"query": query})
            verb, _, word = query.partition(" ")
            assert text(reply.result).startswith(f"up__{verb}_{word.split()[-1]}")
            cost += len(reply.line)
        assert cost < full / 10


# --- doors ------------------------------------------------------------------------------------


async def test_both_eras_search_and_call_over_http() -> None:
    """docs/discovery.md: at `/mcp/NAME` too, with and without a session."""
    views = {"agent": {"discovery": "search"}}
    async with a_web({"hub": hub()}, top={"views": views, **SEARCHED}) as web:
        session = await web.session()
        inner = {"name": "hub__create_issue", "arguments": {"title": "x"}}
        found = (
            await session.ask("tools/call", {"name": "search_tools", "arguments": {"query": "open issue"}})
        ).outcome
        assert text(found["result"]).startswith("hub__create_issue(")
        called = (await session.ask("tools/call", {"name": "call_tool", "arguments": inner})).outcome
        assert said(called["result"]) == {"title": "x"}
        found = (
            await web.stateless("tools/call", {"name": "search_tools", "arguments": {"query": "open issue"}})
        ).outcome
        assert found["result"]["resultType"] == "complete"
        assert text(found["result"]).startswith("hub__create_issue(")
        called = (await web.stateless("tools/call", {"name": "call_tool", "arguments": inner})).outcome
        assert said(called["result"]) == {"title": "x"}


async def test_two_gateways_of_one_config_answer_alike() -> None:
    """docs/discovery.md: no state between search and call, so that any replica takes either."""
    answers: list[tuple[bytes, str]] = []
    for _ in range(2):
        async with world() as made:
            client = await client_of(made, "2026-07-28")
            answers.append(((await client.ask("tools/list")).line, await search(client, "repository issue")))
    assert answers[0] == answers[1]
