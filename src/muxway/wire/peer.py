"""Request ids, progress tokens and cancellations of one JSON-RPC connection.

Knows nothing of sockets, time or MCP methods: the owner of a Peer does the reading,
the writing and the waiting. Both sides of the gateway use it. The id we mint is also
the progress token, so one table serves both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msgspec import Raw

_LONGEST: Final = 20
_LONGEST_QUOTED: Final = 4 * _LONGEST

Ours = TypeVar("Ours")
Theirs = TypeVar("Theirs")


class Peer(Generic[Ours, Theirs]):
    """What is open on one connection: requests we made (`ours`) and requests they made (`theirs`).

    `theirs` is keyed by the id's JSON text (`envelopes.read_id`), so `1` and `"1"` are two requests.
    """

    __slots__ = ("_last", "dropped", "ours", "theirs")

    def __init__(self, last: int = 0) -> None:
        """Begin; our ids count up from what follows `last`."""
        self._last = last
        self.ours: dict[int, Ours] = {}
        self.theirs: dict[bytes, Theirs] = {}
        self.dropped = 0
        """Answers and notices for nothing that is open: late, repeated or invented. Counted, never an error."""

    def mint(self) -> int:
        """A fresh id, never used before on this connection."""
        self._last = id_ = self._last + 1
        return id_

    def take(self, id_: bytes) -> Ours | None:
        """Close the request of ours that this id answers; None (and counted) if none is open."""
        # Our ids are integers; what else may mean one of them is rare.
        pending = self.ours.pop(int(id_) if len(id_) < _LONGEST and id_.isdigit() else _integer(id_), None)
        if pending is None:
            self.dropped += 1
        return pending

    def take_only(self) -> Ours | None:
        """Close the only open request of ours: whom an answer without an id concerns. None if there are more."""
        return self.ours.popitem()[1] if len(self.ours) == 1 else None

    def find(self, token: Raw | bytes | None) -> Ours | None:
        """The open request of ours that a progress token or id names; it stays open."""
        return None if token is None else self.ours.get(_integer(token))

    def named(self, frame: bytes) -> int | None:
        """The open request of ours whose id stands where ids stand in this beginning or end of a line."""
        id_ = envelopes.likely_id(frame)
        number = -1 if id_ is None else _integer(id_)
        return number if number in self.ours else None

    def meant(self, frame: bytes) -> int | None:
        """The one open request of ours whose id shows in an unreadable line, if there is just one."""
        if envelopes.likely_id(frame) is not None:
            return self.named(frame)
        shown = {number for number in map(_integer, envelopes.visible_ids(frame)) if number in self.ours}
        return shown.pop() if len(shown) == 1 else None

    def lost(self) -> Iterable[Ours]:
        """The connection is gone: every request of ours that will never be answered."""
        pending = list(self.ours.values())
        self.ours.clear()
        return pending


def _integer(raw: Raw | bytes) -> int:
    # A server that sends an id back as a string still means that one. -1 is never minted: it finds nothing.
    text = bytes(memoryview(raw)[:_LONGEST_QUOTED]).strip(b'"')
    return int(text) if text.isdigit() and len(text) < _LONGEST else -1
