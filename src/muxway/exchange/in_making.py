"""What takes long to make of a snapshot: it is made beside the event loop, and only those who need it wait."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from muxway.calls.backend import WaitingCalls
from muxway.calls.incidents import internal
from muxway.calls.ports import aside

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.identity import Identity, Owner
    from muxway.routing.snapshot import Classes, ClassKey, Snapshot


class InMaking:
    """What is being made of one snapshot. When that is replaced, whoever waits finds the next one."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._classes: dict[tuple[Owner | None, ClassKey], WaitingCalls | None] = {}
        """What classes of callers see; None: it could not be made, beside the loop."""
        self._owners: dict[Owner, WaitingCalls] = {}
        """The lists of users that have their own."""

    def of(self, view: str | None, identity: Identity | None, client: str = "") -> WaitingCalls | None:
        """Where requests wait until what their class of callers sees has been made; None: they need not."""
        snapshot = self._snapshot
        if snapshot.known(view, identity, client) is not None:
            return None
        if identity is not None and not snapshot.has_own(identity):
            return self._of_owner(identity.owner)
        key = snapshot.settings.class_of(view, identity, client)
        if key is None:
            return None
        of_class = (None if identity is None or not snapshot.own_lists.servers else identity.owner, key)
        if of_class not in self._classes:
            self._classes[of_class] = waiting = WaitingCalls()
            own = snapshot.of(identity)
            aside(own.making(key), partial(self._made, own, of_class, waiting))
        return self._classes[of_class]

    def _made(
        self,
        snapshot: Snapshot,
        of_class: tuple[Owner | None, ClassKey],
        waiting: WaitingCalls,
        outcome: Callable[[], Classes],
    ) -> None:
        try:
            snapshot.keep(outcome())
            del self._classes[of_class]
        except Exception as error:  # noqa: BLE001 - those who wait must go on
            internal(error)
            # Whoever asks makes it on its own, and is told what goes wrong.
            self._classes[of_class] = None
        waiting.release()

    def _of_owner(self, owner: Owner) -> WaitingCalls:
        waiting = self._owners.get(owner)
        if waiting is None:
            waiting = self._owners[owner] = WaitingCalls()
            aside(self._snapshot.making_own(owner), partial(self._owner_made, owner, waiting))
        return waiting

    def _owner_made(self, owner: Owner, waiting: WaitingCalls, outcome: Callable[[], Snapshot]) -> None:
        try:
            self._snapshot.keep_own(owner, outcome())
        except Exception as error:  # noqa: BLE001 - those who wait must go on
            internal(error)
        del self._owners[owner]
        waiting.release()
