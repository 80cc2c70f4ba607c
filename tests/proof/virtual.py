"""An event loop whose clock moves only when nothing else can happen: hours of time-outs in milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

_DEADLOCK = 5.0
"""Real seconds without anything to do and without a timer after which nothing will ever happen."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Like asyncio's, but a wait for a timer takes no time. Not for sockets with somebody at the other end."""

    def __init__(self) -> None:
        super().__init__(_Leaping(self))
        self.now = 0.0
        self.unhandled: list[dict[str, Any]] = []
        """What went wrong in callbacks and tasks that nobody waited for."""
        self.set_exception_handler(lambda _, context: self.unhandled.append(context))

    def time(self) -> float:
        return self.now


class _Leaping(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            events = super().select(_DEADLOCK)
            assert events, "everybody waits, and no timer runs"
            return events
        events = super().select(0)
        if not events and timeout > 0:
            self._loop.now += timeout
        return events
