"""What keys may hold: for each kind how it is read, its JSON Schema, and the words for it.

Kinds that make something of the model are beside that: in `shaping` and `middlewares`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from muxway.config import durations, places
from muxway.config.expand import expand, expand_tilde
from muxway.config.fields import FieldKind, kind
from muxway.config.loader_variables import is_loader
from muxway.config.report import as_list, as_mapping
from muxway.config.user_values import marked, names_in
from muxway.config.values import UNENCODABLE, WRITE_OUT, Reader, label, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muxway.config.report import Path
    from muxway.config.templates import Condition

TRANSPORTS: Final[dict[str, Literal["stdio", "http", "sse", "auto"]]] = {
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

FOREIGN_TYPES: Final = frozenset({"builtin", "platform", "frontend", "inline_python"})
"""Values of `type` for things that live inside a client (Goose) and cannot be started by anyone else."""

STRING: Final[Mapping[str, Any]] = {"type": "string"}
FILLED: Final[Mapping[str, Any]] = {"type": "string", "minLength": 1}
_STRINGS: Final[Mapping[str, Any]] = {"type": "array", "items": {"type": ["string", "number", "boolean"]}}
NAMES: Final[Mapping[str, Any]] = {"type": "array", "items": FILLED}
# Whatever may be a number or a flag may also be text, because `${VARIABLE}` is.
_FLAG: Final[Mapping[str, Any]] = {"type": ["boolean", "string"]}
_INTEGER: Final[Mapping[str, Any]] = {"anyOf": [{"type": "integer"}, STRING]}
_DURATION: Final[Mapping[str, Any]] = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, STRING]}

_URL = re.compile(r"https?://[^\s/?#]+[^\s]*", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

# --- text and words -------------------------------------------------------------------------------------------------

text: Final = FieldKind("text", STRING, Reader.string)
name: Final = FieldKind("text, not empty", FILLED, Reader.named)


@kind("path", FILLED)
def path(reader: Reader, place: Path, raw: object) -> str | None:
    """A path of this machine; a relative one starts at the config file's folder."""
    written = reader.named(place, raw, "a path")
    return reader.scope.locate(written) if written is not None else None


@kind("true or false", _FLAG)
def flag(reader: Reader, place: Path, raw: object) -> bool | None:
    """A flag. A variable can only expand to text, so text must do."""
    if isinstance(raw, bool):
        return raw
    written = reader.string(place, raw, "true or false")
    if written is None:
        return None
    if written.lower() not in {"true", "false"}:
        reader.unfit(place, "true or false", raw)
        return None
    return written.lower() == "true"


def choice(*choices: str) -> FieldKind[Any]:
    """One of a few words."""
    allowed = ", ".join(f'"{one}"' for one in choices)

    def read(reader: Reader, place: Path, raw: object) -> str | None:
        written = reader.string(place, raw)
        if written is None or written in choices:
            return written
        reader.unfit(place, f"one of {allowed}", raw)
        return None

    # A variable is allowed too; the enum alone gives editors their completion.
    schema = {**STRING, "anyOf": [{"enum": [*choices]}, {"type": "string", "pattern": r"\$|\{env:"}]}
    return FieldKind(f"one of {allowed}", schema, read, choices)


@kind("http:// or https:// URL", FILLED)
def url(reader: Reader, place: Path, raw: object) -> str | None:
    """The address of a server."""
    written = reader.named(place, raw, "a URL")
    if written is None:
        return None
    if _URL.fullmatch(written.strip()) is None:
        reader.report.error(place, f"{label(place)} must be a URL starting with http:// or https://, without blanks")
        return None
    if written != written.strip():
        reader.report.warn(place, "has blanks around the URL; they are ignored")
    try:
        host = urlsplit(written.strip())
        readable = bool(host.hostname) and host.port != 0
    except ValueError:
        readable = False
    if not readable:
        reader.report.error(place, f"{label(place)} must have a host, and a port, if any, from 1 to 65535")
        return None
    return written.strip()


