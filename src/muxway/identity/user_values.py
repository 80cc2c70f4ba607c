"""What a user gives for `${user:NAME}` at one server, kept in the same store as logins. Implements `Credentials`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from muxway.calls.identity import key_name
from muxway.config.user_values import filled
from muxway.errors import MuxwayError, UpstreamError
from muxway.identity.login_watch import LoginWatch
from muxway.identity.store import LOCAL, LoginKey, canonical
from muxway.net.sealed_files import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muxway.calls.identity import Owner
    from muxway.config.model import ServerConfig
    from muxway.identity.store import TokenStore

_LONGEST: Final = 8192


class WrongValue(MuxwayError):
    """This cannot be a value."""


def values_key(config: ServerConfig, owner: Owner = LOCAL) -> LoginKey:
    """Under which they are kept: for this very address or program, and no other of the same name."""
    place = canonical(config.url) if config.url is not None else f"program:{config.command}"
    return LoginKey(*owner, config.name, place)


def checked(name: str, value: str) -> str:
    """A value that can be sent. Raises WrongValue, which does not show it."""
    if not value or len(value) > _LONGEST or any(ord(char) < 0x20 or ord(char) == 0x7F for char in value):
        raise WrongValue(f"{name} must be one line of 1 to {_LONGEST} characters")
    return value


class UserValues:
    """Those of one user at one server."""

    header: str | None = None
    """A server that takes these is not logged in to."""
    wanted = True

    def __init__(
        self, config: ServerConfig, store: TokenStore, *, owner: Owner = LOCAL, way: Callable[[], str]
    ) -> None:
        """Prepare; nothing is read. `way` is what this user is told to do to give them."""
        self._config, self._store, self._way = config, store, way
        self._key = values_key(config, owner)
        self._values: Mapping[str, str] = {}
        self.on_login: Callable[[], None] | None = None
        # For API keys, as for whoever runs the gateway, they are given by a command.
        self._watch = LoginWatch(lambda: not self._missing(), of_many=owner != LOCAL and key_name(owner) is None)

    @property
    def secrets(self) -> frozenset[str]:
        """Texts that must never be shown."""
        return frozenset(self._values.values())

    def fill(self, config: ServerConfig) -> ServerConfig:
        """The configuration with what this user gave. Raises UpstreamError if something is missing."""
        missing = self._missing()
        if missing:
            if self.on_login is not None:
                self._watch.begin(self.on_login)
            why = f'server "{config.name}" needs {", ".join(missing)} of yours: {self._way()}'
            raise UpstreamError(config.name, "login_needed", why)
        put = {
            name: {key: filled(text, self._values) for key, text in given.items()}
            for name, given in (("env", config.env), ("headers", config.headers))
        }
        return replace(config, **put, secrets=config.secrets | self.secrets)

    def _missing(self) -> list[str]:
        try:
            self._values = self._store.values(self._key)
        except StoreError:
            self._values = {}
        return [name for name in self._config.user_values if name not in self._values]

    def close(self) -> None:
        """Nobody wants to know any more."""
        self.on_login = None
        self._watch.end()

    # --- as for logins ------------------------------------------------------------------------

    good_until = math.inf

    def due(self) -> bool:
        """They are part of the connection, so there is nothing to do before a request."""
        return False

    async def prepare(self) -> None:
        """See `due`."""

    async def refused(self, status: int, challenges: Sequence[str], sent: str | None, *, known: bool = False) -> bool:
        """What the server says of them is for the user to read."""
        del status, challenges, sent, known
        return False
