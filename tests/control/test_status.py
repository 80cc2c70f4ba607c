"""`muxway status` and `muxway top` against gateways that run."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import click

from muxway import demo
from muxway.cli.figures import Column, duration, latency, memory, number, table
from tests.control.conftest import Gateway, talker, until
from tests.control.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest
    from click.testing import Result

MIXED = {
    "mcpServers": {
        **demo.config()["mcpServers"],
        "refusing": talker("--refuse"),
        "off": {"command": "nothing", "disabled": True},
    }
}


def test_status_shows_every_server_that_is_on(launch: Callable[..., Gateway], muxway: Callable[..., Result]) -> None:
    """docs/operating.md#status: state, revision, pid, uptime, restarts, in flight, queue, p50, p99, errors, memory."""
    gateway = launch(MIXED, verb="serve")
    gateway.settled()
    result = muxway("status")
    assert result.exit_code == 0
    first, file, _, heads, *rows = result.output.splitlines()
    assert f"pid {gateway.pid}" in first
    assert "http://127.0.0.1:" in first
    assert "3 of 4 servers up" in first
    assert re.search(r"longest turn [\d.]+m?s\b", first)
    assert file == str(gateway.file)
    assert heads.split() == [
        *("server", "state", "revision", "pid", "up", "restarts", "busy", "queue", "calls", "p50", "p99", "errors"),
        "mem",
    ]
    assert [row.split()[0] for row in rows[:4]] == ["notes", "clock", "text", "refusing"]
    assert ["✓ running  2025-06-18" in row for row in rows[:4]] == [True, False, False, False]
    assert "✗ failed" in rows[3]
    assert any("refusing" in row and "exited with status 3" in row for row in rows[4:])


def test_status_for_programs(launch: Callable[..., Gateway], muxway: Callable[..., Result]) -> None:
    """docs/operating.md#status: `status --json`."""
    gateway = launch({"mcpServers": {"talker": talker("--with-child"), "refusing": talker("--refuse")}})
    gateway.settled()
    gateway.call("talker__say", lines=["hello"])
    document = json.loads(muxway("status", "--json").output)
    assert document["pid"] == gateway.pid
    assert document["door"] == "stdio"
    assert document["config"] == str(gateway.file)
    assert document["memory"] > 1_000_000
    talking, refusing = document["servers"]
    assert (talking["status"], talking["revision"], talking["calls"], talking["errors"]) == (
        *("running", "2025-06-18"),
        *(1, 0),
    )
    assert talking["uptime"] > 0
    assert talking["p50"] > 0
    assert talking["p99"] >= talking["p50"]
    tree = {process["pid"]: process for process in talking["processes"]}
    assert len(tree) == 2
    assert [one["parent"] == talking["pid"] for one in tree.values()].count(True) == 1
    assert talking["memory"] == sum(one["memory"] for one in tree.values()) > 1_000_000
    assert (refusing["status"], refusing["pid"], refusing["memory"]) == ("failed", None, None)
    assert refusing["retryIn"] is not None


def test_status_of_one_server_shows_all_about_it(launch: Callable[..., Gateway], muxway: Callable[..., Result]) -> None:
    """docs/operating.md#status: the process tree, in a form that people can read."""
    gateway = launch({"mcpServers": {"talker": talker("--with-child", hiddenTools=["nothing"])}})
    gateway.settled()
    pid = gateway.server("talker")["pid"]
    said = muxway("status", "talker").output
    assert "talker  ✓ running" in said
    assert "4 tools" in said
    parent, child = [line for line in said.splitlines() if " python" in line]
    assert parent.split()[:2] == ["processes", str(pid)]
    assert child.index(child.split()[0]) == parent.index(str(pid)) + 2
    assert "named in hiddenTools, but the server has no such tool" in said


def test_calls_under_way_are_counted(launch: Callable[..., Gateway]) -> None:
    """docs/operating.md#status: in flight."""
    gateway = launch({"mcpServers": {"talker": talker()}})
    gateway.settled()
    gateway.call("talker__wait", wait=False)
    until(lambda: gateway.server("talker")["inFlight"] == 1, "the call")


def test_callers_that_do_not_share_a_process_are_counted_too(
    launch: Callable[..., Gateway], muxway: Callable[..., Result]
) -> None:
    """Ours: with `isolation: session` each client has a process of its own; the figures are those of the server."""
    gateway = launch({"mcpServers": {"talker": talker(isolation="session")}}, verb="serve")
    url = f"{gateway.settled().door}/mcp"
    for client in ("one", "two"):
        info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": client, "version": "1"}}
        session = post(url, "initialize", info).headers["mcp-session-id"]
        answer = post(url, "tools/call", {"name": "talker__say", "arguments": {"lines": [client]}}, session)
        assert b"said" in answer.read()
    (server,) = json.loads(muxway("status", "--json").output)["servers"]
    assert (server["calls"], server["errors"]) == (2, 0)
    assert len(server["processes"]) == 3
    assert server["memory"] == sum(process["memory"] for process in server["processes"])
    assert f"{server['pid']}+2" in muxway("status").output
    assert muxway("logs", "talker").output.splitlines().count("one") == 1


