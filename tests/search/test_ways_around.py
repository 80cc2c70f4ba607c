"""Ways around what stands before a tool, by `search_tools` and `call_tool`: there are none."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from muxway import Gateway, Middleware
from muxway.calls.identity import Identity
from muxway.catalog.model import Native
from muxway.routing.snapshot import OwnLists
from muxway.search.listing import Discovery
from muxway.testing import RawClient, ScriptedServer
from muxway.wire import envelopes
from tests.conftest import World, a_world, said
from tests.noting import NoteServer, until
from tests.search.test_views import SEARCHED, Hider, calls, client_of, hub, search, text, world

if TYPE_CHECKING:
    from muxway.middleware.engine.base import Next, Request, Result

OFF: dict[str, Any] = {"mcpServers": {"off": {"command": "none", "disabled": True}}}


class Notes(Middleware):
    """Takes note of the names that calls are about."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, ...]] = []

    async def call_tool(self, request: Request, go: Next) -> Result:
        """Pass it on."""
        self.heard.append(request.target.names)
        return await go(request)


# --- names ------------------------------------------------------------------------------------


async def test_call_tool_does_not_call_itself() -> None:
    """docs/discovery.md#who-sees-what: a call in a call would be judged as one of nothing, and made all the same."""
    notes, server = Notes(), hub()
    async with Gateway.open({**OFF, **SEARCHED}, middleware=[notes, Hider()]) as gateway:
        await gateway.add("hub", server=server)
        client = await client_of(World(gateway, {}))
        for name in ("hub__delete_repo", "hub__list_issues"):
            call: dict[str, Any] = {"name": name, "arguments": {}}
            for _ in range(3):
                call = {"name": "call_tool", "arguments": call}
                assert "Tool not found: call_tool." in text((await client.call("call_tool", call)).result)
        assert not calls(server)


async def test_a_call_that_names_two_tools_calls_neither() -> None:
    """docs/behaviour.md: who stands before muxway, or shows a call to its user, may have heeded the other one."""
    async with world() as made:
        client = await client_of(made)
        for number, arguments in enumerate(
            (
                b'{"name":"hub__list_issues","name":"hub__delete_repo"}',
                b'{"name":"hub__list_issues","arguments":{},"\\u0061rguments":{"a":1}}',
                b'{"name":"hub__list_issues",%b}' % b",".join(b'"m%d":1' % one for one in range(2000)),
            )
        ):
            params = b'{"name":"call_tool","arguments":%b}' % arguments
            client.say(b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%b}' % (90 + number, params))
            assert "each once" in text((await client.answer(90 + number)).result)
        assert not calls(made.servers["hub"])


async def test_a_servers_tool_with_the_name_of_a_finder_changes_nothing_for_others() -> None:
    """docs/discovery.md#configuration: a tool called `call_tool` is one of many, whoever has called it before."""
    server = ScriptedServer(tools={"call_tool": None, "search_tools": None, "other": None})
    async with a_world({"up": server}, entries={"up": {"prefix": ""}}, **SEARCHED) as made:
        client = await client_of(made)
        for name in ("call_tool", "search_tools", "up__call_tool", "other"):
            inner = {"name": name, "arguments": {"name": "other", "arguments": {}}}
            assert said((await client.call("call_tool", inner)).result) == inner["arguments"]
            assert calls(server)[-1]["name"] == name.removeprefix("up__")
        assert "other()" in await search(client, "other")
        assert await client.tools() == ["search_tools", "call_tool"]


async def test_a_reload_that_turns_search_on_gives_the_names_to_the_finders() -> None:
    """docs/discovery.md#configuration: what was called directly before is not what `call_tool` leads to now."""
    server = ScriptedServer(tools={"call_tool": None, "other": None})
    async with a_world({"up": server}, entries={"up": {"prefix": ""}}) as made:
        client = await client_of(made)
        assert said((await client.call("call_tool", {"a": 1})).result) == {"a": 1}
        runtime = made.gateway.runtime
        settings = replace(runtime.snapshot.settings, discoveries={None: Discovery()})
        runtime.publish(runtime.snapshot.given, settings)
        refused = (await client.call("call_tool", {"a": 1})).result
        assert "takes the name of a tool" in text(refused)
        assert len(calls(server)) == 1


# --- what middleware hides --------------------------------------------------------------------


class Picky(Middleware):
    """Takes one tool out of every list, by its public name."""

    async def list_tools(self, request: Request, go: Next) -> Result:
        """All but that one."""
        result = await go(request)
        return result.replace(tools=[tool for tool in result.value["tools"] if tool["name"] != "up:secret"])


