"""Who wants to hear of which resources: any number of clients, one subscription at each server.

A client subscribes to a URI as it is shown to it; what that leads to is subscribed to at the server for the first who
wants it and given up after the last. What a server says was updated goes to whoever subscribed to just that, or to
something it is a part of, and to nobody else.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from muxway.calls.backend import StillStarting
from muxway.calls.incidents import attempt
from muxway.catalog.uris import wrap
from muxway.errors import InvalidParams, RpcError
from muxway.likeness import short
from muxway.routing.router import NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from muxway.calls.call import Caller
    from muxway.calls.identity import Owner
    from muxway.catalog.resources import ResourceCatalog
    from muxway.exchange.dispatcher import Dispatcher
    from muxway.routing.router import Router

MOST: Final = 1000
"""URIs that one client may be subscribed to."""
_MOST_CHARACTERS: Final = 4096
"""Characters of a URI that a client is subscribed to: all of them are kept."""
_BORDERS: Final = "/?#"
_LONGEST: Final = 2048
"""Characters of a URI above which nobody looks what it may be a part of."""

FeedPlace: TypeAlias = "str | tuple[str, Owner]"
"""A server, or one as it is used in the name of a user: what happens there for one user is not told to another."""
Settled: TypeAlias = "Callable[[RpcError | None], None]"
"""Hears once how it went; None: well."""


class Feed(Protocol):
    """What one server says of its resources."""

    def is_anothers(self, caller: Caller) -> bool:
        """Whether it tells of what another user does, and not of what this caller does."""
        ...

    def want(self, uri: str, settled: Settled) -> None:
        """Ask the server to say when this changes, unless it does already; `settled` may hear of it at once."""
        ...

    def keep(self, uri: str) -> None:
        """The same as soon as it can be, for those who were told until now by another server in this one's place."""
        ...

    def drop(self, uri: str, settled: Settled) -> None:
        """Nobody wants to hear of this any more; `settled` hears when the server knows, or is gone."""
        ...


