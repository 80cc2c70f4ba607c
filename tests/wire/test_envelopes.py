"""Envelopes: opened one level, everything inside still the bytes that came."""

from __future__ import annotations

import contextlib
import inspect
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from muxway import errors
from muxway.errors import ParseError, RpcError, UpstreamError, UpstreamSaid
from muxway.wire import envelopes
from muxway.wire.envelopes import ABSENT, NotAnEnvelope
from muxway.wire.framing import LineFramer

from . import json_text

if TYPE_CHECKING:
    from collections.abc import Callable

LEGAL_IDS = [
    b"1",
    b"0",
    b"-7",
    b"-0",
    b"123456789012345678901234567890",
    b'"1"',
    b'""',
    b'"r-41"',
    b'"\\u0031"',
    '"é\u2028"'.encode(),
]
ILLEGAL_IDS = [b"null", b"1.0", b"1.5", b"1e2", b"1E2", b"true", b"false", b"{}", b"[]", b"[1]"]


# --- ids --------------------------------------------------------------------------------------


@pytest.mark.parametrize("id_", LEGAL_IDS)
def test_an_id_goes_back_as_it_came(id_: bytes) -> None:
    """docs/behaviour.md#what-passes-untouched: ids of either JSON type return as they came."""
    envelope = envelopes.decode(b'{"jsonrpc":"2.0","id": %s ,"method":"ping"}' % id_)
    assert envelopes.is_id(envelope.id)
    answer = b"".join(envelopes.result(envelope.id, b"{}"))
    assert answer == b'{"jsonrpc":"2.0","id":%s,"result":{}}\n' % id_


@pytest.mark.parametrize("id_", ILLEGAL_IDS)
def test_what_is_no_string_and_no_integer_is_no_id(id_: bytes) -> None:
    """MCP 2025-11-25, basic/index: never null; JSON-RPC 2.0 §4: no fraction, and a boolean is not an integer."""
    assert not envelopes.is_id(envelopes.decode(b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % id_).id)


def test_an_absent_id_is_told_from_null() -> None:
    """JSON-RPC 2.0 §4.1: without an id it is a notice; MCP 2025-11-25, basic/index: with null it is a mistake."""
    assert envelopes.decode(b'{"jsonrpc":"2.0","method":"m"}').id is ABSENT
    assert bytes(envelopes.decode(b'{"jsonrpc":"2.0","id":null,"method":"m"}').id) == b"null"
    assert not envelopes.is_id(ABSENT)


def test_an_error_without_a_readable_id_says_null() -> None:
    """JSON-RPC 2.0 §5: null only when the offending id could not be read."""
    assert b"".join(envelopes.failure(None, ParseError("x"))).startswith(b'{"jsonrpc":"2.0","id":null,"error":')
    assert b"".join(envelopes.failure(b"", ParseError("x"))).startswith(b'{"jsonrpc":"2.0","id":null,"error":')
    assert b"".join(envelopes.failure(b'"a"', ParseError("x"))).startswith(b'{"jsonrpc":"2.0","id":"a","error":')


# --- decoding ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}',
        b' {"jsonrpc" : "2.0" , "id" : 1 , "method" : "tools/list" } \r',
        b'{"method":"tools/list","id":1,"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools\\/list","vendor":{"x":[1]},"trace":null}',
    ],
)
def test_a_request_is_known_in_any_spelling(frame: bytes) -> None:
    """RFC 8259 §2, §4: order and blanks do not matter; explicit nulls and unknown members do not either."""
    envelope = envelopes.decode(frame)
    assert (bytes(envelope.id), envelope.method, envelope.params) == (b"1", "tools/list", None)
    assert envelope.result is ABSENT
    assert envelope.error is ABSENT


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b" ",
        b"junk",
        b'{"jsonrpc":"2.0","id":1',
        b'{"jsonrpc":"2.0","id":1,"method":"m"} x',
        b'{"jsonrpc":"2.0","id":1,"method":"m"}{}',
        b"{'jsonrpc':'2.0'}",
        b'{"jsonrpc":"2.0","id":1,"result":NaN}',
        b'{"jsonrpc":"2.0","id":1,"result":01}',
        b'{"jsonrpc":"2.0","id":1,"result":[1,]}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":1,}}',
        b'{"jsonrpc":"2.0","id":1,"result":"a\tb"}',
        b'{"jsonrpc":"2.0","id":1,"result":"\\x"}',
        b'{"jsonrpc":"2.0","id":1,"result":"\\ud800"}',
        b'{"jsonrpc":"2.0","id":1,"result":"\xff"}',
        b'{"jsonrpc":"2.0","id":1,"result":"\xed\xa0\x80"}',
        b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"m"}',
    ],
)
def test_what_is_not_json_is_a_parse_error_however_deep_the_fault_lies(frame: bytes) -> None:
    """JSON-RPC 2.0 §5.1: -32700. A payload we do not open is checked too: broken bytes never reach the other side."""
    with pytest.raises(ParseError):
        envelopes.decode(frame)


