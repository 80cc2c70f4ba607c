"""Whatever went wrong inside, as an answer: the caller gets an error with a number, the log has the traceback under it.

A fault in one request ends that request and nothing else. It is caught where a message is handed to what handles it:
by the clients' side for a request, by the servers' side for an answer, and by whoever passes on an outcome after it
has counted itself as over, because what it raises there can no longer come back to it as a failure.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from muxway.calls.ports import log
from muxway.errors import RpcError

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.ports import Sink
    from muxway.wire.envelopes import Buffer


def internal(error: Exception, **where: object) -> RpcError:
    """The error to answer with. An error that was raised as an answer is that answer; any other one is logged."""
    if isinstance(error, RpcError):
        return error
    number = secrets.token_hex(4)
    log.failure("internal error", error, incident=number, **where)
    return RpcError(
        f"internal error of the gateway; its log says more under incident {number}",
        data={"muxway": {"reason": "internal", "incident": number}},
    )


def deliver(sink: Sink, *result: Buffer) -> None:
    """Give a result to a sink. If it cannot take it, it gets the failure instead."""
    try:
        sink.done(*result)
    except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for an answer
        sink.failed(internal(error))


def attempt(failed: Callable[[RpcError], None], do: Callable[[], object]) -> None:
    """Go on with a request; if that goes wrong it has failed."""
    try:
        do()
    except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for an answer
        failed(internal(error))
