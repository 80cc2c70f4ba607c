"""Many callers at once, with the same ids and tokens: every call has its own outcome, and just one."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from muxway.testing import RawClient, ScriptedServer

from ..conftest import REVISIONS, World, a_world

CALLERS = 20
CALLS_EACH = 5_000
AT_ONCE = 8


async def _moody(server: ScriptedServer, request: dict[str, Any]) -> None:
    """Does, at the caller's wish, what servers do: answer, fail, report progress, take its time."""
    arguments = request["params"]["arguments"]
    mood, mark = arguments["mood"], arguments["mark"]
    if mood == "slow":
        await asyncio.sleep(0.001)
    if mood == "progress":
        server.progress(request, 1, message=mark)
    if mood == "error":
        server.fail(request, -32000, mark)
    else:
        server.reply(request, {"content": [{"type": "text", "text": mark}], "isError": mood == "sad"})


async def _caller(world: World, number: int, seen: list[int]) -> None:
    """One caller: its ids and tokens are the same as everybody's."""
    revision = REVISIONS[number % len(REVISIONS)]
    client = RawClient(world.gateway.memory_door(), revision=revision)
    await client.hello()
    dice = random.Random(number)
    left = CALLS_EACH
    while left:
        batch: dict[Any, tuple[str, str]] = {}
        for slot in range(min(AT_ONCE, left)):
            mark = f"{number}/{left}"
            left -= 1
            mood = dice.choice(["plain", "plain", "slow", "progress", "error", "sad", "unknown"])
            id_ = slot if slot % 2 else str(slot)
            server = dice.choice(["old", "new"])
            params: dict[str, Any] = {"name": f"{server}__moody", "arguments": {"mood": mood, "mark": mark}}
            if mood == "progress":
                params["_meta"] = {"progressToken": "same"}
            if mood == "unknown":
                params["name"] = f"nobody__{mark}"
            client.start("tools/call", params, id_=id_)
            batch[id_] = (mood, mark)
        for id_, (mood, mark) in batch.items():
            message = (await client.answer(id_)).message
            assert mark in json.dumps(message), (revision, mood, message)
            assert ("error" in message) == (mood in ("error", "unknown"))
            seen[number] += 1
    progressed = [notice["params"]["message"] for notice in client.notices if "message" in notice["params"]]
    assert all(mark.startswith(f"{number}/") for mark in progressed)
    assert not client.unread


@pytest.mark.leaping
async def test_a_hundred_thousand_calls_of_twenty_callers_are_neither_crossed_nor_lost() -> None:
    servers = {
        "old": ScriptedServer("2025-06-18", tools={"moody": _moody}),
        "new": ScriptedServer("2026-07-28", tools={"moody": _moody}),
    }
    seen = [0] * CALLERS
    async with a_world(servers) as world:
        for server in servers.values():
            server.remember = False
        await asyncio.gather(*(_caller(world, number, seen) for number in range(CALLERS)))
    assert seen == [CALLS_EACH] * CALLERS
