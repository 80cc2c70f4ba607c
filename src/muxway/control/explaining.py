"""Why a tool is called what it is called, and who sees it: what `muxway explain` tells.

What is told is plain data, as it crosses the control socket. A fact names its place in the configuration by dotted
path and key; the line is found by whoever shows it, as reading a large file again would hold up a running gateway.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import msgspec

from muxway.calls.identity import Identity
from muxway.catalog.client_profiles import PROFILES, changes_of
from muxway.catalog.kinds import TOOLS
from muxway.catalog.locking import accepting
from muxway.catalog.naming import SEPARATORS, spellings
from muxway.errors import RpcError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from muxway.access.rules import Ruling
    from muxway.catalog.build import Source
    from muxway.catalog.model import Catalog, Finding, Route
    from muxway.catalog.shaping import Wanted
    from muxway.config.model import Config, ServerConfig
    from muxway.gateway import Gateway
    from muxway.results import Server
    from muxway.routing.target import Target

Fact = dict[str, Any]
"""`about`, `text`, and perhaps `place`: `{at, key, item}`, of which the last two may be None."""

_DONE: dict[str, str] = {"allow": "allowed", "ask": "asked about", "deny": "denied"}
_MOST = 10
"""Tools told about where a name may mean many."""


async def explain(
    gateway: Gateway, name: str, view: str | None = None, identity: Identity | None = None
) -> dict[str, Any]:
    """Everything about the tools that a name may mean, for a caller who is this. KeyError: there is no such view."""
    snapshot = gateway.runtime.snapshot
    if view is None or view in snapshot.views:
        # With many definitions it takes long to say what this caller sees.
        _, made = await asyncio.to_thread(snapshot.looking(view, identity))
        if made:
            # What was made for one user is kept for that one alone.
            snapshot.of(identity).keep(made)
    told = _explain(gateway, name, view, identity)
    for tool in told["tools"]:
        if tool["listed"]:
            await _look_for_hiders(gateway, tool, view)
    return told


async def _look_for_hiders(gateway: Gateway, tool: dict[str, Any], view: str | None) -> None:
    """Tell of a listed tool which middleware takes it out of the list. That may depend on who asks: here, nobody."""
    try:
        layer = await gateway.hidden_by(tool["name"], view)
    except RpcError as error:
        tool["facts"].append(_fact("note", f"the list fails: {error.message}"))
        return
    if layer is None:
        return
    about, no = ("listed", "no") if view is None else (f"view {view}", "hidden")
    hidden = _fact(about, f"{no}, middleware {layer.name} takes it out of the list", layer.where)
    number = next(number for number, fact in enumerate(tool["facts"]) if fact["about"] == about)
    tool["facts"][number] = hidden
    tool["listed"] = False


def _explain(gateway: Gateway, name: str, view: str | None, identity: Identity | None) -> dict[str, Any]:
    snapshot = gateway.runtime.snapshot
    sources = {source.upstream: source for source in snapshot.whole.sources}
    servers = {server.name: server for server in gateway.servers()}
    seen = snapshot.whole.tools if view is None else snapshot.views[view].tools
    meant = _meant(name, seen, snapshot.whole.tools, sources.values())
    told = [
        _Tool(gateway, sources[upstream], native).told(view, servers.get(upstream), identity)
        for upstream, native in meant
    ]
    return {
        "asked": name,
        "view": view,
        "config": gateway.config.source,
        "tools": told[:_MOST],
        "more": max(len(told) - _MOST, 0),
        "unknown": None if told else _unknown(gateway.config, name, seen, servers),
    }


def _meant(name: str, seen: Catalog, whole: Catalog, sources: Iterable[Source]) -> list[tuple[str, str]]:
    """Server and own name of every tool that may be meant: the one that a caller would get, else all alike."""
    for catalog in (seen, whole):
        route = catalog.find(name).route
        if route is not None:
            return [(route.upstream, route.native)]
    routes = [one for one in whole.routes.values() if name.endswith(one.alias) and name in one.spellings()]
    if routes:
        return [(route.upstream, route.native) for route in routes]
    return [
        (source.upstream, native.name)
        for source in sources
        for native in source.tools
        for own in {native.name, whole.reasons.of(source.upstream, native.name).name or native.name}
        # Quick to say no: there may be thousands.
        if name.endswith(own) and name in _possible(source, own)
    ]


def _possible(source: Source, own: str) -> set[str]:
    """Every way to write a tool of this name."""
    return {own, *(name for start in {source.upstream, source.prefix} - {""} for name in spellings(start, own))}


def identity_of(said: object) -> Identity | None:
    """Whom `explain` is asked about."""
    if not isinstance(said, dict):
        return None
    given = cast("dict[str, Any]", said)
    groups = given.get("groups")
    return Identity(
        user=str(given.get("user") or ""),
        groups=tuple(map(str, cast("list[object]", groups))) if isinstance(groups, list) else (),
        key=str(given.get("key") or ""),
        client=str(given.get("client") or ""),
    )


def _fact(about: str, text: str, at: str = "", key: str | None = None, item: str | None = None) -> Fact:
    return {"about": about, "text": text, "place": {"at": at, "key": key, "item": item} if at else None}


class _Tool:
    """One tool of a server, or of the gateway itself."""

    def __init__(self, gateway: Gateway, source: Source, native: str) -> None:
        self._gateway = gateway
        self._snapshot = gateway.runtime.snapshot
        self._reasons = self._snapshot.whole.tools.reasons.of(source.upstream, native)
        self._config = gateway.config
        self._source = source
        self._native = native
        self._server = gateway.config.servers.get(source.upstream)
        self._route = _route(self._snapshot.whole.tools, source.upstream, native)

    def told(self, view: str | None, server: Server | None, identity: Identity | None) -> dict[str, Any]:
        shown = self._route if view is None else _route(self._tools(view), self._source.upstream, self._native)
        visible = self._snapshot.seen(view, identity)
        verdict = None if shown is None else visible.verdict(TOOLS, shown)
        denied = verdict is not None and not verdict.shown
        facts = [*self._about_name(), self._about_listing(denied=denied), *self._about_shape()]
        views = [*self._snapshot.views] if view is None else [view]
        if self._route is not None:
            facts += [fact for one in views for fact in self._about_view(one)]
        if shown is not None and self._snapshot.settings.access is not None:
            facts += [_fact("caller", _described(identity)), *_about_access(verdict)]
        named = shown or self._route
        name = None if named is None else named.public
        if named is not None and self._snapshot.settings.client_profiles:
            facts += _about_clients(named)
        facts += self._about_lock()
        facts += self._about_middleware(self._targets(shown or self._route), view)
        facts += [_fact("note", finding.message) for finding in self._findings()]
        return {
            "name": name,
            "listed": shown is not None and (verdict is None or verdict.shown),
            "access": None if shown is None else "allow" if verdict is None else verdict.do,
            "server": self._source.upstream or None,
            "originalName": self._native,
            "facts": facts,
            "state": None if server is None else _state(server),
        }

    def _targets(self, route: Route | None) -> list[Target]:
        """What its calls are about: a subtool, if it is a compound tool."""
        router, whole = self._gateway.runtime.router, self._snapshot.whole
        if route is None:
            return [router.of_native(whole, self._source.upstream, self._native)]
        tool = None if route.upstream else self._config.tools.get(route.native)
        if tool is None or tool.steps:
            return [router.of_route(whole, route)]
        subtools = [
            router.of_native(whole, server, subtool.name)
            for server, listed in tool.subtools.items()
            for subtool in listed
        ]
        return [msgspec.structs.replace(one, names=(*one.names, route.public)) for one in subtools]

    def _tools(self, view: str) -> Catalog:
        return self._snapshot.views[view].tools

    def _findings(self) -> list[Finding]:
        return [
            finding
            for finding in self._snapshot.whole.tools.findings
            if finding.upstream == self._source.upstream and finding.item == self._native and finding.kind is TOOLS
        ]

    # --- its name -----------------------------------------------------------------------------

    def _about_name(self) -> Iterator[Fact]:
        source, native, server = self._source, self._native, self._server
        if source.own:
            kind = "composed" if self._config.tools[native].steps else "compound"
            yield _fact("name", f"a {kind} tool of the gateway itself", f"tools.{native}")
            return
        where = "" if server is None else server.where
        shape, renamed = self._reasons.named_by, self._reasons.exposed_as
        if shape is not None:
            yield _fact("name", f"`shape` calls it {shape.name!r}", where, "shape", shape.match)
        elif renamed is not None:
            yield _fact("name", f"`exposedTools` calls it {renamed!r}", where, "exposedTools", native)
        elif not source.prefix:
            yield _fact("name", "its own, as `prefix` is empty", where, "prefix")
        else:
            separator = self._config.gateway.separator
            text = f"{source.prefix!r}, {separator!r} and its own name {native!r}"
            if source.asked not in (None, source.prefix):
                yield _fact("name", f"{text}; {source.asked!r} is taken, or not legal for every client", where)
            elif server is not None and server.prefix is not None:
                yield _fact("name", f"`prefix` {text}", where, "prefix")
            else:
                yield _fact("name", f"the server's name {text}", where)

    # --- who sees it --------------------------------------------------------------------------

    def _about_listing(self, *, denied: bool) -> Fact:
        where = "" if self._server is None else self._server.where
        verdict = self._reasons.verdict
        why, item = verdict.of(self._native, self._source.upstream)
        text = f"{'yes' if verdict.shown else 'no'}, {why}"
        if verdict.shown and denied:
            text = f"no, an access rule denies it to this caller; else {text}"
        elif verdict.shown and self._is_searched(None):
            text += "; clients find it with search_tools"
        return _fact("listed", text, where if verdict.key else "", verdict.key, item)

    def _is_searched(self, view: str | None) -> bool:
        """Whether clients get it by search, and not in their list."""
        visible = self._gateway.runtime.snapshot.visible(view)
        shown = _route(visible.tools, self._source.upstream, self._native)
        return visible.discovery is not None and shown is not None and shown.public not in visible.discovery.pinned

    def _about_view(self, view: str) -> Iterator[Fact]:
        assert self._route is not None  # noqa: S101 - what is not listed at all is in no view
        at, about, tools = f"views.{view}", f"view {view}", self._tools(view)
        reasons = tools.reasons.of(self._source.upstream, self._native)
        why, item = reasons.verdict.of(self._route.public, self._source.upstream)
        found = "; clients find it with search_tools" if self._is_searched(view) else ""
        yield _fact(about, f"{'shown' if reasons.shown else 'hidden'}, {why}{found}", at, reasons.verdict.key, item)
        shown = _route(tools, self._source.upstream, self._native)
        if shown is not None:
            for shape in reasons.shapes:
                called = f"called {shown.public!r}; " if shape.name is not None else ""
                yield _fact(about, f"shape: {called}{_changed(shape)}", at, "shape", shape.match)

    # --- what is made of it -------------------------------------------------------------------

    def _about_lock(self) -> Iterator[Fact]:
        """How it differs from what was locked."""
        for drift in self._source.lock.drifts:
            if (drift.kind, drift.name) == (TOOLS.name, self._native):
                for one in drift.differences:
                    yield _fact("lock", f"{one.what} ({one.class_})", "gateway", "lock")
                accept = accepting(self._source.upstream, self._native)
                refused = f"until somebody says `{accept}`, it is not called"
                yield _fact("lock", refused if self._source.lock.enforced else accept)

    def _about_shape(self) -> Iterator[Fact]:
        where = "" if self._server is None else self._server.where
        for shape in self._reasons.shapes:
            yield _fact("shape", _changed(shape), where, "shape", shape.match)

    def _about_middleware(self, targets: Sequence[Target], view: str | None) -> Iterator[Fact]:
        """What stands around its calls, the outermost first."""
        for layer in self._gateway.layers_around(targets, view):
            if layer.spec is None:
                yield _fact("middleware", f"{layer.name}, given in Python")
            else:
                of = f", for {', '.join(layer.spec.match)}" if layer.spec.match else ""
                yield _fact("middleware", f"{layer.name}, of {layer.whose}{of}", layer.where)


def _about_clients(route: Route) -> Iterator[Fact]:
    """What is done to it for clients that cannot take it as it is."""
    for profile in PROFILES.values():
        for what in changes_of(route, profile):
            yield _fact("client", f"{profile.title}: {what}", "gateway", "clientProfiles")


def _described(identity: Identity | None) -> str:
    """For whom rules were asked, which the options of `explain` say."""
    if identity is None:
        return "somebody without credentials; --as, --group, --key and --client name somebody"
    if identity.key:
        return f"API key {identity.key}"
    groups = f"in {', '.join(identity.groups)}" if identity.groups else "in no group (--group names one)"
    return f"{identity.user or 'a user'}, {groups}"


def _about_access(verdict: Ruling | None) -> Iterator[Fact]:
    """What rules say of it, in the order in which they are tried."""
    if verdict is None:
        yield _fact("access", "allowed, as no rule is for this caller")
        return
    for rule in verdict.first:
        given = ", ".join(rule.spec.arguments)
        yield _fact(
            "access", f"{_DONE[rule.do]} by rule {rule.label}, if the arguments match ({given})", rule.spec.where
        )
    otherwise = "else " if verdict.first else ""
    if verdict.rule is None:
        yield _fact("access", f"{otherwise}allowed, as no rule matches")
    else:
        yield _fact("access", f"{otherwise}{_DONE[verdict.do]} by rule {verdict.rule.label}", verdict.rule.spec.where)


def _route(catalog: Catalog, upstream: str, native: str) -> Route | None:
    return next((one for one in catalog.routes.values() if one.native == native and one.upstream == upstream), None)


def _changed(shape: Wanted) -> str:
    """What a shape changes, in a few words. Never a value: that may be a secret."""
    keys = [key for key in ("name", "title", "description", "annotations", "result") if getattr(shape, key) is not None]
    words = [f"changes {', '.join(keys)}"] if keys else []
    hidden = [name for name, argument in shape.arguments.items() if argument.hide]
    renamed = [f"{name} to {one.rename}" for name, one in shape.arguments.items() if one.rename and not one.hide]
    others = [name for name, one in shape.arguments.items() if not one.hide and not one.rename]
    for verb, names in (("hides", hidden), ("renames", renamed), ("changes", others)):
        if names:
            words.append(f"{verb} argument{'s' if len(names) > 1 else ''} {', '.join(names)}")
    return "; ".join(words) or "changes nothing"


def _state(server: Server) -> dict[str, Any]:
    return {
        "status": str(server.status),
        "error": server.error,
        "retryIn": server.retry_in,
        "revision": server.revision,
        "calls": server.calls,
        "errors": server.errors,
    }


# --- names that lead nowhere --------------------------------------------------------------------


def _unknown(config: Config, name: str, seen: Catalog, servers: dict[str, Server]) -> dict[str, Any]:
    """Why there is no such tool, as far as that can be told, and the names there are."""
    facts: list[Fact] = []
    state = None
    for entry, own in _owners(config, name):
        server = servers.get(entry.name)
        if not entry.enabled:
            facts.append(_fact("server", f"{entry.name} is switched off", entry.where, "enabled"))
        elif server is not None:
            down = {"failed": "has failed", "login needed": "needs a login"}.get(server.status, f"is {server.status}")
            listed = "lists no such tool" if server.tools else f"{down}, so none of its tools is known"
            facts.append(_fact("server", f"{entry.name} {listed}", entry.where))
            facts += [_fact("note", note) for note in server.notes if repr(own) in note]
            state = {"name": entry.name, **_state(server)}
    return {"facts": facts, "state": state, "names": [*seen.routes]}


def _owners(config: Config, name: str) -> Iterator[tuple[ServerConfig, str]]:
    """Servers that a name begins with, and what follows."""
    for server in config.servers.values():
        for start in {server.name, server.prefix or server.name}:
            for separator in SEPARATORS:
                if name.startswith(start + separator):
                    yield server, name.removeprefix(start + separator)
