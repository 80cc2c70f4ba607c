"""Whose access tokens open `muxway serve`, as configured. Nothing here turns a check off: there is no such key."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from muxway.config import kinds
from muxway.config.fields import Section, kind, settings
from muxway.config.report import as_mapping
from muxway.config.values import label

if TYPE_CHECKING:
    from muxway.config.report import Path
    from muxway.config.values import Reader

_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+").fullmatch
"""RFC 6749 §3.3."""


def is_secure(url: str) -> bool:
    """Whether what is sent to a URL can be read by nobody on the way: TLS, or this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if parts.scheme.lower() != "http":
        return parts.scheme.lower() == "https"
    name = parts.hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


@kind("https:// URL", kinds.FILLED)
def secure_url(reader: Reader, place: Path, raw: object) -> str | None:
    """A URL that tokens, or what decides about them, may be sent to or fetched from."""
    written = kinds.url.read(reader, place, raw)
    if written is None:
        return None
    if not is_secure(written):
        reader.report.error(place, f"{label(place)} must be an https:// URL; http:// is for this machine alone")
        return None
    if "@" in urlsplit(written).netloc or "#" in written:
        reader.report.error(place, f"{label(place)} must have no user, password or fragment")
        return None
    return written


@kind("https:// URL", kinds.FILLED)
def issuer_url(reader: Reader, place: Path, raw: object) -> str | None:
    """An issuer. It is compared with tokens as it is written, so nothing of it is changed."""
    written = secure_url.read(reader, place, raw)
    if written is not None and "?" in written:
        reader.report.error(place, f"{label(place)} must have no query (RFC 8414 §2)")
        return None
    return written


@kind("http:// or https:// URL", kinds.FILLED)
def base_url(reader: Reader, place: Path, raw: object) -> str | None:
    """The URL below which clients find us, as it is compared: small letters in scheme and host, no slash at the end."""
    written = kinds.url.read(reader, place, raw)
    if written is None:
        return None
    parts = urlsplit(written)
    if "@" in parts.netloc or "?" in written or "#" in written:
        reader.report.error(place, f"{label(place)} must have no user, password, query or fragment")
        return None
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


@kind("array of scopes", kinds.NAMES)
def scope_names(reader: Reader, place: Path, raw: object) -> tuple[str, ...] | None:
    """Scopes, which travel in one text with blanks between them."""

    def one(at: Path, item: object) -> str | None:
        written = reader.named(at, item, "a scope")
        if written is None:
            return None
        if _SCOPE(written) is None:
            reader.report.error(at, f'{label(at)} is no scope: one has neither blanks nor " nor \\ (RFC 6749 §3.3)')
            return None
        if written == "offline_access":
            reader.report.error(at, f"{label(at)}: offline_access is between a client and its issuer, never required")
            return None
        return written

    return reader.items(place, raw, one, 'an array of scopes like ["mcp:tools"]')


@settings
class ClaimNames:
    """Where an access token says who it is for."""

    user: str = kinds.name(
        "Claim with the user's name, for access rules and audit. Dots lead into objects. Users are always told "
        "apart by `sub`.",
        default="sub",
        example="preferred_username",
    )
    groups: str = kinds.name(
        "Claim with the user's groups or roles, as an array or as text separated by spaces.",
        default="groups",
        example="realm_access.roles",
    )


CLAIMS: Final = Section("gateway.auth.claims", ClaimNames)


@settings
class Introspection:
    """Where opaque access tokens are asked about (RFC 7662)."""

    url: str = secure_url("Address of the introspection endpoint.", example="https://login.example.com/introspect")
    client_id: str = kinds.name("Client id of muxway there.", example="muxway")
    client_secret: str = kinds.name(
        "Its secret. Use a variable instead of the secret itself: config files get copied.",
        repr=False,
        example="${MUXWAY_INTROSPECTION_SECRET}",
    )


INTROSPECTION: Final = Section("gateway.auth.introspection", Introspection)


@kind("object: {user, groups}", {"$ref": "#/$defs/claims"})
def claims(reader: Reader, place: Path, raw: object) -> ClaimNames:
    """Names of claims."""
    return ClaimNames(**reader.section(CLAIMS, place, raw))


@kind("object: {url, clientId, clientSecret}", {"$ref": "#/$defs/introspection"})
def introspection(reader: Reader, place: Path, raw: object) -> Introspection | None:
    """Where to ask, and as whom."""
    asked = _whole(reader, INTROSPECTION, place, raw)
    if asked is not None:
        reader.note_secret("clientSecret", asked.client_secret)
    return asked


