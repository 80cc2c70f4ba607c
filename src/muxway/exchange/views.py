"""Views: the same gateway for callers who see a part of it. The servers, and what is under way at them, are shared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from muxway.calls.backend import Backend
from muxway.exchange.drafting import Cut
from muxway.exchange.switchboard import Switchboard
from muxway.routing import instructions

if TYPE_CHECKING:
    from muxway.calls.call import Call
    from muxway.calls.ports import Running, Sink
    from muxway.catalog.kinds import Kind
    from muxway.catalog.model import Finding, Route
    from muxway.catalog.selection import Selection
    from muxway.exchange.drafting import Edition
    from muxway.routing.target import Chosen, Target


class View(Switchboard):
    """One view: its lists are cut out of those of the whole, and what is not in them does not exist."""

    def __init__(self, whole: Switchboard, selection: Selection) -> None:
        shared = whole.shared
        self._own_members = _Members(shared.members, selection)
        super().__init__(
            name=whole.identity["name"],
            version=whole.identity["version"],
            naming=shared.naming,
            members=self._own_members,
            tools={},
            page_size=shared.page_size,
            shared=shared,
        )
        self.subscriptions = whole.subscriptions.seen_through(self.reading, lambda: self.resources)
        self._whole = whole
        self._selection = selection
        self._cut: Cut | None = None
        """What it shows, and of what."""

    def select(self, selection: Selection) -> None:
        """From now on, show this of the whole; `follow` does it."""
        self._selection = selection
        self._own_members.selection = selection

    def answer(self, call: Call, sink: Sink, chosen: Chosen | None = None) -> Running | None:
        """See `Switchboard.answer`. What a composed tool uses, it uses of the whole."""
        return self._whole.answer(call, sink, chosen) if call.caller.depth else super().answer(call, sink, chosen)

    def target(self, call: Call, *, wait: bool = True) -> Target:
        """See `Switchboard.target`."""
        return self._whole.target(call, wait=wait) if call.caller.depth else super().target(call, wait=wait)

    def cut(self, whole: Edition) -> Cut:
        """What it shows of this; nothing is changed, so any thread may ask."""
        selection, known = self._selection, self._cut
        if known is not None and known.selection is not selection:
            known = None
        if known is not None and known.whole.tools is whole.tools:
            tools = known.tools
        else:
            tools = replace(selection.of_tools(whole.tools, whole.naming), passes=self.pass_on)
        if known is not None and known.whole.prompts is whole.prompts:
            prompts = known.prompts
        else:
            prompts = replace(selection.of_prompts(whole.prompts), passes=self.pass_on)
        if known is not None and known.whole.resources is whole.resources:
            resources = known.resources
        else:
            resources = selection.of_resources(whole.resources)
        return Cut(selection, whole, tools, prompts, resources)

    def follow(self, whole: Edition, cut: Cut | None = None) -> None:
        """Show what the whole has now, be it cut already. Listeners hear of it only if something differs here."""
        selection = self._selection
        self._cut = cut = self.cut(whole) if cut is None or cut.selection is not selection else cut
        self.catalog, self.prompts, self.resources = cut.tools, cut.prompts, cut.resources
        self.sources = [source for source in whole.sources if selection.has_server(source.upstream)]
        self.instructions = instructions.merged(self.sources, self._naming)
        self._completing = frozenset(source.upstream for source in self.sources if source.completes)
        self._show()

    def pass_on(self, kind: Kind, name: str) -> Route | None:
        """Where a name that is not listed leads; nowhere if the view might hide it."""
        route = super().pass_on(kind, name)
        return route if route is not None and self._selection.shows_all(kind, route.upstream) else None

    @property
    def findings(self) -> list[Finding]:
        """What it names in vain, or cannot do."""
        return [*self.catalog.findings, *self.prompts.findings]


class _Members(Mapping[str, Backend]):
    """The servers of a view, as they come and go."""

    def __init__(self, all_of_them: Mapping[str, Backend], selection: Selection) -> None:
        self._all = all_of_them
        self.selection = selection

    def __getitem__(self, name: str) -> Backend:
        if not self.selection.has_server(name):
            raise KeyError(name)
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return filter(self.selection.has_server, self._all)

    def __len__(self) -> int:
        return sum(1 for _ in self)
