"""What serves the clients of an HTTP transport: the gateway behind it, by which limits and at what times."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from muxway.clients.transports.http_request import Refused
from muxway.errors import RpcError
from muxway.exchange.admission import RETRY_SECONDS
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.clients.transports.http_request import RequestHead
    from muxway.exchange.dispatcher import Dispatcher
    from muxway.exchange.runtime import Runtime
    from muxway.wire.envelopes import Envelope

LATER: Final = [(b"retry-after", b"30")]
SOON: Final = [(b"retry-after", b"%d" % RETRY_SECONDS)]
_NO_MEMORY: Final = "the gateway is short of memory (gateway.maxMemory) and opens no new sessions: try again later"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """How MCP is served over HTTP."""

    max_body_bytes: int = 4 * 1024 * 1024
    max_sessions: int = 10_000
    """Handshake sessions, and clients of `/sse`, that may be open at once."""
    max_sessions_each: int = 100
    """The same for one bearer token."""
    session_idle: float = 1800.0
    """Seconds after which a session that nobody uses is ended."""
    commit_after: float = 15.0
    """Seconds without an answer after which an event stream is begun: proxies give up on silence."""
    resumable_after: float = 0.5
    """The same for clients that are told where to read on: what they wait for survives a lost connection."""
    keep_alive: float = 15.0
    """Seconds of silence on an event stream after which a comment is sent."""
    sse_linger: float = 5.0
    """Seconds after the last client of `/sse` has left until nobody is thought to come back."""


class ServedGateway:
    """The gateway, as the endpoints of an HTTP transport see it."""

    def __init__(
        self, runtime: Runtime, settings: HttpSettings, view: str | None, on_wanted: Callable[[], None]
    ) -> None:
        self.runtime = runtime
        """What answers the requests. May be exchanged while nobody is there."""
        self.settings = settings
        self.closing = False
        self.sse_only = True
        """Whether no other kind of client ever came than those of `/sse`."""
        self._view = view
        self.on_wanted = on_wanted
        self.ends: dict[object, tuple[float, Callable[[], None]]] = {}
        """Streams that were opened with credentials that end: when that is, and how the stream is ended then."""

    def end_expired(self) -> None:
        """End the streams whose credentials have ended: their clients come back, with newer ones."""
        now = time.time()
        for end in [end for until, end in self.ends.values() if until <= now]:
            end()

    def wanted(self) -> None:
        """A client of Streamable HTTP has come, and needs the servers."""
        self.sse_only = False
        self.on_wanted()

    # --- views --------------------------------------------------------------------------------

    def has(self, view: str | None) -> bool:
        """Whether there is this view, or it is the whole."""
        return view is None or view in self.runtime.snapshot.views

    def view_for(self, bound: str | None, named: str | None) -> str | None:
        """The view that a request is for: what its token says, else what its path says. Raises Refused."""
        if bound is not None:
            if named not in (None, bound):
                raise Refused(403, "this token opens another view, and nothing else: use /mcp")
            return bound
        if named is None:
            return self._view
        if not self.has(named):
            raise self._no_view()
        return named

    def dispatcher(self, head: RequestHead) -> Dispatcher:
        """Where the requests of a view's callers go. Raises Refused."""
        if not self.has(head.view):
            # A reload has taken it away, and is about to say who may come in.
            raise self._no_view()
        return self.runtime.dispatcher(head.view)

    def _no_view(self) -> Refused:
        return Refused(404, f"there is no such view; there are: {', '.join(self.runtime.snapshot.views) or 'none'}")

    def must_have_memory(self, envelope: Envelope | None = None) -> None:
        """Refuse new clients while memory is short."""
        if not self.runtime.admission.takes_sessions:
            raise Refused(503, RpcError(_NO_MEMORY), id_=id_of(envelope), headers=SOON)


def id_of(envelope: Envelope | None) -> bytes | None:
    """The id to answer under, if there is one that can be."""
    id_ = None if envelope is None else bytes(envelope.id)
    return None if id_ is None or envelopes.read_id(id_) is None else id_


def too_large(limit: int) -> Refused:
    """The answer to a body of more bytes than these."""
    return Refused(413, f"the body is larger than {limit} bytes", close=True)


def not_allowed(methods: str, why: str = "the method is not allowed here") -> Refused:
    """The answer to a method that is not for this path."""
    return Refused(405, why, headers=[(b"allow", methods.encode())])
