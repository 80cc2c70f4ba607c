"""A configured server: it lasts, while its links come and go.

When a link is lost, a supervised server is started again (`supervision.py` says when), and a child that answers
nothing any more is taken for lost. What it had listed stays until a start fails: most servers are back in a moment,
and a client that was told that tools have gone would only ask for the same list again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

from muxway.catalog.build import read_listing
from muxway.catalog.kinds import KINDS, PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind
from muxway.catalog.model import UNSAID, Hint, Native
from muxway.errors import METHOD_NOT_FOUND, MuxwayError, RpcError, UpstreamError, UpstreamSaid
from muxway.exchange.only_client import OnlyClient
from muxway.log import EventLog, first_of
from muxway.servers.connection import Connection
from muxway.servers.counters import ServerCounters
from muxway.servers.limits import ServerLimits
from muxway.servers.list_freshness import ListFreshness
from muxway.servers.list_reading import list_all
from muxway.servers.negotiation import DiedOfProbe, Negotiated, TakesNoHandshake, greet
from muxway.servers.start_queue import NoRoomToStart
from muxway.servers.state import Event, Status, advance
from muxway.servers.supervision import BUDGET, Restarts
from muxway.wire import asking, envelopes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from muxway.calls.call import Caller
    from muxway.calls.ports import Client
    from muxway.servers.list_reading import ListReading
    from muxway.servers.negotiation import Era
    from muxway.servers.notifications import ServerFeed
    from muxway.servers.transports.port import ServerTransport
    from muxway.wire.envelopes import Params

_START: Final = 30.0
_FETCHING_START: Final = 120.0
_FETCHERS: Final = frozenset(("npx", "npm", "bunx", "uvx", "uv", "pipx", "docker", "podman", "deno"))
_LOOPING: Final = f"it failed {BUDGET} times within a minute, so it is tried once a minute now"
_LONG_LIST: Final = 64 * 1024
"""Bytes of a list from which on it is read beside the event loop."""
_CHANGES: Final = {
    "notifications/tools/list_changed": (TOOLS,),
    "notifications/prompts/list_changed": (PROMPTS,),
    "notifications/resources/list_changed": (RESOURCES, TEMPLATES),
}
"""What an upstream may say of its lists → what to list again."""

_SEARCHED: Final = (2, 3.0)
"""How often, and for how many seconds each time, a child is asked whether it lives when a call got no answer."""
_ROUTINE: Final = (3, 5.0)
"""The same when it has only been quiet for long."""
_ENDING: Final = 1.0
"""Seconds that the remains of a lost child get to end before the next one is started beside them."""
_SOONEST_NAP: Final = 0.05
_PROBATION: Final = 30.0
"""Seconds within which a server that answered a probe and then ended may have waited for a handshake."""
_FIRST_WORD: Final = 0.5
"""Seconds for which a server is kept waiting for the first word of the only client."""
_FIRST_QUESTIONS: Final = 2.0
"""Seconds that a server's client gets to answer what the server asks at its start."""
_ROOM_AGAIN: Final = 1.0
"""Seconds after which a server that found no room may be tried again."""

log = EventLog("upstream")


class Care(NamedTuple):
    """How a server is looked after."""

    supervised: bool = True
    """Whether it is started again when it ends by itself."""
    probe_interval: float = 0.0
    """Seconds of silence after which it is asked whether it still answers; 0: never."""
    restart_unresponsive: bool = False
    """Whether it is ended and started again when it answers nothing."""
    idle_stop: float | None = None
    """Seconds without a call after which it is put to sleep; None: never."""


UNSUPERVISED: Final = Care(supervised=False)
"""For a connection that is opened again when it is needed."""


def start_timeout(configured: float | None, command: str | None) -> float:
    """Seconds a server may take to be ready. Launchers that may first download the server get longer."""
    if configured is not None:
        return configured
    return _FETCHING_START if may_fetch(command) else _START


