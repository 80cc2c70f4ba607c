"""From a request to its target, through what one board shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from muxway.calls.backend import StillStarting
from muxway.catalog.kinds import PROMPTS, RESOURCES, TEMPLATES, TOOLS
from muxway.catalog.naming import spellings
from muxway.composed import own_tools
from muxway.errors import ParseError, RpcError
from muxway.routing.target import NOTHING, Chosen, Target
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from msgspec import Raw

    from muxway.calls.call import Call
    from muxway.catalog.model import Catalog, Route
    from muxway.catalog.resources import Place
    from muxway.exchange.switchboard import Switchboard
    from muxway.routing.target import Trace

_REMEMBERED: Final = 10_000
"""Names, in the spelling they came in, whose targets are remembered: callers choose the spelling."""


class Router:
    """Finds the targets of one board's requests."""

    def __init__(self, board: Switchboard) -> None:
        self._board = board
        self._catalog: Catalog | None = None
        """The one that `_tools` is about."""
        self._tools: dict[bytes, Target] = {}
        self._finders: dict[str, Callable[[Call, bool], Target]] = {
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

    def resolve(self, call: Call, *, wait: bool = True) -> Target:
        """What a call is about. What cannot be found is nothing's, or the server's that its name begins with.

        Raises:
            StillStarting: a server that may have it is being started, and `wait` is set.
        """
        find = self._finders.get(call.method)
        return NOTHING if find is None else find(call, wait)

    # --- tools --------------------------------------------------------------------------------

    def _tool(self, call: Call, wait: bool) -> Target:
        catalog = self._board.catalog
        if catalog is not self._catalog:
            self._catalog, self._tools = catalog, {}
        spelled = bytes(call.params.get("name", b""))
        known = self._tools.get(spelled)
        if known is not None:
            return known
        name = envelopes.text(spelled) or ""
        route = catalog.find(name).route
        if route is None:
            return self._unlisted(catalog, call, name, wait)
        if not route.upstream and not self._board.relay.tools[route.native].steps:
            return self._compound(route, call)
        target = self.of_route(route)
        if len(self._tools) < _REMEMBERED:
            self._tools[spelled] = target
        return target

    def of_route(self, route: Route) -> Target:
        """The target of a listed tool or prompt; of a compound tool, the target of a call that chooses nothing."""
        own = not route.upstream
        return Target(route.upstream, (route.public,), _described(route), TOOLS, vague=own)

    def _unlisted(self, catalog: Catalog, call: Call, name: str, wait: bool) -> Target:
        relay = self._board.relay
        step = relay.unlisted(catalog, call)
        if step is not None:
            return self.of_native(*step)
        try:
            if name:
                relay.explain_absence(catalog, name)
        except StillStarting:
            if wait:
                raise
        except RpcError:
            # Sending says so; whatever is around the server's calls is around this one.
            pass
        if (route := catalog.unlisted(name)) is not None:
            return Target(route.upstream, (route.public,), _described(route), catalog.kind)
        owner = relay.owner(name)
        if catalog.admits is not None and not catalog.admits(owner, name):
            return Target(kind=catalog.kind)
        return Target(owner, kind=catalog.kind)

    def _compound(self, route: Route, call: Call) -> Target:
        relay = self._board.relay
        try:
            given = call.params.get("arguments")
            if route.shape is not None:
                given = route.shape.arguments(given)
            choice = own_tools.choose(relay.tools, route.native, given)
        except RpcError:
            # Nothing will be called, unless a middleware puts it right.
            return self.of_route(route)
        return self._subtool(route, call, choice)

    def _subtool(self, route: Route, call: Call, choice: own_tools.Choice) -> Target:
        sub = self.of_native(choice.upstream, choice.tool)
        name = call.params["name"]
        params: dict[str, Raw] = {
            **call.params,
            "name": envelopes.Raw(envelopes.encode(sub.names[0])),
            "arguments": choice.args,
        }
        return msgspec.structs.replace(
            sub,
            names=(*sub.names, route.public),
            call=msgspec.structs.replace(call, params=params),
            chosen=Chosen(route, name, choice.upstream, choice.tool),
        )

    def of_native(self, upstream: str, native: str) -> Target:
        """The target of a server's tool by its own name, listed or not."""
        route = self._board.relay.whole_route(upstream, native)
        if route is not None:
            return self.of_route(route)
        starts = dict.fromkeys((self._board.relay.prefix_of(upstream), upstream))
        return Target(upstream, tuple(name for start in starts for name in spellings(start, native)), kind=TOOLS)

    # --- the rest -----------------------------------------------------------------------------

    def _prompt(self, call: Call, wait: bool) -> Target:
        return self._named_prompt(envelopes.text(call.params.get("name")) or "", call, wait)

    def _named_prompt(self, name: str, call: Call, wait: bool) -> Target:
        prompts = self._board.prompts
        route = prompts.find(name).route
        if route is None:
            return self._unlisted(prompts, call, name, wait)
        return Target(route.upstream, (route.public,), _described(route), PROMPTS)

    def _resource(self, call: Call, wait: bool) -> Target:
        uri = envelopes.text(call.params.get("uri"))
        return NOTHING if uri is None else self._at(uri, self._place(uri, wait))

    def _place(self, uri: str, wait: bool) -> Place | None:
        board = self._board
        try:
            return board.reading.find(board.resources, uri)
        except StillStarting:
            if wait:
                raise
            return board.resources.find(uri)

    def _at(self, uri: str, place: Place | None) -> Target:
        if place is None:
            return Target(names=(uri,), kind=RESOURCES)
        part = self._board.resources.part(place.upstream)
        listed = None if part is None else part.publics.get(place.native)
        # Callers have several spellings for a resource, and a pattern may be written for any of them.
        names = dict.fromkeys((listed or uri, place.native, uri))
        return Target(place.upstream, tuple(names), kind=RESOURCES)

    def _completion(self, call: Call, wait: bool) -> Target:
        ref = envelopes.members(call.params.get("ref", b"")) or {}
        name, uri = envelopes.text(ref.get("name")), envelopes.text(ref.get("uri"))
        kind = envelopes.text(ref.get("type"))
        if kind == "ref/prompt" and name is not None:
            # What is filled in is the prompt's, but no prompt is asked for.
            return msgspec.structs.replace(self._named_prompt(name, call, wait), definition={})
        if kind != "ref/resource" or uri is None:
            return NOTHING
        template = self._board.resources.find_template(uri)
        if template is None:
            return self._at(uri, self._place(uri, wait))
        return Target(template.upstream, tuple(dict.fromkeys((uri, template.native))), kind=TEMPLATES)

    # --- tasks --------------------------------------------------------------------------------

    def _task(self, call: Call, wait: bool) -> Target:
        del wait
        trace = self._board.tasks.trace_of(call)
        if trace is None:
            return NOTHING
        known = self.of_trace(trace)
        if known is not None:
            return known
        # Nobody lists it now, as when its server is away: what stands around it goes by what it was called.
        native = own_tools.native_of(trace.head)
        names = (trace.tool,) if native is None else (*self.of_native(trace.upstream, native).names, trace.tool)
        return Target(trace.upstream, tuple(dict.fromkeys(names)))

    def of_trace(self, trace: Trace) -> Target | None:
        """The tool that a call was of, if callers of this board can still call just that; None if not."""
        board = self._board
        route = board.catalog.find(trace.tool).route
        if route is None:
            return None
        if route.upstream:
            return self.of_route(route) if (route.upstream, route.head) == (trace.upstream, trace.head) else None
        tool = board.relay.tools[route.native]
        if tool.steps:
            return self.of_route(route) if trace.upstream == tool.name else None
        subtools = {sub.name for sub in tool.subtools.get(trace.upstream, ())}
        native = next((name for name in subtools if own_tools.head_of(name) == trace.head), None)
        if native is None:
            return None
        sub = self.of_native(trace.upstream, native)
        return msgspec.structs.replace(sub, names=(*sub.names, route.public))


def _described(route: Route) -> Mapping[str, Any]:
    try:
        return route.described
    except ParseError:
        # Valid JSON that Python cannot hold, such as 1e999: then its name is all that is known of it.
        return {"name": route.public}
