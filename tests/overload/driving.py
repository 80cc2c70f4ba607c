"""A `muxway serve` in front of busy servers, and clients that ask it for more than it can do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..pace import PATIENCE
from ..serve.harness import BOTH, initialize, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SERVER = Path(__file__).with_name("busy_server.py")
_TICK = 0.005


@dataclass(frozen=True)
class Outcome:
    """What became of one call."""

    answer: dict[str, Any]
    seconds: float
    ended: float

    @property
    def good(self) -> bool:
        """Whether it succeeded."""
        return "result" in self.answer


class Client:
    """One session over as many connections as it takes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._session = ""
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._all: list[asyncio.StreamWriter] = []

    async def hello(self) -> None:
        """Open the session."""
        _, headers = await self.post(initialize())
        self._session = headers["mcp-session-id"]

    async def call(self, tool: str, id_: int) -> Outcome:
        """Call a tool."""
        began = time.monotonic()
        answer, _ = await self.post(request("tools/call", {"name": tool, "arguments": {}}, id_))
        ended = time.monotonic()
        return Outcome(answer, ended - began, ended)

    async def post(self, message: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Send a message; the answer, and the headers it came with."""
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            self._all.append(writer)
        body = json.dumps(message).encode()
        session = f"Mcp-Session-Id: {self._session}\r\n" if self._session else ""
        writer.write(
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Type: application/json\r\n"
            f"Accept: {BOTH}\r\n{session}Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head.split("\r\n"))
        }
        if "content-length" in headers:
            answer = json.loads(await reader.readexactly(int(headers["content-length"])))
            self._idle.append((reader, writer))
            return answer, headers
        return await self._last_event(reader), headers

    async def _last_event(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        """The answer of a stream, which is its last event; its connection is not used again."""
        while True:
            data = await reader.readuntil(b"\n\n")
            found = re.search(rb"^data: (\{.*\})$", data, re.MULTILINE)
            if found is not None:
                return json.loads(found[1])

    def close(self) -> None:
        """Break off everything."""
        for writer in self._all:
            writer.transport.abort()


async def closed_loop(client: Client, tool: str, workers: int, seconds: float) -> float:
    """Calls per second that are done if each worker asks when it has its answer."""
    end = time.monotonic() + seconds

    async def work(worker: int) -> int:
        done = 0
        while time.monotonic() < end:
            done += (await client.call(tool, worker * 1_000_000 + done)).good
        return done

    return sum(await asyncio.gather(*map(work, range(workers)))) / seconds


async def open_loop(client: Client, tool: str, rate: float, seconds: float) -> list[Outcome]:
    """Send so many calls a second, whatever comes back; what became of each."""
    began = time.monotonic()
    calls: list[asyncio.Task[Outcome]] = []
    while (passed := time.monotonic() - began) < seconds:
        while len(calls) < passed * rate:
            calls.append(asyncio.create_task(client.call(tool, 10_000_000 + len(calls))))
        await asyncio.sleep(_TICK)
    async with asyncio.timeout(PATIENCE):
        return await asyncio.gather(*calls)


class Probe:
    """A modest client of another server, all the time."""

    def __init__(self, client: Client, tool: str) -> None:
        self.outcomes: list[Outcome] = []
        self._client, self._tool = client, tool

    @contextlib.asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """Call while something else goes on."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def answered(self, count: int) -> None:
        """Wait until it has had so many answers."""
        async with asyncio.timeout(PATIENCE):
            while len(self.outcomes) < count:
                await asyncio.sleep(0.02)

    async def _run(self) -> None:
        while True:
            self.outcomes.append(await self._client.call(self._tool, len(self.outcomes)))
            await asyncio.sleep(0.02)


class Served:
    """The command as a process."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self._port = port
        self._clients: list[Client] = []

    async def client(self) -> Client:
        """A client with a session of its own."""
        client = self.stranger()
        await client.hello()
        return client

    def stranger(self) -> Client:
        """A client without a session."""
        self._clients.append(Client(self._port))
        return self._clients[-1]

    @property
    def memory(self) -> int:
        """Bytes it uses."""
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * 4096

    def close(self) -> None:
        """Break off every client."""
        for client in self._clients:
            client.close()


@contextlib.asynccontextmanager
async def served(folder: Path, servers: dict[str, dict[str, Any]], **gateway: Any) -> AsyncIterator[Served]:
    """Serve these busy servers over HTTP, each with these settings."""
    entries = {name: {"command": sys.executable, "args": [str(SERVER)], **entry} for name, entry in servers.items()}
    file, stderr = folder / "servers.json", folder / "stderr"
    file.write_text(json.dumps({"mcpServers": entries, "gateway": gateway}))
    with stderr.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "muxway", "serve", "-c", str(file), "--port", "0"), stderr=log
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while f"{len(servers)} of {len(servers)} servers up" not in (said := stderr.read_text()):
            assert process.returncode is None, said
            assert time.monotonic() < deadline, said
            await asyncio.sleep(0.02)
        found = re.search(r"listens on http://127\.0\.0\.1:(\d+)", said)
        assert found is not None, said
        running = Served(process, int(found[1]))
        try:
            yield running
        finally:
            # Also when it has failed: what is left open complains, at length, in the next test.
            running.close()
        process.terminate()
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0, stderr.read_text()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
