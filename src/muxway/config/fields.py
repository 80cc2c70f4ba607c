"""Every key a configuration may have: the one table behind validation, the JSON Schema and `muxway config explain`.

A row is one *meaning*; spellings of the same meaning are its aliases, and every key of ours may also be written in
snake_case. A spelling that means something else (another unit, a negation, names instead of values) has its own row.
How a `Kind` is read is in `values.py`, how it looks as JSON Schema in `schema.py`; defaults come from `model.py`.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal

from muxway.config.model import (
    ArgumentShape,
    CustomTool,
    Example,
    GatewaySettings,
    ServerConfig,
    Step,
    SubTool,
    ToolShape,
    ViewConfig,
)

Kind = Literal[
    "text", "name", "path", "flag", "integer", "seconds", "milliseconds", "timeout", "choice", "transport", "command",
    "url", "hosts", "origins", "strings", "tool_names", "exposed", "variables", "variable_names", "variable_name",
    "headers", "header_variables", "inherit", "subtools", "middleware", "object", "json",
    "template", "condition", "steps", "examples",
    "shapes", "argument_shapes", "value", "values", "pattern", "expression",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One key: how it may be spelled, what it holds, what it is for."""

    key: str
    """The spelling we recommend."""
    kind: Kind
    """What it holds and how that is read."""
    doc: str
    """What it does, for the person writing the file. The first sentence stands alone in overviews."""
    example: object
    """A value that works."""
    attribute: str | None = None
    """The attribute of the model it fills, if its value goes there as it is read."""
    aliases: tuple[str, ...] = ()
    """Other spellings of the same meaning, mostly those of MCP clients."""
    choices: tuple[str, ...] = ()
    """The allowed values of a `choice`."""
    minimum: int = 1
    """Least value of an `integer`."""
    maximum: int | None = None
    """Greatest value of an `integer`."""
    required: bool = False

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every way to write the key, the recommended one first."""
        return tuple(dict.fromkeys((self.key, snake_case(self.key), *self.aliases)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One kind of object in the file."""

    name: str
    """Where it stands, `*` for a name the user chooses."""
    doc: str
    model: type
    fields: tuple[Field, ...]
    by_spelling: dict[str, Field] = field(init=False, repr=False, compare=False)
    """Every spelling → its row."""

    def __post_init__(self) -> None:
        spellings = {spelling: row for row in self.fields for spelling in row.spellings}
        object.__setattr__(self, "by_spelling", spellings)

    def default(self, row: Field) -> Any:
        """What applies if the key is left out; None also if there is no such thing."""
        for attribute in fields(self.model):
            if attribute.name == row.attribute and attribute.default is not MISSING:
                # Written as an object, kept in order.
                return {} if row.kind == "shapes" else attribute.default
        return None


def snake_case(key: str) -> str:
    """`callTimeout` → `call_timeout`."""
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", key).lower()


