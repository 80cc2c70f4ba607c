"""Messages on one line, because a server forgot the newline between them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muxway.wire import envelopes

VALUES = st.recursive(
    st.none() | st.integers() | st.text() | st.sampled_from(['}{"jsonrpc"', '}{"id":1}', '"}{"result"']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def line(id_: int, value: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "result": {"x": value}}).encode()


@given(st.lists(VALUES, min_size=2, max_size=5), st.sampled_from([b"", b" ", b"\t \r"]))
def test_glued_messages_come_apart_as_they_were(values: list[Any], between: bytes) -> None:
    """Ours: whatever stands in them, also what looks like a seam."""
    lines = [line(number, value) for number, value in enumerate(values)]
    assert [part.strip() for part in envelopes.unglue(between.join(lines))] == lines


@given(VALUES)
def test_one_message_is_never_cut(value: Any) -> None:
    """Ours: the seam cannot stand inside of JSON."""
    assert envelopes.unglue(line(1, value)) == []
