"""The cells over HTTP: calls in front of a stdio and of an HTTP server, and what idle clients cost."""

from __future__ import annotations

import resource
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench import http_load
from bench.http_targets import DIRECT, MUXWAY, HttpTarget
from bench.process import TargetError, within
from bench.run import Run

if TYPE_CHECKING:
    from bench.http_client import Client
    from bench.http_targets import Entry, HttpRunning

SIZE = 200
CONNECTIONS = {"http:1": 1, "http:16": 16}
"""Cells of calls: clients, each with a connection and a session of its own and one call in flight."""
WARM_UPS = 3
"""Slices that do not count: Node needs thousands of calls until it has compiled what it runs."""
SESSIONS = 5_000
IDLE_CONNECTIONS = 10_000
SPARE_FILES = 200
"""Files a process needs besides its connections."""
OURS = ("muxway", "before")
"""Targets of the cells that are about muxway alone."""
SETTLED = 0.3
"""Seconds after the first answer until memory is read."""
HTTP_CELLS = (*CONNECTIONS, "http-upstream", "http-start", "idle-sessions", "idle-connections")


@dataclass(slots=True)
class HttpRun(Run[HttpTarget]):
    """The comparison over HTTP."""

    def run(self, cells: list[str]) -> None:
        """Measure these cells."""
        for target in self.targets:
            with self.attempt(target, "setting up"):
                target.prepare()
        if "http-start" in cells:
            self._starts()
        with self.placed():
            if calls := [cell for cell in cells if cell in CONNECTIONS]:
                self._calls(calls)
            if "http-upstream" in cells:
                self._upstream()
            if "idle-sessions" in cells:
                self._sessions()
            if MUXWAY in self.targets and "idle-connections" in cells:
                self._connections()

    def _calls(self, cells: list[str]) -> None:
        with ExitStack() as stack:
            opened: dict[str, HttpRunning] = {}
            for target in self.turn(0):
                with self.attempt(target, "http"):
                    opened[target.name] = ready(stack, target, "http")
            for cell in cells:
                self._slices(cell, CONNECTIONS[cell], opened)

    def _ours(self) -> list[HttpTarget]:
        return [target for target in self.targets if target.name in OURS]

    def _upstream(self) -> None:
        """Calls at one connection through muxway, and directly, to one HTTP server."""
        cell = "http-upstream"
        with ExitStack() as stack:
            opened: dict[str, HttpRunning] = {}
            with self.attempt(DIRECT, cell):
                opened["direct"] = ready(stack, DIRECT, cell)
                for target in self._ours():
                    with self.attempt(target, cell):
                        entry = {"url": f"http://127.0.0.1:{opened['direct'].port}/mcp"}
                        opened[target.name] = ready(stack, target, cell, entry)
            self._slices(cell, 1, opened)
        noted = self.samples[cell]
        for target in self._ours():
            for through, straight in zip(noted[target.name]["p50"], noted["direct"]["p50"], strict=False):
                self.note(cell, target, added=through - straight)

    def _starts(self) -> None:
        """From the start of muxway to a list that has the tool, and its memory then."""
        cell = "http-start"
        for number in range(self.rounds):
            for target in self.turn(number, self._ours()):
                with self.attempt(target, cell), ExitStack() as stack:
                    begin = time.perf_counter()
                    running = ready(stack, target, cell)
                    first = time.perf_counter() - begin
                    time.sleep(SETTLED)
                    self.note(cell, target, ms=first * 1e3, mb=running.rss())

    def _slices(self, cell: str, connections: int, opened: dict[str, HttpRunning]) -> None:
        """Measure these targets in turn, each with so many clients. Their first slices only warm them up."""
        among = [target for target in self.targets if target.name in opened]
        with ExitStack() as stack:
            clients: dict[str, list[Client]] = {}
            for target in self.turn(0, among):
                with self.attempt(target, cell):
                    with within(60, f"{target.name}: {connections} handshakes"):
                        clients[target.name] = crowd(stack, opened[target.name], connections)
                    for _ in range(WARM_UPS):
                        http_load.run(clients[target.name], self.seconds)
            for number in range(self.rounds):
                for target in self.turn(number, among):
                    with self.attempt(target, cell):
                        done = http_load.run(clients[target.name], self.seconds)
                        self.note(cell, target, rate=done.rate, p50=done.p50, p99=done.p99)
                        self.note(cell, target, cpu=done.cpu, load=done.load)

    # What idle clients cost

    def _sessions(self) -> None:
        """Open sessions by `initialize` on one connection, weigh them, and call from every one of them."""
        cell = "idle-sessions"
        for target in self._ours():
            with self.attempt(target, cell), ExitStack() as stack:
                running = ready(stack, target, cell)
                with within(120, f"{target.name}: {SESSIONS:,} sessions"):
                    [client] = crowd(stack, running, 1)
                    before = running.rss()
                    heads: list[bytes] = []
                    for _ in range(SESSIONS):
                        client.handshake()
                        heads.append(client.head)
                    grown = running.rss() - before
                    if len(set(heads)) != SESSIONS:
                        raise TargetError(f"{len(set(heads)):,} sessions were opened instead of {SESSIONS:,}")
                    for client.head in heads:
                        client.prepare(running.echo, SIZE)  # checks one result in full
                self.note(cell, target, kb=grown * 1e3 / SESSIONS)

    def _connections(self) -> None:
        """Hold connections that have been used once, call on others meanwhile, and use each again."""
        cell = "idle-connections"
        with self.attempt(MUXWAY, cell), ExitStack() as stack:
            allow_files(IDLE_CONNECTIONS + SPARE_FILES)
            running = ready(stack, MUXWAY, cell)
            with within(60, "muxway: 16 handshakes"):
                active = crowd(stack, running, 16)
            http_load.run(active, self.seconds)
            alone = [http_load.run(active, self.seconds).rate for _ in range(self.rounds)]
            before = running.rss()
            with within(120, f"muxway: {IDLE_CONNECTIONS:,} connections"):
                idle: list[Client] = []
                for _ in range(IDLE_CONNECTIONS):
                    idle.append(active[0].another())
                    stack.callback(idle[-1].close)
                    idle[-1].ask("ping", {})
            grown = running.rss() - before
            for rate in alone:
                done = http_load.run(active, self.seconds)
                self.note(cell, MUXWAY, rate=done.rate, p50=done.p50, p99=done.p99, alone=rate)
            with within(120, f"muxway: {IDLE_CONNECTIONS:,} connections used again"):
                for client in idle:
                    client.ask("ping", {})
            self.note(cell, MUXWAY, kb=grown * 1e3 / IDLE_CONNECTIONS)


def ready(stack: ExitStack, target: HttpTarget, label: str, entry: Entry | None = None) -> HttpRunning:
    """Start a target and wait for its tool."""
    with within(90, f"{target.name}: start for {label}"):
        running = target.start(label, entry)
        stack.callback(running.close)
        running.wait()
        return running


def crowd(stack: ExitStack, running: HttpRunning, many: int) -> list[Client]:
    """So many clients, each with a session, whose first result was right."""
    clients: list[Client] = []
    for _ in range(many):
        clients.append(running.client())
        stack.callback(clients[-1].close)
        clients[-1].prepare(running.echo, SIZE)
    return clients


def allow_files(wanted: int) -> None:
    """Raise this process's limit of open files; the target raises its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise TargetError(f"the system allows {hard:,} open files and {wanted:,} are needed: raise `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
