"""The HTTP door over real sockets, and a client that sends exactly the bytes a test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from muxway.clients.transports.http import HttpClientTransport
from muxway.clients.transports.http_gateway import HttpSettings
from muxway.clients.transports.http_server import HttpServer, Limits
from muxway.wire.sse import SseEvent, SseParser

from ..conftest import World, a_world
from ..pace import PATIENCE

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from muxway.clients.authenticator import Authenticator
    from muxway.clients.transports.guard import Guard
    from muxway.testing import ScriptedServer

BOTH = "application/json, text/event-stream"
MODERN = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass
class Response:
    """A response, whole."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def json(self) -> Any:
        """Its body, decoded."""
        return json.loads(self.body)

    @property
    def outcome(self) -> Any:
        """The answer, whether it came as JSON or as the last event of a stream."""
        events = [line[5:] for line in self.body.splitlines() if line.startswith(b"data:")]
        return json.loads(events[-1]) if events else self.json

    @property
    def code(self) -> int:
        """The code of the JSON-RPC error it carries."""
        return self.json["error"]["code"]


@dataclass
class Opened:
    """A response whose body is still coming, and its connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    _parser: SseParser = field(default_factory=lambda: SseParser(10_000_000))
    _events: list[SseEvent] = field(default_factory=list)
    comments: int = 0

    async def head(self) -> Opened:
        """Read the status and the header."""
        block = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE)
        first, *rest = block.decode("latin-1").rstrip("\r\n").split("\r\n")
        self.status = int(first.split(" ")[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        return self

    async def chunk(self) -> bytes:
        """The next piece of a chunked body; nothing at its end."""
        size = int(await asyncio.wait_for(self.reader.readline(), PATIENCE), 16)
        return (await asyncio.wait_for(self.reader.readexactly(size + 2), PATIENCE))[:-2]

    async def rest(self) -> bytes:
        """The whole body."""
        if "content-length" in self.headers:
            return await asyncio.wait_for(self.reader.readexactly(int(self.headers["content-length"])), PATIENCE)
        body = b""
        if self.headers.get("transfer-encoding") == "chunked":
            while chunk := await self.chunk():
                body += chunk
        return body

    async def event(self) -> SseEvent:
        """The next event, priming ones included. Fails when the stream ends."""
        while not self._events:
            chunk = await self.chunk()
            assert chunk, "the stream has ended"
            self.comments += chunk.count(b": ping\n")
            self._events += self._parser.feed(chunk)
        return self._events.pop(0)

    async def message(self) -> Any:
        """The next JSON-RPC message; empty events are passed over."""
        while not (data := (await self.event()).data):
            pass
        return json.loads(data)

    async def messages(self) -> list[Any]:
        """All messages up to the end of the stream."""
        found = []
        with contextlib.suppress(AssertionError):
            while True:
                found.append(await self.message())
        return found

    async def comment(self) -> None:
        """Wait for a keep-alive comment."""
        while not self.comments:
            chunk = await self.chunk()
            self.comments += chunk.count(b": ping\n")
            self._events += self._parser.feed(chunk)

    async def closed(self) -> bytes:
        """What still comes until the server closes the connection."""
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(), PATIENCE)
        return b""

    def drop(self) -> None:
        """Break the connection off."""
        self.writer.transport.abort()


class Web:
    """A client of the door."""

    def __init__(self, world: World, door: HttpClientTransport, port: int) -> None:
        self.world, self.door, self.port = world, door, port
        self.tls: ssl.SSLContext | None = None
        self._opened: list[asyncio.StreamWriter] = []

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def connect(self) -> Opened:
        """Open a connection and say nothing."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
        self._opened.append(writer)
        return Opened(reader, writer)

    async def raw(self, data: bytes) -> Opened:
        """Send these bytes; read nothing yet."""
        opened = await self.connect()
        opened.writer.write(data)
        return opened

    async def open(self, method: str, path: str, headers: Any = (), body: bytes = b"") -> Opened:
        """Send a request and read the header of its response."""
        lines = [f"{method} {path} HTTP/1.1"]
        pairs = list(headers.items()) if isinstance(headers, dict) else list(headers)
        names = {name.lower() for name, _ in pairs}
        if "host" not in names:
            pairs.append(("Host", self.host))
        if body and not names & {"content-length", "transfer-encoding"}:
            pairs.append(("Content-Length", str(len(body))))
        lines += [f"{name}: {value}" for name, value in pairs if value is not None]
        return await (await self.raw("\r\n".join([*lines, "", ""]).encode("latin-1") + body)).head()

    async def ask(self, method: str, path: str, headers: Any = (), body: bytes = b"") -> Response:
        """Send a request and read its whole response."""
        opened = await self.open(method, path, headers, body)
        response = Response(opened.status, opened.headers, await opened.rest())
        opened.writer.close()
        return response

    # --- MCP ----------------------------------------------------------------------------------

    async def post(self, message: object, headers: Any = None, path: str = "/mcp") -> Response:
        """POST a message (bytes as they are) with what a good client sends, changed by `headers`; None leaves out."""
        body, given = self._post(message, headers)
        return await self.ask("POST", path, given, body)

    async def open_post(self, message: object, headers: Any = None) -> Opened:
        """The same, without waiting for the body of the response."""
        body, given = self._post(message, headers)
        return await self.open("POST", "/mcp", given, body)

    def _post(self, message: object, headers: Any) -> tuple[bytes, Any]:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        usual: dict[str, str | None] = {"Content-Type": "application/json", "Accept": BOTH}
        if isinstance(headers, list):
            return body, [*usual.items(), *headers]
        return body, {**usual, **(headers or {})}

    async def session(self, revision: str = "2025-11-25", headers: dict[str, str] | None = None) -> Client:
        """Open a handshake session."""
        answer = await self.post(initialize(revision), headers)
        assert answer.status == 200, answer
        client = Client(self, revision, {**(headers or {}), "Mcp-Session-Id": answer.headers["mcp-session-id"]})
        if revision >= "2025-06-18":
            client.headers["MCP-Protocol-Version"] = revision
        assert (await client.tell("notifications/initialized")).status == 202
        return client

    async def stateless(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        headers: dict[str, str | None] | None = None,
        id_: Any = 1,
    ) -> Response:
        """Make a stateless request, with the headers it should have, changed by `headers`."""
        message, given = modern(method, params, id_)
        return await self.post(message, {**given, **(headers or {})})

    async def open_stateless(self, method: str, params: dict[str, Any] | None = None, id_: Any = 1) -> Opened:
        """The same, without waiting for the body of the response."""
        return await self.open_post(*modern(method, params, id_))

    def close(self) -> None:
        """Break off what the test has left open."""
        for writer in self._opened:
            writer.transport.abort()


