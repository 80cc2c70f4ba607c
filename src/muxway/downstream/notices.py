"""What the gateway tells clients unasked, as frames: progress, changed lists, the life of a subscription.

Every door says these; only where they go differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muxway.protocol import era, messages

if TYPE_CHECKING:
    from muxway.core.call import Call, Caller
    from muxway.protocol.messages import Buffer, Params

NO_FILTER: Final = "subscriptions/listen: params.notifications must be an object"
_LOG: Final = "notifications/message"
_LIST_CHANGED: Final = "notifications/tools/list_changed"


def progress(call: Call, params: dict[str, Buffer]) -> list[Buffer] | None:
    """The upstream's progress under the caller's own token; None if the caller wants none."""
    token = call.progress_token
    if token is None:
        return None
    if not call.caller.revision.progress_message:
        params.pop("message", None)
    body = messages.object_of(((era.PROGRESS_TOKEN, token), *params.items()))
    return messages.notification("notifications/progress", body)


def log(caller: Caller, params: dict[str, Buffer]) -> list[Buffer] | None:
    """An upstream's log message; None if this caller does not want it."""
    level = messages.text(params.get("level"))
    if level not in era.LOG_LEVELS:
        return None
    least = caller.log_level
    # Without a word from its client a handshake server chooses itself, a stateless one must be silent.
    wanted = not caller.revision.stateless if least is None else era.LOG_LEVELS.index(level) >= least
    return messages.notification(_LOG, messages.object_of(params.items())) if wanted else None


def tools_changed(subscription: bytes | None = None) -> list[Buffer]:
    """The list of tools has changed; to a subscription, under its id."""
    if subscription is None:
        return messages.notification(_LIST_CHANGED)
    meta = messages.encode({"_meta": {era.SUBSCRIPTION_ID: messages.Raw(subscription)}})
    return messages.notification(_LIST_CHANGED, meta)


def wants_tools(wanted: Params) -> bool:
    """Whether the filter of a subscription asks for changes of the tools."""
    return bytes(wanted.get("toolsListChanged", b"")) == b"true"


def acknowledged(id_: bytes, wanted: Params) -> list[Buffer]:
    """The first word on a subscription: what of its filter is honoured."""
    params = {
        "_meta": {era.SUBSCRIPTION_ID: messages.Raw(id_)},
        "notifications": {"toolsListChanged": True} if wants_tools(wanted) else {},
    }
    return messages.notification("notifications/subscriptions/acknowledged", messages.encode(params))


def listening_ended(id_: bytes) -> bytes:
    """The result of a subscription that the gateway ends."""
    return b'{"resultType":"complete","_meta":' + messages.object_of([(era.SUBSCRIPTION_ID, id_)]) + b"}"
