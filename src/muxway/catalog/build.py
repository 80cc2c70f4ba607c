"""Listings of many servers → one catalog of tools, and one of prompts by the same rules.

The result depends on what each server lists and on the order of the configuration,
never on who answered first. A bad definition costs only itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from muxway.catalog import hygiene, shaping
from muxway.catalog.globs import Globs, is_glob, matches_any
from muxway.catalog.kinds import PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind
from muxway.catalog.locking import NOT_COMPARED, LockVerdict
from muxway.catalog.lookalikes import skeleton
from muxway.catalog.model import EMPTY, Catalog, Finding, Hint, Native, Route
from muxway.catalog.naming import goes_round
from muxway.catalog.reasons import LEFT_OUT, NOT_READ_ONLY, READ_ONLY, UNTOUCHED, ReasonBook, Reasons, because
from muxway.catalog.uris import EVERY_URI, UriFilter
from muxway.likeness import short
from muxway.wire import envelopes
from muxway.wire.labels import labelled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from msgspec import Raw

    from muxway.catalog.naming import Naming
    from muxway.catalog.shaping import Shaped, Shaping, Wanted
    from muxway.wire.envelopes import Buffer


_LONGEST_UNLISTED: Final = 256
"""Characters of a name that is sent on though it is not listed."""
_RING: Final = "it is a gateway that lists what this one lists; take one of the two out of the other's configuration"


class Exposure(NamedTuple):
    """Which things of a list to show, and as what."""

    exposed: Mapping[str, str | None] | None = None
    """Native names and globs of those to show (None: all), with their new public name where they are renamed."""
    hidden: frozenset[str] = frozenset()
    """Native names and globs of those to hide."""
    read_only: bool = False
    """Whether to show only tools that say that they change nothing."""
    shapes: Sequence[Wanted] = ()
    """What to make of tools."""

    @property
    def is_selective(self) -> bool:
        """Whether something may not be shown."""
        return self.exposed is not None or bool(self.hidden) or self.read_only


EVERYTHING: Final = Exposure()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One server's part in the catalogs: what it lists, and what its configuration makes of it."""

    upstream: str
    tools: Sequence[Native] = ()
    prompts: Sequence[Native] = ()
    resources: Sequence[Native] = ()
    templates: Sequence[Native] = ()
    prefix: str
    asked: str | None = None
    """The prefix asked for, if it is not the one that could be given."""
    exposure: Exposure = EVERYTHING
    """Which of its tools are shown, and as what."""
    prompt_exposure: Exposure = EVERYTHING
    uris: UriFilter = EVERY_URI
    """Which of its resources may be seen and read."""
    reads: bool = False
    """Whether it may have resources that it does not list: it says so, or it is bare and asked for anything."""
    completes: bool = False
    """Whether it may be asked to complete arguments."""
    hints: Mapping[str, Hint] = field(default_factory=dict[str, Hint])
    """Name of a kind that it lists → how long that holds."""
    instructions: str = ""
    """What it wants a model to know about it."""
    declared: Mapping[str, Any] | None = None
    """What it says that it can do; None if it may have more than it says."""
    declared_to_sessions: Mapping[str, Any] | None = None
    """The same of its side with a handshake; None also while that is not known."""
    bare: bool = False
    """Whether its words stand as they are: there is no other server, and it has no prefix."""
    unlisted: tuple[frozenset[tuple[str, str]], frozenset[tuple[str, str]]] = (frozenset(), frozenset())
    """Of a server that lists otherwise in each era: what is not listed for handshake callers, and for stateless ones.

    Each as the name of its kind and its own name.
    """
    lock: LockVerdict = NOT_COMPARED
    """How it differs from its lock, if it has one."""
    own: bool = False
    """The gateway's own compound tools: never prefixed, and they come first."""

    @property
    def label(self) -> str:
        """What stands before what people read of it; empty: nothing."""
        return "" if self.bare else self.upstream

    def of(self, kind: Kind) -> ListOffer:
        """What it has of one kind that goes by name."""
        if kind is PROMPTS:
            return ListOffer(self.prompts, self.prompt_exposure)
        return ListOffer(self.tools, self.exposure)


class ListOffer(NamedTuple):
    """What a source has of one kind, and which of it to show."""

    natives: Sequence[Native]
    exposure: Exposure


