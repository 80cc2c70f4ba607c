"""A store of its own for each test, and a provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muxway.identity.store import TokenStore

from .provider import Provider, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenStore:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return TokenStore()


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with running(Provider()) as provider:
        yield provider
