"""Corners of a server's life: two things that happen at once, or one that happens at a bad moment."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import sys
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway
from muxway.config import parse_config
from muxway.errors import MuxwayError, RpcError
from muxway.middleware.engine.base import Middleware
from muxway.servers.state import State, Status
from muxway.servers.supervision import Care, Restarts
from muxway.servers.transports.memory import MemoryServerTransport
from muxway.testing import RawClient, ScriptedServer
from muxway.wire import envelopes
from tests.conftest import a_world
from tests.journeys.test_pool import SERVER, a_gateway, client_of, gone, who
from tests.noting import notes, until
from tests.servers.faking import a_slot, play

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from muxway.config.model import Config
    from muxway.servers.slot import Slot
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


class Slow(Counting):
    """Waits before it introduces itself."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.may_start = asyncio.Event()

    async def _handle(self, message: dict[str, Any], line: bytes) -> None:
        await self.may_start.wait()
        await super()._handle(message, line)


def counting(**tools: Any) -> Counting:
    """A server with an echo, at least."""
    return Counting(tools={"echo": None, **tools})


def a_server(server: ScriptedServer, **care: Any) -> Slot:
    """The place of the first connection of one that is looked after."""
    return a_slot(lambda: MemoryServerTransport(server), Care(**care))


async def ready(slot: Slot) -> Slot:
    """The same, started."""
    slot.start()
    await slot.state.settled()
    assert slot.state.now is State.RUNNING
    return slot


def its_slot(world: World, name: str = "up") -> Slot:
    """The place of the first connection of a server."""
    return world.gateway._servers.by_name[name].first


async def test_two_restarts_at_once_are_one() -> None:
    """Ours: whoever comes second waits for the one that is under way."""
    server = counting()
    slot = await ready(a_server(server))
    await asyncio.gather(slot.restart(), slot.restart())
    assert (slot.state.now, server.running) == (State.RUNNING, 1)
    await slot.stop()
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


async def test_a_removal_that_nobody_waits_for_ends_the_server_all_the_same() -> None:
    """Ours: what is forgotten must not run on."""
    server = counting()
    async with a_world({"up": server}) as world:
        removing = asyncio.ensure_future(world.gateway.remove("up"))
        await asyncio.sleep(0)
        removing.cancel()
        await until(lambda: server.running == 0)


async def test_a_stopped_server_is_not_restarted() -> None:
    """Ours: a gateway that ends ends its servers, whoever asks for them meanwhile."""
    server = counting()
    slot = await ready(a_server(server))
    await slot.stop()
    await slot.restart()
    assert (slot.state.now, server.running) == (State.STOPPED, 0)


@pytest.mark.parametrize("state", ["starting", "sleeping", "failed", "running"])
async def test_restart_and_stop_whatever_it_is_doing(state: str) -> None:
    """Ours: neither is ever an impossible thing to ask."""
    server = counting()
    slot = a_server(server)
    if state == "failed":
        server.end()
        slot.start()
        await slot.state.settled()
        server.crash()
    elif state != "starting":
        await ready(slot)
    else:
        slot.start()
    if state == "sleeping":
        slot.sleep()
    await slot.restart()
    assert (slot.state.now, server.running) == (State.RUNNING, 1)
    await slot.stop()
    await slot.stop()
    assert (slot.state.now, server.running) == (State.STOPPED, 0)


async def test_one_that_is_stopped_while_it_is_started_anew_leaves_nothing() -> None:
    """Ours: also what a start before that had begun has ended by then."""
    server = Slow(tools={"echo": None})
    slot = a_server(server)
    slot.start()
    await until(lambda: server.running == 1)
    restarting = asyncio.ensure_future(slot.restart())
    await asyncio.sleep(0)
    await slot.stop()
    assert (slot.state.now, server.running) == (State.STOPPED, 0)
    await restarting


@pytest.mark.parametrize("how", ["sleep", "stop", "restart"])
async def test_one_that_ends_by_itself_while_it_is_ended(how: str) -> None:
    """Ours: the loss of a link that is let go is nobody's business any more."""
    server = counting()
    slot = await ready(a_server(server))
    link = slot.connection
    assert link is not None
    ending: asyncio.Future[None] | None = None
    if how == "sleep":
        slot.sleep()
    else:
        ending = asyncio.ensure_future(slot.stop() if how == "stop" else slot.restart())
        await asyncio.sleep(0)
    link._lost("ended")
    if ending is not None:
        await ending
    expected = {"sleep": State.SLEEPING, "stop": State.STOPPED, "restart": State.RUNNING}
    assert (slot.state.now, slot.state.restarts) == (expected[how], 0)
    await slot.stop()


