"""Tools and results in each revision's words: docs/compatibility.md#what-crosses, and that nothing else changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from muxway.wire import conversion, envelopes
from muxway.wire.result_types import result_converter
from muxway.wire.revisions import REVISIONS, Revision

from . import json_text

if TYPE_CHECKING:
    from muxway.wire.envelopes import Buffer

A, B, C, D, M = REVISIONS.values()
ALL = [A, B, C, D, M]
OURS = b'{"name":"muxway","version":"1"}'

AUDIO = {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav", "annotations": {"priority": 1}, "x-v": None}
AUDIO_RESOURCE = {
    "type": "resource",
    "resource": {"uri": "muxway://audio/0", "mimeType": "audio/wav", "blob": "UklGRg=="},
    "annotations": {"priority": 1},
    "x-v": None,
}
LINK = {"type": "resource_link", "name": "log", "uri": "file:///x.log", "size": 5, "_meta": {"k": 1}}
LINK_TEXT = {"type": "text", "text": "log: file:///x.log", "size": 5, "_meta": {"k": 1}}
WORDS = {"type": "text", "text": "done"}
ICONS = [{"src": "https://example.com/i.png"}]
OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}}
ARRAY = {"type": "array", "items": {"type": "integer"}}
ARRAY_IN_OBJECT = {"type": "object", "properties": {"result": ARRAY}, "required": ["result"]}

ids = {"ids": lambda value: value.date if isinstance(value, Revision) else None}


def copy(text: str) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": text}


def crossed(raw: Buffer, caller: Revision, upstream: Revision, *, wrapped: bool = False) -> Buffer:
    """A result as this caller gets it from this server."""
    converter = result_converter(caller, upstream, OURS, wrapped=wrapped)
    return raw if converter is None else converter(raw)


def given_to(result: dict[str, Any], caller: Revision, upstream: Revision, *, wrapped: bool = False) -> dict[str, Any]:
    """The same for Python objects, without what the stateless revision adds to each result."""
    got = json.loads(
        bytes(crossed(json.dumps(result, separators=(",", ":")).encode(), caller, upstream, wrapped=wrapped))
    )
    if caller.stateless:
        del got["resultType"], got["_meta"]
    return got


def listed(caller: Revision, **members: Any) -> dict[str, Any]:
    """What a definition with these members has in the listing for this caller, but for what every one has."""
    definition = {"name": "t", "inputSchema": {"type": "object", "title": "In"}, "x-v": None, **members}
    got = json.loads(conversion.tool_converter(caller)(json.dumps(definition).encode()))
    for kept in ("name", "inputSchema", "x-v"):
        assert got.pop(kept) == definition[kept]
    return got


# --- the table: content -------------------------------------------------------------------------


@pytest.mark.parametrize("upstream", ALL, **ids)
@pytest.mark.parametrize(
    ("caller", "shown"), [(A, AUDIO_RESOURCE), (B, AUDIO), (C, AUDIO), (D, AUDIO), (M, AUDIO)], **ids
)
def test_sound_is_an_embedded_resource_to_callers_that_know_no_sound(
    caller: Revision, shown: dict[str, Any], upstream: Revision
) -> None:
    """MCP 2025-03-26, changelog: it brought audio. docs/compatibility.md#results."""
    assert given_to({"content": [AUDIO, WORDS]}, caller, upstream) == {"content": [shown, WORDS]}


