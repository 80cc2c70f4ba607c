"""How a server is looked after: when one that has failed may be started again, whether one that is quiet still answers,
and when one that nobody needs may sleep.

The first restart of a server that ran well comes at once. After that the pauses double, and a server that ends again
and again within a minute is only tried once a minute, for ever: a crash loop must cost little, and a server that can
work again must not need anybody to notice.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from muxway.errors import UpstreamError, UpstreamSaid

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.servers.connection import Connection
    from muxway.servers.slot import Slot

_FIRST: Final = 0.5
_LONGEST: Final = 30.0
BUDGET: Final = 5
"""Ends within a minute, after which a server counts as crash-looping."""
_MINUTE: Final = 60.0
_QUIET: Final = 60.0
"""Seconds after which a server that runs is forgiven what was before."""
_SEARCHED: Final = (2, 3.0)
"""How often, and for how many seconds each time, a child is asked whether it lives when a call got no answer."""
_ROUTINE: Final = (3, 5.0)
"""The same when it has only been quiet for long."""
_SOONEST_NAP: Final = 0.05


class Care(NamedTuple):
    """How a connection is looked after."""

    supervised: bool = True
    """Whether it is started again when it ends by itself."""
    on_demand: bool = False
    """Whether it is started again when it is next needed, after the same pause; if not even that, it stays away."""
    probe_interval: float = 0.0
    """Seconds of silence after which it is asked whether it still answers; 0: never."""
    restart_unresponsive: bool = False
    """Whether it is ended and started again when it answers nothing."""
    idle_stop: float | None = None
    """Seconds without a call after which it is put to sleep; None: never."""


ON_DEMAND: Final = Care(supervised=False, on_demand=True)
"""For a connection that is opened again when it is needed."""


class Restarts:
    """The history of one server's starts, as far as it matters for the next.

    Pure: it is told the time and throws dice it is given.
    """

    def __init__(self, dice: Callable[[], float] = random.random) -> None:
        """A clean record; `dice` gives numbers from 0 to 1, so that many servers do not come back in step."""
        self.looping = False
        """Whether it has used up its budget."""
        self._dice = dice
        self._ends: deque[float] = deque(maxlen=BUDGET)
        self._failures = 0
        self._ready_at: float | None = None

    def began(self, now: float) -> None:
        """A start has begun. If it ran before, it was put to sleep, which is no fault of it."""
        self._forgive_if_quiet(now)
        self._ready_at = None

    def ready(self, now: float) -> None:
        """It is running."""
        self._ready_at = now

    def failed(self, now: float) -> float:
        """It could not be started, or has ended by itself. Returns the seconds to wait before the next start."""
        ran = self._ready_at is not None
        self._forgive_if_quiet(now)
        self._ready_at = None
        self._failures += 1
        self._ends.append(now)
        if len(self._ends) == BUDGET and now - self._ends[0] < _MINUTE:
            self.looping = True
        if self.looping:
            return _MINUTE * (1.1 + 0.2 * self._dice())
        if ran and self._failures == 1:
            return 0.0
        return min(_FIRST * 2 ** (self._failures - 1), _LONGEST) * (0.5 + self._dice())

    def _forgive_if_quiet(self, now: float) -> None:
        if self._ready_at is not None and now - self._ready_at >= _QUIET:
            self.forgive()

    def forgive(self) -> None:
        """Whatever was before does not count any more."""
        self._failures = 0
        self._ends.clear()
        self.looping = False


class Supervision:
    """Looks after one slot."""

    __slots__ = ("_probing", "_retry", "_slot", "_watch", "care", "history")

    def __init__(self, slot: Slot, care: Care) -> None:
        self._slot = slot
        self.care = care
        self.history = Restarts()
        self._retry: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._probing: asyncio.Task[None] | None = None

    @property
    def task(self) -> asyncio.Task[None] | None:
        """What asks it whether it still answers."""
        return self._probing

    def failed(self, now: float) -> float | None:
        """It could not be started, or has ended by itself. Returns the seconds after which it may be tried again."""
        return self.history.failed(now) if self.care.supervised or self.care.on_demand else None

    def try_in(self, seconds: float, start: Callable[[], None]) -> None:
        """Start it after a while, if nobody needs it before."""
        self._retry = asyncio.get_running_loop().call_later(seconds, start)

    def cancel(self) -> None:
        """Nothing is due any more."""
        for timer in (self._retry, self._watch):
            if timer is not None:
                timer.cancel()
        self._retry = self._watch = None

    def look_after(self, connection: Connection) -> None:
        """From now on, this connection, as `care` says by now."""
        connection.deadlines.on_timeout = self._search if self.care.restart_unresponsive else None
        if self._watch is not None:
            self._watch.cancel()
        interval = min(self.care.probe_interval or float("inf"), self.care.idle_stop or float("inf"))
        if interval < float("inf"):
            self._watch_in(interval)

    def _watch_in(self, seconds: float) -> None:
        self._watch = asyncio.get_running_loop().call_later(max(seconds, _SOONEST_NAP), self._watch_now)

    def _watch_now(self) -> None:
        """Put it to sleep if nobody has needed it, ask it something if it has long said nothing; then look later."""
        slot, now, care = self._slot, asyncio.get_running_loop().time(), self.care
        connection, ready_at = slot.connection, slot.state.ready_at
        if connection is None or ready_at is None:
            return
        quiet = not connection.called  # A server at work may have no time for questions, and calls have their clocks.
        if not quiet:
            connection.used = now
        due: list[tuple[float, float]] = []
        if care.idle_stop is not None:
            sleep_at = max(connection.used, ready_at) + care.idle_stop
            if quiet and sleep_at <= now and (slot.feed is None or not slot.feed.wanted):
                slot.sleep()
                return
            due.append((sleep_at, care.idle_stop))
        if care.probe_interval:
            probe_at = max(connection.heard, ready_at) + care.probe_interval
            if quiet and probe_at <= now:
                self._probe(*_ROUTINE)
            due.append((probe_at, care.probe_interval))
        self._watch_in(min(at - now if at > now else interval for at, interval in due))

    def _search(self) -> None:
        """A call got no answer: is anybody there?"""
        self._probe(*_SEARCHED)

    def _probe(self, tries: int, seconds: float) -> None:
        connection = self._slot.connection
        if connection is not None and (self._probing is None or self._probing.done()):
            self._probing = asyncio.get_running_loop().create_task(self._ask(connection, tries, seconds))

    async def _ask(self, connection: Connection, tries: int, seconds: float) -> None:
        method = "server/discover" if connection.revision.stateless else "ping"
        for _ in range(tries):
            began = asyncio.get_running_loop().time()
            try:
                await connection.own.ask(method, {}, timeout=seconds)
            except UpstreamSaid:
                return  # It answers.
            except UpstreamError as error:
                if error.reason != "timeout" or connection.heard >= began:
                    return  # It is gone, and the connection has said so; or it has been heard.
            else:
                return
        if self._slot.connection is connection:
            self._slot.lost("answers nothing any more, and was ended", at_once=True)
