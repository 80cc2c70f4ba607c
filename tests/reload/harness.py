"""`muxway serve` as a real process whose configuration changes, and clients that use it meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..pace import PATIENCE
from ..serve.harness import Web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ..serve.harness import Client, Opened

CHILD = Path(__file__).parent / "child.py"


def server(*tools: str, **entry: Any) -> dict[str, Any]:
    """The configuration of a server that has `who` and these tools."""
    return {"command": sys.executable, "args": [str(CHILD), *tools], **entry}


def config(servers: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    return {"mcpServers": {"a": server()} if servers is None else servers, **top}


class Served:
    """A gateway, its file, and a way to speak to it."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.process, self.file = process, folder / "servers.json"
        self._stderr = folder / "stderr.log"
        self.web: Web

    def log(self) -> str:
        """What it has said so far."""
        return self._stderr.read_text(errors="replace")

    def times(self, text: str) -> int:
        """How often it has said this."""
        return self.log().count(text)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something; what it said is shown if it does not happen."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"not so after {PATIENCE} s; the log:\n{self.log()}"
            assert self.process.returncode is None, self.log()
            await asyncio.sleep(0.02)

    def write(self, content: object) -> None:
        """Put this in the place of its file."""
        text = content if isinstance(content, str) else json.dumps(content)
        beside = self.file.with_suffix(".new")
        beside.write_text(text)
        beside.rename(self.file)

    def hang_up(self) -> None:
        """Ask for a reload."""
        self.process.send_signal(signal.SIGHUP)

    async def _ask(self) -> dict[str, Any]:
        """What `muxway reload` asks."""
        (socket,) = (self.file.parent / "run" / "muxway").iterdir()
        reader, writer = await asyncio.open_unix_connection(socket)
        writer.write(b'{"ask": "reload"}\n')
        line = await asyncio.wait_for(reader.readline(), PATIENCE)
        writer.close()
        return json.loads(line)["result"]

    async def reload(self, content: object) -> str:
        """Put this into force, until every server is ready or has failed; returns what is said to have changed."""
        self.write(content)
        done = await self._ask()
        assert done["problems"] == [], done
        return [line for line in self.log().splitlines() if "config reloaded" in line][-1].partition("changes=")[2]

    async def refuse(self, content: object) -> list[str]:
        """The same for what cannot be put into force; returns the problems."""
        before = len(self.log())
        self.write(content)
        problems = (await self._ask())["problems"]
        told = self.log()[before:]
        assert "config not reloaded, what ran before goes on" in told
        assert told.count("config problem") == len(problems)
        return problems


@contextlib.asynccontextmanager
async def serve(
    folder: Path, content: dict[str, Any], *flags: str, chain: Path | None = None, settle: bool = True, **environ: str
) -> AsyncIterator[Served]:
    """Run `muxway serve` with this configuration, or a chain, until every server is up."""
    (folder / "servers.json").write_text(json.dumps(content))
    runtime = folder / "run"
    runtime.mkdir(mode=0o700)
    with (folder / "stderr.log").open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "muxway",
                "serve",
                "--config",
                str(chain or folder / "servers.json"),
                "--port",
                "0",
                *flags,
            ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            env={**os.environ, "XDG_RUNTIME_DIR": str(runtime), **environ},
        )
    served = Served(process, folder)
    try:
        await served.until(lambda: "muxway listens on" in served.log())
        found = re.search(r"listens on http://127\.0\.0\.1:(\d+)", served.log())
        assert found is not None, served.log()
        served.web = Web(None, None, int(found[1]))  # type: ignore[arg-type]
        if settle:
            await served.until(lambda: " servers up, " in served.log())
        yield served
    finally:
        if hasattr(served, "web"):
            served.web.close()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def called(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """The answer to a call, however it comes."""
    opened = await client.start("tools/call", {"name": name, "arguments": arguments})
    try:
        if opened.headers.get("content-type") != "text/event-stream":
            return json.loads(await opened.rest())
        while "id" not in (message := await opened.message()):
            pass
        return message
    finally:
        opened.drop()


async def who(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """What the process behind a tool says of itself."""
    answer = await called(client, name, **arguments)
    assert "result" in answer, answer
    return answer["result"]["structuredContent"]


class Held:
    """A call of `who` that its server has, and answers when it is let go."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "held"
        self._folder.mkdir()
        self.arguments = {"held": str(self._folder)}

    async def begun(self) -> None:
        """Wait until the server has it."""
        async with asyncio.timeout(PATIENCE):
            while not (self._folder / "begun").exists():
                await asyncio.sleep(0.02)

    def let_go(self) -> None:
        (self._folder / "let go").touch()


async def tools(client: Client) -> list[str]:
    return [tool["name"] for tool in (await client.ask("tools/list")).json["result"]["tools"]]


class Traffic:
    """Calls one server's `who` all the time, and keeps every answer."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._name = client, name
        self.pids: list[int] = []
        self.failures: list[Any] = []
        self._going = True
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._going:
            answer = await called(self._client, self._name, seconds=0.01)
            result = answer.get("result", {"isError": True})
            if result.get("isError"):
                self.failures.append(answer)
            else:
                self.pids.append(result["structuredContent"]["pid"])

    async def more(self, count: int = 10) -> None:
        """Wait for so many more answers."""
        until = len(self.pids) + len(self.failures) + count
        async with asyncio.timeout(PATIENCE):
            while len(self.pids) + len(self.failures) < until:
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._going = False
        await self._task


async def notices(stream: Opened, quiet: float = 1.0) -> list[str]:
    """What comes on a stream until it has been silent for so long."""
    heard: list[str] = []
    while True:
        try:
            heard.append((await asyncio.wait_for(stream.message(), quiet))["method"])
        except TimeoutError:
            return heard


def alive(pid: int) -> bool:
    """Whether the process still runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
