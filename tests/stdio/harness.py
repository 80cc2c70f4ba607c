"""`muxway stdio` as a real process on real pipes, and a client that speaks to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muxway.testing import RawClient

from ..pace import PATIENCE, crowding

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

CHILD = Path(__file__).parent / "child.py"


def child(*arguments: str, **entry: Any) -> dict[str, Any]:
    """The configuration of the misbehaving server."""
    return {"command": sys.executable, "args": [str(CHILD), *arguments], **entry}


class Process:
    """A running gateway. Something for a RawClient to speak to."""

    def __init__(self, process: asyncio.subprocess.Process, stderr: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.pid = process.pid
        self._stdin, self._stdout = process.stdin, process.stdout
        self._stderr = stderr

    def send(self, frame: bytes) -> None:
        self._stdin.write(frame + b"\n")

    async def receive(self) -> bytes:
        line = await self._stdout.readline()
        if not line:
            raise EOFError(self.log())
        return line.rstrip(b"\n")

    def close(self) -> None:
        """Close its stdin."""
        self._stdin.close()

    async def ended(self) -> int:
        """Its exit status, once it has ended."""
        return await asyncio.wait_for(self.process.wait(), PATIENCE)

    def log(self) -> str:
        """What it has logged so far."""
        return self._stderr.read_text(errors="replace")


@contextlib.asynccontextmanager
async def muxway(folder: Path, config: dict[str, Any], *flags: str, **environ: str) -> AsyncIterator[Process]:
    """Run `muxway stdio` with this configuration."""
    file, stderr = folder / "muxway.json", folder / "stderr.log"
    file.write_text(json.dumps(config))
    with stderr.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "muxway", "stdio", "--config", str(file), *flags),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={**os.environ, **environ},
            limit=1 << 27,
        )
    try:
        yield Process(process, stderr)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def connected(process: Process, *servers: str, revision: str = "2025-11-25") -> RawClient:
    """A client whose listing shows tools of each of these servers."""
    client = RawClient(process, revision=revision)
    await client.hello()
    while True:
        names = await client.tools()
        if all(any(name.startswith(server) for name in names) for server in servers):
            client.notices.clear()
            return client
        await client.notice("notifications/tools/list_changed")


def alive(pids: Iterable[int]) -> list[int]:
    """Those of the processes that still run (a zombie does not)."""
    running: list[int] = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "ZX":
            running.append(pid)
    return running


def children_of(pid: int) -> list[int]:
    """Every descendant of a process."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, todo = [], [pid]
    while todo:
        todo += (below := parents.get(todo.pop(), []))
        found += below
    return found


async def until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until something is so; fail if it is not after that long."""
    end = time.monotonic() + seconds + crowding()
    while not condition():
        assert time.monotonic() < end, f"not so after {seconds} s"
        await asyncio.sleep(0.02)
