"""What is not shown is not there: one selection for lists and for every use (docs/security.md).

The matrix is made of what there is: each thing of the whole × each selection × each way to use it. A thing works where
it is listed, and elsewhere the answer is the one for a thing that nobody has.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from muxway.testing import RawClient, ScriptedServer
from tests.conftest import World, a_world
from tests.noting import NoteServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muxway.testing.client import Reply

OFF = {"command": "none", "disabled": True}


class Thing(NamedTuple):
    """Something that a server has."""

    kind: str
    server: str
    name: str
    """Its own name or URI."""


THINGS = [
    *(Thing("tool", server, name) for server in "ab" for name in ("get", "drop", "list")),
    *(Thing("prompt", server, name) for server in "ab" for name in ("p", "q")),
    *(Thing("resource", server, f"{server}://{name}") for server in "ab" for name in ("one", "two")),
    *(Thing("template", server, f"{server}://made/{{x}}") for server in "ab"),
]

VIEWS: dict[str, dict[str, Any]] = {
    "everything": {},
    "one_server": {"servers": ["a"]},
    "some_tools": {"tools": ["*__get"]},
    "without": {"hiddenTools": ["a__drop", "b__*"]},
    "reading": {"readOnly": True},
    "a_prompt": {"prompts": ["a__p"]},
    "some_uris": {"resources": ["a://*"]},
    "no_tools": {"tools": [], "servers": ["b"]},
}
ENTRIES: dict[str, dict[str, dict[str, Any]]] = {
    "all": {},
    "hidden": {"a": {"hiddenTools": ["drop"], "hiddenPrompts": ["q"], "hiddenResources": ["a://two"]}},
    "exposed": {"a": {"exposedTools": ["get"], "exposedPrompts": ["p"], "exposedResources": ["a://one"]}},
    "read_only": {"a": {"readOnly": True}, "b": {"hiddenTools": ["*"], "hiddenResources": ["*"]}},
}


def server(name: str) -> NoteServer:
    """A server that has its things, and answers for them."""
    definitions = [
        {"name": tool, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": tool == "get"}}
        for tool in ("get", "drop", "list")
    ]
    return NoteServer(
        tools=dict.fromkeys(("get", "drop", "list")),
        definitions=definitions,
        prompts={"p": None, "q": None},
        resources={f"{name}://one": "1", f"{name}://two": "2"},
        templates={f"{name}://made/{{x}}": _made},
        completing=lambda self, request: self.reply(request, {"completion": {"values": []}}),
        capabilities={"tools": {}, "prompts": {}, "resources": {"subscribe": True}, "completions": {}},
    )


def _made(self: ScriptedServer, request: dict[str, Any]) -> None:
    self.reply(request, {"contents": [{"uri": request["params"]["uri"], "text": "made"}]})


def uses(thing: Thing) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every request that uses it, in every spelling."""
    spellings = [f"{thing.server}{separator}{thing.name}" for separator in ("__", ":", ".")]
    match thing.kind:
        case "tool":
            for name in spellings:
                yield "tools/call", {"name": name, "arguments": {}}
        case "prompt":
            for name in spellings:
                yield "prompts/get", {"name": name}
                yield "completion/complete", _completing({"type": "ref/prompt", "name": name})
        case "resource":
            for uri in (thing.name, f"muxway://{thing.server}/{thing.name.replace(':', '%3A').replace('/', '%2F')}"):
                yield "resources/read", {"uri": uri}
                yield "resources/subscribe", {"uri": uri}
        case _:
            yield "completion/complete", _completing({"type": "ref/resource", "uri": thing.name})
            yield "resources/read", {"uri": thing.name.replace("{x}", "it")}


def _completing(ref: dict[str, str]) -> dict[str, Any]:
    return {"ref": ref, "argument": {"name": "x", "value": ""}}


