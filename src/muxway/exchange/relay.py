"""One tool call: public name → upstream and native name → the upstream's answer in the caller's spelling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Protocol

import msgspec
from msgspec import Raw

from muxway.calls.ports import in_turns
from muxway.calls.sinks import CONVERTED, RESHAPED, REWRITTEN, chain
from muxway.catalog.model import EMPTY
from muxway.catalog.naming import SEPARATORS, has_prefix
from muxway.composed import own_tools
from muxway.errors import InvalidParams, ToolNotFound, UpstreamError
from muxway.exchange.crossing import Asking, Crossing, Desk, Parking, Way, Wrapping, agreed, declined
from muxway.exchange.log_levels import LogLevels
from muxway.exchange.seal import INVALID, Seal
from muxway.exchange.task_poller import TaskPoller, is_task_state
from muxway.exchange.tasks import Background, Tasks
from muxway.likeness import short
from muxway.wire import asking, envelopes, result_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from muxway.calls.call import Call
    from muxway.calls.ports import LiveConnection, Running, Sink
    from muxway.catalog.kinds import Kind
    from muxway.catalog.model import Catalog, Route
    from muxway.config.model import CustomTool
    from muxway.routing.target import Chosen
    from muxway.wire.result_types import Converter
    from muxway.wire.revisions import Revision

    Handle = Callable[[Call, Sink], Running | None]


_MOST_WAITS: Final = 4
"""How often a call waits before it is told that what it calls is not listed: some lists never stand still."""


class Held(Protocol):
    """A call that waits for its server."""

    def release(self) -> None:
        """The server is up, or will not be."""
        ...


class StillStarting(Exception):
    """The call is for a server that is being started, or whose list is being read: what becomes of it is known then."""

    def __init__(self, member: Member) -> None:
        super().__init__()
        self.member = member


class Home(Protocol):
    """A server that may be away for a while."""

    starting: bool
    """Whether it is being started; every start ends, well or badly, within the server's own time limit."""

    @property
    def retry_in(self) -> float | None:
        """Seconds until it is tried again, if it is not running and will be."""
        ...

    @property
    def locked_out(self) -> str | None:
        """What to tell a caller, if somebody has to log in before it can be started."""
        ...

    def wake(self) -> bool:
        """Somebody wants to call it. Returns whether it is being started now."""
        ...

    def asked(self, kind: Kind) -> int | None:
        """A client asks for a list: what may be out of date is read again, for the next time.

        Returns for how many milliseconds what is known of it holds; None if the server has no such list.
        """
        ...

    def renew(self, kind: Kind) -> bool:
        """A client asks for a list, and wants to see what its calls have changed in it, also in silence.

        Returns whether it is being read; the end of that is told.
        """
        ...

    def want(self, kind: Kind, *, begin: bool) -> bool:
        """Somebody calls what is not in a list: `begin` to read it again, if that was not done a moment ago.

        Returns whether it is being read; the end of that is told.
        """
        ...


