"""A server without a process: a scripted `calls.ports.LiveConnection`, and a sink that writes down what it hears."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Raw

from muxway.calls.backend import Held, WaitingCalls
from muxway.calls.call import Call, Caller
from muxway.calls.leases import Leases
from muxway.catalog.build import Source
from muxway.catalog.model import Native, NativeTool
from muxway.catalog.naming import Naming
from muxway.exchange.runtime import Runtime
from muxway.routing.snapshot import Settings
from muxway.wire.revisions import NEWEST, NEWEST_HANDSHAKE, Revision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.calls.ports import Sink
    from muxway.config.model import CustomTool
    from muxway.errors import RpcError
    from muxway.wire.envelopes import Buffer

HANDSHAKE = Caller(revision=NEWEST_HANDSHAKE)
STATELESS = Caller(revision=NEWEST)

Script: TypeAlias = Callable[["Sink"], None]


class Heard:
    """A sink: the outcome and everything before it, and that there is only one outcome."""

    def __init__(self) -> None:
        self.result: bytes | None = None
        self.error: RpcError | None = None
        self.progressed: list[dict[str, bytes]] = []

    def done(self, *result: Buffer) -> None:
        """The request succeeded."""
        self._first()
        self.result = b"".join(result)

    def failed(self, error: RpcError) -> None:
        """The request failed."""
        self._first()
        self.error = error

    def progress(self, params: dict[str, Buffer]) -> None:
        """The request goes on."""
        self.progressed.append({name: bytes(raw) for name, raw in params.items()})

    def _first(self) -> None:
        assert self.result is None, "a second outcome"
        assert self.error is None, "a second outcome"

    @property
    def value(self) -> Any:
        """The result, decoded."""
        assert self.error is None, self.error
        assert self.result is not None, "no outcome yet"
        return json.loads(self.result)

    @property
    def refusal(self) -> RpcError:
        """The error it failed with."""
        assert self.error is not None, self.result
        return self.error


@dataclass
class Sent:
    """One request as the link got it; the `Running` of it too."""

    head: bytes
    call: Call
    sink: Sink
    idle: float
    limit: float
    cancelled: list[str | None] = field(default_factory=list[str | None])

    def cancel(self, reason: str | None) -> None:
        """The caller gave up."""
        self.cancelled.append(reason)

    @property
    def params(self) -> dict[str, bytes]:
        """The params a server would see, but for `_meta`: the head's, then the call's own."""
        opened = json.loads(b"{" + self.head + b"}}")
        assert opened["method"] == self.call.method
        head = {key: json.dumps(value, ensure_ascii=False).encode() for key, value in opened["params"].items()}
        own = {key: bytes(raw) for key, raw in self.call.params.items() if key not in (*head, "_meta")}
        return {**head, **own}


class FakeTimer:
    """Something that a `FakeClock` is to do."""

    def __init__(self, at: float, do: Callable[[], None]) -> None:
        self.at = at
        self.do = do
        self.cancelled = False

    def cancel(self) -> None:
        """It need not be done any more."""
        self.cancelled = True


class FakeClock:
    """Implements `calls.ports.Clock`: time passes when the test says so."""

    def __init__(self) -> None:
        self._now = 1_000_000.0
        self._timers: list[FakeTimer] = []

    def now(self) -> float:
        """The time of day."""
        return self._now

    def steady(self) -> float:
        """The same: nobody sets it."""
        return self._now

    def later(self, seconds: float, do: Callable[..., None], *args: object) -> FakeTimer:
        """Do something when so much time has passed."""
        timer = FakeTimer(self._now + seconds, lambda: do(*args))
        self._timers.append(timer)
        return timer

    @property
    def waiting(self) -> int:
        """How many timers run."""
        return sum(not timer.cancelled for timer in self._timers)

    def pass_(self, seconds: float) -> None:
        """Let time pass; what is due by then is done in its order, each at its own time."""
        until = self._now + seconds
        while due := [timer for timer in self._timers if not timer.cancelled and timer.at <= until]:
            first = min(due, key=lambda timer: timer.at)
            self._timers.remove(first)
            self._now = max(self._now, first.at)
            first.do()
        self._timers = [timer for timer in self._timers if not timer.cancelled]
        self._now = until


class FakeLink:
    """Implements `calls.ports.LiveConnection`: plays its script to each request, or keeps it waiting."""

    def __init__(
        self, script: Script | None = None, revision: Revision = NEWEST_HANDSHAKE, clock: FakeClock | None = None
    ) -> None:
        self.revision = revision
        self.leases = Leases(clock or FakeClock())
        self.label = ""
        self.log_level = 0
        self.own_process = False
        self.sent: list[Sent] = []
        self._script = script

    def check(self) -> None:
        """It never ends."""

    def set_log_level(self, level: int) -> None:
        """It logs nothing."""

    def request(self, head: bytes, call: Call, sink: Sink, idle: float, limit: float) -> Sent:
        """Note the request and let the script answer."""
        sent = Sent(head, call, sink, idle, limit)
        self.sent.append(sent)
        if self._script is not None:
            self._script(sink)
        return sent


def answers(*result: bytes) -> Script:
    """A script: this result, in these pieces."""
    return lambda sink: sink.done(*result)


def shows(
    upstream: str,
    *,
    prompts: tuple[str, ...] = (),
    resources: tuple[str, ...] = (),
    templates: tuple[str, ...] = (),
    **more: Any,
) -> Source:
    """The part of a server without tools in the catalog."""
    return Source(
        upstream=upstream,
        prefix=upstream,
        prompts=[Native(name, {"description": Raw(b'"?"')}) for name in prompts],
        resources=[Native(uri, {"name": Raw(b'"n"')}) for uri in resources],
        templates=[Native(text, {"name": Raw(b'"t"')}) for text in templates],
        reads=True,
        **more,
    )


def offer(upstream: str, *tools: str, prefix: str | None = None, description: bytes = b'"?"') -> Source:
    """The part of a server in the catalog."""
    natives = [NativeTool(name, {"description": Raw(description), "inputSchema": Raw(b"{}")}) for name in tools]
    return Source(upstream=upstream, tools=natives, prefix=upstream if prefix is None else prefix)


@dataclass
class FakeBackend:
    """Implements `calls.backend.Backend`: is there, or away for a reason, and has no list that could change."""

    connection: FakeLink | None = None
    absence: str = "it is gone"
    starting: bool = False
    idle: float = 60
    limit: float = 600
    prefix: str = ""
    unprefixed: bool = False
    bare: bool = False
    opening: dict[Held, None] | None = None
    retry_in: float | None = None
    locked_out: str | None = None
    waiting: WaitingCalls = field(default_factory=WaitingCalls)

    @property
    def held(self) -> dict[Held, None]:
        """The calls that wait."""
        return self.waiting.held

    def settle(self, link: FakeLink | None, absence: str) -> None:
        """The start is over, or the link is gone."""
        self.starting, self.connection, self.absence = False, link, absence

    def release(self) -> None:
        """The calls that wait go on."""
        self.waiting.release()

    def choose(self, call: Call) -> FakeLink | None:
        """There is one for all."""
        del call
        return self.connection

    def wake(self) -> bool:
        """Nobody starts it."""
        return False

    def asked(self, listing: str) -> int | None:
        """Nobody says how long it holds."""
        del listing

    def renew(self, listing: str) -> bool:
        """It does not change."""
        del listing
        return False

    def want(self, listing: str, *, begin: bool) -> bool:
        """It does not change."""
        del listing, begin
        return False


class World:
    """A gateway in front of fake servers."""

    def __init__(
        self,
        members: Mapping[str, FakeBackend] | None = None,
        *sources: Source,
        tools: Mapping[str, CustomTool] | None = None,
        page_size: int | None = None,
    ) -> None:
        self.members: dict[str, FakeBackend] = dict(members or {})
        for source in sources:
            if source.upstream in self.members:
                self.members[source.upstream].prefix = source.prefix
        settings = Settings(name="gate", version="1.2", naming=Naming(), tools=tools or {}, page_size=page_size)
        self.runtime = Runtime(settings, self.members)
        self.running: Any = None
        self.runtime.publish(sources)

    def ask(self, method: str, params: Mapping[str, bytes] | None = None, caller: Caller = HANDSHAKE) -> Heard:
        """Make a request and return what came of it so far."""
        heard = Heard()
        raw = {name: Raw(value) for name, value in (params or {}).items()}
        self.running = self.runtime.dispatcher().handle(Call(caller, method, raw), heard)
        return heard

    def call(self, name: str, caller: Caller = HANDSHAKE, **params: bytes) -> Heard:
        """Call a tool."""
        return self.ask("tools/call", {"name": json.dumps(name).encode(), **params}, caller)

    def names(self, caller: Caller = HANDSHAKE, **params: bytes) -> list[str]:
        """The names in one listing."""
        return [tool["name"] for tool in self.ask("tools/list", params, caller).value["tools"]]


def member(link: FakeLink | None = None, *, absence: str = "it is gone", starting: bool = False) -> FakeBackend:
    """A server as the forwarder sees it."""
    return FakeBackend(link, absence, starting)
