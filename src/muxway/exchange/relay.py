"""One tool call: public name → upstream and native name, or why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import msgspec
from msgspec import Raw

from muxway.calls.backend import StillStarting
from muxway.calls.sinks import chain
from muxway.catalog.model import EMPTY
from muxway.catalog.naming import SEPARATORS, has_prefix
from muxway.composed import own_tools
from muxway.errors import InvalidParams, ToolNotFound, UpstreamError
from muxway.exchange.forwarding import Forwarder
from muxway.likeness import short
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from muxway.calls.backend import Backend
    from muxway.calls.call import Call
    from muxway.calls.ports import LiveConnection, Running, Sink
    from muxway.catalog.kinds import Kind
    from muxway.catalog.model import Catalog, Route
    from muxway.config.model import CustomTool
    from muxway.exchange.seal import Seal
    from muxway.routing.target import Chosen
    from muxway.wire.result_types import Converter

    Handle = Callable[[Call, Sink], Running | None]


_MOST_WAITS: Final = 4
"""How often a call waits before it is told that what it calls is not listed: some lists never stand still."""


class Aim(NamedTuple):
    """A call as its server gets it."""

    upstream: str
    """Empty: it is for a composed tool."""
    head: bytes
    """The start of the call; for a composed tool, its name."""
    call: Call
    wrapped: bool = False
    tasked: bool = False
    reshape: Converter | None = None
    """What its shape does to the result."""


class Relay:
    """Sends tool calls where the catalog says."""

    def __init__(
        self,
        members: Mapping[str, Backend],
        tools: Mapping[str, CustomTool],
        server_info: bytes,
        seal: Seal | None = None,
    ) -> None:
        self.forwarder = Forwarder(members, self._connection, server_info, seal)
        self._members = members
        self.tools = tools
        """The gateway's own, as configured."""
        self.whole: Catalog = EMPTY
        """Every tool, whatever the view of a caller shows."""
        self.waited = 0
        """How often the call that is being looked at just now has waited already."""

    def reconfigure(self, tools: Mapping[str, CustomTool], server_info: bytes) -> None:
        """Other tools of the gateway's own, another name of the gateway itself."""
        self.tools = tools
        self.forwarder.reconfigure(server_info)

    def call_tool(
        self, catalog: Catalog, call: Call, sink: Sink, handle: Handle, chosen: Chosen | None = None
    ) -> Running | None:
        """Start a `tools/call`.

        Args:
            catalog: the tools that the caller sees.
            call: the request; of a subtool, if one is chosen already.
            sink: hears the outcome.
            handle: the caller's own front, where the calls of a composed tool go.
            chosen: the subtool that the call is for.

        Raises:
            RpcError: it can be refused at once.
            StillStarting: its server may have it in a moment.
        """
        params = call.params
        spelled = bytes(params.get("name", b""))
        route = catalog.quick.get(spelled)
        if route is None or chosen is not None:
            aim = self.aim(catalog, call, chosen)
        elif route.shape is None and route.upstream:
            # Looked at here first, as nearly all calls need neither.
            if (arguments := params.get("arguments")) is not None and not envelopes.is_object(arguments):
                _check_arguments(route, call)
            if "task" in params:
                call = _without_task(call)
            return self.forwarder.send(
                route.upstream, route.head, call, sink, wrapped=route.wrapped, tasked=route.tasked
            )
        else:
            aim = self._aim(route, call)
        upstream, head, call, wrapped, tasked, reshape = aim
        if not upstream:
            return self.forwarder.compose(self.tools[head.decode()], call, sink, reshape, handle)
        return self.forwarder.send(upstream, head, call, sink, wrapped=wrapped, tasked=tasked, reshape=reshape)

    def aim(self, catalog: Catalog, call: Call, chosen: Chosen | None = None) -> Aim:
        """A call as its server gets it. Raises as `call_tool` does."""
        if chosen is not None:
            _check_arguments(chosen.compound, call)
            shape = chosen.compound.shape
            params = {**_without_task(call).params, "name": chosen.name}
            call = msgspec.structs.replace(call, params=params)
            return self._at(chosen.upstream, chosen.native, call, None if shape is None else shape.reshaper)
        if (unlisted := self.unlisted(catalog, call)) is not None:
            return self._at(*unlisted, call, None)
        spelled = bytes(call.params.get("name", b""))
        route = self._find(catalog, call, envelopes.text(spelled))
        if route.public in catalog.routes:
            # Whether another name may pass is judged for each call.
            catalog.remember(spelled, route)
        return self._aim(route, call)

    def _aim(self, route: Route, call: Call) -> Aim:
        """A call of a listed tool as its server gets it. Raises InvalidParams."""
        _check_arguments(route, call)
        call = _without_task(call)
        reshape: Converter | None = None
        if route.shape is not None:
            call = _with_arguments(call, route.shape.arguments(call.params.get("arguments")))
            reshape = route.shape.reshaper
        if route.upstream:
            return Aim(route.upstream, route.head, call, route.wrapped, route.tasked, reshape)
        if self.tools[route.native].steps:
            return Aim("", route.native.encode(), call, reshape=reshape)
        choice = own_tools.choose(self.tools, route.native, call.params.get("arguments"))
        return self._at(choice.upstream, choice.tool, _with_arguments(call, choice.args), reshape)

    def _at(self, upstream: str, native: str, call: Call, reshape: Converter | None) -> Aim:
        """A call of a server's tool by its own name, listed or not. Its shape counts all the same."""
        shape = self.whole.shapes.get((upstream, native))
        if shape is not None:
            call = _with_arguments(call, shape.arguments(call.params.get("arguments")))
            reshape = chain(shape.reshaper, reshape)
        tool = self.whole_route(upstream, native)
        return Aim(upstream, own_tools.head_of(native), call, tasked=tool is not None and tool.tasked, reshape=reshape)

    def whole_route(self, upstream: str, native: str) -> Route | None:
        """The listed tool that a server calls so; None if it is not listed."""
        route = self.whole.find(f"{upstream}__{native}").route
        return route if route is not None and (route.upstream, route.native) == (upstream, native) else None

    def prefix_of(self, upstream: str) -> str:
        """What stands before a server's tools in the listing; its name, if nothing does."""
        member = self._members.get(upstream)
        return upstream if member is None else member.prefix or upstream

    def unlisted(self, catalog: Catalog, call: Call) -> tuple[str, str] | None:
        """The server and the own name of a tool that a composed tool uses and clients do not see; None for all else."""
        if not call.caller.depth:
            return None
        name = envelopes.text(call.params.get("name")) or ""
        return None if catalog.find(name).route is not None else self.native(name)

    def native(self, name: str) -> tuple[str, str] | None:
        """The server and the tool's own name that are written as one; None if it begins with no server's name."""
        upstream = self.owner(name)
        member = self._members.get(upstream)
        if member is None:
            return None
        starts = [start + separator for start in (upstream, member.prefix) if start for separator in SEPARATORS]
        return upstream, name.removeprefix(next(start for start in starts if name.startswith(start)))

    def _find(self, catalog: Catalog, call: Call, name: str | None) -> Route:
        if name is None:
            raise InvalidParams("params.name must be a string: the name of the tool to call")
        found = catalog.find(name)
        if found.route is not None:
            return found.route
        self.explain_absence(catalog, name)
        if (route := catalog.unlisted(name)) is not None:
            return route
        near = catalog.nearest(name)
        data = {"muxway": {"nearest": near}} if near else None
        if not has_prefix(name) and all(member.prefix for member in self._members.values()):
            raise InvalidParams(f"Tool name must be prefixed with server key: {short(name)}", data=data)
        raise ToolNotFound(found.problem, code=call.caller.revision.unknown_tool_code, data=data)

    def explain_absence(self, catalog: Catalog, name: str) -> None:
        """A tool or prompt that is not listed may be one of a server that is down, or it may be new there.

        Raises:
            UpstreamError: its server is down.
            StillStarting: a server that may have it is being started, or its list is being read again.
        """
        upstream = catalog.former.get(name) or self.owner(name)
        owner = self._members.get(upstream)
        candidates = [] if owner is None else [(upstream, owner)]
        candidates += [
            (other, member) for other, member in self._members.items() if member.unprefixed and other != upstream
        ]
        if catalog.admits is not None:
            candidates = [(other, member) for other, member in candidates if catalog.admits(other, name)]
        for other, member in candidates:
            if member.link is None and (member is owner or member.starting or len(self._members) == 1):
                self._refuse(other, member)
        self.look_again([member for _, member in candidates], catalog.kind)

    def look_again(self, members: Iterable[Backend], *kinds: Kind) -> None:
        """What is not listed may be new at one of these servers.

        Raises:
            StillStarting: a list of one of them is being read again.
        """
        if self.waited >= _MOST_WAITS:
            return
        # All of them at once; then one after the other is waited for.
        begin, there = not self.waited, [member for member in members if member.link is not None]
        wanted = [(member, member.want(kind.method, begin=begin)) for member in there for kind in kinds]
        for member, reading in wanted:
            if reading:
                raise StillStarting(member)

    def renew(self, kind: Kind) -> None:
        """A client asks for a list. The only server is asked again, as it would be without a gateway, if calls may have
        changed what it lists, and it would not say so.

        Raises:
            StillStarting: that is being done.
        """
        only = next(iter(self._members.values()), None)
        if only is None or not only.bare or self.waited >= _MOST_WAITS:
            return
        if only.want(kind.method, begin=False) if self.waited else only.renew(kind.method):
            raise StillStarting(only)

    def owner(self, name: str) -> str:
        """The server whose name, or prefix, a tool's name begins with; the longest one, if there are several."""
        owners = [
            (len(start), upstream)
            for upstream, member in self._members.items()
            for start in (upstream, member.prefix)
            if start and any(name.startswith(start + separator) for separator in SEPARATORS)
        ]
        return max(owners, default=(0, ""))[1]

    def _refuse(self, upstream: str, member: Backend) -> NoReturn:
        if member.starting or member.wake():
            raise StillStarting(member)
        retry_in = member.retry_in
        why = f'server "{upstream}" is not running: {member.absence}'
        if retry_in is not None:
            why += f"; it is started again in {max(retry_in, 0.1):.1f} s"
        raise UpstreamError(upstream, "not_running", why, retry_after=retry_in)

    def _connection(self, upstream: str, call: Call) -> tuple[Backend, LiveConnection]:
        """An upstream and its link for this call. Raises UpstreamError or StillStarting if there is none."""
        member = self._members.get(upstream)
        if member is None:
            why = f'server "{upstream}" is not running: it is not configured or disabled'
            raise UpstreamError(upstream, "not_running", why)
        link = member.choose(call)
        if link is None:
            self._refuse(upstream, member)
        return member, link


def _check_arguments(route: Route, call: Call) -> None:
    arguments = call.params.get("arguments")
    if arguments is not None and not envelopes.is_object(arguments) and not envelopes.is_null(arguments):
        raise InvalidParams(f"params.arguments of {route.public} must be an object")


def _without_task(call: Call) -> Call:
    if "task" not in call.params:
        return call
    # Whether a call is a task is between the gateway and the server.
    return msgspec.structs.replace(call, params={name: raw for name, raw in call.params.items() if name != "task"})


def _with_arguments(call: Call, arguments: Raw) -> Call:
    return msgspec.structs.replace(call, params={**call.params, "arguments": arguments})
