"""A client of the stdio door, on real pipes, that reads only when the test does."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from tests.pace import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from muxway.clients.transports.stdio import StdioClientTransport

    from ..conftest import World


class Pipes:
    """The client's ends of a stdio door's pipes."""

    def __init__(self, to_door: int, from_door: int) -> None:
        self.to_door, self.from_door = to_door, from_door
        self._buffer = b""

    def send(self, frame: bytes) -> None:
        os.write(self.to_door, frame + b"\n")

    async def receive(self) -> bytes:
        """The next line; reads a little at a time."""
        while b"\n" not in self._buffer:
            with contextlib.suppress(BlockingIOError):
                self._buffer += os.read(self.from_door, 16_384)
            await asyncio.sleep(0)
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


@contextlib.asynccontextmanager
async def stdio(world: World) -> AsyncIterator[tuple[Pipes, StdioClientTransport]]:
    """A client on pipes, and the door it speaks to."""
    stdin, to_door = os.pipe()
    from_door, stdout = os.pipe()
    os.set_blocking(to_door, False)
    os.set_blocking(from_door, False)
    door = world.gateway.stdio_door(stdin=stdin, stdout=stdout)
    serving = asyncio.create_task(door.serve())
    await asyncio.sleep(0)
    try:
        yield Pipes(to_door, from_door), door
    finally:
        os.close(from_door)
        door.stop()
        await asyncio.wait_for(serving, PATIENCE)
        for fd in (stdin, to_door, stdout):
            os.close(fd)
