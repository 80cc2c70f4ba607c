"""The composition root: a configuration becomes a running gateway. Knows everybody; nobody but `cli` knows it."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self, cast

from muxway import __version__
from muxway.calls.call import LIBRARY, Call
from muxway.calls.ports import Waiter
from muxway.catalog.globs import Globs
from muxway.catalog.kinds import TOOLS
from muxway.catalog.naming import Naming
from muxway.catalog.shaping import Shapes, shape
from muxway.catalog.uris import UriFilter
from muxway.clients.transports.memory import MemoryClientTransport
from muxway.clients.transports.stdio import StdioClientTransport
from muxway.composed import own_tools
from muxway.config import load_config, parse_config, parse_server
from muxway.config.model import Config, GatewaySettings, ViewConfig
from muxway.errors import ConfigError, UnknownName
from muxway.exchange.first_listing import FirstListing
from muxway.exchange.only_client import OnlyClient
from muxway.exchange.seal import Seal
from muxway.exchange.switchboard import Switchboard
from muxway.log import EventLog, first_of
from muxway.net.memory_limit import Footprint
from muxway.net.processes.journal import Journal
from muxway.opening import OpeningGateway
from muxway.results import (
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
from muxway.servers.servers import ManagedServer, Servers
from muxway.servers.state import Status
from muxway.servers.transports.stdio import StdioServerTransport
from muxway.wire import envelopes
from muxway.wire.revisions import PROGRESS_TOKEN

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from muxway.calls.ports import Running
    from muxway.catalog.build import Source
    from muxway.catalog.model import Finding, Route
    from muxway.catalog.selection import Selection
    from muxway.config.middlewares import MiddlewareSpec
    from muxway.config.model import ServerConfig
    from muxway.config.plan import Plan
    from muxway.exchange.drafting import Draft
    from muxway.exchange.logins import LoginPage
    from muxway.exchange.relay import Member
    from muxway.exchange.views import View
    from muxway.identity.pages import LoginPages
    from muxway.middleware.engine.base import Middleware
    from muxway.middleware.engine.running import Chains, Layer
    from muxway.net.message_trace import MessageTrace
    from muxway.net.metronome import Metronome
    from muxway.net.processes.journal import Lines
    from muxway.net.processes.launch import ReaperProcess
    from muxway.servers.instance import Upstream
    from muxway.servers.transports.port import Credentials

log = EventLog("gateway")

_TRIES: Final = 3
"""How often catalogs are made beside the event loop, before they are made on it because something always changes."""


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
        members: dict[str, Member] = {}
        naming = Naming.of(settings.separator, settings.max_name_length)
        self._first_listing: FirstListing | None = None
        self._noted: set[str] = set()
        """The findings that have been told."""
        self._noted_of_views: set[str] = set()
        self._published: tuple[list[Source], list[str], bool] = ([], [], False)
        """What is in force: what the servers show, which there are, and whether all that they have is known.

        Servers say often that something about them may have changed, and all of them at the same time.
        """
        self._custom = own_tools.OwnTools(config.tools.values())
        self.switchboard = Switchboard(
            name=settings.name,
            version=settings.version or __version__,
            naming=naming,
            members=members,
            tools=config.tools,
            page_size=settings.page_size,
            seal=Seal(settings.state_key),
        )
        self.switchboard.tasks.on_ended = lambda name: self._tell_layers("task_ended", name)
        self._admit(settings)
        self._fleet = Servers(
            settings,
            naming,
            members,
            self.switchboard,
            on_change=self._changed,
            prepare=self._prepare,
            reaper=reaper,
            trace=trace,
            credentials=self._credentials,
        )
        self._login_pages: LoginPages | None = None
        self.switchboard.audience.logins.page = self._login_page
        self._retired: list[list[Layer]] = []
        """Middlewares of configurations before this one that calls under way may still use."""
        self._closing: set[asyncio.Task[None]] = set()
        self._preparing = asyncio.Lock()
        self._redrafting: asyncio.Task[None] | None = None
        """Makes the catalogs after a change that is not in force yet."""
        self._due: list[Callable[[], None]] = []
        """What waits for a change to be in force."""
        self._quiet = False
        """Whether many things are changing that are one change for those who listen."""
        self._chains: dict[str | None, Chains] = {}
        """What stands around requests, by view; None: around those to the whole."""
        self._given = middleware
        layers = self._layers(config)
        for view in config.views.values():
            self.switchboard.views[view.name] = self._new_view(view)
        for name in (None, *config.views):
            self._put_around(name, layers.get(name, ()))
        self._publish()

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
        self.switchboard.hold_listings()
        for server in servers:
            self._fleet.add(server, self.config.objects.get(server.name))
        self._first_listing = FirstListing(self.switchboard.release_listings, self.config.gateway.list_wait)
        self._changed()
        if self._redrafting is not None:
            self.switchboard.hold_sessions()
            self._due.append(self.switchboard.release_sessions)

    async def settled(self) -> None:
        """Wait until every server is ready or has failed. Each has its own time limit."""
        await self._fleet.settled()
        await self._published_all()

    async def stop(self) -> None:
        """End every server, all at once, and wait until they are gone."""
        self._quiet = True
        try:
            await self._fleet.stop()
        finally:
            self._quiet = False
        if self._login_pages is not None:
            await self._login_pages.close()
        await self._published_all()
        self._publish()
        self.switchboard.close()
        # Those that were given as objects stand in every chain.
        current = [layer for chains in self._chains.values() for layer in chains.layers]
        retired, self._retired = self._retired, []
        layers = {id(layer.middleware): layer for part in (current, *retired) for layer in part}
        if layers:
            from muxway.middleware.engine.running import close_layers

            await close_layers(layers.values())
        if self._closing:
            await asyncio.wait(self._closing)

    def _credentials(self, server: ServerConfig) -> Credentials | None:
        """What muxway shows a remote server: the login of the user who runs it."""
        # Only for those who have such servers.
        from muxway.identity.credentials import ServerCredentials, takes_login
        from muxway.identity.store import TokenStore

        return ServerCredentials(server, TokenStore(), file=self.config.source) if takes_login(server) else None

    def _login_page(self, name: str) -> LoginPage | None:
        """Where the user who runs the gateway can log in to a server."""
        station = self._fleet.stations.get(name)
        if station is None or station.credentials is None or not station.config.oauth.interactive:
            return None
        if self._login_pages is None:
            from muxway.identity.pages import LoginPages

            self._login_pages = LoginPages(self._logged_in)
        return self._login_pages.page(station.config)

    def _logged_in(self, name: str, page: str) -> None:
        """The user has logged in to a server on such a page."""
        if (station := self._fleet.stations.get(name)) is not None:
            station.upstream.logged_in()
        audience = self.switchboard.audience
        audience.page_done(audience.logins, page)

    @property
    def metronome(self) -> Metronome:
        """How long the event loop has been busy without a break."""
        return self._fleet.turn.metronome

    def stdio_door(self, *, stdin: int = 0, stdout: int = 1, view: str | None = None) -> StdioClientTransport:
        """A door for one client on these file descriptors; `await door.serve()` to serve it. Raises UnknownName."""
        limit = self.config.gateway.max_message_bytes
        # A pipe has one end: whatever a server wants to know of its client, this is who it means.
        self.switchboard.audience.only = OnlyClient()
        door = StdioClientTransport(
            self._board(view), self._fleet.turn, stdin=stdin, stdout=stdout, max_message_bytes=limit
        )
        door.trace = self._trace
        return door

    def memory_door(self, view: str | None = None) -> MemoryClientTransport:
        """A door for a client in this process that speaks raw lines. UnknownName: no such view."""
        return MemoryClientTransport(self._board(view))

    def _board(self, view: str | None) -> Switchboard:
        if view is None:
            return self.switchboard
        views = self.switchboard.views
        if view not in views:
            raise UnknownName("view", view, views)
        return views[view]

    # --- use ----------------------------------------------------------------------------------

    def tools(self, view: str | None = None) -> list[Tool]:
        """Every tool, or those of a view, in the order of the listing, whatever middleware makes of the list.

        What clients get listed: `list_tools`. UnknownName: no such view.
        """
        return [_tool(route) for route in self._board(view).catalog.routes.values()]

    async def list_tools(self, view: str | None = None) -> list[Tool]:
        """The tools as a client gets them listed, through the middleware.

        Raises:
            RpcError: a middleware fails, or refuses the list.
            UnknownName: there is no such view.
        """
        if view not in self._chains:
            return self.tools(view)
        routes, listed = self._board(view).catalog.routes, list[Tool]()
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

    async def hidden_by(self, tool: str, view: str | None = None) -> Layer | None:
        """The middleware that takes a tool out of the list, if one does. Raises as `list_tools` does."""
        chains = self._chains.get(view)
        return None if chains is None else await chains.hider(TOOLS, tool, LIBRARY)

    def notes(self, view: str) -> list[str]:
        """What a view names in vain, or cannot do. UnknownName: no such view."""
        return [str(finding) for finding in self._board(view).findings]

    def definition(self, name: str) -> Mapping[str, Any] | None:
        """A tool as its server and its shape define it, by any spelling, whether or not clients see it; None: none."""
        route = self.switchboard.catalog.find(name).route
        if route is not None:
            return route.describe()
        upstream, native = self.switchboard.native_tool(name) or ("", "")
        station = self._fleet.stations.get(upstream)
        listed = () if station is None else station.upstream.offer(TOOLS).natives
        tool = next((one for one in listed if one.name == native), None)
        if tool is None or station is None:
            return None
        wishes = Shapes(station.config.shape).of(native)
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
        listed = self.switchboard.resources.resources.values()
        return [Resource(entry.public, entry.upstream, entry.native, entry.describe()) for entry in listed]

    def resource_templates(self) -> list[ResourceTemplate]:
        """Every resource template, in the order of the listing."""
        listed = self.switchboard.resources.templates.values()
        return [ResourceTemplate(entry.public, entry.upstream, entry.native, entry.describe()) for entry in listed]

    def prompts(self) -> list[Prompt]:
        """Every prompt, in the order of the listing."""
        listed = self.switchboard.prompts.routes.values()
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
        running: Running | None = self._board(view).handle(call, waiter)
        return envelopes.value(await waiter.outcome(running))

    def servers(self) -> list[Server]:
        """Every server and how it is, in the order of the configuration."""
        tools: dict[str, list[Tool]] = {}
        for tool in self.tools():
            tools.setdefault(tool.server, []).append(tool)
        board = self.switchboard
        findings = board.findings
        prompts = Counter(route.upstream for route in board.prompts.routes.values())
        resources = Counter(entry.upstream for entry in board.resources.resources.values())
        templates = Counter(entry.upstream for entry in board.resources.templates.values())
        return [
            replace(
                _server(station, tools.get(name, []), [str(f) for f in findings if f.upstream == name]),
                prompts=prompts[name],
                resources=resources[name],
                resource_templates=templates[name],
            )
            for name, station in self._fleet.stations.items()
        ]

    def journal(self, name: str) -> Lines:
        """What all processes of a server wrote to stderr, the last of it, also of those that are gone.

        Raises:
            UnknownName: there is no such server.
        """
        self._check_name(name)
        # Those that are no processes of ours have none.
        return self._fleet.journals.get(name, Journal()).lines()

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
        self._check_new(name)
        started = {} if server is None else {"command": "(in-process)"}
        config = parse_server(name, {**(entry or {}), **keys, **started})
        if server is None:
            await self._fleet.recollect([config])
            self._check_new(name)
        self._chain_more(config)
        station = self._fleet.add(config, server)
        await station.upstream.settled.wait()
        await self._published_all()
        return self._server(name)

    async def remove(self, name: str) -> None:
        """End a server and forget it. Its calls under way fail.

        Raises:
            UnknownName: there is no such server.
        """
        self._check_name(name)
        await self._fleet.remove(name)
        await self._published_all()

    async def restart(self, name: str) -> Server:
        """End a server and start it anew, whatever its history; wait until it is ready or has failed.

        Calls that come meanwhile wait for it; those under way fail.

        Raises:
            UnknownName: there is no such server, or not any more.
        """
        self._check_name(name)
        await self._fleet.restart(name)
        await self._published_all()
        return self._server(name)

    def _server(self, name: str) -> Server:
        self._check_name(name)
        return next(server for server in self.servers() if server.name == name)

    def _check_name(self, name: str) -> None:
        """Raise UnknownName if there is no such server."""
        self._check_open()
        if name not in self._fleet.stations:
            raise UnknownName("server", name, self._fleet.stations)

    def _check_new(self, name: str) -> None:
        """Raise ConfigError if there is such a server already."""
        if name in self._fleet.stations:
            raise ConfigError("invalid_schema", f'there is already a server "{name}": remove it first')

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
        fleet, changes = self._fleet, self.planned(config)
        coming = [config.servers[name] for name in (*changes.start, *changes.swap) if name not in config.objects]
        if coming:
            await fleet.recollect(coming)
            changes = self.planned(config)
        for name in (*changes.start, *changes.swap):
            if name in config.objects:
                fleet.check(name, config.objects[name])
        layers = None
        if changes.modules or _chained(config) != _chained(self.config):
            layers = self._layers(config)
        self._quiet = True
        try:
            self._apply(config, changes, layers)
        finally:
            self._quiet = False
        # Also what is made of the same lists may be something else now.
        self._published = ([], [], False)
        self._changed()
        await self._published_all()
        # Whatever it was about: what is hidden, shaped or shown otherwise now must not come out of a memory.
        self._tell_layers("forget", None)
        return changes

    def planned(self, config: Config) -> Plan:
        """What `apply` would change."""
        from muxway.config.plan import plan

        stations = self._fleet.stations
        running = {name: station.config for name, station in stations.items()}
        objects = {name: station.thing for name, station in stations.items() if station.thing is not None}
        edited, outdated = _edited_modules()
        changes = plan(replace(self.config, servers=running, objects=objects), config)
        return replace(changes, modules=edited, outdated=outdated)

    def _apply(self, config: Config, changes: Plan, layers: dict[str | None, list[Layer]] | None) -> None:
        """Do what was planned; what is listed follows when all is done."""
        fleet, board = self._fleet, self.switchboard
        self.config = config
        settings = config.gateway
        naming = Naming.of(settings.separator, settings.max_name_length)
        self._custom = own_tools.OwnTools(config.tools.values())
        board.reconfigure(
            name=settings.name,
            version=settings.version or __version__,
            naming=naming,
            page_size=settings.page_size,
            tools=config.tools,
            seal=Seal(settings.state_key) if "stateKey" in changes.gateway else None,
        )
        self._admit(settings)
        for name in changes.views.removed:
            gone = board.views.pop(name)
            # A client that is still there sees nothing more through it.
            gone.select(_selection(ViewConfig(name=name, servers=())))
            gone.follow(board.edition)
        for name in (*changes.views.added, *changes.views.changed):
            if name in board.views:
                board.views[name].select(_selection(config.views[name]))
            else:
                board.views[name] = self._new_view(config.views[name])
        if layers is not None:
            stay = {id(layer.middleware) for chain in layers.values() for layer in chain}
            before = [layer for chains in self._chains.values() for layer in chains.layers]
            self._retire([layer for layer in before if id(layer.middleware) not in stay])
            self._chains.clear()
            for view in (None, *config.views):
                self._put_around(view, layers.get(view, ()))
        for name in changes.stop:
            fleet.retire(name)
        fleet.reconfigure(settings, naming)
        for name in changes.adjust:
            fleet.adjust(config.servers[name])
        for name in changes.start:
            fleet.add(config.servers[name], config.objects.get(name))
        for name in changes.swap:
            fleet.swap(config.servers[name], config.objects.get(name))
        for name in (*changes.keep, *changes.adjust):
            fleet.abandon(name)
        fleet.order(list(config.servers))

    def _new_view(self, config: ViewConfig) -> View:
        # Only for those who have views.
        from muxway.exchange.views import View

        return View(self.switchboard, _selection(config))

    def _admit(self, settings: GatewaySettings) -> None:
        fullness = Footprint(settings.max_memory).share
        self.switchboard.admission.allow(
            calls=settings.max_calls, each=settings.max_calls_per_client, fullness=fullness
        )

    def _layers(self, config: Config) -> dict[str | None, list[Layer]]:
        """The middlewares around the whole and around each view; without any, nothing is loaded. Raises ConfigError."""
        given: list[object] = [*self._given, *config.middleware]
        views = config.views.values()
        if not given and not any(specs for _, specs in _specs(config)):
            return {}
        from muxway.middleware.engine import modules
        from muxway.middleware.engine.base import Middleware
        from muxway.middleware.engine.loading import layers_of
        from muxway.middleware.engine.running import Layer

        layers: list[Layer] = []
        for one in given:
            if not isinstance(one, Middleware):
                raise TypeError(
                    f"a {type(one).__name__} is no middleware: give instances of muxway.Middleware. Functions stand in "
                    "a muxway.chain, names of built-in ones in `middleware` of the configuration"
                )
            layers.append(Layer(type(one).__name__, one))
        made: dict[str | None, list[Layer]] = {}
        with modules.renewed():
            for name, view in (("", None), *((view.name, view) for view in views)):
                made[name or None] = [*layers, *layers_of(config, view, made.get(None, ()))]
        return made

    def _put_around(self, view: str | None, layers: Sequence[Layer]) -> None:
        board = self._board(view)
        if not layers:
            board.unwrap()
            return
        from muxway.middleware.engine.running import Chains

        chains = self._chains[view] = Chains(layers, board)
        board.handle, board.around = chains.handle, chains.around
        board.screen, board.screen_ask = chains.screen, chains.screen_ask
        board.takes_unlisted = chains.takes_unlisted

    def _tell_layers(self, hook: str, told: str | None) -> None:
        if self._chains:
            from muxway.middleware.engine.running import tell_layers

            tell_layers((layer for chains in self._chains.values() for layer in chains.layers), hook, told)

    def _retire(self, layers: Sequence[Layer]) -> None:
        """Close these middlewares when the calls that still use them are over."""
        # One may stand in several chains.
        by_id = {id(layer.middleware): layer for layer in layers}
        if retired := [*by_id.values()]:
            self._retired.append(retired)
            asyncio.get_running_loop().call_later(self.config.gateway.call_max, self._close_retired, retired)

    def _close_retired(self, layers: list[Layer]) -> None:
        if layers in self._retired:
            from muxway.middleware.engine.running import close_layers

            self._retired.remove(layers)
            closing = asyncio.get_running_loop().create_task(close_layers(layers))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _chain_more(self, server: ServerConfig) -> None:
        """Put the middlewares of a server that was added inside those that are there."""
        if not server.middleware:
            return
        from muxway.middleware.engine.loading import layers_of_server

        whole = layers_of_server(server)
        for view in (None, *self.switchboard.views):
            before = self._chains.get(view)
            more = whole if view is None else layers_of_server(server, whole)
            self._put_around(view, [*(() if before is None else before.layers), *more])

    # --- inside -------------------------------------------------------------------------------

    def _changed(self, then: Callable[[], None] | None = None) -> None:
        """Have what the servers show in force; `then` do this. With many definitions that is a little later."""
        if then is not None:
            self._due.append(then)
        if self._quiet:
            self._do_what_is_due()
        elif self._drafting(self._fleet.sources()) is None:
            self._publish()
        elif self._redrafting is None:
            self._redrafting = asyncio.get_running_loop().create_task(self._redraft())

    async def _redraft(self) -> None:
        """Something has changed that nobody could prepare for: a server has gone away, or the configuration."""
        try:
            await self._prepare(self._fleet.sources)
        finally:
            self._redrafting = None
        self._publish()

    async def _published_all(self) -> None:
        """Wait until what has changed is in force."""
        while self._redrafting is not None:
            await asyncio.wait([self._redrafting])

    def _drafting(self, sources: list[Source]) -> Callable[[], Draft] | None:
        """What is to be done beside the event loop before these are in force; None: nothing."""
        given = [self._custom.source(sources), *sources]
        if (given, [*self._fleet.stations]) == self._published[:2]:
            return None
        return self.switchboard.drafting(given)

    async def _prepare(self, coming: Callable[[], list[Source]]) -> None:
        """Have the catalogs after a change made beside the event loop, if there is much in them.

        One change at a time, and one in each turn of the loop: all servers may be ready, or listed again, at once.
        """
        await self._preparing.acquire()
        try:
            for _ in range(_TRIES):
                work = self._drafting(coming())
                if work is None:
                    return
                self.switchboard.drafted = await asyncio.to_thread(work)
        finally:
            # What was prepared is in force by then.
            asyncio.get_running_loop().call_soon(self._preparing.release)

    def _publish(self) -> None:
        sources = self._fleet.sources()
        given = [self._custom.source(sources), *sources], [*self._fleet.stations], self._fleet.complete
        if given != self._published:
            self._published = given
            self._put_in_force()
        for name in self._fleet.different():
            self._tell_layers("forget", name)
        if self._first_listing is not None:
            self._first_listing.look(self._fleet.unknown, shows=self._fleet.shows)
        self._do_what_is_due()

    def _do_what_is_due(self) -> None:
        due, self._due = self._due, []
        for do in due:
            do()

    def _put_in_force(self) -> None:
        sources, _, complete = self._published
        self.switchboard.publish(sources)
        self._noted = _tell(self.switchboard.findings, self._noted)
        if complete:
            # Without one of them, a view may lack just what that one has.
            views = self.switchboard.views.values()
            self._noted_of_views = _tell([finding for view in views for finding in view.findings], self._noted_of_views)


def _loaded(given: str | os.PathLike[str] | Mapping[str, Any] | Config | None) -> Config:
    """What a gateway can be opened from, as a configuration. Raises ConfigError."""
    if given is None:
        return Config(servers={})
    if isinstance(given, Config):
        return given
    if isinstance(given, str) or hasattr(given, "__fspath__"):
        return load_config(cast("str", given))
    return parse_config(cast("Mapping[str, Any]", given))


def _tell(findings: Sequence[Finding], told: set[str]) -> set[str]:
    """Log those that have not been told. Returns what is told now."""
    texts = {str(finding): finding for finding in findings}
    new, more = first_of([finding for text, finding in texts.items() if text not in told])
    for finding in new:
        log.warning(f"{finding.kind.word} list", upstream=finding.upstream, problem=finding)
    if more:
        log.warning("lists", problem=more)
    return {*texts}


def _edited_modules() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Modules of middlewares that were edited since they were imported: those to import anew, those that cannot be."""
    modules = sys.modules.get("muxway.middleware.engine.modules")
    # Without any middleware it is not loaded.
    return ((), ()) if modules is None else (modules.edited(), modules.outdated())


