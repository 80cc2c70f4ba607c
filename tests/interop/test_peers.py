"""The set-up of the foreign programs keeps its own promises."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests import installing

from . import peers

if TYPE_CHECKING:
    from pathlib import Path


def test_python_locks_name_no_index_and_pin_every_package_by_hash() -> None:
    """Ours: whoever installs from a mirror gets the same files as whoever does not."""
    for env in peers.PYTHON_PEERS:
        (lock,) = peers._lock_files(env)
        text = lock.read_text()
        assert "://" not in text, lock
        assert text.count("==") <= text.count("--hash="), lock


def test_the_npm_lock_names_no_registry_and_pins_every_package_by_hash() -> None:
    """Ours: as above. The URLs it may hold are where authors ask for donations."""
    lock = json.loads((peers.HERE / "package-lock.json").read_text())
    packages = {name: package for name, package in lock["packages"].items() if name}

    assert [name for name, package in packages.items() if "resolved" in package] == []
    assert [name for name, package in packages.items() if "integrity" not in package] == []


def test_a_set_up_that_fails_says_why_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: a test fails when its peer cannot be installed, and the next run starts afresh."""
    lock = tmp_path / "lock.txt"
    lock.write_text("this is no requirement")
    monkeypatch.setattr(peers, "ROOT", tmp_path)
    monkeypatch.setattr(peers, "ENVS", tmp_path / "envs")
    monkeypatch.setattr(peers, "_lock_files", lambda _env: [lock])
    monkeypatch.setattr(installing, "PAUSES", ())

    with pytest.raises(peers.SetupError, match="this is no requirement"):
        peers.ensure("mcp1")

    assert [path.name for path in (tmp_path / "envs").iterdir()] == ["mcp1.lock"]
