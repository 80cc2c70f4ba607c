"""When lists are read again: soon after a change, seldom in a flood."""

from __future__ import annotations

import asyncio

import pytest

from muxway.catalog.kinds import PROMPTS, TOOLS, Kind
from muxway.servers.list_freshness import ListFreshness

pytestmark = pytest.mark.leaping


class Reader:
    """Counts readings."""

    def __init__(self) -> None:
        self.read: list[set[Kind]] = []
        self.done = asyncio.Event()
        self.lists = ListFreshness(self._read, lambda: None)

    async def _read(self, kinds: set[Kind]) -> None:
        self.read.append(kinds)
        self.done.set()


async def test_a_few_changes_in_a_row_are_each_seen_soon() -> None:
    """docs/behaviour.md#a-server-talks-nonsense: only a flood of changes is slowed down."""
    reader = Reader()
    for number, kind in enumerate((TOOLS, TOOLS, PROMPTS, TOOLS, TOOLS), 1):
        reader.done.clear()
        reader.lists.changed([kind], now=True)
        async with asyncio.timeout(1):
            await reader.done.wait()
        assert len(reader.read) == number


async def test_a_flood_of_changes_is_read_less_and_less_often() -> None:
    """docs/behaviour.md#a-server-talks-nonsense: 2,000 changes cost few readings."""
    reader, loop = Reader(), asyncio.get_running_loop()
    until = loop.time() + 1.5
    while loop.time() < until:
        reader.lists.changed([TOOLS], now=True)
        await asyncio.sleep(0.001)
    assert len(reader.read) <= 3
