"""What a browser keeps for us: sealed, for this gateway alone, until a moment that is sealed in with it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
import time
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.clients.pages import PageRequest

_NONCE: Final = 12
_LARGEST: Final = 4000
"""Characters that every browser keeps."""
T = TypeVar("T", bound=msgspec.Struct)


class SealedCookies:
    """Cookies under one key. One of another gateway, or of another kind, cannot be opened."""

    def __init__(self, key: str | None = None, *, now: Callable[[], float] = time.time) -> None:
        """With the same key, several gateways behind one name open each other's; without one, a key is made."""
        self._key = secrets.token_bytes(32) if key is None else hashlib.sha256(b"cookies\0" + key.encode()).digest()
        self._now = now

    def put(self, base: str, name: str, content: msgspec.Struct, seconds: float) -> tuple[str, str]:
        """The header that has a browser keep this, for the gateway at this base URL."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(_NONCE)
        text = msgspec.json.encode([self._now() + seconds, content])
        sealed = nonce + AESGCM(self._key).encrypt(nonce, text, _bound(base, name))
        value = base64.urlsafe_b64encode(sealed).decode().rstrip("=")
        if len(value) > _LARGEST:
            raise ValueError("a browser would not keep a cookie of this size")
        return "set-cookie", f"{_name(base, name)}={value}; Max-Age={seconds:.0f}{_terms(base)}"

    def drop(self, base: str, name: str) -> tuple[str, str]:
        """The header that has a browser forget it."""
        return "set-cookie", f"{_name(base, name)}=; Max-Age=0{_terms(base)}"

    def get(self, request: PageRequest, base: str, name: str, kind: type[T]) -> T | None:
        """What a browser has kept; None if it is not ours, or not good any more."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        value = request.cookies.get(_name(base, name), "")
        if not value or len(value) > _LARGEST:
            return None
        try:
            sealed = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)
            text = AESGCM(self._key).decrypt(sealed[:_NONCE], sealed[_NONCE:], _bound(base, name))
            until, content = msgspec.json.decode(text, type=tuple[float, kind])
        except (InvalidTag, ValueError, binascii.Error, msgspec.MsgspecError):
            return None
        return content if until > self._now() else None


def _bound(base: str, name: str) -> bytes:
    return f"{base}\0{name}".encode()


def _name(base: str, name: str) -> str:
    # With this prefix a browser takes it from this very host only, and not from a neighbour below the same domain.
    return f"__Host-muxway-{name}" if base.startswith("https:") else f"muxway-{name}"


def _terms(base: str) -> str:
    return f"; Path=/; HttpOnly; SameSite=Lax{'; Secure' if base.startswith('https:') else ''}"
