"""What a server never declared or listed: the only server is asked for it, past nothing that judges requests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway, Middleware
from muxway.errors import RpcError
from muxway.testing import RawClient, ScriptedServer
from tests.conftest import REVISIONS
from tests.journeys.gated import config_of
from tests.noting import MODERN, NoteServer

if TYPE_CHECKING:
    from muxway import Next, Request, Result

URI, TEMPLATE = "doc://one", "doc://{name}"
ARGUMENT = {"name": "name", "value": "o"}
USES: dict[str, dict[str, Any]] = {
    "resources/read": {"uri": URI},
    "resources/subscribe": {"uri": URI},
    "completion/complete": {"ref": {"type": "ref/resource", "uri": TEMPLATE}, "argument": ARGUMENT},
}
REVISED = [(method, revision) for method in USES for revision in ("2025-11-25", MODERN)]
REVISED.remove(("resources/subscribe", MODERN))


class Looks(Middleware):
    """Sees what a request is about, and leaves it alone."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def before(self, request: Request) -> None:
        if request.method in USES:
            self.seen.append((request.method, request.server))


class Refuses(Middleware):
    """Refuses whatever is about the server."""

    async def any_request(self, request: Request, go: Next) -> Result:
        if request.server == "up":
            raise RpcError("not here", code=-32050)
        return await go(request)


def completes(server: ScriptedServer, request: dict[str, Any]) -> None:
    server.reply(request, {"completion": {"values": ["one"]}})


def server(revision: str = "2025-11-25") -> NoteServer:
    """One that declares tools, and has more than that."""
    more = NoteServer(revision=revision, capabilities={"tools": {}}, resources={URI: "text"}, completing=completes)
    more.lists = {"resources": [], "resourceTemplates": []}
    return more


async def used(gateway: Gateway, up: NoteServer, method: str, view: str | None = None) -> tuple[dict[str, Any], int]:
    """Use what was not declared: what came of it, and how often the server was asked."""
    client = RawClient(gateway.memory_door(view), revision=MODERN if up.revision == MODERN else "2025-11-25")
    await client.hello()
    reply = await client.ask(method, USES[method])
    return reply.message, up.times(method)


@pytest.mark.parametrize(("method", "revision"), REVISED)
async def test_the_only_server_is_asked_for_what_it_did_not_declare(method: str, revision: str) -> None:
    """docs/design/decisions/0016: as if nothing were before it; what is around the server is around this, too."""
    up, looks = server(revision), Looks()
    config = replace(config_of({"up": up}, {"up": {"prefix": ""}}), middleware=(looks,))
    async with Gateway.open(config) as gateway:
        reply, asked = await used(gateway, up, method)
        assert ("result" in reply, asked) == (True, 1), reply
        assert looks.seen == [(method, "up")]


@pytest.mark.parametrize(("method", "revision"), REVISED)
async def test_the_only_server_refuses_in_its_own_words(method: str, revision: str) -> None:
    """docs/design/decisions/0016: it has no such method, and says so."""
    up = ScriptedServer(revision=revision, tools={"t": None})
    async with Gateway.open(config_of({"up": up}, {"up": {"prefix": ""}})) as gateway:
        client = RawClient(gateway.memory_door(), revision=revision)
        await client.hello()
        error = (await client.ask(method, USES[method])).error
        assert (error["code"], error["message"]) == (-32601, f"no method {method}")


CLOSED: dict[str, dict[str, Any]] = {
    "hidden": {"keys": {"hiddenResources": ["doc://*"]}},
    "not exposed": {"keys": {"exposedResources": ["other://*"]}},
    "not in the view": {"view": {"resources": ["other://*"]}},
    "server not in the view": {"view": {"servers": []}},
    "a prefix": {"keys": {"prefix": "p"}},
    "another server": {"others": True},
    "middleware": {"middleware": (Refuses(),)},
}


@pytest.mark.parametrize("method", USES)
@pytest.mark.parametrize("why", CLOSED)
async def test_nothing_undeclared_is_sent_past_what_hides_or_refuses_it(why: str, method: str) -> None:
    """docs/security.md: what a filter, a view or a middleware keeps from a client is not to be had in another way."""
    case = CLOSED[why]
    up = server()
    servers = {"up": up, **({"other": ScriptedServer()} if "others" in case else {})}
    top = {"views": {"v": case["view"]}} if "view" in case else {}
    config = config_of(servers, {"up": {"prefix": "", **case.get("keys", {})}}, **top)
    config = replace(config, middleware=case.get("middleware", ()))
    async with Gateway.open(config) as gateway:
        reply, asked = await used(gateway, up, method, "v" if "view" in case else None)
        assert ("error" in reply, asked) == (True, 0), reply


async def test_a_second_server_shuts_the_way_at_once() -> None:
    """docs/names.md#one-server: with two, nobody can tell whose it would be."""
    up = server()
    async with Gateway.open(config_of({"up": up}, {"up": {"prefix": ""}})) as gateway:
        assert "result" in (await used(gateway, up, "resources/read"))[0]
        await gateway.add("other", server=ScriptedServer(tools={"t": None}))
        assert "error" in (await used(gateway, up, "resources/read"))[0]
        await gateway.remove("other")
        reply, asked = await used(gateway, up, "resources/read")
        assert ("result" in reply, asked) == (True, 2)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_nothing_more_is_offered_for_it(revision: str) -> None:
    """MCP, basic/lifecycle: capabilities say what there is; what may be tried besides is between client and server."""
    async with Gateway.open(config_of({"up": server()}, {"up": {"prefix": ""}})) as gateway:
        client = RawClient(gateway.memory_door(), revision=revision)
        said = await client.hello() or await client.ask("server/discover")
        assert "resources" not in said.result["capabilities"]
