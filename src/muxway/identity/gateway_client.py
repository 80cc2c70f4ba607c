"""As whom a gateway comes to authorization servers, for the logins of its users: by its document, or registered there.

The document (CIMD) is at a URL of the gateway that is its client id as well. An authorization server may say that it
takes such ids and still not reach this one. Where the gateway's name leads into a private network, only those that are
in one, too, are shown it. Behind a firewall nobody can tell: the authorization server then says so on a page of its
own, and nothing comes back; so the next login there is made by registration, where there is any, until one with the
document came back.
"""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from muxway.clients.pages import PageAnswer
from muxway.config.places import is_address
from muxway.identity.oauth_client import CLIENT_NAME
from muxway.identity.store import Registration
from muxway.net.guarded_fetch import GLOBAL, zone
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.clients.pages import PageRequest
    from muxway.config.oauth import OAuthConfig
    from muxway.identity.login import PendingLogin
    from muxway.identity.store import AuthorizationServer

DOCUMENT: Final = "/connect/client.json"
"""Where the document is, after the base URL. Not below `/.well-known/`, which some take for a forbidden dot segment."""
_KIND: Final = "metadata document"
_PATIENCE: Final = 2.0
_LOOKED_FOR: Final = 600.0
"""Seconds for which it is remembered where the gateway's name leads."""
_MOST_UNANSWERED: Final = 3
"""Logins with a client id that may be begun, and none come back, before another one is registered."""
_HEADERS: Final = (
    ("content-type", "application/json"),
    ("cache-control", "max-age=3600"),
    ("x-content-type-options", "nosniff"),
)


async def addresses_of(host: str) -> Sequence[str]:
    """The addresses of a name, as this machine knows it; none if it does not."""
    try:
        async with asyncio.timeout(_PATIENCE):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        return ()
    return [str(address[0]) for *_, address in found]


class GatewayClient:
    """One registration at an authorization server for all users: it says who the gateway is."""

    def __init__(self, base: str, redirect_uri: str) -> None:
        """By this base URL, with logins that come back to this address."""
        self.document_url = base + DOCUMENT if _can_be_found(base) else None
        """The client id; None: others cannot read what is there."""
        self._base, self._redirect_uri = base, redirect_uri
        self._is_in_the_open = False
        self._looked = float("-inf")
        self._registered: dict[tuple[str, str], Registration] = {}
        """By server and issuer."""
        self._unanswered: dict[tuple[str, str], int] = {}
        """How many logins with that have begun since one last came back, by the same."""
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

    async def look(self) -> None:
        """Find out where the gateway's name leads, if that was not lately. Before `known_as`."""
        now = time.monotonic()
        if self.document_url is not None and now - self._looked >= _LOOKED_FOR:
            found = await addresses_of(urlsplit(self._base).hostname or "")
            self._is_in_the_open = bool(found) and all(zone(address) == GLOBAL for address in found)
            self._looked = now

    def known_as(self, name: str, oauth: OAuthConfig, server: AuthorizationServer) -> Registration | None:
        """As whom to come to the authorization server of the server of this name; None: as always."""
        at = name, server.issuer
        if oauth.client_id is not None or oauth.client_metadata_url is not None:
            return None
        may_read = server.registration_endpoint is None or (
            self._came_back.get(at, True) and (self._is_in_the_open or server.private)
        )
        if self.document_url is not None and server.client_id_metadata and may_read:
            return Registration(kind=_KIND, client_id=self.document_url)
        if self._unanswered.get(at, 0) >= _MOST_UNANSWERED:
            # It may have forgotten us, which only the browsers of users are told.
            self._registered.pop(at, None)
            self._unanswered.pop(at, None)
        return self._registered.get(at)

    def begun(self, name: str, pending: PendingLogin) -> None:
        """A login has begun."""
        at = name, pending.found.server.issuer
        if pending.registration.kind == "registered":
            self._registered[at] = pending.registration
            self._unanswered[at] = self._unanswered.get(at, 0) + 1
        elif pending.registration.client_id == self.document_url:
            self._came_back.setdefault(at, False)

    def came_back(self, name: str, pending: PendingLogin) -> None:
        """A login that had begun came back from the authorization server, with a code or a user's no: it knows us."""
        at = name, pending.found.server.issuer
        self._unanswered.pop(at, None)
        if pending.registration.client_id == self.document_url:
            self._came_back[at] = True


def _can_be_found(base: str) -> bool:
    """Whether others may find what is at a base URL: by TLS, and by a name."""
    parts = urlsplit(base)
    host = parts.hostname or "localhost"
    is_here = host == "localhost" or host.endswith(".localhost")
    return parts.scheme == "https" and not is_here and not is_address(host)
