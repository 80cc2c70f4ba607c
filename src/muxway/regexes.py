"""How long a user's regular expression can take, told from its structure before it is run.

Python's have no time limit, hold up everything else while they run, and nothing can stop one. One that can fit the
same text in exponentially many ways is refused. Of the others it is known how many of its repetitions compete for the
same characters, and so up to which length of text it stays quick.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LONGEST: Final = (1 << 20, 1 << 20, 1024, 256, 96)
"""For so many places that can be anywhere in a text, each multiplying the time by the text: the text of a few
milliseconds, or some tens of them."""
_MOST_WAYS: Final = 1024
_FEW: Final = 10
_FOREVER: Final = (
    ", which takes forever on some texts; make them possessive: "
    "`a++`, `a*+`, `a{1,3}+` and `(…)++` never try a second way"
)
_REPEATS: Final = frozenset(("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"))
_LATIN: Final = 255
_ANYTHING: Final = frozenset((*range(_LATIN + 1), -1))
_CATEGORIES: Final = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}


class TakesForever(ValueError):
    """An expression that no length of text can be trusted with; says what to do about it."""


def longest_text(pattern: str) -> int:
    """The length of text that may be searched for this at one go. Raises as `repetitions`."""
    tree = _parsed(pattern)
    unanchored = not _is_anchored(tree)
    return _LONGEST[_counted(tree, len(_LONGEST) - 1 - unanchored) + unanchored]


def repetitions(pattern: str, most: int) -> int:
    """How many repetitions it has that multiply the time by the length of the text.

    Raises:
        TakesForever: it cannot be trusted with any text, or has more than `most`.
        re.error, RecursionError, OverflowError: it is no regular expression.
    """
    return _counted(_parsed(pattern), most)


def _parsed(pattern: str) -> Any:
    # It knows what is written better than any other reader could, flags and comments included. Only the pattern
    # itself comes from there, in a form that has been the same since Python 3.11.
    tree: Any = import_module("re._parser").parse(pattern)
    re.compile(pattern)
    return tree


def _counted(tree: Any, most: int) -> int:
    shape = _Shape()
    shape.varies(tree)
    if shape.tangled or shape.ways > _MOST_WAYS or shape.places > most:
        why = "repeats what can be repeated in several ways" if shape.tangled else "has too many repetitions"
        raise TakesForever(why + _FOREVER)
    return shape.places


def _is_anchored(tree: Sequence[Any]) -> bool:
    """Whether it can only begin where the text does."""
    return bool(tree) and str(tree[0][0]) == "AT" and str(tree[0][1]) in {"AT_BEGINNING", "AT_BEGINNING_STRING"}


def _is_marked_off(inside: Iterable[Any]) -> bool:
    """Whether each turn of a repetition has a mark, first or last, that is nowhere else in it: `(-[a-z]+)*`.

    Then a text falls into such turns in one way only, and one repetition in each of them does no harm.
    """
    items = _flat(inside)
    sets = [_characters(item) for item in items]
    known = [chars for chars in sets if chars is not None]
    if len(items) < 2 or len(known) != len(items):
        return False
    repeated = [operation in _REPEATS for operation, _ in items]
    if sum(repeated) != 1:
        return False
    first, last = known[0], known[-1]
    by_first = not repeated[0] and not any(first & other for other in known[1:])
    by_last = not repeated[-1] and not any(last & other for other in known[:-1])
    return by_first or by_last


def _flat(items: Iterable[Any]) -> list[tuple[str, Any]]:
    """The items of a sequence, with those of groups in their place."""
    flat: list[tuple[str, Any]] = []
    for operation, value in items:
        flat += _flat(value[3]) if str(operation) == "SUBPATTERN" else [(str(operation), value)]
    return flat


def _characters(item: tuple[str, Any]) -> frozenset[int] | None:
    """What one item can fit: codes of Latin-1, and -1 for whatever is beyond; None if it is no such simple thing."""
    operation, value = item
    if operation in _REPEATS:
        inner = _flat(value[2])
        return _characters(inner[0]) if len(inner) == 1 and inner[0][0] not in _REPEATS else None
    if operation == "LITERAL":
        return _both_cases((value,))
    if operation == "IN":
        return _of_class(value)
    if operation == "NOT_LITERAL":
        return _ANYTHING - _both_cases((value,)) | {-1}
    return _ANYTHING if operation == "ANY" else None


def _of_class(parts: Iterable[Any]) -> frozenset[int]:
    codes: set[int] = set()
    negated = False
    for operation, value in parts:
        match str(operation):
            case "LITERAL":
                codes.add(value)
            case "RANGE":
                codes.update(range(value[0], min(value[1], _LATIN) + 1), (value[1],))
            case "NEGATE":
                negated = True
            case _:
                known = _CATEGORIES.get(str(value))
                codes.update(_ANYTHING if known is None else (code for code in _ANYTHING if _fits(known, code)))
    return _ANYTHING - _both_cases(codes) | {-1} if negated else _both_cases(codes)


def _fits(category: str, code: int) -> bool:
    return code < 0 or re.fullmatch(category, chr(code)) is not None


def _both_cases(codes: Iterable[int]) -> frozenset[int]:
    """The same whether or not case counts, which a flag may say anywhere."""
    latin = [chr(code) for code in codes if 0 <= code <= _LATIN]
    both = {ord(case) for char in latin for case in (char, char.lower(), char.upper()) if len(case) == 1}
    return frozenset(code if code <= _LATIN else -1 for code in (*both, *codes))


class _Shape:
    """What of an expression decides how long it can take."""

    def __init__(self) -> None:
        self.tangled = False
        """Whether something that can fit in several ways is repeated: `(a+)+`."""
        self.places = 0
        """How many repetitions there are that have no end, or a far one."""
        self.ways = 1
        """In how many ways all the others can fit together."""

    def varies(self, items: Iterable[Any]) -> bool:
        """Whether this sequence can fit one text in several ways. Counts what is in it."""
        several = False
        for operation, value in items:
            several |= self._one(str(operation), value)
        return several

    def _one(self, operation: str, value: Any) -> bool:
        match operation:
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                low, high, inside = value
                inner = self.varies(inside)
                if inner and _is_marked_off(inside):
                    inner = False
                return self._repeated(int(low), int(high), inner, operation == "POSSESSIVE_REPEAT")
            case "BRANCH":
                for branch in value[1]:
                    self.varies(branch)
                self.ways *= len(value[1])
                return True
            case "SUBPATTERN":
                return self.varies(value[3])
            case "ATOMIC_GROUP":
                self.varies(value)
                return False
            case "ASSERT" | "ASSERT_NOT":
                self.varies(value[1])
                return False
            case "GROUPREF_EXISTS":
                yes, no = (self.varies(branch or ()) for branch in value[1:])
                return yes or no
            case "GROUPREF" | "GROUPREF_IGNORE":
                # Comparing takes as long as what is compared.
                self.places += 1
                return False
            case _:
                return False

    def _repeated(self, low: int, high: int, inner: bool, possessive: bool) -> bool:
        if high - low > _FEW:
            self.places += 1
        elif not possessive:
            self.ways *= high - low + 1
        if possessive:
            return False
        self.tangled |= inner and high > 1
        return inner or high > low
