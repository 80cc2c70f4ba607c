"""What middleware costs a call, and a view a list: settings of the same muxway over stdio, in turn.

The settings differ in `middleware` alone: one server, the same environment, the same calls. None of them refuses,
changes or answers a call itself, so that the difference to `none` is what it costs to be asked.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.cells import StdioRun, listed
from bench.process import TargetError, within
from bench.targets import Target, muxway_stdio, scratch

if TYPE_CHECKING:
    from pathlib import Path

    from bench.process import Running
    from bench.targets import Servers

FLIGHTS = {"middleware:16": (200, 16), "middleware:1": (200, 1)}
"""Cells of calls: bytes of the result, requests in flight."""
WHOLE, PART = 5_000, 500
"""Tools of the server of the `view` cell, and those that the view shows."""
PART_GLOB = "*tool_01[0-4]??"
MIDDLEWARE_CELLS = (*FLIGHTS, "view")
FINER = 5
"""So many more rounds of so much shorter slices: differences of a few µs need turns that are close to each other."""

LIMIT = {"use": "limit", "rate": "1000000/s"}
ALONE: dict[str, dict[str, Any]] = {
    "log": {"use": "log"},
    "audit": {"use": "audit"},
    "timeout": {"use": "timeout", "seconds": 30},
    "limit": LIMIT,
    "cache": {"use": "cache", "tools": ["*"]},
    "retry": {"use": "retry"},
    "truncate": {"use": "truncate"},
    "redact": {"use": "redact"},
    "secrets": {"use": "secrets", "values": {"API_TOKEN": "a-token-of-the-benchmark"}},
    "approve": {"use": "approve", "allow": ["*"]},
}
"""Each built-in by itself. No two calls are alike, so `cache` finds nothing and keeps everything."""
ELSEWHERE = ("log", "audit", "timeout", "cache", "retry", "redact", "approve")
"""Those that the setting `eight` has beside `limit`, for tools that are not called."""
SECRETS = {f"SECRET_{n}": f"secret-number-{n}-of-the-benchmark" for n in range(10)}
"""What the server's environment has, and `redact` looks for."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One `middleware` of the same gateway."""

    name: str
    middleware: tuple[dict[str, Any], ...]

    def target(self) -> Target:
        """What runs it."""
        return Target(self.name, muxway_stdio, self.shape)

    def shape(self, servers: Servers) -> dict[str, Any]:
        """The configuration with its middlewares."""
        specs = [{**spec, "path": str(self.record())} if spec["use"] == "audit" else spec for spec in self.middleware]
        servers = {name: {**entry, "env": SECRETS} for name, entry in servers.items()}
        return {"mcpServers": servers, "middleware": specs}

    def record(self) -> Path:
        """The file of `audit`."""
        return scratch(f"{self.name}-audit.jsonl")


ALL = (
    Setting("none", ()),
    Setting("eight", (*({**ALONE[name], "match": ["elsewhere__*"]} for name in ELSEWHERE), LIMIT)),
    Setting("log+limit+audit", (ALONE["log"], ALONE["limit"], ALONE["audit"])),
    *(Setting(name, (spec,)) for name, spec in ALONE.items()),
)
SETTINGS = tuple(setting.target() for setting in ALL)
LISTS = (
    (Target("whole", muxway_stdio), WHOLE, WHOLE),
    (
        Target(
            "view",
            partial(muxway_stdio, view="part"),
            lambda servers: {"mcpServers": servers, "views": {"part": {"tools": [PART_GLOB]}}},
        ),
        WHOLE,
        PART,
    ),
    (Target("small", muxway_stdio), PART, PART),
)
"""What the `view` cell compares: target, tools of its server, tools it must list."""


@dataclass(slots=True)
class MiddlewareRun(StdioRun):
    """The comparison of settings."""

    def run(self, cells: list[str]) -> None:
        """Measure these cells."""
        self.rounds, self.seconds = self.rounds * FINER, self.seconds / FINER
        if calls := {cell: FLIGHTS[cell] for cell in cells if cell in FLIGHTS}:
            try:
                self.calls(calls)
            finally:
                for setting in ALL:
                    setting.record().unlink(missing_ok=True)
        if "view" in cells:
            self._view()

    def _view(self) -> None:
        targets = [target for target, _, _ in LISTS]
        with self.placed(), ExitStack() as stack:
            opened: dict[str, Running] = {}
            for target, served, shown in LISTS:
                with self.attempt(target, "view"), within(90, f"{target.name}: start for view"):
                    running = target.start("view", 1, "--tools", str(served))
                    stack.callback(running.close)
                    running.handshake()
                    running.list_until("", shown)
                    if len(running.tools) != shown:
                        raise TargetError(f"{len(running.tools)} tools are listed instead of {shown}")
                    opened[target.name] = running
            for number in range(self.rounds):
                for target in self.turn(number, targets):
                    with self.attempt(target, "view"), within(60, f"{target.name}: view"):
                        self.note("view", target, **listed(opened[target.name], self.seconds))
