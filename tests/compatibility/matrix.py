"""Every kind of client with every kind of server, through one gateway that has them all."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muxway import Gateway
from muxway.clients.transports.http import HttpClientTransport
from muxway.clients.transports.http_server import HttpServer
from tests.compatibility.clients import Client, connect
from tests.compatibility.subjects import ABSENT, SUBJECTS, Outcome
from tests.compatibility.web_server import WebServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from muxway.testing import Reply
    from tests.compatibility.subjects import Subject

ROOT = Path(__file__).parents[2]
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
TRANSPORTS = {"stdio": "stdio", "http": "Streamable HTTP", "sse": "HTTP+SSE"}
EXISTS = {"stdio": REVISIONS, "http": REVISIONS[1:], "sse": REVISIONS[:1]}
"""Transport → the revisions that have it."""
_PAGE = 50
_CELL = 20.0


@dataclass(frozen=True)
class Kind:
    """A transport and a revision: a kind of client, or of server."""

    transport: str
    revision: str

    @property
    def name(self) -> str:
        return f"{self.transport}-{self.revision}"


KINDS = [Kind(transport, revision) for transport, revisions in EXISTS.items() for revision in revisions]


@dataclass(frozen=True)
class Pair:
    """A client, and the server it speaks with."""

    client: Client
    kind: Kind
    """The client's."""
    server: Kind
    barrier: asyncio.Barrier

    async def everybody(self) -> int:
        """Wait until all clients are here; returns the number of this one, from 0."""
        return await self.barrier.wait()

    def name_of(self, tool: str) -> str:
        """The public name of a tool or prompt of the server."""
        return f"{self.server.name}__{tool}"

    async def definition(self, tool: str) -> dict[str, Any]:
        """How the client sees a tool, its name taken off."""
        shown = dict((await self.client.listed("tools"))[self.name_of(tool)])
        del shown["name"]
        return shown

    async def reply(self, tool: str, arguments: dict[str, Any] | None = None, **params: Any) -> Reply:
        """What the client gets for a call."""
        return await self.client.call(self.name_of(tool), arguments, **params)

    def plain(self, result: dict[str, Any]) -> dict[str, Any]:
        """A result without what only 2026-07-28 has around each."""
        if self.client.stateless:
            del result["resultType"], result["_meta"]
        return result

    async def result(self, tool: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        """The plain result of a call."""
        return self.plain((await self.reply(tool, arguments)).result)

    async def content(self, tool: str, arguments: dict[str, Any] | None = None) -> Any:
        """The content of the result of a call."""
        return (await self.result(tool, arguments))["content"]


@dataclass(frozen=True)
class Cell:
    """One result."""

    subject: Subject
    client: Kind
    server: Kind
    outcome: Outcome


async def run() -> list[Cell]:
    """Try everything."""
    async with contextlib.AsyncExitStack() as stack:
        gateway, origin = await stack.enter_async_context(_world())
        clients = {
            kind: await stack.enter_async_context(connect(kind.transport, kind.revision, gateway, origin))
            for kind in KINDS
        }
        cells: list[Cell] = []
        # One after the other: a pipe does not say for whose call a server asks or logs, so that calls must not overlap.
        for subject in SUBJECTS:
            own: list[Cell] = []
            for server in KINDS:
                barrier = asyncio.Barrier(len(clients))
                pairs = [Pair(client, kind, server, barrier) for kind, client in clients.items()]
                if subject.together:
                    outcomes = await asyncio.gather(*(_try(subject, pair, own) for pair in pairs))
                    own += [Cell(subject, *cell) for cell in zip(KINDS, itertools.repeat(server), outcomes)]
                else:
                    for pair in pairs:
                        own.append(Cell(subject, pair.kind, server, await _try(subject, pair, own)))
            cells += own
        return cells


async def _try(subject: Subject, pair: Pair, before: Sequence[Cell]) -> Outcome:
    """Try a subject; `before` are its results so far."""
    if not subject.exists_in(pair.server.revision) or pair.kind.revision < subject.clients_since:
        return ABSENT
    if any(cell.outcome.words.startswith("TimeoutError") for cell in before):
        # All that follow would be waited for, too.
        return Outcome("failed", "not tried, as it took too long before")
    try:
        async with asyncio.timeout(_CELL):
            return await subject.check(pair)
    except (LookupError, ValueError, AssertionError, TimeoutError, asyncio.BrokenBarrierError) as error:
        return Outcome("failed", f"{type(error).__name__}: {str(error)[:400]}")


@contextlib.asynccontextmanager
async def _world() -> AsyncIterator[tuple[Gateway, str]]:
    """A gateway in front of a server of every kind, and the origin where it serves HTTP."""
    async with contextlib.AsyncExitStack() as stack:
        servers: dict[str, dict[str, Any]] = {}
        for kind in KINDS:
            if kind.transport == "stdio":
                module = ["-m", "tests.compatibility.server", kind.revision, kind.name]
                servers[kind.name] = {"command": sys.executable, "args": module, "cwd": str(ROOT)}
            else:
                origin = await stack.enter_async_context(WebServer(kind.revision, kind.name).serving())
                path = {"http": "/mcp", "sse": "/sse"}[kind.transport]
                servers[kind.name] = {"type": kind.transport, "url": origin + path}
        config = {"mcpServers": servers, "gateway": {"pageSize": _PAGE}}
        gateway = await stack.enter_async_context(Gateway.open(config))
        found = {server.name: (server.status, server.revision) for server in gateway.servers()}
        assert found == {kind.name: ("running", kind.revision) for kind in KINDS}, gateway.servers()
        yield gateway, await stack.enter_async_context(_door(gateway))


@contextlib.asynccontextmanager
async def _door(gateway: Gateway) -> AsyncIterator[str]:
    door = HttpClientTransport(gateway.runtime)
    server = HttpServer(door)
    listener = socket.create_server(("127.0.0.1", 0))
    await server.start(listener)
    door.open()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        await door.close(0)
        await server.stop()
