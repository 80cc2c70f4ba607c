"""Whether a process is at work."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from muxway.net.processes.activity import processor_time
from muxway.net.processes.reaper import has_process_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(not has_process_table(), reason="this system has no /proc to look at")

USE_TIME = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
THEN_WAIT = "print(flush=True); input()"


@pytest.fixture
def start() -> Iterator[Callable[[str], int]]:
    """Starts a program and waits until it says that it has done its work."""
    started: list[subprocess.Popen[bytes]] = []

    def start(program: str) -> int:
        process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process.pid

    yield start
    for process in started:
        process.communicate(b"\n", timeout=10)


@pytest.mark.parametrize(
    "program",
    [
        USE_TIME + THEN_WAIT,
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {USE_TIME + THEN_WAIT!r}])",
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {USE_TIME!r}]); {THEN_WAIT}",
        (
            "import subprocess, sys, threading; threading.Thread(target=subprocess.run, "
            f"args=([sys.executable, '-c', {USE_TIME + THEN_WAIT!r}],)).start()"
        ),
    ],
    ids=["itself", "a child", "a child that has ended", "a child of a thread"],
)
def test_the_time_of_a_whole_tree_counts(start: Callable[[str], int], program: str) -> None:
    """docs/behaviour.md#start: a launcher works by itself, or has others work."""
    used = processor_time(start(program))
    assert used is not None
    assert used >= 0.3


def test_one_that_waits_uses_none(start: Callable[[str], int]) -> None:
    """docs/behaviour.md#start: so one that hangs is told from one that starts."""
    pid = start(THEN_WAIT)
    assert processor_time(pid) == processor_time(pid)


def test_of_a_process_that_is_gone_nobody_can_tell() -> None:
    """Ours: the start has failed by then, or another will say so."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(10)
    assert processor_time(process.pid) is None
