"""Names and patterns of names, as the configuration lists them: `search`, `get_*`."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase, translate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_SPECIAL = re.compile(r"[*?\[\]]")


def is_glob(text: str) -> bool:
    """Whether it may mean several names."""
    return any(character in text for character in "*?[")


def literal_ends(text: str) -> tuple[str, str]:
    """How every name begins and ends that a name or pattern means; a name that is written out does both."""
    ends = _SPECIAL.split(text)
    return ends[0], ends[-1]


class Globs:
    """Some names and patterns. A name that is written out counts as it is, whatever is in it."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(texts)
        self._exact = frozenset(self.texts)
        patterns = [translate(text) for text in self.texts if is_glob(text)]
        self._pattern = re.compile("|".join(patterns)).match if patterns else None

    def __contains__(self, name: str) -> bool:
        return name in self._exact or (self._pattern is not None and self._pattern(name) is not None)

    def match(self, name: str) -> str | None:
        """Which of them means a name: the name itself, if it is there; None: none."""
        return name if name in self._exact else next((text for text in self.texts if matches_any(text, (name,))), None)

    def idle(self, names: Collection[str]) -> list[str]:
        """Which of them mean none of these names, in alphabetical order."""
        return [text for text in sorted(self._exact) if not matches_any(text, names)]


def matches_any(text: str, names: Collection[str]) -> bool:
    """Whether a name or pattern means at least one of these names."""
    return text in names or (is_glob(text) and any(fnmatchcase(name, text) for name in names))
