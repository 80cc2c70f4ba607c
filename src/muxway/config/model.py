"""The configuration as the rest of muxway sees it: typed, complete, without dialects.

These classes hold *normalised* values; which keys a file may use for them, and what each key means to the person
writing it, is told once in `fields.py`. Where something stands in a file does not count when two servers are
compared, so moving an entry never restarts its process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.config.templates import Condition, Template
    from muxway.errors import Problem

Transport = Literal["stdio", "http", "sse", "auto"]
Era = Literal["auto", "modern", "legacy"]
Isolation = Literal["shared", "principal", "session"]
Start = Literal["eager", "lazy"]
Separator = Literal["__", ":", "."]
OnError = Literal["fail", "skip", "continue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposedTool:
    """One entry of `exposedTools` or `exposedPrompts`: what to show, perhaps under another name."""

    original: str
    """The name the upstream gives it."""
    exposed: str | None = None
    """The name to publish instead (before the prefix), if it is renamed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentShape:
    """What to make of one argument of a tool."""

    hide: bool = False
    """Whether callers do not see it."""
    value: object = field(default=None, repr=False)
    """What a hidden one always is. None: nothing."""
    env: str | None = field(default=None, repr=False)
    """The same, as the value of a variable."""
    rename: str | None = None
    """What callers call it."""
    default: object = None
    """What it is if the caller does not say. None: nothing."""
    description: str | None = None
    """What callers are told about it."""
    enum: tuple[object, ...] | None = None
    """All it may be."""
    pattern: str | None = None
    """Regular expression that its text must match somewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolShape:
    """What to make of a tool, or of all whose names match a pattern."""

    match: str
    """The tool's name, or the pattern."""
    name: str | None = None
    """Its public name, as it is."""
    title: str | None = None
    """Its title."""
    description: str | None = None
    """What to tell the model about it."""
    annotations: Mapping[str, object] | None = None
    """What to put over its annotations."""
    arguments: Mapping[str, ArgumentShape] = field(default_factory=dict[str, ArgumentShape])
    """What to make of its arguments, by their own names."""
    result: str | None = None
    """JMESPath expression that its result goes through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MiddlewareSpec:
    """A middleware as it is configured."""

    use: str
    """The name of a built-in one or of a plug-in, or `module:Class`."""
    match: tuple[str, ...] = ()
    """Globs of the tools, prompts and URIs it is for; none: all."""
    options: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    where: str = field(default="", compare=False)
    """Where it was configured."""
    line: int | None = field(default=None, compare=False)
    """Line in the file, where known."""
    folders: tuple[str, ...] = field(default=(), compare=False)
    """Where a module of the user's own may lie: beside the file, or where muxway was started if there is no file."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ServerConfig:
    """One upstream: how to reach it and what of it to show."""

    name: str
    """Unique among the servers; the default prefix of its tools."""
    transport: Transport
    """How to talk to it. `auto`: a URL of unknown kind, Streamable HTTP first and HTTP+SSE if that is refused."""
    command: str | None = None
    """Program to start, for `stdio`. Never passed through a shell."""
    args: tuple[str, ...] = ()
    """Arguments of the program."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables for the child: `envFile`, forwarded names and `env`, the later winning."""
    cwd: str | None = None
    """Absolute working folder of the child; None is muxway's own."""
    inherit_env: bool | tuple[str, ...] = False
    """What the child gets of muxway's own environment beyond the allow-list: nothing, everything, these names."""
    url: str | None = None
    """Endpoint, for every transport but `stdio`."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers for each request to the URL."""
    enabled: bool = True
    """False: known, but not started."""
    prefix: str | None = None
    """Prefix of its public names. None: the server's name; empty: no prefix."""
    exposed_tools: tuple[ExposedTool, ...] | None = None
    """The only tools to show, by native name. None: all."""
    hidden_tools: tuple[str, ...] = ()
    """Tools to hide, by native name; wins over `exposed_tools`."""
    read_only: bool = False
    """Show only tools that say that they change nothing."""
    shape: tuple[ToolShape, ...] = ()
    """What to make of its tools, by native name."""
    exposed_prompts: tuple[ExposedTool, ...] | None = None
    """The only prompts to show, by native name. None: all."""
    hidden_prompts: tuple[str, ...] = ()
    """Prompts to hide, by native name; wins over `exposed_prompts`."""
    exposed_resources: tuple[str, ...] | None = None
    """Globs of the only URIs to show and to read. None: all."""
    hidden_resources: tuple[str, ...] = ()
    """Globs of URIs to hide; wins over `exposed_resources`."""
    era: Era = "auto"
    """Protocol generation to speak; `auto` finds out."""
    isolation: Isolation = "principal"
    """Which callers are kept apart at this server."""
    middleware: tuple[MiddlewareSpec, ...] = ()
    """What is done around its requests, the outermost first."""
    start_timeout: float | None = None
    """Seconds from start to ready. None: 30, or 120 where the command may have to download the server first."""
    call_timeout: float | None = None
    """Longest silence of one call, in seconds. None: the gateway's."""
    call_max: float | None = None
    """Longest duration of one call, progress or not, in seconds. None: the gateway's."""
    max_message_bytes: int | None = None
    """Largest message accepted from it. None: the gateway's."""
    start: Start = "eager"
    """When to start it: with the gateway, or when somebody first needs it."""
    idle_stop: float | None = None
    """Seconds without a call after which it is put to sleep. None: never, or 300 with a lazy start."""
    max_concurrency: int = 64
    """Most calls under way at it; more wait."""
    max_queue: int = 256
    """Most calls that wait for their turn; more are refused."""
    probe_interval: float = 30.0
    """Seconds of silence after which a child is asked whether it still answers; 0: never."""
    restart_unresponsive: bool = True
    """Whether a child that answers nothing any more is ended and started again."""
    optional: bool = False
    """Whether the gateway starts without this server if a variable of it is missing."""
    unusable: str = ""
    """Why it cannot be started, whatever is tried; empty: it can."""
    secrets: frozenset[str] = frozenset()
    """Texts never to be shown: what variables expanded to, and env and header values under secret-looking keys."""
    where: str = field(default="", compare=False)
    """Where it was configured, as a dotted path: `mcpServers.github`."""
    line: int | None = field(default=None, compare=False)
    """Line in the file, where known."""
    env_file: str | None = field(default=None, compare=False)
    """The file that some of `env` was read from."""
    extra: Mapping[str, object] = field(default_factory=dict[str, object], compare=False)
    """Keys that only a client acts on (`alwaysAllow`, `trust`, …) and unknown ones, as they were written."""

    def __repr__(self) -> str:
        """Name and kind only: arguments, URL, env and headers may hold secrets, and reprs end up in logs."""
        return f"ServerConfig(name={self.name!r}, transport={self.transport!r}, enabled={self.enabled!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubTool:
    """One tool that a custom tool may run."""

    name: str
    """Its native name at the upstream."""
    description: str = ""
    """What to tell the model about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call that a composed tool makes, or one for each of many items."""

    name: str
    """What references call it."""
    tool: str
    """The tool to call, in any of the spellings a caller may use."""
    arguments: Mapping[str, Template] = field(default_factory=dict[str, "Template"])
    """Its arguments, with references in them."""
    when: Condition | None = None
    """Whether to make the call at all; None: yes."""
    for_each: Template = None
    """The array to make it for each item of; None: it is made once."""
    max_items: int = 50
    """Most items that array may have."""
    on_error: OnError = "fail"
    """What a failure of this step does to the tool."""
    timeout: float | None = None
    """Seconds each of its calls may take. None: what the server allows."""
    after: tuple[str, ...] = ()
    """Steps to wait for beside those it refers to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A case to test a composed tool by."""

    name: str
    """What to call it when it fails."""
    input: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The arguments of the tool."""
    expect: Any = None
    """What its output must have in it. None: anything."""
    fails: str | None = None
    """What the message of its failure must have in it. None: it must not fail."""
    recorded: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the steps' tools answer when no server is asked: tool → one answer for all calls, or a list of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomTool:
    """A tool of the gateway itself: compound, one name in front of others; or composed, made of steps."""

    name: str
    """Its public name, without prefix."""
    description: str
    """What to tell the model about it; the list of subtools is added."""
    subtools: Mapping[str, tuple[SubTool, ...]] = field(default_factory=dict[str, tuple[SubTool, ...]])
    """What a compound tool may run: server name → tools."""
    input_schema: Mapping[str, Any] | None = None
    """JSON Schema of a composed tool's arguments. None: any."""
    steps: tuple[Step, ...] = ()
    """The calls of a composed tool; none for a compound one."""
    output: Template = None
    """What a composed tool gives. None: the result of its last step."""
    deadline: float = 60.0
    """Seconds in which all steps must be done."""
    max_result_bytes: int = 16 * 1024 * 1024
    """Most bytes of results that one call may gather."""
    dry_run: bool = False
    """Whether callers may ask what would be done."""
    examples: tuple[Example, ...] = ()
    """Cases to test it by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """The top-level `gateway` section: how muxway itself behaves."""

    name: str = "muxway"
    """Name told to clients."""
    version: str | None = None
    """Version told to clients. None: muxway's own."""
    separator: Separator = "__"
    """What stands between prefix and native name in a public name."""
    page_size: int | None = None
    """Items per page of a listing. None: everything at once."""
    call_timeout: float = 60.0
    """Longest silence of one call, in seconds; each progress notice restarts it."""
    call_max: float = 600.0
    """Longest duration of one call, progress or not, in seconds."""
    max_name_length: int | None = None
    """Public names longer than this are shortened with a stable hash. None: 50, or 128 with another separator."""
    max_message_bytes: int = 16 * 1024 * 1024
    """Largest message accepted from anyone."""
    list_wait: float | None = None
    """Seconds after the start in which a listing waits for servers never seen before; 0: never. None: as they need."""
    list_timeout: float = 15.0
    """Seconds an upstream may take for one page of a listing."""
    max_tools: int = 10_000
    """Most tools taken from one upstream, and most prompts, resources and templates."""
    middleware: tuple[MiddlewareSpec, ...] = ()
    """What is done around every request, the outermost first."""
    state_key: str | None = field(default=None, repr=False)
    """Seals what stateless clients keep between two rounds of a call. None: a random one."""
    max_instances: int = 100
    """Most connections to one server beside its first."""
    instance_idle: float = 300.0
    """Seconds after which such a connection is ended when nobody uses it."""
    queue_wait: float = 10.0
    """Seconds a call may wait for its turn at a busy server."""
    max_calls: int = 1024
    """Most calls under way in the whole gateway."""
    max_calls_per_client: int = 128
    """Most calls of one client under way."""
    max_processes: int = 256
    """Most child processes at the same time."""
    max_memory: int | None = None
    """Bytes of memory from which on work is refused. None: what the container allows, if it says."""
    host: str = "127.0.0.1"
    """Address that `muxway serve` binds."""
    port: int = 3006
    """Port that it binds; 0: any free one."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names by which clients may reach it; `*`: any."""
    allowed_origins: tuple[str, ...] = ()
    """Web origins whose pages may use it; `*`: any."""
    token: str | None = field(default=None, repr=False)
    """What clients of `muxway serve` must send as their bearer token. None: nothing, or what the command line says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewConfig:
    """What some callers see of the gateway."""

    name: str
    """The last part of its URL."""
    servers: tuple[str, ...] | None = None
    """Only what these servers have. None: all."""
    tools: tuple[str, ...] | None = None
    """Globs of the only public tool names to show. None: all."""
    hidden_tools: tuple[str, ...] = ()
    """Globs of public tool names to hide; wins over `tools`."""
    prompts: tuple[str, ...] | None = None
    """Globs of the only public prompt names to show. None: all."""
    resources: tuple[str, ...] | None = None
    """Globs of the only URIs to show and to read, as their servers write them. None: all."""
    read_only: bool = False
    """Show only tools that say that they change nothing."""
    shape: tuple[ToolShape, ...] = ()
    """What to make of its tools, by public name."""
    middleware: tuple[MiddlewareSpec, ...] = ()
    """What is done around its requests, inside what the gateway does around all."""
    tokens: tuple[str, ...] = field(default=(), repr=False)
    """Bearer tokens that open this view and nothing else."""
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """Texts never to be shown: what variables expanded to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One whole configuration, validated."""

    servers: Mapping[str, ServerConfig]
    """The upstreams by name, in the order of the file."""
    tools: Mapping[str, CustomTool] = field(default_factory=dict[str, CustomTool])
    """The custom tools by name."""
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    """How muxway itself behaves."""
    views: Mapping[str, ViewConfig] = field(default_factory=dict[str, ViewConfig])
    """What some callers see of it, by name."""
    source: str | None = None
    """The file it came from, if any."""
    warnings: tuple[Problem, ...] = ()
    """Doubtful things that did not prevent loading."""
    objects: Mapping[str, object] = field(default_factory=dict[str, object], compare=False, repr=False)
    """Servers that are Python objects in this process, by name; only a chain written in Python has them."""
    middleware: tuple[object, ...] = field(default=(), compare=False, repr=False)
    """Middlewares that are Python objects, the outermost first; they stand outside those of `gateway`."""
