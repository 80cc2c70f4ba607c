"""`completion/complete`: the prompt or template it is about, in its server's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from muxway.calls.sinks import Changing
from muxway.catalog.uris import LONGEST
from muxway.errors import METHOD_NOT_FOUND, InvalidParams, RpcError, UpstreamSaid
from muxway.likeness import short
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from muxway.calls.backend import Backend
    from muxway.calls.call import Call
    from muxway.calls.ports import Running, Sink
    from muxway.catalog.model import Catalog
    from muxway.catalog.resources import ResourceCatalog
    from muxway.exchange.prompts import Prompts
    from muxway.exchange.relay import Relay
    from muxway.exchange.resources import Resources
    from muxway.wire.envelopes import Buffer, Params

_MOST: Final = 100
_NOTHING: Final = b'"completion":{"values":[],"hasMore":false}'


class Completion:
    """Sends completions to the server that has what is being filled in."""

    def __init__(
        self, relay: Relay, members: Mapping[str, Backend], prompts: Prompts, resources: Resources, stamp: bytes
    ) -> None:
        """`stamp` is the `_meta` of results for stateless callers."""
        self._relay = relay
        self._members = members
        self._prompts = prompts
        self._resources = resources
        self._nothing = b"{" + _NOTHING + b"}"
        self.reconfigure(stamp)

    def reconfigure(self, stamp: bytes) -> None:
        """Another stamp."""
        self._nothing_stateless = b'{"resultType":"complete",' + _NOTHING + b"," + stamp + b"}"

    def complete(
        self, prompts: Catalog, resources: ResourceCatalog, completing: Collection[str], call: Call, sink: Sink
    ) -> Running | None:
        """Start a completion. `completing` are the upstreams that can.

        Raises:
            RpcError: it can be refused at once.
            StillStarting: its server may have it in a moment.
        """
        ref = envelopes.members(call.params.get("ref", b""))
        if ref is None:
            raise InvalidParams("params.ref must be an object: the prompt or resource template to complete for")
        upstream, native = self._native(prompts, resources, ref)
        nothing = self._nothing_stateless if call.caller.revision.stateless else self._nothing
        member = self._members.get(upstream)
        bare = member is not None and member.bare
        if not bare and upstream not in completing and member is not None and member.link is not None:
            sink.done(nothing)
            return None
        head = b'"method":"completion/complete","params":{"ref":' + native
        # What one of several servers cannot do is no error; the only one says so itself.
        sink = Changing(sink, _at_most, lambda error: nothing if not bare and _unknown(error) else error)
        return self._relay.forwarder.send(upstream, head, self._without_news(upstream, call), sink)

    def _native(self, prompts: Catalog, resources: ResourceCatalog, ref: Params) -> tuple[str, bytes]:
        kind = envelopes.text(ref.get("type"))
        if kind == "ref/prompt":
            route = self._prompts.find(prompts, envelopes.text(ref.get("name")), "params.ref.name")
            return route.upstream, _with(ref, "name", route.native)
        if kind == "ref/resource":
            uri = envelopes.text(ref.get("uri"))
            if uri is None:
                raise InvalidParams("params.ref.uri must be a string: a resource template, or the URI of a resource")
            place = resources.find_template(uri) or (
                self._resources.find(resources, uri) if len(uri) <= LONGEST else None
            )
            if place is None:
                raise InvalidParams(f"Resource template not found: {short(uri)}")
            return place.upstream, _with(ref, "uri", place.native)
        raise InvalidParams("params.ref.type must be ref/prompt or ref/resource")

    def _without_news(self, upstream: str, call: Call) -> Call:
        """The call without what the upstream's revision does not know."""
        if "context" not in call.params:
            return call
        member = self._members.get(upstream)
        link = None if member is None else member.choose(call)
        if link is None or link.revision.completion_context:
            return call
        params = {name: raw for name, raw in call.params.items() if name != "context"}
        return msgspec.structs.replace(call, params=params)


def _with(ref: Params, name: str, value: str) -> bytes:
    members: dict[str, Buffer] = {**ref, name: envelopes.encode(value)}
    return envelopes.object_of(members.items())


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
