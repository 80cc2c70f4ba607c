"""A store of its own for each test, and a provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muxway.identity.store import TokenStore
from tests.interop import peers

from .provider import Provider, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the environments here, where the time limit of a single test does not count."""
    if session.config.option.collectonly or not any(
        item.path.name == "test_real_provider.py" for item in session.items
    ):
        return
    for env in ("mcp1", "mcp2", "node"):
        try:
            peers.ensure(env)
        except peers.SetupError:
            # The tests that need it ask again, and fail.
            return


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenStore:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return TokenStore()


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with running(Provider()) as provider:
        yield provider
