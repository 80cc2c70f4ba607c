"""Finding the processes of a test, whoever their parent is by now."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..stdio.harness import alive, until

if TYPE_CHECKING:
    from collections.abc import Iterator

CHILD = Path(__file__).with_name("child.py")


def entry(mark: str, *parts: str, **more: Any) -> dict[str, Any]:
    """The configuration of `child.py`."""
    return {"command": sys.executable, "args": ["-I", "-S", str(CHILD), mark, *parts], **more}


def marked(mark: str) -> list[int]:
    """Every process that runs with this mark in its command line."""
    wanted, found = mark.encode(), list[int]()
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if wanted in command.read_bytes().split(b"\0"):
                found.append(int(command.parent.name))
    return alive(found)


async def none_left(mark: str, seconds: float) -> None:
    """Fail if a process of this mark still runs after so long."""
    await until(lambda: not marked(mark), seconds)


@contextlib.contextmanager
def swept(mark: str) -> Iterator[None]:
    """Whatever a failed test has left behind ends with it."""
    try:
        yield
    finally:
        for pid in marked(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
