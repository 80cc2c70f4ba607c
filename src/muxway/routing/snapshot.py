"""Everything that one configuration and the lists of the moment decide, as one immutable value.

A reload, or a change of a list, makes the next snapshot, which shares with the one before whatever is equal, and puts
it in force by one assignment. Nothing here changes anything, so any thread may make one: where lists are long that is
done beside the event loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from muxway.access import narrowing
from muxway.access.rules import hints_of
from muxway.catalog import build, client_profiles
from muxway.catalog.kinds import KINDS, PROMPTS, RESOURCES, TOOLS
from muxway.catalog.locking import accepting
from muxway.catalog.model import EMPTY, Hint, Pages
from muxway.catalog.naming import spellings
from muxway.catalog.resources import build_resources
from muxway.catalog.selection import Selection
from muxway.errors import InvalidParams
from muxway.routing import instructions, offering
from muxway.routing.listings import Listing
from muxway.wire import envelopes
from muxway.wire.revisions import SERVER_INFO

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from muxway.access.rules import Access, Judge, Ruling
    from muxway.calls.call import Call, Caller
    from muxway.calls.identity import Identity, Owner
    from muxway.calls.ports import Running, Sink
    from muxway.calls.server_request import ServerRequest
    from muxway.catalog.build import Source
    from muxway.catalog.client_profiles import Adapted, ClientProfile
    from muxway.catalog.kinds import Kind
    from muxway.catalog.model import Catalog, Finding, Route
    from muxway.catalog.naming import Naming
    from muxway.catalog.resources import Entry, ResourceCatalog
    from muxway.config.model import CustomTool
    from muxway.errors import RpcError
    from muxway.routing.target import Target
    from muxway.search.listing import Discovery
    from muxway.wire.envelopes import Buffer
    from muxway.wire.result_types import Converter
    from muxway.wire.revisions import Revision

_MOST_CLASSES: Final = 64
"""Classes of callers, of all views, whose part of a snapshot is kept; the one that was made first goes."""
_MOST_OWN: Final = 256
"""Users with lists of their own, for whom that is kept; the one that was made first goes."""
_MANY: Final = 500
"""Definitions whose snapshot is made beside the event loop: each takes some 10 to 20 µs."""


class MiddlewareChain(Protocol):
    """The middlewares around the requests of one class of callers."""

    @property
    def takes_unlisted(self) -> bool:
        """Whether nothing in it goes by names, or may leave something out of a list."""
        ...

    def relists(self, kind: Kind) -> bool:
        """Whether anything in it may make another list of a kind."""
        ...

    def hides(self, kind: Kind) -> bool:
        """Whether what it leaves out of such a list is hidden."""
        ...

    def handle(self, call: Call, sink: Sink) -> Running | None:
        """Start a request."""
        ...

    def around(self, call: Call, sink: Sink, answer: Callable[[Call, Sink], Running | None]) -> Running | None:
        """Start a request that a client's side answers itself, by what it gives."""
        ...

    def hidden(self, kind: Kind, caller: Caller, settled: Callable[[Collection[str] | RpcError], None]) -> None:
        """Give what a caller does not get listed of a kind, or why nobody knows, to `settled`."""
        ...

    def screen(self, server: str, caller: Caller, params: dict[str, Buffer]) -> dict[str, Buffer] | None:
        """What a server logs outside of any call, as a caller may see it; None: not at all."""
        ...

    def screen_ask(self, caller: Caller, ask: ServerRequest) -> ServerRequest | None:
        """What a server asks outside of any call, as a caller may be asked; None: somebody else answers."""
        ...


