"""Requests that repeat the header of the one before are not parsed again: nobody must be able to tell."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from muxway.clients.transports.http_request import Known, RequestHead

from ..pace import PATIENCE
from .harness import BOTH, Web, modern, request
from .test_sessions import echo

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from .harness import Client, Opened

    Webs = Callable[..., AbstractAsyncContextManager[Web]]

PING = json.dumps(request("ping")).encode()
CALL = {"name": "s__echo", "arguments": {"text": "hello"}}


def header(web: Web, client: Client, length: object, *more: str) -> bytes:
    """The header of a POST in a session."""
    given = {"Host": web.host, "Content-Type": "application/json", "Accept": BOTH, **client.headers}
    lines = [f"{name}: {value}" for name, value in given.items()]
    return "\r\n".join(["POST /mcp HTTP/1.1", *lines, f"Content-Length: {length}", *more, "", ""]).encode()


async def said(opened: Opened) -> tuple[int, str, bytes]:
    """Status, kind and body of the next answer on a connection."""
    await opened.head()
    return opened.status, opened.headers.get("content-type", ""), await opened.rest()


async def warm(web: Web, client: Client) -> Opened:
    """A connection on which a request with the usual header has been answered."""
    opened = await web.raw(header(web, client, len(PING)) + PING)
    assert (await said(opened))[0] == 200
    return opened


BODIES = {
    "a ping": PING,
    "a call": json.dumps(request("tools/call", CALL)).encode(),
    "a call with progress": json.dumps(
        request("tools/call", {"name": "s__report", "_meta": {"progressToken": "p"}})
    ).encode(),
    "a listing": json.dumps(request("tools/list", id_="x" * 3000)).encode(),
    "an unknown method": json.dumps(request("nonsense")).encode(),
    "a notice": b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
    "nothing": b"",
    "not JSON": b"{",
    "an array": b"[]",
    "a second initialize": json.dumps(request("initialize", {"protocolVersion": "2025-06-18"})).encode(),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
async def test_a_repeated_header_changes_no_answer(body: bytes, web: Webs) -> None:
    """Ours: the same bytes get the same answer, whatever was sent before them on the connection."""
    async with web(echo()) as http:
        client = await http.session("2025-06-18")
        data = header(http, client, len(body)) + body
        fresh = await said(await http.raw(data))
        opened = await warm(http, client)
        for _ in range(3):
            opened.writer.write(data)
            status, kind, answer = await said(opened)
            # The ids of events differ from stream to stream.
            assert (status, kind) == fresh[:2]
            assert answer == fresh[2] or kind == "text/event-stream"


CHANGED = {
    "another host": lambda web, client: header(web, client, len(PING)).replace(web.host.encode(), b"evil.example"),
    "an origin": lambda web, client: header(web, client, len(PING), "Origin: https://evil.example"),
    "another session": lambda web, client: header(web, client, len(PING)).replace(client.id.encode(), b"0" * 32),
    "another type": lambda web, client: header(web, client, len(PING)).replace(b"application/json\r", b"text/plain\r"),
    "a length of text": lambda web, client: header(web, client, "some"),
    "two lengths": lambda web, client: header(web, client, len(PING), f"Content-Length: {len(PING)}"),
    "another path": lambda web, client: header(web, client, len(PING)).replace(b"/mcp", b"/mcq"),
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=list(CHANGED))
async def test_a_header_that_differs_is_looked_at_anew(change: Callable[[Web, Client], bytes], web: Webs) -> None:
    """Ours: only what is the same byte for byte has been checked before."""
    async with web(echo()) as http:
        client = await http.session("2025-06-18")
        data = change(http, client) + PING
        fresh = await said(await http.raw(data))
        assert fresh[0] >= 400
        opened = await warm(http, client)
        opened.writer.write(data)
        assert await said(opened) == fresh


async def test_requests_in_one_piece_are_answered_one_after_the_other(web: Webs) -> None:
    """HTTP: a client may send the next request before it has the answer."""
    async with web(echo()) as http:
        client = await http.session("2025-06-18")
        opened = await warm(http, client)
        bodies = [json.dumps(request("tools/call", CALL, number)).encode() for number in range(1, 6)]
        opened.writer.write(b"".join(header(http, client, len(body)) + body for body in bodies))
        answers = [json.loads((await said(opened))[2]) for _ in bodies]
        assert [answer["id"] for answer in answers] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("cut", [1, 40, -20, -1])
async def test_a_repeated_header_may_arrive_in_pieces(cut: int, web: Webs) -> None:
    """HTTP: where packets end means nothing."""
    async with web(echo()) as http:
        client = await http.session("2025-06-18")
        opened = await warm(http, client)
        data = header(http, client, len(PING)) + PING
        for _ in range(3):
            opened.writer.write(data[:cut])
            await asyncio.wait_for(opened.writer.drain(), PATIENCE)
            assert (await http.ask("GET", "/healthz")).status == 200  # By now it has arrived.
            opened.writer.write(data[cut:])
            assert (await said(opened))[0] == 200


async def test_an_ended_session_is_gone_for_a_repeated_header_too(web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: 404 after DELETE."""
    async with web(echo()) as http:
        client = await http.session("2025-06-18")
        opened = await warm(http, client)
        assert (await http.ask("DELETE", "/mcp", client.headers)).status == 200
        opened.writer.write(header(http, client, len(PING)) + PING)
        assert (await said(opened))[0] == 404


