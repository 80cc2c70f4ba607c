"""From a file, or from plain data, to a `Config`: find the servers, read everything, report every problem.

No format flag: the containers people's files already have are recognised by their structure (`dialects.CONTAINERS`).
A file may hold much besides, as clients' settings files do; at the top level only what looks like a slip is told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, cast

from muxway.config.access import access_rules, check_rules
from muxway.config.dialects import CONTAINERS, TOOL_MARKS, TOP_LEVEL
from muxway.config.documents import MINIMAL, Document, read_document
from muxway.config.expand import Scope, working_folder
from muxway.config.kinds import FOREIGN_TYPES, TRANSPORTS
from muxway.config.middlewares import middlewares
from muxway.config.model import (
    CUSTOM_TOOL,
    GATEWAY,
    SERVER,
    SUBTOOL,
    Config,
    CustomTool,
    GatewaySettings,
    ServerConfig,
    SubTool,
)
from muxway.config.ourselves import runs_muxway_with
from muxway.config.references import OutsideValues, read_inputs
from muxway.config.report import Report, as_list, as_mapping, dotted, found, nearest
from muxway.config.servers import ADDRESS_KEYS, check_reference, read_server
from muxway.config.values import Reader
from muxway.config.views import check_discovery, read_views

if TYPE_CHECKING:
    from muxway.config.report import Path

MAX_SERVERS = 5_000
"""Most servers of one configuration."""
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_BAD_NAME = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PROGRAMS = ("cli",)
_SHARED_CONTAINERS = frozenset({"mcp", "extensions", "cli"})
"""Containers whose key other programs use for other things: read only if something in them looks like a server."""


def load_config(
    path: str | os.PathLike[str], *, environ: Mapping[str, str] | None = None, keep_going: bool = False
) -> Config:
    """Read one file of any supported format and dialect.

    With `keep_going`, a server whose variables are missing fails alone, as if it were `optional`.

    Raises:
        ConfigError: it cannot be read or used; `details` has every problem.
    """
    file = FilePath(path)
    scope = replace(_scope(environ, file.absolute().parent), real_folder=_real_folder(file))
    return _build(read_document(file), scope, keep_going=keep_going)


def _real_folder(file: FilePath) -> FilePath | None:
    try:
        return file.resolve().parent
    except (OSError, ValueError, RuntimeError):  # reading it will tell
        return None


def parse_config(
    data: Mapping[str, Any], *, environ: Mapping[str, str] | None = None, source: str | None = None
) -> Config:
    """The same for data already in memory. Relative paths in it start at the working folder.

    Raises:
        ConfigError: it cannot be used; `details` has every problem.
    """
    return _build(Document(data, source), _scope(environ, working_folder()))


def parse_server(name: str, entry: Mapping[str, Any], *, environ: Mapping[str, str] | None = None) -> ServerConfig:
    """The same for a single server.

    Raises:
        ConfigError: it cannot be used; `details` has every problem.
    """
    report = Report(source=f'server "{name}"')
    server = None
    if _check_name(name, (name,), report):
        scope = _scope(environ, working_folder())
        scope = replace(scope, references=OutsideValues({}, scope.locate))
        server = read_server(name, entry, (name,), report, scope)
    if server is None and not report.errors:
        # Skipping is right for one of many in a client's file; whoever adds a single one wants it.
        report.errors.extend(report.warnings)
    report.finish()
    return cast("ServerConfig", server)


def server_entries(root: Mapping[object, object], source: str) -> Iterator[tuple[str, Path, Mapping[object, object]]]:
    """Name, place and content of every entry that may be a server, as it stands there: nothing is read or expanded.

    Raises:
        ConfigError: a name or a container cannot be used.
    """
    report = Report(source=source)
    for path, raw in _containers(root):
        for name, place, entry in _entries(path, raw, report):
            fields = as_mapping(entry)
            if fields is not None:
                yield name, place, fields
    report.finish()


def _scope(environ: Mapping[str, str] | None, folder: FilePath) -> Scope:
    return Scope(environ=os.environ if environ is None else environ, folder=folder)


def _build(document: Document, scope: Scope, *, keep_going: bool = False) -> Config:
    report = Report(document.line, document.source)
    for twice in document.duplicates:
        report.error(
            twice.path, f"the same key stands on lines {twice.first_line} and {twice.line}; rename or remove one"
        )
    root = as_mapping(document.value)
    if root is None:
        report.error((), f"Config must be an object, found {found(document.value)}. A minimal file: {MINIMAL}")
        raise report.failure()
    outside = OutsideValues(read_inputs(root.get("inputs"), report), scope.locate)
    scope = replace(scope, references=outside)
    servers = _read_servers(root, report, scope, keep_going=keep_going)
    reader = Reader(report, scope)
    gateway = _read_gateway(root.get("gateway"), reader)
    if "middleware" in root:
        around = middlewares.read(reader, ("middleware",), root["middleware"])
        gateway = replace(gateway, middleware=(*(around or ()), *gateway.middleware))
    if "access" in root:
        rules = access_rules.read(reader, ("access",), root["access"])
        gateway = replace(gateway, access=(*(rules or ()), *gateway.access))
    tools = _read_tools(root.get("tools"), servers, gateway, reader)
    views = read_views(root.get("views"), servers, gateway, reader)
    check_rules(gateway.access, servers, views, report)
    warnings = report.finish()
    usable = {name: server for name, server in servers.items() if server is not None}
    return Config(
        servers=usable,
        tools=tools,
        gateway=gateway,
        views=views,
        source=document.source,
        warnings=warnings,
        files=outside.files,
    )


# --- servers --------------------------------------------------------------------------------------------------------


def _read_servers(
    root: Mapping[object, object], report: Report, scope: Scope, *, keep_going: bool
) -> dict[str, ServerConfig | None]:
    """Every server by name; None for an entry that is wrong or ignored, so that its name still counts as taken."""
    servers: dict[str, ServerConfig | None] = {}
    places: dict[str, Path] = {}
    containers = list(_containers(root))
    for path, raw in containers:
        for name, place, entry in _entries(path, raw, report):
            if name in places:
                line = report.line(places[name])
                first = dotted(places[name]) + (f" (line {line})" if line is not None else "")
                report.error(place, f'server "{name}" is already configured at {first}; rename or remove one of them')
            elif len(places) >= MAX_SERVERS:
                report.error(path, f"{dotted(path)} holds more than {MAX_SERVERS:,} servers; is it the right file?")
                break
            else:
                places[name] = place
                if path == _PROGRAMS and "commands" not in (as_mapping(entry) or {}):
                    report.error(place, "needs `commands`: those of its sub-commands that may be called")
                    continue
                if path == _PROGRAMS:
                    entry = {"command": name, **(as_mapping(entry) or {})}
                server = read_server(name, entry, place, report, scope, keep_going=keep_going)
                servers[name] = server if server is None else _not_ourselves(server, report, scope)
    _judge_top_level(root, report)
    if not containers:
        empty = next((path for path, _ in CONTAINERS if len(path) == 1 and root.get(path[0], "") is None), None)
        if empty is not None:
            report.error(empty, f"{dotted(empty)} is null: put servers into it. A minimal file: {MINIMAL}")
            return servers
        near = next((key for key in map(str, root) if nearest(key, ("mcpServers", "servers"))), None)
        hint = f" Did you mean it by `{near}`?" if near is not None else ""
        report.error(("mcpServers",), f"Missing required field: mcpServers.{hint} A minimal file: {MINIMAL}")
    elif not report.errors and not any(servers.values()):
        path = containers[0][0]
        report.error(path, f"{dotted(path)} holds no server to start. A minimal file: {MINIMAL}")
    return servers


def _not_ourselves(server: ServerConfig, report: Report, scope: Scope) -> ServerConfig:
    """The server; unusable if it is muxway with this very file."""
    if not server.enabled or report.source is None or not runs_muxway_with(server, FilePath(report.source), scope):
        return server
    why = "it is muxway itself with this same file, which would start itself without end: remove this entry"
    report.warn((*server.where.split("."),), f"is not started, because {why}")
    return replace(server, unusable=why)


def _containers(root: Mapping[object, object]) -> Iterator[tuple[Path, object]]:
    """The containers there are, in the order of the table."""
    has_nested = False
    for path, _ in CONTAINERS:
        raw: object = root
        for key in path:
            mapping = as_mapping(raw)
            raw = mapping.get(key) if mapping is not None else None
        if raw is None or (path[0] in _SHARED_CONTAINERS and not _holds_servers(path, raw, has_nested=has_nested)):
            continue
        has_nested = has_nested or len(path) > 1
        yield path, raw


def _holds_servers(path: Path, raw: object, *, has_nested: bool) -> bool:
    mapping = as_mapping(raw)
    if mapping is None:
        return False
    if path == _PROGRAMS:
        return any("commands" in (as_mapping(entry) or {}) for entry in mapping.values())
    if len(path) > 1:  # `mcp.servers`, unless it is a server that is called "servers"
        return not _looks_like_server(mapping)
    return not (path == ("mcp",) and has_nested) and any(map(_looks_like_server, mapping.values()))


def _looks_like_server(raw: object) -> bool:
    for key, value in (as_mapping(raw) or {}).items():
        if key in SERVER.by_spelling["type"].spellings:
            if isinstance(value, str) and (value in TRANSPORTS or value in FOREIGN_TYPES):
                return True
        elif key in ADDRESS_KEYS and isinstance(value, str | list):
            return True
    return False


def _entries(path: Path, raw: object, report: Report) -> Iterator[tuple[str, Path, object]]:
    """Name, place and content of each server of one container, be it an object or an array with names inside."""
    mapping = as_mapping(raw)
    listed = as_list(raw)
    if mapping is not None:
        for name, entry in mapping.items():
            place = (*path, str(name))
            if path[-1] in _SHARED_CONTAINERS and not isinstance(entry, Mapping):
                report.warn(place, "is no server; ignored")
            elif _check_name(name, place, report):
                yield str(name), place, entry
    elif listed is not None:
        for index, entry in enumerate(listed):
            place = (*path, index)
            fields = as_mapping(entry)
            if fields is None:
                report.error(place, f"Server config must be an object with `name`, found {found(entry)}")
            elif "name" not in fields:
                report.error(place, "needs a `name`, because the servers are in an array")
            elif _check_name(fields["name"], (*place, "name"), report):
                yield str(fields["name"]), place, entry
    else:
        report.error(path, f"{dotted(path)} must be an object: server name → server, found {found(raw)}")


def _check_name(name: object, place: Path, report: Report) -> bool:
    if isinstance(name, str) and name.strip() and not _BAD_NAME.search(name):
        return True
    what = (
        "the name of a server must be text" if not isinstance(name, str) else "the name of a server must not be empty"
    )
    if isinstance(name, str) and name.strip():
        what = "the name of a server must not contain control characters"
    report.error(place, what)
    return False


def _judge_top_level(root: Mapping[object, object], report: Report) -> None:
    known = {*TOP_LEVEL, *(path[0] for path, _ in CONTAINERS)}
    for key in root:
        near = report.nearest(key, known, cutoff=0.8) if isinstance(key, str) and key not in known else None
        if near is not None:
            report.warn((str(key),), f"unknown key, has no effect; did you mean `{near}`?")
    projects = as_mapping(root.get("projects")) or {}
    for name, project in projects.items():
        entry = as_mapping(project)
        if entry is not None and entry.get("mcpServers"):
            report.warn(
                ("projects", str(name), "mcpServers"),
                "servers of one project are not read; copy those you want into the top-level `mcpServers`",
            )


# --- gateway and custom tools ---------------------------------------------------------------------------------------


def _read_gateway(raw: object, reader: Reader) -> GatewaySettings:
    if raw is None:
        return GatewaySettings()
    settings = GatewaySettings(**reader.section(GATEWAY, ("gateway",), raw))
    check_discovery(settings, ("gateway",), reader.report)
    if settings.call_timeout > settings.call_max:
        reader.report.warn(
            ("gateway", "callMax"), f"every call ends after {settings.call_max:g} s, before `callTimeout` can apply"
        )
    auth = settings.auth
    if auth is not None and not (settings.public_url or auth.audience or settings.host in _LOOPBACK):
        why = "which tokens are for this gateway is not known: set `publicUrl`, or `auth.audience`; `serve` needs one"
        reader.report.warn(("gateway", "auth"), why)
    if (settings.public_url or "").endswith("/mcp"):
        why = "clients would have to write `/mcp/mcp`: `publicUrl` is without the `/mcp` that is added to it"
        reader.report.warn(("gateway", "publicUrl"), why)
    if settings.tls is not None and (settings.public_url or "").lower().startswith("http://"):
        why = "http:// is not what `tls` makes of this gateway: write https://; `serve` needs it"
        reader.report.warn(("gateway", "publicUrl"), why)
    return settings


def _read_tools(
    raw: object, servers: Mapping[str, ServerConfig | None], gateway: GatewaySettings, reader: Reader
) -> dict[str, CustomTool]:
    tools: dict[str, CustomTool] = {}
    entries = (reader.entries(("tools",), raw) or {}) if raw is not None else {}
    ours = {name: entry for name, entry in entries.items() if (as_mapping(entry) or {}).keys() & TOOL_MARKS}
    for name, entry in entries.items():
        place = ("tools", name)
        if name not in ours:
            # Gemini CLI, Codex and opencode keep switches of their own tools under the same key.
            reader.report.warn(
                place, "is no custom tool (which has `description` and either `subtools` or `steps`); ignored"
            )
            continue
        if not name.strip() or _BAD_NAME.search(name):
            reader.report.error(place, "the name of a tool must not be empty or contain control characters")
        values = reader.section(CUSTOM_TOOL, place, entry)
        if "steps" in (as_mapping(entry) or {}):
            # Only for those who have such tools: it takes its part of a start.
            from muxway.config.composed import read_composed

            tools[name] = read_composed(name, values, place, servers, ours, gateway.call_max, reader)
        else:
            tools[name] = _read_compound(name, values, place, servers, reader)
    if any(tool.steps for tool in tools.values()):
        from muxway.config.composed import check_nesting

        check_nesting(tools, reader.report)
    return tools


def _read_compound(
    name: str, values: dict[str, Any], place: Path, servers: Mapping[str, ServerConfig | None], reader: Reader
) -> CustomTool:
    if "subtools" not in values:
        doc = CUSTOM_TOOL.by_spelling["subtools"].doc
        # A wrong value has been reported already.
        if not any(problem.path.startswith(dotted((*place, "subtools"))) for problem in reader.report.errors):
            reader.report.error((*place, "subtools"), f"Missing required field: subtools. {doc} Or write `steps`.")
    for row in CUSTOM_TOOL.fields:
        if row.attribute in values and row.key not in TOOL_MARKS:
            reader.report.warn((*place, row.key), "has no effect without `steps`")
    subtools = {
        server: _read_subtools(server, (*place, "subtools", server), entry, servers, reader)
        for server, entry in values.get("subtools", {}).items()
    }
    return CustomTool(name=name, description=values.get("description", ""), subtools=subtools)


def _read_subtools(
    server: str, path: Path, raw: object, servers: Mapping[str, ServerConfig | None], reader: Reader
) -> tuple[SubTool, ...]:
    check_reference(server, path, servers, reader.report, off="these tools cannot run")
    fields = as_mapping(raw)
    place = path if fields is None else (*path, "tools")
    listed = raw if fields is None else fields.get("tools")

    def one(item_path: Path, item: object) -> SubTool | None:
        if as_mapping(item) is not None:
            values = reader.section(SUBTOOL, item_path, item)
            return SubTool(**values) if "name" in values else None
        name = reader.named(item_path, item, "a tool name or {name, description}")
        return SubTool(name=name) if name is not None else None

    tools = reader.items(place, listed, one, "an array of {name, description}") or ()
    if as_list(listed) == []:
        reader.report.error(place, "must list at least one tool")
    names = [tool.name for tool in tools]
    for name in {name for name in names if names.count(name) > 1}:
        reader.report.error(place, f'the tool "{name}" is listed twice')
    return tools
