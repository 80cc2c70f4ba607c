"""People sign on in a browser, at the issuer of `gateway.auth`: OpenID Connect, code flow with PKCE.

Whoever serves pages asks `who` it is, and sends those away to `begin` whom it does not know; they come back signed on.
Who somebody is stands in a sealed cookie; the gateway remembers nothing but which answers of the issuer are used up.

Logins at servers are kept by issuer and subject, as they are here: whoever makes principals of those who signed on must
keep both.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from html import escape
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from muxway.calls.identity import Identity
from muxway.clients.authenticator import Rejected
from muxway.clients.pages import read_fields
from muxway.config.auth import is_secure
from muxway.identity.issuer import IssuerMetadata, fetch_json
from muxway.identity.jwks import IssuerKeys
from muxway.identity.verify_jwt import UnknownKey, check_claims, signed_claims
from muxway.identity.web_pages import say, send_to, show
from muxway.log import EventLog, printable
from muxway.net.http_errors import HttpTrouble

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muxway.clients.pages import PageAnswer, PageRequest
    from muxway.config.auth import AuthSettings, SignOnSettings
    from muxway.identity.sealed_cookies import SealedCookies

CALLBACK: Final = "/sign-on/callback"
"""Where the issuer sends browsers back to: what has to be registered there, after the base URL."""
LASTS: Final = 3600.0
"""Seconds for which somebody is known; then the issuer is asked again, which most people do not notice."""
_BEGUN_LASTS: Final = 600.0
_SESSION: Final = "session"
_BEGUN: Final = "sign-on"
_MOST_USED: Final = 10_000
_LONGEST_BACK: Final = 2600
"""Bytes, as a cookie holds it, of the address of ours that a browser comes back to."""
_MOST_GROUPS: Final = 2000
"""Characters of the names of all groups."""
_AGAIN: Final = "Go back and begin again; the gateway's log says why."

log = EventLog("auth")


class SignedOn(msgspec.Struct, frozen=True, array_like=True):
    """Who is in front of a browser."""

    issuer: str
    subject: str
    user: str
    groups: tuple[str, ...] = ()
    csrf: str = ""
    """What every form of ours has in it, and no page of anybody else."""
    more_groups: bool = False
    """See `Identity`."""

    @property
    def identity(self) -> Identity:
        """The same as rules know it."""
        return Identity(
            issuer=self.issuer,
            subject=self.subject,
            user=self.user,
            groups=self.groups,
            more_groups=self.more_groups,
        )


class _OpenSignOn(msgspec.Struct, frozen=True, array_like=True):
    """What a browser keeps while its user is at the issuer."""

    state: str
    nonce: str
    verifier: str
    back: str


class Provider(NamedTuple):
    """An issuer at which people sign on."""

    authorization_endpoint: str
    token_endpoint: str
    in_body: bool
    """Whether the secret goes into the body, because nothing else is taken."""
    says_issuer: bool


class _NotSignedOn(Exception):
    """Nobody is signed on. The text is for the log; what came may be anybody's."""


class _Declined(_NotSignedOn):
    """The user, or the issuer in the user's place, does not want to."""