@pytest.mark.parametrize(
    ("frame", "id_"),
    [
        (b"[]", b""),
        (b"1", b""),
        (b'"text"', b""),
        (b"null", b""),
        (b"{}", b""),
        (b'{"id":1,"method":"m"}', b"1"),
        (b'{"jsonrpc":"1.0","id":"a","method":"m"}', b'"a"'),
        (b'{"jsonrpc":2.0,"id":1,"method":"m"}', b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}', b"1"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}', b"1"),
        (b'{"jsonrpc":"2.0","id":1.5,"method":5}', b""),
        (b'{"jsonrpc":"2.0","id":null,"method":5}', b""),
    ],
)
def test_json_that_is_no_message_is_told_apart_and_keeps_its_id(frame: bytes, id_: bytes) -> None:
    """JSON-RPC 2.0 §5.1: -32600, and §5: under its own id whenever one can be read."""
    with pytest.raises(NotAnEnvelope) as caught:
        envelopes.decode(frame)
    assert caught.value.id == id_
    assert str(caught.value)


@pytest.mark.parametrize(
    "frame",
    [
        b'[INFO] ready {"jsonrpc":"2.0","id":1,"result":{}}',
        b'2026-01-01 ready {"jsonrpc":"2.0","id":1,"result":{}}',
        b'"quoted" {"jsonrpc":"2.0","id":1,"result":{}}',
        b'[{"jsonrpc"',
        b'{"jsonrpc":"1.0",',
        b"123 apples",
    ],
)
def test_a_line_that_only_begins_like_json_is_a_parse_error(frame: bytes) -> None:
    """JSON-RPC 2.0 §5.1: -32700. Of junk before a message the commonest begins with [ or a digit."""
    with pytest.raises(ParseError):
        envelopes.decode(frame)


@pytest.mark.parametrize("depth", [5_000, 200_000])
def test_nesting_without_end_is_a_parse_error(depth: int) -> None:
    """docs/behaviour.md#size-limits: levels are limited; no message can exhaust the stack."""
    deep = b"[" * depth + b"]" * depth
    with pytest.raises(ParseError):
        envelopes.decode(b'{"jsonrpc":"2.0","id":1,"result":' + deep + b"}")
    with pytest.raises(ParseError):
        envelopes.decode_batch(b"[" + deep + b"]")
    with pytest.raises(ParseError):
        envelopes.value(deep)


@pytest.mark.parametrize("read", [envelopes.decode, envelopes.salvage, envelopes.members, envelopes.said_error])
def test_nesting_without_end_escapes_from_no_reader(read: Callable[[bytes], object]) -> None:
    """docs/behaviour.md#size-limits: one deep message from anybody must not end the loop that read it."""
    deep = b"[" * 5_000 + b"]" * 5_000
    frame = b'{"jsonrpc":"1.0","id":1,"code":1,"data":' + deep + b',"result":' + deep + b"}"
    with contextlib.suppress(ParseError, NotAnEnvelope):
        read(frame)


