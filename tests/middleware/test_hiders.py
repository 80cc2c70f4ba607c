"""Who took a tool out of a list, and where one sees the list without it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway, Middleware, SyncGateway, chain
from muxway.config import parse_config
from muxway.control.explaining import explain
from muxway.testing import ScriptedServer

if TYPE_CHECKING:
    from muxway import Next, Request, Result
    from muxway.config.model import Config

HERE = "tests.middleware.test_hiders"


class Outer(Middleware):
    """Leaves lists as they are."""

    async def list_tools(self, request: Request, go: Next) -> Result:
        return await go(request)


class Without(Middleware):
    """Takes out what is called `drop`."""

    async def list_tools(self, request: Request, go: Next) -> Result:
        result = await go(request)
        return result.replace(tools=[tool for tool in result.value["tools"] if not tool["name"].endswith("drop")])


class Failing(Middleware):
    """Makes no list."""

    async def list_tools(self, request: Request, go: Next) -> Result:
        raise ValueError


def a_config(whole: list[str], view: list[str]) -> Config:
    """Middlewares of this module around everything, and around a view."""
    config = parse_config(
        {
            "mcpServers": {"up": {"command": "(in process)"}},
            "gateway": {"middleware": [{"use": f"{HERE}:{name}"} for name in whole]},
            "views": {"v": {"middleware": [{"use": f"{HERE}:{name}"} for name in view]}},
        }
    )
    return replace(config, objects={"up": ScriptedServer(tools={"drop": None, "keep": None})})


def facts(told: dict[str, Any], about: str) -> list[str]:
    return [fact["text"] for fact in told["tools"][0]["facts"] if fact["about"] == about]


@pytest.mark.parametrize(
    ("whole", "view", "asked"), [(["Outer", "Without"], [], None), (["Outer"], ["Outer", "Without", "Outer"], "v")]
)
async def test_explain_names_the_middleware_that_hides_a_tool(
    whole: list[str], view: list[str], asked: str | None
) -> None:
    """docs/cli.md: `muxway explain` says why a tool is hidden."""
    async with asyncio.timeout(30), Gateway.open(a_config(whole, view)) as gateway:
        about = "listed" if asked is None else "view v"
        hidden = await explain(gateway, "up__drop", asked)
        assert hidden["tools"][0]["listed"] is False
        assert ["Without takes it out of the list" in text for text in facts(hidden, about)] == [True]
        place = next(fact["place"] for fact in hidden["tools"][0]["facts"] if fact["about"] == about)
        assert "middleware" in place["at"]
        shown = await explain(gateway, "up__keep", asked)
        assert shown["tools"][0]["listed"] is True
        if asked is not None:
            assert (await explain(gateway, "up__drop"))["tools"][0]["listed"] is True


async def test_explain_tells_of_a_list_that_fails() -> None:
    """Ours: a middleware that fails is no reason to say nothing."""
    async with asyncio.timeout(30), Gateway.open(a_config(["Failing"], [])) as gateway:
        told = await explain(gateway, "up__keep")
        assert any("the list fails" in text for text in facts(told, "note"))


def test_without_a_loop_tools_are_those_that_clients_see() -> None:
    """docs/library.md: `SyncGateway.tools()` goes through the middleware."""
    config = chain(Without).then(up=ScriptedServer(tools={"drop": None, "keep": None})).config
    with SyncGateway(config) as gateway:
        assert [tool.name for tool in gateway.tools()] == ["up__keep"]
