"""The place of one connection to a server: it lasts, while its connections come and go.

What becomes of the connection is one table (`state.py`). When it is lost, a supervised one is started again
(`supervision.py` says when), and a child that answers nothing any more is taken for lost.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from muxway.calls.backend import WaitingCalls
from muxway.catalog.kinds import KINDS, TOOLS
from muxway.errors import MuxwayError, UpstreamError
from muxway.log import EventLog
from muxway.servers.endings import Endings
from muxway.servers.lists import ServerLists
from muxway.servers.start import EraMemory, Start
from muxway.servers.start_queue import NoRoomToStart
from muxway.servers.state import WAIT_FOR_LOGIN, Event, SlotState, State
from muxway.servers.supervision import BUDGET, ON_DEMAND, Supervision
from muxway.wire import asking, envelopes

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from muxway.calls.call import Forwarded
    from muxway.calls.ports import Client
    from muxway.catalog.kinds import Kind
    from muxway.servers.connection import Connection
    from muxway.servers.instance import Instance
    from muxway.servers.lists import Offer
    from muxway.servers.negotiation import Era, Negotiated
    from muxway.servers.notifications import ServerFeed
    from muxway.servers.transports.port import ServerTransport
    from muxway.wire.envelopes import Params

_LOOPING: Final = f"it failed {BUDGET} times within a minute, so it is tried once a minute now"
_ENDING: Final = 1.0
"""Seconds that the remains of a lost child get to end before the next one is started beside them."""
_ROOM_AGAIN: Final = 1.0
"""Seconds after which a server that found no room may be tried again."""

log = EventLog("upstream")


class SlotKey(NamedTuple):
    """What the calls of one slot have in common."""

    era: Era
    owner: Hashable = None
    """The principal or the session it is for; None for everybody."""
    capabilities: str = ""
    """What its callers can do, which a handshake tells once for the whole session; only what servers heed."""
    sent: Forwarded = ()
    """Headers of its callers that the server gets."""


FIRST: Final = SlotKey("auto")
"""The one that is started with the server: it lists what there is, and serves everybody whom nothing keeps apart."""
SESSIONS: Final = SlotKey("legacy")
"""The one for handshake callers of a server of both eras, if the first is not for them: it has lists of its own."""


@dataclass(slots=True)
class Tenant:
    """Whom a slot's connection is opened for."""

    capabilities: Mapping[str, Any] = field(default_factory=lambda: asking.EVERYTHING)
    """What is declared in a handshake."""
    client: Client | None = None
    """The one client that it is for, if it is for one."""
    principal: bytes = b""
    """Whose credentials it is opened with."""


