"""Ten thousand tools, and rules on who may use them: the first of a class waits, nobody else (docs/access.md#cost)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from muxway.calls.identity import Identity
from muxway.config import parse_config
from muxway.net.metronome import LONG
from muxway.testing import RawClient

from .watched import Watched, hostile, watched

if TYPE_CHECKING:
    from muxway import Gateway

SERVERS = {"many": hostile("many"), "resources": hostile("resources"), "small": hostile("", "small")}
RULES: dict[str, dict[str, Any]] = {
    "names": {"tools": ["*_x{n}_*", "many__tool_{n}"]},
    "marks": {"tools": ["many__tool_{n}*"], "annotations": {"readOnly": False}},
    "uris": {"resources": ["*/x{n}/*"]},
}


def configured(kind: str, first: int) -> dict[str, Any]:
    """A hundred rules, others than those with another first one."""
    written = [json.loads(json.dumps(RULES[kind]).replace("{n}", str(first + n))) for n in range(100)]
    of_ann = {"users": ["ann"], "tools": ["many__tool_9999"], "do": "allow"}
    return {"mcpServers": SERVERS, "access": [of_ann, *({**rule, "do": "deny"} for rule in written)]}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """With long lists, and rules that nobody has met."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        with watched(dict(SERVERS), access=configured("names", 1000)["access"]) as running:
            yield running


@pytest.mark.parametrize("kind", RULES)
def test_no_class_of_callers_that_is_new_holds_the_loop(kind: str, gateway: Watched) -> None:
    """Ours: 20 ms at a time, for its first request and for a reload with other rules while it is there."""
    firsts = iter(range(2000, 9000, 100))

    def reload() -> None:
        # Configurations are read beside the loop.
        config = parse_config(configured(kind, next(firsts)))
        gateway.do(lambda running: running.apply(config))

    async def meet(running: Gateway) -> None:
        ann = RawClient(running.memory_door(None, Identity(user="ann")), revision="2026-07-28")
        await ann.hello()
        assert (await ann.call("small__echo")).result is not None

    def new_rules_and_callers() -> None:
        reload()
        session = gateway.session()
        assert b'"result"' in gateway.call(session, "small__echo")
        # Somebody for whom another rule counts: of a class that nobody listens for.
        gateway.do(meet)
        # A reload while a session is open, which is told of what it sees otherwise.
        reload()
        assert b'"result"' in gateway.call(session, "small__echo")

    assert gateway.holds_for(LONG, new_rules_and_callers) < LONG


@pytest.mark.parametrize("what", ["server", "class"])
def test_nothing_that_changes_for_open_sessions_holds_the_loop(what: str, gateway: Watched) -> None:
    """Ours: 20 ms at a time while servers come and go, and while a session's caller comes to be of another class."""
    base = configured("names", 9000)
    gateway.do(lambda running: running.apply(parse_config(base)))
    # Configurations are read beside the loop.
    more = {**SERVERS, "more": hostile("", "small")}
    fewer = {name: server for name, server in SERVERS.items() if name != "many"}
    configs = [parse_config({**base, "mcpServers": servers}) for servers in (more, SERVERS, fewer, SERVERS)]

    async def change_server(running: Gateway) -> None:
        client = RawClient(running.memory_door(None, Identity(user="ann")))
        await client.hello()
        assert (await client.call("small__echo")).result is not None
        for config in configs:
            await running.apply(config)
            assert (await client.call("small__echo")).result is not None

    async def change_class(running: Gateway) -> None:
        door = running.memory_door(None, None)
        client = RawClient(door)
        await client.hello()
        door._endpoint.identify(Identity(user="ann"))
        assert (await client.call("small__echo")).result is not None
        door._endpoint.identify(None)
        assert (await client.call("small__echo")).result is not None

    change = change_server if what == "server" else change_class
    assert gateway.holds_for(LONG, lambda: gateway.do(change)) < LONG
