"""An issuer inside the test: its keys, its tokens, and how often it was asked."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
import warnings
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, OKPKey, RSAKey

from muxway.config import parse_config
from muxway.identity.jwks import ALGORITHMS, IssuerKeys
from muxway.identity.resource_metadata import ProtectedResources
from muxway.identity.verify import AccessTokens, ResourceServer
from muxway.net.http_errors import HttpTrouble

if TYPE_CHECKING:
    from collections.abc import Callable

ISSUER = "https://login.example.com/main"
PUBLIC = "https://mcp.example.com"
RSA = RSAKey.generate_key(2048, auto_kid=False)
OTHER_RSA = RSAKey.generate_key(2048, auto_kid=False)
"""Made once: they take long."""


class Clock:
    """Time as the test says."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead

    def wall(self) -> float:
        return time.time() + self.ahead


class TestIssuer:
    """Signs tokens, and answers who asks for its keys."""

    __test__ = False

    def __init__(self, *, algorithm: str = "RS256", kid: str = "k1", key: Any = RSA) -> None:
        self.algorithm, self.kid, self.key = algorithm, kid, key
        self.clock = Clock()
        self.asked = 0
        self.down = False
        self.served: list[Any] | None = None
        """What it says its keys are, if it does not say the truth."""

    @property
    def jwks(self) -> list[Any]:
        return [{**self.key.as_dict(private=False), "kid": self.kid, "use": "sig"}]

    async def fetch(self, issuer: str, url: str | None) -> list[Any]:
        del issuer, url
        self.asked += 1
        await asyncio.sleep(0)
        if self.down:
            raise HttpTrouble("cannot be reached")
        return self.jwks if self.served is None else self.served

    def claims(self, **changed: Any) -> dict[str, Any]:
        """The claims of a good token; None leaves one out."""
        now = int(self.clock.wall())
        usual = {"iss": ISSUER, "sub": "ann", "aud": f"{PUBLIC}/mcp", "client_id": "inspector", "scope": "mcp:tools"}
        claims = {**usual, "exp": now + 300, "iat": now, **changed}
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, header: dict[str, Any] | None = None, key: Any = None, **changed: Any) -> str:
        """A token; by default a good one."""
        head = {"alg": self.algorithm, "kid": self.kid, "typ": "at+jwt", **(header or {})}
        return signed({k: v for k, v in head.items() if v is not None}, self.claims(**changed), key or self.key)

    def keys(self) -> IssuerKeys:
        return IssuerKeys(ISSUER, fetch=self.fetch, clock=self.clock)

    def server(self, *, own: tuple[str, ...] = (), view: str | None = None, **auth: Any) -> ResourceServer:
        """The gateway's side of it."""
        views = auth.pop("views", {})
        public = {} if own else {"publicUrl": auth.pop("public", PUBLIC)}
        config = parse_config(
            {
                "mcpServers": {"off": {"command": "none", "disabled": True}},
                "views": views,
                "gateway": {"auth": {"issuer": ISSUER, **auth}, **public},
            }
        )
        settings = config.gateway.auth
        assert settings is not None
        tokens = AccessTokens(settings, keys=self.keys(), now=self.clock.wall, clock=self.clock)
        return ResourceServer(tokens, ProtectedResources(config, settings, own, view))


def signed(header: dict[str, Any], claims: Any, key: Any) -> str:
    """A JWT with any header, signed as it says."""
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    registry = jws.JWSRegistry(algorithms=[*ALGORITHMS], strict_check_header=False)
    with warnings.catch_warnings():
        # The old name of Ed25519 is still what most issuers write.
        warnings.simplefilter("ignore", SecurityWarning)
        return jws.serialize_compact(header, payload, key, registry=registry)


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    """A JWT put together by hand."""
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def signed_by_hand(header: dict[str, Any], claims: dict[str, Any], sign: Callable[[bytes], bytes]) -> str:
    """A JWT that no library would make."""
    text = unsigned(header, claims).rpartition(".")[0]
    return f"{text}.{urlsafe_b64encode(sign(text.encode())).rstrip(b'=').decode()}"


def by_rsa(key: RSAKey) -> Callable[[bytes], bytes]:
    """How RS256 is signed."""
    return lambda text: key.private_key.sign(text, PKCS1v15(), SHA256())


def by_public_key(key: RSAKey) -> Callable[[bytes], bytes]:
    """How HS256 is signed with a public key, taken for a shared secret."""
    return lambda text: hmac.digest(key.as_pem(private=False), text, "sha256")


def key_for(algorithm: str) -> Any:
    """A key for an algorithm."""
    if algorithm.startswith("ES"):
        return ECKey.generate_key({"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}[algorithm], auto_kid=False)
    return OKPKey.generate_key("Ed25519", auto_kid=False) if algorithm.startswith("Ed") else RSA
