"""A connection on a transport that only remembers, sinks that do the same, and the slot of a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from muxway.calls.call import LIBRARY, Call
from muxway.config.model import ServerConfig
from muxway.errors import UpstreamError
from muxway.exchange.open_sessions import OpenSessions
from muxway.servers.connection import Connection
from muxway.servers.instance import Hooks, Instance, ServerTerms
from muxway.servers.managed_server import ManagedServer
from muxway.servers.pool import Sharing
from muxway.wire.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muxway.calls.call import Caller
    from muxway.calls.ports import Running
    from muxway.calls.server_request import ServerRequest
    from muxway.errors import RpcError
    from muxway.servers.limits import ServerLimits
    from muxway.servers.slot import Slot
    from muxway.servers.supervision import Care
    from muxway.servers.transports.port import Fail, Hear, Outgoing, ServerTransport
    from muxway.wire.envelopes import Buffer

HEAD = b'"method":"tools/call","params":{"name":"x"'


class FakeChannel:
    """Keeps what was sent; the test is the server."""

    def __init__(self, *, remote: bool = False) -> None:
        self.remote = remote
        self.own_process = not remote
        self.sent: list[dict[str, Any]] = []
        self.closed: list[bool] = []
        self.queued = 0
        self.send: Callable[[Sequence[Buffer], Outgoing], None] = self._send

    def _send(self, frame: Sequence[Buffer], _about: Outgoing) -> None:
        self.sent.append(json.loads(b"".join(frame)))

    async def open(self, hear: Hear, lost: Callable[[str], None], fail: Fail, /) -> None:
        self.hear, self.lost, self.fail = hear, lost, fail

    def introduced(self) -> None:
        pass

    def last_words(self) -> str | None:
        return None

    async def close(self, *, at_once: bool = False) -> None:
        self.closed.append(at_once)

    def calls(self) -> list[int]:
        """The ids of the calls that were sent, in order."""
        return [message["id"] for message in self.sent if message.get("method") == "tools/call"]

    def answer(self, id_: int, result: str = "{}") -> None:
        self.hear([b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (id_, result.encode())])

    def break_off(self, id_: int, *, broken: bool = True) -> None:
        self.fail(b"%d" % id_, UpstreamError("up", "lost", 'server "up" reset the connection'), broken=broken)


class Outcome:
    """A sink that remembers what became of its request."""

    def __init__(self) -> None:
        self.results: list[bytes] = []
        self.errors: list[RpcError] = []
        self.asks: list[ServerRequest] = []
        self.progressed = 0

    def done(self, *result: Buffer) -> None:
        self.results.append(b"".join(result))

    def failed(self, error: RpcError) -> None:
        self.errors.append(error)

    def progress(self, params: dict[str, Buffer]) -> None:
        self.progressed += 1

    def log(self, params: dict[str, Buffer]) -> None:
        pass

    def ask(self, ask: ServerRequest) -> None:
        self.asks.append(ask)

    @property
    def open(self) -> bool:
        return not self.results and not self.errors

    @property
    def error(self) -> UpstreamError:
        """The one error it ended with, which is ours."""
        assert self.results == []
        assert len(self.errors) == 1
        error = self.errors[0]
        assert isinstance(error, UpstreamError)
        return error


class Play:
    """A link to `up` whose other side is the test."""

    def __init__(self, channel: FakeChannel, link: Connection) -> None:
        self.channel = channel
        self.link = link
        self.lost: list[str] = []
        link.on_lost = self.lost.append

    def call(self, *, idle: float = 60.0, limit: float = 600.0, caller: Caller = LIBRARY) -> tuple[Outcome, Running]:
        outcome = Outcome()
        call = Call(caller, "tools/call", {"name": Raw(b'"x"'), "arguments": Raw(b"{}")})
        return outcome, self.link.request(HEAD, call, outcome, idle=idle, limit=limit)

    def calls(self, count: int) -> list[Outcome]:
        return [self.call()[0] for _ in range(count)]


async def play(limits: ServerLimits | None = None, *, remote: bool = False) -> Play:
    """An open link."""
    channel = FakeChannel(remote=remote)
    link = Connection("up", channel) if limits is None else Connection("up", channel, limits)
    # So that tests know the ids.
    link.peer = Peer()
    await link.open()
    return Play(channel, link)


def a_slot(dial: Callable[[], ServerTransport], care: Care) -> Slot:
    """The place of the first connection of a server that nobody knows."""
    server = ManagedServer()
    hooks = Hooks(lambda _: None, lambda then: then(), lambda *_: None, OpenSessions())
    config = ServerConfig(name="up", transport="stdio", command="none")
    server.put(Instance(server, config, None, ServerTerms(care=care), hooks, dial=lambda _: dial(), sharing=Sharing()))
    return server.first
