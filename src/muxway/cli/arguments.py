"""Arguments of a tool as they are written on the command line, and what its schema says about them."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

import click

from muxway.catalog.signatures import Schema, alternatives, as_schema, choices
from muxway.cli.options import command_line
from muxway.cli.output import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")
"""A number as JSON has it: `007` is none, and stays text."""
_WORDS = {"boolean": {"true": True, "false": False}, "null": {"null": None}}
_BRACKETS = {"array": "[", "object": "{"}


class Arguments:
    """The arguments as given. Whatever can be wrong with them without the schema is told before anything starts."""

    def __init__(self, base: str | None, words: Sequence[str]) -> None:
        """Read them. Raises UsageError."""
        self._values = {} if base is None else _object(base)
        self._texts: dict[str, str] = {}
        for word in words:
            key, equals, value = word.partition("=")
            if not equals or not key.rstrip(":"):
                raise click.UsageError(f"{word!r} is no argument: write KEY=VALUE, or KEY:=JSON for other than text.")
            if key.endswith(":"):
                self._values[key[:-1]] = _json(value, f"the value of {key[:-1]}")
                self._texts.pop(key[:-1], None)
            else:
                self._texts[key] = value

    def add(self, key: str, text: str) -> None:
        """One more, as text."""
        self._texts[key] = text

    def fitted(self, schema: Schema) -> dict[str, Any]:
        """The arguments, with each text turned into the value that the schema wants. Raises UsageError."""
        known = as_schema(schema.get("properties"))
        texts = {key: fitted(text, known.get(key), schema, key) for key, text in self._texts.items()}
        return {**self._values, **texts}


def fitted(text: str, schema: object, root: Schema, name: str) -> object:
    """The text as the value that is meant: a number, a flag, JSON or null where the schema has room for one.

    Where text is welcome, too, only numbers and flags are no text. What fits nothing goes as it is: the server's
    complaint about it is better than ours.
    """
    wanted = alternatives(schema, root)
    listed = [choice for one in wanted for choice in choices(one) or ()]
    for choice in listed:
        if text == choice or (not isinstance(choice, str) and text == json.dumps(choice)):
            return choice
    kinds = {str(one.get("type")) for one in wanted if choices(one) is None}
    if kinds & {"integer", "number"} and _NUMBER.fullmatch(text):
        # Digits beyond what Python reads stay text.
        with suppress(ValueError):
            number = _finite(json.loads(text), name)
            if isinstance(number, int) or "number" in kinds or number.is_integer():
                return number
    if "boolean" in kinds and text in _WORDS["boolean"]:
        return _WORDS["boolean"][text]
    if "string" in kinds or not kinds:
        return text
    if "null" in kinds and text == "null":
        return None
    for kind, bracket in _BRACKETS.items():
        if kind in kinds and text.lstrip().startswith(bracket):
            return _json(text, f"the value of {name}")
    return text


def remarks(tool: str, arguments: Mapping[str, Any], schema: Schema, config: str | None = None) -> list[str]:
    """What the schema says against these arguments, for people. The server has the last word.

    `config` is the file that the command was given, so that what it tells people to type works as it stands.
    """
    lines: list[str] = []
    known = as_schema(schema.get("properties"))
    # A schema that names none, or says what others are, is open.
    closed = bool(known) and not schema.get("additionalProperties") and "patternProperties" not in schema
    for name in arguments if closed else ():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean `{one_line(near[0])}`?" if near else f"it has {', '.join(map(one_line, known))}"
            lines.append(f"{one_line(tool)} knows no argument `{one_line(name)}`; {hint}")
    if lacking := missing(arguments, schema):
        needs = ", ".join(map(one_line, lacking))
        see = command_line("tools", tool, "--schema", config=config)
        lines.append(f"It needs {needs}: {see} shows its arguments.")
    return lines


def missing(arguments: Mapping[str, Any], schema: Schema) -> list[str]:
    """The required ones that are not given."""
    required = schema.get("required")
    names = cast("list[object]", required) if isinstance(required, list) else []
    return [name for name in map(str, names) if name not in arguments]


def _object(text: str) -> dict[str, Any]:
    value = _json(text, "--json")
    if not isinstance(value, dict):
        raise click.UsageError('--json must be an object, such as {"city": "Paris"}. For JSON output use -o json.')
    return cast("dict[str, Any]", value)


def _json(text: str, what: str) -> Any:
    def constant(word: str) -> object:
        raise ValueError(f"JSON has no {word}")

    def number(digits: str) -> float:
        return _finite(float(digits), what.removeprefix("the value of "))

    try:
        return json.loads(text, parse_constant=constant, parse_float=number)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{what} is not JSON ({error}): {text}") from None


def _finite(number: Any, name: str) -> Any:
    if isinstance(number, float) and not math.isfinite(number):
        raise click.UsageError(f"the number in {name} is too large: no program on the way could read it.")
    return number
