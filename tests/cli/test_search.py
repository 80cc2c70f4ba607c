"""`muxway search`, `muxway tools --tokens`, and search over a real pipe."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from tests.cli.conftest import Launched


@pytest.fixture
def searched(servers: Path, tmp_path: Path) -> Path:
    """The config of the demo servers, with a view that is searched."""
    config = json.loads(servers.read_text(encoding="utf-8"))
    config["views"] = {"agent": {"discovery": "search", "servers": ["notes"]}}
    path = tmp_path / "searched.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def test_tools_are_found_by_what_they_do(muxway: Callable[..., Result], searched: Path) -> None:
    """docs/cli.md#muxway-search: as search_tools finds them, of a view if one is given."""
    result = muxway("search", "convert", "time", "zones", "--config", searched, "--limit", "1")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 1)
    assert "clock__convert" in result.stdout
    assert "no tool matches" in muxway("search", "time zones", "--config", searched, "--view", "agent").stderr
    assert muxway("search", "time", "--config", searched, "--view", "none").exit_code == 2


def test_scores_are_explained_by_field(muxway: Callable[..., Result], searched: Path) -> None:
    """docs/cli.md#muxway-search: --explain."""
    text = muxway("search", "convert time", "--config", searched, "--explain").stdout
    assert text.startswith("clock__convert")
    assert "    name" in text
    told = json.loads(muxway("search", "convert time", "--config", searched, "--json").stdout)
    first = told["tools"][0]
    assert first["name"] == "clock__convert"
    assert sum(first["fields"].values()) == pytest.approx(first["score"], abs=0.01)


def test_what_lists_cost_is_told_by_server_and_view(muxway: Callable[..., Result], searched: Path) -> None:
    """docs/cli.md#muxway-tools: --tokens, four bytes each."""
    told = json.loads(muxway("tools", "--tokens", "--config", searched, "--json").stdout)["lists"]
    assert told["listed"]["tools"] == 8
    assert told["listed in view agent"]["tools"] == 2
    assert told["listed in view agent"]["bytes"] < 2400
    assert told["server notes"]["tokens"] == round(told["server notes"]["bytes"] / 4)
    lines = muxway("tools", "--tokens", "--config", searched).stdout.splitlines()
    assert lines[0].split() == ["TOOLS", "BYTES", "TOKENS"]
    assert lines[-1].startswith("listed in view agent ")
    assert len({*map(len, lines)}) == 1


def test_a_client_searches_and_calls_over_a_pipe(launch: Callable[..., Launched], searched: Path) -> None:
    """docs/discovery.md: `muxway stdio --view`, as clients launch it."""
    gateway = launch("stdio", "--config", searched, "--view", "agent")
    gateway.hello()
    assert [tool["name"] for tool in gateway.tools(2)] == ["search_tools", "call_tool"]
    found = gateway.ask(5, "tools/call", name="search_tools", arguments={"query": "remember a note"})
    assert found["result"]["content"][0]["text"].startswith("notes__add(")
    inner = {"name": "notes__add", "arguments": {"text": "x"}}
    called = gateway.ask(6, "tools/call", name="call_tool", arguments=inner)
    assert "isError" not in called["result"] or not called["result"]["isError"]
    gateway.end()