class ServerNaming(NamedTuple):
    """How what a configured server has is named, also while the server is away."""

    prefix: str = ""
    """What stands before its tools' names in the listing."""
    unprefixed: bool = False
    """Whether some of its names may stand without the prefix: it has none, or the configuration renames something."""
    bare: bool = False
    """Whether its words stand as they are: there is no other server, and it has no prefix."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Settings:
    """What a configuration decides of how requests are answered."""

    name: str
    version: str
    naming: Naming
    page_size: int | None = None
    tools: Mapping[str, CustomTool] = field(default_factory=dict[str, "CustomTool"])
    """The gateway's own."""
    selections: Mapping[str, Selection] = field(default_factory=dict[str, Selection])
    """What each view shows."""
    chains: Mapping[str | None, MiddlewareChain] = field(default_factory=dict["str | None", MiddlewareChain])
    """What stands around the requests of each view's callers; None: of those who see the whole."""
    discoveries: Mapping[str | None, Discovery] = field(default_factory=dict["str | None", "Discovery"])
    """Views, or with None the whole, whose tools are found by search instead of being listed."""
    semantic: bool = False
    """Whether they are found by what words mean, too."""
    access: Access | None = None
    """The rules on who may use what; None: there are none."""
    locked: bool = False
    """Whether servers may be asked only for what is locked."""
    client_profiles: bool = True
    """Whether clients get what they cannot take in a form that they can."""
    define: Callable[[Iterable[CustomTool], Sequence[Source]], Source] | None = None
    """What makes the gateway's own tools known, beside what servers show; None: it has none that run others."""
    identity: Mapping[str, str] = field(init=False)
    server_info: bytes = field(init=False)
    """The same in JSON."""
    stamp: bytes = field(init=False)
    """The `_meta` of results for stateless callers."""
    converters: dict[tuple[Revision, Revision, bool], Converter | None] = field(init=False)
    """What is done to results between two revisions, made when first needed."""

    def __post_init__(self) -> None:
        # A frozen class is written to like this.
        identity = {"name": self.name, "version": self.version}
        info = envelopes.encode(identity)
        object.__setattr__(self, "identity", identity)
        object.__setattr__(self, "server_info", info)
        object.__setattr__(self, "stamp", b'"_meta":{' + envelopes.encode(SERVER_INFO) + b":" + info + b"}")
        object.__setattr__(self, "converters", {})

    def class_of(self, view: str | None, identity: Identity | None, client: str = "") -> ClassKey | None:
        """The class of a caller; None if it sees all that a view shows, as it is."""
        judge = None if self.access is None else self.access.judge(identity, view)
        client = client if self.client_profiles else ""
        return None if judge is None and not client else (view, judge, client)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False, slots=True)