@pytest.mark.parametrize("upstream", ALL, **ids)
@pytest.mark.parametrize(("caller", "shown"), [(A, LINK_TEXT), (B, LINK_TEXT), (C, LINK), (D, LINK), (M, LINK)], **ids)
def test_a_resource_link_is_text_to_callers_that_know_no_links(
    caller: Revision, shown: dict[str, Any], upstream: Revision
) -> None:
    """MCP 2025-06-18, changelog: it brought resource links. docs/compatibility.md#results."""
    assert given_to({"content": [WORDS, LINK]}, caller, upstream) == {"content": [WORDS, shown]}


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ({"type": "resource_link", "uri": "u:1"}, copy("u:1")),
        ({"type": "resource_link", "name": "n"}, copy("n")),
        ({"type": "resource_link", "name": 5, "uri": None}, copy("")),
        ({"type": "audio", "mimeType": "audio/wav"}, copy("(a sound that came without its data)")),
        (
            {"type": "audio", "data": "AA==", "mimeType": None},
            {"type": "resource", "resource": {"uri": "muxway://audio/0", "blob": "AA=="}},
        ),
        ({"type": "video", "data": "AA=="}, {"type": "video", "data": "AA=="}),
        ({"data": "audio"}, {"data": "audio"}),
        ({"type": ["audio"]}, {"type": ["audio"]}),
        ("audio", "audio"),
        (None, None),
    ],
)
def test_blocks_that_are_incomplete_or_of_unknown_type_break_nothing(block: Any, shown: Any) -> None:
    """Ours: what we convert can be parsed; what we do not know is left alone."""
    assert given_to({"content": [block, AUDIO]}, A, D)["content"][0] == shown


def test_two_sounds_have_two_addresses() -> None:
    """Ours: a client may keep resources by their address."""
    content = given_to({"content": [AUDIO, AUDIO]}, A, D)["content"]
    assert [block["resource"]["uri"] for block in content] == ["muxway://audio/0", "muxway://audio/1"]


# --- the table: structured content --------------------------------------------------------------


@pytest.mark.parametrize(
    ("caller", "shown"),
    [
        (A, {"content": [copy("[1,2]")]}),
        (B, {"content": [copy("[1,2]")]}),
        (C, {"content": [copy("[1,2]")], "structuredContent": {"result": [1, 2]}}),
        (D, {"content": [copy("[1,2]")], "structuredContent": {"result": [1, 2]}}),
        (M, {"content": [], "structuredContent": [1, 2]}),
    ],
    **ids,
)
def test_structured_content_that_is_no_object_is_wrapped_or_dropped(caller: Revision, shown: dict[str, Any]) -> None:
    """docs/compatibility.md#results. Only a stateless server may send it (MCP 2026-07-28, server/tools)."""
    assert given_to({"content": [], "structuredContent": [1, 2]}, caller, M) == shown


@pytest.mark.parametrize("upstream", ALL, **ids)
@pytest.mark.parametrize("caller", ALL, **ids)
def test_a_structured_object_stays_or_becomes_text(caller: Revision, upstream: Revision) -> None:
    """MCP 2025-06-18, changelog: it brought structured content. docs/compatibility.md#results."""
    result = {"content": [WORDS], "structuredContent": {"n": 1}, "isError": False, "x-v": 1}
    in_words = {"content": [WORDS, copy('{"n":1}')], "isError": False, "x-v": 1}
    assert given_to(result, caller, upstream) == (in_words if caller in (A, B) else result)


@pytest.mark.parametrize("caller", [C, D], **ids)
@pytest.mark.parametrize("value", [None, True, 0, "text", [], [{}]])
def test_every_kind_of_value_can_be_wrapped(caller: Revision, value: Any) -> None:
    """MCP 2026-07-28, server/tools: structured content may be any JSON value, null too."""
    got = given_to({"content": [], "structuredContent": value}, caller, M)
    assert got == {"content": [copy(json.dumps(value))], "structuredContent": {"result": value}}


@pytest.mark.parametrize("upstream", ALL, **ids)
@pytest.mark.parametrize(
    ("caller", "shown"),
    [(A, None), (B, None), (C, {"result": {"n": 1}}), (D, {"result": {"n": 1}}), (M, {"n": 1})],
    **ids,
)
def test_an_object_is_wrapped_too_where_the_schema_was(
    caller: Revision, shown: dict[str, Any] | None, upstream: Revision
) -> None:
    """Ours: a client checks the content against the schema it was shown, so both are wrapped or neither."""
    result = {"content": [], "structuredContent": {"n": 1}}
    assert given_to(result, caller, upstream, wrapped=True).get("structuredContent") == shown


@pytest.mark.parametrize("content", ["absent", None, []])
def test_the_copy_is_made_where_there_was_no_content(content: Any) -> None:
    """MCP 2025-11-25, schema, CallToolResult: every revision requires `content`, so the copy makes one."""
    result = {"structuredContent": {"n": 1}} | ({} if content == "absent" else {"content": content})
    assert given_to(result, A, D) == {"content": [copy('{"n":1}')]}


