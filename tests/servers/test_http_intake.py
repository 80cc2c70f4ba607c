"""Event streams, a little at a time: nothing gets lost, answers are free (docs/behaviour.md#a-remote-server-errs)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from muxway.servers.transports.http_intake import HttpIntake
from muxway.servers.transports.intake import Budget
from muxway.wire.sse import SseParser

if TYPE_CHECKING:
    import pytest

    from muxway.wire.sse import SseEvent

LIMIT = 1 << 20
LINES = st.sampled_from([b"data: x\n", b"data:\n", b"\n", b"\r\n", b": comment\n", b"id: 3\n", b"data: " + b"y" * 3000])


@given(st.lists(LINES, max_size=300).map(b"".join))
def test_events_are_the_same_whether_taken_at_once_or_bit_by_bit(data: bytes) -> None:
    """Ours: slowing down loses nothing and changes no order."""
    heard: list[SseEvent] = []

    def take(event: SseEvent) -> int:
        heard.append(event)
        return 1

    asyncio.run(HttpIntake(lambda: None).read(data, SseParser(LIMIT), take))
    assert heard == SseParser(LIMIT).feed(data)


async def test_answers_on_a_stream_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: they were asked for, however many and however large they are."""
    spent: list[float] = []

    def spend(_: object, _now: float, seconds: float) -> float:
        spent.append(seconds)
        return 0.0

    monkeypatch.setattr(Budget, "spend", spend)
    data = b"data: {}\n\n" * 5_000 + b"data: " + b"x" * 500_000 + b"\n\n"
    parser, taken = SseParser(LIMIT), 0

    def take(_: SseEvent) -> int:
        nonlocal taken
        taken += 1
        return 0

    await HttpIntake(lambda: None).read(data, parser, take)
    assert (taken, spent) == (5_001, [])


def test_a_large_event_of_many_lines_is_put_together_in_place() -> None:
    """HTML, server-sent events, 9.2.6: the lines of data of an event, with a line feed between any two."""
    parser = SseParser(LIMIT)
    events = [event for _ in range(10) for event in parser.feed(b"data:\n" * 1000)]
    assert events == []
    (event,) = parser.feed(b"data: x\n\n")
    assert event.data == b"\n" * 10_000 + b"x"
    assert parser.wasted == 10_000
