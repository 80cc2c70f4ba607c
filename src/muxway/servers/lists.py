"""What a server lists over one connection: read at each start, and again when it may have changed.

What it had listed stays while it is away, however long: a list that changed with the health of a server would cost
every client's model its cached prompt. For the same reason what is new comes last, in whatever order the server lists.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from muxway.catalog.build import read_listing
from muxway.catalog.kinds import KINDS, PROMPTS, RESOURCES, TEMPLATES, TOOLS
from muxway.catalog.model import UNSAID, Hint
from muxway.errors import MuxwayError, UpstreamSaid
from muxway.log import EventLog, first_of
from muxway.servers.list_freshness import ListFreshness
from muxway.servers.list_reading import list_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from muxway.catalog.kinds import Kind
    from muxway.catalog.model import Native
    from muxway.servers.connection import Connection
    from muxway.servers.list_reading import ListReading
    from muxway.servers.negotiation import Negotiated
    from muxway.servers.slot import Slot

_LONG_LIST: Final = 64 * 1024
"""Bytes of a list from which on it is read beside the event loop."""
_CHANGES: Final = {
    "notifications/tools/list_changed": (TOOLS,),
    "notifications/prompts/list_changed": (PROMPTS,),
    "notifications/resources/list_changed": (RESOURCES, TEMPLATES),
}
"""What a server may say of its lists → what to list again."""

log = EventLog("upstream")


@dataclass(frozen=True, slots=True)
class Offer:
    """What a server has of one kind."""

    natives: Sequence[Native] = ()
    notes: Sequence[str] = ()
    """What is odd about the list."""
    hint: Hint = UNSAID
    cut: bool = False
    """Whether it is not all: then reading it again costs much and shows no more, and is done only if it has changed."""


class ServerLists:
    """The lists of one slot."""

    __slots__ = ("_freshness", "_kinds", "_slot", "_unreadable", "offers", "prepare", "unread")

    def __init__(self, slot: Slot, kinds: Sequence[Kind] = KINDS) -> None:
        """Nothing is known yet. Only these kinds are read, and only over the slot's connection."""
        self.offers: dict[Kind, Offer] = {}
        """What it lists, by kind; while it cannot be reached, what it last listed."""
        self.unread: dict[Kind, str] = {}
        """Kinds that it did not give when they were last asked for, and why: what is known of them may be old."""
        self.prepare: Callable[[Mapping[Kind, Offer]], Awaitable[None]] | None = None
        """Waits, before lists that were read count, until what they make of the catalogs is ready."""
        self._slot = slot
        self._kinds = kinds
        self._freshness = ListFreshness(self._read_again, slot.changed)
        self._unreadable = ""
        """Why a list could last not be read again."""

    @property
    def notes(self) -> list[str]:
        """What is odd about them."""
        return [note for offer in self.offers.values() for note in offer.notes]

    def of(self, kind: Kind) -> Offer:
        """What it lists of this kind."""
        return self.offers.get(kind) or Offer()

    @property
    def task(self) -> asyncio.Task[None] | None:
        """What reads them again."""
        return self._freshness.task

    # --- reading ------------------------------------------------------------------------------

    def forget_changes(self) -> None:
        """There is another connection, on which everything is read first."""
        self._freshness.forget()

    async def read_all(self, connection: Connection) -> None:
        """Read all of them, at a start. Raises as `_read` does."""
        before = dict(self.offers)
        try:
            await self._read(connection, self._kinds)
        except BaseException:
            # What it had stays whole, or nothing is known of it.
            self.offers = before
            raise
        # What was kept from before this start, and is not there any more, goes.
        self.offers = {kind: offer for kind, offer in self.offers.items() if self._may_have(kind)}

    def catch_up(self) -> None:
        """The start is over: read what has changed meanwhile."""
        self._freshness.catch_up()

    async def _read(self, connection: Connection, kinds: Iterable[Kind]) -> None:
        """List these kinds anew, all at once. What fails keeps its old list; only a list of tools is missed.

        Raises:
            MuxwayError: the tools could not be listed.
        """
        kinds = [kind for kind in kinds if self._may_have(kind)]
        self._freshness.began(kinds, amid_calls=connection.called)
        listed = await asyncio.gather(*(self._read_kind(connection, kind) for kind in kinds), return_exceptions=True)
        if self.prepare is not None:
            await self.prepare({kind: one for kind, one in zip(kinds, listed, strict=True) if isinstance(one, Offer)})
        self._freshness.ended(kinds)
        failed: BaseException | None = None
        name = self._slot.name
        for kind, offer in zip(kinds, listed, strict=True):
            if isinstance(offer, Offer):
                self._take(kind, offer)
            elif isinstance(offer, UpstreamSaid) and self._is_vague:
                continue  # It never said that it has any.
            elif kind is TOOLS or not isinstance(offer, MuxwayError):
                failed = failed or offer
            else:
                why = self._slot.instance.mask(str(offer))
                log.warning("could not list", upstream=name, kind=kind.name, error=why)
                why = self.unread[kind] = f"its {kind.word}s could not be listed: {why}"
                self.offers.setdefault(kind, Offer(notes=[f"{name}: {why}"]))
        if failed is not None:
            raise failed

    async def _read_kind(self, connection: Connection, kind: Kind) -> Offer:
        terms = self._slot.instance.terms
        listing = await list_all(connection, kind, timeout=terms.list_timeout, most=terms.max_listed)
        # A long list is read beside the event loop: each definition is looked through.
        beside = sum(memoryview(raw).nbytes for raw in listing.items) > _LONG_LIST
        read = partial(_offer, kind, self._slot.name, listing, self.of(kind).natives)
        return await asyncio.to_thread(read) if beside else read()

    def _take(self, kind: Kind, offer: Offer) -> None:
        self.offers[kind] = offer
        self.unread.pop(kind, None)
        notes, more = first_of(offer.notes)
        for note in (*notes, more) if more else notes:
            log.warning(f"{kind.word} list", upstream=self._slot.name, problem=note)

    async def _read_again(self, kinds: set[Kind]) -> None:
        connection = self._slot.connection
        if connection is None:
            return
        try:
            await self._read(connection, [kind for kind in self._kinds if kind in kinds])
        except MuxwayError as error:
            why, before = self._slot.instance.mask(str(error)), self._unreadable
            # Clients may ask every few seconds for what cannot be had.
            tell = log.debug if why == before else log.warning
            tell("could not list again; the old list stays", upstream=self._slot.name, error=why)
            self._unreadable = why
        else:
            self._unreadable = ""

    # --- what may have changed ------------------------------------------------------------------

    def hear(self, method: str) -> None:
        """The server says that something about it has changed."""
        kinds = _CHANGES.get(method)
        if kinds is not None:
            self._freshness.changed(kinds, now=self._slot.connection is not None)

    def asked(self, kind: Kind) -> int | None:
        """A client asks for a list: if it may be out of date, read it again, in the background.

        Returns for how many milliseconds what is known of it holds; None if there is no such list.
        """
        greeting = self._slot.greeting
        if greeting is not None and not self._may_have(kind):
            return None
        if greeting is None or self._slot.connection is None:
            # It may say otherwise as soon as it is back; but it need not be woken for that.
            return 0
        holds = self._freshness.holds(kind, self.of(kind).hint.ttl_ms)
        if self._may_differ(kind, greeting):
            self._freshness.refresh(kind)
        return holds

    def renew(self, kind: Kind) -> bool:
        """A client asks for a list: if calls may have changed it in silence, read it again.

        Returns whether it is being read.
        """
        connection, greeting = self._slot.connection, self._slot.greeting
        if connection is None or greeting is None or not self._reads(kind) or not self._may_differ(kind, greeting):
            return False
        return self._freshness.renew(kind, connection.used)

    def want(self, kind: Kind, *, begin: bool) -> bool:
        """Somebody calls what is not listed: `begin` to read that list again, if that was not done a moment ago.

        Returns whether it is being read, or about to be.
        """
        if self._slot.connection is None or not self._reads(kind):
            return False
        return self._freshness.want(kind, begin=begin and not self.of(kind).cut)

    def _may_differ(self, kind: Kind, greeting: Negotiated) -> bool:
        """Whether a list may have changed in silence."""
        offer = self.of(kind)
        # A stateless server says how long its lists hold, also if it tells of changes.
        silent = greeting.revision.stateless or not greeting.announces(kind.capability)
        return silent and not offer.cut and not self._freshness.holds(kind, offer.hint.ttl_ms)

    def _reads(self, kind: Kind) -> bool:
        return kind in self._kinds and self._may_have(kind)

    def _may_have(self, kind: Kind) -> bool:
        greeting = self._slot.greeting
        return greeting is None or greeting.has(kind.capability) or self._is_vague

    @property
    def _is_vague(self) -> bool:
        greeting = self._slot.greeting
        return greeting is not None and greeting.vague


def _offer(kind: Kind, server: str, listing: ListReading, known: Sequence[Native]) -> Offer:
    """What is in a list, in the order in which it became known: what has just come is last.

    What has not changed since it was known stays the same: so does what was made of it.
    """
    natives, findings = read_listing(kind, server, listing.items)
    listed = {native.name: native for native in natives}
    before = {old.name: old for old in known if old.name in listed}
    natives = [before[name] if before.get(name) == listed[name] else listed[name] for name in {**before, **listed}]
    notes = [str(finding) for finding in findings]
    if listing.cut is not None:
        notes.append(f"{server}: {listing.cut}; what follows is left out")
    return Offer(known if natives == known else natives, notes, listing.hint, cut=listing.cut is not None)
