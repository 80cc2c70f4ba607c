"""Catalogs for tests, from names alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw

from muxway.catalog.build import Exposure, Source, assign_prefixes, build
from muxway.catalog.model import Catalog, Native, NativeTool
from muxway.catalog.naming import Naming
from muxway.catalog.uris import UriFilter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA = Raw(b'{"type":"object"}')


def tool(name: str, **members: bytes) -> NativeTool:
    """A native tool with a plain schema and these other members."""
    return NativeTool(name, {"inputSchema": SCHEMA, **{key: Raw(raw) for key, raw in members.items()}})


def source(
    upstream: str,
    *tools: str,
    prefix: str | None = None,
    exposed: Mapping[str, str | None] | None = None,
    hidden: frozenset[str] = frozenset(),
    own: bool = False,
) -> Source:
    """One server with tools of these names."""
    natives = [tool(name) for name in tools]
    shown = upstream if prefix is None else prefix
    return Source(upstream=upstream, tools=natives, prefix=shown, exposure=Exposure(exposed, hidden), own=own)


def catalog_of(*sources: Source, naming: Naming | None = None) -> Catalog:
    """The catalog of these sources."""
    return build(naming or Naming(), sources)


def merged(
    offers: Mapping[str, Sequence[str]],
    naming: Naming | None = None,
    prefixes: Mapping[str, str | None] | None = None,
    configured: Sequence[str] | None = None,
) -> Catalog:
    """The catalog of servers with these tools, prefixed as the whole configuration says."""
    naming = naming or Naming()
    wanted = {name: (prefixes or {}).get(name) for name in configured or offers}
    given = assign_prefixes(naming, wanted)
    return build(naming, [source(name, *offers[name], prefix=given[name]) for name in wanted if name in offers])


def publics(catalog: Catalog) -> dict[tuple[str, str], str]:
    """(Server, native name) → public name."""
    return {(route.upstream, route.native): route.public for route in catalog.routes.values()}


def reading(
    upstream: str,
    *uris: str,
    templates: Sequence[str] = (),
    exposed: tuple[str, ...] | None = None,
    hidden: tuple[str, ...] = (),
) -> Source:
    """One server with these resources and templates."""
    return Source(
        upstream=upstream,
        prefix=upstream,
        resources=[Native(uri, {"name": Raw(b'"n"')}) for uri in uris],
        templates=[Native(text, {"name": Raw(b'"t"')}) for text in templates],
        uris=UriFilter(exposed, hidden),
        reads=True,
    )
