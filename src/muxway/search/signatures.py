"""An input schema as one line, `(title: str, labels?: str[], state?: "open"|"closed")`, if that says all of it. Pure.

What callers must know to make a call that fits is either in the line, or the line is said not to be enough.
Descriptions are not part of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from muxway.errors import RpcError
from muxway.wire import envelopes

Schema = Mapping[str, Any]

_TYPES: Final = {
    "string": "str",
    "integer": "int",
    "number": "num",
    "boolean": "bool",
    "null": "null",
    "object": "obj",
    "array": "any[]",
}
_NOT_SAID: Final = frozenset(
    ("title", "description", "examples", "example", "$comment", "deprecated", "readOnly", "writeOnly", "default")
)
"""What may be left out: whoever does not know it makes no wrong call."""
_TOP: Final = frozenset(("type", "properties", "required", "additionalProperties", "$schema", "$id", "$defs"))
_LENGTHS: Final = (("minLength", "maxLength"), ("minItems", "maxItems"))
_IS_WORD: Final = re.compile(r"[\w.-]+").fullmatch
_MOST: Final = 24
"""Parameters in a line."""
_LONGEST: Final = 600
_LONGEST_TYPE: Final = 160
_LONGEST_DEFAULT: Final = 24
_DEEPEST: Final = 4


class Signature(NamedTuple):
    """The line, and whether it says all that a call needs."""

    text: str
    complete: bool


class _Unsaid(Exception):
    """There is more to it than a line can say."""


def signature(schema: object) -> Signature:
    """The parameters of a tool."""
    fields = _object(schema)
    complete = not (fields.keys() - _TOP - _NOT_SAID) and isinstance(fields.get("additionalProperties", True), bool)
    needed = {name for name in _list(fields.get("required")) if isinstance(name, str)}
    properties = _object(fields.get("properties"))
    if needed - properties.keys():
        complete = False
    said: list[str] = []
    length = 0
    for name, inner in properties.items():
        try:
            kind = _kind(inner)
        except _Unsaid:
            kind, complete = "…", False
        spelled = name if _IS_WORD(name) else _json(name)
        word = f"{spelled}{'' if name in needed else '?'}: {kind}{_default(inner)}"
        length += len(word) + 2
        if len(said) == _MOST or length > _LONGEST:
            said.append("…")
            complete = False
            break
        said.append(word)
    return Signature(f"({', '.join(said)})", complete)


def _kind(schema: object, depth: int = 0) -> str:
    """The type of a value. Raises _Unsaid."""
    if schema is True:
        return "any"
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        raise _Unsaid
    fields = {name: value for name, value in cast("Schema", schema).items() if name not in _NOT_SAID}
    if not fields:
        return "any"
    for union in ("anyOf", "oneOf"):
        # Of types that exclude each other, one is as good as any.
        if fields.keys() == {union} and isinstance(fields[union], list):
            _few(fields[union])
            kinds = [_kind(one, depth + 1) for one in cast("list[object]", fields[union])]
            return _short("|".join(dict.fromkeys(kinds)), len(kinds) == len({*kinds}) or union == "anyOf")
    if "const" in fields:
        return _short(_json(fields["const"]), fields.keys() <= {"const", "type"})
    if isinstance(listed := fields.get("enum"), list):
        _few(cast("list[object]", listed))
        words = [_json(one) for one in cast("list[object]", listed)]
        return _short("|".join(words), bool(words) and fields.keys() <= {"enum", "type"})
    kind = fields.pop("type", None)
    if isinstance(kind, list):
        _few(cast("list[object]", kind))
        kinds = [_TYPES.get(str(one), "") for one in cast("list[object]", kind)]
        return _short("|".join(kinds), not fields and all(kinds))
    if kind == "array":
        return _array(fields, depth)
    return _scalar(kind, fields)


def _array(fields: dict[str, Any], depth: int) -> str:
    inner = _kind(fields.pop("items", True), depth + 1)
    sizes = _size(fields, *_LENGTHS[1])
    return _short(f"({inner})[]{sizes}" if "|" in inner else f"{inner}[]{sizes}", not fields)


def _scalar(kind: object, fields: dict[str, Any]) -> str:
    word = _TYPES.get(kind) if isinstance(kind, str) else None
    if word is None:
        raise _Unsaid
    if kind == "string":
        form = fields.pop("format", None)
        if form is not None and not (isinstance(form, str) and _IS_WORD(form)):
            # What is no word could look like more than one tool, to whoever reads the answer.
            raise _Unsaid
        said = word if form is None else f"{word}<{form}>"
        return _short(said + _size(fields, *_LENGTHS[0]), not fields)
    if kind in ("integer", "number"):
        fields.pop("format", None)
        low, high = fields.pop("minimum", None), fields.pop("maximum", None)
        above, below = fields.pop("exclusiveMinimum", None), fields.pop("exclusiveMaximum", None)
        parts = [] if low is None and high is None else [f" {_end(low)}..{_end(high)}"]
        parts += [f" {sign}{_end(one)}" for sign, one in ((">", above), ("<", below)) if one is not None]
        return _short(word + "".join(parts), not fields)
    if kind == "object":
        return _short(word, fields in ({}, {"additionalProperties": True}))
    return _short(word, not fields)


def _size(fields: dict[str, Any], least: str, most: str) -> str:
    low, high = fields.pop(least, None), fields.pop(most, None)
    return "" if low is None and high is None else f"{{{_end(low)}..{_end(high)}}}"


def _end(number: object) -> str:
    if number is None:
        return ""
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise _Unsaid
    return f"{number:g}" if isinstance(number, float) else str(number)


def _few(choices: list[object]) -> None:
    """There is room for as many. Raises _Unsaid."""
    if len(choices) > _LONGEST_TYPE // 2:
        raise _Unsaid


def _short(text: str, complete: bool) -> str:
    if not complete or len(text) > _LONGEST_TYPE:
        raise _Unsaid
    return text


def _default(schema: object) -> str:
    value = _object(schema).get("default")
    if not isinstance(value, str | int | float):
        return ""
    said = _json(value)
    return f" = {said}" if len(said) <= _LONGEST_DEFAULT else ""


def _json(value: object) -> str:
    try:
        return envelopes.encode(value).decode()
    except (RpcError, ValueError, TypeError):
        raise _Unsaid from None


def _object(value: object) -> Schema:
    return cast("Schema", value) if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
