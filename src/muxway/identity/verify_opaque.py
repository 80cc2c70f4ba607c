"""Access tokens that only their issuer can read: it is asked (RFC 7662)."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, urlencode

from muxway.clients.authenticator import Rejected
from muxway.identity.issuer import fetch_json
from muxway.identity.verify_jwt import check_claims, invalid
from muxway.log import EventLog
from muxway.net.http_errors import HttpTrouble

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from muxway.config.auth import AuthSettings, Introspection
    from muxway.identity.verify_jwt import Checked

_AT_ONCE: Final = 32
"""Questions under way. Whoever makes up tokens must not make us a burden to the issuer."""
_UNLIMITED: Final = 3600.0

log = EventLog("auth")


async def ask(where: Introspection, token: str) -> dict[str, Any]:
    """What the issuer says of a token. Raises HttpTrouble."""
    # RFC 6749 §2.3.1: each is form-encoded first.
    shown = b64encode(f"{quote_plus(where.client_id)}:{quote_plus(where.client_secret)}".encode()).decode()
    headers = {"Authorization": f"Basic {shown}", "Content-Type": "application/x-www-form-urlencoded"}
    body = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
    return await fetch_json(where.url, headers, body)


class OpaqueTokens:
    """Asks about tokens."""

    def __init__(
        self,
        settings: AuthSettings,
        where: Introspection,
        *,
        asking: Callable[[Introspection, str], Awaitable[dict[str, Any]]] = ask,
    ) -> None:
        self._settings, self._where, self._ask = settings, where, asking
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def check(self, token: bytes, now: float) -> Checked | Rejected:
        """Ask about one."""
        if self._turn.locked():
            return Rejected(503, "", "too many access tokens are being asked about: try again soon")
        async with self._turn:
            try:
                said = await self._ask(self._where, token.decode("latin-1"))
            except HttpTrouble as trouble:
                log.warning(f"no introspection: the issuer {trouble.what}", issuer=self._settings.issuer)
                return Rejected(503, "", "the issuer of the access token cannot be asked at present: try again soon")
        if said.get("active") is not True:
            return invalid("the access token is not valid, or not any more")
        # Both may be left out here, unlike in a JWT: the issuer itself is speaking, of this moment.
        return check_claims({"iss": self._settings.issuer, "exp": now + _UNLIMITED, **said}, self._settings, now)
