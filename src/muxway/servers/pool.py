"""Several connections to one server: one for each era, or for each caller that must not share it with others.

The first connection, the server's `Upstream`, lists what the server has and serves everybody whom nothing keeps
apart. The others are opened when a call first needs them and ended when nobody has needed them for a while, or when
their client has gone. Which calls are kept apart:

- by era: a server that speaks both is used in its caller's, because it may list, log, ask and err otherwise there;
- by `isolation`: `principal` keeps callers with different credentials apart, `session` every client session.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from muxway.calls.ports import Client
from muxway.errors import UpstreamError
from muxway.exchange.relay import Member, StillStarting
from muxway.log import EventLog
from muxway.servers.state import Status
from muxway.servers.supervision import Restarts
from muxway.wire import asking

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from muxway.calls.call import Call, Caller
    from muxway.config.model import Isolation
    from muxway.servers.connection import Connection
    from muxway.servers.instance import Upstream
    from muxway.servers.negotiation import Era

_SWEEP: Final = 15.0
_MOST_EACH: Final = 4
"""Connections of one owner to a server: one for each kind of capabilities, of which a client has one."""
_TRY_AGAIN: Final = 60.0
"""Seconds before a server that did not take a handshake is asked for one again."""

log = EventLog("upstream")


class _Key(NamedTuple):
    """What the calls of one lane have in common."""

    era: Era
    owner: Hashable = None
    """The principal or the session it is for; None for everybody."""
    capabilities: str = ""
    """What its callers can do, which a handshake tells once for the whole session; only what servers heed."""


@dataclass(slots=True)
class _Slot:
    upstream: Upstream
    member: Member
    used: float
    """When a call last went over it."""
    principal: bytes
    """Whose credentials it was opened with."""

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost with it."""
        link = self.upstream.link
        return not self.member.starting and (link is None or not (link.peer.ours or link.called))


@dataclass(slots=True)
class _Record:
    """How it went with the connections of one lane, which come and go."""

    history: Restarts
    retry_at: float = 0.0
    """When the next one may be opened."""


