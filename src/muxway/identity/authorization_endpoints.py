"""An authorization server in front of the company's provider, for clients that must register themselves (OAuth 2.1).

People sign on at the company's provider and agree, on a page of ours, to what a program wants. The program gets tokens
of ours, each for one endpoint of this gateway. Nothing of the provider's is given to a program, nor taken from one.

An authorization request that is not right in every part is answered with a page, never with a redirect: whoever made
it may have registered where that would lead.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import secrets
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from muxway.clients.pages import PageAnswer, read_fields
from muxway.identity.client_registry import ClientError, OAuthClients
from muxway.identity.consent_page import consent_page
from muxway.identity.oauth_grants import OAuthGrants, grant_of
from muxway.identity.web_pages import say, send_to
from muxway.log import EventLog
from muxway.net.sealed_files import StoreError
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muxway.clients.pages import PageHandler, PageRequest
    from muxway.config.auth import OwnServerSettings
    from muxway.identity.client_registry import OAuthClient
    from muxway.identity.oauth_grants import Grant
    from muxway.identity.own_tokens import OwnTokens, SigningKeys
    from muxway.identity.resource_metadata import ProtectedResources
    from muxway.identity.sign_on import SignedOn, SignOn

AUTHORIZE, TOKEN, REGISTER, REVOKE, JWKS = "/authorize", "/token", "/register", "/revoke", "/jwks"
_CODE_FOR: Final = 60.0
_USED_FOR: Final = 600.0
"""Seconds for which a second use of a code is known as one."""
_MOST_CODES: Final = 10_000
_SWEPT_EVERY: Final = 24 * 3600.0
_LONGEST_QUERY: Final = 2500
"""Characters of an authorization request: a browser keeps it while its user signs on."""
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}").fullmatch
_VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}").fullmatch
_WELL_KNOWN: Final = ("oauth-authorization-server", "openid-configuration")
_JSON: Final = (
    ("content-type", "application/json"),
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
    ("access-control-allow-origin", "*"),
)

log = EventLog("auth")


class _Asked(NamedTuple):
    """An authorization request that is right in every part."""

    client: OAuthClient
    redirect_uri: str
    state: str | None
    challenge: str
    resource: str
    scopes: tuple[str, ...]
    anew: bool
    """Whether the user is to be asked, also if they have agreed before."""


class _Code(NamedTuple):
    asked: _Asked
    who: SignedOn
    until: float


class _Wrong(Exception):
    """A request that cannot be granted: an error code of OAuth, and why."""

    def __init__(self, code: str, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.code, self.why, self.status = code, why, status


class AuthorizationEndpoints:
    """All that it serves. `pages` are for browsers, `endpoints` for programs, `document` for both."""

    def __init__(
        self,
        issuer: str,
        settings: OwnServerSettings,
        *,
        sign_on: SignOn,
        resources: ProtectedResources,
        clients: OAuthClients,
        grants: OAuthGrants,
        keys: SigningKeys,
        tokens: OwnTokens,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.issuer = issuer
        self.resources = resources
        """What there is to be used: another configuration has others."""
        self.tokens = tokens
        self._settings, self._sign_on = settings, sign_on
        self._clients, self._grants, self._keys = clients, grants, keys
        self._now = now
        self._codes: dict[bytes, _Code] = {}
        self._used: dict[bytes, tuple[str, float]] = {}
        """Codes that were traded, and the login that each became."""
        self._swept = now()

    @property
    def pages(self) -> Mapping[str, PageHandler]:
        """What browsers are shown, by path."""
        return {AUTHORIZE: self._guarded(self.authorize)}

    @property
    def endpoints(self) -> Mapping[str, PageHandler]:
        """What programs ask, by path."""
        asked = {TOKEN: self.token, REVOKE: self.revoke, JWKS: self.jwks}
        if self._settings.registration:
            asked[REGISTER] = self.register
        return {path: self._guarded(handler) for path, handler in asked.items()}

    def _guarded(self, handler: PageHandler) -> PageHandler:
        async def answer(request: PageRequest) -> PageAnswer:
            try:
                return await handler(request)
            except StoreError as error:
                log.error("the authorization server cannot use its store", why=str(error))
                if request.path == AUTHORIZE:
                    return say(503, "Not now", "The gateway's log says why.")
                return _refused(_Wrong("temporarily_unavailable", "the gateway's log says why", 503))

        return answer

    def document(self, path: str) -> bytes | None:
        """What stands at a well-known path (RFC 8414 §3, and where OpenID Connect Discovery looks); None: nothing."""
        base = urlsplit(self.issuer).path
        places = {f"/.well-known/{kind}{end}" for kind in _WELL_KNOWN for end in {"", base}}
        if path.rstrip("/") not in places | {f"{base}/.well-known/{_WELL_KNOWN[1]}"}:
            return None
        told: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": self.issuer + AUTHORIZE,
            "token_endpoint": self.issuer + TOKEN,
            "revocation_endpoint": self.issuer + REVOKE,
            "jwks_uri": self.issuer + JWKS,
            "scopes_supported": [*self.resources.scopes],
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": True,
        }
        if self._settings.registration:
            told["registration_endpoint"] = self.issuer + REGISTER
        if _WELL_KNOWN[1] in path:
            # No ID tokens are made; readers of this document insist on these.
            told |= {"subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"]}
        return envelopes.encode(told)

    # --- the browser --------------------------------------------------------------------------

    async def authorize(self, request: PageRequest) -> PageAnswer:
        """The page that a program sends its user to."""
        query = request.form.get("request", "") if request.method == "POST" else request.query
        if len(query) > _LONGEST_QUERY:
            return say(400, "This cannot be allowed", "The program asks for too much at once.")
        who = self._sign_on.who(request)
        if who is None:
            # First of all, so that nobody makes us ask others before it is known who they are.
            return await self._sign_on.begin(request, f"{AUTHORIZE}?{query}")
        try:
            asked = await self._read(query)
        except _Wrong as wrong:
            log.info("authorization request refused", code=wrong.code, why=wrong.why)
            return say(400, "This cannot be allowed", wrong.why)
        if request.method == "GET":
            if not asked.anew and self._grants.has_agreed(who, asked.client.id, asked.scopes, asked.resource):
                return self._allow(asked, who)
            return consent_page(who, asked.client, asked.redirect_uri, asked.scopes, asked.resource, query)
        if not self._sign_on.may_change(request, who):
            return say(403, "This was not your answer", "Go back to the program, and begin again.")
        if request.form.get("answer") != "allow":
            return self._back(asked, error="access_denied")
        try:
            # The disk takes its time, and others have theirs.
            await asyncio.to_thread(self._remember, asked, who)
        except ClientError as error:
            return say(503, "This cannot be allowed", str(error))
        log.info("a program was allowed", user=who.user, client=asked.client.id, name=asked.client.name)
        return self._allow(asked, who)

    def _remember(self, asked: _Asked, who: SignedOn) -> None:
        self._clients.keep(asked.client)
        self._grants.agree(who, asked.client.id, asked.scopes, asked.resource)

    async def _read(self, query: str) -> _Asked:
        """What a program asks for. Raises _Wrong, StoreError."""
        said = read_fields(query)
        if said is None:
            raise _Wrong("invalid_request", "The address is no authorization request, or has something twice.")
        try:
            client = await self._clients.look_up(said.get("client_id", ""))
        except ClientError as error:
            raise _Wrong(error.code, str(error)) from None
        redirect_uri = said.get("redirect_uri", "")
        if not client.allows(redirect_uri):
            raise _Wrong("invalid_request", "The program wants your answer at an address that is not its own.")
        if said.get("response_type") != "code" or said.get("response_mode", "query") != "query":
            raise _Wrong("unsupported_response_type", "The program asks for something else than a code.")
        if said.get("code_challenge_method") != "S256" or _CHALLENGE(said.get("code_challenge", "")) is None:
            raise _Wrong("invalid_request", "The program does not use PKCE with S256, without which this is not safe.")
        if "request" in said or "request_uri" in said:
            raise _Wrong("request_not_supported", "The program asks in a way that is not known here.")
        prompt = said.get("prompt", "").split()
        if "none" in prompt:
            raise _Wrong("interaction_required", "The program wants you not to be asked.")
        resource = said.get("resource") or self.resources.usual
        found = self.resources.named(resource)
        if found is None:
            raise _Wrong("invalid_target", "The program wants to use something that is not here.")
        known = self.resources.scopes
        scopes = tuple(dict.fromkeys(one for one in said.get("scope", "").split() if one in known)) or found.scopes
        # A document, and an address or a scheme of this machine, are for every program here to say: so it is asked
        # each time (RFC 8252 §8.6).
        anew = "consent" in prompt or (client.is_document and not redirect_uri.startswith("https:"))
        return _Asked(client, redirect_uri, said.get("state"), said["code_challenge"], resource, scopes, anew)

    def _allow(self, asked: _Asked, who: SignedOn) -> PageAnswer:
        now = self._now()
        if len(self._codes) >= _MOST_CODES:
            self._codes = {digest: code for digest, code in self._codes.items() if code.until > now}
        if len(self._codes) >= _MOST_CODES:
            return say(503, "Not now", "Too many programs are being allowed at once. Try again in a minute.")
        code = secrets.token_urlsafe(32)
        self._codes[_digest(code)] = _Code(asked, who, now + _CODE_FOR)
        return self._back(asked, code=code)

    def _back(self, asked: _Asked, **said: str) -> PageAnswer:
        """Send the browser back to the program, saying who says so (RFC 9207)."""
        fields = {**said, **({} if asked.state is None else {"state": asked.state}), "iss": self.issuer}
        uri = asked.redirect_uri
        return send_to(f"{uri}{'&' if '?' in uri else '?'}{urlencode(fields)}", [("referrer-policy", "no-referrer")])

    # --- the program --------------------------------------------------------------------------

    async def register(self, request: PageRequest) -> PageAnswer:
        """RFC 7591."""
        if request.method != "POST":
            return _refused(_Wrong("invalid_request", "send a POST", 405))
        try:
            made = self._clients.register(request.body, request.address)
        except ClientError as error:
            return _refused(_Wrong(error.code, str(error), 429 if error.code == "slow_down" else 400))
        told = {
            "client_id": made.id,
            "client_id_issued_at": int(made.made_at),
            "client_name": made.name,
            "redirect_uris": [*made.redirect_uris],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
        return PageAnswer(201, envelopes.encode(told), _JSON)

    async def token(self, request: PageRequest) -> PageAnswer:
        """Trade a code, or a refresh token, for tokens."""
        form = request.form
        try:
            match form.get("grant_type") if request.method == "POST" else None:
                case "authorization_code":
                    grant, refresh = await self._by_code(form)
                    scopes = grant.scopes
                case "refresh_token":
                    grant, refresh, scopes = await self._by_refresh_token(form)
                case None:
                    raise _Wrong("invalid_request", "send a POST with grant_type")
                case _:
                    raise _Wrong("unsupported_grant_type", "there are authorization_code and refresh_token")
        except _Wrong as wrong:
            return _refused(wrong)
        told = {
            "access_token": self.tokens.make(grant, scopes),
            "token_type": "Bearer",
            "expires_in": int(self.tokens.lifetime),
            "refresh_token": refresh,
            "scope": " ".join(scopes),
        }
        return PageAnswer(200, envelopes.encode(told), _JSON)

    async def _by_code(self, form: Mapping[str, str]) -> tuple[Grant, str]:
        digest, now = _digest(form.get("code", "")), self._now()
        code = self._codes.pop(digest, None)
        if code is None or code.until < now:
            grant, until = self._used.pop(digest, ("", 0.0))
            if until > now:
                # RFC 6749 §4.1.2: two have it. Neither keeps what came of it.
                log.warning("a code was used twice: what came of it has ended")
                if grant:
                    self._end(grant)
            raise _Wrong("invalid_grant", "the code is not good, or not any more")
        asked = code.asked
        if form.get("client_id") != asked.client.id or form.get("redirect_uri") != asked.redirect_uri:
            raise _Wrong("invalid_grant", "the code was given to another client, or for another redirect_uri")
        verifier = form.get("code_verifier", "")
        proof = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
        if _VERIFIER(verifier) is None or not hmac.compare_digest(proof, asked.challenge.encode()):
            raise _Wrong("invalid_grant", "code_verifier is missing, or not the one that the code was asked for with")
        _same_resource(form, asked.resource)
        if len(self._used) >= _MOST_CODES:
            self._used = {known: one for known, one in self._used.items() if one[1] > now}
        self._used[digest] = "", now + _USED_FOR
        grant, refresh = await asyncio.to_thread(self._open, code)
        if digest not in self._used:
            # It came again while this was written down.
            self._end(grant.id)
            raise _Wrong("invalid_grant", "the code is not good, or not any more")
        self._used[digest] = grant.id, now + _USED_FOR
        return grant, refresh

    def _open(self, code: _Code) -> tuple[Grant, str]:
        """Begin a login; now and then, forget those that are over."""
        asked, now = code.asked, self._now()
        self._clients.use(asked.client)
        if self._swept + _SWEPT_EVERY < now:
            self._swept = now
            self.sweep()
        until = now + self._settings.login_lifetime
        return self._grants.open(code.who, asked.client.id, asked.scopes, asked.resource, until)

    def sweep(self) -> None:
        """Forget what has ended, and clients that nobody uses."""
        self._clients.sweep()
        self._grants.sweep()

    async def _by_refresh_token(self, form: Mapping[str, str]) -> tuple[Grant, str, tuple[str, ...]]:
        token, client_id = form.get("refresh_token", ""), form.get("client_id", "")
        known = self._grants.find(grant_of(token) or "")
        if known is not None and known.client_id == client_id:
            _same_resource(form, known.resource)
            if known.issuer != self._sign_on.issuer:
                raise _Wrong("invalid_grant", "who signed on did so elsewhere: log in again")
            # A client that is forgotten has no tokens, either.
            if not client_id.startswith("https:") and self._clients.find(client_id) is None:
                raise _Wrong("invalid_client", "no program of this id is known here any more")
            if "scope" in form and not set(form["scope"].split()) <= set(known.scopes):
                raise _Wrong("invalid_scope", "this is more than was agreed to")
        found = await self._grants.rotate(token, client_id)
        if found is None:
            if known is not None and known.client_id == client_id:
                log.warning("a refresh token was used twice: what came of its login has ended", user=known.user)
                self.tokens.forget()
            raise _Wrong("invalid_grant", "the refresh token is not good, or not any more: log in again")
        grant, refresh = found
        return grant, refresh, tuple(form["scope"].split()) if "scope" in form else grant.scopes

    async def revoke(self, request: PageRequest) -> PageAnswer:
        """RFC 7009: with one token ends the login that it came of. What is no token of ours is none any more."""
        token, client_id = request.form.get("token", ""), request.form.get("client_id", "")
        if request.method != "POST" or not token:
            return _refused(_Wrong("invalid_request", "send a POST with token"))
        id_ = grant_of(token) if token.count(".") == 1 else None
        if id_ is not None:
            grant = self._grants.find(id_)
            if grant is not None and grant.client_id == client_id and self._grants.owns(grant, token):
                self._end(id_)
        elif (found := self.tokens.grant_in(token.encode())) is not None and found[1] == client_id:
            self._end(found[0])
        return PageAnswer(200, b"{}", _JSON)

    def _end(self, grant: str) -> None:
        self._grants.end(grant)
        self.tokens.forget()

    async def jwks(self, request: PageRequest) -> PageAnswer:
        """The public halves of the keys."""
        del request
        return PageAnswer(200, envelopes.encode({"keys": self._keys.public()}), _JSON)


def _same_resource(form: Mapping[str, str], resource: str) -> None:
    if form.get("resource", resource).rstrip("/") != resource.rstrip("/"):
        raise _Wrong("invalid_target", "this is not what was agreed to")


def _refused(wrong: _Wrong) -> PageAnswer:
    told = {"error": wrong.code, "error_description": wrong.why}
    more = [("retry-after", "60")] if wrong.status == 429 else []
    return PageAnswer(wrong.status, envelopes.encode(told), [*_JSON, *more])


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode()).digest()
