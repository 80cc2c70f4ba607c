"""The handshake sessions that are open now, for what a server says to nobody in particular."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.protocol.messages import Buffer


class Audience:
    """Who could hear something that belongs to no call."""

    def __init__(self) -> None:
        self.dropped = 0
        """Log messages that nobody got, because it could not be told whose they were."""
        self._log: dict[object, Callable[[dict[str, Buffer]], None]] = {}

    def join(self, log: Callable[[dict[str, Buffer]], None]) -> Callable[[], None]:
        """A session is open; `log` takes log messages. Returns how to leave."""
        key = object()
        self._log[key] = log
        return lambda: self._log.pop(key, None) and None

    def log(self, params: dict[str, Buffer]) -> None:
        """A server logs something that belongs to no call."""
        if len(self._log) == 1:
            # With others in the room it might be about what one of them did, which is not the next one's business.
            next(iter(self._log.values()))(params)
        else:
            self.dropped += 1
