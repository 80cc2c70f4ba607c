"""A person logs in to a server: the way there, what comes back, and what is kept of it.

What a login begins with (state, verifier, issuer, where to) is in the `PendingLogin` alone. It ends after ten minutes
and is good for one answer; that answer is believed only if it has our state and names the issuer that was asked.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from muxway.identity import oauth_client
from muxway.identity.discovery import OAuthError
from muxway.identity.oauth_client import joined
from muxway.identity.store import Login
from muxway.log import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muxway.config.oauth import OAuthConfig
    from muxway.identity.challenges import Challenge
    from muxway.identity.discovery import Discovered
    from muxway.identity.store import LoginKey, Registration
    from muxway.net.guarded_fetch import GuardedFetch

LIFETIME: Final = 600.0
"""Seconds that a person has for a login."""
_OFFLINE: Final = "offline_access"
_LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))


class NotOurs(OAuthError):
    """What came back does not belong to this login, which goes on waiting."""


class LoginDeclined(OAuthError):
    """The user, or the authorization server in the user's place, does not allow it: the login ends there."""


def choose_scopes(
    found: Discovered, challenge: Challenge, oauth: OAuthConfig, more: Sequence[str] = (), before: Sequence[str] = ()
) -> tuple[str, ...]:
    """What to ask for: what the user wrote, else what the server asks for, else what it says that it knows.

    Args:
        found: what the server's metadata says.
        challenge: what it said when it refused a request.
        oauth: the configuration.
        more: asked for by the user for this time, beside the rest.
        before: what was asked for in an earlier login, where this one is to give more.
    """
    if oauth.scopes is not None:
        wanted = [*oauth.scopes, *(challenge.scope or ())] if before else [*oauth.scopes]
    else:
        wanted = [*(challenge.scope if challenge.scope is not None else found.scopes or ())]
    wanted = [*before, *wanted, *more]
    if oauth.interactive and _OFFLINE in found.server.scopes_supported:
        # MCP 2026-07-28: so that there is a refresh token, and only where it is known.
        wanted.append(_OFFLINE)
    return tuple(dict.fromkeys(wanted))


def safe_link(url: str) -> str:
    """An address that a browser may be sent to. Raises OAuthError for any other."""
    parts = None
    if not any(ord(char) <= 0x20 or ord(char) == 0x7F or char in "\"'<>\\`{}|^" for char in url):
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError:
            parts = None
    usable = parts is not None and bool(parts.hostname) and "@" not in parts.netloc
    if parts is None or not usable:
        raise OAuthError("its authorization server names a page that is no web address")
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise OAuthError(f"its authorization server names a page that is not https: {printable(parts.scheme)[:20]}://…")
    return url


