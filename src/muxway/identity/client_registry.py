"""The programs that may ask our own authorization server for tokens: they register themselves, or name a document.

All of them are public clients: whoever says a client id is believed, so nothing rests on it but where the browser is
sent back to. A registration that nobody has agreed to is kept in memory, for a while; anybody can make one.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import msgspec

from muxway.clients.transports.guesses import network_of
from muxway.errors import MuxwayError
from muxway.log import EventLog, printable
from muxway.net.guarded_fetch import FetchError, GuardedFetch
from muxway.net.sealed_files import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from muxway.net.guarded_fetch import FetchAnswer
    from muxway.net.sealed_files import SealedFolder

_MOST_WAITING: Final = 1000
"""Registrations that nobody has agreed to; the oldest makes room."""
_WAITING_FOR: Final = 3600.0
_MOST_KEPT: Final = 5000
"""Those that somebody has agreed to."""
_UNUSED_FOR: Final = 90 * 24 * 3600.0
"""Seconds after which one that got no token is forgotten."""
_USED_EVERY: Final = 24 * 3600.0
"""Seconds for which it is not written down again that a client is used."""
_EACH_MINUTE: Final = 20
"""Registrations from one address."""
_ALL_MINUTE: Final = 120
_LARGEST: Final = 16 * 1024
"""Bytes of a registration, or of a document."""
_MOST_URIS: Final = 10
_LONGEST_URI: Final = 500
_LONGEST_NAME: Final = 80
_DOCUMENTS: Final = 200
_DOCUMENT_FOR: Final = 600.0
_LOOPBACK: Final = frozenset(("127.0.0.1", "::1", "localhost"))
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{1,60}").fullmatch
_NEVER: Final = frozenset(
    ("http", "javascript", "data", "vbscript", "file", "blob", "about", "view-source", "ftp", "ws", "wss", "mailto")
)
"""Schemes that are no program's own: what a browser would do with a code there nobody has agreed to."""


log = EventLog("auth")


class ClientError(MuxwayError):
    """A client, or what it wants to be known by, cannot be used. `code` is that of RFC 7591 or RFC 6749."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class OAuthClient(msgspec.Struct, frozen=True, kw_only=True):
    """A program that may ask for tokens."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    made_at: float = 0.0
    used_at: float = 0.0

    @property
    def is_document(self) -> bool:
        """Whether its id is the URL of a document, which everybody knows; else it is known to itself."""
        return self.id.startswith("https:")

    def allows(self, uri: str) -> bool:
        """Whether the browser may be sent there: exactly what was registered, but for a port of this machine."""
        return uri in self.redirect_uris or any(
            _without_port(uri) == known for one in self.redirect_uris if (known := _without_port(one)) is not None
        )


def _without_port(uri: str) -> tuple[str, str, str] | None:
    """What counts of an address of the user's own machine (RFC 8252 §7.3); None for any other."""
    parts = _parts(uri)
    if parts is None or parts.scheme != "http" or parts.hostname not in _LOOPBACK:
        return None
    return parts.hostname, parts.path, parts.query


def _has_dot_segment(path: str) -> bool:
    return not {".", ".."}.isdisjoint(path.lower().replace("%2e", ".").split("/"))


def is_loopback_uri(uri: str) -> bool:
    """Whether a browser that is sent there stays on its own machine."""
    return _without_port(uri) is not None


def _parts(uri: str) -> Any:
    if len(uri) > _LONGEST_URI or any(not 0x21 <= ord(char) <= 0x7E or char in "\"'<>\\`{}|^" for char in uri):
        return None
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    return None if "@" in parts.netloc or "#" in uri else parts


def is_redirect_uri(uri: str) -> bool:
    """Whether it may be one: https, the user's own machine, or a scheme of the program's own (RFC 8252 §7)."""
    parts = _parts(uri)
    if parts is None:
        return False
    if parts.scheme == "https":
        return bool(parts.hostname)
    if parts.scheme == "http":
        return parts.hostname in _LOOPBACK
    return _SCHEME(parts.scheme) is not None and parts.scheme not in _NEVER


def read_client(said: object, client_id: str, now: float) -> OAuthClient:
    """A client as it describes itself (RFC 7591 §2). Raises ClientError."""
    if not isinstance(said, dict):
        raise ClientError("invalid_client_metadata", "this is no JSON object")
    told = cast("dict[str, Any]", said)
    uris: object = told.get("redirect_uris")
    listed = cast("list[Any]", uris) if isinstance(uris, list) else []
    if not listed or len(listed) > _MOST_URIS:
        raise ClientError("invalid_redirect_uri", f"redirect_uris must be a list of 1 to {_MOST_URIS}")
    if not all(isinstance(uri, str) and is_redirect_uri(uri) for uri in listed):
        why = "each of redirect_uris must be https, http on the user's own machine, or of a scheme of the program's own"
        raise ClientError("invalid_redirect_uri", why)
    grants = told.get("grant_types", ["authorization_code"])
    if not isinstance(grants, list) or "authorization_code" not in grants:
        raise ClientError("invalid_client_metadata", "grant_types must have authorization_code")
    if told.get("response_types", ["code"]) != ["code"]:
        raise ClientError("invalid_client_metadata", 'response_types must be ["code"]')
    name = told.get("client_name")
    shown = " ".join(printable(name).split())[:_LONGEST_NAME] if isinstance(name, str) else ""
    return OAuthClient(id=client_id, name=shown, redirect_uris=tuple(dict.fromkeys(listed)), made_at=now)


async def fetch_document(url: str) -> FetchAnswer:
    """A client's document, from the open internet only. Raises FetchError."""
    async with GuardedFetch(()) as fetch:
        return await fetch.get(url)


