"""`timeout`: a call that takes too long is ended on both sides."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from muxway.calls.call import LIBRARY, Call
from muxway.calls.ports import Waiter
from muxway.calls.server_request import ServerRequest
from muxway.errors import ConfigError
from muxway.middleware.builtin.timeout import Timeout
from muxway.middleware.engine.running import Chains, Layer
from muxway.routing.target import Target
from muxway.testing import RawClient, ScriptedServer
from muxway.wire.revisions import NEWEST

from ..conftest import a_world
from .chained import chained

if TYPE_CHECKING:
    from muxway.calls.backend import StillStarting
    from muxway.calls.ports import Sink

pytestmark = pytest.mark.leaping

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


def hang(server: ScriptedServer, request: dict[str, Any]) -> None:
    """Never answers."""


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_call_that_takes_too_long_is_cancelled_and_fails(revision: str, server_revision: str) -> None:
    """docs/middleware/timeout.md: cancelled at the server, and an error for the caller."""
    server = ScriptedServer(server_revision, tools={"hang": hang, "echo": None})
    options = {"use": "timeout", "seconds": 30, "tools": {"*__hang": 0.05}}
    async with a_world({"up": server}, middleware=[options]) as world:
        client = await world.client(revision)
        assert (await client.call("up__hang")).error == {
            "code": -32603,
            "message": 'server "up" did not answer within 0.05 s (middleware timeout) and was told to stop; '
            "the call may have run",
            "data": {"muxway": {"reason": "timeout", "upstream": "up"}},
        }
        assert "result" in (await client.call("up__echo")).message
        hung = next(one for one in server.heard if one.get("params", {}).get("name") == "hang")
        told = next(one for one in server.heard if one.get("method") == "notifications/cancelled")
        assert told["params"]["requestId"] == hung["id"]


async def test_tools_have_their_own_time() -> None:
    """docs/middleware/timeout.md: the first glob that fits; without `seconds` the others have none."""
    release = asyncio.Event()

    async def wait(server: ScriptedServer, request: dict[str, Any]) -> None:
        await release.wait()
        server.reply(request, {"content": []})

    server = ScriptedServer(tools={"wait": wait, "hang": hang}, resources={"x://y": hang})
    middleware = Timeout(tools={"up__h*": 0.05, "*__hang": 100.0})
    async with chained({"up": server}, middleware) as world:
        client = await world.client()
        waiting = client.start("tools/call", {"name": "up__wait", "arguments": {}})
        reading = client.start("resources/read", {"uri": "x://y"})
        assert (await client.call("up__hang")).error["data"]["muxway"]["reason"] == "timeout"
        release.set()
        assert "result" in (await client.answer(waiting)).message
        client.tell("notifications/cancelled", {"requestId": reading})


async def test_reads_and_prompts_have_a_time_too() -> None:
    """Ours: whatever goes to a server."""
    server = ScriptedServer(tools={}, resources={"x://y": hang}, prompts={"p": hang})
    async with chained({"up": server}, Timeout(seconds=0.05, tools={"*": 100})) as world:
        client = await world.client()
        for method, params in (("resources/read", {"uri": "x://y"}), ("prompts/get", {"name": "up__p"})):
            assert (await client.ask(method, params)).error["data"]["muxway"]["reason"] == "timeout"


async def test_what_fails_or_is_cancelled_in_time_is_as_without() -> None:
    """Ours: the server's own error passes, and a cancel reaches it once."""

    def fail(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.fail(request, -32050, "no", {"x": 1})

    server = ScriptedServer(tools={"fail": fail, "hang": hang})
    middleware = Timeout(seconds=100)
    async with chained({"up": server}, middleware) as world:
        client = await world.client()
        assert (await client.call("up__fail")).error == {"code": -32050, "message": "no", "data": {"x": 1}}
        id_ = client.start("tools/call", {"name": "up__hang", "arguments": {}})
        await client.call("up__fail")
        client.tell("notifications/cancelled", {"requestId": id_})
        await client.call("up__fail")
        await client.call("up__fail")
        assert len([one for one in server.heard if one.get("method") == "notifications/cancelled"]) == 1
        assert middleware._clocks == {}


@pytest.mark.parametrize("server_revision", ["2025-11-25", "2026-07-28"])
async def test_the_clock_stands_still_while_the_caller_is_asked(server_revision: str) -> None:
    """Ours: people think slowly; then the server has its whole time again."""

    async def ask(server: ScriptedServer, request: dict[str, Any]) -> None:
        if server.revision != "2026-07-28":
            await server.ask("elicitation/create", {"message": "Who?", "requestedSchema": FORM})
            return
        if "inputResponses" not in request["params"]:
            asked = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": FORM}}
            server.need(request, {"who": asked}, "state")

    server = ScriptedServer(server_revision, tools={"ask": ask})
    middleware = Timeout(seconds=0.3)
    async with chained({"up": server}, middleware) as world:
        client = RawClient(world.gateway.memory_door(), capabilities={"elicitation": {"form": {}}})
        await client.hello()
        id_ = client.start("tools/call", {"name": "up__ask", "arguments": {}})
        question = await client.notice("elicitation/create")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.7):
                await client.answer(id_)
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Ann"}}}
        client.say(json.dumps(answer).encode())
        error = (await client.answer(id_)).error
        assert error["data"]["muxway"]["reason"] == "timeout"
        assert middleware._clocks == {}


