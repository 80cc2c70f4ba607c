"""Ten thousand locked definitions: they are compared beside the event loop (docs/lock.md, docs/behaviour.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from muxway.catalog import lock_text
from muxway.catalog.locking import LockedServer, Record

from .hostile_server import tools
from .test_metronome import LISTING
from .watched import Watched, hostile, watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from muxway import Gateway

LOCKED = 0.020
"""Seconds for whoever asks for anything while 10,000 definitions are compared."""


def record(name: str, **other: Any) -> Record:
    """What is locked of a tool."""
    return {"description": "It does something.", "inputSchema": {"type": "object"}, **other}


LISTED = [tool["name"] for tool in tools("many")]
LOCKS = {
    "as it is": {name: record(name) for name in LISTED},
    "all changed": {name: record(name, description=f"See tool_{number}.") for number, name in enumerate(LISTED)},
    "all new": {f"{name}_": record(name) for name in LISTED},
}
# `echo` and `say` are new, and it says something of itself.
DIFFERENCES = {"as it is": 4, "all changed": len(LISTED) + 4, "all new": 2 * len(LISTED) + 4}


class Locked:
    """A gateway with a lock, a server that has ten thousand tools, and a small one."""

    def __init__(self, running: Watched, file: Path) -> None:
        self.running = running
        self._file = file

    def relock(self, lock: str) -> None:
        """Put another lock in force."""
        write(self._file, lock)

        async def put(gateway: Gateway) -> None:
            await gateway.relock()
            assert len(gateway.drifts()["many"]) == DIFFERENCES[lock]

        self.running.do(put)


def write(file: Path, lock: str) -> None:
    """Lock something else."""
    file.write_text(lock_text.written({"many": LockedServer(records={"tools": LOCKS[lock]})}), "utf-8")


@pytest.fixture(scope="module", params=["warn", "enforce"])
def locked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    """One, with each mode."""
    folder = tmp_path_factory.mktemp("locked")
    file = folder / "muxway.lock"
    write(file, "as it is")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        settings = {"lock": request.param, "lockFile": str(file)}
        with watched({"many": hostile("many"), "small": hostile("", "small")}, gateway=settings) as running:
            yield Locked(running, file)


@pytest.mark.parametrize("lock", ["all changed", "all new"])
def test_no_other_lock_holds_the_loop(lock: str, locked: Locked) -> None:
    """docs/lock.md: there and back; and what it says is so when it is over."""

    def there_and_back() -> None:
        locked.relock(lock)
        locked.relock("as it is")

    assert locked.running.holds_for(LOCKED, there_and_back) < LOCKED


def test_no_server_with_locked_tools_that_comes_holds_the_loop(locked: Locked) -> None:
    """docs/lock.md: nor one that goes."""

    async def away_and_back(gateway: Gateway) -> None:
        await gateway.remove("many")
        await gateway.add("many", hostile("many"))
        assert any(tool.server == "many" for tool in gateway.tools())

    assert locked.running.holds_for(LISTING, lambda: locked.running.do(away_and_back)) < LISTING
