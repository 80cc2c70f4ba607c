"""Both event loops, a process manager that is always closed, and ways to wait that end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop

from muxway.net.processes.manager import ChildProcess, ProcessManager

from ..pace import PATIENCE, crowding

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

ACTOR = str(Path(__file__).with_name("actor.py"))


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Every test of this folder runs on both."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def is_alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    return state(pid) not in ("", "Z", "X")


def state(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat[stat.rindex(")") + 2]


def open_fds(pid: int | str = "self") -> int:
    """How many fds a process has open; 0 if it shows them to root only, as reaper and gateway do."""
    with contextlib.suppress(PermissionError):
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return 0


def children_of(pid: int) -> list[int]:
    children: list[int] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if entry.name.isdecimal():
                stat = (entry / "stat").read_text()
                if int(stat[stat.rindex(")") + 2 :].split()[1]) == pid:
                    children.append(int(entry.name))
    return children


async def until(condition: Callable[[], bool], *, within: float = PATIENCE) -> float:
    """Wait for the condition and return how long it took; fail when it takes too long."""
    start = time.monotonic()
    within += crowding()
    while not condition():
        assert time.monotonic() - start < within, "it did not happen in time"
        await asyncio.sleep(0.005)
    return time.monotonic() - start


async def gone(pids: Iterable[int], *, within: float = PATIENCE) -> float:
    """Wait until none of the processes is left."""
    pids = list(pids)
    assert pids
    start = time.monotonic()
    within += crowding()
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() - start < within, f"still alive: {left}"
        await asyncio.sleep(0.005)
    return time.monotonic() - start


async def read_line(fd: int) -> bytes:
    line = b""
    deadline = time.monotonic() + PATIENCE
    while not line.endswith(b"\n"):
        assert time.monotonic() < deadline, f"no line, only {line!r}"
        try:
            chunk = os.read(fd, 1)
        except BlockingIOError:
            await asyncio.sleep(0.002)
        else:
            assert chunk, f"end of file after {line!r}"
            line += chunk
    return line


async def read_all(fd: int) -> bytes:
    parts: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < deadline, "no end of file"
        try:
            part = os.read(fd, 65536)
        except BlockingIOError:
            await asyncio.sleep(0.002)
        else:
            if not part:
                return b"".join(parts)
            parts.append(part)


class Stage:
    """A processes and what the tests do with it again and again."""

    def __init__(self, processes: ProcessManager) -> None:
        self.processes = processes
        self._open: set[int] = set()

    @property
    def reaper(self) -> int:
        """Pid of the reaper now in service."""
        return self.processes._reapers[-1]._process.pid

    async def run(
        self, *argv: str, path: str = sys.executable, env: dict[str, str] | None = None, cwd: str | None = None
    ) -> ChildProcess:
        """Start any program; Python if nothing is said."""
        child = await self.processes.spawn(["program", *argv], path=path, env=env or {}, cwd=cwd)
        self._open |= {child.stdin, child.stdout, child.stderr}
        return child

    async def python(
        self, code: str, *args: str, env: dict[str, str] | None = None, cwd: str | None = None
    ) -> ChildProcess:
        """Run a few lines of Python."""
        return await self.run("-I", "-S", "-c", code, *args, env=env, cwd=cwd)

    async def act(self, *parts: str) -> tuple[ChildProcess, list[int]]:
        """Start an actor and wait until it has said which processes it is made of."""
        child = await self.run("-I", "-S", ACTOR, *parts)
        return child, json.loads(await read_line(child.stdout))

    def close(self, fd: int) -> None:
        """Close one of our ends."""
        self._open.discard(fd)
        os.close(fd)

    def close_stdin(self, child: ChildProcess) -> Callable[[], None]:
        return lambda: self.close(child.stdin)

    def close_all(self) -> None:
        for fd in list(self._open):
            self.close(fd)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage(ProcessManager())
    try:
        yield stage
    finally:
        await stage.processes.aclose()
        stage.close_all()
