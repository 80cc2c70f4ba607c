"""The command line of MCP Inspector as a client: it connects, asks once and leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from . import drive, world

if TYPE_CHECKING:
    from pathlib import Path

eras = pytest.mark.parametrize("era", ["legacy", "auto", "modern"])


@pytest.fixture
def gateway(tmp_path: Path) -> drive.Server:
    """The gateway in front of two real servers; its one listing waits for both, however slow this machine is."""
    servers = world.real_servers(tmp_path)
    return world.gateway(tmp_path, {name: servers[name] for name in ("memory", "time")}, "--list-wait", "60")


@eras
def test_inspector_lists_the_tools_of_both_servers(gateway: drive.Server, era: str) -> None:
    """Ours: Inspector's CLI works in front of two real servers."""
    listing = drive.inspect(gateway, "--protocol-era", era, "--method", "tools/list")

    names = [tool["name"] for tool in listing["tools"]]
    assert {"memory__read_graph", "time__convert_time"} <= set(names)


@eras
def test_inspector_calls_a_tool(gateway: drive.Server, era: str) -> None:
    """docs/behaviour.md#what-passes-untouched: and a call through it gives the server's own result."""
    result = drive.inspect(
        gateway, "--protocol-era", era, "--method", "tools/call", "--tool-name", "memory__read_graph"
    )

    assert [entity["name"] for entity in result["structuredContent"]["entities"]] == ["muxway", "MCP"]
