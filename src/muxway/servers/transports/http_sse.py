"""HTTP+SSE of 2024-11-05: everything the server says on one stream, everything we say POSTed elsewhere.

The stream is the connection: its first event names the address to post to, and when it ends all is over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from muxway.net.http_errors import HttpTrouble, refusal
from muxway.wire.sse import SseParser

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from muxway.net.http_client import HttpClient
    from muxway.net.http_line import HttpResponse
    from muxway.servers.transports.http_intake import HttpIntake, Take
    from muxway.wire.large import Opened
    from muxway.wire.sse import SseEvent

_FIRST_EVENT: Final = 5.0
_IDLE: Final = 300.0
"""Seconds of silence after which the server is asked whether it is there."""
_NUDGED: Final = 30.0
_EVENTS: Final = "text/event-stream"
_EXCERPT: Final = 4096


class SseServerTransport:
    """One open stream."""

    def __init__(self, response: HttpResponse, parser: SseParser, intake: HttpIntake) -> None:
        self.endpoint = ""
        """Where to post to. May hold a session id: not for logs."""
        self._response = response
        self._parser = parser
        self._intake = intake
        self._early: list[SseEvent] = []

    @classmethod
    async def open(
        cls,
        client: HttpClient,
        request: Callable[[str, str, dict[str, str]], Awaitable[HttpResponse]],
        url: str,
        limit: int,
        secrets: Iterable[str],
        intake: HttpIntake,
    ) -> SseServerTransport:
        """Connect, with a request that shows who we are, and wait for the address to post to. Raises Trouble."""
        try:
            async with asyncio.timeout(_FIRST_EVENT * 2):
                response = await request("GET", url, {"Accept": _EVENTS})
        except TimeoutError:
            raise HttpTrouble(f"did not answer within {_FIRST_EVENT * 2:g} s", "timeout") from None
        try:
            if response.status != 200:
                body = await response.start(_EXCERPT, _FIRST_EVENT)
                raise refusal(response.status, body, secrets, challenge=response.header("WWW-Authenticate"))
            if response.content_type != _EVENTS:
                raise HttpTrouble("gave no event stream for a GET; is `url` the address of its stream?", "malformed")
            self = cls(response, SseParser(limit), intake)
            address = await self._first()
            endpoint = client.join(url, address)
            if endpoint is None:
                raise HttpTrouble("wants messages to be sent to another origin than its own, which is refused")
            self.endpoint = endpoint
        except BaseException:
            response.close()
            raise
        return self

    async def _first(self) -> str:
        try:
            async with asyncio.timeout(_FIRST_EVENT):
                while not self._early:
                    await self._next(None, self._keep)
        except TimeoutError:
            raise HttpTrouble(f"did not say within {_FIRST_EVENT:g} s where to send messages", "timeout") from None
        first = self._early.pop(0)
        if first.cut or first.type != "endpoint":
            raise HttpTrouble("did not begin its event stream with an `endpoint`", "malformed")
        return first.data.decode("utf-8", "replace").strip()

    def _keep(self, event: SseEvent, _opened: Opened | None = None) -> int:
        self._early.append(event)
        return 1

    async def _next(self, idle: float | None, take: Take) -> None:
        data = await self._response.chunk(idle)
        if not data:
            raise HttpTrouble("closed its event stream", broken=True)
        await self._intake.read(data, self._parser, take, self._response.handling)

    async def follow(self, take: Take, nudge: Callable[[], None]) -> str:
        """Hear every event until the stream ends; returns why it did.

        Silence is no end: many servers say nothing unless asked. So after a while one is asked (`nudge`).
        """
        early, self._early = self._early, []
        await self._intake.hear(early, take)
        nudged = False
        while True:
            try:
                await self._next(_NUDGED if nudged else _IDLE, take)
                nudged = False
            except HttpTrouble as trouble:
                if trouble.reason != "timeout" or nudged:
                    return trouble.what
                nudged = True
                nudge()

    def close(self) -> None:
        """End the stream."""
        self._response.close()
