"""One server more, one less: pinned, tried, and the rest of the config as it is written. No registry is asked."""

from __future__ import annotations

import json
import os
import stat
import sys
from typing import TYPE_CHECKING

import pytest

from muxway.config import load_config
from muxway.config.jsonc import parse_jsonc
from muxway.setup.packages import short_name
from tests.control.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

NPM = f"""#!{sys.executable}
import json, sys
known = {{"@scope/server-notes": "1.2.3", "notes-mcp": "0.9.0", "both": "1.0.0"}}
assert sys.argv[1] == "view" and sys.argv[3:] == ["version", "--json"], sys.argv
name, _, version = sys.argv[2].rpartition("@") if "@" in sys.argv[2][1:] else (sys.argv[2], "", "")
if name not in known:
    sys.exit("npm error code E404")
if version in ("", known[name]):
    print(json.dumps(known[name]))
"""
PIP = f"""#!{sys.executable}
import sys
assert sys.argv[1:3] == ["index", "versions"], sys.argv
name = sys.argv[-1]
if name not in ("mcp-server-clock", "both"):
    sys.exit("ERROR: No matching distribution found for " + name)
print(f"{{name}} (2.0.1)\\nAvailable versions: 2.0.1, 2.0.0, 1.0\\n")
"""
NPX = (
    f'#!/bin/sh\ntest "$1 $2" = "-y @scope/server-notes@1.2.3" && exec {sys.executable} -m muxway.demo.notes\nexit 9\n'
)
UVX = f'#!/bin/sh\ntest "$1" = "mcp-server-clock@2.0.1" && exec {sys.executable} -m muxway.demo.clock\nexit 9\n'


@pytest.fixture(autouse=True)
def managers(programs: Callable[[str, str], Path]) -> None:
    """Package managers that know a few packages, and runners that run them."""
    for name, text in (("npm", NPM), ("pip", PIP), ("npx", NPX), ("uvx", UVX)):
        programs(name, text)


@pytest.fixture
def config(home: Path) -> Path:
    file = home / ".config" / "muxway" / "muxway.jsonc"
    file.parent.mkdir(parents=True)
    file.write_text('{\n  // mine\n  "mcpServers": {\n    "a": { "command": "x" }, // keep\n  },\n}\n')
    return file


def test_packages_are_pinned_tried_and_added(config: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#one-server-more: the exact version is written, and everything else stays."""
    text = config.read_text()
    for source in ("@scope/server-notes", "pypi:mcp-server-clock@latest"):
        done = muxway("add", source)
        assert done.exit_code == 0, done.output + done.stderr
        assert "running" in done.output
    servers = parse_jsonc(config.read_text()).value["mcpServers"]  # pyright: ignore[reportIndexIssue]
    assert servers["notes"] == {"command": "npx", "args": ["-y", "@scope/server-notes@1.2.3"]}
    assert servers["clock"] == {"command": "uvx", "args": ["mcp-server-clock@2.0.1"]}
    assert config.read_text().startswith(text.removesuffix("\n  },\n}\n"))
    for name in ("clock", "notes"):
        assert muxway("remove", name).exit_code == 0
    assert config.read_text() == text


def test_a_server_that_does_not_start_is_not_added(config: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#one-server-more: it is tried first; --no-try is for those who know better."""
    text = config.read_text()
    done = muxway("add", "npm:notes-mcp")
    assert done.exit_code == 4
    assert "was not added" in done.stderr
    assert config.read_text() == text
    assert muxway("add", "--no-try", "npm:notes-mcp").exit_code == 0
    assert "notes-mcp@0.9.0" in config.read_text()


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("@modelcontextprotocol/server-memory", "memory"),
        ("mcp-server-fetch", "fetch"),
        ("@notionhq/notion-mcp-server", "notion"),
        ("@playwright/mcp", "playwright"),
        ("@sentry/mcp-server", "sentry"),
        ("io.github.ann/server", "ann"),
        ("mcp", "mcp"),
    ],
)
def test_a_server_gets_a_name_that_tells_it_from_others(package: str, name: str) -> None:
    """Ours: the name stands before each of its tools; `mcp` would be everybody's."""
    assert short_name(package) == name


