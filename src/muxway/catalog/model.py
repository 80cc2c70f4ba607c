"""Routes, tools and the catalog they make."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from muxway.catalog.naming import has_prefix, spellings
from muxway.protocol import messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from muxway.protocol.messages import Params


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
    alias: str
    """What follows the upstream's name in the spellings a call may use: the native name, or the new one if renamed."""
    definition: bytes
    """The tool as it is listed."""
    head: bytes
    """The start of a `tools/call` to the upstream, ready to be followed by the call's own params."""

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
    problem: str | None = None
    missing_prefix: bool = False


@dataclass(frozen=True)
class Catalog:
    """An immutable set of routes with its listing already encoded. A change makes a new one."""

    version: int
    routes: Mapping[str, Route]
    """Public name → route, in the order of the listing."""
    findings: Sequence[Finding] = ()
    bare: bool = False
    """Whether some upstream's tools stand without a prefix, so that a bare name is no mistake in itself."""
    _aliases: dict[str, Route | None] = field(default_factory=dict[str, "Route | None"], repr=False)
    _pages: dict[tuple[int, int | None], bytes] = field(
        default_factory=dict[tuple[int, "int | None"], bytes], repr=False
    )

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
            candidates = [r.public for r in self.routes.values() if name in spellings(r.upstream, r.alias)]
            return Lookup(None, f"Tool name is ambiguous: {name} may be {' or '.join(candidates)}")
        if not has_prefix(name) and not self.bare:
            return Lookup(None, f"Tool name must be prefixed with server key: {name}", missing_prefix=True)
        return Lookup(None, f"Tool not found: {name}")

    def nearest(self, name: str) -> list[str]:
        """The three listed names most like this one, for an error that helps."""
        return difflib.get_close_matches(name, self.routes, n=3, cutoff=0.6)

    def page(self, offset: int, size: int | None) -> bytes:
        """The listed tools from `offset` on, joined with commas; encoded once for all who ask."""
        encoded = self._pages.get((offset, size))
        if encoded is None:
            routes = list(self.routes.values())[offset : None if size is None else offset + size]
            encoded = self._pages[offset, size] = b",".join(route.definition for route in routes)
        return encoded


def _aliases(routes: Iterable[Route]) -> dict[str, Route | None]:
    aliases: dict[str, Route | None] = {}
    for route in routes:
        if not route.upstream:
            continue
        for spelling in spellings(route.upstream, route.alias):
            # None marks a spelling that could be two tools.
            aliases[spelling] = None if aliases.get(spelling, route) is not route else route
    return aliases


EMPTY = Catalog(0, {})
