"""One server without a prefix: its clients see what they would see without a gateway."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from muxway.testing import RawClient, ScriptedServer
from muxway.wire.labels import labelled
from tests.conftest import HANDSHAKE_REVISIONS, REVISIONS, a_world

BARE = {"up": {"prefix": ""}}
FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"n": {"type": "string"}}}}
EVERYTHING: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
PROMPT = {"name": "greet", "description": "Greets."}
RESOURCE = {"uri": "doc:1", "name": "One", "title": "The first"}
TEMPLATE = {"uriTemplate": "doc:{n}", "name": "Any"}


async def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
    if server.revision == "2026-07-28":
        if "inputResponses" not in request["params"]:
            server.need(request, {"q": {"method": "elicitation/create", "params": FORM}})
            return
    else:
        await server.ask("elicitation/create", FORM)
    server.reply(request, {"content": []})


def logs(server: ScriptedServer, request: dict[str, Any]) -> None:
    for more in ({"logger": "db"}, {}):
        server.say(
            {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": 1, **more}}
        )
    server.reply(request, {"content": []})


def a_server(revision: str = "2025-11-25", **more: Any) -> ScriptedServer:
    return ScriptedServer(
        revision=revision,
        tools={"asks": asks, "logs": logs},
        prompts={"greet": None},
        resources={"doc:1": "x"},
        templates={"doc:{n}": None},
        lists={"prompts": [PROMPT, {"name": "plain"}], "resources": [RESOURCE], "resourceTemplates": [TEMPLATE]},
        instructions="  Ask first.\n",
        **more,
    )


async def greeting(client: RawClient) -> dict[str, Any]:
    """How the gateway introduces itself."""
    said = await client.hello() or await client.ask("server/discover")
    return said.result


async def listed(client: RawClient, method: str, member: str) -> list[dict[str, Any]]:
    return (await client.ask(method)).result[member]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_the_only_server_has_its_own_names_and_descriptions(revision: str) -> None:
    """docs/names.md#one-server."""
    async with a_world({"up": a_server()}, entries=BARE) as world:
        client = await world.client(revision)
        assert await client.tools() == ["asks", "logs"]
        assert await listed(client, "prompts/list", "prompts") == [PROMPT, {"name": "plain"}]
        assert await listed(client, "resources/list", "resources") == [RESOURCE]
        assert await listed(client, "resources/templates/list", "resourceTemplates") == [TEMPLATE]


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_the_only_servers_questions_are_in_its_own_words(revision: str, server_revision: str) -> None:
    """docs/names.md#one-server."""
    asked: list[str] = []

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["message"])
        return {"action": "decline"}

    async with a_world({"up": a_server(server_revision)}, entries=BARE) as world:
        client = RawClient(world.gateway.memory_door(), revision=revision, capabilities=EVERYTHING)
        client.answers["elicitation/create"] = answer
        await client.hello()
        await client.complete("tools/call", {"name": "asks", "arguments": {}})
        assert asked == ["Who?"]


@pytest.mark.parametrize(("entries", "context"), [(BARE, "thisServer"), ({}, "none")])
async def test_only_the_only_server_can_mean_itself_by_this_server(entries: dict[str, Any], context: str) -> None:
    """docs/questions.md: to the client, "this server" is the gateway."""
    asked: list[str] = []

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["includeContext"])
        return {"role": "assistant", "content": {"type": "text", "text": "ok"}, "model": "m"}

    async def samples(server: ScriptedServer, request: dict[str, Any]) -> None:
        await server.ask("sampling/createMessage", {"messages": [], "maxTokens": 1, "includeContext": "thisServer"})
        server.reply(request, {"content": []})

    async with a_world({"up": ScriptedServer(tools={"samples": samples})}, entries=entries) as world:
        client = RawClient(world.gateway.memory_door(), capabilities=EVERYTHING)
        client.answers["sampling/createMessage"] = answer
        await client.hello()
        await client.call(*await client.tools())
        assert asked == [context]


async def test_the_only_servers_log_messages_have_its_own_loggers() -> None:
    """docs/names.md#one-server."""
    async with a_world({"up": a_server()}, entries=BARE) as world:
        client = await world.client()
        await client.call("logs")
        said = [(await client.notice("notifications/message"))["params"] for _ in range(2)]
        assert [message.get("logger") for message in said] == ["db", None]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_only_servers_instructions_and_capabilities_are_the_gateways(revision: str) -> None:
    """docs/names.md#one-server; what changes, and tasks, are the gateway's own affair."""
    has = {
        "tools": {},
        "resources": {"subscribe": True},
        "experimental": {"x": {"a": 1}},
        "extensions": {"com.ex/y": {}},
    }
    async with a_world({"up": a_server(capabilities=has)}, entries=BARE) as world:
        client = RawClient(world.gateway.memory_door(), revision=revision)
        said = await greeting(client)
        assert said["instructions"] == "  Ask first.\n"
        offered = said["capabilities"]
        tasks = offered["extensions"].pop("io.modelcontextprotocol/tasks", None)
        assert (tasks is not None) == (revision == "2026-07-28")
        # The first revision has no word for completions, so it is not known whether the server has them.
        offered.pop("completions", None)
        assert offered == {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "experimental": {"x": {"a": 1}},
            "extensions": {"com.ex/y": {}},
        }


