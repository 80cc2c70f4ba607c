"""Opening a large message in steps, so that others have their turn between two of them.

Nor is the whole of it ever copied in one go: fresh memory costs more than the copy.
"""

from __future__ import annotations

from codecs import utf_8_decode
from typing import TYPE_CHECKING, Final, TypeAlias

from muxway.errors import ParseError, UpstreamSaid
from muxway.wire import envelopes, pieces
from muxway.wire.envelopes import ABSENT, LONGEST_ID, Envelope, NotAnEnvelope
from muxway.wire.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Generator

    Steps: TypeAlias = Generator[None, None, "Opened"]

Opened: TypeAlias = Envelope | ParseError | NotAnEnvelope
"""A message, or what is wrong with it."""
LARGE_MESSAGE: Final = 1024 * 1024
"""Bytes above which a message is large: a client's is opened in steps, and some kinds of a server's are refused."""
STEPPED: Final = 2 * LARGE_MESSAGE
"""Bytes above which a message of a server is opened in steps: up to that one look takes less than a turn may."""
_LEADING: Final = 4096
"""Blanks that may stand before a message."""
_STEP: Final = 256 * 1024
"""Bytes whose encoding is checked in one go."""


class LargeEnvelope(Envelope, gc=False, frozen=True):
    """A message that was opened in steps, and what else was found on the way."""

    huge: bool = False
    """Whether it has an integer that is too long; see `envelopes.has_huge_integer`."""
    said: UpstreamSaid | None = None
    """Its error."""


def has_huge_integer(frame: bytes, envelope: Envelope) -> bool:
    """Whether a message has an integer that is too long."""
    return envelope.huge if isinstance(envelope, LargeEnvelope) else envelopes.has_huge_integer(frame)


def said_error(envelope: Envelope) -> UpstreamSaid | None:
    """The error of a message; see `envelopes.said_error`."""
    return envelope.said if isinstance(envelope, LargeEnvelope) else envelopes.said_error(envelope.error)


def opening(frame: bytes) -> Steps:
    """Open a frame of more than LARGE_MESSAGE bytes, step by step; see `envelopes.decode`."""
    try:
        return (yield from _opening(frame))
    except (ParseError, NotAnEnvelope) as error:
        return error


def _opening(frame: bytes) -> Generator[None, None, LargeEnvelope]:
    first = frame[:_LEADING].lstrip()[:1]
    if first == b"[":
        raise NotAnEnvelope(f"a batch of more than {LARGE_MESSAGE} bytes")
    if first != b"{":
        raise ParseError("not valid JSON: no object")
    yield from _check_utf8(frame)
    message = Reading(frame, "the message")
    found = yield from message.steps()
    id_ = found.get("id", ABSENT)
    method = found.get("method")
    if max(len(id_), len(method or b"")) > LONGEST_ID:
        raise NotAnEnvelope(f"an id or a method of more than {LONGEST_ID} bytes")
    known = bytes(id_) if id_ is not ABSENT and envelopes.is_id(id_) else b""
    if bytes(memoryview(found.get("jsonrpc", b""))[:8]) != b'"2.0"':
        raise NotAnEnvelope('"jsonrpc" must be "2.0"', known)
    named = None if method is None else envelopes.text(method)
    if method is not None and named is None and not envelopes.is_null(method):
        raise NotAnEnvelope("method must be a string", known)
    written, error = found.get("params"), found.get("error", ABSENT)
    params = None
    if written is not None and not envelopes.is_null(written):
        if not envelopes.is_object(written):
            raise NotAnEnvelope("params must be an object", known)
        within = message.member("params")
        params = yield from within.steps()
        if (meta := params.get("_meta")) is not None and envelopes.is_object(meta):
            yield from within.member("_meta").steps()
    said = None
    if error is not ABSENT and envelopes.is_object(error):
        # Copied once: it is kept, and the message is not.
        kept = yield from pieces.joined((error,))
        said = envelopes.said(kept, (yield from message.member("error").steps()))
        yield
    return LargeEnvelope("2.0", id_, named, params, found.get("result", ABSENT), error, message.huge, said)


def _check_utf8(frame: bytes) -> Generator[None, None, None]:
    # The decoder skips over strings inside Raw without looking at their encoding.
    if frame.isascii():
        return
    view = memoryview(frame)
    position = 0
    while position < len(frame):
        piece = view[position : position + _STEP]
        try:
            # A character cut in two at the end of a piece is taken up again with the next one.
            position += utf_8_decode(piece, "strict", position + len(piece) == len(frame))[1]
        except UnicodeDecodeError as error:
            raise ParseError(f"not valid JSON: {error}") from None
        yield
