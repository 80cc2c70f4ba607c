"""The clients of the matrix: one raw client, and a wire for each transport that muxway serves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

import aiohttp

from muxway.testing import RawClient
from muxway.wire.sse import SseParser
from tests.compatibility.subjects import NEWEST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from muxway import Gateway

_LIMIT = 1 << 24


_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri", "tasks/get": "taskId"}
"""Request → the param that a stateless client repeats in a header."""
_METHODS = {
    "tools": ("tools/list", "name"),
    "prompts": ("prompts/list", "name"),
    "resources": ("resources/list", "uri"),
    "resourceTemplates": ("resources/templates/list", "uriTemplate"),
}
"""Member of an answer that holds a list → the request for it, and what tells its items apart."""


def capabilities_of(revision: str) -> dict[str, Any]:
    """All that a client of a revision can declare."""
    declared: dict[str, Any] = {"roots": {} if revision == NEWEST else {"listChanged": True}, "sampling": {}}
    if revision >= "2025-06-18":
        declared["elicitation"] = {}
    if revision >= "2025-11-25":
        declared |= {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}}
    return declared


class Client(RawClient):
    """A client that can do all that its revision has, hears of changes, and knows how its transport cancels."""

    def __init__(self, wire: PipeWire | PostWire | SseWire, revision: str) -> None:
        super().__init__(wire, revision=revision, capabilities=capabilities_of(revision))
        self._own = wire
        self._lists: dict[str, dict[str, dict[str, Any]]] = {}
        self.pages = 0
        """How many pages the list that was read last had."""
        self.instructions = ""

    async def open(self) -> None:
        """Introduce itself, and listen to what is said unasked."""
        introduced = await self.hello() or await self.ask("server/discover", {})
        self.instructions = introduced.result["instructions"]
        if self.stateless:
            wanted = {f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources")}
            await self.listen(wanted)
        elif isinstance(self._own, PostWire):
            await self._own.overhear()

    async def listen(self, wanted: dict[str, Any]) -> Any:
        """Listen, as a stateless client does; returns the id to stop it by."""
        id_ = self.start("subscriptions/listen", {"notifications": wanted})
        await self.notice("notifications/subscriptions/acknowledged")
        return id_

    def cancel(self, id_: Any) -> None:
        """Give up on a request."""
        if self.stateless and isinstance(self._own, PostWire):
            self._own.hang_up(id_)
        else:
            self.tell("notifications/cancelled", {"requestId": id_})

    def forget_notices(self) -> None:
        """Count only what is said from now on."""
        self.notices.clear()

    def answering(self, results: Mapping[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
        """Answer these questions from now on: method → result. Returns a list of what is asked, which grows."""
        asked: list[tuple[str, dict[str, Any]]] = []

        def answer_to(method: str, result: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
            def answer(params: dict[str, Any]) -> dict[str, Any]:
                asked.append((method, params))
                return result

            return answer

        self.answers = {method: answer_to(method, result) for method, result in results.items()}
        return asked

    def _reply(self, request: dict[str, Any]) -> None:
        assert not self.stateless, f"there are no requests to clients of {self.revision}: {request}"
        super()._reply(request)

    async def listed(self, member: str) -> dict[str, dict[str, Any]]:
        """A list, its items by name or URI; asked for once."""
        return self._lists.get(member) or await self.list_again(member)

    async def list_again(self, member: str) -> dict[str, dict[str, Any]]:
        """A list, asked for now."""
        method, identity = _METHODS[member]
        found = self._lists[member] = {}
        self.pages = 0
        params: dict[str, Any] = {}
        while True:
            result = (await self.ask(method, params)).result
            self.pages += 1
            found |= {item[identity]: item for item in result[member]}
            if "nextCursor" not in result:
                return found
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
        # Answers have the ids of others.
        self._spawn(message["id"] if {"id", "method"} <= message.keys() else object(), self._post(frame, message))

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self._revision != NEWEST:
            return headers | self._session
        headers |= {"MCP-Protocol-Version": NEWEST, "Mcp-Method": message["method"]}
        named_by = _NAMED_BY.get(message["method"])
        return headers if named_by is None else {**headers, "Mcp-Name": message["params"][named_by]}

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
        await asyncio.wait_for(opened.wait(), 30)

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
        await asyncio.wait_for(opened.wait(), 30)

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
