"""`muxway explain`: why a tool is called what it is called, who sees it, and why it fails."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from muxway import demo
from tests.control.conftest import Gateway, talker
from tests.control.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result


def server(name: str, keys: str) -> str:
    """The entry of a demo server, on lines of its own."""
    command = demo.config()["mcpServers"][name]
    return (
        f'"{name}": {{\n"command": {json.dumps(command["command"])}, "args": {json.dumps(command["args"])},\n{keys}}}'
    )


CONFIG = (
    '{"mcpServers": {\n'  # line 1
    + server("notes", '"excludeTools": ["del*"],\n"shape": {\n"add": {"name": "remember",\n"title": "R"}}')  # 2 to 7
    + ",\n"
    + server("clock", '"prefix": "time",\n"exposedTools": [\n"now",\n{"original": "convert", "exposed": "change"}]')
    + ",\n"  # 8 to 13
    + server("text", '"readOnly": true')  # 14 to 16
    + ',\n"gone": {\n"command": "nothing",\n"disabled": true}'  # 17 to 19
    + ',\n"refusing": ' + json.dumps(talker("--refuse"))  # 20
    + '},\n"middleware": [\n{"use": "log"},\n{"use": "limit", "rate": "9/s", "match": ["time__*"]}],\n'  # 21 to 23
    + '"tools": {\n"Desk": {"description": "d", "subtools": {"notes": ["list"]}}},\n'  # 24, 25
    + '"views": {\n"agent": {\n"servers": ["clock"],\n"hiddenTools": [\n"time__n*"]},\n'  # 26 to 30
    + '"writer": {\n"tools": ["remember"],\n"shape": {"remember": {"name": "jot"}}}}}'  # 31 to 33
)  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """Explain with servers that are started once for all tests here; what comes is what crosses the socket."""
    import asyncio

    from muxway import Gateway as LibraryGateway
    from muxway.cli.config_lines import ConfigLines
    from muxway.control.explaining import explain

    file = tmp_path_factory.mktemp("explain") / "servers.json"
    file.write_text(CONFIG)

    async def every() -> dict[tuple[str, str | None], dict[str, Any]]:
        names = ["remember", "notes__add", "delete", "notes.delete", "clock:convert", "now", "text__count", "Desk"]
        names += ["gone__x", "refusing__x", "notes__serch", "list", "nothing", "jot", "change"]
        async with LibraryGateway.open(file) as gateway:
            return {
                (name, view): await explain(gateway, name, view) for name in names for view in (None, "agent", "writer")
            }

    answers = json.loads(json.dumps([*asyncio.run(every()).items()]))
    lines = ConfigLines(str(file))

    def find(name: str, view: str | None = None) -> dict[str, Any]:
        answer = next(answer for asked, answer in answers if asked == [name, view])
        unknown = answer["unknown"] or {"facts": []}
        for facts in (unknown["facts"], *(tool["facts"] for tool in answer["tools"])):
            for fact in facts:
                if "place" in fact:
                    fact["path"], fact["line"] = lines.find(fact.pop("place"))
        return answer

    return find


def fact(answer: dict[str, Any], about: str, number: int = 0) -> tuple[str, str | None, int | None]:
    """What is said about something, with its path and line."""
    (tool,) = answer["tools"]
    found = [one for one in tool["facts"] if one["about"] == about][number]
    return found["text"], found["path"], found["line"]


def test_a_renamed_tool_names_the_line_that_renames_it(told: Callable[..., Any]) -> None:
    """docs/operating.md#explain: why it is renamed, with the config line responsible; by its old name as well."""
    for name in ("remember", "notes__add"):
        answer = told(name)
        assert (answer["tools"][0]["name"], answer["tools"][0]["originalName"]) == ("remember", "add")
        assert fact(answer, "name") == ("`shape` calls it 'remember'", "mcpServers.notes.shape.add", 6)
        assert fact(answer, "shape") == ("changes name, title", "mcpServers.notes.shape.add", 6)
        assert fact(answer, "listed") == ("yes, nothing hides it", None, None)
    entry = ("`exposedTools` calls it 'change'", "mcpServers.clock.exposedTools.1", 13)
    assert fact(told("clock:convert"), "name") == fact(told("change"), "name") == entry


