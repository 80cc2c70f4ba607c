"""One request to an upstream, and its answer in the caller's spelling."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Protocol

import msgspec
from msgspec import Raw

from muxway.calls.ports import in_turns
from muxway.calls.sinks import CONVERTED, RESHAPED, REWRITTEN, chain
from muxway.errors import InvalidParams, UpstreamError
from muxway.exchange.crossing import Asking, Crossing, Desk, Parking, Way, Wrapping, agreed, declined
from muxway.exchange.log_levels import LogLevels
from muxway.exchange.seal import INVALID, Seal
from muxway.exchange.task_poller import TaskPoller, is_task_state
from muxway.exchange.tasks import Background, Tasks
from muxway.wire import asking, envelopes, result_types

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muxway.calls.call import Call
    from muxway.calls.ports import LiveConnection, Running, Sink
    from muxway.catalog.kinds import Kind
    from muxway.config.model import CustomTool
    from muxway.exchange.runtime import Runtime
    from muxway.routing.target import Target
    from muxway.wire.result_types import Converter

    Handle = Callable[[Call, Sink], Running | None]


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


class Relay:
    """Sends requests to upstreams."""

    def __init__(self, members: Mapping[str, Member], runtime: Runtime, seal: Seal | None = None) -> None:
        self.desk = Desk(seal or Seal())
        self.tasks = Tasks(self.desk.seal, self.reach, self.desk.passed)
        self.log_levels = LogLevels()
        self._members = members
        self._runtime = runtime

    @property
    def _server_info(self) -> bytes:
        """What the gateway calls itself, in JSON."""
        return self._runtime.snapshot.settings.server_info

    def reseal(self, seal: Seal) -> None:
        """Another key. What was sealed with the one before cannot be opened any more."""
        self.desk.seal = self.tasks.seal = seal

    def compose(
        self, tool: CustomTool, call: Call, sink: Sink, reshape: Converter | None, handle: Handle
    ) -> Running | None:
        """Run a composed tool; `handle` takes the calls of its steps."""
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

    def refuse(self, upstream: str, member: Member) -> NoReturn:
        """Say why a server takes no call: UpstreamError, or StillStarting if it may take one in a moment."""
        if member.starting or (member.home is not None and member.home.wake()):
            raise StillStarting(member)
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
            self.refuse(upstream, member)
        return member, link

    def send(self, target: Target, call: Call, sink: Sink) -> Running | None:
        """Send a request to an upstream; its result comes back in the caller's spelling.

        Args:
            target: what it is about; the call's own params follow its head.
            call: the caller's request.
            sink: hears the outcome.

        Raises:
            RpcError: it can be refused at once.
            StillStarting: the upstream may have it in a moment.
        """
        upstream, head, reshape = target.server, target.head, target.reshape
        member, link = self._connection(upstream, call)
        caller = call.caller
        level = caller.log_level
        if level is not None and level < link.log_level:
            self.log_levels.ask(link, level)
        settings, wrapped = self._runtime.snapshot.settings, target.wrapped
        crossing = (caller.revision, link.revision, wrapped)
        try:
            convert = settings.converters[crossing]
        except KeyError:
            info = settings.server_info
            convert = result_types.result_converter(caller.revision, link.revision, info, wrapped=wrapped)
            settings.converters[crossing] = convert
        large = CONVERTED
        if target.rewrite is not None and call.method == "tools/call":
            convert = chain(target.rewrite, convert)
            large = REWRITTEN
        if reshape is not None:
            convert = chain(reshape, convert)
            large = RESHAPED
        if (target.tasked and link.revision.required_tasks) or (reshape is not None and link.revision.stateless):
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

    def retry(self, target: Target, call: Call, sink: Sink) -> Running | None:
        """Go on with a call of a stateless caller that was answered with questions.

        Args:
            target: where the call leads today: a state that was sealed for anything else is none.
            call: the request.
            sink: hears the outcome.

        Raises:
            RpcError: it is not one of ours, or not any more.
            StillStarting: the upstream may have it in a moment.
        """
        reshape = target.reshape
        spelled = envelopes.text(call.params["requestState"]) or ""
        claims = self.desk.seal.open(spelled, call)
        leads_to = (target.server, target.head) if target.own is None else (target.own.name, b"")
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
            convert = chain(reshape, target.rewrite, convert)
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
