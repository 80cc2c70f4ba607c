"""muxway at an authorization server: getting a client id, getting tokens, renewing them, giving them back.

Every request goes to an endpoint of the metadata that one login was made with, never to one found later: a secret of
one authorization server is not seen by another.
"""

from __future__ import annotations

import base64
import secrets
import time
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from muxway.identity.discovery import OAuthError
from muxway.identity.store import Registration, Token
from muxway.log import masker, printable
from muxway.net.guarded_fetch import FetchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.config.oauth import OAuthConfig
    from muxway.identity.store import AuthorizationServer
    from muxway.net.guarded_fetch import FetchAnswer, GuardedFetch

CLIENT_NAME: Final = "muxway"
DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - a name
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTED_FOR: Final = 120
"""Seconds for which an assertion of ours is good."""
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}
_METHODS: Final = ("client_secret_basic", "client_secret_post", "none")
_SECRET: Final = (
    "code",
    "code_verifier",
    "refresh_token",
    "client_secret",
    "client_assertion",
    "assertion",
    "subject_token",
    "device_code",
)
"""Fields that nobody else may see."""
_LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_LONGEST_LIFE: Final = 10 * 365 * 24 * 3600
_SHOWN: Final = 200


class TokenRefused(OAuthError):
    """The token endpoint says no, with an error code of OAuth."""

    def __init__(self, code: str, description: str, hint: str = "") -> None:
        said = f"{code}: {description}" if description else code
        super().__init__(f"its authorization server refuses: {said}{hint}")
        self.code = code


class Unavailable(OAuthError):
    """There is no answer, or none that means anything: another try may succeed."""


# --- who we are -------------------------------------------------------------------------------


async def register(
    fetch: GuardedFetch,
    server: AuthorizationServer,
    oauth: OAuthConfig,
    redirect_uri: str,
    *,
    device: bool = False,
) -> Registration:
    """A client id at an authorization server: the written one, else our document's URL, else one made for us.

    Raises:
        OAuthError: there is no way to get one; says what to register.
    """
    if oauth.client_id is not None:
        return written(server, oauth)
    if oauth.client_metadata_url is not None and server.client_id_metadata:
        return Registration(kind="metadata document", client_id=oauth.client_metadata_url)
    if server.registration_endpoint is None:
        raise OAuthError(
            f"its authorization server {server.issuer} does not let clients register themselves: register an "
            f"application there (public client, PKCE, redirect URI {redirect_uri}) and write its id as `oauth.clientId`"
        )
    return await _register_dynamically(fetch, server, redirect_uri, device=device)


def written(server: AuthorizationServer, oauth: OAuthConfig) -> Registration:
    """The client id of the configuration, with the way to show that it is ours."""
    if oauth.private_key is not None:
        method = "private_key_jwt"
    elif oauth.client_secret is None:
        method = "none"
    else:
        offered = server.token_endpoint_auth_methods or ("client_secret_basic",)
        method = next((one for one in offered if one in _METHODS[:2]), "client_secret_basic")
    return Registration(
        kind="written", client_id=oauth.client_id or "", client_secret=oauth.client_secret, method=method
    )


async def _register_dynamically(
    fetch: GuardedFetch, server: AuthorizationServer, redirect_uri: str, *, device: bool
) -> Registration:
    """RFC 7591. `application_type` as MCP 2026-07-28 wants it: by whether what we redirect to is this machine."""
    offered = server.token_endpoint_auth_methods
    method = next((one for one in offered if one in _METHODS), "none" if not offered else "client_secret_basic")
    wanted = {
        "client_name": CLIENT_NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token", *([DEVICE_GRANT] if device else [])],
        "response_types": ["code"],
        "application_type": "native" if is_loopback_url(redirect_uri) else "web",
        "token_endpoint_auth_method": method,
    }
    try:
        answer = await fetch.post(
            server.registration_endpoint or "", msgspec.json.encode(wanted), {"Content-Type": "application/json"}
        )
    except FetchError as error:
        raise OAuthError(f"a client id could not be registered: {error}") from None
    given = _object(answer)
    client_id = given.get("client_id")
    if not answer.ok or not isinstance(client_id, str) or not client_id:
        said = _said(given) or f"HTTP status {answer.status}"
        raise OAuthError(
            f"its authorization server {server.issuer} registers no client: {said}; register one there by hand "
            f"(redirect URI {redirect_uri}) and write its id as `oauth.clientId`"
        )
    secret, expires = given.get("client_secret"), given.get("client_secret_expires_at")
    chosen = given.get("token_endpoint_auth_method")
    return Registration(
        kind="registered",
        client_id=client_id,
        client_secret=secret if isinstance(secret, str) and secret else None,
        method=chosen if isinstance(chosen, str) and chosen in _METHODS else method,
        redirect_uri=redirect_uri,
        secret_expires_at=seconds(expires) or 0.0,
    )


