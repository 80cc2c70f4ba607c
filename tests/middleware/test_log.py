"""`log`: one line a request, with nothing in it that should not be."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from muxway.middleware.builtin.log import Log
from muxway.testing import ScriptedServer

from ..conftest import a_world
from .chained import chained


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """Gives the lines of the middleware so far."""
    caplog.set_level(logging.INFO, "muxway.calls")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "muxway.calls"]


def fail(server: ScriptedServer, request: dict[str, Any]) -> None:
    server.fail(request, -32050, "no")


def say_error(server: ScriptedServer, request: dict[str, Any]) -> None:
    server.reply(request, {"content": [{"type": "text", "text": "broken"}], "isError": True})


def hang(server: ScriptedServer, request: dict[str, Any]) -> None:
    """Never answers."""


async def test_a_call_is_one_line_with_who_what_and_how_it_went(lines: Any) -> None:
    """docs/middleware/log.md: one line a call."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}, middleware=["log"]) as world:
        client = await world.client()
        reply = await client.call("up__echo", {"secret": "s3cr3t-value"})
        [line] = lines()
        size = len(reply.line) - len(b'{"jsonrpc":"2.0","id":2,"result":}')
        assert re.fullmatch(
            r"call method=tools/call name=up__echo server=up client=raw outcome=ok "
            rf"ms=\d+\.\d+ bytes_in=26 bytes_out={size}",
            line,
        ), line
        await client.tools()
        assert "method=tools/list client=raw outcome=ok" in lines()[1]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("tool", "words"),
    [("fail", "outcome=error code=-32050"), ("say_error", "outcome=isError"), ("none", "outcome=error code=-3260")],
)
async def test_failures_are_told_apart(lines: Any, revision: str, tool: str, words: str) -> None:
    """Ours: what a tool says of itself is no protocol error."""
    async with chained({"up": ScriptedServer(tools={"fail": fail, "say_error": say_error})}, Log()) as world:
        client = await world.client(revision)
        await client.call(f"up__{tool}")
        assert words in lines()[-1]


async def test_a_result_that_only_mentions_an_error_is_none(lines: Any) -> None:
    """Ours: the words are looked for first, but the member counts."""
    async with chained({"up": ScriptedServer(tools={"echo": None})}, Log()) as world:
        client = await world.client()
        await client.call("up__echo", {"isError": True, "resultType": "input_required"})
        assert "outcome=ok" in lines()[-1]


async def test_a_question_is_told_as_such(lines: Any) -> None:
    """Ours: a stateless call that ends in a question is not over."""

    def ask(server: ScriptedServer, request: dict[str, Any]) -> None:
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        asked = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": form}}
        server.need(request, {"who": asked}, "state")

    async with chained({"up": ScriptedServer("2026-07-28", tools={"ask": ask})}, Log()) as world:
        client = await world.client("2026-07-28")
        client._capabilities = {"elicitation": {"form": {}}}
        assert (await client.call("up__ask")).result["resultType"] == "input_required"
        assert "outcome=asked" in lines()[-1]


async def test_a_cancelled_call_is_told_too(lines: Any) -> None:
    """Ours: whatever was begun is in the log."""
    server = ScriptedServer(tools={"hang": hang})
    async with chained({"up": server}, Log()) as world:
        client = await world.client()
        id_ = client.start("tools/call", {"name": "up__hang", "arguments": {}})
        await client.tools()
        client.tell("notifications/cancelled", {"requestId": id_})
        await client.tools()
        assert [line for line in lines() if "outcome=cancelled" in line and "name=up__hang" in line]


async def test_arguments_are_shown_only_if_asked_for_and_then_masked_and_short(lines: Any) -> None:
    """docs/middleware/log.md: redacted."""
    arguments = {
        "path": "/x",
        "apiKey": "k-123456",
        "deep": {"password": "hunter22", "list": [1, {"token": "t"}]},
        "known": "before CONFIGURED after",
        "long": "y" * 500,
    }
    middleware = Log(arguments=True, known_secrets=frozenset({"CONFIGURED"}))
    async with chained({"up": ScriptedServer(tools={"echo": None})}, middleware) as world:
        client = await world.client()
        await client.call("up__echo", arguments)
        line = lines()[-1]
        assert "'path':'/x'" in line
        assert "before *** after" in line
        for secret in ("k-123456", "hunter22", "'token':'t'", "CONFIGURED", "y" * 81):
            assert secret not in line
        assert len(line) < 700


async def test_hostile_names_and_arguments_stay_one_short_line(lines: Any) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: any input, one line."""
    deep: Any = 1
    for _ in range(300):
        deep = [deep, {"a": "\x1b[31m\r\n"}]
    async with chained({"up": ScriptedServer(tools={"echo": None})}, Log(arguments=True)) as world:
        client = await world.client()
        await client.call("up__echo\n\x1b[2J" + "n" * 5000, {"deep": deep, "many": [*range(10_000)]})
        line = lines()[-1]
        assert "\n" not in line
        assert "\x1b" not in line
        assert len(line) < 1500
        client.say(
            b'{"jsonrpc":"2.0","id":"z","method":"tools/call","params":{"name":"up__echo","arguments":{"n":1e999}}}'
        )
        assert b"1e999" in (await client.answer("z")).line
        assert "(cannot be shown)" in lines()[-1]


async def test_a_thousand_calls_at_once_are_a_thousand_lines(lines: Any) -> None:
    """Ours: none is lost or told twice."""
    async with chained({"up": ScriptedServer(tools={"echo": None})}, Log()) as world:
        client = await world.client()
        ids = [client.start("tools/call", {"name": "up__echo", "arguments": {"n": n}}) for n in range(1000)]
        for id_ in ids:
            await client.answer(id_)
        assert len([line for line in lines() if "outcome=ok" in line]) == 1000
