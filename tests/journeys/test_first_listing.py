"""The first listings after a start."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from muxway import Gateway
from muxway.config import parse_config
from muxway.exchange import first_listing
from muxway.net.processes.reaper import has_process_table
from muxway.testing import RawClient
from tests.journeys.gated import GatedServer, config_of
from tests.pace import PATIENCE
from tests.stdio.harness import CHILD

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_list_is_never_empty_while_all_servers_are_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/behaviour.md#start: however long the first one takes; then the others have a moment."""
    monkeypatch.setattr(first_listing, "STRAGGLER", 0.5)
    servers = {name: GatedServer(tools={name: None}) for name in ("one", "two", "never")}
    async with Gateway.open(config_of(servers), wait=False) as gateway:
        client = RawClient(gateway.memory_door())
        await client.hello()
        listed = client.start("tools/list")
        await asyncio.sleep(0.6)
        await client.ask("ping")
        assert client.unread == 0, "nobody is there, so there is nothing to say"
        servers["two"].gate.set()
        while len(gateway.tools()) < 1:
            await asyncio.sleep(0.01)
        await client.ask("ping")
        assert client.unread == 0, "another one may follow"
        servers["one"].gate.set()
        names = [tool["name"] for tool in (await client.answer(listed)).result["tools"]]
        assert names == ["one__one", "two__two"]
        assert client.notices == []


async def test_servers_that_fail_are_not_waited_for() -> None:
    """docs/behaviour.md#start: when each is ready or has failed, there is nothing more to wait for."""
    servers = {name: GatedServer(tools={name: None}) for name in ("one", "two")}
    servers["one"].end()
    async with Gateway.open(config_of(servers), wait=False) as gateway:
        client = RawClient(gateway.memory_door())
        await client.hello()
        listed = client.start("tools/list")
        for server in servers.values():
            server.gate.set()
        async with asyncio.timeout(1.5):
            assert len((await client.answer(listed)).result["tools"]) == 1


@pytest.mark.skipif(not has_process_table(), reason="only where processes can be seen at work")
async def test_a_launcher_that_hangs_is_told_from_one_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/behaviour.md#start: one works for longer than a straggler has, and is in the list; one hangs, and is not."""
    monkeypatch.setattr(first_listing, "STRAGGLER", 1.0)
    monkeypatch.setattr(first_listing, "FETCHED", 60.0)
    programs = {
        "works": (
            "import runpy, sys, time\nend = time.process_time() + 1.5\nwhile time.process_time() < end: pass\n"
            f"sys.argv = ['x']\nrunpy.run_path({str(CHILD)!r}, run_name='__main__')\n"
        ),
        "hangs": "import time\ntime.sleep(600)\n",
    }
    entries = {"there": {"command": sys.executable, "args": [str(CHILD)]}}
    for name, program in programs.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "program.py").write_text(program)
        launcher = folder / "npx"
        launcher.write_text(f"#!/bin/sh\n{sys.executable} {folder / 'program.py'}\n")
        launcher.chmod(0o755)
        entries[name] = {"command": str(launcher), "args": []}
    async with Gateway.open(parse_config({"mcpServers": entries}), wait=False) as gateway:
        client = RawClient(gateway.memory_door())
        await client.hello()
        async with asyncio.timeout(PATIENCE):
            names = {tool["name"].partition("__")[0] for tool in (await client.ask("tools/list")).result["tools"]}
    assert names == {"there", "works"}
