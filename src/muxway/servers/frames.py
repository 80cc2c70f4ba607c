"""What a server sends over one connection: frames → answers, notifications and requests, or junk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muxway.calls.incidents import internal
from muxway.errors import InvalidParams, ParseError
from muxway.wire import envelopes
from muxway.wire.envelopes import ABSENT, NotAnEnvelope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.errors import Reason
    from muxway.servers.connection import Connection
    from muxway.wire.envelopes import Envelope
    from muxway.wire.framing import Oversized

_MANY: Final = 16
"""Lines that come at once, from which on most may be junk."""


class FrameReader:
    """Reads what comes on one connection. What cannot be read fails the call that it was meant for, if that shows."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def hear(self, frames: Sequence[bytes | Oversized], about: bytes = b"", opened: Envelope | None = None) -> int:
        """See `transports.port.Hear`."""
        connection = self._connection
        connection.heard = connection.loop.time()
        count, answers = len(frames), connection.answers
        if count > _MANY:
            frames = connection.junk.sift(connection.heard, frames)
        for frame in frames:
            try:
                if isinstance(frame, bytes):
                    self._read(frame, about, opened)
                else:
                    self._oversized(frame)
            except Exception as error:  # noqa: BLE001 - whatever became of this message, the next is heard
                internal(error, upstream=connection.name)
        return count - connection.answers + answers

    def _read(self, frame: bytes, about: bytes, opened: Envelope | None = None) -> None:
        try:
            envelope = opened or envelopes.decode(frame)
        except ParseError as error:
            salvaged = envelopes.salvage(frame, requests=False)
            if salvaged is None:
                parts = envelopes.unglue(frame)
                for part in parts:
                    self._read(part, about)
                if not parts:
                    self.unreadable(frame, error.message)
                return
            envelope = salvaged
        except NotAnEnvelope as error:
            if not envelopes.is_batch(frame):
                self.unreadable(frame, str(error))
            else:
                self._read_batch(frame, about)
            return
        if len(frame) > envelopes.MAX_DIGITS and envelopes.has_huge_integer(frame):
            self._huge(envelope, frame)
        elif envelope.method is None:
            self._connection.hear_answer(envelope, frame)
        elif envelope.id is ABSENT:
            self._connection.notices.hear(envelope.method, envelope.params or {}, about)
        else:
            self._connection.hear_request(envelope, envelope.method, about)

    def _read_batch(self, frame: bytes, about: bytes) -> None:
        try:
            parts = envelopes.decode_batch(frame)
        except NotAnEnvelope as error:
            self.unreadable(frame, str(error))
            return
        for part in parts:
            if envelopes.is_batch(part):
                self.unreadable(part, "a batch inside a batch")
            else:
                self._read(part, about)

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

    def _oversized(self, line: Oversized) -> None:
        """A line that was too long to be kept: its beginning, its end, or both."""
        if line.head:
            self.note("line over the size limit", line.head, "maxMessageBytes")
        peer = self._connection.peer
        meant = peer.named(line.head) or peer.named(line.tail)
        self._fail(meant, "too_large", "sent an answer over the size limit (maxMessageBytes)")

    def _huge(self, envelope: Envelope, frame: bytes) -> None:
        """A message that would pass us, but not the clients behind us."""
        connection = self._connection
        self.note("message refused", frame, envelopes.HUGE_INTEGER)
        pending = connection.peer.take(bytes(envelope.id)) if envelope.method is None else None
        if pending is not None:
            connection.fail(pending, connection.error("malformed", f"answered with {envelopes.HUGE_INTEGER}"))
        elif envelope.method is not None and envelope.id is not ABSENT:
            connection.answer(envelopes.failure(envelope.id, InvalidParams(envelopes.HUGE_INTEGER)))

    def _fail(self, meant: int | None, reason: Reason, why: str) -> None:
        connection = self._connection
        if meant is not None:
            connection.fail(connection.peer.ours.pop(meant), connection.error(reason, why))

    def note(self, event: str, frame: bytes, why: str) -> None:
        """Count a frame that is of no use, and show it."""
        self._connection.junk.note(self._connection.heard, event, frame, why)