async def test_a_call_that_comes_while_a_sleeping_server_is_stopped_does_not_start_it() -> None:
    """Ours: stopped is stopped."""
    server = counting()
    slot = await ready(a_server(server))
    slot.hear_notice("notifications/tools/list_changed", {})
    await until(lambda: sum(message["method"] == "tools/list" for message in server.heard) == 2)
    slot.sleep()
    stopping = asyncio.ensure_future(slot.stop())
    await asyncio.sleep(0)
    assert not slot.wake()
    await stopping
    await asyncio.sleep(0.05)
    assert (slot.state.now, server.running) == (State.STOPPED, 0)


async def test_a_call_that_starts_a_server_again_counts_as_its_restart() -> None:
    """Ours: `restarts` is how often it came back, whoever was first to notice that it may."""
    server = counting()
    slot = await ready(a_server(server))
    link = slot.connection
    assert link is not None
    link._lost("ended")
    assert slot.state.now.status is Status.RESTARTING
    assert slot.wake()
    await slot.state.settled()
    assert slot.state.restarts == 1
    await slot.stop()


async def test_a_start_that_breaks_in_an_unforeseen_way_has_failed() -> None:
    """Ours: whatever goes wrong in a start, calls that wait for it hear of it."""

    def dial() -> Any:
        raise ZeroDivisionError

    slot = a_slot(dial, Care(supervised=False))
    slot.start()
    async with asyncio.timeout(5):
        await slot.state.settled()
    assert (slot.state.now, slot.state.starting) == (State.FAILED, False)
    assert slot._starting is not None
    assert isinstance(slot._starting.exception(), ZeroDivisionError)
    await slot.stop()


async def test_what_is_changed_about_a_server_holds_at_once() -> None:
    """docs/reload.md#what-happens-to-a-server.

    A server that is only treated otherwise keeps its process; `idleStop` given or taken back.
    """
    slot = await ready(a_server(counting(), idle_stop=0.1))
    awake = Care()
    slot.instance.adjust(slot.instance.terms._replace(care=awake))
    await asyncio.sleep(0.3)
    assert slot.state.now is State.RUNNING
    slot.instance.adjust(slot.instance.terms._replace(care=Care(idle_stop=0.1)))
    await until(lambda: slot.state.now is State.SLEEPING)
    await slot.stop()


async def test_a_subscription_to_a_sleeping_server_wakes_it() -> None:
    """Ours: nobody waits for ever for a server that nobody starts."""
    server = notes()
    async with a_world({"up": server}) as world:
        client = await world.client()
        its_slot(world).sleep()
        async with asyncio.timeout(5):
            answer = await client.ask("resources/subscribe", {"uri": "note://a"})
        assert answer.result == {}
        assert set(server.subscribed) == {"note://a"}
        assert its_slot(world).state.now is State.RUNNING


def test_a_server_that_often_sleeps_may_crash_once() -> None:
    """Ours: only what ends by itself counts against it; a nap does not, and a quiet minute before one does count."""
    restarts = Restarts(lambda: 0.5)
    for now in range(20):
        restarts.began(now)
        restarts.ready(now)
    assert restarts.failed(20) == 0
    assert not restarts.looping
    restarts.began(20)
    restarts.ready(20)
    restarts.began(100)
    restarts.ready(100)
    assert restarts.failed(101) == 0


# --- another configuration ----------------------------------------------------------------------


def chain(servers: dict[str, Any], **top: Any) -> Config:
    """A configuration whose servers are objects of this process; its middlewares may be, too."""
    middleware = top.pop("middleware", ())
    entries = {name: {"command": "(in process)"} for name in servers}
    return replace(parse_config({"mcpServers": entries, **top}), objects=servers, middleware=middleware)


async def test_a_gateway_that_ends_during_a_swap_ends_both() -> None:
    """docs/behaviour.md#shutdown-and-kill--9: also the one that was still being started, and tasks of ours."""
    old, new = counting(), counting()
    new.silent = frozenset({"server/discover", "initialize"})
    async with Gateway.open(chain({"up": old})) as gateway:
        await gateway.apply(chain({"up": new}))
        await until(lambda: new.running)
    assert (old.running, new.running) == (0, 0)
    assert {task.get_name() for task in asyncio.all_tasks()} == {asyncio.current_task().get_name()}  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
