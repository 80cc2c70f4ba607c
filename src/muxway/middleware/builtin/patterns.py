"""What can be recognised by its look: kinds that are known here, and patterns of the user's own.

A user's patterns are run by an engine whose cost is known beforehand (`regexes`); what would cost too much is neither
searched nor shown. The kinds take time in proportion to the text, and are run over a piece of it at a time: while
Python's regular expressions run, nothing else does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, AnyStr, Final, NamedTuple

from muxway.log import EventLog
from muxway.regexes import BadPattern, Regex, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MOST_STEPS: Final = 1_000_000_000
"""Steps of users' patterns for one message: some seconds at the very worst, mostly some tens of milliseconds."""
_STEPS_OF_MATCH: Final = 600
"""What a match costs beyond its characters, in such steps."""
WITHHELD: Final = "[redacted: too long to search]"
"""What stands in place of what was not searched."""
_PIECE: Final = 32 * 1024
"""Characters that one of our own expressions is begun at in one go."""
_REACH: Final = 20 * 1024
"""Characters it sees beyond: the longest match that is found wherever it stands."""
_SEARCHED: Final = 1024 * 1024
"""Characters in which a mark is looked for in one go."""
log = EventLog("middleware")


def has(text: AnyStr, mark: AnyStr) -> bool:
    """Whether a mark is in a text; a piece of a long one at a time."""
    if len(text) <= _SEARCHED:
        return mark in text
    reach = _SEARCHED + len(mark) - 1
    return any(text.find(mark, start, start + reach) >= 0 for start in range(0, len(text), _SEARCHED))


class PatternKind(NamedTuple):
    """Something that can be recognised by its look."""

    pattern: re.Pattern[str]
    marks: tuple[str, ...]
    """Texts of which one is in everything of this kind, and in its JSON: to look for them takes next to no time."""
    check: Callable[[str], bool] | None = None
    """Whether a match is one indeed."""

    def may_be_in(self, text: str) -> bool:
        """Whether the pattern is worth running."""
        return any(has(text, mark) for mark in self.marks)

    def masked(self, text: str, mask: str) -> str:
        """The text with the mask in place of everything of this kind."""
        check = self.check
        return replaced(self.pattern, text, lambda match: mask if check is None or check(match[0]) else match[0])


def _luhn(text: str) -> bool:
    digits = [int(character) for character in reversed(text) if character.isdigit()]
    doubled = (digit * 2 - 9 if digit > 4 else digit * 2 for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


_OCTET: Final = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"

KINDS: Final[Mapping[str, PatternKind]] = {
    "email": PatternKind(
        re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}+@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9-])"), ("@",)
    ),
    "credit_card": PatternKind(
        re.compile(r"(?<![\d.-])(?=[3-6]|2[2-7])\d(?:[ -]?\d){12,18}(?![\d-])"), ("2", "3", "4", "5", "6"), _luhn
    ),
    "aws_key": PatternKind(re.compile(r"(?<![A-Z0-9])A[KS]IA[A-Z0-9]{16}(?![A-Z0-9])"), ("AKIA", "ASIA")),
    "github_token": PatternKind(
        re.compile(r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_\w{22,255})"),
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    ),
    "private_key": PatternKind(
        re.compile(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]|-(?!----END)){0,16000}+(?:-----END [A-Z ]{0,40}-----)?"
        ),
        ("PRIVATE KEY-----",),
    ),
    "jwt": PatternKind(re.compile(r"(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*+"), ("eyJ",)),
    "ipv4": PatternKind(re.compile(rf"(?<![\w.]){_OCTET}(?:\.{_OCTET}){{3}}(?!\w|\.\d)"), (".",)),
}
"""Name → what it looks like."""


def replaced(pattern: re.Pattern[str], text: str, instead: Callable[[re.Match[str]], str]) -> str:
    """As `pattern.sub`, for one of our own expressions: a piece of a long text at a time."""
    if len(text) <= _PIECE:
        return pattern.sub(instead, text)
    shown: list[str] = []
    done = 0
    for start in range(0, len(text), _PIECE):
        end = start + _PIECE
        for match in pattern.finditer(text, max(start, done), end + _REACH):
            if match.start() >= end:
                break
            shown += (text[done : match.start()], instead(match))
            done = match.end()
    return "".join((*shown, text[done:])) if shown else text


def compiled(patterns: Sequence[str]) -> list[Regex]:
    """A user's patterns.

    Raises:
        ValueError: one cannot be run, or fits the empty text. It is told by its number: it may be made of a secret.
    """
    made: list[Regex] = []
    for number, pattern in enumerate(patterns, 1):
        try:
            regex = Regex(pattern)
        except BadPattern as error:
            raise ValueError(f"pattern {number} {error}") from None
        if regex.fits(""):
            raise ValueError(f"pattern {number} fits the empty text, so it fits everywhere; make it need something")
        made.append(regex)
    return made


class Search:
    """A user's patterns on their way through one message."""

    def __init__(self, patterns: Sequence[Regex]) -> None:
        self._patterns = patterns
        self._left = MOST_STEPS

    def masked(self, text: str) -> str:
        """The text with what fits masked; all of it is withheld if there is no time left for it."""
        for number, pattern in enumerate(self._patterns, 1):
            data = encoded(text)
            self._left -= len(data) * pattern.size
            shown: list[bytes] = []
            done = 0
            if self._left > 0:
                for start, end in pattern.spans(data):
                    shown += (data[done:start], b"[redacted]")
                    done = end
                    self._left -= _STEPS_OF_MATCH
                    if self._left <= 0:
                        break
            if self._left <= 0:
                log.warning("a message is too long for a pattern; a part of it was withheld", pattern=number)
                return WITHHELD
            if shown:
                text = b"".join((*shown, data[done:])).decode("utf-8", "surrogatepass")
        return text
