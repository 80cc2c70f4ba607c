"""The handshake sessions that are open now, for what a server says to nobody in particular."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.core.only_client import OnlyClient
    from muxway.protocol.messages import Buffer

_MOST_PAGES: Final = 1000
"""Visits to web pages that may be open at once; the oldest is forgotten."""


class Audience:
    """Who could hear something that belongs to no call."""

    def __init__(self) -> None:
        self.only: OnlyClient | None = None
        """The client, if there is never another one."""
        self.on_roots_changed: Callable[[object], None] | None = None
        """Called with the session whose client works on other folders now."""
        self.dropped = 0
        """Log messages that nobody got, because it could not be told whose they were."""
        self._log: dict[object, Callable[[dict[str, Buffer]], None]] = {}
        self._pages: dict[str, Callable[[str], None]] = {}

    def join(self, log: Callable[[dict[str, Buffer]], None]) -> Callable[[], None]:
        """A session is open; `log` takes log messages. Returns how to leave."""
        key = object()
        self._log[key] = log
        return lambda: self._log.pop(key, None) and None

    def sent_to_page(self, id_: str, tell: Callable[[str], None]) -> None:
        """A client was sent to a web page by the elicitation with this id; `tell` takes it that the visit is over."""
        if len(self._pages) >= _MOST_PAGES:
            del self._pages[next(iter(self._pages))]
        self._pages[id_] = tell

    def page_done(self, id_: str) -> None:
        """A server says that such a visit is over: told to the client that was sent there, and to nobody else."""
        tell = self._pages.pop(id_, None)
        if tell is not None:
            tell(id_)

    def roots_changed(self, party: object) -> None:
        """The client of this session works on other folders now."""
        if self.on_roots_changed is not None:
            self.on_roots_changed(party)

    def log(self, params: dict[str, Buffer]) -> None:
        """A server logs something that belongs to no call."""
        if len(self._log) == 1:
            # With others in the room it might be about what one of them did, which is not the next one's business.
            next(iter(self._log.values()))(params)
        else:
            self.dropped += 1
