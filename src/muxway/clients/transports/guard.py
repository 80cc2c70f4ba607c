"""Who may speak to the HTTP port at all: Host, Origin and bearer token, checked before anything is read.

A web page can make a browser send requests here, and can give its own name our address (DNS rebinding).
What it cannot do is choose the Host and Origin that the browser then writes down.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import os
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from muxway.clients.authenticator import KEY_PREFIX
from muxway.clients.transports.guesses import Guesses
from muxway.config import places

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from muxway.clients.transports.http_connection import HttpConnection

LOOPBACK_NAMES: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9](?:[a-z0-9._-]*[a-z0-9])?))(?::([0-9]{1,5}))?").fullmatch
_ORIGIN = re.compile(r"(https?)://([^/?#@\\\s]+)").fullmatch
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_BEARER: Final = b"bearer "

_CORS_METHODS: Final = b"GET, POST, DELETE, OPTIONS"
_CORS_EXPOSED: Final = b"Mcp-Session-Id, Retry-After, WWW-Authenticate"
_CORS_ALLOWED: Final = (
    b"authorization, content-type, accept, last-event-id, mcp-protocol-version, mcp-session-id, mcp-method, mcp-name"
)
_CORS_AGE: Final = b"600"
_ANOTHER_USER: Final = (
    "without a token this gateway serves only the user who runs it, and this connection is of another user, or of a "
    "proxy that runs as one: set a token there (MUXWAY_TOKEN, or gateway.token in the config) and send it"
)
_PARAM_HEADER = re.compile(rb"mcp-param-[a-z0-9!#$%&'*+.^_`|~-]{1,64}").fullmatch


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what is bound to this address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not let in."""

    status: int
    why: str
    headers: Sequence[tuple[bytes, bytes]] = ()


def _split_host(text: str) -> tuple[str, str] | None:
    """Name and port of a Host header; None if it is none."""
    match = _HOST(text.lower())
    if match is None:
        return None
    name = match[1] or match[2]
    if match[1] and not places.is_address(name):
        return None
    if match[3] and int(match[3]) > 65535:
        return None
    return name, match[3] or ""


def _split_origin(origins: Sequence[bytes]) -> tuple[str, str, str] | None:
    """Scheme, name and port of the only Origin header; None if there is no such thing."""
    match = _ORIGIN(origins[0].decode("latin-1").strip().lower()) if len(origins) == 1 else None
    there = _split_host(match[2]) if match is not None else None
    return None if match is None or there is None else (match[1], *there)


def bearer(authorizations: Sequence[bytes]) -> bytes:
    """The bearer token of a request; nothing if there is none, or more than one credential."""
    return _token(authorizations[0]) if len(authorizations) == 1 else b""


def _token(authorization: bytes) -> bytes:
    """The bearer token in this header; nothing if there is none."""
    return authorization[len(_BEARER) :].strip() if authorization[: len(_BEARER)].lower() == _BEARER else b""


