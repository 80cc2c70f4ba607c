"""A server by URL that speaks HTTP with bare hands, so that it can speak it wrong. Each path is a server of its own."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import socket
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muxway.testing.faulty import POISON, STATELESS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from .doors import Era

FAULTS: dict[str, Callable[[Exchange], Awaitable[None]]] = {}
"""What the tool `fault` does at the path of that name."""
STREAM_FAULTS: dict[str, Callable[[Posted], Awaitable[None]]] = {}
"""The same by HTTP+SSE."""
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "fault", "who")]
AWAY = 1.0
_RESET = struct.pack("ii", 1, 0)


class Hang(Exception):
    """The connection is to be closed without another word."""


@dataclass
class Exchange:
    """One request and the connection on which to answer it."""

    remote: Remote
    message: dict[str, Any]
    writer: asyncio.StreamWriter

    @property
    def id(self) -> Any:
        return self.message.get("id")

    def answer(self, text: str = "done", id_: Any = None) -> bytes:
        """A good answer to it, as JSON."""
        result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
        return self.result(result, id_)

    def result(self, result: dict[str, Any], id_: Any = None) -> bytes:
        if self.remote.era == "stateless":
            result = {"resultType": "complete", **result}
        return json.dumps({"jsonrpc": "2.0", "id": id_ or self.id, "result": result}).encode()

    def respond(self, body: bytes, status: str = "200 OK", kind: str = "application/json", more: str = "") -> None:
        """A whole response."""
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
        self.writer.write(head.encode() + body)

    def begin(self, kind: str, more: str = "Transfer-Encoding: chunked\r\n") -> None:
        """The head of a response whose body follows."""
        self.writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{more}\r\n".encode())

    def chunk(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    def events(self, *events: bytes) -> None:
        """A whole response that is a stream of events."""
        self.begin("text/event-stream")
        for event in events:
            self.chunk(event)
        self.chunk(b"")

    def reset(self) -> None:
        """Break the connection off as hard as can be."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        raise Hang


@dataclass
class Posted(Exchange):
    """A request by HTTP+SSE: it is only accepted, and answered on the stream that the client holds open."""

    stream: asyncio.StreamWriter

    def respond(self, body: bytes, status: str = "200 OK", kind: str = "application/json", more: str = "") -> None:
        self.accept()
        self.tell(_event(body))

    def accept(self) -> None:
        super().respond(b"", "202 Accepted")

    def tell(self, data: bytes) -> None:
        """Write something to the stream."""
        self.stream.write(b"%x\r\n%s\r\n" % (len(data), data))