def test_what_takes_a_while_is_told_before(config: Path, muxway: Callable[..., Result]) -> None:
    """Ours: nobody looks at a screen that says nothing, and wonders."""
    done = muxway("add", "@scope/server-notes")
    asked, started, *_ = done.stderr.splitlines()
    assert asked == "Asking npm for the newest @scope/server-notes …"
    assert started == "Starting it, to see whether it works …"
    done = muxway("add", "--name", "dead", "http://127.0.0.1:9/mcp")
    assert done.exit_code == 4
    assert done.stderr.startswith("Connecting to it …\nError: it does not answer, and was not added: cannot be reached")
    assert "dead" not in config.read_text()


def test_the_way_back_is_of_the_same_config(home: Path, muxway: Callable[..., Result]) -> None:
    """Ours: what is shown can be copied."""
    done = muxway("add", "--no-try", "--name", "a", "--config", home / "my own.json", "--", sys.executable)
    assert done.output.splitlines()[-1] == f"The way back: muxway remove a -c '{home / 'my own.json'}'"


def test_a_path_is_meant_from_where_it_was_given(
    config: Path, muxway: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/setup.md#one-server-more: a program is found from every folder; arguments are the server's own."""
    program = tmp_path / "serve"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -m muxway.demo.clock\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    done = muxway("add", "./serve", "./data")
    assert done.exit_code == 0, done.output + done.stderr
    assert f"./data starts wherever muxway is started: better write {tmp_path / 'data'}" in done.output
    server = load_config(config).servers["serve"]
    assert (server.command, server.args) == (str(program), ("./data",))


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("both", "write npm:both or pypi:both"),
        ("nothing-there", "it is not there"),
        ("npm:notes-mcp@^0.9", "no exact version"),
        (f"npm:notes-mcp@1{'a' * 200}$", "no exact version"),
        ("npm:notes-mcp@9.9.9", "npm has no notes-mcp@9.9.9"),
        ("pypi:mcp-server-clock==3.0", "PyPI has no mcp-server-clock 3.0"),
        ("pypi:mcp-server-clock>=1", "no name of a package"),
        ("npm:../../etc/passwd", "no name of a package"),
        ("npm:a;rm -rf x", "no name of a package"),
        ("npm:--registry=http://x", "no name of a package"),
        ("io.github.x/y", "the MCP registry"),
    ],
)
def test_what_cannot_be_added_is_refused_and_nothing_is_written(
    source: str, why: str, config: Path, muxway: Callable[..., Result]
) -> None:
    """docs/setup.md#one-server-more: ranges, unknown versions, names that are none."""
    text = config.read_text()
    done = muxway("add", source)
    assert done.exit_code == 1
    assert why in " ".join(done.stderr.split())
    assert config.read_text() == text


