"""From a request to its target, through what its caller sees; or the server to wait for.

What is listed is decided by the snapshot alone. A name that is not listed may belong to a server that is being started,
or be new at one: then whoever asks is told to wait for that server, and asks again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from muxway.calls.backend import StillStarting, refuse
from muxway.calls.sinks import chain
from muxway.catalog.kinds import PROMPTS, RESOURCES, TEMPLATES, TOOLS
from muxway.catalog.naming import SEPARATORS, has_prefix, spellings
from muxway.catalog.resources import Place
from muxway.catalog.uris import LONGEST, unwrap
from muxway.errors import (
    INVALID_PARAMS,
    CallRefused,
    InvalidParams,
    NameNotPrefixed,
    ParseError,
    RpcError,
    ToolNotFound,
)
from muxway.likeness import short
from muxway.routing import subtools
from muxway.routing.target import NOTHING, Target, Trace
from muxway.search.listing import SEARCH
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from msgspec import Raw

    from muxway.access.rules import Ruling
    from muxway.calls.backend import Backend
    from muxway.calls.call import Call, Caller
    from muxway.catalog.kinds import Kind
    from muxway.catalog.model import Catalog, Route
    from muxway.routing.snapshot import Visible
    from muxway.wire.envelopes import Buffer, Params

NOT_FOUND: Final = -32002
"""No such resource, in the handshake revisions; 2026-07-28 has no code of its own for it."""
_REMEMBERED: Final = 10_000
"""Names, in the spelling they came in, whose targets are remembered: callers choose the spelling."""
_LARGEST_JUDGED: Final = 256 * 1024
_WITH_ARGUMENTS: Final = frozenset(("tools/call", "prompts/get"))
"""Bytes of arguments, not written as we would write them, that a rule may look at: it takes some 20 ns for each."""
_NO_ARGUMENTS: Final = envelopes.Raw(b"{}")
_COUNTED: Final = envelopes.counted_members()
_MOST_WAITS: Final = 4
"""How often a call waits before it is told that what it calls is not listed: some lists never stand still."""


class Router:
    """Finds the targets of requests."""

    def __init__(self, trace_of: Callable[[Call], Trace | None], backends: Mapping[str, Backend]) -> None:
        """Prepare; `trace_of` says which call a request about a task is about, None for one that there is not."""
        self._trace_of = trace_of
        self._backends = backends
        self.waited = 0
        """How often the call that is being looked at just now has waited already."""
        self._finders: dict[str, Callable[[Visible, Call, bool], Target]] = {
            "tools/call": self._tool,
            "prompts/get": self._prompt,
            "resources/read": self._resource,
            "resources/subscribe": self._resource,
            "resources/unsubscribe": self._resource,
            "completion/complete": self._completion,
            "tasks/get": self._task,
            "tasks/update": self._task,
            "tasks/cancel": self._task,
        }

    def resolve(self, visible: Visible, call: Call, *, wait: bool = True) -> Target:
        """What a call is about. What cannot be found is nothing's, or the server's that its name begins with.

        Raises:
            StillStarting: a server that may have it is being started, and `wait` is set.
        """
        find = self._finders.get(call.method)
        target = NOTHING if find is None else find(visible, call, wait)
        return target if target.verdict is None or not target.verdict.first else self.decide(target, call)

    def decide(self, target: Target, call: Call) -> Target:
        """The target of a call whose arguments a rule or a person looks at, with what is decided about just this call.

        Raises:
            InvalidParams: nobody can say what its arguments are.
        """
        if target.verdict is None or call.method not in _WITH_ARGUMENTS:
            return target
        if not target.verdict.first or call.method != "tools/call":
            if target.verdict.do == "ask" and (raw := call.params.get("arguments")) is not None:
                # Somebody agrees to what is shown of them, so that must be what the server reads.
                _object(raw, largest=None)
            return target
        verdict = target.verdict.of(_arguments(call))
        if verdict.do != "deny":
            return msgspec.structs.replace(target, verdict=verdict)
        return Target(kind=TOOLS, verdict=verdict, error=_no_tool(call.params.get("name"), call.caller))

    def again(self, visible: Visible, target: Target, call: Call) -> Target:
        """The target of a call that has waited, as what there is, and rules, have it now. Raises as `resolve` does."""
        if call.caller.depth:
            visible = visible.whole
        if target.chosen is None:
            return self.decide(self.resolve_again(visible, call, target), call)
        # The call is that of the subtool by now.
        now = self.of_trace(visible, Trace(target.server, envelopes.text(target.spelled) or "", target.head))
        if now is None:
            return Target(kind=TOOLS, error=_no_tool(target.spelled, call.caller))
        now = self.decide(now, call)
        return target if now.error is None else now

    # --- tools --------------------------------------------------------------------------------

    def _tool(self, visible: Visible, call: Call, wait: bool) -> Target:
        spelled = bytes(call.params.get("name", b""))
        known = visible.targets.get(spelled)
        if known is not None:
            return known
        name = envelopes.text(spelled)
        if name is None:
            error = InvalidParams("params.name must be a string: the name of the tool to call")
            return self._absent(visible, TOOLS, "", error)
        if name in visible.finders and not call.caller.depth:
            return self._finder(visible, visible.finders[name], call, wait)
        return self._found(visible, spelled, name, call, wait)

    def _found(self, visible: Visible, spelled: bytes, name: str, call: Call, wait: bool) -> Target:
        route = visible.tools.find(name).route
        if route is None:
            return self._unlisted(visible, TOOLS, name, call, wait)
        target = self.of_route(visible, route)
        if target.vague and target.own is not None and not target.own.steps:
            return self._compound(visible, target, route, call)
        # What is refused is looked up each time: those that are remembered are called without a further look. So are
        # the names of tools by which others are found, which mean something else to who calls them directly.
        if target.error is None and len(visible.targets) < _REMEMBERED and name not in visible.finders:
            visible.targets[spelled] = target
        return target

    def _finder(self, visible: Visible, route: Route, call: Call, wait: bool) -> Target:
        """The target of a call of a tool by which others are found, or called: then it is that of the other tool."""
        if route.public == SEARCH:
            return Target("", (route.public,), TOOLS, route, found_in=visible.tools, searches=True)
        spelled, arguments = named(call.params.get("arguments"))
        if spelled is None or (name := envelopes.text(spelled)) is None:
            why = f"{route.public} takes the name of a tool, and its arguments, each once."
            error = CallRefused(f"Nothing was called: {why}")
            return Target("", (route.public,), TOOLS, route, found_in=visible.tools, chosen=route, error=error)
        if name in visible.finders:
            # Looked up once more, as it is after whatever stands around calls, it would lead to yet another tool.
            other = _other_spelling(visible, name)
            if other is None:
                error = self._not_found(visible, TOOLS, name, call.caller)
                return msgspec.structs.replace(self._absent(visible, TOOLS, name, error), chosen=route)
            name, spelled = other, envelopes.Raw(envelopes.encode(other))
        if arguments is None or envelopes.is_null(arguments):
            arguments = _NO_ARGUMENTS
        params = {**call.params, "name": spelled, "arguments": arguments}
        inner = msgspec.structs.replace(call, params=params)
        known = visible.targets.get(bytes(spelled))
        target = known or self._found(visible, bytes(spelled), name, inner, wait)
        if target.verdict is not None and target.verdict.first:
            target = self.decide(target, inner)
        return self._called_by(route, target, inner)

    def resolve_again(self, visible: Visible, call: Call, earlier: Target) -> Target:
        """What a call is about whose target was found in a list that is not in force any more.

        Raises as `resolve` does.
        """
        target = self.resolve(visible, call)
        return target if earlier.finder is None else self._called_by(earlier.finder, target, call)

    def _called_by(self, finder: Route, target: Target, call: Call) -> Target:
        """The target of a call by `call_tool`: an error of it if tier or arguments are not those of the tool."""
        # Only for those who search.
        from muxway.routing.refusing import misfit

        inner = target.call or call
        if target.error is None and (why := misfit(finder, target, call.params.get("arguments"))):
            # It stays that of the tool, so that whatever is around its calls is around this one.
            return msgspec.structs.replace(target, call=inner, chosen=target.chosen or finder, error=CallRefused(why))
        return msgspec.structs.replace(target, call=inner, finder=finder)

    def of_route(self, visible: Visible, route: Route) -> Target:
        """The target of a listed tool; of a compound tool, the target of a call that chooses nothing."""
        shape, verdict = route.shape, visible.verdict(TOOLS, route)
        watched = verdict is not None and not verdict.passes
        refusal = visible.refusal(TOOLS, route.upstream, route.native)
        return Target(
            route.upstream,
            (route.public,),
            TOOLS,
            route,
            route.head,
            () if shape is None else (shape,),
            None if shape is None else shape.reshaper,
            visible.tools.rewriters.get(route.upstream),
            route.wrapped,
            route.tasked,
            None if route.upstream else visible.settings.tools[route.native],
            vague=not route.upstream,
            plain=shape is None and route.upstream != "" and not watched and refusal is None,
            verdict=verdict,
            error=refusal,
            found_in=visible.tools,
        )

    def of_native(self, visible: Visible, upstream: str, native: str) -> Target:
        """The target of a server's tool by its own name, listed or not. Its shape counts all the same."""
        # What rules hide is looked at all the same: they decide by what it is.
        whole = visible.whole
        before = whole.before_rules or whole
        catalog = before.tools
        route, names = before.native(upstream, native)
        verdict = whole.verdict_of(TOOLS, upstream, names) if route is None else whole.verdict(TOOLS, route)
        shape = catalog.shapes.get((upstream, native))
        return Target(
            upstream,
            names,
            TOOLS,
            route,
            subtools.head_of(native),
            () if shape is None else (shape,),
            None if shape is None else shape.reshaper,
            catalog.rewriters.get(upstream),
            tasked=route is not None and route.tasked,
            verdict=verdict,
            error=visible.refusal(TOOLS, upstream, native),
            found_in=visible.tools,
        )

    def _compound(self, visible: Visible, target: Target, route: Route, call: Call) -> Target:
        try:
            given = call.params.get("arguments")
            if route.shape is not None:
                given = route.shape.arguments(given)
            target = self.decide(target, call)
            if target.error is not None:
                return target
            choice = subtools.choose(visible.settings.tools, route.native, given, partial(self._may_run, visible))
        except RpcError as error:
            # Nothing will be called, unless a middleware puts it right.
            return msgspec.structs.replace(target, error=error)
        sub = self.of_native(visible, choice.upstream, choice.tool)
        verdict = target.verdict
        if verdict is not None and sub.verdict is not None:
            verdict = verdict.stricter(sub.verdict.of(_object(choice.args)))
            if verdict.do == "deny":
                error = subtools.refusal(visible.settings.tools, route.native, given, partial(self._may_run, visible))
                return msgspec.structs.replace(target, verdict=verdict, error=error)
        params: dict[str, Raw] = {
            **call.params,
            "name": envelopes.Raw(envelopes.encode(sub.names[0])),
            "arguments": choice.args,
        }
        return msgspec.structs.replace(
            sub,
            names=(*sub.names, route.public),
            reshape=chain(sub.reshape, target.reshape),
            verdict=verdict,
            call=msgspec.structs.replace(call, params=params),
            chosen=route,
            spelled=call.params["name"],
        )

    def _may_run(self, visible: Visible, upstream: str, native: str) -> bool:
        """Whether a subtool may be chosen at all."""
        verdict = self.of_native(visible, upstream, native).verdict
        return verdict is None or verdict.shown

    # --- names that are not listed ------------------------------------------------------------

    def _unlisted(self, visible: Visible, kind: Kind, name: str, call: Call, wait: bool) -> Target:
        catalog = visible.catalog(kind)
        if kind is TOOLS and call.caller.depth and (own := self.native(visible, name)) is not None:
            # A composed tool may use what clients do not see, but not what its caller may not use.
            target = self.of_native(visible, *own)
            if target.verdict is None or target.verdict.shown:
                return target
            return self._absent(visible, TOOLS, name, self._not_found(visible, TOOLS, name, call.caller))
        error: RpcError | None = None
        try:
            self.explain_absence(visible, catalog, name)
        except StillStarting:
            if wait:
                raise
        except RpcError as refusal:
            error = refusal
        if (route := visible.unlisted(kind, name)) is not None:
            target = self.of_route(visible, route) if kind is TOOLS else self._of_prompt(visible, route)
            return msgspec.structs.replace(target, error=error)
        return self._absent(visible, kind, name, error or self._not_found(visible, kind, name, call.caller))

    def _absent(self, visible: Visible, kind: Kind, name: str, error: RpcError) -> Target:
        """What a name is about that leads nowhere: whatever is around its server's calls is around this one."""
        catalog, owner = visible.catalog(kind), self.owner(visible, name)
        if catalog.admits is not None and not catalog.admits(owner, name):
            owner = ""
        known = None if visible.before_rules is None else visible.before_rules.catalog(kind).find(name).route
        verdict = None if known is None else visible.verdict(kind, known)
        return Target(owner, kind=kind, verdict=verdict, error=error)

    def unknown(self, visible: Visible, kind: Kind, name: str, caller: Caller) -> RpcError:
        """What is said of a name that nothing has, or nothing that a caller may know of."""
        return _no_resource(name, caller) if kind is RESOURCES else self._not_found(visible, kind, name, caller)

    def _not_found(self, visible: Visible, kind: Kind, name: str, caller: Caller) -> RpcError:
        catalog = visible.catalog(kind)
        # Where middleware may hide some from this caller nothing tells those from what there is not.
        hides = visible.chain is not None and visible.chain.hides(kind)
        near = [] if hides else catalog.nearest(name)
        data = {"muxway": {"nearest": near}} if near else None
        # Nor does it say which two an ambiguous name may be, or that it may be two.
        problem = "" if hides else catalog.find(name).problem
        problem = problem or f"{kind.not_found}: {short(name)}"
        if kind is PROMPTS:
            return InvalidParams(problem, data=data)
        if not hides and not has_prefix(name) and all(one.prefix for one in visible.whole.servers.values()):
            return NameNotPrefixed(f"Tool name must be prefixed with server key: {short(name)}", data=data)
        return ToolNotFound(problem, code=caller.revision.unknown_tool_code, data=data)

    def explain_absence(self, visible: Visible, catalog: Catalog, name: str) -> None:
        """A tool or prompt that is not listed may be one of a server that is down, or it may be new there.

        Raises:
            UpstreamError: its server is down.
            StillStarting: a server that may have it is being started, or its list is being read again.
        """
        servers = visible.whole.servers
        upstream = catalog.former.get(name) or self.owner(visible, name)
        names = [upstream, *(other for other, one in servers.items() if one.unprefixed and other != upstream)]
        candidates = [(other, backend) for other in names if (backend := self._backend(visible, other)) is not None]
        if catalog.admits is not None:
            candidates = [(other, backend) for other, backend in candidates if catalog.admits(other, name)]
        for other, backend in candidates:
            if backend.connection is None and (other == upstream or backend.starting or len(servers) == 1):
                refuse(other, backend)
        self._look_again([backend for _, backend in candidates], catalog.kind)

    def _backend(self, visible: Visible, server: str) -> Backend | None:
        """What takes calls for a server, of those who see this; None if there is none."""
        backend = self._backends.get(server)
        return backend if backend is None or visible.owner is None else backend.of(visible.owner)

    def _look_again(self, backends: Iterable[Backend], *kinds: Kind) -> None:
        """What is not listed may be new at one of these servers.

        Raises:
            StillStarting: a list of one of them is being read again.
        """
        if self.waited >= _MOST_WAITS:
            return
        # All of them at once; then one after the other is waited for.
        there = [backend for backend in backends if backend.connection is not None]
        begin = not self.waited
        wanted = [(backend, backend.want(kind.method, begin=begin)) for backend in there for kind in kinds]
        for backend, reading in wanted:
            if reading:
                raise StillStarting(backend)

    def renew(self, visible: Visible, kind: Kind) -> None:
        """A client asks for a list. The only server is asked again, as it would be without a gateway, if calls may have
        changed what it lists, and it would not say so.

        Raises:
            StillStarting: that is being done.
        """
        only = next(iter(visible.whole.servers.items()), None)
        if only is None or not only[1].bare or self.waited >= _MOST_WAITS:
            return
        backend = self._backend(visible, only[0])
        if backend is None:
            return
        if backend.want(kind.method, begin=False) if self.waited else backend.renew(kind.method):
            raise StillStarting(backend)

    def owner(self, visible: Visible, name: str) -> str:
        """The server whose name, or prefix, a tool's name begins with; the longest one, if there are several."""
        owners = [
            (len(start), upstream)
            for upstream, naming in visible.whole.servers.items()
            for start in (upstream, naming.prefix)
            if start and any(name.startswith(start + separator) for separator in SEPARATORS)
        ]
        return max(owners, default=(0, ""))[1]

    def native(self, visible: Visible, name: str) -> tuple[str, str] | None:
        """The server and the tool's own name that are written as one; None if it begins with no server's name."""
        upstream = self.owner(visible, name)
        naming = visible.whole.servers.get(upstream)
        if naming is None:
            return None
        starts = [start + separator for start in (upstream, naming.prefix) if start for separator in SEPARATORS]
        return upstream, name.removeprefix(next(start for start in starts if name.startswith(start)))

    # --- prompts and resources ------------------------------------------------------------------

    def _prompt(self, visible: Visible, call: Call, wait: bool) -> Target:
        return self._named_prompt(visible, envelopes.text(call.params.get("name")), "params.name", call, wait)

    def _named_prompt(self, visible: Visible, name: str | None, where: str, call: Call, wait: bool) -> Target:
        if name is None:
            error = InvalidParams(f"{where} must be a string: the name of a prompt")
            return self._absent(visible, PROMPTS, "", error)
        route = visible.prompts.find(name).route
        return self._unlisted(visible, PROMPTS, name, call, wait) if route is None else self._of_prompt(visible, route)

    def _of_prompt(self, visible: Visible, route: Route) -> Target:
        rewrite = visible.prompts.rewriters.get(route.upstream)
        return Target(
            route.upstream,
            (route.public,),
            PROMPTS,
            route,
            route.head,
            rewrite=rewrite,
            verdict=visible.verdict(PROMPTS, route),
            error=visible.refusal(PROMPTS, route.upstream, route.native),
            found_in=visible.prompts,
        )

    def _resource(self, visible: Visible, call: Call, wait: bool) -> Target:
        uri = envelopes.text(call.params.get("uri"))
        if uri is None:
            return Target(error=InvalidParams("params.uri must be a string: the URI of the resource to read"))
        place = self._place(visible, uri, wait)
        if place is None:
            error = _no_resource(uri, call.caller)
            return Target(names=(uri,), kind=RESOURCES, verdict=self._hidden_uri(visible, uri), error=error)
        head = b'"method":"resources/read","params":{"uri":' + envelopes.encode(place.native)
        rewrite = visible.resources.contents_rewriter(uri, place)
        return Target(
            place.upstream,
            self._uris(visible, uri, place),
            RESOURCES,
            head=head,
            rewrite=rewrite,
            verdict=visible.verdict_of(RESOURCES, place.upstream, (place.native,)),
            found_in=visible.resources,
        )

    def _hidden_uri(self, visible: Visible, uri: str) -> Ruling | None:
        """What hides a URI that leads nowhere, if it is a rule."""
        place = None if visible.before_rules is None else visible.before_rules.resources.find(uri)
        return None if place is None else visible.verdict_of(RESOURCES, place.upstream, (place.native,))

    def _uris(self, visible: Visible, uri: str, place: Place) -> tuple[str, ...]:
        part = visible.resources.part(place.upstream)
        listed = None if part is None else part.publics.get(place.native)
        # Callers have several spellings for a resource, and a pattern may be written for any of them.
        return tuple(dict.fromkeys((listed or uri, place.native, uri)))

    def _place(self, visible: Visible, uri: str, wait: bool) -> Place | None:
        try:
            return self.place(visible, uri)
        except StillStarting:
            if wait:
                raise
            return visible.resources.find(uri)

    def place(self, visible: Visible, uri: str) -> Place | None:
        """Where a URI leads. Raises StillStarting if that will be known in a moment."""
        place = visible.resources.find_listed(uri)
        if place is not None:
            return place
        backends = {name: one for name in visible.servers if (one := self._backend(visible, name)) is not None}
        upstream, native = unwrap(uri) or ("", uri)
        backend = backends.get(upstream)
        if backend is not None:
            # It may be in this server's gift once it is there; sending says why it is not.
            verdict = visible.verdict_of(RESOURCES, upstream, (native,))
            shown = verdict is None or verdict.shown
            return Place(upstream, native) if backend.connection is None and shown else None
        # Whose it is cannot be told before all are there.
        for backend in backends.values():
            if backend.starting:
                raise StillStarting(backend)
        place = visible.resources.find(uri)
        if place is None:
            self._look_again(backends.values(), RESOURCES, TEMPLATES)
        return place

    def _completion(self, visible: Visible, call: Call, wait: bool) -> Target:
        ref = envelopes.members(call.params.get("ref", b""))
        if ref is None:
            why = "params.ref must be an object: the prompt or resource template to complete for"
            return Target(error=InvalidParams(why))
        kind = envelopes.text(ref.get("type"))
        if kind == "ref/prompt":
            name = envelopes.text(ref.get("name"))
            prompt = self._named_prompt(visible, name, "params.ref.name", call, wait)
            head = b"" if prompt.route is None else _completed(ref, "name", prompt.route.native)
            # What is filled in is the prompt's, but no prompt is asked for.
            return msgspec.structs.replace(prompt, route=None, head=head, rewrite=None)
        if kind != "ref/resource":
            return Target(error=InvalidParams("params.ref.type must be ref/prompt or ref/resource"))
        uri = envelopes.text(ref.get("uri"))
        if uri is None:
            why = "params.ref.uri must be a string: a resource template, or the URI of a resource"
            return Target(error=InvalidParams(why))
        template = visible.resources.find_template(uri)
        if template is not None:
            names, kind_ = tuple(dict.fromkeys((uri, template.native))), TEMPLATES
        else:
            template = self._place(visible, uri, wait) if len(uri) <= LONGEST else None
            if template is None:
                error = InvalidParams(f"Resource template not found: {short(uri)}")
                return Target(names=(uri,), kind=RESOURCES, verdict=self._hidden_uri(visible, uri), error=error)
            names, kind_ = self._uris(visible, uri, template), RESOURCES
        head = _completed(ref, "uri", template.native)
        verdict = visible.verdict_of(RESOURCES, template.upstream, (template.native,))
        return Target(template.upstream, names, kind_, head=head, verdict=verdict, found_in=visible.resources)

    # --- tasks --------------------------------------------------------------------------------

    def _task(self, visible: Visible, call: Call, wait: bool) -> Target:
        del wait
        trace = self._trace_of(call)
        if trace is None:
            return NOTHING
        known = self.of_trace(visible, trace)
        if known is not None:
            return known
        # Nobody lists it now, as when its server is away: what stands around it goes by what it was called.
        native = subtools.native_of(trace.head)
        names = (trace.tool,)
        if native is not None:
            names = (*self.of_native(visible, trace.upstream, native).names, trace.tool)
        return Target(trace.upstream, tuple(dict.fromkeys(names)))

    def of_trace(self, visible: Visible, trace: Trace) -> Target | None:
        """The tool that a call was of, if those who see this can still call just that; None if not."""
        route = visible.tools.find(trace.tool).route
        if route is None:
            return None
        target = self.of_route(visible, route)
        if target.own is None:
            return target if (route.upstream, route.head) == (trace.upstream, trace.head) else None
        if target.own.steps:
            return target if trace.upstream == target.own.name else None
        natives = {sub.name for sub in target.own.subtools.get(trace.upstream, ())}
        native = next((name for name in natives if subtools.head_of(name) == trace.head), None)
        if native is None:
            return None
        sub = self.of_native(visible, trace.upstream, native)
        if sub.verdict is not None and not sub.verdict.shown:
            return None
        return msgspec.structs.replace(sub, names=(*sub.names, route.public))

    def may_see(self, visible: Visible, trace: Trace) -> bool:
        """Whether callers may know of the tool that a task is of. Raises as sending a call of it does."""
        if self.of_trace(visible, trace) is not None:
            return True
        backend = self._backend(visible, trace.upstream)
        if backend is None or backend.connection is None:
            # A server that is away lists nothing, which hides nothing. A view shows what it would show.
            return visible.tools.admits is None or visible.tools.admits(trace.upstream, trace.tool)
        self.explain_absence(visible, visible.tools, trace.tool)
        return False


