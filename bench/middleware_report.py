"""Samples of the cells of middleware in, text out: one table per cell, then the figures muxway set itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.figures import Figures, number, table
from bench.middleware_cells import FLIGHTS, LISTS, PART, WHOLE

if TYPE_CHECKING:
    from bench.figures import Samples, Verdicts

TITLES = {
    **{
        cell: f"{size}-byte results, {flight} in flight; least = CPU in the best round, over = more of it than none"
        for cell, (size, flight) in FLIGHTS.items()
    },
    "view": f"tools/list: all of {WHOLE:,} tools, a view of {PART} of them, and a gateway that has no more than {PART}",
}


def tables(samples: Samples) -> str:
    """All cells that were measured."""
    figures = Figures(samples)
    parts = []
    for cell in (cell for cell in TITLES if cell in samples):
        rows = lists(figures) if cell == "view" else settings(figures, cell, list(samples[cell]))
        parts.append(f"{cell}: {TITLES[cell]}\n{table(rows)}")
    return "\n\n".join(parts)


def settings(figures: Figures, cell: str, names: list[str]) -> list[list[str]]:
    """The rows of a cell of calls."""
    rows = [["middleware", "calls/s", "min–max", "CPU µs/call", "least", "over"]]
    for name in names:
        middle = [number(figures.of(cell, name, metric)) for metric in ("rate", "cpu")]
        best = [number(figures.least(cell, name, "cpu")), number(over(figures, cell, name))]
        rows.append([name, middle[0], figures.spread(cell, name, "rate"), middle[1], *best])
    return rows


def over(figures: Figures, cell: str, name: str) -> float | None:
    """How many µs of CPU a call takes more than without middleware.

    Of the best rounds, not the medians: whatever else runs on the machine only adds, and more to those who do more.
    """
    mine, without = figures.least(cell, name, "cpu"), figures.least(cell, "none", "cpu")
    return None if mine is None or without is None else mine - without


def lists(figures: Figures) -> list[list[str]]:
    """The rows of the `view` cell."""
    rows = [["listed", "tools", "ms", "min–max", "CPU ms", "µs/tool"]]
    for target, _, shown in LISTS:
        ms, cpu = figures.of("view", target.name, "ms"), figures.of("view", target.name, "cpu_ms")
        each = None if ms is None else ms * 1e3 / shown
        spread = figures.spread("view", target.name, "ms")
        rows.append([target.name, f"{shown:,}", number(ms), spread, number(cpu), number(each)])
    return rows


def judge(samples: Samples, verdicts: Verdicts) -> None:
    """Add the figures of these cells."""
    figures, row = Figures(samples), verdicts.add
    for cell in FLIGHTS:
        for name, figure, limit in (
            ("eight", "eight middlewares, one interested", 5),
            ("log+limit+audit", "log, limit and audit", 40),
        ):
            row(f"{cell} {figure}, CPU more per call", f"≤ {limit} µs", over(figures, cell, name), " µs", limit)
    view, whole, small = (figures.of("view", name, "ms") for name in ("view", "whole", "small"))
    row(f"a view of {PART} of {WHOLE:,} tools against the whole", "≤ 1 ×", ratio(view, whole), " ×", 1)
    row(f"a view of {PART} tools against a gateway with {PART}", "≤ 1.2 ×", ratio(view, small), " ×", 1.2)


def ratio(one: float | None, other: float | None) -> float | None:
    """One by the other, if both were measured."""
    return one / other if one and other else None
