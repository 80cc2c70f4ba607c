"""`muxway tools` and `muxway call`: what there is, and using it."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from muxway.cli.verbs.call import owners
from muxway.config import parse_config
from tests import signals
from tests.cli.conftest import processes_with, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from tests.cli.conftest import Launched


def test_tools_are_listed_with_what_they_do(muxway: Callable[..., Result], servers: Path) -> None:
    """docs/cli.md#muxway-tools: every tool, with what it does."""
    result = muxway("tools", "--config", servers)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) == 8
    assert lines[0].split(maxsplit=1) == ["notes__add", "Remember a note."]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [("add", ["notes__add"]), ("NOTES__A*", ["notes__add"]), ("*__now", ["clock__now"])],
)
def test_tools_can_be_picked(pattern: str, names: list[str], muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: PATTERN is a part of the name or a glob, in any case."""
    result = muxway("tools", pattern, "--config", servers, "--json")
    assert [tool["name"] for tool in json.loads(result.stdout)["tools"]] == names


def test_no_match_is_told_on_stderr(muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: data → stdout, remarks → stderr."""
    result = muxway("tools", "xyz", "--config", servers)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no tool matches xyz\n")


def test_a_config_in_the_place_of_the_pattern_is_noticed(muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: `check` takes a file there, so people write it here, too."""
    result = muxway("tools", servers)
    assert result.exit_code == 2
    assert f"write --config {servers}." in result.stderr


def test_tools_of_one_server(muxway: Callable[..., Result], mixed: Path) -> None:
    """Ours: `--server` starts only that server, so that the broken ones are not even mentioned."""
    result = muxway("tools", "--server", "notes", "--config", mixed)
    assert len(result.stdout.splitlines()) == 4
    assert result.stderr == ""


def test_an_unknown_server_gets_the_nearest_name(muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: nearest-name suggestions on typos."""
    result = muxway("tools", "--server", "nots", "--config", servers)
    assert result.exit_code == 2
    assert 'Did you mean "notes"?' in result.stderr


def test_arguments_are_shown_on_request(muxway: Callable[..., Result], servers: Path) -> None:
    """docs/cli.md#muxway-tools: `--schema`."""
    result = muxway("tools", "text__read", "--schema", "--config", servers)
    assert re.search(r"text +string +required +The text\.", result.stdout)
    assert re.search(r"pause_ms +integer +default 200 +Milliseconds", result.stdout)


def test_tools_as_json_have_their_whole_definition(muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: `--json` is one stable document."""
    tool = json.loads(muxway("tools", "notes__add", "--json", "--config", servers).stdout)["tools"][0]
    assert (tool["server"], tool["originalName"]) == ("notes", "add")
    assert tool["definition"]["inputSchema"]["required"] == ["text"]


FRONT = """
from muxway import chain

class Shelf:
    def keep(self) -> str:
        "Stays."
        return ""

    def drop(self) -> str:
        "Goes."
        return ""

async def friendly(metadata, next):
    metadata = await next(metadata)
    kept = [tool for tool in metadata["tools"] if "drop" not in tool["name"]]
    return {**metadata, "tools": [{**tool, "description": "Friendly."} for tool in kept]}

async def failing(metadata, next):
    raise ValueError("no list today")

gateway = chain(%s).then(s=Shelf())
"""


def test_the_tools_are_those_that_clients_see(muxway: Callable[..., Result], write: Callable[..., Path]) -> None:
    """docs/middleware/writing.md: what a middleware makes of the list is shown, and that it fails is told."""
    assert muxway("tools", "-c", write(FRONT % "friendly", "front.py")).stdout.split() == ["s__keep", "Friendly."]
    failed = muxway("tools", "-c", write(FRONT % "failing", "front.py"))
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert 'middleware "failing" failed with ValueError: no list today (front.py:' in failed.stderr


def test_failed_servers_are_told_beside_the_tools(muxway: Callable[..., Result], mixed: Path) -> None:
    """Ours: a server that fails does not hide the others, nor itself."""
    result = muxway("tools", "--config", mixed)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 4
    assert '✗ failed  server "missing" could not be started' in result.stderr


def test_no_server_at_all_is_a_failure(muxway: Callable[..., Result], write: Callable[..., Path]) -> None:
    """docs/cli.md#muxway-tools: command not found."""
    result = muxway("tools", "--config", write({"mcpServers": {"a": {"command": "no-such-program"}}}))
    assert result.exit_code == 4
    assert "no-such-program: command not found" in result.stderr


@pytest.mark.parametrize("name", ["notes__add", "notes:add", "notes.add"])
def test_a_call_prints_the_text_of_its_result(name: str, muxway: Callable[..., Result], servers: Path) -> None:
    """docs/cli.md#muxway-call: `muxway call TOOL key=value key:=json`, the name in any of the three spellings."""
    result = muxway("call", name, "text=Buy milk: 2=two", 'tags:=["home"]', "--config", servers)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"id": 1, "text": "Buy milk: 2=two", "tags": ["home"]}


def test_arguments_can_be_one_json_object(muxway: Callable[..., Result], servers: Path) -> None:
    """docs/cli.md#muxway-call: `--json '{}'`; single arguments win over it."""
    line = ["call", "clock__convert", "--json", '{"time": "00:00", "from": "UTC", "to": "+02:00"}', "time=12:15"]
    assert muxway(*line, "-c", servers).stdout == "12:15 in UTC is 14:15 in +02:00\n"


def test_the_whole_result_can_be_had_as_json(muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: `-o json`, as `--json` of this verb gives arguments."""
    result = muxway("call", "text__count", "text=a bc", "-o", "json", "--config", servers)
    assert json.loads(result.stdout)["structuredContent"] == {"characters": 4, "words": 2, "lines": 1, "longest": "bc"}


def test_text_becomes_the_number_that_the_schema_wants(muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: `id=7` for an integer argument is what everybody types; the tool's own failure exits 6."""
    result = muxway("call", "notes__delete", "id=7", "--config", servers)
    assert result.exit_code == 6
    assert result.stdout == "there is no note 7; there are none\n"
    assert "✗ error  reported by the tool" in result.stderr


def test_a_failure_for_want_of_an_argument_says_where_to_look(muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: servers complain in many ways; the schema says it plainly."""
    result = muxway("call", "notes__add", "--config", servers)
    assert result.exit_code == 6
    assert f"It needs text: `muxway tools notes__add --schema -c {servers}` shows its arguments.\n" in result.stderr


def test_a_call_can_go_by_a_view(muxway: Callable[..., Result], servers: Path, write: Callable[..., Path]) -> None:
    """Ours: what a client of the view can call, and no more; `tools --view` lists it."""
    config = write({**json.loads(servers.read_text()), "views": {"clocks": {"tools": ["clock__*"]}}})
    assert muxway("call", "clock__now", "--view", "clocks", "-c", config).exit_code == 0
    hidden = muxway("call", "notes__list", "--view", "clocks", "-c", config)
    assert hidden.exit_code == 1
    assert "notes__list" in hidden.stderr
    unknown = muxway("call", "clock__now", "--view", "clock", "-c", config)
    assert unknown.exit_code == 2
    assert 'has no view "clock". There are: clocks.' in unknown.stderr


def test_an_unknown_tool_gets_the_nearest_names(muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: unknown tool: show the nearest names."""
    result = muxway("call", "notes__ad", "--config", servers)
    assert result.exit_code == 1
    assert "Tool not found: notes__ad" in result.stderr
    assert "Did you mean notes__add" in result.stderr


def test_a_bare_tool_name_says_what_is_missing(muxway: Callable[..., Result], servers: Path) -> None:
    """docs/names.md#what-a-call-may-say: a call to a bare name when prefixes are on."""
    result = muxway("call", "add", "--config", servers)
    assert result.exit_code == 1
    assert "must be prefixed with server key: add" in result.stderr


def test_errors_as_json(muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: with `-o json` stdout is JSON whatever happens."""
    result = muxway("call", "notes__ad", "-o", "json", "--config", servers)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"]["message"] == "Tool not found: notes__ad"


def test_a_server_that_is_not_there_is_unreachable(muxway: Callable[..., Result], mixed: Path) -> None:
    """Ours: exit 4."""
    result = muxway("call", "missing__x", "--config", mixed)
    assert result.exit_code == 4
    assert "no-such-program: command not found" in result.stderr


def test_a_call_that_takes_too_long_times_out(muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: exit 7; `--timeout` counts silence."""
    line = ["call", "text__read_aloud", "text=a", "pause_ms=60000", "--timeout", "0.3"]
    assert muxway(*line, "--config", servers).exit_code == 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["loose"], "'loose' is no argument"),
        (["=x"], "'=x' is no argument"),
        (["a:={"], "the value of a is not JSON"),
        (["--json", "[]"], "--json must be an object"),
        (["--json", "{"], "--json is not JSON"),
        (["--timeout", "0"], "0 is not above zero"),
    ],
)
def test_wrong_arguments_are_told_before_anything_starts(
    words: list[str], message: str, muxway: Callable[..., Result], servers: Path
) -> None:
    """docs/cli.md#muxway-call: what is wrong, and how to write it."""
    result = muxway("call", "notes__add", *words, "--config", servers)
    assert result.exit_code == 2
    assert message in result.stderr


def test_blocks_that_are_no_text_are_summed_up(muxway: Callable[..., Result], write: Callable[..., Path]) -> None:
    """Ours: `[image image/png, 12 kB]`; structured content as JSON if there is no text."""
    program = """
from muxway.demo.serving import DemoServer, DemoTool
class Odd(DemoServer):
    def _result(self, params, run):
        if params["name"] == "structured":
            return {"content": [], "structuredContent": {"a": 1}}
        return {"content": [
            {"type": "image", "mimeType": "image/png", "data": "A" * 16000},
            {"type": "resource_link", "uri": "file:///x", "name": "x"},
            {"type": "resource", "resource": {"uri": "file:///y", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///z", "blob": "AAAA"}},
            {"type": "hologram"},
        ]}
tool = DemoTool("", {}, (), lambda a, r: "")
Odd("odd", "2025-06-18", {"blocks": tool, "structured": tool}).serve()
"""
    file = write({"mcpServers": {"odd": {"command": sys.executable, "args": ["-c", program]}}})
    assert muxway("call", "odd__blocks", "--config", file).stdout.splitlines() == [
        "[image image/png, 12 kB]",
        "[link file:///x]",
        "inside",
        "[resource file:///z, 3 bytes]",
        "[hologram]",
    ]
    assert json.loads(muxway("call", "odd__structured", "--config", file).stdout) == {"a": 1}


def test_only_the_servers_a_tool_may_belong_to_are_started() -> None:
    """Ours: a call does not wait for servers it has nothing to do with."""
    entry = {"command": "x"}
    custom = {"description": "Either.", "subtools": {"b": {"tools": [{"name": "t"}]}}}
    config = parse_config(
        {
            "mcpServers": {
                "a": entry,
                "a__b": entry,
                "b": {**entry, "prefix": "bee"},
                "off": {**entry, "disabled": True},
            },
            "tools": {"Both": custom},
        }
    )
    assert owners(config, "a__x") == ["a"]
    assert owners(config, "a__b__x") == ["a", "a__b"]
    assert owners(config, "bee:x") == ["b"]
    assert owners(config, "Both") == ["b"]
    assert owners(config, "unknown__x") == ["a", "a__b", "b"]


def test_bare_names_may_belong_to_anybody() -> None:
    """Ours: with an unprefixed server, a name that looks prefixed may still be one of its own."""
    config = parse_config({"mcpServers": {"a": {"command": "x"}, "b": {"command": "x", "prefix": ""}}})
    assert owners(config, "a__x") == ["a", "b"]


def test_ctrl_c_cancels_the_call_at_its_server(launch: Callable[..., Launched], servers: Path, tmp_path: Path) -> None:
    """docs/cli.md#muxway-call: Ctrl-C cancels the call; the server hears of it, and nothing is left behind."""
    line = ["call", "text__read_aloud", f"text={'word ' * 100}", "pause_ms:=20", "--debug", "--config", servers]
    control, terminal = pty.openpty()
    try:
        call = launch(*line, stderr=terminal)
        seen = _read_until(control, b"%  word")
        call.process.send_signal(signal.SIGINT)
        code, out, _ = call.end()
        os.close(terminal)
        seen += _read_rest(control)
    finally:
        os.close(control)
    assert (code, out) == (130, "")
    assert b"call cancelled by the client" in seen
    assert b"text__read_aloud was cancelled" in seen
    until(lambda: not processes_with(tmp_path))


def test_a_second_ctrl_c_quits_at_once(
    launch: Callable[..., Launched], write: Callable[..., Path], tmp_path: Path
) -> None:
    """Ours: whoever presses it twice does not want to wait for a server that is slow to end; the reaper ends it."""
    mark = f"stubborn:{tmp_path}"
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    entry = {"command": sys.executable, "args": ["-c", stubborn, mark]}
    call = launch("call", "slow__x", "--config", write({"mcpServers": {"slow": entry}}))
    until(lambda: bool(processes_with(mark)))
    signals.send(call.process.pid, signal.SIGINT)
    call.process.send_signal(signal.SIGINT)
    assert call.end()[0] == 130
    until(lambda: not processes_with(mark))


def test_progress_is_a_bar_on_a_terminal_only(launch: Callable[..., Launched], servers: Path) -> None:
    """docs/cli.md#muxway-call: progress bar on a terminal, wiped away at the end; nothing in a pipe."""
    line = ["call", "text__read_aloud", "text=one two", "pause_ms:=1", "--config", servers]
    code, out, err = launch(*line).end()
    assert (code, out, err) == (0, "one two\n", "")
    control, terminal = pty.openpty()
    try:
        call = launch(*line, stderr=terminal)
        code, out, _ = call.end()
        os.close(terminal)
        seen = _read_rest(control)
    finally:
        os.close(control)
    assert (code, out) == (0, "one two\n")
    assert b"[############------------]  50%  one" in seen
    assert seen.endswith(b"\r\x1b[K")


def test_a_reader_that_leaves_early_causes_no_traceback(launch: Callable[..., Launched]) -> None:
    """Ours: BrokenPipeError when piped to head is no error of ours."""
    schema = launch("config", "schema")
    assert schema.process.stdout is not None
    schema.process.stdout.close()
    schema.process.stdout = None
    assert "Traceback" not in schema.end()[2]


def test_text_cannot_control_the_terminal(launch: Callable[..., Launched], servers: Path) -> None:
    """Ours: a tool's answer is foreign text; escape sequences are shown, not obeyed. A pipe gets it as it is."""
    line = ["call", "text__read_aloud", "text=\x1b[31mred", "pause_ms:=0", "--config", servers]
    assert launch(*line).end()[1] == "\x1b[31mred\n"
    control, terminal = pty.openpty()
    try:
        launch(*line, stdout=terminal).end()
        os.close(terminal)
        assert _read_rest(control) == b"\\x1b[31mred\r\n"
    finally:
        os.close(control)


def _read_until(fd: int, mark: bytes) -> bytes:
    seen = b""
    while mark not in seen:
        seen += os.read(fd, 4096)
    return seen


def _read_rest(fd: int) -> bytes:
    """What is left to read of a terminal whose other side is closed."""
    seen = b""
    while True:
        try:
            data = os.read(fd, 4096)
        except OSError:  # how Linux says that the other side is closed
            return seen
        if not data:
            return seen
        seen += data
