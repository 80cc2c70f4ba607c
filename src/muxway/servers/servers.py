"""The servers of a gateway: started, replaced and ended, and what all of them show."""

from __future__ import annotations

import asyncio
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Final

from muxway.catalog import build
from muxway.errors import UpstreamError
from muxway.log import EventLog
from muxway.net.threads import in_own_thread
from muxway.routing.snapshot import NO_OWN_LISTS, OwnLists
from muxway.servers.dialing import Dialing, is_child, launch_work, may_fetch, start_timeout, takes_several
from muxway.servers.endings import Endings
from muxway.servers.instance import Hooks, Instance, ServerTerms
from muxway.servers.limits import ServerLimits
from muxway.servers.list_memory import ListMemory
from muxway.servers.managed_server import PATIENCE, ManagedServer
from muxway.servers.pool import Sharing
from muxway.servers.sources import renames_any, source_of
from muxway.servers.state import State
from muxway.servers.supervision import Care

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from muxway.calls.identity import Owner
    from muxway.catalog.build import Source
    from muxway.catalog.kinds import Kind
    from muxway.catalog.naming import Naming
    from muxway.config.model import Config, GatewaySettings, ServerConfig
    from muxway.config.plan import Plan
    from muxway.exchange.runtime import Runtime
    from muxway.net.message_trace import MessageTrace
    from muxway.net.pipes import Turn
    from muxway.net.processes.launch import ReaperProcess
    from muxway.servers.lists import Offer
    from muxway.servers.lock import Lock
    from muxway.servers.negotiation import Negotiated
    from muxway.servers.transports.port import Credentials

_LAZY_IDLE: Final = 300.0
"""Seconds without a call after which a lazy server is put to sleep, if nothing else is said."""
_MOST_USERS: Final = 1000
"""Users of whom it is kept what one server has for them."""
_LOOK: Final = 0.1
"""Seconds between two looks whether a server that is to go still works for somebody."""

log = EventLog("upstream")


