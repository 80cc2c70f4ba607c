"""Bytes → lines: any chunking gives the same lines, in linear time and bounded memory."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import TYPE_CHECKING, SupportsIndex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muxway.wire.framing import DEFAULT_LIMIT, LineFramer, Oversized

if TYPE_CHECKING:
    from collections.abc import Iterable

_ALPHABET = st.sampled_from(
    (b"a", b"{}", b"\n", b"\r\n", b"\xef\xbb\xbf", "\u2028".encode(), b"\x0b", b"\x0c", b"\x85")
)
streams = st.lists(_ALPHABET, max_size=60).map(b"".join)


def chop(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """The data cut at these places, wrapped into its length."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


def lines_of(chunks: Iterable[bytes], limit: int = DEFAULT_LIMIT) -> tuple[list[bytes | Oversized], bytes]:
    """Every line of the chunks, and what is left at the end."""
    framer = LineFramer(limit)
    lines = [line for chunk in chunks for line in framer.feed(chunk)]
    return lines, framer.end()


@settings(max_examples=200, deadline=None)
@given(stream=streams, cuts=st.lists(st.integers(0, 400), max_size=12))
def test_any_split_gives_the_same_lines(stream: bytes, cuts: list[int]) -> None:
    """MCP 2025-11-25, basic/transports, stdio: a newline ends a message, however its bytes arrive."""
    assert lines_of(chop(stream, cuts)) == lines_of([stream])


@settings(max_examples=100, deadline=None)
@given(stream=streams)
def test_one_byte_at_a_time_gives_the_same_lines(stream: bytes) -> None:
    """MCP 2025-11-25, basic/transports, stdio: a newline ends a message, also byte by byte."""
    assert lines_of(stream[at : at + 1] for at in range(len(stream))) == lines_of([stream])


@settings(max_examples=150, deadline=None)
@given(stream=streams)
def test_lines_are_what_stands_between_newlines_and_nothing_else_cuts(stream: bytes) -> None:
    r"""MCP 2025-11-25, basic/transports, stdio: newlines delimit; U+2028, VT, FF and NEL may stand in JSON strings."""
    *whole, rest = stream.split(b"\n")
    assert lines_of([stream]) == ([line for line in whole if line], rest)


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9000), min_size=1, max_size=8),
    limit=st.integers(4096, 6000),
    cuts=st.lists(st.integers(0, 80_000), max_size=12),
)
def test_lines_over_the_limit_are_reported_once_in_their_place(sizes: list[int], limit: int, cuts: list[int]) -> None:
    """docs/behaviour.md#size-limits: one over the limit is skipped; the lines around it survive, however it is cut."""
    lines = [(b"%d" % index) * size for index, size in enumerate(sizes)]
    expected = [Oversized(line[:4096]) if len(line) > limit else line for line in lines]
    stream = b"".join(line + b"\n" for line in lines)
    assert lines_of(chop(stream, cuts), limit) == (expected, b"")


@pytest.mark.parametrize(("size", "kept"), [(9, True), (10, True), (11, False)])
@pytest.mark.parametrize("step", [1, 3, 64])
def test_a_line_of_exactly_the_limit_is_kept(size: int, kept: bool, step: int) -> None:
    """Ours: the limit is the largest size accepted, and the newline does not count."""
    stream = b"x" * size + b"\nafter\n"
    lines, rest = lines_of((stream[at : at + step] for at in range(0, len(stream), step)), limit=10)
    assert [isinstance(line, bytes) for line in lines] == [kept, True]
    assert lines[1] == b"after"
    assert rest == b""


def test_a_giant_is_reported_before_its_end_which_may_never_come() -> None:
    """docs/behaviour.md#a-server-talks-nonsense: a line without end fails its call."""
    framer = LineFramer(10)
    assert framer.feed(b"before\n12345678") == [b"before"]
    assert framer.feed(b"901") == [Oversized(b"12345678901")]
    assert framer.feed(b"more" * 100) == []
    assert framer.feed(b"still the same line\nafter\n") == [b"after"]


def test_the_head_of_a_giant_is_kept_to_tell_whose_answer_it_was() -> None:
    """Ours: the waiting call is found by the id at the start of the line."""
    line = b'{"jsonrpc":"2.0","id":7,"result":"' + b"x" * 10_000
    assert lines_of([line, b"\n"], limit=8192) == ([Oversized(line[:4096])], b"")


def test_what_is_skipped_is_not_kept() -> None:
    """docs/behaviour.md#size-limits: skipped without being kept. 32 MiB of a line take less than 256 KiB."""
    framer, chunk = LineFramer(64 * 1024), b"x" * 4096
    tracemalloc.start()
    try:
        reported = [line for _ in range(8192) for line in framer.feed(chunk)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reported == [Oversized(chunk)]
    assert peak < 256 * 1024
    assert framer.feed(b"\nafter\n") == [b"after"]


class Metered(bytes):
    """Bytes that count how many of them are looked at or copied, in every way a framer could."""

    touched = 0

    def find(self, *args: object) -> int:
        Metered.touched += len(self)
        return super().find(*args)  # type: ignore[arg-type]

    def split(self, *args: object) -> list[bytes]:  # type: ignore[override]
        Metered.touched += len(self)
        return super().split(*args)  # type: ignore[arg-type]

    def __getitem__(self, key: SupportsIndex | slice) -> Metered:  # type: ignore[override]
        piece = super().__getitem__(key)
        assert isinstance(piece, bytes)
        Metered.touched += len(piece)
        return Metered(piece)

    def __radd__(self, other: bytes) -> Metered:
        Metered.touched += len(self) + len(other)
        return Metered(bytes(other) + bytes(self))


@pytest.mark.parametrize(
    ("chunk", "total"), [(1, 256 * 1024), (97, 4 * 1024 * 1024), (4096, 16 * 1024 * 1024), (65536, 16 * 1024 * 1024)]
)
def test_work_grows_with_the_bytes_not_with_their_square(chunk: int, total: int) -> None:
    """Ours: linear. Each byte is touched a few times, however small the pieces of a large line are."""
    framer, piece = LineFramer(), Metered(b"x" * chunk)
    Metered.touched = 0
    fed = 0
    while fed < total - chunk:
        assert framer.feed(piece) == []
        fed += chunk
    (line,) = framer.feed(Metered(b"\n"))
    assert isinstance(line, bytes)
    assert len(line) == fed
    assert Metered.touched <= 4 * total


def test_many_small_lines_of_one_chunk_are_each_touched_a_few_times() -> None:
    """Ours: linear, also when one read brings ten thousand lines."""
    data = Metered(b'{"jsonrpc":"2.0"}\n' * 10_000)
    Metered.touched = 0
    assert len(LineFramer().feed(data)) == 10_000
    assert Metered.touched <= 4 * len(data)


def test_carriage_returns_and_marks_are_left_to_the_reader() -> None:
    """Ours: framing decodes nothing, so a CR or BOM arrives as part of its line (messages.salvage forgives it)."""
    assert lines_of([b"\xef\xbb\xbf{}\r\n\n\r\n"]) == ([b"\xef\xbb\xbf{}\r", b"\r"], b"")


def test_the_end_gives_what_was_left_once() -> None:
    """Ours: the last line of a process that died without a newline is not lost."""
    framer = LineFramer()
    assert framer.feed(b"whole\npar") == [b"whole"]
    assert framer.feed(b"tial") == []
    assert framer.end() == b"partial"
    assert framer.end() == b""
