"""The configuration as the rest of muxway sees it: typed, complete, without dialects; and the one table of its keys.

An attribute that a kind makes (`kinds.flag(…)`) is the row of a key: see `fields`. The others are facts found while
reading. Where something stands in a file does not count when two servers are compared, so moving an entry never
restarts its process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from muxway.config import access, kinds, middlewares, oauth, programs, shaping, tls
from muxway.config.auth import AUTH, CLAIMS, INTROSPECTION, OWN_SERVER, SIGN_ON, auth_object, base_url, scope_names
from muxway.config.fields import Field, Section, settings
from muxway.config.user_values import names_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.config.access import AccessRule
    from muxway.config.auth import AuthSettings
    from muxway.config.middlewares import MiddlewareSpec
    from muxway.config.oauth import OAuthConfig
    from muxway.config.programs import ProgramCommand
    from muxway.config.shaping import ExposedTool, ToolShape
    from muxway.config.templates import Condition, Template
    from muxway.config.tls import ListenerTls, ServerTls
    from muxway.errors import Problem

Transport = Literal["stdio", "http", "sse", "auto"]
Era = Literal["auto", "modern", "legacy"]
Isolation = Literal["shared", "principal", "session"]
Start = Literal["eager", "lazy"]
LockMode = Literal["off", "warn", "enforce"]
DiscoveryMode = Literal["full", "search"]
Separator = Literal["__", ":", "."]
OnError = Literal["fail", "skip", "continue"]


class Written(NamedTuple):
    """A place in a configuration file."""

    where: str = ""
    """As a dotted path."""
    line: int | None = None
    """Where known."""


# --- keys that the gateway and each view have ---


def _pinned() -> tuple[str, ...]:
    return kinds.strings(
        "With `discovery: search`, globs of tools that are listed all the same, by their public names.",
        default=(),
        example=["github__search_*"],
    )


def _tiers() -> bool:
    return kinds.flag(
        "With `discovery: search`, list `call_tool_read`, `call_tool_write` and `call_tool_destructive` instead of "
        "`call_tool`, so that clients can allow them apart. Tools without annotations are destructive.",
        default=False,
        example=True,
    )


@settings
class ServerConfig:
    """One MCP server behind the gateway: a program to start (`command`) or an address to connect to (`url`)."""

    name: str
    """Unique among the servers; the default prefix of its tools."""
    command: str | None = kinds.command(
        "Program to start and talk to over its stdin and stdout. It is looked up on PATH and never passed through a "
        "shell. An array holds the program and its arguments; a leading `~` is your home folder, a leading `./` is "
        "`cwd`, or the config file's folder.",
        default=None,
        example="npx",
        aliases=("cmd",),
    )
    args: tuple[str, ...] = kinds.arguments(
        "Arguments of the program, one per item. Numbers are turned into text.",
        default_factory=tuple[str, ...],
        example=["-y", "@modelcontextprotocol/server-filesystem", "/data"],
    )
    commands: tuple[ProgramCommand, ...] | None = programs.commands(
        "The program is a command-line program, not an MCP server. These sub-commands become tools; nothing else of"
        " it can be run. Put such programs under `cli`, where `command` may be omitted.",
        default=None,
        example=["status", {"args": ["log", "--oneline"], "arguments": {"count": {"type": "integer", "flag": "-n"}}}],
    )
    env: Mapping[str, str] = kinds.variables(
        "Environment variables for the program. Numbers and booleans are turned into text; null omits the variable."
        " Overrides `envFile` and `envVars`.",
        default_factory=dict[str, str],
        example={"GITHUB_TOKEN": "${GITHUB_TOKEN}"},
        aliases=("envs", "environment"),
        also=(
            Field(
                "envVars",
                kinds.variable_names,
                "Names of variables to pass on from muxway's own environment. Each must be set.",
                example=["GITHUB_TOKEN"],
                aliases=("env_keys",),
            ),
        ),
    )
    env_file: str | None = kinds.path(
        "File of `KEY=value` lines with more variables. A relative path starts at the config file's folder.",
        default=None,
        compare=False,
        example=".env",
    )
    inherit_env: bool | tuple[str, ...] = kinds.inherit(
        "Which variables of muxway's own environment the program gets. By default only what programs need to run "
        "(PATH, HOME, LANG, …). true passes everything except variables that make programs load code; an array "
        "passes these names, if they are set.",
        default=False,
        example=["HTTPS_PROXY"],
    )
    cwd: str | None = kinds.path(
        "Working folder of the program. A relative path starts at the config file's folder; by default it is "
        "muxway's own working folder.",
        default=None,
        example="~/projects",
    )
    url: str | None = kinds.url(
        "Address of a remote server. Without `type`, Streamable HTTP is tried first, then HTTP+SSE.",
        default=None,
        example="https://example.com/mcp",
        aliases=("endpoint", "uri"),
        also=(
            Field(
                "httpUrl",
                kinds.url,
                "Address of a Streamable HTTP server (Gemini CLI, Windsurf). Same as `url` with `type: http`.",
                example="https://example.com/mcp",
                aliases=("serverUrl",),
            ),
        ),
    )
    headers: Mapping[str, str] = kinds.headers(
        "HTTP headers for every request to the server, as an object or as `[{name, value}]`.",
        default_factory=dict[str, str],
        example={"Authorization": "Bearer ${API_TOKEN}"},
        aliases=("http_headers",),
        also=(
            Field(
                "envHttpHeaders",
                kinds.header_variables,
                "HTTP headers whose values are variables, given by name (Codex).",
                example={"X-Api-Key": "API_KEY"},
            ),
            Field(
                "bearerTokenEnvVar",
                kinds.variable_name,
                "Name of the variable whose value is sent as `Authorization: Bearer …` (Codex).",
                example="API_TOKEN",
            ),
        ),
    )
    oauth: OAuthConfig = oauth.oauth(
        "OAuth settings for the server, if `muxway login NAME` cannot find them out. false turns logins off.",
        default_factory=oauth.OAuthConfig,
        example={"clientId": "Iv1.8a61f9b3a7aba766", "clientSecret": "${GITHUB_CLIENT_SECRET}"},
    )
    proxy: str | None = tls.proxy(
        "HTTP proxy for connections to a remote server; false: none. By default `HTTPS_PROXY`, `HTTP_PROXY` and "
        "`NO_PROXY` apply. Servers on this machine are reached without a proxy.",
        default=None,
        example="http://proxy.example.com:3128",
    )
    tls: ServerTls = tls.server_tls(
        "Certificates for the connection to a remote server: an additional certificate authority, or a client "
        "certificate (mutual TLS).",
        default_factory=tls.ServerTls,
        example={"ca": "certs/company-ca.pem"},
    )
    forward: tuple[str, ...] = kinds.forwarded_headers(
        "Headers of the caller that are passed on to this server unchanged; only for servers with a `url`. Callers "
        "who send different values share neither a connection nor a cached result. Credentials, cookies, and "
        "headers of HTTP and MCP themselves are never passed on.",
        default=(),
        example=["X-Tenant-Id"],
    )
    transport: Transport = kinds.transport(
        "Transport of the server: `stdio`, `http` (Streamable HTTP) or `sse` (the older HTTP+SSE). By default it "
        "follows from `command` or `url`. As an object it holds the connection itself (Cline).",
        example="http",
        aliases=("transport", "transportType"),
        key="type",
        required=False,
    )
    enabled: bool = kinds.flag(
        "Whether to start the server. The variables of a server that is off need not be set.",
        default=True,
        example=True,
        also=(Field("disabled", kinds.flag, "The opposite of `enabled`, as many clients write it.", example=False),),
    )
    optional: bool = kinds.flag(
        "If a variable of this server is missing, only this server fails. By default nothing starts until every "
        "variable is set. `--keep-going` makes every server optional.",
        default=False,
        example=True,
    )
    prefix: str | None = kinds.text(
        "Prefix of the public names of this server's tools. By default the server's name; an empty string publishes"
        " the tools under their own names.",
        default=None,
        example="gh",
    )
    exposed_tools: tuple[ExposedTool, ...] | None = shaping.exposed_tools(
        "The only tools to show, by their own names or by globs like `get_*`. `{original, exposed}` shows a tool "
        "under another name.",
        default=None,
        example=["search", {"original": "get_file", "exposed": "read"}],
        aliases=("includeTools", "enabled_tools", "available_tools", "tools"),
    )
    hidden_tools: tuple[str, ...] = shaping.tool_names(
        "Tools to hide, by their own names or by globs like `delete_*`. Overrides `exposedTools`.",
        default=(),
        example=["delete_repository"],
        aliases=("excludeTools", "disabledTools", "disabled_tools"),
    )
    read_only: bool = kinds.flag(
        "Show only tools with `annotations.readOnlyHint: true`, which change nothing. A `shape` can set this "
        "annotation for a tool.",
        default=False,
        example=True,
    )
    shape: tuple[ToolShape, ...] = shaping.shapes(
        "Changes to tools, by their own names or by globs: name, title, description, annotations, arguments, "
        "result. A tool's own name overrides globs.",
        default=(),
        example={"search_code": {"name": "search", "arguments": {"org": {"hide": True, "value": "acme"}}}},
    )
    exposed_prompts: tuple[ExposedTool, ...] | None = shaping.exposed_prompts(
        "The only prompts to show, by their own names or by globs. `{original, exposed}` shows a prompt under "
        "another name.",
        default=None,
        example=["review", {"original": "summarize_file", "exposed": "summarize"}],
    )
    hidden_prompts: tuple[str, ...] = shaping.prompt_names(
        "Prompts to hide, by their own names or by globs. Overrides `exposedPrompts`.", default=(), example=["debug"]
    )
    exposed_resources: tuple[str, ...] | None = kinds.strings(
        "The only resources to show and to read, as patterns of their URIs: `*` is any text, `?` any character. "
        "Templates are shown if their own text matches.",
        default=None,
        example=["file:///docs/*"],
    )
    hidden_resources: tuple[str, ...] = kinds.strings(
        "Resources to hide, as patterns of their URIs. They cannot be read either, however the URI is spelled. "
        "Overrides `exposedResources`.",
        default=(),
        example=["file:///docs/private/*"],
    )
    era: Era = kinds.choice(*get_args(Era))(
        "Protocol generation to use with the server: `modern` (2026-07-28), `legacy` (with handshake), or `auto` to"
        " detect it. With `auto`, a server that supports both is used in the generation of each caller.",
        default="auto",
        example="legacy",
    )
    isolation: Isolation = kinds.choice(*get_args(Isolation))(
        "Who shares this server: `shared` is one process (or upstream session) for all, `principal` one for each "
        "user or token, `session` one for each client session. Default: `principal`, which without tokens is the "
        "same as `shared`.",
        default="principal",
        example="session",
    )
    middleware: tuple[MiddlewareSpec, ...] = middlewares.middlewares(
        "Middleware around requests to this server. It runs inside the middleware of the gateway.",
        default=(),
        example=[{"use": "timeout", "seconds": 20}],
    )
    start_timeout: float | None = kinds.seconds(
        'How long the server may take from start to ready: seconds, or text like "30s", "500ms", "2m". '
        "Default: 30 s; 120 s for npx, uvx, docker and other commands that may have to download it first.",
        default=None,
        example="30s",
        aliases=("startup_timeout_sec",),
        also=(
            Field(
                "startTimeoutMs",
                kinds.milliseconds,
                "`startTimeout` in milliseconds (Codex, LibreChat).",
                example=30000,
                aliases=("startup_timeout_ms", "initTimeout"),
            ),
        ),
    )
    call_timeout: float | None = kinds.seconds(
        "Timeout of one call; each progress message restarts it. By default the gateway's.",
        default=None,
        example="2m",
        aliases=("tool_timeout_sec",),
        also=(
            Field(
                "callTimeoutMs",
                kinds.milliseconds,
                "`callTimeout` in milliseconds (Claude Code).",
                example=120000,
                aliases=("request_timeout_ms",),
            ),
            Field(
                "timeout",
                kinds.timeout,
                "`callTimeout` as MCP clients write it: 1000 or more is milliseconds, less is seconds. Prefer "
                "`callTimeout`.",
                example=60,
            ),
        ),
    )
    call_max: float | None = kinds.seconds(
        "Longest total duration of one call, even with progress messages. By default the gateway's.",
        default=None,
        example="10m",
    )
    max_message_bytes: int | None = kinds.integer_from(1024)(
        "Largest message accepted from the server, in bytes. By default the gateway's.", default=None, example=16777216
    )
    start: Start = kinds.choice(*get_args(Start))(
        "When to start the server: with the gateway (`eager`), or when it is first needed (`lazy`). The lists of a "
        "lazy server are remembered between runs, so it is listed while it sleeps; it is started once to get them.",
        default="eager",
        example="lazy",
    )
    idle_stop: float | None = kinds.seconds(
        "Stop the server if it was not called for this long. It stays listed, and the next call starts it again. "
        "Default: never; 5 m with `start: lazy`.",
        default=None,
        example="10m",
    )
    max_concurrency: int = kinds.integer(
        "Most calls that run at the server at the same time; more are queued.", default=64, example=16
    )
    max_queue: int = kinds.integer_from(0)(
        "Most calls in the server's queue; more are refused at once, with a time after which to retry.",
        default=256,
        example=100,
    )
    probe_interval: float = kinds.seconds_or_zero(
        "Health check: if a child process sent nothing for this long, it is asked whether it still answers; 0: never.",
        default=30.0,
        example="1m",
    )
    restart_unresponsive: bool = kinds.flag(
        "Whether a child process that no longer answers is killed and restarted.", default=True, example=False
    )

    unusable: str = ""
    """Why it cannot be started, whatever is tried; empty: it can."""
    secrets: frozenset[str] = frozenset()
    """Texts never to be shown: what variables expanded to, and env and header values under secret-looking keys."""
    written: Written = field(default=Written(), compare=False)
    """Where it was configured."""
    extra: Mapping[str, object] = field(default_factory=dict[str, object], compare=False)
    """Keys that only a client acts on (`alwaysAllow`, `trust`, …) and unknown ones, as they were written."""

    @property
    def user_values(self) -> tuple[str, ...]:
        """What each user has to give for it (`${user:NAME}`), by name."""
        return names_in([*self.env.values(), *self.headers.values()])

    @property
    def where(self) -> str:
        """Where it was configured, as a dotted path: `mcpServers.github`."""
        return self.written.where

    @property
    def line(self) -> int | None:
        """Line in the file, where known."""
        return self.written.line

    def __repr__(self) -> str:
        """Name and kind only: arguments, URL, env and headers may hold secrets, and reprs end up in logs."""
        return f"ServerConfig(name={self.name!r}, transport={self.transport!r}, enabled={self.enabled!r})"


@settings
class GatewaySettings:
    """How muxway itself behaves."""

    name: str = kinds.name("Server name that clients see.", default="muxway", example="my-tools")
    version: str | None = kinds.name(
        "Server version that clients see. By default muxway's own.", default=None, example="1.0.0"
    )
    separator: Separator = kinds.choice(*get_args(Separator))(
        "Separator between the prefix of a server and the tool's own name. Only `__` is valid in the APIs of "
        "Anthropic and OpenAI; calls are accepted in all three spellings.",
        default="__",
        example="__",
    )
    page_size: int | None = kinds.integer(
        "Items per page of a list. By default everything is on one page.", default=None, example=100
    )
    call_timeout: float = kinds.seconds(
        'Timeout of one call: seconds, or text like "30s", "500ms", "2m". Each progress message restarts it.',
        default=60.0,
        example="60s",
    )
    call_max: float = kinds.seconds(
        "Longest total duration of one call, even with progress messages.", default=600.0, example="10m"
    )
    max_name_length: int | None = kinds.integer_from(16)(
        "Public names longer than this are shortened with a stable hash. Default: 50, or 128 with another separator "
        "than `__`.",
        default=None,
        example=64,
    )
    max_message_bytes: int = kinds.integer_from(1024)(
        "Largest message accepted from a client or server, in bytes.", default=16 * 1024 * 1024, example=16777216
    )
    list_wait: float | None = kinds.seconds_or_zero(
        "How long after the start of muxway a listing waits, at most, for servers that are still starting and were "
        "never seen before; 0 answers at once. Servers that ran before are listed at once, from memory. Default: "
        "while there is nothing to list, up to 45 s; then 2 s for each server that may follow, and up to 10 s "
        "since the start for `npx`, `uvx` and the like while they are at work. Tools that come later are announced.",
        default=None,
        example="10s",
    )
    lock: LockMode = kinds.choice(*get_args(LockMode))(
        "What to do about tools and prompts that differ from `muxway.lock`: `warn` reports them, `enforce` hides "
        "new ones and refuses calls to changed ones until you accept them.",
        default="off",
        example="enforce",
    )
    lock_file: str | None = kinds.path(
        "The lock file. A relative path starts at the config file's folder. By default `muxway.lock` in that folder.",
        default=None,
        example="muxway.lock",
    )
    client_profiles: bool = kinds.flag(
        "Whether to adapt tools to the known limits of some clients (Claude Code, Cursor, VS Code, …): names, "
        "`$ref`, unions at the top of a schema, long descriptions. Other clients get everything unchanged.",
        default=True,
        example=False,
    )
    list_timeout: float = kinds.seconds("Timeout of one page of a server's list.", default=15.0, example="15s")
    max_tools: int = kinds.integer(
        "Most tools of one server, and most prompts, resources and resource templates; more are left out with a "
        "warning.",
        default=10000,
        example=10000,
    )
    host: str = kinds.name(
        "Address that `muxway serve` listens on. `--host` and `HOST` override it. An address that others can reach "
        "needs a token.",
        default="127.0.0.1",
        example="127.0.0.1",
    )
    port: int = kinds.integer_from(0, 65535)(
        "Port that `muxway serve` listens on; 0 for any free port. `--port` and `PORT` override it.",
        default=3006,
        example=3006,
    )
    allowed_hosts: tuple[str, ...] = kinds.hosts(
        "Additional host names by which clients may reach `muxway serve`; `*` for any. `--allow-host` and "
        "`MUXWAY_ALLOW_HOST` override it.",
        default=(),
        example=["mcp.example.com"],
        aliases=("allowHost", "allowHosts"),
    )
    allowed_origins: tuple[str, ...] = kinds.origins(
        "Web origins whose pages may use `muxway serve` (CORS); `*` for any, if there is a token. `--allow-origin` "
        "and `MUXWAY_ALLOW_ORIGIN` override it.",
        default=(),
        example=["https://app.example.com"],
        aliases=("allowOrigin", "allowOrigins"),
    )
    token: str | None = kinds.name(
        "Bearer token that clients of `muxway serve` must send. `--token` and `MUXWAY_TOKEN` override it. Use a "
        "variable instead of the token itself: config files get copied.",
        default=None,
        repr=False,
        example="${MCP_GATEWAY_TOKEN}",
    )
    auth: AuthSettings | None = auth_object(
        "Accept access tokens of this issuer (OAuth 2.1), for `muxway serve`. Clients discover where to log in.",
        default=None,
        example={"issuer": "https://login.example.com", "scopes": ["mcp:tools"]},
    )
    tls: ListenerTls | None = tls.listener_tls(
        "Certificate with which `muxway serve` serves HTTPS. It is reloaded when its files change. `--tls-cert` and"
        " `--tls-key` override it.",
        default=None,
        example={"cert": "certs/mcp.pem", "key": "certs/mcp.key"},
    )
    keys: str | None = kinds.path(
        "File with the digests of API keys, which `muxway key` writes. By default each config has its own file in "
        "the user's data folder.",
        default=None,
        example="keys.json",
    )
    public_url: str | None = base_url(
        "URL by which clients reach `muxway serve`, without `/mcp`, if it differs from the address it listens on: "
        "for example behind a proxy. With `auth`, it determines the audience of tokens.",
        default=None,
        example="https://mcp.example.com",
    )
    registry: str | None = base_url(
        "Address of the MCP registry for `muxway add` and `muxway registry`. By default the official one; "
        "`MUXWAY_REGISTRY` and `--registry` override it.",
        default=None,
        example="https://registry.example.com",
    )
    middleware: tuple[MiddlewareSpec, ...] = middlewares.middlewares(
        "Middleware around every request, the outermost first: the name of a built-in or plug-in, or "
        "`module:Class`, with its options; `match` limits it to tools, prompts or URIs by glob.",
        default=(),
        example=["log", {"use": "limit", "match": ["github__*"], "rate": "10/s"}],
    )
    discovery: DiscoveryMode = kinds.choice(*get_args(DiscoveryMode))(
        "What clients without a view see: all tools (`full`), or only `search_tools` and `call_tool`, to find and "
        "call them (`search`). Views have their own setting.",
        default="full",
        example="search",
    )
    pinned: tuple[str, ...] = _pinned()
    tiers: bool = _tiers()
    semantic: bool = kinds.flag(
        "Let `search_tools` also find tools by meaning, with a small model that runs inside muxway. Needs the "
        "extra: `pip install 'muxway[semantic]'`.",
        default=False,
        example=True,
    )
    access: tuple[AccessRule, ...] = access.access_rules(
        "Access rules, in order: the first that matches decides; if none matches, the request is allowed. Can also "
        "be at the top level.",
        default=(),
        example=[{"groups": ["eng"], "do": "allow"}, {"tools": ["*__delete_*"], "do": "ask"}],
    )
    approval_timeout: float = kinds.seconds(
        "How long a call waits for approval if a rule says `ask`; then it is denied.",
        default=300.0,
        example="5m",
    )
    state_key: str | None = kinds.name(
        "Secret text that encrypts the state that stateless clients keep for muxway between two requests of a call."
        " With the same key, calls can continue after a restart or at another muxway, if the server allows it. "
        "Default: a random key for each run.",
        default=None,
        repr=False,
        example="${MUXWAY_STATE_KEY}",
    )
    max_instances: int = kinds.integer(
        "Most processes or upstream sessions of one server in addition to its first, if `isolation` or the era of "
        "the caller requires more than one.",
        default=100,
        example=100,
    )
    instance_idle: float = kinds.seconds(
        "How long such an additional process or session is kept while idle.", default=300.0, example="5m"
    )
    queue_wait: float = kinds.seconds(
        "How long a call may wait in the queue of a server that already runs `maxConcurrency` calls.",
        default=10.0,
        example="10s",
    )
    max_calls: int = kinds.integer(
        "Most calls that run in the whole gateway at the same time; more are refused at once, with a time after "
        "which to retry.",
        default=1024,
        example=1024,
    )
    max_calls_per_client: int = kinds.integer(
        "Most calls of one client that run at the same time; more are refused at once.", default=128, example=32
    )
    max_processes: int = kinds.integer(
        "Most child processes at the same time. If one more is needed, the one that was idle longest is stopped; if"
        " all are in use, the start waits for up to `queueWait`.",
        default=256,
        example=64,
    )
    max_memory: int | None = kinds.integer_from(33554432)(
        "Memory that muxway itself may use, in bytes: above 80 % of it new sessions are refused, above 90 % new "
        "calls. Default: the limit of the container, if there is one.",
        default=None,
        example=536870912,
    )


@settings
class SubTool:
    """One tool that a compound tool may run."""

    name: str = kinds.name("The tool's own name at its server.", example="search_code")
    description: str = kinds.name("Description for the model.", default="", example="Search in all repositories")


@settings
class Step:
    """One call that a composed tool makes, or one for each of many items."""

    name: str = kinds.name(
        "Name of the step in references: letters, digits, `_` and `-`. Not needed in an object of steps.",
        example="find",
    )
    tool: str = kinds.name(
        "The tool to call, as a client may write it: `server__tool`, `server:tool`, `server.tool`. It may be one "
        "that clients do not see.",
        example="notes__search",
    )
    arguments: Mapping[str, Template] = kinds.template(
        "Its arguments. `${input.x}`, `${steps.NAME.result.x}`, `${item}` and `${index}` are replaced.",
        default_factory=dict[str, "Template"],
        example={"query": "${input.word}"},
    )
    when: Condition | None = kinds.condition(
        "Skip the step unless this is true: references, literals, `==`, `!=`, `<`, `>`, `<=`, `>=`, `not`, `and`, "
        "`or`. If it contains `${item}`, it is evaluated for each item.",
        default=None,
        example="${steps.find.ok} and ${input.limit} > 0",
    )
    for_each: Template = kinds.template(
        "Make the call for each item of this array; the result is an array too.",
        default=None,
        example="${steps.find.result.notes}",
    )
    max_items: int = kinds.integer(
        "Most items `forEach` may have, up to 1000; with more, the step fails.", default=50, example=100
    )
    on_error: OnError = kinds.choice(*get_args(OnError))(
        "What happens if it fails: `fail` ends the whole call, `skip` also skips the steps that use its result, "
        "`continue` goes on without a result. For items of `forEach`, `skip` omits the failed ones and `continue` "
        "puts null in their place.",
        default="fail",
        example="continue",
    )
    timeout: float | None = kinds.seconds(
        "Timeout of each call of the step. By default that of its server.", default=None, example="5s"
    )
    after: tuple[str, ...] = kinds.strings(
        "Steps to wait for, in addition to those it refers to.", default=(), example=["save"]
    )


@settings
class Example:
    """A case to test a composed tool by."""

    name: str = kinds.name("Name of the test case.", example="nothing there")
    input: Mapping[str, Any] = kinds.mapping(
        "The arguments of the tool.", default_factory=dict[str, Any], example={"word": "x"}
    )
    expect: Any = kinds.json(
        "What the output must contain: objects may have additional members, everything else must be equal.",
        default=None,
        example={"found": []},
    )
    fails: str | None = kinds.name(
        "The call must fail, with this text in its message.", default=None, example="no such note"
    )
    recorded: Mapping[str, Any] = kinds.mapping(
        "Answers of the tools: name as in the step → one answer for every call, or an array with one per call. An "
        "answer is a whole tool result, or text, or only the structured content.",
        default_factory=dict[str, Any],
        example={"notes__search": {"notes": []}},
    )


@settings
class CustomTool:
    """A tool of the gateway itself: a compound one runs any of the chosen tools of several servers (`subtools`),
    a composed one makes several calls and one result of them (`steps`).
    """

    name: str
    """Its public name, without prefix."""
    description: str = kinds.name(
        "Description of the tool for the model. For a compound tool, the list of its subtools is added.",
        example="Search code and issues",
    )
    subtools: Mapping[str, tuple[SubTool, ...]] = kinds.subtools(
        "Tools that a compound tool may run: server name → `{tools: [{name, description}]}`.",
        default_factory=dict[str, tuple[SubTool, ...]],
        example={"github": {"tools": [{"name": "search_code", "description": "Search in all repositories"}]}},
    )
    input_schema: Mapping[str, Any] | None = kinds.mapping(
        "JSON Schema of a composed tool's arguments. Its `default`s are filled in; types, `enum` and `required` are "
        "checked.",
        default=None,
        example={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    )
    steps: tuple[Step, ...] = kinds.steps(
        "The calls of a composed tool, as an array or as an object: name → step. Steps that do not refer to each "
        "other run at the same time.",
        default=(),
        example=[{"name": "find", "tool": "notes__search", "arguments": {"query": "${input.word}"}}],
    )
    output: Template = kinds.template(
        "Result of a composed tool: any value with references in it. By default the result of the last step.",
        default=None,
        example={"found": "${steps.find.result.notes}", "word": "${input.word}"},
    )
    deadline: float = kinds.seconds(
        "How long all steps together may take; not more than `callMax` of the gateway.", default=60.0, example="30s"
    )
    max_result_bytes: int = kinds.integer_from(1024)(
        "Most bytes of results that one call of a composed tool may collect, and most that it may send or return.",
        default=16 * 1024 * 1024,
        example=16777216,
    )
    dry_run: bool = kinds.flag(
        "Whether callers of a composed tool may pass `dryRun: true` to see what would be called.",
        default=False,
        example=True,
    )
    examples: tuple[Example, ...] = kinds.examples(
        "Test cases of a composed tool, run by `muxway test`.",
        default=(),
        example=[{"name": "one note", "input": {"word": "milk"}, "expect": {"word": "milk"}}],
    )


@settings
class ViewConfig:
    """What some clients see of the gateway: at `/mcp/NAME`, with `--view NAME`, or by their token."""

    name: str
    """The last part of its URL."""
    servers: tuple[str, ...] | None = kinds.strings(
        "Only these servers. By default all.", default=None, example=["github"]
    )
    tools: tuple[str, ...] | None = kinds.strings(
        "Globs of the only tools to show, by their public names. Compound and composed tools are shown if this "
        "names them, or if there is neither `tools` nor `servers`.",
        default=None,
        example=["github__get_*", "github__list_*"],
    )
    hidden_tools: tuple[str, ...] = kinds.strings(
        "Globs of tools to hide, by their public names. Overrides `tools`.", default=(), example=["*__delete_*"]
    )
    prompts: tuple[str, ...] | None = kinds.strings(
        "Globs of the only prompts to show, by their public names. By default all.", default=None, example=["github__*"]
    )
    resources: tuple[str, ...] | None = kinds.strings(
        "The only resources to show and to read, as globs of URIs as their servers write them. By default all.",
        default=None,
        example=["file:///docs/*"],
    )
    read_only: bool = kinds.flag(
        "Show only tools with `annotations.readOnlyHint: true`, which change nothing.",
        default=False,
        example=True,
    )
    pin: bool = kinds.flag(
        "A session keeps its first list of tools, byte for byte, and gets no `list_changed`: for models whose "
        "prompt cache begins with the tools. New tools can be called, removed ones cannot. Not for clients of "
        "2026-07-28, which have no session.",
        default=False,
        example=True,
    )
    shape: tuple[ToolShape, ...] = shaping.shapes(
        "Changes to tools, by their public names or by globs, applied after the `shape` of their servers.",
        default=(),
        example={"github__search_code": {"description": "Search the code of our repositories"}},
    )
    discovery: DiscoveryMode = kinds.choice(*get_args(DiscoveryMode))(
        "What is listed: all tools of the view (`full`), or only `search_tools` and `call_tool`, to find and call "
        "them (`search`).",
        default="full",
        example="search",
    )
    pinned: tuple[str, ...] = _pinned()
    tiers: bool = _tiers()
    middleware: tuple[MiddlewareSpec, ...] = middlewares.middlewares(
        "Middleware around requests to this view. It runs inside the middleware of the gateway.",
        default=(),
        example=[{"use": "limit", "rate": "10/s"}],
    )
    tokens: tuple[str, ...] = kinds.strings(
        "Bearer tokens that give access to this view only, at `/mcp` too. Use variables instead of the tokens "
        "themselves: config files get copied.",
        default=(),
        repr=False,
        example=["${AGENT_TOKEN}"],
    )

    audience: tuple[str, ...] = kinds.strings(
        "Audiences for which access tokens are accepted at this view, in addition to its own URL, instead of those "
        "in `gateway.auth`.",
        default=(),
        example=["api://muxway-agent"],
    )
    scopes: tuple[str, ...] = scope_names(
        "Scopes that access tokens need at this view, in addition to those in `gateway.auth`.",
        default=(),
        example=["mcp:admin"],
    )

    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """Texts never to be shown: what variables expanded to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One whole configuration, validated."""

    servers: Mapping[str, ServerConfig]
    """The servers by name, in the order of the file."""
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
    files: tuple[str, ...] = field(default=(), compare=False)
    """Where the values of `${secret:…}`, `${input:…}` and `${file:…}` are kept: if one changes, it is read again."""
    objects: Mapping[str, object] = field(default_factory=dict[str, object], compare=False, repr=False)
    """Servers that are Python objects in this process, by name; only a chain written in Python has them."""
    middleware: tuple[object, ...] = field(default=(), compare=False, repr=False)
    """Middlewares that are Python objects, the outermost first; they stand outside those of `gateway`."""


ADJUSTABLE: Final = frozenset(
    {
        "prefix", "exposed_tools", "hidden_tools", "read_only", "shape", "exposed_prompts", "hidden_prompts",
        "exposed_resources", "hidden_resources", "middleware", "start_timeout", "call_timeout", "call_max",
        "max_message_bytes", "start", "idle_stop", "max_concurrency", "max_queue", "probe_interval",
        "restart_unresponsive", "secrets",
    }
)  # fmt: skip
"""Of a `ServerConfig`, what the gateway does with the server, whichever process that is."""

SERVER = Section("mcpServers.*", ServerConfig)
GATEWAY = Section("gateway", GatewaySettings)
CUSTOM_TOOL = Section("tools.*", CustomTool)
SUBTOOL = Section("tools.*.subtools.*.tools.*", SubTool)
STEP = Section("tools.*.steps.*", Step)
EXAMPLE = Section("tools.*.examples.*", Example)
VIEW = Section("views.*", ViewConfig)
SECTIONS = (
    *(
        SERVER,
        programs.COMMAND,
        programs.ARGUMENT,
        oauth.OAUTH,
        oauth.IDP,
        tls.SERVER_TLS,
        GATEWAY,
        tls.LISTENER_TLS,
        access.RULE,
        AUTH,
        CLAIMS,
        INTROSPECTION,
        SIGN_ON,
        OWN_SERVER,
    ),
    *(CUSTOM_TOOL, SUBTOOL, STEP, EXAMPLE, shaping.SHAPE, shaping.ARGUMENT, VIEW),
)