@settings
class SignOnSettings:
    """How people sign on in a browser, for the pages of `muxway serve`: OpenID Connect, at the same issuer."""

    client_id: str = kinds.name(
        "Client id of muxway at the issuer, registered with the redirect URI `publicUrl` + `/sign-on/callback`.",
        example="muxway",
    )
    client_secret: str | None = kinds.name(
        "Its secret, if it has one. Use a variable instead of the secret itself: config files get copied.",
        default=None,
        repr=False,
        example="${MUXWAY_SIGN_ON_SECRET}",
    )
    scopes: tuple[str, ...] = scope_names(
        "Scopes to request. `openid` must be among them.", default=("openid", "profile"), example=["openid", "groups"]
    )


SIGN_ON: Final = Section("gateway.auth.signOn", SignOnSettings)


@kind("object: {clientId, clientSecret, scopes}", {"$ref": "#/$defs/signOn"})
def sign_on(reader: Reader, place: Path, raw: object) -> SignOnSettings | None:
    """As whom muxway comes to the issuer."""
    found = _whole(reader, SIGN_ON, place, raw)
    if found is None:
        return None
    if found.client_secret is not None:
        reader.note_secret("clientSecret", found.client_secret)
    if "openid" not in found.scopes:
        reader.report.error((*place, "scopes"), "`openid` must be among the scopes: without it no user is named")
    return found


@settings
class OwnServerSettings:
    """An authorization server of muxway's own in front of the issuer, for clients that must register themselves."""

    registration: bool = kinds.flag(
        "Whether clients may register themselves (RFC 7591). Clients with a client ID metadata document are always "
        "accepted.",
        default=True,
        example=False,
    )
    token_lifetime: float = kinds.seconds("How long an access token is valid.", default=600.0, example="10m")
    login_lifetime: float = kinds.seconds(
        "How long a client may renew its tokens before the user must sign on again. A user who leaves the company "
        "or a group keeps access for at most this long.",
        default=43200.0,
        example="12h",
    )


OWN_SERVER: Final = Section("gateway.auth.server", OwnServerSettings)


@kind("object: {registration, tokenLifetime, loginLifetime}", {"$ref": "#/$defs/ownServer"})
def own_server(reader: Reader, place: Path, raw: object) -> OwnServerSettings | None:
    """How it gives tokens."""
    return _whole(reader, OWN_SERVER, place, raw)


@settings
class AuthSettings:
    """Whose access tokens open `muxway serve` (OAuth 2.1). Issuer and audience of every token are checked, always."""

    issuer: str = issuer_url(
        "Authorization server whose tokens are accepted, spelled exactly as in its metadata. Clients are told to "
        "log in there.",
        example="https://login.example.com/realms/main",
    )
    audience: tuple[str, ...] = kinds.strings(
        "Additional audiences (`aud`) for which tokens are accepted, for issuers that cannot use the URL of an "
        "endpoint. The URL of each endpoint is always accepted; a token for one view is then refused at another.",
        default=(),
        example=["api://muxway"],
    )
    scopes: tuple[str, ...] = scope_names("Scopes that every token must have.", default=(), example=["mcp:tools"])
    claims: ClaimNames = claims(
        "Which claims of a token identify the user.",
        default_factory=ClaimNames,
        example={"user": "email", "groups": "groups"},
    )
    jwks: str | None = secure_url(
        "Address of the issuer's public keys. By default from its metadata.",
        default=None,
        example="https://login.example.com/jwks",
    )
    introspection: Introspection | None = introspection(
        "Endpoint that validates opaque tokens. Without it only JWTs are accepted.",
        default=None,
        example={"url": "https://login.example.com/introspect", "clientId": "muxway", "clientSecret": "${SECRET}"},
    )
    sign_on: SignOnSettings | None = sign_on(
        "How users sign on in a browser, for the page `/connect` where they log in to servers. Without it there is "
        "no such page for them.",
        default=None,
        example={"clientId": "muxway", "clientSecret": "${SECRET}"},
    )
    server: OwnServerSettings | None = own_server(
        "Run an authorization server inside muxway, where clients register themselves and users consent, for "
        "issuers that do not let MCP clients register. Users still sign on at the issuer; needs `signOn`. `{}` is "
        "enough.",
        default=None,
        example={"tokenLifetime": "10m", "loginLifetime": "12h"},
    )


AUTH: Final = Section("gateway.auth", AuthSettings)


@kind("object", {"$ref": "#/$defs/auth"})
def auth_object(reader: Reader, place: Path, raw: object) -> AuthSettings | None:
    """Whose tokens count."""
    found = _whole(reader, AUTH, place, raw)
    if found is not None and found.server is not None and found.sign_on is None:
        reader.report.error((*place, "server"), "needs `signOn` beside it: users sign on at the issuer")
    return found


def _whole(reader: Reader, section: Section, place: Path, raw: object) -> Any:
    """The object that this section makes, unless something that it needs is missing, which has been reported."""
    values = reader.section(section, place, raw)
    needed = [row.attribute for row in section.fields if row.required]
    return section.model(**values) if as_mapping(raw) is not None and all(name in values for name in needed) else None