def post(url: str, method: str, params: object, session: str | None = None) -> Any:
    """Send one request over HTTP."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if session is not None:
        headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    return urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30)


def test_an_unknown_server_gets_the_nearest_name(launch: Callable[..., Gateway], muxway: Callable[..., Result]) -> None:
    """Ours: nearest-name suggestions on typos."""
    launch({"mcpServers": {"talker": talker()}}).settled()
    result = muxway("status", "talkre")
    assert result.exit_code == 2
    assert 'no server "talkre". Did you mean "talker"?' in result.stderr


def test_without_a_gateway_it_says_so(muxway: Callable[..., Result]) -> None:
    """docs/cli.md#muxway-status: a clear message, exit 4."""
    for verb in (["status"], ["top"], ["logs", "x"], ["restart", "x"], ["reload"]):
        result = muxway(*verb)
        assert result.exit_code == 4
        assert "no gateway of yours is running" in result.stderr


def test_a_killed_gateway_is_not_shown(
    launch: Callable[..., Gateway], muxway: Callable[..., Result], runtime: Path
) -> None:
    """docs/cli.md#muxway-status: after `kill -9`, `status` says that there is none, and what was left is gone."""
    gateway = launch({"mcpServers": {"talker": talker()}})
    gateway.settled()
    folder = runtime / "muxway"
    assert len([*folder.iterdir()]) == 1
    gateway.process.kill()
    gateway.process.wait()
    result = muxway("status")
    assert result.exit_code == 4
    assert "no gateway of yours is running" in result.stderr
    assert [*folder.iterdir()] == []


def test_a_gateway_that_ends_takes_its_socket_along(launch: Callable[..., Gateway], runtime: Path) -> None:
    """Ours: the socket is removed at exit."""
    gateway = launch({"mcpServers": {"talker": talker()}})
    gateway.settled()
    gateway.process.terminate()
    assert gateway.process.wait(30) == 0
    assert [*(runtime / "muxway").iterdir()] == []


def test_a_gateway_that_hangs_is_named(launch: Callable[..., Gateway], muxway: Callable[..., Result]) -> None:
    """Ours: one that does not answer must not hang whoever asks, nor look like none."""
    gateway = launch({"mcpServers": {"talker": talker()}})
    gateway.settled()
    os.kill(gateway.pid, signal.SIGSTOP)
    try:
        result = muxway("status")
    finally:
        os.kill(gateway.pid, signal.SIGCONT)
    assert result.exit_code == 4
    assert f"the gateway with pid {gateway.pid} does not answer" in result.stderr


# --- several ------------------------------------------------------------------------------------


