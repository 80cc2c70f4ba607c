"""What a child writes to stderr: always drained, kept in a ring, attributed, and free of secrets.

An undrained pipe stops its writer after 64 KiB, so this never pauses, whatever arrives.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from muxway.log import masker, printable
from muxway.protocol.framing import LineFramer, Oversized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_RING_BYTES: Final = 256 * 1024
_LINE_BYTES: Final = 8 * 1024
_LINES_PER_SECOND: Final = 100


class StderrTail:
    """The last lines of one child."""

    def __init__(self, secrets: Iterable[str], on_line: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._mask = masker(secrets)
        self._on_line = on_line
        self._clock = clock
        self._framer = LineFramer(_LINE_BYTES)
        self._lines: deque[str] = deque()
        self._size = 0
        self._second = 0.0
        self._reported = 0
        self._suppressed = 0

    def feed(self, data: bytes) -> None:
        """Take what was read."""
        for line in self._framer.feed(data):
            self._keep(line.head + b"..." if isinstance(line, Oversized) else line)

    def end(self) -> None:
        """No more will come; a last line without a newline counts too."""
        rest = self._framer.end()
        if rest:
            self._keep(rest)

    def lines(self) -> list[str]:
        """Everything kept, oldest first."""
        return list(self._lines)

    def last(self) -> str | None:
        """The last line that says something."""
        return next((line for line in reversed(self._lines) if line.strip()), None)

    def _keep(self, raw: bytes) -> None:
        text = printable(self._mask(raw.decode("utf-8", "replace").rstrip("\r\n")))
        self._lines.append(text)
        self._size += len(text)
        while self._size > _RING_BYTES:
            self._size -= len(self._lines.popleft())
        self._report(text)

    def _report(self, text: str) -> None:
        now = self._clock()
        if now - self._second >= 1.0:
            if self._suppressed:
                self._on_line(f"({self._suppressed} more lines not logged)")
            self._second, self._reported, self._suppressed = now, 0, 0
        if self._reported < _LINES_PER_SECOND:
            self._reported += 1
            self._on_line(text)
        else:
            self._suppressed += 1
