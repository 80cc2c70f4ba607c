"""When the gateway or the reaper is killed, nothing is left; when nothing happens, nothing is spent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import muxway.errors
from muxway.errors import SpawnError
from muxway.net.processes.manager import Exit

from ..pace import PATIENCE, crowding
from .conftest import Stage, gone, is_alive, open_fds, read_line, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OWNER = str(Path(__file__).with_name("owner.py"))
SOURCE = str(Path(muxway.errors.__file__).parents[1])
BEHAVIOURS = ["clean", "ignore-eof", "ignore-eof,ignore-term", "grandchild", "daemon", "ignore-eof,grandchild,daemon"]


@contextlib.asynccontextmanager
async def owner(*args: str) -> AsyncIterator[tuple[int, dict[str, Any]]]:
    """A program of its own that owns a process manager: its pid, and what it said about its processes."""
    process = subprocess.Popen(
        [sys.executable, OWNER, *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCE},
        start_new_session=True,
    )
    with process:
        assert process.stdout
        os.set_blocking(process.stdout.fileno(), False)
        about: dict[str, Any] = {}
        try:
            about = json.loads(await read_line(process.stdout.fileno()))
            yield process.pid, about
        finally:
            process.kill()
            if "copy" in about:
                os.kill(about["copy"], signal.SIGKILL)


async def test_nothing_is_left_two_seconds_after_the_gateway_was_killed() -> None:
    """docs/behaviour.md#shutdown-and-kill--9: after `kill -9` of muxway no child or grandchild is left within 2 s."""
    async with owner(*BEHAVIOURS) as (pid, about):
        assert all(map(is_alive, about["pids"]))
        os.kill(pid, signal.SIGKILL)
        await gone([*about["pids"], about["reaper"]], within=2.0)


async def test_nothing_is_left_though_a_forked_process_holds_the_socket() -> None:
    """Ours: multiprocessing in the host program keeps a copy of our end open, so there is no end of file."""
    async with owner("--fork", *BEHAVIOURS) as (pid, about):
        os.kill(pid, signal.SIGKILL)
        await gone([*about["pids"], about["reaper"]], within=2.0)
        assert is_alive(about["copy"])


async def test_an_interrupt_to_the_gateways_group_leaves_the_children_alone() -> None:
    """docs/behaviour.md#shutdown-and-kill--9.

    Survives SIGINT to the group. The gateway decides what a Ctrl-C means, not the terminal.
    """
    async with owner(*BEHAVIOURS) as (pid, about):
        os.kill(pid, signal.SIGSTOP)  # so that its own end does not end the children
        os.killpg(pid, signal.SIGINT)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            os.kill(about["reaper"], signum)
        # A signal that kills does so before the next one can be seen delivered.
        await until(lambda: not _pending(about["reaper"]))
        assert all(map(is_alive, [*about["pids"], about["reaper"]]))


