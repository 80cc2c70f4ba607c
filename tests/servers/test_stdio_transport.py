"""A child process on its pipes: how it is ended, and what others may do to the pipes it leaves."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING

import pytest

from muxway.config import parse_server
from muxway.net.pipes import PipeReader, PipeWriter, Turn, enlarge
from muxway.net.processes.journal import Journal
from muxway.net.processes.manager import ProcessManager
from muxway.servers.transports.intake import Intake
from muxway.servers.transports.stdio import StdioServerTransport
from muxway.wire.framing import LineFramer

from ..pace import crowding

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from muxway.errors import RpcError
    from muxway.wire.framing import Oversized

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
other = subprocess.Popen([sys.executable, "-c", deaf])
print(other.pid, flush=True)
time.sleep(60)
"""
LEAVES_A_WRITER = """
import os, sys
if os.fork():
    os._exit(3)
try:
    while True:
        os.write(1, b"y" * 65536 + b"\\n")
        os.write(2, b"n" * 100 + b"\\n")
except OSError:
    pass
"""


class Running:
    """A child and what was heard of it."""

    def __init__(self, processes: ProcessManager, code: str) -> None:
        config = parse_server("up", {"command": sys.executable, "args": ["-c", code]})
        self.frames: list[bytes | Oversized] = []
        self.heard = asyncio.Event()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.channel = StdioServerTransport(config, processes, Turn(), 1 << 20, Journal())

    async def open(self) -> None:
        def hear(frames: object, about: bytes = b"") -> None:
            self.frames += frames  # type: ignore[operator]
            self.heard.set()

        def fail(id_: bytes, error: RpcError, *, broken: bool) -> None:
            raise AssertionError("a pipe carries all requests alike")

        await self.channel.open(hear, self.lost.set_result, fail)


@pytest.fixture
async def processes() -> AsyncIterator[ProcessManager]:
    opened = ProcessManager()
    try:
        yield opened
    finally:
        await opened.aclose()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_child_that_was_declared_dead_is_killed_at_once_with_its_tree(processes: ProcessManager) -> None:
    """docs/behaviour.md#a-server-hangs: no four seconds of grace for a child that answers nothing."""
    async with asyncio.timeout(20):
        child = Running(processes, STUBBORN)
        await child.open()
        await child.heard.wait()
        pid, other = child.channel.pid, int(child.frames[0])  # type: ignore[arg-type]
        assert pid is not None
        assert alive(pid)
        assert alive(other)
        began = time.monotonic()
        await child.channel.close(at_once=True)
        assert time.monotonic() - began < 1.5 + crowding()
        while alive(pid) or alive(other):
            await asyncio.sleep(0.01)
    assert not child.lost.done()


async def test_what_others_write_into_a_dead_childs_pipes_holds_nobody_up(processes: ProcessManager) -> None:
    """docs/behaviour.md#a-server-crashes.

    The call errs in a second, though a process it left behind writes without end.
    """
    lag = 0.0

    async def watch() -> None:
        nonlocal lag
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            lag = max(lag, time.monotonic() - began)

    watching = asyncio.create_task(watch())
    async with asyncio.timeout(20):
        child = Running(processes, LEAVES_A_WRITER)
        await child.open()
        assert await child.lost == "exited with status 3"
        await child.channel.close(at_once=True)
    watching.cancel()
    assert lag < 1.0 + crowding()


async def test_draining_a_pipe_ends_while_it_is_being_filled() -> None:
    """Ours: only what is in it already is of interest. Here each read puts something new into it."""
    reading, writing = os.pipe()
    for fd in (reading, writing):
        os.set_blocking(fd, False)
    size = 0

    def refill(lines: Sequence[bytes | Oversized]) -> int:
        nonlocal size
        size += sum(len(line) + 1 for line in lines if isinstance(line, bytes))
        os.write(writing, b"x" * 4095 + b"\n")
        return len(lines)

    intake = Intake(reading, Turn(), LineFramer(), refill, lambda: None)
    os.write(writing, b"x" * 4095 + b"\n")
    async with asyncio.timeout(5):
        await intake.drain()
    assert 4096 <= size <= 2 << 20
    intake.close()
    os.close(writing)


async def test_a_child_that_reads_nothing_does_not_make_us_wait() -> None:
    """docs/behaviour.md#a-server-hangs: the loop never waits for a pipe; what is not taken is counted."""
    reading, writing = os.pipe()
    for fd in (reading, writing):
        os.set_blocking(fd, False)
    writer = PipeWriter(writing, Turn(), lambda: None)
    for _ in range(64):
        writer.send([b"x" * 65536])
    await asyncio.sleep(0.05)
    assert writer.queued > 0
    writer.close()
    os.close(reading)


@pytest.mark.parametrize(("line", "largest"), [(b"x" * 99 + b"\n", 32 * 1024), (b"x" * 99_999 + b"\n", 256 * 1024)])
async def test_many_small_messages_are_read_in_small_pieces_and_large_ones_in_large(line: bytes, largest: int) -> None:
    """docs/behaviour.md#a-server-talks-nonsense.

    A flood of one child keeps the others waiting for one piece of it at most.
    """
    reading, writing = os.pipe()
    enlarge(writing)
    for fd in (reading, writing):
        os.set_blocking(fd, False)
    sizes: list[int] = []
    ended = asyncio.Event()
    written = os.write(writing, line * (1_000_000 // len(line)))
    os.close(writing)
    PipeReader(reading, Turn(), lambda data: sizes.append(len(data)), ended.set)
    async with asyncio.timeout(5):
        await ended.wait()
    assert sum(sizes) == written
    assert max(sizes) <= largest
    if written > 512 * 1024:  # else the system did not let the pipe be enlarged
        assert max(sizes) == largest
