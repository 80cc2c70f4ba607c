"""`limit`: refuses at once what is too much, and says when to come back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muxway.calls.call import Call, Caller
from muxway.calls.ports import Waiter
from muxway.errors import ConfigError, RpcError
from muxway.middleware.builtin import limit
from muxway.middleware.builtin.limit import Limit
from muxway.middleware.engine.base import Outcome, Request
from muxway.testing import ScriptedServer
from muxway.wire import envelopes
from muxway.wire.revisions import NEWEST

from ..conftest import World, a_world
from .chained import chained


class Clock:
    """A clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(limit, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def try_call(world: World, tool: str = "up__echo", principal: bytes = b"") -> int | None:
    """Make a call as somebody; None if it succeeds, else the milliseconds to wait."""
    params = {"name": envelopes.Raw(envelopes.encode(tool)), "arguments": envelopes.Raw(b"{}")}
    waiter = Waiter()
    call = Call(Caller(revision=NEWEST, principal=principal), "tools/call", params)
    running = world.gateway.runtime.dispatcher().handle(call, waiter)
    [outcome] = await asyncio.gather(waiter.outcome(running), return_exceptions=True)
    if not isinstance(outcome, RpcError):
        return None
    assert outcome.code == -32603
    assert outcome.data["muxway"]["reason"] == "limited"
    return outcome.data["muxway"]["retryAfterMs"]


async def test_what_comes_too_fast_is_refused_with_when_to_come_back(clock: Clock) -> None:
    """docs/middleware/limit.md: answers with retry-after."""
    options = {"use": "limit", "rate": "2/s"}
    async with a_world({"up": ScriptedServer(tools={"echo": None})}, middleware=[options]) as world:
        client = await world.client()
        for n in range(2):
            assert (await client.call("up__echo", {"n": n})).result["structuredContent"] == {"n": n}
        error = (await client.call("up__echo")).error
        assert error == {
            "code": -32603,
            "message": "too many calls: the limit for this caller is 2/s; try again in 500 ms",
            "data": {"muxway": {"reason": "limited", "retryAfterMs": 500}},
        }
        clock.now += 0.25
        assert (await client.call("up__echo")).error["data"]["muxway"]["retryAfterMs"] == 250
        clock.now += 0.25
        assert "result" in (await client.call("up__echo")).message
        assert await client.tools() == ["up__echo"]
        assert len([one for one in world.servers["up"].heard if one.get("method") == "tools/call"]) == 3


@pytest.mark.parametrize(
    ("rate", "burst", "at_once", "then_every"),
    [
        ("10/s", None, 10, 0.1),
        ("60/m", 1, 1, 1.0),
        ("3600/h", 5, 5, 1.0),
        ("0.5/s", None, 1, 2.0),
        (" 6 / m ", 2, 2, 10),
    ],
)
async def test_the_bucket_is_as_deep_as_said_and_fills_as_fast_as_said(
    clock: Clock, rate: str, burst: int | None, at_once: int, then_every: float
) -> None:
    """Ours: a token bucket."""
    async with chained({"up": ScriptedServer(tools={"echo": None})}, Limit(rate=rate, burst=burst)) as world:
        outcomes = [await try_call(world) for _ in range(at_once + 1)]
        assert outcomes == [None] * at_once + [then_every * 1000]
        for _ in range(3):
            clock.now += then_every
            assert await try_call(world) is None
            assert await try_call(world) is not None
        clock.now += 1_000_000
        assert [await try_call(world) for _ in range(at_once + 1)] == outcomes


@pytest.mark.parametrize(
    ("per", "free"),
    [
        ("caller", [False, False, False, True]),
        ("server", [False, False, True, False]),
        ("tool", [False, True, True, False]),
        ("all", [False, False, False, False]),
    ],
)
async def test_each_counts_by_itself(clock: Clock, per: Any, free: list[bool]) -> None:
    """docs/middleware/limit.md: per caller, server, tool."""
    servers = {"up": ScriptedServer(tools={"echo": None, "other": None}), "two": ScriptedServer(tools={"echo": None})}
    async with chained(servers, Limit(rate="1/h", per=per)) as world:
        assert await try_call(world, "up__echo", b"me") is None
        same = await try_call(world, "up:echo", b"me") is None
        tool = await try_call(world, "up__other", b"me") is None
        server = await try_call(world, "two__echo", b"me") is None
        caller = await try_call(world, "up__echo", b"you") is None
        assert [same, tool, server, caller] == free


async def test_sessions_without_a_token_count_by_themselves(clock: Clock) -> None:
    """Ours: one client does not use up what another has."""
    async with chained({"up": ScriptedServer(tools={"echo": None})}, Limit(rate="1/h")) as world:
        one, two = await world.client(), await world.client()
        assert "result" in (await one.call("up__echo")).message
        assert "error" in (await one.call("up__echo")).message
        assert "result" in (await two.call("up__echo")).message


async def test_only_so_many_run_at_once_and_every_end_makes_room() -> None:
    """docs/middleware/limit.md: concurrency; results, errors and cancels free the place."""
    release = asyncio.Event()

    async def wait(server: ScriptedServer, request: dict[str, Any]) -> None:
        await release.wait()
        server.reply(request, {"content": []})

    def fail(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.fail(request, -32000, "no")

    async with chained({"up": ScriptedServer(tools={"wait": wait, "fail": fail})}, Limit(concurrent=2)) as world:
        client = await world.client()
        for _ in range(5):
            assert (await client.call("up__fail")).error["message"] == "no"
        first, second = (client.start("tools/call", {"name": "up__wait", "arguments": {}}) for _ in range(2))
        error = (await client.call("up__wait")).error
        assert error["data"]["muxway"] == {"reason": "limited", "retryAfterMs": 1000}
        assert "2 at once" in error["message"]
        client.tell("notifications/cancelled", {"requestId": first})
        third = client.start("tools/call", {"name": "up__wait", "arguments": {}})
        assert "error" in (await client.call("up__wait")).message
        release.set()
        assert "result" in (await client.answer(second)).message
        assert "result" in (await client.answer(third)).message
        assert "result" in (await client.call("up__wait")).message


async def test_a_place_is_freed_when_the_server_dies() -> None:
    """Ours: a crash must not use up the limit for ever."""
    server = ScriptedServer(tools={"hang": lambda _server, _request: None})
    middleware = Limit(concurrent=1, per="all")
    async with chained({"up": server, "two": ScriptedServer(tools={"echo": None})}, middleware) as world:
        client = await world.client()
        id_ = client.start("tools/call", {"name": "up__hang", "arguments": {}})
        assert "error" in (await client.call("two__echo")).message
        server.end()
        assert (await client.answer(id_)).error["data"]["muxway"]["reason"] == "lost"
        assert "result" in (await client.call("two__echo")).message


async def test_of_a_thousand_calls_at_once_just_as_many_run_as_may() -> None:
    """Ours: exact, whatever the order."""
    async with chained({"up": ScriptedServer(tools={"echo": None})}, Limit(concurrent=100)) as world:
        client = await world.client()
        for _ in range(2):
            ids = [client.start("tools/call", {"name": "up__echo", "arguments": {}}) for _ in range(1000)]
            replies = [await client.answer(id_) for id_ in ids]
            assert sum("result" in reply.message for reply in replies) == 100


def test_memory_is_bounded_and_what_runs_is_not_forgotten(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: callers come and go; one that has a call under way cannot be forgotten to let it have another."""
    monkeypatch.setattr(limit, "_KEPT", 10)
    middleware = Limit(rate="1/h", concurrent=1)

    def request(who: bytes) -> Request:
        return Request(Call(Caller(revision=NEWEST, principal=who), "tools/call", {}))

    middleware.before(request(b"first"))
    for n in range(1000):
        middleware.before(request(b"%d" % n))
        middleware.after(request(b"%d" % n), Outcome(0.0))
        assert len(middleware._counters) <= 10
    with pytest.raises(RpcError, match="1 at once"):
        middleware.before(request(b"first"))
    middleware.after(request(b"first"), Outcome(0.0))
    with pytest.raises(RpcError, match="1/h"):
        middleware.before(request(b"first"))


async def test_the_whole_and_its_views_count_together() -> None:
    """Ours: a limit is one limit, whichever way a caller comes in."""
    limits = [{"use": "limit", "rate": "2/h", "per": "all"}, {"use": "limit", "rate": "100/h", "per": "all"}]
    views = {"one": {}, "other": {"middleware": [{"use": "limit", "rate": "1/h", "per": "all"}]}}
    async with a_world({"up": ScriptedServer(tools={"echo": None})}, middleware=limits, views=views) as world:
        assert (await world.gateway.call("up__echo", {})).is_error is False
        assert (await world.gateway.call("up__echo", {}, view="other")).is_error is False
        for view in (None, "one"):
            with pytest.raises(RpcError, match="2/h"):
                await world.gateway.call("up__echo", {}, view=view)


async def test_names_that_callers_invent_fill_no_memory(clock: Clock) -> None:
    """Ours: a tool that is not there has no counter of its own."""
    middleware = Limit(rate="1000/s", per="tool")
    async with chained({"up": ScriptedServer(tools={"echo": None})}, middleware) as world:
        client = await world.client()
        for n in range(50):
            await client.call(f"up__no{n}")
            await client.ask("resources/read", {"uri": f"x://{n}"})
        assert len(middleware._counters) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "give `rate`"),
        ({"rate": "fast"}, "`rate` must be a number of calls"),
        ({"rate": "0/s"}, "`rate` must be a number of calls"),
        ({"rate": "10/d"}, "`rate` must be a number of calls"),
        ({"rate": 10}, '`rate` must say in which time: write "10/s"'),
        ({"rate": 0.5}, '`rate` must say in which time: write "0.5/s"'),
        ({"rate": [10]}, "`rate` has the wrong type"),
        ({"burst": 3, "concurrent": 1}, "goes with `rate`"),
        ({"rate": "1/s", "burst": 0}, "`burst` must be 1 or more"),
        ({"concurrent": 0}, "`concurrent` must be 1 or more"),
        ({"concurrent": True}, "`concurrent` has the wrong type"),
        ({"concurrent": 1, "per": "city"}, "`per` has the wrong type"),
    ],
)
async def test_wrong_options_are_told(options: dict[str, Any], words: str) -> None:
    """docs/middleware/limit.md: the options, and no others."""
    with pytest.raises(ConfigError, match=words):
        async with a_world({}, middleware=[{"use": "limit", **options}]):
            pass


def test_code_is_told_too() -> None:
    """Ours: who builds one in Python has no type checker at run time."""
    with pytest.raises(ValueError, match="`per` must be one of caller, server, tool, all"):
        Limit(concurrent=1, per="city")  # pyright: ignore[reportArgumentType]
