"""Arguments against schemas: never a good value called wrong, and an end to every look."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from muxway.search.checking import problems

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "exclusiveMaximum": 150},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "mood": {"enum": ["good", "bad", None, 1]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "home": {"$ref": "#/$defs/place"},
        "one": {"oneOf": [{"type": "integer"}, {"type": "boolean"}]},
        "both": {"allOf": [{"type": "integer"}, {"minimum": 3}]},
        "fixed": {"const": {"a": [1]}},
        "many": {"type": ["string", "null"], "title": "Many"},
        "free": {},
        "never": False,
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
}


def found(value: object, schema: object = PERSON) -> list[str]:
    """What is wrong with arguments."""
    return problems(Raw(json.dumps(value).encode()), schema)


@pytest.mark.parametrize(
    ("given_", "why"),
    [
        ({}, "name is required"),
        ({"name": 5}, "name must be string, found number"),
        ({"name": ""}, "name must have at least 1 characters"),
        ({"name": "abcdef"}, "name must have at most 5 characters"),
        ({"name": "a", "age": 1.5}, "age must be integer, found number"),
        ({"name": "a", "age": True}, "age must be integer, found boolean"),
        ({"name": "a", "age": -1}, "age must be at least 0"),
        ({"name": "a", "age": 150}, "age must be less than 150"),
        ({"name": "a", "tags": ["x", 5]}, "tags[1] must be string, found number"),
        ({"name": "a", "tags": ["x", "y", "z"]}, "tags must have at most 2 items"),
        ({"name": "a", "mood": True}, 'mood must be one of "good", "bad", null, 1'),
        ({"name": "a", "note": 5}, "note fits none of 2 alternatives"),
        ({"name": "a", "many": 5}, "many must be string or null, found number"),
        ({"name": "a", "home": {}}, "home.city is required"),
        ({"name": "a", "home": {"city": 1}}, "home.city must be string"),
        ({"name": "a", "one": "x"}, "one fits none of 2 alternatives"),
        ({"name": "a", "both": 2}, "both must be at least 3"),
        ({"name": "a", "fixed": {"a": [2]}}, "fixed must be"),
        ({"name": "a", "never": 1}, "never may not be given"),
        ({"name": "a", "other": 1}, "other is unknown; there are name, age"),
        ([], "arguments must be an object"),
        ("x", "arguments must be an object"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(given_: object, why: str) -> None:
    """docs/discovery.md#what-a-model-sees: errors that the next call can put right."""
    assert found(given_)[0].startswith(why)


@pytest.mark.parametrize(
    "given_",
    [
        {"name": "a"},
        {"name": "a", "age": 3.0, "tags": [], "mood": None, "note": None, "one": True, "both": 3, "free": [1]},
        {"name": "a", "fixed": {"a": [1.0]}, "home": {"city": "x", "more": 1}},
    ],
)
def test_what_fits_is_not_called_wrong(given_: object) -> None:
    """docs/discovery.md#what-a-model-sees."""
    assert found(given_) == []


def test_no_arguments_are_no_members() -> None:
    """MCP 2025-11-25, server/tools: `arguments` may be left out."""
    assert problems(None, PERSON) == problems(Raw(b"null"), PERSON) == ["name is required"]
    assert problems(None, {"type": "object"}) == problems(None, None) == []


def test_every_look_has_an_end() -> None:
    """docs/discovery.md#limits: what takes too long to look through is left to the server."""
    ring = {"properties": {"a": {"$ref": "#/properties/a"}}}
    assert found({"a": 1}, ring) == []
    doubling: dict[str, Any] = {"$defs": {"d": {"anyOf": [{"$ref": "#/$defs/d"}, {"$ref": "#/$defs/d"}]}}}
    assert found({"a": 1}, {**doubling, "properties": {"a": {"$ref": "#/$defs/d"}}}) == []
    large = {"a": ["x"] * 100_000}
    assert found(large, {"properties": {"a": {"type": "array", "items": {"type": "string"}}}}) == []
    assert len(found({}, {"required": [f"p{number}" for number in range(1000)]})) == 9
    many = [f"v{number}" for number in range(10_000)]
    listed = {"properties": {"a": {"type": "array", "items": {"enum": many}}}}
    assert found({"a": ["v9", "none of them"]}, listed) == []
    assert len(found({"a": ["none of them"]}, {"properties": {"a": {"items": {"enum": many[:100]}}}})) == 1
    name = "n" * 2000
    assert (
        found({"a": 1}, {"$defs": {name: {"type": "string"}}, "properties": {"a": {"$ref": f"#/$defs/{name}"}}}) == []
    )
    needed = {"items": {"required": [*many, *many, *many, *many]}}
    assert found({"a": [{}] * 3}, {"properties": {"a": {"items": {"anyOf": [needed["items"]] * 9}}}}) == []
    assert found({"a": 1}, {"properties": {"a": {"type": ["string", "null"] * 500}}}) == [
        "a must be string or null, found number"
    ]
    assert len(found({"a": 1}, {"properties": {"a": {"minimum": 10**4000}}})[0]) < 2000
    assert found({f"m{number}": 1 for number in range(20_000)}, {"additionalProperties": False}) == []
    deep: Any = {}
    for _ in range(200):
        deep = {"a": deep}
    assert found(deep, {"properties": {"a": {"$ref": "#"}}}) == []


SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "bb", 1.5, 2.0])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)
KINDS = st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array"])
SIMPLE = {
    "type": KINDS,
    "enum": st.lists(SCALARS, min_size=1, max_size=3),
    "minimum": st.integers(-2, 2),
    "maxLength": st.integers(0, 2),
    "minItems": st.integers(0, 2),
    "const": SCALARS,
}
SCHEMAS = st.recursive(
    st.fixed_dictionaries({}, optional=SIMPLE),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": KINDS,
            "items": inner,
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "required": st.lists(st.sampled_from("ab"), unique=True, max_size=2),
            "additionalProperties": st.booleans(),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
        },
    ),
    max_leaves=6,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), SCHEMAS)
def test_nothing_good_is_called_wrong(value: dict[str, Any], schema: dict[str, Any]) -> None:
    """docs/discovery.md#what-a-model-sees: whatever a full validator accepts passes."""
    if jsonschema_rs.is_valid(schema, value):
        assert found(value, schema) == []
