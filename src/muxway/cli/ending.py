"""How a serving process ends: the first signal asks, the second insists, and the time is bounded in any case.

    0 s    nothing new is taken, calls under way go on, `/readyz` says no
    5 s    at the latest the servers are told to end, all at once; they have 4 s for it
    8.6 s  we leave whatever is left to the reaper, which kills it: nothing is to be there after 9

Counted from the first signal, or from the end of the input.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

from muxway.cli.exits import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable

DRAIN: Final = 5.0
"""Seconds that calls under way, and a client that is slow to read, get at the end."""
_HARD_END: Final = 8.6
"""Seconds after which we are gone, whatever is under way."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""What `mallopt` knows them by."""
_KEPT_FREE: Final = 8 * 1024 * 1024
"""Bytes at the end of the heap that are kept."""
_LOOK_AGAIN: Final = 0.1
"""Seconds after which it shows whether a SIGHUP came because the terminal has gone."""


class Ending:
    """Hears the signals that end a process, and the one that does not."""

    def __init__(self, asked: Callable[[], None], hung_up: Callable[[], None]) -> None:
        """Call `asked` at the first signal that ends us, `hung_up` at each SIGHUP that does not."""
        self._asked, self._hung_up = asked, hung_up
        self._signals: list[signal.Signals] = []
        self._begun = False
        self._loop = asyncio.get_running_loop()
        # `nohup` is for those who want us to outlive the terminal.
        self._on_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._hear, number)
        self._loop.add_signal_handler(signal.SIGHUP, self._hear_hang_up)

    @property
    def code(self) -> int:
        """The exit code that tells how it ended."""
        return INTERRUPTED if signal.SIGINT in self._signals else 0

    def begin(self) -> None:
        """The end has begun, with or without a signal: from now on the time is counted."""
        if not self._begun:
            self._begun = True
            self._loop.call_later(_HARD_END, self._leave)

    def _hear(self, number: signal.Signals) -> None:
        if self._signals:
            # The reaper sees our end of its socket close, and ends the children.
            logging.shutdown()
            os._exit(128 + number)
        self._signals.append(number)
        self.begin()
        self._asked()

    def _hear_hang_up(self) -> None:
        if self._begun:
            return
        if self._on_terminal:
            self._loop.call_later(_LOOK_AGAIN, self._judge_hang_up)
        else:
            self._hung_up()

    def _judge_hang_up(self) -> None:
        """Somebody sent it, who wants a reload; or the window was closed, which ends what runs in it."""
        if _has_terminal():
            self._hung_up()
        else:
            self._hear(signal.SIGHUP)

    def _leave(self) -> None:
        logging.shutdown()
        os._exit(self.code)


def _has_terminal() -> bool:
    """Whether we belong to a terminal that is still there, whatever our own input is."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def settle_memory() -> None:
    """Spare the collector what is loaded by now and stays for good; a call leaves nothing for it to find.

    Give back what the start alone needed, two megabytes where Python had to compile what it loads. From then on, keep
    a few megabytes that are free for the next large message: glibc would give them back to the system after each, and
    most of what such a message costs would be getting them again.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    if sys.platform == "linux":
        import ctypes  # a dear import, and of use only here

        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):  # other libraries than glibc have none
            libc.malloc_trim(0)
            libc.mallopt(_TRIM_THRESHOLD, _KEPT_FREE)
            libc.mallopt(_MMAP_THRESHOLD, _KEPT_FREE // 2)
