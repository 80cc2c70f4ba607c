"""Medians, ratios and tables: what the reports are made of."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Samples = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]

NONE = "–"


class Figures:
    """Medians of the samples, None where there are none."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def of(self, cell: str, target: str, metric: str) -> float | None:
        """The median over the rounds."""
        values = self._samples.get(cell, {}).get(target, {}).get(metric)
        return median(values) if values else None

    def least(self, cell: str, target: str, metric: str) -> float | None:
        """The smallest of the rounds."""
        return min(self._samples.get(cell, {}).get(target, {}).get(metric, ()), default=None)

    def spread(self, cell: str, target: str, metric: str) -> str:
        """Smallest and largest of the rounds."""
        values = self._samples.get(cell, {}).get(target, {}).get(metric)
        return f"{number(min(values))}–{number(max(values))}" if values else NONE

    def times(self, cell: str, target: str, other: str, metric: str) -> float | None:
        """How many times better a target is than another: higher rates, lower everything else."""
        mine, theirs = self.of(cell, target, metric), self.of(cell, other, metric)
        if not mine or not theirs:
            return None
        return mine / theirs if metric == "rate" else theirs / mine


def number(value: float | None, unit: str = "") -> str:
    """Three significant digits, thousands grouped."""
    if value is None:
        return NONE
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}{unit}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Align columns, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *values in rows:
        cells = [value.rjust(width) for value, width in zip(values, widths[1:], strict=True)]
        lines.append("  ".join(["", name.ljust(widths[0]), *cells]))
    return "\n".join(lines)


class Verdicts:
    """The list of what muxway set itself: figure, target, measured, reached."""

    def __init__(self) -> None:
        self._rows = [["figure", "target", "measured", "reached"]]

    def __bool__(self) -> bool:
        return len(self._rows) > 1

    def __str__(self) -> str:
        return table(self._rows)

    def add(self, figure: str, goal: str, measured: float | None, unit: str, limit: float) -> None:
        """Add a figure; a goal that begins with ≥ is a least one, any other a most. One not measured is left out."""
        if measured is not None:
            reached = measured >= limit if goal.startswith("≥") else measured <= limit
            self._rows.append([figure, goal, number(measured, unit), "yes" if reached else "NO"])
