"""What waits for a server that is being started, and gives up before that is over."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest

from muxway import Gateway
from muxway.net.metronome import LONG, Metronome
from muxway.testing import RawClient, ScriptedServer
from tests.journeys.gated import GatedServer, config_of
from tests.noting import until
from tests.pace import watching

LARGE = "x" * 1_000_000
MANY = 20


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "up__x", "arguments": {"a": LARGE}}),
        ("prompts/get", {"name": "up__x", "arguments": {"a": LARGE}}),
        ("tools/list", {"vendor": LARGE}),
    ],
    ids=["a call", "a prompt", "a list"],
)
async def test_nothing_is_kept_of_what_was_cancelled_while_it_waited(
    method: str, params: dict[str, Any], revision: str
) -> None:
    """Ours: what was cancelled counts no more, so it must take no room (docs/behaviour.md#cancel-and-progress)."""
    server = GatedServer(tools={"x": None})
    async with (
        asyncio.timeout(30),
        Gateway.open(config_of({"up": server, "b": ScriptedServer()}), wait=False) as gateway,
    ):
        client = RawClient(gateway.memory_door(), revision=revision)
        await client.hello()
        tracemalloc.start()
        try:
            for _ in range(MANY):
                id_ = client.start(method, params)
                await asyncio.sleep(0)
                client.tell("notifications/cancelled", {"requestId": id_})
                await asyncio.sleep(0)
            await until(lambda: not client.unread)
            gc.collect()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept < 5 * len(LARGE)
        server.gate.set()
        await gateway.settled()
        assert await client.tools() == ["up__x"]
        assert not [heard for heard in server.heard if heard.get("method") in ("tools/call", "prompts/get")]


async def test_many_lists_that_waited_together_are_answered_in_turns() -> None:
    """docs/behaviour.md#size-limits: nothing that a client sends holds up the others for long."""
    server = GatedServer(tools={"x": None})
    async with asyncio.timeout(60), Gateway.open(config_of({"up": server}), wait=False) as gateway:
        client = RawClient(gateway.memory_door(), revision="2025-11-25")
        client.start("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}})
        ids: list[Any] = []
        for _ in range(100):
            ids += [client.start("tools/list") for _ in range(50)]
            await asyncio.sleep(0)
        async with watching(Metronome()) as seen:
            server.gate.set()
            assert (await client.answer(ids[0])).result["tools"]
        assert (await client.answer(ids[-1])).result["tools"]
    assert seen.turn < LONG
