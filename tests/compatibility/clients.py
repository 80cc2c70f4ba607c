"""The clients of the matrix: one raw client, and a wire for each transport that muxway serves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

import aiohttp

from muxway.protocol.sse import SseParser
from muxway.testing import RawClient
from tests.compatibility.subjects import NEWEST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from muxway import Gateway

_LIMIT = 1 << 24


class Client(RawClient):
    """A client that hears of changes, and knows how its transport cancels."""

    def __init__(self, wire: PipeWire | PostWire | SseWire, revision: str) -> None:
        super().__init__(wire, revision=revision)
        self._own = wire
        self._known: dict[str, dict[str, Any]] | None = None
        self.pages = 0

    async def open(self) -> None:
        """Introduce itself, and listen to what is said unasked."""
        await self.hello()
        if self.stateless:
            self.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            await self.notice("notifications/subscriptions/acknowledged")
        elif isinstance(self._own, PostWire):
            await self._own.overhear()

    def cancel(self, id_: Any) -> None:
        """Give up on a request."""
        if self.stateless and isinstance(self._own, PostWire):
            self._own.hang_up(id_)
        else:
            self.tell("notifications/cancelled", {"requestId": id_})

    async def definitions(self) -> dict[str, dict[str, Any]]:
        """Every tool, by name; asked for once."""
        if self._known is None:
            await self.names()
        assert self._known is not None
        return self._known

    async def names(self) -> set[str]:
        """The names of all tools, asked for now."""
        self._known, self.pages = {}, 0
        params: dict[str, Any] = {}
        while True:
            result = (await self.ask("tools/list", params)).result
            self.pages += 1
            self._known |= {tool["name"]: tool for tool in result["tools"]}
            if "nextCursor" not in result:
                return set(self._known)
            params = {"cursor": result["nextCursor"]}


class PipeWire:
    """Two pipes to a door on stdin and stdout."""

    def __init__(self, stdin: int, reader: asyncio.StreamReader) -> None:
        self._stdin, self._reader = stdin, reader

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, gateway: Gateway) -> AsyncIterator[PipeWire]:
        (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
        reader = asyncio.StreamReader(limit=_LIMIT)
        with os.fdopen(ours_in, "rb") as pipe:
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), pipe
            )
            serving = asyncio.create_task(gateway.stdio_door(stdin=theirs_in, stdout=theirs_out).serve())
            try:
                yield cls(ours_out, reader)
            finally:
                os.close(ours_out)
                await serving
                os.close(theirs_in)
                os.close(theirs_out)
                transport.close()

    def send(self, frame: bytes) -> None:
        os.write(self._stdin, frame + b"\n")

    async def receive(self) -> bytes:
        return await self._reader.readline()


class _WebWire:
    """Something that posts, and hears what comes of it in one place."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._http, self._url = session, url
        self._heard: asyncio.Queue[bytes] = asyncio.Queue()
        self._tasks: dict[Any, asyncio.Task[None]] = {}

    async def receive(self) -> bytes:
        return await self._heard.get()

    def _spawn(self, key: Any, work: Any) -> None:
        self._tasks[key] = asyncio.create_task(work)

    async def _hear_events(self, response: aiohttp.ClientResponse) -> None:
        parser = SseParser(_LIMIT)
        async for chunk in response.content.iter_any():
            for event in parser.feed(chunk):
                if event.data:
                    self._heard.put_nowait(event.data)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks.values(), return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome


class PostWire(_WebWire):
    """Streamable HTTP, with a session or stateless."""

    def __init__(self, session: aiohttp.ClientSession, origin: str, revision: str) -> None:
        super().__init__(session, f"{origin}/mcp")
        self._revision = revision
        self._session: dict[str, str] = {}

    def send(self, frame: bytes) -> None:
        message = json.loads(frame)
        self._spawn(message.get("id", object()), self._post(frame, message))

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self._revision != NEWEST:
            return headers | self._session
        headers |= {"MCP-Protocol-Version": NEWEST, "Mcp-Method": message["method"]}
        return headers | ({"Mcp-Name": message["params"]["name"]} if "name" in message["params"] else {})

    async def _post(self, frame: bytes, message: dict[str, Any]) -> None:
        async with self._http.post(self._url, data=frame, headers=self._headers(message)) as response:
            if message.get("method") == "initialize":
                self._session = {"Mcp-Session-Id": response.headers["Mcp-Session-Id"]}
                if self._revision >= "2025-06-18":
                    self._session["MCP-Protocol-Version"] = self._revision
            if response.content_type == "text/event-stream":
                await self._hear_events(response)
            elif body := await response.read():
                self._heard.put_nowait(body)

    async def overhear(self) -> None:
        """Open the stream of a session for what belongs to no request."""
        opened = asyncio.Event()

        async def get() -> None:
            headers = {"Accept": "text/event-stream", **self._session}
            async with self._http.get(self._url, headers=headers) as response:
                assert response.status == 200, await response.text()
                opened.set()
                await self._hear_events(response)

        self._spawn("stream", get())
        await asyncio.wait_for(opened.wait(), 10)

    def hang_up(self, id_: Any) -> None:
        """Close the connection of a request."""
        self._tasks[id_].cancel()


class SseWire(_WebWire):
    """HTTP+SSE."""

    async def open(self) -> None:
        opened = asyncio.Event()

        async def get() -> None:
            async with self._http.get(f"{self._url}/sse", headers={"Accept": "text/event-stream"}) as response:
                await response.content.readuntil(b"event: endpoint\n")
                self._post_to = self._url + (await response.content.readline()).decode().removeprefix("data: ").strip()
                opened.set()
                await self._hear_events(response)

        self._spawn("stream", get())
        await asyncio.wait_for(opened.wait(), 10)

    def send(self, frame: bytes) -> None:
        self._spawn(object(), self._post(frame))

    async def _post(self, frame: bytes) -> None:
        async with self._http.post(self._post_to, data=frame, headers={"Content-Type": "application/json"}) as response:
            assert response.status == 202, await response.text()


@contextlib.asynccontextmanager
async def connect(transport: str, revision: str, gateway: Gateway, origin: str) -> AsyncIterator[Client]:
    """A client of this revision, connected this way."""
    async with contextlib.AsyncExitStack() as stack:
        wire: PipeWire | PostWire | SseWire
        if transport == "stdio":
            wire = await stack.enter_async_context(PipeWire.open(gateway))
        else:
            http = await stack.enter_async_context(aiohttp.ClientSession())
            wire = PostWire(http, origin, revision) if transport == "http" else SseWire(http, origin)
            stack.push_async_callback(wire.close)
            if isinstance(wire, SseWire):
                await wire.open()
        client = Client(wire, revision)
        await client.open()
        yield client
