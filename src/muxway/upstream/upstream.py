"""A configured server: it lasts, while its links come and go."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from muxway.catalog.build import read_listing
from muxway.catalog.kinds import KINDS, PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind
from muxway.catalog.model import UNSAID, Hint, Native
from muxway.errors import MuxwayError, RpcError, UpstreamSaid
from muxway.log import EventLog
from muxway.protocol import asking, messages
from muxway.upstream.greeting import DiedOfProbe, Greeting, greet
from muxway.upstream.link import Link
from muxway.upstream.listing import list_all
from muxway.upstream.state import Event, Status, advance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from muxway.protocol.messages import Params
    from muxway.upstream.channel import Channel
    from muxway.upstream.greeting import Era
    from muxway.upstream.listening import Feed

_START: Final = 30.0
_FETCHING_START: Final = 120.0
_FETCHERS: Final = frozenset(("npx", "npm", "bunx", "uvx", "uv", "pipx", "docker", "podman", "deno"))
_RELIST_PAUSE: Final = 0.25
"""Seconds between two listings at the upstream's own wish, so that a flood of wishes costs little."""
_LONGEST_PAUSE: Final = 15.0
"""The pause grows to this while the flood goes on."""
_CHANGES: Final = {
    "notifications/tools/list_changed": (TOOLS,),
    "notifications/prompts/list_changed": (PROMPTS,),
    "notifications/resources/list_changed": (RESOURCES, TEMPLATES),
}
"""What an upstream may say of its lists → what to list again."""

log = EventLog("upstream")


def start_timeout(configured: float | None, command: str | None) -> float:
    """Seconds a server may take to be ready. Launchers that may first download the server get longer."""
    if configured is not None:
        return configured
    return _FETCHING_START if command is not None and PurePath(command).stem in _FETCHERS else _START


@dataclass(frozen=True, slots=True)
class Offer:
    """What an upstream has of one kind."""

    natives: Sequence[Native] = ()
    notes: Sequence[str] = ()
    """What is odd about the list."""
    hint: Hint = UNSAID


