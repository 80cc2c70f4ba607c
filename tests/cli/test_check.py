"""`muxway check`: what is wrong with a config, and with its servers."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import click
import pytest

from muxway import demo
from muxway.cli.describing import counted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result


def test_a_good_config_shows_each_server(muxway: Callable[..., Result], servers: Path) -> None:
    """docs/cli.md#muxway-check: start nothing, one line a server."""
    result = muxway("check", servers)
    assert result.exit_code == 0
    first, *rest = result.stdout.splitlines()
    assert first == f"✓ valid  {servers}: 3 servers"
    assert [line.split()[:2] for line in rest] == [["notes", "stdio"], ["clock", "stdio"], ["text", "stdio"]]
    assert "-m muxway.demo.notes" in rest[0]


@pytest.mark.parametrize("place", ["after", "before", "argument", "variable"])
def test_the_config_may_be_named_anywhere(place: str, muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: `--config` is accepted before and after the verb, and by variable."""
    lines = {
        "after": ["check", "--config", servers],
        "before": ["--config", servers, "check"],
        "argument": ["check", servers],
        "variable": ["check"],
    }
    result = muxway(*lines[place], env={"MUXWAY_CONFIG": str(servers)} if place == "variable" else None)
    assert result.stdout.startswith("✓ valid")


def test_secrets_are_never_shown(muxway: Callable[..., Result], write: Callable[..., Path]) -> None:
    """docs/configuration.md#secrets: secrets never appear; `${VAR}` values never printed."""
    args = ["--api-key", "sk-11111", "--token=tk-22222", "${DSN}", "plain"]
    entry = {"command": "server", "args": args, "env": {"PASSWORD": "pw-33333"}}
    remote = {"url": "https://user:pw-44444@example.com/mcp?key=k-55555"}
    file = write({"mcpServers": {"local": entry, "remote": remote}})
    for flags in ([], ["--json"]):
        result = muxway("check", file, *flags, env={"DSN": "postgres://dsn-66666"})
        assert result.exit_code == 0, result.output
        assert not [
            secret for secret in ("11111", "22222", "33333", "44444", "55555", "66666") if secret in result.output
        ]
        assert "server --api-key *** --token=*** *** plain" in result.stdout
        assert "https://example.com/mcp?***" in result.stdout


def test_json_of_a_good_config(muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: `--json` is one stable document."""
    document = json.loads(muxway("check", servers, "--json").stdout)
    assert document["ok"] is True
    assert [(server["name"], server["transport"]) for server in document["servers"]] == [
        ("notes", "stdio"), ("clock", "stdio"), ("text", "stdio"),
    ]  # fmt: skip


def test_doubtful_things_are_shown_and_do_not_fail(muxway: Callable[..., Result], write: Callable[..., Path]) -> None:
    """docs/configuration.md#shapes: nearest key for an unknown one."""
    result = muxway("check", write({"mcpServers": {"a": {"command": "x", "hiddenTolls": ["y"]}}}))
    assert result.exit_code == 0
    assert "! warning  mcpServers.a.hiddenTolls (line 1)" in result.stdout
    assert "hiddenTools" in result.stdout


def test_a_working_folder_that_is_not_there_is_shown(
    muxway: Callable[..., Result], write: Callable[..., Path], tmp_path: Path
) -> None:
    """Ours: docs/configuration.md: `muxway check` looks up what a start needs."""
    entries = {
        "a": {"command": sys.executable, "cwd": str(tmp_path / "gone")},
        "b": {"command": sys.executable, "cwd": str(tmp_path)},
    }
    result = muxway("check", write({"mcpServers": entries}))
    assert result.exit_code == 0
    assert f"! warning  mcpServers.a.cwd (line 1): {tmp_path / 'gone'} is no folder" in result.stdout
    assert "mcpServers.b" not in result.stdout


BAD = {
    "empty": ("", "empty"),
    "wrong JSON": ('{"mcpServers": {', "line 1"),
    "no servers": ({"mcpServers": {}}, "server"),
    "nothing of ours": ({"theme": "dark"}, "mcpServers"),
    "wrong type": ({"mcpServers": {"a": {"command": 5}}}, "mcpServers.a.command (line 1)"),
    "unset variable": (
        {"mcpServers": {"a": {"command": "x", "env": {"K": "${NOT_SET_ANYWHERE}"}}}},
        "NOT_SET_ANYWHERE",
    ),
}


@pytest.mark.parametrize(("content", "clue"), BAD.values(), ids=BAD)
def test_bad_configs_are_told_with_their_place(
    content: object, clue: str, muxway: Callable[..., Result], write: Callable[..., Path]
) -> None:
    """docs/configuration.md#problems.

    A clear error naming place and remedy; exit 3; the same from every verb, on stderr there.
    """
    file = write(content)
    checked = muxway("check", file)
    assert checked.exit_code == 3
    assert checked.stdout.startswith("✗ error")
    assert str(file) in checked.stdout
    assert clue in checked.stdout
    for verb in (["stdio"], ["tools"], ["list"], ["call", "a__b"]):
        result = muxway(*verb, "--config", file)
        assert result.exit_code == 3
        assert clue in result.stderr
        assert result.stdout == ""


def test_every_problem_is_told_at_once(muxway: Callable[..., Result], write: Callable[..., Path]) -> None:
    """docs/configuration.md#problems: validation reports every problem, each with its line where known."""
    file = write('{"mcpServers": {\n"a": {"command": 5},\n"b": {"command": "x", "args": "y"}}}')
    text, document = muxway("check", file), muxway("check", file, "--json")
    assert "(line 2)" in text.stdout
    assert "(line 3)" in text.stdout
    assert document.exit_code == 3
    problems = json.loads(document.stdout)["problems"]
    assert [(problem["path"], problem["line"]) for problem in problems] == [
        ("mcpServers.a.command", 2), ("mcpServers.b.args", 3),
    ]  # fmt: skip


UNUSABLE: dict[str, dict[str, object]] = {
    "a wrong value": {"mcpServers": {"b": {"command": 5}}},
    "an unset variable": {"mcpServers": {"b": {"command": "${NOT_SET_ANYWHERE}"}}},
    "a middleware that is not there": {"middleware": ["no.such:One"]},
    "muxway itself": {"mcpServers": {"b": {"command": "muxway", "args": ["-c", "servers.json"]}}},
}


@pytest.mark.parametrize("wrong", UNUSABLE.values(), ids=UNUSABLE)
def test_warnings_are_told_beside_errors(
    wrong: dict[str, dict[str, object]],
    muxway: Callable[..., Result],
    write: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/cli.md#muxway-check: prints every problem, so nobody mends the errors only to meet the warnings."""
    monkeypatch.chdir(tmp_path)
    entries = {"a": {"command": "x", "hiddenTolls": ["t"]}, **wrong.get("mcpServers", {})}
    file = write({**wrong, "mcpServers": entries})
    text, document = muxway("check", file), json.loads(muxway("check", file, "--json").stdout)
    assert text.exit_code == 3
    assert text.stdout.startswith("✗ error")
    assert "! warning  mcpServers.a.hiddenTolls (line 1)" in text.stdout
    assert len(document["problems"]) == 1
    assert "mcpServers.a.hiddenTolls" in [warning["path"] for warning in document["warnings"]]


def test_unusable_servers_and_middleware_are_told_together(
    muxway: Callable[..., Result], write: Callable[..., Path], tmp_path: Path
) -> None:
    """docs/cli.md#muxway-check: every problem, each once, also where views repeat the gateway's middleware."""
    views = {"v": {"servers": ["a"], "middleware": ["no.such:Two"]}}
    itself = {"command": "muxway", "args": ["-c", str(tmp_path / "servers.json")]}
    entries = {"a": {"command": sys.executable}, "b": itself}
    file = write({"mcpServers": entries, "middleware": ["no.such:One"], "views": views})
    paths = [problem["path"] for problem in json.loads(muxway("check", file, "--json").stdout)["problems"]]
    assert paths == ["mcpServers.b", "middleware.0", "views.v.middleware.0"]


def test_a_missing_config_says_where_it_was_looked_for(muxway: Callable[..., Result]) -> None:
    """docs/configuration.md#which-file-is-read: config missing."""
    named, unnamed = muxway("check", "nowhere.json"), muxway("tools")
    assert (named.exit_code, unnamed.exit_code) == (3, 3)
    assert "nowhere.json" in named.stdout
    assert "muxway.json" in unnamed.stderr
    assert "--config FILE" in unnamed.stderr


def test_an_unreadable_config(muxway: Callable[..., Result], tmp_path: Path) -> None:
    """docs/configuration.md#problems: config unreadable; a folder is so for every user."""
    result = muxway("check", tmp_path)
    assert result.exit_code == 3
    assert str(tmp_path) in result.stdout


def test_connect_shows_each_server_and_why_one_failed(muxway: Callable[..., Result], mixed: Path) -> None:
    """docs/cli.md#muxway-check.

    `--connect` starts each server once and shows tools, time, stderr of failures; exit 4.
    """
    result = muxway("check", mixed, "--connect")
    assert result.exit_code == 4
    rows = {
        line.split()[2]: line for line in result.stdout.splitlines() if line.startswith("  ") and len(line.split()) > 2
    }
    assert rows["notes"].split()[:5] == ["✓", "running", "notes", "4", "tools"]
    assert rows["notes"].endswith("2025-06-18")
    assert " ms " in rows["notes"]
    assert rows["dies"].startswith("  ✗ failed")
    assert rows["off"].strip() == "⊘ disabled  off"
    assert 'server "dies" exited with status 3' in result.stdout
    assert "stderr  no database" in result.stdout
    assert "\x1b" not in result.stdout
    assert "no-such-program: command not found" in result.stdout


def test_connect_as_json(muxway: Callable[..., Result], mixed: Path) -> None:
    """Ours: `--json` has what the text has."""
    result = muxway("check", mixed, "--connect", "--json")
    assert result.exit_code == 4
    document = json.loads(result.stdout)
    notes, dies, missing, off = document["servers"]
    assert document["ok"] is False
    assert (notes["status"], notes["revision"], len(notes["tools"])) == ("running", "2025-06-18", 4)
    assert isinstance(notes["ms"], int)
    assert dies["status"] == "failed"
    assert "no database" in dies["stderr"][0]
    assert "no-such-program" in missing["error"]
    assert (off["enabled"], "status" in off) == (False, False)


def test_connect_succeeds_when_every_server_does(muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: exit 0 only if every server is fine, so that scripts can rely on it."""
    result = muxway("check", servers, "--connect")
    assert result.exit_code == 0
    assert [line.split()[-1] for line in result.stdout.splitlines()[1:]] == ["2025-06-18", "2024-11-05", "2026-07-28"]


def test_connect_says_that_the_issuer_lets_nobody_in(muxway: Callable[..., Result], tmp_path: Path) -> None:
    """docs/identity-team.md#the-gateway: exit 4, as for a server that cannot be reached."""
    file = tmp_path / "team.json"
    # Port 1 is taken by nobody.
    auth = {"issuer": "http://127.0.0.1:1/realms/main"}
    file.write_text(json.dumps({"mcpServers": {"off": {"command": "x", "disabled": True}}, "gateway": {"auth": auth}}))
    assert muxway("check", file).exit_code == 0
    result = muxway("check", file, "--connect")
    assert result.exit_code == 4
    assert "gateway.auth.issuer: the issuer cannot be reached: " in result.stdout
    result = muxway("check", file, "--connect", "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["ok"]) == (4, False)
    assert [problem["path"] for problem in document["problems"]] == ["gateway.auth.issuer"]


def ends_when_told(words: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """A server that never gets ready, and ends when the user has been told this."""
    told = folder / "told"
    echo = click.echo

    def heard(message: object = None, **more: Any) -> None:
        echo(message, **more)
        if words in str(message):
            told.touch()

    monkeypatch.setattr(click, "echo", heard)
    script = f"import os, time\nwhile not os.path.exists({str(told)!r}): time.sleep(0.05)"
    return {"command": sys.executable, "args": ["-c", script]}


def test_connect_says_whom_it_waits_for(
    muxway: Callable[..., Result], servers: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ours: docs/cli.md: a download may take half a minute, and nobody should think that nothing happens."""
    monkeypatch.setattr("muxway.cli.session._TELL_EVERY", 0.2)
    document = json.loads(servers.read_text())
    document["mcpServers"]["slow"] = ends_when_told("3 of 4 servers are there", tmp_path, monkeypatch)
    servers.write_text(json.dumps(document))
    result = muxway("check", servers, "--connect")
    assert result.exit_code == 4
    count = len(document["mcpServers"])
    assert re.search(rf"{count - 1} of {count} servers are there, waiting for slow \(\d+ s\)\n", result.stderr)
    assert "waiting for" not in result.stdout


@pytest.mark.parametrize(
    "lost",
    [
        {"command": "/nowhere/program"},
        {"command": sys.executable, "args": ["-c", "import time; time.sleep(0.4)"]},
    ],
    ids=["at once", "is tried again for a while"],
)
def test_connect_does_not_count_a_server_that_failed_as_there(
    lost: object, muxway: Callable[..., Result], servers: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ours: docs/cli.md: what is said while it waits is true."""
    monkeypatch.setattr("muxway.cli.session._TELL_EVERY", 0.1)
    entries = {"lost": lost, "slow": ends_when_told("1 failed, waiting for slow", tmp_path, monkeypatch)}
    servers.write_text(json.dumps({"mcpServers": entries}))
    result = muxway("check", servers, "--connect")
    assert re.search(r"^0 of 2 servers are there, 1 failed, waiting for slow \(\d+ s\)$", result.stderr, re.MULTILINE)
    assert "1 of 2 servers are there" not in result.stderr


@pytest.mark.parametrize("verb", ["check", "list", "test", "stdio", "serve"])
def test_a_file_beside_another_config_is_one_too_many(
    verb: str, muxway: Callable[..., Result], servers: Path, tmp_path: Path
) -> None:
    """Ours: docs/cli.md: muxway runs one config, and does not choose."""
    for words in ([verb, servers, "-c", tmp_path / "other.json"], ["-c", tmp_path / "other.json", verb, servers]):
        result = muxway(*words)
        assert result.exit_code == 2
        assert "two configs are given" in result.stderr
    if verb in ("check", "list"):
        assert muxway(verb, servers, "-c", servers).exit_code == 0


def test_list_shows_how_each_server_is(muxway: Callable[..., Result], mixed: Path) -> None:
    """docs/cli.md#muxway-list: `muxway list`; glyph and word, never colour alone."""
    result = muxway("list", "--config", mixed)
    assert result.exit_code == 0
    notes, dies, missing, off, _, *reasons = result.stdout.splitlines()
    assert notes.split() == ["✓", "running", "notes", "2025-06-18", "4", "tools"]
    assert dies.split() == ["✗", "failed", "dies"]
    assert missing.split() == ["✗", "failed", "missing"]
    assert off.split() == ["⊘", "disabled", "off"]
    assert [reason.partition(":")[0] for reason in reasons] == ["✗ failed  dies", "✗ failed  missing"]
    assert "exited with status 3; its last stderr line: no database" in reasons[0]
    assert "no-such-program: command not found" in reasons[1]


def test_list_takes_the_file_as_check_does(muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: one way to name a config for every verb that has nothing else to name."""
    result = muxway("list", servers)
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 3)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((1, 0, 0, 0), "1 tool"),
        ((0, 1, 0, 2), "0 tools, 1 prompt, 2 resource templates"),
        ((17, 4, 7, 2), "17 tools, 4 prompts, 7 resources, 2 resource templates"),
    ],
)
def test_what_a_server_has_is_told_in_words(counts: tuple[int, int, int, int], words: str) -> None:
    """Ours: not only tools."""
    assert counted(*counts) == words


def test_middlewares_are_shown_with_what_they_stand_around(
    muxway: Callable[..., Result], write: Callable[..., Path]
) -> None:
    """Ours: the outermost first."""
    around = ["log", {"use": "timeout", "seconds": 5, "match": ["notes__*"]}]
    lines = muxway("check", write({**demo.config(), "middleware": around})).stdout.splitlines()
    assert lines[-2].split(maxsplit=1) == ["log", "middleware, around everything"]
    assert lines[-1].split(maxsplit=1) == ["timeout", "middleware, around notes__*"]


def test_list_as_json(muxway: Callable[..., Result], mixed: Path) -> None:
    """Ours: `--json` is one stable document."""
    servers = json.loads(muxway("--config", mixed, "list", "--json").stdout)["servers"]
    assert [(s["name"], s["status"]) for s in servers] == [
        ("notes", "running"), ("dies", "failed"), ("missing", "failed"), ("off", "disabled"),
    ]  # fmt: skip
    assert servers[0]["tools"] == ["notes__add", "notes__list", "notes__search", "notes__delete"]


def test_a_program_that_is_no_server_is_given_up(muxway: Callable[..., Result], write: Callable[..., Path]) -> None:
    """docs/cli.md#muxway-check: a child that never answers."""
    silent = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"], "startTimeout": 1}
    file = write({"mcpServers": {"silent": silent, "notes": demo.config()["mcpServers"]["notes"]}})
    result = muxway("check", file, "--connect")
    assert result.exit_code == 4
    assert "was not ready after 1 s" in result.stdout
    assert "✓ running" in result.stdout


@pytest.mark.parametrize("verb", [["check", "--connect"], ["list"]], ids=" ".join)
def test_a_lazy_server_is_started_all_the_same(
    verb: list[str], muxway: Callable[..., Result], write: Callable[..., Path]
) -> None:
    """Ours: whoever asks whether the servers start is not told what was remembered of the last time."""
    servers = {"notes": {**demo.config()["mcpServers"]["notes"], "start": "lazy"}}
    file = write({"mcpServers": servers})
    for _ in range(2):
        assert "✓ running" in muxway(*verb, file).stdout


def test_tools_of_sleeping_servers_are_no_failure(muxway: Callable[..., Result], write: Callable[..., Path]) -> None:
    """Ours: what a lazy server had the last time is known, so that it is not started for a list of its tools."""
    file = write({"mcpServers": {"notes": {**demo.config()["mcpServers"]["notes"], "start": "lazy"}}})
    results = [muxway("tools", "--config", file) for _ in range(2)]
    assert [(result.exit_code, result.stderr) for result in results] == [(0, ""), (0, "")]
    assert results[0].stdout == results[1].stdout != ""


def test_connect_reports_subtools_that_are_not_there(muxway: Callable[..., Result], servers: Path) -> None:
    """docs/cli.md#muxway-check: a compound tool that names a tool in vain."""
    data = json.loads(servers.read_text())
    subtools = {"notes": {"tools": [{"name": "add"}, {"name": "ad"}]}}
    data["tools"] = {"Has Space": {"description": "Notes.", "subtools": subtools}}
    servers.write_text(json.dumps(data))
    result = muxway("check", servers, "--connect")
    assert result.exit_code == 3
    assert 'the server "notes" has no tool "ad"' in result.stdout
    assert 'has no tool "add"' not in result.stdout
    # Its own name is good for a call, whatever it had to be listed as.
    called = muxway("call", "Has Space", "server=notes", "tool=add", 'args:={"text": "x"}', "-c", servers)
    assert called.exit_code == 0, called.output


def test_names_in_access_rules_that_nothing_has_are_shown(
    muxway: Callable[..., Result], write: Callable[..., Path]
) -> None:
    """docs/access.md: with `--connect`, as only then it is known what there is."""
    notes = {"command": sys.executable, "args": ["-m", "muxway.demo.notes"]}
    rules = [
        {"tools": ["notes__add", "nothing__*", "*__ad?"], "do": "ask"},
        {"prompts": ["none"], "do": "deny"},
    ]
    file = write({"mcpServers": {"notes": notes}, "access": rules})
    result = muxway("check", file, "--connect")
    assert result.exit_code == 0, result.output
    said = [line for line in result.stdout.splitlines() if "matches nothing" in line]
    assert len(said) == 2, result.output
    assert "access.0.tools" in said[0]
    assert '"nothing__*"' in said[0]
    assert '"none"' in said[1]
    broken = write({"mcpServers": {"notes": {**notes, "args": ["-c", "raise SystemExit(1)"]}}, "access": rules})
    assert "matches nothing" not in muxway("check", broken, "--connect").stdout
