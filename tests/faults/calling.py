"""One gateway, a server for each fault, all faults within seconds, and a healthy server that must not notice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from muxway.testing.faulty import POISON

from ..pace import crowding, slowness
from .doors import Door, Era, Outcome, Running, child, gateway
from .table import CALL_MAX, MOST_LISTS, SETTINGS, WITNESS_RATE, Bar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping
    from pathlib import Path

    from .doors import Client

STARTS = 60.0
"""Seconds in which all servers are there; how quick that is, is no question of these tests."""
AT_ONCE = 8
"""Faults under way at the same time."""
LATER = 12
"""Calls to a server that is back, all at once: with those of the others, fewer than one client may make."""


@dataclass
class Report:
    """What was seen of one gateway."""

    tried: int = 0
    """Processes of each server that were started to see whether it takes a handshake."""
    complaints: dict[str, list[str]] = field(default_factory=dict)
    """Fault → what was not as its bar says."""
    witnessed: list[Outcome] = field(default_factory=list)
    """The calls to the healthy server."""
    slack: float = 0.0
    """The longest that this machine lets anybody wait for a processor: no fault of the gateway's."""
    memory: int = 0
    """MB at the peak beyond those before the faults."""
    longest_turn: float = 0.0
    """Seconds of processor time for which its event loop was busy without a break."""
    paces: list[float] = field(default_factory=list)
    """How slow the machine was, again and again."""
    unseen: list[str] = field(default_factory=list)
    """Servers of which a new client sees nothing at the end."""
    took_to_exit: float = 0.0
    survivors: list[int] = field(default_factory=list)

    @property
    def stall(self) -> float:
        """The longest that a call to the healthy server took."""
        return max(outcome.seconds for outcome in self.witnessed)


async def run(
    door: Door, era: Era, servers: dict[str, Any], bars: Mapping[str, Bar], folder: Path, tried: int = 0
) -> Report:
    """Let a fault happen at the server of its name, for each bar, and look at everything a client can see."""
    report = Report(tried, slack=crowding())
    clocks = {name: {"callTimeout": bar.patience, "callMax": max(CALL_MAX, bar.patience)} for name, bar in bars.items()}
    servers = {name: {**entry, **clocks[name]} for name, entry in servers.items()}
    servers["beta"] = child(folder, "beta", "handshake")
    async with gateway(door, folder, servers, SETTINGS) as running:
        client = await running.client(era)
        await _ready(client, servers)
        before = running.peak()
        gate = asyncio.Semaphore(AT_ONCE)
        witness = client if door == "stdio" else await running.client(era)
        async with _watching(witness, report):
            await asyncio.gather(*(_examine(running, client, fault, bar, gate, report) for fault, bar in bars.items()))
        report.memory = running.peak() - before
        if door != "stdio":
            client.close()
            client = await running.client(era)
        names = await client.tools()
        report.unseen = [server for server in servers if f"{server}__echo" not in names]
        report.longest_turn = await running.longest_turn()
        report.took_to_exit = await running.end("eof" if door == "stdio" else "SIGTERM")
        report.survivors = await running.left()
        client.close()
    return report