@pytest.mark.parametrize("end", ["answers", "dies", "is cancelled"])
async def test_a_call_may_end_before_its_question(end: str) -> None:
    """Ours: the question is withdrawn, and a late answer to it disturbs nobody."""
    asked = asyncio.Event()

    async def ask(server: ScriptedServer, request: dict[str, Any]) -> None:
        question = asyncio.create_task(server.ask("elicitation/create", {"message": "Who?", "requestedSchema": FORM}))
        await asked.wait()
        question.cancel()
        if end == "answers":
            server.reply(request, {"content": []})
        elif end == "dies":
            server.end()

    middleware = Timeout(seconds=30)
    servers = {"up": ScriptedServer(tools={"ask": ask}), "two": ScriptedServer(tools={"echo": None})}
    async with chained(servers, middleware) as world:
        client = RawClient(world.gateway.memory_door(), capabilities={"elicitation": {"form": {}}})
        await client.hello()
        id_ = client.start("tools/call", {"name": "up__ask", "arguments": {}})
        question = await client.notice("elicitation/create")
        asked.set()
        if end == "is cancelled":
            client.tell("notifications/cancelled", {"requestId": id_})
        else:
            assert (end == "answers") == ("result" in (await client.answer(id_)).message)
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Ann"}}}
        client.say(json.dumps(answer).encode())
        assert "result" in (await client.call("two__echo")).message
        assert middleware._clocks == {}


async def test_an_answer_that_comes_after_the_call_has_ended_is_passed_on() -> None:
    """Ours: whoever asks withdraws the question first; if not, the clock is none of its business any more."""
    given: list[bytes] = []
    passed: list[ServerRequest] = []
    ask = ServerRequest("up", NEWEST, "roots/list", {}, answer=given.append, refuse=lambda _error: None)

    class Asker(Waiter):
        def ask(self, ask: ServerRequest) -> None:
            passed.append(ask)

    class Board:
        def answer(self, call: Call, sink: Sink, target: Target | None = None) -> None:
            sink.ask(ask)
            sink.done(b"{}")

        def target(self, call: Call, *, wait: bool = True) -> Target:
            return Target("up")

        def listed(self, kind: Any, caller: Any) -> dict[str, object]:
            return {}

        def unknown(self, kind: Any, name: str, caller: Any) -> Any:
            raise AssertionError("nothing is hidden")

        def hold(self, wait: StillStarting, again: Any, call: Call, sink: Sink) -> Any:
            raise AssertionError("nothing starts")

    sink = Asker()
    chains = Chains([Layer("timeout", Timeout(seconds=30))], Board())
    assert await sink.outcome(chains.handle(Call(LIBRARY, "tools/call", {}), sink)) == b"{}"
    passed[0].answer(b"late")
    assert given == [b"late"]


class Slow(ScriptedServer):
    """Greets only when told to."""

    go: asyncio.Event

    async def _handle(self, message: dict[str, Any], line: bytes) -> None:
        if message.get("method") in ("initialize", "server/discover"):
            await self.go.wait()
        await super()._handle(message, line)


def slow() -> Slow:
    server = Slow(tools={"echo": None})
    server.go = asyncio.Event()
    return server


async def test_a_name_that_a_starting_server_may_bring_waits_before_the_clock_runs() -> None:
    """docs/middleware/timeout.md#what-counts: nobody can judge a tool that is not known yet."""
    server = slow()
    async with a_world({}, middleware=[{"use": "timeout", "seconds": 0.2}]) as world:
        adding = asyncio.ensure_future(world.gateway.add("up", server=server))
        client = await world.client()
        id_ = client.start("tools/call", {"name": "up__echo", "arguments": {"x": 1}})
        await asyncio.sleep(0.5)
        server.go.set()
        assert (await client.answer(id_)).result["structuredContent"] == {"x": 1}
        await adding


async def test_the_start_of_a_server_for_a_listed_tool_counts() -> None:
    """docs/middleware/timeout.md#what-counts: what the tool is, and whose, is known; its server is a slow one today."""
    server = slow()
    server.go.set()
    async with a_world({}, middleware=[{"use": "timeout", "seconds": 0.2}]) as world:
        await world.gateway.add("up", server=server, idleStop=0.1)
        client = await world.client()
        async with asyncio.timeout(10):
            while str(world.gateway.servers()[0].status) != "sleeping":
                await asyncio.sleep(0.01)
        server.go.clear()
        error = (await client.call("up__echo")).error
        assert error["data"]["muxway"]["reason"] == "timeout"
        server.go.set()


async def test_a_thousand_calls_at_once_end_in_time() -> None:
    """Ours: every one of them, and nothing is left behind."""
    middleware = Timeout(tools={"*__hang": 0.2, "*": 30})
    async with chained({"up": ScriptedServer(tools={"hang": hang, "echo": None}, remember=False)}, middleware) as world:
        client = await world.client()
        ids = [client.start("tools/call", {"name": f"up__{tool}", "arguments": {}}) for tool in ("hang", "echo") * 500]
        replies = [await client.answer(id_) for id_ in ids]
        assert all("error" in reply.message for reply in replies[::2])
        assert all("result" in reply.message for reply in replies[1::2])
        assert middleware._clocks == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "give `seconds`"),
        ({"seconds": 0}, "positive number of seconds"),
        ({"seconds": -1}, "positive number of seconds"),
        ({"tools": {"x": 0}}, "positive number of seconds"),
        ({"seconds": "soon"}, "positive number of seconds"),
        ({"tools": {"x": "soon"}}, "positive number of seconds"),
        ({"seconds": []}, "`seconds` has the wrong type"),
        ({"tools": ["x"]}, "`tools` has the wrong type"),
    ],
)
async def test_wrong_options_are_told(options: dict[str, Any], words: str) -> None:
    """docs/middleware/timeout.md: the options, and no others."""
    with pytest.raises(ConfigError, match=words):
        async with a_world({}, middleware=[{"use": "timeout", **options}]):
            pass
