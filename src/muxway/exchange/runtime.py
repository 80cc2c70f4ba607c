"""What lives as long as the gateway, whatever becomes of its configuration and its lists."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from muxway.calls.backend import WaitingCalls
from muxway.calls.incidents import internal
from muxway.calls.ports import aside, in_turns
from muxway.exchange.admission import Admission
from muxway.exchange.approvals import Approvals
from muxway.exchange.dispatcher import Dispatcher
from muxway.exchange.forwarding import Forwarder
from muxway.exchange.logins import Logins
from muxway.exchange.open_sessions import OpenSessions
from muxway.exchange.subscriptions import Subscriptions
from muxway.routing.router import Router
from muxway.routing.snapshot import NO_OWN_LISTS, ServerNaming, Snapshot, are_many

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muxway.access.rules import Judge
    from muxway.calls.backend import Backend, Held
    from muxway.calls.identity import Identity, Owner
    from muxway.catalog.build import Source
    from muxway.catalog.kinds import Kind
    from muxway.exchange.seal import Seal
    from muxway.exchange.searching import Searches
    from muxway.exchange.tasks import Tasks
    from muxway.routing.listings import Listing
    from muxway.routing.snapshot import OwnLists, Ruled, Settings, Visible

    _Looking = Callable[[], tuple[Visible, Ruled]]

_HALF_READ: Final = 8
"""Lists before the one in force in which a client may still turn pages."""


_MOST_HALF_READ: Final = 4096
"""Views, classes of callers, eras and kinds of which such lists are kept."""


class Prepared(NamedTuple):
    """A snapshot that is not in force yet."""

    before: Snapshot
    """The one that was in force when it was begun."""
    snapshot: Snapshot


class _Then:
    """What is done when something has been made. Implements `calls.backend.Held`."""

    def __init__(self, go_on: Callable[[], None]) -> None:
        self.release = go_on


def _changes(look: _Looking, sees: Visible) -> dict[bool, frozenset[str]]:
    seen, _ = look()
    return {era: sees.changes_since(seen, stateless=era) for era in (False, True)}


class _Listener(NamedTuple):
    view: str | None
    changed: Callable[[frozenset[str]], None]
    who: Callable[[], Identity | None]
    stateless: bool


class Runtime:
    """Sessions, admission, subscriptions, parked calls, tasks and keys; and the snapshot that is in force."""

    def __init__(self, settings: Settings, servers: Mapping[str, Backend], seal: Seal | None = None) -> None:
        """Prepare one; `servers` are those that there are, as they come and go."""
        self.snapshot = Snapshot.empty(settings)
        """What is in force. Replaced by one assignment, in `replace` and nowhere else."""
        self.servers = servers
        self.forwarder = Forwarder(servers, self, seal)
        self.router = Router(self.tasks.trace_of, servers)
        self.sessions = OpenSessions()
        self.admission = Admission()
        """How much is under way. The clients' side counts what it lets in."""
        self.subscriptions = Subscriptions(self.router)
        self.approvals = Approvals()
        """Calls that wait until somebody agrees."""
        self.logins = Logins()
        """What callers are told whose calls need a login first."""
        self.on_left: list[Callable[[object], None]] = []
        """Called with each client session that has ended."""
        self.half_read: dict[tuple[str | None, Judge | None, bool, Kind], deque[Listing]] = {}
        """The last lists of each view, class of callers, era and kind: a client half way goes on where it began."""
        self.waiting_listings: dict[Held, None] | None = None
        """Listings that wait for servers which are being started; None: they are answered at once."""
        self.waiting_sessions: dict[Held, None] | None = None
        """Handshakes that wait for what is remembered of the servers; None: they are answered at once."""
        self.prepared: Prepared | None = None
        """What the next `publish` may find done."""
        self._in_making: dict[tuple[Owner | None, str | None, Judge], WaitingCalls | None] = {}
        """Classes of callers whose part of the snapshot is being made; None: it could not be, beside the loop."""
        self._own_in_making: dict[Owner, WaitingCalls] = {}
        """The same for users with lists of their own."""
        self._listeners: dict[object, _Listener] = {}
        self._untold: dict[object, _Looking] = {}
        """What listeners saw who have yet to be told what they see otherwise now."""
        self._dispatchers: dict[str | None, Dispatcher] = {}
        self._searches: Searches | None = None

    @property
    def tasks(self) -> Tasks:
        """The tasks that callers may ask about."""
        return self.forwarder.services.tasks

    @property
    def searches(self) -> Searches:
        """What finds tools by what they do."""
        if self._searches is None:
            # Only for those who search.
            from muxway.exchange.searching import Searches

            self._searches = Searches()
        return self._searches

    def dispatcher(self, view: str | None = None) -> Dispatcher:
        """Where the requests of a view's callers come in; for None, of those who see all."""
        known = self._dispatchers.get(view)
        if known is None:
            known = self._dispatchers[view] = Dispatcher(self, view)
        return known

    # --- the snapshot -------------------------------------------------------------------------

    def publish(
        self, sources: Sequence[Source], settings: Settings | None = None, own_lists: OwnLists = NO_OWN_LISTS
    ) -> None:
        """Put in force what these sources, and other settings if there are any, make of what is in force."""
        now, servers = self.snapshot, self._naming()
        settings = settings or now.settings
        prepared, self.prepared = self.prepared, None
        if prepared is not None and prepared.before is now and prepared.snapshot.is_of(settings, servers, sources):
            self.replace(prepared.snapshot.with_own(own_lists, now))
        else:
            self.replace(now.next(settings, servers, sources).with_own(own_lists, now))

    def preparing(self, sources: Sequence[Source], settings: Settings | None = None) -> Callable[[], Prepared] | None:
        """What any thread may do before these are published, for `prepared`; None if there is nothing to do."""
        now, servers, ready = self.snapshot, self._naming(), self.prepared
        settings = settings or now.settings
        if not are_many(sources):
            return None
        if ready is not None and ready.before is now and ready.snapshot.is_of(settings, servers, sources):
            return None
        return partial(_prepare, now, settings, servers, sources, self._classes(now, settings))

    def _classes(self, now: Snapshot, settings: Settings) -> dict[tuple[str | None, Judge], Visible | None]:
        """The classes of those who listen, as the settings have it, with what is made for them now."""
        classes: dict[tuple[str | None, Judge], Visible | None] = {}
        access = settings.access
        if access is None:
            return classes
        for one in self._listeners.values():
            identity = one.who()
            judge = access.judge(identity, one.view)
            if judge is not None and (one.view, judge) not in classes:
                classes[one.view, judge] = now.known(one.view, identity)
        return classes

    def making(self, view: str | None, identity: Identity | None) -> WaitingCalls | None:
        """Where requests wait until what their class of callers sees has been made; None: they need not.

        With many definitions that takes long, and others need not wait for it.
        """
        snapshot = self.snapshot
        if not snapshot.differs or snapshot.known(view, identity) is not None:
            return None
        if identity is not None and not snapshot.has_own(identity):
            return self._making_own(snapshot, identity.owner)
        if snapshot.settings.access is None:
            return None
        judge = snapshot.settings.access.judge(identity, view)
        if judge is None:
            return None
        key = (None if identity is None or not snapshot.own_lists.servers else identity.owner, view, judge)
        if key not in self._in_making:
            self._in_making[key] = waiting = WaitingCalls()
            own = snapshot.of(identity)
            aside(own.making(view, judge), partial(self._made, own, key, waiting))
        return self._in_making[key]

    def _making_own(self, snapshot: Snapshot, owner: Owner) -> WaitingCalls:
        waiting = self._own_in_making.get(owner)
        if waiting is None:
            waiting = self._own_in_making[owner] = WaitingCalls()
            aside(snapshot.making_own(owner), partial(self._own_made, snapshot, owner, waiting))
        return waiting

    def _own_made(
        self, snapshot: Snapshot, owner: Owner, waiting: WaitingCalls, outcome: Callable[[], Snapshot]
    ) -> None:
        try:
            snapshot.keep_own(owner, outcome())
        except Exception as error:  # noqa: BLE001 - those who wait must go on
            internal(error)
        if self._own_in_making.get(owner) is waiting:
            del self._own_in_making[owner]
        waiting.release()

    def _made(
        self,
        snapshot: Snapshot,
        key: tuple[Owner | None, str | None, Judge],
        waiting: WaitingCalls,
        outcome: Callable[[], Ruled],
    ) -> None:
        try:
            snapshot.keep(outcome())
        except Exception as error:  # noqa: BLE001 - those who wait must go on
            internal(error)
            if self._in_making.get(key) is waiting:
                # Whoever asks makes it on its own, and is told what goes wrong.
                self._in_making[key] = None
        else:
            if self._in_making.get(key) is waiting:
                self._in_making.pop(key, None)
        waiting.release()

    def expect_servers(self) -> None:
        """Put in force that there are servers which are new: calls of what they may have wait for them."""
        new = {name: one for name, one in self._naming().items() if name not in self.snapshot.servers}
        if new:
            self.replace(self.snapshot.expecting(new))

    def _naming(self) -> dict[str, ServerNaming]:
        return {name: ServerNaming(one.prefix, one.unprefixed, one.bare) for name, one in self.servers.items()}

    def replace(self, snapshot: Snapshot) -> None:
        """Put a snapshot in force; whoever listens hears of what it sees otherwise now."""
        last = self.snapshot
        everybody = [(key, one, (one.view, one.who())) for key, one in self._listeners.items()]
        # What each user with lists of their own sees is made when they ask for it: there may be many.
        apart = last.own_lists.servers | snapshot.own_lists.servers
        owners = [(one, who) for _, one, who in everybody if apart and who[1] is not None]
        listeners = [(key, one, who) for key, one, who in everybody if not apart or who[1] is None]
        views = dict.fromkeys((None, *last.views, *(one.view for _, one, _ in everybody)))
        before = {view: last.visible(view) for view in views}
        before_of = {who: last.known(*who) for *_, who in listeners}
        self.snapshot = snapshot
        self._in_making, self._own_in_making = {}, {}
        snapshot.whole.resources.forget_others()
        now_of = {who: snapshot.known(*who, seen) for who, seen in before_of.items()}
        for view in views:
            if view is None or view in snapshot.views:
                self._keep_half_read(view, before[view], snapshot.visible(view))
            else:
                self._forget_view(view)
        for (view, judge), ruled in last.ruled.items():
            if view is None or view in snapshot.views:
                self._keep_half_read(view, ruled, snapshot.ruled.get((view, judge)))
        for one, (view, identity) in owners if self.waiting_listings is None else ():
            kinds = snapshot.visible(view).changes_since(last.visible(view), stateless=one.stateless)
            if identity is not None:
                kinds |= snapshot.own_lists.changes_since(last.own_lists, identity.owner)
            if kinds:
                one.changed(kinds)
        # While listings wait nobody has seen the old ones, so nobody need hear of the new.
        late: dict[tuple[object, ...], list[object]] = {}
        looks: dict[tuple[str | None, Judge | None], _Looking] = {}
        for key, one, who in listeners if self.waiting_listings is None else ():
            seen, sees = before_of[who], now_of[who]
            if seen is None or sees is None or key in self._untold:
                judge = last.judge(*who)
                if (look := self._untold.get(key) or looks.get((one.view, judge))) is None:
                    look = looks[one.view, judge] = last.looking(one.view, judge)
                self._untold[key] = look
                late.setdefault((look, one.view, snapshot.judge(*who)), []).append(key)
            elif kinds := sees.changes_since(seen, stateless=one.stateless):
                one.changed(kinds)
        for keys in late.values():
            one = self._listeners[keys[0]]
            self._compare(self._untold[keys[0]], one.view, one.who(), partial(self._tell_late, keys))

    def _tell_late(self, keys: Sequence[object], changes: Mapping[bool, frozenset[str]]) -> None:
        for key in keys:
            self._untold.pop(key, None)
            one = self._listeners.get(key)
            if one is not None and self.waiting_listings is None and changes[one.stateless]:
                one.changed(changes[one.stateless])

    def compare(
        self, view: str | None, old: Identity | None, new: Identity | None, tell: Callable[[frozenset[str]], None]
    ) -> None:
        """Tell which lists a caller with a handshake sees otherwise who was somebody else before."""
        snapshot = self.snapshot
        seen, sees = snapshot.known(view, old), snapshot.known(view, new)
        if seen is None or sees is None:
            look = snapshot.of(old).looking(view, snapshot.judge(view, old))
            self._compare(look, view, new, lambda changes: tell(changes[False]))
        elif seen is not sees:
            tell(sees.changes_since(seen, stateless=False))

    def _compare(
        self,
        look: _Looking,
        view: str | None,
        identity: Identity | None,
        tell: Callable[[Mapping[bool, frozenset[str]]], None],
    ) -> None:
        """Find beside the event loop what somebody sees otherwise than it saw: with many definitions it takes long.

        If something changes again meanwhile nothing is told: it will be with that.
        """
        snapshot = self.snapshot

        def go_on() -> None:
            sees = snapshot.known(view, identity)
            if snapshot is not self.snapshot or sees is None:
                return
            aside(partial(_changes, look, sees), then)

        def then(outcome: Callable[[], Mapping[bool, frozenset[str]]]) -> None:
            try:
                changes = outcome()
            except Exception as error:  # noqa: BLE001 - there may be others to be told
                internal(error)
                return
            if snapshot is self.snapshot:
                tell(changes)

        making = self.making(view, identity)
        if making is None:
            go_on()
        else:
            making.held[_Then(go_on)] = None

    def _keep_half_read(self, view: str | None, before: Visible, now: Visible | None) -> None:
        for stateless in (False, True):
            for kind, listing in before.lists[stateless].items():
                new = None if now is None else now.lists[stateless][kind]
                key, size = (view, before.judge, stateless, kind), listing.size if new is None else new.size
                if size != listing.size:
                    # Nobody can turn pages of another size.
                    self.half_read.pop(key, None)
                elif size is not None and (new is None or new.pages is not listing.pages):
                    self.half_read.setdefault(key, deque(maxlen=_HALF_READ)).append(listing)
                    if len(self.half_read) > _MOST_HALF_READ:
                        del self.half_read[next(iter(self.half_read))]

    def _forget_view(self, view: str) -> None:
        """Keep nothing of a view that is gone. Whoever is still there has its dispatcher, which shows nothing."""
        if self._searches is not None:
            self._searches.forget(view)
        self._dispatchers.pop(view, None)
        for key in [key for key in self.half_read if key[0] == view]:
            del self.half_read[key]

    def listen(
        self,
        view: str | None,
        changed: Callable[[frozenset[str]], None],
        who: Callable[[], Identity | None],
        *,
        stateless: bool,
    ) -> Callable[[], None]:
        """Call `changed` with the lists that a caller of a view sees otherwise. Returns how to stop that."""
        key = object()
        self._listeners[key] = _Listener(view, changed, who, stateless)

        def stop() -> None:
            self._listeners.pop(key, None)
            self._untold.pop(key, None)

        return stop

    # --- waiting ------------------------------------------------------------------------------

    def hold_listings(self) -> None:
        """Keep listings waiting until `release_listings`: most clients list once, and the servers are being started."""
        self.waiting_listings = {}

    def release_listings(self) -> None:
        """Answer the listings that wait, and all later ones at once."""
        held, self.waiting_listings = list(self.waiting_listings or ()), None
        in_turns(one.release() for one in held)

    def hold_sessions(self) -> None:
        """Keep handshakes waiting until `release_sessions`: what is remembered of the servers is being put in order."""
        self.waiting_sessions = {}

    def release_sessions(self) -> None:
        """Answer the handshakes that wait, and all later ones at once."""
        held, self.waiting_sessions = list(self.waiting_sessions or ()), None
        in_turns(one.release() for one in held)

    # --- sessions -----------------------------------------------------------------------------

    def left(self, party: object) -> None:
        """A client session has ended."""
        self.forwarder.log_levels.left(party)
        for hear in self.on_left:
            hear(party)

    def set_log_level(self, party: object, level: int) -> None:
        """A session wants log messages from this level on: every server is asked for them while it is there."""
        self.forwarder.set_log_level(party, level)

    def close(self) -> None:
        """The gateway has stopped."""
        self.approvals.close()
        self.forwarder.services.parked.close()


def _prepare(
    now: Snapshot,
    settings: Settings,
    servers: Mapping[str, ServerNaming],
    sources: Sequence[Source],
    classes: Mapping[tuple[str | None, Judge], Visible | None],
) -> Prepared:
    snapshot = now.next(settings, servers, sources).ready()
    for (view, judge), before in classes.items():
        snapshot.keep(snapshot.making(view, judge, before)())
    return Prepared(now, snapshot)
