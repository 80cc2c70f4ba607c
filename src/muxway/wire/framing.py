r"""Bytes → lines, in linear time and bounded memory.

Cuts on `\n` only (never on U+2028, VT or FF, which are legal inside JSON strings).
Nothing is decoded here; a carriage return or byte order mark is the reader's to forgive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from muxway.wire.pieces import Pieces

DEFAULT_LIMIT: Final = 16 * 1024 * 1024
_HEAD: Final = 4096
_TAIL: Final = 512
_CRUMB: Final = 4096
_SPACES: Final = bytes.maketrans(b"\r\n", b"  ")


@dataclass(frozen=True, slots=True)
class Oversized:
    """A line over the limit. It was skipped without being kept, but for its first bytes."""

    head: bytes
    tail: bytes = b""
    """Its last bytes, when they are there and were asked for."""


def one_line(frame: bytes) -> bytes:
    """A message that came by other ways than a pipe, without line breaks.

    Outside strings these are only layout, and inside they cannot be.
    """
    return frame.translate(_SPACES) if b"\n" in frame or b"\r" in frame else frame


class LineFramer:
    """Collects chunks and gives back whole lines, in order."""

    __slots__ = ("_crumbs", "_limit", "_pieces", "_size", "_skipping", "_tail", "_tails", "wasted")

    def __init__(self, limit: int = DEFAULT_LIMIT, *, tails: bool = False) -> None:
        """A framer; with `tails`, a line over the limit is reported once more at its end, with its last bytes."""
        self._limit = limit
        self.wasted = 0
        """How many chunks had blank lines in them, or were a part of a line that is skipped."""
        self._tails = tails
        self._tail = b""
        self._pieces = Pieces()
        # Small chunks are gathered here first: a list of a million tiny pieces weighs far more than they do.
        self._crumbs = bytearray()
        self._size = 0
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | Oversized]:
        """Take a chunk; return the lines it completes, without their newline. Empty lines are left out."""
        line, newline, rest = data.partition(b"\n")
        lines: list[bytes | Oversized] = []
        if self._size or self._skipping:
            if not newline:
                self._keep(data, lines)
                return lines
            self._finish(line, lines)
            data = rest
        elif newline and not rest and 0 < len(line) <= self._limit:
            # One message, as nearly always.
            return [line]
        if not data:
            return lines
        # One split for the many small lines of a busy pipe.
        whole = data.split(b"\n")
        rest = whole.pop()
        if len(data) > self._limit:
            lines += [self._oversized(line) if len(line) > self._limit else line for line in whole if line]
        elif b"" in whole:
            self.wasted += 1
            lines += [line for line in whole if line]
        else:
            lines += whole
        if rest:
            self._keep(rest, lines)
        return lines

    def _oversized(self, line: bytes) -> Oversized:
        return Oversized(line[:_HEAD], line[-_TAIL:] if self._tails else b"")

    def end(self) -> bytes:
        """What was left without a newline when the stream ended."""
        self._sweep_crumbs()
        self._size = 0
        return self._pieces.take()

    def _keep(self, data: bytes, lines: list[bytes | Oversized]) -> None:
        if self._skipping:
            self.wasted += 1
            self._tail = (self._tail + data[-_TAIL:])[-_TAIL:]
            return
        self._size += len(data)
        if len(data) < _CRUMB:
            self._crumbs.extend(data)
        else:
            self._sweep_crumbs()
            self._pieces.add(data)
        if self._size > self._limit:
            # Report at once: whoever waits for this line must not wait for its end, which may never come.
            line = self.end()
            self._tail = line[-_TAIL:]
            lines.append(Oversized(line[:_HEAD]))
            self._skipping = True

    def _sweep_crumbs(self) -> None:
        if self._crumbs:
            self._pieces.add(bytes(self._crumbs))
            self._crumbs = bytearray()

    def _finish(self, data: bytes, lines: list[bytes | Oversized]) -> None:
        self._keep(data, lines)
        if self._skipping:
            if self._tails:
                lines.append(Oversized(b"", self._tail))
            self._skipping = False
            return
        line = self.end()
        if line:
            lines.append(line)
