"""Looking now and then whether somebody has done elsewhere what calls wait for: logged in, or given a key."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSE: Final = 0.5
"""Seconds between two looks whether the user who runs us has done it, by a command."""
_USERS_PAUSE: Final = 2.0
"""The same for one of many users, who do it at a page of ours: only another gateway may have another page."""
_USERS_LAST: Final = 900.0
"""Seconds for which that is looked for."""


class LoginWatch:
    """Looks, once it is begun, until it is done."""

    def __init__(self, is_done: Callable[[], bool], *, of_many: bool) -> None:
        """Prepare; `of_many`: it is one of many users who is to do it."""
        self._is_done = is_done
        self._pause, self._lasts = (_USERS_PAUSE, _USERS_LAST) if of_many else (_PAUSE, float("inf"))
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._then: Callable[[], None] | None = None

    def begin(self, then: Callable[[], None]) -> None:
        """Look from now on, anew or still; `then` is called when it is done."""
        self._then = then
        self._until = time.monotonic() + self._lasts
        if self._timer is None:
            self._wait()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._then is None or time.monotonic() > self._until:
            return
        if self._is_done():
            self._then()
        else:
            self._wait()

    def end(self) -> None:
        """Nobody wants to know any more."""
        self._then = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