class Visible:
    """What one class of callers sees: all there is, or what a view selects of it. What is not in it does not exist."""

    settings: Settings
    servers: Mapping[str, ServerNaming]
    """The servers that there are for them, in the order of the configuration, also those that are away."""
    sources: Sequence[Source]
    """What is shown, by server."""
    tools: Catalog
    prompts: Catalog
    resources: ResourceCatalog
    lists: Mapping[bool, Mapping[Kind, Listing]]
    """What is listed for callers with a handshake (False), and for stateless ones (True)."""
    instructions: str
    """What the servers want a model to know, all in one."""
    completing: frozenset[str]
    """The servers that complete arguments."""
    chain: MiddlewareChain | None = None
    """What stands around their requests."""
    selection: Selection | None = None
    """What the view selects; None: this is the whole."""
    targets: dict[bytes, Target] = field(default_factory=dict[bytes, "Target"])
    """Tools' names as they came in JSON → where they led: most calls are for a tool that was called before."""
    part_of: Visible | None = None
    judge: Judge | None = None
    """Who decides what its callers may use; None: nobody need."""
    verdicts: Mapping[Kind, Mapping[str, Ruling]] = field(default_factory=dict["Kind", "Mapping[str, Ruling]"])
    """What was decided about each tool and prompt that there is before rules, by its name."""
    before_rules: Visible | None = None
    """What there is before rules, if there are any."""
    owner: Owner | None = None
    """The only one who sees it, if servers list something of their own for each user."""
    adapted: Adapted | None = None
    """What was done to the tools for a client that cannot take them as they are; None: nothing."""
    client: str = ""
    """The profile of that client."""
    before_client: Visible | None = None
    """What there is for other clients, if that is not the same."""
    discovery: Discovery | None = None
    """How tools are found that are not listed; None: all are."""
    finders: Mapping[str, Route] = field(default_factory=dict[str, "Route"])
    """The tools by which others are found and called, by name."""

    @property
    def whole(self) -> Visible:
        """All there is."""
        return self if self.part_of is None else self.part_of

    def class_in(self, view: str | None) -> ClassKey:
        """The class of callers that it is for, in its view."""
        return view, self.judge, self.client

    def catalog(self, kind: Kind) -> Catalog:
        """What goes by name, of a kind."""
        return self.prompts if kind is PROMPTS else self.tools

    def listed(self, kind: Kind) -> Mapping[str, object]:
        """What there is of a kind, by its public name; another object as soon as that changes."""
        everybodys = self.before_client or self
        return everybodys.resources.resources if kind is RESOURCES else everybodys.catalog(kind).routes

    def relisted(self, kind: Kind) -> bool:
        """Whether middleware may make another list of a kind: it goes by public names, whichever client asks."""
        return self.chain is not None and self.chain.relists(kind)

    def offered(self, revision: Revision) -> dict[str, Any]:
        """What callers of a revision are offered."""
        told = offering.offered(self.sources, self.servers, revision)
        # That list never changes.
        return told if self.discovery is None else {**told, "tools": {}}

    def everything(self, *, stateless: bool) -> Listing:
        """All tools in one list, also those that are found by search."""
        return self.lists[stateless][TOOLS]._replace(pages=self.tools.pages)

    def unlisted(self, kind: Kind, name: str) -> Route | None:
        """Where a name that is not listed leads: the only server, without a prefix, is as if nothing were before it.

        Unless anything might hide it: then it leads nowhere.
        """
        source = next((source for source in self.sources if not source.own), None)
        if source is None or source.prefix or len(self.whole.servers) != 1:
            return None
        if self.chain is not None and not self.chain.takes_unlisted:
            return None
        if self.selection is not None and not self.selection.shows_all(kind, source.upstream):
            return None
        if self.judge is not None and not self.judge.allows_all(kind, source.upstream):
            return None
        return build.pass_on(source, kind, name)

    def refusal(self, kind: Kind, server: str, name: str) -> RpcError | None:
        """Why something of a server is not called, by its own name: it is not as it was locked, or was not there."""
        if not self.settings.locked or not server:
            return None
        source = next((one for one in self.whole.sources if one.upstream == server), None)
        why = None if source is None else source.lock.refused.get(kind.name, {}).get(name)
        if source is not None and why is None and any(native.name == name for native in source.of(kind).natives):
            return None
        # Of a server that is being started for the first time nothing is known: that is not locked, either.
        new = f"{kind.word} {name!r} of server {server!r} is not there, or not in muxway.lock"
        why = why or f"{new}: `{accepting(server, name)}`"
        return InvalidParams(why, data={"muxway": {"reason": "locked", "upstream": server}})

    def verdict(self, kind: Kind, route: Route) -> Ruling | None:
        """What rules say of a listed tool or prompt; None: there are none for these callers."""
        return None if self.judge is None else self.verdicts[kind].get(route.public)

    def verdict_of(self, kind: Kind, server: str, names: Sequence[str]) -> Ruling | None:
        """The same for what is not listed, of which only its names are known."""
        return None if self.judge is None else self.judge.verdict(kind, server, names, hints_of({}))

    def native(self, server: str, name: str) -> tuple[Route | None, tuple[str, ...]]:
        """A server's tool by its own name: where it is listed, if it is, and what it goes by."""
        route = self.tools.find(f"{server}__{name}").route
        if route is not None and (route.upstream, route.native) == (server, name):
            return route, (route.public,)
        naming = self.servers.get(server)
        starts = dict.fromkeys((server if naming is None else naming.prefix or server, server))
        return None, tuple(one for start in starts for one in spellings(start, name))

    def spell(self) -> None:
        """Have all spellings at hand: with many, the first name that is spelled otherwise would have to wait."""
        self.tools.spell()
        self.prompts.spell()

    @property
    def findings(self) -> list[Finding]:
        """What is odd about what the servers list; of a view, what it names in vain or cannot do."""
        odd = () if self.selection is not None else self.resources.findings
        return [*self.tools.findings, *self.prompts.findings, *odd]

    @property
    def pins(self) -> bool:
        """Whether sessions keep the list of tools that they got first."""
        return self.selection is not None and self.selection.pin

    def keeps_tools_of(self, before: Visible, *, stateless: bool) -> bool:
        """Whether callers of an era have the list of tools that they had before, whatever there is."""
        searched = self.discovery is not None and before.discovery is not None
        # A list that was kept is given up only where other rules hold for its callers now.
        return searched or (self.pins and not stateless and self.judge is before.judge)

    def changes_since(self, before: Visible, *, stateless: bool) -> frozenset[str]:
        """Which lists callers of an era see otherwise than before: any of "tools", "prompts" and "resources"."""
        old, new = before.lists[stateless], self.lists[stateless]
        kept = self.keeps_tools_of(before, stateless=stateless)
        kinds = [kind for kind in KINDS if kind is not TOOLS] if kept else KINDS
        return frozenset(kind.capability for kind in kinds if new[kind].differs_from(old[kind]))


ClassKey: TypeAlias = "tuple[str | None, Judge | None, str]"
"""A class of callers: their view (None: the whole), the rules for them, if any, and the profile of their client."""
Classes: TypeAlias = "dict[ClassKey, Visible]"
"""What classes of callers see."""
Looking: TypeAlias = "Callable[[], tuple[Visible, Classes]]"
"""What any thread may do to see what a caller sees. It gives that, and what is to be kept of it."""


class OwnLists(NamedTuple):
    """What is listed for one user alone, because servers are asked in that user's name."""

    servers: frozenset[str] = frozenset()
    """The servers whose lists are not everybody's: what the snapshot has of them is for those without credentials."""
    of: Mapping[Owner, Mapping[str, Source]] = {}
    """What these list for each user, by server, as far as it is known."""

    def changes_since(self, before: OwnLists, owner: Owner, servers: Collection[str]) -> frozenset[str]:
        """Which lists somebody may have others of, of these servers: any of "tools", "prompts" and "resources"."""
        mine, its = self.of.get(owner, {}), before.of.get(owner, {})
        names = [name for name in {**mine, **its} if name in servers and mine.get(name) is not its.get(name)]
        pairs = [(mine.get(name), its.get(name)) for name in names]
        return frozenset(
            kind.capability for kind in KINDS if any(_listed(a, kind) != _listed(b, kind) for a, b in pairs)
        )