async def test_no_clients_name_shows_what_middleware_hides() -> None:
    """docs/names.md#clients: middleware knows tools by their public names, whichever client asks."""
    config = {**OFF, "gateway": {"separator": ":"}}
    server = ScriptedServer(tools={"plain": None, "secret": None})
    async with Gateway.open(config, middleware=[Picky()]) as gateway:
        await gateway.add("up", server=server)
        for name, listed in (("claude-ai", "up_plain"), ("somebody", "up:plain")):
            client = RawClient(gateway.memory_door(), name=name)
            await client.hello()
            assert await client.tools() == [listed]
            assert said((await client.call(listed, {"a": 1})).result) == {"a": 1}
            for secret in ("up_secret", "up:secret", "up__secret"):
                assert secret in (await client.call(secret)).error["message"]
        assert {call["name"] for call in calls(server)} == {"plain"}


async def test_what_is_hidden_is_as_unknown_as_what_there_is_not() -> None:
    """docs/discovery.md#who-sees-what: in the caller's own spelling, and no hint leads to it."""
    shape = {"hub__list_issues": {"name": "delete_all"}}
    async with Gateway.open({**OFF, **SEARCHED, "shape": shape}, middleware=[Hider()]) as gateway:
        await gateway.add("hub", server=hub())
        client = await client_of(World(gateway, {}))
        without = hub()
        without.definitions = [one for one in without.definitions if one["name"] == "create_issue"]
        async with Gateway.open({**OFF, **SEARCHED}, middleware=[Hider()]) as other:
            await other.add("hub", server=without)
            stranger = await client_of(World(other, {}))
            for name, like in (("hub.delete_repo", "hub.nothing"), ("delete_all", "nothing")):
                hidden, unknown = [(await client.call(one)).error for one in (name, like)]
                assert hidden == {**unknown, "message": unknown["message"].replace(like, name)}
                hidden, unknown = [(await one.call("call_tool", {"name": name})).result for one in (client, stranger)]
                assert hidden == unknown
                assert hidden["isError"]
        for near in ("hub__delete_rep", "delete_repo", "delete_al"):
            assert "data" not in (await client.call(near)).error
            assert "delete_" not in text((await client.call("call_tool", {"name": near})).result).replace(
                f"{near}.", ""
            )
        mistyped = (await client.call("call_tool", {"name": "hub__create_isue"})).result
        assert "Names like it: hub__create_issue" in text(mistyped)


async def test_a_name_that_may_be_two_tools_tells_of_none_where_middleware_hides() -> None:
    """docs/names.md#what-a-call-may-say: who does not see one of them must not learn of it by the other."""
    servers = {"a": ScriptedServer(tools={"b.delete": None}), "a.b": ScriptedServer(tools={"delete": None})}
    for hides, why in (((), "Tool name is ambiguous: a.b.delete may be"), ([Hider()], "Tool not found: a.b.delete")):
        async with Gateway.open({**OFF, **SEARCHED}, middleware=hides) as gateway:
            for name, server in servers.items():
                await gateway.add(name, server=server)
            client = await client_of(World(gateway, {}))
            assert (await client.call("a.b.delete")).error["message"].startswith(why)
            assert why in text((await client.call("call_tool", {"name": "a.b.delete"})).result)


class Waits(Middleware):
    """Lets calls wait for something."""

    def __init__(self) -> None:
        self.came, self.go = asyncio.Event(), asyncio.Event()

    async def call_tool(self, request: Request, go: Next) -> Result:
        """Pass it on, later."""
        self.came.set()
        await self.go.wait()
        return await go(request)


def _reading(*, only: bool) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    return [{"name": "get", "inputSchema": schema, "annotations": {"readOnlyHint": only}}]


def _is_read_only(gateway: Gateway) -> bool:
    return gateway.tools()[0].definition["annotations"]["readOnlyHint"]