def test_a_name_and_a_url_run_no_package_of_that_name(config: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#one-server-more: a URL gets its name by --name, and a stranger's package is not run instead."""
    text = config.read_text()
    done = muxway("add", "notes-mcp", "https://notes.example.com/mcp")
    assert done.exit_code == 1
    assert "with --name notes-mcp and its URL" in " ".join(done.stderr.split())
    assert "Runs:" not in done.output
    assert config.read_text() == text


def test_secrets_go_to_a_file_of_their_own(
    home: Path, config: Path, muxway: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/setup.md#one-server-more: neither the config nor the screen has them."""
    monkeypatch.setenv("HUB_TOKEN", 'pa$$word "${X}"\\')
    program = home / "server.py"
    program.write_text(
        "import os, runpy\n"
        f"assert os.environ['HUB_TOKEN'] == {os.environ['HUB_TOKEN']!r}\n"
        "runpy.run_module('muxway.demo.notes', run_name='__main__')\n"
    )
    words = ["--name", "hub", "--env", "HUB_TOKEN", "--env", "MODE=fast", "--", sys.executable, program]
    done = muxway("add", *words)
    assert done.exit_code == 0, done.output + done.stderr
    assert "pa$$" not in done.output + done.stderr
    file = config.parent / "hub.env"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    server = load_config(config).servers["hub"]
    assert server.env == {"HUB_TOKEN": 'pa$$word "${X}"\\', "MODE": "fast"}
    entry = parse_jsonc(config.read_text()).value["mcpServers"]["hub"]  # pyright: ignore[reportIndexIssue]
    assert entry["envFile"] == "hub.env"
    assert entry["env"] == {"MODE": "fast"}
    assert "still in hub.env" in muxway("remove", "hub").output


def test_what_is_missing_is_said(config: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#one-server-more: exit 2 where nobody can be asked."""
    done = muxway("add", "--env", "HUB_TOKEN", "npm:notes-mcp")
    assert done.exit_code == 2
    assert "HUB_TOKEN" in done.stderr
    assert muxway("add", "--header", "Authorization=Bearer x1234567", "https://example.com/mcp").exit_code == 2
    assert muxway("add", "--name", "a", "npm:notes-mcp").exit_code == 2
    assert "Did you mean a?" in muxway("remove", "A").stderr


def test_a_url_and_a_program_are_added_as_they_are(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#one-server-more: a config that is not there is made."""
    assert (
        muxway("add", "--no-try", "--header", "Authorization=Bearer ${DOCS}", "https://mcp.docs.example/x").exit_code
        == 0
    )
    done = muxway("add", "--name", "notes", "--", sys.executable, "-m", "muxway.demo.notes")
    assert done.exit_code == 0, done.output + done.stderr
    file = home / ".config/muxway/muxway.json"
    assert json.loads(file.read_text())["mcpServers"] == {
        "docs": {"url": "https://mcp.docs.example/x", "headers": {"Authorization": "Bearer ${DOCS}"}},
        "notes": {"command": sys.executable, "args": ["-m", "muxway.demo.notes"]},
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_text()
    shown = muxway("add", "--dry-run", "pypi:mcp-server-clock")
    assert "+    " in shown.output
    assert file.read_text() == before


@pytest.mark.parametrize(("name", "text"), [
    ("c.toml", '# mine\n[mcp_servers.a]\ncommand = "x" # keep\n'),
    ("c.yaml", "# mine\nmcpServers:\n  a:\n    command: x # keep\n"),
])  # fmt: skip
def test_configs_of_other_formats_stay_as_they_are_written(
    name: str, text: str, home: Path, muxway: Callable[..., Result]
) -> None:
    """docs/setup.md#one-server-more: TOML and YAML, too."""
    file = home / name
    file.write_text(text)
    assert muxway("add", "--no-try", "--config", file, "npm:notes-mcp").exit_code == 0
    assert [*load_config(file).servers] in (["a", "notes"], ["notes", "a"])
    assert muxway("remove", "notes", "--config", file).exit_code == 0
    assert file.read_text() == text


def test_on_a_terminal_variables_are_asked_for_and_not_shown(config: Path) -> None:
    """docs/setup.md#one-server-more: what is typed for a secret is not echoed."""
    words = ["add", "--env", "HUB_TOKEN", "--no-try", "npm:notes-mcp"]
    with Terminal([sys.executable, "-m", "muxway", *words], columns=200, rows=40) as terminal:
        terminal.until(lambda said: "HUB_TOKEN:" in said)
        terminal.type("hunter2hunter2\n")
        terminal.until(lambda said: "Add it?" in said)
        terminal.type("y\n")
        assert terminal.end() == 0
        assert "hunter2" not in terminal.said
    assert (config.parent / "notes.env").read_text() == 'HUB_TOKEN="hunter2hunter2"\n'
