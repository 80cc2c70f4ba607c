"""`cache`: whose results are kept, for how long, and which never are."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from muxway.calls.call import Call, Caller
from muxway.calls.ports import Waiter
from muxway.middleware.builtin import cache
from muxway.middleware.builtin.cache import Cache
from muxway.middleware.engine.base import Outcome, Result
from muxway.testing import RawClient, ScriptedServer
from muxway.wire import envelopes
from muxway.wire.revisions import NEWEST, REVISIONS

from ..conftest import a_world
from ..pace import heap_of_its_own
from .chained import chained

if TYPE_CHECKING:
    from ..conftest import World

READ_ONLY: dict[str, Any] = {"annotations": {"readOnlyHint": True}}


class Clock:
    """A clock that goes on when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(cache, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def counting(hints: dict[str, Any] | None = None, revision: str = "2025-11-25", **more: Any) -> ScriptedServer:
    """A server whose tool `count` says how often it was called."""
    calls = 0

    def count(server: ScriptedServer, request: dict[str, Any]) -> None:
        nonlocal calls
        calls += 1
        server.reply(request, {"content": [{"type": "text", "text": str(calls)}], **more})

    definition = {"name": "count", "inputSchema": {"type": "object"}, **(READ_ONLY if hints is None else hints)}
    return ScriptedServer(revision, tools={"count": count}, definitions=[definition])


async def count(client: RawClient, arguments: dict[str, Any] | None = None, **params: Any) -> str:
    """What the tool says."""
    return (await client.call("up__count", arguments, **params)).result["content"][0]["text"]


async def ask_as(world: World, caller: Caller, method: str, **params: Any) -> dict[str, Any]:
    """The result of a request of this caller."""
    call = Call(caller, method, {name: envelopes.Raw(envelopes.encode(value)) for name, value in params.items()})
    waiter = Waiter()
    return envelopes.value(
        await asyncio.wait_for(waiter.outcome(world.gateway.runtime.dispatcher().handle(call, waiter)), 10)
    )


async def test_a_tool_that_only_reads_is_asked_once() -> None:
    async with chained({"up": counting()}, Cache()) as world:
        client = await world.client()
        assert [await count(client, {"a": 1}) for _ in range(3)] == ["1", "1", "1"]
        assert await count(client, {"a": 2}) == "2"


async def test_any_other_tool_is_asked_each_time() -> None:
    """MCP: `readOnlyHint` is false where it is not said. One that is no boolean says nothing."""
    for hints in ({}, {"annotations": {"readOnlyHint": "yes"}}, {"annotations": "readOnlyHint"}):
        async with chained({"up": counting(hints)}, Cache()) as world:
            client = await world.client()
            assert [await count(client), await count(client)] == ["1", "2"]


async def test_other_tools_can_be_named_and_all_their_spellings_are_meant() -> None:
    async with chained({"up": counting({})}, Cache(tools=("up__c*",))) as world:
        client = await world.client()
        first = (await client.call("up:count")).result
        assert (await client.call("up:count")).result == first


async def test_the_order_of_arguments_does_not_matter_but_every_value_does() -> None:
    """Ours: numbers are compared as they are written, so that no two that differ anywhere are taken for one."""
    async with chained({"up": counting()}, Cache()) as world:
        client = await world.client()

        async def say(id_: int, arguments: bytes) -> str:
            params = b'{"name":"up__count","arguments":' + arguments + b"}"
            client.say(b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%b}' % (id_, params))
            return (await client.answer(id_)).result["content"][0]["text"]

        assert await say(101, b'{"a":1,"b":{"c":2}}') == "1"
        assert await say(102, b'{"b":{"c":2},"a":1}') == "1"
        assert await say(103, b'{"a":1.0,"b":{"c":2}}') == "2"
        assert await say(104, b'{"a":123456789012345678901234567890}') == "3"
        assert await say(105, b'{"a":123456789012345678901234567891}') == "4"
        # Which of two a server takes is its own choice, so neither is the key.
        assert await say(106, b'{"a":1,"a":2}') == "5"
        assert await say(107, b'{"a":2}') == "6"
        assert await say(108, b'{"a":1}') == "7"
        assert await say(109, b'{"a":1,"a":2}') == "5"


async def test_a_result_is_good_for_so_many_seconds(clock: Clock) -> None:
    async with chained({"up": counting()}, Cache(seconds=5)) as world:
        client = await world.client()
        assert await count(client) == "1"
        clock.now += 4.9
        assert await count(client) == "1"
        clock.now += 0.2
        assert await count(client) == "2"


async def test_what_the_server_says_of_time_is_heeded_and_what_is_left_of_it_is_told(clock: Clock) -> None:
    """MCP 2026-07-28, server/utilities/caching.

    Fresh while now < received + ttlMs, so a copy must not promise more than the original.
    """
    server = counting(revision="2026-07-28", ttlMs=2000, cacheScope="private")
    async with chained({"up": server}, Cache(seconds=100)) as world:
        client = await world.client("2026-07-28")
        first = (await client.call("up__count")).result
        assert first["ttlMs"] == 2000
        clock.now += 1.5
        again = (await client.call("up__count")).result
        assert again == {**first, "ttlMs": 500}
        clock.now += 0.5
        assert await count(client) == "2"


@pytest.mark.parametrize("said", [0, -5, "soon", None])
async def test_a_server_that_says_now_only_is_asked_each_time(said: Any) -> None:
    """MCP 2026-07-28, server/utilities/caching: negative and missing values count as 0; so do those that are none."""
    server = counting(revision="2026-07-28", ttlMs=said, cacheScope="public")
    async with chained({"up": server}, Cache()) as world:
        client = await world.client("2026-07-28")
        assert [await count(client), await count(client)] == ["1", "2"]


async def test_what_one_principal_got_no_other_gets_unless_it_is_public() -> None:
    """MCP 2026-07-28, server/utilities/caching.

    Another access token is another context; "public" allows shared gateways.
    """
    for scope, expected in (("private", ["1", "2", "1"]), ("public", ["1", "1", "1"])):
        server = counting(revision="2026-07-28", ttlMs=60_000, cacheScope=scope)
        async with chained({"up": server}, Cache()) as world:
            got = [
                await ask_as(world, Caller(revision=NEWEST, principal=who), "tools/call", name="up__count")
                for who in (b"ann", b"bob", b"ann")
            ]
            assert [result["content"][0]["text"] for result in got] == expected


async def test_results_are_kept_in_the_words_of_each_revision() -> None:
    async with chained({"up": counting(structuredContent={"n": 1})}, Cache()) as world:
        old = Caller(revision=REVISIONS["2024-11-05"])
        new = Caller(revision=REVISIONS["2025-11-25"])
        for _ in range(2):
            assert "structuredContent" not in await ask_as(world, old, "tools/call", name="up__count")
            assert "structuredContent" in await ask_as(world, new, "tools/call", name="up__count")


async def test_what_went_wrong_is_tried_again() -> None:
    outcomes = ["error", "isError", "fine", "never"]

    def moody(server: ScriptedServer, request: dict[str, Any]) -> None:
        outcome = outcomes.pop(0)
        if outcome == "error":
            server.fail(request, -32000, "no")
        else:
            content = [{"type": "text", "text": outcome}]
            server.reply(request, {"content": content, "isError": outcome == "isError"})

    server = ScriptedServer(tools={"count": moody}, definitions=[{"name": "count", "inputSchema": {}, **READ_ONLY}])
    async with chained({"up": server}, Cache()) as world:
        client = await world.client()
        assert (await client.call("up__count")).error["message"] == "no"
        assert [await count(client) for _ in range(3)] == ["isError", "fine", "fine"]


async def test_results_that_depend_on_answers_are_not_kept() -> None:
    """Ours: what the user said this time is not what the user would say the next time."""
    said = iter(["ann", "bob", "cid", "dan"])

    async def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
        if server.revision != "2026-07-28":
            answer = (await server.ask("elicitation/create", question))["result"]
        elif "inputResponses" not in request["params"]:
            server.need(request, {"who": {"method": "elicitation/create", "params": question}}, "s")
            return
        else:
            answer = request["params"]["inputResponses"]["who"]
        server.reply(request, {"content": [{"type": "text", "text": answer["content"]["name"]}]})

    question = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
    for revision in ("2025-11-25", "2026-07-28"):
        server = ScriptedServer(
            revision, tools={"count": asks}, definitions=[{"name": "count", "inputSchema": {}, **READ_ONLY}]
        )
        async with chained({"up": server}, Cache()) as world:
            client = RawClient(
                world.gateway.memory_door(), revision=revision, capabilities={"elicitation": {"form": {}}}
            )
            client.answers["elicitation/create"] = lambda _: {"action": "accept", "content": {"name": next(said)}}
            await client.hello()
            names = [
                (await client.complete("tools/call", {"name": "up__count", "arguments": {}})).result["content"][0][
                    "text"
                ]
                for _ in range(2)
            ]
            assert names == (["ann", "bob"] if revision == "2025-11-25" else ["cid", "dan"])


async def test_meta_of_the_callers_own_is_asked_anew_and_a_progress_token_is_not() -> None:
    async with chained({"up": counting()}, Cache()) as world:
        client = await world.client()
        assert await count(client) == "1"
        assert await count(client, _meta={"progressToken": 7}) == "1"
        assert await count(client, _meta={"com.example/tenant": "b"}) == "2"
        assert await count(client) == "1"


async def test_resources_prompts_and_completions_are_kept_and_lists_if_wanted() -> None:
    server = ScriptedServer(
        resources={"file:///a": "text"},
        prompts={"hi": None},
        completing=lambda s, r: s.reply(r, {"completion": {"values": ["x"]}}),
        tools={},
    )
    ask = {
        "resources/read": {"uri": "file:///a"},
        "prompts/get": {"name": "up__hi"},
        "completion/complete": {
            "ref": {"type": "ref/prompt", "name": "up__hi"},
            "argument": {"name": "a", "value": ""},
        },
    }
    async with chained({"up": server}, Cache(lists=True)) as world:
        client = await world.client()
        for method, params in ask.items():
            first = (await client.ask(method, params)).result
            assert (await client.ask(method, params)).result == first
        assert [message["method"] for message in server.heard if message.get("method") in ask] == list(ask)
        assert await client.ask("tools/list") is not None
        await world.gateway.add("late", server=ScriptedServer(tools={"t": None}))
        assert await client.tools() == []
    async with chained({"up": server}, Cache()) as world:
        client = await world.client()
        assert await client.tools() == []
        await world.gateway.add("late", server=ScriptedServer(tools={"t": None}))
        assert await client.tools() == ["late__t"]


async def test_entries_and_memory_are_bounded_and_the_least_used_goes_first() -> None:
    def echo(server: ScriptedServer, request: dict[str, Any]) -> None:
        size = request["params"]["arguments"].get("size", 1)
        server.reply(request, {"content": [{"type": "text", "text": "x" * size}]})

    definitions = [{"name": "count", "inputSchema": {}, **READ_ONLY}]
    server = ScriptedServer(tools={"count": echo}, definitions=definitions)
    kept = Cache(entries=2, bytes=10_000)
    async with chained({"up": server}, kept) as world:
        client = await world.client()

        async def asked(**arguments: Any) -> bool:
            before = len(server.heard)
            await count(client, arguments)
            return len(server.heard) > before

        assert [await asked(n=1), await asked(n=2), await asked(n=1), await asked(n=3)] == [True, True, False, True]
        assert [await asked(n=1), await asked(n=2)] == [False, True]
        assert [await asked(size=20_000), await asked(size=20_000)] == [True, True]
        assert [await asked(size=6000), await asked(size=6000), await asked(size=5999)] == [True, False, True]
        assert await asked(size=6000)
        assert len(kept._kept) <= 2
        assert kept._size == sum(entry.size for entry in kept._kept.values()) <= 10_000
    assert (len(kept._kept), kept._size) == (0, 0)


async def test_identical_calls_at_once_each_go_on_and_a_cancelled_one_leaves_nothing() -> None:
    release = asyncio.Event()
    arrived: asyncio.Queue[None] = asyncio.Queue()

    async def wait(server: ScriptedServer, request: dict[str, Any]) -> None:
        arrived.put_nowait(None)
        await release.wait()
        server.reply(request, {"content": [{"type": "text", "text": "late"}]})

    server = ScriptedServer(tools={"count": wait}, definitions=[{"name": "count", "inputSchema": {}, **READ_ONLY}])
    kept = Cache()
    async with chained({"up": server}, kept) as world:
        client = await world.client()
        params = {"name": "up__count", "arguments": {}}
        ids = [client.start("tools/call", params) for _ in range(3)]
        client.tell("notifications/cancelled", {"requestId": ids[0]})
        for _ in ids:
            await asyncio.wait_for(arrived.get(), 10)
        assert len(kept._asked) == 2
        release.set()
        for id_ in ids[1:]:
            assert (await client.answer(id_)).result["content"][0]["text"] == "late"
        assert not kept._asked
        assert await count(client) == "late"
        assert arrived.empty()


async def test_it_can_be_configured() -> None:
    around = [{"use": "cache", "seconds": 60, "tools": ["up__*"], "lists": False, "entries": 10, "bytes": 100000}]
    async with a_world({"up": counting({})}, middleware=around) as world:
        client = await world.client()
        assert [await count(client), await count(client)] == ["1", "1"]


@pytest.mark.parametrize(
    "options", [{"seconds": -1}, {"seconds": float("nan")}, {"seconds": 1e9}, {"entries": 0}, {"bytes": 0}]
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Cache(**options)


@pytest.mark.parametrize("order", [("up__numbers", "Made"), ("Made", "up__numbers")])
async def test_a_step_and_a_client_of_its_date_do_not_share_results(order: tuple[str, str]) -> None:
    """2025-11-25, tools: structured content is an object. Steps of composed tools get any structure as it is."""

    def numbers(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.reply(request, {"content": [{"type": "text", "text": "[1]"}], "structuredContent": [1]})

    definition = {"name": "numbers", "inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}, **READ_ONLY}
    up = ScriptedServer("2026-07-28", tools={"numbers": numbers}, definitions=[definition])
    off = {"command": "none", "disabled": True}
    steps = [{"name": "a", "tool": "up__numbers", "arguments": {}}]
    made = {"description": "A composed tool.", "steps": steps, "output": {"got": "${steps.a.result}"}}
    given: dict[str, Any] = {"mcpServers": {"off": off, "up": off}, "tools": {"Made": made}}
    async with a_world({"up": up}, gateway={"middleware": ["cache"]}, **given) as world:
        client = await world.client("2025-11-25")
        got = {name: (await client.call(name, {})).result["structuredContent"] for name in order}
    assert got == {"up__numbers": {"result": [1]}, "Made": {"got": [1]}}


@pytest.mark.parametrize("told", [b"", b',"isError":true'], ids=["kept", "not kept"])
def test_a_result_of_a_million_members_is_not_taken_apart(told: bytes) -> None:
    """docs/behaviour.md#size-limits: half a second for what only a few of them say."""
    result = Result(b'{"content":[],' + b",".join(b'"k%d":1' % number for number in range(500_000)) + told + b"}")
    with heap_of_its_own():
        began = time.thread_time()
        assert (result.is_final, result.is_error) == (True, bool(told))
        assert Outcome(0.0, None, (), result).word == ("isError" if told else "ok")
        assert time.thread_time() - began < 0.1
