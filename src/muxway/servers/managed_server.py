"""One server, for as long as it is configured: what takes calls for it, whichever process or connection is behind.

Implements `calls.backend.Backend`. What it is doing is asked of the slot of its first connection, each time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from muxway.calls.backend import WaitingCalls, refuse
from muxway.catalog.kinds import KINDS
from muxway.net.processes.journal import Journal
from muxway.servers.counters import ServerCounters
from muxway.servers.slot import SESSIONS
from muxway.servers.state import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muxway.calls.backend import Choose, Held
    from muxway.calls.call import Call
    from muxway.calls.identity import Owner
    from muxway.catalog.build import Source
    from muxway.catalog.kinds import Kind
    from muxway.config.model import ServerConfig
    from muxway.servers.connection import Connection
    from muxway.servers.instance import Instance
    from muxway.servers.lists import ServerLists
    from muxway.servers.lock import Comparison
    from muxway.servers.slot import Slot

PATIENCE: Final = 2.0
"""Seconds for which a user's list waits for what a server has for that user."""
_LISTED_BY: Final = {kind.method: kind for kind in KINDS}


class ManagedServer:
    """One server and everything that belongs to it."""

    __slots__ = (
        "_coming",
        "bare",
        "choose",
        "compared",
        "counters",
        "idle",
        "instance",
        "journal",
        "limit",
        "listed_for_all",
        "make_own",
        "make_room",
        "of_users",
        "owner",
        "prefix",
        "shown",
        "unprefixed",
        "waiting",
    )

    def __init__(self, owner: Owner | None = None, of_all: ManagedServer | None = None) -> None:
        """Without an instance, which is put in next. That of one user is a part of what is for all."""
        self.counters = ServerCounters() if of_all is None else of_all.counters
        self.journal = Journal() if of_all is None else of_all.journal
        """What its processes wrote to stderr."""
        self.owner = owner
        """The user in whose name alone it is used; None: whoever runs the gateway, or nobody in particular."""
        self.of_users: dict[Owner, ManagedServer] = {}
        """The same server, used in the name of each of these."""
        self.make_own: Callable[[Owner], ManagedServer | None] | None = None
        """Begins to use it in the name of a user; gives None if it need not be. None: it never is."""
        self.make_room: Callable[[], None] = _no_limit
        """Sees that it may be used in the name of one more user at a time. Raises UpstreamError if not."""
        self.listed_for_all = False
        """Whether what it lists was listed without a login."""
        self.waiting = WaitingCalls()
        self.prefix = ""
        self.unprefixed = self.bare = False
        self.idle = self.limit = 0.0
        self.shown: tuple[Sequence[object], Source] | None = None
        """What it shows, and what that was last made of."""
        self.compared: dict[Kind, tuple[Comparison, ...]] = {}
        """Its lists, compared with the lock: as they are and as they are about to be."""
        self.instance: Instance
        self.choose: Choose = _away
        """See `Backend`; the pool's own, as this is asked for every call."""
        self._coming: tuple[Instance, asyncio.Task[None]] | None = None

    def put(self, instance: Instance) -> None:
        """Let an instance serve from now on."""
        self.instance = instance
        self.choose = instance.pool.choose if self.make_own is None else self._choose

    # --- a swap ---------------------------------------------------------------------------------

    @property
    def coming(self) -> Instance | None:
        """What is being started to take the instance's place."""
        return None if self._coming is None else self._coming[0]

    @property
    def swap(self) -> asyncio.Task[None] | None:
        """What waits for that."""
        return None if self._coming is None else self._coming[1]

    def expect(self, instance: Instance, swap: asyncio.Task[None]) -> None:
        """An instance is being started to take the place of the one that serves."""
        self._coming = instance, swap

    def expect_none(self) -> Instance | None:
        """None is any more. Returns the one that was."""
        instance, self._coming = self.coming, None
        return instance

    # --- how it is ------------------------------------------------------------------------------

    @property
    def config(self) -> ServerConfig:
        """How it is started and treated."""
        return self.instance.config

    @property
    def first(self) -> Slot:
        """The place of the connection that everybody may share."""
        return self.instance.pool.first

    @property
    def lists(self) -> ServerLists:
        """What it lists over that."""
        return self.instance.pool.first.lists

    def is_bare(self) -> bool:
        """Whether its words need no label: there may come to be other servers, or none."""
        return self.bare

    # --- in the name of users -------------------------------------------------------------------

    def of(self, owner: Owner | None) -> ManagedServer:
        """See `Backend`."""
        if owner is None or self.make_own is None:
            return self
        return self.of_users.get(owner) or self.make_own(owner) or self

    def _choose(self, call: Call, /) -> Connection | None:
        """See `Backend`, where each user has an own login."""
        identity = call.caller.identity
        server = self if identity is None else self.of(identity.owner)
        if server is self:
            return self.instance.pool.choose(call)
        if server.first.state.now is State.SLEEPING:
            self.make_room()
        connection = server.instance.pool.choose(call)
        if connection is None:
            refuse(self.config.name, server)
        return connection

    @property
    def is_everybodys(self) -> bool:
        """Whether what it lists was not listed in the name of anybody."""
        if self.make_own is None:
            return True
        credentials = self.instance.credentials
        return self.listed_for_all and credentials is not None and not credentials.wanted

    @property
    def arriving(self) -> dict[Held, None] | None:
        """See `Backend`."""
        if self.owner is None or not self.starting or self.lists.offers or self.first.state.restarts:
            return None
        began, now = self.first.state.began, asyncio.get_running_loop().time()
        return self.held if now < began + PATIENCE else None

    # --- Backend --------------------------------------------------------------------------------

    @property
    def held(self) -> dict[Held, None]:
        """See `Backend`."""
        return self.waiting.held

    @property
    def opening(self) -> dict[Held, None] | None:
        """See `Backend`."""
        slot = self.instance.pool.opening
        return None if slot is None else slot.waiting.held

    @property
    def connection(self) -> Connection | None:
        """See `Backend`."""
        return self.first.connection

    @property
    def starting(self) -> bool:
        """See `Backend`."""
        return self.first.state.starting

    @property
    def absence(self) -> str:
        """See `Backend`."""
        first = self.first
        return first.unnamed(first.state.reason or f"it is {first.state.now.status}")

    @property
    def retry_in(self) -> float | None:
        """See `Backend`."""
        return self.first.retry_in

    @property
    def locked_out(self) -> str | None:
        """See `Backend`."""
        return self.first.state.locked_out

    def wake(self) -> bool:
        """See `Backend`."""
        return self.first.wake()

    def asked(self, listing: str) -> int | None:
        """See `Backend`; for how long it holds is that of the first connection's."""
        kind, sessions = _LISTED_BY[listing], self._session_lists
        if sessions is not None:
            sessions.asked(kind)
        return self.lists.asked(kind)

    def renew(self, listing: str) -> bool:
        """See `Backend`."""
        kind, sessions = _LISTED_BY[listing], self._session_lists
        for_sessions = sessions is not None and sessions.renew(kind)
        return self.lists.renew(kind) or for_sessions

    def want(self, listing: str, *, begin: bool) -> bool:
        """See `Backend`."""
        kind, sessions = _LISTED_BY[listing], self._session_lists
        for_sessions = sessions is not None and sessions.want(kind, begin=begin)
        return self.lists.want(kind, begin=begin) or for_sessions

    @property
    def _session_lists(self) -> ServerLists | None:
        """What it lists over the connection for handshake callers, if there is one."""
        slot = self.instance.pool.slots.get(SESSIONS)
        return None if slot is None else slot.lists


def _no_limit() -> None:
    """There may be any number."""


def _away(call: Call, /) -> None:
    """There is no instance yet."""
    del call