@kind("stdio, http or sse", {"anyOf": [{"enum": sorted(TRANSPORTS) + sorted(FOREIGN_TYPES)}, {"type": "object"}]})
def transport(reader: Reader, place: Path, raw: object) -> Literal["stdio", "http", "sse", "auto"] | None:
    """How to talk to a server, in any client's word for it."""
    written = reader.string(place, raw)
    if written is None:
        return None
    known = TRANSPORTS.get(written) or TRANSPORTS.get(written.lower())
    if known is None and written not in FOREIGN_TYPES:
        hint = " muxway does not speak WebSocket;" if written.lower() in {"ws", "websocket"} else ""
        reader.report.error(
            place, f"{label(place)} {shown(raw)} is unknown:{hint} use stdio, http or sse, or leave it out", value=raw
        )
    return known


# --- numbers --------------------------------------------------------------------------------------------------------


def integer_from(minimum: int, maximum: int | None = None) -> FieldKind[int]:
    """A whole number."""

    def read(reader: Reader, place: Path, raw: object) -> int | None:
        written = reader.string(place, raw) if isinstance(raw, str) else None
        if isinstance(raw, str) and written is None:
            return None
        value = raw
        if written is not None and len(written) < 20 and written.isdecimal():
            value = int(written)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= (maximum or value):
            reader.unfit(place, f"a whole number, {minimum} {f'to {maximum}' if maximum else 'or more'}", raw)
            return None
        return value

    return FieldKind("whole number", _INTEGER, read)


integer: Final = integer_from(1)


@kind('seconds, or text like "30s", "500ms", "2m"', _DURATION)
def seconds(reader: Reader, place: Path, raw: object) -> float | None:
    """A duration."""
    number = reader.number(place, raw, 'a positive number of seconds or text like "30s", "500ms", "2m"')
    return number[0] * durations.UNITS[number[1] or "s"] if number is not None else None


@kind(seconds.words, seconds.schema)
def seconds_or_zero(reader: Reader, place: Path, raw: object) -> float | None:
    """A duration that may be 0."""
    return 0.0 if raw in (0, "0", "0s") else seconds.read(reader, place, raw)


@kind("milliseconds", _DURATION)
def milliseconds(reader: Reader, place: Path, raw: object) -> float | None:
    """A duration in another unit; seconds all the same once it is read."""
    number = reader.number(place, raw, "a positive number of milliseconds")
    return number[0] * durations.UNITS[number[1] or "ms"] if number is not None else None


@kind("number: 1000 or more is milliseconds, less is seconds", _DURATION)
def timeout(reader: Reader, place: Path, raw: object) -> float | None:
    """Clients disagree on the unit: nobody waits 1000 seconds for a tool, and nothing answers in 999 ms reliably."""
    number = reader.number(place, raw, 'a positive number or text like "30s"')
    if number is None:
        return None
    value, unit = number
    if not unit:
        unit = "ms" if value >= 1000 else "s"
        lasts = value * durations.UNITS[unit]
        reader.report.warn(
            place, f'`timeout` was understood as {lasts:g} s; write `"callTimeout": "{lasts:g}s"` to be sure'
        )
    return value * durations.UNITS[unit]


# --- arrays ---------------------------------------------------------------------------------------------------------


@kind("array of text", _STRINGS)
def strings(reader: Reader, place: Path, raw: object) -> tuple[str, ...] | None:
    """Texts; numbers are made into such."""
    return reader.items(place, raw, reader.scalar, 'an array of strings like ["one", "two"]')


@kind("array of text", _STRINGS)
def arguments(reader: Reader, place: Path, raw: object) -> tuple[str, ...] | None:
    """Arguments of a program."""
    return reader.items(place, raw, reader.argument, 'an array of strings like ["-y", "package"]')


