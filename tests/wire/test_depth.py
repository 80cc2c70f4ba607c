"""How deep JSON may be nested, on every interpreter."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxway.errors import ParseError
from muxway.wire import depth, envelopes


def nested(levels: int, around: str = "") -> bytes:
    """A message of so many levels, its brackets kept apart by `around`."""
    return b"".join(
        (
            b'{"jsonrpc":"2.0","id":1,"result":{"x":',
            f"[{around}".encode() * (levels - 2),
            b"1",
            b"]" * (levels - 2),
            b"}}",
        )
    )


HIDING = ["", '"]]]]",', r'"\"]",', r'"\\",', '[[]],{"a":[{}]},', '"[[[",']


@pytest.mark.parametrize("around", HIDING)
def test_the_bound_is_exact_whatever_stands_between_the_brackets(around: str) -> None:
    """docs/behaviour.md#size-limits: brackets inside of strings are none, and balanced ones hide nothing."""
    inner = 3 if around.startswith("[[") else 0
    assert not depth.too_deep(nested(depth.MOST - inner, around))
    assert depth.too_deep(nested(depth.MOST + 1, around))


@pytest.mark.parametrize("levels", [depth.MOST * 2, 5_000, 200_000])
def test_what_is_nested_deeper_is_refused_by_every_interpreter(levels: int) -> None:
    """Ours: the bound does not depend on the interpreter's recursion."""
    with pytest.raises(ParseError):
        envelopes.decode(nested(levels))
    with pytest.raises(ParseError):
        envelopes.value(nested(levels))


def deepest(value: Any) -> int:
    """How deep a value is nested, told from the value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(deepest, inner), default=0)


TEXTS = st.text(alphabet='[]{}"\\aé', max_size=8)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=40,
)


@given(value=VALUES, most=st.integers(0, 6), ascii=st.booleans())
def test_levels_are_counted_as_a_decoder_sees_them(value: Any, most: int, ascii: bool) -> None:  # noqa: A002
    """Ours: for any JSON, any bound."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(depth, "MOST", most)
        text = json.dumps(value, ensure_ascii=ascii).encode()
        assert depth.too_deep(text) is (deepest(value) > most)


def test_what_stays_near_the_bound_for_long_is_given_up() -> None:
    """Ours: work is bounded by steps; nothing but brackets is that deep for so long."""
    near = b"[" * (depth.MOST - 2)
    assert not depth.too_deep(near + b"[],[]," * 1_000 + b"]" * (depth.MOST - 2))
    assert depth.too_deep(near + b"[]," * 1_000_000 + b"]" * (depth.MOST - 2))
