"""Handshake sessions over HTTP: who is in one, what streams it has, and what was said on them lately.

A session belongs to whoever opened it: to everybody else it does not exist. Its streams outlive the
connections that carry them, so that a client can come back and read on; how much is kept for that is bounded.
"""

from __future__ import annotations

import itertools
import math
import secrets
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from muxway.clients.session import Session
from muxway.clients.transports.http_response import Outlet, message_event
from muxway.wire.revisions import NEWEST_HANDSHAKE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from muxway.calls.call import Forwarded
    from muxway.calls.identity import Identity
    from muxway.clients.transports.http_response import Parts
    from muxway.exchange.dispatcher import Dispatcher
    from muxway.wire.envelopes import Buffer

_MOST_EVENTS: Final = 256
_MOST_BYTES: Final = 4 * 1024 * 1024
_KEPT_SECONDS: Final = 300.0
"""How much of what was said on the streams of one session can be read again, and for how long."""
_RETRY_MS: Final = 1000
"""How long a client is told to wait before it comes back to a stream that broke off."""
_LEFT_BEHIND: Final = 60.0
"""Seconds of silence after which an owner with too many sessions may lose one: many clients just walk away."""
_LOOKED_AT: Final = 100
"""Sessions that are looked at, or ended, at once to make room for others."""
_LOOK_AGAIN: Final = 1.0


class Stream:
    """One event stream of a session. Outlives the connection that carries it."""

    __slots__ = ("_last", "_session", "ended", "events", "id", "outlet")

    def __init__(self, session: HttpSession) -> None:
        self.id = secrets.token_hex(6)
        self.events: deque[tuple[int, bytes | Parts]] = deque()
        self.outlet: Outlet | None = None
        """The connection that carries it now."""
        self.ended = False
        self._session = session
        self._last = 0

    def add(self, frame: Sequence[Buffer], *, last: bool) -> None:
        """Send a message, and keep it for whoever reads on."""
        message, lossy = message_event(frame, f"{self.id}-{self._last + 1}")
        self._put(message, lossy=lossy)
        if last:
            self.end()

    def end(self) -> None:
        """Nothing more comes."""
        self.ended = True
        if self.outlet is not None:
            self.outlet.end()

    def open(self, *, priming: bool) -> Outlet:
        """Give it its first connection. A priming event tells the client where to read on before anything is said."""
        outlet = self.outlet = Outlet()
        if priming:
            self._put(f"id: {self.id}-{self._last + 1}\nretry: {_RETRY_MS}\ndata: \n\n".encode())
        return outlet

    def read_on(self, after: int) -> Outlet:
        """Give it a new connection instead of the one it had, and repeat what came after that event."""
        if self.outlet is not None:
            self.outlet.end()
        outlet = self.outlet = Outlet()
        for number, frame in self.events:
            if number > after:
                outlet.put(frame)
        if self.ended:
            outlet.end()
        return outlet

    def _put(self, frame: bytes | Parts, *, lossy: bool = False) -> None:
        self._last += 1
        self._session.keep(self, self._last, frame)
        if self.outlet is not None:
            self.outlet.put(frame, lossy=lossy)


class HttpSession:
    """One client of a handshake revision."""

    __slots__ = (
        *("_bytes", "_kept", "_standalone", "_streams"),
        *("endpoint", "forwarded", "gone", "id", "identity", "owner", "patience", "used", "view"),
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        owner: bytes,
        principal: bytes,
        view: str | None = None,
        identity: Identity | None = None,
    ) -> None:
        self.id = secrets.token_urlsafe(24)
        self.owner = owner
        self.view = view
        self.identity = identity
        """What the credentials of its latest request say of its owner."""
        self.forwarded: Forwarded = ()
        """What servers get of that request."""
        self.patience = 0.0
        """Seconds without an answer after which an event stream is begun."""
        self.gone = False
        """Whether nobody finds it any more."""
        self.used = time.monotonic()
        """When the client last said something."""
        self._streams: dict[str, Stream] = {}
        self._standalone: Stream | None = None
        self._kept: deque[tuple[Stream, float, int]] | None = None
        self._bytes = 0
        self.endpoint = Session(dispatcher, self._say, principal, self._backlog, identity=identity)

    def identify(self, identity: Identity | None, forwarded: Forwarded) -> None:
        """Its owner has shown a newer token, which may say other things, or sends other headers on."""
        self.identity, self.forwarded = identity, forwarded
        self.endpoint.identify(identity, forwarded)

    @property
    def busy(self) -> bool:
        """Whether something is under way, or somebody listens."""
        return bool(self.endpoint.peer.theirs) or any(stream.outlet for stream in self._streams.values())

    @property
    def listening(self) -> bool:
        """Whether a connection carries the standalone stream."""
        return self._standalone is not None and self._standalone.outlet is not None

    def _say(self, frame: Sequence[Buffer]) -> None:
        """Say something that belongs to no request, if anybody listens."""
        if self._standalone is not None and self._standalone.outlet is not None:
            self._standalone.add(frame, last=False)

    def _backlog(self) -> float:
        outlet = None if self._standalone is None else self._standalone.outlet
        return math.inf if outlet is None else outlet.waiting

    def open_stream(self) -> tuple[Stream, Outlet]:
        """A stream for the answer to one request."""
        stream = Stream(self)
        self._streams[stream.id] = stream
        return stream, stream.open(priming=self.primes)

    def listen(self) -> Outlet:
        """Open the standalone stream."""
        stream = self._standalone
        if stream is not None:
            self._streams.pop(stream.id, None)
        self._standalone, outlet = self.open_stream()
        self.endpoint.unsent.flush()
        return outlet

    def read_on(self, last_event_id: str) -> Outlet | None:
        """Go on with a stream after this event; None if the session has no such stream."""
        id_, _, number = last_event_id.partition("-")
        stream = self._streams.get(id_)
        if stream is None or not (number.isascii() and number.isdigit() and len(number) < 16):
            return None
        outlet = stream.read_on(int(number))
        if stream is self._standalone:
            self.endpoint.unsent.flush()
        return outlet

    def left(self, outlet: Outlet) -> None:
        """A connection that carried a stream has ended."""
        for stream in list(self._streams.values()):
            if stream.outlet is outlet:
                stream.outlet = None
                self._tidy(stream)

    @property
    def primes(self) -> bool:
        """Whether its streams begin with an event that says where to read on."""
        # Earlier clients would try to read the empty data as JSON.
        session = self.endpoint.session
        return session is not None and session.revision is NEWEST_HANDSHAKE

    # --- what is kept -------------------------------------------------------------------------

    def keep(self, stream: Stream, number: int, frame: bytes | Parts) -> None:
        """Keep an event for a while; the oldest make room."""
        if self._kept is None:
            self._kept = deque()
        stream.events.append((number, frame))
        self._kept.append((stream, time.monotonic(), len(frame)))
        self._bytes += len(frame)
        while len(self._kept) > _MOST_EVENTS or self._bytes > _MOST_BYTES:
            self._forget(self._kept)

    def forget_old(self, now: float) -> None:
        """Drop what nobody will come back for."""
        while self._kept and self._kept[0][1] < now - _KEPT_SECONDS:
            self._forget(self._kept)

    def _forget(self, kept: deque[tuple[Stream, float, int]]) -> None:
        stream, _, size = kept.popleft()
        self._bytes -= size
        stream.events.popleft()
        self._tidy(stream)

    def _tidy(self, stream: Stream) -> None:
        if stream.ended and not stream.events and stream.outlet is None:
            self._streams.pop(stream.id, None)

    def close(self) -> None:
        """Cancel what runs and end every stream."""
        self.endpoint.abandon()
        for stream in self._streams.values():
            stream.end()


