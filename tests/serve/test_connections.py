"""One connection, and what may follow what on it: requests by the thousand, bodies in many pieces, and nonsense."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from muxway.clients.transports.guard import Guard
from muxway.testing import ScriptedServer

from ..pace import heap_of_its_own
from .harness import BOTH, Web, initialize, modern
from .test_sessions import reporting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    Webs = Callable[..., AbstractAsyncContextManager[Web]]

ALLOWED = 0.02
SLACK = 4


@contextlib.asynccontextmanager
async def longest_turn() -> AsyncIterator[list[float]]:
    """The longest time, of this thread's CPU, in which nobody else had a turn. It is there at the end."""
    turns = [0.0]

    async def watch() -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0)
            turns[0] = max(turns[0], time.thread_time() - began)

    with heap_of_its_own():
        watching = asyncio.create_task(watch())
        await asyncio.sleep(0)
        try:
            yield turns
        finally:
            watching.cancel()


def post(http: Web, message: object, *lines: str, path: str = "/mcp", length: int | None = None) -> bytes:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    usual = [f"Host: {http.host}", "Content-Type: application/json", f"Accept: {BOTH}"]
    size = f"Content-Length: {len(body) if length is None else length}"
    return "\r\n".join([f"POST {path} HTTP/1.1", *usual, *lines, size, "", ""]).encode() + body


def calling(http: Web, tool: str, number: int, meta: Any = None) -> bytes:
    params = {"name": f"s__{tool}", "arguments": {"n": number}, **({} if meta is None else {"_meta": meta})}
    message, headers = modern("tools/call", params, number)
    return post(http, message, *(f"{name}: {value}" for name, value in headers.items()))


# --- many at once -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 415),
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 0\r\n\r\n", 421),
    ],
    ids=["short", "with a length", "with a wish"],
)
async def test_thousands_of_requests_in_one_read_hold_up_nobody(one: bytes, status: int, web: Webs) -> None:
    """docs/behaviour.md#size-limits: nobody waits for more than 20 ms; and each has its answer."""
    async with web() as http:
        count = 250_000 // len(one)
        async with longest_turn() as turns:
            opened = await http.raw(one * count)
            for _ in range(count):
                assert (await opened.head()).status == status
                await opened.rest()
        assert turns[0] < ALLOWED * SLACK


async def test_a_body_in_a_million_chunks_holds_up_nobody(web: Webs) -> None:
    """docs/behaviour.md#size-limits: the same for a body of two bytes a chunk."""
    async with web() as http:
        usual = f"Host: {http.host}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunks = b"2\r\n  \r\n" * 1_500_000
        async with longest_turn() as turns:
            opened = await http.raw(f"POST /mcp HTTP/1.1\r\n{usual}".encode() + chunks + b"2\r\n{}\r\n0\r\n\r\n")
            assert (await opened.head()).status == 400
            assert json.loads(await opened.rest())["error"]["code"] == -32600
        assert turns[0] < ALLOWED * SLACK


async def test_what_follows_a_body_in_chunks_is_as_short_as_a_header(web: Webs) -> None:
    """docs/errors.md#over-http: 431 for a trailer, or for what a chunk says of itself, of more than 32 KiB."""
    async with web() as http:
        usual = f"Host: {http.host}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        for end in (b"0\r\nX: ", b"5;x="):
            opened = await http.raw(f"POST /mcp HTTP/1.1\r\n{usual}".encode() + end + b"a" * 100_000)
            assert (await opened.head()).status == 431


async def test_large_requests_behind_each_other_are_answered_in_order(web: Webs) -> None:
    """RFC 9112 §9.3.2, whatever the pieces in which they are looked at."""
    async with web({"s": ScriptedServer(tools={"echo": None})}) as http:
        parts = []
        for number in range(6):
            message, headers = modern("tools/call", {"name": "s__echo", "arguments": {"x": "y" * 60_000}}, number)
            parts.append(post(http, message, *(f"{name}: {value}" for name, value in headers.items())))
        opened = await http.raw(b"".join(parts))
        for number in range(6):
            assert (await opened.head()).status == 200
            assert json.loads(await opened.rest())["id"] == number


