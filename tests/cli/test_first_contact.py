"""What a new user does in the first hour, and what the command says to it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from muxway.cli.group import with_verb
from tests.control.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from tests.cli.conftest import Launched

MUXWAY = [sys.executable, "-m", "muxway"]


@pytest.mark.parametrize("place", ["here", "home"])
def test_launched_by_a_program_it_serves_the_default_config(
    place: str, launch: Callable[..., Launched], servers: Path
) -> None:
    """Ours: docs/getting-started.md: a client that launches `muxway` wants MCP, not help."""
    home = servers.parent / "home"
    folder = home if place == "here" else home / ".config" / "muxway"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "muxway.json").write_text(servers.read_text())
    gateway = launch()
    assert gateway.hello()["serverInfo"]["name"] == "muxway"
    assert gateway.process.stdin is not None
    gateway.process.stdin.close()
    gateway.process.stdin = None
    assert gateway.end()[0] == 0


def test_without_a_config_it_shows_help(launch: Callable[..., Launched], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: a script that runs `muxway` to see what it is; a client that launched it gets the reason for its log."""
    code, out, err = launch().end()
    assert (code, out.splitlines()[0]) == (0, "Usage: muxway [OPTIONS] COMMAND [ARGS]...")
    assert err.startswith("Nothing is served: No config file found. Looked for:")
    assert "Name one with --config FILE" in err
    assert "muxway setup" in err
    monkeypatch.setenv("MUXWAY_CONFIG", "/nowhere.json")
    assert with_verb([]) == ["stdio"]


def test_muxway_in_its_own_config_is_an_error_of_check(muxway: Callable[..., Result], tmp_path: Path) -> None:
    """Ours: docs/configuration.md: nothing is started to find it."""
    file = tmp_path / "client.json"
    entry = {"command": "muxway", "args": ["--config", str(file)]}
    file.write_text(json.dumps({"mcpServers": {"me": entry, "b": {"command": sys.executable}}}))
    for more in ((), ("--connect",)):
        result = muxway("check", file, *more)
        assert result.exit_code == 3
        assert "mcpServers.me" in result.stdout
        assert "remove this entry" in result.stdout


def test_check_looks_for_the_programs(muxway: Callable[..., Result], write: Callable[..., Path]) -> None:
    """docs/cli.md#muxway-check: what to install, as a doubt, because the gateway may have another PATH."""
    empty = {"env": {"PATH": "/nowhere"}}
    result = muxway(
        "check", write({"mcpServers": {"a": {"command": "npx", **empty}, "b": {"command": sys.executable}}})
    )
    assert result.exit_code == 0
    assert "mcpServers.a.command" in result.stdout
    assert "Install Node.js" in result.stdout
    assert "mcpServers.b" not in result.stdout


def test_a_server_that_failed_at_once_is_shown_as_failed(
    muxway: Callable[..., Result], write: Callable[..., Path]
) -> None:
    """Ours: that it will be tried again is nothing to whoever looks only once."""
    file = write({"mcpServers": {"a": {"command": sys.executable, "args": ["-c", "exit(3)"]}}})
    result = muxway("check", file, "--connect")
    assert result.exit_code == 4
    assert "✗ failed  a" in result.stdout
    assert "restarting" not in result.stdout


def test_an_object_of_a_chain_is_shown_as_what_it_is(muxway: Callable[..., Result], tmp_path: Path) -> None:
    """Ours: no command, and no warning about one."""
    file = tmp_path / "front.py"
    file.write_text("from muxway import chain\nclass Dev:\n    def go(self): ...\ngateway = chain().then(dev=Dev())\n")
    result = muxway("check", file)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1].split() == ["dev", "in", "process", "Dev"]
    assert "warning" not in result.stdout


def test_a_config_may_come_from_stdin(servers: Path) -> None:
    """Ours: `-` is stdin, as everywhere."""
    done = subprocess.run(
        [*MUXWAY, "check", "-"], input=servers.read_bytes(), capture_output=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [["check", "-c", "A", "-c", "B"], ["-c", "A", "check", "-c", "B"]])
