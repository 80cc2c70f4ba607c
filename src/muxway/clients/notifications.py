"""What the gateway tells clients unasked, as frames: progress, log messages, changes, the life of a subscription.

Every transport says these; only where they go differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muxway.errors import RpcError
from muxway.wire import envelopes, revisions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.calls.call import Call, Caller
    from muxway.wire.envelopes import Buffer

_PROGRESS: Final = "notifications/progress"
_LOG: Final = "notifications/message"
_LOSSY: Final = tuple(b"".join(envelopes.notification(method)).removesuffix(b"}\n") for method in (_PROGRESS, _LOG))


def may_be_lost(message: bytes, start: int = 0) -> bool:
    """Whether a message may be left out for a client that does not keep up: only progress and log messages may."""
    return message.startswith(_LOSSY, start)


def progress(call: Call, params: dict[str, Buffer]) -> list[Buffer] | None:
    """The server's progress under the caller's own token; None if the caller wants none."""
    token = call.progress_token
    if token is None:
        return None
    if not call.caller.revision.progress_message:
        params.pop("message", None)
    body = envelopes.object_of(((revisions.PROGRESS_TOKEN, token), *params.items()))
    return envelopes.notification(_PROGRESS, body)


def log(caller: Caller, params: dict[str, Buffer]) -> list[Buffer] | None:
    """A server's log message; None if this caller does not want it."""
    level = envelopes.text(params.get("level"))
    if level not in revisions.LOG_LEVELS:
        return None
    least = caller.log_level
    # Without a word from its client a handshake server chooses itself, a stateless one must be silent.
    wanted = not caller.revision.stateless if least is None else revisions.LOG_LEVELS.index(level) >= least
    return envelopes.notification(_LOG, envelopes.object_of(params.items())) if wanted else None


def list_changed(kind: str, subscription: bytes | None = None) -> list[Buffer]:
    """The list of this kind ("tools", "prompts", "resources") has changed; to a subscription, under its id."""
    return _stamped(f"notifications/{kind}/list_changed", {}, subscription)


def updated(uri: str, subscription: bytes | None = None) -> list[Buffer]:
    """A resource has changed; to a subscription, under its id."""
    return _stamped("notifications/resources/updated", {"uri": uri}, subscription)


def acknowledged(id_: bytes, honoured: Mapping[str, object]) -> list[Buffer]:
    """The first word on a subscription: what of its filter is honoured."""
    return _stamped("notifications/subscriptions/acknowledged", {"notifications": honoured}, id_)


def _stamped(method: str, params: Mapping[str, object], subscription: bytes | None) -> list[Buffer]:
    if subscription is not None:
        params = {"_meta": {revisions.SUBSCRIPTION_ID: envelopes.Raw(subscription)}, **params}
    return envelopes.notification(method, envelopes.encode(params) if params else None)


CLOSED: Final = envelopes.error_body(
    RpcError(
        "the session was closed before this was answered; a call may have run", data={"muxway": {"reason": "closed"}}
    )
)
"""Says that a session has ended; the same object in each such answer, to know it by."""


def closed(id_: bytes) -> list[Buffer]:
    """The answer to a request whose session has ended."""
    return [b'{"jsonrpc":"2.0","id":', id_, b',"error":', CLOSED, b"}\n"]


def cancelled(id_: bytes, reason: str) -> list[Buffer]:
    """Nothing more comes of this request."""
    params = envelopes.object_of((("requestId", id_), ("reason", envelopes.encode(reason))))
    return envelopes.notification("notifications/cancelled", params)


def listening_ended(id_: bytes) -> bytes:
    """The result of a subscription that the gateway ends."""
    return b'{"resultType":"complete","_meta":' + envelopes.object_of([(revisions.SUBSCRIPTION_ID, id_)]) + b"}"