SERVER = Section(
    name="mcpServers.*",
    doc="One MCP server behind the gateway: a program to start (`command`) or an address to connect to (`url`).",
    model=ServerConfig,
    fields=(
        Field(
            key="command",
            kind="command",
            aliases=("cmd",),
            doc="Program to start and talk to over its stdin and stdout. It is looked up on PATH and never passed "
            "through a shell. An array holds the program and its arguments; a leading `~` is your home folder, "
            "a leading `./` is `cwd`, or the config file's folder.",
            example="npx",
        ),
        Field(
            key="args",
            kind="strings",
            doc="Arguments of the program, one per item. Numbers are turned into text.",
            example=["-y", "@modelcontextprotocol/server-filesystem", "/data"],
        ),
        Field(
            key="env",
            kind="variables",
            aliases=("envs", "environment"),
            doc="Environment variables for the program. Numbers and booleans are turned into text; null leaves the "
            "variable out. Wins over `envFile` and `envVars`.",
            example={"GITHUB_TOKEN": "${GITHUB_TOKEN}"},
        ),
        Field(
            key="envVars",
            kind="variable_names",
            aliases=("env_keys",),
            doc="Names of variables to pass on from muxway's own environment. Each must be set.",
            example=["GITHUB_TOKEN"],
        ),
        Field(
            key="envFile",
            kind="path",
            doc="File of `KEY=value` lines with more variables. A relative path starts at the config file's folder.",
            example=".env",
        ),
        Field(
            key="inheritEnv",
            kind="inherit",
            attribute="inherit_env",
            doc="What the program gets of muxway's own environment. By default only what programs need to run "
            "(PATH, HOME, LANG, …); true passes everything but variables that make programs load code, an array "
            "passes these names if they are set.",
            example=["HTTPS_PROXY"],
        ),
        Field(
            key="cwd",
            kind="path",
            attribute="cwd",
            doc="Working folder of the program. A relative path starts at the config file's folder; "
            "by default it is muxway's own working folder.",
            example="~/projects",
        ),
        Field(
            key="url",
            kind="url",
            aliases=("endpoint", "uri"),
            doc="Address of a remote server. Without `type`, Streamable HTTP is tried first, then HTTP+SSE.",
            example="https://example.com/mcp",
        ),
        Field(
            key="httpUrl",
            kind="url",
            aliases=("serverUrl",),
            doc="Address of a Streamable HTTP server (Gemini CLI, Windsurf). Same as `url` with `type: http`.",
            example="https://example.com/mcp",
        ),
        Field(
            key="headers",
            kind="headers",
            aliases=("http_headers",),
            doc="HTTP headers for every request to the server, as an object or as `[{name, value}]`.",
            example={"Authorization": "Bearer ${API_TOKEN}"},
        ),
        Field(
            key="envHttpHeaders",
            kind="header_variables",
            doc="HTTP headers whose values are variables, given by name (Codex).",
            example={"X-Api-Key": "API_KEY"},
        ),
        Field(
            key="bearerTokenEnvVar",
            kind="variable_name",
            doc="Name of the variable whose value is sent as `Authorization: Bearer …` (Codex).",
            example="API_TOKEN",
        ),
        Field(
            key="type",
            kind="transport",
            aliases=("transport", "transportType"),
            doc="How to talk to the server: `stdio`, `http` (Streamable HTTP) or `sse` (the older HTTP+SSE). "
            "Left out, it follows from `command` or `url`. As an object it holds the connection itself (Cline).",
            example="http",
        ),
        Field(
            key="enabled",
            kind="flag",
            attribute="enabled",
            doc="Whether to start the server. One that is off needs none of its variables.",
            example=True,
        ),
        Field(
            key="disabled",
            kind="flag",
            doc="The opposite of `enabled`, as many clients write it.",
            example=False,
        ),
        Field(
            key="optional",
            kind="flag",
            attribute="optional",
            doc="Whether a missing variable of this server makes only this one fail. By default nothing starts until "
            "every variable is set. `--keep-going` makes every server optional.",
            example=True,
        ),
        Field(
            key="prefix",
            kind="text",
            attribute="prefix",
            doc="What the server's tools start with in public. By default the server's name; "
            "an empty string publishes them under their own names.",
            example="gh",
        ),
        Field(
            key="exposedTools",
            kind="exposed",
            attribute="exposed_tools",
            aliases=("includeTools", "enabled_tools", "available_tools", "tools"),
            doc="The only tools to show, by their own names or by globs like `get_*`. "
            "`{original, exposed}` shows a tool under another name.",
            example=["search", {"original": "get_file", "exposed": "read"}],
        ),
        Field(
            key="hiddenTools",
            kind="tool_names",
            attribute="hidden_tools",
            aliases=("excludeTools", "disabledTools", "disabled_tools"),
            doc="Tools to hide, by their own names or by globs like `delete_*`. Wins over `exposedTools`.",
            example=["delete_repository"],
        ),
        Field(
            key="readOnly",
            kind="flag",
            attribute="read_only",
            doc="Show only tools that say that they change nothing (`annotations.readOnlyHint: true`). "
            "A shape may say it for a tool that does not.",
            example=True,
        ),
        Field(
            key="shape",
            kind="shapes",
            attribute="shape",
            doc="What to make of tools, by their own names or by globs: name, title, description, annotations, "
            "arguments, result. What a glob says comes first, what the name itself says wins.",
            example={"search_code": {"name": "search", "arguments": {"org": {"hide": True, "value": "acme"}}}},
        ),
        Field(
            key="exposedPrompts",
            kind="exposed",
            attribute="exposed_prompts",
            doc="The only prompts to show, by their own names or by globs. "
            "`{original, exposed}` shows a prompt under another name.",
            example=["review", {"original": "summarize_file", "exposed": "summarize"}],
        ),
        Field(
            key="hiddenPrompts",
            kind="tool_names",
            attribute="hidden_prompts",
            doc="Prompts to hide, by their own names or by globs. Wins over `exposedPrompts`.",
            example=["debug"],
        ),
        Field(
            key="exposedResources",
            kind="strings",
            attribute="exposed_resources",
            doc="The only resources to show and to read, as patterns of their URIs: `*` is any text, `?` any "
            "character. Templates are shown if their own text matches.",
            example=["file:///docs/*"],
        ),
        Field(
            key="hiddenResources",
            kind="strings",
            attribute="hidden_resources",
            doc="Resources to hide, as patterns of their URIs. They cannot be read either, however the URI is spelled. "
            "Wins over `exposedResources`.",
            example=["file:///docs/private/*"],
        ),
        Field(
            key="era",
            kind="choice",
            choices=("auto", "modern", "legacy"),
            attribute="era",
            doc="Protocol generation to speak: `modern` (2026-07-28), `legacy` (with handshake), `auto` finds out; "
            "a server that speaks both is then used in its caller's.",
            example="legacy",
        ),
        Field(
            key="isolation",
            kind="choice",
            choices=("shared", "principal", "session"),
            attribute="isolation",
            doc="Who shares this server: `shared` is one process (or upstream session) for all, `principal` one for "
            "each token clients come with, `session` one for each client session. Default: `principal`, which "
            "without tokens is the same as `shared`.",
            example="session",
        ),
        Field(
            key="middleware",
            kind="middleware",
            attribute="middleware",
            doc="What is done around requests to this server, inside what the gateway does around all.",
            example=[{"use": "timeout", "seconds": 20}],
        ),
        Field(
            key="startTimeout",
            kind="seconds",
            attribute="start_timeout",
            aliases=("startup_timeout_sec",),
            doc='How long the server may take from start to ready: seconds, or text like "30s", "500ms", "2m". '
            "Default: 30 s; 120 s for npx, uvx, docker and other commands that may have to download it first.",
            example="30s",
        ),
        Field(
            key="startTimeoutMs",
            kind="milliseconds",
            aliases=("startup_timeout_ms", "initTimeout"),
            doc="`startTimeout` in milliseconds (Codex, LibreChat).",
            example=30000,
        ),
        Field(
            key="callTimeout",
            kind="seconds",
            attribute="call_timeout",
            aliases=("tool_timeout_sec",),
            doc="Longest silence of one call; each progress notice restarts it. By default the gateway's.",
            example="2m",
        ),
        Field(
            key="callTimeoutMs",
            kind="milliseconds",
            aliases=("request_timeout_ms",),
            doc="`callTimeout` in milliseconds (Claude Code).",
            example=120000,
        ),
        Field(
            key="timeout",
            kind="timeout",
            doc="`callTimeout` as MCP clients write it: 1000 or more is milliseconds, less is seconds. "
            "Better write `callTimeout`.",
            example=60,
        ),
        Field(
            key="callMax",
            kind="seconds",
            attribute="call_max",
            doc="Longest duration of one call, progress or not. By default the gateway's.",
            example="10m",
        ),
        Field(
            key="maxMessageBytes",
            kind="integer",
            attribute="max_message_bytes",
            minimum=1024,
            doc="Largest message accepted from the server, in bytes. By default the gateway's.",
            example=16777216,
        ),
        Field(
            key="start",
            kind="choice",
            choices=("eager", "lazy"),
            attribute="start",
            doc="When to start the server: with the gateway, or (`lazy`) when somebody first needs it. What a lazy "
            "server has is remembered between runs, so it is listed while it sleeps; it is started once to learn that.",
            example="lazy",
        ),
        Field(
            key="idleStop",
            kind="seconds",
            attribute="idle_stop",
            doc="Put the server to sleep when nobody has called it for this long. It stays listed, and the next call "
            "wakes it. Default: never; 5 m with `start: lazy`.",
            example="10m",
        ),
        Field(
            key="maxConcurrency",
            kind="integer",
            attribute="max_concurrency",
            doc="Most calls under way at the server; more wait for their turn.",
            example=16,
        ),
        Field(
            key="maxQueue",
            kind="integer",
            attribute="max_queue",
            minimum=0,
            doc="Most calls that wait for their turn at the server; more are refused at once, with how long to wait.",
            example=100,
        ),
        Field(
            key="probeInterval",
            kind="seconds",
            attribute="probe_interval",
            minimum=0,
            doc="After this long without a word from a child process it is asked whether it still answers; 0: never.",
            example="1m",
        ),
        Field(
            key="restartUnresponsive",
            kind="flag",
            attribute="restart_unresponsive",
            doc="Whether a child process that answers nothing any more is ended and started again.",
            example=False,
        ),
    ),
)