def test_two_configs_are_one_too_many(words: list[str], muxway: Callable[..., Result], servers: Path) -> None:
    """Ours: the last one used to win without a word."""
    result = muxway(*[str(servers) if word == "A" else word for word in words])
    assert result.exit_code == 2
    assert "two configs are given" in result.stderr
    same = [str(servers) if word in "AB" else word for word in words]
    assert muxway(*same).exit_code == 0


@pytest.mark.parametrize("verb", [["check"], ["list"], ["config", "schema"]])
@pytest.mark.parametrize("where", ["closed", "full"])
def test_an_output_that_cannot_be_written_is_no_bug(verb: list[str], where: str, servers: Path) -> None:
    """Ours: a sentence instead of a traceback."""
    words = " ".join([*MUXWAY, *verb, *([str(servers)] if len(verb) == 1 else [])])
    shell = f"exec {words} {'>&-' if where == 'closed' else '>/dev/full'}"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    if where == "full":
        assert (done.returncode, done.stderr) == (1, "Error: the output cannot be written: No space left on device.\n")
    else:
        assert (done.returncode, done.stderr) == (0, "")


EVIL = "x\x07\u202e\x9b31m"


@pytest.mark.parametrize("words", [[EVIL], ["config", "explain", EVIL]])
def test_what_the_user_typed_is_echoed_harmlessly(words: list[str], muxway: Callable[..., Result]) -> None:
    """Ours: docs/security.md: whatever reaches the terminal by way of muxway cannot control it."""
    result = muxway(*words)
    assert result.exit_code == 2
    assert not set("\x07\u202e\x9b") & set(result.output)


def test_middleware_problems_are_harmless_to_look_at(muxway: Callable[..., Result], write: Callable[..., Path]) -> None:
    """Ours: as those of every other key."""
    chain = [{"use": f"{EVIL}:a"}, {"use": "log", EVIL: 1}]
    result = muxway("check", write({"mcpServers": {"a": {"command": "x"}}, "middleware": chain}))
    assert result.exit_code == 3
    assert not set("\x07\u202e\x9b") & set(result.output)


def test_json_on_a_terminal_is_the_same_document_and_harmless(write: Callable[..., Path]) -> None:
    """Ours: valid JSON all the same, with the characters spelled out."""
    file = write({"mcpServers": {"s": {"command": "no-such", "extra\u202e": 1}}})
    with Terminal([*MUXWAY, "check", str(file), "--json"], columns=200, rows=50) as terminal:
        assert terminal.end() == 0
        assert "\u202e" not in terminal.said
        document = json.loads("\n".join(terminal.lines()))
    assert any("extra" in warning["path"] for warning in document["warnings"])


def test_a_port_that_is_none_is_called_so(muxway: Callable[..., Result]) -> None:
    """Ours: not what click calls its own class."""
    result = muxway("serve", "--port", "abc")
    assert "'abc' is not a valid port number" in result.stderr


def test_a_missing_variable_need_not_keep_the_others_from_starting(
    launch: Callable[..., Launched], servers: Path
) -> None:
    """docs/cli.md#muxway-stdio: `--keep-going`."""
    data = json.loads(servers.read_text())
    data["mcpServers"]["github"] = {"command": "x", "env": {"TOKEN": "${NO_SUCH_VARIABLE}"}}
    servers.write_text(json.dumps(data))
    code, _, err = launch("stdio", servers).end()
    assert code == 3
    assert "NO_SUCH_VARIABLE" in err
    gateway = launch("stdio", servers, "--keep-going", stderr=subprocess.DEVNULL)
    gateway.hello()
    assert {tool["name"].split("__")[0] for tool in gateway.tools(8)} == {"notes", "clock", "text"}


def test_a_program_that_repeats_what_it_hears_is_called_no_server(
    muxway: Callable[..., Result], write: Callable[..., Path]
) -> None:
    """Ours: `cat` sends our own request back; its answer is nothing that a user can act on."""
    result = muxway("check", write({"mcpServers": {"a": {"command": "cat"}}}), "--connect")
    assert result.exit_code == 4
    assert "a program that repeats it is no MCP server" in result.stdout
