"""What the gateway asks a stateless caller to keep for it: sealed, so that nobody can read, forge or move it.

The seal is AES-256-GCM from the `cryptography` library. What is inside says which call of whose it belongs to and
until when, and is compared with the call it comes back with.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import secrets
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec

from muxway.calls.ports import LOOP_CLOCK, log
from muxway.errors import InvalidParams, ParseError
from muxway.routing.target import Trace
from muxway.wire import envelopes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from msgspec import Raw

    from muxway.calls.call import Call, Caller
    from muxway.calls.ports import Clock

LIFETIME: Final = 600.0
"""Seconds a caller has for its answers."""
_VERSION: Final = "mw1."
_NONCE: Final = 12
_LARGEST: Final = 16 * 1024
_MOST_FOLDED: Final = 64 * 1024
"""Bytes of a value that is compared by what it means, at some 100 ns each. Of a larger one each byte counts."""
INVALID: Final = "Invalid or expired requestState: make the call again without it"


class Claims(msgspec.Struct, frozen=True, array_like=True):
    """What a sealed state says."""

    kind: Literal["park", "wrap", "url", "task"]
    expires: float
    principal: bytes
    call: bytes
    """A digest of the call it belongs to; of a task, the name of its tool."""
    upstream: str
    head: bytes
    """The start of the call, as it goes to the server."""
    round: int
    state: str | None
    """What the kind needs: the parked call's name, or the server's own state."""
    answers: bytes = b""
    """Answers that a middleware gave to some of the questions, as a JSON object; empty if there are none."""


class StateTooLarge(Exception):
    """The server's own state leaves no room for ours."""


class Seal:
    """Seals and opens with one key."""

    def __init__(self, key: str | None = None, clock: Clock = LOOP_CLOCK) -> None:
        self._clock = clock
        # A configured text may have any length and little randomness per byte; a key has neither.
        self._key = hashlib.sha256(key.encode()).digest() if key is not None else secrets.token_bytes(32)
        self._cipher: AESGCM | None = None

    def close(self, claims: Claims) -> str:
        """The sealed text. Raises StateTooLarge."""
        if len(claims.state or "") > _LARGEST:
            raise StateTooLarge
        nonce = secrets.token_bytes(_NONCE)
        sealed = nonce + self._aead().encrypt(nonce, msgspec.msgpack.encode(claims), _VERSION.encode())
        text = _VERSION + _spelled(sealed)
        if len(text) > _LARGEST:
            raise StateTooLarge
        return text

    def open(self, text: str | None, call: Call) -> Claims:
        """What a sealed text says, if it is ours, in time, and came back with the call it was made for.

        Raises:
            InvalidParams: it is not. Only the log says why.
        """
        claims = self._decipher(text or "")
        if claims is None:
            why = "not sealed here"
        elif claims.expires < self._clock.now():
            why = "expired"
        elif claims.principal != call.caller.principal:
            why = "somebody else's"
        elif claims.call != digest(call):
            why = "of another call"
        else:
            return claims
        log.warning("requestState refused", method=call.method, why=why)
        raise InvalidParams(INVALID)

    def name_task(self, caller: Caller, trace: Trace) -> str:
        """What a server's task is called here, for this caller alone. Raises StateTooLarge."""
        # It holds for as long as the server knows the task, which is for the server to say.
        tool = trace.tool.encode()
        return self.close(Claims("task", math.inf, caller.principal, tool, trace.upstream, trace.head, 0, trace.task))

    def find_task(self, name: str, caller: Caller) -> Trace | None:
        """The task of this name, and the call that it is of; None if it is no task of this caller."""
        claims = self._decipher(name)
        if claims is None or claims.kind != "task" or claims.principal != caller.principal or claims.state is None:
            return None
        return Trace(claims.upstream, claims.call.decode(), claims.head, claims.state)

    def _decipher(self, text: str) -> Claims | None:
        if not text.startswith(_VERSION) or len(text) > _LARGEST:
            return None
        # Only here, for the few calls that ask: loading it takes longer than starting muxway.
        from cryptography.exceptions import InvalidTag

        try:
            body = text.removeprefix(_VERSION)
            sealed = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
            if _spelled(sealed) != body:
                # The same bytes in other letters: one thing has one name.
                return None
            plain = self._aead().decrypt(sealed[:_NONCE], sealed[_NONCE:], _VERSION.encode())
            return msgspec.msgpack.decode(plain, type=Claims)
        except (InvalidTag, ValueError, binascii.Error, msgspec.MsgspecError):
            return None

    def _aead(self) -> AESGCM:
        if self._cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._cipher = AESGCM(self._key)
        return self._cipher


def _spelled(sealed: bytes) -> str:
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def digest(call: Call) -> bytes:
    """What makes a call the same call when it is made again with answers."""
    told = {
        name: _canonical(raw)
        for name, raw in call.params.items()
        if name not in ("_meta", "inputResponses", "requestState", "task") and not envelopes.is_null(raw)
    }
    canonical = msgspec.msgpack.encode([call.method, sorted(told.items())])
    return hashlib.blake2b(canonical, digest_size=16).digest()


def _canonical(raw: Raw) -> bytes:
    if len(raw) > _MOST_FOLDED:
        return bytes(raw)
    try:
        return envelopes.encode(_folded(envelopes.value(raw)), order="deterministic")
    except (ParseError, RecursionError):
        # Valid JSON that Python cannot hold, such as 1e999 or a thousand nested lists: then each byte counts.
        return bytes(raw)


def _folded(value: Any) -> Any:
    """A JSON value as clients may write it anew: 1.0 is 1, and what is null may be left out."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: _folded(item) for name, item in fields.items() if item is not None}
    if isinstance(value, list):
        return [_folded(item) for item in cast("list[Any]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value
