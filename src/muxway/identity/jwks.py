"""The keys of one issuer: fetched when first needed, again when they are old or a token names one that is not there.

Old keys stay while the issuer cannot be reached. However many tokens name keys that do not exist, the issuer is asked
at most once a minute.
"""

from __future__ import annotations

import asyncio
import time
from base64 import urlsafe_b64decode
from typing import TYPE_CHECKING, Any, Final, cast

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from muxway.identity.issuer import fetch_keys, fetch_metadata
from muxway.log import EventLog
from muxway.net.http_errors import HttpTrouble

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

_MINUTE: Final = 60.0
_AT_FIRST: Final = 5.0
"""Seconds between two attempts while there are no keys at all."""
_OLD: Final = 600.0
"""Seconds after which keys are fetched again, in the background: so long a key counts that was withdrawn."""
_MOST: Final = 100
"""Keys of one issuer."""
_FEWEST_BITS: Final = 2048

_TYPES: Final[dict[str, type[RSAKey | ECKey | OKPKey]]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
"""Never `oct`: a key that everybody may read must not be one that can also sign."""
_FITTING: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
    "Ed25519": ("OKP", "Ed25519"),
}
"""Algorithm → the type and curve of its keys."""
_EDWARDS: Final = ("EdDSA", "Ed25519")
"""Two names of one algorithm."""
ALGORITHMS: Final = tuple(_FITTING)
"""The algorithms that count, whatever a token says."""

PublicKey = RSAKey | ECKey | OKPKey
log = EventLog("auth")


async def from_issuer(issuer: str, url: str | None) -> list[Any]:
    """The keys at a URL, or where the issuer's metadata says. Raises HttpTrouble."""
    if url is None:
        said = (await fetch_metadata(issuer)).get("jwks_uri")
        if not isinstance(said, str):
            raise HttpTrouble("does not say where its keys are: set `jwks`")
        if issuer.startswith("https:") and not said.startswith("https:"):
            raise HttpTrouble("has its keys at a URL without TLS")
        url = said
    return await fetch_keys(url)


class IssuerKeys:
    """What is known of an issuer's keys."""

    def __init__(
        self,
        issuer: str,
        url: str | None = None,
        *,
        fetch: Callable[[str, str | None], Awaitable[list[Any]]] = from_issuer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer, self._url = issuer, url
        self._fetch, self._clock = fetch, clock
        self._keys: dict[str, list[PublicKey]] = {}
        """By their ids; under the empty one, those that have none."""
        self._fetched = self._tried = self._missed = float("-inf")
        """When they were last had, when last asked for, and when last asked for because one was missing."""
        self._fetching: asyncio.Task[None] | None = None

    @property
    def known(self) -> bool:
        """Whether there are keys at all."""
        return bool(self._keys)

    def find(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """The key of this id, if it is one for this algorithm. A token that names none needs an issuer with one key."""
        now = self._clock()
        if now - self._fetched > _OLD and now - self._tried >= _MINUTE and self._keys:
            self._begin()
        if kid is None:
            every = [key for keys in self._keys.values() for key in keys]
            found = every if len(every) == 1 else []
        else:
            found = self._keys.get(kid, [])
        return next((key for key in found if _fits(key, algorithm)), None)

    @property
    def may_learn(self) -> bool:
        """Whether the issuer may be asked now for a key that is missing, or is being asked."""
        if self._fetching is not None:
            return True
        # Not since they were last asked for: keys may be changed a moment after a start.
        now = self._clock()
        return now - self._missed >= _MINUTE if self._keys else now - self._tried >= _AT_FIRST

    def learn(self) -> asyncio.Task[None]:
        """Ask the issuer for a key that is missing; once for all who wait for it. Never raises."""
        if self._fetching is None and self._keys:
            self._missed = self._clock()
        return self._begin()

    def _begin(self) -> asyncio.Task[None]:
        if self._fetching is None:
            self._tried = self._clock()
            self._fetching = asyncio.get_running_loop().create_task(self._learn())
        return self._fetching

    async def _learn(self) -> None:
        try:
            self._keys, self._fetched = usable(await self._fetch(self._issuer, self._url)), self._clock()
        except HttpTrouble as trouble:
            kept = "; those that are known go on counting" if self._keys else ""
            log.warning(f"no keys: the issuer {trouble.what}{kept}", issuer=self._issuer)
        finally:
            self._fetching = None

    def close(self) -> None:
        """Wait for nothing any more."""
        if self._fetching is not None:
            self._fetching.cancel()


def usable(listed: Iterable[Any]) -> dict[str, list[PublicKey]]:
    """The keys among these that can sign tokens, by their ids. Raises HttpTrouble if there is none."""
    keys: dict[str, list[PublicKey]] = {}
    for one in list(listed)[:_MOST]:
        key = _public_key(one)
        if key is not None:
            kid = cast("dict[str, Any]", one).get("kid")
            keys.setdefault(kid if isinstance(kid, str) else "", []).append(key)
    if not keys:
        raise HttpTrouble("has no key that signs access tokens")
    return keys


def _public_key(entry: Any) -> PublicKey | None:
    """The key that an entry holds; None for one that is for something else, or cannot be read."""
    if not isinstance(entry, dict):
        return None
    # Some write down what is not there.
    jwk = {name: value for name, value in cast("dict[str, Any]", entry).items() if value is not None}
    make = _TYPES.get(str(jwk.get("kty")))
    try:
        if make is None or jwk.get("use", "sig") != "sig" or "verify" not in jwk.get("key_ops", ["verify"]):
            return None
        # Looked at before the library does, which warns of a small one on standard error.
        if make is RSAKey and _bits(jwk["n"]) < _FEWEST_BITS:
            return None
        # Only what a public key has: whatever else stands there is of no interest.
        return make.import_key({name: jwk[name] for name in ("kty", "n", "e", "crv", "x", "y", "alg") if name in jwk})
    except (JoseError, ValueError, TypeError, AttributeError, KeyError):
        return None


def _bits(number: str) -> int:
    """RFC 7518 §2, Base64urlUInt."""
    return int.from_bytes(urlsafe_b64decode(number + "==")).bit_length()


def _fits(key: PublicKey, algorithm: str) -> bool:
    kind, curve = _FITTING[algorithm]
    named = key.get("alg")
    if named not in (None, algorithm) and not (named in _EDWARDS and algorithm in _EDWARDS):
        return False
    return key.key_type == kind and curve in (None, key.get("crv"))
