"""Resources, prompts, completion and instructions: whole walks, clients and servers of every revision."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

import muxway
from muxway.testing import RawClient, ScriptedServer
from tests.conftest import REVISIONS, a_world

every_client = pytest.mark.parametrize("revision", REVISIONS)
every_server = pytest.mark.parametrize("server_revision", REVISIONS)


def text_of(uri: str) -> Any:
    """A script that reads any URI: its text is the URI itself."""
    return lambda server, request: server.reply(
        request, {"contents": [{"uri": request["params"]["uri"], "text": f"read {request['params']['uri']} of {uri}"}]}
    )


def library(revision: str = "2025-11-25", name: str = "lib") -> ScriptedServer:
    """A server with something of everything."""
    return ScriptedServer(
        revision=revision,
        prompts={"ask": None},
        resources={"doc:1": f"first of {name}", "doc:2": b"\x00\xff"},
        templates={"doc:page/{n}": text_of(name)},
        completing=lambda server, request: server.reply(
            request, {"completion": {"values": [json.dumps(request["params"], sort_keys=True)], "hasMore": False}}
        ),
        instructions=f"Use {name} well.",
    )


async def listed(client: RawClient, method: str, key: str, identity: str) -> list[str]:
    """What a listing shows, every page followed."""
    seen: list[str] = []
    params: dict[str, Any] = {}
    while True:
        result = (await client.ask(method, params)).result
        seen += [item[identity] for item in result[key]]
        if "nextCursor" not in result:
            return seen
        params = {"cursor": result["nextCursor"]}


@every_client
@every_server
async def test_everything_can_be_listed_and_used_between_any_two_revisions(revision: str, server_revision: str) -> None:
    """docs/behaviour.md#resources-and-prompts: every pair of revisions."""
    servers = {"one": library(server_revision, "one"), "two": library(server_revision, "two")}
    async with a_world(servers) as world:
        client = await world.client(revision)
        assert await listed(client, "prompts/list", "prompts", "name") == ["one__ask", "two__ask"]
        assert await listed(client, "resources/list", "resources", "uri") == [
            "doc:1",
            "doc:2",
            "muxway://two/doc%3A1",
            "muxway://two/doc%3A2",
        ]
        assert await listed(client, "resources/templates/list", "resourceTemplates", "uriTemplate") == [
            "doc:page/{n}",
            "muxway://two/+doc:page/{n}",
        ]
        texts = {
            "doc:1": "first of one",
            "muxway://two/doc%3A1": "first of two",
            "muxway://two/+doc:1": "first of two",
            "doc:page/7": "read doc:page/7 of one",
            "muxway://two/+doc:page/a%20b": "read doc:page/a%20b of two",
        }
        for uri, text in texts.items():
            result = (await client.ask("resources/read", {"uri": uri})).result
            assert result["contents"] == [{"uri": uri, "text": text}]
            assert ("ttlMs" in result) == (revision == "2026-07-28")
        blob = (await client.ask("resources/read", {"uri": "muxway://two/doc%3A2"})).result["contents"][0]["blob"]
        assert base64.b64decode(blob) == b"\x00\xff"
        got = (await client.ask("prompts/get", {"name": "two__ask", "arguments": {"a": "1"}})).result
        assert json.loads(got["messages"][0]["content"]["text"]) == ["ask", {"a": "1"}]
        params = {
            "ref": {"type": "ref/resource", "uri": "muxway://two/+doc:page/{n}"},
            "argument": {"name": "n", "value": "1"},
            "context": {"arguments": {"m": "2"}},
        }
        (value,) = (await client.ask("completion/complete", params)).result["completion"]["values"]
        seen = json.loads(value)
        assert seen["ref"] == {"type": "ref/resource", "uri": "doc:page/{n}"}
        assert ("context" in seen) == (server_revision >= "2025-06-18")


@every_client
@every_server
async def test_what_is_not_there_is_not_found_in_the_clients_words(revision: str, server_revision: str) -> None:
    """docs/compatibility.md#resources: -32002 for handshake clients, -32602 for stateless ones, whoever says it."""
    server = ScriptedServer(revision=server_revision, resources={"doc:1": "x"})
    async with a_world({"one": server, "two": library()}, entries={"one": {"hiddenResources": ["doc:h*"]}}) as world:
        client = await world.client(revision)
        code = -32602 if revision == "2026-07-28" else -32002
        for uri in ("doc:unknown", "nobody:1", "muxway://one/doc%3Ah1", "muxway://one/other%3A1", "muxway://x/y"):
            error = (await client.ask("resources/read", {"uri": uri})).error
            assert error["code"] == code, uri
            assert "not found" in error["message"].lower()
        assert (await client.ask("prompts/get", {"name": "two__nope"})).error["code"] == -32602