@pytest.mark.parametrize(
    ("structured", "text"),
    [
        ({"n": 1, "m": [2]}, '{"n":1,"m":[2]}'),
        ({"n": 1, "m": [2]}, '{\n  "m": [2],\n  "n": 1\n}'),
        ({"result": 5}, "5"),
        ({"result": "five"}, "five"),
        ({"result": [1, 2]}, "[1, 2]"),
        ("five", "five"),
        ("five", '"five"'),
        ([1, 2], "[ 1, 2 ]"),
    ],
)
@pytest.mark.parametrize("caller", [A, B, C, D], **ids)
def test_a_copy_the_server_made_is_not_made_again(caller: Revision, structured: Any, text: str) -> None:
    """MCP 2025-11-25, server/tools: a server SHOULD say it in text too, in any spelling; some leave out the wrapper."""
    result = {"content": [WORDS, copy(text)], "structuredContent": structured}
    assert given_to(result, caller, M)["content"] == result["content"]


@pytest.mark.parametrize(
    ("structured", "block"),
    [
        ({"n": 1}, copy('{"n":2}')),
        ({"n": 1}, copy('{"n":true}')),
        ({"n": 1}, copy("not {json")),
        ({"n": 1}, copy("")),
        ({"n": 1}, {"type": "text"}),
        ({"n": 1}, {"type": "note", "text": '{"n":1}'}),
        ({"result": 5, "more": 1}, copy("5")),
    ],
)
def test_what_says_something_else_is_no_copy(structured: Any, block: dict[str, Any]) -> None:
    """Ours: what is dropped has been said."""
    got = given_to({"content": [block], "structuredContent": structured}, A, D)["content"]
    assert got == [block, copy(json.dumps(structured, separators=(",", ":")))]


def test_a_copy_keeps_the_spelling_of_the_original() -> None:
    """docs/behaviour.md#what-passes-untouched: number spelling and order stay, whatever Python would make of them."""
    structured = rb'{"b": 1.10, "a": 1e999, "s":"\ud83c\udf89 \"q\" \u00e9"}'
    got = json.loads(bytes(crossed(b'{"content":[],"structuredContent":%s}' % structured, B, D)))
    assert got == {"content": [copy(structured.decode())]}


def test_a_structured_null_of_a_handshake_server_is_one_that_is_absent() -> None:
    """Ours: many senders write null for what is absent; there is nothing to copy."""
    assert given_to({"content": [WORDS], "structuredContent": None}, A, D) == {"content": [WORDS]}
    assert given_to({"content": [WORDS], "structuredContent": None}, D, D) == {
        "content": [WORDS],
        "structuredContent": None,
    }


@pytest.mark.parametrize("content", ["text", 5, {"type": "audio"}])
def test_a_result_whose_content_is_no_list_is_left_alone(content: Any) -> None:
    """Ours: it can be parsed by nobody, and guessing would hide the server's fault."""
    result = {"content": content, "structuredContent": {"n": "audio"}}
    assert given_to(result, A, D) == result


# --- the table: definitions ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("caller", "shown"), [(A, None), (B, None), (C, ARRAY_IN_OBJECT), (D, ARRAY_IN_OBJECT), (M, ARRAY)], **ids
)
def test_an_output_schema_of_no_object_is_wrapped_or_dropped(caller: Revision, shown: Any) -> None:
    """docs/compatibility.md#definitions-of-tools."""
    assert listed(caller, outputSchema=ARRAY) == ({} if shown is None else {"outputSchema": shown})


@pytest.mark.parametrize("caller", ALL, **ids)
def test_an_output_schema_of_an_object_stays_where_it_is_known(caller: Revision) -> None:
    """MCP 2025-06-18, changelog: output schemas came with structured content."""
    assert listed(caller, outputSchema=OBJECT) == ({} if caller in (A, B) else {"outputSchema": OBJECT})


TOOL = {"title": "T", "annotations": {"title": "old", "readOnlyHint": True}, "icons": ICONS, "execution": {"x": 1}}


