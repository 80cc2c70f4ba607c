"""Many servers that do the same thing at the same time do not hold the event loop (docs/behaviour.md#size-limits)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from muxway import Gateway
from muxway.net.metronome import LONG
from muxway.servers import list_freshness
from muxway.testing import RawClient

from ..pace import watching

if TYPE_CHECKING:
    import pytest

SERVERS = 100


class Thing:
    """Has some tools."""

    def one(self) -> str:
        return "one"

    def two(self) -> str:
        return "two"

    def three(self) -> str:
        return "three"


async def test_servers_that_are_ready_at_once_or_listed_again_at_once_do_not_hold_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ours: what one of them costs may grow with their number, but not all of them have to be seen to in one turn."""
    monkeypatch.setattr(list_freshness, "FRESH", 0.0)
    async with Gateway.open() as gateway:
        starting = [asyncio.create_task(gateway.add(f"s{number}", server=Thing())) for number in range(SERVERS)]
        await asyncio.sleep(0)
        async with watching(gateway.metronome) as start:
            await asyncio.gather(*starting)
        client = RawClient(gateway.memory_door())
        await client.hello()
        async with watching(gateway.metronome) as again:
            for _ in range(3):
                assert len(await client.tools()) == 3 * SERVERS
                # All of them are being read again by now.
                await asyncio.gather(*(task for task in asyncio.all_tasks() if "Relisting" in repr(task)))
    assert start.turn < LONG
    assert again.turn < LONG