# --- batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize("blank", [b"", b" ", b"\n  "])
@pytest.mark.parametrize("name", [b'"a"', b'"\\""', b'"\\\\"', b'""', b'"\\u0061"'])
@pytest.mark.parametrize("value", [b"1", b'"\\""', b'{"b":"\\\\","b":""}'])
def test_a_duplicate_key_is_seen_in_any_spelling(name: bytes, value: bytes, blank: bytes) -> None:
    """docs/behaviour.md#over-http: a filter in front of us may heed the other one (RFC 8259 §4)."""
    colon, comma = b":" + blank, b"," + blank
    once, twice = (
        b"{" + comma.join([name + colon + value, b'"c"' + colon + b"2", *more]) + b"}"
        for more in ([], [name + colon + b"3"])
    )

    def message(more: bytes, params: bytes) -> bytes:
        lines = (b'"jsonrpc"' + colon + b'"2.0"', b'"id"' + colon + b'"q"', b'"method"' + colon + b'"m"', more)
        return b"{" + comma.join([*filter(None, lines), b'"params"' + colon + params]) + b"}"

    inside = b'{"_meta"' + colon
    for good in (message(b"", once), message(b"", inside + once + b"}"), message(name + colon + value, once)):
        assert envelopes.decode_strict(good).method == "m"
    method = b'"method"' + colon + b'"m"'
    for bad in (message(b"", twice), message(b"", inside + twice + b"}"), message(method, once)):
        with pytest.raises(ParseError, match="duplicate key"):
            envelopes.decode_strict(bad)


def test_a_batch_comes_apart_into_its_own_bytes() -> None:
    """MCP 2025-03-26, basic/index: receivers must accept batches."""
    parts = [b'{"jsonrpc":"2.0", "id":1,"method":"a"}', b"5", b'{"x":1E5}']
    frame = b" [" + b" , ".join(parts) + b"]"
    assert envelopes.is_batch(frame)
    assert envelopes.decode_batch(frame) == parts
    assert envelopes.decode_batch(b"[]") == []
    assert not envelopes.is_batch(b'{"a":[]}')
    assert not envelopes.is_batch(b"")


@pytest.mark.parametrize("frame", [b"[", b"[1,]", b"[INFO] x", b"{}", b"[] x", b""])
def test_a_broken_batch_is_a_parse_error(frame: bytes) -> None:
    """JSON-RPC 2.0 §6: an array that is no JSON is -32700."""
    with pytest.raises(ParseError):
        envelopes.decode_batch(frame)


# --- byte for byte ----------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    params=json_text.distinct_members(),
    unknown=json_text.values,
    space=json_text.SPACE,
    id_=st.one_of(st.integers().map(lambda number: b"%d" % number), json_text.strings),
)
def test_params_keep_their_bytes(params: dict[str, bytes], unknown: bytes, space: bytes, id_: bytes) -> None:
    """docs/behaviour.md#what-passes-untouched: arguments cross unchanged."""
    frame = json_text.write(
        {
            "jsonrpc": b'"2.0"',
            "x-unknown": unknown,
            "id": id_,
            "method": b'"tools/call"',
            "params": json_text.write(params, space),
        },
        space,
    )
    envelope = envelopes.decode(frame)
    assert bytes(envelope.id) == id_
    assert {name: bytes(raw) for name, raw in (envelope.params or {}).items()} == params
    sent = b"".join(envelopes.request(5, "tools/call", envelopes.object_of((envelope.params or {}).items())))
    (line,) = LineFramer().feed(sent)
    assert isinstance(line, bytes)
    again = envelopes.decode(line).params or {}
    assert [(name, bytes(raw)) for name, raw in again.items()] == list(params.items())


@settings(max_examples=200, deadline=None)
@given(result=json_text.objects, space=json_text.SPACE)
def test_a_result_keeps_its_bytes(result: bytes, space: bytes) -> None:
    """docs/behaviour.md#what-passes-untouched: nulls, big integers, 1E5, -0, 1.0, look-alike keys, non-ASCII."""
    frame = json_text.write({"jsonrpc": b'"2.0"', "id": b"7", "result": result}, space)
    envelope = envelopes.decode(frame)
    assert bytes(envelope.result) == result
    assert (
        b"".join(envelopes.result(b'"own"', envelope.result)) == b'{"jsonrpc":"2.0","id":"own","result":%s}\n' % result
    )


@settings(max_examples=100, deadline=None)
@given(data=json_text.values, message=json_text.strings)
def test_an_error_of_the_upstream_keeps_its_bytes(data: bytes, message: bytes) -> None:
    """docs/behaviour.md#what-passes-untouched: errors of the server pass unchanged."""
    error = b'{"x":null,"code": -32000 ,"message":%s,"data":%s}' % (message, data)
    envelope = envelopes.decode(b'{"jsonrpc":"2.0","id":1,"error":%s}' % error)
    said = envelopes.said_error(envelope.error)
    assert said is not None
    assert envelopes.error_body(said) == error
    assert said.code == -32000
    assert said.message == json.loads(message)


