"""The first listings after a start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from muxway import Gateway
from muxway.exchange import first_listing
from muxway.testing import RawClient
from tests.journeys.gated import GatedServer, config_of

if TYPE_CHECKING:
    import pytest


async def test_a_list_is_never_empty_while_all_servers_are_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/behaviour.md#start: however long the first one takes; then the others have a moment."""
    monkeypatch.setattr(first_listing, "STRAGGLER", 0.5)
    servers = {name: GatedServer(tools={name: None}) for name in ("one", "two", "never")}
    async with Gateway.open(config_of(servers), wait=False) as gateway:
        client = RawClient(gateway.memory_door())
        await client.hello()
        listed = client.start("tools/list")
        await asyncio.sleep(0.6)
        await client.ask("ping")
        assert client.unread == 0, "nobody is there, so there is nothing to say"
        servers["two"].gate.set()
        while len(gateway.tools()) < 1:
            await asyncio.sleep(0.01)
        await client.ask("ping")
        assert client.unread == 0, "another one may follow"
        servers["one"].gate.set()
        names = [tool["name"] for tool in (await client.answer(listed)).result["tools"]]
        assert names == ["one__one", "two__two"]
        assert client.notices == []


async def test_servers_that_fail_are_not_waited_for() -> None:
    """docs/behaviour.md#start: when each is ready or has failed, there is nothing more to wait for."""
    servers = {name: GatedServer(tools={name: None}) for name in ("one", "two")}
    servers["one"].end()
    async with Gateway.open(config_of(servers), wait=False) as gateway:
        client = RawClient(gateway.memory_door())
        await client.hello()
        listed = client.start("tools/list")
        for server in servers.values():
            server.gate.set()
        async with asyncio.timeout(1.5):
            assert len((await client.answer(listed)).result["tools"]) == 1
