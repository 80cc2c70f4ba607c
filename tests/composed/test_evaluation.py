"""What references, conditions and results of composed tools come to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from muxway.calls.call import Call
from muxway.calls.ports import Waiter
from muxway.composed import fitting
from muxway.composed.evaluation import (
    StepOutcome,
    StepScope,
    Unfit,
    fill,
    holds,
    items_of,
    make_result,
    read_result,
    same,
)
from muxway.composed.running import Composition
from muxway.config import parse_config
from muxway.config.templates import parse_condition, parse_template
from muxway.wire import envelopes

from ..exchange.faking import HANDSHAKE

if TYPE_CHECKING:
    from muxway.calls.ports import Running, Sink

HOSTILE = '${steps.a.result} ${input.secret} "}],{" \n \u2028 \\" $${x} {{x}} %s'
SCOPE = StepScope(
    {"x": Raw(b"1.0"), "big": Raw(b"123456789012345678901234567890"), "o": Raw(b'{"a":[1,{"b":null}]}')},
    {
        "a": StepOutcome(Raw(json.dumps({"text": HOSTILE, "list": [1, 2, 3], "n": 0}).encode())),
        "failed": StepOutcome(error="no such thing"),
        "skipped": StepOutcome(skipped=True),
    },
    Raw(b'{"id":7}'),
    4,
)


def filled(value: object, *, strict: bool = True) -> bytes:
    """A template, filled and encoded."""

    def complain(path: object, message: str) -> None:
        raise AssertionError((path, message))

    return envelopes.encode(fill(parse_template(value, (), complain), SCOPE, strict=strict))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("${input.x}", b"1.0"),
        ("${input.big}", b"123456789012345678901234567890"),
        ("${input.o.a[1]}", b'{"b":null}'),
        ("${input.o.a[1].b}", b"null"),
        ("${input.o.a[-2]}", b"1"),
        ("${input}", b'{"x":1.0,"big":123456789012345678901234567890,"o":{"a":[1,{"b":null}]}}'),
        ("${steps.a.result.list}", b"[1, 2, 3]"),
        ("${steps.a.ok}", b"true"),
        ("${steps.failed.ok}", b"false"),
        ("${steps.failed.error}", b'"no such thing"'),
        ("${steps.a.error}", b"null"),
        ("${steps.skipped.skipped}", b"true"),
        ("${item.id}", b"7"),
        ("${index}", b"4"),
        ("n=${input.x}, ${steps.a.result.list}, ${steps.failed.result}", b'"n=1.0, [1, 2, 3], "'),
        ([True, None, 1.5, "x", {"y": "${index}"}], b'[true,null,1.5,"x",{"y":4}]'),
    ],
)
def test_a_reference_becomes_the_value_as_it_came(template: object, expected: bytes) -> None:
    """docs/composed-tools.md#references: with its type and byte for byte."""
    assert filled(template) == expected


def test_hostile_text_stays_one_literal_value() -> None:
    """docs/composed-tools.md#references: text from a server, however hostile, stays one value."""
    assert json.loads(filled({"q": "${steps.a.result.text}"})) == {"q": HOSTILE}
    assert json.loads(filled({"q": "<${steps.a.result.text}>"})) == {"q": f"<{HOSTILE}>"}
    assert json.loads(filled({"a": "${steps.a.result}", "b": 1})).keys() == {"a", "b"}


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_no_value_can_be_more_than_one_value(value: Any) -> None:
    """docs/composed-tools.md#references: whatever a result holds arrives as it is, and nothing around it changes."""
    scope = StepScope({}, {"a": read_result(envelopes.encode({"structuredContent": {"v": value}}))})
    template = parse_template(
        {"one": "${steps.a.result.v}", "text": "<${steps.a.result.v}>", "two": 2}, (), pytest.fail
    )
    arrived = json.loads(envelopes.encode(fill(template, scope)))
    inside = value if isinstance(value, str) else "" if value is None else envelopes.encode(value).decode()
    assert arrived == {"one": value, "text": f"<{inside}>", "two": 2}


def test_an_argument_that_was_not_given_is_left_out_and_an_output_is_null() -> None:
    """docs/composed-tools.md#what-is-not-there."""
    template = {"a": "${input.none}", "b": ["${input.none}"], "c": "(${input.none})", "d": "${steps.failed.result.x}"}
    assert json.loads(filled(template)) == {"b": [None], "c": "()"}
    assert json.loads(filled(template, strict=False)) == {"a": None, "b": [None], "c": "()", "d": None}
    assert json.loads(filled("${steps.a.result.none.x}", strict=False)) is None


