"""The connections of one instance of a server: one for everybody, or more for those who must not share it.

The first connection lists what the server has and serves everybody whom nothing keeps apart. The others are opened
when a call first needs them and ended when nobody has needed them for a while, or when their client has gone. Which
calls are kept apart:

- by era: a server that speaks both is used in its caller's, because it may list, log, ask and err otherwise there;
- by `isolation`: `principal` keeps callers with different credentials apart, `session` every client session.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from muxway.calls.backend import StillStarting
from muxway.calls.ports import Client
from muxway.catalog.kinds import KINDS, TOOLS
from muxway.errors import UpstreamError
from muxway.log import EventLog
from muxway.servers.endings import Endings
from muxway.servers.slot import FIRST, SESSIONS, Slot, SlotKey, Tenant
from muxway.servers.state import WAIT_FOR_LOGIN, State
from muxway.wire import asking

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from muxway.calls.call import Call, Caller, Forwarded
    from muxway.config.model import Isolation
    from muxway.servers.connection import Connection
    from muxway.servers.instance import Instance

_SWEEP: Final = 15.0
_MOST_EACH: Final = 4
"""Connections of one owner to a server: one for each kind of capabilities, of which a client has one."""
_TRY_AGAIN: Final = 60.0
"""Seconds before a server that did not take a handshake is asked for one again."""
_SECOND_SIDE: Final = 1.5
"""Seconds for which a list waits for connections that are opened for handshake callers. Less than the 2 s for which it
may be held up in all (`exchange/first_listing.py`), as this wait begins when the first side of the server has come."""

log = EventLog("upstream")


@dataclass(slots=True)
class Sharing:
    """Which callers may share a connection."""

    isolation: Isolation = "shared"
    """Which callers are kept apart."""
    match_era: bool = False
    """Whether a server that speaks both eras is used in the caller's."""
    keeps_state: bool = False
    """Whether even a stateless server may know one caller from another: it is a process of ours."""
    alone: bool = False
    """Whether there is never but one client, from whom nobody need be kept apart."""
    forward: frozenset[str] = frozenset()
    """Names of callers' headers that the server gets: who sends another value is kept apart."""
    personal: Callable[[], bool] | None = None
    """Whether the server is logged in to as the user who runs the gateway, and nobody else may use it; None: never."""
    principal: bytes | None = None
    """Whose the first connection is, where principals are kept apart: the first who came."""

    @property
    def by_principal(self) -> bool:
        """Whether all callers of one principal share, if they speak alike."""
        return (self.isolation != "session" or self.alone) and not self.forward

    def bars(self, caller: Caller) -> bool:
        """Whether a caller may not use the server at all, because it is another user who is logged in there."""
        return self.personal is not None and bool(caller.principal) and self.personal()

    def crosses(self, caller: Caller, *, stateless: bool) -> bool:
        """Whether a caller is better served with a handshake than over the first connection."""
        if not stateless or not self.match_era or caller.revision.stateless:
            return False
        # A program, or a step of a composed tool, hears nothing but results: only a question makes a difference.
        return (caller.party is not None and not caller.depth) or _told(caller).can_be_asked

    def key(self, caller: Caller, *, stateless: bool, crosses: bool) -> SlotKey:
        """The slot for a caller; `stateless` is what the first connection is."""
        stateless = stateless and not crosses
        owner: Hashable = None
        if not stateless or self.keeps_state:
            owner = self.owner(caller)
        sent = self.sent(caller)
        if owner is None and not sent:
            # Everybody may share: no need to tell callers apart by what they can do, either.
            return SESSIONS if crosses else FIRST
        if owner is None or stateless:
            return SlotKey("modern" if stateless else "legacy", owner, "", sent)
        return SlotKey("legacy", owner, _told(caller).kind, sent)

    def sent(self, caller: Caller) -> Forwarded:
        """What the server gets of a caller's headers."""
        if not self.forward or not caller.forwarded:
            return ()
        return tuple(header for header in caller.forwarded if header[0] in self.forward)

    def owner(self, caller: Caller) -> Hashable:
        """Whom the connection for a caller is for; None for everybody."""
        if self.isolation == "shared" or self.alone:
            return None
        if self.isolation == "session" and caller.party is not None:
            return caller.party
        if self.principal is None:
            # The first connection has told nobody anything yet: it becomes that of the first who comes.
            self.principal = caller.principal
        if self.isolation == "principal" and caller.principal == self.principal:
            return None
        return caller.principal


