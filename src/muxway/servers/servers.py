"""The servers of a gateway: each with its connections, how it is, and what it shows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any, Final

from muxway import __version__
from muxway.catalog import build
from muxway.catalog.kinds import PROMPTS, RESOURCES, TEMPLATES, TOOLS
from muxway.catalog.uris import UriFilter
from muxway.errors import SpawnError
from muxway.exchange.relay import Member
from muxway.log import EventLog, masker
from muxway.net.pipes import Turn
from muxway.net.processes.journal import Journal
from muxway.net.processes.manager import ProcessManager
from muxway.servers.instance import Care, Offer, Upstream, may_fetch, start_timeout
from muxway.servers.limits import ServerLimits
from muxway.servers.list_memory import ListMemory
from muxway.servers.notifications import Feeds, ServerFeed
from muxway.servers.pool import Pool
from muxway.servers.start_queue import StartQueue
from muxway.servers.state import Status
from muxway.servers.transports.stdio import StdioServerTransport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from muxway.calls.ports import Client
    from muxway.catalog.build import Source
    from muxway.catalog.kinds import Kind
    from muxway.catalog.model import Native
    from muxway.catalog.naming import Naming
    from muxway.config.model import GatewaySettings, ServerConfig
    from muxway.config.shaping import ExposedTool
    from muxway.exchange.switchboard import Switchboard
    from muxway.net.message_trace import MessageTrace
    from muxway.net.processes.launch import ReaperProcess
    from muxway.servers.negotiation import Era, Negotiated
    from muxway.servers.transports.port import Credentials, ServerTransport

_LAZY_IDLE: Final = 300.0
"""Seconds without a call after which a lazy server is put to sleep, if nothing else is said."""
_SECOND_SIDE: Final = 1.5
"""Seconds for which a list waits for connections that are opened for handshake callers. Less than the 2 s for which it
may be held up in all (`exchange/first_listing.py`), as this wait begins when the first side of the server has come."""
_LOOK: Final = 0.1
"""Seconds between two looks whether a server that is to go still works for somebody."""

log = EventLog("upstream")


@dataclass(slots=True, eq=False)
class ManagedServer:
    """One server and everything that belongs to it."""

    config: ServerConfig
    dial: Callable[[], ServerTransport]
    member: Member
    upstream: Upstream
    feeds: Feeds
    credentials: Credentials | None = None
    """What it is shown, where that is not in its configuration."""
    lanes: Pool | None = None
    """Its further connections; None for an object of this process that can be served but once."""
    thing: object = None
    """The object of this process that it is, if it is one."""
    handshake_offers: Mapping[Kind, Offer] | None = None
    """What it lists for handshake callers over a connection for them, if it speaks both eras; also when that sleeps."""
    shown: tuple[Sequence[object], Source] | None = None
    """What it shows, and what that was last made of."""

    @property
    def connections(self) -> list[Upstream]:
        """All its connections, the first one first."""
        return [self.upstream, *(() if self.lanes is None else self.lanes.upstreams)]

    @property
    def busy(self) -> bool:
        """Whether a call is under way at it."""
        link = self.upstream.link
        return (link is not None and link.called) or (self.lanes is not None and self.lanes.busy)

    async def stop(self) -> None:
        """End all its connections, all at once, and wait until they are gone."""
        if self.credentials is not None:
            self.credentials.close()
        lanes = () if self.lanes is None else (self.lanes.stop(),)
        await asyncio.gather(*lanes, self.upstream.stop())


class Servers:
    """Starts servers, replaces them and ends them, and says what they have."""

    def __init__(
        self,
        settings: GatewaySettings,
        naming: Naming,
        members: dict[str, Member],
        switchboard: Switchboard,
        *,
        on_change: Callable[[Callable[[], None] | None], None],
        prepare: Callable[[Callable[[], list[Source]]], Awaitable[None]],
        reaper: ReaperProcess | None,
        trace: MessageTrace | None = None,
        credentials: Callable[[ServerConfig], Credentials | None] = lambda _: None,
    ) -> None:
        """Prepare an empty one.

        Args:
            settings: how the gateway behaves.
            naming: how public names are made.
            members: the servers as the switchboard sees them; kept up to date here.
            switchboard: where news of the servers goes.
            on_change: called when something about a server has changed, with what to do when that is in force.
            prepare: waits until all is ready for a change, given what gives the sources after it.
            reaper: the process that will look after the children, if it has been started ahead.
            trace: who is told of every message, if somebody is.
            credentials: gives what a remote server is shown, where that is not in its configuration.
        """
        self._credentials = credentials
        self.settings = settings
        self._trace = trace
        self.naming = naming
        self.stations: dict[str, ManagedServer] = {}
        """The servers by name, in the order of the configuration."""
        self.journals: dict[str, Journal] = {}
        """What the servers' processes wrote to stderr, by the servers' names."""
        self.turn = Turn()
        self._members = members
        self._switchboard = switchboard
        self._on_change = on_change
        self._prepare = prepare
        self._nursery = ProcessManager(reaper)
        self._places = StartQueue(lambda: self._nursery.count, self._free_one)
        self._client_info = {"name": "muxway", "version": __version__}
        self._memory = ListMemory()
        self._recollected: dict[str, tuple[ServerConfig, tuple[Negotiated, dict[Kind, Offer]] | None]] = {}
        """What servers that are about to be added had when they last ran."""
        self._swapping: dict[str, tuple[ManagedServer, asyncio.Task[None]]] = {}
        """What will take the place of a server."""
        self._seen: dict[str, list[object]] = {}
        """What each server was made of when that was last looked at."""
        self._ending: set[asyncio.Task[None]] = set()
        self._stopping = False
        switchboard.on_left.append(self._left)
        self._has_sessions = False
        switchboard.audience.on_session = self._session_came
        switchboard.audience.on_roots_changed = self._roots_changed

    # --- life ---------------------------------------------------------------------------------

    def add(self, config: ServerConfig, thing: object = None) -> ManagedServer:
        """Begin to start a server; `thing` is the Python object that it is, if it is one of this process."""
        station = self._station(config, thing)
        self.stations[config.name] = station
        self._members[config.name] = station.member
        self._name_prefixes()
        self._switchboard.subscriptions.add(config.name, station.feeds)
        if self._recall(station) and config.start == "lazy":
            station.upstream.lie_down()
        else:
            station.upstream.start()
        return station

    async def recollect(self, configs: Sequence[ServerConfig]) -> None:
        """Before these are added: read beside the event loop what they had when they last ran."""
        known = await asyncio.to_thread(lambda: [(config, self._memory.recall(config)) for config in configs])
        self._recollected = {config.name: (config, had) for config, had in known}

    def _recall(self, station: ManagedServer) -> bool:
        """Let a server show what it had when it last ran, started in the same way. Whether that is known."""
        config, known = self._recollected.pop(station.config.name, (None, None))
        if config is not station.config:
            known = None if station.thing is not None else self._memory.recall(station.config)
        if known is not None:
            station.upstream.expect(*known)
        return known is not None

    @staticmethod
    def check(name: str, thing: object) -> None:
        """Raise MuxwayError if an object cannot be a server."""
        from muxway.servers.transports.inprocess import as_server

        as_server(thing, name)

    async def remove(self, name: str) -> None:
        """End a server and forget it. Its calls under way fail. KeyError: there is none."""
        station = self._forget(name)
        self._on_change(None)
        # Whoever does not want to wait for its end does not keep it from ending.
        await asyncio.shield(self._end(station))

    async def restart(self, name: str) -> None:
        """End a server and start it anew; wait until it is ready or has failed. KeyError: there is none."""
        station = self.stations[name]
        if station.lanes is not None:
            station.lanes.renew()
        await station.upstream.restart()

    def retire(self, name: str) -> None:
        """Forget a server at once, and end it when its calls under way are over."""
        self._drain(self._forget(name))

    def _forget(self, name: str) -> ManagedServer:
        station = self.stations.pop(name)
        self.journals.pop(name, None)
        self.abandon(name)
        del self._members[name]
        self._switchboard.subscriptions.remove(name)
        self._name_prefixes()
        return station

    def adjust(self, config: ServerConfig) -> None:
        """Treat a server as this says, and leave its process alone."""
        station = self.stations[config.name]
        before, station.config = station.config, config
        self._settle_terms(station)
        if before.start == "lazy" and config.start == "eager":
            station.upstream.wake()

    def swap(self, config: ServerConfig, thing: object = None) -> None:
        """Put a new process or connection in the place of a server's old one, once it is ready or has failed.

        Until then the old one serves, and it is not ended before its calls under way are over.
        """
        if config.name in self._swapping:
            coming, _ = self._swapping[config.name]
            if coming.config == config and coming.thing is thing:
                return
        self.abandon(config.name)
        station = self._station(config, thing)
        old = self.stations[config.name].upstream
        if old.link is None and old.status is not Status.SLEEPING:
            # Nothing is lost if the old one goes first, and whoever calls waits for the new one.
            self._recall(station)
            station.upstream.start()
            self._put(station)
            return
        task = asyncio.get_running_loop().create_task(self._swap_when_settled(station))
        self._swapping[config.name] = (station, task)

    async def _swap_when_settled(self, station: ManagedServer) -> None:
        name = station.config.name
        station.upstream.start()
        await station.upstream.settled.wait()
        del self._swapping[name]
        self._put(station)
        log.info("server swapped", upstream=name, status=station.upstream.status)

    def _put(self, station: ManagedServer) -> None:
        """Let a server take the place of the one of its name."""
        name = station.config.name
        old = self.stations[name]
        self.stations[name] = station
        self._members[name] = station.member
        self._name_prefixes()
        self._switchboard.subscriptions.replace(name, station.feeds)
        self._changed(station)
        # Whoever waited for the old one finds the new one.
        self._on_change(old.member.release)
        self._drain(old)

    def abandon(self, name: str) -> None:
        """Do not put a new one in the place of this server after all."""
        if name in self._swapping:
            station, task = self._swapping.pop(name)
            task.cancel()
            self._end(station)

    async def _drained(self, station: ManagedServer) -> None:
        loop = asyncio.get_running_loop()
        over = loop.time() + station.member.limit
        try:
            # The hot path need not tell of every end.
            while station.busy and not self._stopping and loop.time() < over:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK)
        finally:
            await station.stop()

    def _drain(self, station: ManagedServer) -> None:
        self._in_background(self._drained(station))

    def _end(self, station: ManagedServer) -> asyncio.Task[None]:
        return self._in_background(station.stop())

    def _in_background(self, ending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Go on with the end of a server, whoever waits for it or does not."""
        task = asyncio.get_running_loop().create_task(ending)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    def order(self, names: Sequence[str]) -> None:
        """Have the servers in this order, which is that of the lists."""
        for known in (self.stations, self._members):
            ordered = [(name, known.pop(name)) for name in names if name in known]
            known.update(ordered)  # pyright: ignore[reportArgumentType, reportCallIssue] - the same kind as before
        self._name_prefixes()

    async def settled(self) -> None:
        """Wait until every server is ready or has failed. Each has its own time limit."""
        for station in list(self.stations.values()):
            await station.upstream.settled.wait()
        if self._swapping:
            await asyncio.wait([task for _, task in self._swapping.values()])

    async def stop(self) -> None:
        """End every server, all at once, and wait until they are gone."""
        # From here on, what is let go does not wait for the end of its calls.
        self._stopping = True
        for name in list(self._swapping):
            self.abandon(name)
        try:
            await asyncio.gather(*(station.stop() for station in self.stations.values()))
            if self._ending:
                await asyncio.wait(self._ending)
            await self._memory.written()
        finally:
            await self._nursery.aclose()

    @property
    def unknown(self) -> list[bool]:
        """For each server that is being started and of which nothing is known yet: whether it may have to be fetched.

        One that has failed is known to have nothing for now, however often it is tried again.
        """
        upstreams = [(station.upstream, station.config.command) for station in self.stations.values()]
        return [may_fetch(by) for one, by in upstreams if one.starting and not one.offers and not one.restarts]

    @property
    def shows(self) -> bool:
        """Whether any server has something to show, or is known to have nothing."""
        return any(one.upstream.link is not None or one.upstream.offers for one in self.stations.values())

    @property
    def complete(self) -> bool:
        """Whether all that every server has is known."""
        upstreams = [station.upstream for station in self.stations.values()]
        return bool(upstreams) and all(
            one.link is not None or (one.status is Status.SLEEPING and one.error is None) for one in upstreams
        )

    # --- making one ---------------------------------------------------------------------------

    def _station(self, config: ServerConfig, thing: object) -> ManagedServer:
        def current() -> ServerConfig:
            return station.config

        credentials = self._credentials(config) if config.url is not None and thing is None else None
        dial = self._told_of(self._dial(current, config, thing, credentials), config.name)
        member = Member(0, 0)

        def changed(_: Upstream) -> None:
            self._changed(station)

        upstream = self._upstream(
            config,
            dial,
            changed,
            config.era,
            bare=lambda: member.bare,
            care=self._care(config),
            room=self._room_for(config, thing),
            **self._for_only_client(),
        )
        upstream.feed = self._feed(upstream, lambda: member.bare)
        upstream.prepare = lambda offers: self._prepare(partial(self.sources, station, offers))
        member.home = upstream
        if credentials is not None:
            credentials.on_login = upstream.logged_in
        station = ManagedServer(
            config, dial, member, upstream, Feeds(upstream.feed), thing=thing, credentials=credentials
        )
        self._settle_terms(station)
        if thing is None or self._takes_several(thing):
            station.lanes = self._lanes(station)
            member.choose = station.lanes.choose
            station.feeds.anothers = station.lanes.is_anothers
        return station

    def _settle_terms(self, station: ManagedServer) -> None:
        """How long calls of a server may take, how it is looked after, how much is asked of it at a time."""
        config, settings, member = station.config, self.settings, station.member
        member.idle = config.call_timeout or settings.call_timeout
        member.limit = config.call_max or settings.call_max
        station.upstream.adjust(**self._terms(config), care=self._care(config))
        if station.lanes is not None:
            station.lanes.adjust(settings.max_instances, settings.instance_idle)

    def _terms(self, config: ServerConfig) -> dict[str, Any]:
        """What holds for each connection to a server."""
        return {
            "start_timeout": start_timeout(config.start_timeout, config.command),
            "list_timeout": self.settings.list_timeout,
            "max_listed": self.settings.max_tools,
            "limits": ServerLimits(config.max_concurrency, config.max_queue, self.settings.queue_wait),
        }

    def reconfigure(self, settings: GatewaySettings, naming: Naming) -> None:
        """The gateway behaves otherwise from now on."""
        self.settings, self.naming = settings, naming
        for station in (*self.stations.values(), *(coming for coming, _ in self._swapping.values())):
            self._settle_terms(station)
        self._name_prefixes()

    def _told_of(self, dial: Callable[[], ServerTransport], name: str) -> Callable[[], ServerTransport]:
        trace = self._trace
        return dial if trace is None else lambda: trace.around(dial(), name)

    def _dial(
        self,
        current: Callable[[], ServerConfig],
        config: ServerConfig,
        thing: object,
        credentials: Credentials | None,
    ) -> Callable[[], ServerTransport]:
        """How the server is reached, each time anew, as its configuration says by then."""
        if config.unusable:

            def refuse() -> ServerTransport:
                raise SpawnError(config.unusable)

            return refuse

        if thing is not None:
            from muxway.servers.transports.inprocess import as_server
            from muxway.servers.transports.memory import MemoryServerTransport

            server = as_server(thing, config.name)
            return lambda: MemoryServerTransport(server)

        def limit() -> int:
            return current().max_message_bytes or self.settings.max_message_bytes

        if config.transport != "stdio":
            from muxway.servers.transports.http import HttpServerTransport

            return lambda: HttpServerTransport(current(), limit(), credentials)

        journal = self.journals.setdefault(config.name, Journal())

        def spawn() -> ServerTransport:
            return StdioServerTransport(current(), self._nursery, self.turn, limit(), journal)

        return spawn

    @staticmethod
    def _takes_several(thing: object) -> bool:
        """Whether an object of this process can be served in both eras side by side."""
        from muxway.servers.transports.inprocess import takes_several

        return takes_several(thing)

    def _room_for(self, config: ServerConfig, thing: object) -> Callable[[], Awaitable[None]] | None:
        """How the start of a connection waits for a place; None if it needs none."""
        if config.transport != "stdio" or thing is not None:
            return None
        return lambda: self._places.take(lambda: self.settings.max_processes, self.settings.queue_wait)

    def _free_one(self) -> bool:
        """End the process that has been idle for the longest time; False if all are in use."""
        idle: list[tuple[float, Callable[[], None]]] = []
        for station in self.stations.values():
            upstream = station.upstream
            if station.thing is None and station.config.transport == "stdio":
                if upstream.link is not None and not upstream.in_use:
                    idle.append((upstream.link.used, upstream.sleep))
                if station.lanes is not None:
                    idle += station.lanes.idle()
        if not idle:
            return False
        min(idle, key=lambda known: known[0])[1]()
        return True

    @staticmethod
    def _care(config: ServerConfig) -> Care:
        child = config.transport == "stdio" and config.command is not None
        idle_stop = config.idle_stop
        if idle_stop is None and config.start == "lazy":
            idle_stop = _LAZY_IDLE
        return Care(
            # What it lacks does not come while we run: a reload brings another configuration.
            supervised=not config.unusable,
            probe_interval=config.probe_interval if child and config.restart_unresponsive else 0.0,
            restart_unresponsive=child and config.restart_unresponsive,
            idle_stop=idle_stop,
        )

    def _feed(self, upstream: Upstream, bare: Callable[[], bool]) -> ServerFeed:
        name, subscriptions = upstream.name, self._switchboard.subscriptions

        def updated(uri: str) -> None:
            subscriptions.updated(name, uri)

        feed = ServerFeed(name, upstream.hear_notice, updated, partial(self._switchboard.audience.log, name), bare)
        feed.wake = upstream.wake
        return feed

    def _upstream(
        self,
        config: ServerConfig,
        dial: Callable[[], ServerTransport],
        on_change: Callable[[Upstream], None],
        era: Era,
        **more: Any,
    ) -> Upstream:
        upstream = Upstream(
            config.name,
            dial,
            client_info=self._client_info,
            on_change=on_change,
            era=era,
            mask=masker(config.secrets),
            **self._terms(config),
            **more,
        )
        upstream.on_page_done = self._switchboard.audience.page_done
        return upstream

    def _for_only_client(self) -> dict[str, Any]:
        """What a connection that everybody may share needs to know of the only client, if there is but one."""
        only = self._switchboard.audience.only
        return {} if only is None else {"client": only}

    def _lanes(self, station: ManagedServer) -> Pool:
        config = station.config

        def open_lane(
            changed: Callable[[Upstream], None],
            era: Era,
            capabilities: Mapping[str, Any],
            shared: bool,
            client: Client | None,
        ) -> Upstream:
            if shared:
                return self._open_twin(station, changed, era, capabilities)
            # What a stateless server's tools want repeated in headers is learned from their list.
            kinds = (TOOLS,) if era == "modern" else ()
            return self._upstream(
                station.config,
                station.dial,
                changed,
                era,
                capabilities=capabilities,
                kinds=kinds,
                first=False,
                bare=lambda: station.member.bare,
                client=client,
                stats=station.upstream.stats,
                room=self._room_for(station.config, station.thing),
            )

        return Pool(
            station.upstream,
            open_lane,
            # However often an object is served, what it keeps is the same.
            isolation=config.isolation if station.thing is None else "shared",
            match_era=config.era == "auto",
            keeps_state=config.transport == "stdio",
            limit=self.settings.max_instances,
            idle=self.settings.instance_idle,
            alone=self._switchboard.audience.only is not None,
            personal=self._is_personal(station),
        )

    @staticmethod
    def _is_personal(station: ManagedServer) -> Callable[[], bool] | None:
        """How to find out whether a server is used with the login of one user; None: it never is."""
        credentials, oauth = station.credentials, station.config.oauth
        if credentials is None or oauth.shared or not oauth.interactive:
            return None
        return lambda: credentials.header is not None

    def _open_twin(
        self, station: ManagedServer, changed: Callable[[Upstream], None], era: Era, capabilities: Mapping[str, Any]
    ) -> Upstream:
        """A connection for handshake callers: what it lists is listed for them, and what they change in it is told."""

        def listed(twin: Upstream) -> None:
            def go_on() -> None:
                changed(twin)
                if not station.member.starting:
                    # Some calls wait for what it lists.
                    station.member.release()

            if twin.link is None:
                go_on()
            else:
                station.handshake_offers = dict(twin.offers)
                self._on_change(go_on)

        twin = self._upstream(
            station.config,
            station.dial,
            listed,
            era,
            capabilities=capabilities,
            first=False,
            bare=lambda: station.member.bare,
            stats=station.upstream.stats,
            room=self._room_for(station.config, station.thing),
            **self._for_only_client(),
        )
        twin.feed = self._feed(twin, lambda: station.member.bare)
        station.feeds.join(twin.feed)
        station.upstream.twin = twin
        return twin

    # --- what happens -------------------------------------------------------------------------

    def _left(self, party: object) -> None:
        for station in self.stations.values():
            if station.lanes is not None:
                station.lanes.gone(party)

    def _session_came(self) -> None:
        """Servers of both eras are reached in that of the client, before it lists what they have."""
        self._has_sessions = True
        for station in self.stations.values():
            self._open_for_sessions(station)

    def _open_for_sessions(self, station: ManagedServer) -> None:
        opening = None if station.lanes is None else station.lanes.open_for_sessions()
        if opening is not None:
            station.member.opening = opening
            asyncio.get_running_loop().call_later(_SECOND_SIDE, self._wait_no_more, station, opening)

    @staticmethod
    def _wait_no_more(station: ManagedServer, opening: Member) -> None:
        """Whoever lists has waited for long enough."""
        if station.member.opening is opening:
            station.member.opening = None
            opening.release()

    def _roots_changed(self, party: object) -> None:
        """The roots of a client are others now: told to the connections that are for it alone."""
        only = self._switchboard.audience.only
        for station in self.stations.values():
            connections = [] if station.lanes is None else station.lanes.of(party)
            if only is not None and only.client is party:
                connections = station.connections
            for one in connections:
                if one.link is not None and not one.link.revision.stateless:
                    one.link.notify("notifications/roots/list_changed")

    def _changed(self, station: ManagedServer) -> None:
        upstream, member = station.upstream, station.member
        if station.thing is None and upstream.link is not None and upstream.greeting is not None:
            self._memory.keep(station.config, upstream.greeting, upstream.offers)
        why = (upstream.error or f"it is {upstream.status}").removeprefix(f'server "{upstream.name}" ')
        member.settle(upstream.link, why)
        if upstream.link is not None and self._has_sessions:
            self._open_for_sessions(station)
        self._on_change(None if member.starting else member.release)

    # --- what they show -----------------------------------------------------------------------

    def different(self) -> list[str]:
        """Servers that are not what they were when this was last asked: anew, with other lists, or gone."""
        now: dict[str, list[object]] = {}
        for name, station in self.stations.items():
            upstream = station.upstream
            before = self._seen.get(name)
            # While it is away it is the one that it was.
            link = upstream.link if upstream.link is not None or before is None else before[0]
            in_sessions = station.handshake_offers or {}
            now[name] = [link, station.config, *upstream.offers.values(), *in_sessions.values()]
        before, self._seen = self._seen, now
        return [
            name
            for name in {**before, **now}
            if name not in now or name not in before or not _same(before[name], now[name])
        ]

    def _name_prefixes(self) -> None:
        prefixes = build.assign_prefixes(
            self.naming, {name: station.config.prefix for name, station in self.stations.items()}
        )
        for name, station in self.stations.items():
            station.member.prefix = prefixes[name]
            station.member.unprefixed = not prefixes[name] or _renames_any(station.config)
            # Nobody need be told apart.
            station.member.bare = len(self.stations) == 1 and not prefixes[name]

    def sources(
        self, changing: ManagedServer | None = None, coming: Mapping[Kind, Offer] | None = None
    ) -> list[Source]:
        """What each server shows that has anything to show; with what is coming, if one is about to change."""
        shown: list[Source] = []
        for name, station in self.stations.items():
            offers = station.upstream.offers
            if station is changing and coming:
                offers = {**offers, **coming}
            if station.upstream.link is not None or offers:
                shown.append(self._source(name, station, offers))
        return shown

    def _source(self, name: str, station: ManagedServer, offers: Mapping[Kind, Offer]) -> Source:
        """Its part in the catalogs; the same as before if nothing of it has changed, as nothing has of most."""
        config, upstream, greeting = station.config, station.upstream, station.upstream.greeting
        in_sessions = greeting
        if greeting is not None and greeting.revision.stateless and config.era == "auto" and station.lanes is not None:
            in_sessions = None if upstream.twin is None else upstream.twin.greeting
        lists = [
            listed and [(kind, offer.natives, offer.hint) for kind, offer in listed.items()]
            for listed in (offers, station.handshake_offers)
        ]
        made_of = [config, greeting, in_sessions, station.member.prefix, station.member.bare, *lists]
        if station.shown is None or station.shown[0] != made_of:
            station.shown = made_of, self._new_source(name, station, offers, greeting, in_sessions)
        return station.shown[1]

    def _new_source(
        self,
        name: str,
        station: ManagedServer,
        offers: Mapping[Kind, Offer],
        greeting: Negotiated | None,
        in_sessions: Negotiated | None,
    ) -> Source:
        config = station.config
        sides = [one for one in (greeting, in_sessions) if one is not None]
        return build.Source(
            upstream=name,
            tools=_natives(station, offers, TOOLS),
            prompts=_natives(station, offers, PROMPTS),
            resources=_natives(station, offers, RESOURCES),
            templates=_natives(station, offers, TEMPLATES),
            prefix=station.member.prefix,
            bare=station.member.bare,
            asked=name if config.prefix is None else config.prefix,
            exposed=_renames(config.exposed_tools),
            hidden=frozenset(config.hidden_tools),
            read_only=config.read_only,
            shapes=config.shape,
            exposed_prompts=_renames(config.exposed_prompts),
            hidden_prompts=frozenset(config.hidden_prompts),
            uris=UriFilter(config.exposed_resources, config.hidden_resources),
            reads=station.member.bare or any(one.has("resources") for one in sides),
            declared=_declared(greeting),
            declared_to_sessions=_declared(in_sessions),
            completes=any(one.completes for one in sides),
            unlisted=_unlisted(station, offers),
            hints={kind.name: offer.hint for kind, offer in offers.items()},
            instructions="" if greeting is None else greeting.instructions,
        )