def _chained(config: Config) -> tuple[object, ...]:
    """What the middlewares around requests are made of."""
    # Some of them hide the secrets that they know of.
    return [id(one) for one in config.middleware], _secrets(config), _specs(config)


def _secrets(config: Config) -> set[str]:
    return {secret for one in (*config.servers.values(), *config.views.values()) for secret in one.secrets}


def _specs(config: Config) -> list[tuple[str, tuple[MiddlewareSpec, ...]]]:
    """The middlewares that the configuration names, by where they stand."""
    servers = [server for server in config.servers.values() if server.enabled and server.middleware]
    return [
        ("gateway", config.gateway.middleware),
        *((f"view {view.name}", view.middleware) for view in config.views.values()),
        *((f"server {server.name}", server.middleware) for server in servers),
    ]


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
    )


def _tool(route: Route) -> Tool:
    return Tool(route.public, route.upstream, route.native, route.definition)


def _server(station: ManagedServer, tools: Sequence[Tool], findings: Sequence[str]) -> Server:
    upstream = station.upstream
    channel = upstream.channel if isinstance(upstream.channel, StdioServerTransport) else None
    stats, ready_at = upstream.stats, upstream.ready_at
    links = [link for one in station.connections if (link := one.link) is not None]
    pids = [pid for one in station.connections if (pid := _pid(one)) is not None]
    return Server(
        upstream.name,
        upstream.status,
        upstream.error,
        tools,
        revision=None if upstream.greeting is None else upstream.greeting.revision.date,
        pid=_pid(upstream),
        pids=pids,
        seconds=upstream.took,
        notes=(*upstream.notes, *findings),
        stderr=channel.stderr.lines() if channel is not None else (),
        restarts=upstream.restarts,
        retry_in=upstream.retry_in,
        uptime=None if ready_at is None else asyncio.get_running_loop().time() - ready_at,
        in_flight=sum(link.in_flight for link in links),
        queued=sum(link.waiting for link in links),
        calls=stats.calls,
        errors=stats.errors,
        p50=stats.quantile(0.5),
        p99=stats.quantile(0.99),
    )


def _pid(upstream: Upstream) -> int | None:
    """The process id of its child, if that runs."""
    running = upstream.status is Status.RUNNING
    return upstream.channel.pid if running and isinstance(upstream.channel, StdioServerTransport) else None


def _progress(tell: Callable[[float, float | None, str | None], None]) -> Callable[[dict[str, envelopes.Buffer]], None]:
    def heard(params: dict[str, envelopes.Buffer]) -> None:
        progress = envelopes.number(params.get("progress"))
        if progress is not None:
            tell(progress, envelopes.number(params.get("total")), envelopes.text(params.get("message")))

    return heard
