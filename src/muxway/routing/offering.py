"""What the gateway offers its clients: what its servers have, or may have as long as one of them is not known.

A client of 2026-07-28 may ask again at any time, so it is told what there is now. A session is told once, and servers
come and go: it is told of everything that it may ever need. Only if the gateway stands for one server alone, a
session is told what that has (docs/design/decisions/0018-one-server-is-transparent.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from muxway.wire.asking import TASKS_EXTENSION
from muxway.wire.envelopes import as_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.catalog.build import Source
    from muxway.wire.revisions import Revision

_LISTED: Final = ("tools", "prompts", "resources")
_EVERYTHING: Final = frozenset((*_LISTED, "subscribe", "logging"))


def offered(sources: Sequence[Source], configured: Mapping[str, object], revision: Revision) -> dict[str, Any]:
    """What callers of a revision are offered.

    Args:
        sources: what the servers show that are known.
        configured: all servers by name.
        revision: the callers'.
    """
    servers = [source for source in sources if not source.own]
    alone = servers[0] if len(servers) == 1 and servers[0].bare else None
    has = {"tools"} if any(source.tools for source in sources if source.own) else set[str]()
    unknown = not configured or configured.keys() - {source.upstream for source in servers}
    if unknown or (alone is None and not revision.stateless):
        has = {*_EVERYTHING, "completions"}
    for source in servers:
        declared = _declared(source, revision)
        has |= _EVERYTHING if declared is None else _kinds(declared)
        if source.completes:
            has.add("completions")
    told: dict[str, Any] = {kind: {"listChanged": True} for kind in _LISTED if kind in has}
    if "resources" in told and "subscribe" in has:
        told["resources"] = {"subscribe": True, "listChanged": True}
    if "logging" in has:
        told["logging"] = {}
    if "completions" in has and revision.completions:
        told["completions"] = {}
    extensions: dict[str, Any] = {TASKS_EXTENSION: {}} if revision.stateless else {}
    if alone is not None:
        # What only one server and one client understand passes between them as it is, if nobody else is there.
        own = _declared(alone, revision) or {}
        extensions = {**as_object(own.get("extensions")), **extensions}
        if "experimental" in own:
            told["experimental"] = own["experimental"]
    if extensions:
        told["extensions"] = extensions
    return told


def _declared(source: Source, revision: Revision) -> Mapping[str, Any] | None:
    return source.declared if revision.stateless else source.declared_to_sessions


def _kinds(declared: Mapping[str, Any]) -> set[str]:
    has = declared.keys() & _EVERYTHING - {"subscribe"}
    return has | {"subscribe"} if as_object(declared.get("resources")).get("subscribe") else has
