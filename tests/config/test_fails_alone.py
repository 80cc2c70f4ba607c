"""Servers that cannot be started, while the others can."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway
from muxway.config import load_config, parse_config
from muxway.errors import ConfigError, UpstreamError

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = {"command": sys.executable, "env": {"A": "${MISSING_ONE}", "B": "${MISSING_TWO}"}}


def write(folder: Path, servers: dict[str, Any], name: str = "muxway.json") -> Path:
    """A config file."""
    file = folder / name
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


def test_by_default_every_missing_variable_is_an_error(tmp_path: Path) -> None:
    """docs/configuration.md#variables: a missing variable is an error that names the variable and the path."""
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, {"a": TOKEN, "b": TOKEN}), environ={})
    assert [problem.variable for problem in caught.value.details] == ["MISSING_ONE", "MISSING_TWO"] * 2


@pytest.mark.parametrize("how", ["optional", "keep_going"])
def test_a_server_with_missing_variables_may_fail_alone(how: str, tmp_path: Path) -> None:
    """Ours: docs/configuration.md: `optional`, or `--keep-going` for all."""
    entry = {**TOKEN, **({"optional": True} if how == "optional" else {})}
    file = write(tmp_path, {"a": entry, "b": {"command": "x"}})
    config = load_config(file, environ={}, keep_going=how == "keep_going")
    assert config.servers["a"].unusable == "the variable MISSING_ONE and MISSING_TWO is not set"
    assert config.servers["b"].unusable == ""
    assert [warning.variable for warning in config.warnings] == ["MISSING_ONE", "MISSING_TWO"]
    there = load_config(file, environ={"MISSING_ONE": "1", "MISSING_TWO": "2"})
    assert (there.servers["a"].unusable, there.warnings) == ("", ())


def test_other_faults_of_an_optional_server_are_errors() -> None:
    """Ours: a slip is a slip; only the surroundings may differ from machine to machine."""
    with pytest.raises(ConfigError, match="args"):
        parse_config({"mcpServers": {"a": {**TOKEN, "optional": True, "args": 7}}}, environ={})


async def test_a_gateway_runs_without_it_and_says_why() -> None:
    """Ours: docs/configuration.md: it is listed as failed, and the others work."""
    config = parse_config({"mcpServers": {"a": {**TOKEN, "optional": True}}}, environ={})
    async with Gateway.open(config) as gateway:
        [server] = gateway.servers()
        assert server.error is not None
        assert "the variable MISSING_ONE and MISSING_TWO is not set" in server.error
        # Only another configuration helps.
        assert server.retry_in is None
        with pytest.raises(UpstreamError) as caught:
            await gateway.call("a__x")
        assert "is not set" in str(caught.value)
        assert "started again" not in str(caught.value)
        there = parse_config(
            {"mcpServers": {"a": {**TOKEN, "optional": True}}}, environ={"MISSING_ONE": "1", "MISSING_TWO": "2"}
        )
        assert gateway.planned(there).swap == {"a": ("env.A", "env.B", "unusable")}


@pytest.mark.parametrize(
    "words",
    [
        ["muxway", "--config", "FILE"],
        ["muxway", "--config=FILE"],
        ["muxway", "-cFILE"],
        ["/opt/bin/muxway", "stdio", "FILE"],
        ["muxway", "stdio", "-c", "FILE", "--debug"],
        ["python3", "-m", "muxway", "--config", "FILE"],
        ["uvx", "muxway", "-c", "FILE"],
        ["uvx", "--from", "muxway", "muxway", "-c", "FILE"],
        ["muxway", "--config", "LINK"],
        ["muxway", "serve", "FILE"],
        ["muxway"],
        ["muxway", "stdio", "--separator", "."],
    ],
)
def test_muxway_in_its_own_config_is_found_and_not_started(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: docs/configuration.md: it would start itself without end."""
    monkeypatch.chdir(tmp_path)
    file, link = tmp_path / "muxway.json", tmp_path / "link.json"
    link.symlink_to(file)
    command, *args = [word.replace("FILE", str(file)).replace("LINK", str(link)) for word in words]
    write(tmp_path, {"me": {"command": command, "args": args}, "other": {"command": "x"}})
    config = load_config(file, environ={"HOME": str(tmp_path)})
    assert config.servers["me"].unusable.startswith("it is muxway itself with this same file")
    assert config.servers["other"].unusable == ""


@pytest.mark.parametrize(
    "words",
    [["muxway", "-c", "other.json"], ["muxway", "check", "FILE"], ["other", "--config", "FILE"], ["echo", "muxway"]],
)
def test_muxway_with_another_config_is_a_server_like_any(words: list[str], tmp_path: Path) -> None:
    """Ours: gateways may stand behind gateways."""
    write(tmp_path, {"a": {"command": "x"}}, "other.json")
    command, *args = [word.replace("FILE", str(tmp_path / "muxway.json")) for word in words]
    file = write(tmp_path, {"me": {"command": command, "args": args}})
    assert load_config(file, environ={"HOME": "/nowhere"}).servers["me"].unusable == ""


def test_paths_start_at_the_config_also_behind_a_symbolic_link(tmp_path: Path) -> None:
    """Ours: docs/configuration.md: `command`, `cwd` and `envFile` alike; dotfile managers link single files."""
    real, linked = tmp_path / "dotfiles", tmp_path / "config"
    for folder in (real, linked):
        folder.mkdir()
    (real / "run.sh").touch()
    (real / "data").mkdir()
    (real / ".env").write_text("A=1")
    file = write(real, {"s": {"command": "./run.sh", "cwd": "data", "envFile": ".env"}, "t": {"command": "./run.sh"}})
    (linked / "muxway.json").symlink_to(file)
    for named in (file, linked / "muxway.json"):
        config = load_config(named, environ={})
        assert (config.servers["s"].cwd, config.servers["s"].env) == (str(real / "data"), {"A": "1"})
        assert config.servers["t"].command == str(real / "run.sh")
    (linked / ".env").write_text("A=2")
    assert load_config(linked / "muxway.json", environ={}).servers["s"].env == {"A": "2"}


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
def test_a_container_of_nothing_is_called_null(key: str) -> None:
    """Ours: no question whether the right key was meant."""
    with pytest.raises(ConfigError, match=f"{key} is null: put servers into it"):
        parse_config({key: None})


def test_credentials_in_url_and_header_are_told_before_anything_is_asked() -> None:
    """RFC 9110, 11.6.2: there is one Authorization."""
    entry = {"url": "https://me:pw@example.com/mcp", "headers": {"Authorization": "Bearer x"}}
    with pytest.raises(ConfigError, match="credentials twice, in `url` and as the header Authorization"):
        parse_config({"mcpServers": {"a": entry}})


def test_a_secret_in_the_wrong_place_is_not_shown() -> None:
    """Ours: docs/security.md: a slip of one line must not print what another line calls a secret."""
    data = {
        "mcpServers": {"a": {"command": "x", "env": {"API_KEY": "sk-abcdefgh"}, "callTimeout": "sk-abcdefgh"}},
        "gateway": {"callMax": "hunter2hunter2", "middleware": [{"use": "secrets", "values": {"P": "hunter2hunter2"}}]},
    }
    with pytest.raises(ConfigError) as caught:
        parse_config(data)
    assert "hunter2" not in str(caught.value)
    assert "sk-abc" not in str(caught.value)
    assert all("hunter2" not in repr(problem) for problem in caught.value.details)
    assert str(caught.value).count("'***'") == 2
