"""What can be recognised by its look: kinds that are known here, and patterns of the user's own.

Python's regular expressions have no time limit, and nothing can stop one that runs. So a pattern that can take forever
is refused, others are run over a piece of a text at a time, and what was not searched in time is not shown.
"""

from __future__ import annotations

import re
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from muxway.log import EventLog
from muxway.regexes import TakesForever, repetitions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PATIENCE: Final = 0.25
"""Seconds all of a user's patterns may take for one message."""
WITHHELD: Final = "[redacted: too slow to search]"
"""What stands in place of what was not searched in time."""
_PIECES: Final = ((4096, 1024), (4096, 1024), (128, 256), (32, 128))
"""For so many open-ended repetitions of a user's pattern: the characters it is begun at in one go, and those it sees
beyond. Each repetition multiplies the time by what is seen, and while a pattern runs nothing can stop it."""
log = EventLog("middleware")


class Kind(NamedTuple):
    """Something that can be recognised by its look."""

    pattern: re.Pattern[str]
    marks: tuple[str, ...]
    """Texts of which one is in everything of this kind, and in its JSON: to look for them takes next to no time."""
    check: Callable[[str], bool] | None = None
    """Whether a match is one indeed."""

    def may_be_in(self, text: str) -> bool:
        """Whether the pattern is worth running."""
        return any(mark in text for mark in self.marks)


def _luhn(text: str) -> bool:
    digits = [int(character) for character in reversed(text) if character.isdigit()]
    doubled = (digit * 2 - 9 if digit > 4 else digit * 2 for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


_OCTET: Final = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"

KINDS: Final[Mapping[str, Kind]] = {
    "email": Kind(
        re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}+@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9-])"), ("@",)
    ),
    "credit_card": Kind(
        re.compile(r"(?<![\d.-])(?=[3-6]|2[2-7])\d(?:[ -]?\d){12,18}(?![\d-])"), ("2", "3", "4", "5", "6"), _luhn
    ),
    "aws_key": Kind(re.compile(r"(?<![A-Z0-9])A[KS]IA[A-Z0-9]{16}(?![A-Z0-9])"), ("AKIA", "ASIA")),
    "github_token": Kind(
        re.compile(r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_\w{22,255})"),
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    ),
    "private_key": Kind(
        re.compile(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]|-(?!----END)){0,16000}+(?:-----END [A-Z ]{0,40}-----)?"
        ),
        ("PRIVATE KEY-----",),
    ),
    "jwt": Kind(re.compile(r"(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*+"), ("eyJ",)),
    "ipv4": Kind(re.compile(rf"(?<![\w.]){_OCTET}(?:\.{_OCTET}){{3}}(?!\w|\.\d)"), (".",)),
}
"""Name → what it looks like."""


class Pattern(NamedTuple):
    """A user's own pattern. It is shown by its number: it may be made of a secret."""

    number: int
    regex: re.Pattern[str]
    piece: int
    """Characters of a text it is begun at before the clock is looked at."""
    reach: int
    """Characters it sees beyond its piece: the longest match that is found wherever it stands."""


def compiled(patterns: Sequence[str]) -> list[Pattern]:
    """A user's patterns.

    Raises:
        ValueError: one is none, fits the empty text, or is of the kind that can take forever.
    """
    made: list[Pattern] = []
    for number, pattern in enumerate(patterns, 1):
        try:
            regex = re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"pattern {number} is no regular expression: {error}") from None
        if regex.match("") is not None:
            raise ValueError(f"pattern {number} fits the empty text, so it fits everywhere; make it need something")
        try:
            repeated = repetitions(pattern, len(_PIECES) - 1)
        except TakesForever as error:
            raise ValueError(f"pattern {number} {error}") from None
        made.append(Pattern(number, regex, *_PIECES[repeated]))
    return made


def search(pattern: Pattern, text: str, deadline: float) -> str:
    """Mask what fits a user's pattern, a piece of the text at a time; what is not searched in time is withheld."""
    shown: list[str] = []
    done = 0
    for start in range(0, len(text), pattern.piece):
        if perf_counter() > deadline:
            log.warning("a pattern is too slow; a part of a message was withheld", pattern=pattern.number)
            return "".join((*shown, text[done : max(start, done)], WITHHELD))
        end = start + pattern.piece
        for match in pattern.regex.finditer(text, max(start, done), end + pattern.reach):
            if match.start() >= end:
                break
            shown += (text[done : match.start()], "[redacted]")
            done = match.end()
    return "".join((*shown, text[done:])) if shown else text
