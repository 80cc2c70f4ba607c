"""What people have agreed to, and the refresh tokens that came of it: kept sealed, across restarts.

A refresh token is good once. Whoever comes with one that was used before has stolen it, or lost it to a thief: then all
that was made from the same login ends. Only digests of tokens are kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from typing import TYPE_CHECKING, Final

import msgspec

from muxway.log import EventLog
from muxway.net.sealed_files import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.identity.sign_on import SignedOn
    from muxway.net.sealed_files import SealedFolder

_ID_BYTES: Final = 12
_LONGEST: Final = 200

log = EventLog("auth")


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """One login of one user with one client."""

    id: str
    client_id: str
    issuer: str
    """Of the company: who vouches for the user."""
    subject: str
    user: str
    groups: tuple[str, ...]
    more_groups: bool = False
    """See `Identity`."""
    scopes: tuple[str, ...]
    resource: str
    until: float
    """When the user has to sign on again."""
    refresh: str
    """Digest of the refresh token that is good now."""


class Consent(msgspec.Struct, frozen=True, kw_only=True):
    """What a user has allowed a client, for good."""

    allowed: dict[str, tuple[str, ...]]
    """The scopes, by resource: who agreed to one at one resource was not asked about it at another."""


class OAuthGrants:
    """All of them."""

    def __init__(self, files: SealedFolder, *, now: Callable[[], float] = time.time) -> None:
        self._files, self._now = files, now

    def open(
        self, who: SignedOn, client_id: str, scopes: tuple[str, ...], resource: str, until: float
    ) -> tuple[Grant, str]:
        """A login, and its first refresh token. Raises StoreError."""
        id_ = secrets.token_urlsafe(_ID_BYTES)
        token, digest = _made(id_)
        grant = Grant(
            id=id_,
            client_id=client_id,
            issuer=who.issuer,
            subject=who.subject,
            user=who.user,
            groups=who.groups,
            more_groups=who.more_groups,
            scopes=scopes,
            resource=resource,
            until=until,
            refresh=digest,
        )
        self._write(grant)
        return grant, token

    def find(self, id_: str) -> Grant | None:
        """A login that has not ended. Raises StoreError."""
        content = self._files.read(_file(id_))
        try:
            grant = None if content is None else msgspec.json.decode(content, type=Grant)
        except msgspec.MsgspecError:
            return None
        return grant if grant is not None and grant.until > self._now() else None

    async def rotate(self, token: str, client_id: str) -> tuple[Grant, str] | None:
        """Trade a refresh token for the next one; None if it is not good. Raises StoreError."""
        id_ = grant_of(token)
        if id_ is None:
            return None
        # A lock for some of them: one for each would leave a file behind for each.
        async with self._files.locked(f"grants-{id_[0]}"):
            grant = self.find(id_)
            if grant is None or grant.client_id != client_id:
                return None
            if not self.owns(grant, token):
                self.end(id_)
                return None
            new, digest = _made(id_)
            grant = msgspec.structs.replace(grant, refresh=digest)
            await asyncio.to_thread(self._write, grant)
            return grant, new

    def owns(self, grant: Grant, token: str) -> bool:
        """Whether this is the refresh token of a login that is good now."""
        return hmac.compare_digest(grant.refresh, _digest(token))

    def end(self, id_: str) -> None:
        """Nothing that was made from this login is good any more. Raises StoreError."""
        self._files.remove(_file(id_))

    def _write(self, grant: Grant) -> None:
        self._files.write(_file(grant.id), msgspec.json.encode(grant))

    # --- what was agreed to -------------------------------------------------------------------

    def has_agreed(self, who: SignedOn, client_id: str, scopes: tuple[str, ...], resource: str) -> bool:
        """Whether a user has allowed a client all of this before. Raises StoreError."""
        known = self._allowed(who, client_id)
        return resource in known and set(scopes) <= set(known[resource])

    def agree(self, who: SignedOn, client_id: str, scopes: tuple[str, ...], resource: str) -> None:
        """Remember it. Raises StoreError."""
        known = self._allowed(who, client_id)
        both = Consent(allowed={**known, resource: tuple(dict.fromkeys((*known.get(resource, ()), *scopes)))})
        self._files.write(_consent_file(who, client_id), msgspec.json.encode(both))

    def _allowed(self, who: SignedOn, client_id: str) -> dict[str, tuple[str, ...]]:
        content = self._files.read(_consent_file(who, client_id))
        try:
            return {} if content is None else msgspec.json.decode(content, type=Consent).allowed
        except msgspec.MsgspecError:
            return {}

    def sweep(self) -> None:
        """Forget what has ended. Raises StoreError."""
        for name in self._files.names():
            try:
                over = name.startswith("grant-") and self.find(name.removeprefix("grant-")) is None
            except StoreError as error:
                log.warning("what is kept of a login cannot be read", file=name, why=str(error))
                continue
            if over:
                self._files.remove(name)


def grant_of(token: str) -> str | None:
    """The login that a refresh token says it is of."""
    id_, dot, _ = token.partition(".")
    plain = id_.replace("-", "").replace("_", "").isalnum() and id_.isascii()
    return id_ if dot and plain and len(token) <= _LONGEST else None


def _made(id_: str) -> tuple[str, str]:
    token = f"{id_}.{secrets.token_urlsafe(32)}"
    return token, _digest(token)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _file(id_: str) -> str:
    return f"grant-{id_}"


def _consent_file(who: SignedOn, client_id: str) -> str:
    text = msgspec.json.encode([who.issuer, who.subject, client_id])
    return f"consent-{hashlib.blake2b(text, digest_size=16).hexdigest()}"
