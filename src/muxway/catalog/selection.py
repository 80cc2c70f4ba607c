"""Views: what some callers see of the catalogs. Names stay those of the whole unless the view itself changes them.

A view is a filter over catalogs that are built already, so what it lists depends on the configuration alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from muxway.catalog import shaping
from muxway.catalog.globs import Globs, is_glob, matches_any
from muxway.catalog.kinds import PROMPTS, TOOLS
from muxway.catalog.model import Catalog, Finding
from muxway.catalog.reasons import NOT_READ_ONLY, UNTOUCHED, ReasonBook, because
from muxway.catalog.uris import EVERY_URI, UriFilter
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.catalog.kinds import Kind
    from muxway.catalog.model import Route
    from muxway.catalog.naming import Naming
    from muxway.catalog.reasons import Reasons
    from muxway.catalog.resources import ResourceCatalog
    from muxway.catalog.shaping import Wanted
    from muxway.wire.envelopes import Buffer


_OWN_UNNAMED: Final = because(False, "with `servers`, tools of the gateway itself must be named in `tools`", "servers")
_OTHER_SERVERS: Final = because(False, "`servers` does not have {server}", "servers")
_ITS_SERVER: Final = because(True, "`servers` has {server}", "servers")
_OTHER_TOOLS: Final = because(False, "`tools` names others only", "tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a view shows."""

    view: str
    servers: frozenset[str] | None = None
    """Only what these have; None: all."""
    tools: Globs | None = None
    """Only tools of these public names; None: all."""
    hidden_tools: Globs = field(default_factory=lambda: Globs(()))
    prompts: Globs | None = None
    uris: UriFilter = EVERY_URI
    """Only resources with such URIs, as their servers write them."""
    read_only: bool = False
    """Only tools that say that they change nothing."""
    shapes: Sequence[Wanted] = ()
    """What to make of its tools, by their public names."""
    pin: bool = False
    """Whether a session keeps the list of tools that it got first."""
    _hidden: Reasons = field(init=False, repr=False, compare=False)
    _named: Reasons = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A frozen class is written to like this.
        object.__setattr__(
            self, "_hidden", because(False, "`hiddenTools` has {item}", "hiddenTools", self.hidden_tools)
        )
        object.__setattr__(self, "_named", because(True, "`tools` has {item}", "tools", self.tools))

    def has_server(self, upstream: str) -> bool:
        """Whether it shows anything of a server."""
        return self.servers is None or upstream in self.servers

    def _has_tool(self, upstream: str, name: str) -> bool:
        return self._judge(upstream, name).shown

    def _judge(self, upstream: str, name: str) -> Reasons:
        """Whether it has a tool, and why; what the tool says of itself aside."""
        if name in self.hidden_tools:
            return self._hidden
        if not upstream and self.tools is None and self.servers is not None:
            # The gateway's own tools may use any server: a view of some servers has those it names.
            return _OWN_UNNAMED
        if upstream and not self.has_server(upstream):
            return _OTHER_SERVERS
        if self.tools is not None:
            return self._named if name in self.tools else _OTHER_TOOLS
        return UNTOUCHED if self.servers is None else _ITS_SERVER

    def _has_prompt(self, upstream: str, name: str) -> bool:
        return self.has_server(upstream) and (self.prompts is None or name in self.prompts)

    def shows_all(self, kind: Kind, upstream: str) -> bool:
        """Whether it shows whatever a server has of a kind, as it is."""
        if not self.has_server(upstream):
            return False
        if kind is PROMPTS:
            return self.prompts is None
        return self.tools is None and not self.hidden_tools.texts and not self.read_only and not self.shapes

    def of_tools(self, whole: Catalog, naming: Naming) -> Catalog:
        """The tools that it shows."""
        shapes = shaping.Shapes(self.shapes)
        reasons = ReasonBook()
        chosen: list[tuple[Route, shaping.Wishes | None]] = []
        for route in whole.routes.values():
            why = self._judge(route.upstream, route.public)
            wishes = shapes.of(route.public) if why.shown else None
            reasons.note(route.upstream, route.native, why if wishes is None else why._replace(shapes=wishes.shapes))
            if why.shown:
                chosen.append((route, wishes))
        findings: list[Finding] = []
        taken = {route.public for route, wishes in chosen if wishes is None or wishes.last("name") is None}
        routes: dict[str, Route] = {}
        for route, wishes in chosen:
            shown = route if wishes is None else self._shaped(route, wishes, naming, taken, findings)
            taken.add(shown.public)
            if not self.read_only or shaping.is_read_only(envelopes.members(shown.definition) or {}):
                routes[shown.public] = shown
            else:
                reasons.note(route.upstream, route.native, NOT_READ_ONLY)
        return replace(
            whole,
            routes=routes,
            reasons=reasons,
            findings=(*findings, *self._tool_findings(whole)),
            former={name: upstream for name, upstream in whole.former.items() if self._has_tool(upstream, name)},
            admits=self._has_tool,
            _aliases={},
        )

    def _shaped(
        self, route: Route, wishes: shaping.Wishes, naming: Naming, taken: set[str], findings: list[Finding]
    ) -> Route:
        members = envelopes.members(route.definition) or {}
        del members["name"]
        shaped = shaping.shape(members, wishes, route.shape)
        problems = list(shaped.problems)
        asked = wishes.last("name")
        public = route.public if asked is None else naming.fit(naming.legal(asked), route.upstream, route.native)
        if asked is not None and public in taken:
            problems.append(f"it cannot be called {public!r}, which another tool is")
            public = (
                route.public if route.public not in taken else naming.distinct(public, route.upstream, route.native)
            )
        elif asked is not None and public != asked:
            problems.append(f"listed as {public!r}, because {asked!r} is too long or not legal for every client")
        findings += [Finding(self._label, route.public, f"{wishes.label}: {problem}") for problem in problems]
        definition = envelopes.object_of((("name", envelopes.encode(public)), *shaped.members.items()))
        alias = route.alias if asked is None else asked
        shape = None if shaped.shaping is None else shaped.shaping.called(public)
        return replace(route, public=public, alias=alias, definition=definition, shape=shape)

    def shaped(self, public: str, members: Mapping[str, Buffer]) -> Mapping[str, Buffer]:
        """What it makes of other members of a tool that is called so in the whole."""
        wishes = shaping.Shapes(self.shapes).of(public)
        return members if wishes is None else shaping.shape(members, wishes).members

    def of_prompts(self, whole: Catalog) -> Catalog:
        """The prompts that it shows."""
        return replace(
            whole,
            routes={name: route for name, route in whole.routes.items() if self._has_prompt(route.upstream, name)},
            findings=tuple(
                Finding(self._label, text, "named in prompts, but there is none", PROMPTS)
                for text in (() if self.prompts is None else self.prompts.idle(whole.routes))
            ),
            former={name: upstream for name, upstream in whole.former.items() if self._has_prompt(upstream, name)},
            admits=self._has_prompt,
            _aliases={},
        )

    def of_resources(self, whole: ResourceCatalog) -> ResourceCatalog:
        """The resources and templates that it shows."""
        return whole.seen_by(self.has_server, self.uris)

    @property
    def _label(self) -> str:
        return f'view "{self.view}"'

    def _tool_findings(self, whole: Catalog) -> list[Finding]:
        findings: list[Finding] = []
        for key, globs in (("tools", self.tools), ("hiddenTools", self.hidden_tools)):
            for text in () if globs is None else globs.idle(whole.routes):
                vain = "matches none" if is_glob(text) else "there is no such tool"
                findings.append(Finding(self._label, text, f"named in {key}, but {vain}", TOOLS))
        seen = [name for name, route in whole.routes.items() if self._has_tool(route.upstream, name)]
        vain = [wanted.match for wanted in self.shapes if not matches_any(wanted.match, seen)]
        findings += [Finding(self._label, match, "named in shape, but the view has no such tool") for match in vain]
        return findings