def _listed(source: Source | None, kind: Kind) -> Sequence[object]:
    return () if source is None else getattr(source, kind.name)


NO_OWN_LISTS: Final = OwnLists()


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Snapshot:
    """One configuration's settings, and the lists as they are now."""

    settings: Settings
    given: Sequence[Source]
    """What the servers show, as they gave it."""
    whole: Visible
    views: Mapping[str, Visible]
    own_lists: OwnLists = NO_OWN_LISTS
    own: dict[Owner, Snapshot] = field(default_factory=dict["Owner", "Snapshot"])
    """What has been made of that for those who have come; of users who have not since, as it was before."""
    classes: Classes = field(default_factory=dict["ClassKey", Visible], init=False)
    """What has been made for the classes of callers that have come."""

    @property
    def servers(self) -> Mapping[str, ServerNaming]:
        """All servers, also those that are away, in the order of the configuration."""
        return self.whole.servers

    def visible(self, view: str | None) -> Visible:
        """What the callers of a view see, or for None all there is; nothing, if the view is gone."""
        if view is None:
            return self.whole
        known = self.views.get(view)
        return known if known is not None else _selected(self, self.whole, view, _NOTHING)

    @property
    def differs(self) -> bool:
        """Whether callers of one view may see different things in it."""
        return self.settings.access is not None or bool(self.own_lists.servers)

    def seen(
        self, view: str | None, identity: Identity | None, client: str = "", before: Visible | None = None
    ) -> Visible:
        """What a caller of a view may use, by a client of a profile.

        With what the same caller saw `before`, equal lists are the very same.
        """
        own, key = self.of(identity), self.settings.class_of(view, identity, client)
        return own.visible(view) if key is None else own.made(key, before)

    def known(
        self, view: str | None, identity: Identity | None, client: str = "", before: Visible | None = None
    ) -> Visible | None:
        """The same, if it need not be made, or is made in no time."""
        if not self.has_own(identity) and are_many(self.given):
            return None
        own, key = self.of(identity), self.settings.class_of(view, identity, client)
        if key is None:
            return own.visible(view)
        made = own.classes.get(key)
        # To find what is the same as before takes as long as to make it.
        if made is not None or are_many(self.given) or (before is not None and are_many(before.sources)):
            return made
        adapts = key[2] and client_profiles.takes_long(own.whole.tools.page(0, None))
        return None if adapts else own.made(key, before)

    def looking(self, view: str | None, identity: Identity | None, client: str = "") -> Looking:
        """What any thread may do to see what a caller sees."""
        key = self.settings.class_of(view, identity, client)
        if identity is not None and not self.has_own(identity):
            return partial(_look_at_own, self.making_own(identity.owner), view, key)
        own = self.of(identity)
        known = own.visible(view) if key is None else own.classes.get(key)
        if key is None or known is not None:
            return partial(_at_hand, known or own.visible(view))
        return partial(_look, own.making(key), key)

    def shows_server(self, view: str | None, identity: Identity | None, name: str) -> bool:
        """Whether a caller of a view may see anything of a server. Nothing need be made to tell."""
        access = self.settings.access
        judge = None if access is None else access.judge(identity, view)
        return name in self.visible(view).servers and (judge is None or not judge.shuts(name))

    # --- for one user -------------------------------------------------------------------------

    def has_own(self, identity: Identity | None) -> bool:
        """Whether what there is for a user has been made, or is what there is for everybody."""
        if identity is None or not self.own_lists.servers:
            return True
        known = self.own.get(identity.owner)
        return known is not None and known.own_lists is self.own_lists

    def of(self, identity: Identity | None) -> Snapshot:
        """All that there is for a caller."""
        if identity is None or not self.own_lists.servers:
            return self
        owner = identity.owner
        known = self.own.get(owner)
        if known is None or known.own_lists is not self.own_lists:
            known = self.making_own(owner)()
            self.keep_own(owner, known)
        return known

    def making_own(self, owner: Owner) -> Callable[[], Snapshot]:
        """What any thread may do to make what there is for a user, for `keep_own`."""
        return partial(_make_own, self, owner, self.own.get(owner))

    def keep_own(self, owner: Owner, made: Snapshot) -> None:
        """Have at hand what was made for a user."""
        self.own.pop(owner, None)
        if len(self.own) >= _MOST_OWN:
            del self.own[next(iter(self.own))]
        self.own[owner] = made

    def with_own(self, own_lists: OwnLists, before: Snapshot) -> Snapshot:
        """The same with these lists of users; what was made for them before is gone on from."""
        if not own_lists.servers and not self.own_lists.servers:
            return self
        # Another object each time: by that what was made of it is known to be of this very snapshot.
        return replace(self, own_lists=OwnLists(*own_lists), own=dict(before.own))

    # --- for a class of callers ---------------------------------------------------------------

    def making(self, key: ClassKey, before: Visible | None = None) -> Callable[[], Classes]:
        """What any thread may do to make what the callers of a class see, for `keep`."""
        view, judge, _ = key
        known = self.visible(view) if judge is None else self.classes.get((view, judge, ""))
        return partial(_make, self.visible(view), key, known, self.classes.get((None, judge, "")), before)

    def keep(self, made: Classes) -> None:
        """Have at hand what was made for a class of callers."""
        for key, visible in made.items():
            if key not in self.classes:
                if len(self.classes) >= _MOST_CLASSES:
                    del self.classes[next(iter(self.classes))]
                self.classes[key] = visible

    def made(self, key: ClassKey, before: Visible | None = None) -> Visible:
        """What the callers of a class see. With what they saw `before`, equal lists are the very same."""
        visible = self.classes.get(key)
        if visible is None:
            made = self.making(key, before)()
            visible = made[key]
            self.keep(made)
        return visible

    def is_of(self, settings: Settings, servers: Mapping[str, ServerNaming], given: Sequence[Source]) -> bool:
        """Whether it is what these make."""
        return self.settings is settings and [*self.servers.items()] == [*servers.items()] and self.given == given

    def next(
        self,
        settings: Settings,
        servers: Mapping[str, ServerNaming],
        given: Sequence[Source],
        owner: Owner | None = None,
    ) -> Snapshot:
        """What these make of it; each catalog is the same as here if nothing of its kind has changed."""
        before = self.whole
        # With other rules for names, or on what is locked, no part of the catalogs can be used again.
        same = (settings.naming, settings.locked) == (self.settings.naming, self.settings.locked)
        known = before.sources if same else ()
        resources = _next_resources(before, known, servers, given)
        sources = [resources.with_apps(source) for source in given]
        tools = _next_catalog(before.tools, known, settings.naming, sources, resources)
        prompts = _next_catalog(before.prompts, known, settings.naming, sources, resources)
        whole = _shown(settings, None, dict(servers), sources, (tools, prompts, resources), before, owner)
        views = {name: _selected(self, whole, name, selection) for name, selection in settings.selections.items()}
        return Snapshot(settings, given, whole, views)

    def expecting(self, more: Mapping[str, ServerNaming]) -> Snapshot:
        """The same, and servers of which nothing is known yet."""
        whole = replace(self.whole, servers={**self.servers, **more})
        whole = _searched(whole, whole.discovery, whole)
        views: dict[str, Visible] = {}
        for name, view in self.views.items():
            shown = {one: naming for one, naming in whole.servers.items() if _has_server(view, one)}
            views[name] = _searched(replace(view, servers=shown, part_of=whole), view.discovery, view)
        snapshot = Snapshot(self.settings, self.given, whole, views, OwnLists(*self.own_lists), self.own)
        # What rules leave comes before what clients get of it.
        for (view, judge, client), made in self.classes.items():
            if view is not None and view not in views:
                continue
            shown = snapshot.visible(view)
            if client:
                base = shown if judge is None else snapshot.classes.get((view, judge, ""))
                if base is not None:
                    same = {"servers": base.servers, "part_of": base.whole, "before_rules": base.before_rules}
                    same["before_client"] = base
                    snapshot.classes[view, judge, client] = base if not made.client else replace(made, **same)
            elif judge is not None:
                part_of = None if view is None else snapshot.classes.get((None, judge, ""))
                if view is None or part_of is not None:
                    servers = _open_servers(shown, judge)
                    ruled = replace(made, servers=servers, part_of=part_of, before_rules=shown)
                    snapshot.classes[view, judge, ""] = _searched(ruled, made.discovery, made)
        return snapshot

    def ready(self) -> Snapshot:
        """The same, with all done that would have to be done for the first who asks."""
        for one in (self.whole, *self.views.values()):
            one.spell()
        return self

    @classmethod
    def empty(cls, settings: Settings) -> Snapshot:
        """Before any server is known."""
        whole = Visible(
            settings=settings,
            servers={},
            sources=(),
            tools=EMPTY,
            prompts=EMPTY.of_kind(PROMPTS),
            resources=build_resources(),
            lists={},
            instructions="",
            completing=frozenset(),
        )
        return cls(settings, (), whole, {}).next(settings, {}, ())


