"""Servers come, change and go: what the listing shows, and who is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muxway.testing import RawClient, ScriptedServer
from tests.conftest import HANDSHAKE_REVISIONS, REVISIONS, a_world
from tests.noting import MODERN, SUBSCRIPTION, NoteServer, notes, until

pytestmark = pytest.mark.leaping

KINDS = ["tools", "prompts", "resources"]


def grow(server: NoteServer, kind: str) -> None:
    """Give a server one more of a kind."""
    if kind == "resources":
        assert server.resources is not None
        server.resources[f"note://{len(server.resources)}"] = "text"
    else:
        scripts = server.tools if kind == "tools" else server.prompts
        assert scripts is not None
        scripts[f"new{len(scripts)}"] = None


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
async def test_a_session_hears_of_a_server_that_arrives(revision: str) -> None:
    """docs/behaviour.md#start: list_changed as others arrive."""
    async with a_world({"one": ScriptedServer(tools={"a": None})}) as world:
        client = await world.client(revision)
        assert await client.tools() == ["one__a"]
        await world.gateway.add("two", server=ScriptedServer(tools={"b": None}))
        await client.notice("notifications/tools/list_changed")
        assert await client.tools() == ["one__a", "two__b"]
        await world.gateway.remove("one")
        await client.notice("notifications/tools/list_changed")
        assert await client.tools() == ["two__b"]


