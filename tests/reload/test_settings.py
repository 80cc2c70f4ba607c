"""Every setting of a running gateway can change, and counts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway
from muxway.config import parse_config
from muxway.errors import ConfigError, RpcError, UpstreamError

from ..pace import PATIENCE
from ..stdio.harness import child
from .harness import Held, config, server

if TYPE_CHECKING:
    from pathlib import Path


async def test_more_calls_at_a_time_count_at_once(tmp_path: Path) -> None:
    """Ours: whoever raises `maxConcurrency` while calls wait means those that wait."""

    def limited(most: int) -> Any:
        return parse_config(config({"a": server(maxConcurrency=most)}))

    async with Gateway.open(limited(1)) as gateway:
        held = Held(tmp_path)
        slow = asyncio.create_task(gateway.call("a__who", held.arguments))
        await held.begun()
        waiting = asyncio.create_task(gateway.call("a__who"))
        async with asyncio.timeout(PATIENCE):
            while gateway.servers()[0].queued != 1:
                await asyncio.sleep(0.01)
        assert (await gateway.apply(limited(2))).adjust == {"a": ("maxConcurrency",)}
        await waiting
        assert not slow.done()
        held.let_go()
        await slow


@pytest.mark.parametrize("where", ["server", "gateway"])
async def test_the_largest_message_counts_from_the_next_start(where: str) -> None:
    """Ours: a server that is started again is read as the configuration says by then."""

    def limited(most: int) -> Any:
        if where == "server":
            return parse_config(config({"a": child(maxMessageBytes=most)}))
        return parse_config(config({"a": child()}, gateway={"maxMessageBytes": most}))

    async with Gateway.open(limited(10_000_000)) as gateway:
        pid = gateway.servers()[0].pid
        await gateway.apply(limited(50_000))
        assert gateway.servers()[0].pid == pid
        await gateway.restart("a")
        with pytest.raises(UpstreamError) as caught:
            await gateway.call("a__big", {"size": 200_000})
        assert caught.value.reason == "too_large"


async def test_another_state_key_seals_from_then_on_and_the_same_one_stays() -> None:
    """docs/questions.md: what was sealed with a key that is gone cannot be opened."""

    def sealed(key: str, name: str = "muxway") -> Any:
        return parse_config(config({"a": server()}, gateway={"stateKey": key, "name": name}))

    async with Gateway.open(sealed("k" * 40)) as gateway:
        services = gateway.runtime.forwarder.services
        before = services.seal
        await gateway.apply(sealed("k" * 40, "other"))
        assert services.seal is before
        await gateway.apply(sealed("n" * 40, "other"))
        assert services.seal is not before


async def test_limits_of_further_connections_count_at_once() -> None:
    """Ours: `maxInstances` and `instanceIdle` are the gateway's, so no server has to be touched."""
    async with Gateway.open(parse_config(config())) as gateway:
        instance = gateway._servers.by_name["a"].instance
        await gateway.apply(parse_config(config(gateway={"maxInstances": 3, "instanceIdle": 7})))
        assert gateway._servers.by_name["a"].instance is instance
        assert (instance.terms.most, instance.terms.idle) == (3, 7)


async def test_settings_that_cannot_be_used_leave_the_middlewares_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/reload.md#a-file-with-mistakes: a configuration that cannot be used changes nothing."""
    monkeypatch.setattr("muxway.search.meaning.is_installed", lambda: False)
    off = {"off": {"command": "none", "disabled": True}}
    wrong = {"gateway": {"discovery": "search", "semantic": True}, "middleware": ["log"]}
    async with Gateway.open(parse_config({"mcpServers": off, "middleware": ["retry"]})) as gateway:
        before = gateway.layers_around([])
        with pytest.raises(ConfigError, match="semantic"):
            await gateway.apply(parse_config({"mcpServers": off, **wrong}))
        assert gateway.layers_around([]) == before
        assert [layer.name for layer in before] == ["retry"]


async def test_a_middleware_whose_specification_is_the_same_counts_on() -> None:
    """docs/reload.md#what-is-remembered: a change of one middleware gives nobody a fresh allowance of another."""

    def limited(rate: str, *more: dict[str, Any]) -> Any:
        return parse_config(config({"a": server()}, middleware=[*more, {"use": "limit", "rate": rate}]))

    async with Gateway.open(limited("2/h")) as gateway:
        await gateway.call("a__who")
        await gateway.apply(limited("2/h", {"use": "log"}))
        await gateway.call("a__who")
        with pytest.raises(RpcError, match="limit"):
            await gateway.call("a__who")
        await gateway.apply(limited("3/h", {"use": "log"}))
        await gateway.call("a__who")