@kind(
    "text, or array of program and arguments",
    {
        "anyOf": [
            FILLED,
            {**_STRINGS, "minItems": 1},
            {"type": "object", "properties": {"path": STRING, "args": _STRINGS}, "required": ["path"]},
        ]
    },
)
def command(reader: Reader, place: Path, raw: object) -> Any:
    """A program and the first of its arguments, as a tuple. `servers` makes one of it with `args`."""
    expected = "a string, or an array of the program and its arguments"
    words = as_list(raw)
    if words is None:
        written = reader.named(place, raw, expected)
        parts = (written,) if written is not None else None
    elif words:
        program = reader.named((*place, 0), words[0])
        rest = tuple(reader.argument((*place, index), word) for index, word in enumerate(words[1:], 1))
        parts = None if program is None else (program, *(word for word in rest if word is not None))
    else:
        reader.report.error(place, f"{label(place)} must be {expected}, found an empty array")
        parts = None
    return None if parts is None else (expand_tilde(parts[0], reader.scope.home), *parts[1:])


def _places(words: str, like: str, understand: Callable[[str], str]) -> FieldKind[tuple[str, ...]]:
    def read(reader: Reader, place: Path, raw: object) -> tuple[str, ...] | None:
        def one(at: Path, item: object) -> str | None:
            written = reader.named(at, item)
            if written is None:
                return None
            try:
                return understand(written)
            except ValueError as error:
                reader.report.error(at, f"{label(at)} {error}")
                return None

        return reader.items(place, raw, one, f'an array of strings like ["{like}"]')

    return FieldKind(words, _STRINGS, read)


hosts: Final = _places("array of names", "mcp.example.com", places.host)
origins: Final = _places("array of origins", "https://app.example.com", places.origin)


# --- environment and headers ----------------------------------------------------------------------------------------


@kind(
    "object: name → value",
    {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}},
)
def variables(reader: Reader, place: Path, raw: object) -> Any:
    """Environment variables by name; None for one to leave out, wherever else it is given."""
    entries = reader.entries(place, raw, 'an object like {"NAME": "value"}')
    if entries is None:
        return None
    found: dict[str, str | None] = {}
    for key, value in entries.items():
        at = (*place, key)
        if not key or "=" in key or UNENCODABLE.search(key):
            reader.report.error(at, "the name of a variable must not be empty or contain `=`")
            continue
        value = marked(value)
        written = reader.scalar(at, value, "a string, number, boolean or null") if value is not None else None
        if written is None and value is not None:
            continue
        if written is not None and names_in([written]) and (is_loader(key, "") or is_loader(key, written)):
            reader.loader(at, key, "be made of what a user gives")
            continue
        if written is not None and is_loader(key, written) and expand(str(value), reader.scope).values:
            reader.loader(at, key, "be made of another variable")
            continue
        found[key] = written
        if written is not None:
            _warn_about_blanks(reader, at, written)
            reader.note_secret(key, written)
    return found


@kind(
    "array of variable names",
    {
        "type": "array",
        "items": {"anyOf": [STRING, {"type": "object", "properties": {"name": STRING}, "required": ["name"]}]},
    },
)
def variable_names(reader: Reader, place: Path, raw: object) -> dict[str, str] | None:
    """Variables of our own environment by their names."""

    def one(at: Path, item: object) -> tuple[str, str] | None:
        entries = as_mapping(item)  # Codex also writes {name, source}
        return reader.variable(at, entries.get("name") if entries is not None else item)

    pairs = reader.items(place, raw, one, "an array of variable names")
    for key, value in pairs or ():
        if is_loader(key, value):
            reader.loader(place, key, "be inherited")
    return None if pairs is None else dict(pairs)


@kind("name of a variable", FILLED)
def variable_name(reader: Reader, place: Path, raw: object) -> str | None:
    """The value of one variable."""
    pair = reader.variable(place, raw)
    return pair[1] if pair is not None else None


