"""How much memory this process uses, and how much it may: what is configured, else what its container allows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNLIMITED: Final = 1 << 60
"""Cgroups of the first kind say "no limit" by a number as large as this."""


class Footprint:
    """The memory of this process. Known on Linux only."""

    def __init__(self, limit: int | None = None, *, root: Path = Path("/")) -> None:
        """Measure against `limit` bytes, or against the container's limit. Reads nothing yet."""
        self._limit = limit
        self._root = root
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._asked = False

    def share(self) -> float | None:
        """The part that is in use; None if there is no limit, or no way to know."""
        if not self._asked:
            self._asked = True
            if self._limit is None:
                self._limit = min(self._container_limits(), default=None)
        if self._limit is None:
            return None
        try:
            resident = int((self._root / "proc/self/statm").read_bytes().split()[1])
        except OSError:
            return None
        return resident * self._page / self._limit

    def _container_limits(self) -> Iterator[int]:
        """Every limit that holds for us: those of our control group and of all groups around it."""
        try:
            groups = (self._root / "proc/self/cgroup").read_text().splitlines()
        except OSError:
            return
        for line in groups:
            _, controllers, path = line.split(":", 2)
            if not controllers:
                top, name = self._root / "sys/fs/cgroup", "memory.max"
            elif "memory" in controllers.split(","):
                top, name = self._root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
            else:
                continue
            # Inside a container the path may be one of the host's; what is mounted at the top is then our own.
            group = top / path.lstrip("/")
            for folder in (group, *group.parents):
                if folder.is_relative_to(top):
                    yield from _limit_in(folder / name)


def _limit_in(file: Path) -> Iterator[int]:
    try:
        text = file.read_text().strip()
    except OSError:
        return
    if text.isdecimal() and int(text) < _UNLIMITED:
        yield int(text)
