"""The middle of the gateway: every request comes in at `handle`, whoever asks and however."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from muxway.catalog import build
from muxway.catalog.kinds import KINDS, PROMPTS, TOOLS
from muxway.catalog.model import EMPTY, Catalog, Finding, Hint
from muxway.catalog.resources import ResourceCatalog, build_resources
from muxway.core import instructions, tasks
from muxway.core.admission import Admission
from muxway.core.audience import Audience
from muxway.core.completion import Completion
from muxway.core.incidents import internal
from muxway.core.listings import Shelf
from muxway.core.prompts import Prompts
from muxway.core.relay import Held, Relay, StillStarting
from muxway.core.resources import Resources
from muxway.core.subscriptions import Subscriptions
from muxway.errors import MethodNotFound, RpcError
from muxway.protocol import messages
from muxway.protocol.asking import REPEATABLE, TASKS_EXTENSION
from muxway.protocol.era import NEWEST, SERVER_INFO, SUPPORTED, Revision

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muxway.catalog.build import Source
    from muxway.catalog.kinds import Kind
    from muxway.catalog.naming import Naming
    from muxway.config.model import CustomTool
    from muxway.core.call import Call
    from muxway.core.ports import Running, Sink
    from muxway.core.relay import Member
    from muxway.core.sealing import Seal
    from muxway.core.views import View

_LISTS: Final = {kind.method: kind for kind in KINDS}
_DISCOVER_TTL_MS: Final = 0


class _HeldCall:
    """A request that came before the servers were ready: a client need not fail for being quick."""

    __slots__ = ("_call", "_cancelled", "_running", "_sink", "_switchboard")

    def __init__(self, switchboard: Switchboard, call: Call, sink: Sink) -> None:
        self._switchboard = switchboard
        self._call = call
        self._sink = sink
        self._cancelled = False
        self._running: Running | None = None

    def release(self) -> None:
        if not self._cancelled:
            self._running = self._switchboard.answer(self._call, self._sink)

    def cancel(self, reason: str | None) -> None:
        self._cancelled = True
        if self._running is not None:
            self._running.cancel(reason)


class Shared(NamedTuple):
    """What a gateway and all its views have in common."""

    naming: Naming
    members: Mapping[str, Member]
    page_size: int | None
    relay: Relay
    audience: Audience
    on_left: list[Callable[[object], None]]
    admission: Admission


class Switchboard:
    """Answers what the gateway answers itself and sends the rest to the upstream it belongs to."""

    def __init__(
        self,
        *,
        name: str,
        version: str,
        naming: Naming,
        members: Mapping[str, Member],
        tools: Mapping[str, CustomTool],
        page_size: int | None = None,
        seal: Seal | None = None,
        shared: Shared | None = None,
    ) -> None:
        """Prepare one for a whole gateway; or, with what another one shares, for a view of it."""
        self.identity = {"name": name, "version": version}
        self.handle: Callable[[Call, Sink], Running | None] = self.answer
        """Where every request comes in: `answer`, or the middleware around it."""
        self.catalog: Catalog = EMPTY
        """The tools."""
        self.prompts: Catalog = replace(EMPTY, kind=PROMPTS)
        self.resources: ResourceCatalog = build_resources()
        self.instructions = ""
        """What the servers want a model to know, all in one."""
        self._naming = naming
        self._members = members
        self.sources: Sequence[Source] = ()
        """What is shown, by server."""
        self.views: dict[str, View] = {}
        """What some callers see of it, by name."""
        self._configured: list[str] = []
        self._completing: frozenset[str] = frozenset()
        if shared is None:
            server_info = messages.encode(self.identity)
            relay = Relay(members, tools, server_info, seal, handle=lambda call, sink: self.handle(call, sink))
            shared = Shared(naming, members, page_size, relay, Audience(), [], Admission())
        self.shared = shared
        self._relay = shared.relay
        self._reading = Resources(self._relay, members)
        self._prompting = Prompts(self._relay)
        stamp = self._stamp
        self._completion = Completion(self._relay, members, self._prompting, self._reading, stamp)
        self._shelves = {kind: Shelf(kind, page_size, stamp) for kind in KINDS}
        self.on_left = shared.on_left
        """Called with each client session that has ended."""
        self.audience = shared.audience
        self.admission = shared.admission
        """How much is under way. The doors count what they let in."""
        self.subscriptions = Subscriptions(self._reading, lambda: self.resources)
        self._listeners: dict[object, Callable[[frozenset[str]], None]] = {}
        self._held_listings: list[_HeldCall] | None = None

    @property
    def _stamp(self) -> bytes:
        """The `_meta` of results for stateless callers."""
        return b'"_meta":{' + messages.encode(SERVER_INFO) + b":" + messages.encode(self.identity) + b"}"

    def reconfigure(
        self,
        *,
        name: str,
        version: str,
        naming: Naming,
        page_size: int | None,
        tools: Mapping[str, CustomTool],
        seal: Seal | None,
    ) -> None:
        """From now on, behave like this; without a seal, keep the old. Lists follow with the next `publish`."""
        self.shared = self.shared._replace(naming=naming, page_size=page_size)
        self._relay.reconfigure(tools, messages.encode({"name": name, "version": version}))
        renamed = naming != self._naming
        for board in (self, *self.views.values()):
            board.shared, board._naming = self.shared, naming  # noqa: SLF001 - a view is one of us
            board.identity = {"name": name, "version": version}
            board._completion.reconfigure(board._stamp)  # noqa: SLF001
            for shelf in board._shelves.values():  # noqa: SLF001
                shelf.reconfigure(page_size, board._stamp)  # noqa: SLF001
        if seal is not None:
            self._relay.reseal(seal)
        if renamed:
            # No part of the old catalogs can be used again.
            self.sources = ()

    # --- requests -----------------------------------------------------------------------------

    def answer(self, call: Call, sink: Sink) -> Running | None:
        """Start a request. Its outcome goes to the sink, perhaps before this returns.

        Returns the request under way, to cancel it by, or None when it is already over.
        """
        try:
            if "requestState" in call.params and call.caller.revision.stateless and call.method in REPEATABLE:
                return self._relay.retry(self.catalog, call, self._changing(call, sink))
            if call.method == "tools/call":
                return self._relay.call_tool(self.catalog, call, sink)
            kind = _LISTS.get(call.method)
            if kind is None:
                return self._handle_other(call, sink)
            if self._held_listings is not None:
                return self._hold(self._held_listings, call, sink)
            sink.done(*self._shelves[kind].answer(call))
        except RpcError as error:
            sink.failed(error)
        except StillStarting as wait:
            return self._hold(wait.member.held, call, sink)
        except Exception as error:  # noqa: BLE001 - middlewares and composed tools around it wait for an outcome
            sink.failed(internal(error, method=call.method))
        return None

    def _handle_other(self, call: Call, sink: Sink) -> Running | None:
        if call.method == "resources/read":
            return self._reading.read(self.resources, call, sink)
        if call.method == "prompts/get":
            return self._prompting.get(self.prompts, call, sink)
        if call.method == "completion/complete":
            return self._completion.complete(self.prompts, self.resources, self._completing, call, sink)
        if call.method in tasks.METHODS and call.caller.revision.stateless:
            return self.tasks.handle(call, sink, self.catalog.rewriters)
        if call.method == "server/discover" and call.caller.revision.stateless:
            sink.done(self._discover())
            return None
        raise MethodNotFound(f"method {call.method} is not offered in revision {call.caller.revision.date}")

    def _changing(self, call: Call, sink: Sink) -> Sink:
        """The sink for the outcome of a call that goes on without being looked up anew."""
        if call.method == "resources/read":
            uri = messages.text(call.params.get("uri")) or ""
            place = self.resources.find(uri)
            return sink if place is None else self._reading.changing(self.resources, uri, place, call, sink)
        if call.method == "prompts/get":
            route = self.prompts.find(messages.text(call.params.get("name")) or "").route
            return sink if route is None else self._prompting.changing(self.prompts, route, call, sink)
        return sink

    def target(self, call: Call) -> tuple[str, Mapping[str, Any]]:
        """The server that a call is for, and the definition of the tool it calls; nothing where there is none."""
        if call.method == "tools/call" and (known := self.catalog.quick.get(bytes(call.params.get("name", b"")))):
            return known.upstream, known.described
        if call.method == "resources/read":
            place = self.resources.find(messages.text(call.params.get("uri")) or "")
            return ("" if place is None else place.upstream), {}
        if call.method in tasks.METHODS:
            return self.tasks.upstream_of(call), {}
        if call.method not in ("tools/call", "prompts/get"):
            return "", {}
        catalog = self.catalog if call.method == "tools/call" else self.prompts
        route = catalog.find(messages.text(call.params.get("name")) or "").route
        if route is not None:
            return route.upstream, route.described
        unlisted = self._relay.unlisted(self.catalog, call)
        if unlisted is not None:
            return unlisted[0], {}
        # A server that is being started lists nothing yet, but calls wait for it and must not slip past what is around.
        return self._relay.owner(messages.text(call.params.get("name")) or ""), {}

    def native_tool(self, name: str) -> tuple[str, str] | None:
        """The server and the tool's own name that a name means if no listed tool has it."""
        return self._relay.native(name)

    def close(self) -> None:
        """The gateway has stopped."""
        self._relay.desk.close()

    def left(self, party: object) -> None:
        """A client session has ended."""
        for hear in self.on_left:
            hear(party)

    def set_log_level(self, level: int) -> None:
        """Somebody wants log messages from this level on: every server is asked for them."""
        self._relay.set_log_level(level)

    def _hold(self, queue: list[_HeldCall] | list[Held], call: Call, sink: Sink) -> _HeldCall:
        held = _HeldCall(self, call, sink)
        queue.append(held)
        return held

    @property
    def tasks(self) -> tasks.Tasks:
        """The tasks that callers may ask about."""
        return self._relay.tasks

    def hold_listings(self) -> None:
        """Keep listings waiting until `release_listings`: most clients list once, and the servers are being started."""
        self._held_listings = []
        for view in self.views.values():
            view.hold_listings()

    def release_listings(self) -> None:
        """Answer the listings that wait, and all later ones at once."""
        held, self._held_listings = self._held_listings or [], None
        for call in held:
            call.release()
        for view in self.views.values():
            view.release_listings()

    @staticmethod
    def capabilities(revision: Revision) -> dict[str, Any]:
        """What the gateway offers to callers of a revision, whatever its servers have at the moment."""
        offered: dict[str, Any] = {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "logging": {},
        }
        if revision.completions:
            offered["completions"] = {}
        if revision.stateless:
            offered["extensions"] = {TASKS_EXTENSION: {}}
        return offered

    def _discover(self) -> bytes:
        body: dict[str, Any] = {
            "resultType": "complete",
            "supportedVersions": list(SUPPORTED),
            "capabilities": self.capabilities(NEWEST),
            **({"instructions": self.instructions} if self.instructions else {}),
            "ttlMs": _DISCOVER_TTL_MS,
            "cacheScope": "private",
            "_meta": {SERVER_INFO: self.identity},
        }
        return messages.encode(body)

    # --- the catalog --------------------------------------------------------------------------

    def publish(self, sources: Sequence[Source]) -> None:
        """Make the catalogs of these sources those in force; listeners hear of it only if something differs."""
        self.resources = self._new_resources(sources)
        self._relay.rewriters = self.resources.rewriters
        sources = [self.resources.with_apps(source) for source in sources]
        before, self.sources = self.sources, sources
        self.catalog = self._relay.whole = self._new_catalog(self.catalog, before)
        self.prompts = self._new_catalog(self.prompts, before)
        self.instructions = instructions.merged(sources, self._naming)
        self._completing = frozenset(source.upstream for source in sources if source.completes)
        self._show()
        for view in self.views.values():
            view.follow(self)

    def _show(self) -> None:
        """Put the lists where clients find them, and say which have changed."""
        lists = {TOOLS: self.catalog.pages, PROMPTS: self.prompts.pages, **self.resources.pages}
        changed = {kind for kind, pages in lists.items() if self._shelves[kind].put(pages, self._hint(kind))}
        # While listings wait nobody has seen the old ones, so nobody need hear of the new.
        if changed and self._held_listings is None:
            names = frozenset(kind.capability for kind in changed)
            for tell in list(self._listeners.values()):
                tell(names)

    def _new_resources(self, sources: Sequence[Source]) -> ResourceCatalog:
        def parts(all_of_them: Sequence[Source]) -> list[object]:
            return [
                (source.upstream, source.resources, source.templates, source.uris)
                for source in all_of_them
                if source.reads or source.resources or source.templates
            ]

        # Most changes are of something else, and there may be many resources.
        configured, self._configured = self._configured, [*self._members]
        if configured == self._configured and parts(sources) == parts(self.sources):
            return self.resources
        return build_resources(sources, self._members, self.resources)

    def _new_catalog(self, old: Catalog, before: Sequence[Source]) -> Catalog:
        def parts(all_of_them: Sequence[Source]) -> list[object]:
            return [
                (source.upstream, source.prefix, source.asked, source.own, source.of(old.kind))
                for source in all_of_them
                if any(source.of(old.kind)) or source.asked not in (None, source.prefix)
            ]

        if old.version and parts(self.sources) == parts(before):
            return old if old.rewriters is self.resources.rewriters else old.with_rewriters(self.resources.rewriters)
        return build.build(self._naming, self.sources, old.with_rewriters(self.resources.rewriters))

    def _hint(self, kind: Kind) -> Hint:
        """How long a list holds: as long as all parts of it do."""
        return Hint.of([source.hints[kind.name] for source in self.sources if kind.name in source.hints])

    @property
    def findings(self) -> list[Finding]:
        """What is odd about what the servers list."""
        return [*self.catalog.findings, *self.prompts.findings, *self.resources.findings]

    def listen(self, changed: Callable[[frozenset[str]], None]) -> Callable[[], None]:
        """Call `changed` with what has changed: any of "tools", "prompts" and "resources". Returns how to stop that."""
        key = object()
        self._listeners[key] = changed
        return lambda: self._listeners.pop(key, None) and None
