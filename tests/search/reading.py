"""Reads an answer of `search_tools` as a model would: makes arguments of a signature."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

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
