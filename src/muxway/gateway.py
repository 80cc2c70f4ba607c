"""The composition root: a configuration becomes a running gateway. Knows everybody; nobody but `cli` knows it."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

from muxway import __version__
from muxway.access.rules import Access
from muxway.calls.call import LIBRARY, Call
from muxway.calls.ports import Waiter
from muxway.catalog.client_profiles import PROFILES, adapt
from muxway.catalog.globs import Globs
from muxway.catalog.kinds import TOOLS
from muxway.catalog.locking import LOCKED_KINDS, LockedServer, records_of, told
from muxway.catalog.naming import Naming
from muxway.catalog.shaping import Shapes, shape
from muxway.catalog.uris import UriFilter
from muxway.clients.transports.memory import MemoryClientTransport
from muxway.clients.transports.stdio import StdioClientTransport
from muxway.composed.own_tools import OwnTools, define
from muxway.config import load_config, parse_config, parse_server
from muxway.config.model import Config, GatewaySettings, ViewConfig
from muxway.errors import ConfigError, UnknownName
from muxway.exchange.only_client import OnlyClient
from muxway.exchange.runtime import Runtime
from muxway.exchange.seal import Seal
from muxway.identity.server_logins import ServerLogins
from muxway.layering import Layering, specs_of
from muxway.log import masker
from muxway.net.memory_limit import Footprint
from muxway.opening import OpeningGateway
from muxway.publisher import Publisher
from muxway.results import (
    FoundTool,
    Prompt,
    PromptResult,
    Resource,
    ResourceResult,
    ResourceTemplate,
    Server,
    Tool,
    ToolResult,
    encoded_arguments,
)
from muxway.routing.snapshot import Settings
from muxway.servers.lock import read_lock, read_lock_aside
from muxway.servers.servers import Servers
from muxway.servers.transports.stdio import StdioServerTransport
from muxway.wire import envelopes
from muxway.wire.revisions import PROGRESS_TOKEN

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from muxway.calls.identity import Denial, Identity
    from muxway.calls.ports import Running
    from muxway.catalog.client_profiles import Adapted, ClientProfile
    from muxway.catalog.locking import Drift
    from muxway.catalog.model import Route
    from muxway.catalog.selection import Selection
    from muxway.config.plan import Plan
    from muxway.middleware.engine.base import Middleware
    from muxway.middleware.engine.running import Layer
    from muxway.net.message_trace import MessageTrace
    from muxway.net.metronome import Metronome
    from muxway.net.processes.journal import Lines
    from muxway.net.processes.launch import ReaperProcess
    from muxway.routing.target import Target
    from muxway.search.listing import Discovery
    from muxway.servers.managed_server import ManagedServer
    from muxway.servers.slot import Slot


class Gateway:
    """Many MCP servers as one.

        async with Gateway.open("servers.json") as gateway:
            print([tool.name for tool in gateway.tools()])
            result = await gateway.call("time.get_current_time", {"timezone": "Europe/Paris"})

    Tool names are accepted as `server__tool`, `server:tool` and `server.tool`.
    """

    def __init__(
        self,
        config: Config,
        *,
        middleware: Sequence[Middleware] = (),
        reaper: ReaperProcess | None = None,
        trace: MessageTrace | None = None,
    ) -> None:
        """Prepare a gateway; nothing is started before `start`. `Gateway.open` does both.

        Args:
            config: what to run and how.
            middleware: what is done around every request, outside what the configuration says.
            reaper: the process that will look after the servers, if it has been started ahead.
            trace: who is told of every message, if somebody is.

        Raises:
            ConfigError: a middleware of the configuration cannot be used.
        """
        if not isinstance(config, Config):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                "Gateway(...) takes a loaded Config. For a file or a mapping write `async with Gateway.open(...) as "
                "gateway`, or SyncGateway(...) where nothing awaits"
            )
        settings = config.gateway
        self.config = config
        self._trace = trace
        if trace is not None:
            trace.secrets = lambda: _secrets(self.config)
        self._closed = False
        servers: dict[str, ManagedServer] = {}
        unwrapped = _settings(config)
        self.runtime = Runtime(unwrapped, servers, Seal(settings.state_key))
        """What lives as long as this gateway, with the snapshot that is in force."""
        self._layering = Layering(self.runtime, middleware)
        self.runtime.tasks.on_ended = self._layering.task_ended
        self.runtime.approvals.on_decided = self._layering.decided
        self.runtime.apply(settings, Footprint(settings.max_memory).share)
        own_tools = OwnTools(config.tools.values())
        self._publisher = Publisher(self.runtime, unwrapped, own_tools, self._forget)
        self.logins = ServerLogins(servers, self.runtime, lambda: self.config.source)
        """At the servers: of users, and of the one who runs the gateway."""
        self._servers = Servers(
            settings,
            unwrapped.naming,
            servers,
            self.runtime,
            on_change=self._publisher.changed,
            prepare=self._publisher.prepare,
            reaper=reaper,
            trace=trace,
            credentials=self.logins.credentials,
        )
        chains = self._layering.put(self._layering.make(config), settings.call_max)
        self._publisher.settings = replace(unwrapped, chains=chains)
        self._servers.sources.lock = read_lock(config)
        self._publisher.follow(self._servers.sources)

    @classmethod
    def open(
        cls,
        config: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None,
        *,
        wait: bool = True,
        middleware: Sequence[Middleware] = (),
    ) -> OpeningGateway[Self]:
        """Start a gateway from a file, a mapping of the same shape, or a loaded `Config`.

            async with Gateway.open("servers.json") as gateway: ...

        ends it on leaving. Where no `async with` fits: `gateway = await Gateway.open(...)`, `await gateway.close()`.

        Without a configuration it begins empty, for servers that are added at run time.

        With `wait` (the default) every server is ready or has failed before the body runs. A server that
        fails does not stop the others: see `servers()`. `middleware` stands outside that of the configuration.

        Raises:
            ConfigError: the configuration cannot be used; lists every problem.
            TypeError: one of `middleware` is none.
        """

        async def begin() -> Self:
            gateway = cls(_loaded(config), middleware=middleware)
            try:
                gateway.start()
                if wait:
                    await gateway.settled()
            except BaseException:
                await gateway.stop()
                raise
            return gateway

        return OpeningGateway(begin)

    async def close(self) -> None:
        """End every server and wait until they are gone, as on leaving `async with`. A second time does nothing."""
        if not self._closed:
            self._closed = True
            await self.stop()

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to start every server, all at once, in the background."""
        servers = [server for server in self.config.servers.values() if server.enabled]
        self.runtime.listings.shut()
        for server in servers:
            self._servers.add(server, self.config.objects.get(server.name))
        self._publisher.begin(self.config.gateway.list_wait)

    async def settled(self) -> None:
        """Wait until every server is ready or has failed. Each has its own time limit."""
        await self._servers.settled()
        await self._publisher.settled()

    async def stop(self) -> None:
        """End every server, all at once, and wait until they are gone."""
        self._publisher.stop_telling()
        with self._publisher.at_once():
            await self._servers.stop()
        await self.logins.close()
        await self._publisher.settled()
        self._publisher.publish()
        self.runtime.close()
        await self._layering.close()

    def masked(self, text: str) -> str:
        """A text without the secrets that the configuration knows."""
        return masker(_secrets(self.config) | self.logins.secrets)(text)

    @property
    def metronome(self) -> Metronome:
        """How long the event loop has been busy without a break."""
        return self._servers.dialing.turn.metronome

    def stdio_door(self, *, stdin: int = 0, stdout: int = 1, view: str | None = None) -> StdioClientTransport:
        """A transport for one client on these file descriptors: `await` its `serve()`. Raises UnknownName."""
        limit = self.config.gateway.max_message_bytes
        # A pipe has one end: whatever a server wants to know of its client, this is who it means.
        self.runtime.sessions.only = OnlyClient()
        transport = StdioClientTransport(
            self.runtime.of_view(view), self._servers.dialing.turn, stdin=stdin, stdout=stdout, max_message_bytes=limit
        )
        transport.trace = self._trace
        return transport

    def memory_door(self, view: str | None = None, identity: Identity | None = None) -> MemoryClientTransport:
        """A transport for a client in this process that speaks raw lines, who is this. UnknownName: no such view."""
        return MemoryClientTransport(self.runtime.of_view(view), identity)

    # --- use ----------------------------------------------------------------------------------

    def tools(self, view: str | None = None) -> list[Tool]:
        """Every tool, or those of a view, in the order of the listing, whatever middleware makes of the list.

        What clients get listed: `list_tools`. UnknownName: no such view.
        """
        return [_tool(route) for route in self.runtime.of_view(view).visible.tools.routes.values()]

    async def list_tools(self, view: str | None = None) -> list[Tool]:
        """The tools as a client gets them listed, through the middleware.

        Raises:
            RpcError: a middleware fails, or refuses the list.
            UnknownName: there is no such view.
        """
        settings = self.runtime.snapshot.settings
        if view not in self._layering.chains and settings.access is None and view not in settings.discoveries:
            return self.tools(view)
        routes, listed = self.runtime.of_view(view).visible.tools.routes, list[Tool]()
        params: dict[str, bytes] = {}
        while True:
            page = await self._ask("tools/list", params, view=view)
            for definition in page.get("tools", ()):
                name = str(definition.get("name", ""))
                route = routes.get(name)
                upstream, native = ("", name) if route is None else (route.upstream, route.native)
                listed.append(Tool(name, upstream, native, envelopes.encode(definition)))
            if not page.get("nextCursor"):
                return listed
            params = {"cursor": envelopes.encode(page["nextCursor"])}

    def search(self, query: str, *, view: str | None = None, limit: int = 5) -> list[FoundTool]:
        """The tools, of a view if one is given, that fit a query best, as `search_tools` finds them before rules.

        UnknownName: no such view.
        """
        # Only for those who search.
        from muxway.search.index import Index, explained
        from muxway.search.meaning import Meaning

        routes = self.runtime.of_view(view).visible.tools.routes
        index = Index(Meaning() if self.config.gateway.semantic else None)
        for _ in index.follow(routes):
            pass
        rarities = index.rarities(query)
        found: list[FoundTool] = []
        for one in index.search(query, limit).matches:
            fields = explained(routes[one.name], rarities)
            if one.meaning:
                fields["meaning"] = one.meaning
            found.append(FoundTool(_tool(routes[one.name]), one.score, fields))
        return found

    async def hidden_by(self, tool: str, view: str | None = None) -> Layer | None:
        """The middleware that takes a tool out of the list, if one does. Raises as `list_tools` does."""
        return await self._layering.hider(TOOLS, tool, LIBRARY, view)

    def layers_around(self, targets: Iterable[Target], view: str | None = None) -> list[Layer]:
        """The middlewares around calls of any of these by the callers of a view, the outermost first."""
        return self._layering.around(targets, view)

    def notes(self, view: str) -> list[str]:
        """What a view names in vain, or cannot do. UnknownName: no such view."""
        return [str(finding) for finding in self.runtime.of_view(view).visible.findings]

    def adapted_for(self, client: str, view: str | None = None) -> Adapted:
        """What is done to the tools for a client of this profile (`catalog.client_profiles`), and what it cannot take.

        Raises:
            UnknownName: there is no such profile, or no such view.
        """
        if client not in PROFILES:
            raise UnknownName("client", client, PROFILES)
        return adapt(self.runtime.of_view(view).visible.tools, PROFILES[client])

    def adapted(self) -> list[tuple[str | None, ClientProfile, Adapted]]:
        """What was done for the clients that have come, by their view."""
        made = self.runtime.snapshot.classes
        return [
            (view, PROFILES[client], one.adapted)
            for (view, _, client), one in made.items()
            if client and one.adapted is not None
        ]

    def definition(self, name: str) -> Mapping[str, Any] | None:
        """A tool as its server and its shape define it, by any spelling, whether or not clients see it; None: none."""
        whole = self.runtime.snapshot.whole
        route = whole.tools.find(name).route
        if route is not None:
            return route.describe()
        upstream, native = self.runtime.router.native(whole, name) or ("", "")
        server = self._servers.by_name.get(upstream)
        listed = () if server is None else server.lists.of(TOOLS).natives
        tool = next((one for one in listed if one.name == native), None)
        if tool is None or server is None:
            return None
        wishes = Shapes(server.config.shape).of(native)
        members = tool.members if wishes is None else shape(tool.members, wishes).members
        return envelopes.value(envelopes.object_of(members.items()))

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: Callable[[float, float | None, str | None], None] | None = None,
        view: str | None = None,
    ) -> ToolResult:
        """Call a tool, of a view if one is given. Cancelling the task cancels the call at its server.

        A tool that reports its own failure returns normally, with `is_error` set.

        Raises:
            ToolNotFound: there is no such tool, or the name may mean several.
            InvalidParams: the name lacks its server, or an argument is a number that JSON does not have.
            TypeError: the arguments are no mapping, or one of them is nothing that JSON can hold.
            UpstreamSaid: the server answered with a JSON-RPC error.
            UpstreamError: the server is not running, was lost, or did not answer in time.
            UnknownName: there is no such view.
        """
        params = {"name": envelopes.encode(name), "arguments": encoded_arguments(arguments or {})}
        meta = None if on_progress is None else {PROGRESS_TOKEN: envelopes.Raw(b"1")}
        waiter = Waiter(None if on_progress is None else _progress(on_progress))
        return ToolResult(await self._ask("tools/call", params, meta, waiter, view))

    def resources(self) -> list[Resource]:
        """Every listed resource, in the order of the listing."""
        listed = self.runtime.snapshot.whole.resources.resources.values()
        return [Resource(entry.public, entry.upstream, entry.native, entry.describe()) for entry in listed]

    def resource_templates(self) -> list[ResourceTemplate]:
        """Every resource template, in the order of the listing."""
        listed = self.runtime.snapshot.whole.resources.templates.values()
        return [ResourceTemplate(entry.public, entry.upstream, entry.native, entry.describe()) for entry in listed]

    def prompts(self) -> list[Prompt]:
        """Every prompt, in the order of the listing."""
        listed = self.runtime.snapshot.whole.prompts.routes.values()
        return [Prompt(route.public, route.upstream, route.native, route.describe()) for route in listed]

    async def read(self, uri: str) -> ResourceResult:
        """Read a resource, listed or not. Cancelling the task cancels the request at its server.

        Raises:
            RpcError: no server has it (code -32002), or several might.
            UpstreamSaid: the server answered with a JSON-RPC error.
            UpstreamError: the server is not running, was lost, or did not answer in time.
        """
        return ResourceResult(await self._ask("resources/read", {"uri": envelopes.encode(uri)}))

    async def prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> PromptResult:
        """Fill in a prompt. Cancelling the task cancels the request at its server.

        Raises:
            InvalidParams: there is no such prompt, or the name may mean several.
            UpstreamSaid: the server answered with a JSON-RPC error.
            UpstreamError: the server is not running, was lost, or did not answer in time.
        """
        params = {"name": envelopes.encode(name), "arguments": envelopes.encode(dict(arguments or {}))}
        return PromptResult(await self._ask("prompts/get", params))

    async def _ask(
        self,
        method: str,
        params: Mapping[str, bytes],
        meta: envelopes.Params | None = None,
        waiter: Waiter | None = None,
        view: str | None = None,
    ) -> Mapping[str, Any]:
        self._check_open()
        call = Call(LIBRARY, method, {key: envelopes.Raw(value) for key, value in params.items()}, meta)
        waiter = waiter or Waiter()
        running: Running | None = self.runtime.of_view(view).handle(call, waiter)
        return envelopes.value(await waiter.outcome(running))

    def servers(self) -> list[Server]:
        """Every server and how it is, in the order of the configuration."""
        tools: dict[str, list[Tool]] = {}
        for tool in self.tools():
            tools.setdefault(tool.server, []).append(tool)
        whole = self.runtime.snapshot.whole
        findings = whole.findings
        prompts = Counter(route.upstream for route in whole.prompts.routes.values())
        resources = Counter(entry.upstream for entry in whole.resources.resources.values())
        templates = Counter(entry.upstream for entry in whole.resources.templates.values())
        drifts = self.drifts()
        notes = {name: [f"{name}: {told(drift)}" for drift in drifts.get(name, ())] for name in self._servers.by_name}
        return [
            replace(
                _server(server, tools.get(name, []), [*(str(f) for f in findings if f.upstream == name), *notes[name]]),
                prompts=prompts[name],
                resources=resources[name],
                resource_templates=templates[name],
            )
            for name, server in self._servers.by_name.items()
        ]

    def journal(self, name: str) -> Lines:
        """What all processes of a server wrote to stderr, the last of it, also of those that are gone.

        Raises:
            UnknownName: there is no such server.
        """
        self._check_name(name)
        # Those that are no processes of ours have none.
        return self._servers.by_name[name].journal.lines()

    async def add(
        self, name: str, entry: Mapping[str, Any] | None = None, *, server: object = None, **keys: Any
    ) -> Server:
        """Add a server and wait until it is ready or has failed.

        Give its configuration as a mapping or as keywords (`command="uvx", args=["mcp-server-time"]`), or
        an in-process `server`: an official-SDK server, or any object whose public methods are the tools.

        Raises:
            ConfigError: the name is taken, or the configuration cannot be used.
        """
        self._check_open()
        self._servers.check_new(name)
        started = {} if server is None else {"command": "(in-process)"}
        config = parse_server(name, {**(entry or {}), **keys, **started})
        if server is None:
            await self._servers.recollect([config])
            self._servers.check_new(name)
        if config.middleware:
            chains = self._layering.put(self._layering.more(config), self.config.gateway.call_max)
            self._publisher.settings = replace(self._publisher.settings, chains=chains)
        added = self._servers.add(config, server)
        # Calls of what it may have wait for it from now on.
        self._publisher.changed()
        await added.first.state.settled()
        await self._publisher.told()
        return self._server(name)

    async def remove(self, name: str) -> None:
        """End a server and forget it. Its calls under way fail.

        Raises:
            UnknownName: there is no such server.
        """
        self._check_name(name)
        await self._servers.remove(name)
        await self._publisher.told()

    async def restart(self, name: str) -> Server:
        """End a server and start it anew, whatever its history; wait until it is ready or has failed.

        Calls that come meanwhile wait for it; those under way fail.

        Raises:
            UnknownName: there is no such server, or not any more.
        """
        self._check_name(name)
        await self._servers.restart(name)
        await self._publisher.told()
        return self._server(name)

    async def relock(self) -> None:
        """Read the lock file again, and put in force what it says."""
        self._check_open()
        self._servers.sources.lock = await read_lock_aside(self.config, self._servers.sources.lock)
        self._publisher.changed()
        await self._publisher.told()

    def drifts(self) -> dict[str, Sequence[Drift]]:
        """How servers differ from what was locked, if there is a lock."""
        return {source.upstream: source.lock.drifts for source in self.runtime.snapshot.given if source.lock.drifts}

    def locked_now(self) -> dict[str, LockedServer]:
        """What there is to lock of the servers that run, as they define it. How they are started is not in it.

        Those that `unlockable` names are not there.
        """
        found: dict[str, LockedServer] = {}
        unlockable = self.unlockable()
        for name, server in self._servers.by_name.items():
            greeting, lists = server.first.greeting, server.lists
            if server.connection is not None and greeting is not None and name not in unlockable:
                records = {kind.name: records_of(kind, lists.of(kind).natives) for kind in LOCKED_KINDS}
                found[name] = LockedServer({}, greeting.server_info, greeting.instructions, records)
        return found

    def unlockable(self) -> dict[str, str]:
        """Servers that run and did not give one of their lists, and why: what they have, nobody can say."""
        found: dict[str, str] = {}
        for name, server in self._servers.by_name.items():
            reasons = [why for kind, why in server.lists.unread.items() if kind in LOCKED_KINDS]
            if reasons:
                found[name] = "; ".join(reasons)
        return found

    def _server(self, name: str) -> Server:
        self._check_name(name)
        return next(server for server in self.servers() if server.name == name)

    def _check_name(self, name: str) -> None:
        """Raise UnknownName if there is no such server."""
        self._check_open()
        if name not in self._servers.by_name:
            raise UnknownName("server", name, self._servers.by_name)

    def _check_open(self) -> None:
        """Raise RuntimeError if the gateway has been closed."""
        if self._closed:
            raise RuntimeError("this gateway is closed; open another one")

    # --- another configuration ----------------------------------------------------------------

    async def apply(self, config: Config) -> Plan:
        """Make this configuration the one in force. Returns what that changed.

        Servers that stay as they are keep their process and their sessions. One that changes is replaced when the new
        one is ready or has failed, and its calls under way end where they began: `settled` waits for the former.

        Raises:
            ConfigError: a middleware of it cannot be used; then nothing has changed.
            MuxwayError: an object of it offers nothing; then nothing has changed, either.
        """
        self._check_open()
        lock = await read_lock_aside(config, self._servers.sources.lock)
        changes = self.planned(config)
        coming = [config.servers[name] for name in (*changes.start, *changes.swap) if name not in config.objects]
        if coming:
            await self._servers.recollect(coming)
            changes = self.planned(config)
        _check_objects(config, changes)
        before = self._publisher.settings
        settings = _settings(config, before, {*changes.views.added, *changes.views.changed})
        layers = None
        if changes.modules or _chained(config) != _chained(self.config):
            # Those that know the secrets, or the code of edited modules, know the old ones.
            anew = bool(changes.modules) or _secrets(config) != _secrets(self.config)
            layers = self._layering.make(config, anew=anew)
        # From here on nothing is refused. The servers first: what they show follows from their new settings.
        chains = before.chains if layers is None else self._layering.put(layers, config.gateway.call_max)
        settings = replace(settings, chains=chains)
        with self._publisher.at_once():
            self._servers.apply(config, changes, settings.naming, lock)
        seal = Seal(config.gateway.state_key) if "stateKey" in changes.gateway else None
        self.runtime.apply(config.gateway, Footprint(config.gateway.max_memory).share, seal)
        self.config = config
        started = self._servers.settled if changes.start or changes.swap else None
        await self._publisher.apply(settings, OwnTools(config.tools.values()), started)
        return changes

    def _forget(self, server: str | None) -> None:
        """What is remembered of a server, or with None of anything, is no more to be used."""
        self._layering.forget(server)
        self.runtime.approvals.forget(server)

    def planned(self, config: Config) -> Plan:
        """What `apply` would change."""
        from muxway.config.plan import plan

        instances = {name: server.instance for name, server in self._servers.by_name.items()}
        running = {name: instance.config for name, instance in instances.items()}
        objects = {name: instance.thing for name, instance in instances.items() if instance.thing is not None}
        edited, outdated = _edited_modules()
        changes = plan(replace(self.config, servers=running, objects=objects), config)
        return replace(changes, modules=edited, outdated=outdated)

    def turned_away(self, denial: Denial) -> None:
        """Whoever serves this gateway has turned somebody away: let the middlewares know that keep account of it."""
        self._layering.turned_away(denial)


