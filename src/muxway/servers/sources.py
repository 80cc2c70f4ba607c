"""What a server shows: its part in the catalogs, of what it lists in either era and what its configuration says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muxway.catalog import build
from muxway.catalog.kinds import PROMPTS, RESOURCES, TEMPLATES, TOOLS
from muxway.catalog.uris import UriFilter
from muxway.servers.lists import Offer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.catalog.build import Source
    from muxway.catalog.kinds import Kind
    from muxway.catalog.model import Native
    from muxway.config.model import ServerConfig
    from muxway.config.shaping import ExposedTool
    from muxway.servers.lock import Lock
    from muxway.servers.managed_server import ManagedServer
    from muxway.servers.negotiation import Negotiated


def source_of(server: ManagedServer, offers: Mapping[Kind, Offer], lock: Lock | None = None) -> Source:
    """Its part in the catalogs; the same as before if nothing of it has changed, as nothing has of most."""
    config, greeting, sessions = server.config, server.first.greeting, server.instance.sessions
    in_sessions = greeting
    if greeting is not None and greeting.revision.stateless and server.instance.pool.sharing.match_era:
        in_sessions = None if sessions is None else sessions.greeting
    for_sessions = None if sessions is None else sessions.offers
    lists = [
        listed and [(kind, offer.natives, offer.hint) for kind, offer in listed.items()]
        for listed in (offers, for_sessions)
    ]
    # What was listed in somebody's name is nothing that others may be given.
    private = server.owner is not None or not server.is_everybodys
    made_of = [config, greeting, in_sessions, server.prefix, server.bare, private, lock, *lists]
    if server.shown is None or server.shown[0] != made_of:
        source = _source(server, offers, for_sessions, greeting, in_sessions, private=private)
        server.shown = made_of, source if lock is None else lock.held(source, greeting)
    return server.shown[1]


def _source(
    server: ManagedServer,
    offers: Mapping[Kind, Offer],
    for_sessions: Mapping[Kind, Offer] | None,
    greeting: Negotiated | None,
    in_sessions: Negotiated | None,
    *,
    private: bool,
) -> Source:
    config = server.config
    sides = [one for one in (greeting, in_sessions) if one is not None]
    return build.Source(
        upstream=config.name,
        tools=_natives(offers, for_sessions, TOOLS),
        prompts=_natives(offers, for_sessions, PROMPTS),
        resources=_natives(offers, for_sessions, RESOURCES),
        templates=_natives(offers, for_sessions, TEMPLATES),
        prefix=server.prefix,
        bare=server.bare,
        asked=config.name if config.prefix is None else config.prefix,
        exposed=_renames(config.exposed_tools),
        hidden=frozenset(config.hidden_tools),
        read_only=config.read_only,
        shapes=config.shape,
        exposed_prompts=_renames(config.exposed_prompts),
        hidden_prompts=frozenset(config.hidden_prompts),
        uris=UriFilter(config.exposed_resources, config.hidden_resources),
        reads=server.bare or any(one.has("resources") for one in sides),
        declared=_declared(greeting),
        declared_to_sessions=_declared(in_sessions),
        completes=any(one.completes for one in sides),
        unlisted=_unlisted(offers, for_sessions),
        hints={
            kind.name: offer.hint._replace(public=offer.hint.public and not private) for kind, offer in offers.items()
        },
        instructions="" if greeting is None else greeting.instructions,
    )


def _declared(greeting: Negotiated | None) -> Mapping[str, Any] | None:
    """What it says that it can do; None if it may have more than it says."""
    return None if greeting is None or greeting.vague else greeting.capabilities


def _natives(offers: Mapping[Kind, Offer], for_sessions: Mapping[Kind, Offer] | None, kind: Kind) -> Sequence[Native]:
    """What a server offers in either era."""
    natives = offers.get(kind, Offer()).natives
    more = () if for_sessions is None else for_sessions.get(kind, Offer()).natives
    known = {native.name for native in natives} if more else set[str]()
    return [*natives, *(native for native in more if native.name not in known)] if more else natives


def _unlisted(
    offers: Mapping[Kind, Offer], for_sessions: Mapping[Kind, Offer] | None
) -> tuple[frozenset[tuple[str, str]], frozenset[tuple[str, str]]]:
    """What of that is not listed for handshake callers, and for stateless ones."""
    if for_sessions is None:
        return frozenset(), frozenset()
    one = {(kind.name, native.name) for kind, offer in offers.items() for native in offer.natives}
    other = {(kind.name, native.name) for kind, offer in for_sessions.items() for native in offer.natives}
    return frozenset(one - other), frozenset(other - one)


def renames_any(config: ServerConfig) -> bool:
    """Whether a configuration gives anything another name."""
    exposed = (*(config.exposed_tools or ()), *(config.exposed_prompts or ()))
    return any(entry.exposed for entry in exposed) or any(wanted.name for wanted in config.shape)


def _renames(exposed: Sequence[ExposedTool] | None) -> dict[str, str | None] | None:
    return None if exposed is None else {entry.original: entry.exposed for entry in exposed}