# --- tokens -----------------------------------------------------------------------------------


async def ask_token(
    fetch: GuardedFetch,
    server: AuthorizationServer,
    registration: Registration,
    form: Mapping[str, str | None],
    *,
    oauth: OAuthConfig | None = None,
) -> Token:
    """Ask the token endpoint.

    Raises:
        TokenRefused: it says no.
        Unavailable: it gave no answer that means anything.
        OAuthError: it must not be asked, or gives what cannot be used.
    """
    given = await ask(fetch, server.token_endpoint, server.issuer, registration, form, oauth=oauth)
    kind = given.get("token_type")
    if isinstance(kind, str) and kind.lower() != "bearer":
        raise OAuthError(
            f"its authorization server gave a token of a kind that muxway cannot use: {printable(kind)[:40]}"
        )
    return read_token(given)


async def ask(
    fetch: GuardedFetch,
    endpoint: str,
    issuer: str,
    registration: Registration,
    form: Mapping[str, str | None],
    *,
    oauth: OAuthConfig | None = None,
) -> Mapping[str, Any]:
    """Ask an endpoint as a client of its issuer; gives what it answered. Raises as `ask_token` does."""
    fields = {name: value for name, value in form.items() if value}
    headers = dict(_FORM)
    _authenticate(registration, issuer, fields, headers, oauth)
    try:
        answer = await fetch.post(endpoint, urlencode(fields).encode(), headers)
    except FetchError as error:
        kind = OAuthError if error.refused else Unavailable
        raise kind(f"its authorization server could not be asked: {error}") from None
    given = _object(answer)
    if answer.ok and given:
        return given
    code = given.get("error")
    if 400 <= answer.status < 500 and isinstance(code, str):
        # What we sent may come back in it.
        mask = masker([fields[name] for name in _SECRET if name in fields] + [registration.client_secret or ""])
        raise TokenRefused(mask(printable(code))[:80], mask(_description(given)), _hint(code, registration))
    raise Unavailable(f"its authorization server answered with HTTP status {answer.status} and no token")


def _hint(code: str, registration: Registration) -> str:
    """Where to look if the authorization server does not know us as what the config says we are."""
    if code not in ("invalid_client", "unauthorized_client") or registration.kind != "written":
        return ""
    other = {"none": "", "private_key_jwt": " and `oauth.privateKey`"}.get(
        registration.method, " and `oauth.clientSecret`"
    )
    return f" (look at `oauth.clientId`{other} in the config)"


def read_token(given: Mapping[str, Any]) -> Token:
    """What a token endpoint gave."""
    access, refresh = given.get("access_token"), given.get("refresh_token")
    if not isinstance(access, str) or not _sendable(access):
        raise OAuthError("its authorization server gave no token that could be sent")
    life, scope = given.get("expires_in"), given.get("scope")
    lasts = seconds(int(life) if isinstance(life, str) and life.isdecimal() and len(life) < 12 else life)
    return Token(
        access=access,
        refresh=refresh if isinstance(refresh, str) and refresh else None,
        expires_at=None if lasts is None else time.time() + min(max(lasts, 0), _LONGEST_LIFE),
        scopes=tuple(scope.split()) if isinstance(scope, str) else None,
    )