def _loaded(given: str | os.PathLike[str] | Mapping[str, Any] | Config | None) -> Config:
    """What a gateway can be opened from, as a configuration. Raises ConfigError."""
    if given is None:
        return Config(servers={})
    if isinstance(given, Config):
        return given
    if isinstance(given, str) or hasattr(given, "__fspath__"):
        return load_config(cast("str", given))
    return parse_config(cast("Mapping[str, Any]", given))


def _check_objects(config: Config, changes: Plan) -> None:
    """Raise MuxwayError if an object of this process that is to be started offers nothing."""
    coming = [name for name in (*changes.start, *changes.swap) if name in config.objects]
    if coming:
        # Only for those who have such objects.
        from muxway.servers.transports.inprocess import as_server

        for name in coming:
            as_server(config.objects[name], name)


def _edited_modules() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Modules of middlewares that were edited since they were imported: those to import anew, those that cannot be."""
    modules = sys.modules.get("muxway.middleware.engine.modules")
    # Without any middleware it is not loaded.
    return ((), ()) if modules is None else (modules.edited(), modules.outdated())


def _chained(config: Config) -> tuple[object, ...]:
    """What the middlewares around requests are made of."""
    # Some of them hide the secrets that they know of.
    return [id(one) for one in config.middleware], _secrets(config), specs_of(config)


def _secrets(config: Config) -> set[str]:
    return {secret for one in (*config.servers.values(), *config.views.values()) for secret in one.secrets}


def _settings(config: Config, before: Settings | None = None, changed: Collection[str] = ()) -> Settings:
    """What a configuration decides; what stays as it was `before` is the very same. These views have `changed`."""
    gateway = config.gateway
    access = None if before is None else before.access
    if access is None or access.specs != gateway.access:
        access = Access(gateway.access) if gateway.access else None
    return Settings(
        name=gateway.name,
        version=gateway.version or __version__,
        naming=Naming.of(gateway.separator, gateway.max_name_length),
        page_size=gateway.page_size,
        client_profiles=gateway.client_profiles,
        locked=gateway.lock == "enforce",
        tools=config.tools,
        selections={
            name: _selection(view) if before is None or name in changed else before.selections[name]
            for name, view in config.views.items()
        },
        discoveries=_discoveries(config),
        semantic=gateway.semantic,
        access=access,
        define=define if any(tool.subtools for tool in config.tools.values()) else None,
    )


def _discoveries(config: Config) -> dict[str | None, Discovery]:
    """How tools are found where they are not all listed: in which views, and with None in the whole."""
    every: list[tuple[str | None, GatewaySettings | ViewConfig]] = [(None, config.gateway), *config.views.items()]
    searched = [(name, one) for name, one in every if one.discovery == "search"]
    if not searched:
        return {}
    # Only for those who search.
    from muxway.search.listing import Discovery
    from muxway.search.meaning import is_installed

    if config.gateway.semantic and not is_installed():
        why = "gateway.semantic needs an extra that is not installed: pip install 'muxway[semantic]'"
        raise ConfigError("invalid_schema", why)
    return {name: Discovery(pinned=Globs(one.pinned), tiers=one.tiers) for name, one in searched}


def _selection(config: ViewConfig) -> Selection:
    from muxway.catalog.selection import Selection

    return Selection(
        view=config.name,
        servers=None if config.servers is None else frozenset(config.servers),
        tools=None if config.tools is None else Globs(config.tools),
        hidden_tools=Globs(config.hidden_tools),
        prompts=None if config.prompts is None else Globs(config.prompts),
        uris=UriFilter(config.resources),
        read_only=config.read_only,
        shapes=config.shape,
        pin=config.pin,
    )


def _tool(route: Route) -> Tool:
    return Tool(route.public, route.upstream, route.native, route.definition)


def _server(server: ManagedServer, tools: Sequence[Tool], findings: Sequence[str]) -> Server:
    first, slots = server.first, server.instance.pool.slots.values()
    state, counters = first.state, server.counters
    transport = first.transport if isinstance(first.transport, StdioServerTransport) else None
    connections = [slot.connection for slot in slots if slot.connection is not None]
    return Server(
        first.name,
        state.now.status,
        state.reason,
        tools,
        revision=None if first.greeting is None else first.greeting.revision.date,
        pid=_pid(first),
        pids=[pid for slot in slots if (pid := _pid(slot)) is not None],
        seconds=state.took,
        notes=(*first.lists.notes, *findings),
        stderr=transport.stderr.lines() if transport is not None else (),
        restarts=state.restarts,
        retry_in=first.retry_in,
        uptime=None if state.ready_at is None else asyncio.get_running_loop().time() - state.ready_at,
        in_flight=sum(connection.queue.in_flight for connection in connections),
        queued=sum(len(connection.queue.waiting) for connection in connections),
        calls=counters.calls,
        errors=counters.errors,
        p50=counters.quantile(0.5),
        p99=counters.quantile(0.99),
    )


def _pid(slot: Slot) -> int | None:
    """The process id of its child, if that runs."""
    transport = slot.transport if slot.connection is not None else None
    return transport.pid if isinstance(transport, StdioServerTransport) else None


def _progress(tell: Callable[[float, float | None, str | None], None]) -> Callable[[dict[str, envelopes.Buffer]], None]:
    def heard(params: dict[str, envelopes.Buffer]) -> None:
        progress = envelopes.number(params.get("progress"))
        if progress is not None:
            tell(progress, envelopes.number(params.get("total")), envelopes.text(params.get("message")))

    return heard
