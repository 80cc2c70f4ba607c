"""How long the first listings wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxway.exchange import first_listing
from muxway.exchange.first_listing import FETCHED, LONGEST, STRAGGLER, FirstListing, answer_at


@pytest.mark.parametrize(
    ("unknown", "shows", "limit", "seconds"),
    [
        ([], True, None, 0),
        ([], False, None, 0),
        ([], False, 30, 0),
        ([False], False, None, LONGEST),
        ([True, False], False, None, LONGEST),
        ([False], True, None, 5 + STRAGGLER),
        ([False, True], True, None, FETCHED),
        ([False], True, 0, 0),
        ([True], False, 0, 0),
        ([True], False, 3, 3),
        ([False], True, 30, 30),
    ],
)
def test_when_a_first_listing_is_answered(
    unknown: list[bool], shows: bool, limit: float | None, seconds: float
) -> None:
    """docs/design/decisions/0015: nothing unknown, nothing to wait for; five seconds in, another server arrived."""
    assert answer_at(100, 105, unknown, shows=shows, limit=limit) == 100 + seconds


@given(
    began=st.floats(0, 1e6),
    after=st.floats(0, 44),
    unknown=st.lists(st.booleans(), min_size=1),
    shows=st.booleans(),
    limit=st.none() | st.floats(0, 1e3),
)
def test_every_wait_is_bounded(began: float, after: float, unknown: list[bool], shows: bool, limit: Any) -> None:
    """docs/behaviour.md#start: two seconds after the others, ten for what is fetched, less than any client waits."""
    at = answer_at(began, began + after, unknown, shows=shows, limit=limit)
    if limit is not None:
        assert at == began + limit
    else:
        assert at <= began + LONGEST < began + 60
        if shows:
            fetched = max(began + FETCHED, began + 2 * after) if any(unknown) else began
            assert at <= max(began + after + STRAGGLER, fetched) + 1e-6


async def test_it_is_said_once_that_listings_can_be_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: by the last arrival or by the clock, never twice."""
    monkeypatch.setattr(first_listing, "STRAGGLER", 0.02)
    released: list[int] = []
    first = FirstListing(lambda: released.append(1), None)
    first.look([False, False], shows=False)
    first.look([False], shows=True)
    assert released == []
    await asyncio.sleep(0.1)
    assert released == [1]
    first.look([], shows=True)
    assert released == [1]