class Quota:
    """How many URIs a client may still subscribe to, over all its streams."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MOST


class _Topic(NamedTuple):
    feed: FeedPlace
    native: str


class Subscriber:
    """A session, or one stream of a stateless client."""

    __slots__ = ("caller", "dispatcher", "places", "quota", "told")

    def __init__(self, dispatcher: Dispatcher, quota: Quota, told: Callable[[str, str], None], caller: Caller) -> None:
        """`told` gets the URI that was subscribed to and the one that was updated: the same, or a part of it."""
        self.dispatcher = dispatcher
        """Knows what it sees."""
        self.quota = quota
        self.told = told
        self.caller = caller
        self.places: dict[str, _Topic | None] = {}
        """What it has subscribed to, and where that leads; None while that is not known yet."""


class _Again:
    """A subscription that waits for its server. Implements `calls.backend.Held`."""

    __slots__ = ("_join", "_settled")

    def __init__(self, join: Callable[[], None], settled: Settled) -> None:
        self._join, self._settled = join, settled

    def release(self) -> None:
        # Others wait for the same: what goes wrong with this one is not theirs.
        attempt(self._settled, self._join)


class Subscriptions:
    """All subscriptions of all clients."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._feeds: dict[FeedPlace, Feed] = {}
        self._topics: dict[FeedPlace, dict[str, dict[Subscriber, list[str]]]] = {}
        """Server → native URI → who subscribed to it, and by which of its names."""

    def add(self, upstream: FeedPlace, feed: Feed) -> None:
        """A server has come."""
        self._feeds[upstream] = feed
        self._topics[upstream] = {}

    def replace(self, upstream: FeedPlace, feed: Feed) -> None:
        """Another one has taken the place of a server: what was subscribed to there is subscribed to here."""
        self._feeds[upstream] = feed
        for uri in list(self._topics[upstream]):
            feed.keep(uri)

    def remove(self, upstream: FeedPlace) -> None:
        """A server will not come back: so neither do its resources."""
        del self._feeds[upstream]
        for subscribers in self._topics.pop(upstream).values():
            for subscriber, uris in subscribers.items():
                for uri in uris:
                    del subscriber.places[uri]
                    subscriber.quota.left += 1

    # --- coming and going -----------------------------------------------------------------------

    def subscribe(self, subscriber: Subscriber, uri: str, settled: Settled) -> None:
        """Tell a subscriber of a resource from now on; `settled` hears once its server has agreed."""
        if uri not in subscriber.places:
            if subscriber.quota.left <= 0:
                settled(InvalidParams(f"a client may subscribe to {MOST} URIs: unsubscribe from some first"))
                return
            if len(uri) > _MOST_CHARACTERS:
                why = f"a URI to subscribe to may have {_MOST_CHARACTERS} characters"
                settled(InvalidParams(f"{why}: {short(uri)}"))
                return
            subscriber.quota.left -= 1
            subscriber.places[uri] = None
        self._join(subscriber, uri, settled)

    def _join(self, subscriber: Subscriber, uri: str, settled: Settled) -> None:
        if uri not in subscriber.places:
            # It did not want to wait, or is gone.
            settled(None)
            return

        def heard(error: RpcError | None) -> None:
            if error is not None:
                self.unsubscribe(subscriber, uri)
            settled(error)

        try:
            topic = subscriber.places[uri] or self._enter(subscriber, uri)
        except StillStarting as wait:
            wait.queue[_Again(lambda: self._join(subscriber, uri, settled), heard)] = None
        except RpcError as error:
            heard(error)
        else:
            self._feeds[topic.feed].want(topic.native, heard)

    def _enter(self, subscriber: Subscriber, uri: str) -> _Topic:
        if (making := subscriber.dispatcher.making(subscriber.caller)) is not None:
            raise StillStarting(making)
        place = self._router.place(subscriber.dispatcher.seen(subscriber.caller), uri)
        if place is None or place.upstream not in self._feeds:
            raise RpcError(f"Resource not found: {short(uri)}", code=NOT_FOUND, data={"uri": short(uri, 4096)})
        feed: FeedPlace = place.upstream
        identity = subscriber.caller.identity
        if identity is not None and (place.upstream, identity.owner) in self._feeds:
            feed = (place.upstream, identity.owner)
        if self._feeds[feed].is_anothers(subscriber.caller):
            raise InvalidParams(
                f'server "{place.upstream}" sends updates for another user, who came first (`isolation`) or is '
                "logged in to it: read the resource again instead"
            )
        topic = subscriber.places[uri] = _Topic(feed, place.native)
        self._topics[feed].setdefault(place.native, {}).setdefault(subscriber, []).append(uri)
        return topic

    def unsubscribe(self, subscriber: Subscriber, uri: str, settled: Settled | None = None) -> None:
        """Say no more of a resource; nothing happens if nothing was said of it. `settled` hears when that is done."""
        settled = settled or _unheard
        if uri not in subscriber.places:
            settled(None)
            return
        subscriber.quota.left += 1
        topic = subscriber.places.pop(uri)
        if topic is None:
            settled(None)
            return
        topics = self._topics[topic.feed]
        subscribers = topics[topic.native]
        subscribers[subscriber].remove(uri)
        if not subscribers[subscriber]:
            del subscribers[subscriber]
        if not subscribers:
            del topics[topic.native]
            self._feeds[topic.feed].drop(topic.native, settled)
        else:
            settled(None)

    def leave(self, subscriber: Subscriber) -> None:
        """A subscriber is gone."""
        for uri in list(subscriber.places):
            self.unsubscribe(subscriber, uri)

    # --- news -----------------------------------------------------------------------------------

    def updated(self, place: FeedPlace, native: str) -> None:
        """A server says that a resource of its has changed."""
        topics = self._topics.get(place)
        if not topics:
            return
        upstream = place if isinstance(place, str) else place[0]
        told: set[Subscriber] = set()
        for whole in _wholes(native):
            for subscriber, uris in topics.get(whole, {}).items():
                # Whoever wants to hear of several that this is a part of hears of it once.
                if subscriber in told:
                    continue
                told.add(subscriber)
                self._tell(subscriber, uris, upstream, native, whole)

    def _tell(self, subscriber: Subscriber, uris: list[str], upstream: str, native: str, whole: str) -> None:
        """Tell one that something has changed which is, or is a part of, `whole`, known to it by these URIs."""
        making = subscriber.dispatcher.making(subscriber.caller)
        if making is not None:
            again = partial(self._tell, subscriber, [*uris], upstream, native, whole)
            making.held[_Again(again, _unheard)] = None
            return
        catalog = subscriber.dispatcher.seen(subscriber.caller).resources
        # What was hidden since it was subscribed to is not there any more, nor is what it has unsubscribed from.
        uris = [uri for uri in uris if uri in subscriber.places and catalog.find(uri) == (upstream, whole)]
        if whole == native:
            for uri in uris:
                subscriber.told(uri, uri)
        elif uris:
            subscriber.told(uris[0], _public(catalog, upstream, native, as_in=uris[0], of=whole))


def _unheard(_: RpcError | None) -> None:
    """For whoever does not wait."""


def _public(catalog: ResourceCatalog, upstream: str, native: str, *, as_in: str, of: str) -> str:
    """What callers call a part, in the manner in which they call the whole; that itself if they may not see it."""
    public = catalog.public_uri(upstream, native) if as_in == of else wrap(upstream, native)
    return public if catalog.find(public) == (upstream, native) else as_in


def _wholes(uri: str) -> Iterator[str]:
    """The URI, and all that it may be a part of, the nearest first."""
    yield uri
    if len(uri) > _LONGEST:
        return
    for end in range(len(uri) - 1, 0, -1):
        if uri[end] in _BORDERS:
            if end + 1 < len(uri):
                yield uri[: end + 1]
            yield uri[:end]