class Pool:
    """The slots of one instance."""

    __slots__ = (
        "_endings",
        "_instance",
        "_last_first",
        "_last_principal",
        "_no_handshake_until",
        "_stopped",
        "_timer",
        "first",
        "opening",
        "sharing",
        "slots",
    )

    def __init__(self, instance: Instance, sharing: Sharing) -> None:
        """Prepare; nothing is opened before it is started, or a call needs it."""
        self._instance = instance
        self.sharing = sharing
        self.first = Slot(instance, FIRST, Tenant(client=instance.hooks.sessions.only))
        self.slots: dict[SlotKey, Slot] = {FIRST: self.first}
        """All of them, the first one first. One that could not be opened stays for as long as that matters."""
        self.opening: Slot | None = None
        """The one for handshake callers, while lists for them wait until what it lists is in force."""
        self._no_handshake_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._endings = Endings()
        self._stopped = False
        # Most calls are of a principal that called before and go over the first connection.
        self._last_principal: bytes | None = None
        self._last_first: Connection | None = None

    # --- for a call -----------------------------------------------------------------------------

    def choose(self, call: Call) -> Connection | None:
        """The connection for a call; None while the server is away.

        Raises:
            StillStarting: it is being opened.
            UpstreamError: it could not be opened, or there are too many.
        """
        first = self.first.connection
        if first is None:
            return None
        caller, stateless = call.caller, first.revision.stateless
        alike = caller.revision.stateless == stateless
        if alike and first is self._last_first and caller.principal == self._last_principal:
            return first
        sharing = self.sharing
        is_other = sharing.personal is not None and bool(caller.principal)
        if is_other and sharing.bars(caller):
            name = self.first.name
            why = f'server "{name}" is logged in to by the user who runs muxway, and by nobody else'
            raise UpstreamError(name, "login_needed", f"{why}; to let all callers use that, write `oauth.shared: true`")
        crosses = sharing.crosses(caller, stateless=stateless) and not self._takes_no_handshake
        key = sharing.key(caller, stateless=stateless, crosses=crosses)
        if key is not FIRST:
            return self._connection_of(key, caller)
        if alike and not is_other and sharing.by_principal:
            self._last_principal, self._last_first = caller.principal, first
        return first

    def is_anothers(self, caller: Caller) -> bool:
        """Whether the first connection is another principal's: what it tells of is not this caller's business."""
        first, sharing = self.first.connection, self.sharing
        if sharing.bars(caller) or sharing.sent(caller):
            return True  # The first one has sent nothing of anybody's headers.
        if not sharing.keeps_state and (first is None or first.revision.stateless):
            return False
        return sharing.isolation == "principal" and sharing.owner(caller) is not None

    def _connection_of(self, key: SlotKey, caller: Caller) -> Connection | None:
        name = self.first.name
        if self._stopped:
            # A call that waited for a connection hears of its end here, and must not begin another one.
            raise UpstreamError(name, "not_running", f'server "{name}" is being stopped')
        slot = self.slots.get(key)
        if slot is None or not slot.open:
            if slot is not None and (locked_out := slot.state.locked_out) is not None:
                raise UpstreamError(name, "login_needed", locked_out)
            if slot is not None and slot.retry_in:
                why = f'server "{name}" could not be started for this caller: {slot.unnamed(slot.state.reason or "")}'
                raise UpstreamError(name, "not_running", why, retry_after=slot.retry_in)
            slot = self._open(key, caller)
        if self.first.connection is not None:
            # A server in use does not fall asleep, whichever of its connections is used.
            self.first.connection.used = asyncio.get_running_loop().time()
        if slot.state.starting:
            raise StillStarting(slot.waiting)
        return slot.connection

    def open_for_sessions(self) -> None:
        """Begin to open the connection for handshake callers, who are there, unless there is one or none is needed.

        Their lists wait for it, for a while.
        """
        first = self.first.connection
        if first is None or not self.sharing.match_era or not first.revision.stateless or self._stopped:
            return
        if SESSIONS in self.slots or self._open_count >= self._instance.terms.most or self._takes_no_handshake:
            return
        self.opening = self._open(SESSIONS, None)
        asyncio.get_running_loop().call_later(_SECOND_SIDE, self._wait_no_more, self.opening)

    def _wait_no_more(self, opening: Slot) -> None:
        """Whoever lists has waited for long enough."""
        if self.opening is opening:
            self.opening = None
            opening.waiting.release()

    @property
    def _takes_no_handshake(self) -> bool:
        refused = self.first.eras.refused_handshake
        return refused or asyncio.get_running_loop().time() < self._no_handshake_until

    # --- opening --------------------------------------------------------------------------------

    def _open(self, key: SlotKey, caller: Caller | None) -> Slot:
        tenant = self._tenant(key, caller)
        self._make_room(key, tenant.principal)
        slot = self.slots.get(key)
        if slot is None:
            # What a stateless server's tools want repeated in headers is learned from their list.
            kinds = KINDS if key == SESSIONS else (TOOLS,) if key.era == "modern" else ()
            slot = self.slots[key] = Slot(self._instance, key, tenant, kinds)
            if key == SESSIONS:
                self._instance.join_feed(slot)
        slot.tenant = tenant
        slot.start()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SWEEP, self._sweep)
        return slot

    def _tenant(self, key: SlotKey, caller: Caller | None) -> Tenant:
        principal = b"" if caller is None else caller.principal
        if key.owner is None or caller is None:
            return Tenant(client=self._instance.hooks.sessions.only, principal=principal)
        client = key.owner if isinstance(key.owner, Client) else None
        told = asking.declared(caller.capabilities, caller.revision, own=client is not None)
        return Tenant(told, client, principal)

    def _make_room(self, key: SlotKey, principal: bytes) -> None:
        """See that there may be one more. Raises UpstreamError if not."""
        name, most = self.first.name, self._instance.terms.most
        its = [slot for slot in self._others if slot.key.owner == key.owner and slot.key != key]
        if key.owner is not None and len(its) >= _MOST_EACH and not self._end_oldest(its):
            why = f'server "{name}" runs {len(its)} times for this caller already, and is busy in each; try again later'
            raise UpstreamError(name, "overloaded", why)
        if self._open_count < most:
            return
        self._sweep_now()
        if self._open_count < most or self._end_oldest(_open(its)) or self._end_greedy(principal):
            return
        why = f'server "{name}" already runs {most} times (maxInstances); try again later'
        raise UpstreamError(name, "overloaded", why)

    def _end_oldest(self, slots: Sequence[Slot]) -> bool:
        """End the one of these that was idle for the longest time. False if all are busy."""
        idle = [slot for slot in slots if self.slots.get(slot.key) is slot and _is_idle(slot)]
        if idle:
            self._end(min(idle, key=lambda slot: slot.used))
        return bool(idle)

    def _end_greedy(self, principal: bytes) -> bool:
        """End one of whoever has most, if that is another one and more than half of all there may be."""
        running = _open(self._others)
        count = Counter(slot.tenant.principal for slot in running)
        greedy, most = count.most_common(1)[0] if count else (principal, 0)
        if greedy == principal or 2 * most <= self._instance.terms.most:
            return False
        return self._end_oldest([slot for slot in running if slot.tenant.principal == greedy])

    @property
    def _others(self) -> list[Slot]:
        """All but the first."""
        return [slot for slot in self.slots.values() if slot is not self.first]

    @property
    def _open_count(self) -> int:
        """How many there are that did not fail, beside the first."""
        return len(_open(self._others))

    # --- ending ---------------------------------------------------------------------------------

    def changed(self, slot: Slot) -> None:
        """Something about one of them has changed."""
        first = self.first.connection
        # One that was ended here may already have a successor, which is none of its business.
        stays = self.slots.get(slot.key) is slot
        failed = slot.state.now is State.FAILED and slot.key.era == "legacy"
        if stays and failed and first is not None and first.revision.stateless:
            # It does not take a handshake, or not now: calls go over the first connection, as well as they can.
            log.info("takes no handshake; used in its own era", upstream=slot.name, why=slot.state.reason)
            pause = float("inf") if self.sharing.keeps_state else _TRY_AGAIN  # Each try of a child is a process.
            self._no_handshake_until = asyncio.get_running_loop().time() + pause
            self._end(slot)
        if not slot.state.starting:
            if slot is self.opening:
                self.opening = None
            slot.waiting.release()

    def gone(self, party: object) -> None:
        """A client session has ended: so do the connections that were only for it."""
        for slot in self.of(party):
            self._end(slot)

    def of(self, party: object) -> list[Slot]:
        """Those that are only for a client session."""
        return [slot for slot in self._others if slot.key.owner is party]

    def logged_in(self) -> None:
        """Somebody has logged in: those that waited for that are opened, the first at once, others when needed."""
        for slot in self._others:
            if slot.state.now in WAIT_FOR_LOGIN:
                self._end(slot)
        self.first.logged_in()

    def renew(self) -> None:
        """End all but the first. Those that are needed are opened anew, whatever became of the ones before."""
        for slot in self._others:
            self._end(slot)
        self._no_handshake_until = 0.0

    def idle(self) -> list[tuple[float, Callable[[], None]]]:
        """Those that nobody uses at the moment: when each was last used, and how to end it."""
        idle = [slot for slot in self.slots.values() if slot.connection is not None and not slot.in_use]
        return [
            (slot.connection.used if slot.connection is not None else 0.0, slot.sleep)
            if slot is self.first
            else (slot.used, partial(self._end, slot))
            for slot in idle
        ]

    def _sweep(self) -> None:
        self._timer = None
        self._sweep_now()
        if self._others:
            self._timer = asyncio.get_running_loop().call_later(_SWEEP, self._sweep)

    def _sweep_now(self) -> None:
        now = asyncio.get_running_loop().time()
        for slot in self._others:
            if slot.connection is not None:
                unused = slot.used < now - self._instance.terms.idle and not slot.connection.called
            else:
                # How it went is remembered for a while, as it decides when the next one may be opened.
                unused = not slot.state.starting and (slot.state.retry_at or 0.0) + _TRY_AGAIN < now
            if unused:
                self._end(slot)

    def _end(self, slot: Slot) -> None:
        del self.slots[slot.key]
        self._endings.begin(slot.stop())

    async def stop(self) -> None:
        """End all but the first, open no more, and wait until they are gone."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for slot in self._others:
            self._end(slot)
        await self._endings.over()


def _open(slots: Sequence[Slot]) -> list[Slot]:
    return [slot for slot in slots if slot.open]


def _is_idle(slot: Slot) -> bool:
    """Whether nothing would be lost with it."""
    connection = slot.connection
    return not slot.state.starting and (connection is None or not (connection.peer.ours or connection.called))


def _told(caller: Caller) -> asking.Told:
    return asking.told(caller.capabilities, caller.revision)
