"""Where to log in for a server: its protected resource metadata, then its authorization server's own.

The order of places is that of the revisions: what `WWW-Authenticate` names, the well-known address with the server's
path, that of its root (RFC 9728; MCP 2025-11-25, basic/authorization), and, where there is none of them, the server's
own host as 2025-03-26 has it. What a document says of itself must be what it was asked as, or it does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

import msgspec

from muxway.errors import MuxwayError
from muxway.identity.store import AuthorizationServer, canonical
from muxway.log import printable
from muxway.net.guarded_fetch import FetchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.identity.challenges import Challenge
    from muxway.net.guarded_fetch import GuardedFetch

_RESOURCE: Final = "/.well-known/oauth-protected-resource"
_OAUTH: Final = "/.well-known/oauth-authorization-server"
_OPENID: Final = "/.well-known/openid-configuration"
_MOST_SERVERS: Final = 4
_MOST_WORDS: Final = 200


class OAuthError(MuxwayError):
    """A login, a refresh or what comes before them cannot be done; the message says why and what to do."""


class NoLogin(OAuthError):
    """The server has no login that could be found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovered:
    """Where to log in for a server."""

    server: AuthorizationServer
    resource: str | None
    """What to ask a token for (RFC 8707); None where the revision has no such thing."""
    scopes: tuple[str, ...] | None
    """What the server's metadata says that it knows; None if nothing."""
    metadata_url: str | None = None
    """Where its protected resource metadata was."""
    guessed: bool = False
    """Whether there is no document at all: then the addresses are those that 2025-03-26 says to try."""


def resource_places(url: str, challenge: Challenge) -> list[str]:
    """Where a server's protected resource metadata may be, the best place first."""
    parts = urlsplit(url)
    root = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], "", "", ""))
    path = parts.path.rstrip("/")
    places = [challenge.resource_metadata] if challenge.resource_metadata else []
    if path:
        places.append(root + _RESOURCE + path)
    return list(dict.fromkeys([*places, root + _RESOURCE]))


def metadata_places(issuer: str) -> list[str]:
    """Where the metadata of an issuer may be (RFC 8414 §3, OpenID Connect Discovery), in the order of the spec."""
    parts = urlsplit(issuer)
    root, path = urlunsplit((parts.scheme, parts.netloc, "", "", "")), parts.path.rstrip("/")
    if not path:
        return [root + _OAUTH, root + _OPENID]
    return [root + _OAUTH + path, root + _OPENID + path, root + path + _OPENID]


async def discover(fetch: GuardedFetch, url: str, challenge: Challenge, *, pin: str | None = None) -> Discovered:
    """Find out where to log in for a server.

    Args:
        fetch: asks.
        url: the server's address.
        challenge: what it said when it refused a request.
        pin: the issuer that its metadata names, where the user has written down that it is another than it should be.

    Raises:
        NoLogin: it has none.
        OAuthError: what it says of it cannot be used.
    """
    troubles: list[str] = []
    for place in resource_places(url, challenge):
        document = await _document(fetch, place, troubles)
        if document is None:
            continue
        resource = _text(document, "resource")
        if resource is None or not covers(resource, url):
            raise OAuthError(
                f"its metadata is for {_shown(resource)}, which is not the address it was asked under; "
                "a token for that would not be for this server"
            )
        issuers = [one for one in _texts(document, "authorization_servers") if one][:_MOST_SERVERS]
        if not issuers:
            raise OAuthError("its metadata names no authorization server")
        scopes = _texts(document, "scopes_supported") if "scopes_supported" in document else None
        server = await _authorization_server(fetch, issuers, pin, troubles)
        return Discovered(server=server, resource=resource, scopes=scopes, metadata_url=place)
    return await _of_first_revision(fetch, url, challenge, troubles)


async def _authorization_server(
    fetch: GuardedFetch, issuers: list[str], pin: str | None, troubles: list[str]
) -> AuthorizationServer:
    refused: OAuthError | None = None
    for issuer in issuers:
        if not _host(issuer):
            troubles.append(f"{_shown(issuer)} is no address")
            continue
        for place in metadata_places(issuer):
            document = await _document(fetch, place, troubles)
            if document is None:
                continue
            try:
                return _server(document, pin or issuer, private=fetch.private)
            except OAuthError as error:
                refused = refused or error
    said = f" ({'; '.join(dict.fromkeys(troubles))})" if troubles else ""
    raise refused or OAuthError(f"the metadata of its authorization server {_shown(issuers[0])} was not found{said}")


