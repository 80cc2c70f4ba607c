"""Reads an answer of `search_tools` as a model would: makes arguments of a signature."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from hypothesis import find
from hypothesis.strategies import from_regex

if TYPE_CHECKING:
    from collections.abc import Callable

_FORMATS = {
    "ipv4": "192.0.2.1",
    "uri": "https://example.com/",
    "email": "ann@example.com",
    "date": "2026-11-17",
    "date-time": "2026-11-17T10:00:00Z",
}
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_SIZE = re.compile(r"\{(\d*)\.\.(\d*)\}$")
_NUMBER = re.compile(r"(int|num)(?: (-?[\d.e+-]*?)\.\.(-?[\d.e+-]*))?((?: [<>]-?[\d.e+-]+)*)$")


def arguments_of(line: str) -> dict[str, Any]:
    """Arguments for `name(title: str, labels?: str[])`, with all parameters."""
    texts: list[str] = []

    def put_aside(found: re.Match[str]) -> str:
        texts.append(found[0])
        return f"\0{len(texts) - 1}\0"

    def put_back(text: str) -> str:
        return re.sub("\0(\\d+)\0", lambda found: texts[int(found[1])], text)

    # What stands in texts ends no parameter.
    inside = _TEXT.sub(put_aside, line)
    inside = inside[inside.index("(") + 1 : inside.rindex(")")]
    made: dict[str, Any] = {}
    for parameter in inside.split(", ") if inside else ():
        spelled, _, kind = parameter.partition(": ")
        name = put_back(spelled.removesuffix("?"))
        made[json.loads(name) if name.startswith('"') else name] = _value(kind.partition(" = ")[0], put_back)
    return made


def _value(kind: str, put_back: Callable[[str], str]) -> Any:
    """A value of the first of the types that are allowed."""
    first = _first(kind)
    low, high = 0, 1
    if (size := _SIZE.search(first)) is not None:
        low, high = int(size[1] or 0), int(size[2] or 1_000_000)
        first = first[: size.start()]
    count = max(low, min(high, 1))
    if first.endswith("[]"):
        inner = first[:-2]
        inner = inner[1:-1] if inner.startswith("(") else inner
        return [_value(inner, put_back) for _ in range(count)]
    if (number := _NUMBER.match(first)) is not None:
        return _number(number)
    if first.startswith("str"):
        return "x" * count
    simple = {"bool": True, "null": None, "obj": {}, "any": 1}
    return simple[first] if first in simple else json.loads(put_back(first))


def _first(kind: str) -> str:
    """What stands before the first bar that is in no brackets."""
    depth = 0
    for place, letter in enumerate(kind):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "|" and depth == 0:
            return kind[:place]
    return kind


def _number(found: re.Match[str]) -> float:
    low, high = (float(one) if one else None for one in (found[2], found[3]))
    for word in found[4].split():
        end = float(word[1:])
        if word[0] == ">":
            low = end + (1 if found[1] == "int" or high is None else 1e-6)
        else:
            high = end - (1 if found[1] == "int" or low is None else 1e-6)
    value = low if low is not None else high if high is not None else 1
    return int(value) if float(value).is_integer() else value


def arguments_for(schema: Any) -> dict[str, Any]:
    """Arguments for a schema that stands in an answer, with what is required."""
    made = _sample(schema, schema)
    return made if isinstance(made, dict) else {}


def _sample(schema: Any, root: Any) -> Any:
    """A value that a schema allows."""
    if not isinstance(schema, dict):
        return 1
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return _sample({**{name: one for name, one in schema.items() if name != union}, **schema[union][0]}, root)
    if "$ref" in schema:
        found = root
        for name in schema["$ref"].removeprefix("#").split("/")[1:]:
            found = found[name]
        return _sample(found, root)
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    kind = schema.get("type", "object" if "properties" in schema else "string")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            known = schema.get("properties", {})
            return {name: _sample(known.get(name), root) for name in schema.get("required", ())}
        case "array":
            return [_sample(schema.get("items"), root)] * max(1, schema.get("minItems", 0))
        case "integer" | "number":
            # In draft 4 the second is a boolean.
            return max(schema.get("minimum", 1), schema.get("exclusiveMinimum", 0)) + 1
        case "boolean":
            return True
        case "null":
            return None
        case _ if "pattern" in schema:
            return find(from_regex(schema["pattern"]), lambda _: True)
        case _:
            return _FORMATS.get(schema.get("format", ""), "x" * max(1, schema.get("minLength", 0)))
