"""Figures in few characters, and tables of them that fit the terminal."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from muxway.cli.output import cut, dim, on_terminal, width

if TYPE_CHECKING:
    from collections.abc import Sequence

NOTHING = "-"
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))
_LEAST, _ENOUGH = 8, 12
"""Characters that the first column keeps in the narrowest terminal, and before other columns are left out for it."""


def duration(seconds: float | None) -> str:
    """How long something lasts, to two units: `3h12m`."""
    if seconds is None:
        return NOTHING
    rest = int(seconds)
    for (size, unit), (smaller, next_unit) in zip(_UNITS, (*_UNITS[1:], (1, "s")), strict=True):
        if rest >= size:
            part = rest % size // smaller
            return f"{rest // size}{unit}{part}{next_unit}" if part else f"{rest // size}{unit}"
    return f"{rest}s"


def latency(seconds: float | None) -> str:
    """How long a call takes: `0.4ms`, `12ms`, `1.2s`."""
    if seconds is None:
        return NOTHING
    if seconds < 0.00995:
        return f"{seconds * 1000:.1f}ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < 99.95 else duration(seconds)


def memory(count: int | None) -> str:
    """A number of bytes: `87M`."""
    if count is None:
        return NOTHING
    return f"{count / 1e6:.0f}M" if count < 999.5e6 else f"{count / 1e9:.1f}G"


def number(count: int) -> str:
    """A count: `950`, `12k`, `3.4M`."""
    if count < 10_000:
        return str(count)
    return f"{count / 1e3:.0f}k" if count < 999_500 else f"{count / 1e6:.1f}M"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    heading: str
    cells: Sequence[str]
    left: bool = False
    """Whether it is text; figures stand on the right."""
    short: str = ""
    """The heading where there is little room, if another."""
    spare: int = 0
    """Above zero: may be left out where there is no room, the highest first."""


def table(columns: Sequence[Column]) -> list[str]:
    """The lines of a table, headings first. On a terminal it fits: closer together, without spare columns, cut."""
    room = shutil.get_terminal_size().columns if on_terminal() else None
    kept, gap = _fitting(list(columns), room)
    widths = [_wide(column) for column in kept]
    if room is not None:
        # What is still too much is taken from the names.
        widths[0] = max(min(widths[0], room - sum(widths[1:]) - gap * (len(kept) - 1)), _LEAST)
    lines: list[str] = []
    for row in zip(*((dim(column.heading), *column.cells) for column in kept), strict=True):
        cells = [_fill(cell, wide, left=column.left) for cell, wide, column in zip(row, widths, kept, strict=True)]
        lines.append((" " * gap).join(cells).rstrip())
    return lines


def _fitting(columns: list[Column], room: int | None) -> tuple[list[Column], int]:
    """The columns that there is room for, and how far apart they stand."""
    if room is None or _needed(columns, 2) <= room:
        return columns, 2
    columns = [replace(column, heading=column.short or column.heading) for column in columns]
    while _needed(columns, 1) > room and (spare := max(columns, key=lambda column: column.spare)).spare:
        columns.remove(spare)
    return columns, 1


def _needed(columns: list[Column], gap: int) -> int:
    first, *others = map(_wide, columns)
    return min(first, _ENOUGH) + sum(others) + gap * len(others)


def _wide(column: Column) -> int:
    return max(len(column.heading), *map(width, column.cells), 0)


def _fill(cell: str, wide: int, *, left: bool) -> str:
    if width(cell) > wide:
        cell = cut(click.unstyle(cell), wide)
    blanks = " " * (wide - width(cell))
    return cell + blanks if left else blanks + cell
