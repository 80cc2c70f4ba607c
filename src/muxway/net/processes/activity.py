"""Whether a process is at work: how much processor time it and its children have used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_MOST: Final = 64
"""Processes of a tree that are looked at: a launcher has a handful."""


def processor_time(pid: int) -> float | None:
    """Seconds that a process, its children, and those of them that have ended have used; None if nobody can tell."""
    used, tree = _ticks(pid), [pid]
    if used is None:
        return None
    for parent in tree:
        for child in _children(parent)[: _MOST - len(tree)]:
            # One that has ended meanwhile is counted with its parent.
            used += _ticks(child) or 0
            tree.append(child)
    return used / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        # Gone, not ours to look at, or a system without such a table.
        return None
    # The command name comes second, in parentheses, and may itself hold spaces and parentheses.
    return sum(int(used) for used in stat[stat.rindex(b")") + 2 :].split()[11:15])


def _children(pid: int) -> list[int]:
    """Those that any of its threads has started."""
    try:
        of_threads = [path.read_bytes() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for started in of_threads for child in started.split()]
