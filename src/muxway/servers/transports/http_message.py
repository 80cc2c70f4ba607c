"""One message on its way to a remote server, and the turns that such messages take."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from muxway.servers.transports.port import Outgoing
from muxway.wire import headers as names
from muxway.wire.pieces import joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Raw

    from muxway.servers.transports.http_requests import Sent
    from muxway.wire.envelopes import Buffer, Envelope


class HttpMessage:
    """A message, and what has become of it so far."""

    __slots__ = (
        *("answered", "body", "cursor", "id", "method", "params", "parts", "queued", "quiet"),
        *("sent", "sent_in", "session", "size", "stateless", "task", "turn", "waiting"),
    )

    def __init__(
        self, body: bytes, about: Outgoing, *, quiet: bool = False, parts: Sequence[Buffer] | None = None
    ) -> None:
        self.body = body
        self.parts = parts
        """What the body is to be put together from, if it is large."""
        self.size = len(body) if parts is None else sum(map(len, parts))
        self.method, self.id, self.params = about
        has_meta = self.method is not None and "_meta" in self.params
        self.stateless = names.stateless_headers(self.method or "", self.params) if has_meta else None
        """What it repeats in headers, if it is of 2026-07-28."""
        self.quiet = quiet
        """Whether the answer is for this transport only."""
        self.queued = not quiet
        """Whether it counts as not taken yet."""
        self.sent_in: str | None = None
        """The session that it was sent in."""
        self.session: str | None = None
        """The session id that came with the answer to an `initialize`."""
        self.cursor: Raw | None = None
        """Where the list goes on, of which the answer was a page."""
        self.answered = False
        self.waiting = not quiet
        """Whether it still waits for its turn, so that the server knows nothing of it."""
        self.turn: Turns | None = None
        """What its turn is one of, while it has it."""
        self.sent: Sent | None = None
        """What comes back, as long as nobody waits for it."""
        self.task: asyncio.Task[None] | None = None
        """Who waits, once somebody has to."""

    async def put_together(self) -> None:
        """Make its body, if that has to be done."""
        if self.parts is None:
            return
        steps = joined(self.parts)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                self.body, self.parts = stop.value, None
                return
            await asyncio.sleep(0)

    def end_turn(self) -> None:
        """Let another have its turn."""
        turns, self.turn = self.turn, None
        if turns is not None:
            turns.give_back()

    def again(self) -> HttpMessage:
        """The same once more, for this transport only."""
        return HttpMessage(self.body, Outgoing(self.method, self.id, self.params), quiet=True)

    def is_answer(self, envelope: Envelope) -> bool:
        """Whether this is the answer to it; some servers give a number back as a string."""
        return envelope.method is None and bytes(envelope.id).strip(b'"') == self.id.strip(b'"') != b""


class Turns:
    """How many messages may be under way at once; the others wait, first come, first served."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._free = most
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_now(self) -> bool:
        """Take a turn if there is one."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return True
        return False

    async def take(self, seconds: float) -> None:
        """Take a turn; wait for one as long as that. Raises TimeoutError."""
        if self.take_now():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except BaseException:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif not waiter.cancelled():
                self.give_back()  # It was given one just now.
            raise

    def give_back(self) -> None:
        """The turn is over: the next one's begins."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1
