"""What the middle needs of the two sides, and promises to them.

A request is handed down with a `Sink`, and its outcome comes back to that sink, once.
This is a callback, not an awaitable, on purpose: a task per call costs more than all
the rest of a small call (docs/design/decisions/0003). Whoever prefers to await wraps a
future in a sink, as `Waiter` does.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, runtime_checkable

from muxway.errors import MethodNotFound
from muxway.log import EventLog
from muxway.log import printable as printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from muxway.calls.call import Call
    from muxway.calls.leases import Leases
    from muxway.calls.server_request import ServerRequest
    from muxway.errors import RpcError
    from muxway.wire.envelopes import Buffer
    from muxway.wire.revisions import Revision


T = TypeVar("T")
TURN: Final = 0.004
"""Seconds of work in steps after which others have their turn."""
log = EventLog("gateway")
"""Where the middle says what its owner should know."""


class Sink(Protocol):
    """Where the outcome of one request goes. Exactly one of `done` and `failed` is called, once."""

    def done(self, *result: Buffer) -> None:
        """The request succeeded; the result's JSON, in one or more pieces."""
        ...

    def failed(self, error: RpcError) -> None:
        """The request failed."""
        ...

    def progress(self, params: dict[str, Buffer]) -> None:
        """The request goes on. The params are the server's, without its token. Never after the outcome."""
        ...

    def log(self, params: dict[str, Buffer]) -> None:
        """The server logs something about the request. The params are its own, `logger` says which server."""
        ...

    def ask(self, ask: ServerRequest) -> None:
        """The server wants something of the caller before it goes on."""
        ...


class Running(Protocol):
    """A request that is under way somewhere."""

    def cancel(self, reason: str | None) -> None:
        """Give up on it: whoever works on it is told, and the sink hears nothing more."""
        ...


class LiveConnection(Protocol):
    """A live connection to one server, as far as the middle may know."""

    revision: Revision
    """The protocol revision spoken on this connection."""
    leases: Leases
    """What keeps it in use between requests."""
    log_level: int
    """The least severe log messages the server was asked for; above all levels if it was never asked."""

    @property
    def own_process(self) -> bool:
        """Whether the server is a process that ends with this connection, and all that it knows with it."""
        ...

    @property
    def label(self) -> str:
        """What the words of the server are labelled with where people read them; empty: with nothing."""
        ...

    def set_log_level(self, level: int) -> None:
        """Ask the server for log messages from this level on."""
        ...

    def check(self) -> None:
        """Raise UpstreamError if the connection has ended."""
        ...

    def request(self, head: bytes, call: Call, sink: Sink, idle: float, limit: float) -> Running:
        """Send a request; its outcome goes to the sink.

        Args:
            head: `"method":…,"params":{…` up to where the call's own params follow.
            call: gives the params (but `name` and `_meta`), and what of `_meta` goes along.
            sink: hears the outcome; `UpstreamSaid` for the server's own error, `UpstreamError` when it gives none.
            idle: seconds of silence after which to give up; progress restarts this clock.
            limit: seconds after which to give up in any case.
        """
        ...


@runtime_checkable
class Client(Protocol):
    """The one client that a connection to a server is for."""

    def consult(self, ask: ServerRequest) -> None:
        """The server wants something of it that belongs to no call."""
        ...


class Timer(Protocol):
    """Something that is to happen later."""

    def cancel(self) -> None:
        """It need not happen any more."""
        ...


def later(seconds: float, do: Callable[..., None], *args: object) -> Timer:
    """Do something after a while."""
    return asyncio.get_running_loop().call_later(seconds, do, *args)


def steady() -> float:
    """Seconds on a clock that is never set: for how long something takes."""
    return asyncio.get_running_loop().time()


stopwatch = time.perf_counter
"""The same for a short piece of work, which may be done before there is an event loop."""


def in_turns(steps: Iterator[object], turn: float | None = None) -> None:
    """Do work step by step, for as long as a turn of the loop may last; the rest in later turns."""
    until = stopwatch() + (TURN if turn is None else turn)
    for _ in steps:
        if stopwatch() > until:
            later(0.0, in_turns, steps, turn)
            return


def clock() -> float:
    """The time of day, in seconds: good for comparing with what another process, or an earlier one, wrote down."""
    return time.time()


def new_id() -> str:
    """A name that nobody can guess, and nothing else has."""
    return secrets.token_urlsafe(12)


class Clock(Protocol):
    """What time it is, and what is to happen later. An argument where that matters, so that a test needs no loop."""

    def now(self) -> float:
        """The time of day, see `clock`."""
        ...

    def steady(self) -> float:
        """See `steady`."""
        ...

    def later(self, seconds: float, do: Callable[..., None], *args: object) -> Timer:
        """See `later`."""
        ...


class _LoopClock:
    """That of the event loop that runs."""

    now = staticmethod(clock)
    steady = staticmethod(steady)
    later = staticmethod(later)


LOOP_CLOCK: Final[Clock] = _LoopClock()


class _Aside:
    """Work that another thread does. Implements `Running`."""

    __slots__ = ("_future", "_then")

    def __init__(self, future: asyncio.Future[Any], then: Callable[[Callable[[], Any]], None]) -> None:
        self._future = future
        self._then = then
        future.add_done_callback(self._done)

    def _done(self, future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            self._then(future.result)

    def cancel(self, reason: str | None) -> None:
        """Nobody wants it any more; what has begun goes on to its end, unheard."""
        del reason
        self._future.remove_done_callback(self._done)
        self._future.add_done_callback(_heard)
        self._future.cancel()


def _heard(future: asyncio.Future[Any]) -> None:
    # Or asyncio says that nobody has asked how it ended.
    if not future.cancelled():
        future.exception()


@cache
def _helpers() -> ThreadPoolExecutor:
    # Few: they share the interpreter with the event loop, and have no work unless results are large.
    return ThreadPoolExecutor(2, "muxway-aside")


def aside(work: Callable[[], T], then: Callable[[Callable[[], T]], None]) -> Running:
    """Let another thread do what would hold up everybody, and go on here when it is done.

    Args:
        work: needs nothing that changes meanwhile, and has an end.
        then: gets what gives the work's outcome, or raises what it raised.
    """
    return _Aside(asyncio.get_running_loop().run_in_executor(_helpers(), work), then)


class Waiter:
    """A sink that can be awaited."""

    def __init__(self, on_progress: Callable[[dict[str, Buffer]], None] | None = None) -> None:
        self._future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._on_progress = on_progress

    def done(self, *result: Buffer) -> None:
        if not self._future.done():
            self._future.set_result(b"".join(result))

    def failed(self, error: RpcError) -> None:
        if not self._future.done():
            self._future.set_exception(error)

    def progress(self, params: dict[str, Buffer]) -> None:
        if self._on_progress is not None:
            self._on_progress(params)

    def log(self, params: dict[str, Buffer]) -> None:
        """Nobody listens."""

    def ask(self, ask: ServerRequest) -> None:
        if not ask.arrived():
            ask.refuse(MethodNotFound(f"{ask.method}: the caller is a program that answers no questions"))

    async def outcome(self, running: Running | None) -> bytes:
        """The result's JSON. Cancelling the wait cancels the request. Raises the RpcError it failed with."""
        try:
            return await self._future
        except asyncio.CancelledError:
            if running is not None:
                running.cancel(None)
            raise
