"""Access tokens that our own authorization server signs: short JWTs (RFC 9068), each for one endpoint.

The keys are sealed in the store and published by their public halves. A new one is made each month; the one before it
goes on counting for the tokens that it signed.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from joserfc import jwt
from joserfc.jwk import ECKey

from muxway.calls.identity import principal_of
from muxway.clients.authenticator import Rejected
from muxway.config.auth import ClaimNames
from muxway.identity.verify_jwt import HAS_GROUPS, LEEWAY, Checked, UnknownKey, check_claims, invalid, signed_claims

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.config.auth import AuthSettings
    from muxway.identity.oauth_grants import Grant, OAuthGrants
    from muxway.net.sealed_files import SealedFolder

_FILE: Final = "keys"
_ROTATED_EVERY: Final = 30 * 24 * 3600.0
_KEPT: Final = 3
"""Keys: the present one, and those before it."""
_REMEMBERED: Final = 10_000
_REMEMBERED_FOR: Final = 30.0
_ALGORITHM: Final = "ES256"


class SigningKey(msgspec.Struct, frozen=True):
    """One key, with its private half."""

    kid: str
    jwk: dict[str, Any]
    made_at: float


class SigningKeys:
    """The keys of one authorization server. Knows them as `IssuerKeys` knows those of others."""

    def __init__(self, files: SealedFolder, *, now: Callable[[], float] = time.time) -> None:
        """Read them, and make one if there is none. Raises StoreError."""
        self._files, self._now = files, now
        self._stamp = 0
        self._all: list[tuple[SigningKey, ECKey]] = []
        self._read()
        self.present()

    def _read(self) -> None:
        self._stamp = self._files.stamp
        content = self._files.read(_FILE)
        try:
            kept = [] if content is None else msgspec.json.decode(content, type=list[SigningKey])
        except msgspec.MsgspecError:
            kept = []
        self._all = [(key, ECKey.import_key(key.jwk)) for key in kept]

    def present(self) -> tuple[str, ECKey]:
        """The key to sign with, and its id; a new one when the last is old. Raises StoreError."""
        if not self._all or self._all[-1][0].made_at + _ROTATED_EVERY < self._now():
            # Another process may have been quicker.
            self._read()
        if not self._all or self._all[-1][0].made_at + _ROTATED_EVERY < self._now():
            made = ECKey.generate_key("P-256", auto_kid=False)
            jwk = cast("dict[str, Any]", made.as_dict(private=True))
            self._all = [*self._all, (SigningKey(secrets.token_hex(8), jwk, self._now()), made)][-_KEPT:]
            self._files.write(_FILE, msgspec.json.encode([key for key, _ in self._all]))
        key, usable = self._all[-1]
        return key.kid, usable

    def find(self, kid: str | None, algorithm: str) -> ECKey | None:
        """The key of this id."""
        if algorithm != _ALGORITHM:
            return None
        found = next((usable for key, usable in self._all if key.kid == kid), None)
        if found is None and self._stamp != self._files.stamp:
            self._read()
            found = next((usable for key, usable in self._all if key.kid == kid), None)
        return found

    def public(self) -> list[dict[str, Any]]:
        """What everybody may know."""
        return [
            {**usable.as_dict(private=False), "kid": key.kid, "use": "sig", "alg": _ALGORITHM}
            for key, usable in self._all
        ]


class OwnTokens:
    """Makes tokens, and knows them again."""

    def __init__(
        self,
        issuer: str,
        settings: AuthSettings,
        keys: SigningKeys,
        grants: OAuthGrants,
        lifetime: float,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.issuer, self.lifetime = issuer, lifetime
        self._company = settings.issuer
        self._claims = replace(settings, issuer=issuer, claims=ClaimNames(user="user", groups="groups"))
        self._keys, self._grants, self._now = keys, grants, now
        self._known: dict[bytes, tuple[Checked, float]] = {}

    def make(self, grant: Grant, scopes: tuple[str, ...]) -> str:
        """A token for what a user has agreed to. Raises StoreError."""
        now = int(self._now())
        kid, key = self._keys.present()
        claims = {
            "iss": self.issuer,
            "sub": grant.subject,
            "aud": grant.resource,
            "client_id": grant.client_id,
            "scope": " ".join(scopes),
            "iat": now,
            "exp": now + int(self.lifetime),
            "jti": secrets.token_urlsafe(12),
            "sid": grant.id,
            "user": grant.user,
            "groups": [*grant.groups],
            **({HAS_GROUPS: True} if grant.more_groups else {}),
        }
        return jwt.encode({"alg": _ALGORITHM, "typ": "at+jwt", "kid": kid}, claims, key, algorithms=[_ALGORITHM])

    def check(self, token: bytes) -> Checked | Rejected | None:
        """What a token is worth; None if it is signed by somebody else. Raises StoreError."""
        digest = sha256(token).digest()
        known = self._known.get(digest)
        if known is not None and known[1] > self._now():
            return known[0]
        if token.count(b".") != 2:
            return None
        try:
            claims = signed_claims(token, self._keys)  # pyright: ignore[reportArgumentType] - as far as it is asked
        except UnknownKey:
            return None
        if isinstance(claims, Rejected):
            return claims
        found = check_claims(claims, self._claims, self._now())
        if isinstance(found, Rejected):
            return found
        grant = self._grants.find(str(claims.get("sid")))
        # A subject of another company is somebody else, also if the configuration named that one before.
        if grant is None or grant.issuer != self._company:
            return invalid("the login that the access token came of has ended")
        # Whom the company means by it is the same user, whoever made the token; what a program of ours begins is not
        # what one that the company knows by the same id goes on with.
        identity = replace(found.identity, issuer=self._company)
        who = principal_of("user", self.issuer, identity.subject, identity.client)
        found = replace(found, identity=identity, principal=who)
        self._known.pop(digest, None)
        if len(self._known) >= _REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[digest] = found, min(self._now() + _REMEMBERED_FOR, found.expires + LEEWAY)
        return found

    def grant_in(self, token: bytes) -> tuple[str, str] | None:
        """The login and the client that one of our tokens is of; None if it is none."""
        try:
            claims = signed_claims(token, self._keys)  # pyright: ignore[reportArgumentType] - as far as it is asked
        except UnknownKey:
            return None
        return None if isinstance(claims, Rejected) else (str(claims.get("sid")), str(claims.get("client_id")))

    def forget(self) -> None:
        """A login has ended: look at every token again."""
        self._known.clear()