@pytest.mark.parametrize(
    "reference", ["steps.a.result.none", "steps.a.result.list[3]", "steps.a.result.n.x", "item.no"]
)
def test_an_argument_that_a_result_does_not_have_is_a_failure(reference: str) -> None:
    """Ours: a wrong call is worse than none."""
    with pytest.raises(Unfit, match="leads nowhere: an object came"):
        filled({"q": f"${{{reference}}}"})


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("${input.x}", True),
        ("${input.none}", False),
        ("${steps.a.result.n}", False),
        ("${steps.a.result.list}", True),
        ("${steps.a.result.none.deeper}", False),
        ("not ${steps.failed.ok} and ${steps.a.ok}", True),
        ("${input.x} == 1", True),
        ("${input.x} != 1", False),
        ("${input.x} == true", False),
        ("${input.none} == null", True),
        ("${steps.failed.error} == 'no such thing'", True),
        ("${input.x} < 2 and ${index} >= 4 and 'a' <= 'b'", True),
        ("${index} > 4 or false", False),
        ("(${index} == 3) == false", True),
        ("${input.o.a} == ${input.o.a}", True),
    ],
)
def test_conditions(condition: str, expected: bool) -> None:
    """docs/composed-tools.md#order: `when`."""
    assert holds(parse_condition(condition), SCOPE) is expected


@pytest.mark.parametrize("condition", ["${input.x} < 'a'", "true > 0", "${input.none} < 1", "${input.o} < 2"])
def test_what_cannot_be_compared_is_said(condition: str) -> None:
    """Ours: a condition that compares what cannot be compared says so."""
    with pytest.raises(Unfit, match="two numbers or two texts"):
        holds(parse_condition(condition), SCOPE)


def test_values_are_the_same_if_their_json_is() -> None:
    """JSON: 1 is 1.0, true is no number."""
    assert same({"a": [1, "x", None]}, {"a": [1.0, "x", None]})
    assert not same([True], [1])
    assert not same({"a": 1}, {"a": 1, "b": 2})
    assert not same([1], [1, 2])


def test_only_an_array_has_items() -> None:
    """docs/composed-tools.md#order: `forEach` takes an array."""
    complain = pytest.fail
    assert [bytes(one) for one in items_of(parse_template("${steps.a.result.list}", (), complain), SCOPE)] == [
        b"1", b"2", b"3",
    ]  # fmt: skip
    for wrong, kind in (("${input.o}", "an object"), ("${input.none}", "null"), ("${steps.a.result.text}", "text")):
        with pytest.raises(Unfit, match=f"needs an array, found {kind}"):
            items_of(parse_template(wrong, (), complain), SCOPE)


async def test_composed_tools_that_call_themselves_in_some_way_come_to_an_end() -> None:
    """Ours: the file is checked for circles, but a middleware may lead a call elsewhere."""
    tools = {"T": {"description": "d", "steps": [{"name": "s", "tool": "x__y"}]}}
    tool = parse_config({"mcpServers": {"x": {"command": "x"}}, "tools": tools}).tools["T"]

    def handle(call: Call, sink: Sink) -> Running:
        return Composition(tool, handle).request(b"", call, sink, idle=1, limit=1)

    waiter = Waiter()
    result = json.loads(await waiter.outcome(handle(Call(HANDSHAKE, "tools/call", {}), waiter)))
    assert result["isError"] is True
    assert result["content"][0]["text"].endswith("T: composed tools are used more than 3 deep")


# --- results ----------------------------------------------------------------------------------


def text(*said: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": one} for one in said]


IMAGE = {"type": "image", "data": "", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"content": text("x"), "structuredContent": {"a": 1}}, {"a": 1}),
        ({"content": text("x"), "structuredContent": [1]}, [1]),
        ({"content": text("x"), "structuredContent": None}, "x"),
        ({"content": text('{"a":\r\n [1]}')}, {"a": [1]}),
        ({"content": text(" [1,\n2]\n")}, [1, 2]),
        ({"content": text('"a"')}, '"a"'),
        ({"content": text("12")}, "12"),
        ({"content": text("{not json}")}, "{not json}"),
        ({"content": text("{}", "{}")}, "{}\n{}"),
        ({"content": []}, ""),
        ({}, ""),
        ({"content": [IMAGE]}, [IMAGE]),
        ({"content": [IMAGE, *text("x")]}, [IMAGE, *text("x")]),
    ],
)
def test_what_a_result_is_to_later_steps(result: dict[str, Any], expected: object) -> None:
    """docs/composed-tools.md#what-a-step-gives."""
    outcome = read_result(json.dumps(result).encode())
    assert outcome.ok
    assert outcome.result is not None
    assert json.loads(bytes(outcome.result)) == expected
    assert b"\n" not in bytes(outcome.result)