async def test_stateless_requests_may_repeat_their_header(web: Webs) -> None:
    """Ours: headers and body are compared each time."""
    async with web(echo()) as http:
        message, given = modern("tools/call", CALL)
        lines = [f"{name}: {value}" for name, value in given.items()]
        usual = [f"Host: {http.host}", "Content-Type: application/json", f"Accept: {BOTH}"]
        opened = await http.connect()
        for text in ("a", "much longer", "a"):
            message["params"]["arguments"] = {"text": text}
            body = json.dumps(message).encode()
            head = ["POST /mcp HTTP/1.1", *usual, *lines, f"Content-Length: {len(body)}", "", ""]
            opened.writer.write("\r\n".join(head).encode() + body)
            status, _, answer = await said(opened)
            assert status == 200
            assert text in json.dumps(json.loads(answer)["result"])
        message["params"]["name"] = "s__report"
        body = json.dumps(message).encode()
        head[-3] = f"Content-Length: {len(body)}"
        opened.writer.write("\r\n".join(head).encode() + body)
        assert (await said(opened))[0] == 400  # The header still says s__echo.


def known(data: bytes, body: bytes) -> Any:
    """What is learned of a request."""
    lines = data[: len(data) - len(body)].split(b"\r\n")[1:-2]
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    return Known.of(data, body, RequestHead("POST", "/mcp", b"", headers, keep_alive=True))


def test_only_the_length_may_differ() -> None:
    """Ours: what is taken without parsing is one whole request, byte for byte as long as it says."""
    before, after = b"POST /mcp HTTP/1.1\r\nContent-Length: ", b"\r\nX: y\r\n\r\n"
    learned = known(before + b"2" + after + b"{}", b"{}")
    assert learned.body(before + b"3" + after + b"{ }") == b"{ }"
    assert learned.head.headers[b"x"] == [b"y"]
    for other in (
        before + b"2" + after + b"{}{",
        before + b"2" + after + b"{",
        before + b"+2" + after + b"{}",
        before + b"2 " + after + b"{}",
        before + after + b"",
        before + b"2",
        before + b"99999999999999",
        b"POST /mcp HTTP/1.1\r\ncontent-length: 2" + after + b"{}",
        before + b"2\r\nX: z\r\n\r\n{}",
        b"",
    ):
        assert learned.body(other) is None, other


@pytest.mark.parametrize(
    "data",
    [
        b"POST /mcp HTTP/1.1\r\nX: y\r\n\r\n{}",
        b"POST /mcp HTTP/1.1\r\nContent-Length: 2\r\ncontent-length: 2\r\n\r\n{}",
        b"POST /mcp HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}POST /mcp HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
        b"X: y\r\nContent-Length: 2\r\n\r\n{}",
        b"{}",
    ],
)
def test_nothing_is_learned_of_what_is_not_plainly_one_request(data: bytes) -> None:
    """Ours: in doubt, it is parsed."""
    assert known(data, b"{}") is None