class SignOn:
    """Signs people on, for one issuer."""

    def __init__(
        self,
        settings: AuthSettings,
        client: SignOnSettings,
        *,
        public_url: str | None,
        cookies: SealedCookies,
        keys: IssuerKeys | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Prepare; the issuer is asked when somebody comes.

        Args:
            settings: the issuer, and the claims that say who somebody is.
            client: as whom we come to it.
            public_url: the base URL of the gateway; None: what it is called by, on this machine.
            cookies: what browsers keep for us.
            keys: the issuer's keys, if somebody has them already.
            now: the time of day.
        """
        self._settings, self._client = settings, client
        self._public = public_url
        self._cookies = cookies
        self._keys = keys or IssuerKeys(settings.issuer, settings.jwks)
        self._now = now
        self._metadata = IssuerMetadata(settings.issuer)
        self._used: dict[str, float] = {}
        """States that have been answered, and when they would have ended."""

    @property
    def issuer(self) -> str:
        """Who says who somebody is."""
        return self._settings.issuer

    def base(self, request: PageRequest) -> str:
        """The base URL that a browser knows us by."""
        return self._public or f"http://{request.host}"

    def who(self, request: PageRequest) -> SignedOn | None:
        """Who is in front of this browser; None: nobody that is known."""
        found = self._cookies.get(request, self.base(request), _SESSION, SignedOn)
        return found if found is not None and found.issuer == self._settings.issuer else None

    def may_change(self, request: PageRequest, who: SignedOn) -> bool:
        """Whether a form that came is one of ours, that this person was given."""
        return is_own_form(request, self.base(request), who)

    def end(self, request: PageRequest) -> tuple[str, str]:
        """The header that signs somebody off here."""
        return self._cookies.drop(self.base(request), _SESSION)

    # --- the way there and back ---------------------------------------------------------------

    async def begin(self, request: PageRequest, back: str) -> PageAnswer:
        """Send a browser to the issuer; signed on, it comes back to this path of ours, with its query."""
        if not (back.isascii() and back.isprintable()) or len(msgspec.json.encode(back)) > _LONGEST_BACK:
            # Anybody may have made it up.
            return say(400, "Nobody can sign on from here", "The address of the page is too long, or is none.")
        try:
            provider = read_provider(await self._metadata.read())
        except HttpTrouble as trouble:
            log.warning(f"nobody can sign on: the issuer {trouble.what}", issuer=self._settings.issuer)
            return say(502, "Nobody can sign on", "The issuer cannot be asked at present. The gateway's log says why.")
        state, nonce, verifier = (secrets.token_urlsafe(size) for size in (32, 32, 48))
        begun = _OpenSignOn(state, nonce, verifier, back)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(begun.verifier.encode()).digest()).rstrip(b"=").decode()
        base = self.base(request)
        fields = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": base + CALLBACK,
            "scope": " ".join(self._client.scopes),
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        endpoint = provider.authorization_endpoint
        link = f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(fields)}"
        return send_to(link, [self._cookies.put(base, _BEGUN, begun, _BEGUN_LASTS)])

    async def callback(self, request: PageRequest) -> PageAnswer:
        """The page that the issuer sends browsers back to."""
        base = self.base(request)
        forget = self._cookies.drop(base, _BEGUN)
        begun = self._cookies.get(request, base, _BEGUN, _OpenSignOn)
        if begun is None:
            log.warning("sign-on refused", why="it did not begin in this browser, or too long ago")
            return say(400, "You are not signed on", _AGAIN, [forget])
        try:
            provider = read_provider(await self._metadata.read())
            who = await self._signed_on(base, self._code(request, begun, provider), begun, provider)
        except _Declined as declined:
            log.info("sign-on declined", why=str(declined))
            title = "You are not signed on"
            body = f"<h1>{title}</h1><p>The sign-on was ended before it was done.</p>"
            return show(400, title, f"{body}<p><a href='{escape(base + begun.back)}'>Try again</a></p>", [forget])
        except _NotSignedOn as refused:
            log.warning("sign-on refused", why=str(refused))
            return say(400, "You are not signed on", _AGAIN, [forget])
        except HttpTrouble as trouble:
            log.warning(f"nobody can sign on: the issuer {trouble.what}", issuer=self._settings.issuer)
            return say(502, "You are not signed on", "The issuer did not confirm it. Begin again later.", [forget])
        log.info("signed on", user=who.user)
        return send_to(base + begun.back, [forget, self._cookies.put(base, _SESSION, who, LASTS)])

    def _code(self, request: PageRequest, begun: _OpenSignOn, provider: Provider) -> str:
        """The code in what came back, once. Raises _NotSignedOn."""
        said = read_fields(request.query)
        if said is None or not hmac.compare_digest(said.get("state", "").encode(), begun.state.encode()):
            raise _NotSignedOn("the answer belongs to another one")
        if not self._use(begun.state):
            raise _NotSignedOn("the answer has been used before")
        issuer = said.get("iss")
        if issuer is not None and issuer != self._settings.issuer:
            raise _NotSignedOn("the answer comes from another issuer")
        if issuer is None and provider.says_issuer:
            raise _NotSignedOn("the answer does not name the issuer, which always does")
        if "error" in said:
            kind = _Declined if said["error"] == "access_denied" else _NotSignedOn
            raise kind(f"the issuer says {printable(said['error'])[:80]}")
        if not said.get("code"):
            raise _NotSignedOn("there is no code in the answer")
        return said["code"]

    def _use(self, state: str) -> bool:
        """Use a state up. False if it is."""
        if state in self._used:
            return False
        now = self._now()
        # The first of them end first. Strangers can use up any number, and the issuer takes no code twice, either.
        while self._used and (len(self._used) >= _MOST_USED or next(iter(self._used.values())) < now):
            del self._used[next(iter(self._used))]
        self._used[state] = now + _BEGUN_LASTS
        return True

    async def _signed_on(self, base: str, code: str, begun: _OpenSignOn, provider: Provider) -> SignedOn:
        """Trade a code for who somebody is. Raises _NotSignedOn, HttpTrouble."""
        given = await trade_code(provider, self._client, code, base + CALLBACK, begun.verifier)
        token = given.get("id_token")
        if not isinstance(token, str):
            raise _NotSignedOn("the issuer gave no ID token")
        return self._read(await self._claims(token.encode()), begun)

    async def _claims(self, token: bytes) -> dict[str, Any]:
        try:
            said = signed_claims(token, self._keys)
        except UnknownKey:
            if self._keys.may_learn:
                await self._keys.learn()
            try:
                said = signed_claims(token, self._keys)
            except UnknownKey:
                raise _NotSignedOn("the ID token is signed with a key that the issuer does not have") from None
        if isinstance(said, Rejected):
            raise _NotSignedOn(said.why)
        return said

    def _read(self, claims: dict[str, Any], begun: _OpenSignOn) -> SignedOn:
        """Who an ID token says that somebody is (OpenID Connect Core, section 3.1.3.7). Raises _NotSignedOn."""
        client_id = self._client.client_id
        found = check_claims(claims, self._settings, self._now())
        if isinstance(found, Rejected):
            raise _NotSignedOn(found.why.replace("access token", "ID token"))
        if client_id not in found.audience or claims.get("azp", client_id) != client_id:
            raise _NotSignedOn("the ID token is for another client")
        nonce = claims.get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), begun.nonce.encode()):
            raise _NotSignedOn("the ID token belongs to another sign-on")
        identity = found.identity
        if not identity.subject:
            raise _NotSignedOn("the ID token names nobody")
        groups = _fitting(identity.groups)
        more = identity.more_groups or len(groups) < len(identity.groups)
        csrf = secrets.token_urlsafe(24)
        return SignedOn(identity.issuer, identity.subject, identity.user, groups, csrf, more)


async def trade_code(
    provider: Provider, client: SignOnSettings, code: str, redirect_uri: str, verifier: str
) -> dict[str, Any]:
    """What an issuer gives for a code, to muxway as its client. Raises HttpTrouble."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": verifier,
    }
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if client.client_secret is None or provider.in_body:
        form["client_id"] = client.client_id
    if client.client_secret is not None:
        if provider.in_body:
            form["client_secret"] = client.client_secret
        else:
            pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return await fetch_json(provider.token_endpoint, headers, urlencode(form).encode())


