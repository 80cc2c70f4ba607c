"""Large messages, opened in steps: the same comes of them as of one look, whatever they are, wherever they are cut."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muxway.errors import ParseError
from muxway.wire import envelopes, large, reading
from muxway.wire.envelopes import Envelope, NotAnEnvelope

from ..pace import heap_of_its_own

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1024 * 1024
ALLOWED = 0.02
SLACK = 5

values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text('ab,[]{}"\\é:😀\n', max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a,]"\\', max_size=3), inner, max_size=4),
    max_leaves=25,
)
messages = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0")},
    optional={
        "id": st.integers(0, 9) | st.text('a,"', max_size=5),
        "method": st.text("am/", max_size=9),
        "params": st.dictionaries(st.text("ab,", max_size=3), values, max_size=4),
        "result": values,
        "error": st.fixed_dictionaries({"code": st.integers(-9, 9), "message": st.text(max_size=5), "data": values}),
        "more": values,
    },
)


@pytest.fixture(autouse=True)
def _short_steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (large, reading):
        monkeypatch.setattr(module, "_STEP", getattr(request, "param", 7))


def opened(frame: bytes) -> large.Opened:
    steps = large.opening(frame)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


def facts(envelope: Envelope) -> tuple[object, ...]:
    params = None if envelope.params is None else {name: bytes(raw) for name, raw in envelope.params.items()}
    return bytes(envelope.id), envelope.method, params, bytes(envelope.result), bytes(envelope.error)


def spelled(message: object, *, indent: int | None, ascii_only: bool) -> bytes:
    return json.dumps(message, indent=indent, ensure_ascii=ascii_only).encode()


@settings(max_examples=200)
@given(messages, st.sampled_from([None, 0, 2]), st.booleans(), st.randoms())
def test_the_same_comes_of_it_as_of_one_look(message: Any, indent: int | None, ascii_only: bool, random: Any) -> None:
    """Ours: each member is the bytes that came, whichever pieces they were in."""
    names = list(message)
    random.shuffle(names)
    frame = spelled({name: message[name] for name in names}, indent=indent, ascii_only=ascii_only)
    envelope = opened(frame)
    assert isinstance(envelope, large.LargeEnvelope)
    assert facts(envelope) == facts(envelopes.decode(frame))
    said = None if "error" not in message else envelopes.said_error(envelope.error)
    assert (envelope.said is None) == (said is None)
    if envelope.said is not None and said is not None:
        assert (envelope.said.raw, envelope.said.code, envelope.said.data) == (said.raw, said.code, said.data)


@settings(max_examples=300)
@given(messages, st.sampled_from([None, 2]), st.data())
def test_what_is_no_message_is_none_in_steps_either(message: Any, indent: int | None, data: st.DataObject) -> None:
    """Ours: one byte too few, too many or another one, at any place."""
    frame = bytearray(spelled(message, indent=indent, ascii_only=False))
    place = data.draw(st.integers(0, len(frame) - 1))
    do = data.draw(st.sampled_from(["leave out", "put in", "change"]))
    if do == "leave out":
        del frame[place]
    else:
        byte = st.sampled_from([b",", b'"', b"]", b"}", b"[", b"\\", b"\xff", b"0"])
        frame[place : place + (do == "change")] = data.draw(byte)
    broken = bytes(frame)
    try:
        expected = facts(envelopes.decode(broken))
    except (ParseError, NotAnEnvelope):
        expected = None
    found = opened(broken)
    assert (facts(found) if isinstance(found, Envelope) else None) == expected


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{"x":[1,2,3,4,5,6,]}}', "not valid JSON"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"x":[,1,2,3,4,5,6]}}', "not valid JSON"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"x":[1,2,3]},,"a":[4,5,6]}', "not valid JSON"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"x":[1,2,3}],"a":[4,5,6]}', "not valid JSON"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"x":[1,2,3]}},{"a":[4,5,6]}', "not valid JSON"),
        (b'{"jsonrpc":"2.0","id":1,"result":[1,"a":2]}', "not valid JSON"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":1,2}}', "not valid JSON"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":"b', "not valid JSON"),
        (b'[{"jsonrpc":"2.0","id":1,"result":{}}]', "a batch"),
        (b"12345678", "no object"),
        (b'{"jsonrpc":"1.0","id":1,"result":{"a":[1,2]}}', "jsonrpc"),
        (b'{"jsonrpc":"2.0","id":1,"method":["a","b"]}', "method"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":[1,2,3]}', "params must be an object"),
        (b'{"jsonrpc":"2.0",%b}' % b",".join(b'"k%d":1' % n for n in range(1000)), "the message has more than 1000"),
        (
            b'{"jsonrpc":"2.0","params":{%b}}' % b",".join(b'"k%d":1' % n for n in range(1001)),
            "params has more than 1000",
        ),
    ],
)
def test_each_mistake_is_found(frame: bytes, why: str) -> None:
    """Ours: also where a cut is, and where brackets are left open."""
    found = opened(frame)
    assert isinstance(found, ParseError | NotAnEnvelope)
    assert why in str(found)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b'{"jsonrpc":"2.0","id":1,"%b":1}', "the message has a name of more than 4096"),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"%b":{}}}', "params has a name of more than 4096"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"%b":[{"%b":"%b"}]}}', ""),
    ],
)
@pytest.mark.parametrize("_short_steps", [64, 1 << 18], indirect=True)
@pytest.mark.parametrize("letter", [b"x", rb"\"", rb"\ud83d\ude00"])
def test_names_of_what_is_opened_are_short_and_all_others_as_long_as_they_like(
    frame: bytes, why: str, letter: bytes
) -> None:
    """docs/behaviour.md#size-limits: a name is cut nowhere, if it is one that is read."""
    for count in (4096, 4097):
        whole = frame.replace(b"%b", letter * count)
        found = opened(whole)
        if why and count > 4096:
            assert isinstance(found, NotAnEnvelope)
            assert why in str(found)
        else:
            assert isinstance(found, Envelope)
            assert facts(found) == facts(envelopes.decode(whole))


