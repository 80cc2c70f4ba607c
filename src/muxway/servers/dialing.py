"""How servers are reached: as child processes, for which there must be room, by URL, or as objects of this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from muxway.errors import SpawnError
from muxway.net.pipes import Turn
from muxway.net.processes.activity import processor_time
from muxway.net.processes.manager import ProcessManager
from muxway.servers.start_queue import StartQueue
from muxway.servers.transports.stdio import StdioServerTransport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from muxway.calls.call import Forwarded
    from muxway.config.model import GatewaySettings, ServerConfig
    from muxway.net.message_trace import MessageTrace
    from muxway.net.processes.journal import Journal
    from muxway.net.processes.launch import ReaperProcess
    from muxway.servers.slot import Slot
    from muxway.servers.transports.port import Credentials, ServerTransport

_START: Final = 30.0
_FETCHING_START: Final = 120.0
_FETCHERS: Final = frozenset(("npx", "npm", "bunx", "uvx", "uv", "pipx", "docker", "podman", "deno"))
_DELEGATING: Final = frozenset(("docker", "podman"))
"""Those that have their work done by processes that are not their children."""


def start_timeout(configured: float | None, command: str | None) -> float:
    """Seconds a server may take to be ready. Launchers that may first download the server get longer."""
    if configured is not None:
        return configured
    return _FETCHING_START if may_fetch(command) else _START


def may_fetch(command: str | None) -> bool:
    """Whether a command is a launcher that may first have to download the server."""
    return command is not None and PurePath(command).stem in _FETCHERS


def launch_work(slot: Slot) -> float | None:
    """Processor seconds that the launcher of a server has used so far; None if nobody can tell."""
    transport, command = slot.transport, slot.instance.config.command
    if command is None or PurePath(command).stem in _DELEGATING:
        return None
    if transport is None:
        return 0.0
    if not isinstance(transport, StdioServerTransport):
        return None
    return 0.0 if transport.pid is None else processor_time(transport.pid)


def is_child(config: ServerConfig, thing: object) -> bool:
    """Whether a server is a process of ours."""
    return config.transport == "stdio" and thing is None and config.commands is None


class Dialing:
    """What all servers of a gateway are reached with."""

    def __init__(
        self,
        settings: Callable[[], GatewaySettings],
        free_one: Callable[[], bool],
        reaper: ReaperProcess | None,
        trace: MessageTrace | None,
    ) -> None:
        """Prepare.

        Args:
            settings: gives how the gateway behaves by now.
            free_one: ends an idle process; False if there is none.
            reaper: the process that will look after the children, if it has been started ahead.
            trace: who is told of every message, if somebody is.
        """
        self.turn = Turn()
        self._settings = settings
        self._trace = trace
        self._processes = ProcessManager(reaper)
        self._queue = StartQueue(lambda: self._processes.count, free_one)

    async def aclose(self) -> None:
        """End whatever process is left."""
        await self._processes.aclose()

    def room(self, config: ServerConfig, thing: object) -> Callable[[], Awaitable[None]] | None:
        """How the start of a connection waits for a place; None if it needs none."""
        if not is_child(config, thing):
            return None
        return self._wait_for_room

    async def _wait_for_room(self) -> None:
        await self._queue.take(lambda: self._settings().max_processes, self._settings().queue_wait)

    def dial(
        self,
        current: Callable[[], ServerConfig],
        config: ServerConfig,
        thing: object,
        journal: Journal,
        credentials: Credentials | None,
    ) -> Callable[[Forwarded], ServerTransport]:
        """What makes a transport to a server, each time anew, as its `current` configuration says by then.

        It is given the headers of callers that the server gets over it. `credentials` are shown to a remote server.
        """
        dial, trace = self._dial(current, config, thing, journal, credentials), self._trace
        return dial if trace is None else lambda sent: trace.around(dial(sent), config.name)

    def _dial(
        self,
        current: Callable[[], ServerConfig],
        config: ServerConfig,
        thing: object,
        journal: Journal,
        credentials: Credentials | None,
    ) -> Callable[[Forwarded], ServerTransport]:
        if config.unusable:

            def refuse(_: Forwarded) -> ServerTransport:
                raise SpawnError(config.unusable)

            return refuse

        if thing is not None:
            from muxway.servers.transports.inprocess import as_server
            from muxway.servers.transports.memory import MemoryServerTransport

            server = as_server(thing, config.name)
            return lambda _: MemoryServerTransport(server)

        if config.commands is not None:
            from muxway.servers.transports.memory import MemoryServerTransport
            from muxway.servers.transports.program import ProgramServer

            return lambda _: MemoryServerTransport(ProgramServer(current(), self._processes, self._wait_for_room))

        def limit() -> int:
            return current().max_message_bytes or self._settings().max_message_bytes

        if config.transport != "stdio":
            from muxway.servers.transports.http import HttpServerTransport

            return lambda sent: HttpServerTransport(
                _filled(_sending(current(), sent), credentials), limit(), credentials
            )
        return lambda _: StdioServerTransport(
            _filled(current(), credentials), self._processes, self.turn, limit(), journal
        )


def _sending(config: ServerConfig, sent: Forwarded) -> ServerConfig:
    """The configuration with these headers of callers beside its own."""
    return replace(config, headers={**config.headers, **dict(sent)}) if sent else config


def _filled(config: ServerConfig, credentials: Credentials | None) -> ServerConfig:
    """The configuration with what only its user has. Raises UpstreamError if that is missing."""
    return config if credentials is None else credentials.fill(config)


def takes_several(thing: object) -> bool:
    """Whether an object of this process can be served in both eras side by side."""
    from muxway.servers.transports import inprocess

    return inprocess.takes_several(thing)
