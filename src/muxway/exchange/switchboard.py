"""The middle of the gateway: every request comes in at `handle`, whoever asks and however."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from muxway.calls.incidents import attempt, internal
from muxway.calls.ports import in_turns, later
from muxway.catalog import build
from muxway.catalog.kinds import KINDS, PROMPTS, RESOURCES, TOOLS
from muxway.catalog.model import EMPTY, Catalog, Finding, Hint, Pages
from muxway.catalog.resources import ResourceCatalog, build_resources
from muxway.errors import MethodNotFound, RpcError, UpstreamError
from muxway.exchange import logins, tasks
from muxway.exchange.admission import Admission
from muxway.exchange.completion import Completion
from muxway.exchange.drafting import Edition, are_many, draft
from muxway.exchange.open_sessions import OpenSessions
from muxway.exchange.prompts import Prompts
from muxway.exchange.relay import Held, Relay, StillStarting
from muxway.exchange.resources import Resources
from muxway.exchange.router import Router
from muxway.exchange.subscriptions import Subscriptions
from muxway.routing import instructions, offering
from muxway.routing.listings import Shelf
from muxway.wire import envelopes
from muxway.wire.asking import REPEATABLE
from muxway.wire.revisions import NEWEST, SERVER_INFO, SUPPORTED, Revision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from muxway.calls.call import Call, Caller
    from muxway.calls.ports import Running, Sink
    from muxway.calls.server_request import ServerRequest
    from muxway.catalog.build import Source
    from muxway.catalog.kinds import Kind
    from muxway.catalog.model import Route
    from muxway.catalog.naming import Naming
    from muxway.catalog.resources import Entry
    from muxway.config.model import CustomTool
    from muxway.exchange.drafting import Draft
    from muxway.exchange.relay import Member
    from muxway.exchange.seal import Seal
    from muxway.exchange.views import View
    from muxway.routing.target import Chosen, Target, Trace
    from muxway.wire.envelopes import Buffer

    Answer = Callable[[Call, Sink], Running | None]

_LISTS: Final = {kind.method: kind for kind in KINDS}
_DISCOVER_TTL_MS: Final = 0


class _HeldCall:
    """A request that came before the servers were ready: a client need not fail for being quick."""

    __slots__ = ("_again", "_call", "_cancelled", "_queue", "_relay", "_running", "_sink", "_waited")

    def __init__(self, queue: dict[Held, None], relay: Relay, again: Answer, call: Call, sink: Sink) -> None:
        self._queue = queue
        self._relay = relay
        self._waited = relay.waited + 1
        self._again = again
        self._call = call
        self._sink = sink
        self._cancelled = False
        self._running: Running | None = None
        queue[self] = None

    def release(self) -> None:
        if not self._cancelled:
            self._relay.waited = self._waited
            # Others wait for the same: what goes wrong with this one is not theirs.
            attempt(self._sink.failed, self._go_on)
            self._relay.waited = 0

    def _go_on(self) -> None:
        self._running = self._again(self._call, self._sink)

    def give_up(self) -> None:
        """It has waited for long enough: whatever is known now is its answer."""
        if self in self._queue:
            del self._queue[self]
            self.release()

    def cancel(self, reason: str | None) -> None:
        self._cancelled = True
        # A start may take long, and nothing counts what was cancelled: so nothing of it may stay.
        self._queue.pop(self, None)
        if self._running is not None:
            self._running.cancel(reason)


def _nothing_around(call: Call, sink: Sink, answer: Answer) -> Running | None:
    return answer(call, sink)


def _as_it_is(server: str, caller: Caller, params: dict[str, Buffer]) -> dict[str, Buffer]:
    del server, caller
    return params


def _as_asked(caller: Caller, ask: ServerRequest) -> ServerRequest:
    del caller
    return ask


class Shared(NamedTuple):
    """What a gateway and all its views have in common."""

    naming: Naming
    members: Mapping[str, Member]
    page_size: int | None
    relay: Relay
    audience: OpenSessions
    on_left: list[Callable[[object], None]]
    admission: Admission


class Switchboard:
    """Answers what the gateway answers itself and sends the rest to the upstream it belongs to."""

    # Beyond 30 attributes, CPython 3.11 keeps them in a plain dict, and each look at one costs a search.
    __slots__ = (
        "_anew",
        "_completing",
        "_completion",
        "_configured",
        "_handshake_shelves",
        "_held_listings",
        "_held_sessions",
        "_listeners",
        "_members",
        "_naming",
        "_prompting",
        "_shelves",
        "admission",
        "around",
        "audience",
        "catalog",
        "drafted",
        "handle",
        "identity",
        "instructions",
        "on_left",
        "prompts",
        "reading",
        "relay",
        "resources",
        "router",
        "screen",
        "screen_ask",
        "shared",
        "sources",
        "subscriptions",
        "takes_unlisted",
        "views",
    )

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
        self.handle: Answer = self.answer
        """Where every request comes in: `answer`, or the middleware around it."""
        self.around: Callable[[Call, Sink, Answer], Running | None] = _nothing_around
        """The same for requests that the door answers itself, by what it gives."""
        self.screen: Callable[[str, Caller, dict[str, Buffer]], dict[str, Buffer] | None] = _as_it_is
        """What a server logs outside of any call, as a caller may see it; None: not at all."""
        self.screen_ask: Callable[[Caller, ServerRequest], ServerRequest | None] = _as_asked
        """What a server asks outside of any call, as a caller may be asked; None: somebody else answers."""
        self.takes_unlisted = True
        """Whether nothing that stands around requests goes by names, or may leave something out of a list."""
        self.catalog: Catalog = replace(EMPTY, passes=self.pass_on)
        """The tools."""
        self.prompts: Catalog = replace(EMPTY, kind=PROMPTS, passes=self.pass_on)
        self.resources: ResourceCatalog = build_resources()
        self.instructions = ""
        """What the servers want a model to know, all in one."""
        self._naming = naming
        self._members = members
        self.sources: Sequence[Source] = ()
        """What is shown, by server."""
        self.views: dict[str, View] = {}
        """What some callers see of it, by name."""
        self.drafted: Draft | None = None
        """What the next `publish` may find done."""
        self._anew = False
        """Whether no part of the catalogs in force can be used again."""
        self._configured: Sequence[str] = ()
        self._completing: frozenset[str] = frozenset()
        if shared is None:
            server_info = envelopes.encode(self.identity)
            relay = Relay(members, tools, server_info, seal)
            shared = Shared(naming, members, page_size, relay, OpenSessions(), [], Admission())
        self.shared = shared
        self.relay = shared.relay
        self.reading = Resources(self.relay, members)
        self._prompting = Prompts(self.relay)
        self.router = Router(self)
        """Finds what a request is about."""
        stamp = self._stamp
        self._completion = Completion(self.relay, members, self._prompting, self.reading, stamp)
        self._shelves = {kind: Shelf(kind, page_size, stamp) for kind in KINDS}
        """What stateless callers see."""
        self._handshake_shelves = {kind: Shelf(kind, page_size, stamp) for kind in KINDS}
        """What the others see, the same unless a server lists otherwise in each era."""
        self.on_left = shared.on_left
        """Called with each client session that has ended."""
        self.audience = shared.audience
        self.admission = shared.admission
        """How much is under way. The doors count what they let in."""
        self.subscriptions = Subscriptions(self.reading, lambda: self.resources)
        self._listeners: dict[object, tuple[Callable[[frozenset[str]], None], bool]] = {}
        self._held_listings: dict[Held, None] | None = None
        self._held_sessions: dict[Held, None] | None = None

    @property
    def _stamp(self) -> bytes:
        """The `_meta` of results for stateless callers."""
        return b'"_meta":{' + envelopes.encode(SERVER_INFO) + b":" + envelopes.encode(self.identity) + b"}"

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
        self.relay.reconfigure(tools, envelopes.encode({"name": name, "version": version}))
        renamed = naming != self._naming
        for board in (self, *self.views.values()):
            board.shared, board._naming = self.shared, naming  # noqa: SLF001 - a view is one of us
            board.identity = {"name": name, "version": version}
            board._completion.reconfigure(board._stamp)  # noqa: SLF001
            for shelf in (*board._shelves.values(), *board._handshake_shelves.values()):  # noqa: SLF001
                shelf.reconfigure(page_size, board._stamp)  # noqa: SLF001
        if seal is not None:
            self.relay.reseal(seal)
        if renamed:
            self._anew = True

    def unwrap(self) -> None:
        """Put nothing around requests."""
        self.handle, self.around = self.answer, _nothing_around
        self.screen, self.screen_ask = _as_it_is, _as_asked
        self.takes_unlisted = True

    # --- requests -----------------------------------------------------------------------------

    def answer(self, call: Call, sink: Sink, chosen: Chosen | None = None) -> Running | None:
        """Start a request. Its outcome goes to the sink, perhaps before this returns.

        A call of a subtool that a compound tool was asked for comes with what was chosen.

        Returns the request under way, to cancel it by, or None when it is already over.
        """
        try:
            if "requestState" in call.params and call.caller.revision.stateless and call.method in REPEATABLE:
                return self._retry(call, sink, chosen)
            if call.method == "tools/call":
                return self.relay.call_tool(self.catalog, call, sink, self._step, chosen)
            kind = _LISTS.get(call.method)
            if kind is None:
                return self._handle_other(call, sink)
            if self._held_listings is not None:
                return _HeldCall(self._held_listings, self.relay, self.answer, call, sink)
            shelves = self._shelves if call.caller.revision.stateless else self._handshake_shelves
            if shelves is self._handshake_shelves:
                opening = next((one.opening for one in self._members.values() if one.opening is not None), None)
                if opening is not None and opening.starting:
                    return _HeldCall(opening.held, self.relay, self.answer, call, sink)
            self.relay.renew(kind)
            sink.done(*shelves[kind].answer(call, self._asked(kind)))
        except RpcError as error:
            if isinstance(error, UpstreamError) and error.reason == "login_needed" and logins.answered(call):
                waiting = self._await_login(error.upstream, call, sink, chosen)
                if waiting is not None:
                    return waiting
            sink.failed(error)
        except StillStarting as wait:
            return self.hold(wait, lambda call, sink: self.answer(call, sink, chosen), call, sink)
        except Exception as error:  # noqa: BLE001 - middlewares and composed tools around it wait for an outcome
            sink.failed(internal(error, method=call.method))
        return None

    def _await_login(self, upstream: str, call: Call, sink: Sink, chosen: Chosen | None) -> Running | None:
        """Keep a call whose user has agreed to log in until that is done, once, and not for ever; None: it waited."""
        member = self.shared.members.get(upstream)
        if member is None or self.relay.waited:
            return None
        held = _HeldCall(member.held, self.relay, lambda call, sink: self.answer(call, sink, chosen), call, sink)
        later(logins.WAIT, held.give_up)
        return held

    def _step(self, call: Call, sink: Sink) -> Running | None:
        """Start a call of a composed tool's step: through the same middleware as the calls of its caller."""
        return self.handle(call, sink)

    def _asked(self, kind: Kind) -> int | None:
        """A client asks for a list: servers whose part may be out of date are asked for it again, for the next time.

        Returns for how many milliseconds all parts still hold, if anybody knows.
        """
        parts = [member.home.asked(kind) for member in self._members.values() if member.home is not None]
        return min((part for part in parts if part is not None), default=None)

    def pass_on(self, kind: Kind, name: str) -> Route | None:
        """Where a name that is not listed leads: the only server, without a prefix, is as if nothing were before it.

        Unless anything might hide it: then it leads nowhere.
        """
        source = next((source for source in self.sources if not source.own), None)
        if source is None or source.prefix or len(self.shared.members) != 1 or not self.takes_unlisted:
            return None
        return build.pass_on(source, kind, name)

    def _handle_other(self, call: Call, sink: Sink) -> Running | None:
        if call.method == "resources/read":
            return self.reading.read(self.resources, call, sink)
        if call.method == "prompts/get":
            return self._prompting.get(self.prompts, call, sink)
        if call.method == "completion/complete":
            return self._completion.complete(self.prompts, self.resources, self._completing, call, sink)
        if call.method in tasks.METHODS and call.caller.revision.stateless:
            return self.tasks.handle(call, sink, self.catalog.rewriters, self._may_see)
        if call.method == "server/discover" and call.caller.revision.stateless:
            sink.done(self._discover())
            return None
        raise MethodNotFound(f"method {call.method} is not offered in revision {call.caller.revision.date}")

    def _retry(self, call: Call, sink: Sink, chosen: Chosen | None) -> Running | None:
        """Go on with a call that was answered with questions; looked up anew, as what it is for may be gone by now."""
        if call.method == "resources/read":
            return self.relay.retry(*self.reading.aim(self.resources, call, sink))
        if call.method == "prompts/get":
            return self.relay.retry(*self._prompting.aim(self.prompts, call, sink))
        return self.relay.retry(self.relay.aim(self.catalog, call, chosen), sink)

    def _may_see(self, trace: Trace) -> bool:
        """Whether callers may know of the tool that a task is of. Raises as sending a call of it does."""
        if self.router.of_trace(trace) is not None:
            return True
        member = self.shared.members.get(trace.upstream)
        if member is None or member.link is None:
            # A server that is away lists nothing, which hides nothing. A view shows what it would show.
            return self.catalog.admits is None or self.catalog.admits(trace.upstream, trace.tool)
        self.relay.explain_absence(self.catalog, trace.tool)
        return False

    def target(self, call: Call, *, wait: bool = True) -> Target:
        """What a call is about, see `Router.resolve`."""
        return self.router.resolve(call, wait=wait)

    def listed(self, kind: Kind) -> Mapping[str, object]:
        """What there is of a kind, by name; another object as soon as that changes."""
        if kind is TOOLS:
            return self.catalog.routes
        return self.prompts.routes if kind is PROMPTS else self.resources.resources

    def shows_server(self, name: str) -> bool:
        """Whether anything of a server may be seen here."""
        return name in self._members

    def native_tool(self, name: str) -> tuple[str, str] | None:
        """The server and the tool's own name that a name means if no listed tool has it."""
        return self.relay.native(name)

    def close(self) -> None:
        """The gateway has stopped."""
        self.relay.desk.close()

    def left(self, party: object) -> None:
        """A client session has ended."""
        self.relay.log_levels.left(party)
        for hear in self.on_left:
            hear(party)

    def set_log_level(self, party: object, level: int) -> None:
        """A session wants log messages from this level on: every server is asked for them while it is there."""
        self.relay.set_log_level(party, level)

    def hold(self, wait: StillStarting, again: Answer, call: Call, sink: Sink) -> Running:
        """Keep a call until the server that may have it is up, or will not be."""
        return _HeldCall(wait.member.held, self.relay, again, call, sink)

    @property
    def tasks(self) -> tasks.Tasks:
        """The tasks that callers may ask about."""
        return self.relay.tasks

    def hold_listings(self) -> None:
        """Keep listings waiting until `release_listings`: most clients list once, and the servers are being started."""
        self._held_listings = {}
        for view in self.views.values():
            view.hold_listings()

    def release_listings(self) -> None:
        """Answer the listings that wait, and all later ones at once."""
        held, self._held_listings = list(self._held_listings or ()), None
        in_turns(one.release() for one in held)
        for view in self.views.values():
            view.release_listings()

    def hold_sessions(self) -> None:
        """Keep handshakes waiting until `release_sessions`: what is remembered of the servers is being put in order."""
        for board in (self, *self.views.values()):
            board._held_sessions = {}  # noqa: SLF001 - a view is one of us

    def release_sessions(self) -> None:
        """Answer the handshakes that wait, and all later ones at once."""
        for board in (self, *self.views.values()):
            held, board._held_sessions = list(board._held_sessions or ()), None  # noqa: SLF001
            in_turns(one.release() for one in held)

    def unmet(self) -> dict[Held, None] | None:
        """Where a session waits that opens before its only server has said what it is; None if it need not."""
        if self._held_sessions is not None:
            return self._held_sessions
        only = next(iter(self._members.values()), None)
        if only is None or not only.bare:
            return None
        if self._held_listings is not None:
            return self._held_listings
        return only.opening.held if only.opening is not None and only.opening.starting else None

    def capabilities(self, revision: Revision) -> dict[str, Any]:
        """What callers of a revision are offered at the moment."""
        return offering.offered(self.sources, self._members, revision)

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
        return envelopes.encode(body)

    # --- the catalog --------------------------------------------------------------------------

    def publish(self, sources: Sequence[Source]) -> None:
        """Make the catalogs of these sources those in force; listeners hear of it only if something differs."""
        now, configured = self.edition, [*self._members]
        drafted, self.drafted = self.drafted, None
        if drafted is not None and not drafted.fits(now, configured, sources):
            drafted = None
        edition = now.next(configured, sources) if drafted is None else drafted.edition
        self._configured, self.sources, self._anew = edition.configured, edition.sources, False
        self.resources, self.prompts = edition.resources, edition.prompts
        self.resources.forget_others()
        self.relay.rewriters = self.resources.rewriters
        self.catalog = self.relay.whole = edition.tools
        self.instructions = instructions.merged(self.sources, self._naming)
        self._completing = frozenset(source.upstream for source in self.sources if source.completes)
        self._show()
        for name, view in self.views.items():
            view.follow(edition, None if drafted is None else drafted.cuts.get(name))

    def drafting(self, sources: Sequence[Source]) -> Callable[[], Draft] | None:
        """What any thread may do before these sources are published, for `drafted`; None if there is nothing to do."""
        now, configured = self.edition, [*self._members]
        if not are_many(sources) or (self.drafted is not None and self.drafted.fits(now, configured, sources)):
            return None
        return partial(draft, now, configured, sources, dict(self.views))

    @property
    def edition(self) -> Edition:
        """What is in force."""
        sources = () if self._anew else self.sources
        return Edition(self._naming, self._configured, sources, self.catalog, self.prompts, self.resources)

    def _show(self) -> None:
        """Put the lists where clients find them, and say which have changed."""
        lists = {TOOLS: self.catalog.pages, PROMPTS: self.prompts.pages, **self.resources.pages}
        changed: dict[bool, frozenset[str]] = {}
        for stateless, shelves in ((False, self._handshake_shelves), (True, self._shelves)):
            hidden = {
                (source.upstream, *one) for source in self.sources for one in source.unlisted[1 if stateless else 0]
            }
            changed[stateless] = frozenset(
                kind.capability
                for kind, pages in lists.items()
                if shelves[kind].put(self._without(hidden, kind) if hidden else pages, self._hint(kind))
            )
        # While listings wait nobody has seen the old ones, so nobody need hear of the new.
        if self._held_listings is None:
            for tell, stateless in list(self._listeners.values()):
                if changed[stateless]:
                    tell(changed[stateless])

    def _without(self, hidden: set[tuple[str, str, str]], kind: Kind) -> Pages:
        """The list of a kind without some of it, by upstream, kind and native name."""
        listed: Iterable[Route | Entry]
        if kind is TOOLS or kind is PROMPTS:
            listed = (self.catalog if kind is TOOLS else self.prompts).routes.values()
        else:
            listed = (self.resources.resources if kind is RESOURCES else self.resources.templates).values()
        return Pages([one.definition for one in listed if (one.upstream, kind.name, one.native) not in hidden])

    def _hint(self, kind: Kind) -> Hint:
        """How long a list holds: as long as all parts of it do."""
        return Hint.of([source.hints[kind.name] for source in self.sources if kind.name in source.hints])

    @property
    def findings(self) -> list[Finding]:
        """What is odd about what the servers list."""
        return [*self.catalog.findings, *self.prompts.findings, *self.resources.findings]

    def listen(self, changed: Callable[[frozenset[str]], None], *, stateless: bool = False) -> Callable[[], None]:
        """Call `changed` with what has changed for callers of an era: any of "tools", "prompts" and "resources".

        Returns how to stop that.
        """
        key = object()
        self._listeners[key] = (changed, stateless)
        return lambda: self._listeners.pop(key, None) and None