_NOTHING: Final = Selection(view="", servers=frozenset())
"""What a view shows that is gone, to those who are still there."""


def are_many(sources: Sequence[Source]) -> bool:
    """Whether a snapshot of these sources takes long to make."""
    return sum(len(one.tools) + len(one.prompts) + len(one.resources) + len(one.templates) for one in sources) > _MANY


def _has_server(visible: Visible, name: str) -> bool:
    return visible.selection is None or visible.selection.has_server(name)


def _completing(sources: Iterable[Source]) -> frozenset[str]:
    return frozenset(source.upstream for source in sources if source.completes)


def _next_resources(
    before: Visible, known: Sequence[Source], servers: Mapping[str, ServerNaming], given: Sequence[Source]
) -> ResourceCatalog:
    def parts(sources: Sequence[Source]) -> list[object]:
        return [
            (source.upstream, source.bare, source.resources, source.templates, source.uris)
            for source in sources
            if source.reads or source.resources or source.templates
        ]

    # Most changes are of something else, and there may be many resources.
    if [*before.servers] == [*servers] and parts(given) == parts(known):
        return before.resources
    return build_resources(given, servers, before.resources)


def _next_catalog(
    old: Catalog, known: Sequence[Source], naming: Naming, sources: Sequence[Source], resources: ResourceCatalog
) -> Catalog:
    def parts(all_of_them: Sequence[Source]) -> list[object]:
        return [
            # What is refused may be listed as before: but with the catalog goes what calls of it were found to be.
            (source.upstream, source.bare, source.prefix, source.asked, source.own, offer, refused)
            for source in all_of_them
            for offer, refused in [(source.of(old.kind), source.lock.refused.get(old.kind.name))]
            if refused or offer.natives or any(offer.exposure) or source.asked not in (None, source.prefix)
        ]

    if old.version and parts(sources) == parts(known):
        same = old.rewriters is resources.rewriters or not (old.rewriters or resources.rewriters)
        return old if same else old.with_rewriters(resources.rewriters)
    return build.build(naming, sources, old.with_rewriters(resources.rewriters))