class Servers:
    """Starts servers, replaces them and ends them, and says what they have."""

    def __init__(
        self,
        settings: GatewaySettings,
        naming: Naming,
        servers: dict[str, ManagedServer],
        runtime: Runtime,
        *,
        on_change: Callable[[Callable[[], None] | None], None],
        prepare: Callable[[Callable[[], list[Source]]], Awaitable[None]],
        reaper: ReaperProcess | None,
        trace: MessageTrace | None = None,
        credentials: Callable[[ServerConfig, Owner | None], Credentials | None] = lambda _, __: None,
    ) -> None:
        """Prepare.

        Args:
            settings: how the gateway behaves.
            naming: how public names are made.
            servers: none yet; those whom calls are sent to are kept here.
            runtime: where news of the servers goes.
            on_change: called when something about a server has changed, with what to do when that is in force.
            prepare: waits until all is ready for a change, given what gives the sources after it.
            reaper: the process that will look after the children, if it has been started ahead.
            trace: who is told of every message, if somebody is.
            credentials: gives what a remote server is shown, where that is not in its configuration, in the name of a
                user; None: of whoever runs the gateway.
        """
        self.settings = settings
        self.naming = naming
        self.by_name = servers
        """In the order of the configuration."""
        self._subscriptions = runtime.subscriptions
        self._on_change = on_change
        self._prepare = prepare
        self._credentials = credentials
        self._dialing = Dialing(lambda: self.settings, self._free_one, reaper, trace)
        self._hooks = Hooks(self._changed, on_change, runtime.subscriptions.updated, runtime.sessions)
        self._memory = ListMemory()
        self._recollected: dict[str, tuple[ServerConfig, tuple[Negotiated, dict[Kind, Offer]] | None]] = {}
        """What servers that are about to be added had when they last ran."""
        self.lock: Lock | None = None
        """What they are compared with; None: with nothing."""
        self._seen: dict[str, list[object]] = {}
        """What each server was made of when that was last looked at."""
        self._endings = Endings()
        self._stopping = False
        self._has_sessions = False
        runtime.on_left.append(self._left)
        runtime.sessions.on_session = self._session_came
        runtime.sessions.on_roots_changed = self._roots_changed

    @property
    def turn(self) -> Turn:
        """What is written to pipes in one turn of the loop."""
        return self._dialing.turn

    # --- life ---------------------------------------------------------------------------------

    def add(self, config: ServerConfig, thing: object = None) -> ManagedServer:
        """Begin to start a server; `thing` is the Python object that it is, if it is one of this process."""
        server = ManagedServer()
        instance = self._instance(server, config, thing)
        self._let_serve(instance)
        self._settle_terms(instance)
        self.by_name[config.name] = server
        self._name_prefixes()
        self._subscriptions.add(config.name, instance.feeds)
        if self._recall(instance) and config.start == "lazy":
            server.first.lie_down()
        else:
            server.first.start()
        return server

    async def recollect(self, configs: Sequence[ServerConfig]) -> None:
        """Before these are added: read beside the event loop what they had when they last ran."""
        known = await in_own_thread(lambda: [(config, self._memory.recall(config)) for config in configs])
        self._recollected = {config.name: (config, had) for config, had in known}

    def _recall(self, instance: Instance) -> bool:
        """Let a server show what it had when it last ran, started in the same way. Whether that is known."""
        config, known = self._recollected.pop(instance.config.name, (None, None))
        if config is not instance.config:
            known = None if instance.thing is not None else self._memory.recall(instance.config)
        if known is not None:
            instance.pool.first.expect(*known)
        return known is not None

    @staticmethod
    def check(name: str, thing: object) -> None:
        """Raise MuxwayError if an object cannot be a server."""
        from muxway.servers.transports.inprocess import as_server

        as_server(thing, name)

    async def remove(self, name: str) -> None:
        """End a server and forget it. Its calls under way fail. KeyError: there is none."""
        server = self._forget(name)
        self._on_change(None)
        # Whoever does not want to wait for its end does not keep it from ending.
        await asyncio.shield(self._endings.begin(server.instance.stop()))

    async def restart(self, name: str) -> None:
        """End a server and start it anew; wait until it is ready or has failed. KeyError: there is none."""
        server = self.by_name[name]
        await asyncio.gather(*(one.instance.restart() for one in (server, *server.of_users.values())))

    def retire(self, name: str) -> None:
        """Forget a server at once, and end it when its calls under way are over."""
        self._endings.begin(self._drained(self._forget(name).instance))

    def _forget(self, name: str) -> ManagedServer:
        self.abandon(name)
        server = self.by_name.pop(name)
        for owner in list(server.of_users):
            self._endings.begin(self._drained(self._forget_user(server, owner).instance))
        self._subscriptions.remove(name)
        self._name_prefixes()
        return server

    def adjust(self, config: ServerConfig) -> None:
        """Treat a server as this says, and leave its process alone."""
        server = self.by_name[config.name]
        before = server.config
        for one in (server, *server.of_users.values()):
            one.instance.config = config
            self._settle_terms(one.instance)
        if before.start == "lazy" and config.start == "eager":
            server.wake()

    def swap(self, config: ServerConfig, thing: object = None) -> None:
        """Put a new process or connection in the place of a server's old one, once it is ready or has failed.

        Until then the old one serves, and it is not ended before its calls under way are over.
        """
        server = self.by_name[config.name]
        coming = server.coming
        if coming is not None and coming.config == config and coming.thing is thing:
            return
        self.abandon(config.name)
        instance = self._instance(server, config, thing)
        self._settle_terms(instance)
        if server.connection is None and server.first.state.now is not State.SLEEPING:
            # Nothing is lost if the old one goes first, and whoever calls waits for the new one.
            self._recall(instance)
            instance.pool.first.start()
            self._put(instance)
            return
        server.expect(instance, asyncio.get_running_loop().create_task(self._swap_when_settled(instance)))

    async def _swap_when_settled(self, instance: Instance) -> None:
        first = instance.pool.first
        first.start()
        await first.state.settled()
        instance.server.expect_none()
        self._put(instance)
        log.info("server swapped", upstream=first.name, status=first.state.now.status)

    def _put(self, instance: Instance) -> None:
        """Let an instance take the place of the one that serves."""
        server = instance.server
        old = server.instance
        self._let_serve(instance)
        self._settle_terms(instance)
        self._name_prefixes()
        self._subscriptions.replace(instance.config.name, instance.feeds)
        self._changed(instance)
        self._endings.begin(self._drained(old))
        for owner, before in list(server.of_users.items()):
            self._endings.begin(self._drained(self._forget_user(server, owner).instance))
            if server.make_own is not None and (again := server.make_own(owner)) is not None:
                again.first.expect_again(before.first)

    def abandon(self, name: str) -> None:
        """Do not put a new one in the place of this server after all."""
        server = self.by_name[name]
        if server.swap is not None:
            server.swap.cancel()
        coming = server.expect_none()
        if coming is not None:
            self._endings.begin(coming.stop())

    async def _drained(self, instance: Instance) -> None:
        loop = asyncio.get_running_loop()
        over = loop.time() + instance.server.limit
        try:
            # The hot path need not tell of every end.
            while instance.busy and not self._stopping and loop.time() < over:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK)
        finally:
            await instance.stop()

    def order(self, names: Sequence[str]) -> None:
        """Have the servers in this order, which is that of the lists."""
        self.by_name.update([(name, self.by_name.pop(name)) for name in names if name in self.by_name])
        self._name_prefixes()

    async def settled(self) -> None:
        """Wait until every server is ready or has failed. Each has its own time limit."""
        for server in list(self.by_name.values()):
            await server.first.state.settled()
        swaps = [server.swap for server in self.by_name.values() if server.swap is not None]
        if swaps:
            await asyncio.wait(swaps)

    async def stop(self) -> None:
        """End every server, all at once, and wait until they are gone."""
        # From here on, what is let go does not wait for the end of its calls.
        self._stopping = True
        for name in self.by_name:
            self.abandon(name)
        try:
            await asyncio.gather(*(server.instance.stop() for server in self._each()))
            await self._endings.over()
            await self._memory.written()
        finally:
            await self._dialing.aclose()

    # --- making one ---------------------------------------------------------------------------

    def _each(self) -> Iterator[ManagedServer]:
        """Every server, and those that are used in the name of a user."""
        for server in self.by_name.values():
            yield server
            yield from server.of_users.values()

    def _let_serve(self, instance: Instance) -> None:
        """Put an instance in; if users have logins of their own there, it can be used in the name of each."""
        server = instance.server
        own = instance.pool.sharing.personal is not None
        server.make_own = partial(self._for_user, server) if own else None
        server.make_room = partial(self._make_room, server)
        server.listed_for_all = False
        server.put(instance)

    def _for_user(self, server: ManagedServer, owner: Owner) -> ManagedServer | None:
        """Begin to use a server in the name of a user; None: it wants nobody's name."""
        credentials = server.instance.credentials
        if credentials is None or not credentials.wanted or self._stopping:
            return None
        own = ManagedServer(owner, server)
        own.prefix, own.unprefixed, own.bare = server.prefix, server.unprefixed, server.bare
        instance = self._instance(own, server.config, server.instance.thing)
        own.put(instance)
        self._settle_terms(instance)
        server.of_users[owner] = own
        self._subscriptions.add(instance.place, instance.feeds)
        try:
            self._make_room(server)
        except UpstreamError:
            # A call will try again, and say so; a list is of what there is.
            own.first.lie_down()
            return own
        own.first.start()
        # Lists wait for it, but not for long.
        asyncio.get_running_loop().call_later(PATIENCE, own.waiting.release)
        return own

    def _forget_user(self, server: ManagedServer, owner: Owner) -> ManagedServer:
        own = server.of_users.pop(owner)
        self._subscriptions.remove(own.instance.place)
        return own

    def _make_room(self, server: ManagedServer) -> None:
        """See that a server may be used in the name of one more user. Raises UpstreamError if not."""
        name, most = server.config.name, self.settings.max_instances
        awake = [own for own in server.of_users.values() if own.first.open]
        if len(awake) >= most:
            idle = [own for own in awake if own.connection is not None and not own.first.in_use]
            if not idle:
                why = f'server "{name}" is already used in the name of {most} users (maxInstances); try again later'
                raise UpstreamError(name, "overloaded", why)
            min(idle, key=lambda own: own.first.used).first.sleep()
        if len(server.of_users) >= _MOST_USERS:
            asleep = [(own.first.used, owner) for owner, own in server.of_users.items() if not own.first.open]
            if asleep:
                self._endings.begin(self._forget_user(server, min(asleep)[1]).instance.stop())

    @property
    def secrets(self) -> frozenset[str]:
        """What users have shown servers, and nobody else may see."""
        every = [one.instance.credentials for one in self._each()]
        return frozenset[str]().union(*(one.secrets for one in every if one is not None))

    def those_with_logins(self) -> list[ServerConfig]:
        """Those that are known to want a login."""
        shown = [(one.config, one.instance.credentials) for one in self.by_name.values()]
        return [config for config, credentials in shown if credentials is not None and credentials.wanted]

    def lets_nobody_in(self, name: str) -> bool:
        """Whether a server is known to want a login of everybody, before anything else."""
        server = self.by_name.get(name)
        return server is not None and server.first.state.now is State.LOGIN_NEEDED

    def logged_in(self, name: str, owner: Owner | None) -> None:
        """A user has logged in to a server, or out of it: what is there for that user now is found out."""
        server = self.by_name.get(name)
        if server is None:
            return
        if owner is None:
            server.instance.renew()
            return
        if server.instance.credentials is not None:
            server.instance.credentials.wanted = True
        own = server.of_users.get(owner)
        if own is None:
            server.of(owner)
        else:
            own.instance.renew()

    def _instance(self, server: ManagedServer, config: ServerConfig, thing: object) -> Instance:
        by_login = thing is None and (config.url is not None or bool(config.user_values))
        credentials = self._credentials(config, server.owner) if by_login else None
        instance = Instance(
            server,
            config,
            thing,
            self._terms(config),
            self._hooks,
            dial=self._dialing.dial(lambda: instance.config, config, thing, server.journal, credentials),
            room=self._dialing.room(config, thing),
            sharing=Sharing(
                # However often an object is served, what it keeps is the same.
                isolation=config.isolation if thing is None else "shared",
                match_era=config.era == "auto" and (thing is None or takes_several(thing)),
                keeps_state=config.transport == "stdio",
                alone=self._hooks.sessions.only is not None,
                forward=frozenset(config.forward),
                personal=_personal(config, credentials) if server.owner is None else None,
            ),
            credentials=credentials,
        )
        instance.pool.first.lists.prepare = lambda offers: self._prepare(partial(self.sources, instance, offers))
        return instance

    def _settle_terms(self, instance: Instance) -> None:
        """How long calls of a server may take, how it is looked after, how much is asked of it at a time."""
        config, settings, server = instance.config, self.settings, instance.server
        if instance is server.instance or server.owner is not None:
            server.idle = config.call_timeout or settings.call_timeout
            server.limit = config.call_max or settings.call_max
        terms = self._terms(config)
        if server.owner is not None:
            # When its user does nothing there it sleeps, as others that are not for everybody end.
            idle_stop = min(filter(None, (terms.care.idle_stop, terms.idle)))
            terms = terms._replace(care=terms.care._replace(idle_stop=idle_stop))
        instance.adjust(terms)

    def _terms(self, config: ServerConfig) -> ServerTerms:
        settings = self.settings
        return ServerTerms(
            start_timeout(config.start_timeout, config.command),
            settings.list_timeout,
            settings.max_tools,
            ServerLimits(config.max_concurrency, config.max_queue, settings.queue_wait),
            _care(config),
            settings.max_instances,
            settings.instance_idle,
        )

    def apply(self, config: Config, changes: Plan, naming: Naming) -> None:
        """Do with the servers what was planned for this configuration."""
        for name in changes.stop:
            self.retire(name)
        self.reconfigure(config.gateway, naming)
        for name in changes.adjust:
            self.adjust(config.servers[name])
        for name in changes.start:
            self.add(config.servers[name], config.objects.get(name))
        for name in changes.swap:
            self.swap(config.servers[name], config.objects.get(name))
        for name in (*changes.keep, *changes.adjust):
            self.abandon(name)
        self.order(list(config.servers))

    def reconfigure(self, settings: GatewaySettings, naming: Naming) -> None:
        """The gateway behaves otherwise from now on."""
        self.settings, self.naming = settings, naming
        for server in self._each():
            self._settle_terms(server.instance)
            if server.coming is not None:
                self._settle_terms(server.coming)
        self._name_prefixes()

    def _free_one(self) -> bool:
        """End the process that has been idle for the longest time; False if all are in use."""
        instances = [server.instance for server in self._each()]
        children = [one for one in instances if is_child(one.config, one.thing)]
        idle = [known for one in children for known in one.pool.idle()]
        if not idle:
            return False
        min(idle, key=lambda known: known[0])[1]()
        return True

    # --- what happens -------------------------------------------------------------------------

    def _left(self, party: object) -> None:
        for server in self._each():
            server.instance.pool.gone(party)

    def _session_came(self) -> None:
        """Servers of both eras are reached in that of the client, before it lists what they have."""
        self._has_sessions = True
        for server in self._each():
            server.instance.pool.open_for_sessions()

    def _roots_changed(self, party: object) -> None:
        """The roots of a client are others now: told to the connections that are for it alone."""
        only = self._hooks.sessions.only
        for server in self._each():
            pool = server.instance.pool
            slots = pool.slots.values() if only is not None and only.client is party else pool.of(party)
            for slot in slots:
                if slot.connection is not None and not slot.connection.revision.stateless:
                    slot.connection.own.notify("notifications/roots/list_changed")

    def _changed(self, instance: Instance) -> None:
        """Something about the first connection of a server, or about its lists, has changed."""
        server, first = instance.server, instance.pool.first
        if first.connection is not None:
            if instance.thing is None and first.greeting is not None and server.owner is None:
                self._memory.keep(instance.config, first.greeting, first.lists.offers)
            if server.owner is None:
                server.listed_for_all = instance.credentials is None or not instance.credentials.wanted
            if self._has_sessions:
                instance.pool.open_for_sessions()
        waits = instance is not server.instance or first.starting
        self._on_change(None if waits else server.waiting.release)

    # --- what they show -----------------------------------------------------------------------

    @property
    def unknown(self) -> list[bool]:
        """For each server that is being started and of which nothing is known yet: whether it may have to be fetched.

        One that has failed is known to have nothing for now, however often it is tried again.
        """
        return [may_fetch(server.config.command) for server in self._never_seen]

    @property
    def _never_seen(self) -> list[ManagedServer]:
        return [
            server
            for server in self.by_name.values()
            if server.starting and not server.lists.offers and not server.first.state.restarts
        ]

    def launch_work(self) -> float | None:
        """Processor seconds that the launchers of `unknown` servers have used so far; None if nobody can tell."""
        used = [launch_work(server.first) for server in self._never_seen if may_fetch(server.config.command)]
        return None if None in used else sum(one for one in used if one is not None)

    @property
    def shows(self) -> bool:
        """Whether any server has something to show, or is known to have nothing."""
        return any(server.connection is not None or server.lists.offers for server in self.by_name.values())

    @property
    def complete(self) -> bool:
        """Whether all that every server has is known."""
        states = [server.first.state for server in self.by_name.values()]
        return bool(states) and all(
            state.now is State.RUNNING or (state.now is State.SLEEPING and state.reason is None) for state in states
        )

    def different(self) -> list[str]:
        """Servers that are not what they were when this was last asked: anew, with other lists, or gone."""
        now: dict[str, list[object]] = {}
        for name, server in self.by_name.items():
            before = self._seen.get(name)
            # While it is away it is the one that it was.
            connection = server.connection if server.connection is not None or before is None else before[0]
            sessions = server.instance.sessions
            in_sessions = () if sessions is None else sessions.offers.values()
            of_users = [one for own in server.of_users.values() for one in own.lists.offers.values()]
            now[name] = [connection, server.config, *server.lists.offers.values(), *in_sessions, *of_users]
        before, self._seen = self._seen, now
        return [
            name
            for name in {**before, **now}
            if name not in now or name not in before or not _same(before[name], now[name])
        ]

    def _name_prefixes(self) -> None:
        asked = {name: server.config.prefix for name, server in self.by_name.items()}
        prefixes = build.assign_prefixes(self.naming, asked)
        for name, server in self.by_name.items():
            server.prefix = prefixes[name]
            server.unprefixed = not prefixes[name] or renames_any(server.config)
            # Nobody need be told apart.
            server.bare = len(self.by_name) == 1 and not prefixes[name]
            for own in server.of_users.values():
                own.prefix, own.unprefixed, own.bare = server.prefix, server.unprefixed, server.bare

    def sources(self, changing: Instance | None = None, coming: Mapping[Kind, Offer] | None = None) -> list[Source]:
        """What each server shows that has anything to show; with what is coming, if one is about to change."""
        shown: list[Source] = []
        for server in self.by_name.values():
            offers: Mapping[Kind, Offer] = server.lists.offers
            if server.instance is changing and coming:
                offers = {**offers, **coming}
            if server.connection is not None or offers:
                shown.append(source_of(server, offers, self.lock))
        return shown

    def own_lists(self) -> OwnLists:
        """What servers list in the name of each user."""
        apart = {name: one for name, one in self.by_name.items() if not one.is_everybodys}
        if not apart:
            return NO_OWN_LISTS
        listed: dict[Owner, dict[str, Source]] = {}
        for name, server in apart.items():
            for owner, own in server.of_users.items():
                if own.connection is not None or own.lists.offers:
                    listed.setdefault(owner, {})[name] = source_of(own, own.lists.offers)
        return OwnLists(frozenset(apart), listed)


def _personal(config: ServerConfig, credentials: Credentials | None) -> Callable[[], bool] | None:
    """How to find out whether a server is used with the login of one user; None: it never is."""
    if credentials is not None and config.user_values:
        return lambda: True
    if credentials is None or config.oauth.shared or not config.oauth.interactive:
        return None
    return lambda: credentials.header is not None


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


def _same(before: Sequence[object], now: Sequence[object]) -> bool:
    return len(before) == len(now) and all(map(is_, before, now))
