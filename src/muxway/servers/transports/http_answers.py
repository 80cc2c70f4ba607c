"""What a remote server says: the body of an answer, or the events of a stream, as messages for whoever asked."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

from muxway.errors import ParseError
from muxway.net.http_errors import HttpTrouble, excerpt
from muxway.servers.transports.http_intake import HttpIntake
from muxway.servers.transports.http_retry import LONGEST_PAUSE, Pauses
from muxway.wire import envelopes
from muxway.wire.envelopes import ABSENT, Envelope, NotAnEnvelope
from muxway.wire.framing import Oversized, one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from msgspec import Raw

    from muxway.net.http_line import HttpResponse
    from muxway.servers.transports.http_message import HttpMessage
    from muxway.servers.transports.port import Hear
    from muxway.wire.large import Opened
    from muxway.wire.sse import SseEvent, SseParser

_LINGER: Final = 0.25
"""Seconds that a stream may stay open after its answer: if it ends by then, its connection can be used again."""
_TRIES: Final = 5
"""Attempts in a row to resume a stream, without anything new from it."""
_RESUMED_AFTER: Final = 1.0
"""Seconds between two attempts to resume the stream of a call, if the server does not wish for more."""
_GOODBYE: Final = 2.0
_EXCERPT: Final = 4096
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
NOTED: Final = frozenset(("initialize", "tools/list"))
"""Methods of whose answers the transport has something to learn."""


class Ended(NamedTuple):
    """How a stream ended, and how many messages it brought."""

    why: str
    heard: int = 0


class HttpAnswers:
    """Hears what one server says."""

    def __init__(
        self,
        hear: Hear,
        limit: int,
        secrets: Callable[[], frozenset[str]],
        note: Callable[[HttpMessage, Envelope, bytes], bytes],
        on_flood: Callable[[], None],
    ) -> None:
        """Prepare.

        Args:
            hear: takes messages.
            limit: the largest of them, in bytes.
            secrets: texts that must not be shown.
            note: looks at the answer to a message of `NOTED` before it is heard; gives back what to hear.
            on_flood: called when a flood of what nobody asked for goes on for too long.
        """
        self.hear = hear
        self.limit = limit
        self._secrets = secrets
        self._note = note
        self.intake = HttpIntake(on_flood)

    def take(self, frame: bytes, message: HttpMessage | None, known: Opened | None = None) -> int:
        """Take one JSON-RPC message of the server's, or something that should have been one; what is `known` of it.

        Returns how much of it nobody had asked for. Raises HttpTrouble.
        """
        if known is None:
            frame = one_line(frame)
        if message is None or message.answered:
            return self.hear([frame], b"" if message is None else message.id, known)
        unasked = 0
        parts = [frame]
        if known is None and envelopes.is_batch(frame):
            with contextlib.suppress(ParseError, NotAnEnvelope):
                parts = envelopes.decode_batch(frame)
        for part in parts:
            opened: Envelope | None = None
            try:
                if known is None:
                    envelope = opened = envelopes.decode(part)
                elif isinstance(known, Envelope):
                    envelope = opened = known
                else:
                    raise known
            except (ParseError, NotAnEnvelope) as error:
                salvaged = envelopes.salvage(part)
                if salvaged is None:
                    said = excerpt(part[:_EXCERPT], self._secrets())
                    raise HttpTrouble(f"sent an answer that cannot be read ({error}): {said}", "malformed") from None
                envelope = salvaged
            if envelope.method is None and _is_id(bytes(envelope.id), message.id):
                answer = self._note(message, envelope, part) if message.method in NOTED else part
                self.answer(message, answer, opened if answer is part else None)
            elif _nameless_error(envelope):
                self.answer(message, with_id(message.id, envelope.error))
            else:
                unasked += self.hear([part], message.id, opened)
        return unasked

    def answer(self, message: HttpMessage, frame: bytes, opened: Envelope | None = None) -> None:
        """This is the answer to a message."""
        message.answered = True
        if not message.quiet:
            self.hear([frame], b"", opened)

    def take_event(self, event: SseEvent, message: HttpMessage | None, opened: Opened | None = None) -> int:
        """Take an event of a stream. Returns how much of it nobody had asked for. Raises HttpTrouble."""
        if not _is_message(event):
            return 1
        if not event.cut:
            return self.take(event.data, message, opened)
        if message is None or message.answered:
            return self.hear([Oversized(event.data)])
        raise HttpTrouble(f"sent an event over the size limit of {self.limit} bytes (maxMessageBytes)", "too_large")

    async def listen(
        self, response: HttpResponse, parser: SseParser, message: HttpMessage | None, idle: float | None = None
    ) -> Ended:
        """Hear a stream until its end, or shortly after the answer waited for. Returns how it ended."""
        heard = 0

        def take(event: SseEvent, opened: Opened | None = None) -> int:
            nonlocal heard
            heard += _is_message(event)
            return self.take_event(event, message, opened)

        try:
            while data := await response.chunk(idle):
                await self.intake.read(data, parser, take, response.handling)
                if message is not None and message.answered:
                    idle = _LINGER
        except HttpTrouble as trouble:
            if trouble.reason in ("too_large", "malformed"):
                raise
            return Ended("broke off its event stream" if trouble.reason == "lost" else trouble.what, heard)
        return Ended("ended its event stream", heard)

    async def read(self, message: HttpMessage, response: HttpResponse, parser: SseParser) -> Ended:
        """Hear what comes back for a message, JSON or a stream. Raises HttpTrouble."""
        if response.content_type == EVENTS:
            return await self.listen(response, parser, message)
        if response.content_type == JSON or response.content_type.endswith("+json"):
            body = await response.read(self.limit)
            if body:
                body, opened = await self.intake.open(body)
                self.take(body, message, opened)
                return Ended("")
        start = await response.start(_EXCERPT, _GOODBYE)
        if not start:
            raise HttpTrouble(f"took the request with HTTP status {response.status} but gave no answer", "malformed")
        kind = response.content_type or "something of no stated type"
        shown = excerpt(start, self._secrets())
        raise HttpTrouble(f"answered with {kind} instead of JSON or an event stream: {shown}", "malformed")

    async def resume(
        self, message: HttpMessage, parser: SseParser, why: str, get: Callable[[str], Awaitable[HttpResponse]]
    ) -> None:
        """Take up a stream that ended before its answer, as long as the server says where it stopped."""
        tries, heard = 0, 0
        pauses = Pauses(_RESUMED_AFTER)
        while not message.answered:
            if message.stateless is not None or not parser.last_id or tries == _TRIES:
                after = f", and {tries} attempts to resume it brought nothing" if tries else ""
                raise HttpTrouble(f"{why} before the answer{after}; the call may have run", broken=True)
            parser, known = parser.again(), parser.last_id
            # Also if the server wants none: one that ends each stream at once would have us ask it without a break.
            await asyncio.sleep(min(pauses.next(parser.retry, fruitful=heard > 0), LONGEST_PAUSE))
            tries, heard = tries + 1, 0
            try:
                response = await get(parser.last_id)
            except HttpTrouble as trouble:
                why = trouble.what
                continue
            async with response:
                if response.status != 200 or response.content_type != EVENTS:
                    raise HttpTrouble(f"{why} before the answer, and did not resume it (HTTP status {response.status})")
                why, heard = await self.listen(response, parser, message)
            if parser.last_id != known:
                tries = 0


def _is_id(given: bytes, asked: bytes) -> bool:
    """Whether an answer with this id is the one to what was asked; some servers give a number back as a string."""
    return given == asked != b"" or given.strip(b'"') == asked.strip(b'"') != b""


def _is_message(event: SseEvent) -> bool:
    # An empty one only tells where to resume.
    return event.type == "message" and event.data != b""


def _nameless_error(envelope: Envelope) -> bool:
    return envelope.method is None and envelope.error is not ABSENT and bytes(envelope.id) in (b"", b"null")


def with_id(id_: bytes, error: Raw) -> bytes:
    """An error as the answer to this request."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_, one_line(bytes(error)))
