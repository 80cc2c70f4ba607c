"""`resources/read`: any URI → the one server it belongs to → contents under the caller's URIs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muxway.calls.backend import StillStarting
from muxway.calls.sinks import Changing, chain
from muxway.catalog.kinds import RESOURCES, TEMPLATES
from muxway.catalog.resources import Place
from muxway.catalog.uris import unwrap
from muxway.errors import INVALID_PARAMS, InvalidParams, RpcError, UpstreamSaid
from muxway.exchange.relay import Aim
from muxway.likeness import short
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muxway.calls.backend import Backend
    from muxway.calls.call import Call
    from muxway.calls.ports import Running, Sink
    from muxway.catalog.resources import ResourceCatalog
    from muxway.exchange.relay import Relay
    from muxway.wire.envelopes import Buffer

NOT_FOUND: Final = -32002
"""No such resource, in the handshake revisions; 2026-07-28 has no code of its own for it."""
_SAYS_NOT_FOUND: Final = ("not found", "unknown resource", "no such resource", "does not exist")


class Resources:
    """Sends requests for resources where the catalog says."""

    def __init__(self, relay: Relay, members: Mapping[str, Backend]) -> None:
        self._relay = relay
        self._members = members

    def read(self, catalog: ResourceCatalog, call: Call, sink: Sink) -> Running | None:
        """Start a `resources/read`.

        Raises:
            RpcError: it can be refused at once.
            StillStarting: the server that has it may be up in a moment.
        """
        aim, sink = self.aim(catalog, call, sink)
        return self._relay.forwarder.send(aim.upstream, aim.head, call, sink)

    def aim(self, catalog: ResourceCatalog, call: Call, sink: Sink) -> tuple[Aim, Sink]:
        """Where a read leads, and the sink for its outcome. Raises as `read` does."""
        uri = envelopes.text(call.params.get("uri"))
        if uri is None:
            raise InvalidParams("params.uri must be a string: the URI of the resource to read")
        place = self.find(catalog, uri)
        if place is None:
            code = INVALID_PARAMS if call.caller.revision.stateless else NOT_FOUND
            raise RpcError(f"Resource not found: {short(uri)}", code=code, data={"uri": short(uri, 4096)})
        head = b'"method":"resources/read","params":{"uri":' + envelopes.encode(place.native)
        return Aim(place.upstream, head, call), self._changing(catalog, uri, place, call, sink)

    def find(self, catalog: ResourceCatalog, uri: str) -> Place | None:
        """Where a URI leads. Raises as `read` does."""
        place = catalog.find_listed(uri)
        if place is not None:
            return place
        upstream, native = unwrap(uri) or ("", uri)
        member = self._members.get(upstream)
        if member is not None:
            # It may be in this server's gift once it is there; sending says why it is not.
            return Place(upstream, native) if member.link is None else None
        # Whose it is cannot be told before all are there.
        for member in self._members.values():
            if member.starting:
                raise StillStarting(member)
        place = catalog.find(uri)
        if place is None:
            self._relay.look_again(self._members.values(), RESOURCES, TEMPLATES)
        return place

    def _changing(self, catalog: ResourceCatalog, uri: str, place: Place, call: Call, sink: Sink) -> Sink:
        """The sink for the outcome."""
        stateless = call.caller.revision.stateless
        member = self._members.get(place.upstream)
        link = None if member is None else member.choose(call)
        change = chain(catalog.contents_rewriter(uri, place), _with_hint if stateless else None)
        return Changing(sink, change, _excuse(stateless, link is not None and link.revision.stateless))


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
