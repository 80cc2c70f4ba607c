"""Routes, and the catalog they make: of all tools, or of all prompts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from muxway.catalog.kinds import TOOLS, Kind
from muxway.catalog.naming import nested, spellings
from muxway.catalog.reasons import ReasonBook
from muxway.likeness import most_like, short
from muxway.wire import conversion, envelopes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from muxway.catalog.shaping import Shaping
    from muxway.wire.envelopes import Params
    from muxway.wire.result_types import Converter


Variant: TypeAlias = "Callable[[bytes], bytes]"
"""How a definition is listed for some callers. Kept with what it made, so there must be few, each always the same."""
_PageKey: TypeAlias = "tuple[int, int | None, Variant | None]"


@dataclass(frozen=True, slots=True)
class Native:
    """A tool, prompt, resource or template as its server defines it."""

    name: str
    """What tells it from the others: its name, its URI, the text of the template."""
    members: Params
    """Every other member, as the bytes that came."""


NativeTool = Native
"""Where nothing but a tool can be meant."""


class Hint(NamedTuple):
    """How long a listing holds and for whom, as 2026-07-28 says it."""

    ttl_ms: int = 0
    public: bool = False

    @classmethod
    def of(cls, parts: Sequence[Hint]) -> Hint:
        """The hint for a listing that is put together of these parts: it holds as long as all of them do."""
        return cls(min(part.ttl_ms for part in parts), all(part.public for part in parts)) if parts else UNSAID


UNSAID: Final = Hint()
"""What holds where nothing is said: it may change at any time, and is for this caller alone."""


class Pages:
    """Definitions in the order of their listing, joined to pages once for all who ask for the same."""

    def __init__(self, definitions: Sequence[bytes]) -> None:
        self._definitions = definitions
        self._encoded: dict[_PageKey, bytes] = {}
        self._digest = ""

    @property
    def digest(self) -> str:
        """What tells this list from others: the same for the same bytes, whoever made them."""
        if not self._digest:
            self._digest = blake2b(self.page(), digest_size=8).hexdigest()
        return self._digest

    def __len__(self) -> int:
        return len(self._definitions)

    def page(self, offset: int = 0, size: int | None = None, variant: Variant | None = None) -> bytes:
        """What is listed from `offset` on, joined with commas."""
        encoded = self._encoded.get((offset, size, variant))
        if encoded is None:
            encoded = self._encoded[offset, size, variant] = self._encode(offset, size, variant)
        return encoded

    def _encode(self, offset: int, size: int | None, variant: Variant | None) -> bytes:
        definitions = self._definitions[offset : None if size is None else offset + size]
        if variant is None:
            return b",".join(definitions)
        converted = [variant(definition) for definition in definitions]
        if all(new is old for new, old in zip(converted, definitions, strict=True)):
            # Nothing in it that such callers do not know: one text for all of them.
            return self.page(offset, size)
        return b",".join(converted)


@dataclass(frozen=True, slots=True)
class Route:
    """Where a public name leads."""

    public: str
    upstream: str
    """The server's configured name; empty for a compound tool of the gateway itself."""
    native: str
    prefix: str
    """What stands before the native name in the listing; empty if nothing does."""
    alias: str
    """What follows the server's name in the spellings a call may use: the native name, or the new one if renamed."""
    definition: bytes
    """The tool or prompt as it is listed."""
    head: bytes
    """The start of the request that uses it at the server, ready to be followed by the call's own params."""
    shape: Shaping | None = field(default=None, compare=False, repr=False)
    """What is done to its calls and results, if the configuration shapes it."""
    origin: Native | None = field(default=None, compare=False, repr=False)
    """What it was made of, if nothing else went into it: the next catalog may take it over."""
    wrapped: bool = field(init=False)
    """Whether its output may be no object, so that callers who know only objects get it wrapped in one."""
    tasked: bool = field(init=False)
    """Whether a server of 2025-11-25 runs it only as a task."""
    _described: dict[str, Any] | None = field(init=False, default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Known once for all calls; a frozen class is written to like this.
        object.__setattr__(self, "wrapped", conversion.is_wrapped(self.definition))
        object.__setattr__(self, "tasked", conversion.is_tasked(self.definition))

    def spellings(self) -> set[str]:
        """Every way a caller may write it, whatever the listing says."""
        return {*spellings(self.upstream, self.alias), *(spellings(self.prefix, self.alias) if self.prefix else ())}

    def describe(self) -> dict[str, Any]:
        """The listed definition as Python objects, without what Python cannot hold, such as a `maximum` of 1e999."""
        return envelopes.holdable(self.definition)

    @property
    def described(self) -> Mapping[str, Any]:
        """The same, decoded once for all who look and change nothing."""
        if self._described is None:
            object.__setattr__(self, "_described", self.describe())
        return self._described or {}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about what one server lists that its owner should know."""

    upstream: str
    item: str
    message: str
    kind: Kind = TOOLS

    def __str__(self) -> str:
        return f"{self.upstream}: {self.kind.word} {self.item!r}: {self.message}"


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a name led to: a route, or the reason there is none."""

    route: Route | None
    problem: str = ""


@dataclass(frozen=True)
class Catalog:
    """An immutable set of routes of one kind with its listing already encoded. A change makes a new one."""

    version: int
    routes: Mapping[str, Route]
    """Public name → route, in the order of the listing."""
    findings: Sequence[Finding] = ()
    former: Mapping[str, str] = field(default_factory=dict[str, str])
    """Public names that were listed by servers which are gone, and whose they were."""
    kind: Kind = TOOLS
    rewriters: Mapping[str, Converter] = field(default_factory=dict[str, "Converter"], repr=False, compare=False)
    """Server → what to do to the links in its results. Empty unless several servers have resources."""
    shapes: Mapping[tuple[str, str], Shaping] = field(
        default_factory=dict[tuple[str, str], "Shaping"], repr=False, compare=False
    )
    """Server and native name → what is done to its calls, also of tools that are not listed."""
    reasons: ReasonBook = field(default_factory=ReasonBook, repr=False, compare=False)
    """Why tools are as they are, also those that are not listed."""
    admits: Callable[[str, str], bool] | None = field(default=None, repr=False, compare=False)
    """In a view: whether a name that is not listed may be looked for at a server. None: always."""
    pages: Pages = field(init=False, repr=False, compare=False)
    _aliases: dict[str, Route | None] = field(default_factory=dict[str, "Route | None"], repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pages", Pages([route.definition for route in self.routes.values()]))

    def find(self, name: str) -> Lookup:
        """The route a caller means, in any of the three spellings."""
        route = self.routes.get(name)
        return Lookup(route) if route is not None else self._find_spelled_otherwise(name)

    def spell(self) -> None:
        """Make the other spellings of all names, unless they are made."""
        if not self._aliases and self.routes:
            # A client may have it listed under another name than all others.
            adapted = {route.public: route for name, route in self.routes.items() if name != route.public}
            self._aliases.update({**_aliases([*self.routes.values()]), **adapted})

    def _find_spelled_otherwise(self, name: str) -> Lookup:
        # Made at the first name that is not listed as such: most clients never need it.
        self.spell()
        if name in self._aliases:
            route = self._aliases[name]
            if route is not None:
                return Lookup(route)
            candidates = [route.public for route in self.routes.values() if name in route.spellings()]
            return Lookup(None, f"{self.kind.ambiguous}: {name} may be {' or '.join(candidates)}")
        return Lookup(None, f"{self.kind.not_found}: {short(name)}")

    def with_routes_of(self, other: Catalog) -> Catalog:
        """The other catalog under this one's version, for one that lists the same: what is encoded stays so."""
        same = replace(other, version=self.version)
        object.__setattr__(same, "pages", self.pages)
        return same

    def with_rewriters(self, rewriters: Mapping[str, Converter]) -> Catalog:
        """This catalog, beside another one of resources."""
        return self.with_routes_of(replace(self, rewriters=rewriters))

    def of_kind(self, kind: Kind) -> Catalog:
        """This catalog, for things of another kind."""
        return replace(self, kind=kind)

    def nearest(self, name: str, hidden: Collection[str] = ()) -> list[str]:
        """The three listed names most like this one, for an error that helps; a bare name is a tool's own.

        What is `hidden`, by public name, has no part in it.
        """
        shown = {one: route for one, route in self.routes.items() if route.public not in hidden}
        owners = [one for one, route in shown.items() if route.alias == name]
        return owners[:3] or most_like(name, shown, n=3, cutoff=0.6)

    def page(self, offset: int, size: int | None, variant: Variant | None = None) -> bytes:
        """What is listed from `offset` on, joined with commas; encoded once for all who ask for the same variant."""
        return self.pages.page(offset, size, variant)


def _aliases(routes: Sequence[Route]) -> dict[str, Route | None]:
    named: dict[str, Route | None] = {}
    prefixed: dict[str, Route | None] = {}
    for route in routes:
        if route.upstream:
            _note(named, route, spellings(route.upstream, route.alias))
            if route.prefix not in ("", route.upstream):
                _note(prefixed, route, spellings(route.prefix, route.alias))
        elif route.native != route.public:
            # A tool of the gateway's own, whose name had to be made legal.
            _note(named, route, (route.native,))
    # What a server is called counts for more than the prefix another one had to be given.
    return {**_app_names(routes), **_nested(routes), **prefixed, **named}


def _nested(routes: Sequence[Route]) -> dict[str, Route]:
    """Tools of gateways behind this one, spelled with one separator throughout, where unambiguous."""
    names: dict[str, Route | None] = {}
    for route in routes:
        for start in {route.upstream, route.prefix} - {""} if route.upstream else ():
            _note(names, route, nested(start, route.alias))
    return {name: route for name, route in names.items() if route is not None}


def _app_names(routes: Sequence[Route]) -> dict[str, Route]:
    """Tools of servers with apps by their native names, where unambiguous: an app in the client knows no prefix."""
    servers = {route.upstream for route in routes if _has_app(route.definition)}
    names: dict[str, Route | None] = {}
    for route in routes:
        if route.upstream in servers:
            _note(names, route, (route.native,))
    return {name: route for name, route in names.items() if route is not None}


def _has_app(definition: bytes) -> bool:
    if b'"ui' not in definition:
        return False
    meta = envelopes.members((envelopes.members(definition) or {}).get("_meta", b"")) or {}
    return "ui" in meta or "ui/resourceUri" in meta


def _note(aliases: dict[str, Route | None], route: Route, names: Iterable[str]) -> None:
    for name in names:
        # None marks a spelling that could be two tools.
        aliases[name] = None if aliases.get(name, route) is not route else route


EMPTY = Catalog(0, {})
