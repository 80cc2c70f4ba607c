"""`retry`: again where it does no harm, and an honest error where it might."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from muxway.errors import ConfigError, RpcError, UpstreamError
from muxway.middleware.builtin import retry
from muxway.middleware.builtin.limit import Limit
from muxway.middleware.builtin.retry import Retry
from muxway.middleware.builtin.timeout import Timeout
from muxway.testing import RawClient, ScriptedServer

from ..conftest import a_world
from .chained import Failing, chained

if TYPE_CHECKING:
    from muxway.errors import Reason

LISTED = [
    {"name": "write", "inputSchema": {"type": "object"}},
    {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "put", "inputSchema": {"type": "object"}, "annotations": {"idempotentHint": True}},
]


def a_server(**scripts: Any) -> ScriptedServer:
    tools = {"write": None, "read": None, "put": None, **scripts}
    return ScriptedServer(tools=tools, definitions=LISTED, resources={"x://y": "text"})


def trouble(reason: Reason) -> UpstreamError:
    return UpstreamError("up", reason, f'server "up" {reason}')


@pytest.mark.parametrize("tool", ["write", "read", "put"])
@pytest.mark.parametrize("reason", ["not_running", "overloaded"])
async def test_what_did_not_run_is_tried_again(tool: str, reason: Reason) -> None:
    """docs/middleware/retry.md: what provably did not run."""
    failing = Failing(trouble(reason), trouble(reason))
    async with chained({"up": a_server()}, Retry(pause=0.001), failing) as world:
        client = await world.client()
        assert (await client.call(f"up__{tool}", {"n": 1})).result["structuredContent"] == {"n": 1}
        assert failing.seen == 3


@pytest.mark.parametrize("reason", ["lost", "timeout", "malformed"])
@pytest.mark.parametrize("tool", ["read", "put"])
async def test_what_does_no_harm_twice_is_tried_again(tool: str, reason: Reason) -> None:
    """docs/middleware/retry.md: annotated read-only or idempotent."""
    failing = Failing(trouble(reason))
    async with chained({"up": a_server()}, Retry(pause=0.001), failing) as world:
        client = await world.client()
        assert "result" in (await client.call(f"up__{tool}")).message
        assert failing.seen == 2
        failing.errors = [trouble(reason)]
        assert (await client.ask("resources/read", {"uri": "x://y"})).result["contents"][0]["text"] == "text"
        assert failing.seen == 4


@pytest.mark.parametrize("reason", ["lost", "timeout", "malformed", "too_large"])
async def test_what_may_have_run_is_not_repeated_and_says_so(reason: Reason) -> None:
    """docs/middleware/retry.md: else an error that says "may have run"."""
    failing = Failing(trouble(reason))
    async with chained({"up": a_server()}, Retry(pause=0.001), failing) as world:
        client = await world.client()
        assert (await client.call("up__write")).error == {
            "code": -32603,
            "message": f'server "up" {reason}; the call may have run',
            "data": {"muxway": {"reason": reason, "upstream": "up"}},
        }
        assert failing.seen == 1


async def test_a_server_that_dies_in_a_call_is_told_as_such() -> None:
    """Ours: with a real connection that ends."""
    server = a_server(write=lambda server, _request: server.end())
    async with a_world({"up": server}, middleware=["retry"]) as world:
        error = (await (await world.client()).call("up__write")).error
        assert error["data"]["muxway"]["reason"] == "lost"
        assert error["message"].endswith("; the call may have run")
        assert len([one for one in server.heard if one.get("method") == "tools/call"]) == 1


async def test_errors_of_the_server_and_of_the_request_pass_as_they_are() -> None:
    """Ours: an answer is an answer, also if it looks like one of ours."""
    data = {"muxway": {"reason": "not_running"}, "n": 1}

    def fail(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.fail(request, -32603, "no", data)

    server = a_server(read=fail)
    failing = Failing()
    async with chained({"up": server}, Retry(pause=0.001), failing) as world:
        client = await world.client()
        assert (await client.call("up__read")).error == {"code": -32603, "message": "no", "data": data}
        assert (await client.call("up__unknown")).error["code"] == -32601
        failing.errors = [RpcError("mine", code=5, data=[1])]
        assert (await client.call("up__read")).error == {"code": 5, "message": "mine", "data": [1]}
        assert failing.seen == 3


async def test_it_gives_up_after_so_many_times() -> None:
    """Ours: and says how often it tried."""
    failing = Failing(*(trouble("lost") for _ in range(10)))
    async with chained({"up": a_server()}, Retry(times=3, pause=0.001), failing) as world:
        client = await world.client()
        assert (await client.call("up__read")).error["message"] == 'server "up" lost (tried 4 times)'
        assert failing.seen == 4


async def test_it_gives_up_after_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: nobody waits for ever."""
    monkeypatch.setattr(retry, "_LONGEST", 0.5)
    failing = Failing(*(trouble("lost") for _ in range(10)))
    async with chained({"up": a_server()}, Retry(times=10, pause=0.1), failing) as world:
        client = await world.client()
        async with asyncio.timeout(5):
            assert "tried" in (await client.call("up__read")).error["message"]
        assert 1 < failing.seen < 6


def test_pauses_grow_and_differ() -> None:
    """Ours: exponential with jitter, and no longer than ten seconds unless a limit says so."""
    middleware = Retry(times=10, pause=0.2)
    for tries in range(1, 11):
        pauses = {middleware._pause_before(tries, trouble("lost")) for _ in range(50)}
        assert len(pauses) > 1 or tries > 7
        assert 0.1 * 2 ** (tries - 1) <= min(pauses) or min(pauses) == 10
        assert max(pauses) <= min(0.3 * 2 ** (tries - 1), 10)
    limited = RpcError("x", data={"muxway": {"reason": "limited", "retryAfterMs": 12_000}})
    assert middleware._pause_before(1, limited) == 12


