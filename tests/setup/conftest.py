"""A made-up home, and the command run in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from muxway.cli import cli

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of a user who has no client yet; nothing of this machine plays a part."""
    home = tmp_path / "home"
    home.mkdir()
    for name in os.environ:
        if name.startswith(("MUXWAY_", "MCP_PROXY_", "XDG_", "CLAUDE_", "CODEX_", "COPILOT_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("MUXWAY_REGISTRY", "http://127.0.0.1:9")  # nobody is there
    monkeypatch.chdir(home)
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return home


@pytest.fixture
def programs(tmp_path: Path, home: Path) -> Callable[[str, str], Path]:
    """Put a program on PATH."""

    def put(name: str, text: str) -> Path:
        path = tmp_path / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    return put


@pytest.fixture
def muxway() -> Callable[..., Result]:
    """Run the command in this process."""

    def run(*args: str | Path) -> Result:
        return CliRunner(catch_exceptions=False).invoke(cli, [str(arg) for arg in args], prog_name="muxway")

    return run
