"""Views: what some callers see of the gateway, and the tokens they come with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from muxway.config.model import VIEW, ViewConfig
from muxway.config.servers import check_reference
from muxway.config.values import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.config.model import GatewaySettings, ServerConfig
    from muxway.config.report import Path, Report

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}").fullmatch


def check_discovery(settings: GatewaySettings | ViewConfig, place: Path, report: Report) -> None:
    """Warn of keys that only a search view uses."""
    if settings.discovery != "search":
        for key, given in (("pinned", settings.pinned), ("tiers", settings.tiers)):
            if given:
                report.warn((*place, key), "has no effect without `discovery: search`: all tools are listed")


def read_views(
    raw: object, servers: Mapping[str, ServerConfig | None], gateway: GatewaySettings, reader: Reader
) -> dict[str, ViewConfig]:
    """Every view by name."""
    views: dict[str, ViewConfig] = {}
    holders: dict[str, str] = {} if gateway.token is None else {gateway.token: "gateway.token"}
    for name, entry in (reader.entries(("views",), raw) or {}).items() if raw is not None else ():
        place = ("views", name)
        if _NAME(name) is None:
            why = "the name of a view is part of its URL: letters, digits, `.`, `_` and `-`, at most 64"
            reader.report.error(place, why)
        own = Reader(reader.report, reader.scope)
        view = views[name] = ViewConfig(name=name, **own.section(VIEW, place, entry), secrets=own.secrets)
        check_discovery(view, place, reader.report)
        for index, server in enumerate(view.servers or ()):
            at = (*place, "servers", index)
            check_reference(server, at, servers, reader.report, off="the view shows nothing of it")
        for index, token in enumerate(view.tokens):
            where = (*place, "tokens", index)
            if not token.strip():
                reader.report.error(where, "the token is empty")
            elif token in holders:
                # Whoever shows it could be meant to see either.
                reader.report.error(where, f"is the same token as in {holders[token]}; each needs its own")
            holders.setdefault(token, f"views.{name}.tokens")
    return views
