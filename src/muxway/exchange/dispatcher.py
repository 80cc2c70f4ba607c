"""Where every request comes in, whoever asks and however."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from muxway.calls.backend import StillStarting
from muxway.calls.call import LIBRARY
from muxway.calls.incidents import attempt, internal
from muxway.calls.ports import aside
from muxway.calls.sinks import Passing
from muxway.catalog import client_profiles
from muxway.catalog.client_profiles import PROFILES
from muxway.catalog.kinds import KINDS, PROMPTS, TOOLS
from muxway.errors import CallRefused, MethodNotFound, RpcError, ToolNotFound, UpstreamError
from muxway.exchange import completion, logins, prompts, resources, tasks
from muxway.exchange.forwarding import as_sent, check_arguments
from muxway.likeness import short
from muxway.routing.listings import cursor_of
from muxway.routing.router import named
from muxway.search.listing import SEARCH
from muxway.wire import envelopes
from muxway.wire.asking import REPEATABLE
from muxway.wire.revisions import NEWEST, SERVER_INFO, SUPPORTED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from muxway.calls.backend import Backend, Held, WaitingCalls
    from muxway.calls.call import Call, Caller
    from muxway.calls.ports import Running, Sink
    from muxway.calls.server_request import ServerRequest
    from muxway.catalog.kinds import Kind
    from muxway.exchange.runtime import Runtime
    from muxway.routing.listings import Listing
    from muxway.routing.router import Router
    from muxway.routing.snapshot import Snapshot, Visible
    from muxway.routing.target import Target
    from muxway.wire.envelopes import Buffer

    Answer = Callable[[Call, Sink], Running | None]

_LISTS: Final = {kind.method: kind for kind in KINDS}
_FORWARDED: Final = frozenset(("prompts/get", "resources/read", "completion/complete"))
_DISCOVER_TTL_MS: Final = 0


class _HeldCall:
    """A request that came before the servers were ready: a client need not fail for being quick."""

    __slots__ = ("_again", "_call", "_queue", "_router", "_running", "_sink", "_waited")

    def __init__(
        self, queue: dict[Held, None], router: Router, again: Answer, call: Call, sink: Sink, *, counts: bool = True
    ) -> None:
        """Keep it in this queue; `counts`: it waits for a server, and does that only so often."""
        self._queue = queue
        self._router = router
        self._waited = router.waited + 1 if counts else router.waited
        self._again = again
        self._call = call
        self._sink = sink
        self._running: Running | None = None
        queue[self] = None

    def release(self) -> None:
        # Only once, and not if it was cancelled.
        if self in self._queue:
            del self._queue[self]
            self._router.waited = self._waited
            # Others wait for the same: what goes wrong with this one is not theirs.
            attempt(self._sink.failed, self._go_on)
            self._router.waited = 0

    def _go_on(self) -> None:
        self._running = self._again(self._call, self._sink)

    def cancel(self, reason: str | None) -> None:
        # A start may take long, and nothing counts what was cancelled: so nothing of it may stay.
        self._queue.pop(self, None)
        if self._running is not None:
            self._running.cancel(reason)


class _ForClient(Passing):
    """A list that middleware has seen under public names, made one for a client that cannot take everything."""

    def __init__(self, sink: Sink, sees: Callable[[], Visible | None], visible: Visible) -> None:
        super().__init__(sink)
        self._sees = sees
        self._visible = visible

    def done(self, *result: Buffer) -> None:
        # What there is may be something else by now.
        visible = self._sees() or self._visible
        if visible.adapted is None:
            self._sink.done(*result)
            return
        listed = b"".join(result)
        work = partial(client_profiles.relisted, listed, visible.adapted, PROFILES[visible.client])
        if client_profiles.takes_long(listed):
            aside(work, lambda outcome: attempt(self._sink.failed, lambda: self._sink.done(outcome())))
        else:
            self._sink.done(work())

    def failed(self, error: RpcError) -> None:
        self._sink.failed(error)


class _CalledByName(Passing):
    """A call by `call_tool`. That there is no such tool is told as its result, so that a model can mend the name: most
    clients keep protocol errors from it. Implements `Running`.
    """

    def __init__(self, sink: Sink, call: Call, sees: Callable[[], Visible], give: Callable[[str], None]) -> None:
        super().__init__(sink)
        self._sees = sees
        self._call = call
        self._give = give
        self.running: Running | None = None
        self.over = False

    def done(self, *result: Buffer) -> None:
        self.over = True
        self._sink.done(*result)

    def failed(self, error: RpcError) -> None:
        if not isinstance(error, ToolNotFound):
            self.over = True
            self._sink.failed(error)
            return
        # What there is may be something else by now.
        visible = self._sees()
        if visible.chain is None:
            self._unknown(visible, error, ())
        else:
            visible.chain.hidden(TOOLS, self._call.caller, partial(self._unknown, visible, error))

    def _unknown(self, visible: Visible, error: RpcError, hidden: Collection[str] | RpcError) -> None:
        if self.over:
            return
        # Only for those who search.
        from muxway.search import answers

        self.over = True
        name = envelopes.text(named(self._call.params.get("arguments"))[0] or b"") or ""
        near = [] if isinstance(hidden, RpcError) else visible.tools.nearest(name, hidden)
        self._give(answers.unknown(error.message, [one for one in near if one != name]))

    def cancel(self, reason: str | None) -> None:
        self.over = True
        if self.running is not None:
            self.running.cancel(reason)


class Dispatcher:
    """The gateway for the callers of one view, or for those who see all: answers lists, and sends calls on.

    It knows its view by name, so that it need not change when the snapshot does.
    """

    __slots__ = ("_forwarder", "_of_clients", "_router", "_snapshot", "runtime", "view")

    def __init__(self, runtime: Runtime, view: str | None = None) -> None:
        self.runtime = runtime
        self.view = view
        """The name of the view; None: all is seen."""
        self._forwarder = runtime.forwarder
        self._router = runtime.router
        self._snapshot: Snapshot | None = None
        self._of_clients: dict[str, Visible] = {}
        """What callers see of that snapshot, by the profile of their client; with access rules, nothing."""

    @property
    def visible(self) -> Visible:
        """What there is for its callers now, before rules say which of them may use what."""
        return self.runtime.snapshot.visible(self.view)

    def seen(self, caller: Caller) -> Visible:
        """What a caller sees now."""
        visible = self._of_clients.get(caller.client) if self._snapshot is self.runtime.snapshot else None
        return self._look(caller) if visible is None else visible

    def making(self, caller: Caller) -> WaitingCalls | None:
        """What to wait for, if it takes long to say what a caller sees."""
        return self.runtime.making(self.view, caller.identity, caller.client)

    def find(self, caller: Caller) -> Visible | None:
        """What a caller sees now; None: it takes long to say."""
        visible = self._of_clients.get(caller.client) if self._snapshot is self.runtime.snapshot else None
        if visible is None:
            visible = self._kept(caller, self.runtime.snapshot.known(self.view, caller.identity, caller.client))
        return visible

    def _look(self, caller: Caller) -> Visible:
        visible = self.runtime.snapshot.seen(self.view, caller.identity, caller.client)
        self._kept(caller, visible)
        return visible

    def _kept(self, caller: Caller, visible: Visible | None) -> Visible | None:
        """Keep what a caller sees for the next one with such a client, unless callers differ."""
        snapshot = self.runtime.snapshot
        if snapshot.differs:
            self._snapshot = None
        elif visible is not None:
            if self._snapshot is not snapshot:
                self._snapshot, self._of_clients = snapshot, {}
            self._of_clients[caller.client] = visible
        return visible

    # --- requests -----------------------------------------------------------------------------

    def handle(self, call: Call, sink: Sink) -> Running | None:
        """Start a request, with whatever stands around it. Its outcome goes to the sink, perhaps before this returns.

        Returns the request under way, to cancel it by, or None when it is already over.
        """
        visible = self._of_clients.get(call.caller.client) if self._snapshot is self.runtime.snapshot else None
        if visible is None and (visible := self.find(call.caller)) is None:
            making = self.making(call.caller)
            if making is not None:
                return _HeldCall(making.held, self._router, self.handle, call, sink, counts=False)
            visible = self._look(call.caller)
        if visible.finders and call.method == "tools/call" and (by := self._by_name(visible, call, sink)) is not None:
            by.running = self._start(visible, call, by)
            return None if by.over else by
        return self._start(visible, call, sink)

    def _by_name(self, visible: Visible, call: Call, sink: Sink) -> _CalledByName | None:
        """Where the outcome of a call by `call_tool` goes first; None: it is none."""
        name = envelopes.text(call.params.get("name", b""))
        if name not in visible.finders or name == SEARCH or call.caller.depth:
            return None
        give = partial(self._forwarder.give, call, sink, failed=True)
        return _CalledByName(sink, call, partial(self.seen, call.caller), give)

    def _start(self, visible: Visible, call: Call, sink: Sink) -> Running | None:
        if visible.chain is None:
            return self._answer(visible, call, sink)
        if visible.before_client is not None and call.method == TOOLS.method and visible.relisted(TOOLS):
            sink = _ForClient(sink, partial(self.find, call.caller), visible)
        return visible.chain.handle(call, sink)

    def around(self, call: Call, sink: Sink, answer: Answer) -> Running | None:
        """The same for requests that the client's side answers itself, by what it gives."""
        chain = self.visible.chain
        return answer(call, sink) if chain is None else chain.around(call, sink, answer)

    def answer(self, call: Call, sink: Sink, target: Target | None = None) -> Running | None:
        """Start a request with nothing around it; `target` is what it is about, if that has been found already."""
        visible = self._of_clients.get(call.caller.client) if self._snapshot is self.runtime.snapshot else None
        if visible is None and (visible := self.find(call.caller)) is None:
            making = self.making(call.caller)
            if making is not None:
                again = partial(self.answer, target=target)
                return _HeldCall(making.held, self._router, again, call, sink, counts=False)
            visible = self._look(call.caller)
        return self._answer(visible, call, sink, target)

    def _answer(self, visible: Visible, call: Call, sink: Sink, target: Target | None = None) -> Running | None:
        try:
            if call.caller.depth:
                # What a composed tool uses, it uses of the whole.
                visible = visible.whole
            if call.method == "tools/call":
                params = call.params
                if target is None and (known := visible.targets.get(bytes(params.get("name", b"")))) is not None:
                    target = known
                elif target is None or target.found_in is not visible.tools or target.error is not None:
                    # A call that has chosen a subtool is that subtool's by now, which callers need not see.
                    if target is None or target.chosen is None:
                        router = self._router
                        target = (
                            router.resolve(visible, call)
                            if target is None
                            else router.resolve_again(visible, call, target)
                        )
                        call = target.call or call
                        params = call.params
                    if target.error is not None:
                        raise self._gone(visible, call) or target.error
                if not target.plain or "task" in params or "requestState" in params:
                    if target.searches:
                        return self._search(visible, call, sink)
                    if target.verdict is not None and not target.verdict.passes:
                        return self._judged(self._router.decide(target, call), call, sink)
                    return self._prepare_and_send(target, call, sink)
                # Nearly all calls: nothing need be done to them.
                if (arguments := params.get("arguments")) is not None and not envelopes.is_object(arguments):
                    check_arguments(target, arguments)
                backend = self.runtime.servers.get(target.server)
                connection = None if backend is None else backend.choose(call)
                if backend is None or connection is None:
                    return self._forwarder.send(target, call, sink)
                caller, untouched = call.caller, target.rewrite is None and not target.tasked
                eras = (caller.revision, connection.revision, target.wrapped)
                if untouched and caller.log_level is None and visible.settings.converters.get(eras, self) is None:
                    # Both sides speak alike: nothing is put between them.
                    return connection.request(target.head, call, sink, backend.idle, backend.limit)
                return self._forwarder.forward(target, call, sink, backend, connection)
            kind = _LISTS.get(call.method)
            if kind is not None:
                return self._list(visible, kind, call, sink)
            if call.method in _FORWARDED:
                return self._forward(visible, target, call, sink)
            return self._answer_other(visible, call, sink)
        except CallRefused as refused:
            self._forwarder.give(call, sink, refused.message, failed=True)
        except RpcError as error:
            if isinstance(error, UpstreamError) and error.reason == "login_needed" and logins.answered(call):
                waiting = self._await_login(error.upstream, call, sink, target)
                if waiting is not None:
                    return waiting
            sink.failed(error)
        except StillStarting as wait:
            return self.hold(wait, partial(self.answer, target=target), call, sink)
        except Exception as error:  # noqa: BLE001 - middlewares and composed tools around it wait for an outcome
            sink.failed(internal(error, method=call.method))
        return None

    def _judged(self, target: Target, call: Call, sink: Sink) -> Running | None:
        """Start a request that a rule looks at."""
        if target.error is not None:
            raise target.error
        rule = None if target.verdict is None else target.verdict.rule
        if rule is None or rule.do != "ask":
            return self._prepare_and_send(target, call, sink)
        return self.runtime.approvals.begin(rule, target, call, sink, partial(self._agreed, target), self.view)

    def _agreed(self, target: Target, call: Call, sink: Sink) -> Running | None:
        """Go on with a request that somebody agreed to, if its caller may still make it: rules may be others by now."""
        try:
            target = self._router.again(self.seen(call.caller), target, call)
            if target.error is not None:
                raise target.error
            return self._prepare_and_send(target, call, sink)
        except StillStarting as wait:
            return self.hold(wait, partial(self._agreed, target), call, sink)
        except CallRefused as refused:
            self._forwarder.give(call, sink, refused.message, failed=True)
            return None

    def _prepare_and_send(self, target: Target, call: Call, sink: Sink) -> Running | None:
        if self.runtime.snapshot.settings.locked and target.route is not None and target.kind is not None:
            # It may have waited for somebody to agree, or for a middleware, and have changed meanwhile.
            refusal = self.seen(call.caller).refusal(target.kind, target.server, target.route.native)
            if refusal is not None:
                raise refusal
        if target.kind is TOOLS:
            return self._retry_or_send(target, as_sent(target, call), sink)
        if call.method == "prompts/get":
            sink = prompts.prepare(target, call, sink)
        else:
            backend = self.runtime.servers.get(target.server)
            sink = resources.prepare(target, call, sink, None if backend is None else backend.choose(call))
        return self._retry_or_send(target, call, sink)

    def _await_login(self, server: str, call: Call, sink: Sink, target: Target | None) -> Running | None:
        """Keep a call whose user has agreed to log in until that is done, once, and not for ever; None: it waited."""
        backend = self.runtime.servers.get(server)
        if backend is None:
            return None
        if call.caller.identity is not None:
            backend = backend.of(call.caller.identity.owner)
        # Without the word that the user agrees: it waits once.
        again = logins.without_answer(call)
        held = _HeldCall(backend.held, self._router, lambda call, sink: self.answer(call, sink, target), again, sink)
        self._forwarder.services.clock.later(logins.WAIT, held.release)
        return held

    def _retry_or_send(self, target: Target, call: Call, sink: Sink) -> Running | None:
        forwarder = self._forwarder
        if "requestState" in call.params and call.caller.revision.stateless and call.method in REPEATABLE:
            return forwarder.retry(target, call, sink)
        if target.own is not None:
            return forwarder.compose(target.own, call, sink, target.reshape, self.handle)
        return forwarder.send(target, call, sink)

    def _forward(self, visible: Visible, target: Target | None, call: Call, sink: Sink) -> Running | None:
        """Start a request for a prompt, a resource or a completion."""
        known = visible.prompts if target is not None and target.kind is PROMPTS else visible.resources
        if target is None or target.error is not None or target.found_in is not known:
            target = self._router.resolve(visible, call)
        if target.error is not None:
            raise target.error
        if call.method != "completion/complete":
            return self._judged(self._router.decide(target, call), call, sink)
        backend = self.runtime.servers.get(target.server)
        if completion.cannot(visible, target, backend):
            sink.done(completion.nothing(visible, call))
            return None
        call, sink = completion.prepare(visible, target, call, sink, backend)
        return self._retry_or_send(target, call, sink)

    def _list(self, visible: Visible, kind: Kind, call: Call, sink: Sink) -> Running | None:
        runtime, stateless = self.runtime, call.caller.revision.stateless
        if visible.before_client is not None and kind is TOOLS and visible.relisted(TOOLS):
            visible = visible.before_client
        if kind is TOOLS and visible.discovery is not None:
            self.runtime.searches.prepare(self.view, visible)
            if not visible.discovery.pinned.texts and not call.everything:
                # It is the same whatever servers have.
                sink.done(*visible.lists[stateless][kind].answer(call))
                return None
        waiting, backends = self._listing(visible, call)
        if waiting is not None:
            return _HeldCall(waiting, self._router, self.answer, call, sink)
        self._router.renew(visible, kind)
        # Servers whose part may be out of date are asked for it again, for the next time.
        parts = [backend.asked(kind.method) for backend in backends]
        holds = min((part for part in parts if part is not None), default=None)
        listing = visible.lists[stateless][kind]
        if call.everything and kind is TOOLS:
            listing = visible.everything(stateless=stateless)
        elif kind is TOOLS and visible.pins and not stateless and call.caller.party is not None:
            listing = runtime.pin(call.caller.party, visible)
        earlier: Iterable[Listing] = ()
        if cursor_of(call) is not None:
            earlier = runtime.half_read.earlier(self.view, visible, kind, stateless=stateless)
        else:
            runtime.half_read.begun(self.view, visible, listing, stateless=stateless)
        sink.done(*listing.answer(call, earlier, holds))
        return None

    def _listing(self, visible: Visible, call: Call) -> tuple[dict[Held, None] | None, list[Backend]]:
        """Where to wait until servers have listed what they have for a caller, if need be; and these servers."""
        runtime = self.runtime
        if runtime.listings.held is not None:
            return runtime.listings.held, []
        backends = [backend for name in visible.servers if (backend := runtime.servers.get(name)) is not None]
        if runtime.snapshot.own_lists.servers and call.caller.identity is not None:
            owner = call.caller.identity.owner
            backends = [backend.of(owner) for backend in backends]
            arriving = next((queue for one in backends if (queue := one.arriving) is not None), None)
            if arriving is not None:
                return arriving, backends
        if not call.caller.revision.stateless:
            opening = next((queue for one in backends if (queue := one.opening) is not None), None)
            if opening is not None:
                return opening, backends
        return None, backends

    def _gone(self, visible: Visible, call: Call) -> RpcError | None:
        """What to say of a tool that is only in the list which its session keeps; None: it is not."""
        pinned = self.runtime.pinned.get(call.caller.party) if visible.pins else None
        name = envelopes.text(call.params.get("name"))
        if pinned is None or name is None or name not in pinned.routes or name in visible.tools.routes:
            return None
        gone = f"Tool not found: {short(name)}: it is not there any more"
        why = f"{gone}. This session keeps the list that it began with (`pin`); a new session has the new one"
        return ToolNotFound(why, code=call.caller.revision.unknown_tool_code)

    def _search(self, visible: Visible, call: Call, sink: Sink) -> Running | None:
        # Who searches wants to know what there is, as who lists does; but comes more often, so nothing is waited for
        # that is only perhaps out of date.
        waiting, backends = self._listing(visible, call)
        if waiting is not None:
            return _HeldCall(waiting, self._router, self.answer, call, sink)
        for backend in backends:
            backend.asked(TOOLS.method)
        give = partial(self._forwarder.give, call, sink)
        return self.runtime.searches.answer(self.view, visible, call, give, partial(give, failed=True))

    def _answer_other(self, visible: Visible, call: Call, sink: Sink) -> Running | None:
        stateless = call.caller.revision.stateless
        if call.method in tasks.METHODS and stateless:
            sees = partial(self._router.may_see, visible)
            return self.runtime.tasks.handle(call, sink, visible.tools.rewriters, sees)
        if call.method == "server/discover" and stateless:
            sink.done(_discovered(visible))
            return None
        raise MethodNotFound(f"method {short(call.method)} is not offered in revision {call.caller.revision.date}")

    def hold(self, wait: StillStarting, again: Answer, call: Call, sink: Sink) -> Running:
        """Keep a call until the server that may have it is up, or will not be."""
        return _HeldCall(wait.queue, self._router, again, call, sink)

    # --- what stands around requests ----------------------------------------------------------

    def target(self, call: Call, *, wait: bool = True) -> Target:
        """What a call is about, see `Router.resolve`."""
        visible = self.seen(call.caller)
        return self._router.resolve(visible.whole if call.caller.depth else visible, call, wait=wait)

    def listed(self, kind: Kind, caller: Caller) -> Mapping[str, object]:
        """What there is of a kind for a caller, by its public name; another object as soon as that changes."""
        return self.seen(caller).listed(kind)

    def unknown(self, kind: Kind, name: str, caller: Caller) -> RpcError:
        """What is said of a name that nothing has, or nothing that a caller may know of."""
        return self._router.unknown(self.seen(caller), kind, name, caller)

    def screen(self, server: str, caller: Caller, params: dict[str, Buffer]) -> dict[str, Buffer] | None:
        """What a server logs outside of any call, as a caller may see it; None: not at all."""
        chain = self.visible.chain
        return params if chain is None else chain.screen(server, caller, params)

    def screen_ask(self, caller: Caller, ask: ServerRequest) -> ServerRequest | None:
        """What a server asks outside of any call, as a caller may be asked; None: somebody else answers."""
        chain = self.visible.chain
        return ask if chain is None else chain.screen_ask(caller, ask)

    # --- what sessions are told ---------------------------------------------------------------

    def unmet(self, caller: Caller = LIBRARY) -> dict[Held, None] | None:
        """Where a session waits that opens before its only server has said what it is; None if it need not."""
        runtime = self.runtime
        if runtime.handshakes.held is not None:
            return runtime.handshakes.held
        if (making := self.making(caller)) is not None:
            return making.held
        name, naming = next(iter(self.visible.servers.items()), ("", None))
        if naming is None or not naming.bare:
            return None
        if runtime.listings.held is not None:
            return runtime.listings.held
        only = runtime.servers.get(name)
        return None if only is None else only.opening

    def shows_server(self, name: str, caller: Caller) -> bool:
        """Whether a caller may see anything of a server."""
        return self.runtime.snapshot.shows_server(self.view, caller.identity, name)

    def listen(
        self,
        changed: Callable[[frozenset[str]], None],
        who: Callable[[], Caller | None] = lambda: None,
        *,
        stateless: bool = False,
    ) -> Callable[[], None]:
        """Call `changed` with what has changed for a caller of an era: any of "tools", "prompts" and "resources".

        Returns how to stop that.
        """
        return self.runtime.listen(self.view, changed, who, stateless=stateless)


def _discovered(visible: Visible) -> bytes:
    body: dict[str, Any] = {
        "resultType": "complete",
        "supportedVersions": list(SUPPORTED),
        "capabilities": visible.offered(NEWEST),
        **({"instructions": visible.instructions} if visible.instructions else {}),
        "ttlMs": _DISCOVER_TTL_MS,
        "cacheScope": "private",
        "_meta": {SERVER_INFO: visible.settings.identity},
    }
    return envelopes.encode(body)
