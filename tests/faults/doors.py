"""A real gateway process behind each of its doors, and clients of both eras that speak to it with bare hands."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

import muxway.testing.faulty as faulty

from ..pace import PATIENCE, crowding
from ..proof.processes import marked, swept
from ..serve.harness import Web, initialize, modern, request
from ..stdio.harness import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from ..serve.harness import Opened

Door = Literal["stdio", "http", "sse"]
Era = Literal["handshake", "stateless"]

DOORS: tuple[Door, ...] = ("stdio", "http", "sse")
ERAS: tuple[Era, ...] = ("handshake", "stateless")
EXIT = 9.0
"""Seconds in which a gateway that was told to end is gone (docs/behaviour.md#shutdown-and-kill--9)."""

GONE = 2.0
"""Seconds after the end of a gateway in which its servers are gone, too (docs/behaviour.md#shutdown-and-kill--9)."""


@dataclass(frozen=True)
class Outcome:
    """What came of a call, and after how long."""

    message: dict[str, Any]
    seconds: float

    @property
    def ok(self) -> bool:
        return "result" in self.message and not self.message["result"].get("isError")

    @property
    def text(self) -> str:
        """What the tool said."""
        content = self.message["result"].get("content")
        return content[0].get("text", "") if isinstance(content, list) and content else ""

    @property
    def reason(self) -> str:
        """The kind of failure, as the gateway names it."""
        return self._said.get("reason", "")

    @property
    def retry_after(self) -> float | None:
        """Seconds after which to try again, if the gateway says."""
        said = self._said.get("retryAfterMs")
        return None if said is None else said / 1000

    @property
    def why(self) -> str:
        """The message of the failure."""
        return self.message.get("error", {}).get("message", "")

    @property
    def _said(self) -> dict[str, Any]:
        data = self.message.get("error", {}).get("data")
        return data.get("muxway", {}) if isinstance(data, dict) else {}


def combinations(every: Collection[tuple[str, ...]], quick: Collection[tuple[str, ...]]) -> list[Any]:
    """Parameters for tests: each combination under its name, and those that are not quick marked as long."""
    marks = {each: () if each in quick else pytest.mark.long for each in every}
    return [pytest.param(each, id="-".join(each), marks=mark) for each, mark in marks.items()]


class Client:
    """Makes requests of one era. How a message travels is the business of those below."""

    def __init__(self, era: Era) -> None:
        self.era = era
        self._ids = itertools.count(1)

    async def call(self, tool: str, _progress: bool = False, **arguments: Any) -> Outcome:
        """Call a tool, asking for progress if it is to be had."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if _progress:
            params["_meta"] = {"progressToken": "p"}
        began = time.monotonic()
        message = await asyncio.wait_for(self.ask("tools/call", params), PATIENCE)
        return Outcome(message, time.monotonic() - began)

    async def tools(self) -> list[str]:
        """The names of all tools."""
        answer = await asyncio.wait_for(self.ask("tools/list", {}), PATIENCE)
        return [tool["name"] for tool in answer["result"]["tools"]]

    async def hello(self) -> None:
        """Open the conversation, where that is needed."""

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Make a request and wait for its answer."""
        raise NotImplementedError

    def close(self) -> None:
        """Break it off."""

    def _message(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        id_ = next(self._ids)
        return modern(method, params, id_)[0] if self.era == "stateless" else request(method, params, id_)


class Waiting(Client):
    """A client whose answers all come the same way, each to whoever waits for it."""

    def __init__(self, era: Era) -> None:
        super().__init__(era)
        self._open: dict[Any, asyncio.Future[dict[str, Any]]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def hello(self) -> None:
        if self.era == "handshake":
            first = initialize()
            await self._exchange(first)
            await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return await self._exchange(self._message(method, params))

    async def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        answer = self._open[message["id"]] = asyncio.get_running_loop().create_future()
        await self._send(message)
        return await answer

    async def _send(self, message: dict[str, Any]) -> None:
        raise NotImplementedError

    def _take(self, message: Any) -> None:
        waiting = self._open.pop(message.get("id"), None) if "method" not in message else None
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()


class Piped(Waiting):
    """The client at the other end of the gateway's pipe."""

    def __init__(self, era: Era, process: asyncio.subprocess.Process) -> None:
        super().__init__(era)
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._reading = asyncio.create_task(self._read())

    async def _send(self, message: dict[str, Any]) -> None:
        self._stdin.write(json.dumps(message).encode() + b"\n")
        await self._stdin.drain()

    async def _read(self) -> None:
        while line := await self._stdout.readline():
            self._take(json.loads(line))


class Streaming(Waiting):
    """A client of HTTP+SSE: requests are posted, answers come on one stream."""

    def __init__(self, era: Era, web: Web) -> None:
        super().__init__(era)
        self._web = web
        self._where = ""
        self._stream: Opened | None = None

    async def hello(self) -> None:
        self._stream = await self._web.open("GET", "/sse", {"Accept": "text/event-stream"})
        self._where = (await self._stream.event()).data.decode()
        self._reading = asyncio.create_task(self._read(self._stream))
        await super().hello()

    async def _send(self, message: dict[str, Any]) -> None:
        answer = await self._web.post(message, path=self._where)
        assert answer.status == 202, answer

    async def _read(self, stream: Opened) -> None:
        with contextlib.suppress(TimeoutError, ValueError, AssertionError, ConnectionError):
            while True:
                self._take(await stream.message())

    def close(self) -> None:
        super().close()
        if self._stream is not None:
            self._stream.drop()


class Posting(Client):
    """A client of Streamable HTTP: each request has its own response."""

    def __init__(self, era: Era, web: Web) -> None:
        super().__init__(era)
        self._web = web
        self._headers: dict[str, str] = {}

    async def hello(self) -> None:
        if self.era == "handshake":
            self._headers = (await self._web.session()).headers

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        message = self._message(method, params)
        headers = modern(method, params)[1] if self.era == "stateless" else self._headers
        opened = await self._web.open_post(message, headers)
        try:
            if opened.headers["content-type"].startswith("application/json"):
                return json.loads(await opened.rest())
            while True:
                answer = await opened.message()
                if answer.get("id") == message["id"] and "method" not in answer:
                    return answer
        finally:
            opened.writer.close()


class Running:
    """A gateway that runs, and what is known of it."""

    def __init__(self, door: Door, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.door, self.process, self.folder = door, process, folder
        self.began = time.monotonic()
        self.web: Web | None = None

    def log(self) -> str:
        """What it has said so far."""
        return (self.folder / "stderr.log").read_text(errors="replace")

    async def client(self, era: Era) -> Client:
        """A client of this door. Over stdio there is only one."""
        client: Client
        if self.web is None:
            client = Piped(era, self.process)
        elif self.door == "http":
            client = Posting(era, self.web)
        else:
            client = Streaming(era, self.web)
        await client.hello()
        return client

    def journal(self, server: str, event: str) -> list[dict[str, Any]]:
        """What a server wrote of this kind, in all its lives."""
        file = self.folder / f"{server}.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [record for record in map(json.loads, lines) if record["event"] == event]

    def peak(self) -> int:
        """The most memory it ever had, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) // 1024

    async def longest_turn(self) -> float:
        """Seconds of processor time that the longest turn of its event loop took, as `muxway status` tells."""
        status = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "muxway", "status", "--json", "--pid", str(self.process.pid)),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "XDG_RUNTIME_DIR": str(self.folder / "run")},
        )
        said, _ = await asyncio.wait_for(status.communicate(), PATIENCE)
        return json.loads(said)["longestTurn"]

    async def end(self, how: str) -> float:
        """End it by a signal or by the end of its input; returns the seconds that took."""
        began = time.monotonic()
        if how == "eof":
            assert self.process.stdin is not None
            self.process.stdin.close()
        else:
            self.process.send_signal(getattr(signal, how))
        await asyncio.wait_for(self.process.wait(), PATIENCE)
        return time.monotonic() - began

    def survivors(self) -> list[int]:
        """Processes of this gateway's servers that still run."""
        return marked(str(self.folder))

    async def left(self) -> list[int]:
        """Those that still run when the last of them has had its time to end."""
        end = time.monotonic() + GONE + crowding()
        while (found := self.survivors()) and time.monotonic() < end:
            await asyncio.sleep(0.05)
        return found


def child(folder: Path, name: str, era: Era, **options: Any) -> dict[str, Any]:
    """The configuration of one faulty server. `start` and `stop` are its faults, the rest is configuration.

    The folder of the test stands in its command line, so that its processes can be told from all others.
    """
    faults = [f"--{key}={options.pop(key)}" for key in ("start", "stop") if key in options]
    arguments = [
        "-I",
        "-S",
        faulty.__file__,
        f"--era={era}",
        f"--journal={folder / name}.jsonl",
        *faults,
        "--mark",
        str(folder),
    ]
    return {"command": sys.executable, "args": arguments, **options}


@contextlib.asynccontextmanager
async def gateway(
    door: Door, folder: Path, servers: dict[str, Any], settings: dict[str, Any]
) -> AsyncIterator[Running]:
    """Run a gateway with these servers. Whatever is left of it at the end is swept up, after the test has looked."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "muxway.json"
    file.write_text(json.dumps({"mcpServers": servers, "gateway": settings}))
    runtime = folder / "run"
    runtime.mkdir(mode=0o700)
    verb = ["stdio"] if door == "stdio" else ["serve", "--port", "0", "--keep-open"]
    with (folder / "stderr.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "muxway", *verb, "--config", str(file)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE if door == "stdio" else log,
            stderr=log,
            env={**os.environ, "XDG_RUNTIME_DIR": str(runtime), "CANARY_OF_THE_TESTS": "x"},
            limit=1 << 27,
        )
    running = Running(door, process, folder)
    with swept(str(folder)):
        try:
            if door != "stdio":
                await until(lambda: "muxway listens on" in running.log() or process.returncode is not None, PATIENCE)
                found = re.search(r"listens on http://127\.0\.0\.1:(\d+)", running.log())
                assert found is not None, running.log()
                running.web = Web(None, None, int(found[1]))  # type: ignore[arg-type]
            yield running
        finally:
            if running.web is not None:
                running.web.close()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
