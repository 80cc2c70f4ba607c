"""Which tools fit a query: BM25F over a few fields, one segment for each server. Pure.

What a term counts in a tool depends on that tool alone, so it is worked out once, and a server whose list changes costs
no more than its own tools. How rare a term is depends on all of them, and is worked out for each query. Lengths are
compared with fixed ones instead of averages for the same reason.
"""

from __future__ import annotations

import math
import sys
from array import array
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from muxway.search.opening import opened
from muxway.search.words import telling, terms

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping, Sequence

    from muxway.search.meaning import Meaning, Vectors

MOST_TERMS: Final = 32
"""Terms of a query that are looked up, the rarest: requests of several sentences have many that tell."""
LONGEST_QUERY: Final = 2000
"""Characters of a query that are looked at."""
_K1: Final = 1.2
"""How soon it no longer matters that a term stands in a tool once more."""
_COMMON: Final = 0.25
_RARER: Final = 3
_MOST_POSTINGS: Final = 3
"""A term that more than this part of the tools have is left out, if the query has so many rarer ones; so is what would
make more postings, for each tool, to be looked through: that is what a query takes its time for."""
_DESCRIPTION: Final = 1200
_PARAMETER_TEXT: Final = 1500
"""Characters that are looked at."""
_MOST_PARAMETERS: Final = 100
_FUSED: Final = 50
_LEAST: Final = 0.15
"""How many of the best by words and by meaning are put together, and how much a tool must be like a query to be found
by its meaning at all."""
_MEANING: Final = 15.0
"""What it counts that a tool says just the same in other words; a rare word that it has counts some five."""
_STEP: Final = 256
"""Terms that are packed at a time."""
_KEPT: Final = 50
"""Postings, for each tool, that are kept joined once their terms were asked for."""
_MOST_NARROWED: Final = 8
"""Callers who see less than others, by what they see, for whom that is kept."""


class Indexed(Protocol):
    """What is indexed: a listed tool. `catalog.model.Route` is one."""

    @property
    def public(self) -> str: ...
    @property
    def upstream(self) -> str: ...
    @property
    def prefix(self) -> str: ...
    @property
    def alias(self) -> str: ...
    @property
    def definition(self) -> bytes: ...


class IndexField(NamedTuple):
    """A part of a tool's definition."""

    name: str
    weight: float
    b: float
    """How much it matters that it is long."""
    length: float
    """The number of terms of one that is neither long nor short."""

    def counts(self, length: int) -> float:
        """What a term in it counts."""
        return self.weight / (1 - self.b + self.b * length / self.length)


FIELDS: Final = (
    IndexField("name", 3.0, 0.3, 3),
    IndexField("server", 1.0, 0.3, 2),
    IndexField("title", 2.0, 0.3, 3),
    IndexField("description", 1.0, 0.6, 15),
    IndexField("parameters", 0.7, 0.3, 4),
    IndexField("parameter text", 0.4, 0.6, 40),
)


class SeenTools(NamedTuple):
    """What there is for some callers."""

    routes: Mapping[str, Indexed]
    """By public name."""
    hidden: Collection[str] = ()
    """Names of those that there are not, all the same."""

    @property
    def own(self) -> list[Indexed]:
        """Those of the gateway itself: they may tell of less than they tell to others."""
        return [one for name, one in self.routes.items() if not one.upstream and name not in self.hidden]


class Match(NamedTuple):
    """A tool that a query found."""

    name: str
    """Its public name."""
    score: float
    meaning: float = 0.0
    """The part of the score that is not for words."""


class Matches(NamedTuple):
    """What a query found."""

    matches: Sequence[Match]
    """The best, in their order."""
    total: int
    """How many there are in all."""


def fields_of(tool: Indexed) -> tuple[list[str], ...]:
    """The terms in each of the `FIELDS` of a tool."""
    definition = opened(tool.definition).members
    annotations = _object(definition.get("annotations"))
    titles = " ".join(_text(one.get("title")) for one in (definition, annotations))
    properties = _object(_object(definition.get("inputSchema")).get("properties"))
    parameters = [*properties.items()][:_MOST_PARAMETERS]
    texts = " ".join(_text(_object(schema).get("description"))[:_PARAMETER_TEXT] for _, schema in parameters)
    server = tool.upstream if tool.prefix == tool.upstream else f"{tool.upstream} {tool.prefix}"
    return (
        terms(tool.alias),
        terms(server),
        terms(titles[:_DESCRIPTION]),
        telling(terms(_text(definition.get("description"))[:_DESCRIPTION])),
        terms(" ".join(name for name, _ in parameters)[:_PARAMETER_TEXT]),
        telling(terms(texts[:_PARAMETER_TEXT])),
    )


