"""A sink that can be awaited."""

from __future__ import annotations

import asyncio

import pytest

from muxway.calls.ports import Waiter
from muxway.errors import InvalidParams


class Work:
    """A request under way that remembers being cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[str | None] = []

    def cancel(self, reason: str | None) -> None:
        """The caller gave up."""
        self.cancelled.append(reason)


async def test_the_outcome_is_what_the_sink_was_given_in_one_piece() -> None:
    """calls.ports: a result may come in pieces."""
    waiter = Waiter()
    waiter.done(b'{"a":', b"1}")
    assert await waiter.outcome(None) == b'{"a":1}'


async def test_a_failure_is_raised() -> None:
    """calls.ports: raises the RpcError it failed with."""
    waiter, error = Waiter(), InvalidParams("no")
    waiter.failed(error)
    with pytest.raises(InvalidParams) as caught:
        await waiter.outcome(Work())
    assert caught.value is error


async def test_only_the_first_outcome_counts() -> None:
    """calls.ports: exactly one outcome, once; a second is nobody's."""
    waiter = Waiter()
    waiter.done(b"1")
    waiter.done(b"2")
    waiter.failed(InvalidParams("late"))
    assert await waiter.outcome(None) == b"1"


async def test_cancelling_the_wait_cancels_the_request() -> None:
    """docs/behaviour.md#cancel-and-progress: a cancellation reaches the server."""
    waiter, work = Waiter(), Work()
    task = asyncio.create_task(waiter.outcome(work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.cancelled == [None]
    waiter.done(b"late")


async def test_progress_is_heard_by_whoever_asked_for_it() -> None:
    """calls.ports: progress never ends the wait."""
    heard: list[dict[str, object]] = []
    waiter = Waiter(heard.append)
    waiter.progress({"progress": b"1"})
    Waiter().progress({"progress": b"1"})
    waiter.done(b"{}")
    assert await waiter.outcome(None) == b"{}"
    assert heard == [{"progress": b"1"}]
