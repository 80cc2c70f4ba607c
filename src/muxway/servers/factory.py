"""Makes instances of servers, and says how they are treated: of their configuration, and of the gateway's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from muxway.servers.dialing import start_timeout, takes_several
from muxway.servers.instance import Instance, ServerTerms
from muxway.servers.limits import ServerLimits
from muxway.servers.pool import Sharing
from muxway.servers.supervision import Care

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from muxway.calls.identity import Owner
    from muxway.catalog.kinds import Kind
    from muxway.config.model import GatewaySettings, ServerConfig
    from muxway.servers.dialing import Dialing
    from muxway.servers.instance import Hooks
    from muxway.servers.lists import Offer
    from muxway.servers.managed_server import ManagedServer
    from muxway.servers.transports.port import Credentials

_LAZY_IDLE: Final = 300.0
"""Seconds without a call after which a lazy server is put to sleep, if nothing else is said."""


class InstanceFactory:
    """What all instances of servers have in common: how they are reached, and who hears of them."""

    def __init__(
        self,
        settings: GatewaySettings,
        dialing: Dialing,
        hooks: Hooks,
        prepare: Callable[[Instance, Mapping[Kind, Offer]], Awaitable[None]],
        credentials: Callable[[ServerConfig, Owner | None], Credentials | None],
    ) -> None:
        """Prepare.

        Args:
            settings: how the gateway behaves.
            dialing: how servers are reached.
            hooks: who is told what their connections bring.
            prepare: waits until all is ready for what an instance is about to list.
            credentials: gives what a remote server is shown, where that is not in its configuration, in the name of a
                user; None: of whoever runs the gateway.
        """
        self.settings = settings
        self._dialing = dialing
        self._hooks = hooks
        self._prepare = prepare
        self._credentials = credentials

    def make(self, server: ManagedServer, config: ServerConfig, thing: object) -> Instance:
        """An instance of a server, which does not serve yet; `thing` is the object that it is, if it is one."""
        by_login = thing is None and (config.url is not None or bool(config.user_values))
        credentials = self._credentials(config, server.owner) if by_login else None
        instance = Instance(
            server,
            config,
            thing,
            self._terms(config),
            self._hooks,
            dial=self._dialing.dial(lambda: instance.config, config, thing, server.journal, credentials),
            room=self._dialing.room(config, thing),
            sharing=Sharing(
                # However often an object is served, what it keeps is the same.
                isolation=config.isolation if thing is None else "shared",
                match_era=config.era == "auto" and (thing is None or takes_several(thing)),
                keeps_state=config.transport == "stdio",
                alone=self._hooks.sessions.only is not None,
                forward=frozenset(config.forward),
                personal=_personal(config, credentials) if server.owner is None else None,
            ),
            credentials=credentials,
        )
        instance.pool.first.lists.prepare = partial(self._prepare, instance)
        return instance

    def settle_terms(self, instance: Instance) -> None:
        """How long calls of a server may take, how it is looked after, how much is asked of it at a time."""
        config, settings, server = instance.config, self.settings, instance.server
        if instance is server.instance or server.owner is not None:
            server.idle = config.call_timeout or settings.call_timeout
            server.limit = config.call_max or settings.call_max
        terms = self._terms(config)
        if server.owner is not None:
            # When its user does nothing there it sleeps, as others that are not for everybody end.
            idle_stop = min(filter(None, (terms.care.idle_stop, terms.idle)))
            terms = terms._replace(care=terms.care._replace(idle_stop=idle_stop))
        instance.adjust(terms)

    def _terms(self, config: ServerConfig) -> ServerTerms:
        settings = self.settings
        return ServerTerms(
            start_timeout(config.start_timeout, config.command),
            settings.list_timeout,
            settings.max_tools,
            ServerLimits(config.max_concurrency, config.max_queue, settings.queue_wait),
            _care(config),
            settings.max_instances,
            settings.instance_idle,
        )


def _personal(config: ServerConfig, credentials: Credentials | None) -> Callable[[], bool] | None:
    """How to find out whether a server is used with the login of one user; None: it never is."""
    if credentials is not None and config.user_values:
        return lambda: True
    if credentials is None or config.oauth.shared or not config.oauth.interactive:
        return None
    return lambda: credentials.header is not None


def _care(config: ServerConfig) -> Care:
    child = config.transport == "stdio" and config.command is not None
    idle_stop = config.idle_stop
    if idle_stop is None and config.start == "lazy":
        idle_stop = _LAZY_IDLE
    return Care(
        # What it lacks does not come while we run: a reload brings another configuration.
        supervised=not config.unusable,
        probe_interval=config.probe_interval if child and config.restart_unresponsive else 0.0,
        restart_unresponsive=child and config.restart_unresponsive,
        idle_stop=idle_stop,
    )
