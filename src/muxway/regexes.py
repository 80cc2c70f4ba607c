"""Users' regular expressions, run by an engine whose time grows with the text and no faster (RE2).

Nothing can stop Python's `re` once it runs, and no look at a pattern tells for sure how long it will. RE2 never tries a
second way, and so has neither lookaround nor back-references; what it does not know is refused, with what to write
instead. It lets other threads run meanwhile. A pattern costs at most its size for each byte of the text, so what a
search can cost is known before it is begun.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST: Final = 10_000
"""Steps of a pattern: what it may cost for each byte of a text."""
MOST_STEPS: Final = 3_000_000
"""Steps, each for one byte of a text, that are made while everybody waits: 20 ms at worst, and mostly far less."""
_LONGEST: Final = 1 << 20
_SPLITS_CHARACTERS: Final = re.compile(r"(?<!\\)(?:\\\\)*+\\C").search
_ADVICE: Final = (
    (("(?=", "(?!", "(?<=", "(?<!"), "has lookaround, which is not there; make it a part of the match, or write `\\b`"),
    (("(?>",), "has an atomic group, which is not there and not needed; write `(?:`"),
    (("(?P=", "(?("), "refers back to what it has matched, which is not there; write out what may come"),
    (("(?#",), "has a comment, which is not there; leave it out"),
    (
        ("(?",),
        "has a flag or group that is not there; there are `(?i)`, `(?m)`, `(?s)` and `(?P<name>…)`",
    ),
)


class BadPattern(ValueError):
    """A pattern that cannot be run. Says why and what to write instead, without showing it: it may be a secret."""


class Regex:
    """A user's pattern, ready to be searched for."""

    def __init__(self, pattern: str) -> None:
        """Prepare.

        Raises:
            BadPattern: it is no regular expression, has what RE2 does not know, or is too large.
        """
        # Only for those who have patterns: it takes its part of a start.
        re2: Any = import_module("re2")
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        if _SPLITS_CHARACTERS(pattern) is not None:
            raise BadPattern("has `\\C`, which fits half a character; write `.`")
        try:
            self._regex = re2.compile(pattern.encode(), options)
        except UnicodeEncodeError:
            raise BadPattern("has half a character, which fits nothing") from None
        except re2.error as error:
            raise BadPattern(_why(error)) from None
        self.pattern = pattern
        self.size: int = self._regex.programsize
        """What it costs at most for each byte of a text."""
        if self.size > LARGEST:
            raise BadPattern("is too large; count less in it, or give several patterns")

    @property
    def longest(self) -> int:
        """The bytes of a text that may be searched while everybody waits."""
        return min(_LONGEST, MOST_STEPS // self.size)

    def fits(self, text: str) -> bool:
        """Whether it fits somewhere in the text."""
        return self._regex.search(encoded(text)) is not None

    def spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Where it fits in a text that was `encoded`, from left to right."""
        for match in self._regex.finditer(data):
            yield match.span()


def encoded(text: str) -> bytes:
    """The text as patterns see it. Half a character, which JSON can hold, fits no pattern."""
    return text.encode("utf-8", "surrogatepass")


def _why(error: Exception) -> str:
    said = error.args[0] if error.args else b""
    what, _, where = (said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)).partition(": ")
    if what == "invalid perl operator":
        return next(advice for starts, advice in _ADVICE if where.startswith(starts))
    if what == "invalid escape sequence":
        if where[1:2].isdigit():
            return "refers back to what it has matched, which is not there; write out what may come"
        known = {
            "Z": "; write `\\z`",
            "u": "; write `\\x{…}`",
            "U": "; write `\\x{…}`",
            "N": "; write the character itself",
        }
        return f"has the escape `{where[:2]}`, which is not there{known.get(where[1:2], '')}"
    if what == "bad repetition operator":
        return "repeats a repetition; a possessive one (`a++`) is not needed: write `a+`"
    if what == "invalid repetition size":
        return "counts too far; 1,000 repetitions, also of repetitions, are the most"
    if what.startswith("pattern too large"):
        return "is too large; count less in it, or give several patterns"
    return f"is no regular expression: {what}"