async def test_a_gateway_that_ends_right_after_a_reload_ends_what_that_let_go(turns: int) -> None:
    """docs/behaviour.md#shutdown-and-kill--9.

    A server that is being let go when the gateway ends is ended, whatever the moment.
    """
    gone, stays = counting(), counting()
    async with Gateway.open(chain({"gone": gone, "stays": stays})) as gateway:
        await gateway.apply(chain({"stays": stays}))
        for _ in range(turns):
            await asyncio.sleep(0)
    assert (gone.running, stays.running) == (0, 0)


async def test_the_same_reload_twice_goes_on_with_the_first() -> None:
    """Ours: whoever saves a file twice does not wait for twice as long, however often."""
    old, new = counting(), Slow(tools={"echo": None})
    after = chain({"up": new})
    async with Gateway.open(chain({"up": old})) as gateway:
        await gateway.apply(after)
        await until(lambda: new.running)
        await gateway.apply(after)
        new.may_start.set()
        await gateway.settled()
        assert len([message for message in new.heard if message["method"] == "tools/list"]) == 1
        assert [str(server.status) for server in gateway.servers()] == ["running"]
        await until(lambda: old.running == 0)
        assert new.running == 1


async def test_subscriptions_outlast_a_swap_to_a_server_that_comes_late() -> None:
    """Ours: what was subscribed to is so again, also if the new one fails at first; and whoever subscribed is told."""
    old, new = notes(), notes()
    new.end()
    async with Gateway.open(chain({"up": old})) as gateway:
        client = RawClient(gateway.memory_door(), revision="2025-11-25")
        await client.hello()
        assert (await client.ask("resources/subscribe", {"uri": "note://a"})).result == {}
        await gateway.apply(chain({"up": new}))
        await gateway.settled()
        assert str(gateway.servers()[0].status) == "failed"
        new.crash()
        await until(lambda: new.watched == {"note://a"})
        notice = await client.notice("notifications/resources/updated")
        assert notice["params"] == {"uri": "note://a"}


async def test_one_reload_is_one_change_of_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/behaviour.md#reload: one `list_changed` per effective change, however many servers come and go with it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lazy = {"command": sys.executable, "args": [SERVER], "start": "lazy"}
    after = parse_config({"mcpServers": {"b": lazy, "c": lazy}})
    async with Gateway.open(after) as gateway:
        assert len(gateway.tools()) == 2
    async with Gateway.open(chain({"a": counting()})) as gateway:
        heard: list[frozenset[str]] = []
        gateway.runtime.dispatcher().listen(heard.append)
        await gateway.apply(after)
        await gateway.settled()
        assert [tool.name for tool in gateway.tools()] == ["b__who", "c__who"]
        assert heard == [frozenset({"tools"})]


class Around(Middleware):
    """Says whether it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


async def test_a_middleware_that_stays_is_not_closed() -> None:
    """Ours: only what no chain uses any more is ended, and that once."""
    stays, goes = Around(), Around()
    up = counting()
    short = {"callMax": 0.05, "callTimeout": 0.05}
    async with Gateway.open(chain({"up": up}, middleware=(stays, goes), gateway=short)) as gateway:
        await gateway.apply(chain({"up": up}, middleware=(stays,), gateway=short))
        await until(lambda: goes.closed)
        await asyncio.sleep(0.05)
        assert (stays.closed, goes.closed) == (0, 1)
    assert (stays.closed, goes.closed) == (1, 1)


async def test_a_view_that_is_gone_shows_nothing_to_those_who_still_look() -> None:
    """Ours: what was taken from a client's view is out of its reach, also where nobody can end its connection."""
    up, step = counting(), {"name": "one", "tool": "up.echo", "args": {"x": 1}}
    tools = {"own": {"description": "One of ours.", "steps": [step]}}
    async with Gateway.open(chain({"up": up}, tools=tools, views={"some": {}})) as gateway:
        client = RawClient(gateway.memory_door("some"), revision="2025-11-25")
        await client.hello()
        listed = await client.tools()
        assert "up__echo" in listed
        await gateway.apply(chain({"up": up}))
        for name in listed:
            assert "error" in (await client.call(name)).message
        assert await client.tools() == []