@dataclass
class Client:
    """A client in a handshake session."""

    web: Web
    revision: str
    headers: dict[str, str]

    @property
    def id(self) -> str:
        return self.headers["Mcp-Session-Id"]

    async def ask(self, method: str, params: dict[str, Any] | None = None, id_: Any = 1) -> Response:
        return await self.web.post(request(method, params, id_), self.headers)

    async def start(self, method: str, params: dict[str, Any] | None = None, id_: Any = 1) -> Opened:
        return await self.web.open_post(request(method, params, id_), self.headers)

    async def tell(self, method: str, params: dict[str, Any] | None = None) -> Response:
        message = {"jsonrpc": "2.0", "method": method}
        return await self.web.post(message if params is None else {**message, "params": params}, self.headers)

    async def listen(self, last: str | None = None) -> Opened:
        headers: dict[str, str | None] = {**self.headers, "Accept": "text/event-stream", "Last-Event-ID": last}
        return await self.web.open("GET", "/mcp", headers)


def request(method: str, params: dict[str, Any] | None = None, id_: Any = 1) -> dict[str, Any]:
    """A JSON-RPC request."""
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params or {}}


def initialize(revision: str = "2025-11-25") -> dict[str, Any]:
    """The first request of a handshake client."""
    info = {"name": "raw", "version": "1"}
    return request("initialize", {"protocolVersion": revision, "capabilities": {}, "clientInfo": info}, 0)


def modern(
    method: str, params: dict[str, Any] | None = None, id_: Any = 1
) -> tuple[dict[str, Any], dict[str, str | None]]:
    """A stateless request and the headers that go with it."""
    given = dict(params or {})
    given["_meta"] = {**ENVELOPE, **given.get("_meta", {})}
    headers: dict[str, str | None] = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if method == "tools/call":
        headers["Mcp-Name"] = given["name"]
    return request(method, given, id_), headers


@contextlib.asynccontextmanager
async def a_web(
    servers: dict[str, ScriptedServer] | None = None,
    *,
    guard: Guard | None = None,
    authenticator: Authenticator | None = None,
    limits: Limits | None = None,
    top: dict[str, Any] | None = None,
    view: str | None = None,
    idle_connection: float = 5,
    tls: ssl.SSLContext | None = None,
    **settings: Any,
) -> AsyncIterator[Web]:
    """A door on a free loopback port, in front of scripted servers. `top` is the rest of the configuration."""

    limits = replace(limits or Limits(), idle_seconds=idle_connection)
    async with a_world(servers or {}, **(top or {})) as world:
        door = HttpClientTransport(
            world.gateway.runtime,
            guard=guard,
            authenticator=authenticator,
            settings=HttpSettings(**settings),
            view=view,
        )
        server = HttpServer(door, limits=limits)
        listener = socket.create_server(("127.0.0.1", 0))
        await server.start(listener, tls)
        door.open()
        web = Web(world, door, listener.getsockname()[1])
        try:
            yield web
        finally:
            await door.close(0)
            web.close()
            await server.stop(PATIENCE)
