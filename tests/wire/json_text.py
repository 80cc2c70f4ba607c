"""JSON as people write it, not as one library prints it: the same to a parser, but made of other bytes."""

from __future__ import annotations

import json

from hypothesis import strategies as st

ODD_NUMBERS = (
    b"0 -0 -0.0 1.0 1.10 1E5 1e+5 1e-7 0.1e1 -12.50E-03 1e999 9007199254740993 123456789012345678901234567890 "
    b"-99999999999999999999 3.141592653589793238462643383279"
).split()

ESCAPES = (
    b"\\/",
    b"/",
    b"\\u0041",
    b"\\u00e9",
    b"\\u00E9",
    "é".encode(),
    b"\\ud83c\\udf89",
    "🎉".encode(),
    b"\\\\ud800",
    b"\\n",
    b"\\u000a",
    b"\\u2028",
    "\u2028".encode(),
    "\ufeff".encode(),
    b'\\"id\\":7',
    b"{",
    b"]",
)

SPACE = st.sampled_from((b"", b"", b"", b" ", b"\t", b"\r", b"  "))

_plain = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)


def _quoted(text: str, *, ascii_only: bool) -> bytes:
    return json.dumps(text, ensure_ascii=ascii_only).encode()[1:-1]


strings = st.lists(
    st.one_of(st.sampled_from(ESCAPES), st.builds(_quoted, _plain, ascii_only=st.booleans())), max_size=4
).map(lambda pieces: b'"' + b"".join(pieces) + b'"')

numbers = st.one_of(st.sampled_from(ODD_NUMBERS), st.integers().map(lambda number: b"%d" % number))

_keys = st.one_of(st.sampled_from((b'"a"', b'"A"', b'"a "', b'"\\u0061"', b'"_meta"', b'"resultType"')), strings)


def _array(items: list[bytes], space: bytes) -> bytes:
    return b"[" + space + (space + b"," + space).join(items) + space + b"]"


def _object(members: list[tuple[bytes, bytes]], space: bytes) -> bytes:
    return b"{" + space + (b"," + space).join(key + space + b":" + space + raw for key, raw in members) + space + b"}"


values = st.recursive(
    st.one_of(st.sampled_from((b"null", b"true", b"false")), numbers, strings),
    lambda inner: st.one_of(
        st.builds(_array, st.lists(inner, max_size=4), SPACE),
        st.builds(_object, st.lists(st.tuples(_keys, inner), max_size=4), SPACE),
    ),
    max_leaves=12,
)
"""Any JSON value: explicit nulls, big integers, odd spellings, keys that look alike, escapes, spaces, non-ASCII."""

objects = st.builds(_object, st.lists(st.tuples(_keys, values), max_size=5), SPACE)
"""Any JSON object; its keys may repeat, in the same or another spelling."""


def distinct_members(*, taken: frozenset[str] = frozenset(), min_size: int = 0) -> st.SearchStrategy[dict[str, bytes]]:
    """Decoded key → value text; none of the keys is in `taken`."""
    keys = st.one_of(st.sampled_from(("content", "isError", "structuredContent", "x-vendor", "é", "a b", "")), _plain)
    return st.dictionaries(keys.filter(lambda key: key not in taken), values, min_size=min_size, max_size=5)


def write(members: dict[str, bytes], space: bytes = b"") -> bytes:
    """The object of these members, as text."""
    return _object([(json.dumps(key).encode(), raw) for key, raw in members.items()], space)
