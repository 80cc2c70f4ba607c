"""HTTP+SSE of 2024-11-05: everything the server says on one stream, everything we say POSTed elsewhere.

The stream is the connection: its first event names the address to post to, and when it ends all is over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from muxway.errors import STATELESS_CODES, MethodNotFound
from muxway.net.http_errors import HttpTrouble, refusal
from muxway.servers.transports.http_answers import EVENTS
from muxway.servers.transports.http_session import GOODBYE
from muxway.wire import envelopes
from muxway.wire.sse import SseParser

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.net.http_line import HttpResponse
    from muxway.servers.transports.http_answers import HttpAnswers
    from muxway.servers.transports.http_intake import Take
    from muxway.servers.transports.http_message import HttpMessage
    from muxway.servers.transports.http_requests import HttpRequests
    from muxway.wire.large import Opened
    from muxway.wire.sse import SseEvent

_FIRST_EVENT: Final = 5.0
_IDLE: Final = 300.0
"""Seconds of silence after which the server is asked whether it is there."""
_NUDGED: Final = 30.0
_EXCERPT: Final = 4096
_NO_HINT: Final = frozenset((401, 403, 429))
"""Refusals that say nothing about which transport is spoken."""


def may_speak_sse(message: HttpMessage, status: int, code: int | None) -> bool:
    """Whether a server that refuses this message, with a JSON-RPC code if it gave one, may speak this transport."""
    hint = 400 <= status < 500 and status not in _NO_HINT and code not in STATELESS_CODES
    return hint and message.method == "initialize" and not message.quiet


class SseServerTransport:
    """One open stream."""

    def __init__(self, requests: HttpRequests, answers: HttpAnswers, response: HttpResponse) -> None:
        self._requests = requests
        self._answers = answers
        self._response = response
        self._parser = SseParser(answers.limit)
        self._endpoint = ""
        """Where to post to. May hold a session id: not for logs."""
        self._early: list[SseEvent] = []

    @classmethod
    async def open(cls, requests: HttpRequests, answers: HttpAnswers) -> SseServerTransport:
        """Connect, with a request that shows who we are, and wait for the address to post to. Raises HttpTrouble."""
        client, url = requests.client, requests.url
        if client is None:
            raise HttpTrouble("was stopped")
        try:
            async with asyncio.timeout(_FIRST_EVENT * 2):
                response = await requests.request("GET", url, {"Accept": EVENTS})
        except TimeoutError:
            raise HttpTrouble(f"did not answer within {_FIRST_EVENT * 2:g} s", "timeout") from None
        try:
            if response.status != 200:
                body = await response.start(_EXCERPT, _FIRST_EVENT)
                raise refusal(response.status, body, requests.secrets, challenge=response.header("WWW-Authenticate"))
            if response.content_type != EVENTS:
                raise HttpTrouble("gave no event stream for a GET; is `url` the address of its stream?", "malformed")
            self = cls(requests, answers, response)
            address = await self._first()
            endpoint = client.join(url, address)
            if endpoint is None:
                raise HttpTrouble("wants messages to be sent to another origin than its own, which is refused")
            self._endpoint = endpoint
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
        await self._answers.intake.read(data, self._parser, take, self._response.handling)

    async def post(self, message: HttpMessage, headers: dict[str, str]) -> None:
        """Send a message with these headers; what comes of it comes on the stream. Raises HttpTrouble."""
        if message.method == "server/discover":
            # This transport is older than that method, and some of its servers fall over what they do not know.
            message.answered = True
            error = MethodNotFound("server/discover: not over HTTP+SSE")
            self._answers.hear([b"".join(envelopes.failure(message.id, error)).rstrip(b"\n")])
            return
        async with await self._requests.request("POST", self._endpoint, headers, message.body) as response:
            start = await response.start(_EXCERPT, GOODBYE)
            if not 200 <= response.status < 300:
                wait = response.header("Retry-After")
                raise refusal(response.status, start, self._requests.secrets, retry_after=wait)

    async def follow(self, nudge: Callable[[], None]) -> str:
        """Hear every event until the stream ends; returns why it did.

        Silence is no end: many servers say nothing unless asked. So after a while one is asked (`nudge`).
        """
        early, self._early = self._early, []
        await self._answers.intake.hear(early, self._take)
        nudged = False
        while True:
            try:
                await self._next(_NUDGED if nudged else _IDLE, self._take)
                nudged = False
            except HttpTrouble as trouble:
                if trouble.reason != "timeout" or nudged:
                    return trouble.what
                nudged = True
                nudge()

    def _take(self, event: SseEvent, opened: Opened | None = None) -> int:
        return self._answers.take_event(event, None, opened)

    def close(self) -> None:
        """End the stream."""
        self._response.close()
