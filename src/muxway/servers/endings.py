"""Work that goes on until it is over, whatever else happens: what is being ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine


class Endings:
    """What is being ended, until it has."""

    __slots__ = ("tasks",)

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """End something, whoever waits for it or does not."""
        task = asyncio.get_running_loop().create_task(work)
        self.add(task)
        return task

    def add(self, task: asyncio.Task[None]) -> None:
        """Something is being ended already."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def over(self, timeout: float | None = None) -> None:
        """Wait until all of it has ended, or for so many seconds."""
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=timeout)
