"""Events out of bytes, however they are cut."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxway.wire import sse
from muxway.wire.sse import SseEvent, SseParser

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 1 << 20

lines = st.one_of(
    st.sampled_from(
        [
            b"",
            b"",
            b"data: x",
            b"data:",
            b"data",
            b"event: endpoint",
            b": ping",
            b"id: 7",
            b"id: a\0b",
            b"id",
            b"retry: 50",
        ]
    ),
    st.binary(max_size=12).map(lambda raw: b"data:" + raw.replace(b"\n", b"").replace(b"\r", b"")),
    st.text(max_size=8).map(lambda text: text.replace("\n", "").replace("\r", "").encode()),
)
streams = st.lists(st.tuples(lines, st.sampled_from([b"\n", b"\r", b"\r\n"])), max_size=30).map(
    lambda pieces: b"".join(line + end for line, end in pieces)
)


@pytest.fixture(autouse=True, params=[6, 1 << 18], ids=["long lines", "short lines"])
def _long(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sse, "_LONG", request.param)
        yield


def parse(data: bytes, cuts: list[int] | None = None, limit: int = LIMIT) -> list[SseEvent]:
    parser = SseParser(limit)
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]
    return [event for start, end in pairwise(places) for event in parser.feed(data[start:end])]


@given(data=streams, bom=st.booleans(), cuts=st.lists(st.integers(0, 1 << 16), max_size=40))
def test_any_chunking_gives_the_same_events(data: bytes, bom: bool, cuts: list[int]) -> None:
    """WHATWG HTML, server-sent events: lines end in CR, LF or both, wherever a chunk ends."""
    data = b"\xef\xbb\xbf" * bom + data
    assert parse(data, cuts) == parse(data) == parse(data, list(range(len(data))))


@given(
    data=streams,
    limit=st.integers(0, 40),
    cuts=st.lists(st.integers(0, 1 << 16), max_size=40),
    tail=st.binary(max_size=9),
)
def test_the_limit_cuts_the_same_events_however_they_arrive(
    data: bytes, limit: int, cuts: list[int], tail: bytes
) -> None:
    """Ours: what is too large does not depend on the network's mood."""

    def seen(events: list[SseEvent]) -> list[SseEvent | str]:
        return ["cut" if event.cut else event for event in events]

    data = data + tail.replace(b"\r", b"")
    assert seen(parse(data, cuts, limit)) == seen(parse(data, None, limit))


@given(
    st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=4), max_size=6), st.sampled_from([b"\n", b"\r\n"])
)
def test_data_comes_back_as_it_was_written(events: list[list[bytes]], end: bytes) -> None:
    """HTML standard: several data lines are one text, with newlines between."""
    events = [[line.replace(b"\r", b"?").replace(b"\n", b"?") for line in event] for event in events]
    wire = b"".join(b"".join(b"data: " + line + end for line in event) + end for event in events)
    assert [event.data for event in parse(wire)] == [b"\n".join(event) for event in events]


def test_a_byte_order_mark_is_skipped_only_at_the_very_beginning() -> None:
    """HTML standard, 9.2.5."""
    assert parse(b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n") == [SseEvent("message", b"a", "")]


def test_comments_and_unknown_fields_are_skipped() -> None:
    """WHATWG HTML, server-sent events: comments keep a connection alive and say nothing."""
    assert parse(b": ping\n\n:\n\nfoo: bar\n\ndata\n\n") == [SseEvent("message", b"", "")]


def test_an_event_has_the_type_it_names_and_the_next_one_does_not() -> None:
    """HTML standard: the type is of one event only."""
    wire = b"event: endpoint\ndata: /m\n\ndata: x\n\n"
    assert [event.type for event in parse(wire)] == ["endpoint", "message"]


def test_an_id_stays_until_the_next_and_one_with_a_nul_is_ignored() -> None:
    """WHATWG HTML, server-sent events; MCP 2025-11-25, basic/transports: no data, but a place to resume."""
    parser = SseParser(LIMIT)
    assert parser.feed(b"id: 1\n\n") == []
    assert parser.last_id == "1"
    assert [event.id for event in parser.feed(b"data: a\n\nid: 2\0\ndata: b\n\nid: 3\ndata: c\n\n")] == ["1", "1", "3"]
    again = parser.again()
    assert (again.last_id, again.feed(b"id\n\n"), again.last_id) == ("3", [], "")


def test_retry_is_a_number_of_milliseconds_or_nothing() -> None:
    """HTML standard: only ASCII digits count."""
    parser = SseParser(LIMIT)
    parser.feed(b"retry: soon\n\nretry: -1\n\nretry: 1.5\n\n")
    assert parser.retry is None
    parser.feed(b"retry: 1500\n\n")
    assert parser.again().retry == 1.5


def test_an_endless_event_is_reported_at_once_and_the_next_one_heard() -> None:
    """docs/behaviour.md#size-limits: an endless event is not waited for, and costs no more than the limit."""
    parser = SseParser(1000)
    (cut,) = parser.feed(b'data: {"id":7,' + b"x" * 2000)
    assert cut.cut
    assert cut.data.startswith(b'{"id":7,')
    for _ in range(100):
        assert parser.feed(b"y" * 1000) == []
    assert len(parser._pending) < 1000
    assert parser.feed(b"\ndata: still\n\ndata: next\n\n") == [SseEvent("message", b"next", "")]


def test_many_small_lines_of_one_event_count_together() -> None:
    """Ours: a million empty lines are an endless event too."""
    events = SseParser(1000).feed(b"data:\n" * 1000)
    assert [event.cut for event in events] == [True]


def test_an_endless_comment_is_only_a_comment() -> None:
    """Ours: padding that some proxies need is skipped, whatever its length."""
    parser = SseParser(100)
    assert parser.feed(b": " + b"x" * 5000) == []
    assert parser.feed(b"x" * 5000 + b"\ndata: a\n\n") == [SseEvent("message", b"a", "")]
