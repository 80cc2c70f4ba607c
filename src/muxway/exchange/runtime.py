"""What lives as long as the gateway, whatever becomes of its configuration and its lists."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from muxway.calls.backend import Gate
from muxway.calls.incidents import internal
from muxway.calls.ports import aside
from muxway.catalog.kinds import TOOLS
from muxway.errors import UnknownName
from muxway.exchange.admission import Admission
from muxway.exchange.approvals import Approvals
from muxway.exchange.change_notices import ChangeNotices, ListListener
from muxway.exchange.dispatcher import Dispatcher
from muxway.exchange.forwarding import Forwarder
from muxway.exchange.half_read import HalfRead
from muxway.exchange.in_making import InMaking
from muxway.exchange.logins import Logins
from muxway.exchange.open_sessions import OpenSessions
from muxway.exchange.subscriptions import Subscriptions
from muxway.routing.router import Router
from muxway.routing.snapshot import NO_OWN_LISTS, ServerNaming, Snapshot, Visible, are_many

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muxway.access.rules import Judge
    from muxway.calls.backend import Backend, WaitingCalls
    from muxway.calls.call import Caller
    from muxway.calls.identity import Identity
    from muxway.catalog.build import Source
    from muxway.config.model import GatewaySettings
    from muxway.exchange.change_notices import Changes, Who
    from muxway.exchange.seal import Seal
    from muxway.exchange.searching import Searches
    from muxway.exchange.tasks import Tasks
    from muxway.routing.listings import Listing
    from muxway.routing.snapshot import ClassKey, Looking, OwnLists, Settings


class PinnedList(NamedTuple):
    """The list of tools that a session of a pinned view got first."""

    listing: Listing
    routes: Mapping[str, object]
    """What was in it, by name."""
    judge: Judge | None
    """Who decided what is in it: with other rules it does not hold."""


class Prepared(NamedTuple):
    """A snapshot that is not in force yet."""

    before: Snapshot
    """The one that was in force when it was begun."""
    snapshot: Snapshot


class _Then:
    """What is done when something has been made. Implements `calls.backend.Held`."""

    def __init__(self, go_on: Callable[[], None]) -> None:
        self.release = go_on


def _may_differ(seen: Visible | None, sees: Visible | None, *, stateless: bool) -> bool:
    """Whether somebody may see otherwise; what is not at hand is compared later."""
    return seen is None or sees is None or bool(sees.changes_since(seen, stateless=stateless))


def _own_changes(last: Snapshot, now: Snapshot, one: ListListener, who: Who) -> frozenset[str]:
    """Which lists a user may see otherwise, as far as that is known without making them."""
    view, identity, _ = who
    seen, sees = last.visible(view), now.visible(view)
    kinds = sees.changes_since(seen, stateless=one.stateless)
    if identity is None:
        return kinds
    both = {**seen.servers, **sees.servers}
    servers = [name for name in both if any(one.shows_server(view, identity, name) for one in (last, now))]
    own = now.own_lists.changes_since(last.own_lists, identity.owner, servers)
    return kinds | (own - {TOOLS.capability} if sees.keeps_tools_of(seen, stateless=one.stateless) else own)


def _changes(before: Visible | Looking, sees: Visible) -> Changes:
    seen = before if isinstance(before, Visible) else before()[0]
    return {era: sees.changes_since(seen, stateless=era) for era in (False, True)}


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
        self.half_read = HalfRead()
        self.pinned: dict[object, PinnedList] = {}
        """What sessions keep that are in a view with `pin`."""
        self.listings = Gate()
        """Where listings wait for servers which are being started: most clients list once."""
        self.handshakes = Gate()
        """Where handshakes wait until what is remembered of the servers has been put in order."""
        self.prepared: Prepared | None = None
        """What the next `publish` may find done."""
        self._in_making = InMaking(self.snapshot)
        self.notices = ChangeNotices(self.forwarder.services.clock, self._compare)
        """Who is told of changes of lists, and what of."""
        self._clients: set[tuple[str | None, str]] = set()
        self._dispatchers: dict[str | None, Dispatcher] = {}
        self._searches: Searches | None = None

    def apply(self, settings: GatewaySettings, fullness: Callable[[], float | None], seal: Seal | None = None) -> None:
        """Behave as these settings say from now on.

        Args:
            settings: how the gateway behaves.
            fullness: which part of the memory that we may use is in use.
            seal: with another key; None: the key stays.
        """
        self.approvals.timeout = settings.approval_timeout
        self.admission.allow(calls=settings.max_calls, each=settings.max_calls_per_client, fullness=fullness)
        if seal is not None:
            self.forwarder.reseal(seal)

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

    def of_view(self, view: str | None) -> Dispatcher:
        """The same for a view that somebody names. Raises UnknownName."""
        views = self.snapshot.views
        if view is not None and view not in views:
            raise UnknownName("view", view, views)
        return self.dispatcher(view)

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

    def _classes(self, now: Snapshot, settings: Settings) -> dict[ClassKey, Visible | None]:
        """The classes of those who listen, as the settings have it, with what is made for them now."""
        classes: dict[ClassKey, Visible | None] = {}
        for one in self.notices.listeners.values():
            view, identity, client = one.caller
            key = settings.class_of(view, identity, client)
            if key is not None and key not in classes and (identity is None or not now.own_lists.servers):
                classes[key] = now.known(view, identity, client)
        return classes

    def making(self, view: str | None, identity: Identity | None, client: str = "") -> WaitingCalls | None:
        """Where requests wait until what their class of callers sees has been made; None: they need not."""
        return self._in_making.of(view, identity, client)

    def expect_servers(self) -> None:
        """Put in force that there are servers which are new: calls of what they may have wait for them."""
        new = {name: one for name, one in self._naming().items() if name not in self.snapshot.servers}
        if new:
            self.replace(self.snapshot.expecting(new))

    def _naming(self) -> dict[str, ServerNaming]:
        return {name: ServerNaming(one.prefix, one.unprefixed, one.bare) for name, one in self.servers.items()}

    def replace(self, snapshot: Snapshot) -> None:
        """Put a snapshot in force; whoever listens is to hear of what it sees otherwise now."""
        last = self.snapshot
        everybody = [(key, one, one.caller) for key, one in self.notices.listeners.items()]
        # What each user with lists of their own sees is made when they ask for it: there may be many.
        apart = last.own_lists.servers | snapshot.own_lists.servers
        owners = [(key, one, who) for key, one, who in everybody if apart and who[1] is not None]
        listeners = [(key, one, who) for key, one, who in everybody if not apart or who[1] is None]
        views = dict.fromkeys((None, *last.views, *(one.view for _, one, _ in everybody)))
        before = {view: last.visible(view) for view in views}
        before_of = {who: last.known(*who) for *_, who in listeners}
        self.snapshot = snapshot
        self._in_making = InMaking(snapshot)
        snapshot.whole.resources.forget_others()
        now_of = {who: snapshot.known(*who, seen) for who, seen in before_of.items()}
        looks: dict[Who, Visible | Looking] = {who: seen or last.looking(*who) for who, seen in before_of.items()}
        for view in views:
            if view is None or view in snapshot.views:
                self.half_read.replaced(view, before[view], snapshot.visible(view))
            else:
                self._forget_view(view)
        for key, made in last.classes.items():
            view, judge, client = key
            if (judge, client) == (made.judge, made.client) and (view is None or view in snapshot.views):
                self.half_read.replaced(view, made, snapshot.classes.get(key))
        # While listings wait nobody has seen the old ones, so nobody need hear of the new.
        if self.listings.held is None:
            self.notices.changed(
                {
                    key: looks[who]
                    for key, one, who in listeners
                    if self.notices.is_open(key) or _may_differ(before_of[who], now_of[who], stateless=one.stateless)
                }
            )
            self.notices.changed_for({key: _own_changes(last, snapshot, one, who) for key, one, who in owners})

    def compare(self, view: str | None, old: Caller, new: Caller, tell: Callable[[frozenset[str]], None]) -> None:
        """Tell which lists a caller with a handshake sees otherwise who was somebody else before."""
        who = (view, old.identity, old.client)
        before = self.snapshot.known(*who) or self.snapshot.looking(*who)
        self._compare(before, (view, new.identity, new.client), lambda changes: tell(changes[False]))

    def _compare(self, before: Visible | Looking, who: Who, tell: Callable[[Changes], None]) -> None:
        """Find what somebody sees otherwise than it saw: with many definitions beside the event loop, as it takes long.

        If something changes again meanwhile nothing is told: it will be with that.
        """
        snapshot = self.snapshot
        sees = snapshot.known(*who)
        if isinstance(before, Visible) and sees is not None:
            tell(_changes(before, sees))
            return

        def go_on() -> None:
            if snapshot is not self.snapshot:
                return
            # For a user with lists of its own these come first, then what rules leave of them.
            making = self.making(*who)
            sees = snapshot.known(*who) if making is None else None
            if making is not None:
                making.held[_Then(go_on)] = None
            elif sees is not None:
                aside(partial(_changes, before, sees), then)

        def then(outcome: Callable[[], Changes]) -> None:
            try:
                changes = outcome()
            except Exception as error:  # noqa: BLE001 - there may be others to be told
                internal(error)
                return
            if snapshot is self.snapshot:
                tell(changes)

        go_on()

    def _forget_view(self, view: str) -> None:
        """Keep nothing of a view that is gone. Whoever is still there has its dispatcher, which shows nothing."""
        if self._searches is not None:
            self._searches.forget(view)
        self._dispatchers.pop(view, None)
        self.half_read.forget(view)

    def pin(self, party: object, visible: Visible) -> Listing:
        """The list of tools that a session keeps: the one it got first, which is what there is now if it has none."""
        pinned = self.pinned.get(party)
        if pinned is None or pinned.judge is not visible.judge:
            pinned = PinnedList(visible.lists[False][TOOLS], visible.tools.routes, visible.judge)
            self.pinned[party] = pinned
        return pinned.listing

    def is_first(self, view: str | None, client: str) -> bool:
        """Whether no client of this profile has come to a view yet, as far as this was asked."""
        new = (view, client) not in self._clients
        self._clients.add((view, client))
        return new

    def listen(
        self,
        view: str | None,
        changed: Callable[[frozenset[str]], None],
        who: Callable[[], Caller | None],
        *,
        stateless: bool,
    ) -> Callable[[], None]:
        """Call `changed` with the lists that a caller of a view sees otherwise. Returns how to stop that."""
        return self.notices.listen(ListListener(view, changed, who, stateless))

    # --- sessions -----------------------------------------------------------------------------

    def left(self, party: object) -> None:
        """A client session has ended."""
        self.pinned.pop(party, None)
        self.forwarder.log_levels.left(party)
        for hear in self.on_left:
            hear(party)

    def set_log_level(self, party: object, level: int) -> None:
        """A session wants log messages from this level on: every server is asked for them while it is there."""
        self.forwarder.set_log_level(party, level)

    def close(self) -> None:
        """The gateway has stopped."""
        self.notices.close()
        self.approvals.close()
        self.forwarder.services.parked.close()


def _prepare(
    now: Snapshot,
    settings: Settings,
    servers: Mapping[str, ServerNaming],
    sources: Sequence[Source],
    classes: Mapping[ClassKey, Visible | None],
) -> Prepared:
    snapshot = now.next(settings, servers, sources).ready()
    for key, before in classes.items():
        snapshot.keep(snapshot.making(key, before)())
    return Prepared(now, snapshot)
