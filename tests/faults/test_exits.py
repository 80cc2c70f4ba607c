"""The end of a gateway whose servers do not want to end: nothing is left, whatever ended it and whatever they do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from muxway.testing.faulty import STOPS

from ..pace import crowding
from ..stdio.harness import until
from .doors import ERAS, EXIT, child, combinations, gateway
from .table import SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

    from .doors import Door, Era

HOWS = {"SIGTERM": 0, "SIGINT": 130, "SIGKILL": -9, "eof": 0}
"""How it is ended → its exit status."""
PAIRS = list(zip(ERAS, reversed(ERAS), strict=True))
"""Which era is on which side hardly matters here, so each is once on each."""
EVERY = [
    (door, how, client, child)
    for door, hows in {"stdio": HOWS, "http": list(HOWS)[:3], "sse": list(HOWS)[:3]}.items()
    for how in hows
    for client, child in PAIRS
]
QUICK = {
    ("stdio", "eof", "handshake", "stateless"),
    ("stdio", "SIGKILL", "stateless", "handshake"),
    ("http", "SIGTERM", "stateless", "handshake"),
    ("sse", "SIGINT", "handshake", "stateless"),
}
UNDER_WAY = 1.0
"""Seconds that a call takes which is under way when the end comes."""


@pytest.mark.parametrize("combination", combinations(EVERY, QUICK))
async def test_nothing_is_left_of_servers_that_do_not_want_to_end(
    combination: tuple[Door, str, Era, Era], tmp_path: Path
) -> None:
    """docs/behaviour.md#shutdown-and-kill--9.

    No survivors; gone in 9 s; what is under way is answered, unless the gateway is killed.
    """
    door, how, client_era, child_era = combination
    servers = {stop: child(tmp_path, stop, child_era, stop=stop) for stop in STOPS}
    async with gateway(door, tmp_path, servers, SETTINGS) as running:
        client = await running.client(client_era)
        ready = await asyncio.gather(*(client.call(f"{stop}__who") for stop in STOPS))
        assert all(outcome.ok for outcome in ready), ready
        # A grandchild and a daemon; those that were asked in vain for a handshake of their own are being ended.
        async with asyncio.timeout(30):
            while len(running.survivors()) != len(STOPS) + 2:
                await asyncio.sleep(0.1)
        under_way = asyncio.create_task(client.call("well__echo", text="under way", after=UNDER_WAY))
        await until(lambda: bool(running.journal("well", "echo")), 5 + crowding())
        took = await running.end(how)
        assert running.process.returncode == HOWS[how]
        assert took < EXIT + crowding(), running.log()
        if how == "SIGKILL":
            under_way.cancel()
        else:
            assert (await under_way).text == "under way"
        assert await running.left() == []
        client.close()
