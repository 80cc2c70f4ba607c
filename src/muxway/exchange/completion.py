"""`completion/complete`: at most as many values as the protocol allows, and none where a server cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from muxway.calls.sinks import Changing
from muxway.errors import METHOD_NOT_FOUND, RpcError, UpstreamSaid
from muxway.wire import envelopes

if TYPE_CHECKING:
    from muxway.calls.backend import Backend
    from muxway.calls.call import Call
    from muxway.calls.ports import Sink
    from muxway.routing.snapshot import Visible
    from muxway.routing.target import Target
    from muxway.wire.envelopes import Buffer

_MOST: Final = 100
_NOTHING: Final = b'"completion":{"values":[],"hasMore":false}'


def nothing(visible: Visible, call: Call) -> bytes:
    """The answer where there is nothing to complete with."""
    if not call.caller.revision.stateless:
        return b"{" + _NOTHING + b"}"
    return b'{"resultType":"complete",' + _NOTHING + b"," + visible.settings.stamp + b"}"


def cannot(visible: Visible, target: Target, backend: Backend | None) -> bool:
    """Whether a server that is there cannot complete; the only one, whose words stand as they are, says so itself."""
    there = backend is not None and backend.connection is not None
    return there and not _is_bare(visible, target) and target.server not in visible.completing


def prepare(visible: Visible, target: Target, call: Call, sink: Sink, backend: Backend | None) -> tuple[Call, Sink]:
    """The call without what its server's revision does not know, and the sink for the outcome."""
    if "context" in call.params:
        connection = None if backend is None else backend.choose(call)
        if connection is not None and not connection.revision.completion_context:
            params = {name: raw for name, raw in call.params.items() if name != "context"}
            call = msgspec.structs.replace(call, params=params)
    empty, bare = nothing(visible, call), _is_bare(visible, target)
    # What one of several servers cannot do is no error; the only one says so itself.
    return call, Changing(sink, _at_most, lambda error: empty if not bare and _unknown(error) else error)


def _is_bare(visible: Visible, target: Target) -> bool:
    naming = visible.whole.servers.get(target.server)
    return naming is not None and naming.bare


def _unknown(error: RpcError) -> bool:
    return isinstance(error, UpstreamSaid) and error.code == METHOD_NOT_FOUND


def _at_most(result: Buffer) -> Buffer:
    """The result with no more values than the protocol allows."""
    fields: dict[str, Buffer] = {**(envelopes.members(result) or {})}
    completion: dict[str, Buffer] = {**(envelopes.members(fields.get("completion", b"")) or {})}
    values = envelopes.items(completion.get("values", b"")) or []
    if len(values) <= _MOST:
        return result
    completion |= {"values": b"[" + b",".join(values[:_MOST]) + b"]", "hasMore": b"true"}
    fields["completion"] = envelopes.object_of(completion.items())
    return envelopes.object_of(fields.items())
