"""`resources/read`: contents under the caller's URIs, and errors in its era's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muxway.calls.sinks import Changing, chain
from muxway.errors import INVALID_PARAMS, RpcError, UpstreamSaid
from muxway.routing.router import NOT_FOUND
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.call import Call
    from muxway.calls.ports import LiveConnection, Sink
    from muxway.routing.target import Target
    from muxway.wire.envelopes import Buffer

_SAYS_NOT_FOUND: Final = ("not found", "unknown resource", "no such resource", "does not exist")


def prepare(target: Target, call: Call, sink: Sink, connection: LiveConnection | None) -> Sink:
    """The sink for the outcome of a read over a connection, which may be away."""
    stateless = call.caller.revision.stateless
    change = chain(target.rewrite, _with_hint if stateless else None)
    return Changing(sink, change, _excuse(stateless, connection is not None and connection.revision.stateless))


def _with_hint(result: Buffer) -> Buffer:
    """The result with how long it holds, which 2026-07-28 wants to know. A server that does not say says nothing."""
    raw = bytes(result)
    if b'"ttlMs"' in raw or b'"input_required"' in raw:
        fields = envelopes.members(raw) or {}
        if "ttlMs" in fields or bytes(fields.get("resultType", b"")) == b'"input_required"':
            return result
    return b'{"ttlMs":0,"cacheScope":"private",' + raw.lstrip()[1:]


def _excuse(caller_stateless: bool, upstream_stateless: bool) -> Callable[[RpcError], RpcError]:
    """Each era has its own code for a resource that is not there."""

    def excuse(error: RpcError) -> RpcError:
        if not isinstance(error, UpstreamSaid):
            return error
        if caller_stateless and error.code == NOT_FOUND:
            return _with_code(error, INVALID_PARAMS)
        if upstream_stateless and not caller_stateless and error.code == INVALID_PARAMS:
            # Other wrong parameters have the same code there.
            said = error.message.lower()
            return _with_code(error, NOT_FOUND) if any(words in said for words in _SAYS_NOT_FOUND) else error
        return error

    return excuse


def _with_code(error: UpstreamSaid, code: int) -> UpstreamSaid:
    members: dict[str, Buffer] = {**(envelopes.members(error.raw) or {}), "code": b"%d" % code}
    return UpstreamSaid(envelopes.object_of(members.items()), error.message, code, error.data)
