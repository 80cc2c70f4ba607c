"""The states of a slot, the place of one connection to a server: the only table of them.

Whether a server is being started is known here and nowhere else. Whoever wants to know asks the slot; whoever wants to
change something tells it what has happened.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class Status(StrEnum):
    """What a server is doing, as its owner sees it."""

    INITIALIZING = "initializing"
    """Being started, greeted and asked for its tools."""
    RUNNING = "running"
    """Its tools are in the catalog."""
    RESTARTING = "restarting"
    """It ended by itself after it had run, and is being started again, or will be in a moment. It stays listed."""
    SLEEPING = "sleeping"
    """Nobody needed it, or there was no room for it. It stays listed, and the next call starts it."""
    LOGIN_NEEDED = "login needed"
    """It wants to know who we are, and somebody has to log in. It stays listed, and that login starts it."""
    FAILED = "failed"
    """It could not be started, or ends again and again. It will be tried again, at ever longer intervals."""
    STOPPED = "stopped"
    """It was ended on purpose."""


class State(StrEnum):
    """What becomes of a slot's connection."""

    STARTING = "starting"
    """Being started, greeted and asked for its lists."""
    RUNNING = "running"
    """It takes calls."""
    LOST = "lost"
    """It ended by itself after it had run, and may be started again in a moment."""
    RESTARTING = "restarting"
    """The same, or one that had failed, while it is being started again."""
    SLEEPING = "sleeping"
    """Nobody needed it, or there was no room for it. The next call starts it."""
    LOGIN_NEEDED = "login needed"
    """Somebody has to log in before it can be started."""
    FAILED = "failed"
    """It could not be started, or ends again and again."""
    RENEWING = "renewing"
    """It is being ended to be started anew, because somebody said so."""
    STOPPED = "stopped"
    """It was ended on purpose, or has never been started."""

    @property
    def starting(self) -> bool:
        """Whether a start is under way; each ends, well or badly, within the time limit."""
        return self in _STARTING

    @property
    def status(self) -> Status:
        """What the server's owner is told."""
        return _STATUS[self]


class Event(StrEnum):
    """What happens to a slot."""

    STARTED = "started"
    READY = "ready"
    LOST = "lost"
    """It ended by itself, or could not be started."""
    LOOPED = "looped"
    """It ended by itself too often."""
    LOCKED_OUT = "locked out"
    """It does not let us in without a login."""
    LAID_DOWN = "laid down"
    RENEWED = "renewed"
    RETIRED = "retired"


_STARTING: Final = frozenset((State.STARTING, State.RESTARTING, State.RENEWING))
WAIT_FOR_LOGIN: Final = frozenset((State.LOGIN_NEEDED, State.FAILED))
"""The states that a login may end: not every server says that it wants one."""
_STATUS: Final = {
    State.STARTING: Status.INITIALIZING,
    State.RUNNING: Status.RUNNING,
    State.LOST: Status.RESTARTING,
    State.RESTARTING: Status.RESTARTING,
    State.SLEEPING: Status.SLEEPING,
    State.LOGIN_NEEDED: Status.LOGIN_NEEDED,
    State.FAILED: Status.FAILED,
    State.RENEWING: Status.STOPPED,
    State.STOPPED: Status.STOPPED,
}

TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.STARTING, Event.READY): State.RUNNING,
    (State.STARTING, Event.LOST): State.FAILED,
    (State.STARTING, Event.LOOPED): State.FAILED,
    (State.STARTING, Event.LAID_DOWN): State.SLEEPING,
    (State.STARTING, Event.LOCKED_OUT): State.LOGIN_NEEDED,
    (State.RUNNING, Event.LOST): State.LOST,
    (State.RUNNING, Event.LOOPED): State.FAILED,
    (State.RUNNING, Event.LAID_DOWN): State.SLEEPING,
    (State.LOST, Event.STARTED): State.RESTARTING,
    (State.RESTARTING, Event.READY): State.RUNNING,
    (State.RESTARTING, Event.LOST): State.FAILED,
    (State.RESTARTING, Event.LOOPED): State.FAILED,
    (State.RESTARTING, Event.LAID_DOWN): State.SLEEPING,
    (State.RESTARTING, Event.LOCKED_OUT): State.LOGIN_NEEDED,
    (State.SLEEPING, Event.STARTED): State.STARTING,
    (State.LOGIN_NEEDED, Event.STARTED): State.STARTING,
    (State.FAILED, Event.STARTED): State.RESTARTING,
    (State.RENEWING, Event.STARTED): State.STARTING,
    (State.STOPPED, Event.STARTED): State.STARTING,
    (State.STOPPED, Event.LAID_DOWN): State.SLEEPING,
    # Whatever it does, it can be ended; and started anew, unless it was ended for good.
    **{(state, Event.RETIRED): State.STOPPED for state in State},
    **{(state, Event.RENEWED): State.RENEWING for state in State if state is not State.STOPPED},
}


def advance(state: State, event: Event) -> State:
    """The state after an event."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise AssertionError(f"a slot that is {state} cannot be {event}") from None


class SlotState:
    """The state of one slot: since when, why, and when it is tried again. Times are those of the caller's clock."""

    __slots__ = ("_settled", "began", "now", "ready_at", "reason", "restarts", "retry_at", "took")

    def __init__(self) -> None:
        self.now = State.STOPPED
        self.reason: str | None = None
        """Why it is as it is, if something is wrong."""
        self.retry_at: float | None = None
        """When it may be tried again; None if it runs, is being started, or stays as it is."""
        self.began = 0.0
        """When it was last started."""
        self.took: float | None = None
        """Seconds from then until it was ready or had failed."""
        self.ready_at: float | None = None
        """When it was last ready; None while it is not."""
        self.restarts = 0
        """How often it was started again after it had ended by itself."""
        self._settled = asyncio.Event()
        self._settled.set()

    def meet(self, event: Event, at: float, *, reason: str | None = None, retry_at: float | None = None) -> None:
        """Something has happened; for what has gone wrong, why, and when it may be tried again."""
        before, self.now = self.now, advance(self.now, event)
        self.retry_at = retry_at
        self.ready_at = at if event is Event.READY else None
        if event is Event.STARTED:
            # What was wrong is shown until it is right.
            self.began, self.took = at, None
        else:
            self.reason = reason
        if before.starting and event not in (Event.STARTED, Event.RENEWED, Event.RETIRED):
            self.took = at - self.began
        if self.now.starting:
            self._settled.clear()
        else:
            self._settled.set()

    @property
    def starting(self) -> bool:
        """Whether a start is under way."""
        return self.now.starting

    @property
    def locked_out(self) -> str | None:
        """Why somebody has to log in before it can be started; None if nobody has to."""
        return self.reason if self.now is State.LOGIN_NEEDED else None

    async def settled(self) -> None:
        """Wait until no start is under way: it runs, or it does not."""
        await self._settled.wait()