def test_one_of_several_gateways_is_picked_by_pid_or_config(
    launch: Callable[..., Gateway], muxway: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/operating.md#operating-a-running-gateway.

    The error lists them with pid, config, door and age; `--pid` and `--config` pick.
    """
    one = launch({"mcpServers": {"one": talker()}}, name="one.json")
    one.settled()
    two = launch({"mcpServers": {"two": talker()}}, verb="serve", name="two.json")
    two.settled()
    result = muxway("restart", "one")
    assert result.exit_code == 2
    assert "2 gateways are running: pick one with --pid" in result.stderr
    rows = [line.split() for line in result.stderr.splitlines()[-2:]]
    assert [(row[1], row[-1]) for row in rows] == [(str(one.pid), str(one.file)), (str(two.pid), str(two.file))]
    assert " ".join(rows[0][2:4]) == "stdio, of"
    assert rows[1][2].startswith("http://127.0.0.1:")
    assert f"pid {two.pid}" in muxway("status", "--pid", str(two.pid)).output
    monkeypatch.chdir(one.file.parent)
    assert f"pid {one.pid}" in muxway("status", "--config", "one.json").output
    assert f"pid {one.pid}" in muxway("--config", "one.json", "status").output
    wrong = muxway("status", "--pid", "1")
    assert wrong.exit_code == 4
    assert str(two.file) in wrong.stderr


def test_several_gateways_are_shown_in_one_table(launch: Callable[..., Gateway], muxway: Callable[..., Result]) -> None:
    """Ours: docs/operating.md: each client on a desktop launches its own; whoever only looks need not choose."""
    config = {"mcpServers": {"one": talker()}}
    gateways = [launch(config, name="same.json") for _ in range(2)]
    for gateway in gateways:
        gateway.call("one__nothing")  # which introduces its client
        gateway.settled()
    shown = muxway("status")
    assert shown.exit_code == 0
    rows = [line.split() for line in shown.stdout.splitlines()]
    # Which of the two was there first is up to the machine.
    first, second = sorted(gateways, key=lambda one: [row[:1] for row in rows].index([str(one.pid)]))
    assert [row[:3] for row in rows[1:3]] == [[str(first.pid), "t", "stdio"], [str(second.pid), "t", "stdio"]]
    assert [row[:2] for row in rows[5:]] == [[str(first.pid), "one"], [str(second.pid), "one"]]
    documents = json.loads(muxway("status", "--json").stdout)["gateways"]
    assert [(one["pid"], one["client"]) for one in documents] == [(first.pid, "t"), (second.pid, "t")]
    assert [line.split()[:2] for line in muxway("top").stdout.splitlines()[5:]] == [
        [str(first.pid), "one"],
        [str(second.pid), "one"],
    ]
    told = muxway("explain", "one__say")
    assert told.stdout.count("By the gateway with pid") == 1
    refused = muxway("reload")
    assert refused.exit_code == 2
    assert refused.stderr.count("stdio, of t") == 2


def test_of_several_gateways_the_one_that_has_what_is_asked_for_answers(
    launch: Callable[..., Gateway], muxway: Callable[..., Result]
) -> None:
    """Ours: docs/operating.md: whoever only looks need not choose, and is told whom each answer is of."""
    one = launch({"mcpServers": {"one": talker(), "both": talker()}}, name="one.json")
    two = launch({"mcpServers": {"two": talker(), "both": {"command": "false"}}}, name="two.json")
    for gateway in (one, two):
        gateway.settled()
    assert muxway("logs", "two").exit_code == 0
    either = muxway("logs", "both")
    assert either.exit_code == 2
    assert "2 gateways are running" in either.stderr
    neither = muxway("logs", "three")
    assert neither.exit_code == 2
    assert 'None of the 2 running gateways has a server "three". There are: both, one, two.' in neither.stderr
    assert 'has a server "tow". Did you mean "two"?' in muxway("logs", "tow").stderr
    shown = muxway("status", "both").stdout
    assert f"both  ✓ running  gateway {one.pid}\n" in shown
    assert f"both  ✗ failed  gateway {two.pid}\n" in shown
    assert f"`muxway logs both --pid {two.pid}`" in shown
    assert "gateway" not in muxway("status", "two").stdout
    for name, nearest in (("one__sya", "one__say"), ("two__sya", "two__say")):
        told = muxway("explain", name)
        assert told.exit_code == 1
        assert nearest in told.stdout


# --- top ----------------------------------------------------------------------------------------


def test_top_prints_once_where_nobody_looks(launch: Callable[..., Gateway], muxway: Callable[..., Result]) -> None:
    """docs/cli.md#muxway-top.

    When stdout is no terminal it prints one table and ends. Servers in trouble stand first.
    """
    launch({"mcpServers": {"talker": talker(), "refusing": talker("--refuse")}}).settled()
    result = muxway("top")
    assert result.exit_code == 0
    rows = [line.split()[0] for line in result.output.splitlines()[4:6]]
    assert rows == ["refusing", "talker"]
    assert [line.split()[0] for line in muxway("top", "--sort", "name").output.splitlines()[4:6]] == rows


def test_top_redraws_until_q_and_gives_the_terminal_back(launch: Callable[..., Gateway]) -> None:
    """docs/cli.md#muxway-top: redraws in place, 80 columns, `q` ends, the terminal is as before."""
    gateway = launch(
        {"mcpServers": {"a-server-with-quite-a-long-name-for-a-table": talker(), "refusing": talker("--refuse")}}
    )
    gateway.settled()
    with Terminal([sys.executable, "-m", "muxway", "top"], columns=80, rows=12) as terminal:
        before = terminal.modes()
        terminal.until(lambda said: said.count("\x1b[H") >= 2)
        assert max(map(len, terminal.frame())) <= 80
        assert len(terminal.frame()) <= 12
        assert "running" in "\n".join(terminal.frame())
        terminal.type("q")
        assert terminal.end() == 0
        assert terminal.said.endswith("\x1b[?25h\x1b[?1049l")
        assert terminal.modes() == before


def test_top_ends_when_its_gateway_does(launch: Callable[..., Gateway]) -> None:
    """Ours: the terminal comes back, and the reason is on it."""
    gateway = launch({"mcpServers": {"talker": talker()}})
    gateway.settled()
    with Terminal([sys.executable, "-m", "muxway", "top"], columns=80, rows=24) as terminal:
        terminal.until(lambda said: "talker" in said)
        gateway.process.terminate()
        assert terminal.end() == 4
        assert f"the gateway with pid {gateway.pid} has ended" in terminal.said.rpartition("\x1b[?1049l")[2]


def test_ctrl_c_ends_top(launch: Callable[..., Gateway]) -> None:
    """Ours: exit 130, as everywhere, and the terminal as it was."""
    launch({"mcpServers": {"talker": talker()}}).settled()
    with Terminal([sys.executable, "-m", "muxway", "top"], columns=80, rows=24) as terminal:
        terminal.until(lambda said: "talker" in said)
        terminal.type("\x03")
        assert terminal.end() == 130
        assert "\x1b[?25h\x1b[?1049l" in terminal.said


def test_status_fits_a_narrow_terminal(launch: Callable[..., Gateway]) -> None:
    """Ours: 80 columns hold all but what matters least."""
    servers = {f"server-{number}-with-a-long-name": talker("--refuse") for number in range(3)}
    launch({"mcpServers": {**servers, "talker": talker()}}).settled()
    with Terminal([sys.executable, "-m", "muxway", "status"], columns=80, rows=24) as terminal:
        assert terminal.end() == 0
        lines = terminal.lines()
    (heads,) = [line.split() for line in lines if "p99" in line]
    needed = ["server", "state", "pid", "up", "rst", "busy", "queue", "p50", "p99", "err", "mem"]
    assert [head for head in heads if head not in ("revision", "calls")] == needed
    assert [line.split()[0] for line in lines if "running" in line] == ["talker"]
    # The path of the gateway's config is as long as it is, wherever it stands.
    assert max(len(line) for line in lines[2:] if not line.endswith("servers.json")) <= 80


def test_status_fits_forty_columns(launch: Callable[..., Gateway]) -> None:
    """Ours: in half a window the name, the state and what is wrong are still there."""
    launch({"mcpServers": {"talker": talker(), "missing": {"command": "no-such-program"}}}).settled()
    with Terminal([sys.executable, "-m", "muxway", "status"], columns=40, rows=24) as terminal:
        assert terminal.end() == 0
        lines = terminal.lines()
    (heads,) = [line.split() for line in lines if "p99" in line]
    assert [heads[:3], heads[-1] in ("err", "mem")] == [["server", "state", "up"], True]
    # What is above the empty line is about the gateway, and as long as it is.
    assert max(map(len, lines[lines.index("") :])) <= 40


def test_top_shows_servers_and_reasons_where_there_is_not_room_for_all(launch: Callable[..., Gateway]) -> None:
    """Ours: with more servers than lines, the reasons of the first ones are still there."""
    servers = {f"missing-{number}": {"command": "no-such-program"} for number in range(9)}
    launch({"mcpServers": servers}).settled()
    with Terminal([sys.executable, "-m", "muxway", "top"], columns=80, rows=14) as terminal:
        terminal.until(lambda said: "q ends" in said)
        shown = "\n".join(terminal.frame())
        terminal.type("q")
        assert terminal.end() == 0
    assert "more servers: make the window higher" in shown
    assert "more lines: make the window higher" in shown
    assert "could not be started" in shown


def test_columns_come_and_go_with_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: what matters least goes first, then names are cut; a pipe has room for all."""
    columns = [
        Column("server", ["a-very-long-name", "b"], left=True),
        Column("revision", ["2025-11-25", "-"], spare=1),
        Column("restarts", ["0", "12"], short="rst"),
    ]
    seen: dict[int, list[str]] = {}
    monkeypatch.setattr("muxway.cli.figures.on_terminal", lambda: True)
    monkeypatch.setattr("muxway.cli.output.on_terminal", lambda: True)
    for room in (38, 30, 16, 5):
        monkeypatch.setenv("COLUMNS", str(room))
        seen[room] = [click.unstyle(line) for line in table(columns)]
    assert seen[38][:2] == ["server              revision  restarts", "a-very-long-name  2025-11-25         0"]
    assert seen[30][:2] == ["server            revision rst", "a-very-long-na… 2025-11-25   0"]
    assert seen[16] == ["server       rst", "a-very-long…   0", "b             12"]
    assert seen[5][1] == "a-very-…   0"


# --- figures ------------------------------------------------------------------------------------


def test_figures_take_few_characters() -> None:
    """Ours: a column is narrow only if what stands in it is."""
    assert [duration(seconds) for seconds in (0.4, 59, 60, 61, 3600, 3725, 86400 * 2 + 7200)] == [
        *("0s", "59s", "1m", "1m1s", "1h", "1h2m", "2d2h"),
    ]
    assert [latency(seconds) for seconds in (None, 0.0004, 0.012, 0.9996, 1.25, 120)] == [
        *("-", "0.4ms", "12ms", "1.0s", "1.2s", "2m"),
    ]
    assert [memory(count) for count in (None, 12_400_000, 2_500_000_000)] == ["-", "12M", "2.5G"]
    assert [number(count) for count in (0, 9999, 12_345, 3_400_000)] == ["0", "9999", "12k", "3.4M"]
