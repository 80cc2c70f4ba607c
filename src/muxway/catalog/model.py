"""Routes, tools and the catalog they make."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from muxway.catalog.naming import spellings
from muxway.protocol import convert, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from muxway.protocol.messages import Params


_REMEMBERED: Final = 10_000

Variant: TypeAlias = "Callable[[bytes], bytes]"
"""How a definition is listed for some callers. Kept with what it made, so there must be few, each always the same."""
_PageKey: TypeAlias = "tuple[int, int | None, Variant | None]"


@dataclass(frozen=True, slots=True)
class NativeTool:
    """A tool as its upstream defines it: the name, and every other member as the bytes that came."""

    name: str
    members: Params


@dataclass(frozen=True, slots=True)
class Route:
    """Where a public name leads."""

    public: str
    upstream: str
    """The upstream's configured name; empty for a compound tool of the gateway itself."""
    native: str
    prefix: str
    """What stands before the native name in the listing; empty if nothing does."""
    alias: str
    """What follows the server's name in the spellings a call may use: the native name, or the new one if renamed."""
    definition: bytes
    """The tool as it is listed."""
    head: bytes
    """The start of a `tools/call` to the upstream, ready to be followed by the call's own params."""
    wrapped: bool = field(init=False)
    """Whether its output may be no object, so that callers who know only objects get it wrapped in one."""

    def __post_init__(self) -> None:
        # Known once for all calls; a frozen class is written to like this.
        object.__setattr__(self, "wrapped", convert.is_wrapped(self.definition))

    def spellings(self) -> set[str]:
        """Every way a caller may write this tool, whatever the listing says."""
        return {*spellings(self.upstream, self.alias), *(spellings(self.prefix, self.alias) if self.prefix else ())}

    def describe(self) -> dict[str, Any]:
        """The listed definition as Python objects."""
        return messages.value(self.definition)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about one upstream's tools that its owner should know."""

    upstream: str
    tool: str
    message: str

    def __str__(self) -> str:
        return f"{self.upstream}: tool {self.tool!r}: {self.message}"


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a name led to: a route, or the reason there is none."""

    route: Route | None
    problem: str = ""


@dataclass(frozen=True)
class Catalog:
    """An immutable set of routes with its listing already encoded. A change makes a new one."""

    version: int
    routes: Mapping[str, Route]
    """Public name → route, in the order of the listing."""
    findings: Sequence[Finding] = ()
    former: Mapping[str, str] = field(default_factory=dict[str, str])
    """Public names that were listed by servers which are gone, and whose they were."""
    quick: dict[bytes, Route] = field(default_factory=dict[bytes, Route], repr=False, compare=False)
    """Names as they came in JSON → where they led: most calls are for a tool that was called before."""
    _aliases: dict[str, Route | None] = field(default_factory=dict[str, "Route | None"], repr=False)
    _pages: dict[_PageKey, bytes] = field(default_factory=dict["_PageKey", bytes], repr=False)

    def remember(self, spelled: bytes, route: Route) -> None:
        """Note what a name, in the JSON spelling it came in, leads to. Bounded: callers choose the spelling."""
        if len(self.quick) < _REMEMBERED:
            self.quick[spelled] = route

    def find(self, name: str) -> Lookup:
        """The route a caller means, in any of the three spellings."""
        route = self.routes.get(name)
        return Lookup(route) if route is not None else self._find_spelled_otherwise(name)

    def _find_spelled_otherwise(self, name: str) -> Lookup:
        if not self._aliases and self.routes:
            # Built at the first name that is not listed as such: most clients never need it.
            self._aliases.update(_aliases(self.routes.values()))
        if name in self._aliases:
            route = self._aliases[name]
            if route is not None:
                return Lookup(route)
            candidates = [route.public for route in self.routes.values() if name in route.spellings()]
            return Lookup(None, f"Tool name is ambiguous: {name} may be {' or '.join(candidates)}")
        return Lookup(None, f"Tool not found: {name}")

    def with_routes_of(self, other: Catalog) -> Catalog:
        """The other catalog under this one's version, for one that lists the same: what is encoded stays so."""
        return replace(other, version=self.version, _pages=self._pages)

    def nearest(self, name: str) -> list[str]:
        """The three listed names most like this one, for an error that helps; a bare name is a tool's own."""
        # Only for an error; not worth its import at every start.
        from difflib import get_close_matches

        owners = [public for public, route in self.routes.items() if route.alias == name]
        return owners[:3] or get_close_matches(name, self.routes, n=3, cutoff=0.6)

    def page(self, offset: int, size: int | None, variant: Variant | None = None) -> bytes:
        """The listed tools from `offset` on, joined with commas; encoded once for all who ask for the same variant."""
        encoded = self._pages.get((offset, size, variant))
        if encoded is None:
            encoded = self._pages[offset, size, variant] = self._encode(offset, size, variant)
        return encoded

    def _encode(self, offset: int, size: int | None, variant: Variant | None) -> bytes:
        routes = list(self.routes.values())[offset : None if size is None else offset + size]
        definitions = [route.definition for route in routes]
        if variant is None:
            return b",".join(definitions)
        converted = [variant(definition) for definition in definitions]
        if all(new is old for new, old in zip(converted, definitions, strict=True)):
            # Nothing in it that such callers do not know: one text for all of them.
            return self.page(offset, size)
        return b",".join(converted)


def _aliases(routes: Iterable[Route]) -> dict[str, Route | None]:
    named: dict[str, Route | None] = {}
    prefixed: dict[str, Route | None] = {}
    for route in routes:
        if route.upstream:
            _note(named, route, spellings(route.upstream, route.alias))
            _note(prefixed, route, spellings(route.prefix, route.alias) if route.prefix else ())
    # What a server is called counts for more than the prefix another one had to be given.
    return {**prefixed, **named}


def _note(aliases: dict[str, Route | None], route: Route, names: Iterable[str]) -> None:
    for name in names:
        # None marks a spelling that could be two tools.
        aliases[name] = None if aliases.get(name, route) is not route else route


EMPTY = Catalog(0, {})
