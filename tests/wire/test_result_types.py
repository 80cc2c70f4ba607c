"""Results that cross from one era to the other: what is added, what is taken away, and that nothing else changes.

What older revisions cannot parse is in `test_convert`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from muxway.wire import envelopes
from muxway.wire.result_types import Converter, InputRequired, result_converter
from muxway.wire.revisions import NEWEST, NEWEST_HANDSHAKE, PREFIX, REVISIONS, SERVER_INFO, Revision

from . import json_text

if TYPE_CHECKING:
    from muxway.wire.envelopes import Buffer

OURS = b'{"name":"muxway","version":"1"}'
HANDSHAKE = [revision for revision in REVISIONS.values() if not revision.stateless]


def converter(upstream: Revision = NEWEST) -> Converter:
    """What a result goes through on its way to a stateless caller."""
    convert = result_converter(NEWEST, upstream, OURS)
    assert convert is not None
    return convert


def to_handshake(result: bytes | Buffer, caller: Revision = NEWEST_HANDSHAKE) -> Buffer:
    """A stateless server's result as a handshake caller gets it."""
    convert = result_converter(caller, NEWEST, OURS)
    assert convert is not None
    return convert(result)


def members(raw: Buffer) -> dict[str, bytes]:
    """The members of an object, as bytes."""
    found = envelopes.members(bytes(raw))
    assert found is not None, raw
    return {name: bytes(value) for name, value in found.items()}


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_each_crossing_has_a_converter(revision: Revision) -> None:
    """MCP 2026-07-28, basic/index: every stateless result has a resultType, and no other has."""
    assert bytes(to_handshake(b'{"resultType":"complete","x":1}', revision)) == b'{"x":1}'
    assert members(converter(revision)(b'{"x":1}'))["resultType"] == b'"complete"'


@pytest.mark.parametrize("upstream", HANDSHAKE)
@pytest.mark.parametrize("caller", HANDSHAKE)
def test_between_handshake_revisions_only_the_old_ones_have_a_converter(caller: Revision, upstream: Revision) -> None:
    """Ours: conversion costs nothing when nothing needs converting."""
    old = caller.date < "2025-06-18"
    assert (result_converter(caller, upstream, OURS) is not None) == old
    assert result_converter(caller, upstream, OURS, wrapped=True) is not None


# --- towards a stateless caller -----------------------------------------------------------------


@pytest.mark.parametrize(
    "result",
    [b"{}", b" {}", b'{"content":[]}', b'{"content":[],"_meta":{}}', b'{"_meta":{"k":1E5}}', b'{"x":"_meta"}'],
)
def test_a_stateless_caller_gets_a_result_type_and_the_gateways_name(result: bytes) -> None:
    """MCP 2026-07-28, basic/index: resultType is a must; serverInfo is ours."""
    got = json.loads(bytes(converter()(result)))
    wanted = json.loads(result)
    meta = wanted.pop("_meta", {})
    assert got == {"resultType": "complete", **wanted, "_meta": {**meta, SERVER_INFO: json.loads(OURS)}}


@pytest.mark.parametrize("result", [b"{ }", b"{\t}", b" {  } "])
def test_an_empty_result_with_a_space_in_it_is_still_empty(result: bytes) -> None:
    """Ours: what goes out is JSON."""
    assert json.loads(bytes(converter()(result))) == {
        "resultType": "complete",
        "_meta": {SERVER_INFO: json.loads(OURS)},
    }


@settings(max_examples=80, deadline=None)
@given(
    result=json_text.distinct_members(taken=frozenset(("resultType", "_meta")), min_size=1),
    meta=json_text.distinct_members(taken=frozenset((SERVER_INFO,))),
    space=json_text.SPACE,
)
def test_nothing_else_changes_on_the_way_to_a_stateless_caller(
    result: dict[str, bytes], meta: dict[str, bytes], space: bytes
) -> None:
    """docs/behaviour.md#what-passes-untouched: byte for byte, with or without a `_meta` of the server's own."""
    bare = members(converter()(json_text.write(result, space)))
    assert bare == {**result, "resultType": b'"complete"', "_meta": bare["_meta"]}
    assert members(bare["_meta"]) == {SERVER_INFO: OURS}
    full = members(converter()(json_text.write({**result, "_meta": json_text.write(meta)}, space)))
    assert full == {**result, "resultType": b'"complete"', "_meta": full["_meta"]}
    assert members(full["_meta"]) == {**meta, SERVER_INFO: OURS}