@dataclass(slots=True)
class _Draft:
    naming: Naming
    kind: Kind
    before: Mapping[str, Route]
    """The routes there were, many of which are as good as new."""
    routes: dict[str, Route] = field(default_factory=dict[str, Route])
    findings: list[Finding] = field(default_factory=list[Finding])
    shapes: dict[tuple[str, str], Shaping] = field(default_factory=dict[tuple[str, str], "Shaping"])
    reasons: ReasonBook = field(default_factory=ReasonBook)
    looks: dict[str, Route] = field(default_factory=dict[str, "Route"])
    """How a public name looks → the first that looks so."""

    def taken(self, public: str, upstream: str) -> Route | None:
        """Who has this name, or is another server's and has one that looks the same."""
        alike = self.looks.get(skeleton(public))
        if alike is None or alike.upstream == upstream:
            return self.routes.get(public)
        return self.routes.get(public, alike)

    def put(self, route: Route) -> None:
        """Add a route."""
        self.routes[route.public] = route
        self.looks.setdefault(skeleton(route.public), route)

    def note(self, source: Source, item: str, message: str) -> None:
        """Write down a finding."""
        self.findings.append(Finding(source.upstream, item, message, self.kind))


_TOGETHER: Final = 256 * 1024
"""Bytes of definitions that are searched at once, while nothing else happens."""


def _are_suspicious(raw_items: Sequence[Raw]) -> bool:
    """Whether something may be hidden in these definitions."""
    # One search over many of them is cheaper than one for each, and nearly always enough.
    some: list[Raw] = []
    size = 0
    for raw in raw_items:
        some.append(raw)
        size += memoryview(raw).nbytes
        if size > _TOGETHER:
            if hygiene.may_hide(b"".join(some)):
                return True
            some, size = [], 0
    return hygiene.may_hide(b"".join(some))


def read_listing(kind: Kind, upstream: str, raw_items: Sequence[Raw]) -> tuple[list[Native], list[Finding]]:
    """Open a listing. A definition that no client could use is left out, alone; what hides in others is taken out.

    Each costs at most one finding.
    """
    natives: dict[str, Native] = {}
    findings: list[Finding] = []

    def leave_out(item: str, why: str) -> None:
        findings.append(Finding(upstream, item, f"left out: {why}", kind))

    suspicious = _are_suspicious(raw_items)
    names = kind is RESOURCES or kind is TEMPLATES
    for index, raw in enumerate(raw_items):
        members = envelopes.members(raw)
        name = envelopes.text(members.get(kind.identity)) if members is not None else None
        if members is None or not name:
            leave_out(f"#{index + 1}", f"it has no {kind.identity}")
        elif memoryview(raw).nbytes > hygiene.MOST_BYTES:
            leave_out(short(name), f"it has {memoryview(raw).nbytes:,} bytes, more than {hygiene.MOST_BYTES:,}")
        elif kind is TOOLS and envelopes.members(members.get("inputSchema", b"")) is None:
            leave_out(name, "its inputSchema is not a JSON object")
        elif name in natives:
            leave_out(name, f"the server lists this {kind.identity} twice; the first is kept")
        elif kind is TEMPLATES and not hygiene.is_visible(name):
            # Wrapping would not help: what its variables become cannot be encoded.
            leave_out(hygiene.visible(name), "its uriTemplate has hidden characters")
        else:
            del members[kind.identity]
            if suspicious or hygiene.is_long(raw):
                try:
                    members, said = hygiene.clean(raw, members, names=names)
                except hygiene.TooNested:
                    leave_out(short(name), "it is nested too deep to be looked through for hidden characters")
                    continue
                if said:
                    findings.append(Finding(upstream, name, said, kind))
            natives[name] = Native(name, members)
    return list(natives.values()), findings


def assign_prefixes(naming: Naming, wanted: Mapping[str, str | None]) -> dict[str, str]:
    """Server → prefix, decided from the configuration alone so that no arrival can change a name.

    Two servers whose names become the same once illegal characters are replaced, or look the same, are
    told apart by a hash on the later one, so that adding a server renames nobody's tools.
    """
    prefixes: dict[str, str] = {}
    looks: set[str] = set()
    for upstream, prefix in wanted.items():
        chosen = upstream if prefix is None else prefix
        if chosen:
            chosen = naming.legal(chosen)
            if skeleton(chosen) in looks:
                chosen = naming.distinct(chosen, upstream)
            looks.add(skeleton(chosen))
        prefixes[upstream] = chosen
    return prefixes


def build(naming: Naming, sources: Sequence[Source], before: Catalog = EMPTY) -> Catalog:
    """The catalog of these sources, in this order, following on the one before and of the same kind.

    It has a version of its own only if a client that lists both sees a difference.
    """
    draft = _Draft(naming, before.kind, before.routes)
    for source in sources:
        _add(draft, source)
    catalog = Catalog(
        before.version + 1,
        draft.routes,
        tuple(draft.findings),
        former=_former(before, draft.routes, {source.upstream for source in sources}),
        kind=before.kind,
        rewriters=before.rewriters,
        shapes=draft.shapes,
        reasons=draft.reasons,
    )
    return before.with_routes_of(catalog) if same_listing(before, catalog) else catalog


