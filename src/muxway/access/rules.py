"""Who may use what: ordered rules, of which the first that matches decides. Without one, everything is allowed.

A rule has two halves. Who asks, and in which view, is known when a caller comes: the rules that are left make its
class, a `Judge`, and callers of one class share all that is made for them. What is asked for is judged when the lists
are made, once for each entry. Only rules on arguments have to look at a call.

A rule is read carefully: where a text can be taken in several ways, any of them is enough for `deny` and `ask`, and
`allow` needs all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from muxway.catalog.globs import Globs, literal_ends
from muxway.catalog.kinds import KINDS, PROMPTS, RESOURCES, TEMPLATES, TOOLS
from muxway.catalog.uris import UriFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from muxway.calls.identity import Identity
    from muxway.catalog.kinds import Kind
    from muxway.config.access import AccessRule

Do = Literal["allow", "ask", "deny"]

_SEVERITY: Final[Mapping[Do, int]] = {"allow": 0, "ask": 1, "deny": 2}
_EXACT: Final = 2**53
"""Up to here every reader takes an integer for the same."""
_LARGEST: Final = 10**308
_MOST_CALLERS: Final = 4096
"""Callers whose class is remembered."""
_UNSAID: Final[Mapping[str, bool]] = {"readOnly": False, "destructive": True, "idempotent": False, "openWorld": True}
"""What holds of a tool that does not say it (MCP, `ToolAnnotations`)."""


def hints_of(definition: Mapping[str, Any]) -> Mapping[str, bool]:
    """What a tool says of itself, where it says nothing, what the protocol assumes. It is the server's word."""
    said: object = definition.get("annotations")
    if not isinstance(said, dict):
        return _UNSAID
    given = cast("dict[str, Any]", said)
    hints = {
        name: value if isinstance(value := given.get(f"{name}Hint"), bool) else unsaid
        for name, unsaid in _UNSAID.items()
    }
    # A tool that changes nothing destroys nothing, whatever else it says.
    return {**hints, "destructive": False} if hints["readOnly"] else hints


