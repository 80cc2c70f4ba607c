"""Sinks that stand between a server and a caller, or in place of one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from muxway.calls.incidents import attempt
from muxway.calls.ports import aside
from muxway.errors import MethodNotFound
from muxway.wire import envelopes
from muxway.wire.revisions import SERVER_INFO

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.ports import Sink
    from muxway.calls.server_request import ServerRequest
    from muxway.errors import RpcError
    from muxway.wire.envelopes import Buffer
    from muxway.wire.result_types import Converter
    from muxway.wire.revisions import Revision


class Passing:
    """Passes on what is said before the outcome; the outcome itself is for a subclass to take."""

    __slots__ = ("_sink",)

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def progress(self, params: dict[str, Buffer]) -> None:
        self._sink.progress(params)

    def log(self, params: dict[str, Buffer]) -> None:
        self._sink.log(params)

    def ask(self, ask: ServerRequest) -> None:
        self._sink.ask(ask)


class Nobody:
    """The sink of a request whose outcome nobody waits for."""

    def done(self, *result: Buffer) -> None:
        del result

    def failed(self, error: RpcError) -> None:
        del error

    def progress(self, params: dict[str, Buffer]) -> None:
        del params

    def log(self, params: dict[str, Buffer]) -> None:
        del params

    def ask(self, ask: ServerRequest) -> None:
        ask.refuse(MethodNotFound(f"{ask.method}: nobody waits for what this is about"))


class Changing(Passing):
    """Passes everything on, the result as `change` makes it and an error as `excuse` does."""

    __slots__ = ("_change", "_excuse")

    def __init__(
        self, sink: Sink, change: Converter | None, excuse: Callable[[RpcError], RpcError | bytes] | None = None
    ) -> None:
        """An `excuse` may give a result instead of an error. A large result is changed beside the event loop."""
        super().__init__(sink)
        self._change = change
        self._excuse = excuse

    def done(self, *result: Buffer) -> None:
        if self._change is None:
            self._sink.done(*result)
            return
        work = partial(self._change, result[0] if len(result) == 1 else b"".join(result))
        if is_large(REWRITTEN, *result):
            aside(work, lambda outcome: attempt(self._sink.failed, lambda: self._sink.done(outcome())))
        else:
            self._sink.done(work())

    def failed(self, error: RpcError) -> None:
        outcome = error if self._excuse is None else self._excuse(error)
        if isinstance(outcome, bytes):
            self._sink.done(outcome)
        else:
            self._sink.failed(outcome)


CONVERTED: Final = 1024 * 1024
"""Bytes of a result from which on it is put in a caller's words beside the event loop."""
REWRITTEN: Final = 64 * 1024
"""The same where its links are looked at one by one."""
RESHAPED: Final = 16 * 1024
"""The same where an expression of the configuration is evaluated over it."""


def is_large(limit: int, *result: Buffer) -> bool:
    """Whether to work on this result would hold up everybody."""
    return sum(memoryview(piece).nbytes for piece in result) > limit


def chain(*steps: Converter | None) -> Converter | None:
    """One change after the other; None if there is none."""
    changes = [step for step in steps if step is not None]
    if not changes:
        return None

    def change(result: Buffer) -> Buffer:
        for step in changes:
            result = step(result)
        return result

    return change


def as_error_result(text: str, revision: Revision, server_info: bytes) -> bytes:
    """The result of a tool call that failed, as a caller of this revision is told it."""
    said = envelopes.encode({"content": [{"type": "text", "text": text}], "isError": True})
    if not revision.stateless:
        return said
    meta = envelopes.object_of([(SERVER_INFO, server_info)])
    return b'{"resultType":"complete","_meta":' + meta + b"," + said[1:]
