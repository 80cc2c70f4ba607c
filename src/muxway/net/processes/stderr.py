"""What a child writes to stderr: always drained, kept in a ring, attributed, and free of secrets.

An undrained pipe stops its writer after 64 KiB, so it is always read; a flood of it, more slowly. Lines are kept as
they came: hardly any of a flood is ever looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muxway.log import masker, printable
from muxway.wire.framing import LineFramer, Oversized

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence

    from muxway.net.processes.journal import Journal, Lines, Show

_LINE_BYTES: Final = 8 * 1024
_LINES_PER_SECOND: Final = 100
_NPM: Final = (b"npm error ", b"npm ERR! ")
_NPM_CODE: Final = (b"npm error code ", b"npm ERR! code ")
"""How `npx`, which starts most servers, says what is wrong: a code, the reason, advice, and where its log is."""


class StderrTail:
    """The last lines of one child. Tells `on_line` of each, but not of more than so many a second."""

    def __init__(
        self,
        secrets: Iterable[str],
        on_line: Callable[[str], None],
        loop: asyncio.AbstractEventLoop,
        journal: Journal,
    ) -> None:
        self._shown = _show(secrets)
        self._journal, self._before = journal, journal.count
        self._on_line = on_line
        self._loop = loop
        self.framer = LineFramer(_LINE_BYTES)
        self._last = b""
        self._second = float("-inf")
        self._told = 0
        self._left_out = 0
        self._timer: asyncio.TimerHandle | None = None

    def take(self, lines: Sequence[bytes | Oversized]) -> int:
        """Take lines. Returns how many, as nobody asked for them."""
        for line in lines:
            self._keep(line.head + b"..." if isinstance(line, Oversized) else line)
        return len(lines)

    def end(self) -> None:
        """No more will come; a last line without a newline counts too."""
        rest = self.framer.end()
        if rest:
            self._keep(rest)
        self._tell_left_out()

    def lines(self) -> Lines:
        """What is kept since this child began; its server's others may have added to it."""
        return self._journal.lines(self._before)

    def last(self) -> str | None:
        """The last line that says something; of what npm says, the reason."""
        return self._shown(self._last) if self._last else None

    def _keep(self, raw: bytes) -> None:
        self._journal.keep(raw, self._shown)
        if raw.strip() and not (raw.startswith(_NPM) and _is_npms_reason(self._last)):
            self._last = raw
        now = self._loop.time()
        if now - self._second >= 1.0:
            self._tell_left_out()
            self._second, self._told = now, 0
        if self._told < _LINES_PER_SECOND:
            self._told += 1
            self._on_line(self._shown(raw))
            return
        self._left_out += 1
        if self._timer is None:
            # Nothing more may come to tell it with.
            self._timer = self._loop.call_at(self._second + 1.0, self._tell_left_out)

    def _tell_left_out(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._left_out:
            count, self._left_out = self._left_out, 0
            self._on_line(f"({count} more lines not logged)")


def _is_npms_reason(line: bytes) -> bool:
    return line.startswith(_NPM) and not line.startswith(_NPM_CODE)


def _show(secrets: Iterable[str]) -> Show:
    """What makes a line fit to be shown. It knows nothing of the child, which it outlives in the journal."""
    mask = masker(secrets)
    return lambda raw: printable(mask(raw.decode("utf-8", "replace").rstrip("\r\n")))
