"""Samples of the cells over HTTP in, text out: one table per cell, then the figures muxway set itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.figures import Figures, number, table
from bench.http_cells import CONNECTIONS, IDLE_CONNECTIONS, SESSIONS, SIZE
from bench.http_targets import NODE_PEERS

if TYPE_CHECKING:
    from bench.figures import Samples, Verdicts

TITLES = {
    **{cell: f"{SIZE}-byte results, {many} keep-alive connections, stdio server" for cell, many in CONNECTIONS.items()},
    "http-upstream": "the same at one connection in front of an HTTP server; added = p50 less that of direct",
    "http-start": "from the start of muxway to a list that has the tool of its stdio server; resident memory then",
    "idle-sessions": f"memory of muxway per session, {SESSIONS:,} open and idle; each answered a call afterwards",
    "idle-connections": f"calls on 16 connections while {IDLE_CONNECTIONS:,} others are idle; alone = without these",
}
TITLES["http:1"] = TITLES["http:1"].replace("connections", "connection")
COLUMNS = {
    "rate": "calls/s",
    "spread": "min–max",
    "fastmcp": "× fastmcp",
    "node": "× best Node",
    "p50": "p50 ms",
    "p99": "p99 ms",
    "cpu": "CPU µs/call",
    "load": "load µs/call",
    "added": "added ms",
    "alone": "alone",
    "kb": "KB each",
    "ms": "ms",
    "mb": "MB",
}
CALLS = ("rate", "spread", "fastmcp", "node", "p50", "p99", "cpu", "load")
SHOWN = {
    **dict.fromkeys(CONNECTIONS, CALLS),
    "http-upstream": ("rate", "spread", "p50", "p99", "cpu", "load", "added"),
    "http-start": ("ms", "mb"),
    "idle-sessions": ("kb",),
    "idle-connections": ("rate", "spread", "p50", "p99", "alone", "kb"),
}


def tables(samples: Samples) -> str:
    """All cells that were measured."""
    figures = Figures(samples)
    parts = []
    for cell in (cell for cell in TITLES if cell in samples):
        rows = [["target", *(COLUMNS[column] for column in SHOWN[cell])]]
        rows += [
            [target, *(shown(figures, cell, target, column) for column in SHOWN[cell])] for target in samples[cell]
        ]
        parts.append(f"{cell}: {TITLES[cell]}\n{table(rows)}")
    return "\n\n".join(parts)


def shown(figures: Figures, cell: str, target: str, column: str) -> str:
    """One field of a table."""
    if column == "spread":
        return figures.spread(cell, target, "rate")
    if column == "fastmcp":
        return number(figures.times(cell, target, "fastmcp", "rate"))
    if column == "node":
        return number(times_node(figures, cell, target))
    return number(figures.of(cell, target, column))


def times_node(figures: Figures, cell: str, target: str) -> float | None:
    """How many times the rate of the fastest Node peer."""
    times = [value for peer in NODE_PEERS if (value := figures.times(cell, target, peer, "rate"))]
    return min(times, default=None)


def share(figures: Figures, cell: str, metric: str) -> float | None:
    """How much of what the other version takes, where there is one."""
    times = figures.times(cell, "muxway", "before", metric)
    return None if times is None else 1 / times


def judge(samples: Samples, verdicts: Verdicts) -> None:
    """Add the figures of these cells."""
    figures, row = Figures(samples), verdicts.add
    for cell, factor in (("http:16", 25), ("http:1", 8)):
        times = figures.times(cell, "muxway", "fastmcp", "rate")
        row(f"{cell} calls/s against FastMCP", f"≥ {factor} ×", times, " ×", factor)
    row("http:16 calls/s against the fastest Node peer", "≥ 8 ×", times_node(figures, "http:16", "muxway"), " ×", 8)
    row("http:16 CPU per call against before", "≤ 0.75 ×", share(figures, "http:16", "cpu"), " ×", 0.75)
    row("HTTP upstream, added latency against before", "≤ 0.7 ×", share(figures, "http-upstream", "added"), " ×", 0.7)
    for cell, metric, what in (
        ("http-start", "ms", "start to the first list"),
        ("http-start", "mb", "memory after the start"),
        ("idle-sessions", "kb", "memory per idle session"),
    ):
        row(f"{what} against before", "≤ 1.03 ×", share(figures, cell, metric), " ×", 1.03)
    added = figures.of("http-upstream", "muxway", "added")
    row("HTTP upstream, added latency at one connection", "≤ 0.4 ms", added, " ms", 0.4)
    row("memory per idle session", "≤ 20 KB", figures.of("idle-sessions", "muxway", "kb"), " KB", 20)