def test_words_that_look_like_our_keys_inside_a_result_are_left_alone() -> None:
    """Ours: only the top level is ours to change."""
    inner = b'{"_meta":{"io.modelcontextprotocol/serverInfo":1},"resultType":"input_required","ttlMs":5}'
    result = b'{"content":[%s],"structuredContent":%s}' % (inner, inner)
    got = members(converter()(result))
    assert got["content"] == b"[%s]" % inner
    assert got["structuredContent"] == inner
    assert got["resultType"] == b'"complete"'
    assert members(to_handshake(result)) == members(result)


def test_between_stateless_sides_the_name_becomes_ours_and_the_rest_stays() -> None:
    """MCP 2026-07-28, basic/index: serverInfo is of who answers, here us; extensions have result types of their own."""
    result = b'{"resultType":"other","ttlMs":5,"cacheScope":"public","_meta":{"%s":{"name":"theirs"},"k":null}}'
    got = members(converter()(result % SERVER_INFO.encode()))
    meta = members(got.pop("_meta"))
    assert got == {"resultType": b'"other"', "ttlMs": b"5", "cacheScope": b'"public"'}
    assert meta == {"k": b"null", SERVER_INFO: OURS}


@pytest.mark.parametrize("upstream", REVISIONS.values())
def test_the_old_kind_of_task_is_not_mentioned_to_a_stateless_caller(upstream: Revision) -> None:
    """docs/tasks.md: the two kinds do not understand each other. A stateless server's key is its own, and stays."""
    result = b'{"_meta":{"%s":{"taskId":"1"},"k":1}}' % (PREFIX + "related-task").encode()
    meta = members(members(converter(upstream)(result))["_meta"])
    assert meta.keys() == {"k", SERVER_INFO} | ({PREFIX + "related-task"} if upstream.stateless else set())


# --- towards a handshake caller -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        (b'{"resultType":"complete"}', b"{}"),
        (b'{"resultType":"complete","content":[ 1E5 ],"x":null}', b'{"content":[ 1E5 ],"x":null}'),
        (b'{"content":[],"ttlMs":0,"cacheScope":"private"}', b'{"content":[]}'),
        (b'{"_meta":{"%s":{}},"a":1}' % SERVER_INFO.encode(), b'{"a":1}'),
        (b'{"_meta":{"%s":{},"k":-0}}' % SERVER_INFO.encode(), b'{"_meta":{"k":-0}}'),
        (b'{"_meta":{},"a":1}', b'{"_meta":{},"a":1}'),
        (b'{"_meta":null}', b'{"_meta":null}'),
        (b'{"_meta":{"k": 1}}', b'{"_meta":{"k": 1}}'),
        (b"null", b"null"),
        (b"[1]", b"[1]"),
    ],
)
def test_a_handshake_caller_does_not_see_what_only_the_other_era_knows(result: bytes, kept: bytes) -> None:
    """docs/compatibility.md#results: resultType, cache hints and serverInfo go; vendor keys stay."""
    assert bytes(to_handshake(result)) == kept


@settings(max_examples=80, deadline=None)
@given(
    # Structured content that is no object is wrapped on its way: see test_convert.
    result=json_text.distinct_members(
        taken=frozenset(("resultType", "ttlMs", "cacheScope", "_meta", "structuredContent"))
    ),
    meta=json_text.distinct_members(taken=frozenset((SERVER_INFO,)), min_size=1),
    space=json_text.SPACE,
)
def test_there_and_back_again_every_member_is_still_there(
    result: dict[str, bytes], meta: dict[str, bytes], space: bytes
) -> None:
    """docs/behaviour.md#what-passes-untouched: crossing both ways loses nothing and changes no byte of any value."""
    whole = {**result, "_meta": json_text.write(meta)}
    back = members(to_handshake(converter()(json_text.write(whole, space))))
    assert members(back.pop("_meta")) == meta
    assert back == result
    if result:
        assert members(to_handshake(converter()(json_text.write(result, space)))) == result


@pytest.mark.parametrize("result", [b'{"content":[ 1E5 ],"x":null}', b"{}", b' {"_meta":{"k": 1}}', b"[1]"])
def test_what_needs_no_change_is_the_object_that_came(result: bytes) -> None:
    """docs/design/decisions/0001-raw-payloads.md."""
    assert to_handshake(result) is result


# --- questions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "result", [b'{"resultType":"input_required","inputRequests":{}}', b'{ "a":1, "resultType" : "input_required" }']
)
def test_a_question_is_never_passed_off_as_a_result(result: bytes) -> None:
    """MCP 2026-07-28, basic/patterns/mrtr: input_required is no outcome; converters refuse it, whoever calls."""
    for caller in HANDSHAKE:
        with pytest.raises(InputRequired):
            to_handshake(result, caller)
    with pytest.raises(InputRequired):
        converter()(result)
