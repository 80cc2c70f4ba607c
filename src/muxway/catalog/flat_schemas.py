"""JSON Schemas for readers that know less of it: without `$ref`, and without a union at the top.

What comes out says at most what went in: whatever was valid stays valid, and the server judges the arguments anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from muxway.wire.envelopes import as_list, as_object

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_NODES: Final = 5_000
"""Objects and arrays that a schema may have once its references are replaced: a few can multiply."""
MOST_NODES_IN_ALL: Final = 100_000
"""The same for all schemas of a server: some second of work."""
_MOST_CHOICES: Final = 20
"""What a property may be, in different branches of a union, before it may be anything."""
_DEEPEST: Final = 64
_MOST_TOLD: Final = 6
"""Alternatives that are told of in words."""
_UNIONS: Final = ("allOf", "oneOf", "anyOf")
_DEFINITIONS: Final = ("$defs", "definitions")

Schema = dict[str, Any]


class _TooMuch(Exception):
    """References that go in a circle, lead out of the schema, or would become too large."""


def inlined(schema: Schema, room: list[int] | None = None) -> Schema | None:
    """The schema with what its local references lead to in their place; None if that cannot be done.

    `room` is how many objects and arrays there may be, of which those that are looked at are taken off.
    """
    most = _MOST_NODES if room is None else min(_MOST_NODES, room[0])
    left = [most]

    def walk(node: object, inside: frozenset[str], depth: int) -> Any:
        left[0] -= 1
        if left[0] < 0 or depth > _DEEPEST:
            raise _TooMuch
        if isinstance(node, list):
            return [walk(one, inside, depth + 1) for one in cast("list[object]", node)]
        if not isinstance(node, dict):
            left[0] += 1
            return node
        members = cast("dict[str, object]", node)
        reference = members.get("$ref")
        if not isinstance(reference, str):
            return {
                name: one if name in ("enum", "const", "default", "examples") else walk(one, inside, depth + 1)
                for name, one in members.items()
                if depth or name not in _DEFINITIONS
            }
        if reference in inside:
            raise _TooMuch
        target = walk(_at(schema, reference), inside | {reference}, depth + 1)
        beside = {name: walk(one, inside, depth + 1) for name, one in members.items() if name != "$ref"}
        return {**cast("Schema", target), **beside} if isinstance(target, dict) else target

    try:
        return walk(schema, frozenset(), 0)
    except _TooMuch:
        return None
    finally:
        if room is not None:
            room[0] -= most - max(0, left[0])


def _at(schema: Schema, reference: str) -> object:
    """What a reference within the schema leads to."""
    if not reference.startswith("#/"):
        raise _TooMuch
    found: object = schema
    for part in reference[2:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            raise _TooMuch
        found = cast("dict[str, object]", found)[name]
    return found


def merged(schema: Schema) -> tuple[Schema, list[str]]:
    """The schema with one object in place of a union at its top, and what that does not say, in words.

    The very same one if there is none.
    """
    present = [word for word in _UNIONS if isinstance(schema.get(word), list)]
    if not present:
        return schema, []
    properties: dict[str, Any] = dict(as_object(schema.get("properties")))
    required: dict[str, None] = dict.fromkeys(_strings(schema.get("required")))
    notes: list[str] = []
    for word in present:
        branches = [as_object(_resolved(schema, one)) for one in cast("list[object]", schema[word])]
        for branch in branches:
            for name, one in as_object(branch.get("properties")).items():
                known = properties.get(name)
                if known is None:
                    properties[name] = one
                elif known != {} and known != one and one is not True and one != {}:
                    properties[name] = _either(known, one)
        needs = [dict.fromkeys(_strings(branch.get("required"))) for branch in branches]
        if word == "allOf":
            required.update(dict.fromkeys(name for names in needs for name in names))
        elif needs:
            required.update(dict.fromkeys(name for name in needs[0] if all(name in names for names in needs)))
            notes += _told(word, [[name for name in names if name not in required] for names in needs])
    rest = {name: one for name, one in schema.items() if name not in _UNIONS}
    rest.update(type="object", properties=properties)
    if required:
        rest["required"] = [*required]
    return rest, notes


def _resolved(schema: Schema, branch: object) -> object:
    reference = as_object(branch).get("$ref")
    if not isinstance(reference, str):
        return branch
    try:
        return _at(schema, reference)
    except _TooMuch:
        return branch


def _either(known: Any, other: Any) -> Any:
    """A property that is one thing in one branch and another in the next."""
    members = as_object(known)
    choices: list[Any] = members["anyOf"] if [*members] == ["anyOf"] else [known]
    if other in choices:
        return known
    return {"anyOf": [*choices, other]} if len(choices) < _MOST_CHOICES else {}


def _told(word: str, needs: list[list[str]]) -> list[str]:
    """What a union asks for, as a sentence for the description."""
    sets = [*dict.fromkeys(" and ".join(f"`{name}`" for name in names) for names in needs if names)]
    if len(sets) < 2:
        return []
    more = f", or {len(sets) - _MOST_TOLD} other sets" if len(sets) > _MOST_TOLD else ""
    start = "Give exactly one of these" if word == "oneOf" else "Give at least one of these"
    return [f"{start}: {'; '.join(sets[:_MOST_TOLD])}{more}."]


def _strings(value: object) -> Iterable[str]:
    return [one for one in as_list(value) if isinstance(one, str)]
