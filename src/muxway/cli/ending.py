"""How a serving process ends: the first signal asks, the second insists, and the time is bounded in any case."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from typing import TYPE_CHECKING

from muxway.cli.exits import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable

DRAIN = 4.0
"""Seconds that calls under way, and a client that is slow to read, get after a signal."""
_HARD_END = 8.5
"""Seconds after a signal at which we leave whatever is left to the reaper: whoever sent it waits no longer than 10."""


class Ending:
    """Hears the signals that end a process."""

    def __init__(self, asked: Callable[[], None]) -> None:
        """Call `asked` at the first signal."""
        self._asked = asked
        self._signals: list[signal.Signals] = []
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._loop.add_signal_handler(number, self._hear, number)

    @property
    def code(self) -> int:
        """The exit code that tells how it ended."""
        return INTERRUPTED if signal.SIGINT in self._signals else 0

    def _hear(self, number: signal.Signals) -> None:
        if self._signals:
            # The reaper sees our end of its socket close, and ends the children.
            os._exit(128 + number)
        self._signals.append(number)
        self._asked()
        self._loop.call_later(_HARD_END, os._exit, self.code)


def settle_memory() -> None:
    """Spare the collector what is loaded by now and stays for good; a call leaves nothing for it to find."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
