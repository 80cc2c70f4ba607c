"""Printing for people: glyphs, tables that fit the terminal, text that cannot control it; and JSON for programs."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from typing import TYPE_CHECKING

import click

from muxway.log import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOOKS = {
    "running": ("✓", "+", "green"),
    "valid": ("✓", "+", "green"),
    "ok": ("✓", "+", "green"),
    "failed": ("✗", "x", "red"),
    "error": ("✗", "x", "red"),
    "warning": ("!", "!", "yellow"),
    "breaking": ("✗", "x", "red"),
    "risk": ("!", "!", "yellow"),
    "safe": ("✓", "+", "green"),
    "initializing": ("…", ".", "yellow"),
    "restarting": ("↻", "~", "yellow"),
    "login needed": ("◌", "?", "yellow"),
    "logged in": ("●", "+", "green"),
    "no login": ("○", "-", "bright_black"),
    "sleeping": ("◦", "-", "bright_black"),
    "stopped": ("■", "-", "bright_black"),
    "disabled": ("⊘", "-", "bright_black"),
}
"""Word → its glyph, the glyph where only ASCII can be shown, and its colour. The word is always shown too."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What may move the cursor, change colours or turn the direction of text: all control characters but \\n and \\t."""


def on_terminal() -> bool:
    """Whether a person reads along."""
    return sys.stdout.isatty()


def badge(word: str) -> str:
    """A glyph and the word, coloured."""
    glyph, plain, colour = _LOOKS[word]
    return click.style(f"{glyph if _shows(glyph) else plain} {word}", fg=colour)


def dim(text: str) -> str:
    """Text of less importance."""
    return click.style(text, fg="bright_black")


def heading(text: str) -> str:
    """Text that begins a part."""
    return click.style(text, bold=True)


def _shows(glyph: str) -> bool:
    try:
        glyph.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def one_line(text: str) -> str:
    """Foreign text as one line that cannot move the cursor or change colours."""
    return printable(" ".join(text.split()))


def show_text(text: str) -> None:
    """Print foreign text of many lines: as it is to a pipe, without control characters to a terminal."""
    if on_terminal():
        text = _CONTROL.sub(lambda match: printable(match[0]), text)
    # click would take colours out of what goes to a pipe; but these are the tool's, and its reader may want them.
    click.echo(text, color=True)


def show_json(document: object) -> None:
    """Print one document for programs; on a terminal it is the same document, and cannot control it."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    if on_terminal():
        text = _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    click.echo(text, color=True)


def show_table(rows: Sequence[Sequence[str]], *, indent: int = 0, gap: int = 2) -> None:
    """Print rows in aligned columns. On a terminal, the last column is cut where the line ends."""
    if not rows:
        return
    widths = [max(map(width, column)) for column in zip(*(row[:-1] for row in rows), strict=True)]
    room = _terminal_width() - indent - sum(widths) - gap * len(widths)
    for row in rows:
        cells = [cell + " " * (wide - width(cell)) for cell, wide in zip(row[:-1], widths, strict=True)]
        last = row[-1] if "\x1b" in row[-1] else cut(row[-1], max(room, 16))
        click.echo(" " * indent + (" " * gap).join([*cells, last]).rstrip())


def fits(line: str) -> bool:
    """Whether there is room for the line; a pipe has room."""
    return not on_terminal() or width(line) <= _terminal_width()


def cut(text: str, room: int) -> str:
    """The text, ended with an ellipsis if it is wider than the room. Only on a terminal: a pipe has room."""
    if not on_terminal() or width(text) <= room:
        return text
    text = text[:room]
    while text and width(text) > room - 1:
        text = text[:-1]
    return text + "…"


def wrapped(word: str, text: str, lines: int | None = None) -> list[str]:
    """A badge and text beside it: on a terminal in as many lines as it takes, or at most so many; else in one."""
    start = f"{badge(word)}  "
    if not on_terminal():
        return [start + text]
    # Blanks in place of the badge, whose colours take no room.
    blank = " " * width(start)
    found = textwrap.wrap(
        text,
        max(_terminal_width(), 20),
        initial_indent=blank,
        subsequent_indent="    ",
        max_lines=lines,
        placeholder=" …",
        break_on_hyphens=False,
    )
    return [start + found[0].removeprefix(blank), *found[1:]]


class StatusLine:
    """One line on stderr that is written over again and again; nothing at all unless that is a terminal which can."""

    def __init__(self) -> None:
        self.on = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False

    def show(self, text: str) -> None:
        """Replace what the line says."""
        if self.on:
            # A terminal that nobody has given a size has none.
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            click.echo(f"\r\x1b[K{text[: columns - 1]}", err=True, nl=False, color=True)
            self._shown = True

    def wipe(self) -> None:
        """Leave no trace."""
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False, color=True)
            self._shown = False


def plural(count: int, noun: str) -> str:
    """`1 tool`, `3 tools`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def size(count: int) -> str:
    """A number of bytes for people: `12 kB`."""
    if count < 1000:
        return plural(count, "byte")
    return f"{count / 1000:.0f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def _terminal_width() -> int:
    import shutil  # with all its compressors, half a megabyte that a gateway does not need

    return shutil.get_terminal_size().columns


def width(text: str) -> int:
    """Columns the text takes on a terminal."""
    plain = click.unstyle(text) if "\x1b" in text else text
    if plain.isascii():
        return len(plain)
    import unicodedata  # only for these

    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in plain)
