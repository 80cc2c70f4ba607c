"""The stdio door: MCP on this process's stdin and stdout, as clients launch it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

from muxway.downstream.endpoint import Endpoint
from muxway.pipes import PipeReader, PipeWriter, Turn, enlarge
from muxway.protocol.framing import DEFAULT_LIMIT, LineFramer

if TYPE_CHECKING:
    from muxway.core.switchboard import Switchboard

_DRAIN: Final = 5.0
"""Seconds that calls under way get to end after the client has closed its side."""
_PAUSE_ABOVE: Final = 64 * 1024 * 1024
"""Bytes of unread answers above which no more requests are read."""


class StdioDoor:
    """Serves one client over two file descriptors."""

    def __init__(
        self,
        switchboard: Switchboard,
        turn: Turn,
        *,
        stdin: int = 0,
        stdout: int = 1,
        max_message_bytes: int = DEFAULT_LIMIT,
    ) -> None:
        self._turn = turn
        self._switchboard = switchboard
        self._stdin, self._stdout = stdin, stdout
        self._framer = LineFramer(max_message_bytes)
        self._ended = asyncio.Event()
        self._client_gone = False

    async def serve(self) -> None:
        """Serve until the client closes its side, or `stop` is called; then finish what runs."""
        blocking = {fd: os.get_blocking(fd) for fd in (self._stdin, self._stdout)}
        for fd in blocking:
            os.set_blocking(fd, False)
            enlarge(fd)
        try:
            writer = PipeWriter(self._stdout, self._turn, self._broken, close_fd=False)
            self._endpoint = endpoint = Endpoint(self._switchboard, writer.send, backlog=lambda: writer.queued)
            reader = PipeReader(self._stdin, self._turn, self._hear, self._ended.set, close_fd=False)
            self._reader, self._writer = reader, writer
            writer.on_drained = reader.resume
            await self._ended.wait()
            reader.close()
            if self._client_gone:
                endpoint.abandon()
            else:
                await endpoint.finish(_DRAIN)
                await asyncio.wait([asyncio.ensure_future(writer.drained())], timeout=_DRAIN)
            writer.close()
        finally:
            # A terminal is shared with the shell that started us: give it back as it was.
            for fd, was in blocking.items():
                os.set_blocking(fd, was)

    def stop(self) -> None:
        """End as if the client had closed its side."""
        self._ended.set()

    def _hear(self, data: bytes) -> None:
        self._endpoint.hear_all(self._framer.feed(data))
        if self._writer.queued > _PAUSE_ABOVE:
            self._reader.pause()

    def _broken(self) -> None:
        self._client_gone = True
        self._ended.set()