async def _of_first_revision(fetch: GuardedFetch, url: str, challenge: Challenge, troubles: list[str]) -> Discovered:
    """MCP 2025-03-26, basic/authorization: the server's host, without its path, is the authorization server."""
    parts = urlsplit(url)
    root = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], "", "", ""))
    document = await _document(fetch, root + _OAUTH, troubles)
    guessed = document is None
    if document is not None:
        server = _server(document, _text(document, "issuer") or root, private=fetch.private, legacy=True)
        if _host(server.issuer) != _host(url):
            raise OAuthError(f"its metadata is that of another issuer, {_shown(server.issuer)}")
    elif challenge.bearer and not challenge.resource_metadata:
        server = AuthorizationServer(
            issuer=root,
            authorization_endpoint=f"{root}/authorize",
            token_endpoint=f"{root}/token",
            registration_endpoint=f"{root}/register",
            private=fetch.private,
            legacy=True,
        )
    else:
        said = f" ({'; '.join(dict.fromkeys(troubles))})" if troubles else ""
        raise NoLogin(f"it names no place to log in{said}")
    return Discovered(server=server, resource=None, scopes=None, guessed=guessed)


async def _document(fetch: GuardedFetch, url: str, troubles: list[str]) -> Mapping[str, Any] | None:
    """A JSON object; None if there is none at this place."""
    try:
        answer = await fetch.get(url)
    except FetchError as error:
        if error.refused:
            raise OAuthError(str(error)) from None
        troubles.append(str(error))
        return None
    if not answer.ok:
        return None
    try:
        document = msgspec.json.decode(answer.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        document = None
    if not isinstance(document, dict):
        troubles.append(f"{_shown(url)} gave something that is no JSON object")
        return None
    return cast("dict[str, Any]", document)


def _server(document: Mapping[str, Any], issuer: str, *, private: bool, legacy: bool = False) -> AuthorizationServer:
    said = _text(document, "issuer")
    if said != issuer and not _is_slash_apart(said, issuer):
        raise OAuthError(
            f"the metadata of its authorization server {_shown(issuer)} says that it is {_shown(said)}; if that is "
            "known to be right, write the latter as `oauth.issuer`"
        )
    token_endpoint = _text(document, "token_endpoint")
    if token_endpoint is None:
        raise OAuthError(f"its authorization server {_shown(issuer)} names no token endpoint")
    authorization_endpoint = _text(document, "authorization_endpoint")
    methods = _texts(document, "code_challenge_methods_supported")
    if authorization_endpoint is not None and "S256" not in methods and not (legacy and not methods):
        # MCP 2025-11-25, basic/authorization: a client MUST refuse to proceed if there is no such field.
        authorization_endpoint = None
    return AuthorizationServer(
        private=private,
        issuer=said or issuer,
        token_endpoint=token_endpoint,
        authorization_endpoint=authorization_endpoint,
        registration_endpoint=_text(document, "registration_endpoint"),
        device_authorization_endpoint=_text(document, "device_authorization_endpoint"),
        revocation_endpoint=_text(document, "revocation_endpoint"),
        token_endpoint_auth_methods=_texts(document, "token_endpoint_auth_methods_supported"),
        scopes_supported=_texts(document, "scopes_supported"),
        response_iss=document.get("authorization_response_iss_parameter_supported") is True,
        client_id_metadata=document.get("client_id_metadata_document_supported") is True,
        legacy=legacy,
    )


def _is_slash_apart(said: str | None, issuer: str) -> bool:
    """Whether two issuers without a path differ in the one slash that their metadata's address does not have.

    Servers of the Python SDK name every such issuer with a slash. It is the same document (RFC 8414 §3.1), and an
    answer is compared with what that says.
    """
    return said is not None and said.rstrip("/") == issuer.rstrip("/") and not urlsplit(issuer).path.strip("/")


def covers(resource: str, url: str) -> bool:
    """Whether a resource is this server, or all of what is below a path that the server is in."""
    try:
        wide, narrow = urlsplit(canonical(resource)), urlsplit(canonical(url))
    except ValueError:
        return False
    if (wide.scheme, wide.netloc) != (narrow.scheme, narrow.netloc) or wide.query not in ("", narrow.query):
        return False
    base, path = wide.path.rstrip("/"), narrow.path.rstrip("/")
    return path == base or path.startswith(f"{base}/")


def _host(url: str) -> str:
    """The name of its host, in small letters; nothing if it is no address."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def _text(document: Mapping[str, Any], name: str) -> str | None:
    value = document.get(name)
    return value if isinstance(value, str) and value else None


def _texts(document: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = document.get(name)
    items = cast("list[object]", value) if isinstance(value, list) else []
    return tuple(item for item in items[:_MOST_WORDS] if isinstance(item, str))


def _shown(text: str | None) -> str:
    return "nothing" if text is None else printable(text.partition("?")[0])[:120]
