"""Lists stay true: what a server has gained is seen, and can be called, whether or not it says so."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from muxway import Gateway
from muxway.servers import list_freshness
from muxway.testing import RawClient, ScriptedServer
from tests.conftest import REVISIONS, a_world
from tests.journeys.gated import GatedServer, config_of
from tests.noting import until

pytestmark = pytest.mark.leaping

CHANGED = "notifications/tools/list_changed"
ANNOUNCES = {"tools": {"listChanged": True}, "prompts": {"listChanged": True}}


@dataclass
class GrowingServer(ScriptedServer):
    """Lists one tool more each time."""

    ttl: int | None = None
    readings: int = 0
    blocked: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared: lists are not answered."""
    floods: bool = False
    """Whether it says after each listing that there is another one."""

    broken: bool = False
    """Whether its lists are none."""

    def __post_init__(self) -> None:
        self.blocked.set()

    async def _handle(self, message: dict[str, Any], line: bytes) -> None:
        if message.get("method") == "tools/list":
            self.readings += 1
            self.tools[f"t{self.readings}"] = None
            await self.blocked.wait()
        await super()._handle(message, line)
        if message.get("method") == "tools/list" and self.floods:
            self.say({"jsonrpc": "2.0", "method": CHANGED})

    def _list(self, message: dict[str, Any]) -> dict[str, Any]:
        listed = {**super()._list(message), **({"tools": "none"} if self.broken else {})}
        return listed if self.ttl is None else {**listed, "ttlMs": self.ttl, "cacheScope": "public"}


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """A list is out of date at once."""
    monkeypatch.setattr(list_freshness, "FRESH", 0.0)


