"""Whatever arrives gets a clear answer, and others are undisturbed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import resource
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from muxway.clients.transports.http_server import Limits
from muxway.testing import ScriptedServer

from ..noting import until
from .harness import BOTH, Web, initialize, modern, request
from .test_sessions import reporting

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    Webs = Callable[..., AbstractAsyncContextManager[Web]]

HASTY = Limits(header_seconds=0.3, body_seconds=0.3, stall_seconds=0.3)


def head(http: Web, *lines: str, verb: str = "POST") -> bytes:
    usual = [f"Host: {http.host}", "Content-Type: application/json", f"Accept: {BOTH}"]
    return "\r\n".join([f"{verb} /mcp HTTP/1.1", *usual, *lines, "", ""]).encode()


# --- methods, paths, types --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "path", "status"),
    [
        ("PUT", "/mcp", 405),
        ("PATCH", "/mcp", 405),
        ("HEAD", "/mcp", 405),
        ("OPTIONS", "/mcp", 405),
        ("POST", "/sse", 405),
        ("GET", "/messages", 405),
        ("GET", "/", 404),
        ("GET", "/mcp/../healthz", 404),
        ("POST", "/mcp/x", 404),
        ("GET", "/%6dcp/%00", 404),
    ],
)
async def test_wrong_methods_and_paths(verb: str, path: str, status: int, web: Webs) -> None:
    """docs/errors.md#over-http: another method is 405, another path 404."""
    async with web() as http:
        answer = await http.open(verb, path)
        assert answer.status == status
        assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize(
    "type_",
    [
        None,
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin-1",
        "application/jsonx",
        "multipart/form-data; boundary=x",
    ],
)
async def test_wrong_media_types(type_: str | None, web: Webs) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: JSON only, which pages do not send elsewhere unasked."""
    async with web() as http:
        assert (await http.post(initialize(), {"Content-Type": type_})).status == 415
        assert http.door.sessions == 0


@pytest.mark.parametrize(
    "type_", ["application/json; charset=utf-8", "Application/JSON", 'application/json;charset="UTF-8"']
)
async def test_right_media_types(type_: str, web: Webs) -> None:
    """RFC 9110: case and parameters."""
    async with web() as http:
        assert (await http.post(initialize(), {"Content-Type": type_})).status == 200


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json", 406),
        ("text/event-stream", 406),
        ("text/html", 406),
        ("", 406),
        ("*/*", 200),
        ("application/json;q=0.5, text/event-stream", 200),
        ("application/*, text/*", 200),
        (None, 200),
    ],
)
async def test_what_the_client_accepts(accept: str | None, status: int, web: Webs) -> None:
    """docs/errors.md#over-http: Accept lists both types, else 406; who sends none takes anything (RFC 9110 §12.5.1)."""
    async with web() as http:
        assert (await http.post(initialize(), {"Accept": accept})).status == status


DOUBLED = [
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"ping","params":{}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{},"m\\u0065thod":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"id":1,"method":"ping","params":{"a":1}}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1},"params":{}}',
    b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"ping"}',
    b'{ "jsonrpc": "2.0", "method": "notifications/initialized", "method": "notifications/initialized" }',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{},"":1,"":1}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b","arguments":{}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"n\\u0061me":"a","name":"b"}}',
    b'{ "jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"progressToken":1,"progressToken":2}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"x":{},"x":{}}}}',
]
SINGLE = [
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"method":"x","id":1,"params":{"id":2,"id":3}}}',
    b'{"params":{"jsonrpc":"2.0"},"method":"ping","id":"1","jsonrpc":"2.0"}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "p\\u0069ng", "more": {"method": 1}}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}',
]


