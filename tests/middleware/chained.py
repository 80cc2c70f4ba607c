"""A gateway with middlewares around it, given as objects."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from muxway.middleware.engine.base import Middleware
from muxway.middleware.engine.running import Chains, Layer

from ..conftest import World, a_world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from muxway import Gateway
    from muxway.errors import RpcError
    from muxway.middleware.engine.base import Next, Request, Result
    from muxway.testing import ScriptedServer


def surround(gateway: Gateway, *layers: Layer) -> Chains:
    """Put middlewares around a gateway that runs."""
    chains = Chains(layers, gateway.runtime.dispatcher())
    publisher = gateway._publisher
    publisher.settings = replace(publisher.settings, chains={None: chains})
    publisher.publish()
    return chains


@contextlib.asynccontextmanager
async def chained(servers: dict[str, ScriptedServer], *middlewares: Middleware) -> AsyncIterator[World]:
    """A world with these middlewares around it, the first one outermost; closed after."""
    # A thousand calls at once are for the middlewares to bear.
    many = {"maxCalls": 10_000, "maxCallsPerClient": 10_000}
    entries = {name: {"maxConcurrency": 10_000, "maxQueue": 10_000} for name in servers}
    async with a_world(servers, gateway=many, entries=entries) as world:
        chains = surround(world.gateway, *(Layer(type(one).__name__, one) for one in middlewares))
        try:
            yield world
        finally:
            await chains.close()


class Failing(Middleware):
    """Fails with these errors, one for each request, before it lets any through."""

    plain = True

    def __init__(self, *errors: RpcError) -> None:
        self.errors = [*errors]
        self.seen = 0

    async def any_request(self, request: Request, go: Next) -> Result:
        self.seen += 1
        if self.errors:
            raise self.errors.pop(0)
        return await go(request)