async def test_a_stateless_client_hears_of_changes_where_it_listens() -> None:
    """MCP 2026-07-28, basic/patterns/subscriptions.

    Acknowledged first, each notice stamped with the listen request's own id.
    """
    async with a_world({"one": ScriptedServer(tools={"a": None})}) as world:
        client = await world.client("2026-07-28")
        for id_ in ("L7", 7):
            client.start("subscriptions/listen", {"notifications": {"toolsListChanged": True, "other": True}}, id_=id_)
            ack = await client.notice("notifications/subscriptions/acknowledged")
            assert ack["params"]["notifications"] == {"toolsListChanged": True}
            assert ack["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": id_}
        await world.gateway.add("two", server=ScriptedServer(tools={"b": None}))
        stamps = [(await client.notice("notifications/tools/list_changed"))["params"]["_meta"] for _ in range(2)]
        assert [stamp["io.modelcontextprotocol/subscriptionId"] for stamp in stamps] == ["L7", 7]
        client.tell("notifications/cancelled", {"requestId": "L7"})
        await world.gateway.remove("two")
        notice = await client.notice("notifications/tools/list_changed")
        assert notice["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 7}
        assert client.notices == []


async def test_a_listen_ends_with_a_result_when_the_gateway_goes() -> None:
    """MCP 2026-07-28, basic/patterns/subscriptions: the server SHOULD answer the listen request on a graceful end."""
    async with a_world({"one": ScriptedServer(tools={"a": None})}) as world:
        door = world.gateway.memory_door()
        client = RawClient(door, revision="2026-07-28")
        id_ = client.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await client.notice("notifications/subscriptions/acknowledged")
        await door.close()
        result = (await client.answer(id_)).result
        assert result == {"resultType": "complete", "_meta": {"io.modelcontextprotocol/subscriptionId": id_}}
        assert client.notices == []
        ended = await client.notice("notifications/cancelled")
        assert ended["params"] == {"requestId": id_, "reason": "the gateway is being stopped"}


async def test_a_servers_own_change_is_listed_anew_and_told_once() -> None:
    """docs/behaviour.md#lists: re-list, and tell only of a real difference."""
    server = ScriptedServer(tools={"a": None})
    async with a_world({"up": server}) as world:
        client = await world.client()
        listings = sum(m.get("method") == "tools/list" for m in server.heard)
        server.tools["b"] = None
        for _ in range(500):
            server.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await client.notice("notifications/tools/list_changed")
        assert await client.tools() == ["up__a", "up__b"]
        await asyncio.sleep(0.6)
        assert client.notices == []
        assert sum(m.get("method") == "tools/list" for m in server.heard) - listings <= 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("server_revision", ["2024-11-05", "2025-11-25", MODERN])
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_change_of_any_kind_is_told_to_clients_of_any_revision(
    revision: str, server_revision: str, kind: str
) -> None:
    """docs/behaviour.md#changes-and-subscriptions.

    list_changed of any kind, once, on the stream that asked for it or in the session.
    """
    server = notes(server_revision, tools={"a": None})
    async with a_world({"up": server}) as world:
        client = await world.client(revision)
        if client.stateless:
            wanted = {f"{kind}ListChanged": True for kind in KINDS}
            client.start("subscriptions/listen", {"notifications": wanted}, id_="L7")
            ack = await client.notice("notifications/subscriptions/acknowledged")
            assert ack["params"]["notifications"] == wanted
        if server_revision == MODERN:
            # The first stream to a server is there when the lists have been read once more.
            await until(lambda: server.times("tools/list") == 2)
        grow(server, kind)
        server.change(kind)
        notice = await client.notice(f"notifications/{kind}/list_changed")
        assert notice.get("params") == ({"_meta": {SUBSCRIPTION: "L7"}} if client.stateless else None)
        await client.tools()
        assert client.notices == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_change_that_nobody_sees_is_told_to_nobody(kind: str) -> None:
    """docs/behaviour.md#changes-and-subscriptions: one notification only if what the client sees changed."""
    server = notes(tools={"a": None})
    hidden = {f"hidden{kind.capitalize()}": ["*"] if kind == "resources" else ["new0", "new1"]}
    async with a_world({"up": server}, entries={"up": hidden}) as world:
        client = await world.client()
        listed = server.times(f"{kind}/list")
        server.change(kind)
        await until(lambda: server.times(f"{kind}/list") > listed)
        await asyncio.sleep(0.3)
        grow(server, kind)
        server.change(kind)
        await until(lambda: server.times(f"{kind}/list") > listed + 1)
        await asyncio.sleep(0.05)
        await client.tools()
        assert client.notices == []


async def test_a_stream_hears_only_of_the_kinds_it_asked_for() -> None:
    """MCP 2026-07-28, basic/patterns/subscriptions: no unsolicited kinds."""
    server = notes(tools={"a": None})
    async with a_world({"up": server}) as world:
        client = await world.client(MODERN)
        client.start("subscriptions/listen", {"notifications": {"promptsListChanged": True}}, id_="L")
        await client.notice("notifications/subscriptions/acknowledged")
        for kind in ("tools", "resources", "prompts"):
            grow(server, kind)
            server.change(kind)
        await client.notice("notifications/prompts/list_changed")
        await asyncio.sleep(0.3)
        await client.tools()
        assert client.notices == []


@pytest.mark.parametrize("server_revision", ["2025-11-25", MODERN])
async def test_a_storm_of_changes_costs_few_listings_and_few_words(server_revision: str) -> None:
    """docs/subscriptions.md#lists: 2,000 notices cost at most five listings; one notification per effective change."""
    server = notes(server_revision, tools={"a": None})
    async with a_world({"up": server}) as world:
        clients = [await world.client(), await world.client(MODERN)]
        clients[1].start("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id_="L")
        await clients[1].notice("notifications/subscriptions/acknowledged")
        if server_revision == MODERN:
            await until(lambda: server.times("tools/list") == 2)
        listed = server.times("tools/list")
        grow(server, "tools")
        for n in range(2000):
            server.change("tools")
            if n % 100 == 99:
                await asyncio.sleep(0.005)
        for client in clients:
            await client.notice("notifications/tools/list_changed")
        await asyncio.sleep(1.2)
        assert server.times("tools/list") - listed <= 5
        for client in clients:
            assert await client.tools() == ["up__a", "up__new1"]
            assert client.notices == []


async def test_a_crash_fails_what_waits_at_once_and_changes_no_list_if_it_stays() -> None:
    """docs/behaviour.md#a-server-crashes.

    Waiting calls fail at once, everyone else goes on; its tools stay listed, also if it stays away.
    """

    def crash(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.end()

    def hang(server: ScriptedServer, request: dict[str, Any]) -> None:
        return None

    servers = {
        "bad": ScriptedServer(tools={"crash": crash, "hang": hang}),
        "good": ScriptedServer(tools={"echo": None}),
    }
    async with a_world(servers) as world:
        client = await world.client()
        waiting = client.start("tools/call", {"name": "bad__hang", "arguments": {}})
        error = (await client.call("bad__crash")).error
        assert error["code"] == -32603
        assert error["data"]["muxway"] == {"reason": "lost", "upstream": "bad"}
        assert (await client.answer(waiting)).error["data"]["muxway"]["reason"] == "lost"
        await until(lambda: world.gateway.servers()[0].status == "failed")
        assert await client.tools() == ["bad__crash", "bad__hang", "good__echo"]
        assert client.notices == []
        assert (await client.call("good__echo", {"x": 1})).result["structuredContent"] == {"x": 1}
        gone = (await client.call("bad__hang")).error
        assert gone["data"]["muxway"]["reason"] == "not_running"
        assert 0 < gone["data"]["muxway"]["retryAfterMs"] <= 2000
        assert 'server "bad" is not running' in gone["message"]
        status = {server.name: str(server.status) for server in world.gateway.servers()}
        assert status == {"bad": "failed", "good": "running"}


async def test_every_page_of_a_server_is_followed() -> None:
    """MCP 2025-11-25, server/utilities/pagination: every server page followed."""
    server = ScriptedServer(tools={f"t{n}": None for n in range(25)}, page_size=4)
    async with a_world({"up": server}) as world:
        assert await (await world.client()).tools() == [f"up__t{n}" for n in range(25)]


async def test_a_list_that_never_ends_is_cut_with_a_note() -> None:
    """docs/behaviour.md#a-server-talks-nonsense: a list without end is cut, with a warning."""

    class Endless(ScriptedServer):
        def _list(self, message: dict[str, Any]) -> dict[str, Any]:
            return {**super()._list(message), "nextCursor": "again"}

    async with a_world({"up": Endless(tools={"a": None})}) as world:
        assert await (await world.client()).tools() == ["up__a"]
        assert "repeats a cursor" in world.gateway.servers()[0].notes[-1]


async def test_our_own_pages_follow_page_size_and_survive_a_change() -> None:
    """docs/configuration.md#gateway.

    An own cursor when pageSize is set; a client half way through goes on in its list.
    """
    async with a_world(
        {"up": ScriptedServer(tools={f"t{n}": None for n in range(5)})}, gateway={"pageSize": 2}
    ) as world:
        for revision in ("2025-11-25", "2026-07-28"):
            client = await world.client(revision)
            assert await client.tools() == [f"up__t{n}" for n in range(5)]
        first = (await client.ask("tools/list", {})).result
        await world.gateway.add("two", server=ScriptedServer(tools={"b": None}))
        second = (await client.ask("tools/list", {"cursor": first["nextCursor"]})).result
        assert [tool["name"] for tool in second["tools"]] == ["up__t2", "up__t3"]
        for start in ("", None):
            assert (await client.ask("tools/list", {"cursor": start})).result["tools"][0]["name"] == "up__t0"
        for bad in ("nonsense", "99.0", "1.99", 5, first["nextCursor"].replace(".2", ".1")):
            assert (await client.ask("tools/list", {"cursor": bad})).error["code"] == -32602


async def test_a_broken_definition_costs_only_itself() -> None:
    """docs/behaviour.md#a-server-talks-nonsense.

    A tool whose definition is broken is left out alone, with a warning.
    """
    definitions = [
        {"name": "good", "inputSchema": {"type": "object"}, "x-vendor": {"n": 1.0}},
        {"name": "no_schema"},
        {"inputSchema": {}},
        "text",
        {"name": "bad_schema", "inputSchema": []},
        {"name": "good", "inputSchema": {"type": "object"}},
        {"name": "fine", "inputSchema": {}},
    ]
    async with a_world({"up": ScriptedServer(tools={}, definitions=definitions)}) as world:
        client = await world.client()
        assert await client.tools() == ["up__good", "up__fine"]
        assert len(world.gateway.servers()[0].notes) == 5
        reply = await client.ask("tools/list")
        assert b'"x-vendor":{"n": 1.0}' in reply.line


async def test_listings_are_the_same_bytes_for_everyone_until_something_changes() -> None:
    """Ours: encoded once per catalog version."""
    async with a_world({"up": ScriptedServer(tools={"a": None})}) as world:
        catalog = world.gateway.runtime.snapshot.whole.tools
        for _ in range(3):
            await (await world.client()).tools()
        assert world.gateway.runtime.snapshot.whole.tools.page(0, None) is catalog.page(0, None)


async def test_filters_and_renames_apply_to_native_names() -> None:
    """docs/configuration.md#filters-and-renames: exposedTools with renames, hiddenTools."""
    servers = {
        "one": ScriptedServer(tools={"a": None, "b": None, "c": None}),
        "two": ScriptedServer(tools={"a": None, "b": None}),
        "three": ScriptedServer(tools={"a": None}),
    }
    entries = {
        "one": {"exposedTools": ["a", {"original": "b", "exposed": "renamed_b"}]},
        "two": {"hiddenTools": ["a"]},
        "three": {"prefix": ""},
    }
    async with a_world(servers, entries=entries) as world:
        client = await world.client()
        assert await client.tools() == ["one__a", "renamed_b", "two__b", "a"]
        assert (await client.call("renamed_b", {"x": 1})).result
        assert servers["one"].heard[-1]["params"]["name"] == "b"
        assert (await client.call("one:renamed_b")).result
        for hidden in ("one__c", "one__b", "two__a"):
            assert (await client.call(hidden)).error["message"] == f"Tool not found: {hidden}"
        assert (await client.call("a")).result
        assert servers["three"].heard[-1]["params"]["name"] == "a"