@pytest.mark.parametrize("_short_steps", [256 * 1024], indirect=True)
@pytest.mark.parametrize(
    ("frame", "filled_with"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{"x":%b1}}', b" "),
        (b'{"jsonrpc":"2.0","id":1,"result":{"x":%b1}}', b"1"),
        (b'{"jsonrpc":"2.0","id":1%b,"result":{}}', b" "),
    ],
)
def test_no_more_than_so_much_is_blank(frame: bytes, filled_with: bytes) -> None:
    """docs/behaviour.md#size-limits: there is nothing to cut at in it."""
    assert isinstance(opened(frame % (filled_with * (MIB // 2))), Envelope)
    found = opened(frame % (filled_with * 2 * MIB))
    assert isinstance(found, NotAnEnvelope)
    assert "bytes of blanks or digits" in str(found)


@settings(max_examples=60)
@given(st.lists(values, max_size=12), st.sampled_from([None, 0]), st.booleans(), st.integers(0, 4))
def test_the_items_of_an_array_are_its_first_ones_and_the_rest(
    array: list[Any], indent: int | None, ascii_only: bool, most: int
) -> None:
    """Ours: not one is lost, wherever it is cut."""
    raw = spelled(array, indent=indent, ascii_only=ascii_only)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "MOST_LOOKED_INTO", most)
        found = reading.few_items(raw)
    assert found is not None
    items, others = found
    assert [json.loads(bytes(item)) for item in items] == array[:most]
    assert json.loads(b"[%b]" % b",".join(others)) == array[most:]
    assert reading.few_items(raw[:-1]) is None


@settings(max_examples=200)
@given(st.text('ab"\\é😀\n\x00', max_size=60), st.booleans())
def test_a_long_string_is_read_and_written_as_any_other(string: str, ascii_only: bool) -> None:
    """Ours: whatever character or escape it is cut at."""
    raw = spelled(string, indent=None, ascii_only=ascii_only)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "LONG", 0)
        patch.setattr(reading, "_STEP", 13)
        assert reading.text(raw) == string
        assert json.loads(reading.encoded(string)) == string
        assert reading.text(b"[]") is None


@pytest.mark.parametrize("digits", [400, 401])
def test_an_integer_that_is_too_long_is_found_on_the_way(digits: int) -> None:
    """docs/behaviour.md#size-limits."""
    found = opened(b'{"jsonrpc":"2.0","id":1,"result":{"a":["%b",%b]}}' % (b"1" * 500, b"1" * digits))
    assert isinstance(found, large.LargeEnvelope)
    assert found.huge == (digits > 400)


def largest() -> Iterator[tuple[str, bytes]]:
    units = {
        "numbers": b"1,", "objects": b'{"a":1},', "strings": b'"{,",', "letters": b"x", "prose": b"x, [y] ",
        "escapes": b"\\n", "quotes": b'\\",', "backslashes": b"\\\\", "other letters": "é".encode(),
        "brackets": b'[{"a":' * 400 + b"1" + b"}]" * 400 + b",",
    }  # fmt: skip
    for kind, unit in units.items():
        many = unit * (15 * MIB // len(unit))
        yield (
            kind,
            b'{"jsonrpc":"2.0","id":1,"result":{"x":%b}}'
            % (b"[%b1]" % many if unit.endswith(b",") and kind != "quotes" else b'"%b"' % many),
        )
    yield "blanks", b'{"jsonrpc":"2.0","id":1,"result":{%b}}' % (b" " * 15 * MIB)
    yield "id", b'{"jsonrpc":"2.0","id":[%b1],"result":{}}' % (b"1," * 7 * MIB)


@pytest.mark.parametrize("_short_steps", [256 * 1024], indirect=True)
def test_no_step_takes_long() -> None:
    """docs/behaviour.md#size-limits: 20 ms of processor time; see tests/hardening/test_bounded_work.py."""
    with heap_of_its_own():
        for kind, frame in largest():
            assert any(longest_step(frame) < ALLOWED * SLACK for _ in range(3)), kind


def longest_step(frame: bytes) -> float:
    steps, longest, going = large.opening(frame), 0.0, True
    while going:
        began = time.thread_time()
        going = next(steps, steps) is not steps
        longest = max(longest, time.thread_time() - began)
    return longest
