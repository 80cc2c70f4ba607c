"""As whom a gateway comes to authorization servers, for the logins of its users: by its document, or registered there.

The document (CIMD) is at a URL of the gateway that is its client id as well. An authorization server may say that it
takes such ids and still not reach this one, behind a firewall, say; it then tells so on a page of its own, and nothing
comes back. So the next login there is made by registration, where there is any, until one with the document came back.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from muxway.clients.pages import PageAnswer
from muxway.identity.oauth_client import CLIENT_NAME
from muxway.identity.store import Registration
from muxway.wire import envelopes

if TYPE_CHECKING:
    from muxway.clients.pages import PageRequest
    from muxway.config.oauth import OAuthConfig
    from muxway.identity.login import PendingLogin
    from muxway.identity.store import AuthorizationServer

DOCUMENT: Final = "/connect/client.json"
"""Where the document is, after the base URL. Not below `/.well-known/`, which some take for a forbidden dot segment."""
_KIND: Final = "metadata document"
_HEADERS: Final = (
    ("content-type", "application/json"),
    ("cache-control", "max-age=3600"),
    ("x-content-type-options", "nosniff"),
)


class GatewayClient:
    """One registration at an authorization server for all users: it says who the gateway is."""

    def __init__(self, base: str, redirect_uri: str) -> None:
        """By this base URL, with logins that come back to this address."""
        self.document_url = base + DOCUMENT if _can_be_found(base) else None
        """The client id; None: others cannot read what is there."""
        self._base, self._redirect_uri = base, redirect_uri
        self._registered: dict[tuple[str, str], Registration] = {}
        """By server and issuer."""
        self._came_back: dict[tuple[str, str], bool] = {}
        """Whether a login with the document came back, by the same, where one was begun."""

    async def document(self, request: PageRequest) -> PageAnswer:
        """What stands at its URL, for every authorization server to read."""
        del request
        told = {
            "client_id": self.document_url,
            "client_name": CLIENT_NAME,
            "client_uri": self._base,
            "redirect_uris": [self._redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "application_type": "web",
            "token_endpoint_auth_method": "none",
        }
        return PageAnswer(200, envelopes.encode(told), _HEADERS)

    def known_as(self, name: str, oauth: OAuthConfig, server: AuthorizationServer) -> Registration | None:
        """As whom to come to the authorization server of the server of this name; None: as always."""
        at = name, server.issuer
        if oauth.client_id is not None or oauth.client_metadata_url is not None:
            return None
        is_taken = server.registration_endpoint is None or self._came_back.get(at, True)
        if self.document_url is not None and server.client_id_metadata and is_taken:
            return Registration(kind=_KIND, client_id=self.document_url)
        return self._registered.get(at)

    def begun(self, name: str, pending: PendingLogin) -> None:
        """A login has begun."""
        at = name, pending.found.server.issuer
        if pending.registration.kind == "registered":
            self._registered[at] = pending.registration
        elif pending.registration.client_id == self.document_url:
            self._came_back.setdefault(at, False)

    def came_back(self, name: str, pending: PendingLogin) -> None:
        """A login that had begun came back from the authorization server, with a code or a user's no: it knows us."""
        if pending.registration.client_id == self.document_url:
            self._came_back[name, pending.found.server.issuer] = True


def _can_be_found(base: str) -> bool:
    """Whether others may find what is at a base URL: by TLS, and by a name."""
    parts = urlsplit(base)
    host = parts.hostname or "localhost"
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return parts.scheme == "https" and host != "localhost" and not host.endswith(".localhost")
    return False
