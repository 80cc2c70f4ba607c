"""Servers that start wrong in every way there is, all at once behind one gateway, and a healthy one beside them."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from muxway.testing import faulty

from ..pace import crowding
from .doors import DOORS, ERAS, child, combinations, gateway
from .table import BETA_READY, MOST_PAGES, MOST_STARTS, SETTINGS, START_TIMEOUT, STARTS, Start

if TYPE_CHECKING:
    from pathlib import Path

    from .doors import Client, Door, Era, Outcome, Running

EVERY = [(door, client, server) for door in DOORS for client in ERAS for server in ERAS]
QUICK = {("stdio", "stateless", "stateless"), ("http", "handshake", "handshake")}
LOOPS = ("exit", "hello-then-exit", "list-exit", "forked")


@dataclass
class Seen:
    """What was seen of one gateway."""

    child_era: Era
    tried: bool
    """Whether each server is started once more, to see whether it takes a handshake."""
    beta_ready: float = 0.0
    outcomes: dict[str, tuple[Outcome, float]] = field(default_factory=dict)
    """How a server started → what came of calls to it in the end, and how many seconds after the start."""
    names: list[str] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)
    """How often each was started within a minute."""
    lists: dict[str, int] = field(default_factory=dict)
    slack: float = 0.0
    survivors: list[int] = field(default_factory=list)


def _servers(folder: Path, modes: tuple[str, ...], era: Era) -> dict[str, object]:
    # Only what never comes up is given up early: a busy machine may need longer for what does.
    limits = {mode: 20 if STARTS[mode].ready else START_TIMEOUT for mode in modes}
    started = {mode: child(folder, mode, era, start=mode, startTimeout=limits[mode]) for mode in modes}
    return {**started, "beta": child(folder, "beta", era)}


async def _run(door: Door, client_era: Era, child_era: Era, folder: Path) -> Seen:
    # Sessions are served in their own era, where a server has it; on a pipe it is greeted in that at once.
    seen = Seen(child_era, door != "stdio" and (client_era, child_era) == ("handshake", "stateless"), slack=crowding())
    modes = tuple(STARTS)
    async with gateway(door, folder, _servers(folder, modes, child_era), SETTINGS) as running:
        client = await running.client(client_era)
        assert (await client.call("beta__echo", text="beta")).text == "beta"
        seen.beta_ready = time.monotonic() - running.began
        tried = await asyncio.gather(*(_try(running, client, mode) for mode in modes))
        seen.outcomes = dict(zip(modes, tried, strict=True))
        seen.names = await client.tools()
        seen.starts = {mode: _early_starts(running, mode) for mode in modes}
        seen.lists = {mode: len(running.journal(mode, "list")) for mode in modes}
        seen.slack = max(seen.slack, crowding())
        await running.end("eof" if door == "stdio" else "SIGTERM")
        seen.survivors = await running.left()
        client.close()
    return seen


async def _try(running: Running, client: Client, mode: str) -> tuple[Outcome, float]:
    """Call it: one that should come up as often as it says, one that should not just once."""
    while True:
        outcome = await client.call(f"{mode}__echo", text=mode)
        took = time.monotonic() - running.began
        wait = outcome.retry_after or 0.5
        if outcome.ok or not STARTS[mode].ready or took + wait > 20:
            return outcome, took
        await asyncio.sleep(wait)


def _early_starts(running: Running, mode: str) -> int:
    """How often a server was started in its first minute: a slow machine may see the beginning of the next."""
    times = [start["at"] for start in running.journal(mode, "start")]
    return sum(time < times[0] + 60 for time in times)


@pytest.fixture(scope="module", params=combinations(EVERY, QUICK))
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What was seen of a gateway with these on its two sides."""
    return asyncio.run(_run(*request.param, tmp_path_factory.mktemp("-".join(request.param))))


def test_a_healthy_server_can_be_used_whatever_the_others_do(seen: Seen) -> None:
    """docs/behaviour.md#start: within two seconds of the start of the gateway."""
    assert seen.beta_ready < BETA_READY + seen.slack


@pytest.mark.parametrize("mode", STARTS)
def test_a_server_that_starts_wrong_comes_up_or_says_why_not(seen: Seen, mode: str) -> None:
    """docs/behaviour.md#start: what must become of each is in `table.py`."""
    bar: Start = STARTS[mode]
    outcome, took = seen.outcomes[mode]
    assert outcome.ok is bar.ready, outcome
    assert took < bar.within * (1 + seen.tried) + seen.slack, outcome
    assert (f"{mode}__echo" in seen.names) is bar.ready
    if bar.ready:
        assert outcome.text == mode
        return
    says = bar.says if bar.stateless_says is None or seen.child_era == "handshake" else bar.stateless_says
    assert [words for words in (f'"{mode}"', *says) if words not in outcome.why] == [], outcome.why
    assert outcome.reason in ("not_running", "lost")


def test_no_server_is_started_too_often_or_listed_without_end(seen: Seen) -> None:
    """docs/behaviour.md#a-server-crashes: back-off between starts; endless lists are cut after 100 pages."""
    assert {mode: number for mode, number in seen.starts.items() if number > MOST_STARTS} == {}
    assert {mode: number for mode, number in seen.lists.items() if number > MOST_PAGES + 1} == {}
    assert seen.lists["list-endless"] == MOST_PAGES


def test_every_name_is_one_that_clients_accept(seen: Seen) -> None:
    """docs/names.md: whatever servers call their tools."""
    assert [name for name in seen.names if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)] == []
    assert len(set(seen.names)) == len(seen.names)


def test_no_process_of_a_bad_start_is_left(seen: Seen) -> None:
    """docs/behaviour.md#a-server-crashes: also not what a server left behind that exited at once."""
    assert seen.survivors == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_comes_back_with_other_tools_is_listed_anew(era: Era, tmp_path: Path) -> None:
    """Ours: what it had before it crashed is not listed for longer than its new process needs to start."""
    servers = {"changing": child(tmp_path, "changing", era, start="list-new-each-start")}
    async with gateway("http", tmp_path, servers, SETTINGS) as running:
        client = await running.client(era)
        before = (await client.call("changing__who")).text
        assert f"changing__born-{before}" in await client.tools()
        assert not (await client.call("changing__fault", kind="exits")).ok
        after = (await client.call("changing__who")).text
        assert after != before
        names = await client.tools()
        assert f"changing__born-{after}" in names
        assert f"changing__born-{before}" not in names
        assert not (await client.call(f"changing__born-{before}")).ok


@pytest.mark.long
async def test_a_crash_loop_costs_little_and_is_never_given_up(tmp_path: Path) -> None:
    """docs/behaviour.md#a-server-crashes.

    At most 8 starts in the first minute, and a call still says when the next one comes.
    """
    async with gateway("http", tmp_path, _servers(tmp_path, LOOPS, "handshake"), SETTINGS) as running:
        client = await running.client("handshake")
        await asyncio.sleep(60)
        assert {mode: n for mode in LOOPS if (n := _early_starts(running, mode)) > MOST_STARTS} == {}
        for mode in LOOPS:
            outcome = await client.call(f"{mode}__echo", text="there?")
            assert outcome.reason == "not_running", outcome
            assert outcome.retry_after is not None, outcome
            assert outcome.seconds < 0.25 + crowding()


def test_every_start_has_its_bar() -> None:
    """Ours: a fault that nobody tests proves nothing."""
    assert sorted(STARTS) == sorted(faulty.STARTS)
