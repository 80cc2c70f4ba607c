"""Lists before those in force, in which a client may still turn pages: half way it goes on where it began.

Of lists that a class of callers shares the last ones are kept, whoever reads them. Of those that are for one user alone
there are too many for that: only what a client of that user was given the first page of.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from muxway.calls.identity import Owner
    from muxway.catalog.kinds import Kind
    from muxway.routing.listings import Listing
    from muxway.routing.snapshot import ClassKey, Visible

_LISTS: Final = 8
"""Lists of one class of callers, era and kind."""
_MOST: Final = 4096
"""Views, classes of callers, eras and kinds of which such lists are kept."""
_LISTS_OF_USER: Final = 2
_MOST_OF_USERS: Final = 256

_Of = tuple["Owner | None", "ClassKey", bool, "Kind"]
"""Whose, for which class of callers, for which era, of what."""


class HalfRead:
    """The lists of a gateway that somebody may be half way through."""

    def __init__(self) -> None:
        self._shared: dict[_Of, deque[Listing]] = {}
        self._of_users: dict[_Of, deque[Listing]] = {}

    def earlier(self, view: str | None, visible: Visible, kind: Kind, *, stateless: bool) -> Iterable[Listing]:
        """The lists that callers who see this now may have begun with."""
        kept = self._shared if visible.owner is None else self._of_users
        return kept.get((visible.owner, visible.class_in(view), stateless, kind), ())

    def begun(self, view: str | None, visible: Visible, listing: Listing, *, stateless: bool) -> None:
        """Somebody gets the first page of a list."""
        if visible.owner is None or listing.size is None or len(listing.pages) <= listing.size:
            return
        key = (visible.owner, visible.class_in(view), stateless, listing.kind)
        known = self._of_users.pop(key, None) or deque(maxlen=_LISTS_OF_USER)
        if not any(one.pages is listing.pages for one in known):
            known.append(listing)
        # Who has come last is the last to go.
        self._of_users[key] = known
        if len(self._of_users) > _MOST_OF_USERS:
            del self._of_users[next(iter(self._of_users))]

    def replaced(self, view: str | None, before: Visible, now: Visible | None) -> None:
        """Another list is in force for those who share one; None: it is not known yet."""
        for stateless in (False, True):
            for kind, listing in before.lists[stateless].items():
                new = None if now is None else now.lists[stateless][kind]
                key = (None, before.class_in(view), stateless, kind)
                size = listing.size if new is None else new.size
                if size != listing.size:
                    # Nobody can turn pages of another size.
                    self._shared.pop(key, None)
                elif size is not None and (new is None or new.pages is not listing.pages):
                    self._shared.setdefault(key, deque(maxlen=_LISTS)).append(listing)
                    if len(self._shared) > _MOST:
                        del self._shared[next(iter(self._shared))]

    def forget(self, view: str) -> None:
        """A view is gone."""
        for kept in (self._shared, self._of_users):
            for key in [key for key in kept if key[1][0] == view]:
                del kept[key]
