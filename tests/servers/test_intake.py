"""Reading from a child: a flood is slowed down, an answer is not (docs/behaviour.md#a-server-talks-nonsense)."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muxway.net.metronome import LONG
from muxway.net.pipes import Turn
from muxway.net.processes.journal import Journal
from muxway.net.processes.stderr import StderrTail
from muxway.servers.transports import intake
from muxway.servers.transports.intake import Budget, Intake
from muxway.wire.framing import LineFramer
from tests.pace import watching
from tests.servers.faking import play
from tests.servers.flooding import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.wire.framing import Oversized


class Pipe:
    """A pipe that is always full, and how often it was filled."""

    def __init__(self, content: bytes) -> None:
        self.reading, self._writing = os.pipe()
        for fd in (self.reading, self._writing):
            os.set_blocking(fd, False)
        self._content = content
        self.taken = 0
        self._loop = asyncio.get_running_loop()
        self._loop.add_writer(self._writing, self._fill)

    def _fill(self) -> None:
        self.taken += os.write(self._writing, self._content)

    def close(self) -> None:
        self._loop.remove_writer(self._writing)
        os.close(self._writing)


@pytest.mark.parametrize("kind", KINDS)
async def test_no_flood_holds_the_loop(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: not 20 ms of work at a time, and when the burst is over only a small part of all time."""
    monkeypatch.setattr(intake, "_BURST", 0.02)
    up = await play()
    up.calls(3)
    turn = Turn()
    pipe = Pipe(KINDS[kind])
    floods: list[str] = []
    monkeypatch.setattr(intake, "FLOOD_SECONDS", 0.3)
    framer = LineFramer(1 << 20, tails=True)
    taking = Intake(pipe.reading, turn, framer, up.channel.hear, lambda: None, lambda: floods.append(kind))
    async with watching(turn.metronome) as seen, asyncio.timeout(30):
        while not floods:
            await asyncio.sleep(0.02)
    taking.close()
    pipe.close()
    assert floods == [kind]
    assert seen.turn < LONG


async def test_stderr_is_slowed_down_too_and_never_a_reason_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: what a server writes for people is its own business, up to what it costs."""
    monkeypatch.setattr(intake, "_BURST", 0.02)
    monkeypatch.setattr(intake, "FLOOD_SECONDS", 0.1)
    turn = Turn()
    pipe = Pipe(KINDS["short"])
    journal = Journal()
    tail = StderrTail((), lambda _: None, asyncio.get_running_loop(), journal)
    taking = Intake(pipe.reading, turn, tail.framer, tail.take, tail.end)
    async with watching(turn.metronome) as seen, asyncio.timeout(30):
        while journal.count < 50_000:
            await asyncio.sleep(0.02)
    taking.close()
    pipe.close()
    assert seen.turn < LONG


async def test_answers_are_never_slowed_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: they were asked for."""
    monkeypatch.setattr(intake, "_BURST", 0.0)
    answered = 0

    def hear(lines: Sequence[bytes | Oversized]) -> int:
        nonlocal answered
        answered += len(lines)
        return 0

    pipe = Pipe(b"{}\n" * 10_000)
    taking = Intake(pipe.reading, Turn(), LineFramer(), hear, lambda: None)
    charged: list[float] = []
    monkeypatch.setattr(Budget, "spend", lambda *_: charged.append(1) or 0.0)
    async with asyncio.timeout(30):
        while answered < 200_000:
            await asyncio.sleep(0)
    assert charged == []
    taking.close()
    pipe.close()


async def test_whatever_becomes_of_one_line_the_next_is_read() -> None:
    """Ours: a reader that has stopped for good would look like a server that hangs."""
    heard = 0

    def hear(lines: Sequence[bytes | Oversized]) -> int:
        nonlocal heard
        heard += len(lines)
        if heard == 64:
            raise RuntimeError("expected")
        return len(lines)

    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["exception"]))
    pipe = Pipe(b"x\n" * 1000)
    taking = Intake(pipe.reading, Turn(), LineFramer(), hear, lambda: None)
    async with asyncio.timeout(30):
        while heard < 500:
            await asyncio.sleep(0.01)
    taking.close()
    pipe.close()
    assert [str(complaint) for complaint in complaints] == ["expected"]


async def test_a_server_amid_a_line_without_end_has_been_heard() -> None:
    """docs/behaviour.md#a-server-hangs: who writes is not silent, and not ended for answering nothing meanwhile."""
    up = await play()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    taking = Intake(reading, Turn(), LineFramer(), up.channel.hear, lambda: None)
    for _ in range(2):
        before = asyncio.get_running_loop().time()
        os.write(writing, b"A" * 1000)
        async with asyncio.timeout(30):
            while up.link.heard < before:
                await asyncio.sleep(0.01)
    taking.close()
    os.close(writing)


@given(st.lists(st.floats(0.0, 0.1), min_size=50, max_size=200))
def test_a_budget_allows_a_burst_and_a_share_and_no_more(work: list[float]) -> None:
    """Ours: whatever is done at once, those who keep to the pauses use so much of the time and no more."""
    budget, now, spent = Budget(), 1000.0, 0.0
    for seconds in work:
        pause = budget.spend(now, seconds)
        spent += seconds
        now += pause
    assert spent <= intake._BURST + (now - 1000.0) * intake._SHARE + 0.1 + 1e-6  # pyright: ignore[reportPrivateUsage]


def test_a_flood_that_rests_for_a_while_is_forgiven() -> None:
    """Ours: only what goes on without a break is a reason to end a server."""
    budget = Budget()
    now = 1000.0
    for _ in range(10):
        now += budget.spend(now, 1.0)
    assert budget.overdrawn(now) > 100
    now += 60
    assert budget.spend(now, 0.001) == 0.0
    assert budget.overdrawn(now) == 0.0
