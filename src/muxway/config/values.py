"""Reading values: checked, expanded, converted. What is made of them for each kind of key is in `kinds`.

A `Reader` returns None for a value that is wrong or unknown, after reporting it, so that one fault is told once.
Every string passes through `Reader.string`, the only place where variables are expanded.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, TypeVar

from muxway.config import durations
from muxway.config.expand import PUBLIC_VARIABLES, expand
from muxway.config.report import as_list, as_mapping, found, nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.config.expand import Scope
    from muxway.config.fields import Section
    from muxway.config.report import Path, Report

T = TypeVar("T")

MAX_SECONDS = 365 * 24 * 3600

UNENCODABLE = re.compile("[\x00\ud800-\udfff]")
SECRET_KEY = re.compile(
    r"token|secret|passw|passphrase|passcode|(?<!by)(?<!com)pass(?:$|[-_])|pwd|api[-_]?key|auth(?!ors?(?:$|[-_]))|credential|"
    r"(?:^|[-_])creds?(?:$|[-_])|private|cookie|session|dsn|jwt|bearer|connection[-_]?string|(?:^|[-_])(?:key|pat)$",
    re.IGNORECASE,
)
_URL_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
_SCHEME = re.compile(r"(?:basic|bearer|token)\s+(\S.*)", re.IGNORECASE)
_SECRET_REFERENCE = re.compile(r"(?<!\$)\$\{secret:")
WRITE_OUT = "if the program needs it, write it out under `env`"
_SHORTEST_SECRET = 4
_TOO_COMMON = frozenset({"debug", "error", "false", "info", "none", "null", "true", "warning"})


def is_secret(text: str) -> bool:
    """Whether a text that may be secret is long and rare enough to be masked."""
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
        return frozenset(filter(is_secret, self._secrets))

    def wrong(self, path: Path, expected: str, raw: object) -> None:
        """Report a value of the wrong type."""
        value = raw if isinstance(raw, bool | int | float) else None
        self.report.error(path, f"{label(path)} must be {expected}, found {found(raw)}", value=value)

    def unfit(self, path: Path, expected: str, raw: object) -> None:
        """Report a wrong number, flag or choice, as written: these are no secrets, unlike what they expand to."""
        value = raw if isinstance(raw, str | bool | int | float) else None
        self.report.error(path, f"{label(path)} must be {expected}, found {shown(raw)}", value=value)

    # --- text ---

    def string(self, path: Path, raw: object, expected: str = "a string") -> str | None:
        """A string with its variables replaced."""
        if not isinstance(raw, str):
            self.wrong(path, expected, raw)
            return None
        expanded = expand(raw, self.scope)
        self._secrets.update(expanded.values)
        self.report.secrets.update(filter(is_secret, expanded.outside))
        for reference in expanded.bad:
            self.report.error(path, f"{shorten(reference)} cannot be expanded. {_remedy(reference)}")
        if self.needs_variables:
            for name in dict.fromkeys(expanded.missing):
                self.missing(path, name)
            for reference, why in dict.fromkeys(expanded.unavailable):
                self.report.error(path, why, code="missing_secret", variable=reference)
        if expanded.bad or expanded.missing or expanded.unavailable:
            return None
        if UNENCODABLE.search(expanded.text):
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
        if text is not None and isinstance(raw, str) and _SECRET_REFERENCE.search(raw):
            self.report.warn(
                path, "other users of this machine can see a secret that is an argument; if the program takes it by "
                "`env`, put it there",
            )  # fmt: skip
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
            self.report.error(path, f"{name} decides which code the program runs and may not {come}; {WRITE_OUT}")

    def note_secret(self, key: str, value: str) -> None:
        """Remember the value of an env or header key if the key, or the value itself, looks like that of a secret."""
        if SECRET_KEY.search(key) or _URL_WITH_PASSWORD.search(value):
            self._secrets.add(value)
            if is_secret(value):
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
                read = row.kind.read(self, (*path, key), value)
                if read is not None:
                    values[row.attribute] = read
        for row in section.fields:
            if row.required and row.key not in given and as_mapping(raw) is not None:
                self.report.error((*path, row.key), f"Missing required field: {row.key}. {row.doc}")
        return values

    def expanded(self, path: Path, raw: object) -> object:
        """Any value, with the variables in its texts replaced."""
        if isinstance(raw, str):
            return self.string(path, raw)
        if (entries := as_mapping(raw)) is not None:
            return {str(key): self.expanded((*path, str(key)), value) for key, value in entries.items()}
        if (items := as_list(raw)) is not None:
            return [self.expanded((*path, str(index)), value) for index, value in enumerate(items)]
        return raw

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


def shorten(text: str) -> str:
    """As much of it as a message may have."""
    return text if len(text) <= 40 else f"{text[:39]}…"


def shown(raw: object) -> str:
    """A wrong number, flag or choice as a message shows it."""
    if isinstance(raw, str) and raw:
        return repr(shorten(raw))
    is_short = isinstance(raw, int | float) and not isinstance(raw, bool) and abs(raw) < 1e15
    return repr(raw) if is_short else found(raw)


def _remedy(reference: str) -> str:
    if reference.startswith("${user:"):
        return "${user:NAME} is allowed only in `env` and `headers` of a server, and NAME must look like a variable's."
    if "}" not in reference:
        return "The } is missing; write $${ for a literal ${."
    return (
        "Write ${NAME}, ${NAME:-default}, ${env:NAME} or ${secret:NAME}, or in `env` and `headers` ${user:NAME}; "
        "for a literal ${ write $${."
    )