async def test_nothing_is_repeated_once_a_question_was_asked() -> None:
    """docs/middleware/retry.md: the user would be asked the same again."""
    form = {"type": "object", "properties": {"name": {"type": "string"}}}

    async def ask(server: ScriptedServer, request: dict[str, Any]) -> None:
        await server.ask("elicitation/create", {"message": "Who?", "requestedSchema": form})

    server = a_server(read=ask)
    async with chained({"up": server}, Retry(pause=0.001), Timeout(seconds=0.2)) as world:
        client = RawClient(world.gateway.memory_door(), capabilities={"elicitation": {"form": {}}})
        await client.hello()
        client.answers["elicitation/create"] = lambda _params: {"action": "accept", "content": {"name": "Ann"}}
        assert (await client.call("up__read")).error["data"]["muxway"]["reason"] == "timeout"
        assert len([one for one in server.heard if one.get("method") == "tools/call"]) == 1


async def test_the_answer_to_a_question_is_not_repeated_either() -> None:
    """Ours: a stateless call goes on with its state, which may be used once."""
    form = {"type": "object", "properties": {"name": {"type": "string"}}}

    def ask(server: ScriptedServer, request: dict[str, Any]) -> None:
        if "inputResponses" not in request["params"]:
            asked = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": form}}
            server.need(request, {"who": asked}, "state")

    server = ScriptedServer("2026-07-28", tools={"read": ask}, definitions=LISTED[1:2])
    async with chained({"up": server}, Retry(pause=0.001), Timeout(seconds=0.3)) as world:
        capabilities = {"elicitation": {"form": {}}}
        client = RawClient(world.gateway.memory_door(), revision="2026-07-28", capabilities=capabilities)
        client.answers["elicitation/create"] = lambda _params: {"action": "accept", "content": {"name": "Ann"}}
        reply = await client.complete("tools/call", {"name": "up__read", "arguments": {}})
        assert reply.error["data"]["muxway"]["reason"] == "timeout"
        assert len([one for one in server.heard if one.get("method") == "tools/call"]) == 2


async def test_progress_never_goes_back() -> None:
    """MCP 2025-11-25, basic/utilities/progress: progress must increase with each notice, whoever tries how often."""
    tries = 0

    def work(server: ScriptedServer, request: dict[str, Any]) -> None:
        nonlocal tries
        tries += 1
        server.progress(request, 1)
        server.progress(request, 2)
        if tries > 1:
            server.progress(request, 3)
            server.reply(request, {"content": []})

    middlewares = Retry(pause=0.001), Timeout(seconds=0.3)
    async with chained({"up": a_server(read=work)}, *middlewares) as world:
        client = await world.client()
        assert "result" in (await client.call("up__read", _meta={"progressToken": "t"})).message
        assert [one["params"]["progress"] for one in client.notices] == [1, 2, 3]
        assert tries == 2


async def test_a_limit_inside_is_waited_for() -> None:
    """Ours: the two go together."""
    middlewares = Retry(pause=0.001), Limit(rate="20/s", burst=1)
    async with chained({"up": a_server()}, *middlewares) as world:
        client = await world.client()
        for n in range(3):
            assert (await client.call("up__write", {"n": n})).result["structuredContent"] == {"n": n}


async def test_a_cancel_ends_the_pause() -> None:
    """Ours: nothing is sent for somebody who does not wait any more."""
    failing = Failing(trouble("not_running"))
    middleware = Retry(pause=10)
    async with chained({"up": a_server()}, middleware, failing) as world:
        client = await world.client()
        id_ = client.start("tools/call", {"name": "up__read", "arguments": {}})
        assert (await client.call("up__read", {"n": 1})).result["structuredContent"] == {"n": 1}
        client.tell("notifications/cancelled", {"requestId": id_})
        assert (await client.call("up__read", {"n": 2})).result["structuredContent"] == {"n": 2}
        assert middleware._heard == {}
        assert failing.seen == 3
        assert client.unread == 0


async def test_a_thousand_calls_at_once_all_get_there() -> None:
    """Ours: each with its own count."""
    failing = Failing(*(trouble("lost") for _ in range(500)))
    middleware = Retry(times=10, pause=0.001)
    async with chained({"up": a_server()}, middleware, failing) as world:
        client = await world.client()
        ids = [client.start("tools/call", {"name": "up__read", "arguments": {"n": n}}) for n in range(1000)]
        for n, id_ in enumerate(ids):
            assert (await client.answer(id_)).result["structuredContent"] == {"n": n}
        assert failing.seen == 1500
        assert middleware._heard == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"times": 0}, "`times` must be a whole number from 1 to 10"),
        ({"times": 11}, "`times` must be a whole number from 1 to 10"),
        ({"times": 1.5}, "`times` has the wrong type"),
        ({"pause": 0}, "`pause` must be a positive number of seconds, 10 at most"),
        ({"pause": "long"}, "`pause` must be a positive number of seconds, 10 at most"),
        ({"pause": "1m"}, "`pause` must be a positive number of seconds, 10 at most"),
        ({"pause": []}, "`pause` has the wrong type"),
        ({"pause": 11}, "`pause` must be a positive number of seconds, 10 at most"),
    ],
)
async def test_wrong_options_are_told(options: dict[str, Any], words: str) -> None:
    """docs/middleware/retry.md: the options, and no others."""
    with pytest.raises(ConfigError, match=words):
        async with a_world({}, middleware=[{"use": "retry", **options}]):
            pass
