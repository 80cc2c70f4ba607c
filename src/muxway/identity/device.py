"""Logging in on another device: a short code, typed in anywhere (RFC 8628)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from muxway.identity import oauth_client
from muxway.identity.discovery import OAuthError
from muxway.identity.login import safe_link
from muxway.identity.oauth_client import DEVICE_GRANT, TokenRefused, Unavailable, joined
from muxway.log import printable

if TYPE_CHECKING:
    from muxway.identity.login import PendingLogin
    from muxway.identity.store import Login
    from muxway.net.guarded_fetch import GuardedFetch

_INTERVAL: Final = 5.0
_SLOWER: Final = 5.0
_LONGEST: Final = 1800.0


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What the user has to do."""

    device_code: str
    user_code: str
    link: str
    """Where the code is typed in."""
    complete: str | None
    """The same with the code in it."""
    interval: float
    expires_in: float


async def ask_code(fetch: GuardedFetch, pending: PendingLogin) -> DeviceCode:
    """Ask for a code. Raises OAuthError."""
    server = pending.found.server
    if server.device_authorization_endpoint is None:
        raise OAuthError(f"its authorization server {server.issuer} has no device login; try `--no-browser`")
    given = await oauth_client.ask(
        fetch,
        server.device_authorization_endpoint,
        server.issuer,
        pending.registration,
        {"client_id": pending.registration.client_id, "scope": joined(pending.scopes), "resource": pending.resource},
        oauth=pending.oauth,
    )
    code, user_code, link = (given.get(name) for name in ("device_code", "user_code", "verification_uri"))
    if not (isinstance(code, str) and isinstance(user_code, str) and isinstance(link, str)):
        raise OAuthError("its authorization server gave no code to type in")
    complete = given.get("verification_uri_complete")
    interval, expires = (oauth_client.seconds(given.get(name)) for name in ("interval", "expires_in"))
    return DeviceCode(
        code,
        printable(user_code)[:40],
        safe_link(link),
        safe_link(complete) if isinstance(complete, str) else None,
        min(max(_INTERVAL if interval is None else interval, 1.0), 60.0),
        _LONGEST if expires is None else min(expires, _LONGEST),
    )


async def wait(fetch: GuardedFetch, pending: PendingLogin, code: DeviceCode) -> Login:
    """Ask again and again until the user has typed it in. Raises OAuthError."""
    loop = asyncio.get_running_loop()
    until, interval = loop.time() + code.expires_in, code.interval
    while loop.time() < until:
        await asyncio.sleep(interval)
        try:
            token = await oauth_client.ask_token(
                fetch,
                pending.found.server,
                pending.registration,
                {"grant_type": DEVICE_GRANT, "device_code": code.device_code, "resource": pending.resource},
                oauth=pending.oauth,
            )
        except TokenRefused as refused:
            if refused.code == "slow_down":
                interval += _SLOWER
            elif refused.code != "authorization_pending":
                raise
        except Unavailable:
            interval *= 2
        else:
            return pending.login(token)
    raise OAuthError("nobody has typed in the code in time")
