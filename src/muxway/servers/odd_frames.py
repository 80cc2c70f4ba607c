"""What a server sends over one connection that is no message, or not as messages are: broken, glued, huge, a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muxway.errors import InvalidParams, InvalidRequest, ParseError
from muxway.wire import envelopes
from muxway.wire.envelopes import ABSENT, NotAnEnvelope
from muxway.wire.large import LARGE_MESSAGE

if TYPE_CHECKING:
    from muxway.errors import Reason
    from muxway.servers.connection import Connection
    from muxway.wire.envelopes import Envelope
    from muxway.wire.framing import Oversized

LARGEST_REQUEST: Final = 2 * 1024 * 1024
"""Bytes of a question: there may be an image in it."""


class OddFrames:
    """Those of one connection. What cannot be read fails the call that it was meant for, if that shows."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def hear(self, frame: bytes, about: bytes, error: ParseError | NotAnEnvelope) -> None:
        """A frame that could not be decoded; some of them can be mended, or are several messages."""
        if isinstance(error, ParseError):
            salvaged = envelopes.salvage(frame, requests=False)
            if salvaged is not None:
                self._connection.hear(frame, about, salvaged)
                return
            parts = envelopes.unglue(frame)
            for part in parts:
                self._connection.hear(part, about)
            if not parts:
                self.unreadable(frame, error.message)
        elif len(frame) <= LARGE_MESSAGE and envelopes.is_batch(frame):
            self._batch(frame, about)
        else:
            self.unreadable(frame, str(error))

    def _batch(self, frame: bytes, about: bytes) -> None:
        try:
            parts = envelopes.decode_batch(frame)
        except NotAnEnvelope as error:
            self.unreadable(frame, str(error))
            return
        for part in parts:
            if envelopes.is_batch(part):
                self.unreadable(part, "a batch inside a batch")
            else:
                self._connection.hear(part, about)

    def unreadable(self, frame: bytes, why: str) -> None:
        """A line that is no message."""
        if frame.isspace():
            return
        connection = self._connection
        self.note("not a message", frame, why)
        meant = connection.peer.meant(frame)
        if envelopes.claims_to_answer(frame):
            self._fail(meant, "malformed", f"sent an answer that cannot be read ({why})")
        elif meant is not None:
            # What servers print may have any number in it.
            connection.junk.mentioned(meant, frame)

    def oversized(self, line: Oversized) -> None:
        """A line that was too long to be kept: its beginning, its end, or both."""
        if line.head:
            self.note("line over the size limit", line.head, "maxMessageBytes")
        peer = self._connection.peer
        meant = peer.named(line.head) or peer.named(line.tail)
        self._fail(meant, "too_large", "sent an answer over the size limit (maxMessageBytes)")

    def huge(self, envelope: Envelope, frame: bytes) -> None:
        """A message that would pass us, but not the clients behind us."""
        connection = self._connection
        self.note("message refused", frame, envelopes.HUGE_INTEGER)
        pending = connection.peer.take(bytes(envelope.id)) if envelope.method is None else None
        if pending is not None:
            connection.fail(pending, connection.error("malformed", f"answered with {envelopes.HUGE_INTEGER}"))
        elif envelope.method is not None and envelope.id is not ABSENT:
            connection.answer(envelopes.failure(envelope.id, InvalidParams(envelopes.HUGE_INTEGER)))

    def too_large(self, envelope: Envelope, frame: bytes) -> bool:
        """Refuse a notification or question that is larger than any has to be: they are read and worded anew."""
        connection = self._connection
        most = LARGE_MESSAGE if envelope.id is ABSENT else LARGEST_REQUEST
        if len(frame) <= most:
            return False
        self.note("message refused", frame, f"no answer, and more than {most} bytes")
        if envelope.id is ABSENT:
            connection.counters.dropped += 1
        else:
            id_ = envelope.id if envelopes.is_id(envelope.id) else None
            connection.answer(envelopes.failure(id_, InvalidRequest(f"a request may have at most {most} bytes")))
        return True

    def _fail(self, meant: int | None, reason: Reason, why: str) -> None:
        connection = self._connection
        if meant is not None:
            connection.fail(connection.peer.ours.pop(meant), connection.error(reason, why))

    def note(self, event: str, frame: bytes, why: str) -> None:
        """Count a frame that is of no use, and show it."""
        self._connection.junk.note(self._connection.heard, event, frame, why)
