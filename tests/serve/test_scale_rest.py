"""Connections between two requests: closed when they rest for too long, and only then."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from muxway.clients.transports.http_connection import Reminder

from .harness import BOTH, request

if TYPE_CHECKING:
    from collections.abc import Callable

    from .harness import Client, Web

REST = 0.2
"""Doors of these tests close a connection after so many seconds of rest."""


def message(web: Web, client: Client, method: str, path: str, body: object = None, **headers: str) -> bytes:
    """A request of a session, as bytes."""
    given = {"Host": web.host, "Accept": BOTH, **client.headers, **headers}
    data = b""
    if body is not None:
        data = json.dumps(body).encode()
        given |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
    return "\r\n".join(lines).encode() + data


async def test_a_connection_is_closed_when_it_rests_for_too_long_after_a_quick_answer(web: Any) -> None:
    """Ours: who does not come back does not keep a connection (`Limits.idle_seconds`)."""
    async with web(idle_connection=REST) as http:
        client = await http.session()
        opened = await (await http.raw(message(http, client, "POST", "/mcp", request("ping")))).head()
        assert opened.status == 200
        assert json.loads(await opened.rest())["result"] == {}
        assert await opened.closed() == b""


async def test_a_long_stream_after_a_quick_answer_is_not_taken_for_rest(web: Any) -> None:
    """Ours: the stream of a session may be silent for as long as it likes."""
    async with web(keep_alive=REST / 4, idle_connection=REST) as http:
        client = await http.session()
        opened = await (await http.raw(message(http, client, "POST", "/mcp", request("ping")))).head()
        await opened.rest()
        opened.writer.write(message(http, client, "GET", "/mcp", Accept="text/event-stream"))
        assert (await opened.head()).status == 200
        for _ in range(12):
            # Three times the rest in all: each comment comes a quarter of it after the one before.
            opened.comments = 0
            await opened.comment()


class FakeLoop:
    """A loop whose time is told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[FakeTimer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> FakeTimer:
        self.timers.append(FakeTimer(self, self.now + seconds, callback))
        return self.timers[-1]

    def run_until(self, now: float) -> None:
        while due := sorted((timer for timer in self.timers if timer.at <= now), key=lambda timer: timer.at):
            self.timers.remove(due[0])
            self.now = due[0].at
            due[0].callback()
        self.now = now


class FakeTimer:
    """One of its timers."""

    def __init__(self, loop: FakeLoop, at: float, callback: Callable[[], None]) -> None:
        self._loop, self.at, self.callback = loop, at, callback

    def cancel(self) -> None:
        self._loop.timers.remove(self)


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


@pytest.fixture
def reminder(loop: FakeLoop) -> Any:
    return Reminder(loop)  # pyright: ignore[reportArgumentType]


def test_a_reminder_comes_once_after_the_time_of_its_last_setting(loop: FakeLoop, reminder: Any) -> None:
    """Ours: what was set before is forgotten."""
    heard: list[float] = []
    for second in range(50):
        loop.run_until(second)
        reminder.set(10, lambda: heard.append(loop.now))
    assert len(loop.timers) == 1
    loop.run_until(200)
    assert heard == [59]


def test_a_reminder_that_was_cleared_does_not_come(loop: FakeLoop, reminder: Any) -> None:
    """Ours: a request that is under way has clocks of its own."""
    heard: list[float] = []
    reminder.set(10, lambda: heard.append(loop.now))
    reminder.clear()
    loop.run_until(50)
    assert heard == []
    reminder.set(10, lambda: heard.append(loop.now))
    loop.run_until(100)
    assert heard == [60]


def test_a_reminder_may_be_set_for_earlier_than_before(loop: FakeLoop, reminder: Any) -> None:
    """Ours: the timer that runs for a later one must not delay it."""
    heard: list[str] = []
    reminder.set(75, lambda: heard.append("late"))
    reminder.set(1, lambda: heard.append("soon"))
    loop.run_until(2)
    assert heard == ["soon"]
    loop.run_until(200)
    assert heard == ["soon"]
    assert loop.timers == []


def test_a_reminder_that_is_stopped_leaves_nothing_in_the_loop(loop: FakeLoop, reminder: Any) -> None:
    """Ours: a lost connection must not be held by a timer."""
    reminder.set(75, lambda: None)
    reminder.stop()
    assert loop.timers == []