async def test_a_tier_is_that_of_the_definition_which_is_called() -> None:
    """docs/discovery.md#tiers: a tool that said otherwise when the call came is judged again after it has waited."""
    waits = Waits()
    server = NoteServer(tools={"get": None}, definitions=_reading(only=True))
    tiers = {"gateway": {"discovery": "search", "tiers": True}}
    async with Gateway.open({**OFF, **tiers}, middleware=[waits]) as gateway:
        await gateway.add("up", server=server)
        client = await client_of(World(gateway, {}))
        params = {"name": "call_tool_read", "arguments": {"name": "up__get", "arguments": {"a": "x"}}}
        id_ = client.start("tools/call", params)
        await waits.came.wait()
        server.definitions = _reading(only=False)
        server.change("tools")
        await until(lambda: _is_read_only(gateway) is False)
        waits.go.set()
        refused = (await client.answer(id_)).result
        assert refused["isError"]
        assert "call_tool_destructive" in text(refused)
        assert not calls(server)
        right = {"name": "up__get", "arguments": {"a": "x"}}
        assert said((await client.call("call_tool_destructive", right)).result) == {"a": "x"}
        assert said((await client.call("up__get", {"a": "y"})).result) == {"a": "y"}


async def test_what_was_agreed_to_is_judged_again_if_it_has_changed() -> None:
    """docs/discovery.md#tiers: also after somebody has looked at the call for a while."""
    server = NoteServer(tools={"get": None}, definitions=_reading(only=True))
    top = {"gateway": {"discovery": "search", "tiers": True}, "access": [{"tools": ["*"], "do": "ask"}]}
    async with a_world({"up": server}, **top) as made:
        client = await client_of(made, capabilities={"elicitation": {"form": {}}})
        params = {"name": "call_tool_read", "arguments": {"name": "up__get", "arguments": {}}}
        id_ = client.start("tools/call", params)
        asked = await client.notice("elicitation/create")
        server.definitions = _reading(only=False)
        server.change("tools")
        await until(lambda: _is_read_only(made.gateway) is False)
        agreed = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {}}}
        client.say(json.dumps(agreed).encode())
        refused = (await client.answer(id_)).result
        assert "call_tool_destructive" in text(refused)
        assert not calls(server)


async def test_a_pinned_session_can_call_what_is_new_and_not_hidden() -> None:
    """docs/views.md: only the list is kept. Middleware that hides something leaves what is new alone."""
    server = NoteServer(tools={"one": None})
    async with Gateway.open({**OFF, "views": {"v": {"pin": True}}}, middleware=[Hider()]) as gateway:
        await gateway.add("up", server=server)
        client = await client_of(World(gateway, {}), view="v")
        assert await client.tools() == ["up__one"]
        server.tools.update({"two": None, "delete_two": None})
        server.change("tools")
        await until(lambda: len(gateway.tools()) == 3)
        assert "result" in (await client.call("up__two")).message
        assert "result" not in (await client.call("up__delete_two")).message
        assert await client.tools() == ["up__one"]


async def test_a_cache_keeps_neither_searches_nor_what_middleware_looks_at() -> None:
    """docs/middleware/cache.md: of a search view only its own list may be kept."""
    cached = {"discovery": "search", "middleware": [{"use": "cache", "lists": True}]}
    async with Gateway.open({**OFF, "gateway": cached}, middleware=[Hider()]) as gateway:
        await gateway.add("hub", server=hub())
        client = await client_of(World(gateway, {}))
        for _ in range(2):
            assert "hub__list_issues" in await search(client, "issues")
            assert await client.tools() == ["search_tools", "call_tool"]
            assert "result" in (await client.call("hub__list_issues")).message


# --- what is for one user alone ---------------------------------------------------------------

ANN, BOB = (Identity(user=name, subject=name, issuer="i") for name in ("ann", "bob"))


def own_lists(gateway: Gateway, server: str, tools: dict[Identity, dict[str, str]]) -> None:
    """Let a server list tools for each user, by their names and what they say of themselves."""
    runtime = gateway.runtime
    source = next(one for one in runtime.snapshot.given if one.upstream == server)
    of: dict[Any, Any] = {}
    for identity, named in tools.items():
        members = {
            name: {"description": json.dumps(text), "inputSchema": '{"type":"object"}'} for name, text in named.items()
        }
        natives = [
            Native(name, {key: envelopes.Raw(raw.encode()) for key, raw in its.items()})
            for name, its in members.items()
        ]
        of[identity.owner] = {server: replace(source, tools=natives)}
    runtime.publish(runtime.snapshot.given, own_lists=OwnLists(frozenset({server}), of))


async def client_for(gateway: Gateway, identity: Identity) -> RawClient:
    """A client of a user."""
    client = RawClient(gateway.memory_door(identity=identity))
    await client.hello()
    return client


