"""`muxway serve` asked for ten times what a server can do: as much is done as ever, and the rest is told to come again.

Judged by ratios within one run, as the machine may be busy. The load is open: requests are sent at their time, whether
or not the ones before are answered.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Any

import pytest

from ..pace import PATIENCE, crowding
from ..serve.harness import initialize
from .driving import Probe, closed_loop, open_loop, served

if TYPE_CHECKING:
    from pathlib import Path

    from .driving import Outcome

OVERLOAD = 10
SECONDS = 3.0
MOST_GROWTH = 150_000_000


def quantile(outcomes: list[Outcome], part: float) -> float:
    return sorted(outcome.seconds for outcome in outcomes)[int(part * (len(outcomes) - 1))]


@pytest.mark.parametrize(
    ("entry", "gateway"),
    [({"maxConcurrency": 8, "maxQueue": 16}, {}), ({}, {"maxCallsPerClient": 24})],
    ids=["queue of a server", "share of a client"],
)
async def test_at_ten_times_its_capacity_a_server_does_as_much_as_ever(
    entry: dict[str, Any], gateway: dict[str, Any], tmp_path: Path
) -> None:
    """docs/behaviour.md#too-much-at-once.

    Goodput at 10x, quick refusals with when to come again, others unharmed, normal in 2 s.
    """
    async with served(tmp_path, {"busy": entry, "twin": entry, "healthy": {}}, **gateway) as gate:
        client, other, probe = await gate.client(), await gate.client(), Probe(await gate.client(), "healthy__echo")
        capacity = await closed_loop(client, "busy__work", 8, 2.0)
        memory = gate.memory
        async with probe.beside():
            began = time.monotonic()
            # As much as ever is as much as one just like it does that is never asked for more: however busy the
            # machine is at this moment, it is so for both.
            outcomes, peak = await asyncio.gather(
                open_loop(client, "busy__work", OVERLOAD * capacity, SECONDS),
                closed_loop(other, "twin__work", 8, SECONDS),
            )
        ended = time.monotonic()
        again = await client.call("busy__work", 1)
        back = time.monotonic() - ended

        good = [outcome for outcome in outcomes if outcome.good and outcome.ended < began + SECONDS]
        assert len(good) / SECONDS >= 0.8 * peak
        shed = [outcome for outcome in outcomes if not outcome.good]
        assert len(shed) > len(outcomes) / 2
        for outcome in shed:
            error = outcome.answer["error"]
            assert (error["code"], error["data"]["muxway"]["reason"]) == (-32603, "overloaded")
            assert error["data"]["muxway"]["retryAfterMs"] > 0
        # The bar is 50 ms on a machine of its own; the probe tells what this one adds to every answer.
        assert quantile(shed, 0.5) < 0.05 + 2 * quantile(probe.outcomes, 0.5) + crowding()
        assert quantile(shed, 0.95) < 0.25 + 2 * quantile(probe.outcomes, 0.95) + crowding()
        assert [outcome.answer for outcome in probe.outcomes if not outcome.good] == []
        assert len(probe.outcomes) > 20
        assert again.good
        assert back < 2.0 + crowding()
        assert gate.memory - memory < MOST_GROWTH


async def test_a_server_whose_calls_all_hang_does_not_harm_another(tmp_path: Path) -> None:
    """docs/behaviour.md#too-much-at-once: one hot child with all its slots hung beside a healthy one."""
    async with served(tmp_path, {"hot": {}, "healthy": {}}) as gate:
        probe = Probe(await gate.client(), "healthy__echo")
        async with probe.beside():
            await probe.answered(20)
        before, probe.outcomes = probe.outcomes, []
        crowd = [await gate.client() for _ in range(4)]
        hung = [asyncio.create_task(client.call("hot__hang", id_)) for client in crowd for id_ in range(100)]
        async with probe.beside(), asyncio.timeout(PATIENCE):
            # 64 under way and 256 in the queue; the rest hears so.
            while sum(task.done() for task in hung) < 400 - 320:
                await asyncio.sleep(0.02)
            await probe.answered(100)
        done = [task.result() for task in hung if task.done()]
        for task in hung:
            task.cancel()
        await asyncio.gather(*hung, return_exceptions=True)
        assert [outcome.answer for outcome in probe.outcomes if not outcome.good] == []
        typical = statistics.median(outcome.seconds for outcome in before)
        assert statistics.median(outcome.seconds for outcome in probe.outcomes) < 5 * typical + 0.02 + crowding()
        assert len(done) == 400 - 320
        assert {outcome.answer["error"]["data"]["muxway"]["reason"] for outcome in done} == {"overloaded"}


async def test_a_gateway_without_memory_opens_no_sessions(tmp_path: Path) -> None:
    """docs/behaviour.md#too-much-at-once.

    `maxMemory`, from the setting to the wire. No gateway fits into the least there is.
    """
    async with served(tmp_path, {"healthy": {}}, maxMemory=32 * 1024 * 1024) as gate:
        assert gate.memory > 0.8 * 32 * 1024 * 1024
        answer, headers = await gate.stranger().post(initialize())
        assert "gateway.maxMemory" in answer["error"]["message"]
        assert headers["retry-after"] == "1"
