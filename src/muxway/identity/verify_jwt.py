"""Access tokens that are JWTs (RFC 9068, and what issuers made before it): signature and claims.

What a token says of its own keys (`jwk`, `jku`, `x5u`, `x5c`) is not looked at. One that is no access token, of this
issuer, is refused: an ID token says who somebody is, not what its bearer may do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry

from muxway.calls.identity import Identity, principal_of
from muxway.clients.authenticator import Rejected
from muxway.errors import ParseError
from muxway.identity.jwks import ALGORITHMS
from muxway.wire import envelopes

if TYPE_CHECKING:
    from muxway.config.auth import AuthSettings
    from muxway.identity.jwks import IssuerKeys

LEEWAY: Final = 30.0
"""Seconds by which clocks may differ."""
_LONGEST: Final = 16 * 1024
_TYPES: Final = frozenset(("jwt", "at+jwt", "application/at+jwt"))
_OF_OTHERS: Final = ("nonce", "at_hash", "c_hash", "s_hash", "events")
"""Claims of ID tokens and logout tokens."""
_CLIENT_CLAIMS: Final = ("client_id", "azp", "cid", "appid")
_MOST_GROUPS: Final = 1000
HAS_GROUPS: Final = "hasgroups"
"""The claim that says that there are more of them than stand in the token."""
_LAST_MOMENT: Final = 1e15
"""A time that is later, in seconds, is a mistake, and may be no number that can be computed with."""


class _Algorithms(JWSRegistry):
    """Those that count. EdDSA is the older name of one of them (RFC 9864), and no reason for a warning."""

    def get_alg(self, name: str) -> Any:
        return super().get_alg("Ed25519" if name == "EdDSA" else name)


_registry: Final = _Algorithms(algorithms=[*ALGORITHMS])


@dataclass(frozen=True, slots=True)
class Checked:
    """A token that is good wherever its audience and scopes say."""

    principal: bytes
    identity: Identity
    audience: frozenset[str]
    scopes: frozenset[str]
    expires: float
    """As the wall clock says."""


def invalid(why: str) -> Rejected:
    """The token is not good, anywhere."""
    return Rejected(401, "invalid_token", why)


class UnknownKey(Exception):
    """The token names a key that is not known."""


def check_jwt(token: bytes, keys: IssuerKeys, settings: AuthSettings, now: float) -> Checked | Rejected:
    """Check a token against the keys that are known. Raises UnknownKey if its key is not among them."""
    said = signed_claims(token, keys)
    if isinstance(said, Rejected):
        return said
    # Keycloak says the kind inside.
    if any(name in said for name in _OF_OTHERS) or said.get("typ", "Bearer") not in ("Bearer", "JWT", "at+jwt"):
        return invalid("this is another kind of token than an access token")
    return check_claims(said, settings, now)


def signed_claims(token: bytes, keys: IssuerKeys) -> dict[str, Any] | Rejected:
    """What a token says, if one of these keys has signed it. Raises UnknownKey if its key is not among them."""
    if len(token) > _LONGEST:
        return invalid("the access token is too long")
    parts = token.split(b".")
    if len(parts) != 3 or not all(parts):
        return invalid("the access token is no signed JWT")
    try:
        signed = jws.extract_compact(token, registry=_registry)
        # The library takes any JSON for a header, whatever it says of its type.
        header: Any = signed.headers()
    except (JoseError, ValueError, TypeError, RecursionError):
        return invalid("the access token cannot be read")
    if not isinstance(header, dict):
        return invalid("the access token cannot be read")
    header = cast("dict[str, Any]", header)
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        return invalid("the access token is signed in a way that does not count")
    if "crit" in header:
        return invalid("the access token wants something understood that is not")
    if str(header.get("typ", "JWT")).lower() not in _TYPES:
        return invalid("this is another kind of token than an access token")
    if kid is not None and not isinstance(kid, str):
        return invalid("the access token cannot be read")
    key = keys.find(kid, cast("str", algorithm))
    if key is None:
        raise UnknownKey
    try:
        good = jws.validate_compact(signed, key, registry=_registry)
    except (JoseError, ValueError, TypeError):
        good = False
    if not good:
        return invalid("the signature of the access token is wrong")
    try:
        claims = envelopes.value(signed.payload or b"")
    except ParseError:
        claims = None
    if not isinstance(claims, dict):
        return invalid("the access token has no claims")
    return cast("dict[str, Any]", claims)


def check_claims(claims: dict[str, Any], settings: AuthSettings, now: float) -> Checked | Rejected:
    """What the claims of a token make of its bearer, whoever has vouched for them."""
    if claims.get("iss") != settings.issuer:
        return invalid("the access token is of another issuer")
    expires, begins, issued = (_number(claims.get(name)) for name in ("exp", "nbf", "iat"))
    if expires is None or expires + LEEWAY <= now:
        return invalid("the access token has expired")
    if any(time is not None and time - LEEWAY > now for time in (begins, issued)):
        return invalid("the access token is not valid yet")
    if any(name in claims and given is None for name, given in (("nbf", begins), ("iat", issued))):
        return invalid("the access token cannot be read")
    if "cnf" in claims:
        return invalid("the access token is bound to a key of its client, and was sent without proof of it")
    subject = _text(claims.get("sub"))
    client = next(filter(None, (_text(claims.get(name)) for name in _CLIENT_CLAIMS)), "")
    if not (subject or client):
        return invalid("the access token does not say whom it was given to")
    scopes = frozenset([*_texts(claims.get("scope")), *_texts(claims.get("scp"))])
    names = settings.claims
    groups = _texts(_at(claims, names.groups))
    identity = Identity(
        issuer=settings.issuer,
        subject=subject,
        client=client,
        user=_text(_at(claims, names.user)) or subject or client,
        groups=tuple(groups[:_MOST_GROUPS]),
        more_groups=len(groups) > _MOST_GROUPS or _has_more_groups(claims, names.groups),
        scopes=tuple(sorted(scopes)),
    )
    # A client that comes for itself is no user who happens to be called the same.
    who = ("user", settings.issuer, subject, client) if subject else ("client", settings.issuer, client)
    audience = frozenset(text for text in _listed(claims.get("aud")) if isinstance(text, str))
    return Checked(principal_of(*who), identity, audience, scopes, expires)


def _has_more_groups(claims: dict[str, Any], name: str) -> bool:
    """Whether an issuer says that groups are left out, or have to be asked for elsewhere."""
    # OpenID Connect Core, section 5.6.2. Entra ID does so from 200 groups on, or says just this.
    elsewhere: object = claims.get("_claim_names")
    return claims.get(HAS_GROUPS) is True or (isinstance(elsewhere, dict) and name in elsewhere)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LAST_MOMENT:
        return None
    return float(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _texts(value: Any) -> list[str]:
    """An array of texts, or one text with blanks between them."""
    if isinstance(value, str):
        return value.split()
    return [text for text in _listed(value) if isinstance(text, str)]


def _at(claims: dict[str, Any], path: str) -> Any:
    """The claim of this name, or what its parts lead to."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for part in path.split("."):
        value = cast("dict[str, Any]", value).get(part) if isinstance(value, dict) else None
    return value
