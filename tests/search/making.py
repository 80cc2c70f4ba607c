"""Listed tools, as a catalog has them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from muxway.catalog.model import Route

if TYPE_CHECKING:
    from muxway.search.index import Index


def tool(server: str, name: str, description: str = "", schema: Any = None, **more: Any) -> Route:
    """A tool of a server."""
    public = f"{server}__{name}"
    told = {"name": public, "description": description, "inputSchema": schema or {"type": "object"}, **more}
    return Route(public, server, name, server, name, json.dumps(told).encode(), b"")


def listed(*tools: Route) -> dict[str, Route]:
    """Tools by name."""
    return {one.public: one for one in tools}


def follow(index: Index, *tools: Route) -> int:
    """Bring an index in step; how many steps that took."""
    return sum(1 for _ in index.follow(listed(*tools)))