def test_an_error_whose_data_no_float_can_hold_is_still_passed_on() -> None:
    """docs/behaviour.md#what-passes-untouched: errors of the server pass unchanged, number spelling included."""
    error = b'{"code":1,"message":"too big","data":{"limit":1e999}}'
    said = envelopes.said_error(Raw(error))
    assert said is not None
    assert envelopes.error_body(said) == error


@pytest.mark.parametrize(
    "error",
    [
        b"null",
        b'"text"',
        b"[]",
        b"{}",
        b'{"message":"m"}',
        b'{"code":"1","message":"m"}',
        b'{"code":1.5,"message":"m"}',
    ],
)
def test_an_error_without_an_integer_code_is_none(error: bytes) -> None:
    """JSON-RPC 2.0 §5.1: code must be an integer."""
    assert envelopes.said_error(Raw(error)) is None


# --- errors -----------------------------------------------------------------------------------

RPC_ERRORS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, RpcError) and kind not in (UpstreamSaid, UpstreamError)
]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.RpcError, -32603),
        (errors.ParseError, -32700),
        (errors.InvalidRequest, -32600),
        (errors.MethodNotFound, -32601),
        (errors.InvalidParams, -32602),
        (errors.CallRefused, -32602),
        (errors.ToolNotFound, -32601),
        (errors.NameNotPrefixed, -32602),
        (errors.UnsupportedVersion, -32022),
    ],
)
def test_each_error_has_its_code_on_the_wire(kind: type[RpcError], code: int) -> None:
    """docs/errors.md, the table."""
    assert envelopes.error_body(kind("why")) == b'{"code":%d,"message":"why"}' % code
    assert kind in RPC_ERRORS


def test_the_table_above_leaves_no_error_out() -> None:
    """Ours: whoever adds an error class decides its code here."""
    assert [kind.__name__ for kind in RPC_ERRORS] == [
        "CallRefused",
        "InvalidParams",
        "InvalidRequest",
        "MethodNotFound",
        "NameNotPrefixed",
        "ParseError",
        "RpcError",
        "ToolNotFound",
        "UnsupportedVersion",
    ]


def test_code_and_data_of_one_error_can_be_its_own() -> None:
    """docs/errors.md: the same fact has another code in another revision."""
    error = errors.ToolNotFound("Tool not found: é", code=-32602, data={"muxway": {"nearest": ["a"]}})
    body = envelopes.error_body(error)
    assert body == '{"code":-32602,"message":"Tool not found: é","data":{"muxway":{"nearest":["a"]}}}'.encode()
    assert errors.ToolNotFound("x").code == -32601, "the class is not changed by one of its errors"


def test_a_failed_upstream_is_named_in_the_data() -> None:
    """docs/errors.md#-32603-the-server-gave-no-usable-answer: data.muxway = {reason, server}."""
    body = json.loads(envelopes.error_body(UpstreamError("github", "lost", "gone")))
    assert body == {
        "code": -32603,
        "message": "gone",
        "data": {"muxway": {"reason": "lost", "upstream": "github"}},
    }


# --- frames to send ---------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(json_text.distinct_members())
def test_an_object_comes_apart_and_together_again(wanted: dict[str, bytes]) -> None:
    """Ours: members(object_of(x)) is x, in x's order."""
    found = envelopes.members(envelopes.object_of(wanted.items()))
    assert found is not None
    assert [(name, bytes(raw)) for name, raw in found.items()] == list(wanted.items())


def test_requests_and_notices_are_one_line_each() -> None:
    """MCP 2025-11-25, basic/transports, stdio: one message a line, no newline inside."""
    assert b"".join(envelopes.request(1, "ping")) == b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    assert b"".join(envelopes.request(b'"a"', "m", b"{}")) == b'{"jsonrpc":"2.0","id":"a","method":"m","params":{}}\n'
    assert b"".join(envelopes.notification("n")) == b'{"jsonrpc":"2.0","method":"n"}\n'
    assert b"".join(envelopes.notification("a\nb", b"{}")) == b'{"jsonrpc":"2.0","method":"a\\nb","params":{}}\n'
    assert b"".join(envelopes.result(b"1", b"{", b'"a":1', b"}")) == b'{"jsonrpc":"2.0","id":1,"result":{"a":1}}\n'


