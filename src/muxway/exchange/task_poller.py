"""Calls that an upstream runs as tasks, for callers who know none: to them each is a call like any other.

How the two kinds of tasks go is told in `polled`; this is what the rest of the middle sees of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from muxway.exchange.polled_task import STATE, PolledTask, StatelessPolledTask
from muxway.wire import asking, envelopes

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.call import Call
    from muxway.calls.ports import LiveConnection, Running, Sink
    from muxway.errors import RpcError


def is_task_state(state: str | None) -> bool:
    """Whether the questions that came with this state are those of a task, so that it gets the answers."""
    return state is not None and state.startswith(STATE)


def wants_tasks(error: RpcError) -> bool:
    """Whether this is how a stateless upstream says that the call can only be run as a task."""
    data: object = error.data
    needed = cast("dict[str, Any]", data).get("requiredCapabilities") if isinstance(data, dict) else None
    extensions = cast("dict[str, Any]", needed).get("extensions") if isinstance(needed, dict) else None
    return isinstance(extensions, dict) and asking.TASKS_EXTENSION in extensions


class TaskPoller:
    """A link for one call that is run as a task. Implements `core.ports.Link`."""

    def __init__(self, upstream: str, link: LiveConnection) -> None:
        self.upstream = upstream
        self.link = link
        self.revision = link.revision
        self.label = link.label
        self.leases = link.leases
        self.own_process = link.own_process
        self.log_level = link.log_level
        self.on_created: Callable[[], None] | None = None
        """Called when the upstream has made a task of the call."""
        self._asking: PolledTask | None = None
        """What ended with questions, until it goes on with the answers."""

    def set_log_level(self, level: int) -> None:
        self.link.set_log_level(level)

    def check(self) -> None:
        self.link.check()

    def request(self, head: bytes, call: Call, sink: Sink, *, idle: float, limit: float) -> Running:
        """Send the call and see its task through; or go on with one that asked, when the call brings its state."""
        self._asking = None
        state = envelopes.text(call.params.get("requestState"))
        if not self.revision.stateless:
            polled = PolledTask(self, call, sink, idle, limit)
            polled.create(head)
            return polled
        polled = StatelessPolledTask(self, call, sink, idle, limit)
        if state is not None and is_task_state(state):
            polled.go_on(state)
        else:
            polled.create(head)
        return polled

    def left_asking(self, polled: PolledTask) -> None:
        """The task wants answers before it goes on."""
        self._asking = polled

    def abandon(self) -> None:
        """There will be no answers."""
        polled, self._asking = self._asking, None
        if polled is not None:
            polled.cancel_task()
