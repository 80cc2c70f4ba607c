"""The in-process transport: a server that is Python code in this very process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from muxway.servers.transports.port import Fail, Hear, Outgoing
    from muxway.wire.envelopes import Buffer


class InProcessServer(Protocol):
    """An MCP server that can be run inside this process."""

    async def serve(self, receive: Callable[[], Awaitable[bytes | None]], send: Callable[[bytes], None]) -> None:
        """Take frames from `receive` until it gives None; answer with `send`. Returning ends the connection."""
        ...


class MemoryServerTransport:
    """Runs one in-process server as a task and carries its frames."""

    remote = False
    own_process = False

    def __init__(self, server: InProcessServer) -> None:
        self._server = server
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.send: Callable[[Sequence[Buffer], Outgoing], None] = self._send

    @property
    def queued(self) -> int:
        return 0

    async def open(self, hear: Hear, lost: Callable[[str], None], _fail: Fail, /) -> None:
        loop = asyncio.get_running_loop()

        def say(frame: bytes) -> None:
            # A turn later, like any other transport: nobody is answered from inside their own `send`.
            loop.call_soon(hear, [frame])

        def ended(task: asyncio.Task[None]) -> None:
            if not self._closed:
                error = None if task.cancelled() else task.exception()
                lost("ended" if error is None else f"failed with {type(error).__name__}: {error}")

        self._task = loop.create_task(self._server.serve(self._inbox.get, say))
        self._task.add_done_callback(ended)

    def _send(self, frame: Sequence[Buffer], _about: Outgoing) -> None:
        if not self._closed:
            self._inbox.put_nowait(b"".join(frame).rstrip(b"\n"))

    def introduced(self) -> None:
        """Nothing to show: what it prints, this process prints."""

    def last_words(self) -> str | None:
        return None

    async def close(self, *, at_once: bool = False) -> None:
        del at_once
        self._closed = True
        if self._task is not None:
            self._inbox.put_nowait(None)
            _, pending = await asyncio.wait([self._task], timeout=2.0)
            for task in pending:
                task.cancel()
                await asyncio.wait([task], timeout=2.0)
