"""A session that opens before the gateway's only server has said what it is.

What a session is told of instructions and capabilities it is told once. Of a transparent server that is the server's
own, which is known a moment later: without a gateway the client would wait for it, too. So the answer to a handshake
waits, but never for long: a server that hangs must not keep its client from connecting. Nor does it wait for a server
that asks its client something first, which cannot be asked before it has its answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muxway.calls.incidents import attempt
from muxway.calls.ports import later

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.backend import Held
    from muxway.errors import RpcError

LONGEST: Final = 5.0
"""Seconds after which a session is told what is known by then."""


class Meeting:
    """One answer that waits. Implements `calls.backend.Held` and `calls.ports.Running`."""

    def __init__(
        self,
        queue: Callable[[], dict[Held, None] | None],
        tell: Callable[[], None],
        failed: Callable[[RpcError], None],
    ) -> None:
        """Begin to wait; perhaps it is over at once.

        Args:
            queue: where to wait, asked again after each wait; None: all is known.
            tell: called once, when it is.
            failed: takes what went wrong with that.
        """
        self._queue, self._tell, self._failed = queue, tell, failed
        self._over = False
        self._waits_in: dict[Held, None] = {}
        self._timer = later(LONGEST, self.end)
        self.release()

    def release(self) -> None:
        """Something has become known."""
        if self._over:
            return
        queue = self._queue()
        if queue is None:
            self.end()
        else:
            self._waits_in = queue
            queue[self] = None

    def cancel(self, reason: str | None) -> None:
        """The client is gone."""
        del reason
        self._over = True
        self._timer.cancel()
        self._waits_in.pop(self, None)

    def end(self) -> None:
        """Tell what is known by now."""
        if not self._over:
            self.cancel(None)
            attempt(self._failed, self._tell)
