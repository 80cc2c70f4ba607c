"""Reloads, one after the other, under load: who is not concerned does not notice."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..reload.harness import CHILD, alive, called, config, serve, who
from .processes import entry, marked, none_left, swept

if TYPE_CHECKING:
    from ..serve.harness import Client

SERVERS = [f"s{number}" for number in range(10)]
RATE = 20
"""Calls a second."""


def content(versions: dict[str, int]) -> dict[str, Any]:
    """A configuration in which each server is started with its version."""
    return config(
        {
            name: {"command": sys.executable, "args": ["-I", "-S", str(CHILD), f"version{version}"]}
            for name, version in versions.items()
        }
    )


class Load:
    """Calls to all servers at a steady rate, a client one at a time; keeps what failed, and who answered."""

    def __init__(self, clients: list[Client]) -> None:
        self._idle = clients
        self._dice = random.Random(8)
        self._calls: set[asyncio.Task[None]] = set()
        self.failures: list[Any] = []
        self.answered = 0
        self.pids: dict[str, set[int]] = defaultdict(set)

    async def run(self) -> None:
        """Call until cancelled; then wait for what is under way."""
        try:
            while True:
                if self._idle:
                    call = asyncio.create_task(self._call(self._idle.pop(), self._dice.choice(SERVERS)))
                    self._calls.add(call)
                    call.add_done_callback(self._calls.discard)
                await asyncio.sleep(1 / RATE)
        finally:
            await asyncio.gather(*self._calls)

    async def _call(self, client: Client, name: str) -> None:
        answer = await called(client, f"{name}__who", seconds=self._dice.choice([0, 0, 0.05, 0.1]))
        self._idle.insert(0, client)
        if "result" in answer and not answer["result"].get("isError"):
            self.answered += 1
            self.pids[name].add(answer["result"]["structuredContent"]["pid"])
        else:
            self.failures.append((name, answer))


@pytest.mark.parametrize("reloads", [20, pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(1500)])])
async def test_reloads_under_load_fail_no_call_and_keep_what_did_not_change(reloads: int, tmp_path: Path) -> None:
    """docs/behaviour.md#reload.

    1,000 reloads under load, one of ten servers changed each time, 0 failed calls, same pids.
    """
    versions = dict.fromkeys(SERVERS, 0)
    async with serve(tmp_path, content(versions), "--no-watch") as served:
        client = await served.web.session()
        load = Load([await served.web.session() for _ in range(20)])
        loading = asyncio.create_task(load.run())
        pids = {name: (await who(client, f"{name}__who"))["pid"] for name in SERVERS}
        started = {name: {pid} for name, pid in pids.items()}
        for reload in range(1, reloads + 1):
            changed = SERVERS[reload % len(SERVERS)]
            versions[changed] = reload
            assert await served.reload(content(versions)) == f'"swap {changed} (args)"'
            after = {name: (await who(client, f"{name}__who"))["pid"] for name in SERVERS}
            assert [name for name in SERVERS if after[name] != pids[name]] == [changed]
            pids = after
            started[changed].add(after[changed])
            assert load.failures == []
        async with asyncio.timeout(60):
            # However quick the reloads were: so many calls were answered meanwhile, or right after.
            while load.answered < reloads:
                await asyncio.sleep(0.01)
        loading.cancel()
        await asyncio.wait([loading])
        assert loading.cancelled(), loading
        assert load.failures == []
        assert load.answered >= reloads
        # Nobody else ever answered, and of all that were started only the last ones are left.
        assert all(load.pids[name] <= started[name] for name in SERVERS)
        old = {pid for name in SERVERS for pid in started[name]} - {*pids.values()}
        await served.until(lambda: not any(map(alive, old)))


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
async def test_a_storm_of_reloads_ends_with_what_the_file_says_and_leaves_nothing(
    ending: signal.Signals, tmp_path: Path
) -> None:
    """Ours: files that change while they are put into force, broken ones between; then an end, in the midst of one."""
    dice, mark = random.Random(ending), tmp_path.name

    def any_servers() -> dict[str, Any]:
        names = dice.sample("abcdef", dice.randint(1, 6))
        return {name: entry(mark, f"version{dice.randint(0, 2)}") for name in names}

    with swept(mark):
        async with serve(tmp_path, config(any_servers())) as served:
            for _ in range(15):
                served.write(config(any_servers()) if dice.random() < 0.8 else "{ broken")
                served.hang_up()
                await asyncio.sleep(dice.choice([0, 0.01, 0.1, 0.5]))
            last = any_servers()
            served.write(config(last))
            served.hang_up()
            await served.until(lambda: _arguments(mark) == sorted(one["args"][-1] for one in last.values()))
            client = await served.web.session()
            for name in last:
                answer = await called(client, f"{name}__work", token=name)
                assert answer["result"]["content"][0]["text"] == name
            served.write(config(any_servers()))
            served.hang_up()
            served.process.send_signal(ending)
            await asyncio.wait_for(served.process.wait(), 9.0)
            await none_left(mark, 2.0)


def _arguments(mark: str) -> list[str]:
    """The last argument of every server that runs."""
    found: list[str] = []
    for pid in marked(mark):
        with contextlib.suppress(OSError, IndexError):
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2].decode())
    return sorted(found)
