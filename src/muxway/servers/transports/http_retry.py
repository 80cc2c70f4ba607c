"""When to do something once more at a remote server: send a call, open a stream.

A call is sent again only if the server says that it did not take it. A stream is opened again after a pause, whatever
haste the server wishes for, and after longer ones if nothing comes of it.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, cast

from muxway.errors import ParseError
from muxway.wire import envelopes
from muxway.wire.envelopes import ABSENT, NotAnEnvelope

LONGEST_PAUSE: Final = 30.0
"""Seconds between the end of a stream and the next one, at most."""
SHORTEST_PAUSE: Final = 0.1
"""Seconds between the end of a stream and the next one, at least."""
_LOOKED_AT: Final = 4096
_NOT_FOUND: Final = 404
_BAD_REQUEST: Final = 400
_REFUSAL: Final = re.compile(
    r"\s*(?:bad request:?\s*)?(?:"
    r"no valid session id(?: provided)?|(?:invalid|missing|unknown|invalid or missing|no)(?: mcp)?[ -]session[ -]id|"
    r"session(?: id)? (?:not found|has expired|expired|terminated|is (?:invalid|unknown))|"
    r"mcp-session-id header is required|unknown session|invalid session|server not initialized"
    r")[.!]?\s*",
    re.IGNORECASE,
).fullmatch
"""The sentences by which the SDKs and their examples refuse a request for its session, as whole messages."""


class RemoteSession(Enum):
    """What a refusal says about our session."""

    FINE = "fine"
    """Nothing: it is about the request."""
    GONE = "gone"
    """The server does not know it, and so has not taken the request."""
    DOUBTFUL = "doubtful"
    """It may be unknown. What has become of the request is not said."""


def session_after(status: int, body: bytes, id_: bytes) -> RemoteSession:
    """What a refusal of the request with this id says: 404 by the book, 400 in the SDKs' examples."""
    if status not in (_NOT_FOUND, _BAD_REQUEST):
        return RemoteSession.FINE
    said, about = _said(body)
    if status == _NOT_FOUND:
        # Some servers give their own answers this status: one that names the request was made for it.
        answers = about is not None and about.strip(b'"') == id_.strip(b'"') and "session" not in said.lower()
        return RemoteSession.FINE if answers else RemoteSession.GONE
    if about is not None and about.strip(b'"') == id_.strip(b'"'):
        return RemoteSession.FINE
    if _REFUSAL(said) is not None:
        return RemoteSession.GONE
    if "session" not in said.lower():
        return RemoteSession.FINE
    # JSON-RPC 2.0 §5: an error without an id is for a request that was not even read.
    return RemoteSession.GONE if about == b"" else RemoteSession.DOUBTFUL


def _said(body: bytes) -> tuple[str, bytes | None]:
    """What a body says, and the id of the request that it is about, if it is a JSON-RPC error; empty for none."""
    try:
        envelope = envelopes.decode(body)
    except (ParseError, NotAnEnvelope):
        fields = envelopes.holdable(body[:_LOOKED_AT]) if envelopes.is_object(body or b"-") else {}
        plain: object = fields.get("error", fields.get("message", fields.get("detail")))
        if isinstance(plain, dict):
            plain = cast("dict[str, object]", plain).get("message")
        return (plain if isinstance(plain, str) else body[:_LOOKED_AT].decode("utf-8", "replace")), None
    error = None if envelope.method is not None or envelope.error is ABSENT else envelopes.said_error(envelope.error)
    if error is None:
        return body[:_LOOKED_AT].decode("utf-8", "replace"), None
    id_ = bytes(envelope.id)
    return error.message, b"" if id_ == b"null" else id_


class Pauses:
    """How long to wait before each further stream."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._pause = SHORTEST_PAUSE

    def next(self, wished: float | None, *, fruitful: bool) -> float:
        """Seconds to wait after a stream that brought something, or nothing; the server may wish for more."""
        if fruitful:
            self._pause = SHORTEST_PAUSE
        pause = self._pause
        if not fruitful:
            self._pause = min(2 * pause, self._longest)
        return min(max(pause, wished or 0.0), max(self._longest, wished or 0.0))
