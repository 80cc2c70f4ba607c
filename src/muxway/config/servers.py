"""From one server entry, in whatever dialect, to a `ServerConfig`.

Three steps: find the row of each key of the entry, read each by its kind, put the values together where several keys
feed one attribute. Keys that mean nothing to us are kept in `extra`.
"""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from muxway.config.dialects import CLIENT_KEYS, UNSUPPORTED_KEYS
from muxway.config.envfile import parse_env_file
from muxway.config.kinds import FOREIGN_TYPES
from muxway.config.loader_variables import is_loader
from muxway.config.model import SERVER, ServerConfig, Transport, Written
from muxway.config.report import MISSING, as_mapping, dotted, found, nearest
from muxway.config.shaping import check_names
from muxway.config.values import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.config.expand import Scope
    from muxway.config.fields import Field
    from muxway.config.report import Path, Report
    from muxway.config.tls import ServerTls

ADDRESS_KEYS = frozenset(
    spelling for key in ("command", "url", "httpUrl") for spelling in SERVER.by_spelling[key].spellings
)
"""Keys that say where a server is; without one of them there is none."""
_CONNECTION = frozenset({"transport", "command", "args", "env", "url", "headers"})
"""What is put together from several keys, of which not all may count."""
_OLD_ZED_COMMAND = {"path": "command", "args": "args", "env": "env"}


class _Given(NamedTuple):
    row: Field
    path: Path
    raw: object


def read_server(
    name: str, raw: object, path: Path, report: Report, scope: Scope, *, keep_going: bool = False
) -> ServerConfig | None:
    """Read one entry. None if it is wrong (reported) or nothing that we could start (a warning says so).

    With `keep_going`, or if it is `optional`, missing variables make it unusable and are no errors.
    """
    reader = Reader(report, scope)
    before = len(report.errors)
    if as_mapping(raw) is None:
        report.error(path, f"Server config must be an object with `command` or `url`, found {found(raw)}")
        return None
    entries = reader.entries(path, raw) or {}
    given: dict[str, _Given] = {}
    extra: dict[str, object] = {}
    _sort(entries, path, report, given, extra)
    if _is_foreign(given, entries):
        report.warn(path, "is part of another program and cannot be started from outside; ignored")
        return None

    enabled = _enabled(given, reader, path)
    if not enabled and not given.keys() & {"command", "url", "httpUrl"}:
        report.warn(path, "is off and has neither `command` nor `url`; ignored")
        return None
    reader = Reader(report, scope, needs_variables=enabled)
    got: dict[str, Any] = {
        key: item.row.kind.read(reader, item.path, item.raw)
        for key, item in given.items()
        if key not in {"enabled", "disabled"}
    }
    transport = _transport(got, given, entries, path, report)
    if transport is None:
        return None

    values: dict[str, Any] = {
        item.row.attribute: got[key]
        for key, item in given.items()
        if item.row.attribute is not None and item.row.attribute not in _CONNECTION and got.get(key) is not None
    }
    check_names(values.get("exposed_tools"), values.get("shape", ()), path, report)
    values["call_timeout"] = _first(got, "callTimeout", "callTimeoutMs", "timeout")
    start_timeout = _first(got, "startTimeout", "startTimeoutMs")
    if start_timeout is not None:
        values["start_timeout"] = start_timeout
    values["enabled"] = enabled
    if transport == "stdio":
        values["command"], values["args"] = _program(got, given, report, scope)
        values["env"] = _environment(got, given, reader)
        if values.pop("forward", ()):
            report.warn((*path, "forward"), "has no effect: a program gets no headers, only servers by `url` do")
        for key in ("tls", "proxy"):
            if values.pop(key, None):
                report.warn(
                    (*path, key), "has no effect: it is for servers by `url`; a program makes its own connections"
                )
    else:
        if values.pop("commands", None) is not None:
            report.error((*path, "commands"), "are those of a program, and this is a server by `url`")
        values["url"] = _first(got, "httpUrl", "url")
        values["headers"] = _headers(got, reader)
        _check_credentials(values["url"], values["headers"], path, report)
        fixed = {name.lower() for name in values["headers"]}
        _check_way(values, path, report)
        for index, header in enumerate(values.get("forward", ())):
            if header in fixed:
                why = "is in `headers` already: it is either the same for all, or each caller's"
                report.error((*path, "forward", index), f"{header} {why}")
    if keep_going or values.get("optional"):
        values["unusable"] = _without_variables(before, report)
    return ServerConfig(
        name=name,
        transport=transport,
        **values,
        secrets=reader.secrets,
        written=Written(dotted(path), report.line(path)),
        extra=extra,
    )


