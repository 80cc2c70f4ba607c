"""What the issuer of access tokens says over HTTP: its metadata and keys, and whether an opaque token is good.

Redirects are not followed, answers are small and soon, and what a document says about itself must be what it was
asked for: whoever can answer in the issuer's place lets anybody in.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from muxway.config.auth import is_secure
from muxway.errors import ParseError, SpawnError
from muxway.log import printable
from muxway.net.http_errors import HttpTrouble
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LARGEST: Final = 256 * 1024
_PATIENCE: Final = 5.0
_KEPT: Final = 600.0
AT_ROOT: Final = "/.well-known/oauth-authorization-server"


async def fetch_json(url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> dict[str, Any]:
    """The JSON object at a URL. Raises HttpTrouble, in words that continue `the issuer …`."""
    from muxway.net.http_client import HttpClient

    try:
        client = HttpClient(url, {"Accept": "application/json"})
    except SpawnError as error:
        raise HttpTrouble(f"has a URL that cannot be used: {error}") from None
    try:
        async with asyncio.timeout(_PATIENCE):
            method = "GET" if body is None else "POST"
            async with await client.request(method, url, headers or {}, body, redirects=False) as response:
                if response.status == 401 and body is not None:
                    # RFC 6749 §5.2, RFC 7662 §2.3: what is posted there comes from muxway as a client.
                    raise HttpTrouble(
                        "does not take muxway's `clientId` and `clientSecret` (status 401)", "login_needed"
                    )
                if response.status != 200:
                    raise HttpTrouble(f"answered with status {response.status}")
                found = envelopes.value(await response.read(_LARGEST))
    except TimeoutError:
        raise HttpTrouble(f"did not answer within {_PATIENCE:g} s", "timeout") from None
    except ParseError:
        raise HttpTrouble("answered with something that is no JSON", "malformed") from None
    finally:
        await client.close()
    if not isinstance(found, dict):
        raise HttpTrouble("answered with JSON that is no object", "malformed")
    return found  # pyright: ignore[reportUnknownVariableType] - of JSON


def metadata_urls(issuer: str) -> list[str]:
    """Where an issuer may have its metadata (RFC 8414 §3.1, OpenID Connect Discovery, section 4)."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    oauth, openid = ("oauth-authorization-server", "openid-configuration")
    urls = [f"{origin}/.well-known/{oauth}{path}", f"{origin}/.well-known/{openid}{path}"]
    return [*urls, f"{origin}{path}/.well-known/{openid}"] if path else urls


async def fetch_metadata(issuer: str) -> dict[str, Any]:
    """What the issuer says of itself, if it is about itself. Raises HttpTrouble."""
    trouble = HttpTrouble("has no metadata")
    for url in metadata_urls(issuer):
        try:
            found = await fetch_json(url)
        except HttpTrouble as error:
            if error.broken or error.reason == "timeout":
                # Nobody is there: another path of the same host fares no better.
                raise
            trouble = HttpTrouble(f"has no metadata: it {error.what} at {url}", error.reason)
            continue
        if found.get("issuer") != issuer:
            # Compared as it is written (RFC 8414 §3.3).
            named = printable(str(found.get("issuer")))[:200]
            raise HttpTrouble(f"has metadata of another issuer, {named}: write `issuer` exactly as its metadata does")
        return found
    raise trouble


class IssuerMetadata:
    """What an issuer says of itself, asked once for all who want to know, and not again for a while if it failed.

    What is known goes on counting while the issuer is away.
    """

    def __init__(self, issuer: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer, self._clock = issuer, clock
        self._said: dict[str, Any] | None = None
        self._text: bytes | None = None
        self._trouble = HttpTrouble("has no metadata")
        self._again = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def read(self) -> dict[str, Any]:
        """What it says. Raises HttpTrouble."""
        if (asking := self._ask()) is not None:
            # Shielded: the others who wait for it must not lose it if this one is not wanted any more.
            await asyncio.shield(asking)
        if self._said is None:
            raise HttpTrouble(self._trouble.what, self._trouble.reason)
        return self._said

    def document(self) -> bytes | asyncio.Task[None] | None:
        """The same as text; None if it cannot be had at present; what to wait for if it is not known.

        For clients of 2025-03-26: they look for it at our own root, and nowhere else.
        """
        return self._ask() or self._text

    def _ask(self) -> asyncio.Task[None] | None:
        """What finds out; None if that is not due."""
        if self._asking is None and self._clock() >= self._again:
            self._asking = asyncio.get_running_loop().create_task(self._find_out())
        return self._asking

    async def _find_out(self) -> None:
        try:
            self._said, seconds = await fetch_metadata(self._issuer), _KEPT
            self._text = envelopes.encode(self._said)
        except HttpTrouble as trouble:
            self._trouble, seconds = trouble, _PATIENCE
        finally:
            self._asking = None
        self._again = self._clock() + seconds


async def fetch_keys(url: str) -> list[Any]:
    """The keys at a URL. Raises HttpTrouble."""
    if not is_secure(url):
        raise HttpTrouble("has its keys at a URL without TLS")
    keys = (await fetch_json(url)).get("keys")
    if not isinstance(keys, list):
        raise HttpTrouble("has no key set where its keys should be", "malformed")
    return keys  # pyright: ignore[reportUnknownVariableType] - of JSON
