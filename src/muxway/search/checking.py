"""Whether arguments fit an input schema, before a call is made. Pure.

Never calls a good value wrong: what is not understood, or takes too long to look through, is left to the server.
Members stay the bytes that came as far as that says enough: most are texts of any kind.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from muxway.errors import ParseError
from muxway.likeness import short
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from msgspec import Raw

Schema = Mapping[str, Any]

_MOST_STEPS: Final = 5000
"""Pairs of a value and a schema that are looked at."""
_MOST_BYTES: Final = 256 * 1024
"""Bytes of arguments that are opened."""
_NAMES_PER_STEP: Final = 20
"""Names that are looked up in the time of one step."""
_LONGEST_REFERENCE: Final = 1000
_LONGEST_TOLD: Final = 1300
_MOST_NAMES: Final = 50
_DEEPEST: Final = 32
_MOST_TOLD: Final = 8
_PLAIN: Final = frozenset(("type", "title", "description", "default", "examples", "format"))
_UNIONS: Final = frozenset(("allOf", "anyOf", "oneOf"))
_STARTS: Final = {"string": b'"', "object": b"{", "array": b"[", "boolean": b"tf", "null": b"n"}
_NUMBER: Final = b"-0123456789"


class _Enough(Exception):
    """It would take too long to look at the rest."""


def problems(arguments: Raw | None, schema: object) -> list[str]:
    """What is wrong with arguments, the first few; empty: nothing that can be told."""
    try:
        given = {} if arguments is None or envelopes.is_null(arguments) else envelopes.few_members(arguments)
    except envelopes.TooManyMembers:
        return []
    if given is None:
        return ["arguments must be an object"]
    told: list[str] = []
    # What cannot be looked at to its end, or be held by Python, is for the server to judge.
    with suppress(_Enough, ParseError, RecursionError):
        for place, why in _of_members(given, _object(schema)):
            if len(told) == _MOST_TOLD:
                told.append("…")
                break
            told.append(f"{short(place, 100) or 'arguments'} {short(why, _LONGEST_TOLD)}")
    return told


def _of_members(given: Mapping[str, Raw], schema: Schema) -> Iterator[tuple[str, str]]:
    checker = _Checker(schema)
    known = _object(schema.get("properties"))
    yield from checker.names(given, schema, "")
    room = _MOST_BYTES
    for name, raw in given.items():
        inner = known.get(name)
        if inner is None or _fits_plainly(raw, inner):
            continue
        if (size := memoryview(raw).nbytes) <= room:
            room -= size
            yield from checker.look(envelopes.value(raw), inner, name, 1)
    rest = {name: value for name, value in schema.items() if name in ("anyOf", "oneOf", "allOf", "$ref")}
    if rest and sum(memoryview(raw).nbytes for raw in given.values()) <= _MOST_BYTES:
        yield from checker.look({name: envelopes.value(raw) for name, raw in given.items()}, rest, "", 1)


def _fits_plainly(raw: Raw, schema: object) -> bool:
    """Whether the first byte of a value says that it fits a schema, which asks for nothing but a type."""
    fields = _object(schema)
    kind = fields.get("type")
    return (
        isinstance(kind, str)
        and not (fields.keys() - _PLAIN)
        and bytes(memoryview(raw)[:1]) in _STARTS.get(kind, _NUMBER if kind == "number" else b"")
    )


class _Checker:
    """One look at a value, with an end to it."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._steps = 0

    def _spend(self, steps: int) -> None:
        """Take so many steps. Raises _Enough."""
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise _Enough

    def look(self, value: object, schema: object, place: str, depth: int) -> Iterator[tuple[str, str]]:
        """Where and why a value does not fit. Raises _Enough."""
        self._spend(1)
        if depth > _DEEPEST:
            raise _Enough
        if schema is False:
            yield place, "may not be given"
        if not isinstance(schema, dict):
            return
        fields = cast("Schema", schema)
        if isinstance(kind := fields.get("type"), str) and fields.keys() <= _PLAIN and _is(value, kind):
            # Most ask for nothing but a type.
            return
        if isinstance(reference := fields.get("$ref"), str):
            # What stands beside it counts in some drafts of JSON Schema, and in others it does not.
            yield from self.look(value, self._referred(reference), place, depth + 1)
            return
        kinds = _list(fields.get("type")) or ([fields["type"]] if isinstance(fields.get("type"), str) else [])
        self._spend(len(kinds) // _NAMES_PER_STEP)
        if kinds and not any(_is(value, kind) for kind in kinds):
            yield place, f"must be {' or '.join(dict.fromkeys(map(str, kinds)))}, found {_kind(value)}"
            return
        if "const" in fields and not self._same(value, fields["const"]):
            yield place, f"must be {_shown(fields['const'])}"
        if isinstance(fields.get("enum"), list) and not any(self._same(value, one) for one in _list(fields["enum"])):
            yield place, f"must be one of {', '.join(map(_shown, _list(fields['enum'])[:20]))}"
        if not _UNIONS.isdisjoint(fields):
            yield from self._unions(value, fields, place, depth)
        if isinstance(value, dict):
            members = cast("Mapping[str, object]", value)
            yield from self.names(members, fields, place)
            known = _object(fields.get("properties"))
            for name, inner in members.items():
                if name in known:
                    yield from self.look(inner, known[name], f"{place}.{name}" if place else name, depth + 1)
        elif isinstance(value, list):
            yield from self._items(cast("list[object]", value), fields, place, depth)
        elif isinstance(value, str):
            yield from _sizes(len(value), fields, "Length", "characters", place)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield from _range(value, fields, place)

    def names(self, members: Mapping[str, object], schema: Schema, place: str) -> Iterator[tuple[str, str]]:
        """Members that are missing, and those that nobody knows where nothing else may stand."""
        before = f"{place}." if place else ""
        needed = _list(schema.get("required"))
        self._spend((len(needed) + len(members)) // _NAMES_PER_STEP)
        for name in needed:
            if isinstance(name, str) and name not in members:
                yield before + name, "is required"
        known = _object(schema.get("properties"))
        if schema.get("additionalProperties") is False and not schema.get("patternProperties"):
            for name in members:
                if name not in known:
                    named = ", ".join(islice(known, _MOST_NAMES))
                    yield before + name, f"is unknown; there are {short(named, 300) or 'none'}"

    def _items(self, value: list[object], fields: Schema, place: str, depth: int) -> Iterator[tuple[str, str]]:
        yield from _sizes(len(value), fields, "Items", "items", place)
        first = _list(fields.get("prefixItems"))
        for number, item in enumerate(value):
            inner = first[number] if number < len(first) else fields.get("items")
            if isinstance(inner, list):
                return  # as drafts before 2020-12 wrote `prefixItems`
            yield from self.look(item, inner, f"{place}[{number}]", depth + 1)

    def _unions(self, value: object, fields: Schema, place: str, depth: int) -> Iterator[tuple[str, str]]:
        for part in _list(fields.get("allOf")):
            yield from self.look(value, part, place, depth + 1)
        for name in ("anyOf", "oneOf"):
            options = _list(fields.get(name))
            tried = [next(self.look(value, one, place, depth + 1), None) for one in options]
            if tried and all(one is not None for one in tried):
                why = "; ".join(dict.fromkeys(one[1] for one in tried if one is not None))
                yield place, f"fits none of {len(tried)} alternatives: {why[:300]}"

    def _referred(self, reference: str) -> object:
        """What a reference inside the same schema points to (RFC 6901); anything, if that is not known."""
        if not reference.startswith("#") or len(reference) > _LONGEST_REFERENCE:
            return True
        found: object = self._root
        for word in reference[1:].split("/")[1:]:
            key = word.replace("~1", "/").replace("~0", "~")
            fields = _object(found)
            if key not in fields:
                return True
            found = fields[key]
        return found

    def _same(self, one: object, other: object) -> bool:
        """Whether two values are the same to JSON: true is not 1, but 1.0 is. Raises _Enough."""
        self._spend(1)
        if _kind(one) != _kind(other):
            return False
        if isinstance(one, dict):
            its, others = _object(cast("object", one)), _object(other)
            return its.keys() == others.keys() and all(self._same(value, others[name]) for name, value in its.items())
        if isinstance(one, list):
            these, those = _list(cast("object", one)), _list(other)
            return len(these) == len(those) and all(map(self._same, these, those))
        return one == other


def _is(value: object, kind: object) -> bool:
    match kind:
        case "integer":
            return not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            )
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "string" | "object" | "array" | "boolean" | "null":
            return _kind(value) == kind
        case _:
            # No type that we know: anything may be of it.
            return True


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case dict():
            return "object"
        case _:
            return "array"


def _sizes(size: int, fields: Schema, key: str, word: str, place: str) -> Iterator[tuple[str, str]]:
    low, high = fields.get(f"min{key}"), fields.get(f"max{key}")
    if _is(low, "number") and size < cast("float", low):
        yield place, f"must have at least {low} {word}"
    if _is(high, "number") and size > cast("float", high):
        yield place, f"must have at most {high} {word}"


def _range(value: float, fields: Schema, place: str) -> Iterator[tuple[str, str]]:
    for key, word, wrong in _ENDS:
        end: Any = fields.get(key)
        if _is(end, "number") and wrong(value, end):
            yield place, f"must be {word} {end}"


_ENDS: Final[tuple[tuple[str, str, Callable[[float, float], bool]], ...]] = (
    ("minimum", "at least", operator.lt),
    ("maximum", "at most", operator.gt),
    ("exclusiveMinimum", "more than", operator.le),
    ("exclusiveMaximum", "less than", operator.ge),
)
"""Keyword → what it asks for, and what is wrong."""


def _shown(value: object) -> str:
    return envelopes.encode(value).decode()[:60]


def _object(value: object) -> Schema:
    return cast("Schema", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
