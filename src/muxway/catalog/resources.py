"""Resources and templates of many servers → one list of each, and the way from any URI to its server.

URIs stay as they are unless two servers have the same: then the first in the order of the
configuration keeps it and the later one's is wrapped (`uris`). A URI that nobody lists is
sought by what servers have linked to, their templates, their schemes; where more than one
server could be meant, none is. A server that is away keeps what it had, so that nobody else
is asked for it meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from muxway.catalog import hygiene, rewriting
from muxway.catalog.kinds import RESOURCES, TEMPLATES
from muxway.catalog.model import Finding, Pages
from muxway.catalog.uri_templates import Template, TemplateIndex
from muxway.catalog.uris import (
    LONGEST,
    UriFilter,
    is_wrapped_often,
    looks_wrapped,
    scheme_of,
    unwrap,
    wrap,
    wrap_template,
)
from muxway.likeness import short
from muxway.wire import envelopes
from muxway.wire.labels import labelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from muxway.catalog.build import Source
    from muxway.catalog.kinds import Kind
    from muxway.catalog.model import Native
    from muxway.wire.envelopes import Buffer
    from muxway.wire.result_types import Converter

_LEARNED: Final = 10_000
MOST_LINKS: Final = 256
"""Links of one result that are looked up. Further ones are wrapped: so they lead to their server without a look."""


class Place(NamedTuple):
    """Where a URI leads."""

    upstream: str
    native: str
    """What the server calls it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A resource or template as it is listed."""

    public: str
    """Its URI, or the text of the template."""
    upstream: str
    native: str
    definition: bytes

    def describe(self) -> dict[str, Any]:
        """The listed definition as Python objects."""
        return envelopes.holdable(self.definition)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one server has, also while it is away."""

    upstream: str
    filter: UriFilter
    publics: Mapping[str, str] = field(default_factory=dict[str, str])
    """Native URI → public URI, of what is shown."""
    templates: Sequence[tuple[Template, str]] = ()
    """Native template and its public text, of what is shown."""
    schemes: frozenset[str] = frozenset()

    def seen_by(self, uris: UriFilter) -> _Part:
        """What is left of it for callers who see only some URIs."""
        return replace(
            self,
            filter=self.filter.and_also(uris),
            publics={native: public for native, public in self.publics.items() if uris.shows(native)},
            templates=[(template, public) for template, public in self.templates if uris.shows(template.text)],
        )


class _Learned:
    """URIs that servers have linked to without listing them, a bounded number for each server."""

    def __init__(self) -> None:
        self._of: dict[str, OrderedDict[str, None]] = {}

    def note(self, upstream: str, uri: str) -> None:
        if len(uri) <= LONGEST:
            mine = self._of.setdefault(upstream, OrderedDict())
            mine[uri] = None
            mine.move_to_end(uri)
            if len(mine) > _LEARNED:
                mine.popitem(last=False)

    def has(self, upstream: str, uri: str) -> bool:
        return uri in self._of.get(upstream, ())

    def owners(self, uri: str) -> list[str]:
        # A copy: results of other servers may be read by another thread meanwhile.
        return [upstream for upstream, mine in [*self._of.items()] if uri in mine]

    def keep(self, upstreams: Iterable[str]) -> None:
        for gone in self._of.keys() - set(upstreams):
            del self._of[gone]