@dataclass(slots=True)
class PendingLogin:
    """A login that has begun."""

    key: LoginKey
    found: Discovered
    registration: Registration
    scopes: tuple[str, ...]
    redirect_uri: str
    resource: str | None
    oauth: OAuthConfig
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))
    ends: float = field(default_factory=lambda: time.monotonic() + LIFETIME)
    used: bool = False

    @property
    def link(self) -> str:
        """Where the browser has to go. Raises OAuthError."""
        endpoint = self.found.server.authorization_endpoint
        if endpoint is None:
            raise OAuthError(
                f"its authorization server {self.found.server.issuer} does not say that it knows PKCE (S256), which is "
                "needed for a safe login; try `muxway login --device`"
            )
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()
        fields = {
            "response_type": "code",
            "client_id": self.registration.client_id,
            "redirect_uri": self.redirect_uri,
            "state": self.state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": self.resource,
            "scope": joined(self.scopes),
            "prompt": "consent" if _OFFLINE in self.scopes else None,
        }
        query = urlencode({name: value for name, value in fields.items() if value is not None})
        return safe_link(f"{endpoint}{'&' if '?' in endpoint else '?'}{query}")

    def is_ours(self, query: str) -> bool:
        """Whether what came back has our state, and nobody has used that yet."""
        try:
            self._said(query)
        except NotOurs:
            return False
        return True

    def _said(self, query: str) -> dict[str, str]:
        try:
            given = parse_qs(query, keep_blank_values=True, max_num_fields=50)
        except ValueError:
            raise NotOurs("the address has no answer in it") from None
        doubled = [name for name in ("state", "code", "iss", "error") if len(given.get(name, ())) > 1]
        said = {name: values[0] for name, values in given.items()}
        if doubled or not hmac.compare_digest(said.get("state", "").encode(), self.state.encode()):
            raise NotOurs("the answer does not belong to this login")
        if self.used or time.monotonic() > self.ends:
            raise NotOurs("this login is over; begin another one")
        return said

    def code(self, query: str) -> str:
        """The code in what came back; from here on the login is used up.

        Raises:
            NotOurs: it belongs to another login, or to none.
            LoginDeclined: the user does not want to.
            OAuthError: it says no, or says it in the name of somebody else.
        """
        said = self._said(query)
        self.used = True
        self._check_issuer(said)
        if "error" in said:
            why = printable(said.get("error_description", ""))[:200]
            kind = LoginDeclined if said["error"] == "access_denied" else OAuthError
            raise kind(f"the login was refused: {printable(said['error'])[:80]}{f' ({why})' if why else ''}")
        if not said.get("code"):
            raise OAuthError("the answer has no code in it")
        return said["code"]

    def _check_issuer(self, said: Mapping[str, str]) -> None:
        """RFC 9207 §2.4, and MCP 2026-07-28: byte for byte, errors too."""
        server = self.found.server
        issuer = said.get("iss")
        if issuer is None and server.response_iss:
            raise OAuthError(
                f"the answer does not say that it comes from {server.issuer}, though that one always says so"
            )
        if issuer is not None and issuer != server.issuer:
            raise OAuthError(f"the answer comes from another issuer than {server.issuer}, so its code is not used")

    async def finish(self, fetch: GuardedFetch, query: str) -> Login:
        """Trade what came back for a token. Raises as `code`, and OAuthError."""
        code = self.code(query)
        token = await oauth_client.ask_token(
            fetch,
            self.found.server,
            self.registration,
            {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": self.redirect_uri,
                "code_verifier": self.verifier,
                "resource": self.resource,
            },
            oauth=self.oauth,
        )
        return self.login(token)

    def login(self, token: oauth_client.Token) -> Login:
        """What is kept."""
        return Login(
            key=self.key,
            grant="authorization_code",
            server=self.found.server,
            registration=self.registration,
            token=token,
            resource=self.resource,
            asked=self.scopes,
            made_at=time.time(),
        )


def asked_resource(found: Discovered, oauth: OAuthConfig) -> str | None:
    """What a token is asked for."""
    return found.resource if oauth.resource is None else oauth.resource or None


async def begin(
    fetch: GuardedFetch,
    key: LoginKey,
    found: Discovered,
    oauth: OAuthConfig,
    scopes: tuple[str, ...],
    redirect_uri: str,
    before: Login | None = None,
    *,
    device: bool = False,
    registration: Registration | None = None,
) -> PendingLogin:
    """Begin a login: get a client id, unless one is known, or the last login's still fits. Raises OAuthError."""
    registration = registration or reusable(before, found, oauth, redirect_uri)
    if registration is None:
        registration = await oauth_client.register(fetch, found.server, oauth, redirect_uri, device=device)
    return PendingLogin(key, found, registration, scopes, redirect_uri, asked_resource(found, oauth), oauth)


def reusable(before: Login | None, found: Discovered, oauth: OAuthConfig, redirect_uri: str) -> Registration | None:
    """The registration of an earlier login, if it is one with this issuer, for this address, and not over."""
    if before is None or oauth.client_id is not None or before.registration.kind != "registered":
        return None
    known = before.registration
    lasts = not known.secret_expires_at or known.secret_expires_at > time.time() + LIFETIME
    if before.server.issuer != found.server.issuer or known.redirect_uri != redirect_uri or not lasts:
        return None
    return known
