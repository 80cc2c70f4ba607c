"""One message on its way to a remote server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from muxway.wire.pieces import joined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from msgspec import Raw

    from muxway.servers.transports.http_requests import Sent, Turns
    from muxway.wire.envelopes import Buffer


class HttpMessage(msgspec.Struct, eq=False):
    """A message, and what has become of it so far. A Struct, as its constructor runs for every call."""

    body: bytes
    method: str | None
    """What it is, as the fields of an `Outgoing` say it."""
    id: bytes
    params: Mapping[str, Buffer]
    stateless: dict[str, str] | None = None
    """What it repeats in headers, if it is of 2026-07-28."""
    parts: Sequence[Buffer] | None = None
    """What the body is to be put together from, if it is large."""
    quiet: bool = False
    """Whether the answer is for the transport only."""
    queued: int = 0
    """Bytes of it that count as not taken yet."""
    sent_in: str | None = None
    """The session that it was sent in."""
    session: str | None = None
    """The session id that came with the answer to an `initialize`."""
    cursor: Raw | None = None
    """Where the list goes on, of which the answer was a page."""
    answered: bool = False
    waiting: bool = True
    """Whether it still waits for its turn, so that the server knows nothing of it."""
    turn: Turns | None = None
    """What its turn is one of, while it has it."""
    sent: Sent | None = None
    """What comes back, as long as nobody waits for it."""
    task: asyncio.Task[None] | None = None
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

    def again(self) -> HttpMessage:
        """The same once more, for the transport only."""
        return HttpMessage(self.body, self.method, self.id, self.params, self.stateless, quiet=True)