@pytest.mark.parametrize(
    ("raw", "text", "number", "is_object", "members", "items"),
    [
        (b'"a\\u00e9"', "aé", None, False, None, None),
        (b"1E2", None, 100.0, False, None, None),
        (b"-0", None, 0.0, False, None, None),
        (b"true", None, None, False, None, None),
        (b"null", None, None, False, None, None),
        (b"{}", None, None, True, {}, None),
        (b"[1]", None, None, False, None, [b"1"]),
    ],
)
def test_a_value_is_read_as_what_it_is_and_as_nothing_else(
    raw: bytes, text: str | None, number: float | None, is_object: bool, members: object, items: object
) -> None:
    """Ours: `"1"` is no number, 1 no string, true neither."""
    assert envelopes.text(raw) == text
    assert envelopes.number(raw) == number
    assert envelopes.is_object(raw) is is_object
    assert envelopes.members(raw) == members
    found = envelopes.items(raw)
    assert (found if found is None else [bytes(item) for item in found]) == items


def test_nothing_is_read_from_nothing() -> None:
    """Ours: an absent member is neither text nor number."""
    assert envelopes.text(None) is None
    assert envelopes.number(None) is None


# --- repairs ----------------------------------------------------------------------------------

GOOD = b'{"jsonrpc":"2.0","id":7,"result":{"a":[1E5,null]}}'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\xef\xbb\xbf", b""),
        (b"\xef\xbb\xbf", b"\r"),
        (b"Server started on stdio", b""),
        (b"[INFO] ready ", b""),
        (b"2026-01-01T00:00:00 (not json) ", b""),
        (b"\x1b[32mok\x1b[0m ", b" \r"),
        (b"\xff\xfe broken bytes ", b""),
        (b"\x00\x00", b""),
    ],
)
def test_a_good_message_is_saved_from_what_stands_around_it(before: bytes, after: bytes) -> None:
    """docs/behaviour.md#a-server-talks-nonsense: a byte order mark, junk before a message, CR LF are forgiven."""
    envelope = envelopes.salvage(before + GOOD + after)
    assert envelope is not None
    assert bytes(envelope.id) == b"7"
    assert bytes(envelope.result) == b'{"a":[1E5,null]}'


@pytest.mark.parametrize("start", [b'"id":1,"jsonrpc":"2.0"', b'"result":{},"id":1,"jsonrpc":"2.0"'])
def test_a_message_is_found_whichever_member_comes_first(start: bytes) -> None:
    """Ours: order of members means nothing in JSON."""
    assert envelopes.salvage(b"junk {" + start + b"}") is not None


