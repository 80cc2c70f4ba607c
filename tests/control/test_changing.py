"""`muxway restart` and `muxway reload`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.control.conftest import Gateway, talker, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result


def test_restart_gives_a_server_a_new_process(launch: Callable[..., Gateway], muxway: Callable[..., Result]) -> None:
    """docs/cli.md#muxway-restart: `muxway restart SERVER`; the others keep theirs."""
    gateway = launch({"mcpServers": {"talker": talker(), "other": talker()}})
    gateway.settled()
    before, other = gateway.server("talker")["pid"], gateway.server("other")["pid"]
    result = muxway("restart", "talker")
    assert result.exit_code == 0
    assert result.output.startswith("✓ running  talker: 4 tools, after ")
    assert gateway.server("talker")["pid"] not in (None, before)
    assert gateway.server("other")["pid"] == other


def test_a_server_that_does_not_start_is_told_with_its_reason(
    launch: Callable[..., Gateway], muxway: Callable[..., Result]
) -> None:
    """Ours: exit 4, the reason, and when it is tried again."""
    launch({"mcpServers": {"refusing": talker("--refuse")}}).settled()
    result = muxway("restart", "refusing")
    assert result.exit_code == 4
    assert "refusing: exited with status 3" in result.stderr
    assert "(again in " in result.stderr
    assert json.loads(muxway("restart", "refusing", "--json").stdout)["status"] != "running"


def test_restart_of_an_unknown_server(launch: Callable[..., Gateway], muxway: Callable[..., Result]) -> None:
    """Ours: nothing happens, and the nearest name is told."""
    launch({"mcpServers": {"talker": talker()}}).settled()
    result = muxway("restart", "talk")
    assert result.exit_code == 2
    assert 'did you mean "talker"?' in result.stderr


def test_reload_takes_over_what_the_file_says(launch: Callable[..., Gateway], muxway: Callable[..., Result]) -> None:
    """docs/cli.md#muxway-reload: `muxway reload`; a server whose entry is as before keeps its process."""
    gateway = launch({"mcpServers": {"talker": talker()}})
    gateway.settled()
    pid = gateway.server("talker")["pid"]
    unchanged = muxway("reload")
    assert (unchanged.exit_code, unchanged.output.splitlines()[0]) == (0, "✓ ok  nothing changes")
    gateway.file.write_text(json.dumps({"mcpServers": {"talker": talker(), "more": talker()}}))
    result = muxway("reload")
    assert result.exit_code == 0
    assert "✓ ok  reloaded" in result.output
    assert "start  more" in result.output
    until(lambda: gateway.server("more")["status"] == "running", "the start")
    assert gateway.server("talker")["pid"] == pid


def test_after_a_reload_the_new_config_is_what_is_told(
    launch: Callable[..., Gateway], muxway: Callable[..., Result]
) -> None:
    """Ours: status and explain speak of what runs now; a server that was swapped keeps its log."""
    gateway = launch({"mcpServers": {"talker": talker(), "other": talker()}})
    gateway.settled()
    gateway.file.write_text(
        json.dumps({"mcpServers": {"talker": talker("--with-child", hiddenTools=["die"])}}, indent=1)
    )
    assert muxway("reload").exit_code == 0
    until(lambda: len(muxway("logs", "talker").output.splitlines()) == 2, "the swap")
    assert [server["name"] for server in json.loads(muxway("status", "--json").output)["servers"]] == ["talker"]
    assert "no, `hiddenTools` has it  (line 10, mcpServers.talker.hiddenTools.0)" in muxway("explain", "die").output


def test_a_config_that_cannot_be_used_changes_nothing(
    launch: Callable[..., Gateway], muxway: Callable[..., Result]
) -> None:
    """docs/reload.md#a-file-with-mistakes: an invalid file changes nothing and says every problem. Exit 3."""
    gateway = launch({"mcpServers": {"talker": talker()}})
    gateway.settled()
    gateway.file.write_text('{"mcpServers": {\n"talker": {"command": 3},\n"b": {"args": 1}}}')
    result = muxway("reload")
    assert result.exit_code == 3
    assert "mcpServers.talker.command (line 2)" in result.stderr
    assert "mcpServers.b" in result.stderr
    assert "Nothing has changed." in result.stderr
    document = json.loads(muxway("reload", "--json").stdout)
    assert document["ok"] is False
    assert len(document["problems"]) >= 2
    assert gateway.server("talker")["status"] == "running"
