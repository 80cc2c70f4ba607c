"""The bytes of a list depend on the configuration and on what the servers define, and on nothing else."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muxway import Gateway
from muxway.config import parse_config
from muxway.testing import RawClient, ScriptedServer
from tests.conftest import a_world
from tests.noting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.conftest import World

SCRIPT = str(Path(__file__).with_name("listing_server.py"))
CHANGED = "notifications/tools/list_changed"


class Children:
    """Some servers that are processes, whose lists and starts a test decides about."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder, self.names = folder, names
        (folder / "gate").touch()
        for name in names:
            self.has(name, "b", "a", instructions=f"This is {name}.")

    def has(self, name: str, *tools: str, **more: Any) -> None:
        """What one of them has from its next start on."""
        (self.folder / name).write_text(json.dumps({"tools": tools, **more}))

    def fail(self) -> None:
        """Let every start fail."""
        for name in self.names:
            self.has(name, fails=True)

    @contextlib.asynccontextmanager
    async def gateway(self, **top: Any) -> AsyncIterator[Gateway]:
        """A gateway that has just been started."""
        servers = {
            name: {
                "command": sys.executable,
                "args": ["-I", "-S", SCRIPT, str(self.folder / name), str(self.folder / "gate")],
                "era": "legacy",
            }
            for name in self.names
        }
        config = parse_config({"mcpServers": servers, "gateway": {"listWait": 20}, **top})
        async with Gateway.open(config, wait=False) as gateway:
            yield gateway


async def seen(gateway: Gateway) -> tuple[bytes, str]:
    """The list of tools as its bytes come, and the instructions, of a new client."""
    client = RawClient(gateway.memory_door())
    hello = await client.hello()
    assert hello is not None
    return (await client.ask("tools/list", id_="L")).line, hello.result.get("instructions", "")


async def test_with_all_servers_stopped_lists_and_instructions_are_whole_and_the_same(tmp_path: Path) -> None:
    """docs/behaviour.md#lists: after a restart, the first list and all that follow are byte for byte what they were."""
    children = Children(tmp_path, "one", "two")
    async with children.gateway() as gateway:
        await gateway.settled()
        before = await seen(gateway)
    assert b"one__b" in before[0]
    assert "This is two." in before[1]
    children.fail()
    async with children.gateway() as gateway:
        assert await seen(gateway) == before
        await until(lambda: all(str(server.status) == "failed" for server in gateway.servers()))
        assert await seen(gateway) == before
        client = RawClient(gateway.memory_door())
        await client.hello()
        error = (await client.call("one__a")).error
        assert error["data"]["muxway"]["reason"] == "not_running"


async def test_what_a_server_gains_comes_last_whatever_order_it_lists_in(tmp_path: Path) -> None:
    """docs/behaviour.md#lists: also after a restart; what left and came back is new."""
    children = Children(tmp_path, "up")
    async with children.gateway() as gateway:
        await gateway.settled()
        assert names(gateway) == ["up__b", "up__a"]
    children.has("up", "first", "a", "b")
    async with children.gateway() as gateway:
        await gateway.settled()
        assert names(gateway) == ["up__b", "up__a", "up__first"]
    children.has("up", "a", "first")
    async with children.gateway() as gateway:
        await gateway.settled()
    children.has("up", "b", "a", "first")
    async with children.gateway() as gateway:
        await gateway.settled()
        assert names(gateway) == ["up__a", "up__first", "up__b"]


def names(gateway: Gateway) -> list[str]:
    return [tool.name for tool in gateway.tools()]


async def test_a_server_that_lists_in_another_order_is_no_news() -> None:
    """docs/behaviour.md#lists: an order is no difference."""
    server = ScriptedServer(tools={"a": None, "b": None})
    async with a_world({"up": server}) as world:
        client = await world.client()
        before = (await client.ask("tools/list", id_="L")).line
        server.tools = {"b": None, "a": None}
        listings = sum(m.get("method") == "tools/list" for m in server.heard)
        server.say({"jsonrpc": "2.0", "method": CHANGED})
        await until(lambda: sum(m.get("method") == "tools/list" for m in server.heard) > listings)
        await client.ask("ping")
        assert (await client.ask("tools/list", id_="L")).line == before
        assert client.notices == []


async def test_a_start_that_fails_half_way_leaves_nothing_of_itself() -> None:
    """Ours: prompts that were read count only if the tools could be read, too."""
    server = ScriptedServer(tools={"a": None}, prompts={"p": None}, silent=frozenset({"tools/list"}))
    top = {"gateway": {"listTimeout": 0.2}}
    async with a_world({"up": server}, **top) as world:
        assert str(world.gateway.servers()[0].status) in ("failed", "restarting")
        client = await world.client()
        assert (await client.ask("prompts/list")).result["prompts"] == []


