"""When clients are told that a list has changed: after a quiet while, once for all that changed meanwhile.

Each notice makes a client list again, and what then differs costs its model the cached prompt. Servers change their
lists in steps, and several at a time; what is new can be called at once, whether or not anybody has been told.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from muxway.calls.call import Caller
    from muxway.calls.identity import Identity
    from muxway.calls.ports import Clock, Timer
    from muxway.routing.snapshot import Looking, Visible

Who: TypeAlias = "tuple[str | None, Identity | None, str]"
"""A view, and what decides in it what a caller sees: who it is, and the profile of its client."""
Changes: TypeAlias = "Mapping[bool, frozenset[str]]"
"""For callers with a handshake (False), and for stateless ones (True): which lists they see otherwise."""

QUIET: Final = 2.0
"""Seconds without a further change after which sessions are told."""
QUIET_STREAM: Final = 0.5
"""The same for streams of changes (`subscriptions/listen`): who opens one waits for little else."""
LONGEST: Final = 10.0
"""Seconds after the first change after which they are told in any case."""


class ListListener(NamedTuple):
    """Somebody who wants to hear of changes of lists."""

    view: str | None
    changed: Callable[[frozenset[str]], None]
    who: Callable[[], Caller | None]
    stateless: bool

    @property
    def caller(self) -> Who:
        """Its view, and what decides in it what it sees."""
        caller = self.who()
        return (self.view, None, "") if caller is None else (self.view, caller.identity, caller.client)


class ChangeNotices:
    """What those who listen have yet to be told."""

    def __init__(
        self, clock: Clock, compare: Callable[[Visible | Looking, Who, Callable[[Changes], None]], None]
    ) -> None:
        """Nothing yet.

        Args:
            clock: what time it is.
            compare: tells, at once or later, what a caller sees otherwise now than it saw; not at all, if something
                else changes before that is known.
        """
        self._clock = clock
        self._compare = compare
        self.listeners: dict[object, ListListener] = {}
        """All who listen."""
        self._before: dict[object, Visible | Looking] = {}
        """What those saw who are to be told, when they were last told, or first listened."""
        self._compared: dict[object, Visible | Looking] = {}
        """The same of those of whom it is being found out whether there is something to tell."""
        self._known: dict[object, frozenset[str]] = {}
        """What others are to be told, of whom it is known without a comparison."""
        self._since: dict[bool, float] = {}
        """When the first change came of which sessions (False) or streams (True) have not been told."""
        self._timers: dict[bool, Timer] = {}

    def listen(self, listener: ListListener) -> Callable[[], None]:
        """Tell somebody from now on. Returns how to stop that."""
        key = object()
        self.listeners[key] = listener

        def stop() -> None:
            for known in (self.listeners, self._before, self._compared, self._known):
                known.pop(key, None)

        return stop

    def is_open(self, key: object) -> bool:
        """Whether it is being found out what somebody sees otherwise: a further change begins that anew."""
        return key in self._compared

    def changed(self, before: Mapping[object, Visible | Looking]) -> None:
        """These may see something else than before. They are told when all is quiet."""
        if not before:
            return
        again = {key: self._compared.pop(key) for key in before if key in self._compared}
        self._before = {**before, **again, **self._before}
        self._gather(before)

    def changed_for(self, kinds: Mapping[object, frozenset[str]]) -> None:
        """These see other lists of these kinds now. They are told when all is quiet."""
        news = {key: some | self._known.get(key, frozenset()) for key, some in kinds.items() if some}
        self._known.update(news)
        self._gather(news)

    def _gather(self, news: Collection[object]) -> None:
        for stateless in {listener.stateless for key in news if (listener := self.listeners.get(key)) is not None}:
            quiet = QUIET_STREAM if stateless else QUIET
            if quiet <= 0:
                self.tell(stateless)
                continue
            now = self._clock.steady()
            since = self._since.setdefault(stateless, now)
            self._cancel(stateless)
            wait = max(0.0, min(quiet, since + LONGEST - now))
            self._timers[stateless] = self._clock.later(wait, self.tell, stateless)

    def tell(self, stateless: bool | None = None) -> None:
        """Tell all that is to be told, now: sessions, or streams, or both. What is again as it was is no news."""
        for era in (False, True) if stateless is None else (stateless,):
            self._tell(era)

    def _tell(self, stateless: bool) -> None:
        self._cancel(stateless)
        self._since.pop(stateless, None)
        alike: dict[tuple[Visible | Looking, Who], list[object]] = {}
        for key, listener in list(self.listeners.items()):
            if listener.stateless is not stateless:
                continue
            if kinds := self._known.pop(key, None):
                listener.changed(kinds)
            if (before := self._before.pop(key, None)) is not None:
                self._compared[key] = before
                alike.setdefault((before, listener.caller), []).append(key)
        for (before, who), keys in alike.items():
            self._compare(before, who, partial(self._told, keys))

    def _told(self, keys: Sequence[object], changes: Changes) -> None:
        for key in keys:
            listener = self.listeners.get(key)
            # One that has gone on to something else, or has left, is not told of this.
            if self._compared.pop(key, None) is not None and listener is not None and changes[listener.stateless]:
                listener.changed(changes[listener.stateless])

    def close(self) -> None:
        """Nobody is told anything any more."""
        for stateless in (False, True):
            self._cancel(stateless)
        self._before, self._compared, self._known = {}, {}, {}

    def _cancel(self, stateless: bool) -> None:
        timer = self._timers.pop(stateless, None)
        if timer is not None:
            timer.cancel()