class ResourceCatalog:
    """Every resource and template, with their listings already encoded. Immutable but for what it learns."""

    def __init__(
        self,
        parts: Mapping[str, _Part],
        entries: Mapping[Kind, Mapping[str, Entry]],
        findings: Sequence[Finding],
        learned: _Learned,
    ) -> None:
        self.resources = entries[RESOURCES]
        self.templates = entries[TEMPLATES]
        self.findings = findings
        self.pages = {kind: Pages([one.definition for one in shown.values()]) for kind, shown in entries.items()}
        self._parts = parts
        self._learned = learned
        self._exact: dict[str, Place] = {}
        self._by_text: dict[str, Place] = {}
        templates: list[tuple[Template, str]] = []
        for name, part in parts.items():
            for uri, public in part.publics.items():
                # The first one counts: a server that is away may have had what an earlier one has now.
                self._exact.setdefault(public, Place(name, uri))
            for template, public in part.templates:
                self._by_text.setdefault(public, Place(name, template.text))
                if public == template.text:
                    templates.append((template, name))
        self._templates = TemplateIndex(templates)
        self._native: dict[str, TemplateIndex] = {}
        """Server → all of its templates, made when there is a wrapped URI inside a wrapped one."""
        self.rewriters: Mapping[str, Converter] = (
            {name: self._rewriter(name) for name in parts} if len(parts) > 1 else {}
        )
        """Server → what to do to its results; empty unless several servers have resources."""

    # --- from the caller's words to the server's ------------------------------------------------

    def find(self, uri: str) -> Place | None:
        """Where a URI leads: listed, wrapped, linked to, made of a template, of a scheme or server there is one of."""
        if uri in self._exact or looks_wrapped(uri):
            return self.find_listed(uri)
        if len(uri) > LONGEST and len(self._parts) > 1:
            # It cannot be wrapped, so that nobody could tell whose it is.
            return None
        for upstream in self._owners(uri):
            if self._parts[upstream].filter.shows(uri):
                return Place(upstream, uri)
        return None

    def find_listed(self, uri: str) -> Place | None:
        """Where a URI leads that is listed or names its server: what it means does not depend on who else there is."""
        return self._exact.get(uri) or (self._find_wrapped(uri) if looks_wrapped(uri) else None)

    def find_template(self, text: str) -> Place | None:
        """Where a template leads, by its text as it is listed."""
        return self._by_text.get(text)

    def _find_wrapped(self, uri: str) -> Place | None:
        upstream, native = unwrap(uri) or ("", "")
        part = self._parts.get(upstream)
        if part is None or not part.filter.shows(native):
            return None
        # The name of the server is all that was missing, but a wrapped one inside must be known to be the server's.
        if looks_wrapped(native) and not (
            native in part.publics
            or self._learned.has(upstream, native)
            or self._native_templates(upstream, part).owners(native)
        ):
            return None
        return Place(upstream, native)

    def _native_templates(self, upstream: str, part: _Part) -> TemplateIndex:
        index = self._native.get(upstream)
        if index is None:
            index = self._native[upstream] = TemplateIndex((template, upstream) for template, _ in part.templates)
        return index

    def _owners(self, uri: str) -> Iterable[str]:
        """Whose an unlisted URI may be, best first. Each is asked whether it shows it."""
        yield from (name for name in self._learned.owners(uri) if name in self._parts)
        yield from self._templates.owners(uri)
        scheme = scheme_of(uri)
        owners = [name for name, part in self._parts.items() if scheme in part.schemes]
        if len(owners) == 1:
            yield owners[0]
        elif len(self._parts) == 1:
            yield from self._parts

    # --- from the server's words to the caller's ------------------------------------------------

    def public_uri(self, upstream: str, native: str) -> str:
        """The URI under which callers reach what this server calls so. Remembers one that nobody has listed."""
        part = self._parts.get(upstream)
        if part is None:
            return native
        listed = part.publics.get(native)
        if listed is not None:
            return listed
        if len(native) > LONGEST:
            return native  # It leads nowhere, whoever else has it.
        if looks_wrapped(native):
            self._learned.note(upstream, native)
            return wrap(upstream, native)
        if not part.filter.shows(native):
            # It leads nowhere, and must not lead elsewhere once another server has the same.
            return wrap(upstream, native)
        place = self.find(native)
        if place is None:
            self._learned.note(upstream, native)
            return native
        return native if place.upstream == upstream else wrap(upstream, native)

    def contents_rewriter(self, uri: str, place: Place) -> Converter | None:
        """What to do to the result of a read; None if it passes as it is."""
        several = len(self._parts) > 1
        if not several and uri == place.native:
            return None

        def rename(native: str) -> str:
            if native == place.native:
                return uri
            return self.public_uri(place.upstream, native) if several else native

        return lambda result: rewriting.rewrite_contents(result, rename)

    def _rewriter(self, upstream: str) -> Converter:
        def rewrite(result: Buffer) -> Buffer:
            left = MOST_LINKS

            def rename(native: str) -> str:
                nonlocal left
                left -= 1
                # One that is not looked up leads home, whoever else may have it.
                return self.public_uri(upstream, native) if left >= 0 else wrap(upstream, native)

            return rewriting.rewrite_blocks(result, rename)

        return rewrite

    def with_apps(self, source: Source) -> Source:
        """A source whose tools name their apps by the URIs these have here."""
        if len(self._parts) < 2 or source.upstream not in self._parts:
            return source
        return rewriting.rename_apps(source, lambda native: self.public_uri(source.upstream, native))

    def seen_by(self, has_server: Callable[[str], bool], uris: UriFilter) -> ResourceCatalog:
        """The same for callers who see only some servers and some URIs."""
        parts = {name: part.seen_by(uris) for name, part in self._parts.items() if has_server(name)}
        entries = {
            kind: {public: one for public, one in listed.items() if has_server(one.upstream) and uris.shows(one.native)}
            for kind, listed in ((RESOURCES, self.resources), (TEMPLATES, self.templates))
        }
        return ResourceCatalog(parts, entries, (), self._learned)

    def judged_by(self, shows: Callable[[str, str], bool]) -> ResourceCatalog:
        """The same for callers for whom `shows` decides, by server and URI as the server writes it."""
        parts = {name: part.seen_by(UriFilter(judge=partial(shows, name))) for name, part in self._parts.items()}
        entries = {
            kind: {public: one for public, one in listed.items() if shows(one.upstream, one.native)}
            for kind, listed in ((RESOURCES, self.resources), (TEMPLATES, self.templates))
        }
        return ResourceCatalog(parts, entries, (), self._learned)

    def forget_others(self) -> None:
        """It is in force: what was learned of servers that are not in it goes."""
        self._learned.keep(self._parts)

    # --- for the next catalog -------------------------------------------------------------------

    @property
    def learned(self) -> _Learned:
        """What has been learned so far."""
        return self._learned

    def part(self, upstream: str) -> _Part | None:
        """What a server has, or had before it went away."""
        return self._parts.get(upstream)


