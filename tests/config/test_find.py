"""Which file is used when nobody said so."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from muxway.config import find_config
from muxway.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_the_search_goes_from_the_most_explicit_to_the_most_general(here: Path, tmp_path: Path) -> None:
    """docs/configuration.md#which-file-is-read: the order of the places, MCP_PROXY_CONFIG_PATH among them."""
    home = tmp_path / "home"
    user = home / ("Library/Application Support" if sys.platform == "darwin" else ".config") / "muxway"
    user.mkdir(parents=True)
    environ = {"HOME": str(home)}
    wanted = [user / "muxway.toml", here / ".mcp.json"]
    wanted += [here / f"muxway.{extension}" for extension in ("yml", "yaml", "toml", "jsonc", "json")]
    for file in wanted:
        file.write_text("{}")
        assert find_config(None, environ).resolve() == file.resolve()
    for variable in ("MCP_PROXY_CONFIG_PATH", "MUXWAY_CONFIG"):
        file = tmp_path / f"{variable}.json"
        file.write_text("{}")
        environ[variable] = str(file)
        assert find_config(None, environ) == file
    explicit = tmp_path / "explicit.json"
    explicit.write_text("{}")
    assert find_config(str(explicit), environ) == explicit


@pytest.mark.skipif(sys.platform == "darwin", reason="XDG is for the others")
def test_the_xdg_folder_is_used_if_it_is_absolute(here: Path, tmp_path: Path) -> None:
    """XDG base directory specification: relative paths are invalid and ignored."""
    file = tmp_path / "xdg" / "muxway" / "muxway.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    assert find_config(None, {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}) == file
    with pytest.raises(ConfigError):
        find_config(None, {"XDG_CONFIG_HOME": "../xdg", "HOME": "/nonexistent"})


def test_finding_nothing_tells_where_it_looked_and_what_to_do(here: Path) -> None:
    """docs/configuration.md#which-file-is-read: config missing."""
    with pytest.raises(ConfigError) as caught:
        find_config(None, {"HOME": "/nonexistent", "MUXWAY_CONFIG": ""})
    assert caught.value.code == "file_not_found"
    for part in (
        str(here / "muxway.{json,jsonc,toml,yaml,yml}"),
        str(here / ".mcp.json"),
        "/nonexistent",
        "--config FILE",
        "mcpServers",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize("path", ["none.json", "a\x00b", "x" * 5000])
def test_a_named_file_that_is_missing_is_not_replaced_by_another(here: Path, path: str) -> None:
    """Ours: whoever names a file means that file; the message says who named it."""
    (here / "muxway.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"Config file not found: .*\(from \$MUXWAY_CONFIG\)") as caught:
        find_config(None, {"MUXWAY_CONFIG": path})
    assert caught.value.code == "file_not_found"
    with pytest.raises(ConfigError, match="Config file not found"):
        find_config(path, {})
