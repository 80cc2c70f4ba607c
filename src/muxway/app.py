"""The composition root: a configuration becomes a running gateway. Knows everybody; nobody but `cli` knows it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, cast

from muxway import __version__
from muxway.catalog import build
from muxway.catalog.globs import Globs
from muxway.catalog.kinds import PROMPTS, RESOURCES, TEMPLATES, TOOLS
from muxway.catalog.naming import Naming
from muxway.catalog.shaping import Shapes, shape
from muxway.catalog.uris import UriFilter
from muxway.config import load_config, parse_config, parse_server
from muxway.config.model import Config, GatewaySettings
from muxway.core import custom
from muxway.core.call import LIBRARY, Call
from muxway.core.ports import Waiter
from muxway.core.relay import Member
from muxway.core.sealing import Seal
from muxway.core.switchboard import Switchboard
from muxway.downstream.memory import MemoryDoor
from muxway.downstream.stdio import StdioDoor
from muxway.errors import ConfigError
from muxway.log import EventLog
from muxway.pipes import Turn
from muxway.protocol import messages
from muxway.protocol.era import PROGRESS_TOKEN
from muxway.upstream.lanes import Lanes
from muxway.upstream.listening import Feed, Feeds
from muxway.upstream.nursery import Nursery
from muxway.upstream.state import Status
from muxway.upstream.stdio import StdioChannel
from muxway.upstream.upstream import Upstream, start_timeout

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from muxway.catalog.build import Source
    from muxway.catalog.kinds import Kind
    from muxway.catalog.model import Finding, Native, Route
    from muxway.config.model import ExposedTool, ServerConfig, ViewConfig
    from muxway.core.ports import Running
    from muxway.core.views import View
    from muxway.middleware.base import Middleware
    from muxway.middleware.running import Chains, Layer
    from muxway.upstream.channel import Channel
    from muxway.upstream.greeting import Era
    from muxway.upstream.launch import ReaperProcess
    from muxway.upstream.memory import InProcessServer

log = EventLog("gateway")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as the gateway lists it."""

    name: str
    """Public name: what `call` takes."""
    server: str
    """The server that has it; empty for a compound tool of the gateway itself."""
    original_name: str
    """What its server calls it."""
    definition: Mapping[str, Any]
    """The whole listed definition, unknown fields included."""

    @property
    def description(self) -> str:
        """What the tool is for, in its author's words."""
        return str(self.definition.get("description", ""))

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of its arguments."""
        return self.definition["inputSchema"]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gave back."""

    raw: Mapping[str, Any]
    """The whole result, unknown fields included."""

    @property
    def content(self) -> Sequence[Mapping[str, Any]]:
        """The content blocks."""
        return self.raw.get("content", ())

    @property
    def structured_content(self) -> Any:
        """The structured result, if the tool has one."""
        return self.raw.get("structuredContent")

    @property
    def is_error(self) -> bool:
        """Whether the tool itself says that it failed."""
        return self.raw.get("isError") is True

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join(str(block["text"]) for block in self.content if block.get("type") == "text")


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource as the gateway lists it."""

    uri: str
    """Public URI: what `read` takes."""
    server: str
    """The server that has it."""
    original_uri: str
    """What its server calls it."""
    definition: Mapping[str, Any]
    """The whole listed definition, unknown fields included."""

    @property
    def name(self) -> str:
        """Its name, with the server's in front."""
        return str(self.definition.get("name", ""))

    @property
    def description(self) -> str:
        """What it is, in its author's words."""
        return str(self.definition.get("description", ""))

    @property
    def mime_type(self) -> str | None:
        """The type of its contents, if its server says."""
        return self.definition.get("mimeType")


@dataclass(frozen=True, slots=True)
class ResourceTemplate:
    """A resource template as the gateway lists it."""

    uri_template: str
    """Public template, after RFC 6570: `read` takes what it expands to."""
    server: str
    """The server that has it."""
    original_template: str
    """What its server calls it."""
    definition: Mapping[str, Any]
    """The whole listed definition, unknown fields included."""

    @property
    def name(self) -> str:
        """Its name, with the server's in front."""
        return str(self.definition.get("name", ""))

    @property
    def description(self) -> str:
        """What it is for, in its author's words."""
        return str(self.definition.get("description", ""))


