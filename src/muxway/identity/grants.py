"""Ways to a token that need nobody at a browser: renewing one, and those of machines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from muxway.identity import oauth_client
from muxway.identity.discovery import OAuthError
from muxway.identity.oauth_client import JWT_BEARER, TOKEN_EXCHANGE, joined
from muxway.identity.store import Login, Registration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.config.oauth import OAuthConfig
    from muxway.identity.discovery import Discovered
    from muxway.identity.store import LoginKey, Token
    from muxway.net.guarded_fetch import GuardedFetch

_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - a name
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a name
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


async def renew(fetch: GuardedFetch, login: Login, oauth: OAuthConfig) -> Login:
    """A login with a new token. If the old refresh token stays good, it is kept.

    Raises:
        TokenRefused, Unavailable, OAuthError: as `oauth_client.ask_token`.
    """
    # The scopes are said, though they are the same: some authorization servers give others if they are not.
    token = await oauth_client.ask_token(
        fetch,
        login.server,
        login.registration,
        {
            "grant_type": "refresh_token",
            "refresh_token": login.token.refresh,
            "resource": login.resource,
            "scope": joined(login.token.scopes or login.asked),
        },
        oauth=oauth,
    )
    return msgspec.structs.replace(login, token=_keeping(token, login.token))


def _keeping(token: Token, before: Token) -> Token:
    return msgspec.structs.replace(
        token, refresh=token.refresh or before.refresh, scopes=before.scopes if token.scopes is None else token.scopes
    )


async def obtain(
    fetch: GuardedFetch, key: LoginKey, found: Discovered, oauth: OAuthConfig, scopes: Sequence[str]
) -> Login:
    """A token that needs no person, as the configuration says. Raises as `ask_token` does."""
    server = found.server
    registration = (
        oauth_client.written(server, oauth) if oauth.client_id else Registration(kind="written", client_id="")
    )
    resource = found.resource if oauth.resource is None else oauth.resource or None
    form: dict[str, str | None] = {"resource": resource, "scope": joined(scopes)}
    match oauth.grant:
        case "client_credentials":
            form |= {"grant_type": "client_credentials"}
        case "token_exchange":
            form |= {
                "grant_type": TOKEN_EXCHANGE,
                "subject_token": oauth.subject_token,
                "subject_token_type": _ACCESS_TOKEN,
                "requested_token_type": _ACCESS_TOKEN,
            }
        case "id_jag":
            form |= {"grant_type": JWT_BEARER, "assertion": await _vouched(fetch, found, oauth, resource, scopes)}
        case "jwt_bearer":
            form |= {"grant_type": JWT_BEARER, "assertion": oauth.subject_token}
        case _:
            raise OAuthError("it needs a person to log in")
    token = await oauth_client.ask_token(fetch, server, registration, form, oauth=oauth)
    return Login(
        key=key,
        grant=oauth.grant,
        server=server,
        registration=msgspec.structs.replace(registration, client_secret=None),
        # What a machine gets it can get again: nothing else is worth keeping.
        token=msgspec.structs.replace(token, refresh=None),
        resource=resource,
        asked=tuple(scopes),
        made_at=time.time(),
    )


async def _vouched(
    fetch: GuardedFetch, found: Discovered, oauth: OAuthConfig, resource: str | None, scopes: Sequence[str]
) -> str:
    """The identity provider's word for the user, made for this authorization server (ID-JAG)."""
    idp = oauth.idp
    if idp is None:
        raise OAuthError("its `oauth` has no `idp`")
    client = Registration(
        kind="written",
        client_id=idp.client_id or oauth.client_id or "",
        client_secret=idp.client_secret,
        method="client_secret_post" if idp.client_secret else "none",
    )
    given = await oauth_client.ask(
        fetch,
        idp.token_endpoint,
        idp.token_endpoint,
        client,
        {
            "grant_type": TOKEN_EXCHANGE,
            "requested_token_type": _ID_JAG,
            "audience": found.server.issuer,
            "resource": resource,
            "scope": joined(scopes),
            "subject_token": oauth.subject_token,
            "subject_token_type": _ID_TOKEN,
        },
    )
    word = given.get("access_token")
    if not isinstance(word, str) or given.get("issued_token_type") != _ID_JAG:
        raise OAuthError("the identity provider gave something else than its word for the user (ID-JAG)")
    return word
