"""Sessions that open before the gateway's only server has said what it is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway
from muxway.exchange import meeting
from muxway.testing import RawClient
from tests.conftest import HANDSHAKE_REVISIONS
from tests.journeys.gated import GatedServer, config_of
from tests.pace import PATIENCE

if TYPE_CHECKING:
    from muxway.opening import OpeningGateway


def gateway(server: GatedServer, **keys: Any) -> OpeningGateway[Gateway]:
    """A gateway that is being started, whose server waits for the gate to be opened."""
    return Gateway.open(config_of({"up": server}, {"up": {"prefix": "", **keys}}), wait=False)


async def greeted(client: RawClient) -> dict[str, Any]:
    reply = await asyncio.wait_for(client.hello(), PATIENCE)
    assert reply is not None
    return reply.result


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
async def test_a_session_is_told_what_its_only_server_says_of_itself(revision: str) -> None:
    """docs/names.md#one-server: also at the very first start, when nothing is remembered of it."""
    up = GatedServer(tools={"t": None}, instructions="Ask first.", capabilities={"tools": {}})
    async with gateway(up) as started:
        client = RawClient(started.memory_door(), revision=revision)
        coming = asyncio.create_task(greeted(client))
        other = RawClient(started.memory_door(), revision=revision)
        assert (await other.ask("ping")).result == {}, "nothing else waits for that"
        assert not coming.done()
        up.gate.set()
        said = await coming
        assert said["instructions"] == "Ask first."
        assert "resources" not in said["capabilities"]
        assert await client.tools() == ["t"]


async def test_a_server_that_hangs_does_not_keep_its_client_from_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: then everything is offered, as it may have it (docs/design/decisions/0018)."""
    monkeypatch.setattr(meeting, "LONGEST", 0.05)
    async with gateway(GatedServer()) as started:
        said = await greeted(RawClient(started.memory_door()))
        assert {"tools", "prompts", "resources", "logging"} <= said["capabilities"].keys()


async def test_a_server_that_cannot_be_started_ends_the_wait() -> None:
    """Ours: whatever it may have is offered until it says otherwise."""
    up = GatedServer()
    async with gateway(up) as started:
        coming = asyncio.create_task(greeted(RawClient(started.memory_door())))
        up.end()
        up.gate.set()
        assert "prompts" in (await coming)["capabilities"]


async def test_a_session_of_several_servers_opens_at_once() -> None:
    """docs/design/decisions/0018: it is told of all that there may ever be."""
    async with gateway(GatedServer(), prefix="up") as started:
        assert "prompts" in (await greeted(RawClient(started.memory_door())))["capabilities"]


async def test_a_client_that_leaves_meanwhile_is_not_answered() -> None:
    """Ours: nothing is left of it."""
    up = GatedServer(tools={"t": None})
    async with gateway(up) as started:
        door = started.memory_door()
        client = RawClient(door)
        client.start("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}})
        await door.close()
        up.gate.set()
        await asyncio.wait_for(started.settled(), PATIENCE)
        assert not door.waiting()