@dataclass(frozen=True, eq=False, slots=True)
class Rule:
    """One rule, ready to be matched."""

    number: int
    """Its place among all, from 0."""
    spec: AccessRule
    do: Do
    _who: tuple[tuple[str, Globs], ...] = field(init=False)
    _views: Globs | None = field(init=False)
    _servers: Globs | None = field(init=False)
    _names: Mapping[str, Globs] = field(init=False)
    """By the name of the kind: to look up a kind by itself takes longer than all the rest."""
    _uris: UriFilter | None = field(init=False)
    _arguments: tuple[tuple[str, Globs], ...] = field(init=False)
    _kinds: frozenset[str] = field(init=False)
    _hints: tuple[tuple[str, bool], ...] = field(init=False)

    def __post_init__(self) -> None:
        spec = self.spec
        written = {"users": spec.users, "groups": spec.groups, "keys": spec.keys, "clients": spec.clients}
        names = {
            kind.name: Globs(texts)
            for kind, texts in ((TOOLS, spec.tools), (PROMPTS, spec.prompts))
            if texts is not None
        }
        kinds = {*names}
        uris: UriFilter | None = None
        if spec.resources is not None:
            kinds |= {RESOURCES.name, TEMPLATES.name}
            uris = UriFilter(exposed=spec.resources) if self.do == "allow" else UriFilter(hidden=spec.resources)
        if spec.annotations or spec.arguments:
            kinds = {TOOLS.name}
        # A frozen class is written to like this.
        put = object.__setattr__
        put(self, "_who", tuple((what, Globs(texts)) for what, texts in written.items() if texts is not None))
        put(self, "_views", None if spec.views is None else Globs(spec.views))
        put(self, "_servers", None if spec.servers is None else Globs(spec.servers))
        put(self, "_names", names)
        put(self, "_uris", uris)
        put(self, "_arguments", tuple((name, Globs(texts)) for name, texts in spec.arguments.items()))
        put(self, "_kinds", frozenset(kinds or (kind.name for kind in KINDS)))
        put(self, "_hints", tuple(spec.annotations.items()))

    @property
    def label(self) -> str:
        """Where it stands, as audit lines and `explain` name it."""
        return self.spec.where

    @property
    def looks_at_arguments(self) -> bool:
        """Whether it takes a call to tell if it matches."""
        return bool(self._arguments)

    @property
    def is_about_all(self) -> bool:
        """Whether it matches whatever its callers ask for."""
        return self._servers is None and self.is_about_servers

    @property
    def is_about_servers(self) -> bool:
        """Whether it matches all that its servers have."""
        return not self._arguments and not self.spec.annotations and not self._names and self._uris is None

    def globs(self, kind: Kind) -> tuple[str, ...]:
        """The names or URIs that it is about; empty: whatever they are."""
        if kind is RESOURCES or kind is TEMPLATES:
            return self.spec.resources or ()
        named = self._names.get(kind.name)
        return () if named is None else named.texts

    def is_for(self, identity: Identity | None, view: str | None) -> bool:
        """Whether it is about such callers."""
        if self._views is not None and (view is None or view not in self._views):
            return False
        return all(
            any(one in globs for one in _said(identity, what)) or self._may_be(identity, what)
            for what, globs in self._who
        )

    def _may_be(self, identity: Identity | None, what: str) -> bool:
        """Whether it could be about a caller of whom not all is known."""
        return what == "groups" and identity is not None and identity.more_groups and self.do != "allow"

    def may_match(self, kind: Kind, server: str) -> bool:
        """Whether something of this kind that a server has may be meant."""
        return kind.name in self._kinds and (self._servers is None or (server != "" and server in self._servers))

    def matches(self, kind: Kind, server: str, names: Sequence[str], hints: Mapping[str, bool]) -> bool:
        """Whether it means an entry; what a call says aside. `names` are all that it goes by."""
        if not self.may_match(kind, server):
            return False
        if kind is RESOURCES or kind is TEMPLATES:
            return self._uris is None or any(map(self._means_uri, names))
        globs = self._names.get(kind.name)
        if globs is not None:
            for name in names:
                if name in globs:
                    break
            else:
                return False
        return not self._hints or all(hints.get(name) is wanted for name, wanted in self._hints)

    def _means_uri(self, uri: str) -> bool:
        assert self._uris is not None  # noqa: S101 - asked above
        # As a filter: one that exposes needs all ways to read the URI, one that hides needs any of them.
        return self._uris.shows(uri) is (self.do == "allow")

    def fits(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a call with these arguments is meant."""
        enough, rounded = (all, False) if self.do == "allow" else (any, True)
        for name, globs in self._arguments:
            texts = [*_texts(arguments.get(name), rounded=rounded)]
            if not texts or not enough(text in globs for text in texts):
                return False
        return True


def _said(identity: Identity | None, what: str) -> Iterable[str]:
    """What credentials say of a caller; nothing, if there are none."""
    if identity is None:
        return ()
    if what == "groups":
        return identity.groups
    one = {"users": identity.user, "keys": identity.key, "clients": identity.client}[what]
    return (one,) if one else ()


def _texts(value: Any, *, rounded: bool) -> Iterator[str]:
    """An argument as texts: itself, or all that is inside of it; `rounded`: integers also as JavaScript reads them."""
    left = [value]
    while left:
        one: Any = left.pop()
        if isinstance(one, dict):
            left += [*cast("dict[str, Any]", one), *cast("dict[str, Any]", one).values()]
        elif isinstance(one, list):
            left += cast("list[Any]", one)
        elif isinstance(one, bool):
            yield "true" if one else "false"
        elif isinstance(one, float) and one.is_integer():
            # Whoever means 1 means 1.0, too.
            yield str(int(one))
        elif one is not None:
            yield str(one)
            if rounded and isinstance(one, int) and abs(one) > _EXACT:
                # RFC 8259 §6: to many readers the nearest double is the same number.
                yield str(int(float(one))) if abs(one) < _LARGEST else "Infinity"


class Ruling(NamedTuple):
    """What was decided about an entry, for the callers of one class."""

    rule: Rule | None = None
    """What decides; None: nothing does, so that it is allowed."""
    first: tuple[Rule, ...] = ()
    """Rules that are tried before it, in their order, with the arguments of a call."""

    @property
    def do(self) -> Do:
        """What is done with calls that no rule on arguments is for."""
        return "allow" if self.rule is None else self.rule.do

    @property
    def shown(self) -> bool:
        """Whether it is listed: some calls of it may be made."""
        return self.do != "deny" or any(rule.do != "deny" for rule in self.first)

    @property
    def passes(self) -> bool:
        """Whether nobody need look at its calls."""
        return self.do == "allow" and not self.first

    def of(self, arguments: Mapping[str, Any]) -> Ruling:
        """What is decided about a call with these arguments."""
        return Ruling(next((rule for rule in self.first if rule.fits(arguments)), self.rule))

    def stricter(self, other: Ruling) -> Ruling:
        """The stricter of two that are about one call."""
        return other if _SEVERITY[other.do] > _SEVERITY[self.do] else self


ALLOWED: Final = Ruling()


class _Docket:
    """The rules of a class that may mean something of one kind that one server has, found by what they name.

    Lists may be long and rules many: an entry is tried with those alone whose globs begin or end as its names do.
    """

    def __init__(self, rules: Iterable[Rule], kind: Kind, server: str) -> None:
        self._rules: list[Rule] = []
        self._exact: dict[str, list[int]] = {}
        """Names that are written out → places of the rules."""
        self._begins: dict[int, dict[str, list[int]]] = {}
        """How names begin, by the length of that."""
        self._ends: dict[int, dict[str, list[int]]] = {}
        self._nameless: list[int] = []
        elsewhere: list[tuple[str, int]] = []
        for rule in rules:
            if not rule.may_match(kind, server):
                continue
            place = len(self._rules)
            self._rules.append(rule)
            globs = rule.globs(kind)
            if not globs:
                self._nameless.append(place)
                if rule.is_about_servers:
                    # None of those after it is ever reached.
                    break
            elif kind is RESOURCES or kind is TEMPLATES:
                # There are many ways to write a URI.
                elsewhere += [(text, place) for text in globs]
            else:
                elsewhere += [(text, place) for text in globs if not self._file(text, place)]
        texts = [text for text, _ in elsewhere]
        uris = UriFilter(hidden=tuple(texts)) if kind is RESOURCES or kind is TEMPLATES else None
        names = Globs(texts)
        self._elsewhere = frozenset(place for _, place in elsewhere)
        self._is_elsewhere: Callable[[str], bool] = (
            names.__contains__ if uris is None else lambda uri: not uris.shows(uri)
        )
        """Whether something that cannot be found otherwise may mean a name: one look at all such globs."""
        self._otherwise = [self._rules[place] for place in self._nameless]

    def _file(self, text: str, place: int) -> bool:
        begins, ends = literal_ends(text)
        if begins == text:
            self._exact.setdefault(text, []).append(place)
        elif begins and len(begins) >= len(ends):
            self._begins.setdefault(len(begins), {}).setdefault(begins, []).append(place)
        elif ends:
            self._ends.setdefault(len(ends), {}).setdefault(ends, []).append(place)
        else:
            return False
        return True

    def candidates(self, names: Sequence[str]) -> Sequence[Rule]:
        """The rules that may mean something of these names, in their order."""
        found: set[int] = set()
        for name in names:
            if name in self._exact:
                found.update(self._exact[name])
            for length, parts in self._begins.items():
                if (start := name[:length]) in parts:
                    found.update(parts[start])
            for length, parts in self._ends.items():
                if (end := name[-length:]) in parts:
                    found.update(parts[end])
            if self._elsewhere and self._is_elsewhere(name):
                found |= self._elsewhere
        if not found:
            return self._otherwise
        return [self._rules[place] for place in sorted(found.union(self._nameless))]


class Judge:
    """The rules for one class of callers. There is one of each class, so it is known by what it is."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self.looks_at_hints = any(rule.spec.annotations for rule in rules)
        """Whether anything depends on what tools say of themselves."""
        self._dockets: dict[tuple[str, str], _Docket] = {}
        """By kind and server."""

    def verdict(self, kind: Kind, server: str, names: Sequence[str], hints: Mapping[str, bool]) -> Ruling:
        """What is decided about an entry. The one function that decides: lists, calls and `explain` all ask it."""
        key = (kind.name, server)
        docket = self._dockets.get(key)
        if docket is None:
            docket = self._dockets[key] = _Docket(self.rules, kind, server)
        candidates = docket.candidates(names)
        if not candidates:
            return ALLOWED
        first: list[Rule] = []
        for rule in candidates:
            if rule.matches(kind, server, names, hints):
                if not rule.looks_at_arguments:
                    return Ruling(rule, tuple(first))
                first.append(rule)
        return Ruling(None, tuple(first))

    def shuts(self, server: str) -> bool:
        """Whether nothing of a server is for these callers, whatever it may have."""
        for rule in self.rules:
            if rule.may_match(TOOLS, server) or rule.may_match(PROMPTS, server) or rule.may_match(RESOURCES, server):
                if rule.do != "deny":
                    return False
                if rule.is_about_servers:
                    return True
        return False

    def allows_all(self, kind: Kind, server: str) -> bool:
        """Whether whatever a server has of a kind may be used, without a question."""
        return all(rule.do == "allow" for rule in self.rules if rule.may_match(kind, server))


class Access:
    """All rules of a configuration."""

    def __init__(self, specs: Sequence[AccessRule]) -> None:
        self.specs = specs
        self.rules = tuple(Rule(number, spec, spec.do) for number, spec in enumerate(specs))
        self._judges: dict[tuple[int, ...], Judge] = {}
        self._of: OrderedDict[tuple[Identity | None, str | None], Judge | None] = OrderedDict()

    def judge(self, identity: Identity | None, view: str | None) -> Judge | None:
        """Who decides for such callers; None: no rule is about them."""
        key = (identity, view)
        try:
            return self._of[key]
        except KeyError:
            judge = self._of[key] = self._judge(identity, view)
            if len(self._of) > _MOST_CALLERS:
                self._of.popitem(last=False)
            return judge

    def _judge(self, identity: Identity | None, view: str | None) -> Judge | None:
        applying: list[Rule] = []
        for rule in self.rules:
            if rule.is_for(identity, view):
                applying.append(rule)
                if rule.is_about_all:
                    # None of those after it is ever reached.
                    break
        if not applying:
            return None
        key = tuple(rule.number for rule in applying)
        # As many as there are combinations in use; what is made for them is bounded where it is kept.
        if key not in self._judges and len(self._judges) >= _MOST_CALLERS:
            self._judges.clear()
        return self._judges.setdefault(key, Judge(applying))
