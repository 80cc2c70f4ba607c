"""One started target: what the kernel says it costs, its end, and, if it speaks stdio, its pipes and handshake.

Reads block; `within` bounds them with the interval timer, so that the timed loop pays nothing for its watchdog.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import time
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

REVISION = "2025-06-18"
"""Spoken to every target: the newest handshake revision that all peers know."""
NEXT_PAGE = re.compile(rb'"nextCursor":\s*("(?:[^"\\]|\\.)*")')


class TargetError(Exception):
    """A target did not start, died, hung, or gave a wrong answer."""


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Raise TargetError if the block is not done in time. Main thread only, not nested."""

    def expire(*_: object) -> None:
        raise TargetError(f"{what}: no end after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Process:
    """A started program: what it costs, and its end."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path, *, pipes: bool) -> None:
        self.name = name
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else output,
                stderr=output,
                env={**os.environ, **env},
                bufsize=0,
                start_new_session=True,
            )

    # Costs

    def cpu(self) -> float:
        """Seconds of CPU used so far by this process alone, children not counted."""
        # What clock_getcpuclockid(3) would give for this pid. `/proc` counts in ticks of 10 ms, too coarse for a slice.
        return time.clock_gettime(~self._process.pid << 3 | 2)

    def rss(self) -> float:
        """Resident memory of this process alone, in MB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6

    # The end

    def gone(self) -> TargetError:
        """Describe a target that has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        last = self._log.read_text(errors="replace").strip().splitlines()[-3:]
        return TargetError(f"{self.name} ended (status {self._process.poll()}): " + " | ".join(last))

    def close(self) -> None:
        """End the target and all it started: politely first, then the whole process group."""
        family = descendants(self._process.pid)
        self.ask_to_end()
        for step in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2)
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, step)
        self._process.wait()
        # The SDKs give each server a session of its own, out of reach of the group.
        until = time.monotonic() + 1
        while (left := [entry for entry in family if started(entry[0]) == entry[1]]) and time.monotonic() < until:
            time.sleep(0.01)
        for pid, _ in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def ask_to_end(self) -> None:
        """Ask it to end by itself."""
        self._process.terminate()


class Running(Process):
    """A target's process with MCP on its stdin and stdout."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        super().__init__(name, command, env, log, pipes=True)
        self.tools: list[str] = []
        """Names of the last listing that was decoded."""
        self.ids = count(1_000_000)
        """Ids for requests, none used twice; long ones, so that all have the same number of digits for a while."""
        self.unread = b""
        """What was read beyond the last line."""
        assert self._process.stdin
        assert self._process.stdout
        self.stdin, self.stdout = self._process.stdin.fileno(), self._process.stdout.fileno()

    # Talking

    def send(self, method: str, params: dict[str, Any] | None = None, number: int | None = None) -> None:
        """Write one request, or one notice when there is no number."""
        message: dict[str, Any] = {"jsonrpc": "2.0"}
        if number is not None:
            message["id"] = number
        self.write(json.dumps({**message, "method": method, "params": params or {}}).encode() + b"\n")

    def write(self, data: bytes) -> None:
        """Write everything, or say why the target is gone."""
        try:
            while data:
                data = data[os.write(self.stdin, data) :]
        except BrokenPipeError:
            raise self.gone() from None

    def line(self) -> bytes:
        """Read one line, in time linear in its length."""
        chunks = [self.unread]
        while b"\n" not in chunks[-1]:
            chunk = os.read(self.stdout, 1 << 20)
            if not chunk:
                raise self.gone()
            chunks.append(chunk)
        line, _, self.unread = b"".join(chunks).partition(b"\n")
        return line

    def reply(self, number: int) -> dict[str, Any]:
        """Return the decoded result of a request, passing over everything else."""
        while True:
            message = json.loads(self.line())
            if message.get("id") == number and "method" not in message:
                if "result" not in message:
                    raise TargetError(f"{self.name} answered with an error: {message.get('error')}")
                return message["result"]
            self.heard(message)

    def heard(self, message: dict[str, Any]) -> None:
        """Pass over a notice and turn down a request; an answer nobody waits for is an error."""
        if "method" not in message:
            raise TargetError(f"{self.name} answered a request nobody made: {str(message)[:200]}")
        if "id" in message:
            error = {"code": -32601, "message": "not offered by the benchmark"}
            self.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode() + b"\n")

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Make one request and return its result."""
        number = next(self.ids)
        self.send(method, params, number)
        return self.reply(number)

    def handshake(self) -> None:
        """Open the session."""
        client = {"name": "muxway-bench", "version": "1"}
        self.ask("initialize", {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": client})
        self.send("notifications/initialized")

    def list_until(self, suffix: str, least: int) -> None:
        """List tools until `least` names end in `suffix`; ask again on `list_changed`, or after 10 ms at the latest."""
        while True:
            self.tools = []
            cursor: dict[str, Any] = {}
            while True:
                page = self.ask("tools/list", cursor)
                self.tools += [tool["name"] for tool in page["tools"]]
                if not page.get("nextCursor"):
                    break
                cursor = {"cursor": page["nextCursor"]}
            if sum(name.endswith(suffix) for name in self.tools) >= least:
                return
            if not self.unread:
                select.select([self.stdout], [], [], 0.01)

    def list_raw(self) -> int:
        """List all tools without decoding them; return the bytes of the answer."""
        size, params = 0, b"{}"
        while True:
            self.write(b'{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":%b}\n' % (next(self.ids), params))
            while b'"tools":' not in (line := self.line())[:200]:
                self.heard(json.loads(line))
            size += len(line)
            # The key stands before or after the array of tools, never deep inside it.
            more = NEXT_PAGE.search(line[:200]) or NEXT_PAGE.search(line[-400:])
            if not more:
                return size
            params = b'{"cursor":%b}' % more[1]

    @property
    def echo(self) -> str:
        """The public name of the echo tool here."""
        return next(name for name in self.tools if name.endswith("echo"))

    def ask_to_end(self) -> None:
        """End its input."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            pipe.close()


def started(pid: int) -> int | None:
    """When a live process was started, in ticks; with its pid this names one process for ever."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[19])


def descendants(pid: int) -> list[tuple[int, int | None]]:
    """All processes below this one, each with its start."""
    found: list[tuple[int, int | None]] = []
    queue = [pid]
    while queue:
        parent = queue.pop()
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                below = [int(child) for child in task.read_text().split()]
                queue += below
                found += [(child, started(child)) for child in below]
    return found