def _selected(last: Snapshot, whole: Visible, view: str, selection: Selection) -> Visible:
    """What a view shows; catalogs of which nothing has changed since the last snapshot are the same as there."""
    known, was, settings = last.views.get(view), last.whole, whole.settings
    if known is not None and known.selection is not selection:
        known = None
    tools = known.tools if known is not None and was.tools is whole.tools else None
    prompts = known.prompts if known is not None and was.prompts is whole.prompts else None
    resources = known.resources if known is not None and was.resources is whole.resources else None
    tools = tools or selection.of_tools(whole.tools, settings.naming)
    prompts = prompts or selection.of_prompts(whole.prompts)
    resources = resources or selection.of_resources(whole.resources)
    sources = [source for source in whole.sources if selection.has_server(source.upstream)]
    servers = {name: one for name, one in whole.servers.items() if selection.has_server(name)}
    shown = _shown(settings, view, servers, sources, (tools, prompts, resources), last.views.get(view), whole.owner)
    return replace(shown, selection=selection, part_of=whole)


def _shown(
    settings: Settings,
    view: str | None,
    servers: Mapping[str, ServerNaming],
    sources: Sequence[Source],
    catalogs: tuple[Catalog, Catalog, ResourceCatalog],
    before: Visible | None,
    owner: Owner | None,
) -> Visible:
    """What there is of these, for one user alone if this is one; `before` is what there was."""
    tools, prompts, resources = catalogs
    shown = Visible(
        settings=settings,
        servers=servers,
        sources=sources,
        tools=tools,
        prompts=prompts,
        resources=resources,
        lists=_lists(settings, sources, catalogs, before, owner),
        instructions=instructions.merged(sources, settings.naming),
        completing=_completing(sources),
        chain=settings.chains.get(view),
        targets=_targets(settings, tools, before),
        owner=owner,
    )
    return _searched(shown, settings.discoveries.get(view), before)


def _make_own(everybody: Snapshot, owner: Owner, before: Snapshot | None) -> Snapshot:
    """What there is for one user: of servers with lists of their own for each, this one's; of the others, all."""
    settings, (apart, lists) = everybody.settings, everybody.own_lists
    shared = {one.upstream: one for one in everybody.given if not one.own and one.upstream not in apart}
    sources = {**shared, **lists.get(owner, {})}
    given = [sources[name] for name in everybody.servers if name in sources]
    tools = [one for one in everybody.given if one.own]
    if settings.define is not None:
        # They tell of the tools that they run, which this user may have others of.
        tools = [settings.define(settings.tools.values(), given)]
    if before is None:
        # From nothing: neither what anybody else has read nor what is listed for others leads this user anywhere.
        before = Snapshot.empty(settings)
    made = before.next(settings, everybody.servers, [*tools, *given], owner)
    return replace(made, own_lists=everybody.own_lists)


