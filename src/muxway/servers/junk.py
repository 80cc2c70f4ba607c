"""What a server writes to us that is no message: prints, banners, rows of a table, answers that are broken.

It is counted, shown in part, and otherwise ignored: it neither answers a call nor ends one. A line that mentions a
call's id is remembered for that call, and named if its time runs out: it may have been meant for an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muxway.log import EventLog, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muxway.servers.counters import ServerCounters
    from muxway.wire.framing import Oversized

_SHOWN: Final = 120
_LOOKED_AT: Final = 4096
_LINES: Final = 10
"""Lines that are shown in the log, within this many seconds."""
_MOST_MENTIONED: Final = 64
"""Calls of which it is remembered what mentioned them."""

log = EventLog("upstream")


class Junk:
    """The junk of one connection."""

    __slots__ = ("_mask", "_mentions", "_name", "_shown", "_since", "_stats", "first")

    def __init__(self, name: str, stats: ServerCounters, mask: Callable[[str], str]) -> None:
        """`mask` hides secrets in what is shown."""
        self._name, self._stats, self._mask = name, stats, mask
        self.first: str | None = None
        """The first line that was no message, as it may be shown."""
        self._since = 0.0
        self._shown = 0
        self._mentions: dict[int, str] = {}

    def note(self, now: float, event: str, line: bytes, why: str) -> None:
        """Count a line, and show it if not too many were shown lately."""
        self._stats.junk += 1
        if now - self._since >= _LINES:
            self._since, self._shown = now, 0
        if self._shown < _LINES:
            self._shown += 1
            shown = self._show(line)
            self.first = self.first or shown
            log.warning(event, upstream=self._name, why=why, line=shown, count=self._stats.junk)

    def sift(self, now: float, frames: Sequence[bytes | Oversized]) -> list[bytes | Oversized]:
        """Of many lines at once, those that may be messages. A flood is not worth more than a look at each line."""
        kept: list[bytes | Oversized] = []
        for frame in frames:
            if not isinstance(frame, bytes) or b"{" in frame:
                kept.append(frame)
            elif not frame.isspace():
                self.note(now, "not a message", frame, "no JSON object")
        return kept

    def mentioned(self, call: int, line: bytes) -> None:
        """A line that is no message has the id of this call in it."""
        if len(self._mentions) >= _MOST_MENTIONED:
            del self._mentions[next(iter(self._mentions))]
        self._mentions[call] = self._show(line)

    def about(self, call: int) -> str:
        """What to say of a call that never got its answer."""
        line = self._mentions.pop(call, None)
        return "" if line is None else f"; it wrote a line with the id of this call that is no message: {line}"

    def _show(self, line: bytes) -> str:
        # Cut after it was masked: a part of a secret would not be known for one.
        return printable(self._mask(line[:_LOOKED_AT].decode("utf-8", "replace"))[:_SHOWN])
