"""How a server's logins are, and the issuer of the gateway: for `muxway check --connect`.

Asks for metadata and keys. Credentials are sent to the issuer of the gateway alone, to see whether it knows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from muxway.errors import Problem
from muxway.identity.credentials import fetch_for, login_key, takes_login
from muxway.identity.discovery import NoLogin, OAuthError, discover
from muxway.identity.issuer import fetch_metadata
from muxway.identity.login import choose_scopes
from muxway.identity.sign_in import probe
from muxway.net.http_errors import HttpTrouble

if TYPE_CHECKING:
    from muxway.config.auth import AuthSettings, Introspection, SignOnSettings
    from muxway.config.model import ServerConfig
    from muxway.identity.discovery import Discovered
    from muxway.identity.sign_on import Provider
    from muxway.identity.store import TokenStore


_MADE_UP: Final = "made-up-by-muxway-check-to-see-whether-its-credentials-are-known"
"""A code, a verifier (RFC 7636 §4.1: 43 characters at least) and a token that nobody has given."""


async def inspect(config: ServerConfig, store: TokenStore, *, locked_out: bool) -> dict[str, Any] | None:
    """What is worth knowing of a server's logins; None if it has none. Raises StoreError.

    Args:
        config: the server.
        store: where logins are kept.
        locked_out: whether it did not let us in.
    """
    if not takes_login(config):
        return None
    login = store.read(login_key(config))
    if login is None and not locked_out:
        return None
    facts: dict[str, Any] = {
        "loggedIn": login is not None,
        "authorizationServer": None if login is None else login.server.issuer,
        "registration": None if login is None else login.registration.kind,
        "scopes": None if login is None else list(login.token.scopes or login.asked),
        "expiresAt": None if login is None else login.token.expires_at,
        "renewable": login is not None and (bool(login.token.refresh) or not config.oauth.interactive),
    }
    problems: list[str] = []
    if config.oauth.issuer is not None:
        problems.append(f"its issuer is compared with the one written as `oauth.issuer`, {config.oauth.issuer}")
    try:
        async with fetch_for(config) as fetch:
            _, challenge = await probe(fetch, config)
            found = await discover(fetch, config.url or "", challenge, pin=config.oauth.issuer)
    except NoLogin as error:
        return facts if login is not None else {**facts, "problems": [str(error)]}
    except OAuthError as error:
        return {**facts, "problems": [*problems, str(error)]}
    if login is None:
        facts["authorizationServer"] = found.server.issuer
        facts["registration"] = _way_to_id(config, found)
        facts["scopes"] = list(choose_scopes(found, challenge, config.oauth))
    elif login.server.issuer != found.server.issuer:
        problems.append(f"it names another authorization server now, {found.server.issuer}: log in again")
    return {**facts, "problems": [*problems, *_breaches(found)]}


def _way_to_id(config: ServerConfig, found: Discovered) -> str:
    if config.oauth.client_id is not None:
        return "written"
    if config.oauth.client_metadata_url is not None and found.server.client_id_metadata:
        return "metadata document"
    return "registered" if found.server.registration_endpoint is not None else "none: write `oauth.clientId`"


def _breaches(found: Discovered) -> list[str]:
    """What the server and its authorization server do otherwise than MCP says."""
    server = found.server
    said: list[str] = []
    if server.legacy:
        said.append("it has no protected resource metadata (RFC 9728), as servers of 2025-03-26 had none")
    if server.authorization_endpoint is None and server.device_authorization_endpoint is None:
        said.append("its authorization server does not say that it knows PKCE (S256)")
    if found.scopes is not None and "offline_access" in found.scopes:
        said.append("its metadata lists offline_access among the scopes, which is for the authorization server to do")
    return said


class Inspected(NamedTuple):
    """How the issuer of the gateway is."""

    problems: list[Problem]
    """Why nobody would be let in, or could sign on."""
    doubts: list[Problem]
    good: list[str]
    """What was found to be as it should."""


async def inspect_issuer(auth: AuthSettings) -> Inspected:
    """Whether the issuer is there, is the one that is written, and has what tokens and sign-ons are judged by."""
    # Only for those who have one: the libraries take their part of a start.
    from muxway.identity.jwks import from_issuer, usable
    from muxway.identity.sign_on import read_provider

    at = "gateway.auth.issuer"
    problems, doubts, good = found = Inspected([], [], [])
    # What introspection judges needs no keys, unless people sign on.
    wants_keys = auth.introspection is None or auth.jwks is not None or auth.sign_on is not None
    try:
        said = await fetch_metadata(auth.issuer)
        good.append("metadata")
        if auth.sign_on is not None:
            provider = read_provider(said)
            await _try_sign_on(found, provider, auth.sign_on)
    except HttpTrouble as trouble:
        if auth.sign_on is not None or (wants_keys and auth.jwks is None):
            problems.append(Problem(path=at, message=f"the issuer {trouble.what}"))
        else:
            why = (
                f"the issuer {trouble.what}. Tokens are judged without that, but clients cannot find out how to log in"
            )
            doubts.append(Problem(path=at, message=why))
    if wants_keys and (auth.jwks is not None or not problems):
        try:
            keys = usable(await from_issuer(auth.issuer, auth.jwks))
            count = sum(map(len, keys.values()))
            good.append(f"{count} key{'' if count == 1 else 's'}")
        except HttpTrouble as trouble:
            where = at if auth.jwks is None else "gateway.auth.jwks"
            problems.append(Problem(path=where, message=f"the issuer {trouble.what}"))
    if auth.introspection is not None:
        await _try_introspection(found, auth.introspection)
    return found


async def _try_sign_on(found: Inspected, provider: Provider, client: SignOnSettings) -> None:
    """See whether muxway is known as a client, by a code that nobody has given: only who it comes from is judged."""
    from muxway.identity.sign_on import CALLBACK, trade_code

    try:
        await trade_code(provider, client, _MADE_UP, f"http://127.0.0.1{CALLBACK}", _MADE_UP)
    except HttpTrouble as trouble:
        if trouble.reason != "login_needed":
            # It does not know the code, as it should; who says so with which status is left to it (RFC 6749 §5.2).
            return
        found.problems.append(Problem(path="gateway.auth.signOn", message=f"the issuer {trouble.what}"))


async def _try_introspection(found: Inspected, where: Introspection) -> None:
    """See whether the issuer answers muxway, by a token that nobody has given."""
    from muxway.identity.verify_opaque import ask

    at = "gateway.auth.introspection"
    try:
        said = await ask(where, _MADE_UP)
    except HttpTrouble as trouble:
        found.problems.append(Problem(path=at, message=f"the issuer {trouble.what}"))
        return
    if said.get("active") is not False:
        why = "the answer about a made-up token is not that it is inactive (RFC 7662 §2.2): is the URL right?"
        found.problems.append(Problem(path=at, message=why))
        return
    found.good.append("introspection")
