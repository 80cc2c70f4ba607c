"""What keeps a connection to a server in use between its requests, so that nobody ends it as idle.

A call may be under way at a server while no request of it is: a task that is looked at now and then, a user who thinks
about a question. Whoever sees such a call through holds a lease on the connection. A task that its caller asks after
itself has one by its name, with a time at which it ends even if nobody says how the task went.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from weakref import ref

from muxway.calls.ports import LOOP_CLOCK
from muxway.errors import UpstreamError

if TYPE_CHECKING:
    from weakref import ReferenceType

    from muxway.calls.ports import Clock, LiveConnection

_MOST_NAMED: Final = 4000
_LONGEST: Final = 3600.0
"""Seconds for which a task is thought to go on that nobody asks after."""


class Leases:
    """The leases on one connection."""

    __slots__ = ("_clock", "_held", "_named")

    def __init__(self, clock: Clock = LOOP_CLOCK) -> None:
        self._clock = clock
        self._held = 0
        self._named: dict[str, float] = {}
        """Until when, by name."""

    def take(self) -> None:
        """The connection is in use until `give_back`."""
        self._held += 1

    def give_back(self) -> None:
        """A lease is over."""
        self._held -= 1

    def keep(self, name: str, seconds: float) -> None:
        """The connection is in use for so long, or until `drop`."""
        self._named.pop(name, None)
        if len(self._named) >= _MOST_NAMED:
            del self._named[next(iter(self._named))]
        self._named[name] = self._clock.steady() + min(seconds, _LONGEST)

    def drop(self, name: str) -> None:
        """The lease of this name is over, if there is one."""
        self._named.pop(name, None)

    @property
    def any(self) -> bool:
        """Whether there is one."""
        if self._held:
            return True
        if self._named:
            now = self._clock.steady()
            self._named = {name: until for name, until in self._named.items() if until > now}
        return bool(self._named)


class PassedTasks:
    """Tasks of stateless servers whose callers ask after them: which connection knows each.

    They go by the names that the callers got, of which no two are alike. A server's own names are not enough to tell
    them apart: it may run several times, for other callers or from before a reload, and each process may count from 1.
    """

    def __init__(self) -> None:
        # A name may be kept for long after its process has ended: nothing of that is kept with it.
        self._connections: dict[str, tuple[bytes, ReferenceType[LiveConnection]]] = {}
        """Whose each is, and which connection."""
        self._count: Counter[bytes] = Counter()
        """How many there are of each principal."""

    def add(self, name: str, principal: bytes, connection: LiveConnection, seconds: float) -> None:
        """A server has made a task of this principal's, which may go on for so long."""
        if len(self._connections) >= _MOST_NAMED:
            # Of whoever has most: nobody's is forgotten for what others have made.
            greedy = max(self._count, key=self._count.__getitem__)
            oldest = next(one for one, (whose, _) in self._connections.items() if whose == greedy)
            self.ended(oldest)
            self._take(oldest)
        self._put(name, principal, connection)
        connection.leases.keep(name, seconds)

    def _put(self, name: str, principal: bytes, connection: LiveConnection) -> None:
        self._connections[name] = principal, ref(connection)
        self._count[principal] += 1

    def _take(self, name: str) -> tuple[bytes, LiveConnection | None]:
        """Whose it was, and its connection, if that is known and there still is one."""
        principal, known = self._connections.pop(name, (b"", None))
        if known is None:
            return principal, None
        self._count[principal] -= 1
        if not self._count[principal]:
            del self._count[principal]
        return principal, known()

    def find(self, name: str, present: LiveConnection) -> LiveConnection | None:
        """The connection at which a task can be asked after: the one on which it was made, while that lasts.

        After that it is the server's present one, unless the task ended with its process; then it is None.
        """
        principal, connection = self._take(name)
        if connection is not None:
            try:
                connection.check()
            except UpstreamError:
                connection.leases.drop(name)
            else:
                # Back, as the one that was asked after last: those that nobody asks after are forgotten first.
                self._put(name, principal, connection)
                return connection
        return None if present.own_process else present

    def ended(self, name: str) -> None:
        """The task is over; for a while it may still be asked after."""
        _, known = self._connections.get(name, (b"", None))
        connection = None if known is None else known()
        if connection is not None:
            connection.leases.drop(name)