@pytest.mark.parametrize(
    ("caller", "shown"),
    [
        (A, {}),
        (B, {"annotations": {"title": "T", "readOnlyHint": True}}),
        (C, {"title": "T", "annotations": TOOL["annotations"]}),
        (D, {"title": "T", "annotations": TOOL["annotations"], "icons": ICONS}),
        (M, {"title": "T", "annotations": TOOL["annotations"], "icons": ICONS}),
    ],
    **ids,
)
def test_each_revision_is_shown_the_members_it_knows(caller: Revision, shown: dict[str, Any]) -> None:
    """docs/compatibility.md#definitions-of-tools. `execution` goes to nobody, because no tasks are offered."""
    assert listed(caller, **TOOL) == shown


@pytest.mark.parametrize(
    ("members", "shown"),
    [
        ({"title": "T"}, {"annotations": {"title": "T"}}),
        ({"title": "T", "annotations": None}, {"annotations": {"title": "T"}}),
        ({"title": None, "annotations": {"title": "old"}}, {"annotations": {"title": "old"}}),
        ({"annotations": {"title": "old"}}, {"annotations": {"title": "old"}}),
        ({"title": 5}, {}),
    ],
)
def test_a_title_moves_into_the_annotations_for_2025_03_26(members: dict[str, Any], shown: dict[str, Any]) -> None:
    """docs/compatibility.md#definitions-of-tools; MCP 2025-11-25, schema: of two titles the tool's own is displayed."""
    assert listed(B, **members) == shown


@pytest.mark.parametrize("caller", ALL, **ids)
def test_meta_stays_for_everybody(caller: Revision) -> None:
    """docs/behaviour.md#what-passes-untouched: unknown keys of `_meta` pass; older clients ignore them."""
    assert listed(caller, _meta={"ui": {"resourceUri": "ui://x"}}) == {"_meta": {"ui": {"resourceUri": "ui://x"}}}


# --- wrapped schemas ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [{}, True, False, ARRAY, {"type": ["object", "null"]}, {"oneOf": [OBJECT, ARRAY]}, {"properties": {}}],
)
def test_whatever_does_not_say_object_is_wrapped(schema: Any) -> None:
    """MCP 2025-11-25, schema, Tool: the root must say `type: object`; typed clients refuse the whole list else."""
    assert listed(D, outputSchema=schema)["outputSchema"]["properties"] == {"result": schema}
    assert conversion.is_wrapped(json.dumps({"name": "t", "outputSchema": schema}).encode())


@pytest.mark.parametrize("schema", [None, [], "object", 5])
def test_what_is_no_schema_is_dropped(schema: Any) -> None:
    """Ours: one server's mistake must not cost a client the whole list."""
    assert listed(D, outputSchema=schema) == {}


@pytest.mark.parametrize(
    ("definition", "wrapped"),
    [
        ({"outputSchema": OBJECT}, False),
        ({"inputSchema": {"properties": {"outputSchema": ARRAY}}}, False),
        ({}, False),
        ({"outputSchema": ARRAY}, True),
    ],
)
def test_only_a_tools_own_output_schema_decides(definition: dict[str, Any], wrapped: bool) -> None:
    """Ours: only the top level of a definition is the tool's own word."""
    assert conversion.is_wrapped(json.dumps(definition).encode()) is wrapped