def is_own_form(request: PageRequest, base: str, who: SignedOn) -> bool:
    """Whether a form is of a page at this base URL, that was made for this person in this browser."""
    if request.origin is not None and request.origin != origin_of(base):
        return False
    return hmac.compare_digest(request.form.get("csrf", "").encode(), who.csrf.encode())


def csrf_field(who: SignedOn) -> str:
    """What every form of ours has in it, as HTML."""
    return f"<input type=hidden name=csrf value='{who.csrf}'>"


def _fitting(groups: tuple[str, ...]) -> tuple[str, ...]:
    """The first groups, as many as a cookie can hold."""
    kept: list[str] = []
    for group in groups:
        if sum(map(len, kept)) + 3 * len(kept) + len(group) > _MOST_GROUPS:
            log.warning("somebody is in more groups than can be kept", groups=len(groups), kept=len(kept))
            break
        kept.append(group)
    return tuple(kept)


def origin_of(base: str) -> str:
    """The origin of pages below a base URL, as browsers write it."""
    scheme, _, rest = base.partition("://")
    host = rest.partition("/")[0]
    usual = {"http": ":80", "https": ":443"}.get(scheme, "")
    return f"{scheme}://{host.removesuffix(usual) if usual else host}"


def read_provider(said: Mapping[str, Any]) -> Provider:
    """Where an issuer takes what, as its metadata says. Raises HttpTrouble."""

    def address(name: str) -> str:
        found = said.get(name)
        if not isinstance(found, str) or not is_secure(found):
            raise HttpTrouble(f"does not say where its {name} is, or at an address without TLS")
        return found

    methods = said.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    in_body = isinstance(methods, list) and "client_secret_basic" not in methods
    return Provider(
        address("authorization_endpoint"),
        address("token_endpoint"),
        in_body,
        said.get("authorization_response_iss_parameter_supported") is True,
    )
