"""Which known word was meant by an unknown one, and how much of a foreign one is shown.

Callers and servers choose the words, and to compare two takes time by the product of their lengths. So only words of
the length of names are compared, only as many as begin or end alike, and closely only the best of those.
"""

from __future__ import annotations

from bisect import bisect
from heapq import nlargest
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_COMPARED: Final = 100
"""Characters of a word that is compared with others."""
MOST_COMPARED: Final = 120
"""Candidates that are looked at for one word."""
_MOST_COMPARED_CLOSELY: Final = 5
_LONGEST_SHOWN: Final = 200


def most_like(word: str, candidates: Iterable[str], n: int, cutoff: float) -> list[str]:
    """The candidates most like the word, best first; as `difflib.get_close_matches`, within bounds."""
    if len(word) > LONGEST_COMPARED:
        return []
    # Only for an error; not worth its import at every start.
    from difflib import SequenceMatcher

    matcher: SequenceMatcher[str] = SequenceMatcher()
    matcher.set_seq2(word)
    promising: list[tuple[float, str]] = []
    for candidate in _neighbours(word, candidates):
        matcher.set_seq1(candidate)
        if matcher.real_quick_ratio() >= cutoff and (quick := matcher.quick_ratio()) >= cutoff:
            promising.append((quick, candidate))
    close: list[tuple[float, str]] = []
    for _, candidate in nlargest(_MOST_COMPARED_CLOSELY, promising):
        matcher.set_seq1(candidate)
        if (ratio := matcher.ratio()) >= cutoff:
            close.append((ratio, candidate))
    return [candidate for _, candidate in nlargest(n, close)]


def _neighbours(word: str, candidates: Iterable[str]) -> Iterable[str]:
    """As many candidates as may be compared: those that begin or end most like the word. A slip changes one place."""
    named = [candidate for candidate in candidates if len(candidate) <= LONGEST_COMPARED]
    if len(named) <= MOST_COMPARED:
        return named
    backwards = _around(word[::-1], [candidate[::-1] for candidate in named])
    return dict.fromkeys((*_around(word, named), *(candidate[::-1] for candidate in backwards)))


def _around(word: str, candidates: list[str]) -> list[str]:
    candidates.sort()
    middle = bisect(candidates, word)
    return candidates[max(0, middle - MOST_COMPARED // 4) : middle + MOST_COMPARED // 4]


def short(text: str, longest: int = _LONGEST_SHOWN) -> str:
    """The text, cut if it is long: what is said of a foreign word must not grow with it."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
