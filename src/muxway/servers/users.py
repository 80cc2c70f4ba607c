"""Servers that are used in the name of each user, with a login of that user's own."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from muxway.errors import UpstreamError
from muxway.servers.managed_server import PATIENCE, ManagedServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from muxway.calls.identity import Owner
    from muxway.exchange.subscriptions import Subscriptions
    from muxway.servers.draining import Draining
    from muxway.servers.factory import InstanceFactory
    from muxway.servers.instance import Instance

_MOST_USERS: Final = 1000
"""Users of whom it is kept what one server has for them."""


def each_of(servers: Mapping[str, ManagedServer]) -> Iterator[ManagedServer]:
    """Every server, and those that are used in the name of a user."""
    for server in servers.values():
        yield server
        yield from server.of_users.values()


class ServerUsers:
    """Begins to use servers in the name of users, and ends it."""

    def __init__(
        self,
        factory: InstanceFactory,
        draining: Draining,
        subscriptions: Subscriptions,
    ) -> None:
        """Prepare; what is for one user is let go by way of `draining`."""
        self._factory = factory
        self._draining = draining
        self._subscriptions = subscriptions

    def let_serve(self, instance: Instance) -> None:
        """Put an instance in; if users have logins of their own there, it can be used in the name of each."""
        server = instance.server
        own = instance.pool.sharing.personal is not None
        server.make_own = partial(self._begin, server) if own else None
        server.make_room = partial(self._make_room, server)
        server.listed_for_all = False
        server.put(instance)

    def end(self, server: ManagedServer) -> None:
        """Use a server in nobody's name any more, once the calls under way are over."""
        for owner in list(server.of_users):
            self._draining.drain(self._forget(server, owner).instance)

    def renew(self, server: ManagedServer) -> None:
        """Another instance of a server serves: use that one in the name of those who used the one before."""
        for owner, before in list(server.of_users.items()):
            self._draining.drain(self._forget(server, owner).instance)
            again = None if server.make_own is None else server.make_own(owner)
            if again is not None and before.first.greeting is not None:
                # What was there for its user is listed until this one says what is.
                again.first.expect(before.first.greeting, before.lists.offers)

    def _begin(self, server: ManagedServer, owner: Owner) -> ManagedServer | None:
        """Begin to use a server in the name of a user; None: it wants nobody's name."""
        credentials = server.instance.credentials
        if credentials is None or not credentials.wanted or self._draining.stopping:
            return None
        own = ManagedServer(owner, server)
        own.prefix, own.unprefixed, own.bare = server.prefix, server.unprefixed, server.bare
        instance = self._factory.make(own, server.config, server.instance.thing)
        own.put(instance)
        self._factory.settle_terms(instance)
        server.of_users[owner] = own
        self._subscriptions.add(instance.place, instance.feeds)
        try:
            self._make_room(server)
        except UpstreamError:
            # A call will try again, and say so; a list is of what there is.
            own.first.lie_down()
            return own
        own.first.start()
        # Lists wait for it, but not for long.
        asyncio.get_running_loop().call_later(PATIENCE, own.waiting.release)
        return own

    def _forget(self, server: ManagedServer, owner: Owner) -> ManagedServer:
        own = server.of_users.pop(owner)
        self._subscriptions.remove(own.instance.place)
        return own

    def _make_room(self, server: ManagedServer) -> None:
        """See that a server may be used in the name of one more user. Raises UpstreamError if not."""
        name, most = server.config.name, self._factory.settings.max_instances
        awake = [own for own in server.of_users.values() if own.first.open]
        if len(awake) >= most:
            idle = [own for own in awake if own.connection is not None and not own.first.in_use]
            if not idle:
                why = f'server "{name}" is already used in the name of {most} users (maxInstances); try again later'
                raise UpstreamError(name, "overloaded", why)
            min(idle, key=lambda own: own.first.used).first.sleep()
        if len(server.of_users) >= _MOST_USERS:
            asleep = [(own.first.used, owner) for owner, own in server.of_users.items() if not own.first.open]
            if asleep:
                self._draining.begin(self._forget(server, min(asleep)[1]).instance.stop())