async def test_servers_are_asked_only_for_what_they_declare() -> None:
    """MCP 2025-11-25, basic/lifecycle: a method whose capability is not declared is not to be called."""
    server = ScriptedServer(tools={"a": None})
    async with a_world({"up": server}):
        asked = {message["method"] for message in server.heard if message["method"].endswith("/list")}
        assert asked == {"tools/list"}


async def test_a_first_revision_server_that_declares_nothing_is_asked_for_everything() -> None:
    """Ours: some servers of 2024-11-05 declare nothing; a method they do not know means they have none."""
    server = ScriptedServer(revision="2024-11-05", tools={"a": None}, resources={"doc:1": "x"}, capabilities={})
    async with a_world({"up": server}) as world:
        (shown,) = world.gateway.servers()
        assert (len(shown.tools), shown.prompts, shown.resources, str(shown.status)) == (1, 0, 1, "running")
        assert (await world.gateway.read("doc:1")).text == "x"


async def test_whatever_error_such_a_server_gives_for_a_list_it_has_none() -> None:
    """Ours: servers in the field answer an unknown method in many ways."""

    class Odd(ScriptedServer):
        async def _handle(self, message: dict[str, Any], line: bytes) -> None:
            if message.get("method") in ("prompts/list", "tools/list"):
                self.fail(message, -32600, "What?")
            else:
                await super()._handle(message, line)

    async with a_world({"up": Odd(revision="2024-11-05", resources={"doc:1": "x"}, capabilities={})}) as world:
        (shown,) = world.gateway.servers()
        assert (len(shown.tools), shown.prompts, shown.resources, str(shown.status)) == (0, 0, 1, "running")
        assert list(shown.notes) == []


