"""What is counted, and how long calls took."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from muxway.servers.connection import Connection
from muxway.servers.counters import ServerCounters
from tests.servers.faking import FakeChannel, play

pytestmark = pytest.mark.leaping


@pytest.mark.parametrize("q", [0.0, 0.5, 0.9, 0.99, 1.0])
def test_a_quantile_is_right_to_five_percent(q: float) -> None:
    """docs/operating.md#status: p50 and p99."""
    dice = random.Random(1)
    times = sorted(dice.lognormvariate(-4, 2) for _ in range(5000))
    stats = ServerCounters()
    for seconds in times:
        stats.took.append(seconds)
    exact = times[max(0, round(q * len(times)) - 1)]
    found = stats.quantile(q)
    assert found is not None
    assert exact <= found <= exact * 1.051


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, 1.05e-5), (1e-9, 1.05e-5), (1e-5, 1.05e-5), (1e9, 2988.0)])
def test_times_out_of_range_fall_into_the_outer_buckets(seconds: float, expected: float) -> None:
    """Ours: a clock that stands still, and a call of a week, are counted too."""
    stats = ServerCounters()
    stats.took.append(seconds)
    assert stats.quantile(0.5) == pytest.approx(expected, rel=0.01)


def test_without_calls_there_is_no_quantile() -> None:
    """Ours."""
    assert ServerCounters().quantile(0.99) is None


def test_counting_a_call_takes_well_under_a_microsecond() -> None:
    """Ours: counting costs calls nothing. The best of many, as the machine has other things to do."""
    stats = ServerCounters()
    best = float("inf")
    for _ in range(50):
        began = time.perf_counter()
        for _ in range(1000):
            stats.took.append(0.0123)
        stats.sort_in()
        best = min(best, time.perf_counter() - began)
    assert best / 1000 < 1e-6


async def test_every_way_to_end_is_counted_once() -> None:
    """docs/operating.md#status: visible counters; what the gateway asks for itself is none of them."""
    up = await play()
    stats = up.link.counters
    good, said, bad, unreadable = up.calls(4)
    silent, _ = up.call(idle=0.05)
    _, running = up.call()
    up.channel.answer(1)
    up.channel.hear([b'{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"no"}}'])
    up.channel.answer(3, "[]")
    up.channel.hear([b'{"jsonrpc":"2.0","id":4,"result":{', b"junk"])
    running.cancel(None)
    async with asyncio.timeout(2):
        while silent.open:
            await asyncio.sleep(0.02)
    up.channel.answer(1)
    up.channel.answer(99)
    up.link.set_log_level(1)
    up.channel.answer(7)
    assert good.results
    assert said.errors
    assert bad.error.reason == unreadable.error.reason == "malformed"
    assert (stats.calls, stats.said, stats.failed, stats.timeouts, stats.cancelled) == (6, 1, 3, 1, 1)
    assert (stats.errors, stats.dropped, stats.junk, stats.refused) == (4, 2, 3, 0)
    stats.sort_in()
    assert sum(stats.buckets) == 3


async def test_the_figures_outlive_the_link() -> None:
    """docs/operating.md#status: a restart does not hide what led to it."""
    stats = ServerCounters()
    for _ in range(2):
        channel = FakeChannel()
        link = Connection("up", channel, counters=stats)
        await link.open()
        channel.hear([b'{"jsonrpc":"2.0","id":1,"result":{}}', b"junk"])
    assert (stats.dropped, stats.junk) == (2, 2)
