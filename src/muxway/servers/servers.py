"""The servers of a gateway: started, replaced and ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from muxway.catalog import build
from muxway.errors import ConfigError
from muxway.log import EventLog
from muxway.net.threads import in_own_thread
from muxway.servers.dialing import Dialing, is_child
from muxway.servers.draining import Draining
from muxway.servers.factory import InstanceFactory
from muxway.servers.instance import Hooks
from muxway.servers.list_memory import ListMemory
from muxway.servers.managed_server import ManagedServer
from muxway.servers.sources import ServerSources, renames_any
from muxway.servers.state import State
from muxway.servers.users import ServerUsers, each_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from muxway.calls.identity import Owner
    from muxway.catalog.kinds import Kind
    from muxway.catalog.naming import Naming
    from muxway.config.model import Config, GatewaySettings, ServerConfig
    from muxway.config.plan import Plan
    from muxway.exchange.runtime import Runtime
    from muxway.net.message_trace import MessageTrace
    from muxway.net.processes.launch import ReaperProcess
    from muxway.servers.instance import Instance
    from muxway.servers.lists import Offer
    from muxway.servers.lock import Lock
    from muxway.servers.negotiation import Negotiated
    from muxway.servers.transports.port import Credentials

log = EventLog("upstream")


class Servers:
    """Starts servers, replaces them and ends them."""

    def __init__(
        self,
        settings: GatewaySettings,
        naming: Naming,
        servers: dict[str, ManagedServer],
        runtime: Runtime,
        *,
        on_change: Callable[[Callable[[], None] | None], None],
        prepare: Callable[[Instance, Mapping[Kind, Offer]], Awaitable[None]],
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
            prepare: waits until all is ready for what an instance is about to list.
            reaper: the process that will look after the children, if it has been started ahead.
            trace: who is told of every message, if somebody is.
            credentials: gives what a remote server is shown, where that is not in its configuration, in the name of a
                user; None: of whoever runs the gateway.
        """
        self.by_name = servers
        """In the order of the configuration."""
        self.sources = ServerSources(servers)
        """What they show."""
        self.dialing = Dialing(lambda: self._factory.settings, self._free_one, reaper, trace)
        """How they are reached."""
        self._naming = naming
        self._subscriptions = runtime.subscriptions
        self._sessions = runtime.sessions
        self._on_change = on_change
        self._factory = InstanceFactory(
            settings,
            self.dialing,
            Hooks(self._changed, on_change, runtime.subscriptions.updated, runtime.sessions),
            prepare,
            credentials,
        )
        self._draining = Draining()
        self._users = ServerUsers(self._factory, self._draining, runtime.subscriptions)
        self._memory = ListMemory()
        self._recollected: dict[str, tuple[ServerConfig, tuple[Negotiated, dict[Kind, Offer]] | None]] = {}
        """What servers that are about to be added had when they last ran."""
        self._has_sessions = False
        runtime.on_left.append(self._left)
        runtime.sessions.on_session = self._session_came
        runtime.sessions.on_roots_changed = self._roots_changed

    # --- life ---------------------------------------------------------------------------------

    def add(self, config: ServerConfig, thing: object = None) -> ManagedServer:
        """Begin to start a server; `thing` is the Python object that it is, if it is one of this process."""
        server = ManagedServer()
        instance = self._factory.make(server, config, thing)
        self._users.let_serve(instance)
        self._factory.settle_terms(instance)
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

    def check_new(self, name: str) -> None:
        """Raise ConfigError if there is such a server already."""
        if name in self.by_name:
            raise ConfigError("invalid_schema", f'there is already a server "{name}": remove it first')

    async def remove(self, name: str) -> None:
        """End a server and forget it. Its calls under way fail. KeyError: there is none."""
        server = self._forget(name)
        self._on_change(None)
        # Whoever does not want to wait for its end does not keep it from ending.
        await asyncio.shield(self._draining.begin(server.instance.stop()))

    async def restart(self, name: str) -> None:
        """End a server and start it anew; wait until it is ready or has failed. KeyError: there is none."""
        server = self.by_name[name]
        of_users = [asyncio.ensure_future(one.instance.restart()) for one in server.of_users.values()]
        # Not as a task: a call that comes in the next turn of the loop is to wait for the new one.
        await server.instance.restart()
        await asyncio.gather(*of_users)

    def retire(self, name: str) -> None:
        """Forget a server at once, and end it when its calls under way are over."""
        self._draining.drain(self._forget(name).instance)

    def _forget(self, name: str) -> ManagedServer:
        self.abandon(name)
        server = self.by_name.pop(name)
        self._users.end(server)
        self._subscriptions.remove(name)
        self._name_prefixes()
        return server

    def adjust(self, config: ServerConfig) -> None:
        """Treat a server as this says, and leave its process alone."""
        server = self.by_name[config.name]
        before = server.config
        for one in (server, *server.of_users.values()):
            one.instance.config = config
            self._factory.settle_terms(one.instance)
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
        instance = self._factory.make(server, config, thing)
        self._factory.settle_terms(instance)
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
        self._users.let_serve(instance)
        self._factory.settle_terms(instance)
        self._name_prefixes()
        self._subscriptions.replace(instance.config.name, instance.feeds)
        self._changed(instance)
        self._draining.drain(old)
        self._users.renew(server)

    def abandon(self, name: str) -> None:
        """Do not put a new one in the place of this server after all."""
        server = self.by_name[name]
        if server.swap is not None:
            server.swap.cancel()
        coming = server.expect_none()
        if coming is not None:
            self._draining.begin(coming.stop())

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
        self._draining.stopping = True
        for name in self.by_name:
            self.abandon(name)
        try:
            await asyncio.gather(*(server.instance.stop() for server in each_of(self.by_name)))
            await self._draining.over()
            await self._memory.written()
        finally:
            await self.dialing.aclose()

    def apply(self, config: Config, changes: Plan, naming: Naming, lock: Lock | None) -> None:
        """Do with the servers what was planned for this configuration, and compare them with this lock."""
        self.sources.lock = lock
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
        self._factory.settings, self._naming = settings, naming
        for server in each_of(self.by_name):
            self._factory.settle_terms(server.instance)
            if server.coming is not None:
                self._factory.settle_terms(server.coming)
        self._name_prefixes()

    def _free_one(self) -> bool:
        """End the process that has been idle for the longest time; False if all are in use."""
        instances = [server.instance for server in each_of(self.by_name)]
        children = [one for one in instances if is_child(one.config, one.thing)]
        idle = [known for one in children for known in one.pool.idle()]
        if not idle:
            return False
        min(idle, key=lambda known: known[0])[1]()
        return True

    # --- what happens -------------------------------------------------------------------------

    def _left(self, party: object) -> None:
        for server in each_of(self.by_name):
            server.instance.pool.gone(party)

    def _session_came(self) -> None:
        """Servers of both eras are reached in that of the client, before it lists what they have."""
        self._has_sessions = True
        for server in each_of(self.by_name):
            server.instance.pool.open_for_sessions()

    def _roots_changed(self, party: object) -> None:
        """The roots of a client are others now: told to the connections that are for it alone."""
        only = self._sessions.only
        for server in each_of(self.by_name):
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
        waits = instance is not server.instance or first.state.starting
        self._on_change(None if waits else server.waiting.release)

    def _name_prefixes(self) -> None:
        asked = {name: server.config.prefix for name, server in self.by_name.items()}
        prefixes = build.assign_prefixes(self._naming, asked)
        for name, server in self.by_name.items():
            server.prefix = prefixes[name]
            server.unprefixed = not prefixes[name] or renames_any(server.config)
            # Nobody need be told apart.
            server.bare = len(self.by_name) == 1 and not prefixes[name]
            for own in server.of_users.values():
                own.prefix, own.unprefixed, own.bare = server.prefix, server.unprefixed, server.bare
