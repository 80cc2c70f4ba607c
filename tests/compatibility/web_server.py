"""The servers of the matrix over HTTP: Streamable HTTP with sessions or stateless, and HTTP+SSE of 2024-11-05."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from muxway.wire.revisions import SUBSCRIPTION_ID
from tests.compatibility.server import REQUEST, Server
from tests.compatibility.subjects import NEWEST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_SESSION = "session-of-the-matrix"


class WebServer:
    """Carries the lines of one scripted server."""

    def __init__(self, revision: str, name: str) -> None:
        self.server = Server(revision, name=name)
        self._stateless = revision == NEWEST
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._answers: dict[Any, asyncio.Queue[bytes]] = {}
        """Requests by id, each with what is to be said on its connection."""
        self._streams: list[asyncio.Queue[bytes]] = []
        """Connections for whatever belongs to no request."""

    def _send(self, line: bytes) -> None:
        message = json.loads(line)
        params = message.get("params", {})
        about = params.get("_meta", {}).get(SUBSCRIPTION_ID, REQUEST.get())
        if "method" not in message:
            about = message["id"]
        waiting = self._answers.get(about)
        for queue in self._streams if waiting is None else [waiting]:
            queue.put_nowait(line)

    # --- Streamable HTTP ----------------------------------------------------------------------

    async def post(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        message = json.loads(raw)
        if not self._stateless:
            known = request.headers.get("Mcp-Session-Id") == _SESSION
            if message.get("method") != "initialize" and not known:
                return web.Response(status=400, text="no session")
        if "id" not in message or "method" not in message:
            self._inbox.put_nowait(raw)
            return web.Response(status=202)
        answers = self._answers[message["id"]] = asyncio.Queue()
        self._inbox.put_nowait(raw)
        try:
            return await self._answer(request, message, answers)
        except (asyncio.CancelledError, ConnectionError):
            if self._stateless:
                # The connection was the request.
                cancel = {"method": "notifications/cancelled", "params": {"requestId": message["id"]}}
                self._inbox.put_nowait(json.dumps({"jsonrpc": "2.0", **cancel}).encode())
            raise
        finally:
            del self._answers[message["id"]]

    async def _answer(
        self, request: web.Request, message: dict[str, Any], answers: asyncio.Queue[bytes]
    ) -> web.StreamResponse:
        first = await answers.get()
        headers = {"Mcp-Session-Id": _SESSION} if message["method"] == "initialize" and not self._stateless else {}
        if _is_answer(first):
            return web.Response(body=first, content_type="application/json", headers=headers)
        response = await _events(request)
        while not _is_answer(first):
            await _event(response, first)
            first = await answers.get()
        await _event(response, first)
        return response

    async def get(self, request: web.Request) -> web.StreamResponse:
        if self._stateless:
            return web.Response(status=405)
        return await self._stream(request, await _events(request))

    async def _stream(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._streams.append(queue)
        try:
            while True:
                await _event(response, await queue.get())
        finally:
            self._streams.remove(queue)

    async def delete(self, _: web.Request) -> web.StreamResponse:
        return web.Response(status=200)

    # --- HTTP+SSE -----------------------------------------------------------------------------

    async def open(self, request: web.Request) -> web.StreamResponse:
        response = await _events(request)
        await response.write(b"event: endpoint\ndata: /messages?session_id=1\n\n")
        return await self._stream(request, response)

    async def message(self, request: web.Request) -> web.StreamResponse:
        self._inbox.put_nowait(await request.read())
        return web.Response(status=202)

    # --- life ---------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve on a free port of loopback; gives the origin."""
        app = web.Application(client_max_size=1 << 24)
        app.router.add_post("/mcp", self.post)
        app.router.add_get("/mcp", self.get)
        app.router.add_delete("/mcp", self.delete)
        app.router.add_get("/sse", self.open)
        app.router.add_post("/messages", self.message)
        runner = web.AppRunner(app, shutdown_timeout=0.2, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        scripted = asyncio.create_task(self.server.serve(self._inbox.get, self._send))
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            self._inbox.put_nowait(None)
            await scripted
            await runner.cleanup()


async def _events(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    return response


async def _event(response: web.StreamResponse, line: bytes) -> None:
    await response.write(b"event: message\ndata: " + line + b"\n\n")


def _is_answer(line: bytes) -> bool:
    return "method" not in json.loads(line)
