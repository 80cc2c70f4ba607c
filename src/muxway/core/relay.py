"""One tool call: public name → upstream and native name → the upstream's answer in the caller's spelling."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Protocol

import msgspec

from muxway.catalog.naming import SEPARATORS, has_prefix
from muxway.core import custom
from muxway.errors import InvalidParams, RpcError, ToolNotFound, UpstreamError
from muxway.protocol import bridge, messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.catalog.model import Catalog, Route
    from muxway.config.model import CustomTool
    from muxway.core.call import Call
    from muxway.core.ports import Link, Running, Sink
    from muxway.protocol.bridge import Converter
    from muxway.protocol.era import Revision
    from muxway.protocol.messages import Buffer


class Held(Protocol):
    """A call that waits for its server."""

    def release(self) -> None:
        """The server is up, or will not be."""
        ...


class StillStarting(Exception):
    """The call is for a server that is being started: it can be sent as soon as that is over."""

    def __init__(self, member: Member) -> None:
        super().__init__()
        self.member = member


class Member(msgspec.Struct):
    """An upstream as the relay sees it. The link comes and goes; the rest lasts."""

    idle: float
    """Seconds of silence after which a call is given up."""
    limit: float
    """Seconds after which a call is given up in any case."""
    prefix: str = ""
    """What stands before its tools' names in the listing."""
    starting: bool = True
    """Whether it is being started; every start ends, well or badly, within the server's own time limit."""
    link: Link | None = None
    absence: str = "it is still starting"
    """Why there is no link, while there is none."""
    held: list[Held] = []
    """Calls that wait for the start to be over."""

    def settle(self, link: Link | None, absence: str) -> None:
        """The start is over, or the link is gone."""
        self.starting, self.link, self.absence = False, link, absence

    def release(self) -> None:
        """The catalog shows how things are now: calls that waited for the start go on their way."""
        held, self.held = self.held, []
        for call in held:
            call.release()


class Relay:
    """Sends tool calls where the catalog says."""

    def __init__(self, members: Mapping[str, Member], tools: Mapping[str, CustomTool], server_info: bytes) -> None:
        self._members = members
        self._tools = tools
        self._server_info = server_info
        self._converters: dict[tuple[Revision, Revision, bool], Converter | None] = {}

    def call_tool(self, catalog: Catalog, call: Call, sink: Sink) -> Running | None:
        """Start a `tools/call`.

        Raises:
            RpcError: it can be refused at once.
            StillStarting: its server may have it in a moment.
        """
        params = call.params
        spelled = bytes(params.get("name", b""))
        route = catalog.quick.get(spelled)
        if route is None:
            route = self._find(catalog, call, messages.text(spelled))
            catalog.remember(spelled, route)
        arguments = params.get("arguments")
        if arguments is not None and not messages.is_object(arguments) and not messages.is_null(arguments):
            raise InvalidParams(f"params.arguments of {route.public} must be an object")
        if route.upstream:
            return self._send(route.upstream, route.head, call, sink, wrapped=route.wrapped)
        choice = custom.choose(self._tools, route.native, call)
        head = b'"method":"tools/call","params":{"name":' + messages.encode(choice.tool)
        params = {**call.params, "arguments": choice.args}
        return self._send(choice.upstream, head, msgspec.structs.replace(call, params=params), sink)

    def _find(self, catalog: Catalog, call: Call, name: str | None) -> Route:
        if name is None:
            raise InvalidParams("params.name must be a string: the name of the tool to call")
        found = catalog.find(name)
        if found.route is not None:
            return found.route
        self._explain_absence(catalog, name)
        near = catalog.nearest(name)
        data = {"muxway": {"nearest": near}} if near else None
        if not has_prefix(name) and all(member.prefix for member in self._members.values()):
            raise InvalidParams(f"Tool name must be prefixed with server key: {name}", data=data)
        raise ToolNotFound(found.problem, code=call.caller.revision.unknown_tool_code, data=data)

    def _explain_absence(self, catalog: Catalog, name: str) -> None:
        """A tool of a server that is down, or not up yet, is not unknown: say so instead."""
        upstream = catalog.former.get(name) or self._owner(name)
        member = self._members.get(upstream)
        if member is not None and member.link is None:
            self._refuse(upstream, member)

    def _owner(self, name: str) -> str:
        """The server whose name, or prefix, a tool's name begins with; the longest one, if there are several."""
        owners = [
            (len(start), upstream)
            for upstream, member in self._members.items()
            for start in (upstream, member.prefix)
            if start and any(name.startswith(start + separator) for separator in SEPARATORS)
        ]
        return max(owners, default=(0, ""))[1]

    def _refuse(self, upstream: str, member: Member) -> NoReturn:
        if member.starting:
            raise StillStarting(member)
        raise UpstreamError(upstream, "not_running", f'server "{upstream}" is not running: {member.absence}')

    def _send(self, upstream: str, head: bytes, call: Call, sink: Sink, *, wrapped: bool = False) -> Running | None:
        member = self._members.get(upstream) or Member(0, 0, starting=False, absence="it is not configured or disabled")
        if member.link is None:
            self._refuse(upstream, member)
        link = member.link
        crossing = (call.caller.revision, link.revision, wrapped)
        try:
            convert = self._converters[crossing]
        except KeyError:
            caller, spoken, _ = crossing
            convert = bridge.result_converter(caller, spoken, self._server_info, wrapped=wrapped)
            self._converters[crossing] = convert
        if convert is not None:
            sink = _Converting(sink, convert, upstream)
        return link.request(head, call, sink, idle=member.idle, limit=member.limit)


class _Converting:
    """A sink that turns the result into the caller's spelling first."""

    __slots__ = ("_convert", "_sink", "_upstream")

    def __init__(self, sink: Sink, convert: Converter, upstream: str) -> None:
        self._sink = sink
        self._convert = convert
        self._upstream = upstream

    def done(self, *result: Buffer) -> None:
        try:
            converted = self._convert(result[0] if len(result) == 1 else b"".join(result))
        except bridge.InputRequired:
            why = f'server "{self._upstream}" asks for input, which it was told this caller cannot give'
            self._sink.failed(UpstreamError(self._upstream, "unsupported", why))
        else:
            self._sink.done(converted)

    def failed(self, error: RpcError) -> None:
        self._sink.failed(error)

    def progress(self, params: dict[str, Buffer]) -> None:
        self._sink.progress(params)