async def test_a_list_that_fails_the_second_time_keeps_what_it_had() -> None:
    """Ours: the old list stays, and the others that were fetched with it are taken."""

    class Tired(ScriptedServer):
        def _list(self, message: dict[str, Any]) -> dict[str, Any]:
            return {"wrong": []} if self.tired else super()._list(message)

        tired = False

    server = Tired(tools={"a": None}, prompts={}, resources={})
    async with a_world({"up": server}) as world:
        server.tired = True
        assert server.prompts is not None
        server.prompts["new"] = None
        for kind in ("tools", "prompts"):
            server.say({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"})
        async with asyncio.timeout(30):
            while world.gateway.servers()[0].prompts != 1:
                await asyncio.sleep(0.01)
        (shown,) = world.gateway.servers()
        assert ([tool.name for tool in shown.tools], str(shown.status)) == (["up__a"], "running")


@pytest.mark.parametrize("method", ["prompts/list", "resources/list", "resources/templates/list"])
async def test_a_list_that_cannot_be_read_costs_only_itself(method: str) -> None:
    """Ours: one bad list does not take the server's tools away."""

    class Broken(ScriptedServer):
        async def _handle(self, message: dict[str, Any], line: bytes) -> None:
            if message.get("method") == method:
                self.reply(message, {"wrong": []})
            else:
                await super()._handle(message, line)

    server = Broken(tools={"a": None}, prompts={"p": None}, resources={"doc:1": "x"}, templates={"doc:{x}": None})
    async with a_world({"up": server}) as world:
        (shown,) = world.gateway.servers()
        assert str(shown.status) == "running"
        assert len(shown.tools) + shown.prompts + shown.resources + shown.resource_templates == 3
        assert [note for note in shown.notes if "could not be listed" in note]


async def test_limits_hold_for_every_kind() -> None:
    """docs/behaviour.md#size-limits: most items, every page, repeated cursors."""
    server = ScriptedServer(
        prompts={f"p{number}": None for number in range(9)},
        resources={f"doc:{number}": "x" for number in range(9)},
        templates={f"doc:{number}/{{x}}": None for number in range(9)},
        page_size=2,
    )
    async with a_world({"up": server}, gateway={"maxTools": 7, "pageSize": 3}) as world:
        client = await world.client()
        assert len(await listed(client, "prompts/list", "prompts", "name")) == 7
        assert len(await listed(client, "resources/list", "resources", "uri")) == 7
        assert len(await listed(client, "resources/templates/list", "resourceTemplates", "uriTemplate")) == 7
        (shown,) = world.gateway.servers()
        assert sum("it lists more than 7" in note for note in shown.notes) == 3


async def test_prompts_and_resources_are_filtered_and_renamed_by_the_configuration() -> None:
    """docs/configuration.md#filters-and-renames: exposed and hidden, prompts with renames as for tools."""
    server = ScriptedServer(
        prompts={"a": None, "b": None, "c": None},
        resources={"doc:1": "x", "doc:2": "y", "key:1": "secret"},
        lists={"prompts": [{"name": "a", "description": "Ask."}, {"name": "b"}, {"name": "c"}]},
    )
    entry = {
        "exposedPrompts": [{"original": "a", "exposed": "Alpha"}, "b", "missing"],
        "hiddenPrompts": ["b"],
        "exposedResources": ["doc:*", "key:*"],
        "hiddenResources": ["key:*"],
    }
    async with a_world({"up": server}, entries={"up": entry}) as world:
        client = await world.client()
        (prompt,) = (await client.ask("prompts/list")).result["prompts"]
        assert prompt == {"name": "Alpha", "description": "[up] Ask."}
        got = (await client.ask("prompts/get", {"name": "Alpha"})).result
        assert json.loads(got["messages"][0]["content"]["text"])[0] == "a"
        assert (await client.ask("prompts/get", {"name": "up__b"})).error["code"] == -32602
        assert await listed(client, "resources/list", "resources", "uri") == ["doc:1", "doc:2"]
        heard = len(server.heard)
        assert (await client.ask("resources/read", {"uri": "key:1"})).error["code"] == -32002
        assert len(server.heard) == heard, "the server was not asked"
        (shown,) = world.gateway.servers()
        assert "up: prompt 'missing': named in exposedPrompts, but the server has no such prompt" in shown.notes


@pytest.mark.parametrize(
    ("kind", "methods"),
    [
        ("tools", {"tools/list"}),
        ("prompts", {"prompts/list"}),
        ("resources", {"resources/list", "resources/templates/list"}),
    ],
)
async def test_a_change_of_one_kind_lists_only_that_kind_anew(kind: str, methods: set[str]) -> None:
    """docs/behaviour.md#lists: re-list what has changed, tell of a real difference."""
    server = library()
    server.tools["t"] = None
    async with a_world({"up": server}) as world:
        heard: list[frozenset[str]] = []
        told = asyncio.Event()

        def changed(kinds: frozenset[str]) -> None:
            heard.append(kinds)
            told.set()

        world.gateway.runtime.dispatcher().listen(changed)
        before = len(server.heard)
        server.tools["new"] = None
        assert server.prompts is not None
        assert server.resources is not None
        server.prompts["new"] = None
        server.resources["doc:new"] = "new"
        server.say({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"})
        await asyncio.wait_for(told.wait(), 30)
        assert heard == [{kind}]
        assert {message["method"] for message in server.heard[before:]} == methods


async def test_a_change_while_the_server_starts_is_not_missed() -> None:
    """Ours: a server that finds more to offer while it is being asked says so at once."""

    class Growing(ScriptedServer):
        def _list(self, message: dict[str, Any]) -> dict[str, Any]:
            shown = super()._list(message)
            if "late" not in self.tools:
                self.tools["late"] = None
                self.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            return shown

    async with a_world({"up": Growing(tools={"a": None})}) as world:
        client = await world.client()
        async with asyncio.timeout(30):
            while await client.tools() != ["up__a", "up__late"]:
                await asyncio.sleep(0.01)


async def test_a_storm_of_changes_causes_few_listings() -> None:
    """docs/subscriptions.md#lists: 2,000 `list_changed` cause at most 5 re-lists; the last change is seen."""
    server = library()
    async with a_world({"up": server}) as world:
        before = sum(message["method"] == "resources/list" for message in server.heard)
        assert server.resources is not None
        for number in range(2000):
            server.resources[f"doc:new{number}"] = "x"
            server.say({"jsonrpc": "2.0", "method": "notifications/resources/list_changed"})
            if number % 20 == 0:
                await asyncio.sleep(0.015)
        async with asyncio.timeout(30):
            while world.gateway.servers()[0].resources != 2002:
                await asyncio.sleep(0.05)
        relisted = sum(message["method"] == "resources/list" for message in server.heard) - before
        assert 1 <= relisted <= 5


async def test_links_in_results_can_be_read_by_the_client_that_got_them() -> None:
    """docs/behaviour.md#resources-and-prompts.

    Links and embedded resources of tools lead back to the server that gave them.
    """

    def linking(server: ScriptedServer, request: dict[str, Any]) -> None:
        blocks = [
            {"type": "resource_link", "name": "n", "uri": "doc:1"},
            {"type": "resource", "resource": {"uri": "tmp:7", "text": "t"}},
        ]
        server.reply(request, {"content": blocks})

    def reads(server: ScriptedServer, request: dict[str, Any]) -> None:
        text_of("two")(server, request)

    two = ScriptedServer(tools={"make": linking}, resources={"doc:1": "of two"}, templates={"x:{y}": reads})
    async with a_world({"one": library(name="one"), "two": two}) as world:
        for revision in ("2025-06-18", "2026-07-28"):
            client = await world.client(revision)
            link, embedded = (await client.call("two__make")).result["content"]
            assert link["uri"] == "muxway://two/doc%3A1"
            assert embedded["resource"]["uri"] == "tmp:7"
            read = (await client.ask("resources/read", {"uri": link["uri"]})).result["contents"]
            assert read == [{"uri": link["uri"], "text": "of two"}]
            read = (await client.ask("resources/read", {"uri": "tmp:7"})).result["contents"]
            assert read == [{"uri": "tmp:7", "text": "read tmp:7 of two"}]


async def test_what_a_crashed_server_had_is_not_given_by_another() -> None:
    """docs/behaviour.md#lists: what a server had stays listed, and whoever uses it hears that the server is gone."""
    servers = {"one": library(name="one"), "two": library(name="two")}
    async with a_world(servers) as world:
        client = await world.client()
        servers["one"].end()
        before = await listed(client, "resources/list", "resources", "uri")
        async with asyncio.timeout(30):
            while world.gateway.servers()[0].status != "failed":
                await asyncio.sleep(0.01)
        assert await listed(client, "resources/list", "resources", "uri") == before, "it stays listed"
        for uri in ("doc:1", "doc:page/1", "muxway://one/doc%3A1"):
            error = (await client.ask("resources/read", {"uri": uri})).error
            told = error["data"]["muxway"]
            assert (told["reason"], told["upstream"]) == ("not_running", "one"), uri
        assert (await client.ask("prompts/get", {"name": "one__ask"})).error["data"]["muxway"]["upstream"] == "one"


async def test_progress_and_cancellation_work_for_reads_too() -> None:
    """MCP 2025-11-25, basic/utilities/progress and basic/utilities/cancellation: for every request."""
    waiting = asyncio.Event()

    def slow(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.progress(request, 1, total=2)
        waiting.set()

    server = ScriptedServer(resources={"slow:1": slow, "slow:2": "x"})
    async with a_world({"one": server, "two": library()}) as world:
        client = await world.client()
        id_ = client.start("resources/read", {"uri": "slow:1", "_meta": {"progressToken": "p"}})
        notice = await client.notice("notifications/progress")
        assert notice["params"] == {"progressToken": "p", "progress": 1, "total": 2}
        client.tell("notifications/cancelled", {"requestId": id_})
        await client.ask("resources/read", {"uri": "slow:2"})
        assert [message["method"] for message in server.heard[-2:]] == ["notifications/cancelled", "resources/read"]


async def test_a_program_uses_resources_and_prompts_as_it_uses_tools() -> None:
    """docs/library.md#a-gateway-in-your-program: the library shows what clients see."""
    async with a_world({"one": library(name="one"), "two": library("2026-07-28", "two")}) as world:
        gateway = world.gateway
        assert [resource.uri for resource in gateway.resources()][2:] == [
            "muxway://two/doc%3A1",
            "muxway://two/doc%3A2",
        ]
        resource = gateway.resources()[2]
        assert (resource.server, resource.original_uri, resource.name) == ("two", "doc:1", "[two] doc:1")
        assert (resource.description, resource.mime_type) == ("", None)
        template = gateway.resource_templates()[1]
        assert (template.uri_template, template.server) == ("muxway://two/+doc:page/{n}", "two")
        assert (template.original_template, template.name) == ("doc:page/{n}", "[two] doc:page/{n}")
        prompt = gateway.prompts()[1]
        assert (prompt.name, prompt.server, prompt.original_name) == ("two__ask", "two", "ask")
        assert (prompt.description, list(prompt.arguments)) == ("[two] ask", [])
        assert (await gateway.read(resource.uri)).text == "first of two"
        assert (await gateway.read("doc:2")).contents[0]["blob"] == "AP8="
        filled = await gateway.prompt("two.ask", {"a": "1"})
        assert (json.loads(filled.text), filled.messages[0]["role"]) == (["ask", {"a": "1"}], "user")
        with pytest.raises(muxway.RpcError) as missing:
            await gateway.read("nobody:1")
        assert missing.value.code == -32002
        with pytest.raises(muxway.InvalidParams):
            await gateway.prompt("two__nope")
        counts = [(s.name, s.prompts, s.resources, s.resource_templates) for s in gateway.servers()]
        assert counts == [("one", 1, 2, 1), ("two", 1, 2, 1)]
        assert "## one" in gateway.runtime.snapshot.whole.instructions
        assert "Use two well." in gateway.runtime.snapshot.whole.instructions


async def test_two_gateways_in_a_row_still_lead_every_uri_home() -> None:
    """docs/behaviour.md#resources-and-prompts.

    muxway behind muxway. Wrapped by the inner one, wrapped again by the outer one.
    """
    async with a_world({"fs": library(name="inner fs"), "db": library(name="inner db")}) as inner:

        class Inner:
            async def serve(self, receive: Any, send: Any) -> None:
                door = inner.gateway.memory_door()

                async def answers() -> None:
                    while True:
                        send(await door.receive())

                task = asyncio.create_task(answers())
                try:
                    while (line := await receive()) is not None:
                        door.send(line)
                finally:
                    task.cancel()
                    await door.close()

        async with a_world({"fs": library(name="outer fs")}) as outer:
            await outer.gateway.add("inner", server=Inner())
            texts = {
                resource.uri: (await outer.gateway.read(resource.uri)).text
                for resource in outer.gateway.resources()
                if resource.uri.endswith("1")
            }
            assert texts == {
                "doc:1": "first of outer fs",
                "muxway://inner/doc%3A1": "first of inner fs",
                "muxway://inner/muxway%3A%2F%2Fdb%2Fdoc%253A1": "first of inner db",
            }
            templates = [template.uri_template for template in outer.gateway.resource_templates()]
            assert templates[2] == "muxway://inner/+muxway://db/+doc:page/{n}"
            read = await outer.gateway.read(templates[2].replace("{n}", "a%2Fb"))
            assert read.text == "read doc:page/a%2Fb of inner db"
            assert read.contents[0]["uri"] == templates[2].replace("{n}", "a%2Fb")


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
async def test_a_read_that_asks_first_comes_back_in_our_words_too(server_revision: str) -> None:
    """MCP 2026-07-28, basic/patterns/mrtr.

    A read may be answered with questions; hints and URIs are right after the second round.
    """
    form = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}

    async def asking(server: ScriptedServer, request: dict[str, Any]) -> None:
        if server.revision != "2026-07-28":
            await server.ask("elicitation/create", form)
        elif "inputResponses" not in request["params"]:
            entry = {"method": "elicitation/create", "params": {"mode": "form", **form}}
            server.need(request, {"q": entry}, "state")
            return
        server.reply(request, {"contents": [{"uri": "doc:1", "text": "after all"}]})

    two = ScriptedServer(revision=server_revision, resources={"doc:1": asking})
    async with a_world({"one": library(), "two": two}) as world:
        client = RawClient(
            world.gateway.memory_door(), revision="2026-07-28", capabilities={"elicitation": {"form": {}}}
        )
        params: dict[str, Any] = {"uri": "muxway://two/doc%3A1"}
        first = (await client.ask("resources/read", params)).result
        assert first["resultType"] == "input_required"
        assert "ttlMs" not in first
        answers = {key: {"action": "accept", "content": {}} for key in first["inputRequests"]}
        params |= {"inputResponses": answers, "requestState": first["requestState"]}
        second = (await client.ask("resources/read", params)).result
        assert second["contents"] == [{"uri": "muxway://two/doc%3A1", "text": "after all"}]
        assert (second["resultType"], second["ttlMs"], second["cacheScope"]) == ("complete", 0, "private")
