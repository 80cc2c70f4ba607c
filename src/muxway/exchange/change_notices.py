"""When clients are told that a list has changed: after two quiet seconds, once for all that changed meanwhile.

Each notice makes a client list again, and what then differs costs its model the cached prompt. Servers change their
lists in steps, and several at a time; what is new can be called at once, whether or not anybody has been told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muxway.calls.call import Caller
    from muxway.calls.identity import Identity
    from muxway.calls.ports import Clock, Timer
    from muxway.routing.snapshot import Visible

QUIET: Final = 2.0
"""Seconds without a further change after which clients are told."""
LONGEST: Final = 10.0
"""Seconds after the first change after which they are told in any case."""


class ListListener(NamedTuple):
    """Somebody who wants to hear of changes of lists."""

    view: str | None
    changed: Callable[[frozenset[str]], None]
    who: Callable[[], Caller | None]
    stateless: bool

    @property
    def caller(self) -> tuple[str | None, Identity | None, str]:
        """Its view, and what decides in it what it sees."""
        caller = self.who()
        return (self.view, None, "") if caller is None else (self.view, caller.identity, caller.client)


class ChangeNotices:
    """What those who listen have yet to be told."""

    def __init__(self, clock: Clock, sees: Callable[[ListListener], Visible]) -> None:
        """Nothing yet; `sees` says what somebody who listens sees now."""
        self._clock = clock
        self._sees = sees
        self.listeners: dict[object, ListListener] = {}
        """All who listen."""
        self._before: dict[object, Visible] = {}
        """What those saw who are to be told, when they were last told, or first listened."""
        self._since = 0.0
        """When the first change came of which they have not been told."""
        self._timer: Timer | None = None

    def listen(self, listener: ListListener) -> Callable[[], None]:
        """Tell somebody from now on. Returns how to stop that."""
        key = object()
        self.listeners[key] = listener

        def stop() -> None:
            self.listeners.pop(key, None)
            self._before.pop(key, None)

        return stop

    def changed(self, before: Mapping[object, Visible]) -> None:
        """These see something else than before. They are told when all is quiet."""
        if not before:
            return
        first = not self._before
        self._before = {**before, **self._before}
        if QUIET > 0:
            self._wait(self._clock.steady(), first=first)
        else:
            self.tell()

    def _wait(self, now: float, *, first: bool) -> None:
        if first:
            self._since = now
        self._cancel()
        self._timer = self._clock.later(max(0.0, min(QUIET, self._since + LONGEST - now)), self.tell)

    def tell(self) -> None:
        """Tell all that is to be told, now. What is again as it was is no news."""
        self._cancel()
        due, self._before = self._before, {}
        for key, before in due.items():
            listener = self.listeners.get(key)
            if listener is None:
                continue
            kinds = self._sees(listener).changes_since(before, stateless=listener.stateless)
            if kinds:
                listener.changed(kinds)

    def close(self) -> None:
        """Nobody is told anything any more."""
        self._cancel()
        self._before = {}

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