def test_references_inside_a_wrapped_schema_still_lead_somewhere() -> None:
    """JSON Schema 2020-12 §8.2.3.1: a local reference counts from the root, which has moved."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "array",
        "items": {"$ref": "#/$defs/node"},
        "$defs": {"node": {"anyOf": [{"$ref": "#"}, {"$ref": "#anchor"}, {"$ref": "https://example.com/#/x"}]}},
    }
    got = listed(D, outputSchema=schema)["outputSchema"]
    assert got["$schema"] == schema["$schema"]
    inner = got["properties"]["result"]
    assert "$schema" not in inner
    assert inner["items"] == {"$ref": "#/properties/result/$defs/node"}
    assert inner["$defs"]["node"]["anyOf"] == [
        {"$ref": "#/properties/result"},
        {"$ref": "#anchor"},
        {"$ref": "https://example.com/#/x"},
    ]


def test_references_of_a_schema_with_an_id_stay() -> None:
    """JSON Schema 2020-12 §8.2.1: they count from where the id stands."""
    schema = {"$id": "https://example.com/s", "type": "array", "items": {"$ref": "#/$defs/x"}, "$defs": {"x": {}}}
    assert listed(D, outputSchema=schema)["outputSchema"]["properties"]["result"] == schema


# --- laws ---------------------------------------------------------------------------------------

KNOWN = frozenset(("content", "structuredContent", "resultType", "ttlMs", "cacheScope", "_meta"))
TOOL_MEMBERS = frozenset(("name", "inputSchema", "title", "annotations", "icons", "execution", "outputSchema"))
handshake = st.sampled_from([A, B, C, D])
unknown = json_text.distinct_members(taken=KNOWN)


def opened(raw: Buffer) -> dict[str, bytes]:
    """The members of an object, as bytes."""
    json.loads(bytes(raw))
    found = envelopes.members(raw)
    assert found is not None
    return {name: bytes(value) for name, value in found.items()}


@settings(max_examples=100, deadline=None)
@given(
    members=unknown,
    texts=st.lists(json_text.strings, max_size=3),
    space=json_text.SPACE,
    pair=st.tuples(handshake, handshake),
)
def test_a_result_with_nothing_to_convert_is_the_object_that_came(
    members: dict[str, bytes], texts: list[bytes], space: bytes, pair: tuple[Revision, Revision]
) -> None:
    """docs/behaviour.md#what-passes-untouched: what a client can parse passes byte for byte."""
    blocks = [json_text.write({"type": b'"text"', "text": text}, space) for text in texts]
    result = Raw(json_text.write({**members, "content": b"[" + b" ,".join(blocks) + b"]"}, space))
    assert crossed(result, *pair) is result


@settings(max_examples=100, deadline=None)
@given(value=json_text.objects, caller=st.sampled_from([C, D]), upstream=handshake)
def test_between_newer_handshake_revisions_not_even_a_word_is_looked_for(
    value: bytes, caller: Revision, upstream: Revision
) -> None:
    """Ours: nothing is paid where nothing can need it."""
    assert result_converter(caller, upstream, OURS) is None
    assert crossed(value, caller, upstream) is value


@settings(max_examples=150, deadline=None)
@given(
    members=unknown,
    extra=json_text.distinct_members(taken=frozenset(("type", "text", "name", "uri", "data", "mimeType", "resource"))),
    kind=st.sampled_from(("audio", "resource_link", "text", "image", "what")),
    structured=st.none() | json_text.values,
    space=json_text.SPACE,
    caller=st.sampled_from([A, B]),
    upstream=st.sampled_from(ALL),
)
def test_converting_loses_no_member_it_does_not_know(
    members: dict[str, bytes],
    extra: dict[str, bytes],
    kind: str,
    structured: bytes | None,
    space: bytes,
    caller: Revision,
    upstream: Revision,
) -> None:
    """docs/behaviour.md#what-passes-untouched: unknown members of results and blocks stay; and it is still JSON."""
    block = json_text.write({**extra, "type": json.dumps(kind).encode(), "data": b'"AA=="', "uri": b'"u:1"'}, space)
    result = {**members, "content": b"[" + block + b"]"} | (
        {} if structured is None else {"structuredContent": structured}
    )
    got = opened(crossed(json_text.write(result, space), caller, upstream))
    blocks = envelopes.items(got.pop("content"))
    assert blocks is not None
    assert got == members
    assert extra.items() <= opened(blocks[0]).items()
    shown = [json.loads(bytes(block)).get("type") for block in blocks]
    assert "resource_link" not in shown
    assert caller.audio or "audio" not in shown
    if structured is not None and structured != b"null":
        assert json.loads(bytes(blocks[-1])) == copy(structured.decode())