def _former(before: Catalog, routes: Mapping[str, Route], present: set[str]) -> dict[str, str]:
    listed = {**before.former, **{name: route.upstream for name, route in before.routes.items()}}
    return {name: upstream for name, upstream in listed.items() if name not in routes and upstream not in present}


def _add(draft: _Draft, source: Source) -> None:
    kind = draft.kind
    natives, exposure = source.of(kind)
    if kind is TOOLS and source.asked is not None and source.asked != source.prefix:
        why = f"listed under {source.prefix!r}, because {source.asked!r} is not legal for every client or taken"
        draft.note(source, "*", f"{why}; set `prefix`")
    if kind is TOOLS and not hygiene.is_visible(source.instructions):
        draft.note(source, "*", "hidden characters are taken out of its instructions")
    there = {native.name for native in natives}
    for name in Globs((*(exposure.exposed or ()), *exposure.hidden)).idle(there):
        key = kind.hidden if name in exposure.hidden else kind.exposed
        vain = "matches none" if is_glob(name) else f"the server has no such {kind.word}"
        draft.note(source, name, f"named in {key}, but {vain}")
    if exposure.shapes:
        _judge_shapes(draft, source, natives, exposure.shapes)
    shapes = shaping.Shapes(exposure.shapes) if exposure.shapes else None
    added = len(draft.routes)
    rounds = 0
    rules = _Rules(kind, exposure) if exposure.is_selective else None
    for native in natives:
        if goes_round(source.prefix, native.name):
            rounds += 1
            draft.reasons.note(source.upstream, native.name, LEFT_OUT)
            continue
        wishes = None if shapes is None else shapes.of(native.name)
        shaped = None if wishes is None else _shape(draft, source, native, wishes)
        renamed = exposure.exposed.get(native.name) if exposure.exposed is not None else None
        if rules is not None or wishes is not None:
            members = native.members if shaped is None else shaped.members
            why = UNTOUCHED if rules is None else rules.judge(native.name, members)
            if renamed is not None or wishes is not None:
                why = why._replace(exposed_as=renamed, shapes=() if wishes is None else wishes.shapes)
            draft.reasons.note(source.upstream, native.name, why)
            if not why.shown:
                continue
        if wishes is not None:
            renamed = wishes.last("name") or renamed
        _add_one(draft, source, native, renamed, shaped)
    if rounds:
        draft.note(source, "*", f"{rounds} {kind.word}s are left out, because they are listed round in a ring: {_RING}")
    if exposure.read_only and there and len(draft.routes) == added:
        draft.note(source, "*", "readOnly shows none of its tools: none says `readOnlyHint: true`; a shape can say so")


class _Rules:
    """Which of a source's things are shown, and why."""

    def __init__(self, kind: Kind, exposure: Exposure) -> None:
        self._read_only = exposure.read_only
        self._hidden = Globs(exposure.hidden)
        self._exposed = None if exposure.exposed is None else Globs(exposure.exposed)
        self._is_hidden = because(False, f"`{kind.hidden}` has {{item}}", kind.hidden, self._hidden)
        self._is_exposed = because(True, f"`{kind.exposed}` has {{item}}", kind.exposed, self._exposed)
        self._is_another = because(False, f"`{kind.exposed}` names others only", kind.exposed)

    def judge(self, name: str, members: Mapping[str, Buffer]) -> Reasons:
        """Whether to show this."""
        if name in self._hidden:
            return self._is_hidden
        if self._exposed is not None and name not in self._exposed:
            return self._is_another
        if self._read_only and not shaping.is_read_only(members):
            return NOT_READ_ONLY
        if self._exposed is not None:
            return self._is_exposed
        return READ_ONLY if self._read_only else UNTOUCHED


def pass_on(source: Source, kind: Kind, name: str) -> Route | None:
    """The way to what a server may have and does not list; None if some of what it has is not shown as it is.

    Then a name that is spelled a little otherwise might mean, to a server that is not strict, what is hidden.
    """
    exposure = source.of(kind).exposure
    if source.lock.enforced or exposure.is_selective or exposure.shapes:
        return None
    if len(name) > _LONGEST_UNLISTED or not hygiene.is_visible(name):
        return None
    spelled = envelopes.encode(name)
    definition = envelopes.object_of((("name", spelled), ("inputSchema", b'{"type":"object"}')))
    return Route(name, source.upstream, name, source.prefix, name, definition, head_of(kind, spelled))