# --- what is known of a header ----------------------------------------------------------------


async def test_a_body_cannot_pretend_to_be_a_header_that_was_looked_at(web: Webs) -> None:
    """docs/security.md: a header is known again only if it was one. Proxies send many users' requests on a connection.

    The body comes in two pieces, and the second looks like a whole request, but for as many bytes as the first had.
    """
    guard = Guard(tokens=["right-right-right-right"])
    async with web(guard=guard) as http:
        forged = post(http, b"", "Authorization: Bearer wrong")
        request = post(http, b"0123456789" + forged + b"0123456789", "Authorization: Bearer right-right-right-right")
        cut = len(request) - len(forged) - 10
        opened = await http.raw(request[:cut])
        await asyncio.sleep(0.05)
        opened.writer.write(request[cut:])
        assert (await opened.head()).status == 400
        await opened.rest()
        opened.writer.write(post(http, initialize(), "Authorization: Bearer wrong"))
        assert (await opened.head()).status == 401


# --- what is no request -----------------------------------------------------------------------


async def test_what_is_no_request_is_refused_behind_the_answer_to_the_one_before(web: Webs) -> None:
    """RFC 9112 §9.3.2: the first answer is the first request's."""
    async with web({"s": ScriptedServer(tools={"echo": None})}) as http:
        opened = await http.raw(calling(http, "echo", 1) + calling(http, "echo", 2) + b"\0nonsense\r\n\r\n")
        for number in (1, 2):
            assert (await opened.head()).status == 200
            assert json.loads(await opened.rest())["id"] == number
        assert (await opened.head()).status == 400
        await opened.rest()
        assert await opened.closed() == b""


async def test_what_is_no_request_does_not_get_into_a_stream(web: Webs) -> None:
    async with web({"s": ScriptedServer(tools={"report": reporting})}) as http:
        opened = await http.raw(calling(http, "report", 1, {"progressToken": 1}) + b"\0nonsense\r\n\r\n")
        assert (await opened.head()).headers["content-type"] == "text/event-stream"
        assert [message.get("id") for message in await opened.messages()] == [None, None, 1]
        assert (await opened.head()).status == 400


async def test_a_request_that_has_its_answer_gets_no_other(web: Webs) -> None:
    """Ours: it was refused by its header, and then its body goes wrong; nobody waits for an answer to that."""
    async with web() as http:
        opened = await http.raw(
            f"POST /no HTTP/1.1\r\nHost: {http.host}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        assert (await opened.head()).status == 404
        await opened.rest()
        opened.writer.write(b"nonsense\r\n")
        assert await opened.closed() == b""


@pytest.mark.parametrize("target", ["http://[::1:x/", "http://a:99999999/mcp", "http://"])
async def test_a_target_that_is_none_is_a_bad_request(target: str, web: Webs, caplog: pytest.LogCaptureFixture) -> None:
    """RFC 9112 §3.2: 400, and nothing that its owner should look into."""
    async with web() as http:
        opened = await http.raw(f"GET {target} HTTP/1.1\r\nHost: {http.host}\r\n\r\n".encode())
        assert (await opened.head()).status == 400
    assert "internal error" not in caplog.text


# --- HTTP/1.0 ---------------------------------------------------------------------------------


async def test_a_stream_over_http_1_0_has_no_chunks(web: Webs) -> None:
    """RFC 9112 §6.1: no transfer coding for whoever does not speak 1.1; the stream ends with the connection."""
    async with web({"s": ScriptedServer(tools={"report": reporting})}) as http:
        request = calling(http, "report", 1, {"progressToken": 1}).replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n")
        opened = await (await http.raw(request)).head()
        assert opened.headers["content-type"] == "text/event-stream"
        assert "transfer-encoding" not in opened.headers
        assert opened.headers["connection"] == "close"
        events = (await opened.closed()).decode().split("\n\n")
        assert [event.partition("\n")[0] for event in events if event] == ["event: message"] * 3