@pytest.mark.parametrize("body", DOUBLED)
async def test_a_member_that_stands_twice_is_refused(body: bytes, web: Webs) -> None:
    """docs/behaviour.md#over-http: a filter in front of us may heed the other one (RFC 8259 §4)."""
    async with web() as http:
        client = await http.session()
        _, headers = modern("ping")
        for answer in (await http.post(body, client.headers), await http.post(body, headers)):
            assert (answer.status, answer.code) == (400, -32700)
            assert answer.json["id"] is None
        stream = await http.open("GET", "/sse", {"Accept": "text/event-stream"})
        path = (await stream.event()).data.decode()
        assert (await http.post(body, path=path)).status == 400


@pytest.mark.parametrize("body", SINGLE)
async def test_a_member_that_stands_once_on_each_level_is_fine(body: bytes, web: Webs) -> None:
    """Ours: one name on two levels leaves no doubt; what lies deeper in the params is the server's business."""
    async with web() as http:
        client = await http.session()
        assert (await http.post(body, client.headers)).json["result"] == {}


async def test_a_compressed_body_is_refused(web: Webs) -> None:
    """docs/errors.md#over-http: 415, so that nothing grows while it is unpacked."""
    async with web() as http:
        assert (await http.post(initialize(), {"Content-Encoding": "gzip"})).status == 415


# --- bodies -----------------------------------------------------------------------------------

DEEP = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"   ", -32700),
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"p\xffng"}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', -32700),
        (b"\xef\xbb\xbf{}", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}{}', -32700),
        (DEEP, -32700),
        (b"42", -32600),
        (b"null", -32600),
        (b'"text"', -32600),
        (b"[]", -32600),
        (b"[1]", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"initialize"}', -32600),
    ],
    ids=lambda value: repr(value[:30]) if isinstance(value, bytes) else "",
)
async def test_bodies_that_are_no_message(body: bytes, code: int, web: Webs) -> None:
    """docs/behaviour.md#over-http: empty, not JSON, arrays, nested, not UTF-8. Others are served meanwhile."""
    async with web() as http:
        client = await http.session()
        answer = await http.post(body, {"Content-Length": str(len(body))})
        assert (answer.status, answer.code) == (400, code)
        assert not [word for word in (b"Traceback", b".py", b"site-packages") if word in answer.body]
        assert (await client.ask("ping")).status == 200


async def test_a_huge_integer_is_cheap(web: Webs) -> None:
    """docs/behaviour.md#over-http: bad input is refused with a reason; it is no fault of ours."""
    async with web() as http:
        client = await http.session()
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"9" * 100_000 + b"}}"
        assert (await http.post(body, client.headers)).status < 500


async def test_a_body_over_the_limit_is_refused_unread(web: Webs) -> None:
    """docs/behaviour.md#size-limits: 4 MiB → 413; the length alone is enough to know."""
    async with web() as http:
        opened = await http.raw(head(http, "Content-Length: 4194305"))
        assert (await opened.head()).status == 413
        assert opened.headers["connection"] == "close"
        assert (await http.post(b"x" * 1000, {"Content-Length": "9" * 30})).status in (400, 413)


async def test_an_endless_chunked_body_is_cut_at_the_limit(web: Webs) -> None:
    """docs/behaviour.md#size-limits: counted while streaming, whatever length was announced."""
    async with web(max_body_bytes=100_000) as http:
        opened = await http.raw(head(http, "Transfer-Encoding: chunked"))
        for _ in range(4):
            opened.writer.write(b"10000\r\n" + b"a" * 65536 + b"\r\n")
        assert (await opened.head()).status == 413


async def test_a_body_of_just_the_limit_is_taken_in_whatever_pieces(web: Webs) -> None:
    """Ours: a limit is a limit, not less."""
    message = json.dumps(initialize()).encode()
    async with web(max_body_bytes=len(message)) as http:
        opened = await http.raw(head(http, f"Content-Length: {len(message)}"))
        for byte in message:
            opened.writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert (await opened.head()).status == 200
        assert (await http.post(message + b" ")).status == 413


