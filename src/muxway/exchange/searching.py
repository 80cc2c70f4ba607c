"""The indexes of search views, kept in step with what is listed, and the answers of `search_tools`.

An index is made when a client first lists or searches, a little in each turn of the loop, and brought up to date at the
next search: who never searches pays nothing. What a caller sees is decided by the snapshot, never by the index. Where
servers list something of their own for each user, each has an index of what is listed for them, and of nothing else;
segments that would be the same are shared.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from muxway.calls.incidents import attempt, internal
from muxway.calls.ports import aside, in_turns, log
from muxway.catalog.kinds import TOOLS
from muxway.errors import RpcError
from muxway.search import answers
from muxway.search.index import Index, SeenTools

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping

    from muxway.calls.call import Call
    from muxway.calls.identity import Owner
    from muxway.calls.ports import Running
    from muxway.catalog.model import Route
    from muxway.routing.snapshot import Visible
    from muxway.search.answers import SearchQuery
    from muxway.search.meaning import Meaning

    Give = Callable[[str], None]
    Use = Callable[[Index], None]

_LONGEST_NAME: Final = 256
_TURN: Final = 0.002
"""Seconds of indexing after which others have their turn: there may be thousands of tools, and nobody is to notice."""
_MOST_OWNERS: Final = 32
_MOST_TOOLS: Final = 50_000
"""Users with lists of their own whose indexes are kept, those who searched last, and tools in all of these."""


class _Search:
    """One search that waits. Implements `Running`."""

    __slots__ = ("_look", "_refuse", "over")

    def __init__(self, look: Use, refuse: Give) -> None:
        self._look = look
        self._refuse = refuse
        self.over = False

    def go(self, index: Index) -> None:
        """Go on, unless nobody wants it any more. Others wait for the same: what goes wrong here is not theirs."""
        if not self.over:
            attempt(self._failed, partial(self._look, index))

    def _failed(self, error: RpcError) -> None:
        self.over = True
        self._refuse(error.message)

    def cancel(self, reason: str | None) -> None:
        """Nobody wants it any more; the index is made all the same."""
        del reason
        self.over = True


class _KeptIndex:
    """The last index of a view, or of one user of it, and who waits for the next."""

    __slots__ = ("index", "meaning", "waiting")

    def __init__(self, meaning: Meaning | None) -> None:
        self.meaning = meaning
        self.index = Index(meaning)
        self.waiting: list[Callable[[], None]] | None = None
        """Whoever waits until the one that is being made is there; None: none is."""


class Searches:
    """The indexes of all search views."""

    def __init__(self) -> None:
        self._views: dict[tuple[str | None, Owner | None], _KeptIndex] = {}
        """By view and user; the last was used last."""
        self._meaning: Meaning | None = None
        self._loading: list[Callable[[], None]] | None = None
        """Whoever waits until the model is loaded; None: it is loaded, or nobody has asked for it yet."""
        self._asked_for_meaning = False

    def prepare(self, view: str | None, visible: Visible) -> None:
        """Somebody may search soon: begin to make the index."""
        self._with_index(view, visible, lambda _: None)

    def forget(self, view: str | None) -> None:
        """A view is gone."""
        for key in [key for key in self._views if key[0] == view]:
            del self._views[key]

    def answer(self, view: str | None, visible: Visible, call: Call, give: Give, refuse: Give) -> Running | None:
        """Answer a call of `search_tools`, now or as soon as the index is made; `refuse` it if it cannot be used."""
        wanted = answers.asked(call.params.get("arguments"))
        if isinstance(wanted, str):
            refuse(wanted)
            return None

        def found(index: Index, hidden: Collection[str] | RpcError) -> None:
            if search.over:
                return
            search.over = True
            if isinstance(hidden, RpcError):
                refuse(hidden.message)
            else:
                give(self._text(index, visible, wanted, hidden))

        def look(index: Index) -> None:
            if visible.chain is None:
                found(index, ())
            else:
                visible.chain.hidden(TOOLS, call.caller, partial(found, index))

        search = _Search(look, refuse)
        self._with_index(view, visible, search.go)
        return None if search.over else search

    # --- the answer ---------------------------------------------------------------------------

    def _text(self, index: Index, visible: Visible, wanted: SearchQuery, hidden: Collection[str]) -> str:
        routes = visible.tools.routes

        def named(name: str) -> Route | None:
            route = visible.tools.find(name).route if len(name) <= _LONGEST_NAME else None
            return None if route is None or route.public in hidden else route

        if wanted.names:
            return answers.definitions([(name, named(name)) for name in wanted.names])
        server = wanted.server
        if server is not None and server not in visible.servers:
            # By what stands before the names of its tools.
            server = next((name for name, naming in visible.servers.items() if naming.prefix == server), server)
        if not wanted.query.strip():
            listed = [one for one in routes.values() if one.upstream == server and one.public not in hidden]
            if not server or not listed:
                return answers.nothing("", _counts(visible, hidden), server)
            return self._hits(visible, listed[: wanted.limit], len(listed), wanted)
        exact = named(wanted.query.strip())
        sees = SeenTools(routes, hidden) if hidden or index.of is not routes else None
        found = index.search(wanted.query, wanted.limit, sees, server)
        best = [routes[one.name] for one in found.matches if exact is None or one.name != exact.public]
        shown = [*([exact] if exact is not None else []), *best][: wanted.limit]
        if not shown:
            return answers.nothing(wanted.query, _counts(visible, hidden), server)
        return self._hits(visible, shown, max(found.total, len(shown)), wanted)

    def _hits(self, visible: Visible, shown: list[Route], count: int, wanted: SearchQuery) -> str:
        tiers = visible.discovery is not None and visible.discovery.tiers
        return answers.hits(shown, count, wanted.limit, tiers=tiers)

    # --- indexes ------------------------------------------------------------------------------

    def _with_index(self, view: str | None, visible: Visible, use: Use) -> None:
        """Use the index of what is visible, now or as soon as it is made."""
        if visible.settings.semantic and not self._asked_for_meaning:
            self._load()
        if self._loading is not None:
            self._loading.append(lambda: self._with_index(view, visible, use))
            return
        kept, routes = self._of(view, visible), (visible.before_rules or visible).tools.routes
        if kept.index.of is routes:
            use(kept.index)
        elif kept.waiting is not None:
            # It may be made of an earlier list, or of a later one.
            kept.waiting.append(lambda: self._with_index(view, visible, use))
        else:
            kept.waiting = []
            in_turns(self._make(kept, routes, use), _TURN)

    def _of(self, view: str | None, visible: Visible) -> _KeptIndex:
        """What is kept for these callers; another one if the configuration says otherwise whether words have a meaning.

        What is listed for one user alone is in no index but theirs.
        """
        meaning = self._meaning if visible.settings.semantic else None
        key = view, visible.owner
        kept = self._views.pop(key, None)
        if kept is None or kept.meaning is not meaning:
            kept = _KeptIndex(meaning)
        self._views[key] = kept
        return kept

    def _make(self, kept: _KeptIndex, routes: Mapping[str, Route], use: Use) -> Generator[None]:
        index = Index(kept.meaning)
        try:
            same = [one.index for one in self._views.values() if one.meaning is kept.meaning]
            yield from index.follow(routes, (kept.index, *reversed(same)))
            kept.index = index
        except Exception as error:  # noqa: BLE001 - those who wait must go on, with what there was
            internal(error)
        self._trim()
        waiting, kept.waiting = kept.waiting or [], None
        use(kept.index)
        for go in waiting:
            go()

    def _trim(self) -> None:
        """Let go of the indexes of those users who searched longest ago, if there is too much. One is kept."""
        tools = 0
        owned = [key for key in reversed(self._views) if key[1] is not None]
        for number, key in enumerate(owned):
            tools += self._views[key].index.size
            if number and (number >= _MOST_OWNERS or tools > _MOST_TOOLS):
                del self._views[key]

    def _load(self) -> None:
        """Load the model, beside the event loop."""
        # Only for those who want it.
        from muxway.search.meaning import Meaning

        self._asked_for_meaning = True
        self._loading = []

        def loaded(outcome: Callable[[], Meaning]) -> None:
            try:
                self._meaning = outcome()
            except (ImportError, OSError, ValueError, KeyError) as error:
                log.warning("search goes without the meaning of words", error=str(error))
            waiting, self._loading = self._loading or [], None
            for then in waiting:
                then()

        aside(Meaning, loaded)


def _counts(visible: Visible, hidden: Collection[str]) -> dict[str, int]:
    """The servers in the order of the configuration, and how many tools each has for the caller."""
    counts = dict.fromkeys(visible.servers, 0)
    for route in visible.tools.routes.values():
        if route.upstream and route.public not in hidden:
            counts[route.upstream] = counts.get(route.upstream, 0) + 1
    return counts