# --- gathering ------------------------------------------------------------------------------------


async def test_a_hundred_changes_of_a_server_are_one_notice(quiet: Callable[[float], None]) -> None:
    """docs/behaviour.md#lists: to each session once, also to those who listen without one."""
    server = ScriptedServer(tools={"a": None})
    async with a_world({"up": server}) as world:
        quiet(0.5)
        session, stateless = await world.client(), await world.client("2026-07-28")
        stateless.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await stateless.notice("notifications/subscriptions/acknowledged")
        for number in range(100):
            server.tools[f"new{number}"] = None
            server.say({"jsonrpc": "2.0", "method": CHANGED})
        for client in (session, stateless):
            await client.notice(CHANGED)
            assert len(await client.tools()) == 101
            assert client.notices == []


async def test_what_is_new_can_be_called_before_anybody_is_told(quiet: Callable[[float], None]) -> None:
    """docs/behaviour.md#lists: only the notice waits."""
    server = ScriptedServer(tools={"a": None})
    async with a_world({"up": server}) as world:
        quiet(60)
        client = await world.client()
        server.tools["b"] = None
        server.say({"jsonrpc": "2.0", "method": CHANGED})
        await until(lambda: "up__b" in names(world.gateway))
        assert "result" in (await client.call("up__b")).message
        assert await client.tools() == ["up__a", "up__b"]
        assert client.notices == []
        await world.gateway.add("two", server=ScriptedServer(tools={"c": None}))
        await client.notice(CHANGED)


# --- pin ------------------------------------------------------------------------------------------


def pinned(server: ScriptedServer, **more: Any) -> contextlib.AbstractAsyncContextManager[World]:
    return a_world({"up": server}, views={"v": {"pin": True, **more}})


async def in_view(world: World, revision: str = "2025-11-25") -> RawClient:
    client = RawClient(world.gateway.memory_door("v"), revision=revision)
    await client.hello()
    return client


async def test_a_pinned_session_keeps_its_first_list() -> None:
    """docs/views.md#pin: byte for byte, and nothing is told; new tools can be called, those that are gone cannot."""
    server = ScriptedServer(tools={"a": None, "b": None}, prompts={"p": None})
    async with pinned(server) as world:
        client, other = await in_view(world), await world.client()
        before = (await client.ask("tools/list", id_="L")).line
        server.tools = {"a": None, "c": None}
        server.say({"jsonrpc": "2.0", "method": CHANGED})
        await other.notice(CHANGED)
        assert (await client.ask("tools/list", id_="L")).line == before
        assert client.notices == []
        assert "result" in (await client.call("up__c")).message
        error = (await client.call("up__b")).error
        assert "Tool not found: up__b: it is not there any more" in error["message"]
        assert "`pin`" in error["message"]
        assert (await client.call("up__never")).error["message"] == "Tool not found: up__never"
        assert await (await in_view(world)).tools() == ["up__a", "up__c"]
        assert await (await in_view(world, "2026-07-28")).tools() == ["up__a", "up__c"]
        assert server.prompts is not None
        server.prompts["q"] = None
        server.say({"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"})
        await client.notice("notifications/prompts/list_changed")


async def test_pages_of_a_pinned_list_are_those_of_the_first() -> None:
    """docs/views.md#pin: a client half way goes on, and one that begins again sees the same."""
    server = ScriptedServer(tools={"a": None, "b": None, "c": None})
    async with a_world({"up": server}, views={"v": {"pin": True}}, gateway={"pageSize": 2}) as world:
        client, other = await in_view(world), await world.client()
        first = (await client.ask("tools/list")).result
        server.tools = {"d": None}
        server.say({"jsonrpc": "2.0", "method": CHANGED})
        await other.notice(CHANGED)
        rest = (await client.ask("tools/list", {"cursor": first["nextCursor"]})).result
        assert [tool["name"] for tool in rest["tools"]] == ["up__c"]
        assert await client.tools() == ["up__a", "up__b", "up__c"]


async def test_nothing_is_kept_of_a_pinned_session_that_has_gone() -> None:
    """Ours: sessions come and go."""
    async with pinned(ScriptedServer(tools={"a": None})) as world:
        door = world.gateway.memory_door("v")
        client = RawClient(door)
        await client.hello()
        await client.tools()
        assert len(world.gateway.runtime.pinned) == 1
        await door.close()
        assert world.gateway.runtime.pinned == {}