@dataclass(frozen=True, slots=True)
class ResourceResult:
    """What was read."""

    raw: Mapping[str, Any]
    """The whole result, unknown fields included."""

    @property
    def contents(self) -> Sequence[Mapping[str, Any]]:
        """The contents, each with its `uri` and either `text` or a base64 `blob`."""
        return self.raw.get("contents", ())

    @property
    def text(self) -> str:
        """All texts, joined by newlines."""
        return "\n".join(str(content["text"]) for content in self.contents if "text" in content)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as the gateway lists it."""

    name: str
    """Public name: what `prompt` takes."""
    server: str
    """The server that has it."""
    original_name: str
    """What its server calls it."""
    definition: Mapping[str, Any]
    """The whole listed definition, unknown fields included."""

    @property
    def description(self) -> str:
        """What it is for, with the server's name in front."""
        return str(self.definition.get("description", ""))

    @property
    def arguments(self) -> Sequence[Mapping[str, Any]]:
        """What it takes: `name`, `description` and `required` of each."""
        return self.definition.get("arguments") or ()


@dataclass(frozen=True, slots=True)
class PromptResult:
    """A prompt, filled in."""

    raw: Mapping[str, Any]
    """The whole result, unknown fields included."""

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The messages, each with its `role` and one block of `content`."""
        return self.raw.get("messages", ())

    @property
    def text(self) -> str:
        """The text of all messages, joined by newlines."""
        blocks = [message.get("content", {}) for message in self.messages]
        return "\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")


@dataclass(frozen=True, slots=True)
class Server:
    """A server and how it is."""

    name: str
    status: Status
    error: str | None
    """Why it is not running, if it failed."""
    tools: Sequence[Tool]
    """Its tools in the catalog; none unless it is running."""
    prompts: int = 0
    """How many prompts it shows."""
    resources: int = 0
    """How many resources it shows."""
    resource_templates: int = 0
    """How many resource templates it shows."""
    revision: str | None = None
    """The protocol revision spoken with it."""
    pid: int | None = None
    """The process id of a running child."""
    seconds: float | None = None
    """How long its start took, until it was ready or had failed."""
    notes: Sequence[str] = field(default=())
    """What is odd about its tools and their names: left out, renamed, clashing, or asked for in vain."""
    stderr: Sequence[str] = field(default=(), repr=False)
    """The last lines it wrote to stderr."""


class Gateway:
    """Many MCP servers as one.

        async with Gateway.open("servers.json") as gateway:
            print([tool.name for tool in gateway.tools()])
            result = await gateway.call("time.get_current_time", {"timezone": "Europe/Paris"})

    Tool names are accepted as `server__tool`, `server:tool` and `server.tool`.
    """

    def __init__(
        self, config: Config, *, middleware: Sequence[Middleware] = (), reaper: ReaperProcess | None = None
    ) -> None:
        """Prepare a gateway; nothing is started before `start` (or `async with`).

        Args:
            config: what to run and how.
            middleware: what is done around every request, outside what the configuration says.
            reaper: the process that will look after the servers, if it has been started ahead.

        Raises:
            ConfigError: a middleware of the configuration cannot be used.
        """
        settings = config.gateway
        self.config = config
        self._settings: GatewaySettings = settings
        self._naming = Naming.of(settings.separator, settings.max_name_length)
        self._members: dict[str, Member] = {}
        self._upstreams: dict[str, Upstream] = {}
        self._lanes: dict[str, Lanes] = {}
        self._feeds: dict[str, Feeds] = {}
        self._twins: dict[str, Upstream] = {}
        self._servers: dict[str, ServerConfig] = {}
        self._nursery = Nursery(reaper)
        self._turn = Turn()
        self._listings: asyncio.TimerHandle | None = None
        self._noted: set[str] = set()
        """The findings that have been told."""
        self._noted_of_views: set[str] = set()
        self._custom = custom.source(config.tools.values())
        self._client_info = {"name": "muxway", "version": __version__}
        self.switchboard = Switchboard(
            name=settings.name,
            version=settings.version or __version__,
            naming=self._naming,
            members=self._members,
            tools=config.tools,
            page_size=settings.page_size,
            seal=Seal(settings.state_key),
        )
        self.switchboard.on_left.append(self._left)
        self._chains: dict[str | None, Chains] = {}
        """What stands around requests, by view; None: around those to the whole."""
        self._chain(config, middleware, None)
        for view in config.views.values():
            self.switchboard.views[view.name] = _view(self.switchboard, view)
            self._chain(config, middleware, view)
        self._publish()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, config: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None, *, wait: bool = True
    ) -> AsyncGenerator[Self]:
        """Start a gateway from a file, a mapping of the same shape, or a loaded `Config`; end it on leaving.

        Without a configuration it begins empty, for servers that are added at run time.

        With `wait` (the default) every server is ready or has failed before the body runs. A server that
        fails does not stop the others: see `servers()`.

        Raises:
            ConfigError: the configuration cannot be used; lists every problem.
        """
        if config is None:
            loaded = Config(servers={})
        elif isinstance(config, Config):
            loaded = config
        elif isinstance(config, str) or hasattr(config, "__fspath__"):
            loaded = load_config(cast("str", config))
        else:
            loaded = parse_config(cast("Mapping[str, Any]", config))
        gateway = cls(loaded)
        try:
            gateway.start()
            if wait:
                await gateway.settled()
            yield gateway
        finally:
            await gateway.stop()

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to start every server, all at once, in the background."""
        servers = [server for server in self.config.servers.values() if server.enabled]
        if servers and self._settings.list_wait > 0:
            self.switchboard.hold_listings()
            loop = asyncio.get_running_loop()
            self._listings = loop.call_later(self._settings.list_wait, self.switchboard.release_listings)
        for server in servers:
            if server.name in self.config.objects:
                from muxway.upstream.inprocess import as_server

                thing = as_server(self.config.objects[server.name], server.name)
                self._add(server.name, server, self._memory_channel(thing), in_process=True)
            else:
                self._add(server.name, server, self._channel_for(server))

    async def settled(self) -> None:
        """Wait until every server is ready or has failed. Each has its own time limit."""
        for upstream in list(self._upstreams.values()):
            await upstream.settled.wait()

    async def stop(self) -> None:
        """End every server, all at once, and wait until they are gone."""
        ending = [*self._upstreams.values(), *self._lanes.values()]
        await asyncio.gather(*(connection.stop() for connection in ending))
        await self._nursery.aclose()
        self.switchboard.close()
        # Those that were given as objects stand in every chain.
        layers = {id(layer.middleware): layer for chains in self._chains.values() for layer in chains.layers}
        if layers:
            from muxway.middleware.running import close_layers

            await close_layers(layers.values())

    def stdio_door(self, *, stdin: int = 0, stdout: int = 1, view: str | None = None) -> StdioDoor:
        """A door for one client on these file descriptors; `await door.serve()` to serve it. KeyError: no such view."""
        limit = self._settings.max_message_bytes
        return StdioDoor(self._board(view), self._turn, stdin=stdin, stdout=stdout, max_message_bytes=limit)

    def memory_door(self, view: str | None = None) -> MemoryDoor:
        """A door for a client in this process that speaks raw lines. KeyError: no such view."""
        return MemoryDoor(self._board(view))

    def _board(self, view: str | None) -> Switchboard:
        return self.switchboard if view is None else self.switchboard.views[view]

    # --- use ----------------------------------------------------------------------------------

    def tools(self, view: str | None = None) -> list[Tool]:
        """Every tool, or those of a view, in the order of the listing. KeyError: no such view."""
        return [_tool(route) for route in self._board(view).catalog.routes.values()]

    def notes(self, view: str) -> list[str]:
        """What a view names in vain, or cannot do. KeyError: no such view."""
        return [str(finding) for finding in self.switchboard.views[view].findings]

    def definition(self, name: str) -> Mapping[str, Any] | None:
        """A tool as its server and its shape define it, by any spelling, whether or not clients see it; None: none."""
        route = self.switchboard.catalog.find(name).route
        if route is not None:
            return route.describe()
        upstream, native = self.switchboard.native_tool(name) or ("", "")
        listed = self._upstreams[upstream].offer(TOOLS).natives if upstream in self._upstreams else ()
        tool = next((one for one in listed if one.name == native), None)
        if tool is None:
            return None
        wishes = Shapes(self._servers[upstream].shape).of(native)
        members = tool.members if wishes is None else shape(tool.members, wishes).members
        return messages.value(messages.object_of(members.items()))

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: Callable[[float, float | None, str | None], None] | None = None,
    ) -> ToolResult:
        """Call a tool. Cancelling the task cancels the call at its server.

        A tool that reports its own failure returns normally, with `is_error` set.

        Raises:
            ToolNotFound: there is no such tool, or the name may mean several.
            InvalidParams: the name lacks its server.
            UpstreamSaid: the server answered with a JSON-RPC error.
            UpstreamError: the server is not running, was lost, or did not answer in time.
        """
        params = {"name": messages.encode(name), "arguments": messages.encode(dict(arguments or {}))}
        meta = None if on_progress is None else {PROGRESS_TOKEN: messages.Raw(b"1")}
        waiter = Waiter(None if on_progress is None else _progress(on_progress))
        return ToolResult(await self._ask("tools/call", params, meta, waiter))

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
        return ResourceResult(await self._ask("resources/read", {"uri": messages.encode(uri)}))

    async def prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> PromptResult:
        """Fill in a prompt. Cancelling the task cancels the request at its server.

        Raises:
            InvalidParams: there is no such prompt, or the name may mean several.
            UpstreamSaid: the server answered with a JSON-RPC error.
            UpstreamError: the server is not running, was lost, or did not answer in time.
        """
        params = {"name": messages.encode(name), "arguments": messages.encode(dict(arguments or {}))}
        return PromptResult(await self._ask("prompts/get", params))

    async def _ask(
        self,
        method: str,
        params: Mapping[str, bytes],
        meta: messages.Params | None = None,
        waiter: Waiter | None = None,
    ) -> Mapping[str, Any]:
        call = Call(LIBRARY, method, {key: messages.Raw(value) for key, value in params.items()}, meta)
        waiter = waiter or Waiter()
        running: Running | None = self.switchboard.handle(call, waiter)
        return messages.value(await waiter.outcome(running))

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
                _server(upstream, tools.get(name, []), [str(f) for f in findings if f.upstream == name]),
                prompts=prompts[name],
                resources=resources[name],
                resource_templates=templates[name],
            )
            for name, upstream in self._upstreams.items()
        ]

    async def add(
        self, name: str, entry: Mapping[str, Any] | None = None, *, server: object = None, **keys: Any
    ) -> Server:
        """Add a server and wait until it is ready or has failed.

        Give its configuration as a mapping or as keywords (`command="uvx", args=["mcp-server-time"]`), or
        an in-process `server`: an official-SDK server, or any object whose public methods are the tools.

        Raises:
            ConfigError: the name is taken, or the configuration cannot be used.
        """
        if name in self._upstreams:
            raise ConfigError("invalid_schema", f'there is already a server "{name}": remove it first')
        config = parse_server(
            name, {"command": "(in process)", **keys} if server is not None else {**(entry or {}), **keys}
        )
        self._chain_more(config)
        if server is not None:
            from muxway.upstream.inprocess import as_server

            dial = self._memory_channel(as_server(server, name))
        else:
            dial = self._channel_for(config)
        upstream = self._add(name, config, dial, in_process=server is not None)
        await upstream.settled.wait()
        return next(known for known in self.servers() if known.name == name)

    async def remove(self, name: str) -> None:
        """End a server and forget it. Its calls under way fail.

        Raises:
            KeyError: there is no such server.
        """
        upstream = self._upstreams.pop(name)
        lanes = self._lanes.pop(name, None)
        self._twins.pop(name, None)
        self._feeds.pop(name, None)
        if lanes is not None:
            await lanes.stop()
        await upstream.stop()
        self.switchboard.subscriptions.remove(name)
        del self._members[name], self._servers[name]
        self._publish()

    def _chain(self, config: Config, middleware: Sequence[Middleware], view: ViewConfig | None) -> None:
        """Put the middlewares around the switchboard; without any, nothing is loaded and nothing changes."""
        given = [*middleware, *cast("tuple[Middleware, ...]", config.middleware)]
        configured = config.gateway.middleware or any(server.middleware for server in config.servers.values())
        configured = configured or (view is not None and view.middleware)
        if not given and not configured:
            return
        from muxway.middleware.loading import layers_of
        from muxway.middleware.running import Layer

        layers = [Layer(type(one).__name__, one) for one in given]
        self._put_around(None if view is None else view.name, [*layers, *layers_of(config, view)])

    def _put_around(self, view: str | None, layers: Sequence[Layer]) -> None:
        from muxway.middleware.running import Chains

        board = self._board(view)
        chains = self._chains[view] = Chains(layers, board.answer, board.target)
        board.handle = chains.handle

    def _chain_more(self, server: ServerConfig) -> None:
        """Put the middlewares of a server that was added inside those that are there."""
        if not server.middleware:
            return
        from muxway.middleware.loading import layers_of_server

        for view in (None, *self.switchboard.views):
            before = self._chains.get(view)
            self._put_around(view, [*(() if before is None else before.layers), *layers_of_server(server)])

    # --- inside -------------------------------------------------------------------------------

    def _channel_for(self, config: ServerConfig) -> Callable[[], Channel]:
        limit = config.max_message_bytes or self._settings.max_message_bytes
        if config.transport != "stdio":
            from muxway.upstream.http import HttpChannel

            return lambda: HttpChannel(config, limit)
        return lambda: StdioChannel(config, self._nursery, self._turn, limit)

    def _memory_channel(self, server: InProcessServer) -> Callable[[], Channel]:
        from muxway.upstream.memory import MemoryChannel

        return lambda: MemoryChannel(server)

    def _add(
        self, name: str, config: ServerConfig, dial: Callable[[], Channel], *, in_process: bool = False
    ) -> Upstream:
        settings = self._settings
        self._servers[name] = config
        self._members[name] = Member(
            idle=config.call_timeout or settings.call_timeout,
            limit=config.call_max or settings.call_max,
            prefix=self._prefixes()[name],
        )
        upstream = self._upstreams[name] = self._upstream(config, dial, self._changed, config.era)
        if not in_process:
            # One Python object is one server; whatever else is reached can be reached several times.
            lanes = self._lanes[name] = self._make_lanes(upstream, config, dial)
            self._members[name].choose = lanes.choose
        upstream.feed = self._make_feed(upstream)
        feeds = self._feeds[name] = Feeds(upstream.feed)
        self.switchboard.subscriptions.add(name, feeds)
        upstream.start()
        return upstream

    def _make_feed(self, upstream: Upstream) -> Feed:
        name, subscriptions = upstream.name, self.switchboard.subscriptions

        def updated(uri: str) -> None:
            subscriptions.updated(name, uri)

        return Feed(name, upstream.hear_notice, updated, self.switchboard.audience.log)

    def _upstream(
        self,
        config: ServerConfig,
        dial: Callable[[], Channel],
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
            start_timeout=start_timeout(config.start_timeout, config.command),
            list_timeout=self._settings.list_timeout,
            max_listed=self._settings.max_tools,
            **more,
        )
        upstream.on_page_done = self.switchboard.audience.page_done
        return upstream

    def _make_lanes(self, first: Upstream, config: ServerConfig, dial: Callable[[], Channel]) -> Lanes:
        def open_lane(
            changed: Callable[[Upstream], None], era: Era, capabilities: Mapping[str, Any], shared: bool
        ) -> Upstream:
            if shared:
                return self._open_twin(config, dial, changed, era, capabilities)
            # What a stateless server's tools want repeated in headers is learned from their list.
            kinds = (TOOLS,) if era == "modern" else ()
            return self._upstream(config, dial, changed, era, capabilities=capabilities, kinds=kinds, first=False)

        return Lanes(
            first,
            open_lane,
            isolation=config.isolation,
            match_era=config.era == "auto",
            keeps_state=config.transport == "stdio",
            limit=self._settings.max_instances,
            idle=self._settings.instance_idle,
        )

    def _open_twin(
        self,
        config: ServerConfig,
        dial: Callable[[], Channel],
        changed: Callable[[Upstream], None],
        era: Era,
        capabilities: Mapping[str, Any],
    ) -> Upstream:
        """A connection for the callers of the other era: what they change in it is listed and told as well."""

        def listed(twin: Upstream) -> None:
            changed(twin)
            self._publish()

        twin = self._upstream(config, dial, listed, era, capabilities=capabilities, first=False)
        twin.feed = self._make_feed(twin)
        self._feeds[config.name].join(twin.feed)
        self._twins[config.name] = twin
        return twin

    def _left(self, party: object) -> None:
        for lanes in self._lanes.values():
            lanes.gone(party)

    def _changed(self, upstream: Upstream) -> None:
        member = self._members[upstream.name]
        why = (upstream.error or f"it is {upstream.status}").removeprefix(f'server "{upstream.name}" ')
        member.settle(upstream.link, why)
        self._publish()
        member.release()
        if self._listings is not None and not any(member.starting for member in self._members.values()):
            self._listings.cancel()
            self._listings = None
            self.switchboard.release_listings()

    def _publish(self) -> None:
        self.switchboard.publish([self._custom, *self._sources()])
        self._noted = _tell(self.switchboard.findings, self._noted)
        if self._members and all(member.link is not None for member in self._members.values()):
            # Without one of them, a view may lack just what that one has.
            views = self.switchboard.views.values()
            self._noted_of_views = _tell([finding for view in views for finding in view.findings], self._noted_of_views)

    def _prefixes(self) -> dict[str, str]:
        return build.assign_prefixes(self._naming, {name: config.prefix for name, config in self._servers.items()})

    def _natives(self, upstream: Upstream, kind: Kind) -> Sequence[Native]:
        """What a server offers, and what only its connection for the other era does."""
        natives = upstream.offer(kind).natives
        twin = self._twins.get(upstream.name)
        if twin is None or twin.link is None:
            return natives
        known = {native.name for native in natives}
        return [*natives, *(native for native in twin.offer(kind).natives if native.name not in known)]

    def _sources(self) -> list[Source]:
        prefixes = self._prefixes()
        sources: list[Source] = []
        for name, upstream in self._upstreams.items():
            config = self._servers[name]
            if upstream.link is None:
                continue
            greeting = upstream.greeting
            sources.append(
                build.Source(
                    upstream=name,
                    tools=self._natives(upstream, TOOLS),
                    prompts=self._natives(upstream, PROMPTS),
                    resources=self._natives(upstream, RESOURCES),
                    templates=self._natives(upstream, TEMPLATES),
                    prefix=prefixes[name],
                    asked=name if config.prefix is None else config.prefix,
                    exposed=_renames(config.exposed_tools),
                    hidden=frozenset(config.hidden_tools),
                    read_only=config.read_only,
                    shapes=config.shape,
                    exposed_prompts=_renames(config.exposed_prompts),
                    hidden_prompts=frozenset(config.hidden_prompts),
                    uris=UriFilter(config.exposed_resources, config.hidden_resources),
                    reads=greeting is not None and greeting.has("resources"),
                    completes=greeting is not None and greeting.completes,
                    hints={kind.name: offer.hint for kind, offer in upstream.offers.items()},
                    instructions="" if greeting is None else greeting.instructions,
                )
            )
        return sources


