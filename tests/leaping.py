"""A clock that leaps to the next timer as soon as nothing else is to be done: `pytest.mark.leaping`.

For tests whose peers are all in this process: waiting takes no time, and a busy machine makes nobody late, since what
is due after 0.3 s comes before what is due after 0.4 s whatever happens. Such a clock would not wait for sockets or
other processes, so a test that has any of them fails.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import FileDescriptorLike

_BEGINS = 1000.0
"""Not at zero, which is how some write that something has never been."""


class LeapingLoop(asyncio.SelectorEventLoop):
    """An event loop in which nothing takes time but to wait."""

    def __init__(self) -> None:
        self._selector_that_leaps = _Selector()
        super().__init__(self._selector_that_leaps)
        self._selector_that_leaps.complete = True

    def time(self) -> float:
        return self._selector_that_leaps.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Run it at once, in this thread: no time passes while a thread works."""
        outcome = self.create_future()
        try:
            outcome.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whoever waits for it gets it
            outcome.set_exception(error)
        return outcome


class _Selector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = _BEGINS
        self.complete = False
        """Whether the loop has the pipe by which it is woken, and wants nothing else."""

    def register(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        if self.complete:
            raise RuntimeError("a clock that leaps does not wait for a socket or a pipe")
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self.now += timeout
        return ready