class HttpSessions:
    """All sessions of an HTTP transport."""

    def __init__(self, limit: int, limit_each: int, idle_seconds: float) -> None:
        self._limit, self._limit_each = limit, limit_each
        self._idle = idle_seconds
        self._all: dict[str, HttpSession] = {}
        self._of: Counter[bytes] = Counter()
        """How many each owner has."""
        self._uncalled: dict[str, HttpSession] = {}
        """Those that have made no call when last looked at, the oldest first."""
        self._looked = 0.0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[HttpSession]:
        return iter(list(self._all.values()))

    @property
    def full(self) -> bool:
        """Whether there may be no more, not even in the place of one that nobody would miss."""
        return len(self._all) >= self._limit and not (self._end_uncalled() or self._end_left())

    def _end_uncalled(self) -> bool:
        """End the oldest that never made a call and does nothing: whoever opens many sessions fills its own places."""
        for id_ in list(itertools.islice(self._uncalled, _LOOKED_AT)):
            session = self._uncalled.pop(id_)
            if session.busy and not session.endpoint.called:
                # It may be idle later. To the end, so that the next look finds others.
                self._uncalled[id_] = session
            elif not session.endpoint.called:
                self.end(session)
                return True
        return False

    def _end_left(self) -> bool:
        """End the one whose client has been silent for the longest time, if that is long. All are looked at: seldom."""
        now = time.monotonic()
        if now - self._looked < _LOOK_AGAIN:
            return False
        self._looked = now
        self.sweep()
        idle = [one for one in self._all.values() if one.used < now - _LEFT_BEHIND and not one.busy]
        for session in sorted(idle, key=lambda one: one.used)[:_LOOKED_AT]:
            self.end(session)
        return len(self._all) < self._limit

    def crowded_by(self, owner: bytes) -> bool:
        """Whether this owner may have no more. Never true of callers without credentials: these may be anybody."""
        if not owner or self._of[owner] < self._limit_each:
            return False
        before = time.monotonic() - _LEFT_BEHIND
        left = [
            session
            for session in self._all.values()
            if session.owner == owner and session.used < before and not session.busy
        ]
        if not left:
            return True
        self.end(min(left, key=lambda session: session.used))
        return False

    def add(self, session: HttpSession) -> None:
        """Make a session known."""
        self._all[session.id] = self._uncalled[session.id] = session
        self._of[session.owner] += 1

    def find(self, id_: str, owner: bytes, view: str | None) -> HttpSession | None:
        """The session with this id, if it is this owner's and of this view. Counts as a sign of life."""
        session = self._all.get(id_)
        if session is None or session.owner != owner or session.view != view:
            return None
        session.used = time.monotonic()
        return session

    def end(self, session: HttpSession) -> None:
        """End a session."""
        self.forget(session)
        session.close()

    def forget(self, session: HttpSession) -> None:
        """Nobody finds this session any more."""
        session.gone = True
        self._uncalled.pop(session.id, None)
        if self._all.pop(session.id, None) is not None:
            self._of[session.owner] -= 1
            if not self._of[session.owner]:
                del self._of[session.owner]

    def sweep(self) -> None:
        """End the sessions that nobody uses any more."""
        now = time.monotonic()
        for session in list(self._all.values()):
            session.forget_old(now)
            if session.used < now - self._idle:
                if session.busy:
                    session.used = now
                else:
                    self.end(session)
