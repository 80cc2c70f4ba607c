"""Collecting problems: every one with its path and line, none stops the reading.

Readers report and go on with a stand-in value; `Report.finish` raises at the very end. Nothing here ever prints a
value on its own: a message says what *kind* of thing was found, because configuration is full of secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias, cast

from muxway.errors import ConfigError, ConfigErrorCode, Problem
from muxway.likeness import most_like
from muxway.log import masker, printable

Path: TypeAlias = tuple[str | int, ...]
"""Place of a value: keys and indexes from the root."""
LineOf: TypeAlias = Callable[[Path], int | None]

MAX_SHOWN = 50
"""Problems spelled out in the message of a ConfigError; `details` always has them all."""
MISSING = frozenset[ConfigErrorCode](("missing_env_var", "missing_secret"))
"""Problems of the place where muxway runs. The configuration itself may be right."""
MOST_HINTS = 200
"""Unknown words of one configuration for which the known one is looked for that may have been meant."""


def dotted(path: Path) -> str:
    """`mcpServers.github.args.1`; the root is `$`."""
    return printable(".".join(map(str, path))) or "$"


def found(value: object) -> str:
    """What kind of thing a wrong value is, without showing it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return "a string" if value else "an empty string"
        case int() | float():
            return "a number"
        case list() | tuple():
            return "an array"
        case Mapping():
            return "an object"
        case _:
            return f"a {type(value).__name__}"


def as_list(value: object) -> list[object] | None:
    """The value as a list if it is an array of any format or a sequence given in Python."""
    return list(cast("Iterable[object]", value)) if isinstance(value, list | tuple) else None


def as_mapping(value: object) -> Mapping[object, object] | None:
    """The value if it is an object; its keys need not be strings yet, a library user may pass anything."""
    return cast("Mapping[object, object]", value) if isinstance(value, Mapping) else None


def nearest(word: str, candidates: Iterable[str], cutoff: float = 0.7) -> str | None:
    """The candidate most like `word`, ignoring case, if any is near enough to be a slip."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    close = most_like(word.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else None


class Report:
    """What is wrong, and what is doubtful, in one configuration."""

    def __init__(self, line_of: LineOf | None = None, source: str | None = None) -> None:
        self.source = source
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []
        self._line_of = line_of
        self.secrets: set[str] = set()
        """What no message may show, wherever it was found: a secret in the wrong place is one all the same."""
        self._hints = MOST_HINTS

    def nearest(self, word: str, candidates: Iterable[str], cutoff: float = 0.7) -> str | None:
        """As `nearest`, while there are few enough unknown words for that."""
        self._hints -= 1
        return nearest(word, candidates, cutoff) if self._hints >= 0 else None

    def line(self, path: Path) -> int | None:
        """Line of the value at `path`, or of the nearest thing around it that is in the file."""
        return self._line_of(path) if self._line_of is not None else None

    def error(
        self,
        path: Path,
        message: str,
        *,
        value: object = None,
        code: ConfigErrorCode = "invalid_schema",
        variable: str | None = None,
    ) -> None:
        """Note something that makes the configuration unusable. `value` only if it cannot be a secret."""
        self.errors.append(
            Problem(
                path=dotted(path),
                message=printable(message),
                code=code,
                value=value,
                line=self.line(path),
                variable=variable,
            )
        )

    def warn(self, path: Path, message: str) -> None:
        """Note something doubtful that does not prevent loading."""
        self.warnings.append(Problem(path=dotted(path), message=printable(message), line=self.line(path)))

    def finish(self) -> tuple[Problem, ...]:
        """The warnings, if there was no error.

        Raises:
            ConfigError: there were errors; all of them are in it.
        """
        if self.errors:
            raise self.failure()
        return self._masked(self.warnings)

    def failure(self) -> ConfigError:
        """The errors so far as one exception, which also has the warnings."""
        errors = self._masked(self.errors)
        count = len(errors)
        lines = [f"{self.source or 'configuration'}: {count} problem{'s' if count > 1 else ''}"]
        lines += [f"  {problem}" for problem in errors[:MAX_SHOWN]]
        if count > MAX_SHOWN:
            lines.append(f"  … and {count - MAX_SHOWN} more")
        kinds = {problem.code for problem in errors}
        code: ConfigErrorCode = "missing_secret" if "missing_secret" in kinds else "missing_env_var"
        code = "invalid_schema" if kinds - MISSING else code
        return ConfigError(code, "\n".join(lines), errors, warnings=self._masked(self.warnings))

    def _masked(self, problems: list[Problem]) -> tuple[Problem, ...]:
        mask = masker(self.secrets)

        def masked(problem: Problem) -> Problem:
            value = mask(problem.value) if isinstance(problem.value, str) else problem.value
            return replace(problem, message=mask(problem.message), value=value)

        return tuple(map(masked, problems)) if self.secrets else tuple(problems)
