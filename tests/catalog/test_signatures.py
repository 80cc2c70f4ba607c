"""What schemas want, in a few words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxway.catalog.signatures import alternatives, kind, parameters

DEFS = {
    "Colour": {"enum": ["red", "green"], "type": "string"},
    "City": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    "Loop": {"$ref": "#/$defs/Loop"},
    "Tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/Tree"}}},
    "a/b~c": {"type": "integer"},
}
ROOT = {"$defs": DEFS}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "integer"}, "integer"),
        ({"type": ["integer", "null"]}, "integer|null"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}, "integer|null"),
        ({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, "string|string[]"),
        ({"$ref": "#/$defs/Colour"}, '"red"|"green"'),
        ({"anyOf": [{"$ref": "#/$defs/Colour"}, {"type": "null"}]}, '"red"|"green"|null'),
        ({"allOf": [{"$ref": "#/$defs/City"}], "description": "Where."}, "{name: string}"),
        ({"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}, "(integer|string)[]"),
        ({"type": "array", "items": {"$ref": "#/$defs/City"}}, "{name: string}[]"),
        ({"const": 7}, "7"),
        ({"enum": [1, "1", None]}, '1|"1"|null'),
        ({"$ref": "#/$defs/a~1b~0c"}, "integer"),
        ({"properties": {"x": {"type": "number"}}}, "{x?: number}"),
        ({"$ref": "#/$defs/Tree"}, "{left?: {left?: {left?: object}}}"),
        ({"$ref": "#/$defs/Loop"}, "any"),
        ({"$ref": "#/$defs/Nowhere"}, "any"),
        ({"$ref": "https://example.com/schema"}, "any"),
        ({}, "any"),
        (True, "any"),
        ({"type": "array"}, "array"),
        ({"type": "object"}, "object"),
    ],
)
def test_a_type_is_said_in_a_few_words(schema: object, said: str) -> None:
    """docs/cli.md#muxway-tools: `--schema` shows the types that the schema has, however it spells them."""
    assert kind(schema, ROOT) == said


def test_what_may_be_left_out_is_marked() -> None:
    """Ours: a signature as people read it."""
    schema = {
        "properties": {"text": {"type": "string"}, "n": {"$ref": "#/$defs/a~1b~0c"}},
        "required": ["text"],
        **ROOT,
    }
    assert parameters(schema) == "text: string, n?: integer"


_schemas = st.recursive(
    st.sampled_from([{"type": "string"}, {"$ref": "#/$defs/Loop"}, {"$ref": "#/$defs/Tree"}, True, 7, None, "x", []]),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(["anyOf", "oneOf", "allOf", "enum", "type", "required"]), st.lists(inner)),
        st.dictionaries(st.sampled_from(["items", "properties", "const", "$ref", "$defs"]), inner),
        st.dictionaries(st.text(max_size=3), inner),
    ),
)


@given(_schemas)
def test_any_schema_is_said_in_bounded_words(schema: Any) -> None:
    """Ours: schemas are foreign; none of them fails, takes long or fills the screen."""
    root = schema if isinstance(schema, dict) else ROOT
    assert len(kind(schema, root)) <= 241
    assert len(parameters(schema, root)) <= 250


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_union_without_end_takes_a_bounded_number_of_steps(size: int) -> None:
    """Ours: docs/behaviour.md: nothing that a server sends costs more than its length."""
    wide = {"anyOf": [{"anyOf": [{"type": "string"}] * 10}] * size}
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(100):
        deep = {"anyOf": [deep, deep]}
    assert len(alternatives(wide, {})) <= 64
    assert len(alternatives(deep, {})) <= 64
    assert len(kind({"enum": ["x" * size] * 3}, {})) <= 241
