"""JSON with comments: what it accepts, where it says things are, how it complains."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muxway.config.jsonc import MAX_DEPTH, JsoncError, parse_jsonc

law = settings(deadline=None)
"""A busy machine is no fault."""

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)
FILLERS = st.lists(
    st.sampled_from([" ", "\t", "\n", "\r\n", "// a ] comment }\n", '/* a , \n " comment */', "/**/", "//\n"]),
    max_size=3,
).map("".join)


def tokens(value: Any, trailing: st.DataObject | None = None) -> list[str]:
    """The tokens of a value in order, perhaps with trailing commas, so that fillers can go between them."""
    if isinstance(value, dict):
        inner = [[json.dumps(key), ":", *tokens(item, trailing)] for key, item in value.items()]
        brackets = "{}"
    elif isinstance(value, list):
        inner = [tokens(item, trailing) for item in value]
        brackets = "[]"
    else:
        return [json.dumps(value)]
    joined: list[str] = []
    for index, item in enumerate(inner):
        joined += [*([","] if index else []), *item]
    if inner and trailing is not None and trailing.draw(st.booleans()):
        joined.append(",")
    return [brackets[0], *joined, brackets[1]]


def fault(text: str) -> JsoncError | None:
    """What is wrong with the text, if anything is."""
    try:
        parse_jsonc(text)
    except JsoncError as error:
        return error
    return None


@law
@given(value=VALUES, data=st.data())
def test_comments_blanks_and_trailing_commas_change_nothing(value: Any, data: st.DataObject) -> None:
    """Ours: the law of the reader. Whatever stands between tokens, the value is that of the plain JSON."""
    text = "".join(data.draw(FILLERS) + token for token in tokens(value, data)) + data.draw(FILLERS)
    assert parse_jsonc(text).value == json.loads(json.dumps(value))


@law
@given(value=VALUES, indent=st.sampled_from([None, 0, 2]))
def test_plain_json_reads_as_json(value: Any, indent: int | None) -> None:
    """RFC 8259: JSON with comments is a superset of JSON."""
    for is_ascii in (True, False):
        text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
        assert parse_jsonc(text).value == json.loads(text)


@law
@given(value=VALUES, data=st.data())
def test_an_error_is_reported_where_it_is(value: Any, data: st.DataObject) -> None:
    """docs/configuration.md#problems.

    The line where known. A character no token starts with, put anywhere, is found there.
    """
    pieces = tokens(value)
    at = data.draw(st.integers(0, len(pieces)))
    before = "".join(data.draw(FILLERS) + piece for piece in pieces[:at]) + data.draw(FILLERS) + "\n"
    with pytest.raises(JsoncError) as caught:
        parse_jsonc(before + "@" + "".join(pieces[at:]))
    assert (caught.value.line, caught.value.column) == (before.count("\n") + 1, 1)


@law
@given(text=st.text(alphabet="{}[]\",:/*\\\n tfn-0.1e'ü\x00", max_size=60))
def test_any_text_is_a_value_or_a_clear_error(text: str) -> None:
    """Ours: nothing else may escape the reader."""
    error = fault(text)
    if error is not None:
        assert error.message
        assert 1 <= error.line <= text.count("\n") + 1
        assert error.column >= 1


@law
@given(value=VALUES)
def test_every_value_has_a_place(value: Any) -> None:
    """Ours: messages point at keys and items."""

    def paths(item: Any, path: tuple[str | int, ...]) -> set[tuple[str | int, ...]]:
        children = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
        return {path}.union(*(paths(child, (*path, key)) for key, child in children))

    parsed = parse_jsonc(json.dumps(value, indent=1))
    assert parsed.positions.keys() == paths(parsed.value, ())


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "ends where a value is expected"),
        ('{"a": 1', 1, 8, "the `{` of line 1 is not closed"),
        ('{"a": {\n"b": [1,\n2', 3, 2, "the `[` of line 2 is not closed"),
        ('{"a": 1\n "b": 2}', 2, 2, "a comma is missing after the value on line 1"),
        ('{"a" 1}', 1, 6, "expected a colon"),
        ("{a: 1}", 1, 2, "expected a key in double quotes"),
        ("{'a': 1}", 1, 2, "plain double quotes"),
        ("{“a”: 1}", 1, 2, "plain double quotes"),
        ("{\"a\": 'b'}", 1, 7, "plain double quotes"),
        ('{"a": True}', 1, 7, "write `true`"),
        ('{"a": None}', 1, 7, "write `null`"),
        ('{"a": NaN}', 1, 7, "expected a value"),
        ('{"a": 012}', 1, 7, "not a JSON number"),
        ('{"a": +1}', 1, 7, "not a JSON number"),
        ('{"a": }', 1, 7, "expected a value before `}`"),
        ('{"a": 1,,}', 1, 9, "one comma too many"),
        ("[,]", 1, 2, "expected a value before `,`"),
        ('{"a": 1} x', 1, 10, "more text after the end"),
        ('{"p": "C:\\Users"}', 1, 10, "write it twice"),
        ('{"a": "b\n"}', 1, 9, "past the end of the line"),
        ('{"a": "b', 1, 7, "never closed"),
        ('{"a": 1 /* oops', 1, 9, "add `*/`"),
        ('{"a":\u00a01}', 1, 6, "U+00A0"),
        ("[" * 200, 1, MAX_DEPTH + 1, "nested more than"),
        ("1" * 5000, 1, 1, "too many digits"),
    ],
)
def test_a_syntax_error_says_where_and_what_to_do(text: str, line: int, column: int, message: str) -> None:
    """docs/configuration.md#problems: wrong JSON has a clear error naming place and remedy."""
    with pytest.raises(JsoncError) as caught:
        parse_jsonc(text)
    assert message in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)


def test_a_key_given_twice_is_noted_with_both_lines() -> None:
    """Ours: JSON readers silently keep the last one, and a server vanishes."""
    parsed = parse_jsonc('{"s": {"a": 1,\n"b": 2,\n"a": 3}}')
    assert [(twice.path, twice.first_line, twice.line) for twice in parsed.duplicates] == [(("s", "a"), 1, 3)]
    assert parsed.value == {"s": {"a": 3, "b": 2}}


def test_reading_takes_time_in_proportion_to_the_text() -> None:
    """Ours: client state files are megabytes; a quadratic reader would hang on them."""

    def seconds(count: int) -> float:
        text = "[" + "/* */ // x\n  1," * count + "]"
        started = time.thread_time()
        parse_jsonc(text)
        return time.thread_time() - started

    small = min(seconds(2_000) for _ in range(3))
    assert seconds(40_000) < 20 * small * 8
