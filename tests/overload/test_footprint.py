"""How much memory we use and may use, as Linux tells it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from muxway.net.memory_limit import Footprint

if TYPE_CHECKING:
    from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1024 * 1024


def system(root: Path, files: dict[str, str]) -> Path:
    """A file system with these files, and a process that uses 25 MiB."""
    for name, text in {"proc/self/statm": f"99999 {25 * MIB // PAGE} 1 1 0 1 0\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{100 * MIB}\n"}, 100),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, None),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": f"{50 * MIB}\n"}, 50),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": f"{50 * MIB}\n",
                "sys/fs/cgroup/a/b/memory.max": f"{200 * MIB}\n",
            },
            50,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/docker/1\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{100 * MIB}\n",
            },
            100,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            None,
        ),
        ({"proc/self/cgroup": "0::/../../gone\n"}, None),
        ({}, None),
    ],
    ids=["v2", "v2 unlimited", "v2 parent", "v2 smallest", "v1", "v1 unlimited", "not there", "no cgroups"],
)
def test_the_container_says_how_much_there_is(files: dict[str, str], limit: int | None, tmp_path: Path) -> None:
    """docs/configuration.md#gateway: gateway.maxMemory, else the cgroup's, else none."""
    share = Footprint(root=system(tmp_path, files)).share()
    assert share == (None if limit is None else pytest.approx(25 / limit, rel=0.01))


def test_what_is_configured_counts_for_more(tmp_path: Path) -> None:
    """docs/configuration.md#gateway: gateway.maxMemory comes first."""
    root = system(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{100 * MIB}\n"})
    assert Footprint(50 * MIB, root=root).share() == pytest.approx(0.5, rel=0.01)


def test_where_nothing_tells_nothing_is_measured(tmp_path: Path) -> None:
    """Ours: macOS has no /proc."""
    assert Footprint(50 * MIB, root=tmp_path).share() is None


def test_this_process_is_measured() -> None:
    """Ours: against the real system."""
    share = Footprint(1024 * MIB).share()
    assert share is not None
    assert 0.01 < share < 4