def _renames(exposed: Sequence[ExposedTool] | None) -> dict[str, str | None] | None:
    return None if exposed is None else {entry.original: entry.exposed for entry in exposed}


def _tell(findings: Sequence[Finding], told: set[str]) -> set[str]:
    """Log those that have not been told. Returns what is told now."""
    for finding in findings:
        if str(finding) not in told:
            log.warning(f"{finding.kind.word} list", upstream=finding.upstream, problem=finding)
    return {str(finding) for finding in findings}


def _view(whole: Switchboard, config: ViewConfig) -> View:
    # Only for those who have views.
    from muxway.catalog.selection import Selection
    from muxway.core.views import View

    selection = Selection(
        view=config.name,
        servers=None if config.servers is None else frozenset(config.servers),
        tools=None if config.tools is None else Globs(config.tools),
        hidden_tools=Globs(config.hidden_tools),
        prompts=None if config.prompts is None else Globs(config.prompts),
        uris=UriFilter(config.resources),
        read_only=config.read_only,
        shapes=config.shape,
    )
    return View(whole, selection)


def _tool(route: Route) -> Tool:
    return Tool(route.public, route.upstream, route.native, route.describe())


def _server(upstream: Upstream, tools: Sequence[Tool], findings: Sequence[str]) -> Server:
    running = upstream.status is Status.RUNNING
    channel = upstream.channel if isinstance(upstream.channel, StdioChannel) else None
    return Server(
        upstream.name,
        upstream.status,
        upstream.error,
        tools,
        revision=None if upstream.greeting is None else upstream.greeting.revision.date,
        pid=channel.pid if channel is not None and running else None,
        seconds=upstream.took,
        notes=(*upstream.notes, *findings),
        stderr=channel.stderr.lines() if channel is not None else (),
    )


def _progress(tell: Callable[[float, float | None, str | None], None]) -> Callable[[dict[str, messages.Buffer]], None]:
    def heard(params: dict[str, messages.Buffer]) -> None:
        progress = messages.number(params.get("progress"))
        if progress is not None:
            tell(progress, messages.number(params.get("total")), messages.text(params.get("message")))

    return heard
