"""The session that a handshake with a remote server has opened: its id, its own stream, a new one when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from muxway.log import EventLog
from muxway.net.http_errors import HttpTrouble
from muxway.servers.transports.http_answers import EVENTS, JSON
from muxway.servers.transports.http_requests import with_credentials
from muxway.servers.transports.http_retry import LONGEST_PAUSE, Pauses
from muxway.servers.transports.port import RENEWED
from muxway.wire import envelopes
from muxway.wire import headers as names
from muxway.wire.envelopes import ABSENT
from muxway.wire.sse import SseParser

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from muxway.net.http_client import HttpClient
    from muxway.net.http_line import HttpResponse
    from muxway.servers.transports.http_answers import HttpAnswers
    from muxway.servers.transports.http_message import HttpMessage
    from muxway.wire.envelopes import Envelope

GOODBYE: Final = 2.0
"""Seconds for what a server may still say when all is over with it, or with a request of ours."""
NOTICE: Final = 10.0
"""Seconds for a server to take what it need not answer."""
POSTED: Final = {"Content-Type": JSON, "Accept": f"{JSON}, {EVENTS}"}
"""Headers of every message."""
_RENEWAL: Final = 30.0
_IDLE: Final = 300.0
"""Seconds of silence after which the stream for unasked messages is opened anew."""
_UNHURRIED: Final = 1.0
"""Seconds after which the stream for unasked messages is opened anew, if the server does not say."""
_LASTING: Final = 5.0
"""Seconds after which a stream that brought nothing was none in vain: it may just be how long they are kept open."""
TOOLS_CHANGED: Final = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
_ALL_CHANGED: Final = (
    b'{"jsonrpc":"2.0","method":"%b"}' % RENEWED.encode(),
    TOOLS_CHANGED,
    b'{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}',
    b'{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}',
)

log = EventLog("upstream")


class HandshakeSession:
    """What a handshake agreed on. Nothing is set before, nor by a server without one."""

    def __init__(
        self,
        name: str,
        exchange: Callable[[HttpMessage], Awaitable[bool]],
        get: Callable[[str], Awaitable[HttpResponse]],
        spawn: Callable[[Coroutine[object, object, None]], asyncio.Task[None]],
    ) -> None:
        """Prepare.

        Args:
            name: of the server.
            exchange: sends a message and hears what comes of it.
            get: opens a stream after the event with this id.
            spawn: has something done that ends with the transport.
        """
        self._name = name
        self._exchange, self._get, self._spawn = exchange, get, spawn
        self.id: str | None = None
        self.version: str | None = None
        self.headers: dict[str, str] = {}
        """What every request in it has to carry."""
        self.posted = POSTED
        """The same for messages, with what these have in any case; the same object until the session is another."""
        self._hello: HttpMessage | None = None
        self._initialized: HttpMessage | None = None
        self.gate: asyncio.Task[None] | None = None
        """What later messages wait for: the server must have heard `notifications/initialized` before them."""
        self._renewal: asyncio.Task[None] | None = None
        self._overhearing: asyncio.Task[None] | None = None

    def opened_by(self, message: HttpMessage, envelope: Envelope) -> bool:
        """An `initialize` was answered; False if it was to open the same session again, and has opened another."""
        same = True
        if envelope.result is not ABSENT:
            version = envelopes.text((envelopes.members(envelope.result) or {}).get("protocolVersion"))
            same = not message.quiet or version == self.version
            if version is not None and names.encode_value(version) == version:
                self.version = version
            self.id, self._hello = message.session, message
            given = {names.VERSION: self.version, names.SESSION: self.id}
            self.headers = {name: value for name, value in given.items() if value is not None}
            self.posted = POSTED | self.headers
        return same

    def initialized(self, message: HttpMessage) -> None:
        """The server is being told that the handshake is over."""
        self._initialized, self.gate = message, message.task

    async def end(self, client: HttpClient, url: str, credentials: str | None) -> None:
        """Tell the server that nobody comes back to it, if there is one."""
        if self.id is None:
            return
        # A courtesy: a server that is gone, slow or keeps its sessions forgets this one by itself some day.
        with contextlib.suppress(HttpTrouble, TimeoutError):
            async with asyncio.timeout(GOODBYE):
                (await client.request("DELETE", url, with_credentials(self.headers, credentials))).close()

    # --- a new one ----------------------------------------------------------------------------

    async def renew(self, forgotten: str | None, answers: HttpAnswers) -> None:
        """Open a new session in place of one that the server has forgotten; once for all who notice."""
        if self.id != forgotten:
            return
        if self._renewal is None or self._renewal.done():
            self._renewal = self.gate = self._spawn(self._shake_hands_again(answers))
        # Whoever gives up waiting must not stop it for the others.
        await asyncio.shield(self._renewal)

    async def _shake_hands_again(self, answers: HttpAnswers) -> None:
        hello, initialized = self._hello, self._initialized
        if hello is None or initialized is None:
            raise HttpTrouble("does not know its session any more")
        log.info("session lost; opening a new one", upstream=self._name)
        again = hello.again()
        try:
            async with asyncio.timeout(_RENEWAL):
                await self._exchange(again)
        except TimeoutError:
            raise HttpTrouble(f"lost its session and did not open a new one within {_RENEWAL:g} s", "timeout") from None
        except HttpTrouble as trouble:
            why = f"lost its session, and a new one could not be opened: it {trouble.what}"
            raise HttpTrouble(why, broken=trouble.broken) from trouble
        if self._hello is not again:
            raise HttpTrouble("lost its session and refused to open a new one")
        try:
            async with asyncio.timeout(NOTICE):
                await self._exchange(initialized.again())
        except TimeoutError:
            raise HttpTrouble(f"lost its session and did not open a new one within {NOTICE:g} s", "timeout") from None
        self.overhear(answers)
        # A server that forgot us has most likely been started anew, and may offer something else now.
        answers.hear(_ALL_CHANGED)

    # --- its own stream -----------------------------------------------------------------------

    def overhear(self, answers: HttpAnswers) -> None:
        """Open the stream for what the server says unasked."""
        if self._overhearing is not None:
            self._overhearing.cancel()
        self._overhearing = self._spawn(self._keep_overhearing(answers))

    async def _keep_overhearing(self, answers: HttpAnswers) -> None:
        parser = SseParser(answers.limit)
        loop = asyncio.get_running_loop()
        pauses = Pauses(LONGEST_PAUSE)
        while True:
            began, session, heard = loop.time(), self.id, 0
            try:
                async with await self._get(parser.last_id) as response:
                    if response.status == 404 and session is not None:
                        await self.renew(session, answers)
                        return
                    if 400 <= response.status < 500 and response.status not in (408, 409, 429):
                        log.debug("offers no stream of its own", upstream=self._name, status=response.status)
                        return
                    if response.status < 400 and response.content_type != EVENTS:
                        return
                    if response.status < 400:
                        _, heard = await answers.listen(response, parser, None, _IDLE)
            except HttpTrouble as trouble:
                log.debug("stream broken", upstream=self._name, why=trouble.what)
            # If nothing came of it, the server's wish for haste is not to be trusted.
            fruitful = heard > 0 or loop.time() - began > _LASTING
            wish = parser.retry if parser.retry is not None else _UNHURRIED
            await asyncio.sleep(min(pauses.next(wish, fruitful=fruitful), LONGEST_PAUSE))
            parser = parser.again()
