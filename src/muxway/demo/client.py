"""A small MCP client over a pipe, for the demo: speaks as a handshake client or as a stateless one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muxway.demo.serving import STATELESS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

_PREFIX = "io.modelcontextprotocol/"
_INFO = {"name": "muxway-demo-client", "version": "1.0"}
_LINE_LIMIT = 16 * 1024 * 1024
_PATIENCE = 10.0
"""Seconds to wait for any one answer, and for the gateway to end."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one request."""

    body: Mapping[str, Any]
    """The whole message: `result` or `error`."""
    ms: float
    """Milliseconds from asking to hearing."""
    notices: Sequence[Mapping[str, Any]]
    """What the other side said meanwhile."""


class DemoClient:
    """One connection to a gateway that was started for it."""

    def __init__(self, process: asyncio.subprocess.Process, revision: str) -> None:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("a client needs both pipes")
        self._stdin, self._stdout = process.stdin, process.stdout
        self._ids = itertools.count(1)
        self._stateless = revision == STATELESS
        self._revision = revision

    @classmethod
    @contextlib.asynccontextmanager
    async def launch(cls, argv: Sequence[str], revision: str) -> AsyncGenerator[DemoClient]:
        """Start a server as every MCP client does, with pipes on its stdin and stdout; end it on leaving."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, limit=_LINE_LIMIT
        )
        client = cls(process, revision)
        try:
            yield client
            client._stdin.close()
            await asyncio.wait_for(process.wait(), _PATIENCE)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def open(self) -> Answer:
        """Say who we are (handshake), or ask who they are (stateless)."""
        if self._stateless:
            return await self.ask("server/discover")
        params = {"protocolVersion": self._revision, "capabilities": {}, "clientInfo": _INFO}
        answer = await self.ask("initialize", params)
        self._say(method="notifications/initialized")
        return answer

    async def tools_of(self, servers: Sequence[str]) -> tuple[Answer, Answer]:
        """The first listing, and the first one in which every one of these servers has tools."""
        first = listing = await self.ask("tools/list")
        if self._stateless and not _has_all(listing, servers):
            wanted = self._with_meta({"notifications": {"toolsListChanged": True}}, None)
            self._say(id=next(self._ids), method="subscriptions/listen", params=wanted)
            # What arrived between the first listing and the subscription is in the next listing.
            listing = await self.ask("tools/list")
        while not _has_all(listing, servers):
            await self._heard("notifications/tools/list_changed")
            listing = await self.ask("tools/list")
        return first, listing

    async def call(self, name: str, arguments: Mapping[str, Any], *, progress: bool = False) -> Answer:
        """Call a tool."""
        return await self.ask("tools/call", {"name": name, "arguments": arguments}, token="p1" if progress else None)

    async def ask(self, method: str, params: Mapping[str, Any] | None = None, *, token: str | None = None) -> Answer:
        """Send a request and wait for its answer.

        Raises:
            TimeoutError: there is none.
            ConnectionError: the gateway has gone.
        """
        id_ = next(self._ids)
        began = time.perf_counter()
        self._say(id=id_, method=method, params=self._with_meta(params or {}, token))
        notices: list[Mapping[str, Any]] = []
        while (message := await self._hear()).get("id") != id_:
            notices.append(message)
        return Answer(message, (time.perf_counter() - began) * 1000, notices)

    def _with_meta(self, params: Mapping[str, Any], token: str | None) -> dict[str, Any]:
        meta: dict[str, Any] = {} if token is None else {"progressToken": token}
        if self._stateless:
            meta[_PREFIX + "protocolVersion"] = STATELESS
            meta[_PREFIX + "clientInfo"] = _INFO
            meta[_PREFIX + "clientCapabilities"] = {}
        return {**params, "_meta": meta} if meta else dict(params)

    def _say(self, **message: object) -> None:
        self._stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def _hear(self) -> dict[str, Any]:
        async with asyncio.timeout(_PATIENCE):
            line = await self._stdout.readline()
        if not line:
            raise ConnectionError("the gateway ended before it answered")
        return json.loads(line)

    async def _heard(self, method: str) -> None:
        while (await self._hear()).get("method") != method:
            pass


def _has_all(listing: Answer, servers: Sequence[str]) -> bool:
    names = [tool["name"] for tool in listing.body["result"]["tools"]]
    return all(any(name.startswith(f"{server}__") for name in names) for server in servers)
