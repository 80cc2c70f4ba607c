"""`tools/call`: a call as the server of its tool gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from muxway.errors import InvalidParams
from muxway.wire import envelopes

if TYPE_CHECKING:
    from msgspec import Raw

    from muxway.calls.call import Call
    from muxway.routing.target import Target


def prepare(target: Target, call: Call) -> Call:
    """The call to send; the very same one where nothing need be done to it.

    Raises:
        InvalidParams: its arguments cannot be used.
    """
    params = call.params
    if (arguments := params.get("arguments")) is not None and not envelopes.is_object(arguments):
        check_arguments(target, arguments)
    if "task" in params:
        # Whether a call is a task is between the gateway and the server.
        call = _with(call, {name: raw for name, raw in params.items() if name != "task"})
    if target.spelled is not None:
        call = _with(call, {**call.params, "name": target.spelled})
    for shape in target.shapes:
        call = _with(call, {**call.params, "arguments": shape.arguments(call.params.get("arguments"))})
    return call


def check_arguments(target: Target, arguments: Raw) -> None:
    """Refuse arguments that are no object. Raises InvalidParams."""
    if not envelopes.is_null(arguments):
        route = target.chosen or target.route
        name = target.names[0] if route is None else route.public
        raise InvalidParams(f"params.arguments of {name} must be an object")


def _with(call: Call, params: dict[str, Raw]) -> Call:
    return msgspec.structs.replace(call, params=params)
