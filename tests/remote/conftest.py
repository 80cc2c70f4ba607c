"""The foreign servers before the first test that needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.interop import peers

if TYPE_CHECKING:
    import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the environments here, where the time limit of a single test does not count."""
    if session.config.option.collectonly:
        return
    if any(item.path.name == "test_official_servers.py" for item in session.items):
        # What cannot be installed fails the tests that need it, when they ask for it.
        for env in ("mcp1", "mcp2", "node"):
            try:
                peers.ensure(env)
            except peers.SetupError:
                return