class Remote:
    """All servers of one era, at paths of one port: `/fault`, and for HTTP+SSE `/sse/fault`."""

    def __init__(self, era: Era) -> None:
        self.era = era
        self.port = 0
        self.trapped = 0
        """How many requests came to the place that redirects lead to."""
        self.away_until: dict[str, float] = {}
        self._streams: dict[str, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def entry(self, fault: str) -> dict[str, Any]:
        """The configuration of the server with this fault."""
        if fault in STREAM_FAULTS:
            return {"type": "sse", "url": f"http://127.0.0.1:{self.port}/sse/{fault}"}
        return {"type": "http", "url": f"http://127.0.0.1:{self.port}/{fault}"}

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Somebody has connected."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(Hang, ConnectionError, asyncio.IncompleteReadError):
                while True:
                    await self._exchange(reader, writer)
                    await writer.drain()
        finally:
            writer.close()

    async def close(self) -> None:
        """End every exchange that is still under way."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        fault = path.removeprefix("/sse").lstrip("/")
        if path.startswith("/sse/") and method == "GET":
            await self._stream(reader, writer, fault)
        exchange = Exchange(self, json.loads(body) if body else {}, writer)
        if path.startswith("/sse/"):
            exchange = Posted(self, exchange.message, writer, self._streams[fault])
        if fault == "trap":
            self.trapped += 1
        if asyncio.get_running_loop().time() < self.away_until.get(fault, 0):
            exchange.reset()
        if method != "POST":
            exchange.respond(b"", "405 Method Not Allowed", more="Allow: POST\r\n")
        elif "id" not in exchange.message:
            Exchange.respond(exchange, b"", "202 Accepted")
        else:
            await self._answer(exchange, fault)
        if fault == "closes-after-each":
            await writer.drain()
            raise Hang

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: str) -> None:
        """Hold a stream open until the client leaves."""
        stream = self._streams[fault] = writer
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        first = f"event: endpoint\ndata: /sse/{fault}\n\n".encode()
        stream.write(head + b"%x\r\n%s\r\n" % (len(first), first))
        await reader.read()
        raise Hang

    async def _answer(self, exchange: Exchange, fault: str) -> None:
        method, params = exchange.message["method"], exchange.message.get("params") or {}
        declared = {"capabilities": {"tools": {}}}
        info = {"name": "remote", "version": "1"}
        if method == "initialize" and self.era == "handshake":
            greeting = {"protocolVersion": "2025-11-25", "serverInfo": info, **declared}
            exchange.respond(exchange.result(greeting), more="Mcp-Session-Id: one\r\n")
        elif method == "server/discover" and self.era == "stateless":
            meta = {"io.modelcontextprotocol/serverInfo": info}
            exchange.respond(exchange.result({"supportedVersions": [STATELESS], "_meta": meta, **declared}))
        elif method == "tools/list":
            exchange.respond(exchange.result({"tools": TOOLS}))
        elif method == "tools/call" and params["name"] == "fault":
            await (STREAM_FAULTS[fault](exchange) if isinstance(exchange, Posted) else FAULTS[fault](exchange))
        elif method == "tools/call":
            exchange.respond(exchange.answer(str(params.get("arguments", {}).get("text"))))
        elif method == "ping":
            exchange.respond(exchange.result({}))
        else:
            error = {"code": -32601, "message": f"there is no {method}"}
            exchange.respond(json.dumps({"jsonrpc": "2.0", "id": exchange.id, "error": error}).encode())


@contextlib.asynccontextmanager
async def remote(era: Era) -> AsyncIterator[Remote]:
    """Servers of this era, on a free loopback port."""
    server = Remote(era)
    _bomb()  # It takes a while to make, and others must not wait for that.
    listening = await asyncio.start_server(server.connected, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await server.close()


def _event(data: bytes) -> bytes:
    return b"event: message\ndata: " + data + b"\n\n"


def _named(do: Callable[[Exchange], Awaitable[None]]) -> Callable[[Exchange], Awaitable[None]]:
    FAULTS[do.__name__.replace("_", "-")] = do
    return do


def _status(name: str, status: str, body: bytes, more: str = "") -> None:
    async def do(exchange: Exchange) -> None:
        exchange.respond(body, status, "text/plain", more)

    FAULTS[name] = do


def _words(name: str, words: bytes) -> None:
    """A fault that is these bytes in place of a response, and the end of the connection."""

    async def do(exchange: Exchange) -> None:
        exchange.writer.write(words)
        await exchange.writer.drain()
        raise Hang

    FAULTS[name] = do


_JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

_status("status-500", "500 Internal Server Error", b"oops")
_status("status-502", "502 Bad Gateway", b"<h1>Bad Gateway</h1>")
_status("status-503", "503 Service Unavailable", b"later", "Retry-After: 7\r\n")
_status("status-429", "429 Too Many Requests", b"slowly", "Retry-After: 7\r\n")
_status("status-401", "401 Unauthorized", b"who?", 'WWW-Authenticate: Bearer realm="x"\r\n')
_status("accepts-only", "202 Accepted", b"")
_status("login-page", "200 OK", b"<html>Please log in</html>")
_words("closes", b"")
_words("status-204", b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
_words("not-http", b"SSH-2.0-OpenSSH_9\r\n\r\n")
_words("cut-chunk", _JSON + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{")
_words("bad-chunk", _JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{")
_words("two-lengths", _JSON + b"Content-Length: 5\r\nContent-Length: 7\r\n\r\n{}     ")
_words("huge-header", _JSON + b"X-Long: " + b"x" * 1_000_000 + b"\r\nContent-Length: 2\r\n\r\n{}")
_words("empty-body", _JSON + b"Connection: close\r\nContent-Length: 0\r\n\r\n")


@_named
async def resets(exchange: Exchange) -> None:
    exchange.reset()


@_named
async def resets_in_mid_body(exchange: Exchange) -> None:
    exchange.writer.write(_JSON + b"Content-Length: 999\r\n\r\n{")
    await exchange.writer.drain()
    await asyncio.sleep(0.05)
    exchange.reset()


@_named
async def away_for_a_second(exchange: Exchange) -> None:
    exchange.remote.away_until["away-for-a-second"] = asyncio.get_running_loop().time() + AWAY
    exchange.reset()


@_named
async def stalls_before_headers(_: Exchange) -> None:
    await asyncio.sleep(60)


@_named
async def stalls_after_headers(exchange: Exchange) -> None:
    exchange.begin("application/json")
    await asyncio.sleep(60)


@_named
async def drips(exchange: Exchange) -> None:
    exchange.begin("application/json")
    for byte in exchange.answer(POISON):
        exchange.chunk(bytes([byte]))
        await exchange.writer.drain()
        await asyncio.sleep(1)


@_named
async def only_comments(exchange: Exchange) -> None:
    exchange.begin("text/event-stream")
    while True:
        exchange.chunk(b": still there\n\n")
        await exchange.writer.drain()
        await asyncio.sleep(0.2)


@_named
async def session_gone(exchange: Exchange) -> None:
    exchange.respond(b"", "404 Not Found", "text/plain")


@_named
async def no_content_type(exchange: Exchange) -> None:
    body = exchange.answer()
    exchange.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


@functools.cache
def _bomb() -> bytes:
    """100 MB of nothing in 400 KB."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return b"".join(packer.compress(b" " * 1_000_000) for _ in range(100)) + packer.flush()


@_named
async def gzip_bomb(exchange: Exchange) -> None:
    exchange.respond(_bomb(), more="Content-Encoding: gzip\r\n")


async def _endlessly(exchange: Exchange, kind: str, first: bytes) -> None:
    exchange.begin(kind)
    exchange.chunk(first)
    while True:
        exchange.chunk(b"A" * 100_000)
        await exchange.writer.drain()


@_named
async def endless_body(exchange: Exchange) -> None:
    await _endlessly(exchange, "application/json", b'{"jsonrpc":"')


@_named
async def endless_event(exchange: Exchange) -> None:
    await _endlessly(exchange, "text/event-stream", b"data: ")


@_named
async def events_end_early(exchange: Exchange) -> None:
    exchange.events(b": nothing\n\n")


@_named
async def redirect_elsewhere(exchange: Exchange) -> None:
    """To another origin: the same port under another name."""
    where = f"Location: http://localhost:{exchange.remote.port}/trap\r\n"
    exchange.respond(b"", "307 Temporary Redirect", more=where)


@_named
async def other_id(exchange: Exchange) -> None:
    exchange.respond(exchange.answer(POISON, 987_654_321))


@_named
async def other_id_first(exchange: Exchange) -> None:
    exchange.events(_event(exchange.answer(POISON, 987_654_321)), _event(exchange.answer()))


@_named
async def answers_twice(exchange: Exchange) -> None:
    exchange.events(_event(exchange.answer()), _event(exchange.answer(POISON)))


@_named
async def junk_events(exchange: Exchange) -> None:
    junk = b"\xef\xbb\xbfnonsense\nid: \0\nretry: soon\nevent: other\ndata: x\n\ndata\n\n:\n\n"
    exchange.events(junk, _event(exchange.answer()))


@_named
async def unreadable_event(exchange: Exchange) -> None:
    exchange.events(b"data: {not json\n\n", _event(exchange.answer()))


@_named
async def cr_only_events(exchange: Exchange) -> None:
    exchange.events(_event(exchange.answer()).replace(b"\n", b"\r"))


@_named
async def batch(exchange: Exchange) -> None:
    exchange.respond(b"[" + exchange.answer() + b"]")


@_named
async def http_1_0(exchange: Exchange) -> None:
    exchange.writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + exchange.answer())
    await exchange.writer.drain()
    raise Hang


