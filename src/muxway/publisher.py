"""Keeps the snapshot in force in step with what the servers show and what the configuration says."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from muxway.catalog.locking import told
from muxway.exchange.first_listing import FirstListing
from muxway.log import EventLog, first_of
from muxway.routing.snapshot import NO_OWN_LISTS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

    from muxway.catalog.build import Source
    from muxway.catalog.kinds import Kind
    from muxway.catalog.locking import Drift
    from muxway.catalog.model import Finding
    from muxway.composed.own_tools import OwnTools
    from muxway.exchange.runtime import Prepared, Runtime
    from muxway.routing.snapshot import OwnLists, Settings
    from muxway.servers.instance import Instance
    from muxway.servers.lists import Offer
    from muxway.servers.sources import ServerSources

log = EventLog("gateway")

_TRIES: Final = 3
"""How often a snapshot is made beside the event loop, before it is made on it because something always changes."""


class Publisher:
    """Puts a new snapshot in force when a list or the configuration has changed; long ones are made beside the loop."""

    def __init__(
        self, runtime: Runtime, settings: Settings, own_tools: OwnTools, on_different: Callable[[str | None], None]
    ) -> None:
        """Prepare one. `on_different` is told of servers that are not what they were; None: anything. See `follow`."""
        self._runtime = runtime
        self.settings = settings
        """What is to be in force, with the next publication if it is not yet."""
        self._own_tools = own_tools
        self._on_different = on_different
        self._servers: ServerSources | None = None
        self._published: tuple[list[Source], list[str], bool, OwnLists] = ([], [], False, NO_OWN_LISTS)
        """What is in force: what the servers show, which there are, whether all that they have is known, and what is
        for one user alone.

        Servers say often that something about them may have changed, and all of them at the same time.
        """
        self._first_listing: FirstListing | None = None
        self._noted: set[str] = set()
        """The findings that have been told."""
        self._noted_of_views: set[str] = set()
        self._noted_drifts: Mapping[str, Sequence[Drift]] = {}
        self._preparing = asyncio.Lock()
        self._making: asyncio.Task[None] | None = None
        """Makes the snapshot after a change that is not in force yet."""
        self._telling: asyncio.Task[None] | None = None
        """Waits for the servers that a reload has started."""
        self._due: list[Callable[[], None]] = []
        """What waits for a change to be in force."""
        self._quiet = False
        """Whether many things are changing that are one change for those who listen."""

    def follow(self, servers: ServerSources) -> None:
        """From now on, show what these servers have."""
        self._servers = servers
        self.publish()

    def begin(self, list_wait: float | None) -> None:
        """The servers are being started. Listings wait for them, by a rule of their own or for so many seconds."""
        self._first_listing = FirstListing(self._runtime.listings.open, list_wait, self._all.launch_work)
        self.changed()
        if self._making is not None:
            self._runtime.handshakes.shut()
            self._due.append(self._runtime.handshakes.open)

    @contextmanager
    def at_once(self) -> Generator[None]:
        """Whatever changes within is one change for those who listen, told with the next one."""
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False

    async def apply(
        self, settings: Settings, own_tools: OwnTools, started: Callable[[], Awaitable[None]] | None
    ) -> None:
        """Put other settings in force, and wait until they are. Clients hear of it at once.

        They do, too, of what the servers bring that these settings have `started`, which is to be waited for.
        """
        self.settings, self._own_tools = settings, own_tools
        self.changed()
        await self.told()
        if started is not None:
            self.stop_telling()
            self._telling = asyncio.get_running_loop().create_task(self._tell_after(started))
        # Whatever it was about: what is hidden, shaped or shown otherwise now must not come out of a memory.
        self._on_different(None)

    async def _tell_after(self, started: Callable[[], Awaitable[None]]) -> None:
        await started()
        await self.told()

    def stop_telling(self) -> None:
        """Clients need not hear at once of what servers bring that are being started."""
        if self._telling is not None:
            self._telling.cancel()

    async def settled(self) -> None:
        """Wait until what has changed is in force."""
        while self._making is not None:
            await asyncio.wait([self._making])

    async def told(self) -> None:
        """The same, and let clients hear of it at once."""
        await self.settled()
        self._runtime.notices.tell()

    def changed(self, then: Callable[[], None] | None = None) -> None:
        """Have what the servers show in force; `then` do this. With many definitions that is a little later."""
        if then is not None:
            self._due.append(then)
        if self._quiet:
            self._do_what_is_due()
        elif self._all.comparing() is None and self._work(self._all.now()) is None:
            self.publish()
        elif self._making is None:
            # Calls of a server that is new need not fail meanwhile.
            self._runtime.expect_servers()
            self._making = asyncio.get_running_loop().create_task(self._make())

    async def prepare(self, changing: Instance | None = None, coming: Mapping[Kind, Offer] | None = None) -> None:
        """Have the snapshot after a change made beside the event loop, if there is much in it.

        One change at a time, and one in each turn of the loop: all servers may be ready, or listed again, at once.

        Args:
            changing: what is about to list something else; None: the change has been.
            coming: that.
        """
        await self._preparing.acquire()
        try:
            for _ in range(_TRIES):
                comparing = self._all.comparing(changing, coming)
                if comparing is not None:
                    await asyncio.to_thread(comparing)
                work = self._work(self._all.now(changing, coming))
                if work is None:
                    return
                self._runtime.prepared = await asyncio.to_thread(work)
        finally:
            # What was prepared is in force by then.
            asyncio.get_running_loop().call_soon(self._preparing.release)

    def publish(self) -> None:
        """Have what the servers show in force, at once."""
        servers = self._all
        sources = servers.now()
        own_lists = servers.own_lists()
        given = [self._own_tools.source(sources), *sources], [*servers.by_name], servers.complete, own_lists
        if given != self._published or not self._is_in_force:
            self._published = given
            self._runtime.publish(given[0], self.settings, own_lists)
            self._note_findings(complete=given[2])
        for name in servers.different():
            self._on_different(name)
        if self._first_listing is not None:
            self._first_listing.look(servers.unknown, shows=servers.shows)
        self._do_what_is_due()

    # --- inside -------------------------------------------------------------------------------

    @property
    def _all(self) -> ServerSources:
        assert self._servers is not None  # noqa: S101 - nothing changes before `follow`
        return self._servers

    def _work(self, sources: list[Source]) -> Callable[[], Prepared] | None:
        """What is to be done beside the event loop before these are in force; None: nothing."""
        given = [self._own_tools.source(sources), *sources]
        if self._is_in_force and (given, [*self._all.by_name]) == self._published[:2]:
            return None
        return self._runtime.preparing(given, self.settings)

    @property
    def _is_in_force(self) -> bool:
        return self.settings is self._runtime.snapshot.settings

    async def _make(self) -> None:
        """Something has changed that nobody could prepare for: a server has gone away, or the configuration."""
        try:
            await self.prepare()
        finally:
            self._making = None
        self.publish()

    def _do_what_is_due(self) -> None:
        due, self._due = self._due, []
        for do in due:
            do()

    def _note_findings(self, *, complete: bool) -> None:
        snapshot = self._runtime.snapshot
        self._noted_drifts = _tell_drifts(snapshot.given, self._noted_drifts)
        self._noted = _tell(snapshot.whole.findings, self._noted)
        if complete:
            # Without one of them, a view may lack just what that one has.
            found = [finding for view in snapshot.views.values() for finding in view.findings]
            self._noted_of_views = _tell(found, self._noted_of_views)


def _tell_drifts(sources: Sequence[Source], known: Mapping[str, Sequence[Drift]]) -> Mapping[str, Sequence[Drift]]:
    """Log how servers differ from what was locked, where that is news. Returns what is told now, by server."""
    now = {source.upstream: source.lock.drifts for source in sources if source.lock.drifts}
    new: list[tuple[str, Drift]] = []
    for server, drifts in now.items():
        before = known.get(server, ())
        # There may be thousands, of which a few are put into words.
        if before is not drifts:
            told_of = {(drift.kind, drift.name): drift for drift in before}
            new += [(server, one) for one in drifts if not told_of or told_of.get((one.kind, one.name)) != one]
    first, more = first_of(new)
    texts = [f"{server}: {told(drift)}" for server, drift in first]
    for text in (*texts, more) if more else texts:
        log.warning("not as locked", problem=text, see="muxway lock diff")
    return now


def _tell(findings: Sequence[Finding], told: set[str]) -> set[str]:
    """Log those that have not been told. Returns what is told now."""
    texts = {str(finding): finding for finding in findings}
    new, more = first_of([finding for text, finding in texts.items() if text not in told])
    for finding in new:
        log.warning(f"{finding.kind.word} list", upstream=finding.upstream, problem=finding)
    if more:
        log.warning("lists", problem=more)
    return {*texts}
