"""One request → its server, and its outcome back in the caller's words; or on with one that was asked something.

Where both sides speak alike the request passes: nothing stands between the connection and the caller's sink.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from muxway.calls.backend import Backend, refuse
from muxway.calls.incidents import deliver
from muxway.calls.ports import LOOP_CLOCK
from muxway.calls.sinks import CONVERTED, RESHAPED, REWRITTEN, chain
from muxway.errors import InvalidParams, UpstreamError
from muxway.exchange.exchange import Exchange, Services, Way
from muxway.exchange.log_levels import LogLevels
from muxway.exchange.parking import AS_TASK, PARK, agreed, declined, resume, without_retry
from muxway.exchange.seal import INVALID, Seal
from muxway.exchange.strategies import STRATEGIES
from muxway.exchange.task_poller import is_task_state
from muxway.wire import asking, envelopes, result_types
from muxway.wire.revisions import NEWEST_HANDSHAKE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muxway.calls.call import Call
    from muxway.calls.ports import Clock, LiveConnection, Running, Sink
    from muxway.config.model import CustomTool
    from muxway.exchange.runtime import Runtime
    from muxway.routing.target import Target
    from muxway.wire.envelopes import Buffer
    from muxway.wire.result_types import Converter

    Handle = Callable[[Call, Sink], Running | None]


class Forwarder:
    """Sends requests to servers."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        runtime: Runtime,
        seal: Seal | None = None,
        clock: Clock = LOOP_CLOCK,
    ) -> None:
        """Prepare; `backends` are the servers that there are, as they come and go."""
        self.services = Services(clock, seal or Seal(clock=clock), self.reach)
        self.log_levels = LogLevels()
        self._backends = backends
        self._runtime = runtime

    @property
    def _server_info(self) -> bytes:
        """What the gateway calls itself, in JSON."""
        return self._runtime.snapshot.settings.server_info

    def reseal(self, seal: Seal) -> None:
        """Another key. What was sealed with the one before cannot be opened any more."""
        self.services.seal = seal

    def _connect(self, upstream: str, call: Call) -> tuple[Backend, LiveConnection]:
        """A server and its connection for this call. Raises UpstreamError or StillStarting if there is none."""
        backend = self._backends.get(upstream)
        if backend is None:
            why = f'server "{upstream}" is not running: it is not configured or disabled'
            raise UpstreamError(upstream, "not_running", why)
        connection = backend.choose(call)
        if connection is None:
            refuse(upstream, backend)
        return backend, connection

    def send(self, target: Target, call: Call, sink: Sink) -> Running | None:
        """Send a request to a server; its result comes back in the caller's spelling.

        Args:
            target: what it is about; the call's own params follow its head.
            call: the caller's request.
            sink: hears the outcome.

        Raises:
            RpcError: it can be refused at once.
            StillStarting: the server may have it in a moment.
        """
        backend, connection = self._connect(target.server, call)
        return self.forward(target, call, sink, backend, connection)

    def forward(
        self, target: Target, call: Call, sink: Sink, backend: Backend, connection: LiveConnection
    ) -> Running | None:
        """Send a request over this connection. Raises RpcError if it can be refused at once."""
        upstream, head, reshape = target.server, target.head, target.reshape
        caller = call.caller
        level = caller.log_level
        if level is not None and level < connection.log_level:
            self.log_levels.ask(connection, level)
        settings, wrapped = self._runtime.snapshot.settings, target.wrapped
        info = settings.server_info
        eras = (caller.revision, connection.revision, wrapped)
        try:
            convert = settings.converters[eras]
        except KeyError:
            convert = result_types.result_converter(caller.revision, connection.revision, info, wrapped=wrapped)
            settings.converters[eras] = convert
        large = CONVERTED
        if target.rewrite is not None and call.method == "tools/call":
            convert = chain(target.rewrite, convert)
            large = REWRITTEN
        if reshape is not None:
            convert = chain(reshape, convert)
            large = RESHAPED
        as_task = target.tasked and connection.revision.required_tasks
        if convert is None:
            if not as_task:
                return connection.request(head, call, sink, idle=backend.idle, limit=backend.limit)
            convert, large = _as_it_is, sys.maxsize
        if reshape is not None and connection.revision.stateless:
            # A task that its caller asked after itself would bring a result that nobody has reshaped.
            as_task = True
        way = Way(upstream, head, connection, convert, info, backend.idle, backend.limit, large, as_task)
        return self._begin(call, way, sink)

    def compose(
        self, tool: CustomTool, call: Call, sink: Sink, reshape: Converter | None, handle: Handle
    ) -> Running | None:
        """Start a call of a composed tool; its steps' calls go to `handle`."""
        # Only for those who have such tools: it takes its part of a start.
        from muxway.composed.running import Composition

        connection = Composition(tool, handle)
        convert = result_types.result_converter(call.caller.revision, connection.revision, self._server_info)
        convert = chain(reshape, convert)
        if convert is None:
            return connection.request(b"", call, sink, idle=tool.deadline, limit=tool.deadline)
        large = CONVERTED if reshape is None else RESHAPED
        way = Way(tool.name, b"", connection, convert, self._server_info, tool.deadline, tool.deadline, large)
        return self._begin(call, way, sink)

    def give(self, call: Call, sink: Sink, text: str, *, failed: bool = False) -> None:
        """Answer a call of a tool with a text of the gateway's own."""
        said = {"content": [{"type": "text", "text": text}]}
        result = envelopes.encode({**said, "isError": True} if failed else said)
        convert = result_types.result_converter(call.caller.revision, NEWEST_HANDSHAKE, self._server_info)
        deliver(sink, result if convert is None else convert(result))

    def retry(self, target: Target, call: Call, sink: Sink) -> Running | None:
        """Go on with a call of a stateless caller that was answered with questions.

        Args:
            target: where the call leads today: a state that was sealed for anything else is none.
            call: the request.
            sink: hears the outcome.

        Raises:
            RpcError: it is not one of ours, or not any more.
            StillStarting: the server may have it in a moment.
        """
        reshape = target.reshape
        spelled = envelopes.text(call.params["requestState"]) or ""
        claims = self.services.seal.open(spelled, call)
        leads_to = (target.server, target.head) if target.own is None else (target.own.name, b"")
        if (claims.upstream, claims.head) != leads_to:
            raise InvalidParams(INVALID)
        if claims.kind == "park":
            parked = self.services.parked.find(claims.state)
            if parked is None:
                raise InvalidParams(INVALID)
            return resume(parked, call, claims, sink)
        params = {name: raw for name, raw in call.params.items() if name != "requestState"}
        if claims.kind == "url":
            if not agreed(envelopes.members(params.pop("inputResponses", b"{}")) or {}):
                raise declined(claims.upstream)
        elif claims.state is not None:
            params["requestState"] = Raw(envelopes.encode(claims.state))
        if claims.answers:
            given = envelopes.members(params.get("inputResponses", b"{}"))
            if given is None:
                raise InvalidParams("params.inputResponses must be an object: key → answer")
            # What was answered in its place is not the caller's to say.
            answers = {**given, **(envelopes.members(claims.answers) or {})}
            params["inputResponses"] = Raw(envelopes.object_of(answers.items()))
        again = msgspec.structs.replace(call, params=params)
        if claims.upstream not in self._backends:
            raise InvalidParams(INVALID)
        backend, connection = self._connect(claims.upstream, call)
        as_task = claims.kind == "wrap" and is_task_state(claims.state)
        if as_task:
            connection = self._asking(spelled, claims.upstream, connection)
        convert = result_types.result_converter(call.caller.revision, connection.revision, self._server_info)
        if call.method == "tools/call":
            convert = chain(reshape, target.rewrite, convert)
        if convert is None:
            raise InvalidParams(INVALID)
        as_task = as_task or (claims.kind == "url" and claims.state == AS_TASK)
        large = CONVERTED if reshape is None else RESHAPED
        info = self._server_info
        way = Way(claims.upstream, claims.head, connection, convert, info, backend.idle, backend.limit, large, as_task)
        return self._begin(again, way, sink, claims.round + 1)

    def _asking(self, state: str, upstream: str, present: LiveConnection) -> LiveConnection:
        """The connection to the process whose task asked, which waits for the answers."""
        connection = self.services.passed.find(state, present)
        if connection is None:
            why = f'server "{upstream}" has ended since its task asked, and the task with it; make the call again'
            raise UpstreamError(upstream, "lost", why)
        # From here on the call that goes on keeps it in use.
        connection.leases.drop(state)
        return connection

    def reach(self, upstream: str, call: Call) -> Way:
        """The way to a server for a stateless caller's request.

        Raises:
            RpcError: there is none.
            StillStarting: there may be one in a moment.
        """
        backend, connection = self._connect(upstream, call)
        convert = result_types.result_converter(call.caller.revision, connection.revision, self._server_info)
        if convert is None:
            raise InvalidParams(INVALID)
        return Way(upstream, b"", connection, convert, self._server_info, backend.idle, backend.limit)

    def set_log_level(self, party: object, level: int) -> None:
        """Ask every server for log messages from this level on, unless it gives them already."""
        self.log_levels.want(party, level)
        for backend in self._backends.values():
            connection = backend.connection
            if connection is not None and level < connection.log_level:
                self.log_levels.ask(connection, level)

    def _begin(self, call: Call, way: Way, sink: Sink, round_: int = 0) -> Exchange:
        """Send a call that may need more than passing. Raises RpcError if it cannot be sent."""
        caller = call.caller
        strategy = STRATEGIES[caller.revision.stateless, way.connection.revision.stateless]
        if strategy.asks_itself:
            call = without_retry(call)
        taskable = (
            strategy is PARK
            and call.method == "tools/call"
            and asking.knows_tasks(caller.capabilities, caller.revision)
        )
        exchange = Exchange(call, way, sink, strategy, self.services, round_, taskable)
        exchange.begin()
        return exchange


def _as_it_is(result: Buffer) -> Buffer:
    return result


def as_sent(target: Target, call: Call) -> Call:
    """A call of a tool as its server gets it; the very same one where nothing need be done to it.

    Raises:
        InvalidParams: its arguments cannot be used.
    """
    params = call.params
    if (arguments := params.get("arguments")) is not None and not envelopes.is_object(arguments):
        check_arguments(target, arguments)
    if "task" in params:
        # Whether a call is a task is between the gateway and the server.
        params = {name: raw for name, raw in params.items() if name != "task"}
    if target.spelled is not None:
        params = {**params, "name": target.spelled}
    for shape in target.shapes:
        params = {**params, "arguments": shape.arguments(params.get("arguments"))}
    return call if params is call.params else msgspec.structs.replace(call, params=params)


def check_arguments(target: Target, arguments: Raw) -> None:
    """Refuse arguments that are no object. Raises InvalidParams."""
    if not envelopes.is_null(arguments):
        route = target.chosen or target.route
        name = target.names[0] if route is None else route.public
        raise InvalidParams(f"params.arguments of {name} must be an object")