async def revoke(
    fetch: GuardedFetch,
    server: AuthorizationServer,
    registration: Registration,
    token: Token,
    oauth: OAuthConfig | None,
) -> None:
    """Give a login back (RFC 7009): with its refresh token ends what was made from it. Raises OAuthError."""
    if server.revocation_endpoint is None:
        raise OAuthError("its authorization server takes no tokens back; they end by themselves")
    tokens = [("refresh_token", token.refresh)] if token.refresh else []
    for kind, text in (*tokens, ("access_token", token.access)):
        fields = {"token": text or "", "token_type_hint": kind}
        headers = dict(_FORM)
        _authenticate(registration, server.issuer, fields, headers, oauth)
        try:
            answer = await fetch.post(server.revocation_endpoint, urlencode(fields).encode(), headers)
        except FetchError as error:
            raise OAuthError(f"the token could not be taken back: {error}") from None
        if not answer.ok and not (kind == "access_token" and tokens):
            raise OAuthError(f"the token could not be taken back: HTTP status {answer.status}")


def _authenticate(
    registration: Registration,
    issuer: str,
    fields: dict[str, str],
    headers: dict[str, str],
    oauth: OAuthConfig | None,
) -> None:
    """Show who we are, in the way of the registration (RFC 6749 §2.3, RFC 7523 §2.2)."""
    secret = registration.client_secret
    if registration.method == "private_key_jwt":
        if oauth is None or oauth.private_key is None:
            raise OAuthError("its login was made with a private key, which is not in the configuration any more")
        fields["client_assertion_type"] = _ASSERTION_TYPE
        fields["client_assertion"] = assertion(oauth, registration.client_id, issuer)
    elif registration.method == "client_secret_basic" and secret is not None:
        pair = f"{quote(registration.client_id, safe='')}:{quote(secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        fields["client_id"] = registration.client_id
        if registration.method == "client_secret_post" and secret is not None:
            fields["client_secret"] = secret


def assertion(oauth: OAuthConfig, client_id: str, audience: str) -> str:
    """A signed statement that we are this client, for this issuer. Raises OAuthError."""
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    now = int(time.time())
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "jti": secrets.token_urlsafe(16),
        "iat": now,
        "exp": now + _ASSERTED_FOR,
    }
    for kind, algorithm in ((RSAKey, "RS256"), (ECKey, "ES256"), (OKPKey, "Ed25519")):
        chosen = oauth.signing_algorithm or algorithm
        try:
            key = kind.import_key(oauth.private_key or "")
            header = {"alg": chosen, "typ": "JWT", **({"kid": oauth.key_id} if oauth.key_id else {})}
            return jwt.encode(header, claims, key, algorithms=[chosen])
        except (JoseError, ValueError, TypeError):
            continue
    raise OAuthError("its `oauth.privateKey` is no private key (PEM) that can sign, or not with its `signingAlgorithm`")


def is_loopback_url(url: str) -> bool:
    """Whether an address is one of this machine, without TLS."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in _LOOPBACK


# --- words ------------------------------------------------------------------------------------


def joined(scopes: Sequence[str]) -> str | None:
    """Scopes as a request has them."""
    return " ".join(scopes) or None


def seconds(value: object) -> float | None:
    """A number as an authorization server gives it; None if it is none, or none that can be computed with."""
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    except OverflowError:
        return None


def _sendable(text: str) -> bool:
    return 0 < len(text) <= 64 * 1024 and all(0x21 <= ord(char) <= 0x7E for char in text)


def _object(answer: FetchAnswer) -> Mapping[str, Any]:
    try:
        given = msgspec.json.decode(answer.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


def _description(given: Mapping[str, Any]) -> str:
    said = given.get("error_description")
    return printable(said)[:_SHOWN] if isinstance(said, str) else ""


def _said(given: Mapping[str, Any]) -> str:
    code = given.get("error")
    return ": ".join(filter(None, (printable(code)[:80] if isinstance(code, str) else "", _description(given))))