@settings(max_examples=100, deadline=None)
@given(members=unknown, value=json_text.values, space=json_text.SPACE, caller=st.sampled_from([C, D]))
def test_wrapping_keeps_the_value_as_it_was_written(
    members: dict[str, bytes], value: bytes, space: bytes, caller: Revision
) -> None:
    """docs/behaviour.md#what-passes-untouched: inside a wrapper, too."""
    result = json_text.write({**members, "content": b"[]", "structuredContent": value, "resultType": b'"x"'}, space)
    got = opened(crossed(result, caller, M))
    content = json.loads(got.pop("content"))
    structured = got.pop("structuredContent")
    assert got == members
    if value[:1] == b"{":
        assert (structured, content) == (value, [])
    else:
        assert opened(structured) == {"result": value}
        assert content == [copy(value.decode())]


@settings(max_examples=100, deadline=None)
@given(members=json_text.distinct_members(taken=TOOL_MEMBERS), space=json_text.SPACE, caller=st.sampled_from(ALL))
def test_a_definition_with_nothing_to_convert_is_the_object_that_came(
    members: dict[str, bytes], space: bytes, caller: Revision
) -> None:
    """docs/behaviour.md#what-passes-untouched; words of ours deeper down are somebody else's."""
    schema = b'{"title":"In","properties":{"icons":{},"execution":{},"annotations":{},"outputSchema":{}}}'
    definition = json_text.write({"name": b'"t"', "inputSchema": schema, **members}, space)
    assert conversion.tool_converter(caller)(definition) is definition


@settings(max_examples=100, deadline=None)
@given(
    members=json_text.distinct_members(taken=TOOL_MEMBERS),
    output=st.none() | json_text.values,
    title=st.none() | json_text.values,
    annotations=st.none() | json_text.values,
    caller=st.sampled_from(ALL),
)
def test_a_converted_definition_has_all_its_unknown_members(
    members: dict[str, bytes],
    output: bytes | None,
    title: bytes | None,
    annotations: bytes | None,
    caller: Revision,
) -> None:
    """docs/behaviour.md#what-passes-untouched: unknown members of tools stay; schemas pass as they are."""
    odd = {"outputSchema": output, "title": title, "annotations": annotations, "icons": b"[]", "execution": b"{}"}
    schema = b'{"type":"object","maximum":1E5}'
    given_ = {"name": b'"t"', "inputSchema": schema, **members} | {k: v for k, v in odd.items() if v is not None}
    got = opened(conversion.tool_converter(caller)(json_text.write(given_)))
    assert {"name": b'"t"', "inputSchema": schema, **members}.items() <= got.items()
    assert "execution" not in got
    assert ("icons" in got) == caller.icons


@pytest.mark.parametrize(
    "result",
    [
        rb'{"content":[{"type":"aud\u0069o","data":"AA=="}]}',
        rb'{"content":[{"type":"resource\u005flink","uri":"u:1"}]}',
        rb'{"content":[],"\u0073tructuredContent":{}}',
        rb'{"content":[{"\u0074ype":"audio","data":"AA=="}]}',
    ],
)
def test_words_behind_escapes_are_seen(result: bytes) -> None:
    """Ours: a client reads them as what they are, so must we."""
    assert crossed(result, A, D) is not result
    definition = rb'{"name":"t","inputSchema":{},"\u0065xecution":{}}'
    assert conversion.tool_converter(D)(definition) == b'{"name":"t","inputSchema":{}}'


@pytest.mark.parametrize("caller", [A, B], **ids)
def test_words_inside_a_text_are_no_reason_to_touch_a_result(caller: Revision) -> None:
    """Ours: a false alarm of the search costs time, nothing else."""
    result = Raw(
        rb'{"content":[{"type":"text","text":"audio"},{ "audio":1}],"x":["resource_link","structuredContent"]}'
    )
    assert crossed(result, caller, D) is result


@pytest.mark.parametrize("depth", [500, 100_000])
def test_depth_without_end_ends_nobody(depth: int) -> None:
    """docs/behaviour.md#size-limits: nested without end is a fault of one message."""
    deep = b"[" * depth + b"]" * depth
    result = b'{"content":[{"type":"text","text":"%s"}],"structuredContent":%s}' % (deep, deep)
    for caller in (A, D):
        assert crossed(result, caller, M)
