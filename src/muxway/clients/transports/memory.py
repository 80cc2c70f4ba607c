"""The in-process transport: an MCP client in the same program, speaking frames without a pipe."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from muxway.clients.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.calls.identity import Identity
    from muxway.exchange.dispatcher import Dispatcher
    from muxway.wire.envelopes import Buffer


class MemoryClientTransport:
    """One client's connection: `send` lines, `receive` lines."""

    def __init__(self, dispatcher: Dispatcher, identity: Identity | None = None) -> None:
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._endpoint = Session(dispatcher, self._say, identity=identity)

    def send(self, frame: bytes) -> None:
        """Give the gateway one line, without its newline."""
        self._endpoint.hear_all([frame])

    async def receive(self) -> bytes:
        """The next line of the gateway, without its newline."""
        return await self._outbox.get()

    def waiting(self) -> int:
        """How many lines can be received at once."""
        return self._outbox.qsize()

    async def close(self, drain: float = 0.0) -> None:
        """Say no more; give what still runs `drain` seconds to end, then cancel it."""
        await self._endpoint.finish(drain)

    def _say(self, frame: Sequence[Buffer]) -> None:
        self._outbox.put_nowait(b"".join(frame).rstrip(b"\n"))