def head_of(kind: Kind, spelled: bytes) -> bytes:
    """The start of a request for what a server calls so, in JSON."""
    return b'"method":"%b","params":{"name":%b' % (kind.use, spelled)


def _judge_shapes(draft: _Draft, source: Source, natives: Sequence[Native], shapes: Sequence[Wanted]) -> None:
    """Note shapes that are for no tool, and arguments that no tool has which a pattern matches."""
    there = {native.name: native for native in natives}
    for wanted in shapes:
        if not matches_any(wanted.match, there):
            vain = "matches none" if is_glob(wanted.match) else "the server has no such tool"
            draft.note(source, wanted.match, f"named in shape, but {vain}")
        elif is_glob(wanted.match):
            matching = [native for name, native in there.items() if matches_any(wanted.match, (name,))]
            for argument in wanted.arguments:
                if not any(shaping.has_argument(native.members, argument) for native in matching):
                    draft.note(source, wanted.match, f'no tool that its shape matches has an argument "{argument}"')


def _shape(draft: _Draft, source: Source, native: Native, wishes: shaping.Wishes) -> Shaped:
    shaped = shaping.shape(native.members, wishes)
    for problem in shaped.problems:
        draft.note(source, native.name, f"{wishes.label}: {problem}")
    if shaped.shaping is not None:
        # Whoever gets to a tool that is not listed gets to it by way of its shape.
        draft.shapes[source.upstream, native.name] = shaped.shaping.called(native.name)
    return shaped


def _add_one(draft: _Draft, source: Source, native: Native, renamed: str | None, shaped: Shaped | None = None) -> None:
    naming = draft.naming
    verbatim = renamed or (native.name if source.own else None)
    if verbatim is not None:
        public = naming.fit(naming.legal(verbatim), source.upstream, native.name)
        asked = verbatim
    else:
        public = naming.public(source.prefix, native.name)
        asked = f"{source.prefix}{naming.separator}{native.name}" if source.prefix else native.name
    if public != asked:
        why = "too long" if len(asked) > naming.limit else "not legal for every client"
        draft.note(source, native.name, f"listed as {public!r}, because {asked!r} is {why}")
    taken = draft.taken(public, source.upstream)
    if taken is not None:
        alike = "" if taken.public == public else f", which {public!r} looks like,"
        public = _free_name(draft, public, source.upstream, native.name)
        draft.note(
            source,
            native.name,
            f"listed as {public!r}, because {taken.public!r}{alike} is already {_owner(taken)}; "
            f"set `prefix` or rename it in `{draft.kind.exposed}`",
        )
    plain = shaped is None and draft.kind is not PROMPTS
    known = draft.before.get(public) if plain else None
    alias = renamed or native.name
    if known is not None and known.origin is native and (known.prefix, known.alias) == (source.prefix, alias):
        # Servers come and go while thousands of tools of others stay.
        draft.put(known)
        return
    members = native.members if shaped is None else shaped.members
    if draft.kind is PROMPTS:
        members = _with_server(source, native) if source.label else native.members
    if "title" not in members and naming.readable(native.name) != native.name:
        # What the name says to people is kept where names of any alphabet may stand.
        members = {**members, "title": envelopes.encode(hygiene.visible(native.name, "_"))}
    definition = envelopes.object_of((("name", envelopes.encode(public)), *members.items()))
    head = head_of(draft.kind, envelopes.encode(native.name))
    shape = None if shaped is None or shaped.shaping is None else shaped.shaping.called(public)
    draft.put(
        Route(
            public,
            source.upstream,
            native.name,
            source.prefix,
            alias,
            definition,
            head,
            shape,
            native if plain else None,
        )
    )


def _with_server(source: Source, prompt: Native) -> dict[str, Buffer]:
    """The members of a prompt whose description says which server has it: people choose prompts, models do not."""
    description = envelopes.text(prompt.members.get("description")) or prompt.name
    return {**prompt.members, "description": envelopes.encode(labelled(source.label, description))}


def _owner(taken: Route) -> str:
    return f"{taken.upstream!r}'s {taken.native!r}" if taken.upstream else "a tool of the gateway itself"


def _free_name(draft: _Draft, taken: str, *identity: str) -> str:
    """A name nobody has: with a hash of what it stands for, hashed once more should even that be somebody's name."""
    name = draft.naming.distinct(taken, *identity)
    while draft.taken(name, identity[0]) is not None:
        identity = (*identity, name)
        name = draft.naming.distinct(taken, *identity)
    return name


def same_listing(one: Catalog, other: Catalog) -> bool:
    """Whether a client that lists both sees no difference."""
    return one.page(0, None) == other.page(0, None)