def test_a_hidden_tool_names_the_line_that_hides_it(told: Callable[..., Any]) -> None:
    """docs/operating.md#explain: why it is hidden. The key is spelled as in the file; a glob is quoted."""
    for name in ("delete", "notes.delete"):
        answer = told(name)
        assert answer["tools"][0]["listed"] is False
        assert answer["tools"][0]["name"] is None
        assert fact(answer, "listed") == ("no, `hiddenTools` has 'del*'", "mcpServers.notes.excludeTools.0", 4)
    readonly = (
        "no, `readOnly` is set, and the tool does not say that it changes nothing",
        "mcpServers.text.readOnly",
        16,
    )
    assert fact(told("text__count"), "listed") == readonly


def test_a_prefix_names_its_line(told: Callable[..., Any]) -> None:
    """docs/operating.md#explain: why this name."""
    answer = told("now")
    assert answer["tools"][0]["name"] == "time__now"
    assert fact(answer, "name") == ("`prefix` 'time', '__' and its own name 'now'", "mcpServers.clock.prefix", 10)
    assert fact(answer, "listed") == ("yes, `exposedTools` has it", "mcpServers.clock.exposedTools.0", 12)
    assert fact(told("list"), "name")[0] == "the server's name 'notes', '__' and its own name 'list'"


def test_every_view_says_why_it_shows_a_tool_or_not(told: Callable[..., Any]) -> None:
    """docs/operating.md#explain: which key of the view, and its line."""
    now, remember = told("now"), told("remember")
    assert fact(now, "view agent") == ("hidden, `hiddenTools` has 'time__n*'", "views.agent.hiddenTools.0", 30)
    assert fact(now, "view writer") == ("hidden, `tools` names others only", "views.writer.tools", 32)
    assert fact(remember, "view agent") == ("hidden, `servers` does not have 'notes'", "views.agent.servers", 28)
    assert fact(remember, "view writer") == ("shown, `tools` has it", "views.writer.tools.0", 32)
    shaped = ("shape: called 'jot'; changes name", "views.writer.shape.remember", 33)
    assert fact(remember, "view writer", 1) == shaped


def test_in_a_view_a_tool_has_the_views_name(told: Callable[..., Any]) -> None:
    """docs/operating.md#explain: `--view V`."""
    (tool,) = told("jot", "writer")["tools"]
    assert (tool["name"], tool["listed"], tool["originalName"]) == ("jot", True, "add")
    (hidden,) = told("now", "agent")["tools"]
    assert (hidden["name"], hidden["listed"]) == ("time__now", False)
    assert told("jot")["unknown"] is not None


def test_middleware_is_told_in_its_order_if_it_is_for_the_tool(told: Callable[..., Any]) -> None:
    """docs/operating.md#explain: middleware around it, in order."""
    assert fact(told("now"), "middleware") == ("log, of the gateway", "middleware.0", 22)
    assert fact(told("now"), "middleware", 1) == ("limit, of the gateway, for time__*", "middleware.1", 23)
    (tool,) = told("remember")["tools"]
    assert [one["text"] for one in tool["facts"] if one["about"] == "middleware"] == ["log, of the gateway"]


def test_a_tool_of_the_gateway_itself_is_known(told: Callable[..., Any]) -> None:
    """Ours: compound and composed tools have no server."""
    answer = told("Desk")
    assert answer["tools"][0]["server"] is None
    assert fact(answer, "name") == ("a compound tool of the gateway itself", "tools.Desk", 25)
    assert fact(answer, "view agent")[0].startswith("hidden, with `servers`")


def test_a_name_that_leads_nowhere_says_as_much_as_is_known(told: Callable[..., Any]) -> None:
    """docs/operating.md#explain: unknown names; servers that are off or failed."""

    def first(name: str) -> tuple[str, str | None, int | None]:
        one = told(name)["unknown"]["facts"][0]
        return one["text"], one["path"], one["line"]

    assert first("gone__x") == ("gone is switched off", "mcpServers.gone.disabled", 19)
    assert first("refusing__x")[0] == "refusing has failed, so none of its tools is known"
    assert "exited with status 3" in told("refusing__x")["unknown"]["state"]["error"]
    assert first("notes__serch") == ("notes lists no such tool", "mcpServers.notes", 2)
    assert told("nothing")["unknown"]["facts"] == []


# --- the command --------------------------------------------------------------------------------