async def test_a_body_sent_byte_by_byte_runs_out_of_time(web: Webs) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: 30 s for a body, here less. Others are served meanwhile."""
    async with web(limits=HASTY) as http:
        opened = await http.raw(head(http, "Content-Length: 100") + b"{")
        for _ in range(3):
            opened.writer.write(b" ")
            assert (await http.ask("GET", "/healthz")).status == 200
            await asyncio.sleep(0.05)
        assert (await opened.head()).status == 408
        await opened.closed()


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_trouble(web: Webs) -> None:
    """Ours."""
    async with web() as http:
        opened = await http.raw(head(http, "Content-Length: 100") + b"{")
        await asyncio.sleep(0.02)
        opened.drop()
        assert (await http.ask("GET", "/healthz")).status == 200


# --- headers ----------------------------------------------------------------------------------


async def test_headers_sent_slowly_run_out_of_time(web: Webs) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: 10 s for a header, here less."""
    async with web(limits=HASTY) as http:
        silent = await http.connect()
        slow = await http.raw(b"POST /mcp HTTP/1.1\r\nHost: ")
        assert (await slow.head()).status == 408
        assert await silent.closed() == b""


async def test_a_second_request_on_a_connection_has_its_own_time(web: Webs) -> None:
    """Ours: the clock of the first one is stopped, and a connection may rest between requests."""
    async with web(limits=HASTY) as http:
        opened = await http.open("GET", "/healthz")
        await opened.rest()
        await asyncio.sleep(0.5)
        opened.writer.write(f"GET /healthz HTTP/1.1\r\nHost: {http.host}\r\n\r\n".encode())
        assert (await opened.head()).status == 200
        await opened.rest()
        opened.writer.write(b"GET /healthz HTTP/1.1\r\n")
        assert (await opened.head()).status == 408


@pytest.mark.parametrize(
    "lines",
    [
        [f"X-Big: {'a' * 40_000}"],
        [f"X-{number}: a" for number in range(200)],
        [f"X-{number}: {'a' * 1000}" for number in range(60)],
    ],
    ids=["long", "many", "both"],
)
async def test_too_much_header_is_refused(lines: list[str], web: Webs) -> None:
    """docs/errors.md#over-http: 32 KiB, 100 lines; more is 431 (RFC 6585 §5)."""
    async with web() as http:
        opened = await http.raw(head(http, *lines, "Content-Length: 2") + b"{}")
        assert (await opened.head()).status == 431


async def test_a_header_without_end_is_refused(web: Webs) -> None:
    """docs/errors.md#over-http: 431, before the header is complete."""
    async with web() as http:
        opened = await http.raw(b"POST /mcp HTTP/1.1\r\nX-Big: " + b"a" * 70_000)
        assert (await opened.head()).status == 431


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX : a\r\n\r\n",
    ],
    ids=["no HTTP", "version", "smuggling", "two lengths", "length", "space in name"],
)
async def test_what_is_not_http_is_a_bad_request(data: bytes, web: Webs) -> None:
    """RFC 9112 §2.2 and §6.3: where a message ends must not be doubtful; such a one is refused."""
    async with web() as http:
        assert (await (await http.raw(data)).head()).status == 400


async def test_a_web_socket_is_not_offered(web: Webs) -> None:
    """Ours: an upgrade is ignored, as HTTP allows."""
    async with web() as http:
        opened = await http.open("GET", "/healthz", {"Connection": "Upgrade", "Upgrade": "websocket"})
        assert opened.status == 200


# --- connections ------------------------------------------------------------------------------


async def test_pipelined_requests_are_answered_in_order(web: Webs) -> None:
    """RFC 9112."""
    async with web({"s": ScriptedServer(tools={"echo": None})}) as http:
        parts = []
        for number in range(3):
            message, headers = modern("tools/call", {"name": "s__echo", "arguments": {"n": number}}, number)
            body = json.dumps(message).encode()
            lines = [f"{name}: {value}" for name, value in headers.items()]
            parts.append(head(http, *lines, f"Content-Length: {len(body)}") + body)
        opened = await http.raw(b"".join(parts))
        ids = []
        for _ in range(3):
            await opened.head()
            ids.append(json.loads(await opened.rest())["id"])
        assert ids == [0, 1, 2]


