"""The middlewares of a gateway: made of its configuration, put around each view, closed after their last call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from muxway.calls.call import Caller
    from muxway.calls.identity import Decision, Denial
    from muxway.catalog.kinds import Kind
    from muxway.config.middlewares import MiddlewareSpec
    from muxway.config.model import Config, ServerConfig
    from muxway.exchange.approvals import Approval
    from muxway.exchange.runtime import Runtime
    from muxway.middleware.engine.base import Middleware
    from muxway.middleware.engine.running import Chains, Layer
    from muxway.routing.target import Target

    Layers = Mapping[str | None, Sequence[Layer]]
    """What stands around requests, by view, the outermost first; None: around those to the whole."""


class Layering:
    """Has the chains of middleware that are in force, and those that calls under way may still use."""

    def __init__(self, runtime: Runtime, given: Sequence[Middleware]) -> None:
        """Prepare one; those `given` stand outside all that the configuration says."""
        self._runtime = runtime
        self._given = given
        self.chains: Mapping[str | None, Chains] = {}
        """Those in force, by view."""
        self._retired: list[list[Layer]] = []
        """Middlewares of configurations before this one that calls under way may still use."""
        self._closing: set[asyncio.Task[None]] = set()

    def make(self, config: Config, *, anew: bool = False) -> Layers:
        """The middlewares around the whole and around each view; without any, nothing is loaded.

        Those in force stay that are specified as they were, unless all are to be made `anew`: they count on, and
        remember what nobody tells them to forget.

        Raises:
            ConfigError: one of them cannot be used; lists every problem.
        """
        given: list[object] = [*self._given, *config.middleware]
        if not given and not any(specs for _, specs in specs_of(config)):
            return {}
        from muxway.middleware.engine import modules
        from muxway.middleware.engine.base import Middleware
        from muxway.middleware.engine.loading import layers_of
        from muxway.middleware.engine.running import Layer

        layers: list[Layer] = []
        for one in given:
            if not isinstance(one, Middleware):
                raise TypeError(
                    f"a {type(one).__name__} is no middleware: give instances of muxway.Middleware. Functions stand in "
                    "a muxway.chain, names of built-in ones in `middleware` of the configuration"
                )
            layers.append(Layer(type(one).__name__, one))
        made: dict[str | None, list[Layer]] = {}
        with modules.renewed():
            for name, view in (("", None), *((view.name, view) for view in config.views.values())):
                chains = None if anew else self.chains.get(name or None)
                before = () if chains is None else chains.layers
                made[name or None] = [*layers, *layers_of(config, view, made.get(None, ()), before)]
        return made

    def more(self, server: ServerConfig) -> Layers:
        """Those in force with the middlewares of a server that is added inside them."""
        from muxway.middleware.engine.loading import layers_of_server

        whole = layers_of_server(server)
        before = {view: self.chains[view].layers if view in self.chains else () for view in self._views}
        return {
            view: [*layers, *(whole if view is None else layers_of_server(server, whole))]
            for view, layers in before.items()
        }

    @property
    def _views(self) -> tuple[str | None, ...]:
        return None, *self._runtime.snapshot.views

    def put(self, layers: Layers, call_max: float) -> Mapping[str | None, Chains]:
        """Chains of these in place of those there were, which are closed when no call can be using them any more.

        Args:
            layers: what is to stand around requests.
            call_max: seconds after which a call that is under way now is over.
        """
        before = [layer for chains in self.chains.values() for layer in chains.layers]
        chains: dict[str | None, Chains] = {}
        if any(layers.values()):
            from muxway.middleware.engine.running import Chains

            chains = {view: Chains(chain, self._runtime.dispatcher(view)) for view, chain in layers.items() if chain}
        self.chains = chains
        stay = {id(layer.middleware) for chain in layers.values() for layer in chain}
        self._retire([layer for layer in before if id(layer.middleware) not in stay], call_max)
        return chains

    def _retire(self, layers: Sequence[Layer], call_max: float) -> None:
        """Close these middlewares when the calls that still use them are over."""
        # One may stand in several chains.
        by_id = {id(layer.middleware): layer for layer in layers}
        if retired := [*by_id.values()]:
            self._retired.append(retired)
            asyncio.get_running_loop().call_later(call_max, self._close_retired, retired)

    def _close_retired(self, layers: list[Layer]) -> None:
        if layers in self._retired:
            from muxway.middleware.engine.running import close_layers

            self._retired.remove(layers)
            closing = asyncio.get_running_loop().create_task(close_layers(layers))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def forget(self, server: str | None) -> None:
        """What is remembered of a server, or with None of anything, is no more to be used."""
        self._tell("forget", server)

    def task_ended(self, task: str) -> None:
        """A task is over."""
        self._tell("task_ended", task)

    def turned_away(self, denial: Denial) -> None:
        """Somebody was turned away before there was a request."""
        self._tell("turned_away", denial)

    def decided(self, approval: Approval, decision: Decision) -> None:
        """Somebody was asked whether a request may be made; those around it hear what the answer was."""
        if around := self.around([approval.target], approval.view):
            from muxway.middleware.engine.running import tell_layers

            tell_layers(around, "decided", decision)

    def _tell(self, hook: str, told: object) -> None:
        if self.chains:
            from muxway.middleware.engine.running import tell_layers

            tell_layers((layer for chains in self.chains.values() for layer in chains.layers), hook, told)

    def around(self, targets: Iterable[Target], view: str | None) -> list[Layer]:
        """The middlewares around calls of any of these by the callers of a view, the outermost first."""
        chains = self.chains.get(view)
        return [] if chains is None else chains.around_any(targets)

    async def hider(self, kind: Kind, name: str, caller: Caller, view: str | None) -> Layer | None:
        """The middleware that takes a name out of a caller's list, if one does. Raises RpcError."""
        chains = self.chains.get(view)
        return None if chains is None else await chains.hider(kind, name, caller)

    async def close(self) -> None:
        """Close all of them, and wait for that."""
        # Those that were given as objects stand in every chain.
        current = [layer for chains in self.chains.values() for layer in chains.layers]
        retired, self._retired = self._retired, []
        layers = {id(layer.middleware): layer for part in (current, *retired) for layer in part}
        if layers:
            from muxway.middleware.engine.running import close_layers

            await close_layers(layers.values())
        if self._closing:
            await asyncio.wait(self._closing)


def specs_of(config: Config) -> list[tuple[str, tuple[MiddlewareSpec, ...]]]:
    """The middlewares that the configuration names, by where they stand."""
    servers = [server for server in config.servers.values() if server.enabled and server.middleware]
    return [
        ("gateway", config.gateway.middleware),
        *((f"view {view.name}", view.middleware) for view in config.views.values()),
        *((f"server {server.name}", server.middleware) for server in servers),
    ]
