"""Instances that are let go: each ends when its calls under way are over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from muxway.servers.endings import Endings

if TYPE_CHECKING:
    from muxway.servers.instance import Instance

_LOOK: Final = 0.1
"""Seconds between two looks whether a server that is to go still works for somebody."""


class Draining(Endings):
    """What of all servers is being ended, at once or after its calls."""

    __slots__ = ("stopping",)

    def __init__(self) -> None:
        super().__init__()
        self.stopping = False
        """Whether all of them are: then what is let go does not wait for the end of its calls."""

    def drain(self, instance: Instance) -> None:
        """End it when its calls under way are over."""
        self.begin(self._drained(instance))

    async def _drained(self, instance: Instance) -> None:
        loop = asyncio.get_running_loop()
        over = loop.time() + instance.server.limit
        try:
            # The hot path need not tell of every end.
            while instance.busy and not self.stopping and loop.time() < over:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK)
        finally:
            await instance.stop()
