"""How long the first listings wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxway.exchange import first_listing
from muxway.exchange.first_listing import FETCHED, LONGEST, STRAGGLER, WORK, Deadline, FirstListing, deadline


@pytest.mark.parametrize(
    ("unknown", "shows", "limit", "seconds", "at_work"),
    [
        ([], True, None, 0, 0),
        ([], False, None, 0, 0),
        ([], False, 30, 0, 0),
        ([False], False, None, LONGEST, LONGEST),
        ([True, False], False, None, LONGEST, LONGEST),
        ([False], True, None, 5 + STRAGGLER, 5 + STRAGGLER),
        ([False, True], True, None, 5 + STRAGGLER, FETCHED),
        ([False], True, 0, 0, 0),
        ([True], False, 0, 0, 0),
        ([True], False, 3, 3, 3),
        ([False], True, 30, 30, 30),
    ],
)
def test_when_a_first_listing_is_answered(
    unknown: list[bool], shows: bool, limit: float | None, seconds: float, at_work: float
) -> None:
    """docs/design/decisions/0015: nothing unknown, nothing to wait for; five seconds in, another server arrived."""
    until = deadline(100, 105, unknown, shows=shows, limit=limit)
    assert until == Deadline(100 + seconds, 100 + at_work)


@given(
    began=st.floats(0, 1e6),
    after=st.floats(0, 44),
    unknown=st.lists(st.booleans(), min_size=1),
    shows=st.booleans(),
    limit=st.none() | st.floats(0, 1e3),
)
def test_every_wait_is_bounded(began: float, after: float, unknown: list[bool], shows: bool, limit: Any) -> None:
    """docs/behaviour.md#start: two seconds after the others, ten for what is fetched, less than any client waits."""
    until = deadline(began, began + after, unknown, shows=shows, limit=limit)
    assert until.at <= until.latest
    if limit is not None:
        assert until.latest == began + limit
    else:
        assert until.latest <= began + LONGEST < began + 60
        if shows:
            fetched = max(began + FETCHED, began + 2 * after) if any(unknown) else began
            assert until.at <= began + after + STRAGGLER
            assert until.latest <= max(began + after + STRAGGLER, fetched) + 1e-6


async def test_it_is_said_once_that_listings_can_be_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: by the last arrival or by the clock, never twice."""
    monkeypatch.setattr(first_listing, "STRAGGLER", 0.02)
    released: list[int] = []
    first = FirstListing(lambda: released.append(1), None, lambda: None)
    first.look([False, False], shows=False)
    first.look([False], shows=True)
    assert released == []
    await asyncio.sleep(0.1)
    assert released == [1]
    first.look([], shows=True)
    assert released == [1]


@pytest.mark.parametrize("idles_after", [0, 1, 3])
async def test_a_launcher_is_waited_for_while_it_is_at_work(monkeypatch: pytest.MonkeyPatch, idles_after: int) -> None:
    """docs/behaviour.md#start: one that hangs, that is, uses no processor time, is given up."""
    monkeypatch.setattr(first_listing, "STRAGGLER", 0.02)
    monkeypatch.setattr(first_listing, "IDLE", 0.01)
    looks: list[float] = []

    def work() -> float:
        looks.append(WORK * min(len(looks), idles_after))
        return looks[-1]

    released = asyncio.Event()
    first = FirstListing(released.set, None, work)
    first.look([True, False], shows=False)
    looks.clear()
    first.look([True], shows=True)
    await asyncio.wait_for(released.wait(), 30)
    assert len(looks) == idles_after + 2, "when the other one came, then until it does nothing"


async def test_a_launcher_of_which_nobody_can_tell_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: what `docker` starts is no child of it; so it has its ten seconds."""
    monkeypatch.setattr(first_listing, "STRAGGLER", 0.01)
    monkeypatch.setattr(first_listing, "IDLE", 0.01)
    monkeypatch.setattr(first_listing, "FETCHED", 0.3)
    asked: list[None] = []
    released = asyncio.Event()
    first = FirstListing(released.set, None, lambda: asked.append(None))
    first.look([True], shows=True)
    await asyncio.wait_for(released.wait(), 30)
    assert len(asked) > 3