def _make(
    shown: Visible, key: ClassKey, known: Visible | None, whole: Visible | None, before: Visible | None
) -> Classes:
    """What a class of callers sees of the whole or of a view, and what that is made of, if it is not known.

    Args:
        shown: the whole, or the view.
        key: the class.
        known: what rules leave of that, if it is known.
        whole: what they leave of the whole, if it is known.
        before: what callers of the class saw before.
    """
    view, judge, client = key
    made: Classes = {}
    if judge is not None and known is None:
        since = None if client else before
        if view is None:
            known = made[None, judge, ""] = _ruled(shown, judge, None, since)
        else:
            whole = made[None, judge, ""] = whole or _ruled(shown.whole, judge, None, None)
            known = made[view, judge, ""] = _ruled(shown, judge, whole, since)
    if client:
        made[key] = _adapted(known or shown, client_profiles.PROFILES[client], before)
    for one in made.values():
        if len(one.tools.routes) + len(one.prompts.routes) > _MANY:
            one.spell()
    return made


def _adapted(seen: Visible, profile: ClientProfile, before: Visible | None) -> Visible:
    """What is seen, as a client can take it; the very same if it can take that as it is."""
    if seen.discovery is not None:
        # What is found is text to a client, whatever is in it.
        return seen
    adapted, text = client_profiles.adapt(seen.tools, profile), seen.instructions
    if profile.longest_instructions is not None:
        text = instructions.merged(seen.sources, seen.settings.naming, profile.longest_instructions)
    if not adapted.changes and not adapted.warnings and text == seen.instructions:
        return seen
    catalogs = (adapted.catalog, seen.prompts, seen.resources)
    return replace(
        seen,
        tools=adapted.catalog,
        lists=_lists(seen.settings, seen.sources, catalogs, before, seen.owner),
        instructions=text,
        targets={},
        # Composed tools use what there is under the names that it has.
        part_of=seen.whole,
        adapted=adapted,
        client=profile.name,
        before_client=seen,
    )


def _at_hand(visible: Visible) -> tuple[Visible, Classes]:
    return visible, {}


def _look(make: Callable[[], Classes], key: ClassKey) -> tuple[Visible, Classes]:
    made = make()
    return made[key], made


def _look_at_own(make: Callable[[], Snapshot], view: str | None, key: ClassKey | None) -> tuple[Visible, Classes]:
    own = make()
    return own.visible(view) if key is None else own.making(key)()[key], {}


def _open_servers(shown: Visible, judge: Judge) -> dict[str, ServerNaming]:
    return {name: one for name, one in shown.servers.items() if not judge.shuts(name)}


def _ruled(shown: Visible, judge: Judge, whole: Visible | None, before: Visible | None) -> Visible:
    """What rules leave of what is shown; `whole` is what they leave of the whole, if this is not it."""
    settings = shown.settings
    # In the whole everything is called what it is called there.
    publics = {
        kind: {} if shown.part_of is None else narrowing.publics_of(shown.whole.catalog(kind))
        for kind in (TOOLS, PROMPTS)
    }
    tools, of_tools = narrowing.of_names(shown.tools, judge, publics[TOOLS])
    prompts, of_prompts = narrowing.of_names(shown.prompts, judge, publics[PROMPTS])
    tools = _of_fewer(shown, tools, judge, of_tools if whole is None else whole.verdicts[TOOLS])
    resources = narrowing.of_uris(shown.resources, judge)
    sources = [source for source in shown.sources if source.own or not judge.shuts(source.upstream)]
    ruled = replace(
        shown,
        servers=_open_servers(shown, judge),
        sources=sources,
        tools=tools,
        prompts=prompts,
        resources=resources,
        lists=_lists(settings, sources, (tools, prompts, resources), before, shown.owner),
        instructions=instructions.merged(sources, settings.naming),
        completing=_completing(sources),
        targets={},
        part_of=whole,
        judge=judge,
        verdicts={TOOLS: of_tools, PROMPTS: of_prompts},
        before_rules=shown,
    )
    return _searched(ruled, shown.discovery, before)


