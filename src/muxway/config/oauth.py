"""How muxway logs in to a server, where that cannot be found out, or is to be done otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

from muxway.config import kinds
from muxway.config.fields import Field, Section, kind, settings
from muxway.config.report import as_list
from muxway.config.values import Reader, label

if TYPE_CHECKING:
    from muxway.config.report import Path

Grant = Literal["authorization_code", "client_credentials", "token_exchange", "id_jag", "jwt_bearer"]


@kind("text, not empty", kinds.FILLED)
def secret(reader: Reader, place: Path, raw: object) -> str | None:
    """A text that is never shown."""
    written = reader.named(place, raw)
    if written is not None:
        reader.note_secret("secret", written)
    return written


@kind("array of scopes, or text with blanks between them", {"anyOf": [kinds.STRING, kinds.NAMES]})
def scopes(reader: Reader, place: Path, raw: object) -> tuple[str, ...] | None:
    """Scopes, as an array or as OAuth writes them."""
    items = as_list(raw)
    if items is None:
        written = reader.string(place, raw, "an array of scopes, or a text with blanks between them")
        return None if written is None else tuple(dict.fromkeys(written.split()))
    named = reader.items(place, raw, reader.named, "an array of scopes")
    return None if named is None else tuple(dict.fromkeys(named))


@kind("http://127.0.0.1:PORT/… or http://localhost:PORT/…", kinds.FILLED)
def loopback_url(reader: Reader, place: Path, raw: object) -> str | None:
    """An address of this machine that a browser is sent back to."""
    from urllib.parse import urlsplit

    written = kinds.url.read(reader, place, raw)
    if written is None:
        return None
    parts = urlsplit(written)
    if (
        parts.scheme != "http"
        or parts.hostname not in ("127.0.0.1", "localhost", "::1")
        or parts.query
        or parts.fragment
    ):
        reader.report.error(
            place, f"{label(place)} must be an http address of this machine, such as http://127.0.0.1:8765/callback"
        )
        return None
    return written


@kind("https:// URL", kinds.FILLED)
def https_url(reader: Reader, place: Path, raw: object) -> str | None:
    """An address that must be safe."""
    from urllib.parse import urlsplit

    written = kinds.url.read(reader, place, raw)
    if written is None:
        return None
    parts = urlsplit(written)
    if parts.scheme.lower() != "https" or not parts.path.strip("/"):
        reader.report.error(place, f"{label(place)} must be an https address with a path")
        return None
    return written


@settings
class IdentityProvider:
    """The company's identity provider, which vouches for a user (`grant: id_jag`)."""

    token_endpoint: str = kinds.url("Its token endpoint.", example="https://idp.example.com/token")
    client_id: str | None = kinds.name("Client id of muxway there.", default=None, example="muxway-at-idp")
    client_secret: str | None = secret("Its secret, if it has one.", default=None, repr=False, example="${IDP_SECRET}")


IDP: Final = Section("mcpServers.*.oauth.idp", IdentityProvider)


@kind("object", {"$ref": "#/$defs/idp"})
def idp(reader: Reader, place: Path, raw: object) -> IdentityProvider | None:
    """An identity provider."""
    values = reader.section(IDP, place, raw)
    return IdentityProvider(**values) if "token_endpoint" in values else None


