"""What a client has yet to be told of changes: each thing once, however often it has happened meanwhile."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from muxway.clients import notifications

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from muxway.wire.envelopes import Buffer

_ENOUGH: Final = 64 * 1024
"""Bytes that wait for a client above which it gets no more news before it has read some."""
_PAUSE: Final = 0.1


class Unsent:
    """The news for one session, or for one stream of a stateless client.

    A client that reads gets them at once. For one that is slow they wait here and not in its stream, so that no more
    of them can be waiting than there are lists and subscriptions.
    """

    __slots__ = ("_backlog", "_kinds", "_opened", "_say", "_subscription", "_timer", "_updates")

    def __init__(
        self,
        say: Callable[[Sequence[Buffer]], None],
        backlog: Callable[[], float],
        subscription: bytes | None = None,
    ) -> None:
        """Prepare; nothing is said before `open`.

        Args:
            say: writes a notice.
            backlog: how many bytes wait to be read by the client; infinite while there is nowhere to write to, in
                which case `flush` must be called once there is.
            subscription: the id that all notices carry.
        """
        self._say = say
        self._backlog = backlog
        self._subscription = subscription
        self._opened = False
        self._kinds: dict[str, None] = {}
        self._updates: dict[str, str] = {}
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """The client may be told from now on."""
        self._opened = True
        self.flush()

    def close(self) -> None:
        """The client is to be told nothing more."""
        self._opened = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def lists_changed(self, kinds: Iterable[str]) -> None:
        """The lists of these kinds have changed."""
        self._kinds.update(dict.fromkeys(kinds))
        self.flush()

    def updated(self, subscribed: str, uri: str) -> None:
        """A resource that was subscribed to has changed, or `uri`, which is a part of it."""
        known = self._updates.get(subscribed, uri)
        # If several parts of it wait to be told of, the whole has changed.
        self._updates[subscribed] = uri if known == uri else subscribed
        self.flush()

    def forget(self, subscribed: str) -> None:
        """The client does not want to hear of this any more."""
        self._updates.pop(subscribed, None)

    def flush(self) -> None:
        """Tell what there is to tell, as far as the client keeps up."""
        while self._opened and (self._kinds or self._updates):
            backlog = self._backlog()
            if backlog > _ENOUGH:
                if backlog < math.inf and self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(_PAUSE, self._look_again)
                return
            if self._kinds:
                kind = next(iter(self._kinds))
                del self._kinds[kind]
                self._say(notifications.list_changed(kind, self._subscription))
            else:
                self._say(notifications.updated(self._updates.pop(next(iter(self._updates))), self._subscription))

    def _look_again(self) -> None:
        self._timer = None
        self.flush()