async def _ready(client: Client, servers: Collection[str]) -> None:
    """Wait until each server is listed."""
    end = time.monotonic() + STARTS
    while unlisted := {f"{server}__echo" for server in servers} - set(await client.tools()):
        assert time.monotonic() < end, f"not started after {STARTS} s: {unlisted}"
        await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def _watching(witness: Client, report: Report) -> AsyncIterator[None]:
    """Call the healthy server all the time, and measure how late this process itself gets its turn."""
    calls: set[asyncio.Task[Outcome]] = set()

    async def watch() -> None:
        due = time.monotonic()
        while True:
            due = max(due + 1 / WITNESS_RATE, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            report.slack = max(report.slack, crowding(), time.monotonic() - due)
            if not len(calls) % WITNESS_RATE:
                report.paces.append(slowness())
            text = f"witness-{len(calls)}"
            calls.add(asyncio.create_task(witness.call("beta__echo", text=text), name=text))

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        report.witnessed = list(await asyncio.gather(*calls))
    report.complaints["beta"] = [
        f"{call.get_name()}: {call.result()}" for call in calls if not _is_right(call.result(), call.get_name())
    ]


def _is_right(outcome: Outcome, text: str) -> bool:
    return outcome.ok and outcome.text == text


async def _examine(
    running: Running, client: Client, fault: str, bar: Bar, gate: asyncio.Semaphore, report: Report
) -> None:
    async with gate:
        said = report.complaints[fault] = []
        faulty = asyncio.create_task(client.call(f"{fault}__fault", _progress=True, kind=fault))
        await asyncio.sleep(0.05)
        sibling = asyncio.create_task(client.call(f"{fault}__echo", text="sibling"))
        outcome = await faulty
        settled = time.monotonic()
        said += _compare(bar, fault, outcome, report.slack)
        beside = await sibling
        if not _is_right(beside, "sibling") and (beside.ok or bar.sibling == "answered"):
            said.append(f"the call beside it: {beside}")
        said += await _recover(running, client, fault, bar, settled, report)
        if fault == "list-changes":
            said += await _last_list(running, client, fault)


def _compare(bar: Bar, fault: str, outcome: Outcome, slack: float) -> list[str]:
    said: list[str] = []
    if outcome.seconds > bar.within + slack:
        said.append(f"took {outcome.seconds:.2f} s, not {bar.within:g} s (and {slack:.2f} s): {outcome}")
    if outcome.ok is not {"answered": True, "failed": False}.get(bar.outcome, outcome.ok):
        said.append(f"was not {bar.outcome}: {outcome}")
    elif not outcome.ok:
        if bar.reasons and outcome.reason not in bar.reasons:
            said.append(f"failed as {outcome.reason!r}, not one of {bar.reasons}: {outcome}")
        said += [f"the failure does not say {words!r}: {outcome.why}" for words in bar.says if words not in outcome.why]
        if bar.reasons and f'"{fault}"' not in outcome.why:
            said.append(f"the failure does not name its server: {outcome.why}")
    elif POISON in json.dumps(outcome.message):
        said.append(f"an answer that is for nobody: {outcome}")
    elif fault == "tells-what-it-has":
        said += _compare_belongings(json.loads(outcome.text))
    return said


def _compare_belongings(has: dict[str, Any]) -> list[str]:
    files = [] if has["files"] == [0, 1, 2] else [f"open files: {has['files']}"]
    return files + [f"it got {name}" for name in has["variables"] if "CANARY" in name]


async def _recover(running: Running, client: Client, fault: str, bar: Bar, settled: float, report: Report) -> list[str]:
    """Call it until it answers, and see that it is the process it should be."""
    said: list[str] = []
    until = settled + bar.back + report.slack
    starts = {"same": 1, "new": 2, "remote": 0}[bar.life] + report.tried
    while True:
        late = time.monotonic() > until
        if len(running.journal(fault, "start")) < starts and not late:
            await asyncio.sleep(0.02)
            continue
        outcome = await client.call(f"{fault}__echo", text="again")
        if _is_right(outcome, "again"):
            break
        if outcome.reason == "not_running" and outcome.retry_after is None:
            said.append(f"does not say when to try again: {outcome}")
        if late:
            return [*said, f"not back after {bar.back:g} s (and {report.slack:.2f} s): {outcome}"]
        await asyncio.sleep(outcome.retry_after or 0.05)
    if late:
        said.append(f"back only after {time.monotonic() - settled:.2f} s, not {bar.back:g} s")
    answers = await asyncio.gather(*(client.call(f"{fault}__echo", text=f"{number}") for number in range(LATER)))
    wrong = [outcome for number, outcome in enumerate(answers) if not _is_right(outcome, f"{number}")]
    if bar.later == "settled":
        wrong = [outcome for outcome in wrong if outcome.reason != "lost"]
    said += [f"a later call: {outcome}" for outcome in wrong[:3]]
    if len(running.journal(fault, "start")) != starts:
        said.append(f"started {len(running.journal(fault, 'start'))} times, not {starts}")
    if bar.told and not running.journal(fault, "cancelled"):
        said.append("was not told that nobody waits any more")
    return said


async def _last_list(running: Running, client: Client, fault: str) -> list[str]:
    """After a storm of changes, its last state is seen, and the way there cost little."""
    end = time.monotonic() + 10
    while f"{fault}__extra-1999" not in await client.tools():
        if time.monotonic() > end:
            return ["its last list is not seen after 10 s"]
        await asyncio.sleep(0.1)
    fetched = len(running.journal(fault, "list")) - 1
    return [f"listed {fetched} times"] if fetched > MOST_LISTS else []
