"""What the system knows of processes: their names, parents and memory. Nothing, where there is no /proc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_AFTER_NAME = {"parent": 1, "pages": 21}
"""Where in /proc/PID/stat these stand, counted from the end of the name."""


class StartedProcess(NamedTuple):
    """A process that runs."""

    pid: int
    parent: int
    name: str
    """Its program. Not its command line, which may hold secrets."""
    memory: int
    """Bytes of it in memory, shared ones included."""


def running() -> dict[int, StartedProcess]:
    """Every process there is, by its id."""
    found = map(_process, (int(entry.name) for entry in Path("/proc").glob("[0-9]*")))
    return {process.pid: process for process in found if process is not None}


def _process(pid: int) -> StartedProcess | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().decode(errors="replace")
    except OSError:
        return None
    # The name stands in parentheses and may hold any character, also these.
    before, _, after = text.rpartition(")")
    words = after.split()
    pages = int(words[_AFTER_NAME["pages"]])
    name = before.partition("(")[2]
    return StartedProcess(pid, int(words[_AFTER_NAME["parent"]]), name, pages * os.sysconf("SC_PAGE_SIZE"))


def tree(root: int | None, every: Mapping[int, StartedProcess]) -> list[StartedProcess]:
    """A process and all below it, each after its parent."""
    if root is None or root not in every:
        return []
    below = [process.pid for process in every.values() if process.parent == root]
    return [every[root], *(process for pid in sorted(below) for process in tree(pid, every))]


def used(found: Iterable[StartedProcess]) -> int | None:
    """The memory of all of them; None if nothing is known of any."""
    sizes = [process.memory for process in found]
    return sum(sizes) if sizes else None