@kind("true, false, or array of variable names", {"anyOf": [_FLAG, NAMES]})
def inherit(reader: Reader, place: Path, raw: object) -> bool | tuple[str, ...] | None:
    """What of our own environment a program gets."""
    if as_list(raw) is not None:
        names = reader.items(place, raw, reader.named, "an array of names")
        for key in names or ():
            if is_loader(key, reader.scope.environ.get(key)):
                reader.loader(place, key, "be inherited")
        return names
    if isinstance(raw, bool | str):
        everything = flag.read(reader, place, raw)
        kept = [key for key, value in reader.scope.environ.items() if everything and is_loader(key, value)]
        if kept:
            which = ", ".join(sorted(kept))
            reader.report.warn(place, f"{which} decide which code the program runs and are not inherited; {WRITE_OUT}")
        return everything
    reader.wrong(place, "true, false or an array of variable names", raw)
    return None


@kind(
    "object: name → value",
    {
        "anyOf": [
            {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
            {"type": "array", "items": {"type": "object", "required": ["name", "value"]}},
        ]
    },
)
def headers(reader: Reader, place: Path, raw: object) -> dict[str, str] | None:
    """HTTP headers, as an object or as `[{name, value}]`."""
    given: list[tuple[Path, str, object]] = []
    listed = as_list(raw)
    if listed is not None:
        for index, item in enumerate(listed):
            entry = reader.entries((*place, index), item, "an object with `name` and `value`") or {}
            header = entry.get("name")
            if isinstance(header, str):
                given.append(((*place, index, "value"), header, entry.get("value")))
            elif entry:
                reader.report.error((*place, index), "needs `name` and `value`")
    else:
        entries = reader.entries(place, raw, 'an object like {"Name": "value"}')
        if entries is None:
            return None
        given = [((*place, header), header, value) for header, value in entries.items()]
    found: dict[str, str] = {}
    for at, header, value in given:
        written = reader.scalar(at, marked(value))
        if written is not None:
            _add_header(reader, found, at, header, written)
    return found


_NOT_FORWARDED = frozenset(
    {
        "authorization", "cookie", "set-cookie", "x-api-key", "connection", "keep-alive", "te", "trailer",
        "transfer-encoding", "upgrade", "host", "origin", "referer", "expect", "range", "via", "date", "user-agent",
        "last-event-id",
    }
)  # fmt: skip
"""What is between a caller and us, or said for each message by whoever sends it."""
_NOT_FORWARDED_STARTS = ("proxy-", "sec-", "content-", "accept", "mcp-", "access-control-", "if-")


@kind("array of header names", NAMES)
def forwarded_headers(reader: Reader, place: Path, raw: object) -> tuple[str, ...] | None:
    """Headers of callers that a server gets, in small letters."""

    def one(at: Path, item: object) -> str | None:
        written = reader.named(at, item, "the name of a header")
        if written is None:
            return None
        header = written.strip().lower()
        if _HEADER_NAME.fullmatch(header) is None:
            reader.report.error(at, "this is not the name of an HTTP header")
            return None
        if header in _NOT_FORWARDED or header.startswith(_NOT_FORWARDED_STARTS):
            why = "is never forwarded: what a caller shows to muxway is for muxway; a server's own goes into `headers`"
            reader.report.error(at, f"{header} {why}")
            return None
        return header

    return reader.items(place, raw, one, 'an array of header names like ["X-Tenant-Id"]')


@kind("object: header → name of a variable", {"type": "object", "additionalProperties": STRING})
def header_variables(reader: Reader, place: Path, raw: object) -> dict[str, str] | None:
    """HTTP headers whose values are variables."""
    entries = reader.entries(place, raw, 'an object like {"Header": "VARIABLE"}')
    if entries is None:
        return None
    found: dict[str, str] = {}
    for header, variable in entries.items():
        pair = reader.variable((*place, header), variable)
        if pair is not None:
            _add_header(reader, found, (*place, header), header, pair[1])
    return found


def _add_header(reader: Reader, found: dict[str, str], at: Path, header: str, value: str) -> None:
    if _HEADER_NAME.fullmatch(header) is None:
        reader.report.error(at, "this is not the name of an HTTP header")
    elif "\r" in value or "\n" in value:
        reader.report.error(at, "a header value must be one line")
    else:
        _warn_about_blanks(reader, at, value)
        found[header] = value
        reader.note_secret(header, value)


def _warn_about_blanks(reader: Reader, at: Path, written: str) -> None:
    if written != written.strip():
        reader.report.warn(at, "begins or ends with blanks; remove them unless they are meant")


# --- any value ------------------------------------------------------------------------------------------------------


value: Final[FieldKind[object]] = FieldKind("any value", {}, Reader.expanded)


@kind("array of values", {"type": "array", "minItems": 1})
def values(reader: Reader, place: Path, raw: object) -> tuple[object, ...] | None:
    """Some values, with the variables in their texts replaced."""
    items = as_list(raw)
    if not items:
        reader.wrong(place, "an array of at least one value", raw)
        return None
    return tuple(reader.expanded((*place, index), item) for index, item in enumerate(items))


# --- composed tools -------------------------------------------------------------------------------------------------
# In them `${…}` is a reference: variables are replaced in none of the following. Who has no such tools need not load
# what reads them.

mapping: Final = FieldKind("object", {"type": "object"}, Reader.entries)


@kind("any value", {})
def json(_reader: Reader, _place: Path, raw: object) -> Any:
    """Any value, as it is."""
    return raw


@kind("any value, with references like ${input.x} in it", {})
def template(reader: Reader, place: Path, raw: object) -> Any:
    """A value with references in it."""
    from muxway.config.templates import parse_template

    return parse_template(raw, place, reader.report.error)


@kind("condition", {"type": ["string", "boolean"]})
def condition(reader: Reader, place: Path, raw: object) -> Condition | None:
    """What decides whether a step is made."""
    from muxway.config.templates import BadTemplate, Constant, parse_condition

    if isinstance(raw, bool):
        return Constant(raw)
    if not isinstance(raw, str):
        reader.wrong(place, 'a condition such as "${steps.find.ok}"', raw)
        return None
    try:
        return parse_condition(raw)
    except BadTemplate as error:
        reader.report.error(place, f"{label(place)}: {error}")
        return None


# Of these only the outer shape: what is inside is read by `load` and `composed`, which know the servers.


@kind(
    "object: server → {tools: [{name, description}]}",
    {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {
            "anyOf": [
                {"type": "object", "properties": {"tools": {"$ref": "#/$defs/subtools"}}, "required": ["tools"]},
                {"$ref": "#/$defs/subtools"},
            ]
        },
    },
)
def subtools(reader: Reader, place: Path, raw: object) -> Any:
    """The tools that a compound tool may run."""
    entries = reader.entries(place, raw, "an object: server name → {tools: [{name, description}]}")
    if entries is not None and not entries:
        reader.report.error(place, "subtools must name at least one server")
    return entries


@kind("array of {name, input, expect, fails, recorded}", {"type": "array", "items": {"$ref": "#/$defs/example"}})
def examples(reader: Reader, place: Path, raw: object) -> Any:
    """Cases to test a composed tool by."""
    entries = as_list(raw)
    if entries is None:
        reader.wrong(place, "an array of objects", raw)
    return entries


@kind(
    "array of steps, or object: name → step",
    {
        "anyOf": [
            {"type": "array", "minItems": 1, "items": {"allOf": [{"$ref": "#/$defs/step"}, {"required": ["name"]}]}},
            {"type": "object", "minProperties": 1, "additionalProperties": {"$ref": "#/$defs/step"}},
        ]
    },
)
def steps(reader: Reader, place: Path, raw: object) -> Any:
    """The steps of a composed tool."""
    return examples.read(reader, place, raw) if as_mapping(raw) is None else reader.entries(place, raw)
