"""What servers show: their parts in the catalogs, of what they list in either era and what their configuration says."""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Any, Final

from muxway.catalog import build
from muxway.catalog.kinds import PROMPTS, RESOURCES, TEMPLATES, TOOLS
from muxway.catalog.locking import LOCKED_KINDS
from muxway.catalog.uris import UriFilter
from muxway.routing.snapshot import NO_OWN_LISTS, OwnLists
from muxway.servers.dialing import launch_work, may_fetch
from muxway.servers.lists import Offer
from muxway.servers.lock import Comparison
from muxway.servers.state import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muxway.calls.identity import Owner
    from muxway.catalog.build import Source
    from muxway.catalog.kinds import Kind
    from muxway.catalog.locking import HeldList
    from muxway.catalog.model import Native
    from muxway.config.model import ServerConfig
    from muxway.config.shaping import ExposedTool
    from muxway.servers.instance import Instance
    from muxway.servers.lock import Lock
    from muxway.servers.managed_server import ManagedServer
    from muxway.servers.negotiation import Negotiated


_MANY: Final = 100
"""Definitions that are compared with a lock beside the event loop: some 15 µs each, if they are short."""


class ServerSources:
    """What all servers of a gateway show, and what is known of it."""

    def __init__(self, servers: Mapping[str, ManagedServer]) -> None:
        """Of these, as they come and go."""
        self.by_name = servers
        """In the order of the configuration."""
        self.lock: Lock | None = None
        """What they are compared with; None: with nothing."""
        self._seen: dict[str, list[object]] = {}
        """What each server was made of when that was last looked at."""

    def now(self, changing: Instance | None = None, coming: Mapping[Kind, Offer] | None = None) -> list[Source]:
        """What each server shows that has anything to show; with what is coming, if one is about to change."""
        shown: list[Source] = []
        for server in self.by_name.values():
            offers = _offers(server, changing, coming)
            if server.connection is not None or offers:
                shown.append(_source_of(server, offers, self.lock))
        return shown

    def comparing(
        self, changing: Instance | None = None, coming: Mapping[Kind, Offer] | None = None
    ) -> Callable[[], None] | None:
        """What any thread may compare with the lock before `now` is asked for the same; None: nothing that is long."""
        lock = self.lock
        if lock is None:
            return None
        lists = [
            (server, kind, natives)
            for one in self.by_name.values()
            for server in (one, *one.of_users.values())
            for kind, natives in _locked_lists(server, _offers(server, changing, coming)).items()
            if _compared(lock, server, kind, natives) is None
        ]
        if sum(len(natives) for _, _, natives in lists) <= _MANY:
            return None

        def compare() -> None:
            for server, kind, natives in lists:
                _compare(lock, server, kind, natives)

        return compare

    def own_lists(self) -> OwnLists:
        """What servers list in the name of each user."""
        apart = {name: one for name, one in self.by_name.items() if not one.is_everybodys}
        if not apart:
            return NO_OWN_LISTS
        listed: dict[Owner, dict[str, Source]] = {}
        for name, server in apart.items():
            for owner, own in server.of_users.items():
                if own.connection is not None or own.lists.offers:
                    listed.setdefault(owner, {})[name] = _source_of(own, own.lists.offers, self.lock)
        return OwnLists(frozenset(apart), listed)

    @property
    def unknown(self) -> list[bool]:
        """For each server that is being started and of which nothing is known yet: whether it may have to be fetched.

        One that has failed is known to have nothing for now, however often it is tried again.
        """
        return [may_fetch(server.config.command) for server in self._never_seen]

    @property
    def _never_seen(self) -> list[ManagedServer]:
        return [
            server
            for server in self.by_name.values()
            if server.starting and not server.lists.offers and not server.first.state.restarts
        ]

    def launch_work(self) -> float | None:
        """Processor seconds that the launchers of `unknown` servers have used so far; None if nobody can tell."""
        used = [launch_work(server.first) for server in self._never_seen if may_fetch(server.config.command)]
        return None if None in used else sum(one for one in used if one is not None)

    @property
    def shows(self) -> bool:
        """Whether any server has something to show, or is known to have nothing."""
        return any(server.connection is not None or server.lists.offers for server in self.by_name.values())

    @property
    def complete(self) -> bool:
        """Whether all that every server has is known."""
        states = [server.first.state for server in self.by_name.values()]
        return bool(states) and all(
            state.now is State.RUNNING or (state.now is State.SLEEPING and state.reason is None) for state in states
        )

    def different(self) -> list[str]:
        """Servers that are not what they were when this was last asked: anew, with other lists, or gone."""
        now: dict[str, list[object]] = {}
        for name, server in self.by_name.items():
            before = self._seen.get(name)
            # While it is away it is the one that it was.
            connection = server.connection if server.connection is not None or before is None else before[0]
            sessions = server.instance.sessions
            in_sessions = () if sessions is None else sessions.offers.values()
            of_users = [one for own in server.of_users.values() for one in own.lists.offers.values()]
            now[name] = [connection, server.config, *server.lists.offers.values(), *in_sessions, *of_users]
        before, self._seen = self._seen, now
        return [
            name
            for name in {**before, **now}
            if name not in now or name not in before or not _same(before[name], now[name])
        ]


def _source_of(server: ManagedServer, offers: Mapping[Kind, Offer], lock: Lock | None = None) -> Source:
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
        if lock is not None:
            lists = _locked_lists(server, offers).items()
            compared = {
                kind: _compared(lock, server, kind, one) or _compare(lock, server, kind, one) for kind, one in lists
            }
            source = lock.held(source, greeting, compared)
        server.shown = made_of, source
    return server.shown[1]


def _offers(
    server: ManagedServer, changing: Instance | None, coming: Mapping[Kind, Offer] | None
) -> Mapping[Kind, Offer]:
    offers = server.lists.offers
    return {**offers, **coming} if server.instance is changing and coming else offers


def _locked_lists(server: ManagedServer, offers: Mapping[Kind, Offer]) -> dict[Kind, Sequence[Native]]:
    """What it lists of the kinds that a lock is about."""
    sessions = server.instance.sessions
    return {kind: _natives(offers, None if sessions is None else sessions.offers, kind) for kind in LOCKED_KINDS}


def _compared(lock: Lock, server: ManagedServer, kind: Kind, natives: Sequence[Native]) -> HeldList | None:
    """What came of comparing this list; None: it was not compared yet."""
    return next((one.held for one in server.compared.get(kind, ()) if one.is_of(lock, natives)), None)


def _compare(lock: Lock, server: ManagedServer, kind: Kind, natives: Sequence[Native]) -> HeldList:
    compared = Comparison(lock, natives, lock.compare(server.config.name, kind, natives))
    # What is in force is still asked for while something else is coming.
    server.compared[kind] = compared, *server.compared.get(kind, ())[:1]
    return compared.held


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
        exposure=build.Exposure(
            _renames(config.exposed_tools), frozenset(config.hidden_tools), config.read_only, config.shape
        ),
        prompt_exposure=build.Exposure(_renames(config.exposed_prompts), frozenset(config.hidden_prompts)),
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


def _same(before: Sequence[object], now: Sequence[object]) -> bool:
    return len(before) == len(now) and all(map(is_, before, now))