class Slot:
    """The place of one connection."""

    __slots__ = (
        "_endings",
        "_starting",
        "connection",
        "eras",
        "feed",
        "greeting",
        "instance",
        "key",
        "lists",
        "state",
        "supervision",
        "tenant",
        "transport",
        "waiting",
    )

    def __init__(self, instance: Instance, key: SlotKey, tenant: Tenant, kinds: Sequence[Kind] = KINDS) -> None:
        """Prepare; nothing is started. Of its lists, only these kinds are read."""
        first = key is FIRST
        self.instance = instance
        self.key = key
        self.tenant = tenant
        self.state = SlotState()
        self.connection: Connection | None = None
        self.transport: ServerTransport | None = None
        """What carries the connection, also while that is being opened."""
        self.greeting: Negotiated | None = None
        """How the server last introduced itself."""
        self.feed: ServerFeed | None = None
        """Where its news goes, if anybody wants it."""
        self.waiting = instance.server.waiting if first else WaitingCalls()
        self.lists = ServerLists(self, kinds)
        self.eras = EraMemory(instance.config.era if first else key.era)
        self.supervision = Supervision(self, instance.terms.care if first else ON_DEMAND)
        self._starting: asyncio.Task[None] | None = None
        self._endings = Endings()
        """What is being ended: connections, and work on them that was given up."""

    # --- asked ----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The server's."""
        return self.instance.config.name

    @property
    def retry_in(self) -> float | None:
        """Seconds until it may be tried again; None if it is running, being started, or stays as it is."""
        retry_at = self.state.retry_at
        return None if retry_at is None else max(0.0, retry_at - asyncio.get_running_loop().time())

    @property
    def open(self) -> bool:
        """Whether there is a connection, or about to be one."""
        return self.connection is not None or self.state.starting

    @property
    def in_use(self) -> bool:
        """Whether somebody needs its connection: for a call under way, or for news of it."""
        called = self.connection is not None and self.connection.called
        return called or (self.feed is not None and bool(self.feed.wanted))

    @property
    def used(self) -> float:
        """When it was last needed, as far as is known."""
        called = 0.0 if self.connection is None else self.connection.used
        return max(called, self.state.began, self.state.ready_at or 0.0)

    # --- told -----------------------------------------------------------------------------------

    def adjust(self) -> None:
        """It is treated otherwise from now on."""
        if self.key is FIRST:
            self.supervision.care = self.instance.terms.care
        if self.connection is not None:
            self.connection.queue.adjust(self.instance.terms.limits)
            self.supervision.look_after(self.connection)

    def expect(self, greeting: Negotiated, offers: dict[Kind, Offer]) -> None:
        """Before a start: what it had when it last ran. That is listed until it says what it has now, or fails."""
        self.greeting, self.lists.offers = greeting, offers

    def start(self) -> None:
        """Begin to start it, in the background."""
        self._begin()
        self._starting = asyncio.get_running_loop().create_task(self._start())

    def lie_down(self) -> None:
        """Instead of a start: sleep until somebody calls it."""
        self._meet(Event.LAID_DOWN)
        self.changed()

    def wake(self) -> bool:
        """Somebody wants to call it: start it if it sleeps, or if its time to be tried again has come.

        Returns whether a start is under way now.
        """
        if self.state.starting:
            return True
        asleep = self.state.now is State.SLEEPING
        retry_in = self.retry_in
        if retry_in or (retry_in is None and not asleep):
            return False
        self._start_again(counts=not asleep)
        return True

    def logged_in(self) -> None:
        """Somebody has logged in: start it, if that is what it waited for."""
        if self.state.now in WAIT_FOR_LOGIN:
            log.info("logged in; starting it", upstream=self.name)
            self.supervision.history.forgive()
            self._start_again(counts=False)

    def sleep(self) -> None:
        """End it until somebody calls it. What it has stays listed."""
        connection = self._let_go(Event.LAID_DOWN)
        self._disconnect_feed(None)
        log.info("server put to sleep", upstream=self.name)
        self.changed()
        self._end(connection)

    async def restart(self) -> None:
        """End it and start it anew, whatever its history, and wait until it is ready or has failed.

        One that was stopped stays so. Whoever does not want to wait any longer does not stop it from coming back.
        """
        self.start_anew()
        await self.state.settled()

    def start_anew(self) -> None:
        """The same, without waiting."""
        if self.state.now not in (State.STOPPED, State.RENEWING):
            ending = self._retire(Event.RENEWED)
            self._starting = asyncio.get_running_loop().create_task(self._start_after(ending))

    async def _start_after(self, ending: list[asyncio.Task[None]]) -> None:
        if ending:
            await asyncio.wait(ending)
        self.supervision.history.forgive()
        self._begin()
        self.changed()
        await self._start()

    async def stop(self) -> None:
        """End it for good and wait until it is gone."""
        self.lists.offers = {}
        if ending := self._retire(Event.RETIRED):
            await asyncio.wait(ending)

    def _retire(self, event: Event) -> list[asyncio.Task[None]]:
        """Let go of everything at once: whatever happens until it is gone finds it so. Returns what must end first."""
        self._end(self._let_go(event))
        self._disconnect_feed(None if self.state.starting else "was stopped")
        self.changed()
        for task in (self._starting, self.lists.task, self.supervision.task):
            if task is not None and not task.done():
                task.cancel()
                self._endings.add(task)
        # What is left of connections that were lost is being ended, too: that must not be cut short.
        return list(self._endings.tasks)

    def _let_go(self, event: Event) -> Connection | None:
        """There is no connection any more. Returns the one there was."""
        connection, self.connection = self.connection, None
        self._meet(event)
        return connection

    def _meet(self, event: Event, *, reason: str | None = None, retry_in: float | None = None) -> None:
        """Something has happened: whatever was due before is not due any more."""
        self.supervision.cancel()
        now = asyncio.get_running_loop().time()
        self.state.meet(event, now, reason=reason, retry_at=None if retry_in is None else now + retry_in)

    # --- starting -------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._meet(Event.STARTED)
        self.supervision.history.began(self.state.began)
        self._disconnect_feed(None)

    def _start_again(self, *, counts: bool) -> None:
        self.state.restarts += counts
        self.start()
        self.changed()

    async def _start(self) -> None:
        # Two processes of one server at a time may be one too many: for its files, or its port.
        await self._endings.over(_ENDING)
        start = Start(self)
        try:
            connection = await start.run()
        except NoRoomToStart as full:
            self._give_way(str(full))
        except asyncio.CancelledError:
            if start.connection is not None:
                await start.connection.close()
            raise
        except Exception as error:
            # Whatever it is, calls wait for the end of this start.
            if isinstance(error, UpstreamError) and error.reason == "login_needed":
                self._lock_out(error.message)
            else:
                self._fail(start.why(error))
            self._end(start.connection)
            if not isinstance(error, MuxwayError | TimeoutError | OSError):
                raise
        else:
            self._ready(connection)

    def _ready(self, connection: Connection) -> None:
        self.connection = connection
        connection.on_lost = self.lost
        connection.transport.introduced()
        self._meet(Event.READY)
        self.supervision.history.ready(self.state.ready_at or 0.0)
        self.supervision.look_after(connection)
        log.info(
            "server ready",
            upstream=self.name,
            tools=len(self.lists.of(TOOLS).natives),
            revision=connection.revision.date,
            ms=round((self.state.took or 0) * 1000),
            restarts=self.state.restarts or None,
        )
        if self.feed is not None and self.greeting is not None:
            self.feed.connect(connection, self.greeting)
        self.changed()
        self.lists.catch_up()

    def _give_way(self, why: str) -> None:
        """There was no room for it: it sleeps until the next call; what lists nothing yet tries again by itself."""
        self._meet(Event.LAID_DOWN, reason=why, retry_in=_ROOM_AGAIN)
        if not self.lists.offers and self.supervision.care.supervised:
            self.supervision.try_in(_ROOM_AGAIN, lambda: self._start_again(counts=False))
        self._disconnect_feed(why)
        log.warning("no room for a server", upstream=self.name, why=why)
        self.changed()

    def _lock_out(self, why: str) -> None:
        """It wants a login. Trying again is of no use until there is one; what it had stays listed."""
        self._meet(Event.LOCKED_OUT, reason=why)
        self._disconnect_feed(self.unnamed(why))
        # That one of its users has not logged in is nothing for whoever runs the gateway to do something about.
        tell = log.warning if self.instance.server.owner is None else log.info
        tell("login needed", upstream=self.name, what=self.unnamed(why))
        self.changed()

    # --- ending ---------------------------------------------------------------------------------

    def lost(self, why: str, *, at_once: bool = False) -> None:
        """The connection has ended by itself, or might as well have."""
        connection, self.connection = self.connection, None
        self._fail(f'server "{self.name}" {why}')
        self._end(connection, at_once=at_once)

    def _fail(self, why: str) -> None:
        now = asyncio.get_running_loop().time()
        supervision, state = self.supervision, self.state
        supervised = supervision.care.supervised
        before, ready_at, looped = state.reason, state.ready_at, supervision.history.looping
        self.eras.ended(self.name, None if ready_at is None else now - ready_at)
        pause = supervision.failed(now)
        looping = supervised and supervision.history.looping
        told = f"{why}; {_LOOPING}"
        reason = told if looping else why
        self._meet(Event.LOOPED if looping else Event.LOST, reason=reason, retry_in=pause)
        if not supervised:
            self.lists.offers = {}
        if supervised and pause is not None:
            supervision.try_in(pause, lambda: self._start_again(counts=True))
        self._disconnect_feed(self.unnamed(why))
        # The same reason again is no news, but that it is given up on for a while is.
        self._tell_failed(pause if supervised else None, news=before not in (why, told) or (looping and not looped))
        self.changed()

    def _tell_failed(self, pause: float | None, *, news: bool) -> None:
        ended = self.state.now is State.LOST
        # The first connection to a server is the server; others may come and go.
        tell = log.info if self.key is not FIRST else log.warning if ended else log.error
        (tell if news else log.debug)(
            "server ended; starting it again" if ended else "server failed",
            upstream=self.name,
            error=self.unnamed(self.state.reason or ""),
            next_try=None if pause is None else "now" if pause < 1 else f"in {pause:.0f} s",
        )

    def unnamed(self, why: str) -> str:
        """A reason, for a sentence that names the server already."""
        return why.removeprefix(f'server "{self.name}" ')

    def _end(self, connection: Connection | None, *, at_once: bool = False) -> None:
        if connection is not None:
            # From here on, what becomes of it is no news.
            connection.on_lost = None
            # The process may still be there with its output closed, or have left others behind.
            self._endings.begin(connection.close(at_once=at_once))

    # --- news -----------------------------------------------------------------------------------

    def hear_notice(self, method: str, params: Params) -> None:
        """The server says that something about it has changed, or that a visit to a web page is over."""
        if method == "notifications/elicitation/complete":
            self.instance.page_done(self.connection, envelopes.text(params.get("elicitationId")) or "")
        else:
            self.lists.hear(method)

    def changed(self) -> None:
        """Something about it has changed."""
        self.instance.changed(self)

    def _disconnect_feed(self, why: str | None) -> None:
        if self.feed is not None:
            self.feed.disconnect(why)