async def test_a_request_sent_behind_one_that_streams_waits_for_its_end(web: Webs) -> None:
    """RFC 9112, and ours: what began as a quick answer and became a stream is still answered first."""
    async with web({"s": ScriptedServer(tools={"report": reporting, "echo": None})}) as http:
        parts = []
        for number, params in enumerate(({"name": "s__report", "_meta": {"progressToken": 1}}, {"name": "s__echo"})):
            message, headers = modern("tools/call", {**params, "arguments": {}}, number)
            body = json.dumps(message).encode()
            lines = [f"{name}: {value}" for name, value in headers.items()]
            parts.append(head(http, *lines, f"Content-Length: {len(body)}") + body)
        opened = await http.raw(b"".join(parts))
        assert (await opened.head()).headers["content-type"] == "text/event-stream"
        assert [message.get("id") for message in await opened.messages()] == [None, None, 0]
        assert (await opened.head()).headers["content-type"] == "application/json"
        assert json.loads(await opened.rest())["id"] == 1


async def test_a_client_that_does_not_read_is_cut_off(web: Webs, caplog: pytest.LogCaptureFixture) -> None:
    """docs/behaviour.md#a-client-reads-slowly: a write stall ends the connection; others are undisturbed."""

    def big(server: ScriptedServer, message: dict[str, Any]) -> None:
        server.reply(message, {"content": [{"type": "text", "text": "x" * 20_000_000}]})

    async with web({"s": ScriptedServer(tools={"big": big})}, limits=HASTY) as http:
        message, headers = modern("tools/call", {"name": "s__big"})
        body = json.dumps(message).encode()
        lines = [f"{name}: {value}" for name, value in headers.items()]
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port, limit=1024)
        writer.write(head(http, *lines, f"Content-Length: {len(body)}") + body)
        await until(lambda: "a client was cut off" in caplog.text)
        assert (await http.ask("GET", "/healthz")).status == 200
        received = 0
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                received += len(data)
        assert received < 20_000_000
        writer.transport.abort()


async def test_many_idle_connections_disturb_nobody(web: Webs) -> None:
    """docs/service.md#how-much-it-holds: 10,000 and more; here as many as the system lets a test have both ends of."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(2000, (soft - 200) // 2)
    async with web(limits=Limits(header_seconds=60)) as http:
        for _ in range(count):
            await http.connect()
        client = await http.session()
        began = time.thread_time()
        answer = await client.ask("ping")
        assert time.thread_time() - began < 2
        assert answer.status == 200


async def test_many_idle_sessions_take_little_memory(web: Webs) -> None:
    """docs/service.md#how-much-it-holds: at most 20 KB each. Counted by the allocator, so that it holds anywhere."""
    async with web() as http:
        opened = await http.connect()
        body = json.dumps(initialize()).encode()
        data = head(http, f"Content-Length: {len(body)}") + body

        async def initialize_once() -> None:
            opened.writer.write(data)
            await opened.head()
            await opened.rest()

        for _ in range(20):
            await initialize_once()
        tracemalloc.start()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(300):
            await initialize_once()
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / 300
        tracemalloc.stop()
        assert http.door.sessions == 320
        assert each < 20_000


async def test_a_request_for_a_session_that_is_gone_tells_its_id(web: Webs) -> None:
    """JSON-RPC 2.0 §5: errors keep the request's id."""
    async with web() as http:
        answer = await http.post(request("tools/list", id_="q"), {"Mcp-Session-Id": "gone"})
        assert (answer.status, answer.json["id"]) == (404, "q")
