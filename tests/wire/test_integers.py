"""Integers that many programs cannot read, told from digits that are none."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muxway.wire import envelopes
from muxway.wire.envelopes import NotAnEnvelope

LONG = st.integers(390, 410) | st.integers(1, 2000)


def has_huge(text: str) -> bool:
    """What the standard library sees."""
    found: list[str] = []
    json.loads(text, parse_int=found.append, parse_float=lambda _: None)
    return any(len(number.lstrip("-")) > envelopes.MAX_DIGITS for number in found)


@st.composite
def pieces(draw: st.DrawFn) -> str:
    """A JSON value made of many digits."""
    digits = "7" * draw(LONG)
    forms = ["{}", "-{}", "{}.5", "0.{}", "{}e1", "1e{}", "1E+{}", "1e-{}", '"{}"', '"-{}"', '"\\"{}"', '"\\\\{}\\\\"']
    return draw(st.sampled_from(forms)).format(digits)


@settings(max_examples=300, deadline=None)
@given(st.lists(pieces() | st.text(max_size=300).map(json.dumps), max_size=5), st.sampled_from([",", " , ", ",\t"]))
def test_an_integer_is_found_where_a_parser_finds_it(values: list[str], comma: str) -> None:
    """Ours: an integer has at most 400 digits; digits inside strings and fractions stay untouched."""
    text = "[" + comma.join(values) + "]"
    assert envelopes.has_huge_integer(text.encode()) == has_huge(text)


@pytest.mark.parametrize("before", range(0, 399, 3))
def test_no_place_is_overlooked(before: int) -> None:
    """Ours: only every 133rd byte is looked at first."""
    for digits, huge in ((400, False), (401, True)):
        assert envelopes.has_huge_integer(b'["' + b"x" * before + b'",' + b"1" * digits + b"]") is huge
        assert envelopes.has_huge_integer(b"[" + b"1" * before + b"0," + b"1" * digits + b",1]") is huge


def test_a_request_with_such_an_integer_is_refused_under_its_id() -> None:
    """Ours: readers that hold integers in full would take long over it."""
    frame = b'{"jsonrpc":"2.0","id":"a","method":"ping","params":{"x":' + b"9" * 100_000 + b"}}"
    with pytest.raises(NotAnEnvelope, match="400 digits") as refused:
        envelopes.decode_strict(frame)
    assert refused.value.id == b'"a"'


def test_an_id_that_is_one_itself_is_not_sent_back() -> None:
    """Ours: whoever gets it could not read it."""
    with pytest.raises(NotAnEnvelope, match="400 digits") as refused:
        envelopes.decode_strict(b'{"jsonrpc":"2.0","id":' + b"9" * 401 + b',"method":"ping"}')
    assert refused.value.id == b""


@pytest.mark.parametrize("fill", [b"x", b"7", b'\\"', b"1.5,", b"7777777777,"])
def test_looking_takes_no_longer_than_reading(fill: bytes) -> None:
    """Ours: no input takes more than 100 ms a megabyte. The best of three, as others use the machine too."""
    frame = (b'["%b"]' if fill in (b"x", b"7", b'\\"') else b"[%b0]") % (fill * (4_000_000 // len(fill)))
    best = float("inf")
    for _ in range(3):
        began = time.thread_time()
        assert not envelopes.has_huge_integer(frame)
        best = min(best, time.thread_time() - began)
    assert best < 0.4
