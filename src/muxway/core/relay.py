"""One tool call: public name → upstream and native name → the upstream's answer in the caller's spelling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

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


class Member(msgspec.Struct):
    """An upstream as the relay sees it. The link comes and goes; the rest lasts."""

    idle: float
    """Seconds of silence after which a call is given up."""
    limit: float
    """Seconds after which a call is given up in any case."""
    link: Link | None = None
    absence: str = "it is still starting"
    """Why there is no link, while there is none."""


class Relay:
    """Sends tool calls where the catalog says."""

    def __init__(self, members: Mapping[str, Member], tools: Mapping[str, CustomTool], server_info: bytes) -> None:
        self._members = members
        self._tools = tools
        self._server_info = server_info
        self._converters: dict[tuple[Revision, Revision], Converter | None] = {}

    def call_tool(self, catalog: Catalog, call: Call, sink: Sink) -> Running | None:
        """Start a `tools/call`. What can be refused at once is raised."""
        name = messages.text(call.params.get("name"))
        if name is None:
            raise InvalidParams("params.name must be a string: the name of the tool to call")
        arguments = call.params.get("arguments")
        if arguments is not None and not messages.is_object(arguments):
            raise InvalidParams(f"params.arguments of {name} must be an object")
        route = catalog.routes.get(name) or self._find(catalog, call, name)
        if route.upstream:
            return self._send(route.upstream, route.head, call, sink)
        choice = custom.choose(self._tools, route.native, call)
        head = b'"method":"tools/call","params":{"name":' + messages.encode(choice.tool)
        params = {**call.params, "arguments": choice.args}
        return self._send(choice.upstream, head, msgspec.structs.replace(call, params=params), sink)

    def _find(self, catalog: Catalog, call: Call, name: str) -> Route:
        found = catalog.find(name)
        if found.route is not None:
            return found.route
        self._explain_absence(name)
        if found.missing_prefix:
            raise InvalidParams(found.problem or "")
        near = catalog.nearest(name)
        data = {"muxway": {"nearest": near}} if near else None
        raise ToolNotFound(found.problem or "", code=call.caller.revision.unknown_tool_code, data=data)

    def _explain_absence(self, name: str) -> None:
        """A tool of a server that is down is not unknown: say so instead."""
        for upstream, member in self._members.items():
            if member.link is None and any(name.startswith(upstream + separator) for separator in ("__", ":", ".")):
                raise UpstreamError(upstream, "not_running", f'server "{upstream}" is not running: {member.absence}')

    def _send(self, upstream: str, head: bytes, call: Call, sink: Sink) -> Running | None:
        member = self._members.get(upstream)
        if member is None or member.link is None:
            why = "it has been removed" if member is None else member.absence
            raise UpstreamError(upstream, "not_running", f'server "{upstream}" is not running: {why}')
        pair = (call.caller.revision, member.link.revision)
        if pair in self._converters:
            convert = self._converters[pair]
        else:
            convert = self._converters[pair] = bridge.result_converter(*pair, self._server_info)
        if convert is not None:
            sink = _Converting(sink, convert, upstream)
        return member.link.request(head, call, sink, idle=member.idle, limit=member.limit)


class _Converting:
    """A sink that turns the result into the caller's spelling first."""

    __slots__ = ("_convert", "_sink", "_upstream")

    def __init__(self, sink: Sink, convert: Converter, upstream: str) -> None:
        self._sink = sink
        self._convert = convert
        self._upstream = upstream

    def done(self, *result: Buffer) -> None:
        try:
            converted = self._convert(b"".join(result))
        except bridge.InputRequired:
            why = f'server "{self._upstream}" asks for input, which it was told this caller cannot give'
            self._sink.failed(UpstreamError(self._upstream, "unsupported", why))
        else:
            self._sink.done(converted)

    def failed(self, error: RpcError) -> None:
        self._sink.failed(error)

    def progress(self, params: dict[str, Buffer]) -> None:
        self._sink.progress(params)
