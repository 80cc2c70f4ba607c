"""Draws `session.svg`: a terminal in which muxway is at work.

    .venv/bin/python docs/pictures/session.py

The commands are really run, on a terminal of a fixed width in an empty home folder, and what they say is drawn as it
came, colours included. Only the times differ from one run to the next.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[2]
PICTURE = Path(__file__).with_name("session.svg")
COMMANDS = (
    "export MUXWAY_CONFIG=examples/servers.jsonc",
    "muxway check --connect",
    "muxway tools",
    "muxway call clock__convert time=09:30 from=UTC to=Asia/Tokyo",
    "muxway explain notes__delete",
)
COLUMNS = 80
FONT, WIDTH, HEIGHT, MARGIN, BAR = 14, 8.43, 20, 20, 38
FAMILY = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
COLOURS = {"31": "#ff7b72", "32": "#56d364", "33": "#e3b341", "90": "#8b949e"}
PLAIN, TYPED, PROMPT, GROUND, EDGE = "#d0d7de", "#ffffff", "#79c0ff", "#0d1117", "#30363d"
_CELL = re.compile(r"\S+(?: \S+)*")
_STYLED = re.compile(r"\x1b\[([0-9;]*)m")

Run = tuple[str, str, bool]
"""Text, its colour, whether it is bold."""


def said(command: str, home: Path) -> str:
    """What stays on the terminal. A slow start is told on stderr, which is ours. Raises CalledProcessError."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # With a temporary folder of its own, no gateway that runs on this machine is asked.
    folders = {name: str(home) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")}
    settings = {"PATH": path, "TERM": "xterm-256color", "LANG": "C.UTF-8", **folders}
    settings["MUXWAY_CONFIG"] = COMMANDS[0].partition("=")[2]
    with subprocess.Popen(  # noqa: S603 - the commands above
        [sys.executable, "-m", *command.split()], cwd=ROOT, env=settings, stdin=theirs, stdout=theirs
    ) as running:
        os.close(theirs)
        heard = bytearray()
        try:
            while more := os.read(ours, 65536):
                heard += more
        except OSError:
            pass  # Linux says so when the other end is closed
        os.close(ours)
        if running.wait(60):
            raise subprocess.CalledProcessError(running.returncode, command, heard.decode())
    return heard.decode().replace("\r\n", "\n").rstrip()


def session() -> list[list[Run]]:
    """The lines of the terminal, from the first prompt to the last."""
    lines: list[list[Run]] = []
    with tempfile.TemporaryDirectory() as home:
        for command in COMMANDS:
            lines.append([("$ ", PROMPT, True), (command, TYPED, True)])
            if command.startswith("muxway "):
                lines += [coloured(line) for line in said(command, Path(home)).split("\n")]
                lines.append([])
    return lines[:-1]


def coloured(line: str) -> list[Run]:
    """A line of a terminal, cut where its colour changes."""
    runs: list[Run] = []
    colour, bold = PLAIN, False
    for place, part in enumerate(_STYLED.split(line)):
        if place % 2 == 0:
            runs += [(part, colour, bold)] if part else []
            continue
        for code in part.split(";"):
            if code in ("", "0"):
                colour, bold = PLAIN, False
            elif code == "1":
                bold = True
            else:
                colour = COLOURS[code]
    return runs


def drawn(lines: list[list[Run]]) -> str:
    """The lines as SVG, each cell of a table in its column, whatever the reader's font."""
    width, height = round(COLUMNS * WIDTH) + 2 * MARGIN, BAR + len(lines) * HEIGHT + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="A terminal">',
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="10" fill="{GROUND}" stroke="{EDGE}"/>',
        *(
            f'<circle cx="{MARGIN + 20 * place}" cy="19" r="6" fill="{fill}"/>'
            for place, fill in enumerate(("#ff5f57", "#febc2e", "#28c840"))
        ),
        f'<g font-family="{FAMILY}" font-size="{FONT}">',
    ]
    for row, runs in enumerate(lines):
        column, y = 0, BAR + row * HEIGHT + FONT
        for text, colour, bold in runs:
            weight = ' font-weight="bold"' if bold else ""
            for cell in _CELL.finditer(text):
                x, long = MARGIN + (column + cell.start()) * WIDTH, len(cell[0]) * WIDTH
                place = f'x="{x:.1f}" y="{y}" textLength="{long:.1f}"'
                parts.append(f'<text {place} fill="{colour}"{weight}>{escape(cell[0])}</text>')
            column += len(text)
    return "\n".join([*parts, "</g>", "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(drawn(session()), encoding="utf-8")
