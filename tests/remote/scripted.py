"""A remote MCP server on loopback that does what a test tells it to, and remembers every request."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

import muxway
from tests.pace import PATIENCE

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    Handler = Callable[["Remote", web.Request, dict[str, Any]], Awaitable[web.StreamResponse | None]]

MODERN = "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"


@dataclass
class Seen:
    """One request that arrived."""

    verb: str
    path: str
    headers: Mapping[str, str]
    message: dict[str, Any] | None

    @property
    def method(self) -> str | None:
        return None if self.message is None else self.message.get("method")


@dataclass
class Remote:
    """A Streamable HTTP server: `era` handshake or stateless, with or without sessions."""

    era: str = "handshake"
    sessions: bool = True
    revision: str = "2025-11-25"
    calls: dict[str, Handler] = field(default_factory=dict)
    """Tool → what a call of it does; it may return None for the usual echo."""
    posts: Handler | None = None
    """Looks at every POST first; None of it means: as usual."""
    gets: Callable[[Remote, web.Request], Awaitable[web.StreamResponse]] | None = None
    seen: list[Seen] = field(default_factory=list)
    live: set[str] = field(default_factory=set)
    url: str = ""
    opened: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        message = json.loads(raw) if raw else None
        self.seen.append(Seen(request.method, request.path_qs, request.headers.copy(), message))
        if request.method == "DELETE":
            self.live.discard(request.headers.get("Mcp-Session-Id", ""))
            return web.Response(status=200)
        if request.method == "GET":
            return web.Response(status=405) if self.gets is None else await self.gets(self, request)
        if self.posts is not None and (response := await self.posts(self, request, message)) is not None:
            return response
        return await self.post(request, message)

    async def post(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        method = message.get("method")
        meta = message.get("params", {}).get("_meta", {})
        if (VERSION_KEY in meta) != (self.era == "stateless"):
            if self.era == "stateless":
                error = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": [MODERN]}}
                return web.json_response({"jsonrpc": "2.0", "id": message.get("id"), "error": error}, status=400)
            return web.Response(status=400, text="Bad Request: no session")
        headers = {}
        if method == "initialize":
            if self.sessions:
                self.opened += 1
                session = f"session-{self.opened}"
                self.live.add(session)
                headers["Mcp-Session-Id"] = session
            info = {"name": "remote", "version": "1"}
            result = {"protocolVersion": self.revision, "capabilities": {"tools": {}}, "serverInfo": info}
            return reply(message, result, headers=headers)
        if self.era == "handshake" and self.sessions and request.headers.get("Mcp-Session-Id") not in self.live:
            return web.Response(status=404, text="no such session")
        if "id" not in message or method is None:
            return web.Response(status=202)
        if method == "server/discover":
            return reply(message, {"supportedVersions": [MODERN], "capabilities": {"tools": {}}})
        if method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ["echo", *self.calls]]
            return reply(message, {"tools": tools})
        name = message["params"]["name"]
        if name in self.calls and (response := await self.calls[name](self, request, message)) is not None:
            return response
        return reply(message, text(json.dumps(message["params"].get("arguments"))))

    def of(self, method: str | None, verb: str = "POST") -> list[Seen]:
        """The requests of one kind, in order."""
        return [seen for seen in self.seen if seen.verb == verb and seen.method == method]


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def answer(message: dict[str, Any], result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def reply(message: dict[str, Any], result: Any, **more: Any) -> web.Response:
    return web.json_response(answer(message, result), **more)


async def stream(request: web.Request, *chunks: bytes, **headers: str) -> web.StreamResponse:
    """Begin an event stream."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **headers})
    await response.prepare(request)
    for chunk in chunks:
        await response.write(chunk)
    return response


def event(message: Any, **fields: str) -> bytes:
    head = "".join(f"{name}: {value}\n" for name, value in fields.items())
    return f"{head}data: {message if isinstance(message, str) else json.dumps(message)}\n\n".encode()


@contextlib.asynccontextmanager
async def serving(remote: Remote, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve it on a free port of loopback; gives its URL."""
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", remote.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.2, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    remote.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}/mcp"
    try:
        yield remote.url
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def raw_server(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A server that speaks bytes, not HTTP."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await talk(reader, writer)
        writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


@contextlib.asynccontextmanager
async def behind(remote: Remote, **entry: Any) -> AsyncIterator[muxway.Gateway]:
    """A gateway with this server as `up`."""
    async with serving(remote) as url, asyncio.timeout(30), gateway(url, **entry) as opened:
        yield opened


@contextlib.asynccontextmanager
async def gateway(url: str, **entry: Any) -> AsyncIterator[muxway.Gateway]:
    async with muxway.Gateway.open({"mcpServers": {"up": {"url": url, **entry}}}) as opened:
        yield opened


async def until(condition: Callable[[], object]) -> None:
    """Wait for something to come true."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)