def _object(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def weights_of(tool: Indexed) -> dict[str, float]:
    """What each term in a tool counts, before it is known how rare it is."""
    weights: dict[str, float] = {}
    for field, found in zip(FIELDS, fields_of(tool), strict=True):
        if found:
            counts, known = field.counts(len(found)), weights.get
            for term in found:
                weights[term] = known(term, 0.0) + counts
    return weights


class Segment:
    """The tools of one server. Immutable once it is built."""

    __slots__ = ("_impacts", "_offsets", "_starts", "_tools", "definitions", "names", "vectors")

    def __init__(self) -> None:
        """Begin an empty one, see `build`."""
        self.names: list[str] = []
        self.definitions: list[bytes] = []
        self.vectors: Vectors | None = None
        """What its tools mean, if there is a model."""
        self._starts: dict[str, int] = {}
        """Term → its number; its postings stand between the offsets of this number and of the next."""
        self._offsets = array("I", [0])
        self._tools = array("I")
        self._impacts = array("f")

    @classmethod
    def build(cls, tools: Iterable[Indexed], meaning: Meaning | None = None) -> Generator[None, None, Segment]:
        """Build one, in steps of well under a millisecond."""
        segment = cls()
        # Number of a tool, what the term counts there, number, ..: an array for each term, and nothing that the garbage
        # collector would look through again and again.
        postings: dict[str, array[float]] = {}
        known = postings.get
        for number, tool in enumerate(tools):
            segment.names.append(tool.public)
            segment.definitions.append(tool.definition)
            for term, weight in weights_of(tool).items():
                if (having := known(term)) is None:
                    postings[term] = array("d", (number, weight / (_K1 + weight)))
                else:
                    having.append(number)
                    having.append(weight / (_K1 + weight))
            yield
        starts, offsets, unpacked = segment._starts, segment._offsets, iter(postings.items())
        while some := [*islice(unpacked, _STEP)]:
            for term, having in some:
                starts[sys.intern(term)] = len(starts)
                offsets.append(offsets[-1] + len(having) // 2)
            packed = array("d", b"".join(having for _, having in some))
            segment._tools.extend(map(int, packed[::2]))
            segment._impacts.extend(packed[1::2].tolist())
            yield
        if meaning is not None:
            segment.vectors = yield from meaning.vectors(segment.definitions)
        return segment

    def is_of(self, names: list[str], definitions: list[bytes]) -> bool:
        """Whether it is what these make."""
        return self.definitions == definitions and self.names == names

    def postings(self, term: str) -> tuple[array[int], array[float]] | None:
        """The tools that have a term, by number, and what it counts there; None: no tool has it."""
        number = self._starts.get(term)
        if number is None:
            return None
        start, end = self._offsets[number], self._offsets[number + 1]
        return self._tools[start:end], self._impacts[start:end]


def _told(tools: Sequence[Indexed]) -> tuple[list[str], list[bytes]]:
    """All that a segment is made of."""
    return [tool.public for tool in tools], [tool.definition for tool in tools]


class _JoinedSegments:
    """Some segments as one: all of an index, or those of one server; for some callers, as if they saw all of it.

    How rare a term is, and so which tool comes first, would tell them of tools that they do not see.
    """

    __slots__ = ("_bases", "_count", "_segments", "_size", "_terms", "mask", "names", "vectors")

    def __init__(self, segments: Sequence[Segment], seen: SeenTools | None = None) -> None:
        self._segments = segments
        self.names: list[str] = []
        """What there is, by number."""
        self._bases: list[int] = []
        """The number of the first tool of each."""
        for segment in segments:
            self._bases.append(len(self.names))
            self.names += segment.names
        self.vectors = [segment.vectors for segment in segments]
        self.mask: bytearray | None = None
        """Which of them there are, by number; None: all."""
        if seen is not None:
            routes, hidden = seen
            self.mask = bytearray(name in routes and name not in hidden for name in self.names)
        self._count = len(self.names) if self.mask is None else sum(self.mask)
        self._terms: dict[str, tuple[array[int], array[float]]] = {}
        """Postings of all segments, of terms that were asked for: many queries have the same words."""
        self._size = 0
        """How many postings these are."""

    def postings(self, term: str) -> tuple[array[int], array[float]]:
        """The tools that have a term, by number, and what it counts there."""
        known = self._terms.get(term)
        if known is None:
            tools, impacts = array("I"), array("f")
            for base, segment in zip(self._bases, self._segments, strict=True):
                if (found := segment.postings(term)) is None:
                    continue
                if (mask := self.mask) is None:
                    tools.extend([base + one for one in found[0]])
                    impacts.extend(found[1])
                else:
                    there = [(base + one, impact) for one, impact in zip(*found, strict=True) if mask[base + one]]
                    tools.extend([one for one, _ in there])
                    impacts.extend([impact for _, impact in there])
            # A term that no tool has costs something, too.
            self._size += 1 + len(tools)
            if self._size > _KEPT * len(self.names):
                self._terms.clear()
                self._size = 1 + len(tools)
            known = self._terms[term] = tools, impacts
        return known

    def rarities(self, asked: Iterable[str]) -> dict[str, float]:
        """The terms of a query that are looked up, the rarest first, and how much each counts for being rare."""
        count = self._count
        found = [(len(self.postings(term)[0]), term) for term in asked]
        rarities: dict[str, float] = {}
        postings = 0
        for frequency, term in sorted(one for one in found if one[0])[:MOST_TERMS]:
            postings += frequency
            if len(rarities) >= _RARER and (frequency > _COMMON * count or postings > _MOST_POSTINGS * count):
                break
            rarities[term] = math.log(1 + (count - frequency + 0.5) / (frequency + 0.5))
        return rarities

    def scores(self, asked: Iterable[str]) -> dict[int, float]:
        """The tools that have any of these terms, by number, and what they score."""
        scores: dict[int, float] = {}
        for term, rarity in self.rarities(asked).items():
            tools, impacts = self.postings(term)
            get = scores.get
            for tool, impact in zip(tools, impacts, strict=True):
                scores[tool] = get(tool, 0.0) + impact * rarity
        return scores


_NONE: Final = _JoinedSegments(())


class Index:
    """The tools that some callers see, or more, by what they do."""

    def __init__(self, meaning: Meaning | None = None) -> None:
        """Begin with nothing; `meaning`: a model that knows what words mean alike, if there is one."""
        self._meaning = meaning
        self._segments: dict[str, Segment] = {}
        self._parts: dict[str | None, _JoinedSegments] = {}
        """Made when first asked for: all (None), or those of one server."""
        self._narrowed: dict[tuple[str | None, int, int], tuple[SeenTools, _JoinedSegments]] = {}
        """The same for callers who see less, by what that is, which is kept with it so that it stays the same."""
        self.of: object = None
        """What it was brought in step with last: the routes of a catalog."""

    def follow(self, routes: Mapping[str, Indexed], others: Iterable[Index] = ()) -> Generator[None]:
        """Bring it in step with what is listed now, in short steps. Servers whose tools are the same cost nothing.

        Segments of `others` are shared where they are the same.
        """
        by_server: dict[str, list[Indexed]] = {}
        for route in routes.values():
            by_server.setdefault(route.upstream, []).append(route)
        yield
        segments: dict[str, Segment] = {}
        for server, tools in by_server.items():
            # Of many users most have the same.
            known = dict.fromkeys(one for index in (self, *others) if (one := index.segments.get(server)) is not None)
            now = _told(tools)
            segment = next((one for one in known if one.is_of(*now)), None)
            segments[server] = segment or (yield from Segment.build(tools, self._meaning))
            yield
        self._segments, self._parts, self._narrowed, self.of = segments, {}, {}, routes

    @property
    def segments(self) -> Mapping[str, Segment]:
        """The tools of each server."""
        return self._segments

    @property
    def size(self) -> int:
        """How many tools are in it."""
        return sum(len(segment.names) for segment in self._segments.values())

    def _part(self, server: str | None, sees: SeenTools | None = None) -> _JoinedSegments:
        if sees is not None:
            return self._narrowed_part(server, sees)
        part = self._parts.get(server)
        if part is None:
            if server is not None and server not in self._segments:
                return _NONE
            chosen = [*self._segments.values()] if server is None else [self._segments[server]]
            part = self._parts[server] = _JoinedSegments(chosen)
        return part

    def _narrowed_part(self, server: str | None, sees: SeenTools) -> _JoinedSegments:
        key = (server, id(sees.routes), id(sees.hidden))
        known = self._narrowed.get(key)
        if known is None:
            segments = self._segments
            if (own := segments.get("")) is not None and not own.is_of(*_told(sees.own)):
                segments = {**segments, "": _built(Segment.build(sees.own, self._meaning))}
            chosen = [one for name, one in segments.items() if server in (None, name)]
            if len(self._narrowed) >= _MOST_NARROWED:
                del self._narrowed[next(iter(self._narrowed))]
            known = self._narrowed[key] = sees, _JoinedSegments(chosen, sees)
        return known[1]

    def search(self, query: str, limit: int, sees: SeenTools | None = None, server: str | None = None) -> Matches:
        """The tools that fit a query best; those of equal score in the order of their names.

        Args:
            query: in any words, of any length.
            limit: how many.
            sees: which tools there are for the caller; None: all.
            server: only those of this server.
        """
        part = self._part(server, sees)
        names, scores = part.names, part.scores(terms_of(query))
        if self._meaning is None:
            return Matches(_best(scores, names, limit), len(scores))
        like = self._meaning.likeness(query[:LONGEST_QUERY], part.vectors)
        if not like:
            return Matches(_best(scores, names, limit), len(scores))
        near = _nearest(like, part.mask)
        best = scores if len(scores) <= _FUSED else nlargest(_FUSED, scores, key=scores.__getitem__)
        # A sum, not places in two rankings: what words score says how much they tell, and places do not.
        meant = {one: _MEANING * like[one] for one in (*best, *near)}
        fused = {one: scores.get(one, 0.0) + more for one, more in meant.items()}
        return Matches(_best(fused, names, limit, meant), len(scores.keys() | near))

    def rarities(self, query: str) -> dict[str, float]:
        """The terms of a query that are looked up, and how much each counts for being rare."""
        return self._part(None).rarities(terms_of(query))


def _built(steps: Generator[None, None, Segment]) -> Segment:
    """What all of these steps make, at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def terms_of(query: str) -> list[str]:
    """The terms that a query asks for, each once."""
    found = terms(query[:LONGEST_QUERY])
    return [*dict.fromkeys(telling(found) or found)]


def _nearest(like: Sequence[float], mask: Sequence[int] | None) -> list[int]:
    """The tools that are most like a query; `mask` says which there are."""
    if mask is not None:
        like = [much if there else 0.0 for much, there in zip(like, mask, strict=True)]
    least = max(_LEAST, nlargest(_FUSED, like)[-1])
    return [one for one, much in enumerate(like) if much >= least][:_FUSED]


def _best(
    scores: Mapping[int, float], names: Sequence[str], limit: int, meant: Mapping[int, float] | None = None
) -> list[Match]:
    best = [*scores]
    if len(scores) > limit:
        least = nlargest(limit, scores.values())[-1]
        best = [one for one, score in scores.items() if score >= least]
    matches = [Match(names[one], scores[one], meant[one] if meant else 0.0) for one in best]
    matches.sort(key=lambda one: (-one.score, one.name))
    return matches[:limit]


def explained(tool: Indexed, rarities: Mapping[str, float]) -> dict[str, float]:
    """What each field adds to a tool's score, for these terms of a query."""
    found = fields_of(tool)
    weights = weights_of(tool)
    shares = dict.fromkeys((field.name for field in FIELDS), 0.0)
    for term, rarity in rarities.items():
        weight = weights.get(term, 0.0)
        for field, its in zip(FIELDS, found, strict=True):
            if weight and (times := its.count(term)):
                part = times * field.counts(len(its)) / weight
                shares[field.name] += rarity * weight / (_K1 + weight) * part
    return shares
