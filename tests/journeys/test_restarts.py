"""Servers that end by themselves, sleep, or are started anew: what callers see of it."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, cast

import pytest

from muxway.calls.call import LIBRARY
from muxway.exchange.only_client import OnlyClient
from muxway.servers.supervision import BUDGET, Restarts
from muxway.testing import ScriptedServer
from tests.conftest import a_world
from tests.noting import until

if TYPE_CHECKING:
    from muxway.calls.ports import Client
    from tests.conftest import World

pytestmark = pytest.mark.leaping


def crash(server: ScriptedServer, request: dict[str, Any]) -> None:
    """A tool that kills its server."""
    server.crash()


def state(world: World, name: str = "up") -> str:
    """How a server is."""
    return next(str(server.status) for server in world.gateway.servers() if server.name == name)


async def test_a_server_that_crashes_is_back_and_nobody_is_told_of_a_change() -> None:
    """docs/behaviour.md#a-server-crashes.

    The call fails at once, the next one waits for the restart, the list stays as it is.
    """
    async with a_world({"up": ScriptedServer(tools={"crash": crash, "echo": None})}) as world:
        client = await world.client()
        error = (await client.call("up__crash")).error
        assert error["data"]["muxway"] == {"reason": "lost", "upstream": "up"}
        assert await client.tools() == ["up__crash", "up__echo"]
        assert (await client.call("up__echo", {"x": 1})).result["structuredContent"] == {"x": 1}
        [server] = world.gateway.servers()
        assert (str(server.status), server.restarts) == ("running", 1)
        assert client.notices == []


async def test_a_herd_causes_one_restart() -> None:
    """docs/behaviour.md#a-server-crashes: however many call a server that is away, it is started once."""
    async with a_world({"up": ScriptedServer(tools={"crash": crash, "echo": None})}) as world:
        client = await world.client()
        await client.call("up__crash")
        answers = await asyncio.gather(*(client.call("up__echo", {"n": n}) for n in range(50)))
        assert [answer.result["structuredContent"]["n"] for answer in answers] == list(range(50))
        assert world.gateway.servers()[0].restarts == 1


async def test_a_server_that_stays_away_fails_calls_at_once_and_says_when_to_come_back() -> None:
    """docs/behaviour.md#a-server-crashes.

    Calls meanwhile fail in 50 ms, with retryAfterMs; it is never given up for good.
    """
    server = ScriptedServer(tools={"echo": None})
    async with a_world({"up": server, "other": ScriptedServer(tools={"echo": None})}) as world:
        client = await world.client()
        server.end()
        await until(lambda: state(world) == "failed")
        began = asyncio.get_running_loop().time()
        error = (await client.call("up__echo")).error
        assert asyncio.get_running_loop().time() - began < 0.5
        assert error["data"]["muxway"]["reason"] == "not_running"
        assert 0 < error["data"]["muxway"]["retryAfterMs"] <= 2000
        assert "it is started again in" in error["message"]
        assert sorted(await client.tools()) == ["other__echo", "up__echo"], "it stays listed"
        server.crash()  # From now on, a start succeeds.
        await until(lambda: state(world) == "running")
        assert await client.tools() == ["other__echo", "up__echo"] or await client.tools() == [
            "up__echo",
            "other__echo",
        ]


async def test_restart_gives_a_fresh_server_while_callers_wait() -> None:
    """docs/cli.md#muxway-restart.

    `muxway restart` behind the curtain; the list stays, calls that come meanwhile succeed.
    """
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        client = await world.client()
        restarting = asyncio.ensure_future(world.gateway.restart("up"))
        await asyncio.sleep(0)
        assert (await client.call("up__echo", {"x": 1})).result["structuredContent"] == {"x": 1}
        assert str((await restarting).status) == "running"
        assert client.notices == []
        with pytest.raises(KeyError):
            await world.gateway.restart("nobody")


async def test_an_idle_server_sleeps_listed_until_somebody_calls() -> None:
    """docs/behaviour.md#start: the catalog of a sleeping server stays listed, a call wakes it."""
    async with a_world({}) as world:
        await world.gateway.add("up", server=ScriptedServer(tools={"echo": None}), idleStop=0.1)
        client = await world.client()
        await until(lambda: state(world) == "sleeping")
        assert await client.tools() == ["up__echo"]
        assert (await client.call("up__echo", {"x": 1})).result["structuredContent"] == {"x": 1}
        assert world.gateway.servers()[0].restarts == 0
        await until(lambda: state(world) == "sleeping")
        assert client.notices == []


async def test_a_server_at_work_does_not_fall_asleep() -> None:
    """Ours: `idleStop` counts from the last call's end."""
    done = asyncio.Event()

    async def slow(server: ScriptedServer, request: dict[str, Any]) -> None:
        await done.wait()
        server.reply(request, {"content": []})

    async with a_world({}) as world:
        await world.gateway.add("up", server=ScriptedServer(tools={"slow": slow}), idleStop=0.05)
        client = await world.client()
        id_ = client.start("tools/call", {"name": "up__slow", "arguments": {}})
        await asyncio.sleep(0.4)
        assert state(world) == "running"
        done.set()
        assert (await client.answer(id_)).result["content"] == []


@pytest.mark.parametrize("runs", [True, False], ids=["dies after it was ready", "never gets ready"])
@pytest.mark.parametrize("dice", [0.0, 0.5, 1.0])
def test_a_crash_loop_costs_little_for_ever(runs: bool, dice: float) -> None:
    """docs/behaviour.md#a-server-crashes.

    At most 8 starts in the first minute, 18 in ten, about one a minute after that.
    """
    restarts, now, starts = Restarts(lambda: dice), 0.0, list[float]()
    while now < 3600:
        starts.append(now)
        restarts.began(now)
        if runs:
            restarts.ready(now + 0.1)
        now += 0.2
        now += restarts.failed(now)
    assert sum(start < 60 for start in starts) <= 8
    assert sum(start < 600 for start in starts) <= 18
    assert BUDGET < len(starts) <= 65
    assert max(after - before for before, after in itertools.pairwise(starts)) <= 80


async def test_a_server_that_can_be_greeted_in_neither_era_is_not_started_too_often() -> None:
    """docs/behaviour.md#a-server-crashes: at most 8 processes in the first minute, though one start may need two."""
    starts = 0

    class Neither(ScriptedServer):
        async def serve(self, receive: Any, send: Any) -> None:
            nonlocal starts
            starts += 1
            await super().serve(receive, send)

        async def _handle(self, message: dict[str, Any], line: bytes) -> None:
            if message.get("method") == "server/discover":
                self.reply(message, {})
            else:
                self.fail(message, -32601, "unknown")

    async with a_world({}) as world:
        only = world.gateway.runtime.sessions.only = OnlyClient()
        only.came(cast("Client", object()), LIBRARY)  # A handshake client that asks nothing, as on a pipe.
        await world.gateway.add("up", server=Neither())
        await asyncio.sleep(60)
        assert BUDGET < starts <= 8
        assert "2026-07-28" in (world.gateway.servers()[-1].error or "")


def test_a_quiet_minute_is_forgiven() -> None:
    """docs/behaviour.md#a-server-crashes: reset after a quiet minute: the next restart comes at once again."""
    restarts = Restarts(lambda: 0.5)
    for now in (0.0, 1.0, 2.0):
        restarts.began(now)
        restarts.ready(now)
        pause = restarts.failed(now + 0.1)
    assert pause > 0
    restarts.began(10.0)
    restarts.ready(10.0)
    assert restarts.failed(75.0) == 0
    assert not restarts.looping
