"""muxway ends, or is ended, at any moment: nothing of it and of its servers is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from muxway.testing import RawClient

from .. import signals
from ..pace import PATIENCE, crowding
from ..stdio.harness import Process, children_of, muxway, until
from .processes import entry, marked, none_left, swept

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SERVERS = 3
PROCESSES = 3
"""Of which each server is made: itself, a grandchild, and a daemon in a session of its own."""
EXIT = 9.0
"""Seconds within which it is gone, whatever its servers do (docker's limit is ten)."""


def config(mark: str) -> dict[str, Any]:
    return {"mcpServers": {f"s{number}": entry(mark, "tree") for number in range(SERVERS)}}


@contextlib.asynccontextmanager
async def launched(verb: str, folder: Path, mark: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`muxway serve` or `stdio`, only just started."""
    file = folder / "muxway.json"
    file.write_text(json.dumps(config(mark)))
    more = ("--port", "0") if verb == "serve" else ()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muxway", verb, "--config", str(file), *more),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.parametrize("verb", ["stdio", "serve"])
@pytest.mark.parametrize("repeats", [5, pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
async def test_nothing_is_left_after_a_kill_at_any_moment(verb: str, repeats: int, tmp_path: Path) -> None:
    """docs/behaviour.md#shutdown-and-kill--9.

    200 kills at random moments, also while servers are being spawned, 0 survivors after 2 s.
    """
    dice = random.Random(repeats)
    for repeat in range(repeats):
        mark = f"{tmp_path.name}-{repeat}"
        # Any number of processes may be there when it happens, and each number gets its turn.
        wanted = repeat * 7 % (SERVERS * PROCESSES + 1)
        with swept(mark):
            async with launched(verb, tmp_path, mark) as process:
                await until(lambda mark=mark, wanted=wanted: len(marked(mark)) >= wanted, PATIENCE)
                await asyncio.sleep(dice.uniform(0, 0.3) ** 2 if wanted else dice.uniform(0, 0.3))
                process.kill()
                await process.wait()
                await none_left(mark, 2.0)


@contextlib.asynccontextmanager
async def up(folder: Path, mark: str) -> AsyncIterator[tuple[Process, RawClient]]:
    """`muxway stdio` with all its servers up, and its client."""
    with swept(mark):
        async with muxway(folder, config(mark), XDG_RUNTIME_DIR=str(folder)) as process:
            client = RawClient(process)
            await client.hello()
            await until(lambda: len(marked(mark)) == SERVERS * PROCESSES, PATIENCE)
            for number in range(SERVERS):
                assert (await client.call(f"s{number}__work", {"token": "up"})).result["content"][0]["text"] == "up"
            yield process, client


def load(client: RawClient, calls: int = 60) -> None:
    """Calls under way: some end at once, some in the middle of the end, some never would."""
    for number in range(calls):
        arguments = {"token": str(number), "ms": (0, 200, 3000, 60_000)[number % 4]}
        client.start("tools/call", {"name": f"s{number % SERVERS}__work", "arguments": arguments})


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "end of input"])
async def test_an_end_under_load_is_in_time_and_leaves_nothing(how: str, tmp_path: Path) -> None:
    """docs/behaviour.md#shutdown-and-kill--9.

    Gone within 9 s whatever the children do. Here they ignore SIGTERM, and calls never end.
    """
    mark = tmp_path.name
    async with up(tmp_path, mark) as (process, client):
        load(client)
        began = time.monotonic()
        if how == "end of input":
            assert process.process.stdin
            process.process.stdin.close()
        else:
            os.kill(process.pid, getattr(signal, how))
        await process.ended()
        assert time.monotonic() - began <= EXIT + crowding()
        await none_left(mark, 2.0)


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """docs/behaviour.md#shutdown-and-kill--9: second signal at once."""
    mark = tmp_path.name
    async with up(tmp_path, mark) as (process, client):
        load(client)
        signals.send(process.pid, signal.SIGTERM)
        began = time.monotonic()
        os.kill(process.pid, signal.SIGTERM)
        await process.ended()
        assert time.monotonic() - began <= 2.5 + crowding()
        await none_left(mark, 2.0)


async def test_a_killed_reaper_is_replaced_and_leaves_nothing(tmp_path: Path) -> None:
    """docs/behaviour.md#shutdown-and-kill--9.

    Nothing orphaned by the reaper's own death. Calls under way are told, later ones work again.
    """
    mark = tmp_path.name
    async with up(tmp_path, mark) as (process, client):
        before = marked(mark)
        waiting = client.start("tools/call", {"name": "s0__work", "arguments": {"token": "late", "ms": 60_000}})
        reapers = [pid for pid in children_of(process.pid) if pid not in before and children_of(pid)]
        assert len(reapers) == 1
        os.kill(reapers[0], signal.SIGKILL)
        assert (await client.answer(waiting)).error["data"]["muxway"]["reason"] == "lost"
        await until(lambda: not {*before} & {*marked(mark)}, 3.0)
        await until(lambda: len(marked(mark)) == SERVERS * PROCESSES, PATIENCE)
        async with asyncio.timeout(PATIENCE):
            while "error" in (await client.call("s0__work", {"token": "again"})).message:
                await asyncio.sleep(0.05)
        os.kill(process.pid, signal.SIGTERM)
        await process.ended()
        await none_left(mark, 2.0)