class Pool:
    """The connections to one server beside its first."""

    def __init__(
        self,
        first: Upstream,
        open_lane: Callable[[Callable[[Upstream], None], Era, Mapping[str, Any], bool, Client | None], Upstream],
        *,
        isolation: Isolation,
        match_era: bool,
        keeps_state: bool,
        limit: int,
        idle: float,
        alone: bool = False,
        personal: Callable[[], bool] | None = None,
    ) -> None:
        """Prepare; nothing is opened before a call needs it.

        Args:
            first: the server's first connection.
            open_lane: makes another one, given what to call when it changes, its era, what to declare there,
                whether it is for everybody, and the one client that it is for.
            isolation: which callers are kept apart.
            match_era: whether a server that speaks both eras is used in the caller's.
            keeps_state: whether even a stateless server may know one caller from another: it is a process of ours.
            limit: how many connections there may be beside the first.
            idle: seconds after which one that nobody uses is ended.
            alone: whether there is never but one client, from whom nobody need be kept apart.
            personal: whether the server is logged in to as the user who runs the gateway, and nobody else may use it.
        """
        self._personal = personal
        self._first = first
        self._open_lane = open_lane
        self._isolation: Isolation = isolation
        self._match_era = match_era
        self._keeps_state = keeps_state
        self._alone = alone
        self.adjust(limit, idle)
        self._lanes: dict[_Key, _Slot] = {}
        self._records: dict[_Key, _Record] = {}
        """Of lanes that failed, until that is long ago."""
        self._owner: bytes | None = None
        """The principal that has the first connection, where principals are kept apart."""
        self._no_handshake_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._stopped = False
        # Most calls are of the caller that called before and go over the first connection.
        self._last_caller: Caller | None = None
        self._last_first: Connection | None = None

    def adjust(self, limit: int, idle: float) -> None:
        """From now on, as many as this, each for as long as this."""
        self._limit, self._idle = limit, idle

    def choose(self, call: Call) -> Connection | None:
        """The connection for a call; None while the server is down.

        Raises:
            StillStarting: it is being opened.
            UpstreamError: it could not be opened, or there are too many.
        """
        first = self._first.link
        caller = call.caller
        if caller is self._last_caller and first is self._last_first:
            return first
        if first is None:
            return None
        if caller.principal and self._personal is not None and self._personal():
            name = self._first.name
            why = f'server "{name}" is logged in to by the user who runs muxway, and by nobody else'
            raise UpstreamError(name, "login_needed", f"{why}; to let all callers use that, write `oauth.shared: true`")
        key = self._key(caller, first)
        if key is not None:
            return self._link_of(key, caller)
        if caller.revision.stateless == first.revision.stateless and not (caller.principal and self._personal):
            self._last_caller, self._last_first = caller, first
        return first

    def _key(self, caller: Caller, first: Connection) -> _Key | None:
        handshake = not caller.revision.stateless
        crosses = self._match_era and first.revision.stateless and handshake
        if crosses and (caller.party is None or caller.depth):
            # A program, or a step of a composed tool, hears nothing but results: only a question makes a difference.
            crosses = _told(caller).can_be_asked
        if crosses and self._takes_no_handshake:
            crosses = False
        stateless = first.revision.stateless and not crosses
        owner: Hashable = None
        if not stateless or self._keeps_state:
            owner = self._owner_of(caller)
        if owner is None:
            # Everybody may share: no need to tell callers apart by what they can do, either.
            return _Key("legacy") if crosses else None
        return _Key("modern", owner) if stateless else _Key("legacy", owner, _told(caller).kind)

    def is_anothers(self, caller: Caller) -> bool:
        """Whether the first connection is another principal's: what it tells of is not this caller's business."""
        first = self._first.link
        if not self._keeps_state and (first is None or first.revision.stateless):
            return False
        return self._isolation == "principal" and self._owner_of(caller) is not None

    def _owner_of(self, caller: Caller) -> Hashable:
        """Whom the connection is for; None for everybody."""
        if self._isolation == "shared" or self._alone:
            return None
        if self._isolation == "session" and caller.party is not None:
            return caller.party
        if self._owner is None:
            # The first connection has told nobody anything yet: it becomes that of the first who comes.
            self._owner = caller.principal
        if self._isolation == "principal" and caller.principal == self._owner:
            return None
        return caller.principal

    def _link_of(self, key: _Key, caller: Caller) -> Connection | None:
        if self._stopped:
            # A call that waited for a connection hears of its end here, and must not begin another one.
            raise UpstreamError(self._first.name, "not_running", f'server "{self._first.name}" is being stopped')
        now = asyncio.get_running_loop().time()
        lane = self._lanes.get(key)
        if lane is None or (lane.upstream.link is None and not lane.member.starting):
            record = self._records.get(key)
            if record is not None and now < record.retry_at:
                why = "it ended" if lane is None else lane.member.absence
                said = f'server "{self._first.name}" could not be started for this caller: {why}'
                raise UpstreamError(self._first.name, "not_running", said, retry_after=record.retry_at - now)
            lane = self._open(key, caller)
        lane.used = now
        if self._first.link is not None:
            # A server in use does not fall asleep, whichever of its connections is used.
            self._first.link.used = now
        if lane.member.starting:
            raise StillStarting(lane.member)
        return lane.upstream.link

    def open_for_sessions(self) -> Member | None:
        """Begin to open the connection for handshake callers, who are there, unless there is one or none is needed."""
        first, key = self._first.link, _Key("legacy")
        if first is None or not self._match_era or not first.revision.stateless or self._stopped:
            return None
        if key in self._lanes or key in self._records or self._open_count >= self._limit:
            return None
        return None if self._takes_no_handshake else self._open(key, None).member

    @property
    def _takes_no_handshake(self) -> bool:
        return self._first.refused_handshake or asyncio.get_running_loop().time() < self._no_handshake_until

    def _open(self, key: _Key, caller: Caller | None) -> _Slot:
        principal = b"" if caller is None else caller.principal
        self._make_room(key, principal)
        client = key.owner if isinstance(key.owner, Client) else None
        if key.owner is None or caller is None:
            told: Mapping[str, Any] = asking.EVERYTHING
        else:
            told = asking.declared(caller.capabilities, caller.revision, own=client is not None)
        member = Member(0, 0)

        def changed(upstream: Upstream) -> None:
            self._changed(key, upstream, member)

        now = asyncio.get_running_loop().time()
        lane = _Slot(self._open_lane(changed, key.era, told, key.owner is None, client), member, now, principal)
        if key in self._lanes:
            self._end(key)
        self._lanes[key] = lane
        self._records.setdefault(key, _Record(Restarts())).history.began(now)
        lane.upstream.start()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SWEEP, self._sweep)
        return lane

    def _make_room(self, key: _Key, principal: bytes) -> None:
        """See that there may be one more. Raises UpstreamError if not."""
        name = self._first.name
        its = [other for other in self._lanes if other.owner == key.owner and other != key]
        if key.owner is not None and len(its) >= _MOST_EACH and not self._end_oldest(its):
            why = f'server "{name}" runs {len(its)} times for this caller already, and is busy in each; try again later'
            raise UpstreamError(name, "overloaded", why)
        if self._open_count < self._limit:
            return
        self._sweep_now()
        if self._open_count < self._limit or self._end_oldest(its) or self._end_greedy(principal):
            return
        why = f'server "{name}" already runs {self._limit} times (maxInstances); try again later'
        raise UpstreamError(name, "overloaded", why)

    def _end_oldest(self, keys: Sequence[_Key]) -> bool:
        """End the one of these that was idle for the longest time. False if all are busy."""
        idle = [key for key in keys if self._lanes[key].idle]
        if idle:
            self._end(min(idle, key=lambda key: self._lanes[key].used))
        return bool(idle)

    def _end_greedy(self, principal: bytes) -> bool:
        """End one of whoever has most, if that is another one and more than half of all there may be."""
        count = Counter(lane.principal for lane in self._lanes.values())
        greedy, most = count.most_common(1)[0] if count else (principal, 0)
        if greedy == principal or 2 * most <= self._limit:
            return False
        return self._end_oldest([key for key, lane in self._lanes.items() if lane.principal == greedy])

    def _changed(self, key: _Key, upstream: Upstream, member: Member) -> None:
        lane = self._lanes.get(key)
        if (record := self._records.get(key)) is not None and lane is not None and lane.upstream is upstream:
            self._note(record, upstream)
        # One that was ended here may already have a successor, which is none of its business.
        if upstream.link is None and lane is not None and lane.upstream is upstream:
            if not member.starting:
                self._end(key)
            elif key.era == "legacy" and self._first.link is not None and self._first.link.revision.stateless:
                # It does not take a handshake, or not now: calls go over the first connection, as well as they can.
                log.info("takes no handshake; used in its own era", upstream=upstream.name, why=upstream.error)
                pause = float("inf") if self._keeps_state else _TRY_AGAIN  # Each try of a child is a process.
                self._no_handshake_until = asyncio.get_running_loop().time() + pause
                self._end(key)
        member.settle(upstream.link, "" if upstream.link is not None else upstream.error or "it ended")
        member.release()

    @staticmethod
    def _note(record: _Record, upstream: Upstream) -> None:
        now = asyncio.get_running_loop().time()
        if upstream.link is not None:
            record.history.ready(now)
        elif upstream.status is Status.SLEEPING:
            # There was no room for it, which is no fault of it.
            record.retry_at = now + (upstream.retry_in or 0.0)
        elif upstream.error is not None:
            record.retry_at = now + record.history.failed(now)

    def gone(self, party: object) -> None:
        """A client session has ended: so do the connections that were only for it."""
        for key in [key for key in self._lanes if key.owner is party]:
            self._end(key)

    def of(self, party: object) -> list[Upstream]:
        """Those that are only for a client session."""
        return [lane.upstream for key, lane in self._lanes.items() if key.owner is party]

    def renew(self) -> None:
        """End all of them. Those that are needed are opened anew, whatever became of the ones before."""
        for key in list(self._lanes):
            self._end(key)
        self._records.clear()
        self._no_handshake_until = 0.0

    def _sweep(self) -> None:
        self._timer = None
        self._sweep_now()
        if self._lanes or self._records:
            self._timer = asyncio.get_running_loop().call_later(_SWEEP, self._sweep)

    @property
    def upstreams(self) -> list[Upstream]:
        """Those that there are now."""
        return [lane.upstream for lane in self._lanes.values()]

    def idle(self) -> list[tuple[float, Callable[[], None]]]:
        """Those that nobody uses at the moment: when each was last used, and how to end it."""
        return [
            (max(lane.used, link.used), partial(self._end, key))
            for key, lane in self._lanes.items()
            if (link := lane.upstream.link) is not None and not lane.upstream.in_use
        ]

    @property
    def busy(self) -> bool:
        """Whether a call is under way on any of them."""
        return any(lane.upstream.link is not None and lane.upstream.link.called for lane in self._lanes.values())

    @property
    def _open_count(self) -> int:
        """How many there are that did not fail."""
        return sum(1 for lane in self._lanes.values() if lane.member.starting or lane.upstream.link is not None)

    def _sweep_now(self) -> None:
        now = asyncio.get_running_loop().time()
        unused_since = now - self._idle
        for key, record in list(self._records.items()):
            if key not in self._lanes and record.retry_at + _TRY_AGAIN < now:
                del self._records[key]
        for key, lane in list(self._lanes.items()):
            link = lane.upstream.link
            if link is None and not lane.member.starting and self._records[key].retry_at < now:
                self._end(key)
            if link is not None and max(lane.used, link.used) < unused_since and not link.called:
                self._end(key)

    def _end(self, key: _Key) -> None:
        lane = self._lanes.pop(key)
        ending = asyncio.get_running_loop().create_task(lane.upstream.stop())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def stop(self) -> None:
        """End all of them, and wait until they are gone."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for key in list(self._lanes):
            self._end(key)
        if self._ending:
            await asyncio.wait(self._ending)


def _told(caller: Caller) -> asking.Told:
    return asking.told(caller.capabilities, caller.revision)
