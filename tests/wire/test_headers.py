"""What a 2026-07-28 request says in its headers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxway.wire import envelopes
from muxway.wire.headers import (
    BadAnnotation,
    decode_value,
    encode_value,
    is_session_id,
    param_headers,
    param_values,
    stateless_headers,
)

VERSION = "io.modelcontextprotocol/protocolVersion"


def headers(method: str, **params: Any) -> dict[str, str] | None:
    return stateless_headers(method, envelopes.members(json.dumps(params).encode()) or {})


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_every_text_comes_back(text: str) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: receivers decode before they compare."""
    assert decode_value(encode_value(text)) == text


@given(st.text())
def test_every_encoded_text_can_stand_in_a_header(text: str) -> None:
    """RFC 9110 §5.5: printable ASCII without blanks at its ends."""
    value = encode_value(text)
    assert value == value.strip()
    assert all(" " <= character <= "~" for character in value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("get_weather", "get_weather"),
        ("a b", "a b"),
        ("", ""),
        (" a", "=?base64?IGE=?="),
        ("größe", "=?base64?Z3LDtsOfZQ==?="),
        ("a\nb", "=?base64?YQpi?="),
        ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
    ],
)
def test_only_what_cannot_stand_as_it_is_becomes_base64(text: str, value: str) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: what looks like the markers is itself encoded."""
    assert encode_value(text) == value


@pytest.mark.parametrize(
    "value", ["=?base64?YQ?=", "=?base64?Y Q==?=", "=?base64?YR==?=", "=?base64?/w==?=", "=?base64?ä?="]
)
def test_base64_that_is_broken_or_spelled_otherwise_is_no_value(value: str) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: undecodable is a mismatch. Ours: so is another spelling."""
    assert decode_value(value) is None


def test_blanks_around_a_value_are_not_part_of_it() -> None:
    """RFC 9110 §5.5: blanks around a value are not part of it; the conformance suite sends them."""
    assert decode_value("  x \t") == "x"


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "größe"}, "=?base64?Z3LDtsOfZQ==?="),
        ("prompts/get", {"name": "p"}, "p"),
        ("resources/read", {"uri": "file:///a"}, "file:///a"),
        ("tasks/get", {"taskId": "t1"}, "t1"),
        ("tools/list", {"name": "not a name here"}, None),
        ("tools/call", {}, None),
    ],
)
def test_a_stateless_request_repeats_what_it_is_about(method: str, params: dict[str, Any], name: str | None) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http, standard request headers."""
    expected = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method} | ({"Mcp-Name": name} if name else {})
    assert headers(method, **params, _meta={VERSION: "2026-07-28"}) == expected


def test_a_handshake_request_repeats_nothing() -> None:
    """MCP 2026-07-28, basic/index: the envelope makes the difference."""
    assert headers("tools/call", name="x") is None
    assert headers("tools/call", name="x", _meta={"progressToken": 1}) is None
    assert stateless_headers("ping", {}) is None


def test_a_session_id_is_visible_ascii() -> None:
    """MCP 2025-11-25, basic/transports: a session id is visible ASCII."""
    assert is_session_id("a-B~!")
    assert not any(map(is_session_id, ["", "a b", "ä", "a\n", "x" * 2000]))


REGION = {"type": "string", "x-mcp-header": "Region"}


def test_a_schema_says_which_arguments_are_repeated_in_headers() -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: also in nested objects; data that looks like one is none."""
    inner = {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}
    other = {"type": "object", "default": {"x-mcp-header": "No"}, "enum": [{"x-mcp-header": "No"}]}
    found = param_headers({"properties": {"region": REGION, "deep": inner, "x-mcp-header": other}})
    assert found == {("region",): "Region", ("deep", "n"): "N"}


@pytest.mark.parametrize(
    "schema",
    [
        REGION,
        {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
        {"properties": {"a": {"x-mcp-header": "A"}}},
        {"properties": {"a": {"type": ["string", "null"], "x-mcp-header": "A"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "not a token"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": ""}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": 7}}},
        {"properties": {"a": REGION, "b": {"type": "string", "x-mcp-header": "REGION"}}},
        {"properties": {"a": {"type": "array", "items": REGION}}},
        {"oneOf": [{"properties": {"a": REGION}}]},
        {"$defs": {"a": REGION}},
    ],
)
def test_an_annotation_in_the_wrong_place_is_refused(schema: Any) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: an HTTP client must not offer such a tool."""
    with pytest.raises(BadAnnotation):
        param_headers(schema)


def test_values_are_written_as_the_server_will_compare_them() -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: absent and null have no header."""
    wanted = {(name,): name.upper() for name in "abcdefg"} | {("deep", "x"): "X"}
    arguments = {"a": "eu", "b": 42, "c": 42.0, "d": True, "e": None, "f": "ü", "deep": {"x": False}}
    assert param_values(wanted, arguments) == {
        "Mcp-Param-A": "eu",
        "Mcp-Param-B": "42",
        "Mcp-Param-C": "42",
        "Mcp-Param-D": "true",
        "Mcp-Param-F": "=?base64?w7w=?=",
        "Mcp-Param-X": "false",
    }
    assert param_values(wanted, ["no object"]) == {}
