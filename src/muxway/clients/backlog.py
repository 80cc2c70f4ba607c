"""What a client has sent and has yet to be heard: in its order, and for a short while in each turn of the loop.

A read may bring hundreds of messages, a batch a hundred, and each may take as long as one message may: others have
their turn in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple, cast

from muxway.calls.incidents import internal
from muxway.calls.ports import in_turns, later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def _nobody_waits() -> None:
    pass


class Message(NamedTuple):
    """One message, or what is left of it."""

    hear: Callable[[], object]
    """Takes it, or gives the steps that this takes."""
    drop: Callable[[], object] = _nobody_waits
    """What is done instead, if its client goes before it is heard."""


class Backlog:
    """The messages of one client that wait."""

    __slots__ = ("_messages", "_on_heard", "behind")

    def __init__(self, on_heard: Callable[[], None]) -> None:
        """`on_heard` is called when none is left."""
        self.behind = False
        """Whether there are any, or one is being heard: whatever comes now has to wait behind them."""
        self._on_heard = on_heard
        self._messages: deque[Message] | None = None
        """None until one has to wait, which for most clients is never: an empty deque is not small."""

    def put(self, messages: Sequence[Message], *, first: bool = False, soon: bool = False) -> None:
        """Hear these after those that wait, or before them.

        Args:
            messages: what came.
            first: they are parts of the one that is being heard.
            soon: enough was done in this turn.
        """
        waiting = self._messages
        if waiting is None:
            waiting = self._messages = deque()
        if first:
            waiting.extendleft(reversed(messages))
        else:
            waiting.extend(messages)
        if not self.behind:
            self.behind = True
            if soon:
                later(0.0, in_turns, self._hearing())
            else:
                in_turns(self._hearing())

    def drop(self) -> None:
        """The client has gone."""
        gone, self._messages = self._messages, None
        for message in gone or ():
            message.drop()

    def _hearing(self) -> Iterator[None]:
        while self._messages:
            try:
                steps = self._messages.popleft().hear()
                if isinstance(steps, Generator):
                    yield from cast("Generator[None]", steps)
            except Exception as error:  # noqa: BLE001 - the next message has to be heard
                internal(error)
            yield
        self.behind = False
        self._on_heard()