class Member(msgspec.Struct):
    """An upstream as the relay sees it. The link comes and goes; the rest lasts."""

    idle: float
    """Seconds of silence after which a call is given up."""
    limit: float
    """Seconds after which a call is given up in any case."""
    prefix: str = ""
    """What stands before its tools' names in the listing."""
    unprefixed: bool = False
    """Whether some of its names may stand without the prefix: it has none, or the configuration renames something."""
    bare: bool = False
    """Whether its words stand as they are: there is no other server, and it has no prefix."""
    starting: bool = True
    """Whether it is being started; every start ends, well or badly, within the server's own time limit."""
    link: LiveConnection | None = None
    absence: str = "it is still starting"
    """Why there is no link, while there is none."""
    held: dict[Held, None] = {}
    """Calls that wait for the start, or a reading of its list, to be over, in their order. Who gives up leaves."""
    opening: Member | None = None
    """A connection for handshake callers that is being opened, if a list for them should wait for it."""
    home: Home | None = None
    """Who starts it when it is away and somebody calls; None: nobody."""
    choose: Callable[[Call], LiveConnection | None] | None = None
    """Which link a call goes to, where there may be several; None while all calls go to the one."""

    def link_for(self, call: Call) -> LiveConnection | None:
        """The link that a call goes over; None while there is none.

        Raises:
            StillStarting: it is being opened.
            UpstreamError: it cannot be.
        """
        return self.link if self.choose is None else self.choose(call)

    def settle(self, link: LiveConnection | None, absence: str) -> None:
        """The start is over, or the link is gone; or it is being started again."""
        self.starting = link is None and self.home is not None and self.home.starting
        self.link, self.absence = link, absence

    def release(self) -> None:
        """The catalog shows how things are now: calls that waited for that go on their way."""
        held, self.held = list(self.held), {}
        # There may be many, and to say what is not listed takes time.
        in_turns(call.release() for call in held)


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
        members: Mapping[str, Member],
        tools: Mapping[str, CustomTool],
        server_info: bytes,
        seal: Seal | None = None,
    ) -> None:
        self.desk = Desk(seal or Seal())
        self.tasks = Tasks(self.desk.seal, self.reach, self.desk.passed)
        self.log_levels = LogLevels()
        self._members = members
        self.tools = tools
        """The gateway's own, as configured."""
        self._server_info = server_info
        self.rewriters: Mapping[str, Converter] = {}
        """Upstream → what is done to the links in its tools' results; empty unless several servers have resources."""
        self.whole: Catalog = EMPTY
        """Every tool, whatever the view of a caller shows."""
        self._converters: dict[tuple[Revision, Revision, bool], Converter | None] = {}
        self.waited = 0
        """How often the call that is being looked at just now has waited already."""

    def reconfigure(self, tools: Mapping[str, CustomTool], server_info: bytes) -> None:
        """Other tools of the gateway's own, another name of the gateway itself."""
        self.tools = tools
        if server_info != self._server_info:
            self._server_info = server_info
            self._converters.clear()

    def reseal(self, seal: Seal) -> None:
        """Another key. What was sealed with the one before cannot be opened any more."""
        self.desk.seal = self.tasks.seal = seal

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
            return self.send(route.upstream, route.head, call, sink, wrapped=route.wrapped, tasked=route.tasked)
        else:
            aim = self._aim(route, call)
        upstream, head, call, wrapped, tasked, reshape = aim
        if not upstream:
            return self._compose(self.tools[head.decode()], call, sink, reshape, handle)
        return self.send(upstream, head, call, sink, wrapped=wrapped, tasked=tasked, reshape=reshape)

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

    def _compose(
        self, tool: CustomTool, call: Call, sink: Sink, reshape: Converter | None, handle: Handle
    ) -> Running | None:
        # Only for those who have such tools: it takes its part of a start.
        from muxway.composed.running import Composition

        link = Composition(tool, handle)
        convert = result_types.result_converter(call.caller.revision, link.revision, self._server_info)
        convert = chain(reshape, convert)
        if convert is None:
            return link.request(b"", call, sink, idle=tool.deadline, limit=tool.deadline)
        large = CONVERTED if reshape is None else RESHAPED
        way = Way(tool.name, link, convert, self._server_info, tool.deadline, tool.deadline, large)
        across = self._across(sink, way, b"", call)
        across.begin()
        return across

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

    def look_again(self, members: Iterable[Member], *kinds: Kind) -> None:
        """What is not listed may be new at one of these servers.

        Raises:
            StillStarting: a list of one of them is being read again.
        """
        if self.waited >= _MOST_WAITS:
            return
        # All of them at once; then one after the other is waited for.
        homes = [(member, member.home) for member in members if member.link is not None]
        begin = not self.waited
        wanted = [
            (member, home.want(kind, begin=begin)) for member, home in homes for kind in kinds if home is not None
        ]
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
        if only is None or not only.bare or only.home is None or self.waited >= _MOST_WAITS:
            return
        if only.home.want(kind, begin=False) if self.waited else only.home.renew(kind):
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

    def _refuse(self, upstream: str, member: Member) -> NoReturn:
        if member.starting or (member.home is not None and member.home.wake()):
            raise StillStarting(member)
        if member.home is not None and (why := member.home.locked_out) is not None:
            raise UpstreamError(upstream, "login_needed", why)
        retry_in = None if member.home is None else member.home.retry_in
        why = f'server "{upstream}" is not running: {member.absence}'
        if retry_in is not None:
            why += f"; it is started again in {max(retry_in, 0.1):.1f} s"
        raise UpstreamError(upstream, "not_running", why, retry_after=retry_in)

    def _connection(self, upstream: str, call: Call) -> tuple[Member, LiveConnection]:
        """An upstream and its link for this call. Raises UpstreamError or StillStarting if there is none."""
        member = self._members.get(upstream) or Member(0, 0, starting=False, absence="it is not configured or disabled")
        link = member.link if member.choose is None else member.choose(call)
        if link is None:
            self._refuse(upstream, member)
        return member, link

    def send(
        self,
        upstream: str,
        head: bytes,
        call: Call,
        sink: Sink,
        *,
        wrapped: bool = False,
        tasked: bool = False,
        reshape: Converter | None = None,
    ) -> Running | None:
        """Send a request to an upstream; its result comes back in the caller's spelling.

        Args:
            upstream: the upstream's name.
            head: `"method":…,"params":{…` with what was rewritten; the call's other params follow it.
            call: the caller's request.
            sink: hears the outcome.
            wrapped: whether the tool's output is wrapped for callers that know only objects.
            tasked: whether the tool says that it can only be run as a task.
            reshape: what the tool's shape does to its result.

        Raises:
            RpcError: it can be refused at once.
            StillStarting: the upstream may have it in a moment.
        """
        member, link = self._connection(upstream, call)
        caller = call.caller
        level = caller.log_level
        if level is not None and level < link.log_level:
            self.log_levels.ask(link, level)
        crossing = (caller.revision, link.revision, wrapped)
        try:
            convert = self._converters[crossing]
        except KeyError:
            convert = result_types.result_converter(caller.revision, link.revision, self._server_info, wrapped=wrapped)
            self._converters[crossing] = convert
        large = CONVERTED
        if self.rewriters and call.method == "tools/call":
            convert = chain(self.rewriters.get(upstream), convert)
            large = REWRITTEN
        if reshape is not None:
            convert = chain(reshape, convert)
            large = RESHAPED
        if (tasked and link.revision.required_tasks) or (reshape is not None and link.revision.stateless):
            # A task that its caller asked after itself would bring a result that nobody has reshaped.
            link = TaskPoller(upstream, link)
        if convert is None:
            return link.request(head, call, sink, idle=member.idle, limit=member.limit)
        way = Way(upstream, link, convert, self._server_info, member.idle, member.limit, large)
        across = self._across(sink, way, head, call)
        across.begin()
        return across

    def reach(self, upstream: str, call: Call) -> Way:
        """The way to an upstream for a stateless caller's request.

        Raises:
            RpcError: there is none.
            StillStarting: there may be one in a moment.
        """
        member, link = self._connection(upstream, call)
        convert = result_types.result_converter(call.caller.revision, link.revision, self._server_info)
        if convert is None:
            raise InvalidParams(INVALID)
        return Way(upstream, link, convert, self._server_info, member.idle, member.limit)

    def set_log_level(self, party: object, level: int) -> None:
        """Ask every upstream for log messages from this level on, unless it gives them already."""
        self.log_levels.want(party, level)
        for member in self._members.values():
            link = member.link
            if link is not None and level < link.log_level:
                self.log_levels.ask(link, level)

    def _across(self, sink: Sink, way: Way, head: bytes, call: Call, round_: int = 0) -> Crossing:
        caller = call.caller
        if caller.revision.stateless:
            if way.link.revision.stateless:
                return Wrapping(sink, way, head, call, self.desk, round_)
            if call.method == "tools/call" and asking.knows_tasks(caller.capabilities, caller.revision):
                return Background(sink, way, head, call, self.desk, round_, tasks=self.tasks)
            return Parking(sink, way, head, call, self.desk, round_)
        return (Asking if way.link.revision.stateless else Crossing)(sink, way, head, call)

    def retry(self, aim: Aim, sink: Sink) -> Running | None:
        """Go on with a call of a stateless caller that was answered with questions.

        Args:
            aim: where the call leads today: a state that was sealed for anything else is none.
            sink: hears the outcome.

        Raises:
            RpcError: it is not one of ours, or not any more.
            StillStarting: the upstream may have it in a moment.
        """
        upstream, head, call, _, _, reshape = aim
        spelled = envelopes.text(call.params["requestState"]) or ""
        claims = self.desk.seal.open(spelled, call)
        leads_to = (upstream, head) if upstream else (head.decode(), b"")
        if (claims.upstream, claims.head) != leads_to:
            raise InvalidParams(INVALID)
        if claims.kind == "park":
            parked = self.desk.parked.get(claims.state or "")
            if parked is None:
                raise InvalidParams(INVALID)
            return parked.resume(call, claims, sink)
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
        if claims.upstream not in self._members:
            raise InvalidParams(INVALID)
        member, link = self._connection(claims.upstream, call)
        tasked = claims.kind == "wrap" and is_task_state(claims.state)
        if tasked:
            link = self._asking(spelled, claims.upstream, link)
        convert = result_types.result_converter(call.caller.revision, link.revision, self._server_info)
        if call.method == "tools/call":
            convert = chain(reshape, self.rewriters.get(claims.upstream), convert)
        if convert is None:
            raise InvalidParams(INVALID)
        if tasked or (claims.kind == "url" and claims.state is not None):
            link = TaskPoller(claims.upstream, link)
        large = CONVERTED if reshape is None else RESHAPED
        way = Way(claims.upstream, link, convert, self._server_info, member.idle, member.limit, large)
        across = self._across(sink, way, claims.head, again, claims.round + 1)
        across.begin()
        return across

    def _asking(self, state: str, upstream: str, present: LiveConnection) -> LiveConnection:
        """The connection to the process whose task asked, which waits for the answers."""
        link = self.desk.passed.find(state, present)
        if link is None:
            why = f'server "{upstream}" has ended since its task asked, and the task with it; make the call again'
            raise UpstreamError(upstream, "lost", why)
        # From here on the call that goes on keeps it in use.
        link.leases.drop(state)
        return link


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
