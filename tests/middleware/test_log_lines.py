"""The lines of `log` are written many at a time; none is lost, and all stay in order."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muxway import log
from muxway.log import EventLog
from muxway.middleware.builtin.log import Log
from muxway.testing import ScriptedServer

from .chained import chained

if TYPE_CHECKING:
    from collections.abc import Iterator

many = EventLog("calls", gathered=True)
few = EventLog("gateway")


class Stderr(io.StringIO):
    """Counts how often it is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, text: str, /) -> int:
        self.writes += 1
        return super().write(text)

    def lines(self) -> list[str]:
        return [line.partition(" ")[2] for line in self.getvalue().splitlines()]


@pytest.fixture
def stderr() -> Iterator[Stderr]:
    """Where the log goes once a test has called `setup`; all is put back after."""
    logger = logging.getLogger("muxway")
    before = logger.handlers[:], logger.level, logger.propagate
    yield Stderr()
    for lines in log._OWN:
        lines.close()
    log._OWN[:] = []
    logger.handlers[:], _, logger.propagate = before
    logger.setLevel(before[1])


def setup(stderr: Stderr, folder: Path | None = None) -> None:
    """Send the log to stderr, as the command does. Within the test: pytest adds handlers of its own before."""
    logging.getLogger("muxway").handlers[:] = []
    with contextlib.redirect_stderr(stderr):
        log.setup("info", folder)


async def test_lines_of_a_busy_log_are_written_together_within_a_moment(stderr: Stderr, tmp_path: Path) -> None:
    """Ours: a system call costs more than a line."""
    setup(stderr, tmp_path)
    for n in range(100):
        many.info("call", n=n)
    assert stderr.lines() == []
    async with asyncio.timeout(5):
        while not stderr.writes:
            await asyncio.sleep(0.01)
    assert stderr.writes == 1
    assert stderr.lines() == [f"info call n={n}" for n in range(100)]
    assert (tmp_path / "muxway.log").read_text() == stderr.getvalue()
    many.info("call", n=100)
    await asyncio.sleep(2 * log._GATHER)
    assert stderr.lines()[100:] == ["info call n=100"]


async def test_any_other_line_is_written_at_once_and_in_order(stderr: Stderr) -> None:
    """Ours: what went wrong stands after what went before it."""
    setup(stderr)
    many.info("call", n=1)
    few.warning("server lost", server="up")
    many.info("call", n=2)
    few.info("stopped")
    assert stderr.lines() == ["info call n=1", "warning server lost server=up", "info call n=2", "info stopped"]


def test_lines_without_a_loop_and_of_threads_are_written_at_once(stderr: Stderr) -> None:
    """Ours: where no event loop runs nobody would write them later."""
    setup(stderr)
    many.info("call", n=1)
    thread = threading.Thread(target=lambda: many.info("call", n=2))
    thread.start()
    thread.join()
    assert stderr.lines() == ["info call n=1", "info call n=2"]


def test_lines_that_wait_when_the_loop_ends_are_written_before_the_process_does(tmp_path: Path) -> None:
    """Ours: also in a loop that never got to it, and one after it does not wait for the timer of the first."""
    script = (
        "import asyncio, pathlib, sys; from muxway import log; from muxway.log import EventLog\n"
        "log.setup('info', pathlib.Path(sys.argv[1])); many = EventLog('calls', gathered=True)\n"
        "async def call(n): many.info('call', n=n)\n"
        "asyncio.run(call(1)); asyncio.run(call(2))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True, timeout=30
    )
    assert [line.partition(" ")[2] for line in ended.stderr.splitlines()] == ["info call n=1", "info call n=2"]
    assert (tmp_path / "muxway.log").read_text() == ended.stderr


async def test_a_thousand_calls_are_all_in_the_log_when_the_gateway_has_ended(stderr: Stderr) -> None:
    """Ours: closing the middleware writes what is left."""
    setup(stderr)
    async with chained({"up": ScriptedServer(tools={"echo": None})}, Log()) as world:
        client = await world.client()
        ids = [client.start("tools/call", {"name": "up__echo", "arguments": {"n": n}}) for n in range(1000)]
        for id_ in ids:
            await client.answer(id_)
    assert len([line for line in stderr.lines() if "outcome=ok" in line]) == 1000
    assert stderr.writes < 500


def test_others_who_listen_get_records(stderr: Stderr, caplog: pytest.LogCaptureFixture) -> None:
    """Ours: a program may have handlers of its own beside ours."""
    setup(stderr)
    logger = logging.getLogger("muxway")
    logger.addHandler(caplog.handler)
    few.info("started", server="a b")
    logger.removeHandler(caplog.handler)
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("muxway.gateway", 'started server="a b"')
    ]
    assert stderr.lines() == ['info started server="a b"']


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_a_file_that_cannot_be_written_keeps_no_line_from_stderr(
    stderr: Stderr, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ours: a full disk costs the file its lines, and nobody a call."""
    (tmp_path / "muxway.log").symlink_to("/dev/full")
    setup(stderr, tmp_path)
    few.warning("one")
    few.warning("two")
    assert stderr.lines() == ["warning one", "warning two"]
    assert "No space left on device" in capsys.readouterr().err