class OAuthClients:
    """All clients of one authorization server."""

    def __init__(
        self,
        files: SealedFolder,
        *,
        fetch: Callable[[str], Awaitable[FetchAnswer]] = fetch_document,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._files, self._fetch, self._now = files, fetch, now
        self._waiting: OrderedDict[str, OAuthClient] = OrderedDict()
        self._documents: OrderedDict[str, tuple[OAuthClient, float]] = OrderedDict()
        self._minute = 0
        self._registered: dict[str, int] = {}
        """How many registrations came in this minute, by address; all of them under the empty one."""

    # --- registration -------------------------------------------------------------------------

    def register(self, body: bytes, address: str) -> OAuthClient:
        """Make a client known (RFC 7591). Raises ClientError."""
        self._count(address)
        if len(body) > _LARGEST:
            raise ClientError("invalid_client_metadata", f"this has more than {_LARGEST} bytes")
        try:
            said = msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise ClientError("invalid_client_metadata", "this is no JSON") from None
        now = self._now()
        made = read_client(said, f"mxc_{secrets.token_urlsafe(24)}", now)
        while self._waiting and (
            len(self._waiting) >= _MOST_WAITING or next(iter(self._waiting.values())).made_at + _WAITING_FOR < now
        ):
            self._waiting.popitem(last=False)
        self._waiting[made.id] = made
        return made

    def _count(self, address: str) -> None:
        minute = int(self._now() // 60)
        if minute != self._minute:
            self._minute, self._registered = minute, {}
        address = network_of(address)
        for whose, most in ((address, _EACH_MINUTE), ("", _ALL_MINUTE)):
            if self._registered.get(whose, 0) >= most:
                raise ClientError("slow_down", "too many clients register themselves at present: try again in a minute")
        for whose in (address, ""):
            self._registered[whose] = self._registered.get(whose, 0) + 1

    # --- who somebody says that they are ------------------------------------------------------

    def find(self, client_id: str) -> OAuthClient | None:
        """A client that registered itself. Raises StoreError."""
        waiting = self._waiting.get(client_id)
        if waiting is not None:
            return waiting if waiting.made_at + _WAITING_FOR > self._now() else None
        content = self._files.read(_file(client_id))
        try:
            return None if content is None else msgspec.json.decode(content, type=OAuthClient)
        except msgspec.MsgspecError:
            return None

    async def look_up(self, client_id: str) -> OAuthClient:
        """A client by its id, which may be the URL of its document (CIMD). Raises ClientError, StoreError."""
        if not client_id.startswith("https:"):
            found = self.find(client_id)
            if found is None:
                raise ClientError("invalid_client", "No program of this id has registered itself, or not lately.")
            return found
        known = self._documents.get(client_id)
        if known is not None and known[1] > self._now():
            return known[0]
        client = await self._read_document(client_id)
        self._documents[client_id] = client, self._now() + _DOCUMENT_FOR
        self._documents.move_to_end(client_id)
        if len(self._documents) > _DOCUMENTS:
            self._documents.popitem(last=False)
        return client

    async def _read_document(self, url: str) -> OAuthClient:
        parts = _parts(url)
        if parts is None or not parts.hostname or parts.path in ("", "/") or _has_dot_segment(parts.path):
            raise ClientError("invalid_client", "The id of the program is no address of a document.")
        try:
            answer = await self._fetch(url)
        except FetchError as error:
            # What is inside, and where, is nobody's business who names addresses.
            log.info("no document of a client", why=str(error))
            raise ClientError("invalid_client", "The document of the program cannot be had.") from None
        if answer.status != 200 or answer.url != url or len(answer.body) > _LARGEST:
            why = "The document of the program is elsewhere, too large, or not there."
            raise ClientError("invalid_client", why)
        try:
            said = msgspec.json.decode(answer.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            said = None
        if not isinstance(said, dict) or cast("dict[str, Any]", said).get("client_id") != url:
            raise ClientError("invalid_client", "The document of the program is that of another one.")
        if cast("dict[str, Any]", said).get("token_endpoint_auth_method", "none") != "none":
            raise ClientError(
                "invalid_client", "The program wants to prove who it is, in a way that is not known here."
            )
        try:
            return read_client(cast("object", said), url, self._now())
        except ClientError as error:
            raise ClientError("invalid_client", f"The document of the program cannot be used: {error}.") from None

    # --- what is kept -------------------------------------------------------------------------

    def keep(self, client: OAuthClient) -> None:
        """Somebody has agreed to it: remember a client that registered itself. Raises StoreError, ClientError."""
        if client.is_document:
            return
        name = _file(client.id)
        if client.id in self._waiting and len([one for one in self._files.names() if one.startswith("client-")]) >= (
            _MOST_KEPT
        ):
            raise ClientError("invalid_client", "Too many programs are known here already.")
        self._files.write(name, msgspec.json.encode(msgspec.structs.replace(client, used_at=self._now())))
        self._waiting.pop(client.id, None)

    def use(self, client: OAuthClient) -> None:
        """A user logs in with it: it is not forgotten for a while. Raises StoreError."""
        if client.used_at + _USED_EVERY < self._now():
            self.keep(client)

    def sweep(self) -> None:
        """Forget those that nobody uses. Raises StoreError."""
        for name in self._files.names():
            if not name.startswith("client-"):
                continue
            try:
                client = msgspec.json.decode(self._files.read(name) or b"", type=OAuthClient)
            except (StoreError, msgspec.MsgspecError) as error:
                log.warning("what is kept of a client cannot be read", file=name, why=str(error))
                continue
            if client.used_at + _UNUSED_FOR < self._now():
                self._files.remove(name)


def _file(client_id: str) -> str:
    return f"client-{hashlib.blake2b(client_id.encode(), digest_size=16).hexdigest()}"