async def test_two_servers_are_told_apart_even_if_one_has_no_prefix() -> None:
    """docs/names.md#one-server: with two, people must see who speaks. And as soon as there are two."""
    async with a_world({"up": a_server()}, entries=BARE) as world:
        client = await world.client()
        await world.gateway.add("other", server=ScriptedServer(prompts={"p": None}, tools={"t": None}))
        await client.notice("notifications/prompts/list_changed")
        shown = await listed(client, "prompts/list", "prompts")
        assert [one.get("description") for one in shown] == ["[up] Greets.", "[up] plain", "[other] p"]
        await world.gateway.remove("other")
        assert await listed(client, "prompts/list", "prompts") == [PROMPT, {"name": "plain"}]


async def test_one_server_with_a_prefix_is_not_several() -> None:
    """docs/names.md#one-server."""
    async with a_world({"up": a_server()}) as world:
        said = await greeting(RawClient(world.gateway.memory_door()))
        assert said["instructions"] == "## up\n\nIts names begin with `up__` here.\n\nAsk first."


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
async def test_a_session_is_told_of_all_that_it_may_need_later(revision: str) -> None:
    """docs/design/decisions/0018: a session is told once, and servers come and go."""
    async with a_world({"up": ScriptedServer(tools={"t": None})}) as world:
        client = RawClient(world.gateway.memory_door(), revision=revision)
        offered = (await greeting(client))["capabilities"]
        assert {"tools", "prompts", "resources", "logging"} <= offered.keys()


async def test_a_stateless_client_is_told_what_there_is_now() -> None:
    """docs/design/decisions/0018."""
    async with a_world({"up": ScriptedServer(tools={"t": None})}) as world:
        client = await world.client("2026-07-28")

        async def offered() -> set[str]:
            return set((await client.ask("server/discover")).result["capabilities"])

        assert await offered() == {"tools", "extensions"}
        await world.gateway.add("more", server=ScriptedServer(prompts={"p": None}, tools={}))
        assert await offered() == {"tools", "prompts", "extensions"}
        await world.gateway.add("lost", command="muxway-no-such-program")
        assert await offered() == {"tools", "prompts", "resources", "logging", "completions", "extensions"}


async def test_a_server_that_is_not_known_yet_may_have_everything() -> None:
    """docs/design/decisions/0018: what is not known is offered."""
    server = ScriptedServer(tools={"t": None}, silent=frozenset(("initialize", "server/discover")))
    async with a_world({}) as world, asyncio.TaskGroup() as group:
        adding = group.create_task(world.gateway.add("up", server=server, prefix=""))
        while not server.heard:
            await asyncio.sleep(0.01)
        client = RawClient(world.gateway.memory_door())
        offered = (await greeting(client))["capabilities"]
        assert {"tools", "prompts", "resources", "logging", "completions"} <= offered.keys()
        adding.cancel()


async def test_a_session_hears_no_news_of_what_it_was_not_told_of() -> None:
    """docs/design/decisions/0018: it is answered all the same if it asks."""
    async with a_world({"up": ScriptedServer(tools={"t": None})}, entries=BARE) as world:
        client = await world.client()
        await world.gateway.add("more", server=ScriptedServer(prompts={"p": None}, tools={"u": None}))
        await client.notice("notifications/tools/list_changed")
        shown = (await client.ask("prompts/list")).result["prompts"]
        assert [one["name"] for one in shown] == ["more__p"]
        assert not client.notices


@pytest.mark.parametrize(
    ("label", "text", "shown"),
    [
        ("up", "Who?", "[up] Who?"),
        ("", "Who?", "Who?"),
        ("", "[ci] Who?", "[ci] Who?"),
        ("up", "[up] Who?", "[up] Who?"),
        ("team", "[ci] Who?", "[team/ci] Who?"),
        ("team", "[team/ci] Who?", "[team/ci] Who?"),
        ("outer", "[team/ci] Who?", "[outer/team/ci] Who?"),
        ("evil", "[bank] Pay?", "[evil/bank] Pay?"),
        ("up", "[not a name] x", "[up] [not a name] x"),
        ("up", "[x]y", "[up] [x]y"),
        ("up", "", "[up] "),
    ],
)
def test_nothing_is_labelled_twice_and_nobody_speaks_in_anothers_name(label: str, text: str, shown: str) -> None:
    """docs/names.md#one-server: a gateway behind a gateway has labelled what it passes on."""
    assert labelled(label, text) == shown


async def test_an_empty_meta_of_a_question_stays_empty() -> None:
    """Payloads are passed on as they came (docs/design/decisions/0001-raw-payloads.md)."""
    seen: list[Any] = []

    async def sample(server: ScriptedServer, request: dict[str, Any]) -> None:
        for meta in ({}, {"progressToken": 7}, {"x": 1}):
            await server.ask("sampling/createMessage", {"messages": [], "maxTokens": 1, "_meta": meta})
        await server.ask("sampling/createMessage", {"messages": [], "maxTokens": 1})
        server.reply(request, {"content": []})

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        seen.append(params.get("_meta"))
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}}

    async with a_world({"up": ScriptedServer(tools={"sample": sample})}) as world:
        client = RawClient(world.gateway.memory_door(), capabilities=EVERYTHING)
        client.answers["sampling/createMessage"] = answer
        await client.hello()
        await client.call("up__sample")
    assert json.dumps(seen) == json.dumps([{}, {}, {"x": 1}, None])