def test_a_tool_that_says_it_failed_has_failed() -> None:
    """MCP: isError."""
    assert read_result(json.dumps({"isError": True, "content": text("a", "b")}).encode()).error == "a\nb"
    assert read_result(b'{"isError":true,"structuredContent":{}}').error == (
        "the tool says that it failed, and nothing more"
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"a":1.0}', {"content": text('{"a":1.0}'), "structuredContent": {"a": 1.0}}),
        (b'"hi\\n"', {"content": text("hi\n")}),
        (b"[1]", {"content": text("[1]"), "structuredContent": {"result": [1]}}),
        (b"null", {"content": text("null"), "structuredContent": {"result": None}}),
    ],
)
def test_the_output_is_structure_and_text(value: bytes, expected: object) -> None:
    """docs/composed-tools.md#output."""
    assert json.loads(make_result(Raw(value))) == expected


# --- schemas ----------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"}, "x": {"type": ["number", "null"]}, "s": {"enum": ["a", "b"]},
        "list": {"type": "array", "items": {"type": "string"}}, "any": {}, "ref": {"$ref": "#/x", "type": "string"},
        "o": {"type": "object", "required": ["k"], "additionalProperties": False, "properties": {"k": {}}},
    },
    "required": ["n"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"n": 1, "x": 1.5, "s": "a", "list": ["y"], "any": object, "ref": 5, "o": {"k": 1}, "more": 1}, []),
        ({"n": 1.0, "x": None}, []),
        ({}, ["n is required"]),
        ({"n": "1"}, ["n must be integer, found string"]),
        ({"n": True}, ["n must be integer, found boolean"]),
        ({"n": 1.5, "x": "1"}, ["n must be integer, found number", "x must be null or number, found string"]),
        ({"n": 1, "s": "c"}, ["s must be one of a, b"]),
        ({"n": 1, "list": ["a", 2]}, ["list.1 must be string, found integer"]),
        ({"n": 1, "o": {"z": 1}}, ["o.k is required", "o.z is unknown; there are k"]),
    ],
)
def test_values_are_held_against_what_a_schema_plainly_says(value: Any, said: list[str]) -> None:
    """docs/composed-tools.md#when-something-fails: a value that does not fit, and why."""
    value = {key: 1 if one is object else one for key, one in value.items()}
    assert [f"{'.'.join(map(str, place))} {why}" for place, why in fitting.misfits(value, SCHEMA)] == said


def test_steps_are_held_against_the_schemas_of_their_tools() -> None:
    """docs/composed-tools.md#check-it: arguments that are missing, unknown or of the wrong type."""
    steps = [
        {"name": "a", "tool": "s__a", "arguments": {"n": "${input.n}", "s": "c", "list": "${input.n}", "typo": 1}},
        {"name": "b", "tool": "s__b", "arguments": {"n": "x${input.n}"}},
        {"name": "c", "tool": "s__b", "arguments": {"n": "${steps.a.result.count}", "o": {"k": "${steps.a.ok}"}}},
        {"name": "d", "tool": "s__b", "forEach": [1], "arguments": {"n": "${index}", "o": "${steps.e.result}"}},
        {"name": "e", "tool": "s__b", "forEach": [1], "arguments": {"n": "${item}", "list": "${steps.a.result.names}"}},
        {"name": "f", "tool": "s__gone"},
        {"name": "g", "tool": "down__x", "arguments": {"n": []}},
    ]
    schema = {"type": "object", "properties": {"n": {"type": "number"}}}
    tools = {"T": {"description": "d", "inputSchema": schema, "steps": steps}}
    config = parse_config({"mcpServers": {"s": {"command": "x"}, "down": {"command": "x"}}, "tools": tools})
    output = {"properties": {"count": {"type": "string"}, "names": {"type": "array"}}}
    definitions = {
        "s__a": {"inputSchema": SCHEMA, "outputSchema": output},
        "s__b": {"inputSchema": SCHEMA},
        "s__gone": None,
    }
    found = [*fitting.problems(config.tools["T"], definitions)]
    assert [(one.number, ".".join(map(str, one.place)), one.why) for one in found if not one.doubtful] == [
        (0, "arguments.s", "must be one of a, b"),
        (0, "arguments.list", "must be array, but ${input.n} is integer or number"),
        (1, "arguments.n", "must be integer, but text is string"),
        (2, "arguments.n", "must be integer, but ${steps.a.result.count} is string"),
        (3, "arguments.o", "must be object, but ${steps.e.result} is array"),
        (5, "tool", 'there is no tool "s__gone"'),
    ]
    assert [(one.number, one.place) for one in found if one.doubtful] == [(0, ("arguments", "typo"))]
