"""Reading one value of each kind: checked, expanded, converted.

A `Reader` returns None for a value that is wrong or unknown, after reporting it, so that one fault is told once.
Every string passes through `Reader.string`, the only place where variables are expanded.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from muxway.config import durations, places
from muxway.config.expand import PUBLIC_VARIABLES, expand, expand_tilde
from muxway.config.fields import FOREIGN_TYPES, TRANSPORTS
from muxway.config.loader_variables import is_loader
from muxway.config.model import ExposedTool, MiddlewareSpec
from muxway.config.report import as_list, as_mapping, dotted, found, nearest
from muxway.config.shaping import is_pattern, read_arguments, read_expression, read_pattern, read_shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muxway.config.expand import Scope
    from muxway.config.fields import Field, Kind, Section
    from muxway.config.report import Path, Report
    from muxway.config.templates import Condition, Template

T = TypeVar("T")
ReadKind: TypeAlias = "Callable[[Reader, Field, Path, object], object]"

MAX_SECONDS = 365 * 24 * 3600

_URL = re.compile(r"https?://[^\s/?#]+[^\s]*", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNENCODABLE = re.compile("[\x00\ud800-\udfff]")
SECRET_KEY = re.compile(
    r"token|secret|passw|pwd|api[-_]?key|auth(?!ors?(?:$|[-_]))|credential|private|cookie|session|dsn|(?:^|[-_])key$",
    re.IGNORECASE,
)
_URL_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
_SCHEME = re.compile(r"(?:basic|bearer|token)\s+(\S.*)", re.IGNORECASE)
_WRITE_OUT = "if the program needs it, write it out under `env`"
_SHORTEST_SECRET = 4
_TOO_COMMON = frozenset({"debug", "error", "false", "info", "none", "null", "true", "warning"})


def _is_secret(text: str) -> bool:
    return len(text) >= _SHORTEST_SECRET and text.lower() not in _TOO_COMMON


class Reader:
    """Reads values, reports what is wrong with them and remembers which texts are secret."""

    def __init__(self, report: Report, scope: Scope, *, needs_variables: bool = True) -> None:
        self.report = report
        self.scope = scope
        self.needs_variables = needs_variables
        """False for a server that is off: a missing variable leaves its value unknown, and that is no problem."""
        self._secrets: set[str] = set()

    @property
    def secrets(self) -> frozenset[str]:
        """What must be masked. Words too short or too common stay: hiding each `1` hides nothing and blinds a log."""
        return frozenset(filter(_is_secret, self._secrets))

    def read(self, row: Field, path: Path, raw: object) -> object:
        """The value of one key as its kind demands; None if it is wrong or unknown."""
        return READERS[row.kind](self, row, path, raw)

    def wrong(self, path: Path, expected: str, raw: object) -> None:
        """Report a value of the wrong type."""
        shown = raw if isinstance(raw, bool | int | float) else None
        self.report.error(path, f"{label(path)} must be {expected}, found {found(raw)}", value=shown)

    def unfit(self, path: Path, expected: str, raw: object) -> None:
        """Report a wrong number, flag or choice, as written: these are no secrets, unlike what they expand to."""
        value = raw if isinstance(raw, str | bool | int | float) else None
        self.report.error(path, f"{label(path)} must be {expected}, found {_shown(raw)}", value=value)

    # --- text ---

    def string(self, path: Path, raw: object, expected: str = "a string") -> str | None:
        """A string with its variables replaced."""
        if not isinstance(raw, str):
            self.wrong(path, expected, raw)
            return None
        expanded = expand(raw, self.scope)
        self._secrets.update(expanded.values)
        for reference in expanded.bad:
            self.report.error(path, f"{_shorten(reference)} cannot be expanded. {_remedy(reference)}")
        if self.needs_variables:
            for name in dict.fromkeys(expanded.missing):
                self.missing(path, name)
        if expanded.bad or expanded.missing:
            return None
        if _UNENCODABLE.search(expanded.text):
            self.report.error(path, "contains a NUL character or half a surrogate pair, which nothing accepts")
            return None
        return expanded.text

    def named(self, path: Path, raw: object, expected: str = "a string") -> str | None:
        """A string that may not be empty."""
        text = self.string(path, raw, expected)
        if text is not None and not text.strip():
            self.report.error(path, f"{label(path)} must not be empty")
            return None
        return text

    def scalar(self, path: Path, raw: object, expected: str = "a string, number or boolean") -> str | None:
        """Text, also from a number or boolean, as programs take all their input."""
        match raw:
            case bool():
                return "true" if raw else "false"
            case int() | float():
                try:
                    return str(raw)
                except ValueError:  # the interpreter refuses to print integers of thousands of digits
                    self.report.error(path, "the number has too many digits")
                    return None
            case _:
                return self.string(path, raw, expected)

    def argument(self, path: Path, raw: object) -> str | None:
        """One argument of a program, whatever its variables hold. It is an option only if it is written as one."""
        text = self.scalar(path, raw)
        is_option = text is not None and text.startswith("-") and isinstance(raw, str) and not raw.startswith("-")
        if is_option and self.needs_variables:
            self.report.error(
                path,
                f"{label(path)} becomes an option of the program, because what its variable holds begins with `-`; "
                "write the option here, and only its value as a variable",
            )
            return None
        return text

    def missing(self, path: Path, name: str) -> None:
        """Report a variable that is not set."""
        like = nearest(name, self.scope.environ, cutoff=0.8)
        hint = f" {like} is set: is that the one?" if like else ""
        self.report.error(
            path,
            f"Missing environment variable: {name}. Set it, or give a default: ${{{name}:-…}}.{hint}",
            code="missing_env_var",
            variable=name,
        )

    def variable(self, path: Path, raw: object) -> tuple[str, str] | None:
        """Name and value of a variable that is given by its name alone."""
        name = self.named(path, raw, "the name of a variable")
        if name is None:
            return None
        value = self.scope.environ.get(name)
        if value is None:
            if self.needs_variables:
                self.missing(path, name)
            return None
        if name not in PUBLIC_VARIABLES:
            self._secrets.add(value)
        return name, value

    def loader(self, path: Path, name: str, come: str) -> None:
        """Report a variable that decides which code a program runs, and how it came."""
        if self.needs_variables:
            self.report.error(path, f"{name} decides which code the program runs and may not {come}; {_WRITE_OUT}")

    def note_secret(self, key: str, value: str) -> None:
        """Remember the value of an env or header key if the key, or the value itself, looks like that of a secret."""
        if SECRET_KEY.search(key) or _URL_WITH_PASSWORD.search(value):
            self._secrets.add(value)
            if _is_secret(value):
                self.report.secrets.add(value)
            credentials = _SCHEME.fullmatch(value)
            if credentials is not None:
                self._secrets.add(credentials[1])

    # --- arrays and objects ---

    def items(
        self, path: Path, raw: object, read: Callable[[Path, object], T | None], expected: str
    ) -> tuple[T, ...] | None:
        """An array, each item read by `read`."""
        values = as_list(raw)
        if values is None:
            self.wrong(path, expected, raw)
            return None
        read_values = [read((*path, index), value) for index, value in enumerate(values)]
        return tuple(value for value in read_values if value is not None)

    def entries(self, path: Path, raw: object, expected: str = "an object") -> dict[str, object] | None:
        """An object with string keys; its values as they are."""
        mapping = as_mapping(raw)
        if mapping is None:
            self.wrong(path, expected, raw)
            return None
        entries: dict[str, object] = {}
        for key, value in mapping.items():
            if isinstance(key, str):
                entries[key] = value
            else:
                self.report.error(path, f"keys must be strings, found {found(key)}")
        return entries

    def section(self, section: Section, path: Path, raw: object) -> dict[str, Any]:
        """The attributes an object of this section gives, each read by its row. Unknown keys are warned about."""
        values: dict[str, Any] = {}
        given: dict[str, str] = {}
        for key, value in (self.entries(path, raw) or {}).items():
            row = section.by_spelling.get(key)
            if row is None:
                near = self.report.nearest(key, section.by_spelling)
                known = ", ".join(row.key for row in section.fields)
                hint = f"did you mean `{near}`?" if near else f"known are {known}"
                self.report.warn((*path, key), f"unknown key, has no effect; {hint}")
            elif row.key in given:
                self.report.error((*path, key), f"means the same as `{given[row.key]}`; keep one of the two")
            elif value is not None and row.attribute is not None:
                given[row.key] = key
                read = self.read(row, (*path, key), value)
                if read is not None:
                    values[row.attribute] = read
        for row in section.fields:
            if row.required and row.key not in given and as_mapping(raw) is not None:
                self.report.error((*path, row.key), f"Missing required field: {row.key}. {row.doc}")
        return values

    # --- numbers ---

    def number(self, path: Path, raw: object, expected: str) -> tuple[float, str] | None:
        """A positive number of some unit: the number and the unit, empty if none was given."""
        text = self.string(path, raw) if isinstance(raw, str) else raw
        if isinstance(raw, str) and text is None:
            return None
        unit = ""
        value = math.nan
        if isinstance(text, str):
            value, unit = durations.read(text) or (value, unit)
        elif isinstance(text, int | float) and not isinstance(text, bool):
            # Compared before the conversion: an integer may be too large for a float.
            value = float(text) if abs(text) <= MAX_SECONDS * 1000 else math.inf
        if not 0 < value * durations.UNITS[unit or "s"] <= MAX_SECONDS * 1000:
            self.unfit(path, expected, raw)
            return None
        return value, unit


def label(path: Path) -> str:
    """What a message calls the value: its key, or `args[1]` for an item."""
    *before, last = path
    return f"{before[-1]}[{last}]" if before and isinstance(last, int) else str(last)


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"


def _shown(raw: object) -> str:
    if isinstance(raw, str) and raw:
        return repr(_shorten(raw))
    is_short = isinstance(raw, int | float) and not isinstance(raw, bool) and abs(raw) < 1e15
    return repr(raw) if is_short else found(raw)


def _remedy(reference: str) -> str:
    if reference.startswith("${input:"):
        return "muxway does not prompt: set an environment variable and write ${NAME}."
    if "file:" in reference:
        return "Use `envFile`, or an environment variable: ${NAME}."
    if "}" not in reference:
        return "The } is missing; write $${ for a literal ${."
    return "Write ${NAME}, ${NAME:-default} or ${env:NAME}; for a literal ${ write $${."


# --- one function per kind ------------------------------------------------------------------------------------------


def _text(reader: Reader, _row: Field, path: Path, raw: object) -> str | None:
    return reader.string(path, raw)


def _name(reader: Reader, _row: Field, path: Path, raw: object) -> str | None:
    return reader.named(path, raw)


def _path(reader: Reader, _row: Field, path: Path, raw: object) -> str | None:
    text = reader.named(path, raw, "a path")
    return reader.scope.locate(text) if text is not None else None


def _flag(reader: Reader, _row: Field, path: Path, raw: object) -> bool | None:
    if isinstance(raw, bool):
        return raw
    # A variable can only expand to text, so text must do.
    text = reader.string(path, raw, "true or false")
    if text is None:
        return None
    if text.lower() not in {"true", "false"}:
        reader.unfit(path, "true or false", raw)
        return None
    return text.lower() == "true"


def _integer(reader: Reader, row: Field, path: Path, raw: object) -> int | None:
    text = reader.string(path, raw) if isinstance(raw, str) else None
    if isinstance(raw, str) and text is None:
        return None
    value = raw
    if text is not None and len(text) < 20 and text.isdecimal():
        value = int(text)
    if isinstance(value, bool) or not isinstance(value, int) or not row.minimum <= value <= (row.maximum or value):
        reader.unfit(path, f"a whole number, {row.minimum} {f'to {row.maximum}' if row.maximum else 'or more'}", raw)
        return None
    return value


def _seconds(reader: Reader, row: Field, path: Path, raw: object) -> float | None:
    if row.minimum == 0 and raw in (0, "0", "0s"):
        return 0.0
    number = reader.number(path, raw, 'a positive number of seconds or text like "30s", "500ms", "2m"')
    return number[0] * durations.UNITS[number[1] or "s"] if number is not None else None


def _milliseconds(reader: Reader, _row: Field, path: Path, raw: object) -> float | None:
    number = reader.number(path, raw, "a positive number of milliseconds")
    return number[0] * durations.UNITS[number[1] or "ms"] if number is not None else None


def _timeout(reader: Reader, _row: Field, path: Path, raw: object) -> float | None:
    """Clients disagree on the unit: nobody waits 1000 seconds for a tool, and nothing answers in 999 ms reliably."""
    number = reader.number(path, raw, 'a positive number or text like "30s"')
    if number is None:
        return None
    value, unit = number
    if not unit:
        unit = "ms" if value >= 1000 else "s"
        seconds = value * durations.UNITS[unit]
        reader.report.warn(
            path, f'`timeout` was understood as {seconds:g} s; write `"callTimeout": "{seconds:g}s"` to be sure'
        )
    return value * durations.UNITS[unit]


def _choice(reader: Reader, row: Field, path: Path, raw: object) -> str | None:
    text = reader.string(path, raw)
    if text is None or text in row.choices:
        return text
    allowed = ", ".join(f'"{choice}"' for choice in row.choices)
    reader.unfit(path, f"one of {allowed}", raw)
    return None


def _transport(reader: Reader, _row: Field, path: Path, raw: object) -> str | None:
    text = reader.string(path, raw)
    if text is None:
        return None
    known = TRANSPORTS.get(text) or TRANSPORTS.get(text.lower())
    if known is None and text not in FOREIGN_TYPES:
        hint = " muxway does not speak WebSocket;" if text.lower() in {"ws", "websocket"} else ""
        reader.report.error(
            path, f"{label(path)} {_shown(raw)} is unknown:{hint} use stdio, http or sse, or leave it out", value=raw
        )
    return known


def _command(reader: Reader, _row: Field, path: Path, raw: object) -> tuple[str, ...] | None:
    expected = "a string, or an array of the program and its arguments"
    words = as_list(raw)
    if words is None:
        text = reader.named(path, raw, expected)
        parts = (text,) if text is not None else None
    elif words:
        program = reader.named((*path, 0), words[0])
        rest = tuple(reader.argument((*path, index), word) for index, word in enumerate(words[1:], 1))
        parts = None if program is None else (program, *(word for word in rest if word is not None))
    else:
        reader.report.error(path, f"{label(path)} must be {expected}, found an empty array")
        parts = None
    return None if parts is None else (expand_tilde(parts[0], reader.scope.home), *parts[1:])


def _url(reader: Reader, _row: Field, path: Path, raw: object) -> str | None:
    text = reader.named(path, raw, "a URL")
    if text is None:
        return None
    if _URL.fullmatch(text.strip()) is None:
        reader.report.error(path, f"{label(path)} must be a URL starting with http:// or https://, without blanks")
        return None
    if text != text.strip():
        reader.report.warn(path, "has blanks around the URL; they are ignored")
    try:
        host = urlsplit(text.strip())
        readable = bool(host.hostname) and host.port != 0
    except ValueError:
        readable = False
    if not readable:
        reader.report.error(path, f"{label(path)} must have a host, and a port, if any, from 1 to 65535")
        return None
    return text.strip()


def _strings(reader: Reader, row: Field, path: Path, raw: object) -> tuple[str, ...] | None:
    one = reader.argument if row.key == "args" else reader.scalar
    return reader.items(path, raw, one, 'an array of strings like ["-y", "package"]')


def _places(reader: Reader, row: Field, path: Path, raw: object) -> tuple[str, ...] | None:
    read, like = (
        (places.origin, "https://app.example.com") if row.kind == "origins" else (places.host, "mcp.example.com")
    )

    def one(place: Path, item: object) -> str | None:
        text = reader.named(place, item)
        if text is None:
            return None
        try:
            return read(text)
        except ValueError as error:
            reader.report.error(place, f"{label(place)} {error}")
            return None

    return reader.items(path, raw, one, f'an array of strings like ["{like}"]')


def _tool_names(reader: Reader, row: Field, path: Path, raw: object) -> tuple[str, ...] | None:
    names = reader.items(path, raw, reader.named, f"an array of {_what(row)} names")
    return None if names is None else tuple(dict.fromkeys(names))


def _what(row: Field) -> str:
    """What a list of names is about."""
    return "prompt" if row.key.endswith("Prompts") else "tool"


def _exposed(reader: Reader, row: Field, path: Path, raw: object) -> tuple[ExposedTool, ...] | None:
    what = _what(row)

    def one(place: Path, item: object) -> ExposedTool | None:
        if as_mapping(item) is not None:
            entries = reader.entries(place, item) or {}
            for key in entries.keys() - {"original", "exposed"}:
                reader.report.warn((*place, key), "is unknown here; a rename has `original` and `exposed`")
            if "original" not in entries:
                reader.report.error(place, f"needs `original`, the {what}'s own name")
                return None
            original = reader.named((*place, "original"), entries["original"])
            exposed = entries.get("exposed")
            public = reader.named((*place, "exposed"), exposed) if exposed is not None else None
            if public is not None and original is not None and is_pattern(original):
                reader.report.error(place, f"a pattern may mean several {what}s, which cannot all have one name")
            return ExposedTool(original=original, exposed=public) if original is not None else None
        name = reader.named(place, item, f"a {what} name or {{original, exposed}}")
        return ExposedTool(original=name) if name is not None else None

    tools = reader.items(path, raw, one, f"an array of {what} names")
    if tools is None:
        return None
    if any(tool.original == "*" for tool in tools):
        if len(tools) > 1:
            hidden = row.key.replace("exposed", "hidden")
            reader.report.error(path, f'"*" means all {what}s and must stand alone; to hide some use `{hidden}`')
        return None
    tools = tuple(dict.fromkeys(tools))
    public_names: set[str] = set()
    for tool in tools:
        public = tool.exposed or tool.original
        if public in public_names:
            reader.report.error(path, f'two {what}s would have the name "{_shorten(public)}"; rename one of them')
        public_names.add(public)
    return tools


def _variables(reader: Reader, _row: Field, path: Path, raw: object) -> dict[str, str | None] | None:
    entries = reader.entries(path, raw, 'an object like {"NAME": "value"}')
    if entries is None:
        return None
    variables: dict[str, str | None] = {}
    for key, value in entries.items():
        place = (*path, key)
        if not key or "=" in key or _UNENCODABLE.search(key):
            reader.report.error(place, "the name of a variable must not be empty or contain `=`")
            continue
        text = reader.scalar(place, value, "a string, number, boolean or null") if value is not None else None
        if text is None and value is not None:
            continue
        if text is not None and is_loader(key, text) and expand(str(value), reader.scope).values:
            reader.loader(place, key, "be made of another variable")
            continue
        variables[key] = text
        if text is not None:
            _warn_about_blanks(reader, place, text)
            reader.note_secret(key, text)
    return variables


def _variable_names(reader: Reader, _row: Field, path: Path, raw: object) -> dict[str, str] | None:
    def one(place: Path, item: object) -> tuple[str, str] | None:
        entries = as_mapping(item)  # Codex also writes {name, source}
        return reader.variable(place, entries.get("name") if entries is not None else item)

    pairs = reader.items(path, raw, one, "an array of variable names")
    for name, value in pairs or ():
        if is_loader(name, value):
            reader.loader(path, name, "be inherited")
    return None if pairs is None else dict(pairs)


def _variable_name(reader: Reader, _row: Field, path: Path, raw: object) -> str | None:
    pair = reader.variable(path, raw)
    return pair[1] if pair is not None else None


def _headers(reader: Reader, _row: Field, path: Path, raw: object) -> dict[str, str] | None:
    places: list[tuple[Path, str, object]] = []
    listed = as_list(raw)
    if listed is not None:  # [{name, value}]
        for index, item in enumerate(listed):
            entry = reader.entries((*path, index), item, "an object with `name` and `value`") or {}
            name = entry.get("name")
            if isinstance(name, str):
                places.append(((*path, index, "value"), name, entry.get("value")))
            elif entry:
                reader.report.error((*path, index), "needs `name` and `value`")
    else:
        entries = reader.entries(path, raw, 'an object like {"Name": "value"}')
        if entries is None:
            return None
        places = [((*path, name), name, value) for name, value in entries.items()]
    headers: dict[str, str] = {}
    for place, name, value in places:
        text = reader.scalar(place, value)
        if text is not None:
            _add_header(reader, headers, place, name, text)
    return headers


def _header_variables(reader: Reader, _row: Field, path: Path, raw: object) -> dict[str, str] | None:
    entries = reader.entries(path, raw, 'an object like {"Header": "VARIABLE"}')
    if entries is None:
        return None
    headers: dict[str, str] = {}
    for name, variable in entries.items():
        pair = reader.variable((*path, name), variable)
        if pair is not None:
            _add_header(reader, headers, (*path, name), name, pair[1])
    return headers


def _add_header(reader: Reader, headers: dict[str, str], place: Path, name: str, value: str) -> None:
    if _HEADER_NAME.fullmatch(name) is None:
        reader.report.error(place, "this is not the name of an HTTP header")
    elif "\r" in value or "\n" in value:
        reader.report.error(place, "a header value must be one line")
    else:
        _warn_about_blanks(reader, place, value)
        headers[name] = value
        reader.note_secret(name, value)


def _warn_about_blanks(reader: Reader, place: Path, text: str) -> None:
    if text != text.strip():
        reader.report.warn(place, "begins or ends with blanks; remove them unless they are meant")


def _inherit(reader: Reader, row: Field, path: Path, raw: object) -> bool | tuple[str, ...] | None:
    if as_list(raw) is not None:
        names = reader.items(path, raw, reader.named, "an array of names")
        for name in names or ():
            if is_loader(name, reader.scope.environ.get(name)):
                reader.loader(path, name, "be inherited")
        return names
    if isinstance(raw, bool | str):
        everything = _flag(reader, row, path, raw)
        kept = [name for name, value in reader.scope.environ.items() if everything and is_loader(name, value)]
        if kept:
            which = ", ".join(sorted(kept))
            reader.report.warn(path, f"{which} decide which code the program runs and are not inherited; {_WRITE_OUT}")
        return everything
    reader.wrong(path, "true, false or an array of variable names", raw)
    return None


def _subtools(reader: Reader, _row: Field, path: Path, raw: object) -> dict[str, object] | None:
    """Only the outer shape: whether the servers exist is known to `load`."""
    entries = reader.entries(path, raw, "an object: server name → {tools: [{name, description}]}")
    if entries is not None and not entries:
        reader.report.error(path, "subtools must name at least one server")
    return entries


def _middleware(reader: Reader, _row: Field, path: Path, raw: object) -> tuple[MiddlewareSpec, ...] | None:
    def one(place: Path, item: object) -> MiddlewareSpec | None:
        if as_mapping(item) is None:
            use = reader.named(place, item, "the name of a middleware or {use, …options}")
            return None if use is None else made(place, use, (), {})
        entries = dict(reader.entries(place, item) or {})
        if "use" not in entries:
            reader.report.error(place, "needs `use`: the name of a middleware, or module:Class")
            return None
        use = reader.named((*place, "use"), entries.pop("use"))
        globs = entries.pop("match", [])
        globs = [globs] if isinstance(globs, str) else globs
        match = reader.items((*place, "match"), globs, reader.named, "an array of globs")
        options = {key: _expanded(reader, (*place, key), value) for key, value in entries.items()}
        if use == "secrets":
            reader.report.secrets.update(
                text
                for text in (as_mapping(options.get("values")) or {}).values()
                if isinstance(text, str) and _is_secret(text)
            )
        return None if use is None or match is None else made(place, use, match, options)

    def made(place: Path, use: str, match: tuple[str, ...], options: dict[str, object]) -> MiddlewareSpec:
        line, folders = reader.report.line(place), reader.scope.folders
        return MiddlewareSpec(use=use, match=match, options=options, where=dotted(place), line=line, folders=folders)

    return reader.items(path, raw, one, "an array of middlewares")


def _value(reader: Reader, _row: Field, path: Path, raw: object) -> object:
    return _expanded(reader, path, raw)


def _values(reader: Reader, _row: Field, path: Path, raw: object) -> tuple[object, ...] | None:
    values = as_list(raw)
    if not values:
        reader.wrong(path, "an array of at least one value", raw)
        return None
    return tuple(_expanded(reader, (*path, index), value) for index, value in enumerate(values))


def _expanded(reader: Reader, path: Path, raw: object) -> object:
    """Any value, with the variables in its texts replaced."""
    if isinstance(raw, str):
        return reader.string(path, raw)
    if (entries := as_mapping(raw)) is not None:
        return {str(key): _expanded(reader, (*path, str(key)), value) for key, value in entries.items()}
    if (items := as_list(raw)) is not None:
        return [_expanded(reader, (*path, str(index)), value) for index, value in enumerate(items)]
    return raw


# In composed tools `${…}` is a reference: variables are replaced in none of the following. Who has no such tools
# need not load what reads them.


def _object(reader: Reader, _row: Field, path: Path, raw: object) -> dict[str, object] | None:
    return reader.entries(path, raw)


def _json(_reader: Reader, _row: Field, _path: Path, raw: object) -> object:
    return raw


def _template(reader: Reader, _row: Field, path: Path, raw: object) -> Template:
    from muxway.config.templates import parse_template

    return parse_template(raw, path, reader.report.error)


def _condition(reader: Reader, _row: Field, path: Path, raw: object) -> Condition | None:
    from muxway.config.templates import BadTemplate, Constant, parse_condition

    if isinstance(raw, bool):
        return Constant(raw)
    if not isinstance(raw, str):
        reader.wrong(path, 'a condition such as "${steps.find.ok}"', raw)
        return None
    try:
        return parse_condition(raw)
    except BadTemplate as error:
        reader.report.error(path, f"{label(path)}: {error}")
        return None


def _listed(reader: Reader, row: Field, path: Path, raw: object) -> object:
    """Only the outer shape: what is inside is read by `composed`."""
    by_name = row.kind == "steps" and as_mapping(raw) is not None
    entries = reader.entries(path, raw) if by_name else as_list(raw)
    if entries is None:
        reader.wrong(path, "an array of objects", raw)
    return entries


READERS: Mapping[Kind, ReadKind] = {
    "text": _text,
    "name": _name,
    "path": _path,
    "flag": _flag,
    "integer": _integer,
    "seconds": _seconds,
    "milliseconds": _milliseconds,
    "timeout": _timeout,
    "choice": _choice,
    "transport": _transport,
    "command": _command,
    "url": _url,
    "strings": _strings,
    "hosts": _places,
    "origins": _places,
    "tool_names": _tool_names,
    "exposed": _exposed,
    "variables": _variables,
    "variable_names": _variable_names,
    "variable_name": _variable_name,
    "headers": _headers,
    "header_variables": _header_variables,
    "inherit": _inherit,
    "subtools": _subtools,
    "middleware": _middleware,
    "object": _object,
    "json": _json,
    "template": _template,
    "condition": _condition,
    "steps": _listed,
    "examples": _listed,
    "shapes": read_shapes,
    "argument_shapes": read_arguments,
    "value": _value,
    "values": _values,
    "pattern": read_pattern,
    "expression": read_expression,
}
"""How each kind is read."""