class Guard:
    """Lets requests in, or says why not."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        allow_hosts: Iterable[str] = (),
        allow_origins: Iterable[str] = (),
        tokens: Iterable[str] = (),
        views: Mapping[str, str] | None = None,
        own_user: bool = False,
    ) -> None:
        """Guard a port that is bound to `host`.

        Args:
            host: the address it is bound to. Loopback is known by its names only; others also by any IP address
                (a page cannot rebind one) and by this machine's name.
            allow_hosts: further names by which clients may know it; `*` for any.
            allow_origins: web origins whose pages may use it, as `https://app.example`; `*` for any. On loopback the
                pages of this machine may in any case.
            tokens: if there are any, one of them must come with each request.
            views: further tokens, and the only view that each of them opens.
            own_user: whether, where no credentials are needed, only the user who runs us, and root, are let in.

        Raises:
            ValueError: a host or origin is written in a way that no request could match.
        """
        self._local = is_loopback(host)
        self._own = () if self._local else (host.lower(), socket.gethostname().lower())
        self.allow(allow_hosts, allow_origins)
        self._guesses = Guesses()
        self._users = (os.geteuid(), 0) if own_user else ()
        self.expect(tokens, views or {})

    def allow(self, hosts: Iterable[str], origins: Iterable[str]) -> None:
        """Answer to these names and to these pages from now on. Raises ValueError, and then changes nothing."""
        names = {places.host(name) for name in hosts}
        pages = frozenset(places.origin(page) for page in origins)
        self._any_host = places.ANY in names
        self._hosts = {*LOOPBACK_NAMES, *names, *self._own}
        self._any_origin = places.ANY in pages
        self._origins = pages
        self._last_host: bytes | None = None
        """The Host that was let in last: nearly always also the next one."""

    def expect(
        self, tokens: Iterable[str], views: Mapping[str, str], *, closed: bool = False, own: str | None = None
    ) -> None:
        """Let in those with these tokens from now on, and nobody else; as for the tokens it began with.

        With `closed`, nobody comes in without credentials, even if there are none of these: somebody else knows them.
        Whoever has the token `own`, if there is such a one, is the user who runs us.
        """
        self._own_token = None if own is None else own.encode()
        self._views = {token.encode(): view for token, view in views.items()}
        self._tokens = [*(token.encode() for token in tokens), *self._views]
        self._closed = closed or bool(self._tokens)
        self._owners = {hashlib.sha256(token).digest(): self._views.get(token) for token in self._tokens}

    def still_knows(self, owner: bytes, view: str | None) -> bool:
        """Whether the owner of something that is open, in this view, could open it now."""
        return not self._closed or (owner in self._owners and self._owners[owner] in (None, view))

    def refuses_place(self, hosts: Sequence[bytes], origins: Sequence[bytes]) -> Refusal | None:
        """Check where the request was sent to, and which page made it, if any did."""
        if not origins and len(hosts) == 1 and hosts[0] == self._last_host:
            return None
        split = _split_host(hosts[0].decode("latin-1").strip()) if len(hosts) == 1 else None
        if split is None:
            return Refusal(400, "the Host header is missing, doubled or malformed")
        name = split[0]
        if not (self._any_host or name in self._hosts or (not self._local and places.is_address(name))):
            return Refusal(421, "this server is not known by that Host; the owner may allow it with --allow-host")
        if origins and not self._may(origins, split):
            return Refusal(403, "pages of that Origin may not use this server; see --allow-origin")
        self._last_host = hosts[0]
        return None

    def _may(self, origins: Sequence[bytes], host: tuple[str, str]) -> bool:
        if self._has_cors(origins):
            return True
        there = _split_origin(origins)
        if there is None or self._local:
            return False
        # A page of this very server needs no CORS.
        scheme, name, port = there
        default = _DEFAULT_PORTS[scheme]
        return (name, port or default) == (host[0], host[1] or default)

    def _has_cors(self, origins: Sequence[bytes]) -> bool:
        """Whether the page may read what it is answered."""
        if len(origins) != 1:
            return False
        if self._any_origin or origins[0].decode("latin-1").strip().lower() in self._origins:
            return True
        # Pages of this machine's own servers, the MCP Inspector say: no page from elsewhere can take their names.
        there = _split_origin(origins) if self._local else None
        return there is not None and there[1] in LOOPBACK_NAMES

    def knows(self, authorizations: Sequence[bytes]) -> bool:
        """Whether the bearer token is right, or none is needed."""
        return not self._closed or self.has(bearer(authorizations))

    def has(self, token: bytes) -> bool:
        """Whether this is one of the tokens."""
        # Every token is compared, and in full, so that the time tells nothing.
        return sum(hmac.compare_digest(token, known) for known in self._tokens) > 0

    def knows_for_all(self, authorizations: Sequence[bytes]) -> bool:
        """Whether the bearer token is right, or none is needed, and it opens more than one view."""
        return self.knows(authorizations) and self.view_of(authorizations) is None

    def refuses_user(self, connection: HttpConnection) -> Refusal | None:
        """Check whose program made the connection, where nothing else says who it is."""
        if not self._users or self._closed or connection.user in self._users:
            return None
        return Refusal(403, _ANOTHER_USER)

    def refuses_caller(self, authorizations: Sequence[bytes], address: str = "") -> Refusal | None:
        """Check the bearer token of a request from this address. Wrong ones are counted."""
        if self.knows(authorizations):
            # However often somebody at this address has guessed: whoever has the token is let in.
            return None
        given = authorizations[0] if authorizations else b""
        if given and (refusal := self._counted(given, address)) is not None:
            return refusal
        challenge = b'Bearer realm="muxway"' + (b', error="invalid_token"' if given else b"")
        why = (
            "this is not a bearer token that this server was given"
            if given
            else "a bearer token is required: send the header Authorization: Bearer <token>"
        )
        return Refusal(401, why, [(b"www-authenticate", challenge)])

    def refuses_guess(self, token: bytes, address: str) -> Refusal | None:
        """Count a wrong token that somebody else has judged, where it may have been a guess at one of ours."""
        # Nobody guesses a signed token; and those that have expired come often, behind a proxy from one address.
        is_guess = self._tokens and token.count(b".") != 2 and not token.startswith(KEY_PREFIX)
        return self._counted(token, address) if is_guess else None

    def _counted(self, given: bytes, address: str) -> Refusal | None:
        seconds = self._guesses.add(address, given)
        if not seconds:
            return None
        why = f"too many wrong tokens from this address: try again in {math.ceil(seconds)} s, with the right one"
        return Refusal(429, why, [(b"retry-after", b"%d" % math.ceil(seconds))])

    def view_of(self, authorizations: Sequence[bytes]) -> str | None:
        """The only view that this token opens; None for one that opens everything. The token has been checked."""
        return self._views.get(_token(authorizations[0])) if self._views and len(authorizations) == 1 else None

    def owner(self, authorizations: Sequence[bytes]) -> bytes:
        """Who makes the request, as far as a session must know: a digest of its credentials, never these."""
        if not authorizations:
            return b""
        # One token is one owner, however the header is spelled.
        return hashlib.sha256(bearer(authorizations) or b"\0".join(authorizations)).digest()

    def principal(self, authorizations: Sequence[bytes]) -> bytes:
        """Who makes the request, as far as servers may be kept apart for it; nothing where it is who runs us."""
        if not self._closed or (self._own_token is not None and bearer(authorizations) == self._own_token):
            return b""
        return self.owner(authorizations)

    # --- CORS ---------------------------------------------------------------------------------

    def cors(self, origins: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """What an answer must say for the page to be allowed to read it; nothing if no page may."""
        if not origins and not self._origins:
            return []
        vary = (b"vary", b"Origin")
        if not self._has_cors(origins):
            return [vary]
        return [
            (b"access-control-allow-origin", origins[0].strip()),
            (b"access-control-expose-headers", _CORS_EXPOSED),
            vary,
        ]

    def preflight(self, origins: Sequence[bytes], wanted: Sequence[bytes]) -> list[tuple[bytes, bytes]] | None:
        """The answer to a browser that asks before it sends; None if the page may not."""
        headers = self.cors(origins)
        if len(headers) < 2:
            return None
        asked = {name.strip().lower() for line in wanted for name in line.split(b",")}
        params = sorted(name for name in asked if _PARAM_HEADER(name))
        return [
            *headers,
            (b"access-control-allow-methods", _CORS_METHODS),
            (b"access-control-allow-headers", b", ".join((_CORS_ALLOWED, *params))),
            (b"access-control-max-age", _CORS_AGE),
        ]