def may_fetch(command: str | None) -> bool:
    """Whether a command is a launcher that may first have to download the server."""
    return command is not None and PurePath(command).stem in _FETCHERS


@dataclass(frozen=True, slots=True)
class Offer:
    """What an upstream has of one kind."""

    natives: Sequence[Native] = ()
    notes: Sequence[str] = ()
    """What is odd about the list."""
    hint: Hint = UNSAID
    cut: bool = False
    """Whether it is not all: then reading it again costs much and shows no more, and is done only if it has changed."""


def _read(kind: Kind, upstream: str, listing: ListReading, known: Sequence[Native]) -> Offer:
    """What is in a list. What has not changed since it was known stays the same: so does what was made of it."""
    natives, findings = read_listing(kind, upstream, listing.items)
    by_name = {native.name: native for native in known}
    natives = [old if (old := by_name.get(native.name, native)) == native else native for native in natives]
    notes = [str(finding) for finding in findings]
    if listing.cut is not None:
        notes.append(f"{upstream}: {listing.cut}; what follows is left out")
    return Offer(known if natives == known else natives, notes, listing.hint, cut=listing.cut is not None)


class Upstream:
    """One server behind the gateway."""

    def __init__(
        self,
        name: str,
        dial: Callable[[], ServerTransport],
        *,
        client_info: Mapping[str, str],
        on_change: Callable[[Upstream], None],
        era: Era = "auto",
        capabilities: Mapping[str, object] = asking.EVERYTHING,
        kinds: Sequence[Kind] = KINDS,
        first: bool = True,
        start_timeout: float = _START,
        list_timeout: float = 15.0,
        max_listed: int = 10_000,
        care: Care = UNSUPERVISED,
        limits: ServerLimits = ServerLimits(),  # noqa: B008 -- it cannot be changed
        stats: ServerCounters | None = None,
        room: Callable[[], Awaitable[None]] | None = None,
        mask: Callable[[str], str] = str,
        bare: Callable[[], bool] = bool,
        client: Client | None = None,
    ) -> None:
        """Prepare; nothing is started. `client` is whom the connection is for, if it is for one client."""
        self.name = name
        self.status = Status.STOPPED
        self.error: str | None = None
        self.offers: dict[Kind, Offer] = {}
        """What it lists, by kind; nothing while it cannot be reached."""
        self.greeting: Negotiated | None = None
        self.link: Connection | None = None
        self.channel: ServerTransport | None = None
        self.feed: ServerFeed | None = None
        """Where its news goes, if anybody wants it."""
        self.took: float | None = None
        """Seconds from the last start until it was ready or had failed."""
        self.settled = asyncio.Event()
        """Set while the upstream is not being started: it runs, or it does not."""
        self.stats = ServerCounters() if stats is None else stats
        self.restarts = 0
        """How often it was started again after it had ended by itself."""
        self.starting = False
        """Whether a start is under way; each ends, well or badly, within the time limit."""
        self.ready_at: float | None = None
        """When it was last ready, on the loop's clock; None while it is not."""
        self.on_page_done: Callable[[object, str], None] | None = None
        """Called with the link and the id of an elicitation that sent the user to a web page, when that is done."""
        self.twin: Upstream | None = None
        """The connection for handshake callers, if the server speaks both eras: it has lists of its own."""
        self.prepare: Callable[[Mapping[Kind, Offer]], Awaitable[None]] | None = None
        """Waits, before lists that were read count, until what they make of the catalogs is ready."""
        self._dial = dial
        self._room = room
        """Waits until there is a place for its process. Raises NoRoom."""
        self._mask = mask
        """Hides secrets in what it said, where people see it."""
        self._bare = bare
        self._client = client
        self._client_info = client_info
        self._on_change = on_change
        self._era: Era = era
        self._died_of_probe = self._unprobed_next = False
        self.refused_handshake = False
        """Whether it has been offered a handshake and did not take it."""
        self._on_probation = self._doubted = False
        """Whether it has answered a probe, and may have expected a handshake all the same; whether it is thought so."""
        self._capabilities = capabilities
        self._kinds = kinds
        self._tell = log.error if first else log.info
        """How a failure is told: the first connection to a server is the server, further ones may come and go."""
        self.adjust(start_timeout, list_timeout, max_listed, care, limits)
        self._history = Restarts()
        self._retry: asyncio.TimerHandle | None = None
        self._retry_at: float | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._probing: asyncio.Task[None] | None = None
        self._began = 0.0
        self._starting: asyncio.Task[None] | None = None
        self._restarting: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._last_failure = ""
        self._relisting = ListFreshness(self._read_again, lambda: self._on_change(self))
        self._unreadable = ""
        """Why a list could last not be read again."""

    def adjust(
        self, start_timeout: float, list_timeout: float, max_listed: int, care: Care, limits: ServerLimits
    ) -> None:
        """From now on, treat it like this."""
        self._start_timeout = start_timeout
        self._list_timeout = list_timeout
        self._max_listed = max_listed
        self._care = care
        self._limits = limits
        if self.link is not None:
            self.link.adjust(limits)
            self._look_after(self.link)

    @property
    def notes(self) -> list[str]:
        """What is odd about this server's own lists."""
        return [note for offer in self.offers.values() for note in offer.notes]

    def offer(self, kind: Kind) -> Offer:
        """What it lists of this kind."""
        return self.offers.get(kind) or Offer()

    @property
    def retry_in(self) -> float | None:
        """Seconds until it is tried again; None if it is running, being started, or stays as it is."""
        if self._retry_at is None:
            return None
        return max(0.0, self._retry_at - asyncio.get_running_loop().time())

    @property
    def locked_out(self) -> str | None:
        """What to tell a caller, if somebody has to log in before it can be started."""
        return self.error if self.status is Status.LOGIN_NEEDED else None

    @property
    def looping(self) -> bool:
        """Whether it ends again and again, and is therefore tried only now and then."""
        return self._history.looping

    def start(self) -> None:
        """Begin to start it, in the background."""
        self._cancel_timers()
        self._set(Event.STARTED)
        self.starting = True
        self.settled.clear()
        self._unfeed(None)
        loop = asyncio.get_running_loop()
        self._began, self.took = loop.time(), None
        self._history.began(self._began)
        self._starting = loop.create_task(self._start())

    def expect(self, greeting: Negotiated, offers: dict[Kind, Offer]) -> None:
        """Before a start: what it had when it last ran. That is listed until it says what it has now, or fails."""
        self.greeting, self.offers = greeting, offers

    def logged_in(self) -> None:
        """Somebody has logged in: start it, if that is what it waited for."""
        if self.status in (Status.LOGIN_NEEDED, Status.FAILED) and not self.starting:
            log.info("logged in; starting it", upstream=self.name)
            self._history.forgive()
            self.start()
            self._on_change(self)

    def lie_down(self) -> None:
        """Instead of a start: sleep until somebody calls it."""
        self._set(Event.LAID_DOWN)
        self.settled.set()
        self._on_change(self)

    def wake(self) -> bool:
        """Somebody wants to call it: start it if it sleeps, or if its time to be tried again has come.

        Returns whether a start is under way now.
        """
        if self.starting:
            return True
        asleep = self.status is Status.SLEEPING
        if self._retry_at is None:
            if not asleep:
                return False
        elif self._retry_at > asyncio.get_running_loop().time():
            return False
        if not asleep:
            self.restarts += 1
        self.start()
        self._on_change(self)
        return True

    def sleep(self) -> None:
        """End it until somebody calls it. What it has stays listed."""
        link, self.link, self.ready_at = self.link, None, None
        self._cancel_timers()
        self._set(Event.LAID_DOWN)
        self.settled.set()
        self._unfeed(None)
        log.info("server put to sleep", upstream=self.name)
        self._on_change(self)
        self._end(link)

    async def restart(self) -> None:
        """End it and start it anew, whatever its history, and wait until it is ready or has failed.

        One that was stopped stays so. Whoever does not want to wait any longer does not stop it from coming back.
        """
        if self._restarting is None or self._restarting.done():
            if self.status is Status.STOPPED:
                return
            # Whoever calls meanwhile waits, and whoever lists need not see it go.
            self.starting = True
            self._retire()
            self._restarting = asyncio.get_running_loop().create_task(self._restart())
        await asyncio.shield(self._restarting)
        await self.settled.wait()

    async def _restart(self) -> None:
        await self._gone()
        if self.starting:  # Else it was stopped for good meanwhile.
            self._history.forgive()
            self.start()
            self._on_change(self)

    async def stop(self) -> None:
        """End it for good and wait until it is gone."""
        self.offers, self.starting = {}, False
        self._retire()
        await self._gone()
        if self._restarting is not None:
            await asyncio.wait([self._restarting])

    def _retire(self) -> None:
        """Let go of everything at once: whatever happens until it is gone finds it stopped."""
        self._cancel_timers()
        link, self.link, self.ready_at = self.link, None, None
        self._set(Event.RETIRED)
        self._end(link)
        self.settled.set()
        self._unfeed(None if self.starting else "was stopped")
        self._on_change(self)
        for task in self._tasks:
            task.cancel()

    async def _gone(self) -> None:
        # What is left of links that were lost is being ended, too: that must not be cut short.
        if ending := [*self._tasks, *self._closing]:
            await asyncio.wait(ending)

    @property
    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for task in (self._starting, self._relisting.task, self._probing) if task is not None]

    # --- starting -----------------------------------------------------------------------------

    async def _start(self) -> None:
        link: Connection | None = None
        if self._closing:
            # Two processes of one server at a time may be one too many: for its files, or its port.
            await asyncio.wait(self._closing, timeout=_ENDING)
        try:
            if self._room is not None:
                await self._room()
            async with asyncio.timeout(self._start_timeout):
                link = self._new_link()
                unprobed, self._unprobed_next = self._unprobed_next, False
                try:
                    await self._greet(link, "legacy" if unprobed else self._era)
                except TakesNoHandshake:
                    self.refused_handshake = True
                    log.info("takes no handshake; starting it again without", upstream=self.name)
                    await link.close()
                    link = self._new_link()
                    await self._greet(link, "modern")
                except DiedOfProbe as died:
                    # One that also ends unprobed may speak either era once it can be started: from then on, each
                    # start tries one of them.
                    again, self._died_of_probe = self._died_of_probe, True
                    if again:
                        self._unprobed_next = True
                        raise died.lost from died
                    log.info("ended when probed; starting it again with a handshake", upstream=self.name)
                    await link.close()
                    link = self._new_link()
                    try:
                        await self._greet(link, "legacy")
                    except UpstreamSaid as error:
                        # One that knows no handshake did not die of the probe.
                        raise (died.lost if error.code == METHOD_NOT_FOUND else error) from died
                await self._list(link, self._kinds)
                if self._client is not None and "roots" in self._capabilities and not link.revision.stateless:
                    await link.consulted(_FIRST_QUESTIONS)
                # What was kept from before this start, and is not there any more, goes.
                self.offers = {kind: offer for kind, offer in self.offers.items() if self._may_have(kind)}
                link.check()
        except NoRoomToStart as full:
            self._give_way(str(full))
            return
        except (MuxwayError, TimeoutError, OSError) as error:
            if isinstance(error, UpstreamError) and error.reason == "login_needed":
                self._lock_out(link, error.message)
            else:
                self._fail_start(link, error)
            return
        except asyncio.CancelledError:
            if link is not None:
                await link.close()
            raise
        except Exception as error:
            # Whatever it is, calls wait for the end of this start.
            self._fail_start(link, error)
            raise
        self.link = link
        link.on_lost = self._lost
        link.introduced()
        self.starting = False
        self._set(Event.READY)
        self._last_failure = ""
        self._settle()
        self.ready_at = asyncio.get_running_loop().time()
        self._history.ready(self.ready_at)
        self._look_after(link)
        log.info(
            "server ready",
            upstream=self.name,
            tools=len(self.offer(TOOLS).natives),
            revision=link.revision.date,
            ms=round((self.took or 0) * 1000),
            restarts=self.restarts or None,
        )
        if self.feed is not None and self.greeting is not None:
            self.feed.connect(link, self.greeting)
        self._on_change(self)
        self._relisting.catch_up()

    def _new_link(self) -> Connection:
        self.channel = self._dial()
        link = Connection(self.name, self.channel, self._limits, self.stats, self._mask, self._bare)
        link.on_notice = self.hear_notice
        self._relisting.forget()
        link.client = self._client
        return link

    async def _greet(self, link: Connection, era: Era) -> None:
        await link.open()
        caller = await _met(self._client) if isinstance(self._client, OnlyClient) else None
        if caller is not None:
            self._capabilities = asking.declared(caller.capabilities, caller.revision, own=True)
        child = self.channel is not None and not self.channel.remote
        # By URL one connection for each era costs nothing; a child speaks the era of its client, as it is one process.
        handshake_first = child and era == "auto" and (self._doubted or caller is not None)
        self.greeting = await greet(
            link,
            era,
            self._client_info,
            self._capabilities,
            self._start_timeout,
            handshake_first=handshake_first,
        )
        self.refused_handshake |= handshake_first and link.revision.stateless
        self._on_probation = child and era == "auto" and not handshake_first and link.revision.stateless
        # Which era it speaks does not change between two starts of one configuration.
        self._era = "modern" if link.revision.stateless else "legacy"
        self._died_of_probe = False

    def _give_way(self, why: str) -> None:
        """There was no room for it: it sleeps until the next call; what lists nothing yet tries again by itself."""
        self.starting = False
        self._cancel_timers()
        self._set(Event.LAID_DOWN)
        self.error = why
        loop = asyncio.get_running_loop()
        self._retry_at = loop.time() + _ROOM_AGAIN
        if not self.offers and self._care.supervised:
            self._retry = loop.call_later(_ROOM_AGAIN, self._wake_again)
        self._settle()
        self._unfeed(why)
        log.warning("no room for a server", upstream=self.name, why=why)
        self._on_change(self)

    def _lock_out(self, link: Connection | None, why: str) -> None:
        """It wants a login. Trying again is of no use until there is one; what it had stays listed."""
        self.starting = False
        self._cancel_timers()
        self._set(Event.LOCKED_OUT)
        self.error = why
        self._settle()
        self._unfeed(why.removeprefix(f'server "{self.name}" '))
        log.warning("login needed", upstream=self.name, what=why.removeprefix(f'server "{self.name}" '))
        self._on_change(self)
        self._end(link)

    def _wake_again(self) -> None:
        self.start()
        self._on_change(self)

    @property
    def in_use(self) -> bool:
        """Whether somebody needs its connection: for a call under way, or for news of it."""
        return (self.link is not None and self.link.called) or (self.feed is not None and bool(self.feed.wanted))

    def _fail_start(self, link: Connection | None, error: Exception) -> None:
        why = self._mask(str(error) or repr(error))
        if isinstance(error, TimeoutError):
            why = f'server "{self.name}" was not ready after {self._start_timeout:g} s (startTimeout)'
            why += "" if link is None else _said_instead(link, why)
        elif not isinstance(error, RpcError) or not why.startswith("server "):
            why = f'server "{self.name}" could not be started: {why}'
        elif link is not None and isinstance(error, UpstreamError) and error.reason == "lost":
            why += _said_instead(link, why)
        words = None if self.channel is None else self.channel.last_words()
        if words is not None and words not in why:
            why = f"{why}; its last stderr line: {words}"
        self._fail(why)
        if link is not None:
            self._end(link)

    # --- listing ------------------------------------------------------------------------------

    async def _list(self, link: Connection, kinds: Iterable[Kind]) -> None:
        """List these kinds anew, all at once. What fails keeps its old list; only a list of tools is missed.

        Raises:
            MuxwayError: the tools could not be listed.
        """
        kinds = [kind for kind in kinds if self._may_have(kind)]
        self._relisting.began(kinds, amid_calls=link.called)
        listed = await asyncio.gather(*(self._list_kind(link, kind) for kind in kinds), return_exceptions=True)
        if self.prepare is not None:
            await self.prepare({kind: one for kind, one in zip(kinds, listed, strict=True) if isinstance(one, Offer)})
        self._relisting.ended(kinds)
        failed: BaseException | None = None
        for kind, offer in zip(kinds, listed, strict=True):
            if isinstance(offer, Offer):
                self._take(kind, offer)
            elif isinstance(offer, UpstreamSaid) and self._is_vague:
                continue  # It never said that it has any.
            elif kind is TOOLS or not isinstance(offer, MuxwayError):
                failed = failed or offer
            else:
                why = self._mask(str(offer))
                log.warning("could not list", upstream=self.name, kind=kind.name, error=why)
                note = f"{self.name}: its {kind.word}s could not be listed: {why}"
                self.offers.setdefault(kind, Offer(notes=[note]))
        if failed is not None:
            raise failed

    def _may_have(self, kind: Kind) -> bool:
        return self.greeting is None or self.greeting.has(kind.capability) or self._is_vague

    @property
    def _is_vague(self) -> bool:
        return self.greeting is not None and self.greeting.vague

    async def _list_kind(self, link: Connection, kind: Kind) -> Offer:
        listing = await list_all(link, kind, timeout=self._list_timeout, most=self._max_listed)
        # A long list is read beside the event loop: each definition is looked through.
        beside = sum(memoryview(raw).nbytes for raw in listing.items) > _LONG_LIST
        read = partial(_read, kind, self.name, listing, self.offer(kind).natives)
        return await asyncio.to_thread(read) if beside else read()

    def _take(self, kind: Kind, offer: Offer) -> None:
        self.offers[kind] = offer
        notes, more = first_of(offer.notes)
        for note in (*notes, more) if more else notes:
            log.warning(f"{kind.word} list", upstream=self.name, problem=note)

    def hear_notice(self, method: str, params: Params) -> None:
        """The upstream says that something about it has changed, or that a visit to a web page is over."""
        kinds = _CHANGES.get(method)
        if kinds is None and method == "notifications/elicitation/complete" and self.on_page_done is not None:
            self.on_page_done(self.link, envelopes.text(params.get("elicitationId")) or "")
        if kinds is not None:
            self._relisting.changed(kinds, now=self.link is not None)

    def asked(self, kind: Kind) -> int | None:
        """A client asks for a list: if it may be out of date, read it again, in the background.

        Returns for how many milliseconds what is known of it holds; None if there is no such list.
        """
        if self.twin is not None:
            self.twin.asked(kind)
        greeting = self.greeting
        if greeting is not None and not self._may_have(kind):
            return None
        if greeting is None or self.link is None:
            # It may say otherwise as soon as it is back; but it need not be woken for that.
            return 0
        holds = self._relisting.holds(kind, self.offer(kind).hint.ttl_ms)
        if self._may_differ(kind, greeting):
            self._relisting.refresh(kind)
        return holds

    def _may_differ(self, kind: Kind, greeting: Negotiated) -> bool:
        """Whether a list may have changed in silence."""
        offer = self.offer(kind)
        # A stateless server says how long its lists hold, also if it tells of changes.
        silent = greeting.revision.stateless or not greeting.announces(kind.capability)
        return silent and not offer.cut and not self._relisting.holds(kind, offer.hint.ttl_ms)

    def renew(self, kind: Kind) -> bool:
        """A client asks for a list: if calls may have changed it in silence, read it again.

        Returns whether it is being read.
        """
        of_twin = self.twin is not None and self.twin.renew(kind)
        if self.link is None or self.greeting is None or kind not in self._kinds or not self._may_have(kind):
            return of_twin
        if not self._may_differ(kind, self.greeting):
            return of_twin
        return self._relisting.renew(kind, self.link.used) or of_twin

    def want(self, kind: Kind, *, begin: bool) -> bool:
        """Somebody calls what is not listed: `begin` to read that list again, if that was not done a moment ago.

        Returns whether it is being read, or about to be.
        """
        of_twin = self.twin is not None and self.twin.want(kind, begin=begin)
        if self.link is None or kind not in self._kinds or not self._may_have(kind):
            return of_twin
        return self._relisting.want(kind, begin=begin and not self.offer(kind).cut) or of_twin

    async def _read_again(self, kinds: set[Kind]) -> None:
        if self.link is None:
            return
        try:
            await self._list(self.link, [kind for kind in self._kinds if kind in kinds])
        except MuxwayError as error:
            why, before = self._mask(str(error)), self._unreadable
            # Clients may ask every few seconds for what cannot be had.
            tell = log.debug if why == before else log.warning
            tell("could not list again; the old list stays", upstream=self.name, error=why)
            self._unreadable = why
        else:
            self._unreadable = ""

    # --- looking after it ---------------------------------------------------------------------

    def _look_after(self, link: Connection) -> None:
        link.on_timeout = self._search if self._care.restart_unresponsive else None
        if self._watch is not None:
            self._watch.cancel()
        interval = min(self._care.probe_interval or float("inf"), self._care.idle_stop or float("inf"))
        if interval < float("inf"):
            self._watch_in(interval)

    def _watch_in(self, seconds: float) -> None:
        self._watch = asyncio.get_running_loop().call_later(max(seconds, _SOONEST_NAP), self._watch_now)

    def _watch_now(self) -> None:
        """Put it to sleep if nobody has needed it, ask it something if it has long said nothing; then look later."""
        link, now, care = self.link, asyncio.get_running_loop().time(), self._care
        if link is None or self.ready_at is None:
            return
        quiet = not link.called  # A server at work may have no time for questions, and calls have their own clocks.
        if not quiet:
            link.used = now
        due: list[tuple[float, float]] = []
        if care.idle_stop is not None:
            sleep_at = max(link.used, self.ready_at) + care.idle_stop
            if quiet and sleep_at <= now and (self.feed is None or not self.feed.wanted):
                self.sleep()
                return
            due.append((sleep_at, care.idle_stop))
        if care.probe_interval:
            probe_at = max(link.heard, self.ready_at) + care.probe_interval
            if quiet and probe_at <= now:
                self._probe(*_ROUTINE)
            due.append((probe_at, care.probe_interval))
        self._watch_in(min(at - now if at > now else interval for at, interval in due))

    def _search(self) -> None:
        """A call got no answer: is anybody there?"""
        self._probe(*_SEARCHED)

    def _probe(self, tries: int, seconds: float) -> None:
        if self.link is not None and (self._probing is None or self._probing.done()):
            self._probing = asyncio.get_running_loop().create_task(self._probe_link(self.link, tries, seconds))

    async def _probe_link(self, link: Connection, tries: int, seconds: float) -> None:
        method = "server/discover" if link.revision.stateless else "ping"
        for _ in range(tries):
            began = asyncio.get_running_loop().time()
            try:
                await link.ask(method, {}, timeout=seconds)
            except UpstreamSaid:
                return  # It answers.
            except UpstreamError as error:
                if error.reason != "timeout" or link.heard >= began:
                    return  # It is gone, and the link has said so; or it has been heard.
            else:
                return
        if self.link is link:
            link.on_lost = None
            self._lost("answers nothing any more, and was ended", at_once=True)

    def _cancel_timers(self) -> None:
        for timer in (self._retry, self._watch):
            if timer is not None:
                timer.cancel()
        self._retry = self._watch = self._retry_at = None

    # --- ending -------------------------------------------------------------------------------

    def _lost(self, why: str, *, at_once: bool = False) -> None:
        link, self.link = self.link, None
        self._fail(f'server "{self.name}" {why}')
        self._end(link, at_once=at_once)

    def _end(self, link: Connection | None, *, at_once: bool = False) -> None:
        if link is not None:
            # From here on, what becomes of it is no news.
            link.on_lost = None
            # The process may still be there with its output closed, or have left others behind.
            closing = asyncio.get_running_loop().create_task(link.close(at_once=at_once))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _fail(self, why: str) -> None:
        now = asyncio.get_running_loop().time()
        again, self._last_failure = why == self._last_failure, why
        self._cancel_timers()
        self._reconsider(now)
        self.ready_at, self.starting = None, False
        looped = self.looping
        pause = self._history.failed(now) if self._care.supervised else None
        self._set(Event.LOOPED if self.looping else Event.LOST)
        if self.status is Status.FAILED or pause is None:
            self.offers = {}
        loops = self.looping and not looped
        self.error = f"{why}; {_LOOPING}" if self.looping and pause is not None else why
        if pause is not None:
            self._retry_at = now + pause
            self._retry = asyncio.get_running_loop().call_later(pause, self._try_again)
        self._settle()
        self._unfeed(why.removeprefix(f'server "{self.name}" '))
        # The same reason again is no news, but that it is given up on for a while is.
        ended = self.status is Status.RESTARTING
        tell = log.debug if again and not loops else log.warning if ended and self._tell == log.error else self._tell
        reason = self.error.removeprefix(f'server "{self.name}" ')
        tell(
            "server ended; starting it again" if ended else "server failed",
            upstream=self.name,
            error=reason,
            next_try=None if pause is None else "now" if pause < 1 else f"in {pause:.0f} s",
        )
        self._on_change(self)

    def _reconsider(self, now: float) -> None:
        """It has ended. Some answer a probe, and end a little later because nobody shook hands."""
        if self._doubted and self._era == "auto":
            # It did not take a handshake, either.
            self._doubted, self._era = False, "modern"
        elif self._on_probation and (self.ready_at is None or now - self.ready_at < _PROBATION):
            log.info("ended soon after a probe; starting it again with a handshake", upstream=self.name)
            self._doubted, self._era = True, "auto"
        self._on_probation = False

    def _try_again(self) -> None:
        self.restarts += 1
        self.start()
        self._on_change(self)

    def _unfeed(self, why: str | None) -> None:
        if self.feed is not None:
            self.feed.disconnect(why)

    def _settle(self) -> None:
        if self.took is None:
            self.took = asyncio.get_running_loop().time() - self._began
        self.settled.set()

    def _set(self, event: Event) -> None:
        self.status = advance(self.status, event)
        if event in (Event.READY, Event.RETIRED, Event.LAID_DOWN):
            self.error = None


async def _met(only: OnlyClient) -> Caller | None:
    """Who the only client is, if it has a session; None also if it says nothing for a while."""
    caller: asyncio.Future[Caller | None] = asyncio.get_running_loop().create_future()

    def hear(found: Caller | None) -> None:
        if not caller.done():
            caller.set_result(found)

    only.when_met(hear)
    try:
        async with asyncio.timeout(_FIRST_WORD):
            return await caller
    except TimeoutError:
        return None


def _said_instead(link: Connection, why: str) -> str:
    """What to add to how a program ended, or was silent, that has answered nothing: it may be no MCP server."""
    if link.answered or not ("exited with status" in why or why.endswith("(startTimeout)")):
        return ""
    hint = " before it answered, as a program does that is no MCP server" if why.endswith("status 0") else ""
    return hint if link.first_junk is None else f"{hint}; its first line on stdout: {link.first_junk}"
