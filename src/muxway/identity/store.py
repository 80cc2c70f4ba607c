"""The logins at servers that this user has, shared by all muxway processes.

One sealed file for each (issuer, subject, server): whose login it is, at which server, with everything that a refresh
needs. A token is only ever sent where its own record says: to the server's URL and to the issuer that gave it.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import msgspec

from muxway.net.sealed_files import LostError, SealedFolder, StoreError, data_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_WANTED: Final = "-wanted"
_VALUES: Final = "-values"
_WANTED_FOR: Final = 24 * 3600.0
EARLY: Final = 60.0
"""Seconds before its end from which on a token is renewed."""


def canonical(url: str) -> str:
    """A server's URL as a resource: lower-case scheme and host, no default port, no fragment (MCP, canonical URI)."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    if parts.port is not None and parts.port != _DEFAULT_PORTS.get(parts.scheme.lower()):
        host = f"{host}:{parts.port}"
    path = "" if parts.path == "/" else parts.path
    return urlunsplit((parts.scheme.lower(), host, path, parts.query, ""))


class LoginKey(NamedTuple):
    """Whose login at which server."""

    issuer: str
    subject: str
    server: str
    """The server's name: one user may have two accounts at one URL."""
    url: str

    @property
    def digest(self) -> str:
        """The name of its file. Says nothing to those who do not know it already."""
        text = msgspec.json.encode(list(self))
        return hashlib.blake2b(text, digest_size=16).hexdigest()


LOCAL: Final = ("local", "")
"""Issuer and subject of the user who runs muxway: over stdio, and where clients need no credentials."""


class AuthorizationServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of who gives the tokens."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    revocation_endpoint: str | None = None
    token_endpoint_auth_methods: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...] = ()
    response_iss: bool = False
    """Whether it says in its answers who it is (RFC 9207)."""
    client_id_metadata: bool = False
    """Whether a client id may be the URL of a document (CIMD)."""
    legacy: bool = False
    """Found as 2025-03-26 says: at the server itself, with no protected resource metadata."""
    private: bool = False
    """Whether it may lie in a private network, because the server that named it answered from one."""


class Registration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """As whom we come to an authorization server."""

    kind: str
    """How we got the id: `written`, `metadata document` or `registered`."""
    client_id: str
    client_secret: str | None = None
    method: str = "none"
    """How we show who we are at the token endpoint."""
    redirect_uri: str | None = None
    """What was registered, where that must be met."""
    secret_expires_at: float = 0.0


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an authorization server gave."""

    access: str
    refresh: str | None = None
    expires_at: float | None = None
    """Seconds since 1970."""
    scopes: tuple[str, ...] | None = None
    """What it is good for, as far as that was said."""

    def lasts(self, seconds: float = 0.0) -> bool:
        """Whether it is still good after so many seconds."""
        return self.expires_at is None or self.expires_at > time.time() + seconds


class Login(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One login."""

    key: tuple[str, str, str, str]
    grant: str
    server: AuthorizationServer
    registration: Registration
    token: Token
    resource: str | None = None
    """What the token is for, as the authorization server was told."""
    asked: tuple[str, ...] = ()
    """Every scope that was ever asked for."""
    made_at: float = 0.0

    @property
    def secrets(self) -> frozenset[str]:
        """Texts never to be shown."""
        known = (self.token.access, self.token.refresh, self.registration.client_secret)
        return frozenset(text for text in known if text)