def of_nobody(params: dict[str, Any], thing: Thing) -> dict[str, Any]:
    """The same request for something that nobody has, at no server."""
    text = json.dumps(params)
    if thing.kind in ("tool", "prompt"):
        return json.loads(
            text.replace(f"{thing.server}__", "c__")
            .replace(f'"{thing.server}:', '"c:')
            .replace(f'"{thing.server}.', '"c.')
        )
    return json.loads(
        text.replace(f"{thing.server}:", "c:").replace(f"muxway://{thing.server}/{thing.server}", "muxway://c/c")
    )


def normal(reply: Reply, params: dict[str, Any]) -> str:
    """An answer without what was asked for, and without the names that are like it."""
    name = params.get("name") or params.get("uri") or params["ref"].get("name") or params["ref"]["uri"]
    answer = {key: value for key, value in reply.message.items() if key != "id"}
    answer.get("error", {}).pop("data", None)
    return json.dumps(answer, sort_keys=True).replace(json.dumps(name)[1:-1], "NAME")


def names_in(reply: Reply) -> set[str]:
    """What an error says might be meant."""
    return set(reply.error.get("data", {}).get("muxway", {}).get("nearest", ())) if "error" in reply.message else set()


async def listed(client: RawClient) -> set[tuple[str, str]]:
    """(Kind, public name) of all that it lists."""
    found: set[tuple[str, str]] = set()
    for kind, method, member, key in (
        ("tool", "tools/list", "tools", "name"),
        ("prompt", "prompts/list", "prompts", "name"),
        ("resource", "resources/list", "resources", "uri"),
        ("template", "resources/templates/list", "resourceTemplates", "uriTemplate"),
    ):
        found |= {(kind, item[key]) for item in (await client.ask(method)).result[member]}
    return found


def public(thing: Thing) -> str:
    """How it is listed."""
    return f"{thing.server}__{thing.name}" if thing.kind in ("tool", "prompt") else thing.name


async def check(world: World, client: RawClient) -> tuple[int, int]:
    """Use everything; how much of it was there, and how much was not."""
    shown = await listed(client)
    there = absent = 0
    for thing in THINGS:
        is_shown = (thing.kind, public(thing)) in shown
        for method, params in uses(thing):
            if method == "resources/subscribe" and client.stateless:
                continue  # There is no such request.
            heard = len(world.servers[thing.server].heard)
            reply = await client.ask(method, params)
            if is_shown:
                assert "result" in reply.message, (thing, method, params, reply.message)
                there += 1
                continue
            absent += 1
            assert len(world.servers[thing.server].heard) == heard, "its server was asked"
            assert names_in(reply) <= {name for _, name in shown}
            unknown = of_nobody(params, thing)
            assert normal(reply, params) == normal(await client.ask(method, unknown), unknown), (thing, method, params)
    return there, absent


@pytest.mark.leaping  # or it lasts so long that lists grow old, and what is not listed is looked for
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_in_a_view_what_is_not_listed_is_unknown(view: str, revision: str) -> None:
    """docs/security.md#what-is-promised-threat-by-threat.

    Denied is unknown, for list, call, get, read, complete and subscribe.
    """
    servers = {name: server(name) for name in "ab"}
    async with a_world(servers, mcpServers={"a": OFF, "b": OFF}, views={view: VIEWS[view]}) as world:
        client = RawClient(world.gateway.memory_door(view), revision=revision)
        await client.hello()
        there, absent = await check(world, client)
        assert (absent == 0) == (view == "everything")
        assert there > 0


@pytest.mark.leaping  # or it lasts so long that lists grow old, and what is not listed is looked for
@pytest.mark.parametrize("case", ENTRIES)
async def test_what_a_server_is_configured_to_hide_is_unknown(case: str) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: the same for what nobody is to see."""
    servers = {name: server(name) for name in "ab"}
    async with a_world(servers, entries=ENTRIES[case]) as world:
        there, absent = await check(world, await world.client())
        assert (absent == 0) == (case == "all")
        assert there > 0
