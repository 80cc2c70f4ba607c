"""The cells over stdio: what is done to every target, in turn, round after round."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.load import Load
from bench.process import TargetError, within
from bench.run import Run
from bench.targets import Direct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.process import Running
    from bench.targets import Target

    AnyTarget = Target | Direct

CALLS = {
    "small:1": (200, 1),
    "small:16": (200, 16),
    "small:64": (200, 64),
    "100KB:1": (102_400, 1),
    "1MB:1": (1_048_576, 1),
}
"""Cells of calls: bytes of the result, requests in flight."""
CHILDREN, CHILD_DELAY = 50, 0.2
"""How many servers the `children` cell starts, and how long each of them sleeps first: in a row that is 10 s."""
TOOLS = 10_000
IDLE = 10
CELLS = (*CALLS, "start", "children", "listing", "memory")


@dataclass(slots=True)
class StdioRun(Run["AnyTarget"]):
    """The comparison over stdio."""

    id_last: bool = False

    def run(self, cells: list[str]) -> None:
        """Measure these cells."""
        for target in self.targets:
            with self.attempt(target, "setting up"):
                target.prepare()
        if calls := {cell: CALLS[cell] for cell in cells if cell in CALLS}:
            self.calls(calls)
        if "start" in cells:
            self._starts("start", 1, 0)
        if "children" in cells:
            self._starts("children", CHILDREN, CHILD_DELAY)
        if "listing" in cells:
            self._listing()
        if "memory" in cells:
            self._memory()

    def calls(self, cells: Mapping[str, tuple[int, int]]) -> None:
        """Measure cells of calls: name, bytes of the result, requests in flight."""
        options = ["--id-last"] if self.id_last else []
        with self.placed(), ExitStack() as stack:
            opened = self._open_all(stack, "calls", 1, *options)
            for cell, (size, flight) in cells.items():
                loads: dict[str, Load] = {}
                for target in self.turn(0):
                    with self.attempt(target, cell):
                        loads[target.name] = Load(opened[target.name], size, flight, id_last=self.id_last)
                        loads[target.name].check()
                for number in range(self.rounds):
                    for target in self.turn(number):
                        with self.attempt(target, cell):
                            done = loads[target.name].run(self.seconds)
                            self.note(cell, target, rate=done.rate, p50=done.p50, p99=done.p99, cpu=done.cpu)

    def _starts(self, cell: str, children: int, delay: float) -> None:
        for number in range(self.rounds):
            for target in self.turn(number, self._gateways()):
                with self.attempt(target, cell), ExitStack() as stack, within(60, f"{target.name}: {cell}"):
                    begin = time.perf_counter()
                    many = children if isinstance(target, Direct) else 1
                    started = []
                    for _ in range(many):
                        started.append(target.start(cell, children, "--start-delay", str(delay)))
                        stack.callback(started[-1].close)
                    for running in started:
                        running.handshake()
                        running.list_until("echo", children // many)
                    self.note(cell, target, ms=(time.perf_counter() - begin) * 1e3)

    def _listing(self) -> None:
        expected = {f"tool_{n:05}" for n in range(1, TOOLS)}
        with self.placed(), ExitStack() as stack:
            opened = self._open_all(stack, "listing", TOOLS, "--tools", str(TOOLS))
            for target in self.turn(0, self._gateways()):
                with self.attempt(target, "listing"):
                    if missing := expected - {name[-10:] for name in opened[target.name].tools}:
                        raise TargetError(f"{len(missing)} tools are missing, such as {min(missing)}")
            for number in range(self.rounds):
                for target in self.turn(number, self._gateways()):
                    with self.attempt(target, "listing"), within(60, f"{target.name}: listing"):
                        self.note("listing", target, **listed(opened[target.name], self.seconds))

    def _memory(self) -> None:
        for target in self.turn(0, self._gateways()):
            if isinstance(target, Direct):
                continue
            with self.attempt(target, "memory"), ExitStack() as stack, within(60, f"{target.name}: memory"):
                running = target.start("memory", IDLE)
                stack.callback(running.close)
                running.handshake()
                running.list_until("echo", IDLE)
                time.sleep(0.3)
                self.note("memory", target, mb=running.rss())

    # What the cells share

    def _open_all(self, stack: ExitStack, label: str, tools: int, *options: str) -> dict[str, Running]:
        """Start every target in front of one server and wait until all tools are there."""
        opened: dict[str, Running] = {}
        for target in self.turn(0, None if label == "calls" else self._gateways()):
            with self.attempt(target, label), within(90, f"{target.name}: start for {label}"):
                running = target.start(label, 1, *options)
                stack.callback(running.close)
                running.handshake()
                running.list_until("", tools)
                opened[target.name] = running
        return opened

    def _gateways(self) -> list[AnyTarget]:
        return [target for target in self.targets if not target.calls_only]


def listed(running: Running, seconds: float) -> dict[str, float]:
    """List all tools again and again for a while: wall time and CPU of one list."""
    cpu, begin, count = running.cpu(), time.perf_counter(), 0
    while count == 0 or time.perf_counter() < begin + seconds:
        running.list_raw()
        count += 1
    wall, cpu = time.perf_counter() - begin, running.cpu() - cpu
    return {"ms": wall / count * 1e3, "cpu_ms": cpu / count * 1e3}
