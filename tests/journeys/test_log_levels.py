"""Which log messages servers are asked for, while clients come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muxway.testing import RawClient, ScriptedServer
from tests.conftest import World, a_world
from tests.noting import until

if TYPE_CHECKING:
    import pytest


class Logging(ScriptedServer):
    """A server that takes log levels."""

    @property
    def levels(self) -> list[str]:
        return [message["params"]["level"] for message in self.heard if message.get("method") == "logging/setLevel"]


async def _client(world: World) -> tuple[RawClient, Any]:
    door = world.gateway.memory_door()
    client = RawClient(door)
    await client.hello()
    return client, door


async def test_a_server_is_asked_for_what_those_want_who_are_still_there() -> None:
    """MCP, server/utilities/logging: a client sets the least severe level it wants; servers here are shared."""
    up = Logging(tools={"echo": None})
    async with a_world({"up": up}) as world:
        one, one_door = await _client(world)
        two, two_door = await _client(world)
        await two.ask("logging/setLevel", {"level": "warning"})
        await until(lambda: up.levels == ["warning"])
        await one.ask("logging/setLevel", {"level": "debug"})
        await until(lambda: up.levels == ["warning", "debug"])
        await one_door.close()
        await until(lambda: up.levels == ["warning", "debug", "warning"])
        await two.ask("logging/setLevel", {"level": "info"})
        await until(lambda: up.levels[3:] == ["info"])
        await two.ask("logging/setLevel", {"level": "error"})
        await until(lambda: up.levels[4:] == ["error"])
        await two_door.close()
        three, _ = await _client(world)
        assert (await three.call("up__echo", {"ok": 1})).result["structuredContent"] == {"ok": 1}
        assert len(up.levels) == 5


async def test_what_a_stateless_caller_wants_holds_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: it is there with its requests only, so the server is asked for less when none has come for a while."""
    monkeypatch.setattr("muxway.exchange.log_levels._STAYS", 0.1)
    up = Logging(tools={"echo": None})
    async with a_world({"up": up}) as world:
        client = await world.client("2026-07-28")
        meta = {"io.modelcontextprotocol/logLevel": "debug"}
        for _ in range(2):
            await client.call("up__echo", {}, _meta=meta)
            await until(lambda: up.levels[-2:] == ["debug", "info"])
            up.heard.clear()
