"""Texts of any script → the terms that they are found by. Pure.

`createPullRequest`, `create_pull_request` and "creating pull requests" give the same terms, and `GitHub` those of
`github`, too. Scripts that put no spaces between words give pairs of neighbouring characters.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import chain, filterfalse
from operator import add
from typing import Final

_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # kana, Han
    "\uac00-\ud7af"  # Hangul
    "\U00020000-\U0003ffff"
)
_LONGEST: Final = 64
"""Characters of a word that count: what is longer is no word."""
_RUNS: Final = re.compile(rf"[A-Za-z0-9]+|[{_UNSPACED}]+|(?:(?![{_UNSPACED}A-Za-z0-9])[^\W_])+").findall
_ASCII_RUNS: Final = re.compile(rf"([A-Za-z0-9]{{1,{_LONGEST}}})[A-Za-z0-9]*").findall
_PARTS: Final = re.compile(r"[A-Z]{2,}s?[0-9]*(?![a-z])|[A-Z]?[a-z]+[0-9]*|[A-Z][0-9]*|[0-9]+").findall
_IS_UNSPACED: Final = re.compile(f"[{_UNSPACED}]").match
_ACCENTS: Final = re.compile("[\u0300-\u036f]+")

_SAYS_LITTLE: Final = """
    a about after all also am an and any are as at be been being but by can could did do does doing done each for from
    get gets getting give given got had has have having he help her here hi him his how i if in into is it its just let
    like me more most my need needs no nor not of on once only or other our out over own please she should so some such
    tell than that the their them then there these they this those through to too under up use used user uses using
    very want wants was we were what when where which while who whom why will with would you your
"""
_ENDINGS: Final = (
    *(("ation", 4), ("ator", 4), ("ating", 4), ("ated", 4), ("ate", 4), ("ion", 4), ("ing", 3), ("ed", 3)),
    *(("ment", 4), ("ly", 3), ("ical", 4), ("ic", 4), ("al", 4), ("er", 4), ("or", 4)),
)
"""Endings, the first that fits is taken off, and how many letters must be left."""
_ANY_ENDING: Final = tuple(ending for ending, _ in _ENDINGS)
_DOUBLED: Final = frozenset(("ing", "ed", "er"))
"""Endings before which a consonant is doubled, as in `getting`."""


def terms(text: str) -> list[str]:
    """The terms of a text, in its order, as often as they stand in it."""
    if text.isascii():
        return [*chain.from_iterable(map(_of_word, _ASCII_RUNS(text)))]
    found: list[str] = []
    # `café` is `cafe` to who cannot type it; what else stands above or below letters belongs to them.
    # A character may stand for eighteen others: no text is to become much longer.
    wide = unicodedata.normalize("NFKC", text)[: len(text) + _LONGEST]
    plain = _ACCENTS.sub("", unicodedata.normalize("NFD", wide))
    for run in _RUNS(unicodedata.normalize("NFC", plain)):
        if run.isascii():
            found += _of_word(run[:_LONGEST])
        elif _IS_UNSPACED(run):
            found += [run] if len(run) == 1 else map(add, run, run[1:])
        else:
            found.append(run[:_LONGEST].casefold())
    return found


def telling(found: list[str]) -> list[str]:
    """The terms without those that say little about what a tool does."""
    return [*filterfalse(_STOPPED.__contains__, found)]


@lru_cache(maxsize=20_000)
def _of_word(word: str) -> tuple[str, ...]:
    """The terms of a word in ASCII: its parts, and itself if it has several, as in `GitHub`."""
    parts = _PARTS(word)
    # `IDs` is a plural, however short.
    found = [stem((part[:-1] if part[-1] == "s" and part[:-1].isupper() else part).lower()) for part in parts]
    if len(parts) > 1 and not word.isupper():
        found.append(stem(word.lower()))
    return tuple(found)


def stem(word: str) -> str:
    """A word without its ending, roughly: that the forms of one word come out the same is all that matters."""
    if len(word) < 4:
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "ches", "shes", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending, least in _ENDINGS if word.endswith(_ANY_ENDING) else ():
        if word.endswith(ending) and len(word) - len(ending) >= least:
            word = word[: -len(ending)]
            if ending in _DOUBLED and len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    if word.endswith("e") and len(word) > 3:
        word = word[:-1]
    return word[:-1] + "i" if word.endswith("y") and len(word) > 3 else word


_STOPPED: Final = frozenset(stem(word) for word in _SAYS_LITTLE.split())
