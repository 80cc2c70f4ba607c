"""Bars wherever the tests run: the machine may be an old one, its caches another's, its processors shared by many."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import statistics
import time
from typing import TYPE_CHECKING

from muxway.cli.ending import settle_memory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from muxway.net.metronome import Metronome

PATIENCE = 60.0
"""Seconds for what must happen, where speed is not what is tested: the machine may be busy."""

_KNOWN = 0.0022
"""Seconds that `_work` takes on the machine which the bars are for."""
_TIMES = 7


def slowness() -> float:
    """How many times longer this machine needs for the same work; never less than once."""
    return max(1.0, statistics.median(_timed() for _ in range(_TIMES)) / _KNOWN)


def crowding() -> float:
    """Seconds that everything may take longer because others use this machine: none if its processors suffice."""
    return 1.5 * max(0.0, os.getloadavg()[0] / (os.cpu_count() or 1) - 1)


@contextlib.contextmanager
def heap_of_its_own() -> Iterator[None]:
    """Let what runs inside be as in a process of its own, whose collector finds nothing that other tests have left.

    What is there stays spared from the collector: to give it back would give it all the tests there are.
    """
    thresholds = gc.get_threshold()
    gc.collect()
    settle_memory()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


class Seen:
    """What a metronome saw."""

    turn = 0.0
    """Seconds that the longest turn would have taken on the machine which the bars are for."""


@contextlib.asynccontextmanager
async def watching(metronome: Metronome) -> AsyncIterator[Seen]:
    """Watch over this event loop while something happens; what was seen is known afterwards."""
    seen = Seen()
    with heap_of_its_own():
        metronome.watch()
        metronome.begin()
        try:
            yield seen
            # A turn shows at the beat after it.
            await asyncio.sleep(0.02)
        finally:
            metronome.stop()
    seen.turn = metronome.longest / slowness()


def _timed() -> float:
    began = time.thread_time()
    _work()
    return time.thread_time() - began


def _work() -> int:
    """A fixed piece of what an interpreter does most: look up, make and let go of small objects."""
    made: dict[str, list[object]] = {}
    for number in range(4_000):
        name = f"name-{number}"
        made[name] = [number, name.encode(), {"a": number}]
    return sum(len(one) for one in made.values())
