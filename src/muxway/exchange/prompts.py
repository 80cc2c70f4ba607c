"""`prompts/get`: public name → upstream and native name → messages in the caller's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muxway.calls.sinks import Changing, chain
from muxway.errors import InvalidParams
from muxway.exchange.relay import Aim
from muxway.wire import conversion, envelopes

if TYPE_CHECKING:
    from muxway.calls.call import Call
    from muxway.calls.ports import Running, Sink
    from muxway.catalog.model import Catalog, Route
    from muxway.exchange.relay import Relay


class Prompts:
    """Sends requests for prompts where the catalog says."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def get(self, catalog: Catalog, call: Call, sink: Sink) -> Running | None:
        """Start a `prompts/get`.

        Raises:
            RpcError: it can be refused at once.
            StillStarting: its server may have it in a moment.
        """
        aim, sink = self.aim(catalog, call, sink)
        return self._relay.forwarder.send(aim.upstream, aim.head, call, sink)

    def aim(self, catalog: Catalog, call: Call, sink: Sink) -> tuple[Aim, Sink]:
        """Where a request for a prompt leads, and the sink for its outcome. Raises as `get` does."""
        route = self.find(catalog, envelopes.text(call.params.get("name")), "params.name")
        arguments = call.params.get("arguments")
        if arguments is not None and not envelopes.is_object(arguments) and not envelopes.is_null(arguments):
            raise InvalidParams(f"params.arguments of {route.public} must be an object")
        return Aim(route.upstream, route.head, call), self._changing(catalog, route, call, sink)

    def find(self, catalog: Catalog, name: str | None, where: str) -> Route:
        """The prompt that is meant. Raises as `get` does."""
        if name is None:
            raise InvalidParams(f"{where} must be a string: the name of a prompt")
        found = catalog.find(name)
        if found.route is not None:
            return found.route
        self._relay.explain_absence(catalog, name)
        if (route := catalog.unlisted(name)) is not None:
            return route
        near = catalog.nearest(name)
        raise InvalidParams(found.problem, data={"muxway": {"nearest": near}} if near else None)

    def _changing(self, catalog: Catalog, route: Route, call: Call, sink: Sink) -> Sink:
        """The sink for the outcome: the very same one where nothing need be done to it."""
        change = chain(catalog.result_rewriter(route.upstream), conversion.prompt_converter(call.caller.revision))
        return sink if change is None else Changing(sink, change)
