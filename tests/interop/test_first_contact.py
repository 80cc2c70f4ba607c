"""The README's own servers, started by their own launchers, and the first list that a client gets of them.

The launchers have what they start already: `npx` finds it in a folder, `uvx` in its cache. What is cold or warm here is
what muxway remembers.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.installing import install
from tests.pace import PATIENCE, crowding
from tests.stdio.harness import Process, muxway

from . import peers

NPX = peers.NODE.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npx-cli.js"


@pytest.fixture(scope="session")
def readme(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The configuration, with launchers that need not download anything any more."""
    folder = tmp_path_factory.mktemp("launchers")
    npx = folder / "npx"
    npx.write_text(f'#!/bin/sh\nexec {shlex.quote(str(peers.NODE))} {shlex.quote(str(NPX))} "$@"\n')
    npx.chmod(0o755)
    # This test has a cache folder of its own, in which uv would find nothing.
    cache = subprocess.run([peers.UV, "cache", "dir"], check=True, capture_output=True, text=True).stdout.strip()
    uvx = {"command": str(Path(peers.UV).with_name("uvx")), "env": {"UV_CACHE_DIR": cache, "UV_OFFLINE": "1"}}
    lock = (peers.ROOT / "requirements" / "interop-servers.txt").read_text()
    clock = next(line.split()[0] for line in lock.splitlines() if line.startswith("mcp-server-time=="))
    install([str(uvx["command"]), clock, "--help"], seconds=peers.INSTALL_SECONDS)
    scope, cwd = "@modelcontextprotocol", str(peers.ensure("node"))
    return {
        "mcpServers": {
            "time": {**uvx, "args": [clock, "--local-timezone", "UTC"]},
            "fs": {"command": str(npx), "args": ["-y", f"{scope}/server-filesystem", str(folder)], "cwd": cwd},
            "memory": {"command": str(npx), "args": ["-y", f"{scope}/server-memory"], "cwd": cwd},
        }
    }


async def answer(process: Process, id_: int, method: str, params: dict[str, Any]) -> Any:
    """Ask something, and wait for the answer as long as clients do."""
    process.send(json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode())
    while True:
        message = json.loads(await asyncio.wait_for(process.receive(), PATIENCE))
        if message.get("id") == id_:
            return message["result"]


async def first_list(process: Process) -> tuple[list[str], float]:
    """The names of the first list, as servers only, and how long after the greeting it came."""
    info = {"name": "raw", "version": "1"}
    await answer(process, 1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
    process.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    began = time.monotonic()
    tools = (await answer(process, 2, "tools/list", {}))["tools"]
    return [*dict.fromkeys(tool["name"].partition("__")[0] for tool in tools)], time.monotonic() - began


@pytest.mark.timeout(300)
async def test_the_first_list_has_the_tools_of_all_servers_and_from_the_second_start_on_at_once(
    readme: dict[str, Any], tmp_path: Path
) -> None:
    """docs/behaviour.md#start: three ordinary servers, never seen before; then known."""
    async with muxway(tmp_path, readme) as process:
        listed, _ = await first_list(process)
        assert listed == ["time", "fs", "memory"], process.log()
        for id_, tool in enumerate(("fs__list_allowed_directories", "memory__read_graph"), 3):
            assert "content" in await answer(process, id_, "tools/call", {"name": tool, "arguments": {}})
    for _ in range(2):
        async with muxway(tmp_path, readme) as process:
            listed, seconds = await first_list(process)
            assert listed == ["time", "fs", "memory"]
            assert seconds < 0.5 + crowding()
            given = {"name": "time__get_current_time", "arguments": {"timezone": "UTC"}}
            assert not (await answer(process, 3, "tools/call", given)).get("isError")