async def test_an_object_that_offers_nothing_changes_nothing() -> None:
    """docs/behaviour.md#reload: what cannot be used is refused as a whole."""
    up = counting()
    async with Gateway.open(chain({"up": up})) as gateway:
        with pytest.raises(MuxwayError, match="no public methods"):
            await gateway.apply(chain({"bad": object()}))
        assert [str(server.status) for server in gateway.servers()] == ["running"]
        assert list(gateway.config.servers) == ["up"]


async def test_a_middleware_learns_of_secrets_that_were_rotated() -> None:
    """docs/configuration.md#secrets: what hides secrets hides those of the configuration in force."""

    def config(secret: str) -> Config:
        made = chain({"up": up}, gateway={"middleware": ["redact"]})
        servers = {name: replace(server, secrets=frozenset({secret})) for name, server in made.servers.items()}
        return replace(made, servers=servers)

    def tell(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.reply(request, {"content": [{"type": "text", "text": "it is hunter2-hunter2"}]})

    up = counting(tell=tell)
    async with Gateway.open(config("something-else")) as gateway:
        assert "hunter2" in (await gateway.call("up.tell")).text
        await gateway.apply(config("hunter2-hunter2"))
        await gateway.settled()
        assert "hunter2" not in (await gateway.call("up.tell")).text


# --- further connections ------------------------------------------------------------------------


async def test_a_restart_is_one_of_every_process_of_a_server() -> None:
    """docs/cli.md#muxway-restart: `muxway restart` leaves nothing of the old server running."""
    async with a_gateway() as gateway:
        ann, _ = await client_of(gateway, b"ann")
        bob, _ = await client_of(gateway, b"bob")
        before = [(await who(ann))["pid"], (await who(bob))["pid"]]
        await gateway.restart("up")
        after = [(await who(ann))["pid"], (await who(bob))["pid"]]
        assert set(before).isdisjoint(after)
        for pid in before:
            await gone(pid)


async def test_a_server_in_use_by_its_further_connections_does_not_sleep() -> None:
    """Ours: each session has a process of its own, and the first one, which nobody calls, is needed all the same."""
    async with a_gateway(isolation="session", idleStop=1.5) as gateway:
        client, _ = await client_of(gateway)
        first = gateway.servers()[0].pid
        for _ in range(18):
            await who(client)
            await asyncio.sleep(0.1)
        assert gateway.servers()[0].pid == first
        await until(lambda: str(gateway.servers()[0].status) == "sleeping")


async def test_no_more_processes_than_allowed_also_when_they_wait_for_their_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/behaviour.md#size-limits: the cap on processes counts those that are yet to be started."""
    monkeypatch.setattr("muxway.net.processes.manager._SPAWNS_AT_ONCE", 1)
    servers = {name: {"command": sys.executable, "args": [SERVER]} for name in "abc"}
    async with Gateway.open(parse_config({"mcpServers": servers, "gateway": {"maxProcesses": 2}})) as gateway:
        assert sum(server.pid is not None for server in gateway.servers()) <= 2


async def test_a_sleeping_server_that_is_not_lazy_any_more_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/reload.md#what-happens-to-a-server: what a reload adjusts holds at once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    async with a_gateway(start="lazy"):
        pass
    async with a_gateway(start="lazy") as gateway:
        assert str(gateway.servers()[0].status) == "sleeping"
        entry = {"command": sys.executable, "args": [SERVER]}
        assert list((await gateway.apply(parse_config({"mcpServers": {"up": entry}}))).adjust) == ["up"]
        await gateway.settled()
        assert str(gateway.servers()[0].status) == "running"


@pytest.mark.parametrize("broken", [("instructions", 5), ("offers", {"tools": {"hint": ["x", True], "items": []}})])
async def test_what_is_remembered_of_a_lazy_server_is_not_trusted(
    broken: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: a file that somebody spoiled only means that the server is started once more."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    async with a_gateway(start="lazy"):
        pass
    [file] = (tmp_path / "muxway" / "servers").iterdir()
    file.write_text(json.dumps({**json.loads(file.read_text()), broken[0]: broken[1]}))
    async with a_gateway(start="lazy") as gateway:
        assert str(gateway.servers()[0].status) == "running"
        client, _ = await client_of(gateway, revision="2026-07-28")
        assert await client.tools() == ["up__who"]


# --- what is said -------------------------------------------------------------------------------


async def test_secrets_in_what_a_server_says_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """docs/security.md#what-is-promised-threat-by-threat.

    Secrets in lines that are no messages, and the words of a start that fails.
    """
    secret = "hunter2-hunter2"

    def babble(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.say(b"x" * 110 + secret.encode())
        server.reply(request, {"content": []})

    class Refusing(ScriptedServer):
        async def _handle(self, message: dict[str, Any], line: bytes) -> None:
            if "id" in message:
                self.fail(message, -32000, f"{secret} is no good")

    made = chain({"up": counting(babble=babble), "bad": Refusing()})
    servers = {name: replace(server, secrets=frozenset({secret})) for name, server in made.servers.items()}
    async with Gateway.open(replace(made, servers=servers)) as gateway:
        await gateway.call("up.babble")
        bad = gateway.servers()[1]
        assert "*** is no good" in (bad.error or "")
    assert "not a message" in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.leaping
async def test_a_remote_server_that_is_heard_is_slow_and_not_lost() -> None:
    """Ours: five calls that take too long do not end the sixth, which says that it goes on."""
    up = await play(remote=True)
    outcomes = [up.call(idle=0.3)[0] for _ in range(6)]
    working, _ = up.call(idle=0.6)
    for progress in range(8):
        await asyncio.sleep(0.1)
        params = {"progressToken": up.channel.calls()[-1], "progress": progress}
        up.channel.hear([envelopes.encode({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})])
    assert {outcome.error.reason for outcome in outcomes} == {"timeout"}
    assert (up.lost, working.open) == ([], True)
    await up.link.close()


async def test_a_gateway_that_ends_says_so_once() -> None:
    """Ours: building every list anew after each of many servers would take longer than to end them."""
    async with Gateway.open(chain({f"s{n}": counting() for n in range(10)})) as gateway:
        heard: list[frozenset[str]] = []
        gateway.runtime.dispatcher().listen(heard.append)
    assert len(heard) <= 1
    assert gateway.tools() == []


# --- all of it at once --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_every_call_has_one_outcome_and_nothing_is_left(seed: int) -> None:
    """docs/behaviour.md#under-all-of-it.

    Crashes, sleep, restarts, reloads and removals in any order, with calls all the time.
    """
    dice = Random(seed)
    made: list[Counting] = []

    def server() -> Counting:
        made.append(counting(crash=lambda server, _: server.crash()))
        return made[-1]

    def reload() -> Config:
        pool.append({name: server() for name in dice.sample("abc", dice.randint(1, 3))})
        chosen = {**dice.choice(pool[-3:]), **dice.choice(pool[-3:])}
        return chain(chosen, gateway={"callTimeout": dice.choice([2, 3])})

    async def change(gateway: Gateway) -> None:
        name = dice.choice("abc")
        managed = gateway._servers.by_name.get(name)
        what = dice.randrange(5)
        with contextlib.suppress(KeyError):
            if what == 0:
                await gateway.apply(reload())
            elif what == 1:
                await gateway.restart(name)
            elif what == 2 and managed is not None and managed.connection is not None:
                managed.first.sleep()
            elif what == 3 and dice.random() < 0.3:
                await gateway.remove(name)
            else:
                with contextlib.suppress(RpcError):
                    await gateway.call(f"{name}.crash")

    async def use(gateway: Gateway) -> int:
        outcomes = 0
        for n in range(40):
            try:
                async with asyncio.timeout(8):
                    assert (await gateway.call(f"{dice.choice('abc')}.echo", {"n": n})).structured_content == {"n": n}
            except RpcError:
                await asyncio.sleep(0.001)
            outcomes += 1
            await asyncio.sleep(dice.choice([0, 0, 0.001]))
        return outcomes

    pool: list[dict[str, Counting]] = [{name: server() for name in "abc"}]
    async with Gateway.open(chain(pool[0])) as gateway:
        users = [asyncio.ensure_future(use(gateway)) for _ in range(8)]
        changes: list[asyncio.Task[None]] = []
        while not all(user.done() for user in users):
            changes.append(asyncio.create_task(change(gateway)))
            await asyncio.sleep(dice.choice([0, 0, 0, 0.002]))
        assert [user.result() for user in users] == [40] * 8
    for late in changes:
        try:
            await late
        except RuntimeError as error:
            # The end of the gateway came before its own.
            assert "this gateway is closed" in str(error)  # noqa: PT017 - most of them do not raise
    assert [one.running for one in made if one.running] == []
