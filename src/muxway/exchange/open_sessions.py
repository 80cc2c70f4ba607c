"""The handshake sessions that are open now, for what a server says to nobody in particular."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from muxway.exchange.logins import Logins

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.call import Caller
    from muxway.exchange.only_client import OnlyClient
    from muxway.wire.envelopes import Buffer

NOBODY: Final = object()
"""The user of a connection over which nobody has called yet."""
SEVERAL: Final = object()
"""The user of a connection that several have used, or somebody who cannot be told from others."""
_MOST_PAGES: Final = 1000
"""Visits to web pages that may be open at once; the oldest is forgotten."""


def user_after(user: object, caller: Caller) -> object:
    """Who uses a connection, as far as one can be named: its user until now, and this caller."""
    who = caller.principal or caller.party
    if who is None:
        return SEVERAL
    return who if user is NOBODY or user == who else SEVERAL


class Listener(NamedTuple):
    """A session that is open."""

    principal: bytes
    party: object
    sees: Callable[[str], bool]
    """Whether its view has a server."""
    log: Callable[[str, dict[str, Buffer]], None]
    """Takes a log message of a server."""


class OpenSessions:
    """Who could hear something that belongs to no call."""

    def __init__(self) -> None:
        self.only: OnlyClient | None = None
        """The client, if there is never another one."""
        self.on_session: Callable[[], None] | None = None
        """Called when a session is opened."""
        self.on_roots_changed: Callable[[object], None] | None = None
        """Called with the session whose client works on other folders now."""
        self.logins = Logins()
        self.dropped = 0
        """Log messages that nobody got, because it could not be told whose they were."""
        self._sessions: dict[object, Listener] = {}
        self._pages: dict[tuple[object, str], Callable[[str], None]] = {}

    def join(self, session: Listener) -> Callable[[], None]:
        """A session is open. Returns how to leave."""
        key = object()
        self._sessions[key] = session
        if self.on_session is not None:
            self.on_session()
        return lambda: self._sessions.pop(key, None) and None

    def sent_to_page(self, connection: object, id_: str, tell: Callable[[str], None]) -> None:
        """A client was sent to a web page by the elicitation with this id; `tell` takes it that the visit is over."""
        if len(self._pages) >= _MOST_PAGES:
            del self._pages[next(iter(self._pages))]
        self._pages[connection, id_] = tell

    def page_done(self, connection: object, id_: str) -> None:
        """A server says that such a visit is over: told to the client that was sent there, and to nobody else.

        Ids are a server's own, and its processes may count alike: they mean something on their connection only.
        """
        tell = self._pages.pop((connection, id_), None)
        if tell is not None:
            tell(id_)

    def roots_changed(self, party: object) -> None:
        """The client of this session works on other folders now."""
        if self.on_roots_changed is not None:
            self.on_roots_changed(party)

    def log(self, server: str, user: object, params: dict[str, Buffer]) -> None:
        """A server logs something that belongs to no call, on a connection that has this user.

        It may be about whatever was done over that connection, so it is for who did all of it. What comes before
        anybody called is for the only session there is, if nobody has credentials.
        """
        sessions = [session for session in self._sessions.values() if session.sees(server)]
        if user is NOBODY:
            sessions = sessions if len(self._sessions) == 1 and not any(one.principal for one in sessions) else []
        else:
            sessions = [session for session in sessions if (session.principal or session.party) == user]
        for session in sessions:
            session.log(server, params)
        self.dropped += not sessions
