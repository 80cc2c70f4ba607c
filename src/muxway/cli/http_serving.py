"""Running the gateway over HTTP until a signal ends it. Loads everything; `serve` does not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import uvicorn

from muxway.app import Gateway
from muxway.cli.ending import DRAIN, Ending, settle_memory
from muxway.cli.session import loop_factory
from muxway.downstream.connection import Connection
from muxway.downstream.http import HttpDoor
from muxway.log import EventLog
from muxway.upstream.state import Status

if TYPE_CHECKING:
    import socket
    from collections.abc import Generator

    from muxway.config import Config
    from muxway.downstream.guard import Guard
    from muxway.upstream.launch import ReaperProcess

_IDLE_CONNECTION = 75
"""Seconds that a connection may stay open between two requests."""

log = EventLog("http")


@dataclass(frozen=True)
class Address:
    """Where to listen."""

    host: str
    listener: socket.socket
    needs_token: bool

    @property
    def url(self) -> str:
        """The base URL by which a client on this machine reaches it."""
        port = self.listener.getsockname()[1]
        host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: ours also end the children."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class _Serving:
    """A door, and the gateway behind it: replaced by a fresh one after it was stopped for want of clients."""

    def __init__(
        self, config: Config, reaper: ReaperProcess, guard: Guard, *, keep_open: bool, view: str | None
    ) -> None:
        self._config = config
        self._stopping: asyncio.Task[None] | None = None
        self.gateway: Gateway | None = Gateway(config, reaper=reaper)
        self.door = HttpDoor(
            self.gateway.switchboard,
            guard=guard,
            view=view,
            ready=self._ready,
            on_wanted=self._wake,
            on_deserted=(lambda: None) if keep_open else self._rest,
        )

    def _ready(self) -> bool:
        gateway = self.gateway
        return gateway is None or all(server.status is not Status.INITIALIZING for server in gateway.servers())

    def _rest(self) -> None:
        if self.gateway is not None:
            log.info("the last client has left; servers are stopped until the next one comes")
            self._stopping = asyncio.ensure_future(self.gateway.stop())
            self.gateway = None

    def _wake(self) -> None:
        if self.gateway is None:
            self.gateway = Gateway(self._config)
            self.door.switchboard = self.gateway.switchboard
            self.gateway.start()

    async def stop(self) -> None:
        if self._stopping is not None:
            await self._stopping
        if self.gateway is not None:
            await self.gateway.stop()


def run_http(
    config: Config, reaper: ReaperProcess, guard: Guard, address: Address, *, keep_open: bool, view: str | None = None
) -> int:
    """Serve this configuration. Returns the exit code."""
    _allow_many_connections()
    # What uvicorn would say there is said here already, or is the client's mistake.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(config, reaper, guard, address, keep_open=keep_open, view=view))


async def _serve(
    config: Config, reaper: ReaperProcess, guard: Guard, address: Address, *, keep_open: bool, view: str | None
) -> int:
    serving = _Serving(config, reaper, guard, keep_open=keep_open, view=view)
    settings = uvicorn.Config(
        serving.door,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_IDLE_CONNECTION,
        timeout_graceful_shutdown=1,
        backlog=2048,
    )
    server = _Server(settings)
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    ending = Ending(asked.set)
    assert serving.gateway is not None  # noqa: S101 - it was made a moment ago
    serving.gateway.start()
    serving.door.open()
    running = loop.create_task(server.serve(sockets=[address.listener]))
    announcing = loop.create_task(_announce(serving.gateway, address))
    settle_memory()
    waiting = loop.create_task(asked.wait())
    try:
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        await serving.door.close(DRAIN)
        server.should_exit = True
        await running
    finally:
        announcing.cancel()
        waiting.cancel()
        await serving.stop()
    return ending.code


async def _announce(gateway: Gateway, address: Address) -> None:
    """Tell the user where it listens, how to connect, and, once it is known, what is up."""
    url = address.url
    lines = [
        f"muxway listens on {url}",
        f"  MCP (Streamable HTTP):  {url}/mcp",
        f"  HTTP+SSE (2024-11-05):  {url}/sse",
        f'  Connect a client:       {{"mcpServers": {{"muxway": {{"url": "{url}/mcp"}}}}}}',
    ]
    if views := [*gateway.switchboard.views]:
        lines.append(f"  Views:                  {', '.join(f'/mcp/{name}' for name in views)}")
    if address.needs_token:
        lines.append("  Clients must send:      Authorization: Bearer <the token>")
    click.echo("\n".join(lines), err=True)
    await gateway.settled()
    servers = gateway.servers()
    up = [server for server in servers if server.status is Status.RUNNING]
    tools = len(gateway.tools())
    click.echo(f"{len(up)} of {len(servers)} servers up, {tools} {'tool' if tools == 1 else 'tools'}", err=True)
    for server in servers:
        if server.status is not Status.RUNNING:
            click.echo(f"  {server.name}: {server.error or server.status}", err=True)


def _allow_many_connections() -> None:
    """Each connection takes a file descriptor; the usual soft limit is far below what the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