@pytest.fixture
def _never(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """A list that was read in the course of a test is not out of date before its end."""
    monkeypatch.setattr(list_freshness, "FRESH", 60.0)


# --- asking for lists ---------------------------------------------------------------------------


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_list_that_its_server_does_not_announce_is_read_again_behind_the_client(revision: str) -> None:
    """docs/behaviour.md#lists: a client that asks again sees what is new, and waits for nobody."""
    server = GrowingServer(revision=revision)
    async with a_world({"up": server}) as world:
        client = await world.client()
        server.blocked.clear()
        assert await client.tools() == ["up__t1"], "answered while the server thinks"
        await until(lambda: server.readings == 2)
        server.blocked.set()
        await client.notice(CHANGED)
        assert await client.tools() == ["up__t1", "up__t2"]


def growing(server: ScriptedServer, request: dict[str, Any]) -> None:
    """A tool that adds another one, and does not say so."""
    server.tools["new"] = None
    server.reply(request, {"content": []})


@pytest.mark.usefixtures("_never")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_a_call_has_changed_at_the_only_server_is_in_the_next_list(revision: str) -> None:
    """docs/behaviour.md#lists: as without a gateway; also if the server does not announce it."""
    server = ScriptedServer(revision=revision, tools={"grow": growing})
    async with a_world({"up": server}, entries={"up": {"prefix": ""}}) as world:
        client = await world.client(revision)
        assert await client.tools() == ["grow"]
        assert "result" in (await client.call("grow")).message
        assert await client.tools() == ["grow", "new"]


@pytest.mark.usefixtures("_never")
async def test_a_list_that_was_read_amid_a_call_is_read_again_after_it() -> None:
    """docs/behaviour.md#lists: the call may have changed it since."""
    called, go_on = asyncio.Event(), asyncio.Event()

    async def grow(server: ScriptedServer, request: dict[str, Any]) -> None:
        called.set()
        await go_on.wait()
        growing(server, request)

    server = ScriptedServer(tools={"grow": grow})
    async with a_world({"up": server}, entries={"up": {"prefix": ""}}) as world:
        client = await world.client()
        calling = asyncio.create_task(client.call("grow"))
        await asyncio.wait_for(called.wait(), 5)
        other = await world.client()
        assert await other.tools() == ["grow"]
        go_on.set()
        await calling
        assert await other.tools() == ["grow", "new"]


@pytest.mark.usefixtures("_never")
@pytest.mark.parametrize(
    ("keys", "capabilities", "calls"),
    [({"prefix": ""}, None, False), ({"prefix": ""}, ANNOUNCES, True), ({}, None, True)],
    ids=["nobody called", "it announces changes", "it has a prefix"],
)
async def test_no_client_waits_for_a_list_that_no_call_has_changed(
    keys: dict[str, Any], capabilities: dict[str, Any] | None, calls: bool
) -> None:
    """docs/behaviour.md#lists: nor for one that its server announces, nor for one of several servers."""
    server = GrowingServer(capabilities=capabilities)
    async with a_world({"up": server}, entries={"up": keys}) as world:
        client = await world.client()
        for _ in range(3):
            (tool,) = await client.tools()
            if calls:
                await client.call(tool)
        assert server.readings == 1


@pytest.mark.usefixtures("_soon")
async def test_a_list_that_is_announced_is_not_read_again_for_nothing() -> None:
    """docs/behaviour.md#lists: a server that says when its list changes need not be asked."""
    server = GrowingServer(capabilities=ANNOUNCES)
    async with a_world({"up": server}) as world:
        client = await world.client()
        for _ in range(5):
            assert await client.tools() == ["up__t1"]
        assert server.readings == 1


@pytest.mark.usefixtures("_never")
async def test_many_clients_cause_no_storm_of_listings() -> None:
    """docs/behaviour.md#lists: one reading for all who ask within two seconds."""
    server = GrowingServer()
    async with a_world({"up": server}) as world:
        clients = [await world.client() for _ in range(20)]
        for _ in range(5):
            await asyncio.gather(*(client.tools() for client in clients))
        assert server.readings == 1
        await asyncio.gather(*(client.call("up__none") for client in clients))
        assert server.readings == 1, "nor do calls of what is not there"


@pytest.mark.usefixtures("_soon")
async def test_ttl_ms_is_honoured_and_what_clients_are_told_is_what_is_left_of_it() -> None:
    """MCP 2026-07-28, caching: a list holds for `ttlMs`; it was read before the client asked for it."""
    server = GrowingServer(revision="2026-07-28", ttl=60_000, capabilities=ANNOUNCES)
    async with a_world({"up": server}) as world:
        client = await world.client("2026-07-28")
        told: list[int] = []
        for _ in range(3):
            await asyncio.sleep(0.01)
            told.append((await client.ask("tools/list")).result["ttlMs"])
        assert 60_000 > told[0] > told[1] > told[2] > 30_000
        assert server.readings == 1
        server.ttl = 1
        server.say({"jsonrpc": "2.0", "method": CHANGED})
        await until(lambda: server.readings == 2)
        await until(lambda: len(world.gateway.tools()) == 2)
        await asyncio.sleep(0.01)
        assert (await client.ask("tools/list")).result["ttlMs"] == 0
        await until(lambda: server.readings == 3)


async def test_the_list_of_a_server_that_is_away_holds_no_longer() -> None:
    """Ours: nobody is told to keep a list that may be another one when the server is back."""
    servers = {"up": GrowingServer(revision="2026-07-28", ttl=60_000), "new": GatedServer(revision="2026-07-28")}
    async with Gateway.open(config_of(servers, gateway={"listWait": 0}), wait=False) as gateway:
        await until(lambda: gateway.tools())
        client = RawClient(gateway.memory_door(), revision="2026-07-28")
        assert (await client.ask("tools/list")).result["ttlMs"] == 0


@pytest.mark.usefixtures("_soon")
async def test_a_server_is_neither_woken_nor_kept_awake_by_who_asks_for_lists() -> None:
    """docs/behaviour.md#lists: what sleeps stays listed as it was."""
    server = GrowingServer()
    async with a_world({"up": server}, entries={"up": {"idleStop": "200ms"}}) as world:
        client = await world.client()

        async def listed() -> bool:
            await client.tools()
            return str(world.gateway.servers()[0].status) == "sleeping"

        async with asyncio.timeout(5):
            while not await listed():
                await asyncio.sleep(0.02)
        before = server.readings
        for _ in range(3):
            assert await listed()
        assert server.readings == before > 1


@pytest.mark.usefixtures("_soon")
async def test_a_list_that_cannot_be_read_again_stays_and_is_complained_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Ours: clients that ask every second fill no log."""
    server = GrowingServer()
    async with a_world({"up": server}) as world:
        client = await world.client()
        server.broken = True
        for _ in range(3):
            readings = server.readings
            assert await client.tools() == ["up__t1"]
            await until(lambda readings=readings: server.readings > readings)
            await asyncio.sleep(0.3)
    said = [record for record in caplog.records if "could not list again" in record.getMessage()]
    assert [record.levelname for record in said if record.levelname == "WARNING"] == ["WARNING"]


@pytest.mark.usefixtures("_soon")
async def test_a_list_without_end_is_not_read_again_for_the_asking() -> None:
    """docs/behaviour.md#lists: a hundred pages cost much, and the next hundred would be no more."""
    server = GrowingServer()
    async with a_world({"up": server}, gateway={"maxTools": 2}) as world:
        client = await world.client()
        server.tools |= {"x": None, "y": None}
        await client.tools()
        await until(lambda: server.readings == 2)
        await client.notice(CHANGED)
        assert len(await client.tools()) == 2
        assert "error" in (await client.call("up__none")).message
        assert server.readings == 2


# --- calling what is not listed -----------------------------------------------------------------


def add_tool(server: ScriptedServer, request: dict[str, Any]) -> None:
    """Gain a tool, say so, and only then answer."""
    server.tools[request["params"]["arguments"]["name"]] = None
    server.say({"jsonrpc": "2.0", "method": CHANGED})
    server.reply(request, {"content": []})


@pytest.mark.usefixtures("_never")
@pytest.mark.parametrize("prefix", ["up__", ""])
async def test_a_tool_that_was_announced_before_the_result_can_be_called_after_it(prefix: str) -> None:
    """docs/behaviour.md#lists: dynamic toolsets do just that, each time."""
    server = ScriptedServer(tools={"add": add_tool}, capabilities=ANNOUNCES)
    entries = {"up": {"prefix": prefix.removesuffix("__")}, "other": {}}
    async with a_world({"up": server, "other": ScriptedServer()}, entries=entries) as world:
        client = await world.client()
        for number in range(20):
            assert (await client.call(f"{prefix}add", {"name": f"new{number}"})).result
            assert (await client.call(f"{prefix}new{number}", {"x": 1})).result["structuredContent"] == {"x": 1}


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize("name", ["up__new", "up:new", "up.new"])
async def test_a_call_of_what_a_server_gained_in_silence_finds_it(name: str) -> None:
    """docs/behaviour.md#lists: an unknown name of a known server causes one reading before it is refused."""
    server = ScriptedServer(tools={"a": None}, prompts={"b": None})
    async with a_world({"up": server}) as world:
        client = await world.client()
        server.tools["new"] = None
        assert (await client.call(name, {"x": 1})).result["structuredContent"] == {"x": 1}
        assert server.prompts is not None
        server.prompts["new"] = None
        assert (await client.ask("prompts/get", {"name": name})).result["messages"]
        listings = [message for message in server.heard if message.get("method") == "tools/list"]
        assert (await client.call("up__none")).error["message"] == "Tool not found: up__none"
        assert (await client.ask("prompts/get", {"name": "up__none"})).error["code"] == -32602
        assert len([m for m in server.heard if m.get("method") == "tools/list"]) == len(listings) + 1


@pytest.mark.usefixtures("_soon")
async def test_a_read_of_what_a_server_gained_in_silence_finds_it() -> None:
    """docs/behaviour.md#lists: the same for resources and templates, where several servers have some."""
    one, two = ScriptedServer(resources={"a:1": "one"}), ScriptedServer(resources={"b:1": "two"})
    async with a_world({"one": one, "two": two}) as world:
        client = await world.client()
        assert two.resources is not None
        two.resources["c:1"] = "new"
        assert (await client.ask("resources/read", {"uri": "c:1"})).result["contents"][0]["text"] == "new"
        two.templates["d:{x}"] = lambda server, request: server.reply(request, {"contents": []})
        assert (await client.ask("resources/read", {"uri": "d:1"})).result["contents"] == []
        assert (await client.ask("resources/read", {"uri": "e:1"})).error["code"] == -32002


async def test_of_a_server_whose_list_changes_without_end_an_unknown_name_is_refused_in_time() -> None:
    """Ours: no call waits for a list to stand still."""
    servers = {name: GrowingServer(capabilities=ANNOUNCES, floods=True) for name in ("up", "two")}
    entries = {name: {"prefix": ""} for name in servers}
    async with a_world({**servers}, entries=entries) as world:
        client = await world.client()
        clock = asyncio.get_running_loop().time
        began = clock()
        for name in ("none", "up__none"):
            assert "Tool not found" in (await client.call(name)).error["message"]
        assert clock() - began < 8


@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ({"prefix": ""}, "it"),
        ({}, "slow__it"),
        (
            {
                "exposedTools": [{"original": "it", "exposed": "other"}],
                "exposedPrompts": [{"original": "it", "exposed": "other"}],
            },
            "other",
        ),
    ],
)
async def test_a_call_waits_for_the_start_of_a_server_that_may_have_it(
    keys: dict[str, Any], name: str, method: str
) -> None:
    """docs/design/decisions/0007: whatever its names begin with; and what is then unknown is refused."""
    slow = GatedServer(tools={"it": None}, prompts={"it": None})
    servers = {"ready": ScriptedServer(tools={"a": None}), "slow": slow}
    async with Gateway.open(config_of(servers, {"slow": keys}), wait=False) as gateway:
        await until(lambda: gateway.tools())
        client = RawClient(gateway.memory_door())
        await client.hello()
        known = client.start(method, {"name": name, "arguments": {}})
        unknown = client.start(method, {"name": f"{name}_not", "arguments": {}})
        await client.ask("ping")
        assert client.unread == 0
        slow.gate.set()
        assert (await client.answer(known)).result
        assert (await client.answer(unknown)).error["code"] in (-32601, -32602)


async def test_a_name_that_a_view_does_not_show_is_not_looked_for() -> None:
    """docs/views.md: what is not in a view does not exist for its callers, not even as work for a server."""
    server = GrowingServer()
    views = {"few": {"tools": ["up__t1"]}}
    async with a_world({"up": server}, views=views) as world:
        client = RawClient(world.gateway.memory_door("few"))
        await client.hello()
        before = server.readings
        assert "not found" in (await client.call("up__t2")).error["message"]
        assert server.readings == before
