"""What a JSON Schema wants, in a few words: `text: string, tags?: string[], limit?: integer|null`. Pure.

For people and models, who need the types and no more. References, unions and lists of types are followed; whatever a
schema holds, the steps and the length of what is said are bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from muxway.wire import envelopes
from muxway.wire.envelopes import as_list

Schema = Mapping[str, Any]

_MOST_STEPS: Final = 64
"""Schemas looked at to find the alternatives of one."""
_MOST_SHOWN: Final = 12
"""Alternatives, choices or members shown of one value."""
_DEEPEST: Final = 3
"""Objects inside objects whose members are shown."""
_LONGEST: Final = 240
"""Characters for the type of one value."""
_UNIONS: Final = ("anyOf", "oneOf")
_COMPOSING: Final = frozenset(("$ref", "allOf", *_UNIONS))


def as_schema(value: object) -> Schema:
    """The value if it is an object, else an empty schema."""
    return cast("Schema", value) if isinstance(value, Mapping) else {}


def alternatives(schema: object, root: Schema) -> list[Schema]:
    """The schemas, without reference or union, one of which a value of this one must fit.

    References are looked up in `root`, the whole schema; those that lead nowhere, or in a circle, are left out.
    """
    found: list[Schema] = []
    waiting = [as_schema(schema)]
    for _ in range(_MOST_STEPS):
        if not waiting:
            break
        one = waiting.pop(0)
        rest = {key: value for key, value in one.items() if key not in _COMPOSING}
        if isinstance(one.get("$ref"), str):
            waiting.insert(0, {**rest, **_referred(one["$ref"], root)})
        elif isinstance(parts := one.get("allOf"), list):
            for part in cast("list[object]", parts)[:_MOST_SHOWN]:
                rest = {**rest, **as_schema(part)}
            waiting.insert(0, rest)
        elif union := [part for key in _UNIONS for part in as_list(one.get(key))]:
            waiting[:0] = [{**rest, **as_schema(part)} for part in union[:_MOST_SHOWN]]
        elif isinstance(one.get("type"), list):
            waiting[:0] = [{**one, "type": kind} for kind in as_list(one["type"])[:_MOST_SHOWN]]
        elif one:
            found.append(one)
    return found


def _referred(reference: str, root: Schema) -> Schema:
    """What a reference inside the same document points to (RFC 6901)."""
    place: object = root
    if not reference.startswith("#"):
        return {}
    for word in reference[1:].split("/")[1:]:
        key = word.replace("~1", "/").replace("~0", "~")
        place = as_schema(place).get(key)
    return as_schema(place)


def choices(schema: Schema) -> list[Any] | None:
    """All that a value may be, if its schema, which has no union, says so."""
    if "const" in schema:
        return [schema["const"]]
    return as_list(schema["enum"]) if isinstance(schema.get("enum"), list) else None


def kind(schema: object, root: Schema, depth: int = 0) -> str:
    """The type that a schema describes: `integer|null`, `"asc"|"desc"`, `{city: string}[]`."""
    words = dict.fromkeys(_kind(one, root, depth) for one in alternatives(schema, root)[:_MOST_SHOWN])
    # What may be anything may be all the others, too.
    said = "any" if not words or "any" in words else "|".join(words)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"


def _kind(schema: Schema, root: Schema, depth: int) -> str:
    if (listed := choices(schema)) is not None:
        more = ["…"] if len(listed) > _MOST_SHOWN else []
        return "|".join([*(envelopes.encode(one).decode() for one in listed[:_MOST_SHOWN]), *more]) or "any"
    name = schema.get("type")
    if name == "array" or (name is None and "items" in schema):
        inner = kind(schema["items"], root, depth + 1) if "items" in schema and depth < _DEEPEST else "any"
        return "array" if inner == "any" else f"({inner})[]" if "|" in inner else f"{inner}[]"
    if name == "object" or (name is None and "properties" in schema):
        inside = parameters(schema, root, depth + 1) if depth < _DEEPEST else ""
        return f"{{{inside}}}" if inside else "object"
    return name if isinstance(name, str) else "any"


def parameters(schema: object, root: Schema | None = None, depth: int = 0, longest: int = _LONGEST) -> str:
    """The members of an object: `text: string, tags?: string[]`. Those that may be left out have a question mark."""
    fields = as_schema(schema)
    needed = set(map(str, as_list(fields.get("required"))))
    said: list[str] = []
    length = 0
    for name, inner in as_schema(fields.get("properties")).items():
        word = f"{name}{'' if name in needed else '?'}: {kind(inner, fields if root is None else root, depth)}"
        length += len(word) + 2
        if length > longest or len(said) == _MOST_SHOWN * 2:
            said.append("…")
            break
        said.append(word)
    return ", ".join(said)