def check_reference(
    name: str, path: Path, servers: Mapping[str, ServerConfig | None], report: Report, *, off: str
) -> None:
    """Report a name that no server has, and warn of one that is off: what then follows is `off`."""
    if name not in servers:
        near = nearest(name, servers)
        hint = f'did you mean "{near}"?' if near else f"configured are {', '.join(servers) or 'none'}"
        report.error(path, f'no server is called "{name}"; {hint}')
    elif (server := servers[name]) is not None and not server.enabled:
        report.warn(path, f'the server "{name}" is off, so {off}')


def _without_variables(before: int, report: Report) -> str:
    """Turn what one server lacks from errors into warnings. Returns why it cannot be started."""
    missing = [problem for problem in report.errors[before:] if problem.code in MISSING]
    report.errors[before:] = [problem for problem in report.errors[before:] if problem not in missing]
    report.warnings.extend(missing)
    names = dict.fromkeys(problem.variable or "" for problem in missing if problem.code == "missing_env_var")
    whys = [f"the variable {' and '.join(names)} is not set"] if names else []
    whys += dict.fromkeys(problem.message for problem in missing if problem.code == "missing_secret")
    return "; ".join(whys)


def _check_credentials(url: str | None, headers: Mapping[str, str], path: Path, report: Report) -> None:
    has_user = url is not None and "@" in urlsplit(url).netloc
    if has_user and any(name.lower() == "authorization" for name in headers):
        report.error(path, "has credentials twice, in `url` and as the header Authorization; keep one of them")


def _first(got: Mapping[str, Any], *keys: str) -> Any:
    return next((got[key] for key in keys if got.get(key) is not None), None)


def _sort(
    entries: Mapping[str, object], path: Path, report: Report, given: dict[str, _Given], extra: dict[str, object]
) -> None:
    """Find the row of each key; hoist what Cline nests in `transport` and old Zed in `command`."""
    for key, value in entries.items():
        place = (*path, key)
        row = SERVER.by_spelling.get(key)
        nested = as_mapping(value)
        if nested is not None and key == "transport":
            _sort({str(inner): item for inner, item in nested.items()}, place, report, given, extra)
        elif nested is not None and key == "command":
            for inner, item in nested.items():
                target = _OLD_ZED_COMMAND.get(str(inner))
                if target is not None:
                    _give(_Given(SERVER.by_spelling[target], (*place, str(inner)), item), report, given)
                else:
                    report.warn((*place, str(inner)), "is unknown in a `command` object, which has path, args, env")
        elif row is None or (nested is not None and key == "tools"):  # Codex keeps approvals in a map of tools
            extra[key] = value
            if row is None:
                _judge_unknown(key, place, report)
            elif any(set(as_mapping(tool) or ()) - {"approval_mode"} for tool in (nested or {}).values()):
                report.warn(place, "a map of tools has no effect here; `shape` renames, describes and reshapes them")
        elif value is not None:  # null is what generators write for a key left out
            _give(_Given(row, place, value), report, given)


def _give(item: _Given, report: Report, given: dict[str, _Given]) -> None:
    earlier = given.setdefault(item.row.key, item)
    if earlier is not item and earlier.raw != item.raw:
        report.error(item.path, f"means the same as `{earlier.path[-1]}` but differs from it; keep one of the two")


def _judge_unknown(key: str, place: Path, report: Report) -> None:
    if key in UNSUPPORTED_KEYS:
        report.warn(place, "is not supported by muxway and has no effect; for a fixed token use `headers`")
    elif key not in CLIENT_KEYS and not key.startswith(("x-", "_", "$", "//")):
        near = report.nearest(key, SERVER.by_spelling)
        hint = f"did you mean `{near}`?" if near else "`muxway config explain` lists the known keys"
        report.warn(place, f"unknown key, has no effect; {hint}")


def _is_foreign(given: Mapping[str, _Given], entries: Mapping[str, object]) -> bool:
    """Whether it lives inside a client: Goose's built-ins, servers that come with a Zed extension."""
    if "type" in given:
        kind = given["type"].raw
        return isinstance(kind, str) and kind in FOREIGN_TYPES
    return "command" not in given and entries.get("source") == "extension"


def _enabled(given: Mapping[str, _Given], reader: Reader, path: Path) -> bool:
    flags: dict[str, bool] = {}
    for key in ("enabled", "disabled"):
        if key in given:
            value = given[key].row.kind.read(reader, given[key].path, given[key].raw)
            if value is not None:
                flags[key] = bool(value)
    if len(flags) == 2 and flags["enabled"] == flags["disabled"]:
        reader.report.error(path, "`enabled` and `disabled` contradict each other; keep one of them")
    return flags.get("enabled", not flags.get("disabled", False))


