"""Names that a server does not list: sent on by a gateway that stands for one server alone, if nothing is hidden."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway, Middleware
from muxway.servers import list_freshness
from muxway.testing import RawClient, ScriptedServer
from tests.journeys.gated import config_of

if TYPE_CHECKING:
    from muxway import Next, Request, Result

HERE = "tests.hardening.test_unlisted"
USES = {"tools/call": "tools/list", "prompts/get": "prompts/list"}


class Shortens(Middleware):
    """Might leave something out of a list."""

    plain = True

    async def list_tools(self, request: Request, go: Next) -> Result:
        return await go(request)


class Looks(Middleware):
    """Sees what a request is about, and leaves it alone."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None]] = []

    def before(self, request: Request) -> None:
        if request.method in USES:
            self.seen.append((request.server, request.tool.get("name")))


def server() -> ScriptedServer:
    """One that has more than it lists."""
    more = ScriptedServer(tools={"listed": None, "secret": None}, prompts={"listed": None, "secret": None})
    more.definitions = [{"name": "listed", "inputSchema": {}, "annotations": {"readOnlyHint": True}}]
    more.lists = {"prompts": [{"name": "listed"}]}
    return more


async def called(gateway: Gateway, up: ScriptedServer, method: str, view: str | None = None) -> tuple[bool, int, int]:
    """Use what is not listed: whether that went well, how often the server heard of it, how often it listed before."""
    client = RawClient(gateway.memory_door(view))
    await client.hello()
    assert "result" in (await client.ask(method, {"name": "listed", "arguments": {}})).message
    lists = sum(message.get("method") == USES[method] for message in up.heard)
    reply = await client.ask(method, {"name": "secret", "arguments": {}})
    heard = sum(message.get("params", {}).get("name") == "secret" for message in up.heard)
    return "result" in reply.message, heard, sum(m.get("method") == USES[method] for m in up.heard) - lists


@pytest.mark.parametrize("method", USES)
async def test_the_only_server_without_a_prefix_gets_what_it_does_not_list(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/design/decisions/0016: as if nothing were before it; after it was asked once more for its list."""
    monkeypatch.setattr(list_freshness, "FRESH", 0.0)
    up, looks = server(), Looks()
    config = replace(config_of({"up": up}, {"up": {"prefix": ""}}), middleware=(looks,))
    async with Gateway.open(config) as gateway:
        assert await called(gateway, up, method) == (True, 1, 1)
        assert looks.seen == [("up", "listed"), ("up", "secret")], "what is around a server is around this, too"
        client = RawClient(gateway.memory_door())
        await client.hello()
        up.tools["refused"] = lambda self, request: self.fail(request, -32050, "not for you")
        error = (await client.call("refused")).error
        assert (error["code"], error["message"]) == (-32050, "not for you"), "the server's own words"
        assert "not found" in (await client.call("x" * 300)).error["message"].lower()


CLOSED: dict[str, dict[str, Any]] = {
    "hidden": {"keys": {"hiddenTools": ["secret"], "hiddenPrompts": ["secret"]}},
    "something hidden": {"keys": {"hiddenTools": ["other"], "hiddenPrompts": ["other"]}},
    "exposed": {"keys": {"exposedTools": ["listed"], "exposedPrompts": ["listed"]}},
    "exposed globs": {"keys": {"exposedTools": ["l*"], "exposedPrompts": ["l*"]}},
    "read only": {"keys": {"readOnly": True}, "methods": ["tools/call"]},
    "shape": {"keys": {"shape": {"listed": {"title": "T"}}}, "methods": ["tools/call"]},
    "another server": {"others": True},
    "view of tools": {"view": {"tools": ["listed"], "prompts": ["listed"]}},
    "view of all tools": {"view": {"tools": ["*"], "prompts": ["*"]}},
    "view that hides": {"view": {"hiddenTools": ["x"]}, "methods": ["tools/call"]},
    "view that reads": {"view": {"readOnly": True}, "methods": ["tools/call"]},
    "view with a shape": {"view": {"shape": {"listed": {"title": "T"}}}, "methods": ["tools/call"]},
    "list middleware": {"gateway": {"middleware": [{"use": f"{HERE}:Shortens"}]}},
    "list middleware of the view": {"view": {"middleware": [{"use": f"{HERE}:Shortens"}]}},
    "middleware that goes by names": {"gateway": {"middleware": [{"use": "timeout", "match": ["sec*"], "seconds": 9}]}},
    "middleware of the server": {"keys": {"middleware": [{"use": f"{HERE}:Shortens"}]}},
}


@pytest.mark.parametrize(
    ("why", "method"), [(why, method) for why, case in CLOSED.items() for method in case.get("methods", USES)]
)
async def test_where_anything_may_be_hidden_nothing_unlisted_is_sent(why: str, method: str) -> None:
    """docs/security.md: what a filter, a shape, a view or a middleware hides cannot be called."""
    case = CLOSED[why]
    up = server()
    servers = {"up": up, **({"other": ScriptedServer()} if "others" in case else {})}
    top: dict[str, Any] = {"gateway": case.get("gateway", {})}
    if "view" in case:
        top["views"] = {"v": case["view"]}
    config = config_of(servers, {"up": {"prefix": "", **case.get("keys", {})}}, **top)
    async with Gateway.open(config) as gateway:
        assert (await called(gateway, up, method, "v" if "view" in case else None))[:2] == (False, 0)


async def test_a_view_that_shows_all_of_it_is_as_transparent() -> None:
    """docs/views.md: a view only takes away."""
    up = server()
    async with Gateway.open(config_of({"up": up}, {"up": {"prefix": ""}}, views={"v": {}})) as gateway:
        assert (await called(gateway, up, "tools/call", "v"))[:2] == (True, 1)


async def test_a_reload_that_hides_something_shuts_the_way_at_once() -> None:
    """docs/reload.md: also for a name that was let through before."""
    up = server()
    async with Gateway.open(config_of({"up": up}, {"up": {"prefix": ""}})) as gateway:
        assert (await called(gateway, up, "tools/call"))[:2] == (True, 1)
        await gateway.apply(config_of({"up": up}, {"up": {"prefix": "", "hiddenTools": ["secret"]}}))
        assert (await called(gateway, up, "tools/call"))[:2] == (False, 1)
        await gateway.apply(config_of({"up": up}, {"up": {"prefix": ""}}))
        assert (await called(gateway, up, "tools/call"))[:2] == (True, 2)
        middleware = {"middleware": [{"use": f"{HERE}:Shortens"}]}
        await gateway.apply(config_of({"up": up}, {"up": {"prefix": ""}}, gateway=middleware))
        assert (await called(gateway, up, "tools/call"))[:2] == (False, 2)
        await gateway.apply(config_of({"up": up, "more": ScriptedServer()}, {"up": {"prefix": ""}}))
        await asyncio.wait_for(gateway.settled(), 5)
        assert (await called(gateway, up, "tools/call"))[:2] == (False, 2)