def _declared(greeting: Negotiated | None) -> Mapping[str, Any] | None:
    """What it says that it can do; None if it may have more than it says."""
    return None if greeting is None or greeting.vague else greeting.capabilities


def _natives(station: ManagedServer, offers: Mapping[Kind, Offer], kind: Kind) -> Sequence[Native]:
    """What a server offers in either era."""
    natives = offers.get(kind, Offer()).natives
    more = () if station.handshake_offers is None else station.handshake_offers.get(kind, Offer()).natives
    known = {native.name for native in natives} if more else set[str]()
    return [*natives, *(native for native in more if native.name not in known)] if more else natives


def _unlisted(
    station: ManagedServer, offers: Mapping[Kind, Offer]
) -> tuple[frozenset[tuple[str, str]], frozenset[tuple[str, str]]]:
    """What of that is not listed for handshake callers, and for stateless ones."""
    if station.handshake_offers is None:
        return frozenset(), frozenset()
    one = {(kind.name, native.name) for kind, offer in offers.items() for native in offer.natives}
    other = {(kind.name, native.name) for kind, offer in station.handshake_offers.items() for native in offer.natives}
    return frozenset(one - other), frozenset(other - one)


def _renames_any(config: ServerConfig) -> bool:
    exposed = (*(config.exposed_tools or ()), *(config.exposed_prompts or ()))
    return any(entry.exposed for entry in exposed) or any(wanted.name for wanted in config.shape)


def _same(before: Sequence[object], now: Sequence[object]) -> bool:
    return len(before) == len(now) and all(map(is_, before, now))


def _renames(exposed: Sequence[ExposedTool] | None) -> dict[str, str | None] | None:
    return None if exposed is None else {entry.original: entry.exposed for entry in exposed}