GATEWAY = Section(
    name="gateway",
    doc="How muxway itself behaves.",
    model=GatewaySettings,
    fields=(
        Field(
            key="name",
            kind="name",
            attribute="name",
            doc="Name told to clients.",
            example="my-tools",
        ),
        Field(
            key="version",
            kind="name",
            attribute="version",
            doc="Version told to clients. By default muxway's own.",
            example="1.0.0",
        ),
        Field(
            key="separator",
            kind="choice",
            choices=("__", ":", "."),
            attribute="separator",
            doc="What stands between a server's prefix and the tool's own name. Only `__` passes the APIs of "
            "Anthropic and OpenAI; calls are understood in all three spellings.",
            example="__",
        ),
        Field(
            key="pageSize",
            kind="integer",
            attribute="page_size",
            doc="Items per page of a listing. By default everything comes at once.",
            example=100,
        ),
        Field(
            key="callTimeout",
            kind="seconds",
            attribute="call_timeout",
            doc='Longest silence of one call: seconds, or text like "30s", "500ms", "2m". '
            "Each progress notice restarts it.",
            example="60s",
        ),
        Field(
            key="callMax",
            kind="seconds",
            attribute="call_max",
            doc="Longest duration of one call, progress or not.",
            example="10m",
        ),
        Field(
            key="maxNameLength",
            kind="integer",
            attribute="max_name_length",
            minimum=16,
            doc="Public names longer than this are shortened with a stable hash. Default: 50, or 128 with another "
            "separator than `__`.",
            example=64,
        ),
        Field(
            key="maxMessageBytes",
            kind="integer",
            attribute="max_message_bytes",
            minimum=1024,
            doc="Largest message accepted from any side, in bytes.",
            example=16777216,
        ),
        Field(
            key="listWait",
            kind="seconds",
            attribute="list_wait",
            minimum=0,
            doc="How long after the start of muxway a listing waits, at most, for servers that are still starting and "
            "were never seen before; 0 answers at once. Servers that ran before are listed at once, from memory. "
            "Default: while there is nothing to list, up to 45 s; then 2 s for each server that may follow, and 10 s "
            "since the start for `npx`, `uvx` and the like. Tools that come later are announced.",
            example="10s",
        ),
        Field(
            key="listTimeout",
            kind="seconds",
            attribute="list_timeout",
            doc="How long a server may take for one page of a listing.",
            example="15s",
        ),
        Field(
            key="maxTools",
            kind="integer",
            attribute="max_tools",
            doc="Most tools taken from one server, and most prompts, resources and resource templates; more are left "
            "out with a warning.",
            example=10000,
        ),
        Field(
            key="host",
            kind="name",
            attribute="host",
            doc="Address that `muxway serve` binds. `--host` and `HOST` win over it. One that others can reach needs a "
            "token.",
            example="127.0.0.1",
        ),
        Field(
            key="port",
            kind="integer",
            minimum=0,
            maximum=65535,
            attribute="port",
            doc="Port that `muxway serve` binds; 0 for any free one. `--port` and `PORT` win over it.",
            example=3006,
        ),
        Field(
            key="allowedHosts",
            kind="hosts",
            aliases=("allowHost", "allowHosts"),
            attribute="allowed_hosts",
            doc="Further names by which clients may reach `muxway serve`; `*` for any. `--allow-host` and "
            "`MUXWAY_ALLOW_HOST` win over it.",
            example=["mcp.example.com"],
        ),
        Field(
            key="allowedOrigins",
            kind="origins",
            aliases=("allowOrigin", "allowOrigins"),
            attribute="allowed_origins",
            doc="Web origins whose pages may use `muxway serve` (CORS); `*` for any, if there is a token. "
            "`--allow-origin` and `MUXWAY_ALLOW_ORIGIN` win over it.",
            example=["https://app.example.com"],
        ),
        Field(
            key="token",
            kind="name",
            attribute="token",
            doc="Bearer token that clients of `muxway serve` must send. `--token` and `MUXWAY_TOKEN` win over it. "
            "Better a variable than the token itself: files get copied.",
            example="${MCP_GATEWAY_TOKEN}",
        ),
        Field(
            key="middleware",
            kind="middleware",
            attribute="middleware",
            doc="What is done around every request, the outermost first: the name of a built-in one or of a plug-in, "
            "or `module:Class`, with its options; `match` limits it to tools, prompts or URIs by glob.",
            example=["log", {"use": "limit", "match": ["github__*"], "rate": "10/s"}],
        ),
        Field(
            key="stateKey",
            kind="name",
            attribute="state_key",
            doc="Secret text that seals what stateless clients keep for muxway between two rounds of a call. With the "
            "same key, calls go on after a restart or at another muxway, where the server allows it. "
            "Default: a random one for each run.",
            example="${MUXWAY_STATE_KEY}",
        ),
        Field(
            key="maxInstances",
            kind="integer",
            attribute="max_instances",
            doc="Most processes or upstream sessions of one server beside its first, where `isolation` or the era of "
            "the caller ask for more than one.",
            example=100,
        ),
        Field(
            key="instanceIdle",
            kind="seconds",
            attribute="instance_idle",
            doc="How long one of these is kept when nobody uses it.",
            example="5m",
        ),
        Field(
            key="queueWait",
            kind="seconds",
            attribute="queue_wait",
            doc="How long a call may wait for its turn at a server that has `maxConcurrency` calls under way.",
            example="10s",
        ),
        Field(
            key="maxCalls",
            kind="integer",
            attribute="max_calls",
            doc="Most calls under way in the whole gateway; more are refused at once, with how long to wait.",
            example=1024,
        ),
        Field(
            key="maxCallsPerClient",
            kind="integer",
            attribute="max_calls_per_client",
            doc="Most calls of one client under way; more are refused at once.",
            example=32,
        ),
        Field(
            key="maxProcesses",
            kind="integer",
            attribute="max_processes",
            doc="Most child processes at the same time. When one more is needed, the one that has been idle for the "
            "longest time is put to sleep; if all are in use, the start waits for up to `queueWait`.",
            example=64,
        ),
        Field(
            key="maxMemory",
            kind="integer",
            attribute="max_memory",
            minimum=33554432,
            doc="Bytes of memory muxway itself may use: above 80 % of it new sessions are refused, above 90 % new "
            "calls. Default: what the container allows, if it says.",
            example=536870912,
        ),
    ),
)