@settings
class OAuthConfig:
    """How muxway logs in to a remote server. Most servers need none of it: `muxway login NAME` finds out."""

    client_id: str | None = kinds.name(
        "Client id that you have registered at the server's authorization server. Without it, muxway uses "
        "`clientMetadataUrl` or registers itself.",
        default=None,
        example="Iv1.8a61f9b3a7aba766",
    )
    client_secret: str | None = secret(
        "Secret of this client id, if it has one. Use a variable instead of the secret itself: config files get "
        "copied.",
        default=None,
        repr=False,
        example="${GITHUB_CLIENT_SECRET}",
    )
    client_metadata_url: str | None = https_url(
        "Address of a client ID metadata document (CIMD) that describes muxway. It is used as the client id if the "
        "authorization server supports that.",
        default=None,
        example="https://example.com/muxway/client.json",
    )
    scopes: tuple[str, ...] | None = scopes(
        "Scopes to request. By default those that the server asks for.",
        default=None,
        example=["repo", "read:org"],
        aliases=("scope",),
    )
    issuer: str | None = kinds.url(
        "Issuer in the authorization server's metadata, if it is known to differ from the one that the server "
        "names. It must then equal this value; the check is never skipped.",
        default=None,
        example="https://auth.example.com",
    )
    resource: str | None = kinds.text(
        "Value of the parameter `resource` (RFC 8707) in token requests. By default from the server's metadata; "
        "empty: omit it, for authorization servers that reject it.",
        default=None,
        example="https://example.com/mcp",
    )
    redirect_uri: str | None = loopback_url(
        "Address on this machine that the browser returns to, if the client id was registered with a fixed port. By"
        " default a free port of 127.0.0.1.",
        default=None,
        example="http://127.0.0.1:8765/callback",
        also=(
            Field(
                "callbackPort",
                kinds.integer_from(1, 65535),
                "Only the port (Claude Code): `redirectUri` is then `http://localhost:PORT/callback`.",
                example=8765,
            ),
        ),
    )
    grant: Grant = kinds.choice(*get_args(Grant))(
        "How to get a token: `authorization_code` is a user with a browser (or `muxway login --device`), "
        "`client_credentials` is muxway itself, `token_exchange` exchanges `subjectToken` at the authorization "
        "server, `id_jag` exchanges it at `idp` first, `jwt_bearer` sends it as it is.",
        default="authorization_code",
        example="client_credentials",
    )
    private_key: str | None = secret(
        "Private key (PEM) with which muxway authenticates, instead of a client secret.",
        default=None,
        repr=False,
        example="${MUXWAY_CLIENT_KEY}",
    )
    key_id: str | None = kinds.name("Key id (`kid`) of `privateKey`.", default=None, example="2026-11")
    signing_algorithm: str | None = kinds.choice("RS256", "PS256", "ES256", "ES384", "Ed25519", "EdDSA")(
        "Signature algorithm for `privateKey`. By default one that fits the key.", default=None, example="ES256"
    )
    subject_token: str | None = secret(
        "Token that identifies the user or the workload.", default=None, repr=False, example="${ID_TOKEN}"
    )
    idp: IdentityProvider | None = idp(
        "The company's identity provider, for `grant: id_jag`.",
        default=None,
        example={"tokenEndpoint": "https://idp.example.com/token", "clientId": "muxway"},
    )
    shared: bool = kinds.flag(
        "Whether all callers use the login of the user who runs muxway. By default only callers without a token do,"
        " and each user with a token has a login of their own.",
        default=False,
        example=True,
    )
    enabled: bool = kinds.flag(
        "Whether muxway logs in to this server at all. `oauth: false` means the same as false here.",
        default=True,
        example=True,
    )

    @property
    def interactive(self) -> bool:
        """Whether a person has to log in."""
        return self.grant == "authorization_code"


OAUTH: Final = Section("mcpServers.*.oauth", OAuthConfig)


@kind("object, or false", {"anyOf": [{"$ref": "#/$defs/oauth"}, {"type": "boolean"}]})
def oauth(reader: Reader, place: Path, raw: object) -> OAuthConfig | None:
    """How to log in."""
    if isinstance(raw, bool):
        return OAuthConfig(enabled=raw)
    entries = dict(reader.entries(place, raw, "an object, or false") or {})
    port = entries.pop("callbackPort", entries.pop("callback_port", None))
    values = reader.section(OAUTH, place, entries)
    if port is not None and "redirect_uri" not in values:
        number = OAUTH.by_spelling["callbackPort"].kind.read(reader, (*place, "callbackPort"), port)
        if number is not None:
            values["redirect_uri"] = f"http://localhost:{number}/callback"
    found = OAuthConfig(**values)
    _check(reader, place, found)
    return found


def _check(reader: Reader, place: Path, oauth: OAuthConfig) -> None:
    """What belongs together."""
    if oauth.client_secret is not None and oauth.client_id is None:
        reader.report.error((*place, "clientId"), "`clientSecret` needs the `clientId` that it belongs to")
    if oauth.grant != "authorization_code" and oauth.client_id is None and oauth.grant != "jwt_bearer":
        reader.report.error((*place, "clientId"), f"`grant: {oauth.grant}` needs a `clientId`")
    if oauth.grant == "client_credentials" and oauth.client_secret is None and oauth.private_key is None:
        reader.report.error(place, "`grant: client_credentials` needs a `clientSecret` or a `privateKey`")
    if oauth.grant in ("token_exchange", "id_jag", "jwt_bearer") and oauth.subject_token is None:
        reader.report.error((*place, "subjectToken"), f"`grant: {oauth.grant}` needs a `subjectToken`")
    if oauth.grant == "id_jag" and oauth.idp is None:
        reader.report.error((*place, "idp"), "`grant: id_jag` needs the `idp` that vouches for the user")
