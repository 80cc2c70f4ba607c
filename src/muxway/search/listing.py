"""What a search view lists: its pinned tools, and the few by which all others are found and called. Pure.

The bytes depend on the configuration alone, so that the prompt caches of clients hold whatever servers do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from muxway.catalog.globs import Globs
from muxway.catalog.model import Route
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SEARCH: Final = "search_tools"
CALL: Final = "call_tool"
TIERS: Final = ("read", "write", "destructive")
"""What a call may do, from the least to the most."""
_MOST_BYTES: Final = 2200
"""Bytes of all of them in a list, which has a little around them."""
_MOST_NAMES: Final = 1000
"""Bytes of the servers' names."""
_META: Final = {"anthropic/alwaysLoad": True}
"""Or Claude Code defers the very tools by which deferred ones are found."""
_DOES: Final = {
    "": "Call a tool that search_tools found. Arguments that do not fit get its schema; then nothing is called.",
    "read": "Call a [read] tool that search_tools found: it changes nothing. Wrong arguments get its schema.",
    "write": "Call a [write] tool that search_tools found: it adds or changes.",
    "destructive": "Call a [destructive] tool that search_tools found: it may delete or overwrite.",
}
_HINTS: Final[Mapping[str, dict[str, bool]]] = {
    "": {},
    "read": {"readOnlyHint": True},
    "write": {"readOnlyHint": False, "destructiveHint": False},
    "destructive": {"readOnlyHint": False, "destructiveHint": True},
}
_CALL_SCHEMA: Final = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
    "required": ["name"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """How a search view is configured."""

    pinned: Globs = field(default_factory=lambda: Globs(()))
    """Tools that are listed all the same, by their public names."""
    tiers: bool = False
    """Whether there is a tool to call with for each of the `TIERS`."""

    def tools(self, servers: Iterable[str]) -> dict[str, Route]:
        """The tools to find and call others with, by name; the servers are named in their description."""
        calls = {f"{CALL}_{tier}": tier for tier in TIERS} if self.tiers else {CALL: ""}
        made = {name: _route(name, _DOES[tier], _CALL_SCHEMA, _HINTS[tier]) for name, tier in calls.items()}
        taken = sum(len(route.definition) + 1 for route in (*made.values(), _search("")))
        names = _listed(servers, min(_MOST_NAMES, _MOST_BYTES - taken))
        return {SEARCH: _search(names), **made}


def tier_of(definition: Mapping[str, Any]) -> str:
    """What a tool may do, as it says itself. One that says nothing may do anything."""
    hints: Any = definition.get("annotations")
    if not isinstance(hints, dict):
        return "destructive"
    if hints.get("readOnlyHint") is True:  # pyright: ignore[reportUnknownMemberType]
        return "read"
    return "write" if hints.get("destructiveHint") is False else "destructive"  # pyright: ignore[reportUnknownMemberType]


def _search(servers: str) -> Route:
    said = "Find tools by what they do; best first, with how to call them. More tools exist than are listed."
    schema = {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What the tool should do"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 20, "default": 5},
            "server": {"type": "string", "description": "Only tools of this server"},
            "names": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Instead of a query: full definitions of these tools",
            },
        },
    }
    description = f"{said} Servers: {servers}" if servers else said
    return _route(SEARCH, description, schema, {"readOnlyHint": True})


def _listed(servers: Iterable[str], room: int) -> str:
    """As many names as there is room for, and how many more there are."""
    names = [*servers]
    # As JSON has them: some characters take more room there.
    sizes = [len(envelopes.encode(name)) for name in names]
    if sum(sizes) + len(" Servers: ") <= room:
        return ", ".join(names)
    room -= len(" Servers:  and 99999 more")
    shown: list[str] = []
    for name, size in zip(names, sizes, strict=True):
        room -= size
        if room < 0:
            break
        shown.append(name)
    return f"{', '.join(shown)} and {len(names) - len(shown)} more" if shown else f"{len(names)}"


def _route(name: str, description: str, schema: Mapping[str, Any], hints: Mapping[str, bool]) -> Route:
    told: dict[str, Any] = {"name": name, "description": description, "inputSchema": schema}
    if hints:
        told["annotations"] = hints
    return Route(name, "", name, "", name, envelopes.encode({**told, "_meta": _META}), b"")
