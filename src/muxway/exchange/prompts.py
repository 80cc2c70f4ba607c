"""`prompts/get`: messages in the caller's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muxway.calls.sinks import Changing, chain
from muxway.errors import InvalidParams
from muxway.wire import conversion, envelopes

if TYPE_CHECKING:
    from muxway.calls.call import Call
    from muxway.calls.ports import Sink
    from muxway.routing.target import Target


def prepare(target: Target, call: Call, sink: Sink) -> Sink:
    """The sink for the outcome: the very same one where nothing need be done to it.

    Raises:
        InvalidParams: its arguments cannot be used.
    """
    arguments = call.params.get("arguments")
    if arguments is not None and not envelopes.is_object(arguments) and not envelopes.is_null(arguments):
        raise InvalidParams(f"params.arguments of {target.names[0]} must be an object")
    change = chain(target.rewrite, conversion.prompt_converter(call.caller.revision))
    return sink if change is None else Changing(sink, change)