CUSTOM_TOOL = Section(
    name="tools.*",
    doc="A tool of the gateway itself: a compound one runs any of the chosen tools of several servers (`subtools`), "
    "a composed one makes several calls and one result of them (`steps`).",
    model=CustomTool,
    fields=(
        Field(
            key="description",
            kind="name",
            attribute="description",
            required=True,
            doc="What to tell the model about the tool. The list of its subtools is added.",
            example="Search code and issues",
        ),
        Field(
            key="subtools",
            kind="subtools",
            attribute="subtools",
            doc="What a compound tool may run: server name → `{tools: [{name, description}]}`.",
            example={"github": {"tools": [{"name": "search_code", "description": "Search in all repositories"}]}},
        ),
        Field(
            key="inputSchema",
            kind="object",
            attribute="input_schema",
            doc="JSON Schema of a composed tool's arguments. Its `default`s are filled in; "
            "types, `enum` and `required` are checked.",
            example={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        ),
        Field(
            key="steps",
            kind="steps",
            attribute="steps",
            doc="The calls of a composed tool, as an array or as an object: name → step. "
            "Steps that do not refer to each other run at the same time.",
            example=[{"name": "find", "tool": "notes__search", "arguments": {"query": "${input.word}"}}],
        ),
        Field(
            key="output",
            kind="template",
            attribute="output",
            doc="What a composed tool gives: any value with references in it. By default the result of the last step.",
            example={"found": "${steps.find.result.notes}", "word": "${input.word}"},
        ),
        Field(
            key="deadline",
            kind="seconds",
            attribute="deadline",
            doc="How long all steps together may take; not more than `callMax` of the gateway.",
            example="30s",
        ),
        Field(
            key="maxResultBytes",
            kind="integer",
            attribute="max_result_bytes",
            minimum=1024,
            doc="Most bytes of results that one call of a composed tool may gather, and most that it may send or give.",
            example=16777216,
        ),
        Field(
            key="dryRun",
            kind="flag",
            attribute="dry_run",
            doc="Whether callers of a composed tool may pass `dryRun: true` to be told what would be called.",
            example=True,
        ),
        Field(
            key="examples",
            kind="examples",
            attribute="examples",
            doc="Cases that `muxway test` runs a composed tool by.",
            example=[{"name": "one note", "input": {"word": "milk"}, "expect": {"word": "milk"}}],
        ),
    ),
)

TOOL_MARKS = frozenset({"description", "subtools", "steps"})
"""Keys by which an entry under `tools` is known as ours: other programs keep switches of their own there."""

STEP = Section(
    name="tools.*.steps.*",
    doc="One call that a composed tool makes, or one for each of many items.",
    model=Step,
    fields=(
        Field(
            key="name",
            kind="name",
            attribute="name",
            required=True,
            doc="What references call the step: letters, digits, `_` and `-`. Not needed in an object of steps.",
            example="find",
        ),
        Field(
            key="tool",
            kind="name",
            attribute="tool",
            required=True,
            doc="The tool to call, as a client may write it: `server__tool`, `server:tool`, `server.tool`. "
            "It may be one that clients do not see.",
            example="notes__search",
        ),
        Field(
            key="arguments",
            kind="template",
            attribute="arguments",
            doc="Its arguments. `${input.x}`, `${steps.NAME.result.x}`, `${item}` and `${index}` are replaced.",
            example={"query": "${input.word}"},
        ),
        Field(
            key="when",
            kind="condition",
            attribute="when",
            doc="Skip the step unless this holds: references, literals, `==`, `!=`, `<`, `>`, `<=`, `>=`, `not`, "
            "`and`, `or`. With `${item}` in it, it is asked for each item.",
            example="${steps.find.ok} and ${input.limit} > 0",
        ),
        Field(
            key="forEach",
            kind="template",
            attribute="for_each",
            doc="Make the call for each item of this array; the result is an array too.",
            example="${steps.find.result.notes}",
        ),
        Field(
            key="maxItems",
            kind="integer",
            attribute="max_items",
            doc="Most items `forEach` may have, up to 1000; more are a failure of the step.",
            example=100,
        ),
        Field(
            key="onError",
            kind="choice",
            choices=("fail", "skip", "continue"),
            attribute="on_error",
            doc="What its failure does: `fail` ends the whole call, `skip` also skips the steps that use its result, "
            "`continue` goes on without a result. For items of `forEach`, `skip` leaves out the failed ones and "
            "`continue` puts null in their place.",
            example="continue",
        ),
        Field(
            key="timeout",
            kind="seconds",
            attribute="timeout",
            doc="How long each call of the step may take. By default as long as its server may.",
            example="5s",
        ),
        Field(
            key="after",
            kind="strings",
            attribute="after",
            doc="Steps to wait for, beside those it refers to.",
            example=["save"],
        ),
    ),
)

EXAMPLE = Section(
    name="tools.*.examples.*",
    doc="A case to test a composed tool by.",
    model=Example,
    fields=(
        Field(
            key="name",
            kind="name",
            attribute="name",
            required=True,
            doc="What to call the case.",
            example="nothing there",
        ),
        Field(
            key="input",
            kind="object",
            attribute="input",
            doc="The arguments of the tool.",
            example={"word": "x"},
        ),
        Field(
            key="expect",
            kind="json",
            attribute="expect",
            doc="What the output must have in it: objects may have more members, all else must be equal.",
            example={"found": []},
        ),
        Field(
            key="fails",
            kind="name",
            attribute="fails",
            doc="The call must fail, with this in its message.",
            example="no such note",
        ),
        Field(
            key="recorded",
            kind="object",
            attribute="recorded",
            doc="What the tools answer: name as in the step → an answer for every call, or an array with one for each. "
            "An answer is a whole tool result, or text, or the structured content alone.",
            example={"notes__search": {"notes": []}},
        ),
    ),
)

SUBTOOL = Section(
    name="tools.*.subtools.*.tools.*",
    doc="One tool that a compound tool may run.",
    model=SubTool,
    fields=(
        Field(
            key="name",
            kind="name",
            attribute="name",
            required=True,
            doc="The tool's own name at its server.",
            example="search_code",
        ),
        Field(
            key="description",
            kind="name",
            attribute="description",
            doc="What to tell the model about it.",
            example="Search in all repositories",
        ),
    ),
)

SHAPE = Section(
    name="mcpServers.*.shape.*",
    doc="What to make of a tool, or of all whose names match a glob.",
    model=ToolShape,
    fields=(
        Field(
            key="name",
            kind="name",
            attribute="name",
            doc="Its public name, as it is: without prefix.",
            example="search",
        ),
        Field(
            key="title",
            kind="name",
            attribute="title",
            doc="Its title, for people.",
            example="Search our code",
        ),
        Field(
            key="description",
            kind="name",
            attribute="description",
            doc="What to tell the model about it, instead of what its server says.",
            example="Search the code of all our repositories",
        ),
        Field(
            key="annotations",
            kind="object",
            attribute="annotations",
            doc="What to put over its annotations; the others stay.",
            example={"readOnlyHint": True},
        ),
        Field(
            key="arguments",
            kind="argument_shapes",
            attribute="arguments",
            doc="What to make of its arguments, by their own names.",
            example={"org": {"hide": True, "value": "acme"}, "q": {"rename": "query"}},
        ),
        Field(
            key="result",
            kind="expression",
            attribute="result",
            doc="JMESPath expression that picks from its structured content, or from the JSON that its text is. "
            "The tool is then listed without an output schema.",
            example="items[].{path: path, url: html_url}",
        ),
    ),
)

ARGUMENT = Section(
    name="mcpServers.*.shape.*.arguments.*",
    doc="What to make of one argument of a tool.",
    model=ArgumentShape,
    fields=(
        Field(
            key="hide",
            kind="flag",
            attribute="hide",
            doc="Whether callers do not see it and may not give it. With `value` or `env`, it always is that.",
            example=True,
        ),
        Field(
            key="value",
            kind="value",
            attribute="value",
            doc="What a hidden argument always is. Variables in its texts are replaced.",
            example="acme",
        ),
        Field(
            key="env",
            kind="variable_name",
            attribute="env",
            doc="Name of the variable whose value a hidden argument always is; "
            "a number or true or false where the argument is one.",
            example="API_TOKEN",
        ),
        Field(
            key="rename",
            kind="name",
            attribute="rename",
            doc="What callers call it.",
            example="query",
        ),
        Field(
            key="default",
            kind="value",
            attribute="default",
            doc="What it is if the caller does not say. It is then not required any more.",
            example=20,
        ),
        Field(
            key="description",
            kind="name",
            attribute="description",
            doc="What to tell the model about it.",
            example="Words to look for",
        ),
        Field(
            key="enum",
            kind="values",
            attribute="enum",
            doc="All it may be. Other values are refused before the server is asked.",
            example=["open", "closed"],
        ),
        Field(
            key="pattern",
            kind="pattern",
            attribute="pattern",
            doc="Regular expression that its text must match somewhere; write `^` and `$` for all of it. "
            "Other values are refused before the server is asked.",
            example="^acme/",
        ),
    ),
)

VIEW = Section(
    name="views.*",
    doc="What some clients see of the gateway: at `/mcp/NAME`, with `--view NAME`, or by their token.",
    model=ViewConfig,
    fields=(
        Field(
            key="servers",
            kind="strings",
            attribute="servers",
            doc="Only what these servers have. By default all.",
            example=["github"],
        ),
        Field(
            key="tools",
            kind="strings",
            attribute="tools",
            doc="Globs of the only tools to show, by their public names. Compound and composed tools are shown if "
            "this names them, or if there is neither `tools` nor `servers`.",
            example=["github__get_*", "github__list_*"],
        ),
        Field(
            key="hiddenTools",
            kind="strings",
            attribute="hidden_tools",
            doc="Globs of tools to hide, by their public names. Wins over `tools`.",
            example=["*__delete_*"],
        ),
        Field(
            key="prompts",
            kind="strings",
            attribute="prompts",
            doc="Globs of the only prompts to show, by their public names. By default all.",
            example=["github__*"],
        ),
        Field(
            key="resources",
            kind="strings",
            attribute="resources",
            doc="The only resources to show and to read, as globs of their URIs as their servers write them. "
            "By default all.",
            example=["file:///docs/*"],
        ),
        Field(
            key="readOnly",
            kind="flag",
            attribute="read_only",
            doc="Show only tools that say that they change nothing (`annotations.readOnlyHint: true`).",
            example=True,
        ),
        Field(
            key="shape",
            kind="shapes",
            attribute="shape",
            doc="What to make of its tools, by their public names or by globs, after what their servers' `shape` does.",
            example={"github__search_code": {"description": "Search the code of our repositories"}},
        ),
        Field(
            key="middleware",
            kind="middleware",
            attribute="middleware",
            doc="What is done around requests to this view, inside what the gateway does around all.",
            example=[{"use": "limit", "rate": "10/s"}],
        ),
        Field(
            key="tokens",
            kind="strings",
            attribute="tokens",
            doc="Bearer tokens that open this view and nothing else, at `/mcp` too. "
            "Better variables than the tokens themselves: files get copied.",
            example=["${AGENT_TOKEN}"],
        ),
    ),
)

SECTIONS = (SERVER, GATEWAY, CUSTOM_TOOL, SUBTOOL, STEP, EXAMPLE, SHAPE, ARGUMENT, VIEW)

CONTAINERS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("mcpServers",), "Claude, Cursor, Windsurf, Gemini CLI and most others; an array with `name` in Continue"),
    (("amp.mcpServers",), "Amp"),
    (("context_servers",), "Zed"),
    (("mcp_servers",), "Codex; an array with `name` in Mistral Vibe"),
    (("extensions",), "Goose"),
    (("mcp", "servers"), "opencode 2, VS Code settings"),
    (("mcp",), "opencode 1, Crush"),
    (("servers",), "VS Code, multi-MCP client"),
)
"""Where a file may keep its servers, and who keeps them there. All are read; the same name twice is an error."""

