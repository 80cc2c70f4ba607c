"""Samples of the cells over stdio in, text out: one table per cell, then the figures muxway set itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from bench.cells import CALLS, CHILD_DELAY, CHILDREN, IDLE, TOOLS
from bench.echo_server import padding
from bench.figures import Figures, number, table

if TYPE_CHECKING:
    from bench.figures import Samples, Verdicts

PEERS = ("fastmcp", "mcp-gateway")
TITLES = {
    **{cell: f"{size:,}-byte results, {flight} in flight" for cell, (size, flight) in CALLS.items()},
    "start": "from start to the first tools/list that has the tool; own = less what the server itself takes",
    "children": f"start with {CHILDREN} servers that each sleep {CHILD_DELAY} s, until all their tools are listed",
    "listing": f"tools/list with {TOOLS:,} tools",
    "memory": f"resident memory with {IDLE} idle servers",
}


def tables(samples: Samples) -> str:
    """All cells that were measured."""
    figures = Figures(samples)
    parts = []
    for cell in (cell for cell in TITLES if cell in samples):
        ratios = [f"× {peer}" for peer in PEERS]
        first = "rate" if cell in CALLS else "mb" if cell == "memory" else "ms"
        more = {"rate": ["p50 ms", "p99 ms", "CPU µs/call"], "ms": [], "mb": []}[first]
        more = {"start": ["own ms"], "children": ["own ms"], "listing": ["CPU ms"]}.get(cell, more)
        rows = [["target", {"rate": "calls/s", "ms": "ms", "mb": "MB"}[first], "min–max", *ratios, *more]]
        for target in samples[cell]:
            shown = [figures.of(cell, target, metric) for metric in ("p50", "p99", "cpu")]
            if cell in ("start", "children"):
                shown = [None if target == "direct" else own(figures, cell, target)]
            elif cell == "listing":
                shown = [figures.of(cell, target, "cpu_ms")]
            elif cell == "memory":
                shown = []
            times = [figures.times(cell, target, peer, first) for peer in PEERS]
            middle, spread = figures.of(cell, target, first), figures.spread(cell, target, first)
            rows.append([target, number(middle), spread, *map(number, times), *map(number, shown)])
        parts.append(f"{cell}: {TITLES[cell]}\n{table(rows)}")
    return "\n\n".join(parts)


def own(figures: Figures, cell: str, target: str) -> float | None:
    """The gateway's own part of a start."""
    whole, server = figures.of(cell, target, "ms"), figures.of(cell, "direct", "ms")
    return None if whole is None or server is None else whole - server


def decoding() -> float:
    """How many µs of CPU the fastest decoder at hand needs for the line of a 1 MB result.

    CPU and not wall time, because it is compared with CPU: on a busy machine wall time would raise the limit.
    """
    line = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"' + padding(1 << 20)[1] + b'"}]}}'
    taken = []
    for _ in range(20):
        begin = time.process_time()
        msgspec.json.decode(line)
        taken.append(time.process_time() - begin)
    return min(taken) * 1e6


def judge(samples: Samples, verdicts: Verdicts) -> None:
    """Add the figures of these cells."""
    figures, row = Figures(samples), verdicts.add
    for cell, factor in (("small:1", 30), ("small:16", 60), ("100KB:1", 10)):
        times = figures.times(cell, "muxway", "fastmcp", "rate")
        row(f"{cell} calls/s against FastMCP", f"≥ {factor} ×", times, " ×", factor)
    small = [cpu for cell in CALLS if cell.startswith("small") and (cpu := figures.of(cell, "muxway", "cpu"))]
    row("added CPU per small call, worst cell", "≤ 40 µs", max(small, default=None), " µs", 40)
    if "1MB:1" in samples:
        limit = decoding()
        cpu = figures.of("1MB:1", "muxway", "cpu")
        row("1 MB result, CPU below decoding it (a hint)", f"≤ {number(limit)} µs", cpu, " µs", limit)
    row("start to first tools/list, own part", "≤ 250 ms", own(figures, "start", "muxway"), " ms", 250)
    serial = CHILDREN * CHILD_DELAY * 1e3
    whole = figures.of("children", "muxway", "ms")
    row(f"{CHILDREN} children in parallel (in a row: {number(serial)} ms)", "≤ 2,500 ms", whole, " ms", serial / 4)
    mine, server = figures.of("listing", "muxway", "ms"), figures.of("listing", "direct", "ms")
    times = mine / server if mine and server else None
    row(f"tools/list of {TOOLS:,} against direct", "≤ 1.5 ×", times, " ×", 1.5)
    row("tools/list, gateway CPU", "≤ 4 ms", figures.of("listing", "muxway", "cpu_ms"), " ms", 4)
    row(f"resident memory, {IDLE} idle children", "≤ 45 MB", figures.of("memory", "muxway", "mb"), " MB", 45)
