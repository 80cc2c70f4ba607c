"""What one start configuration of a server made: its connections, and what they have told.

A server has one. While another configuration is being swapped in it has two: one serves, one starts; then one drains.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from muxway.log import masker
from muxway.servers.limits import ServerLimits
from muxway.servers.notifications import Feeds, ServerFeed
from muxway.servers.pool import Pool
from muxway.servers.slot import FIRST, SESSIONS
from muxway.servers.supervision import Care

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from muxway.calls.call import Forwarded
    from muxway.catalog.kinds import Kind
    from muxway.config.model import ServerConfig
    from muxway.exchange.open_sessions import OpenSessions
    from muxway.exchange.subscriptions import FeedPlace
    from muxway.servers.lists import Offer
    from muxway.servers.managed_server import ManagedServer
    from muxway.servers.negotiation import Negotiated
    from muxway.servers.pool import Sharing
    from muxway.servers.slot import Slot
    from muxway.servers.transports.port import Credentials, ServerTransport


class ServerTerms(NamedTuple):
    """How a server's connections are treated; a reload may change it."""

    start_timeout: float = 30.0
    """Seconds that a start may take."""
    list_timeout: float = 15.0
    """Seconds that each page of a list may take."""
    max_listed: int = 10_000
    """What of a list is read."""
    limits: ServerLimits = ServerLimits()
    """How much is asked of each at a time."""
    care: Care = Care()
    """How the first is looked after."""
    most: int = 16
    """How many there may be beside the first."""
    idle: float = 300.0
    """Seconds after which one that nobody uses is ended, but for the first."""


class Hooks(NamedTuple):
    """Who is told what the connections of a server bring."""

    changed: Callable[[Instance], None]
    """Something about its first connection, or about its lists, has changed."""
    publish: Callable[[Callable[[], None]], None]
    """What it shows has changed: what to do when that is in force."""
    updated: Callable[[FeedPlace, str], None]
    """A resource of this server has changed."""
    sessions: OpenSessions
    """Who hears what belongs to no call."""


class SessionSide(NamedTuple):
    """What a server of both eras is for handshake callers; known also when the connection for them sleeps."""

    greeting: Negotiated | None
    offers: Mapping[Kind, Offer]


class Instance:
    """One server as one configuration starts it."""

    __slots__ = (
        "config",
        "credentials",
        "dial",
        "feeds",
        "hooks",
        "pool",
        "room",
        "server",
        "sessions",
        "terms",
        "thing",
    )

    def __init__(
        self,
        server: ManagedServer,
        config: ServerConfig,
        thing: object,
        terms: ServerTerms,
        hooks: Hooks,
        *,
        dial: Callable[[Forwarded], ServerTransport],
        room: Callable[[], Awaitable[None]] | None = None,
        sharing: Sharing,
        credentials: Credentials | None = None,
    ) -> None:
        """Prepare; nothing is started.

        Args:
            server: whose it is.
            config: how it is started and treated.
            thing: the object of this process that it is, if it is one.
            terms: how its connections are treated.
            hooks: who is told what they bring.
            dial: makes what carries a connection, each time anew, as its configuration says by then; with these
                headers of callers, if there are any.
            room: waits until there is a place for a process; None if it needs none. Raises NoRoomToStart.
            sharing: which callers may share a connection.
            credentials: what it is shown, where that is not in its configuration.
        """
        self.server = server
        self.config = config
        self.thing = thing
        self.terms = terms
        self.hooks = hooks
        self.dial = dial
        self.room = room
        self.credentials = credentials
        self.sessions: SessionSide | None = None
        """What it is for handshake callers, if it has a connection for them, or had one."""
        self.pool = Pool(self, sharing)
        first = self.pool.first
        first.feed = self._feed(first)
        self.feeds = Feeds(first.feed)
        """What it says of its resources."""
        self.feeds.anothers = self.pool.is_anothers
        if credentials is not None:
            credentials.on_login = self.pool.logged_in

    def adjust(self, terms: ServerTerms) -> None:
        """Its connections are treated like this from now on."""
        self.terms = terms
        for slot in self.pool.slots.values():
            slot.adjust()

    @property
    def busy(self) -> bool:
        """Whether a call is under way at it."""
        return any(slot.connection is not None and slot.connection.called for slot in self.pool.slots.values())

    @property
    def place(self) -> FeedPlace:
        """By what those know it who subscribe to something there."""
        return self.config.name if self.server.owner is None else (self.config.name, self.server.owner)

    def renew(self) -> None:
        """Somebody has logged in or out: what was there with the login before is not there any more."""
        self.pool.first.lists.offers = {}
        self.pool.renew()
        self.pool.first.start_anew()

    async def restart(self) -> None:
        """End it and start it anew; wait until it is ready or has failed."""
        self.pool.renew()
        await self.pool.first.restart()

    async def stop(self) -> None:
        """End all its connections, all at once, and wait until they are gone."""
        if self.credentials is not None:
            self.credentials.close()
        await asyncio.gather(self.pool.stop(), self.pool.first.stop())

    # --- what happens ---------------------------------------------------------------------------

    def mask(self, text: str) -> str:
        """Hides secrets in what it said, where people see it."""
        secrets = self.config.secrets
        return masker(secrets if self.credentials is None else secrets | self.credentials.secrets)(text)

    def changed(self, slot: Slot) -> None:
        """Something about one of its slots has changed."""
        if slot.key is FIRST:
            self.hooks.changed(self)
        elif slot.key == SESSIONS and slot.connection is not None:
            self.sessions = SessionSide(slot.greeting, dict(slot.lists.offers))
            self.hooks.publish(lambda: self._listed_for_sessions(slot))
        else:
            self.pool.changed(slot)

    def _listed_for_sessions(self, slot: Slot) -> None:
        self.pool.changed(slot)
        if not self.server.starting:
            # Some calls wait for what it lists.
            self.server.waiting.release()

    def join_feed(self, slot: Slot) -> None:
        """What handshake callers subscribe to is subscribed to over this connection, too."""
        slot.feed = self._feed(slot)
        self.feeds.join(slot.feed)

    def _feed(self, slot: Slot) -> ServerFeed:
        name, hooks = self.config.name, self.hooks
        feed = ServerFeed(
            name,
            slot.hear_notice,
            lambda uri: hooks.updated(self.place, uri),
            lambda user, params: hooks.sessions.log(name, user, params),
            self.server.is_bare,
        )
        feed.wake = slot.wake
        return feed

    def page_done(self, connection: object, id_: str) -> None:
        """The visit to a web page that an elicitation of this connection sent the user to is over."""
        self.hooks.sessions.page_done(connection, id_)
