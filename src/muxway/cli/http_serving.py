"""Running the gateway over HTTP until a signal ends it. Loads everything; `serve` does not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import uvicorn

from muxway.app import Gateway
from muxway.cli.describing import counted, middlewares
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
    only_views: bool = False
    """Whether all tokens are those of views, so that nobody can open the whole."""

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
    announcing = loop.create_task(_announce(config, serving.gateway, address))
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


async def _announce(config: Config, gateway: Gateway, address: Address) -> None:
    """Tell the user where it listens, how to connect, and, once it is known, what is up."""
    url = address.url
    entry: dict[str, object] = {"type": "http", "url": f"{url}/mcp"}
    if address.needs_token:
        entry["headers"] = {"Authorization": "Bearer <the token>"}
    lines = [
        f"muxway listens on {url}",
        f"  MCP (Streamable HTTP):  {url}/mcp",
        f"  HTTP+SSE (2024-11-05):  {url}/sse",
        f"  Connect a client:       {json.dumps({'mcpServers': {'muxway': entry}})}",
    ]
    lines += [f"  View {name + ':':<19}{url}/mcp/{name}" for name in gateway.switchboard.views]
    if address.only_views:
        lines.append("  Tokens:                 of views only; without --token nobody can use anything but those views")
    if around := middlewares(config):
        lines.append(f"  Middleware:             {', '.join(name for name, _ in around)}")
    click.echo("\n".join(lines), err=True)
    await gateway.settled()
    servers = gateway.servers()
    up = [server for server in servers if server.status is Status.RUNNING]
    listed = (gateway.tools(), gateway.prompts(), gateway.resources(), gateway.resource_templates())
    click.echo(f"{len(up)} of {len(servers)} servers up, {counted(*map(len, listed))}", err=True)
    # Why has been logged already.
    if down := [server.name for server in servers if server.status is not Status.RUNNING]:
        click.echo(f"  not up: {', '.join(down)}; see above, or ask `muxway check --connect`", err=True)


def _allow_many_connections() -> None:
    """Each connection takes a file descriptor; the usual soft limit is far below what the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
