"""Corners of a server's life: two things that happen at once, or one that happens at a bad moment."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from muxway.catalog.kinds import TOOLS
from muxway.testing import ScriptedServer
from muxway.upstream.memory import MemoryChannel
from muxway.upstream.state import Status
from muxway.upstream.upstream import Care, Upstream
from tests.conftest import a_world
from tests.noting import notes, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import World


@pytest.fixture(autouse=True)
def _nothing_breaks_unseen() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """What goes wrong in a timer or a task of nobody's fails the test."""
    broken: list[dict[str, Any]] = []

    def note(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        broken.append(context)

    policy = asyncio.DefaultEventLoopPolicy.new_event_loop

    def noting(self: Any) -> asyncio.AbstractEventLoop:
        loop = policy(self)
        loop.set_exception_handler(note)
        return loop

    patch = pytest.MonkeyPatch()
    patch.setattr(asyncio.DefaultEventLoopPolicy, "new_event_loop", noting)
    yield
    gc.collect()
    patch.undo()
    assert broken == []


class Counting(ScriptedServer):
    """Knows how often it runs at the moment."""

    running = 0

    async def serve(self, receive: Any, send: Any) -> None:
        self.running += 1
        try:
            await super().serve(receive, send)
        finally:
            self.running -= 1


def counting(**tools: Any) -> Counting:
    """A server with an echo, at least."""
    return Counting(tools={"echo": None, **tools})


def an_upstream(server: ScriptedServer, **care: Any) -> Upstream:
    """One that is looked after."""
    return Upstream(
        "up",
        lambda: MemoryChannel(server),
        client_info={"name": "test", "version": "1"},
        on_change=lambda _: None,
        care=Care(**care),
    )


async def ready(upstream: Upstream) -> Upstream:
    """The same, started."""
    upstream.start()
    await upstream.settled.wait()
    assert upstream.status is Status.RUNNING
    return upstream


def its_upstream(world: World, name: str = "up") -> Upstream:
    """The first connection of a server."""
    return world.gateway._fleet.stations[name].upstream


async def test_two_restarts_at_once_are_one() -> None:
    """Ours: whoever comes second waits for the one that is under way."""
    server = counting()
    upstream = await ready(an_upstream(server))
    await asyncio.gather(upstream.restart(), upstream.restart())
    assert (upstream.status, server.running) == (Status.RUNNING, 1)
    await upstream.stop()
    assert server.running == 0


async def test_a_restart_that_nobody_waits_for_any_more_goes_on() -> None:
    """Ours: whoever asked may hang up; calls that wait for the server must not wait for ever."""
    async with a_world({"up": counting()}) as world:
        client = await world.client()
        restarting = asyncio.ensure_future(world.gateway.restart("up"))
        await asyncio.sleep(0)
        id_ = client.start("tools/call", {"name": "up__echo", "arguments": {"x": 1}})
        restarting.cancel()
        async with asyncio.timeout(5):
            assert (await client.answer(id_)).result["structuredContent"] == {"x": 1}


async def test_a_server_that_is_removed_while_it_restarts_stays_away() -> None:
    """Ours: nothing may start a server that nobody knows any more."""
    server = counting()
    async with a_world({"up": server}) as world:
        restarting = asyncio.ensure_future(world.gateway.restart("up"))
        await asyncio.sleep(0)
        await world.gateway.remove("up")
        with pytest.raises(KeyError):
            await restarting
        await asyncio.sleep(0.05)
        assert server.running == 0


async def test_a_stopped_server_is_not_restarted() -> None:
    """Ours: a gateway that ends ends its servers, whoever asks for them meanwhile."""
    server = counting()
    upstream = await ready(an_upstream(server))
    await upstream.stop()
    await upstream.restart()
    assert (upstream.status, server.running) == (Status.STOPPED, 0)


@pytest.mark.parametrize("state", ["starting", "sleeping", "failed", "running"])
async def test_restart_and_stop_whatever_it_is_doing(state: str) -> None:
    """Ours: neither is ever an impossible thing to ask."""
    server = counting()
    upstream = an_upstream(server)
    if state == "failed":
        server.end()
        upstream.start()
        await upstream.settled.wait()
        server.crash()
    elif state != "starting":
        await ready(upstream)
    else:
        upstream.start()
    if state == "sleeping":
        upstream.sleep()
    await upstream.restart()
    assert (upstream.status, server.running) == (Status.RUNNING, 1)
    await upstream.stop()
    await upstream.stop()
    assert (upstream.status, server.running) == (Status.STOPPED, 0)


@pytest.mark.parametrize("how", ["sleep", "stop", "restart"])
async def test_one_that_ends_by_itself_while_it_is_ended(how: str) -> None:
    """Ours: the loss of a link that is let go is nobody's business any more."""
    server = counting()
    upstream = await ready(an_upstream(server))
    link = upstream.link
    assert link is not None
    ending: asyncio.Future[None] | None = None
    if how == "sleep":
        upstream.sleep()
    else:
        ending = asyncio.ensure_future(upstream.stop() if how == "stop" else upstream.restart())
        await asyncio.sleep(0)
    link._lost("ended")
    if ending is not None:
        await ending
    expected = {"sleep": Status.SLEEPING, "stop": Status.STOPPED, "restart": Status.RUNNING}
    assert (upstream.status, upstream.restarts) == (expected[how], 0)
    await upstream.stop()


async def test_a_call_that_comes_while_a_sleeping_server_is_stopped_does_not_start_it() -> None:
    """Ours: stopped is stopped."""
    server = counting()
    upstream = await ready(an_upstream(server))
    upstream._stale.add(TOOLS)
    upstream._relist()
    await until(lambda: not upstream._stale)
    upstream.sleep()
    stopping = asyncio.ensure_future(upstream.stop())
    await asyncio.sleep(0)
    assert not upstream.wake()
    await stopping
    await asyncio.sleep(0.05)
    assert (upstream.status, server.running) == (Status.STOPPED, 0)


async def test_a_call_that_starts_a_server_again_counts_as_its_restart() -> None:
    """Ours: `restarts` is how often it came back, whoever was first to notice that it may."""
    server = counting()
    upstream = await ready(an_upstream(server))
    link = upstream.link
    assert link is not None
    link._lost("ended")
    assert upstream.status is Status.RESTARTING
    assert upstream.wake()
    await upstream.settled.wait()
    assert upstream.restarts == 1
    await upstream.stop()


async def test_a_start_that_breaks_in_an_unforeseen_way_has_failed() -> None:
    """Ours: whatever goes wrong in a start, calls that wait for it hear of it."""

    def dial() -> Any:
        raise ZeroDivisionError

    upstream = Upstream("up", dial, client_info={}, on_change=lambda _: None)
    upstream.start()
    async with asyncio.timeout(5):
        await upstream.settled.wait()
    assert (upstream.status, upstream.starting) == (Status.FAILED, False)
    assert upstream._starting is not None
    assert isinstance(upstream._starting.exception(), ZeroDivisionError)
    await upstream.stop()


async def test_what_is_changed_about_a_server_holds_at_once() -> None:
    """Issue 6 point 4: a server that is only treated otherwise keeps its process; `idleStop` given or taken back."""
    upstream = await ready(an_upstream(counting(), idle_stop=0.1))
    awake = Care()
    upstream.adjust(5.0, 5.0, 10, awake, upstream._limits)
    await asyncio.sleep(0.3)
    assert upstream.status is Status.RUNNING
    upstream.adjust(5.0, 5.0, 10, Care(idle_stop=0.1), upstream._limits)
    await until(lambda: upstream.status is Status.SLEEPING)
    await upstream.stop()


async def test_a_subscription_to_a_sleeping_server_wakes_it() -> None:
    """Ours: nobody waits for ever for a server that nobody starts."""
    server = notes()
    async with a_world({"up": server}) as world:
        client = await world.client()
        its_upstream(world).sleep()
        async with asyncio.timeout(5):
            answer = await client.ask("resources/subscribe", {"uri": "note://a"})
        assert answer.result == {}
        assert set(server.subscribed) == {"note://a"}
        assert its_upstream(world).status is Status.RUNNING
