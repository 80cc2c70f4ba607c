"""Ways around what stands before a tool, by `search_tools` and `call_tool`: there are none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from muxway import Gateway, Middleware
from muxway.search.listing import Discovery
from muxway.testing import ScriptedServer
from tests.conftest import World, a_world, said
from tests.search.test_views import SEARCHED, Hider, calls, client_of, hub, search, text

if TYPE_CHECKING:
    from muxway.middleware.engine.base import Next, Request, Result

OFF: dict[str, Any] = {"mcpServers": {"off": {"command": "none", "disabled": True}}}


class Notes(Middleware):
    """Takes note of the names that calls are about."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, ...]] = []

    async def call_tool(self, request: Request, go: Next) -> Result:
        """Pass it on."""
        self.heard.append(request.target.names)
        return await go(request)


# --- names ------------------------------------------------------------------------------------


async def test_call_tool_does_not_call_itself() -> None:
    """docs/discovery.md#who-sees-what: a call in a call would be judged as one of nothing, and made all the same."""
    notes, server = Notes(), hub()
    async with Gateway.open({**OFF, **SEARCHED}, middleware=[notes, Hider()]) as gateway:
        await gateway.add("hub", server=server)
        client = await client_of(World(gateway, {}))
        for name in ("hub__delete_repo", "hub__list_issues"):
            call: dict[str, Any] = {"name": name, "arguments": {}}
            for _ in range(3):
                call = {"name": "call_tool", "arguments": call}
                error = (await client.call("call_tool", call)).error
                assert "call_tool" in error["message"]
        assert not calls(server)


async def test_a_servers_tool_with_the_name_of_a_finder_changes_nothing_for_others() -> None:
    """docs/discovery.md#configuration: a tool called `call_tool` is one of many, whoever has called it before."""
    server = ScriptedServer(tools={"call_tool": None, "search_tools": None, "other": None})
    async with a_world({"up": server}, entries={"up": {"prefix": ""}}, **SEARCHED) as made:
        client = await client_of(made)
        for name in ("call_tool", "search_tools", "up__call_tool", "other"):
            inner = {"name": name, "arguments": {"name": "other", "arguments": {}}}
            assert said((await client.call("call_tool", inner)).result) == inner["arguments"]
            assert calls(server)[-1]["name"] == name.removeprefix("up__")
        assert "other()" in await search(client, "other")
        assert await client.tools() == ["search_tools", "call_tool"]


async def test_a_reload_that_turns_search_on_gives_the_names_to_the_finders() -> None:
    """docs/discovery.md#configuration: what was called directly before is not what `call_tool` leads to now."""
    server = ScriptedServer(tools={"call_tool": None, "other": None})
    async with a_world({"up": server}, entries={"up": {"prefix": ""}}) as made:
        client = await client_of(made)
        assert said((await client.call("call_tool", {"a": 1})).result) == {"a": 1}
        runtime = made.gateway.runtime
        settings = replace(runtime.snapshot.settings, discoveries={None: Discovery()})
        runtime.publish(runtime.snapshot.given, settings)
        refused = (await client.call("call_tool", {"a": 1})).result
        assert "takes the name of a tool" in text(refused)
        assert len(calls(server)) == 1
