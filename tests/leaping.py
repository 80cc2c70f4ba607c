"""A clock that leaps to the next timer as soon as nothing else is to be done: `pytest.mark.leaping`.

For tests whose peers are all in this process: waiting takes no time, and a busy machine makes nobody late, since what
is due after 0.3 s comes before what is due after 0.4 s whatever happens. Such a clock would not wait for sockets,
other processes or threads, so a test that has any of them fails.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
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

    def run_in_executor(self, *_: Any) -> NoReturn:
        raise RuntimeError("a clock that leaps does not wait for a thread")


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