async def test_middleware_hides_what_is_listed_for_one_user() -> None:
    """docs/discovery.md#who-sees-what: also what a server lists for nobody else."""
    server = ScriptedServer(tools={"plain": None})
    async with Gateway.open({**OFF, **SEARCHED}, middleware=[Hider()]) as gateway:
        await gateway.add("up", server=server)
        own_lists(gateway, "up", {ANN: {"delete_it": "Delete it", "read_it": "Read it"}, BOB: {"bobs": "Of Bob"}})
        client = await client_for(gateway, ANN)
        found = await search(client, "delete read it")
        assert "up__read_it" in found
        assert "delete_it" not in found
        for call in (("up__delete_it",), ("call_tool", {"name": "up__delete_it"})):
            told = (await client.call(*call)).message
            assert "Tool not found: up__delete_it" in json.dumps(told)
            assert "error" in told or told["result"]["isError"]
        assert "up (1)" in await search(client, "bobs")


async def test_users_have_indexes_of_their_own() -> None:
    """docs/discovery.md#who-sees-what: nobody's tools rank, count or wait for anybody else's."""
    server = ScriptedServer(tools={"plain": None})
    mine = {"one": "Handles apples", "two": "Handles pears"}
    async with Gateway.open({**OFF, **SEARCHED}, middleware=[Hider()]) as gateway:
        await gateway.add("up", server=server)
        own_lists(gateway, "up", {ANN: mine})
        alone = await search(await client_for(gateway, ANN), "apples pears")
        others = {Identity(user="u", subject=f"u{number}", issuer="i"): dict(mine) for number in range(40)}
        own_lists(gateway, "up", {ANN: mine, **others, BOB: {f"b{number}": "Handles apples" for number in range(9)}})
        ann, bob = [await client_for(gateway, one) for one in (ANN, BOB)]
        params = {"name": "search_tools", "arguments": {"query": "apples pears"}}
        waiting = [(ann, ann.start("tools/call", params)), (bob, bob.start("tools/call", params))] * 5
        for client, id_ in dict.fromkeys(waiting):
            told = text((await client.answer(id_)).result)
            assert (told == alone) == (client is ann)
        searches = gateway.runtime.searches
        kept = searches._views[None, ANN.owner].index.segments["up"]
        await search(bob, "pears")
        assert await search(ann, "apples pears") == alone
        assert searches._views[None, ANN.owner].index.segments["up"] is kept, "nothing is made again"
        for one in others:
            assert "up__one" in await search(await client_for(gateway, one), "apples")
        assert len(searches._views) <= 33


async def test_who_has_lists_of_its_own_hears_only_of_lists_that_change() -> None:
    """docs/discovery.md#lists-that-keep-prompt-caches: none of a search view, of a kept list, or of another view."""
    views = {"all": {}, "found": {"discovery": "search"}, "kept": {"pin": True}, "rest": {"servers": ["other"]}}
    off = {"command": "none", "disabled": True}
    async with Gateway.open({"mcpServers": {"up": off, "other": off}, "views": views}) as gateway:
        for name in ("up", "other"):
            await gateway.add(name, server=ScriptedServer(tools={"plain": None}))
        own_lists(gateway, "up", {ANN: {"one": "One"}})
        clients = {name: RawClient(gateway.memory_door(name, identity=ANN)) for name in views}
        for client in clients.values():
            await client.hello()
            await client.tools()
        own_lists(gateway, "up", {ANN: {"one": "One", "two": "Two"}})
        heard: dict[str, list[str]] = {}
        for name, client in clients.items():
            assert "result" in (await client.ask("ping")).message
            heard[name] = [note["method"] for note in client.notices]
        assert heard == {"all": ["notifications/tools/list_changed"], "found": [], "kept": [], "rest": []}
        assert "up__two" in await search(clients["found"], "two")


async def test_words_of_what_a_caller_may_not_run_find_nothing() -> None:
    """docs/access.md: a compound tool tells only of what its caller may run, to who searches, too."""
    ops = {"description": "Operations", "subtools": {"hub": {"tools": ["list_issues", "delete_repo"]}}}
    rules = [{"users": ["ann"], "do": "allow"}, {"tools": ["hub__delete_*"], "do": "deny"}]
    async with world(access=rules, tools={"Ops": ops}) as made:
        ann, bob = [await client_for(made.gateway, one) for one in (ANN, BOB)]
        assert "Ops(" in await search(ann, "delete_repo")
        assert "No tool matches" in await search(bob, "delete_repo")
        assert (await search(bob, "operations list_issues")).startswith("Ops(")
