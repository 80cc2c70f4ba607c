r"""Server-sent events: bytes → events, in linear time and bounded memory.

Follows the HTML standard: lines end with CR, LF or CRLF, a byte order mark may come first, comments and unknown
fields are skipped, an id with a NUL is ignored. Data stays bytes: what is in it is the reader's to decode.
A parser serves one connection; `again` gives the one for the next, which goes on where this one stopped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from io import BytesIO
from typing import Final

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"
_HEAD: Final = 4096
_LONGEST_RETRY: Final = 9
_LONGEST_ID: Final = 4096
"""An id comes back in a header, where a longer one would not pass."""
_LONGEST_FIELD: Final = len(b"retry: ") + _LONGEST_ID
"""Bytes of a line that are looked at, if it has no data."""
_LONG: Final = 256 * 1024
"""Bytes of a line from which on its data is put where it is kept while it comes: it is not copied again at its end."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event, as dispatched."""

    type: str
    data: bytes
    id: str
    """The last id seen on the stream so far; empty if there was none."""
    cut: bool = False
    """Whether it passed the limit: `data` is its beginning, the rest is skipped."""


class SseParser:
    """Takes chunks as they come and gives back whole events, in order."""

    __slots__ = (
        "_data",
        "_fresh",
        "_in_data",
        "_limit",
        "_pending",
        "_size",
        "_skipping",
        "_swallow",
        "_type",
        "last_id",
        "retry",
        "wasted",
    )

    def __init__(self, limit: int, *, last_id: str = "", retry: float | None = None) -> None:
        self.last_id = last_id
        """The last id the server gave, also by an event without data: where to resume."""
        self.retry = retry
        """Seconds to wait before the next connection, as the server wishes; None if it did not say."""
        self.wasted = 0
        """Grows with lines that are no data, or more data than one line of an event, or are skipped."""
        self._limit = limit
        self._pending: bytearray = bytearray()
        self._data: bytes | BytesIO | None = None
        self._in_data = False
        """Whether the line that is not all there yet is long, and its data goes to what there is."""
        self._size = 0
        self._type = ""
        self._fresh = True
        self._skipping = False
        self._swallow = False
        """Whether the last chunk ended with a CR: a LF at the start of the next one belongs to it."""

    def again(self) -> SseParser:
        """A parser for the connection that resumes this one."""
        return SseParser(self._limit, last_id=self.last_id, retry=self.retry)

    def feed(self, data: bytes) -> list[SseEvent]:
        """Take a chunk; return the events it completes, and the beginning of one that passes the limit."""
        events: list[SseEvent] = []
        if self._fresh:
            data = bytes(self._pending) + data
            self._pending.clear()
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._pending += data  # the rest of the mark may come
                return events
            self._fresh = False
            data = data.removeprefix(_BOM)
        start = 1 if self._swallow and data.startswith(b"\n") else 0
        self._swallow = data.endswith(b"\r") if data else self._swallow
        for match in _LINE_END.finditer(data, start):
            line = data[start : match.start()]
            start = match.end()
            if self._in_data:
                self._go_on(line, events)
                if self._in_data:
                    self._in_data, self._size = False, self._size + 1
                    continue
            if self._pending:
                # In place, and not copied again: it may be large.
                self._pending += line
                line, self._pending = self._pending, bytearray()
            if self._fits(line, events) or not line:
                self._take(line, events)
        if self._in_data:
            self._go_on(data[start:], events)
            return events
        self._pending += data[start:]
        if not self._fits(self._pending, events):
            # All that counts from here on is that the line is not empty, and whether it is a comment.
            del self._pending[1:]
        elif len(self._pending) > _LONG and self._pending.startswith(b"data:"):
            self._add(self._pending)
            self._size += len(self._pending)
            self._in_data, self._pending = True, bytearray()
        self.wasted += self._pending.startswith(b":")
        return events

    def _go_on(self, piece: bytes, events: list[SseEvent]) -> None:
        """A piece of a long line of data."""
        if self._fits(piece, events):
            self._writer().write(piece)
            self._size += len(piece)
        else:
            self._in_data = False
            self._pending += b"d"

    def _fits(self, line: bytes | bytearray, events: list[SseEvent]) -> bool:
        """Whether this line, whole or not, is to be kept. The first that is too much makes an event of what there is.

        At once: whoever waits for this event must not wait for its end, which may never come.
        """
        if self._skipping:
            self.wasted += 1
            return False
        if self._size + len(line) <= self._limit:
            return True
        # A comment is no part of the event, but it does not save one that is too large already.
        if self._in_data or self._size > self._limit or not line.startswith(b":"):
            head = b"" if self._data is None else bytes(self._writer().getbuffer()[:_HEAD])
            if not self._in_data:
                head += b"" if self._data is None else b"\n"
                head += bytes(line[: _HEAD + 6]).removeprefix(b"data:").lstrip()
            events.append(SseEvent(self._type or "message", head[:_HEAD], self.last_id, cut=True))
            self._data, self._skipping = None, True
        return False

    def _take(self, line: bytes | bytearray, events: list[SseEvent]) -> None:
        if not line:
            # Without a data line it is no event, but its id counts all the same.
            if self._data is None:
                self.wasted += 1
            elif not self._skipping:
                # A writer gives away what it has, and does not copy it again.
                whole = self._data if isinstance(self._data, bytes) else self._data.getvalue()
                events.append(SseEvent(self._type or "message", whole, self.last_id))
            self._data, self._type, self._size, self._skipping = None, "", 0, False
            return
        if line.startswith(b"data:") or line == b"data":
            self._add(line)
            # An empty line of data weighs too: a million of them are not nothing.
            self._size += len(line) + 1
            return
        self.wasted += 1
        name, _, value = bytes(line[:_LONGEST_FIELD]).partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._type = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value and len(value) <= _LONGEST_ID:
            self.last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= _LONGEST_RETRY:
            self.retry = int(value) / 1000

    def _add(self, line: bytes | bytearray) -> None:
        """Keep the data of a line, or of the beginning of one."""
        value = memoryview(line)[6 if line[5:6] == b" " else 5 :]
        if self._data is None:
            self._data = bytes(value)
        else:
            self.wasted += 1
            writer = self._writer()
            writer.write(b"\n")
            writer.write(value)

    def _writer(self) -> BytesIO:
        """What has all data so far. There may be millions of lines, and joining those would keep everybody waiting."""
        if not isinstance(self._data, BytesIO):
            before, self._data = self._data or b"", BytesIO()
            self._data.write(before)
        return self._data
