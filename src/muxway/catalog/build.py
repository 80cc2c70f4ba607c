"""Listings of many upstreams → one catalog.

The result depends on what each upstream lists and on the order of the configuration,
never on who answered first. A bad tool costs only itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from muxway.catalog.model import EMPTY, Catalog, Finding, NativeTool, Route
from muxway.protocol import messages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from msgspec import Raw

    from muxway.catalog.naming import Naming


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One upstream's part in the catalog: its tools, and what its configuration makes of them."""

    upstream: str
    tools: Sequence[NativeTool]
    prefix: str
    asked: str | None = None
    """The prefix asked for, if it is not the one that could be given."""
    exposed: Mapping[str, str | None] | None = None
    """Native names to show (None: all), with their new public name where they are renamed."""
    hidden: frozenset[str] = frozenset()
    own: bool = False
    """The gateway's own compound tools: never prefixed, and they come first."""


@dataclass(slots=True)
class _Draft:
    naming: Naming
    routes: dict[str, Route] = field(default_factory=dict[str, Route])
    findings: list[Finding] = field(default_factory=list[Finding])


def read_tools(upstream: str, raw_tools: Sequence[Raw]) -> tuple[list[NativeTool], list[Finding]]:
    """Open a listing. A definition that no client could use is left out, alone, with a finding."""
    tools: dict[str, NativeTool] = {}
    findings: list[Finding] = []
    for index, raw in enumerate(raw_tools):
        members = messages.members(raw)
        name = messages.text(members.get("name")) if members is not None else None
        if members is None or not name:
            findings.append(Finding(upstream, f"#{index + 1}", "left out: it has no name"))
            continue
        schema = members.get("inputSchema")
        if schema is None or messages.members(schema) is None:
            findings.append(Finding(upstream, name, "left out: its inputSchema is not a JSON object"))
        elif name in tools:
            findings.append(Finding(upstream, name, "left out: the server lists this name twice; the first is kept"))
        else:
            del members["name"]
            tools[name] = NativeTool(name, members)
    return list(tools.values()), findings


def assign_prefixes(naming: Naming, wanted: Mapping[str, str | None]) -> dict[str, str]:
    """Upstream → prefix, decided from the configuration alone so that no arrival can change a name.

    Two upstreams whose names become the same once illegal characters are replaced are told apart by
    a hash on the later one, so that adding a server renames nobody's tools.
    """
    prefixes: dict[str, str] = {}
    for upstream, prefix in wanted.items():
        chosen = upstream if prefix is None else prefix
        if chosen:
            chosen = naming.legal(chosen)
            if chosen in prefixes.values():
                chosen = naming.distinct(chosen, upstream)
        prefixes[upstream] = chosen
    return prefixes


def build(naming: Naming, sources: Sequence[Source], before: Catalog = EMPTY) -> Catalog:
    """The catalog of these sources, in this order, following on the one before.

    It has a version of its own only if a client that lists both sees a difference.
    """
    draft = _Draft(naming)
    for source in sources:
        _add(draft, source)
    catalog = Catalog(
        before.version + 1,
        draft.routes,
        tuple(draft.findings),
        former=_former(before, draft.routes, {source.upstream for source in sources}),
    )
    return before.with_routes_of(catalog) if same_listing(before, catalog) else catalog


def _former(before: Catalog, routes: Mapping[str, Route], present: set[str]) -> dict[str, str]:
    listed = {**before.former, **{name: route.upstream for name, route in before.routes.items()}}
    return {name: upstream for name, upstream in listed.items() if name not in routes and upstream not in present}


def _add(draft: _Draft, source: Source) -> None:
    if source.asked is not None and source.asked != source.prefix:
        why = f"listed under {source.prefix!r}, because {source.asked!r} is not legal for every client or taken"
        draft.findings.append(Finding(source.upstream, "*", f"{why}; set `prefix`"))
    shown = {tool.name for tool in source.tools}
    for name in sorted(({*source.exposed} if source.exposed is not None else set[str]()) | source.hidden):
        if name not in shown:
            key = "hiddenTools" if name in source.hidden else "exposedTools"
            draft.findings.append(Finding(source.upstream, name, f"named in {key}, but the server has no such tool"))
    for tool in source.tools:
        if tool.name in source.hidden or (source.exposed is not None and tool.name not in source.exposed):
            continue
        renamed = source.exposed.get(tool.name) if source.exposed is not None else None
        _add_tool(draft, source, tool, renamed)


def _add_tool(draft: _Draft, source: Source, tool: NativeTool, renamed: str | None) -> None:
    naming = draft.naming
    verbatim = renamed or (tool.name if source.own else None)
    if verbatim is not None:
        public = naming.fit(naming.legal(verbatim), source.upstream, tool.name)
        asked = verbatim
    else:
        public = naming.public(source.prefix, tool.name)
        asked = f"{source.prefix}{naming.separator}{tool.name}" if source.prefix else tool.name
    if public != asked:
        why = "too long" if len(asked) > naming.limit else "not legal for every client"
        draft.findings.append(Finding(source.upstream, tool.name, f"listed as {public!r}, because {asked!r} is {why}"))
    taken = draft.routes.get(public)
    if taken is not None:
        public = _free_name(draft, public, source.upstream, tool.name)
        draft.findings.append(
            Finding(
                source.upstream,
                tool.name,
                f"listed as {public!r}, because {taken.public!r} is already {taken.upstream!r}'s {taken.native!r}; "
                "set `prefix` or rename it in `exposedTools`",
            )
        )
    native = messages.encode(tool.name)
    definition = messages.object_of((("name", messages.encode(public)), *tool.members.items()))
    head = b'"method":"tools/call","params":{"name":' + native
    draft.routes[public] = Route(
        public, source.upstream, tool.name, source.prefix, renamed or tool.name, definition, head
    )


def _free_name(draft: _Draft, taken: str, *identity: str) -> str:
    """A name nobody has: with a hash of what it stands for, hashed once more should even that be somebody's name."""
    name = draft.naming.distinct(taken, *identity)
    while name in draft.routes:
        identity = (*identity, name)
        name = draft.naming.distinct(taken, *identity)
    return name


def same_listing(one: Catalog, other: Catalog) -> bool:
    """Whether a client that lists both sees no difference."""
    return one.page(0, None) == other.page(0, None)
