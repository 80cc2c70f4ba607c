"""What a change makes of the catalogs, worked out before it is in force: beside the event loop where there is much.

Nothing here changes anything, so any thread may do it. A draft that took so long that something else has changed
meanwhile fits no more, and is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from muxway.catalog import build
from muxway.catalog.resources import build_resources

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.catalog.build import Source
    from muxway.catalog.model import Catalog
    from muxway.catalog.naming import Naming
    from muxway.catalog.resources import ResourceCatalog
    from muxway.catalog.selection import Selection
    from muxway.exchange.views import View

_MANY: Final = 500
"""Definitions whose catalogs are made beside the event loop: each takes some 10 to 20 µs."""


def are_many(sources: Sequence[Source]) -> bool:
    """Whether the catalogs of these sources take long to make."""
    return sum(len(one.tools) + len(one.prompts) + len(one.resources) + len(one.templates) for one in sources) > _MANY


class Edition(NamedTuple):
    """Catalogs that belong together."""

    naming: Naming
    configured: Sequence[str]
    """The names of all servers, also of those that are away."""
    sources: Sequence[Source]
    """What they are made of."""
    tools: Catalog
    prompts: Catalog
    resources: ResourceCatalog

    def is_same(self, other: Edition) -> bool:
        """Whether the other one is this very one."""
        mine = (self.naming, self.sources, self.tools, self.prompts, self.resources)
        its = (other.naming, other.sources, other.tools, other.prompts, other.resources)
        return all(one is another for one, another in zip(mine, its, strict=True))

    def next(self, configured: Sequence[str], given: Sequence[Source]) -> Edition:
        """The catalogs of these sources; each the same as here if nothing of its kind has changed."""
        resources = self._new_resources(configured, given)
        sources = [resources.with_apps(source) for source in given]
        tools = self._new_catalog(self.tools, sources, resources)
        prompts = self._new_catalog(self.prompts, sources, resources)
        return Edition(self.naming, configured, sources, tools, prompts, resources)

    def _new_resources(self, configured: Sequence[str], sources: Sequence[Source]) -> ResourceCatalog:
        def parts(all_of_them: Sequence[Source]) -> list[object]:
            return [
                (source.upstream, source.bare, source.resources, source.templates, source.uris)
                for source in all_of_them
                if source.reads or source.resources or source.templates
            ]

        # Most changes are of something else, and there may be many resources.
        if self.configured == configured and parts(sources) == parts(self.sources):
            return self.resources
        return build_resources(sources, configured, self.resources)

    def _new_catalog(self, old: Catalog, sources: Sequence[Source], resources: ResourceCatalog) -> Catalog:
        def parts(all_of_them: Sequence[Source]) -> list[object]:
            return [
                (source.upstream, source.bare, source.prefix, source.asked, source.own, source.of(old.kind))
                for source in all_of_them
                if any(source.of(old.kind)) or source.asked not in (None, source.prefix)
            ]

        if old.version and parts(sources) == parts(self.sources):
            return old if old.rewriters is resources.rewriters else old.with_rewriters(resources.rewriters)
        return build.build(self.naming, sources, old.with_rewriters(resources.rewriters))


class Cut(NamedTuple):
    """What a view shows of an edition."""

    selection: Selection
    whole: Edition
    tools: Catalog
    prompts: Catalog
    resources: ResourceCatalog


class Draft(NamedTuple):
    """An edition that is not in force, and those of the views."""

    before: Edition
    given: Sequence[Source]
    edition: Edition
    cuts: Mapping[str, Cut]

    def fits(self, now: Edition, configured: Sequence[str], given: Sequence[Source]) -> bool:
        """Whether it is what these sources make of the catalogs there are now."""
        return self.before.is_same(now) and self.edition.configured == configured and self.given == given


def draft(before: Edition, configured: Sequence[str], given: Sequence[Source], views: Mapping[str, View]) -> Draft:
    """What these sources make of the catalogs there are now."""
    edition = before.next(configured, given)
    cuts = {name: view.cut(edition) for name, view in views.items()}
    for one in (edition, *cuts.values()):
        # The first name that is spelled otherwise would have to wait for all spellings of so many.
        one.tools.spell()
        one.prompts.spell()
        for pages in (one.tools.pages, one.prompts.pages, *one.resources.pages.values()):
            # Whoever puts them where clients find them compares the lists as they are sent.
            pages.page()
    return Draft(before, given, edition, cuts)