@_named
async def early_hints(exchange: Exchange) -> None:
    exchange.writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
    exchange.respond(exchange.answer())


@_named
async def closes_after_each(exchange: Exchange) -> None:
    exchange.respond(exchange.answer())


# --- HTTP+SSE ---------------------------------------------------------------------------------


def _streamed(do: Callable[[Posted], Awaitable[None]]) -> Callable[[Posted], Awaitable[None]]:
    STREAM_FAULTS[do.__name__.replace("_", "-")] = do
    return do


@_streamed
async def stream_ends(posted: Posted) -> None:
    posted.accept()
    posted.tell(b"")
    posted.stream.close()


@_streamed
async def stream_resets(posted: Posted) -> None:
    posted.accept()
    posted.stream.transport.abort()


@_streamed
async def stream_silent(posted: Posted) -> None:
    posted.accept()


@_streamed
async def stream_other_id(posted: Posted) -> None:
    posted.accept()
    posted.tell(_event(posted.answer(POISON, 987_654_321)))


@_streamed
async def stream_answers_twice(posted: Posted) -> None:
    posted.respond(posted.answer())
    posted.tell(_event(posted.answer(POISON)))


@_streamed
async def stream_answers_first(posted: Posted) -> None:
    """Before the POST is."""
    posted.tell(_event(posted.answer()))
    await posted.stream.drain()
    await asyncio.sleep(0.2)
    posted.accept()


@_streamed
async def stream_junk(posted: Posted) -> None:
    posted.tell(b"nonsense\nretry: soon\n\nevent: endpoint\ndata: http://example.com/\n\ndata: {not json\n\n")
    posted.respond(posted.answer())


@_streamed
async def stream_endless_event(posted: Posted) -> None:
    posted.accept()
    posted.tell(b"data: ")
    for _ in range(100):
        posted.tell(b"A" * 100_000)
        await posted.stream.drain()


@_streamed
async def post_refused(posted: Posted) -> None:
    Exchange.respond(posted, b"oops", "500 Internal Server Error", "text/plain")


@_streamed
async def post_reset(posted: Posted) -> None:
    posted.reset()
