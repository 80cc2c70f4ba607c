"""server-filesystem without arguments, which works on the roots of its client: directly, and through `muxway stdio`."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from muxway.testing import RawClient
from tests.stdio.harness import muxway

from . import peers

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = "@modelcontextprotocol/server-filesystem/dist/index.js"


async def allowed(client: RawClient) -> str:
    """The folders that the server may work on, in its own words."""
    result = (await client.call("list_allowed_directories")).result
    return result["content"][0]["text"]


@pytest.mark.parametrize("entry", [{}, {"isolation": "session"}], ids=["default", "session"])
async def test_server_filesystem_works_on_the_clients_folders(tmp_path: Path, entry: dict[str, Any]) -> None:
    """docs/questions.md: its first call finds the roots; a change of them is passed on; no start is a warning."""
    peers.ensure("node")
    command, *args = peers.node_script(SCRIPT)
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "note.txt").write_text("hello")
    shown = folders[:1]
    config = {"mcpServers": {"fs": {"command": str(command), "args": [*map(str, args)], "prefix": "", **entry}}}
    async with muxway(tmp_path, config) as process:
        client = RawClient(process, capabilities={"roots": {"listChanged": True}})
        client.answers["roots/list"] = lambda _: {"roots": [{"uri": folder.as_uri()} for folder in shown]}
        await client.hello()
        assert "list_allowed_directories" in await client.tools()
        assert str(folders[0]) in await allowed(client)
        read = (await client.call("read_text_file", {"path": str(folders[0] / "note.txt")})).result
        assert "hello" in json.dumps(read["content"])
        shown.append(folders[1])
        client.tell("notifications/roots/list_changed")
        async with asyncio.timeout(30):
            while str(folders[1]) not in await allowed(client):
                await asyncio.sleep(0.02)
        assert "question refused" not in process.log()
