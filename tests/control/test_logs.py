"""`muxway logs`: what servers wrote to stderr."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.control.conftest import Gateway, talker, until
from tests.control.terminal import Terminal
from tests.pace import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from click.testing import Result


class Following:
    """`muxway logs -f` as a process."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "muxway", "logs", "-f", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines += map(str.rstrip, self.process.stdout)

    def end(self) -> None:
        """Stop following."""
        self.process.kill()
        self._reading.join(PATIENCE)
        self.process.communicate(timeout=PATIENCE)


@pytest.fixture
def follow() -> Iterator[Callable[..., Following]]:
    started: list[Following] = []

    def start(*words: str) -> Following:
        # Appended line by line, so that a test sees each as it comes.
        started.append(Following(*words))
        return started[-1]

    yield start
    for one in started:
        one.end()


def test_logs_are_the_servers_stderr(launch: Callable[..., Gateway], muxway: Callable[..., Result]) -> None:
    """docs/cli.md#muxway-logs: `muxway logs SERVER`; `-n` takes the last ones."""
    gateway = launch({"mcpServers": {"talker": talker()}})
    gateway.settled()
    gateway.call("talker__say", lines=["one", "two", "three"])
    until(lambda: "three" in muxway("logs", "talker").output, "the line")
    assert muxway("logs", "talker").output.splitlines() == ["talker is up, without a token", "one", "two", "three"]
    assert muxway("logs", "talker", "-n", "2").output.splitlines() == ["two", "three"]
    assert muxway("logs", "talker", "-n", "0").output == ""


def test_a_server_that_failed_has_its_last_words(launch: Callable[..., Gateway], muxway: Callable[..., Result]) -> None:
    """Ours: they are what one looks for then. Escapes are shown, not obeyed."""
    launch({"mcpServers": {"refusing": talker("--refuse")}}).settled()
    assert muxway("logs", "refusing").output.splitlines()[-1] == "no database \\x1b[31mhere"


def test_secrets_are_masked(launch: Callable[..., Gateway], muxway: Callable[..., Result]) -> None:
    """Ours: a log is the first thing people paste into an issue."""
    launch({"mcpServers": {"talker": talker(env={"API_TOKEN": "sesame-open-1"})}}).settled()
    assert muxway("logs", "talker").output.splitlines() == ["talker is up, ***"]


def test_a_terminal_gets_no_control_characters(launch: Callable[..., Gateway]) -> None:
    """docs/operating.md#logs: control characters are escaped on output to a terminal."""
    gateway = launch({"mcpServers": {"talker": talker()}})
    gateway.settled()
    gateway.call("talker__say", lines=["bell \x07 and \x1b]0;title\x07", "last"])
    with Terminal([sys.executable, "-m", "muxway", "logs", "talker"], columns=80, rows=24) as terminal:
        assert terminal.end() == 0
    assert "\x07" not in terminal.said
    assert "\x1b" not in terminal.said
    assert "bell \\x07" in terminal.said


def test_following_loses_and_repeats_nothing(launch: Callable[..., Gateway], follow: Callable[..., Following]) -> None:
    """docs/cli.md#muxway-logs: `logs -f` follows; also lines that are alike, or come in thousands."""
    gateway = launch({"mcpServers": {"talker": talker()}})
    gateway.settled()
    following = follow("talker")
    until(lambda: following.lines == ["talker is up, without a token"], "the first line")
    gateway.call("talker__say", lines=["same", "same", "-", "-", "same"])
    until(lambda: len(following.lines) >= 6, "the next lines")
    gateway.call("talker__say", lines=["-", "same"])
    until(lambda: len(following.lines) >= 8, "the next lines")
    assert following.lines[1:] == ["same", "same", "-", "-", "same", "-", "same"]
    gateway.call("talker__count", word="line", up_to=3000)
    until(lambda: following.lines[-1] == "line 2999", "the last line")
    assert following.lines[8:] == [f"line {number}" for number in range(3000)]


def test_following_goes_on_when_the_server_is_restarted(
    launch: Callable[..., Gateway], follow: Callable[..., Following], muxway: Callable[..., Result]
) -> None:
    """Ours: whoever watches a server that crashes wants to see why, and what comes after."""
    gateway = launch({"mcpServers": {"talker": talker()}})
    gateway.settled()
    following = follow("talker")
    until(lambda: bool(following.lines), "the first line")
    gateway.call("talker__die", lines=["out of cheese"])
    until(lambda: following.lines.count("talker is up, without a token") == 2, "the restart")
    assert following.lines == ["talker is up, without a token", "out of cheese", "talker is up, without a token"]


def test_following_ends_when_the_gateway_does(launch: Callable[..., Gateway], follow: Callable[..., Following]) -> None:
    """Ours: exit 4, with the reason."""
    gateway = launch({"mcpServers": {"talker": talker()}})
    gateway.settled()
    following = follow("talker")
    until(lambda: bool(following.lines), "the first line")
    gateway.process.terminate()
    assert following.process.wait(PATIENCE) == 4
    assert following.process.stderr is not None
    assert f"the gateway with pid {gateway.pid} has ended" in following.process.stderr.read()


def test_those_who_stop_following_are_forgotten(
    launch: Callable[..., Gateway], follow: Callable[..., Following]
) -> None:
    """Ours: more than there may be at the same time, one after the other."""
    gateway = launch({"mcpServers": {"talker": talker()}})
    running = gateway.settled()
    for _ in range(20):
        lines = running.lines("logs", server="talker", last=None, follow=True)
        assert next(lines) == "talker is up, without a token"
        lines.close()
        time.sleep(0.05)
    assert running.ask("who")["pid"] == gateway.pid


def test_an_unknown_server_gets_the_nearest_name(launch: Callable[..., Gateway], muxway: Callable[..., Result]) -> None:
    """Ours: nearest-name suggestions on typos."""
    launch({"mcpServers": {"talker": talker()}}).settled()
    result = muxway("logs", "tlaker")
    assert result.exit_code == 2
    assert 'there is no server "tlaker"; did you mean "talker"?' in result.stderr