def _pending(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd")))


async def test_when_the_reaper_is_killed_its_children_end_and_the_next_start_works(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """docs/behaviour.md#shutdown-and-kill--9.

    If the reaper itself dies, the gateway kills every known group and starts a new reaper.
    """
    child, pids = await stage.act("ignore-eof", "ignore-term", "grandchild", "daemon")
    idle, more = await stage.act()
    first = stage.reaper
    os.kill(first, signal.SIGKILL)
    ends = await asyncio.wait_for(asyncio.gather(child.exited, idle.exited), PATIENCE)
    assert not any(map(is_alive, [*pids, *more]))
    assert [end.status for end in ends] == [-signal.SIGKILL] * 2
    assert "reaper died" in str(ends[0])
    assert await child.stop(close_stdin=stage.close_stdin(child)) == ends[0]
    assert "the reaper of child processes died" in caplog.text

    again, _ = await stage.act()
    assert stage.reaper != first
    os.write(again.stdin, b"hello\n")
    assert await read_line(again.stdout) == b"HELLO\n"


async def test_a_start_while_the_reaper_dies_is_repeated_with_a_new_one(stage: Stage) -> None:
    await stage.act()
    os.kill(stage.reaper, signal.SIGKILL)
    child, _ = await stage.act()
    os.write(child.stdin, b"hello\n")
    assert await read_line(child.stdout) == b"HELLO\n"


async def test_closing_while_the_reaper_hangs_is_bounded_and_leaves_nothing(stage: Stage) -> None:
    child, pids = await stage.act("ignore-eof", "ignore-term", "grandchild", "daemon")
    os.kill(stage.reaper, signal.SIGSTOP)
    start = time.monotonic()
    await stage.processes.aclose()
    assert time.monotonic() - start < 6 + crowding()
    assert not any(map(is_alive, pids))
    assert (await child.exited).note


async def test_orders_wait_while_the_reaper_does_not_read(stage: Stage) -> None:
    """The socket is full of large environments; the loop goes on, and all of it arrives in the end."""
    await stage.act()
    os.kill(stage.reaper, signal.SIGSTOP)
    env = {f"V{number}": "x" * 100_000 for number in range(5)}
    starting = [asyncio.ensure_future(stage.run("60", path="/bin/sleep", env=env)) for _ in range(10)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in starting)
    os.kill(stage.reaper, signal.SIGCONT)
    children = await asyncio.wait_for(asyncio.gather(*starting), PATIENCE)
    assert all(is_alive(child.pid) for child in children)


async def test_an_idle_reaper_spends_nothing_and_is_small(stage: Stage) -> None:
    """Ours: it stands beside every gateway, and counts with its memory."""
    await asyncio.gather(*(stage.act() for _ in range(10)))
    # What it was asked for it has done; it has yet to lie down.
    await until(lambda: _rests(stage.reaper))
    before = _cpu_ticks(stage.reaper), _switches(stage.reaper)
    await asyncio.sleep(0.5)  # what is measured is what happens while nothing happens
    assert (_cpu_ticks(stage.reaper), _switches(stage.reaper)) == before
    status = Path(f"/proc/{stage.reaper}/status").read_text()
    rss = int(status.partition("VmRSS:")[2].split()[0])
    assert rss < 20_000, "11,000 kB with Python 3.11"


def _cpu_ticks(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    utime, stime = stat[stat.rindex(")") + 2 :].split()[11:13]
    return int(utime) + int(stime)


def _rests(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat[stat.rindex(")") + 2] == "S"


def _switches(pid: int) -> str:
    """How often it has woken up so far: it waits in poll without a timeout."""
    status = Path(f"/proc/{pid}/status").read_text()
    return status.partition("\nvoluntary_ctxt_switches:")[2].split()[0]


async def test_a_process_manager_works_in_any_thread() -> None:
    """Ours: muxway is also a library; no signal handlers, no child watchers, no main thread."""

    async def work() -> Exit:
        from muxway.net.processes.manager import ProcessManager

        stage = Stage(ProcessManager())
        try:
            child, _ = await stage.act()
            return await child.stop(close_stdin=stage.close_stdin(child))
        finally:
            await stage.processes.aclose()
            stage.close_all()

    loop_type = type(asyncio.get_running_loop())

    def run() -> Exit:
        with asyncio.Runner(loop_factory=loop_type) as runner:
            return runner.run(work())

    handler = signal.getsignal(signal.SIGCHLD)
    assert await asyncio.to_thread(run) == Exit(status=0)
    assert signal.getsignal(signal.SIGCHLD) is handler


async def test_the_fds_of_ended_children_are_not_kept(stage: Stage) -> None:
    await stage.act()
    before = open_fds(), open_fds(stage.reaper)
    for _ in range(5):
        child, _ = await stage.act()
        await child.stop(close_stdin=stage.close_stdin(child))
        stage.close(child.stdout)
        stage.close(child.stderr)
        with pytest.raises(SpawnError):
            await stage.run(path="/no/such/program")
    assert (open_fds(), open_fds(stage.reaper)) == before
