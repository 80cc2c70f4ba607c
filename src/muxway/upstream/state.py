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
    FAILED = "failed"
    """It could not be started, or it ended by itself."""
    STOPPED = "stopped"
    """It was ended on purpose."""


class Event(StrEnum):
    """What happens to an upstream."""

    STARTED = "started"
    READY = "ready"
    LOST = "lost"
    RETIRED = "retired"


TRANSITIONS: Mapping[tuple[Status, Event], Status] = {
    (Status.INITIALIZING, Event.READY): Status.RUNNING,
    (Status.INITIALIZING, Event.LOST): Status.FAILED,
    (Status.INITIALIZING, Event.RETIRED): Status.STOPPED,
    (Status.RUNNING, Event.LOST): Status.FAILED,
    (Status.RUNNING, Event.RETIRED): Status.STOPPED,
    (Status.FAILED, Event.STARTED): Status.INITIALIZING,
    (Status.FAILED, Event.RETIRED): Status.STOPPED,
    (Status.STOPPED, Event.STARTED): Status.INITIALIZING,
    (Status.STOPPED, Event.RETIRED): Status.STOPPED,
}


def advance(status: Status, event: Event) -> Status:
    """The status after an event."""
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        raise AssertionError(f"an upstream that is {status} cannot be {event}") from None