class WantedLogin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a server asked for when it last wanted a login: the command that makes it is another process."""

    scopes: tuple[str, ...] | None = None
    resource_metadata: str | None = None
    more: bool = False
    """Whether there is a login that does not allow enough."""
    at: float = 0.0


class TokenStore:
    """Where the logins are."""

    def __init__(self, folder: Path | None = None) -> None:
        self._files = SealedFolder(folder or data_folder() / "muxway" / "identity")

    @property
    def folder(self) -> Path:
        """For people."""
        return self._files.folder

    @property
    def stamp(self) -> int:
        """Changes when any login does."""
        return self._files.stamp

    def read(self, key: LoginKey) -> Login | None:
        """A login; None if there is none. Raises LostError if it cannot be opened any more, or StoreError."""
        return self._read(key.digest)

    def all(self, problems: dict[str, str] | None = None) -> list[Login]:
        """Every login. Why others cannot be read is put into `problems`, if given, by their files.

        Raises:
            StoreError: the folder cannot be used, or one of them, and there is nowhere to tell of it.
        """
        found: list[Login] = []
        for name in self._files.names():
            if name.endswith((_WANTED, _VALUES)):
                continue
            try:
                login = self._read(name)
            except StoreError as error:
                if problems is None:
                    raise
                problems[name] = str(error)
                continue
            found += [] if login is None else [login]
        return sorted(found, key=lambda one: one.key)

    def _read(self, name: str) -> Login | None:
        content = self._files.read(name)
        if content is None:
            return None
        try:
            return msgspec.json.decode(content, type=Login)
        except msgspec.MsgspecError:
            path = self.folder / name
            raise LostError(f"{path}.sealed was written by another version of muxway; log in again") from None

    def write(self, login: Login) -> None:
        """Keep a login that is `locked`; it is on the disk when this returns. Raises StoreError."""
        self._files.write(LoginKey(*login.key).digest, msgspec.json.encode(login), locked=True)

    def finish(self, key: LoginKey) -> None:
        """Keep what another process was about to when it died. For a login that is `locked`. Raises StoreError."""
        self._files.finish(key.digest)

    def remove(self, key: LoginKey) -> bool:
        """Forget a login. Returns whether there was one."""
        return self._files.remove(key.digest)

    def discard(self, name: str) -> None:
        """Forget a login that cannot be read, by its file as `all` tells it. Raises StoreError."""
        self._files.remove(name)

    def values(self, key: LoginKey) -> dict[str, str]:
        """What a user gave for a server, by name; what cannot be opened any more was not given. Raises StoreError."""
        return self._values(key.digest + _VALUES)

    def _values(self, name: str) -> dict[str, str]:
        try:
            content = self._files.read(name)
            return {} if content is None else msgspec.json.decode(content, type=dict[str, str])
        except (LostError, msgspec.MsgspecError):
            return {}

    def keep_values(self, key: LoginKey, values: Mapping[str, str]) -> None:
        """Keep what a user gave, in the place of what was given before; nothing: forget that. Raises StoreError."""
        if values:
            self._files.write(key.digest + _VALUES, msgspec.json.encode(values))
        else:
            self._files.remove(key.digest + _VALUES)

    def forget_values(self) -> list[str]:
        """Forget what was given for all servers, by whomever. Returns the names, also repeated. Raises StoreError."""
        files = [name for name in self._files.names() if name.endswith(_VALUES)]
        given = [name for file in files for name in self._values(file)]
        for file in files:
            self._files.remove(file)
        return sorted(given)

    def wanted(self, key: LoginKey) -> WantedLogin | None:
        """What the server asked for, if that is not long ago. Raises StoreError."""
        try:
            content = self._files.read(key.digest + _WANTED)
            found = None if content is None else msgspec.json.decode(content, type=WantedLogin)
        except (LostError, msgspec.MsgspecError):
            return None
        return None if found is None or found.at + _WANTED_FOR < time.time() else found

    def want(self, key: LoginKey, wanted: WantedLogin | None) -> None:
        """Remember what the server asks for; None: it has it. Raises StoreError."""
        if wanted is None:
            self._files.remove(key.digest + _WANTED)
            return
        known = self.wanted(key)
        if known is None or msgspec.structs.replace(known, at=wanted.at) != wanted:
            self._files.write(key.digest + _WANTED, msgspec.json.encode(wanted))

    def locked(self, key: LoginKey) -> AbstractAsyncContextManager[None]:
        """Nobody else changes this login meanwhile, in whichever process. Raises StoreError."""
        return self._files.locked(key.digest)
