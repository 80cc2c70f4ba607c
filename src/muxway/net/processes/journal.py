"""What the processes of one server wrote to stderr: the last of it, also of those that are gone.

Lines are kept as they came and made fit to be shown only for whoever looks: floods are common, readers are few.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast, overload

_MOST_BYTES: Final = 256 * 1024
_EACH: Final = 32
"""What a line counts for beside its bytes, so that many short ones are bounded too."""

Show: TypeAlias = Callable[[bytes], str]
"""Makes a line fit to be shown: without secrets, without control characters."""


class Lines(Sequence[str]):
    """The lines that a journal held at one moment, the oldest first."""

    def __init__(self, kept: Sequence[tuple[bytes, Show]], first: int) -> None:
        self._kept = kept
        self.first = first
        """How many lines had been there before these."""

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [show(raw) for raw, show in self._kept[index]]
        raw, show = self._kept[index]
        return show(raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list | tuple | Lines) and list(self) == list(cast("Sequence[object]", other))

    __hash__ = None  # pyright: ignore[reportAssignmentType] - like a list


class Journal:
    """Takes the lines of every process of a server, as they come and go."""

    def __init__(self) -> None:
        self._kept: deque[tuple[bytes, Show]] = deque()
        self._size = 0
        self.count = 0
        """How many lines there have been."""

    def keep(self, raw: bytes, show: Show) -> None:
        """Take a line."""
        self._kept.append((raw, show))
        self.count += 1
        self._size += len(raw) + _EACH
        while self._size > _MOST_BYTES:
            self._size -= len(self._kept.popleft()[0]) + _EACH

    def lines(self, since: int = 0) -> Lines:
        """What is kept now of the lines that came after so many others."""
        first = self.count - len(self._kept)
        return Lines(tuple(self._kept)[max(since - first, 0) :], max(since, first))
