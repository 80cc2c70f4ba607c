"""When a server's lists are read again: because it says that they have changed, because a client asks for one that may
be out of date, or because somebody calls what is not listed.

One reading at a time, and few of them, whatever the server says and however many clients ask. Nothing here wakes a
server: what sleeps stays as it was listed.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from muxway.catalog.kinds import Kind

FRESH: Final = 2.0
"""Seconds for which a list that was just read is not read again, unless its server says that it has changed."""
_PAUSE: Final = 0.25
"""Seconds between two readings at least, so that a flood of changes costs little."""
_LONGEST_PAUSE: Final = 15.0
"""The pause grows to this while the flood goes on and nobody waits for its end."""
_FEW: Final = 8
"""Changes within a pause, or readings with no more than a pause in between, that are no flood yet."""


class ListFreshness:
    """The readings of one server's lists after the first."""

    def __init__(self, read: Callable[[set[Kind]], Awaitable[None]], told: Callable[[], None]) -> None:
        """Prepare.

        Args:
            read: reads the lists of these kinds, well or badly.
            told: called when that is over; whoever waited for it may go on.
        """
        self._read = read
        self._told = told
        self._stale: set[Kind] = set()
        """What has changed since it was read."""
        self._reading: set[Kind] = set()
        self._as_of: dict[Kind, float] = {}
        """When the last reading of a list began: it shows what was there then, or later."""
        self._over: dict[Kind, float] = {}
        """When that ended, well or badly."""
        self._amid: set[Kind] = set()
        """What was last read while calls were under way, which may have changed it since."""
        self._announced = 0
        """How often the server has said that something changed since the last reading began."""
        self._hurry = asyncio.Event()
        """Set: somebody waits, so the pause before the next reading is not to grow."""
        self._at_once = asyncio.Event()
        """Set: there is to be none."""
        self.task: asyncio.Task[None] | None = None

    def forget(self) -> None:
        """There is another connection, on which everything is read first."""
        self._stale.clear()

    def began(self, kinds: Iterable[Kind], *, amid_calls: bool) -> None:
        """These are being read."""
        kinds = [*kinds]
        now = asyncio.get_running_loop().time()
        self._as_of.update(dict.fromkeys(kinds, now))
        self._amid.difference_update(kinds)
        if amid_calls:
            self._amid.update(kinds)

    def ended(self, kinds: Iterable[Kind]) -> None:
        """These were read, or could not be."""
        now = asyncio.get_running_loop().time()
        self._over.update(dict.fromkeys(kinds, now))

    def changed(self, kinds: Iterable[Kind], *, now: bool) -> None:
        """The server says so. Read them `now`, or when `catch_up` is called."""
        self._stale.update(kinds)
        self._announced += 1
        if now:
            self.catch_up()

    def catch_up(self) -> None:
        """Read what has changed, if anything has."""
        if self._stale and (self.task is None or self.task.done()):
            self.task = asyncio.get_running_loop().create_task(self._go())

    def holds(self, kind: Kind, ttl_ms: int) -> int:
        """For how many more milliseconds a list holds, whose server said this when it was read."""
        now = asyncio.get_running_loop().time()
        return max(0, ttl_ms - int(1000 * (now - self._as_of.get(kind, -1e9))))

    def refresh(self, kind: Kind) -> None:
        """Read a list, unless that was done a moment ago."""
        now = asyncio.get_running_loop().time()
        if kind not in self._reading and now - self._over.get(kind, -1e9) >= FRESH:
            self._stale.add(kind)
            self.catch_up()

    def renew(self, kind: Kind, called: float) -> bool:
        """Somebody asks for a list that calls may have changed in silence, the last of which began at `called`.

        Returns whether it is being read for that.
        """
        if kind not in self._amid and called < self._as_of.get(kind, -1e9):
            return False
        self._stale.add(kind)
        self.catch_up()
        # As many readings as clients ask for after a call, no more than without a gateway.
        self._at_once.set()
        return self.want(kind, begin=False)

    def want(self, kind: Kind, *, begin: bool) -> bool:
        """Somebody waits for a list: `begin` to read it, unless that was done a moment ago.

        Returns whether it is being read, or about to be; then a pause before that is no longer than it must be.
        """
        if begin:
            self.refresh(kind)
        coming = kind in self._reading or kind in self._stale
        if coming:
            self._hurry.set()
        return coming

    async def _go(self) -> None:
        pause, readings = _PAUSE, 0
        while self._stale:
            self._reading, self._stale = self._stale, set()
            self._announced, readings = 0, readings + 1
            self._hurry.clear()
            self._at_once.clear()
            try:
                await self._read(self._reading)
            finally:
                self._reading = set()
            self._told()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE):
                    await self._at_once.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause - _PAUSE):
                    await self._hurry.wait()
            flood = self._announced > _FEW or readings > _FEW
            pause = min(3 * pause, _LONGEST_PAUSE) if flood and not self._hurry.is_set() else _PAUSE
