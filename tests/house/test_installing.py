"""Installers are tried again, and say what failed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests import installing
from tests.installing import InstallError, install

if TYPE_CHECKING:
    from pathlib import Path

# Writes down that it was run, and fails until it was run so often.
TRIED = (
    "import pathlib, sys\n"
    "tries = pathlib.Path(sys.argv[1]); tries.open('a').write('x')\n"
    "print('the registry', 'hiccups')\n"
    "sys.exit(len(tries.read_text()) < int(sys.argv[2]))"
)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(installing, "PAUSES", (0.0, 0.0))


def test_what_fails_twice_is_tried_a_third_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ours: a hiccup of a registry fails nothing, and is not kept secret."""
    tries = tmp_path / "tries"
    install([sys.executable, "-c", TRIED, str(tries), "3"], seconds=60)
    assert tries.read_text() == "xxx"
    assert capsys.readouterr().err.count("the registry hiccups") == 2


def test_what_fails_each_time_says_what_and_how(tmp_path: Path) -> None:
    """Ours: whoever reads the end of a log must see it."""
    tries = tmp_path / "tries"
    with pytest.raises(InstallError) as failed:
        install([sys.executable, "-c", TRIED, str(tries), "9"], seconds=60)
    assert tries.read_text() == "xxx"
    for words in (str(tries), "ended with 1", "the registry hiccups", "the last of 3 tries"):
        assert words in str(failed.value)


def test_what_hangs_is_ended() -> None:
    """Ours: a registry that never answers holds nobody up for ever."""
    with pytest.raises(InstallError, match=r"did not end within 0\.2 s"):
        install([sys.executable, "-c", "import time; time.sleep(600)"], seconds=0.2)
