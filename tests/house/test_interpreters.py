"""Which interpreters the tests are run on."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests import interpreters as module
from tests.interpreters import FOLDERS, ROOT, interpreters, named

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def _program(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_shim_that_stands_for_nothing_does_not_hide_the_interpreter_behind_it(tmp_path: Path) -> None:
    """Ours: pyenv's shims are on PATH for versions that are not switched on."""
    _program(tmp_path / "shims" / f"python{HERE}", "exit 127")
    real = _program(
        tmp_path / "pyenv" / "versions" / f"{HERE}.9" / "bin" / f"python{HERE}", f'exec {sys.executable} "$@"'
    )
    asked = [HERE, "3.99"]
    assert interpreters(asked, path=str(tmp_path / "shims"), pyenv=tmp_path / "pyenv") == {HERE: real}


def test_every_version_that_is_promised_is_looked_for() -> None:
    """pyproject.toml: the classifiers are the promise."""
    assert named((ROOT / "pyproject.toml").read_text(encoding="utf-8")) == ["3.11", "3.12", "3.13"]


def test_every_folder_that_other_interpreters_run_is_there() -> None:
    """Ours: a folder that was renamed is found here, and not by whoever has a second interpreter."""
    assert [folder for folder in FOLDERS if not [*(ROOT / folder).glob("test_*.py")]] == []


def test_what_fails_on_one_of_them_is_said_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ours: of a long output, often the end is all that is kept."""
    outcomes = {
        "3.97": (True, "...\n8 passed\n"),
        "3.98": (False, "F\nbroken\n"),
        "3.99": (True, "..\n9 passed\n"),
    }
    monkeypatch.setattr(module, "interpreters", lambda *_, **__: dict.fromkeys(outcomes, "python"))
    monkeypatch.setattr(module, "set_up", lambda version, _: version)
    monkeypatch.setattr(module, "check", lambda version, _: outcomes[version])
    assert module.main() == 1
    said = capsys.readouterr().out
    assert said.endswith("Python 3.97: 8 passed\nPython 3.99: 9 passed\nPython 3.98:\nF\nbroken\n\n")


def _venv_for(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", "--dry-run", "--always-make", "lint", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_an_interpreter_that_is_asked_for_gets_a_venv_of_its_own(tmp_path: Path) -> None:
    """CONTRIBUTING.md: `make test PYTHON=python3.13` leaves `.venv` to whoever made it."""
    other = _program(tmp_path / "python3.77", 'case "$*" in *print*) echo 3.77;; esac')
    assert ".venv/bin/ruff check" in _venv_for().stdout
    assert ".venv-3.77/bin/ruff check" in _venv_for(f"PYTHON={other}").stdout


def test_an_interpreter_that_does_not_run_is_named(tmp_path: Path) -> None:
    """Ours: a check that silently ran on another interpreter would be none."""
    done = _venv_for(f"PYTHON={tmp_path / 'python3.99'}")
    assert done.returncode == 2
    assert "python3.99 does not run" in done.stderr