class _ResourceDraft:
    def __init__(self) -> None:
        self.entries: dict[Kind, dict[str, Entry]] = {RESOURCES: {}, TEMPLATES: {}}
        self.findings: list[Finding] = []
        self.uris: set[str] = set()
        self.shapes: set[tuple[str, ...]] = set()

    def claim(self, part: _Part) -> None:
        """What a server has that is away: nobody else gets it."""
        self.uris.update(part.publics.values())
        self.shapes.update(template.shape for template, public in part.templates if public == template.text)

    def add(self, source: Source) -> _Part:
        uris = [native for native in source.resources if source.uris.shows(native.name)]
        texts = [native for native in source.templates if source.uris.shows(native.name)]
        templates = {native.name: Template(native.name) for native in texts}
        publics = self._publish(
            RESOURCES, source, uris, lambda uri: uri in self.uris, lambda uri: wrap(source.upstream, uri)
        )
        wrapped = self._publish(
            TEMPLATES,
            source,
            texts,
            lambda text: templates[text].shape in self.shapes,
            lambda text: wrap_template(source.upstream, text),
        )
        part = _Part(
            source.upstream,
            source.uris,
            publics,
            [(templates[text], public) for text, public in wrapped.items()],
            frozenset((*map(scheme_of, publics), *(template.scheme for template in templates.values()))) - {""},
        )
        self.claim(part)
        return part

    def _publish(
        self,
        kind: Kind,
        source: Source,
        natives: Sequence[Native],
        taken: Callable[[str], bool],
        wrapped: Callable[[str], str],
    ) -> dict[str, str]:
        publics: dict[str, str] = {}
        collided: list[str] = []
        rounds = 0
        for native in natives:
            public = native.name
            if is_wrapped_often(public):
                rounds += 1
                continue
            if kind is RESOURCES and len(public) > LONGEST:
                why = f"left out, because its URI has {len(public):,} characters, more than {LONGEST:,}"
                self.findings.append(Finding(source.upstream, short(public), why, kind))
                continue
            if taken(public):
                collided.append(public)
                public = wrapped(public)
            elif looks_wrapped(public):
                public = wrapped(public)
            elif not hygiene.is_visible(public):
                public = wrapped(public)
                why = f"listed as {public!r}, because its own URI has hidden characters"
                self.findings.append(Finding(source.upstream, hygiene.visible(native.name), why, kind))
            publics[native.name] = public
            self.entries[kind][public] = Entry(
                public, source.upstream, native.name, _definition(kind, source, public, native)
            )
        if rounds:
            why = f"{rounds} {kind.word}s are left out, because they are listed round in a ring of gateways"
            self.findings.append(Finding(source.upstream, "*", why, kind))
        if collided:
            first, more = collided[0], len(collided) - 1
            likewise = f", and {more} more likewise," if more else ""
            why = f"listed as {publics[first]!r}{likewise} because another server has the same"
            self.findings.append(Finding(source.upstream, first, why, kind))
        return publics


def _definition(kind: Kind, source: Source, public: str, native: Native) -> bytes:
    members: Mapping[str, Buffer] = native.members
    if source.label:
        name = envelopes.text(members.get("name")) or native.name
        members = {**members, "name": envelopes.encode(labelled(source.label, name))}
    return envelopes.object_of(((kind.identity, envelopes.encode(public)), *members.items()))


def build_resources(
    sources: Sequence[Source] = (), configured: Iterable[str] = (), before: ResourceCatalog | None = None
) -> ResourceCatalog:
    """The resources of these sources, following on the catalog before.

    Args:
        sources: the servers that are there.
        configured: the names of all servers, also of those that are away, in the order of the configuration.
        before: what there was until now.
    """
    there = {source.upstream: source for source in sources}
    draft = _ResourceDraft()
    parts: dict[str, _Part] = {}
    for upstream in dict.fromkeys((*configured, *there)):
        source = there.get(upstream)
        if source is not None:
            if source.reads or source.resources or source.templates:
                parts[upstream] = draft.add(source)
        elif before is not None and (former := before.part(upstream)) is not None:
            parts[upstream] = former
            draft.claim(former)
    learned = _Learned() if before is None else before.learned
    return ResourceCatalog(parts, draft.entries, draft.findings, learned)