def test_a_running_gateway_is_asked(launch: Callable[..., Gateway], muxway: Callable[..., Result]) -> None:
    """docs/operating.md#explain: against a running gateway by the socket."""
    gateway = launch(CONFIG)
    gateway.settled()
    result = muxway("explain", "notes.delete")
    assert result.exit_code == 0
    assert "notes.delete  not listed" in result.output
    assert "no, `hiddenTools` has 'del*'  (line 4, mcpServers.notes.excludeTools.0)" in result.output
    assert f"By the gateway with pid {gateway.pid}; lines are those of {gateway.file}" in result.output
    near = muxway("explain", "notes__serch")
    assert near.exit_code == 1
    assert "nearest     notes__search" in near.output
    assert json.loads(muxway("explain", "notes__serch", "--json").output)["nearest"][0] == "notes__search"
    wrong = muxway("explain", "now", "--view", "agnet")
    assert wrong.exit_code == 2
    assert 'there is no view "agnet"; did you mean "agent"?' in wrong.stderr


def test_a_config_named_by_a_variable_is_not_explained_by_a_gateway_that_runs_another(
    launch: Callable[..., Gateway], muxway: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/operating.md#explain: the variable says which config is meant, as `--config` does."""
    gateway = launch(CONFIG)
    gateway.settled()
    file = tmp_path / "other.json"
    file.write_text('{"mcpServers": {\n' + server("text", '"prefix": "words"') + "}}")
    monkeypatch.setenv("MUXWAY_CONFIG", str(file))
    result = muxway("explain", "words__count")
    assert result.exit_code == 0, result.output
    assert f"By the servers, started for this; lines are those of {file}" in result.output


def test_without_a_gateway_the_servers_are_started(muxway: Callable[..., Result], tmp_path: Path) -> None:
    """docs/operating.md#explain: it starts the servers itself, like `muxway tools`."""
    file = tmp_path / "servers.json"
    file.write_text(CONFIG)
    result = muxway("explain", "text__count", "--config", file)
    assert result.exit_code == 0
    assert "(line 16, mcpServers.text.readOnly)" in result.output
    assert f"By the servers, started for this; lines are those of {file}" in result.output
    assert muxway("explain", "x", "--config", file, "--view", "nobody").exit_code == 2
    assert muxway("explain", "x", "--config", tmp_path / "not-there.json").exit_code == 3


def test_a_failing_tool_says_why_and_when_it_is_tried_again(
    launch: Callable[..., Gateway], muxway: Callable[..., Result]
) -> None:
    """docs/operating.md#explain: why it is failing."""
    gateway = launch({"mcpServers": {"refusing": talker("--refuse")}})
    gateway.settled()
    result = muxway("explain", "refusing__x")
    assert result.exit_code == 1
    assert "exited with status 3; its last stderr line: no database \\x1b[31mhere" in result.output


def test_a_file_that_changed_or_went_costs_only_the_lines(
    launch: Callable[..., Gateway], muxway: Callable[..., Result]
) -> None:
    """Ours: what is told is true without them."""
    gateway = launch({"mcpServers": {"talker": talker(hiddenTools=["die"])}})
    gateway.settled()
    gateway.file.unlink()
    result = muxway("explain", "talker__die")
    assert result.exit_code == 0
    assert "no, `hiddenTools` has it  (mcpServers.talker.hiddenTools)" in result.output


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("servers.toml", '[mcpServers."a.b"]\ncommand = "x"\nhidden_tools = ["y"]\n', 3),
        ("servers.yaml", "mcpServers:\n  a.b:\n    command: x\n    hiddenTools:\n      - z\n      - y\n", 6),
        ("servers.json", '{"servers": [\n{"name": "a.b", "command": "x",\n"hiddenTools": [\n"y"]}]}', 4),
    ],
)
def test_lines_are_found_in_every_format(tmp_path: Path, name: str, text: str, line: int) -> None:
    """Ours: TOML, YAML and arrays of servers; names with dots."""
    from muxway.cli.config_lines import ConfigLines
    from muxway.config import load_config

    file = tmp_path / name
    file.write_text(text)
    where = load_config(file).servers["a.b"].where
    assert ConfigLines(str(file)).find({"at": where, "key": "hiddenTools", "item": "y"})[1] == line


def test_a_narrow_terminal_gets_wrapped_lines(launch: Callable[..., Gateway]) -> None:
    """Ours: 80 columns, the place on its own line where there is no room."""
    launch(CONFIG).settled()
    with Terminal([sys.executable, "-m", "muxway", "explain", "text__count"], columns=60, rows=24) as terminal:
        assert terminal.end() == 0
    lines = [line for line in terminal.lines() if not line.startswith("By ")]
    assert max(map(len, lines)) <= 60
    assert "(line 16, mcpServers.text.readOnly)" in [line.strip() for line in lines]