@pytest.mark.parametrize(
    ("came", "kept"),
    [
        (rb"\ud800", rb"\ufffd"),
        (rb"\udc00", rb"\ufffd"),
        (rb"a\uD83Db", rb"a\ufffdb"),
        (rb"\ud800\ud800", rb"\ufffd\ufffd"),
        (rb"\udc00\ud800", rb"\ufffd\ufffd"),
        (rb"\ud800\ud83c\udf89", rb"\ufffd\ud83c\udf89"),
        (rb"\ud83c\udf89\udf89", rb"\ud83c\udf89\ufffd"),
        (rb"\ud83c\udf89 \ud800", rb"\ud83c\udf89 \ufffd"),
        (rb"\\ud800 \ud800", rb"\\ud800 \ufffd"),
        (rb"\\\ud800", rb"\\\ufffd"),
        (rb"\\\\ud800\udfff", rb"\\\\ud800\ufffd"),
        (rb"\u00e9\ud800", rb"\u00e9\ufffd"),
        (b"\xc3\xa9\xff", b"\xc3\xa9\xef\xbf\xbd"),
        (b"\xed\xa0\x80", b"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"),
    ],
)
def test_only_what_is_broken_inside_a_string_is_replaced(came: bytes, kept: bytes) -> None:
    """docs/behaviour.md#a-server-talks-nonsense: broken UTF-8, half a pair go; pairs and escaped backslashes stay."""
    frame = b'{"jsonrpc":"2.0","id":1,"result":"%s"}'
    with pytest.raises(ParseError):
        envelopes.decode(frame % came)
    envelope = envelopes.salvage(frame % came)
    assert envelope is not None
    assert bytes(envelope.result) == b'"%s"' % kept


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from((rb"\ud83c", rb"\udf89", rb"\\", rb"\n", b"ud83c", b"x", rb"\u0041")), max_size=10))
def test_any_mixture_of_surrogates_and_backslashes_becomes_readable(pieces: list[bytes]) -> None:
    """Ours: after the repair it is JSON, and every character that was whole is still there."""
    text = b"".join(pieces)
    envelope = envelopes.salvage(b'{"jsonrpc":"2.0","id":1,"result":"%s"}' % text)
    assert envelope is not None
    expected = json.loads(b'"%s"' % text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert json.loads(bytes(envelope.result)) == expected


@settings(max_examples=100, deadline=None)
@given(result=json_text.objects)
def test_a_good_message_is_not_changed_by_the_repair(result: bytes) -> None:
    """Ours: salvage never makes a good line worse."""
    envelope = envelopes.salvage(b'{"jsonrpc":"2.0","id":1,"result":%s}' % result)
    assert envelope is not None
    assert bytes(envelope.result) == result


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"junk",
        b"{}",
        b'{"jsonrpc":"2.0","id":1',
        GOOD + b" trailing words",
        b'{"jsonrpc":"1.0","id":1,"result":{}}',
    ],
)
def test_nothing_else_is_guessed_at(frame: bytes) -> None:
    """Ours: half a message or another protocol is no message."""
    assert envelopes.salvage(frame) is None


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=20))
def test_no_bytes_at_all_can_make_a_reader_raise_anything_unexpected(before: bytes, after: bytes) -> None:
    """docs/behaviour.md#a-server-talks-nonsense: junk from anybody has no effect on anyone else."""
    frame = before + GOOD + after
    envelopes.salvage(frame)
    envelopes.visible_ids(frame)
    try:
        envelopes.decode(frame)
    except (ParseError, NotAnEnvelope):
        return
    assert not (before + after).strip(b" \t\r\n"), "junk around a message was read as a message"


@pytest.mark.parametrize(
    ("frame", "ids"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"trunc', [b"7"]),
        (b'{"id" : "a\\"b" ,"result":{"id":-3', [b'"a\\"b"', b"-3"]),
        (b'{"text":"\\"id\\":5"', []),
        (b'{"id":null,"id":true,"grid":4', []),
        (b"id: 5", []),
        (b'{"id":"a\xf1","id":8', [b"8"]),
        (b"", []),
    ],
)
def test_ids_are_seen_in_a_line_that_cannot_be_read(frame: bytes, ids: list[bytes]) -> None:
    """docs/behaviour.md#a-server-talks-nonsense: whoever waits for a broken answer hears of it."""
    assert envelopes.visible_ids(frame) == ids


@pytest.mark.parametrize("id_", [b"1.5", b"10e3"])
def test_a_number_that_is_no_integer_is_not_seen_as_an_id(id_: bytes) -> None:
    """MCP 2025-11-25, basic/index: an id is a string or an integer, never a fraction."""
    assert envelopes.visible_ids(b'{"id":%s,"result":{"trunc' % id_) == []


@pytest.mark.parametrize(
    ("line", "id_"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"trunc', b"7"),
        (b' { "id" : "7" , "result":{"id":8', b'"7"'),
        (b'{"result":{"id":8},"x","jsonrpc":"2.0","id":7}', None),
        (b'{"result":{"id":8,},"jsonrpc":"2.0","id":7}\r', b"7"),
        (b'{"error":{"code":-1,},"id":7}', b"7"),
        (b'"id":8},"id":"seven"}', b'"seven"'),
        (b'{"id":7.5,"result":{}', None),
        (b'{"result":{"list":[{"id":8}]}}', None),
        (b"", None),
    ],
)
def test_the_id_of_an_answer_is_seen_where_ids_stand(line: bytes, id_: bytes | None) -> None:
    """docs/behaviour.md#a-server-talks-nonsense: not any id that happens to be in it."""
    assert envelopes.likely_id(line) == id_
