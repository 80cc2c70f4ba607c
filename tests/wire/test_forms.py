"""Forms of elicitation: what fits them, and what is left of them for a client of 2025-06-18."""

from __future__ import annotations

from typing import Any

import pytest

from muxway.wire import forms

FORM: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 5, "default": "Ann"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "ratio": {"type": "number"},
        "sure": {"type": "boolean", "default": False},
        "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
        "colour": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g"}]},
        "tags": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "enum": ["a", "b", "c"]}},
        "marks": {"type": "array", "items": {"anyOf": [{"const": "x", "title": "X"}]}},
    },
    "required": ["name"],
}


@pytest.mark.parametrize(
    "content",
    [
        {"name": "Bob"},
        {"name": "Bob", "age": 0, "ratio": 1, "sure": True, "size": "m", "colour": "g"},
        {"name": "Bob", "age": 3.0, "tags": ["a", "c"], "marks": ["x"]},
        {"name": "Bob", "unknown": {"deep": 1}},
    ],
)
def test_what_fits(content: dict[str, Any]) -> None:
    assert forms.misfit(FORM, content) is None


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({}, "name"),
        ([], "object"),
        (None, "object"),
        ({"name": 7}, "name"),
        ({"name": "B"}, "name"),
        ({"name": "Barnaby"}, "name"),
        ({"name": "Bob", "age": 1.5}, "age"),
        ({"name": "Bob", "age": True}, "age"),
        ({"name": "Bob", "age": -1}, "age"),
        ({"name": "Bob", "age": 151}, "age"),
        ({"name": "Bob", "ratio": "1"}, "ratio"),
        ({"name": "Bob", "sure": "yes"}, "sure"),
        ({"name": "Bob", "size": "xl"}, "size"),
        ({"name": "Bob", "colour": "Red"}, "colour"),
        ({"name": "Bob", "tags": []}, "tags"),
        ({"name": "Bob", "tags": ["a", "b", "c"]}, "tags"),
        ({"name": "Bob", "tags": ["z"]}, "tags"),
        ({"name": "Bob", "tags": "a"}, "tags"),
        ({"name": "Bob", "marks": ["y"]}, "marks"),
    ],
)
def test_what_does_not_fit_and_which_field_it_is(content: Any, named: str) -> None:
    assert named in (forms.misfit(FORM, content) or "")


@pytest.mark.parametrize("schema", [None, 7, {}, {"properties": 3, "required": "name"}, {"properties": {"a": 1}}])
def test_a_schema_that_is_none_refuses_nothing(schema: Any) -> None:
    assert forms.misfit(schema, {"a": 1}) is None


def test_a_form_for_2025_06_18_has_only_what_that_revision_knows() -> None:
    plain = {**FORM, "properties": {key: FORM["properties"][key] for key in ("name", "sure", "size", "colour")}}
    assert forms.simplified(plain) == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 2, "maxLength": 5},
            "sure": {"type": "boolean", "default": False},
            "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
            "colour": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "g"]},
        },
        "required": ["name"],
    }


def test_a_multiple_choice_cannot_be_shown_there() -> None:
    with pytest.raises(forms.CannotBeShown, match="tags"):
        forms.simplified(FORM)
