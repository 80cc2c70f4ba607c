"""Why a call by `call_tool` is not made: for whoever can put it right, and before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muxway.search import answers, checking, opening
from muxway.search.listing import CALL, tier_of

if TYPE_CHECKING:
    from msgspec import Raw

    from muxway.catalog.model import Route
    from muxway.routing.target import Target


def misfit(finder: Route, target: Target, arguments: Raw | None) -> str | None:
    """Why a tool is not called by this one, with these arguments; None: it is."""
    route = target.chosen or target.route
    if route is None:
        return None
    # What is too large to be looked through for each call is left to the server.
    large = len(route.definition) > opening.LARGEST
    definition = target.definition if route is target.route and not large else opening.opened(route.definition).members
    if finder.public != CALL:
        right = tier_of(definition)
        if finder.public != f"{CALL}_{right}":
            return answers.wrong_tier(route, finder.public, right)
    problems = [] if large else checking.problems(arguments, definition.get("inputSchema"))
    return answers.misfit(route, problems) if problems else None
