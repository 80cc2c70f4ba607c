"""The states of an upstream. Everything that changes state asks this table."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Status(StrEnum):
    """What an upstream is doing, as its owner sees it."""

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


class Event(StrEnum):
    """What happens to an upstream."""

    STARTED = "started"
    READY = "ready"
    LOST = "lost"
    """It ended by itself, or could not be started."""
    LOOPED = "looped"
    """It ended by itself too often."""
    LOCKED_OUT = "locked out"
    """It does not let us in without a login."""
    LAID_DOWN = "laid down"
    RETIRED = "retired"


TRANSITIONS: Mapping[tuple[Status, Event], Status] = {
    (Status.INITIALIZING, Event.READY): Status.RUNNING,
    (Status.INITIALIZING, Event.LOST): Status.FAILED,
    (Status.INITIALIZING, Event.LOOPED): Status.FAILED,
    (Status.INITIALIZING, Event.LAID_DOWN): Status.SLEEPING,
    (Status.INITIALIZING, Event.LOCKED_OUT): Status.LOGIN_NEEDED,
    (Status.INITIALIZING, Event.RETIRED): Status.STOPPED,
    (Status.RUNNING, Event.LOST): Status.RESTARTING,
    (Status.RUNNING, Event.LOOPED): Status.FAILED,
    (Status.RUNNING, Event.LAID_DOWN): Status.SLEEPING,
    (Status.RUNNING, Event.LOCKED_OUT): Status.LOGIN_NEEDED,
    (Status.RUNNING, Event.RETIRED): Status.STOPPED,
    (Status.RESTARTING, Event.STARTED): Status.RESTARTING,
    (Status.RESTARTING, Event.READY): Status.RUNNING,
    (Status.RESTARTING, Event.LOST): Status.FAILED,
    (Status.RESTARTING, Event.LOOPED): Status.FAILED,
    (Status.RESTARTING, Event.LAID_DOWN): Status.SLEEPING,
    (Status.RESTARTING, Event.LOCKED_OUT): Status.LOGIN_NEEDED,
    (Status.RESTARTING, Event.RETIRED): Status.STOPPED,
    (Status.SLEEPING, Event.STARTED): Status.INITIALIZING,
    (Status.SLEEPING, Event.RETIRED): Status.STOPPED,
    (Status.LOGIN_NEEDED, Event.STARTED): Status.INITIALIZING,
    (Status.LOGIN_NEEDED, Event.RETIRED): Status.STOPPED,
    (Status.FAILED, Event.STARTED): Status.RESTARTING,
    (Status.FAILED, Event.RETIRED): Status.STOPPED,
    (Status.STOPPED, Event.STARTED): Status.INITIALIZING,
    (Status.STOPPED, Event.LAID_DOWN): Status.SLEEPING,
    (Status.STOPPED, Event.RETIRED): Status.STOPPED,
}


def advance(status: Status, event: Event) -> Status:
    """The status after an event."""
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        raise AssertionError(f"an upstream that is {status} cannot be {event}") from None
