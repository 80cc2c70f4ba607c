"""What a record wants to know of its user, and what becomes of the answers.

A text of a record is either fixed, with `{variables}` in it, or an answer as a whole. A value that an answer gives is
put in as text: nothing in it, and nothing in the record's own words, is a reference of the config.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from muxway.config.expand import expand_tilde
from muxway.config.values import SECRET_KEY
from muxway.log import printable
from muxway.setup.registry.records import RegistryError

if TYPE_CHECKING:
    from pathlib import Path

    from muxway.setup.registry.records import RegistryInput, RegistryVariable

Answers = Mapping[str, Sequence[str]]
"""Question → what was answered: several only if it may be repeated, none if it was left out."""
Put = Callable[["Question", str], str]
"""How an answer is written into an entry: as it is, or as a reference to a secret."""

_VARIABLE: Final = re.compile(r"\{([\w.-]{1,100})\}")
_SHELL: Final = re.compile(r"[;&|`<>\x00-\x1f\x7f]|\$\(")
_REFERENCE: Final = re.compile(r"\{(?:env|file):")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LONGEST_ANSWER: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Question:
    """One thing to ask for."""

    name: str
    description: str = ""
    required: bool = False
    secret: bool = False
    default: tuple[str, ...] = ()
    placeholder: str = ""
    choices: tuple[str, ...] = ()
    format: str = "string"
    repeated: bool = False

    def check(self, value: str, folder: Path, home: str) -> str:
        """The answer as it is used. Raises ValueError with what is wrong with it, which never shows it."""
        if _CONTROL.search(value.replace("\n", "") if self.secret else value) or len(value) > _LONGEST_ANSWER:
            raise ValueError("has control characters, or is too long")
        if _REFERENCE.search(value):
            raise ValueError("has {env: or {file: in it, which a config would replace")
        if self.choices and value not in self.choices:
            raise ValueError(f"must be one of {', '.join(map(printable, self.choices))}")
        if self.format == "number" and not _is_number(value):
            raise ValueError("must be a number")
        if self.format == "boolean" and value not in ("true", "false"):
            raise ValueError("must be true or false")
        if self.format == "filepath":
            if not value:
                raise ValueError("must be a path")
            return str(folder / expand_tilde(value, home))
        return value


@dataclass(frozen=True, slots=True)
class EntryText:
    """A text of an entry: fixed parts, and answers between them."""

    parts: tuple[str | Question, ...]
    repeated: bool = False
    """Whether it is there once for each of several answers."""

    @property
    def questions(self) -> tuple[Question, ...]:
        """What it needs."""
        return tuple(part for part in self.parts if isinstance(part, Question))

    def fill(self, answers: Answers, put: Put) -> list[str]:
        """The text, as often as it is there; not at all if something it needs was left out."""
        given = {question.name: answers.get(question.name, ()) for question in self.questions}
        if any(not values for values in given.values()):
            return []
        count = max((len(values) for values in given.values()), default=1) if self.repeated else 1
        return ["".join(self._part(part, given, index, put) for part in self.parts) for index in range(count)]

    @staticmethod
    def _part(part: str | Question, given: Answers, index: int, put: Put) -> str:
        if isinstance(part, str):
            return as_text(part)
        values = given[part.name]
        return put(part, values[min(index, len(values) - 1)])


def as_text(value: str) -> str:
    """Text in which nothing is a reference, unless what stands beside it makes one."""
    return value.replace("$", "$$")


def check_references(text: str) -> None:
    """Raise RegistryError if a whole text has a reference other than ours in it, which cannot be written as text."""
    if _REFERENCE.search(text):
        raise RegistryError(f"{printable(text[:60])} reads like a reference of the config, which it must not be.")


def text_of(given: RegistryInput, name: str, *, secret_name: str = "") -> EntryText:
    """What an argument, variable or header becomes.

    Raises:
        RegistryError: it has what no fixed text may have.
    """
    if given.value is None:
        return EntryText(
            (question_of(given, name, secret_name or name, repeated=given.is_repeated),), given.is_repeated
        )
    return template(
        given.value, given.variables or {}, secret=given.is_secret or bool(SECRET_KEY.search(secret_name)),
        repeated=given.is_repeated,
    )  # fmt: skip


def template(
    value: str, variables: Mapping[str, RegistryVariable], *, secret: bool = False, repeated: bool = False
) -> EntryText:
    """A fixed text with variables in it. Braces around anything else stay. Raises RegistryError."""
    parts: list[str | Question] = []
    end = 0
    for match in _VARIABLE.finditer(value):
        variable = variables.get(match[1])
        if variable is not None:
            parts.append(value[end : match.start()])
            end = match.end()
            if variable.value is not None:
                parts.append(variable.value)
            else:
                hidden = secret or variable.is_secret
                parts.append(question_of(variable, match[1], match[1], secret=hidden, repeated=repeated))
    parts.append(value[end:])
    if any(isinstance(part, str) and _SHELL.search(part) for part in parts):
        raise RegistryError(f"The record has characters of a shell in {printable(value[:60])}: it is not added.")
    return EntryText(
        tuple(part for part in parts if part != ""), repeated and any(isinstance(one, Question) for one in parts)
    )


def question_of(
    given: RegistryVariable, name: str, secret_name: str, *, secret: bool = False, repeated: bool = False
) -> Question:
    """What to ask for. Raises RegistryError if the name is none."""
    if not name or not name.isprintable() or len(name) > 100 or "=" in name or "}" in name:
        raise RegistryError("The record asks for something without a name that could be shown.")
    if not all(choice.isprintable() for choice in given.choices or ()):
        raise RegistryError(f"The record offers a choice for {name} that cannot be shown.")
    default = given.default
    if isinstance(default, bool):
        default = "true" if default else "false"
    return Question(
        name=name,
        description=printable(given.description or "")[:300],
        # Without a value, a text that is there for good has none.
        required=given.is_required,
        secret=secret or given.is_secret or bool(SECRET_KEY.search(secret_name)),
        default=() if default is None or default == "" else (str(default),),
        placeholder=printable(given.placeholder or "")[:100],
        choices=tuple(given.choices or ()),
        format=given.format or "string",
        repeated=repeated,
    )


def _is_number(value: str) -> bool:
    try:
        return math.isfinite(float(value)) and value.strip() == value and "_" not in value
    except ValueError:
        return False
