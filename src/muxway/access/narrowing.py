"""What rules leave of the catalogs, for the callers of one class."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from muxway.access.rules import hints_of
from muxway.catalog.kinds import RESOURCES, TOOLS
from muxway.catalog.naming import SEPARATORS
from muxway.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.access.rules import Judge, Ruling
    from muxway.catalog.kinds import Kind
    from muxway.catalog.model import Catalog, Route
    from muxway.catalog.resources import ResourceCatalog

Publics = dict[tuple[str, str], str]
"""Server and own name → what the whole calls it: a view may have given it another name."""


def publics_of(whole: Catalog) -> Publics:
    """What each route of a catalog is called in it."""
    return {(route.upstream, route.native): route.public for route in whole.routes.values()}


def judged(judge: Judge, kind: Kind, route: Route, publics: Mapping[tuple[str, str], str]) -> Ruling:
    """What is decided about a tool or prompt, by any of the names that it goes by."""
    names = [route.public]
    known = publics.get((route.upstream, route.native), route.public)
    if known != route.public:
        names.append(known)
    if route.upstream:
        own = f"{route.upstream}__{route.native}"
        if own not in names:
            names.append(own)
    # To look into a definition takes longer than all the rest.
    hints = hints_of(_described(route) if kind is TOOLS and judge.looks_at_hints else {})
    return judge.verdict(kind, route.upstream, names, hints)


def _described(route: Route) -> Mapping[str, object]:
    try:
        return route.described
    except ParseError:
        # Valid JSON that Python cannot hold: nothing is known of it.
        return {}


def of_names(catalog: Catalog, judge: Judge, publics: Publics) -> tuple[Catalog, dict[str, Ruling]]:
    """What is left of the tools or prompts, and what was decided about each by its name here."""
    kind, before = catalog.kind, catalog.admits
    verdicts = {name: judged(judge, kind, route, publics) for name, route in catalog.routes.items()}

    def admits(server: str, name: str) -> bool:
        if before is not None and not before(server, name):
            return False
        listed = catalog.find(name).route
        if listed is not None:
            return verdicts[listed.public].shown
        return judge.verdict(kind, server, [*_spelled(server, name)], hints_of({})).shown

    routes = {name: route for name, route in catalog.routes.items() if verdicts[name].shown}
    former = {name: server for name, server in catalog.former.items() if admits(server, name)}
    if len(routes) == len(catalog.routes) and len(former) == len(catalog.former):
        hides = any(rule.do == "deny" for rule in judge.rules)
        return (catalog.with_routes_of(replace(catalog, admits=admits)) if hides else catalog), verdicts
    return replace(catalog, routes=routes, former=former, admits=admits, _aliases={}), verdicts


def _spelled(server: str, name: str) -> list[str]:
    """A name that is not listed, as it came and with our separator."""
    own = next(
        (name.removeprefix(server + one) for one in SEPARATORS if server and name.startswith(server + one)), None
    )
    return [name] if own is None else [*dict.fromkeys((name, f"{server}__{own}"))]


def of_uris(catalog: ResourceCatalog, judge: Judge) -> ResourceCatalog:
    """What is left of the resources and templates."""
    if all(rule.do != "deny" for rule in judge.rules):
        return catalog
    return catalog.judged_by(partial(shows_uri, judge))


def shows_uri(judge: Judge, server: str, uri: str) -> bool:
    """Whether a URI or template, as its server writes it, is for these callers."""
    return judge.verdict(RESOURCES, server, (uri,), {}).shown