TOP_LEVEL: dict[str, str] = {
    "$schema": "Address of the JSON Schema, for editors.",
    "gateway": GATEWAY.doc,
    "tools": CUSTOM_TOOL.doc,
    "views": VIEW.doc,
    "middleware": "The same as `gateway.middleware`, which comes after it.",
    "inputs": "VS Code's prompts. muxway never prompts: use environment variables instead of `${input:…}`.",
    "sandbox": "VS Code's sandbox. Not used.",
    "projects": "Claude Code's per-project state. Not read.",
}
"""Top-level keys beside the containers."""

TRANSPORTS: dict[str, Literal["stdio", "http", "sse", "auto"]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "streamablehttp": "http",
    "sse": "sse",
    "remote": "auto",
    "auto": "auto",
}
"""Spellings of `type` → transport."""

FOREIGN_TYPES = frozenset({"builtin", "platform", "frontend", "inline_python"})
"""Values of `type` for things that live inside a client (Goose) and cannot be started by anyone else."""

CLIENT_KEYS = frozenset(
    {
        "alwaysAllow", "alwaysLoad", "approval_mode", "autoApprove", "bundled", "chatMenu", "customUserVars",
        "default_tools_approval_mode", "description", "dev", "display_name", "displayName", "environment_id",
        "gallery", "icon", "iconPath", "id", "name", "omit_tools_from", "remote", "required", "sandboxEnabled",
        "serverInstructions", "settings", "source", "startup", "stderr", "supports_parallel_tool_calls", "title",
        "trust", "version", "watchPaths",
    }
)  # fmt: skip
"""Keys of a server entry that only a client acts on. Kept as they are, never acted upon."""

UNSUPPORTED_KEYS = frozenset(
    {
        "apiKey", "auth", "authProviderType", "headersHelper", "http_headers_helper", "oauth", "oauth_headers",
        "oauth_resource", "obo", "proxy", "requiresOAuth", "scopes", "targetAudience",
    }
)  # fmt: skip
"""Keys that change how a client connects and that muxway does not act on: kept, with a warning."""
