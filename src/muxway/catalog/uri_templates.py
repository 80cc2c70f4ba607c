"""URI templates of RFC 6570, as far as to say which URIs may be made of them.

Servers write templates and there may be thousands of them; callers, and the links in every result, bring the URIs. So a
template has a bounded size, only those are tried that begin like the URI, and where one may be in the URI is a number
with a bit for each place: a step of any template moves all places at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from muxway.catalog.uris import LONGEST, scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_EXPRESSIONS: Final = 16
LONGEST_TEMPLATE: Final = 2048
"""A template with more expressions or characters is listed, but no URI is taken for one of its."""
MOST_ALIKE: Final = 128
"""Templates of one server that begin alike and are tried; more of them are listed only."""
_STEPS: Final = 4096
"""Characters of one server's templates that a URI is compared with."""
_KEY: Final = 8
_LONGEST_KEY: Final = 128
_REMEMBERED: Final = 256


class _Hole(NamedTuple):
    """What may stand in place of an expression: nothing, or its first character and then a run."""

    first: str
    stops: str
    """Characters that end the run. More is let through than RFC 6570 makes: clients do not all encode."""


_EXPRESSION: Final = re.compile(r"\{([+#./;?&]?)[^{}]*\}")
_HOLES: Final = {
    "": _Hole("", "/?#"),
    "+": _Hole("", ""),
    "#": _Hole("#", ""),
    ".": _Hole(".", "/?#"),
    "/": _Hole("/", "?#"),
    ";": _Hole(";", "/?#"),
    "?": _Hole("?", "#"),
    "&": _Hole("&", "#"),
}


class Places:
    """A URI in which templates are to be found: for each character the places where it stands, as bits."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._all = (1 << len(uri)) - 1
        self._of: dict[str, int] = {}
        self._runs: dict[str, int] = {}

    def of(self, char: str) -> int:
        """Where this character stands."""
        found = self._of.get(char)
        if found is None:
            # Its text as a binary number, read from the right.
            digits = "".join("1" if one == char else "0" for one in reversed(self.uri)) if char in self.uri else ""
            found = self._of[char] = int(digits or "0", 2)
        return found

    def after(self, hole: _Hole, places: int) -> int:
        """Where one may be after an expression, beginning at these places."""
        run = self._runs.get(hole.stops)
        if run is None:
            run = self._all
            for stop in hole.stops:
                run &= ~self.of(stop)
            self._runs[hole.stops] = run
        starts = (places & self.of(hole.first)) << 1 if hole.first else places
        # Added to a row of ones, a one is carried to its end.
        return places | starts | (run + (starts & run)) ^ run

    def after_text(self, text: str, places: int) -> int:
        """Where one may be after this text."""
        for char in text:
            places = (places & self.of(char)) << 1
            if not places:
                break
        return places


@dataclass(frozen=True, slots=True)
class Template:
    """A URI template."""

    text: str
    parts: tuple[str | _Hole, ...] = field(init=False, repr=False, compare=False)
    """Texts and expressions in their order; none if it is too large to be matched."""
    shape: tuple[str, ...] = field(init=False, repr=False)
    """The template without the names of its variables: two of one shape make the same URIs."""
    rank: tuple[int, int] = field(init=False, repr=False, compare=False)
    """The smaller, the more specific."""

    def __post_init__(self) -> None:
        pieces = _EXPRESSION.split(self.text) if len(self.text) <= LONGEST_TEMPLATE else []
        if not 0 < len(pieces) <= 2 * MOST_EXPRESSIONS + 1:
            pieces = []
        parts = [piece if index % 2 == 0 else _HOLES[piece] for index, piece in enumerate(pieces)]
        shape = tuple(piece if index % 2 == 0 else f"{{{piece}}}" for index, piece in enumerate(pieces))
        object.__setattr__(self, "parts", tuple(part for part in parts if part != ""))
        object.__setattr__(self, "shape", tuple(piece for piece in shape if piece) or (self.text,))
        object.__setattr__(self, "rank", (-sum(map(len, pieces[::2])), len(pieces)))

    @property
    def prefix(self) -> str:
        """What all its URIs begin with."""
        first = self.parts[0] if self.parts else ""
        return first if isinstance(first, str) else ""

    @property
    def scheme(self) -> str:
        """The scheme of all its URIs; empty if that depends."""
        return scheme_of(self.prefix)

    def matches(self, uri: str) -> bool:
        """Whether this URI may be made of it."""
        return len(uri) <= LONGEST and self.found_in(Places(uri))

    def found_in(self, uri: Places) -> bool:
        """The same for a URI that is prepared for many templates."""
        if not self.parts or not uri.uri.startswith(self.prefix):
            return False
        places = 1 << len(self.prefix)
        for part in self.parts[1:] if self.prefix else self.parts:
            places = uri.after_text(part, places) if isinstance(part, str) else uri.after(part, places)
            if not places:
                return False
        return bool(places >> len(uri.uri) & 1)


class TemplateIndex:
    """Templates of some servers, to be asked whose a URI may be. Few are looked at, and recent answers remembered."""

    def __init__(self, templates: Iterable[tuple[Template, str]]) -> None:
        self._alike: dict[str, list[tuple[Template, str]]] = {}
        self._recent: dict[str, tuple[str, ...]] = {}
        many: dict[tuple[str, str], int] = {}
        for template, owner in sorted(templates, key=lambda one: one[0].rank):
            # Cut to a few lengths, so that a URI has few beginnings to be looked up.
            key = template.prefix[: min(_LONGEST_KEY, len(template.prefix) // _KEY * _KEY)]
            many[key, owner] = many.get((key, owner), 0) + 1
            if template.parts and many[key, owner] <= MOST_ALIKE:
                self._alike.setdefault(key, []).append((template, owner))

    def owners(self, uri: str) -> tuple[str, ...]:
        """Whose a URI may be, by the most specific template first."""
        if not self._alike or len(uri) > LONGEST:
            return ()
        known = self._recent.get(uri)
        if known is None:
            if len(self._recent) >= _REMEMBERED:
                del self._recent[next(iter(self._recent))]
            known = self._recent[uri] = self._sought(uri)
        return known

    def _sought(self, uri: str) -> tuple[str, ...]:
        begins = (uri[:length] for length in range(0, min(_LONGEST_KEY, len(uri)) + 1, _KEY))
        alike = [one for begin in begins for one in self._alike.get(begin, ()) if uri.startswith(one[0].prefix)]
        alike.sort(key=lambda one: one[0].rank)
        places = Places(uri)
        left: dict[str, int] = {}
        found: dict[str, None] = {}
        for template, owner in alike:
            left[owner] = left.get(owner, _STEPS) - len(template.text)
            if owner not in found and left[owner] >= 0 and template.found_in(places):
                found[owner] = None
        return tuple(found)