def _of_fewer(shown: Visible, tools: Catalog, judge: Judge, verdicts: Mapping[str, Ruling]) -> Catalog:
    """The tools that are left, of which compound ones name only what their callers may run.

    `verdicts` are those on the tools of the whole.
    """
    define, own = shown.settings.define, shown.settings.tools
    if define is None:
        return tools

    def runs(server: str, name: str) -> bool:
        route, names = shown.whole.native(server, name)
        ruling = judge.verdict(TOOLS, server, names, hints_of({})) if route is None else verdicts[route.public]
        return ruling.shown

    fewer: dict[str, CustomTool] = {}
    for name, tool in own.items():
        left = {server: tuple(sub for sub in subs if runs(server, sub.name)) for server, subs in tool.subtools.items()}
        left = {server: subs for server, subs in left.items() if subs}
        if left != tool.subtools:
            fewer[name] = replace(tool, subtools=left)
    if not fewer:
        return tools
    members = {native.name: native.members for native in define(fewer.values(), shown.whole.sources).tools}
    routes = {
        name: route if route.upstream or route.native not in fewer else _redefined(shown, route, members[route.native])
        for name, route in tools.routes.items()
    }
    return replace(tools, routes=routes, _aliases={})


def _redefined(shown: Visible, route: Route, members: Mapping[str, Buffer]) -> Route:
    """A tool of the gateway's own, with other members than it has."""
    if shown.selection is not None:
        listed = next(
            one for one in shown.whole.tools.routes.values() if not one.upstream and one.native == route.native
        )
        members = shown.selection.shaped(listed.public, members)
    before = envelopes.members(route.definition) or {}
    return replace(route, definition=envelopes.object_of({**before, **members}.items()), origin=None)


def _targets(settings: Settings, tools: Catalog, before: Visible | None) -> dict[bytes, Target]:
    """Those that are known already, if they are still right."""
    same = before is not None and before.tools is tools and before.settings.tools == settings.tools
    return before.targets if before is not None and same else {}


def _lists(
    settings: Settings,
    sources: Sequence[Source],
    catalogs: tuple[Catalog, Catalog, ResourceCatalog],
    before: Visible | None,
    owner: Owner | None,
) -> dict[bool, dict[Kind, Listing]]:
    tools, prompts, resources = catalogs
    pages = {TOOLS: tools.pages, PROMPTS: prompts.pages, **resources.pages}
    lists: dict[bool, dict[Kind, Listing]] = {}
    for stateless in (False, True):
        old = before.lists.get(stateless) if before is not None else None
        hidden = {(source.upstream, *one) for source in sources for one in source.unlisted[1 if stateless else 0]}
        lists[stateless] = {}
        for kind in KINDS:
            shown = _without(hidden, kind, catalogs) if hidden else pages[kind]
            # It holds as long as all parts of it do.
            hint = Hint.of([source.hints[kind.name] for source in sources if kind.name in source.hints])
            if settings.access is not None or owner is not None:
                # Others may see another list, also of servers that list nothing for this user.
                hint = hint._replace(public=False)
            listing = Listing(kind, shown, hint, settings.page_size, settings.stamp)
            lists[stateless][kind] = listing.following(None if old is None else old[kind])
    return lists


def _searched(visible: Visible, discovery: Discovery | None, before: Visible | None) -> Visible:
    """The same, with a list of the tools by which others are found, and of those that are pinned, if it is searched."""
    if discovery is None:
        return visible
    finders = discovery.tools(visible.servers)
    pinned = [route for name, route in visible.tools.routes.items() if name in discovery.pinned and name not in finders]
    lists: dict[bool, Mapping[Kind, Listing]] = {}
    for stateless, listings in visible.lists.items():
        era = 1 if stateless else 0
        hidden = {(source.upstream, *one) for source in visible.sources for one in source.unlisted[era]}
        shown = [one for one in pinned if (one.upstream, TOOLS.name, one.native) not in hidden]
        pages = Pages([one.definition for one in (*finders.values(), *shown)])
        old = None if before is None or not before.lists else before.lists[stateless][TOOLS]
        lists[stateless] = {**listings, TOOLS: listings[TOOLS]._replace(pages=pages).following(old)}
    said = instructions.merged(visible.sources, visible.settings.naming, searched=True)
    # Where all were listed before, a server's tool may have had the name of one of the finders.
    targets = visible.targets if before is not None and before.finders.keys() == finders.keys() else {}
    return replace(visible, discovery=discovery, finders=finders, lists=lists, instructions=said, targets=targets)


def _without(
    hidden: set[tuple[str, str, str]], kind: Kind, catalogs: tuple[Catalog, Catalog, ResourceCatalog]
) -> Pages:
    """The list of a kind without some of it, by server, kind and native name."""
    tools, prompts, resources = catalogs
    listed: Iterable[Route | Entry]
    if kind is TOOLS or kind is PROMPTS:
        listed = (tools if kind is TOOLS else prompts).routes.values()
    else:
        listed = (resources.resources if kind is RESOURCES else resources.templates).values()
    return Pages([one.definition for one in listed if (one.upstream, kind.name, one.native) not in hidden])