class Upstream:
    """One server behind the gateway."""

    def __init__(
        self,
        name: str,
        dial: Callable[[], Channel],
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
    ) -> None:
        self.name = name
        self.status = Status.STOPPED
        self.error: str | None = None
        self.offers: dict[Kind, Offer] = {}
        """What it lists, by kind; nothing while it is not running."""
        self.greeting: Greeting | None = None
        self.link: Link | None = None
        self.channel: Channel | None = None
        self.feed: Feed | None = None
        """Where its news goes, if anybody wants it."""
        self.took: float | None = None
        """Seconds from the last start until it was ready or had failed."""
        self.settled = asyncio.Event()
        """Set while the upstream is not being started: it runs, or it does not."""
        self.on_page_done: Callable[[str], None] | None = None
        """Called with the id of an elicitation that sent the user to a web page, when that is done."""
        self._dial = dial
        self._client_info = client_info
        self._on_change = on_change
        self._era: Era = era
        self._capabilities = capabilities
        self._kinds = kinds
        self._tell = log.error if first else log.info
        """How a failure is told: the first connection to a server is the server, further ones may come and go."""
        self._start_timeout = start_timeout
        self._list_timeout = list_timeout
        self._max_listed = max_listed
        self._began = 0.0
        self._starting: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._relisting: asyncio.Task[None] | None = None
        self._stale: set[Kind] = set()
        """What has changed since it was listed."""

    @property
    def notes(self) -> list[str]:
        """What is odd about this server's own lists."""
        return [note for offer in self.offers.values() for note in offer.notes]

    def offer(self, kind: Kind) -> Offer:
        """What it lists of this kind."""
        return self.offers.get(kind) or Offer()

    def start(self) -> None:
        """Begin to start it, in the background."""
        self._set(Event.STARTED)
        self.settled.clear()
        self._unfeed(None)
        loop = asyncio.get_running_loop()
        self._began, self.took = loop.time(), None
        self._starting = loop.create_task(self._start())

    async def stop(self) -> None:
        """End it and wait until it is gone."""
        for task in (self._starting, self._relisting):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
        link, self.link, self.offers = self.link, None, {}
        self._set(Event.RETIRED)
        self.settled.set()
        self._unfeed("was stopped")
        self._on_change(self)
        if link is not None:
            await link.close()
        if self._closing is not None:
            # What is left of a link that was lost is being ended: that must not be cut short.
            await asyncio.wait([self._closing])

    # --- starting -----------------------------------------------------------------------------

    async def _start(self) -> None:
        link: Link | None = None
        try:
            async with asyncio.timeout(self._start_timeout):
                link = self._new_link()
                try:
                    await self._greet(link)
                except DiedOfProbe:
                    # Remembered for every later start of this upstream.
                    log.info("ended when probed; starting it again with a handshake", upstream=self.name)
                    self._era = "legacy"
                    await link.close()
                    link = self._new_link()
                    await self._greet(link)
                await self._list(link, self._kinds)
                link.check()
        except (MuxwayError, TimeoutError, OSError) as error:
            await self._fail_start(link, error)
            return
        except asyncio.CancelledError:
            if link is not None:
                await link.close()
            raise
        self.link = link
        link.on_lost = self._lost
        link.introduced()
        self._set(Event.READY)
        self._settle()
        log.info(
            "server ready",
            upstream=self.name,
            tools=len(self.offer(TOOLS).natives),
            revision=link.revision.date,
            ms=round((self.took or 0) * 1000),
        )
        if self.feed is not None and self.greeting is not None:
            self.feed.connect(link, self.greeting)
        self._on_change(self)
        if self._stale:
            self._relist()

    def _new_link(self) -> Link:
        self.channel = self._dial()
        link = Link(self.name, self.channel)
        link.on_notice = self.hear_notice
        self._stale.clear()
        return link

    async def _greet(self, link: Link) -> None:
        await link.open()
        self.greeting = await greet(link, self._era, self._client_info, self._capabilities, self._start_timeout)
        # Which era it speaks does not change between two starts of one configuration.
        self._era = "modern" if link.revision.stateless else "legacy"

    async def _fail_start(self, link: Link | None, error: Exception) -> None:
        why = str(error)
        if isinstance(error, TimeoutError):
            why = f'server "{self.name}" was not ready after {self._start_timeout:g} s (startTimeout)'
        elif not isinstance(error, RpcError) or not why.startswith("server "):
            why = f'server "{self.name}" could not be started: {why}'
        words = None if self.channel is None else self.channel.last_words()
        if words is not None and words not in why:
            why = f"{why}; its last stderr line: {words}"
        self._fail(why)
        if link is not None:
            await link.close()

    # --- listing ------------------------------------------------------------------------------

    async def _list(self, link: Link, kinds: Iterable[Kind]) -> None:
        """List these kinds anew, all at once. What fails keeps its old list; only a list of tools is missed.

        Raises:
            MuxwayError: the tools could not be listed.
        """
        kinds = [kind for kind in kinds if self._may_have(kind)]
        listed = await asyncio.gather(*(self._list_kind(link, kind) for kind in kinds), return_exceptions=True)
        failed: BaseException | None = None
        for kind, offer in zip(kinds, listed, strict=True):
            if isinstance(offer, Offer):
                self._take(kind, offer)
            elif isinstance(offer, UpstreamSaid) and self._is_vague:
                continue  # It never said that it has any.
            elif kind is TOOLS or not isinstance(offer, MuxwayError):
                failed = failed or offer
            else:
                log.warning("could not list", upstream=self.name, kind=kind.name, error=offer)
                note = f"{self.name}: its {kind.word}s could not be listed: {offer}"
                self.offers.setdefault(kind, Offer(notes=[note]))
        if failed is not None:
            raise failed

    def _may_have(self, kind: Kind) -> bool:
        return self.greeting is None or self.greeting.has(kind.capability) or self._is_vague

    @property
    def _is_vague(self) -> bool:
        return self.greeting is not None and self.greeting.vague

    async def _list_kind(self, link: Link, kind: Kind) -> Offer:
        listing = await list_all(link, kind, timeout=self._list_timeout, most=self._max_listed)
        natives, findings = read_listing(kind, self.name, listing.items)
        notes = [str(finding) for finding in findings]
        if listing.cut is not None:
            notes.append(f"{self.name}: {listing.cut}; what follows is left out")
        return Offer(natives, notes, listing.hint)

    def _take(self, kind: Kind, offer: Offer) -> None:
        self.offers[kind] = offer
        for note in offer.notes:
            log.warning(f"{kind.word} list", upstream=self.name, problem=note)

    def hear_notice(self, method: str, params: Params) -> None:
        """The upstream says that something about it has changed, or that a visit to a web page is over."""
        kinds = _CHANGES.get(method)
        if kinds is None and method == "notifications/elicitation/complete" and self.on_page_done is not None:
            self.on_page_done(messages.text(params.get("elicitationId")) or "")
        if kinds is not None:
            self._stale.update(kinds)
            if self.link is not None:
                self._relist()

    def _relist(self) -> None:
        if self._relisting is None or self._relisting.done():
            self._relisting = asyncio.get_running_loop().create_task(self._relist_now())

    async def _relist_now(self) -> None:
        pause = _RELIST_PAUSE
        while self.link is not None and self._stale:
            stale, self._stale = self._stale, set()
            try:
                await self._list(self.link, [kind for kind in self._kinds if kind in stale])
            except MuxwayError as error:
                log.warning("could not list again; the old list stays", upstream=self.name, error=error)
            self._on_change(self)
            await asyncio.sleep(pause)
            pause = min(3 * pause, _LONGEST_PAUSE)

    # --- ending -------------------------------------------------------------------------------

    def _lost(self, why: str) -> None:
        link, self.link = self.link, None
        self._fail(f'server "{self.name}" {why}')
        if link is not None:
            # The process may still be there with its output closed, or have left others behind.
            self._closing = asyncio.get_running_loop().create_task(link.close())

    def _fail(self, why: str) -> None:
        self.error = why
        self.offers = {}
        self._set(Event.LOST)
        self._settle()
        self._unfeed(why.removeprefix(f'server "{self.name}" '))
        self._tell("server failed", upstream=self.name, error=why)
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
        if event is not Event.LOST:
            self.error = None
