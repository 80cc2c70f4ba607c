"""Places for child processes: there are `maxProcesses`, and who finds none waits for one, in the order of coming.

That there is no room is no fault of a server: its start waits, and nothing of it goes into its history.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from muxway.errors import MuxwayError

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK: Final = 0.1
"""Seconds between two looks for a place: the hot path need not tell of every call that ends."""


class NoRoomToStart(MuxwayError):
    """There are as many processes as there may be, and all were in use for as long as one may wait."""


class StartQueue:
    """Where the starts of child processes wait for their turn."""

    def __init__(self, count: Callable[[], int], free_one: Callable[[], bool]) -> None:
        """Prepare.

        Args:
            count: how many processes there are.
            free_one: ends an idle one; False if there is none.
        """
        self._count = count
        self._free_one = free_one
        self._waiting: deque[object] = deque()

    async def take(self, most: Callable[[], int], seconds: float) -> None:
        """Wait until one more process may be started, which must follow at once. Raises NoRoomToStart after so long."""
        if not self._waiting and self._may_have(most()):
            return
        loop = asyncio.get_running_loop()
        until, turn = loop.time() + seconds, object()
        self._waiting.append(turn)
        try:
            while self._waiting[0] is not turn or not self._may_have(most()):
                if loop.time() >= until:
                    why = f"{most()} processes run, as many as may (maxProcesses), and all are in use"
                    raise NoRoomToStart(f"{why}; none became free within {seconds:g} s (queueWait)")
                await asyncio.sleep(_LOOK)
        finally:
            self._waiting.remove(turn)

    def _may_have(self, most: int) -> bool:
        return self._count() < most or self._free_one()