def named(given: Raw | None) -> tuple[Raw | None, Raw | None]:
    """The name of a tool and its arguments, as `call_tool` takes them; None if readers may differ in what they are."""
    if given is None or not envelopes.is_object(given):
        return None, None
    try:
        members = _COUNTED(given)
    except (ParseError, envelopes.TooManyMembers):
        return None, None
    wanted = dict(members)
    return (wanted.get("name"), wanted.get("arguments")) if len(wanted) == len(members) else (None, None)


def _no_tool(spelled: Raw | None, caller: Caller) -> RpcError:
    problem = f"{TOOLS.not_found}: {short(envelopes.text(spelled) or '')}"
    return ToolNotFound(problem, code=caller.revision.unknown_tool_code)


def _no_resource(uri: str, caller: Caller) -> RpcError:
    code = INVALID_PARAMS if caller.revision.stateless else NOT_FOUND
    return RpcError(f"Resource not found: {short(uri)}", code=code, data={"uri": short(uri, 4096)})


def _other_spelling(visible: Visible, name: str) -> str | None:
    """Another name of a server's tool that can be taken for nothing else; None if there is none."""
    route = visible.tools.find(name).route
    if route is None or not route.upstream:
        return None
    found = (one for one in spellings(route.upstream, route.alias) if visible.tools.find(one).route is route)
    return next((one for one in found if one not in visible.finders), None)


def _arguments(call: Call) -> dict[str, Any]:
    """The arguments of a call, for rules. Raises InvalidParams if readers may differ in what they are."""
    raw = call.params.get("arguments")
    return {} if raw is None else _object(raw)


def _object(raw: Raw, largest: int | None = _LARGEST_JUDGED) -> dict[str, Any]:
    if not envelopes.is_object(raw):
        return {}
    value = envelopes.value(raw)
    if envelopes.encode(value) != bytes(raw):
        # Not as we would write it: that takes longer to look through.
        if largest is not None and len(raw) > largest:
            raise InvalidParams("params.arguments are too large for the rule that looks at them")
        if envelopes.stands_twice(raw):
            raise InvalidParams("params.arguments has a duplicate key, which is not passed on")
    return value


def _completed(ref: Params, name: str, value: str) -> bytes:
    """The start of a completion for what a server calls so."""
    members: dict[str, Buffer] = {**ref, name: envelopes.encode(value)}
    return b'"method":"completion/complete","params":{"ref":' + envelopes.object_of(members.items())
