"""Ten thousand tools, resources or prompts, and changes that no list announces (docs/behaviour.md#size-limits)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muxway import Gateway
from muxway.config import parse_config
from muxway.exchange import meeting
from muxway.testing import RawClient

from ..pace import PATIENCE, heap_of_its_own
from .test_metronome import LISTING
from .watched import Watched, hostile, watched

MANY = {name: hostile(name) for name in ("many", "resources", "prompts")}
SMALL = hostile("", "small")
CHANGES: dict[str, dict[str, Any]] = {
    "a small server goes": {"mcpServers": MANY},
    "a large server goes": {"mcpServers": {"small": SMALL, "resources": MANY["resources"], "prompts": MANY["prompts"]}},
    "a server comes": {"mcpServers": {**MANY, "small": SMALL, "other": hostile("", "other")}},
    "all names change": {"mcpServers": {**MANY, "small": SMALL}, "gateway": {"separator": "."}},
    "a tool is hidden": {"mcpServers": {**MANY, "small": SMALL, "many": {**MANY["many"], "hiddenTools": ["tool_7"]}}},
    "a view comes": {"mcpServers": {**MANY, "small": SMALL}, "views": {"v": {"tools": ["many__*"]}}},
}
USUAL = {"mcpServers": {**MANY, "small": SMALL}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """With all that there may be, and a small server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        with watched(dict(USUAL["mcpServers"])) as running:
            yield running


@pytest.mark.parametrize("change", CHANGES)
def test_no_reload_with_ten_thousand_definitions_holds_the_loop(change: str, gateway: Watched) -> None:
    """Ours: 50 ms at a time, there and back; and what was changed is so when the reload is over."""

    async def reload(running: Gateway, config: dict[str, Any]) -> None:
        await running.apply(parse_config(config))
        assert {tool.server for tool in running.tools()} >= {*config["mcpServers"]} & {"many"}
        names = {tool.name for tool in running.tools()}
        assert ("many.tool_8" in names) is (change == "all names change" and config is CHANGES[change])
        await running.settled()

    def there_and_back() -> None:
        gateway.do(lambda running: reload(running, CHANGES[change]))
        gateway.do(lambda running: reload(running, USUAL))

    assert gateway.holds_for(LISTING, there_and_back) < LISTING


@pytest.mark.parametrize("name", ["small", "many"])
def test_no_server_that_goes_away_holds_the_loop(name: str, gateway: Watched) -> None:
    """Ours: 50 ms at a time, also when it comes back; a call of it in between is answered."""
    session = gateway.session()

    async def go(running: Gateway) -> None:
        await running.remove(name)
        assert not any(tool.server == name for tool in running.tools())

    async def come(running: Gateway) -> None:
        await running.add(name, USUAL["mcpServers"][name])
        assert any(tool.server == name for tool in running.tools())

    def away_and_back() -> None:
        gateway.do(go)
        assert b"error" in gateway.call(session, f"{name}__echo")
        gateway.do(come)
        assert b"result" in gateway.call(session, f"{name}__say", kind="")

    assert gateway.holds_for(LISTING, away_and_back) < LISTING


async def test_a_client_that_comes_with_the_start_is_told_what_is_remembered_of_ten_thousand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """docs/behaviour.md#start: what a server had is there at once, though it is put in order beside the loop."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(meeting, "LONGEST", PATIENCE)
    async with Gateway.open({"mcpServers": MANY}) as first:
        listed = len(first.tools())
    with heap_of_its_own():
        async with asyncio.timeout(PATIENCE), Gateway.open({"mcpServers": MANY}, wait=False) as second:
            client = RawClient(second.memory_door())
            hello = await client.hello()
            assert hello is not None
            assert "Ask little." in hello.result["instructions"]
            assert len(await client.tools()) == listed > 9_000