def _check_way(values: Mapping[str, Any], path: Path, report: Report) -> None:
    """Whether the certificates fit the URL."""
    tls: ServerTls | None = values.get("tls")
    if tls is None or values["url"] is None:
        return
    url = urlsplit(str(values["url"]))
    if url.scheme.lower() == "http":
        report.warn((*path, "tls"), "has no effect: the `url` begins with http://, which is not encrypted")
    elif not tls.verify and (url.hostname or "") not in ("127.0.0.1", "::1", "localhost"):
        report.error(
            (*path, "tls", "verify"),
            "a certificate can be left unchecked on this machine only; name the authority that issued it under `ca`",
        )


def _transport(
    got: Mapping[str, Any], given: Mapping[str, _Given], entries: Mapping[str, object], path: Path, report: Report
) -> Transport | None:
    """What `type` says, else what follows from the presence of `command` or `url`."""
    has_command = "command" in given
    has_url = "url" in given or "httpUrl" in given
    stated: Transport | None = got.get("type")
    if not has_command and not has_url:
        typo = next((key for key in entries if nearest(key, ("command", "url"))), None)
        hint = f" `{typo}` is not a known key." if typo is not None else ""
        report.error(
            (*path, "url" if stated in {"http", "sse", "auto"} else "command"),
            f"Missing `command` (a program to start) or `url` (a server to connect to).{hint}",
        )
        return None
    if stated is None:
        if has_command and has_url:
            report.error(path, "has both `command` and `url`; keep one of them, or say which with `type`")
            return None
        if has_command:
            return "stdio"
        return "http" if "httpUrl" in given else "auto"
    used, unused = ("command", "url") if stated == "stdio" else ("url", "command")
    is_there = {"command": has_command, "url": has_url}
    if not is_there[used]:
        report.error((*path, used), f"Missing `{used}`: the type is `{stated}`, but only `{unused}` is given")
        return None
    if is_there[unused]:
        report.warn(path, f"`{unused}` has no effect, because the type is `{stated}`")
    return stated


def _program(
    got: Mapping[str, Any], given: Mapping[str, _Given], report: Report, scope: Scope
) -> tuple[str | None, tuple[str, ...]]:
    words: tuple[str, ...] = got["command"] or ()
    args: tuple[str, ...] = got.get("args") or ()
    if not words:
        return None, args
    first, _, rest = words[0].partition(" ")
    if rest and len(words) == 1 and "/" not in first and "\\" not in first:
        report.warn(
            given["command"].path, "has a blank and is taken as one name of a program; put its arguments into `args`"
        )
    program = words[0]
    if program.startswith(("./", "../", "~/")) and got.get("cwd") is None:
        # As `cwd` and `envFile`; a path beside a `cwd` starts there.
        program = scope.locate(program)
    return program, (*words[1:], *args)


def _environment(got: Mapping[str, Any], given: Mapping[str, _Given], reader: Reader) -> dict[str, str]:
    variables: dict[str, str | None] = {}
    if got.get("envFile") is not None and reader.needs_variables:
        variables |= _env_file(FilePath(got["envFile"]), given["envFile"].path, reader)
    variables |= got.get("envVars") or {}
    variables |= got.get("env") or {}
    return {name: value for name, value in variables.items() if value is not None}


def _env_file(file: FilePath, path: Path, reader: Reader) -> dict[str, str]:
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError:
        reader.report.error(path, f"{file} is not UTF-8; save it as UTF-8")
        return {}
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        reader.report.error(path, f"{file} cannot be read: {reason}")
        return {}
    variables, bad_lines = parse_env_file(text)
    for number in bad_lines:
        reader.report.error(path, f"{file} line {number} is not `KEY=value`")
    for name, value in variables.items():
        if "\x00" in value:
            reader.report.error(path, f"{file}: the value of {name} contains a NUL character")
        reader.note_secret(name, value)
        if is_loader(name, value):
            why = f"{name} decides which code the program runs and is not taken from a file"
            reader.report.warn(path, f"{why}; if the program needs it, write it out under `env`")
    return {name: value for name, value in variables.items() if not is_loader(name, value)}


def _headers(got: Mapping[str, Any], reader: Reader) -> dict[str, str]:
    headers: dict[str, str] = {**(got.get("headers") or {}), **(got.get("envHttpHeaders") or {})}
    token: str | None = got.get("bearerTokenEnvVar")
    if token is not None and not any(name.lower() == "authorization" for name in headers):
        headers["Authorization"] = f"Bearer {token}"
        reader.note_secret("Authorization", headers["Authorization"])
    return headers
