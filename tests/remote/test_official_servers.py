"""Servers built on the official SDKs, reached by URL: behind the library and behind `muxway stdio`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muxway.testing import RawClient
from tests.interop import peers
from tests.ports import free_port
from tests.stdio.harness import connected
from tests.stdio.harness import muxway as muxway_process

from .scripted import gateway, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HERE = Path(__file__).parent

KINDS = [
    ("sdk1", "streamable", "2025-11-25"),
    ("sdk1", "json", "2025-11-25"),
    ("sdk1", "stateless", "2025-11-25"),
    ("sdk1", "sse", "2025-11-25"),
    ("sdk2", "streamable", "2026-07-28"),
    ("sdk2", "json", "2026-07-28"),
    ("sdk2", "stateless", "2026-07-28"),
    ("sdk2", "sse", "2025-11-25"),
]
"""Server, how it serves, the newest revision that both of us speak over it."""

MIXED = {"session": ("sdk1", "streamable"), "modern": ("sdk2", "streamable"), "old": ("sdk1", "sse")}


class Served:
    """A server process, and the lines it printed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.lines: list[str] = []


@contextlib.asynccontextmanager
async def process(*command: str, **environ: str) -> AsyncIterator[asyncio.subprocess.Process]:
    started = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env={**os.environ, **environ}
    )
    try:
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            started.kill()
        # To its end, or the pipe stays open behind our back.
        await started.communicate()


@contextlib.asynccontextmanager
async def official(sdk: str, kind: str) -> AsyncIterator[Served]:
    """A Python SDK server on a free port."""
    script = str(HERE / "servers" / f"{sdk}_http.py")
    async with asyncio.timeout(60), process(peers.python(f"mcp{sdk[-1]}"), script, kind) as server:
        assert server.stdout is not None
        port = int(await server.stdout.readline())
        served = Served(f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}")
        # The port is open before the server reads from it, so it needs no waiting for.
        reading = asyncio.create_task(collect(server.stdout, served.lines))
        try:
            yield served
        finally:
            reading.cancel()
            await asyncio.wait([reading])


async def collect(stream: asyncio.StreamReader, lines: list[str]) -> None:
    while line := await stream.readline():
        lines.append(line.decode().strip())


@pytest.mark.parametrize(("sdk", "kind", "revision"), KINDS)
async def test_an_official_server_is_reached_without_saying_how(sdk: str, kind: str, revision: str) -> None:
    """docs/transports.md#servers-by-url: `url` alone is enough; calls, results and progress arrive."""
    heard: list[Any] = []
    async with official(sdk, kind) as server, gateway(server.url) as up:
        (state,) = up.servers()
        assert (state.error, state.revision) == (None, revision)
        assert (await up.call("up.add", {"a": 2, "b": 3})).text == "5"
        counted = await up.call("up.count", {"steps": 3}, on_progress=lambda *told: heard.append(told))
        assert counted.text == "counted to 3"
        if kind != "json":
            # As one JSON body there is no room for it.
            assert heard == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
        sums = await asyncio.gather(*(up.call("up.add", {"a": n, "b": 1}) for n in range(50)))
        assert [result.text for result in sums] == [str(n + 1) for n in range(50)]


@pytest.mark.parametrize(("sdk", "kind"), [("sdk2", "streamable"), ("sdk2", "json")])
async def test_an_official_server_of_both_eras_is_reached_in_the_one_asked_for(sdk: str, kind: str) -> None:
    """docs/transports.md#servers-by-url: `era` says which generation to speak."""
    for era, revision in [("modern", "2026-07-28"), ("legacy", "2025-11-25")]:
        async with official(sdk, kind) as server, gateway(server.url, era=era) as up:
            assert (up.servers()[0].error, up.servers()[0].revision) == (None, revision)
            assert (await up.call("up.add", {"a": 2, "b": 3})).text == "5"


async def test_an_official_stateless_server_understands_an_encoded_name() -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: it compares the header with the body."""
    async with official("sdk2", "streamable") as server, gateway(server.url) as up:
        assert (await up.call("up.größe")).text == "groß"


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_an_official_server_notices_a_cancelled_call(era: str) -> None:
    """MCP, cancellation: by a closed stream (2026-07-28), or by being told (2025-11-25)."""
    async with official("sdk2", "streamable") as server, gateway(server.url, era=era) as up:
        begun = asyncio.Event()
        call = asyncio.create_task(up.call("up.wait", on_progress=lambda *_: begun.set()))
        await asyncio.wait_for(begun.wait(), 30)
        call.cancel()
        await until(lambda: "cancelled" in server.lines)
        assert (await up.call("up.add", {"a": 1, "b": 1})).text == "2"


@pytest.mark.parametrize("kind", ["streamable", "sse"])
async def test_an_official_server_that_offers_more_is_listed_again(kind: str) -> None:
    """MCP 2025-11-25, basic/transports: unasked notices come on the GET stream."""
    async with official("sdk1", kind) as server, gateway(server.url) as up:
        assert (await up.call("up.grow")).text == "grown"
        await until(lambda: "up__grown" in [tool.name for tool in up.tools()])
        assert (await up.call("up.grown")).text == "new"


@pytest.mark.parametrize("kind", ["streamableHttp", "sse"])
async def test_the_everything_server_is_reached(kind: str) -> None:
    """docs/transports.md#servers-by-url: the TypeScript SDK, with event ids on its streams."""
    port = free_port()
    script = peers.node_script("@modelcontextprotocol/server-everything/dist/index.js")
    url = f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}"
    async with asyncio.timeout(60), process(*script, kind, PORT=str(port)):
        await until(lambda: listening(port))
        async with gateway(url) as up:
            assert up.servers()[0].error is None
            assert (await up.call("up.echo", {"message": "größe"})).text == "Echo: größe"
            assert "8" in (await up.call("up.get-sum", {"a": 3, "b": 5})).text


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_all_kinds_at_once_behind_muxway_stdio(tmp_path: Path) -> None:
    """docs/transports.md#the-shapes-of-mcp: all shapes at the same time, here for a stdio client."""
    async with contextlib.AsyncExitStack() as stack:
        served = {name: await stack.enter_async_context(official(*kind)) for name, kind in MIXED.items()}
        config = {"mcpServers": {name: {"url": server.url} for name, server in served.items()}}
        gateway_process = await stack.enter_async_context(muxway_process(tmp_path, config))
        for revision in ("2025-06-18", "2026-07-28"):
            client = await connected(gateway_process, *served, revision=revision) if revision < "2026" else None
            if client is None:
                client = RawClient(gateway_process, revision=revision)
            for name in served:
                result = (await client.call(f"{name}__add", {"a": 2, "b": 3})).result
                assert result["content"][0]["text"] == "5"
        gateway_process.close()
        assert await gateway_process.ended() == 0
