"""What every test may use."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from muxway import Gateway
from muxway.config import parse_config
from muxway.exchange import change_notices
from muxway.testing import RawClient, ScriptedServer
from muxway.testing import client as raw_client

from .leaping import LeapingLoop
from .pace import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

# A law holds or does not, however busy the machine is that tries it. In CI it is tried with the same examples each
# time: a new one that breaks it is for whoever works on it to find, or for `make fuzz`, and not for the next change.
settings.register_profile(
    "muxway", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("muxway")

# Whoever writes a test with it wants to know soon that nothing comes; here, a machine may be busy.
raw_client._PATIENCE = PATIENCE  # type: ignore[misc]

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
HANDSHAKE_REVISIONS = REVISIONS[:-1]


def said(result: dict[str, Any]) -> Any:
    """What a tool said: its structured content, or the text that stands for it to clients before 2025-06-18."""
    return result["structuredContent"] if "structuredContent" in result else json.loads(result["content"][-1]["text"])


class World:
    """A gateway in front of scripted servers, and as many clients as a test wants."""

    def __init__(self, gateway: Gateway, servers: dict[str, ScriptedServer]) -> None:
        self.gateway = gateway
        self.servers = servers

    async def client(self, revision: str = "2025-11-25") -> RawClient:
        client = RawClient(self.gateway.memory_door(), revision=revision)
        await client.hello()
        return client


@contextlib.asynccontextmanager
async def a_world(
    servers: dict[str, ScriptedServer], *, entries: dict[str, dict[str, Any]] | None = None, **top: Any
) -> AsyncIterator[World]:
    """A gateway whose servers are scripted servers in this process."""
    # A configuration needs a server; this one is switched off, the scripted ones are added at run time.
    config = parse_config({"mcpServers": {"off": {"command": "none", "disabled": True}}, **top})
    async with Gateway.open(config) as gateway:
        for name, server in servers.items():
            await gateway.add(name, server=server, **(entries or {}).get(name, {}))
        yield World(gateway, servers)


@pytest.fixture
def world() -> Callable[..., AbstractAsyncContextManager[World]]:
    return a_world


# What starts no other program is quick and comes last, so that no process is left alone with a long file at the end.
_QUICK = {"access", "catalog", "composed", "config", "exchange", "house", "middleware", "search", "servers", "wire"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.parent.name in _QUICK)


def pytest_collection_finish() -> None:
    """Spare the collector the tests themselves: to look through ten thousand takes longer than what some measure."""
    gc.collect()
    gc.freeze()


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    leaps = item.get_closest_marker("leaping") is not None
    return {"leaping": LeapingLoop} if leaps else {"real": asyncio.new_event_loop}


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """A command that is run in this process sets up the log for itself; the next test wants it as it was."""
    logger = logging.getLogger("muxway")
    handlers, propagate, level = [*logger.handlers], logger.propagate, logger.level
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """What muxway remembers of servers is remembered for one test, and never where the user's own muxway finds it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """How long changes of lists are gathered: not at all, unless a test says so. None is about that but for a few."""

    def set_(seconds: float) -> None:
        monkeypatch.setattr(change_notices, "QUIET", seconds)
        monkeypatch.setattr(change_notices, "QUIET_STREAM", seconds)

    set_(0)
    return set_
