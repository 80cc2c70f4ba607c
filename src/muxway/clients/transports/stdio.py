"""The stdio transport: MCP on this process's stdin and stdout, as clients launch it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

from muxway.clients import notifications
from muxway.clients.session import Session
from muxway.clients.transports.http_response import Outlet, Parts
from muxway.log import EventLog
from muxway.net.pipes import PipeReader, PipeWriter, Turn, enlarge
from muxway.wire import envelopes
from muxway.wire.framing import DEFAULT_LIMIT, LineFramer
from muxway.wire.pieces import is_large

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muxway.exchange.dispatcher import Dispatcher
    from muxway.net.message_trace import MessageTrace
    from muxway.wire.envelopes import Buffer

log = EventLog("client")

_DRAIN: Final = 5.0
"""Seconds that calls under way get to end after the client has closed its side, and it to read the last of it."""
_LAST_WORDS: Final = 0.5
"""How many of these are for reading in any case."""
_HOLD_ABOVE: Final = 64 * 1024
"""Bytes that wait for the pipe above which the rest waits here, where progress and log messages can be left out."""
_PAUSE_ABOVE: Final = 16 * 1024 * 1024
"""Bytes of unread answers above which no more requests are read."""


class StdioClientTransport:
    """Serves one client over two file descriptors."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        turn: Turn,
        *,
        stdin: int = 0,
        stdout: int = 1,
        max_message_bytes: int = DEFAULT_LIMIT,
    ) -> None:
        self._turn = turn
        self._dispatcher = dispatcher
        self._stdin, self._stdout = stdin, stdout
        self._framer = LineFramer(max_message_bytes)
        self._held = Outlet()
        self._ended = asyncio.Event()
        self._client_gone = False
        self._endpoint: Session | None = None
        self.trace: MessageTrace | None = None
        """Who is told of every message, if somebody is."""
        self.on_end: Callable[[], None] = lambda: None
        """Called when the client has closed its side, or `stop` was called."""

    async def serve(self) -> None:
        """Serve until the client closes its side, or `stop` is called; then finish what runs."""
        blocking = {fd: os.get_blocking(fd) for fd in (self._stdin, self._stdout)}
        for fd in blocking:
            os.set_blocking(fd, False)
            enlarge(fd)
        try:
            writer = PipeWriter(self._stdout, self._turn, self._broken, close_fd=False)
            trace = self.trace
            say = self._say if trace is None else trace.saying("client", self._say)
            self._endpoint = endpoint = Session(self._dispatcher, say, backlog=self._backlog, alone=True)
            self._hear_all = endpoint.hear_all if trace is None else trace.hearing("client", endpoint.hear_all)
            reader = PipeReader(self._stdin, self._turn, self._hear, self._ended.set, close_fd=False)
            self._reader, self._writer = reader, writer
            endpoint.on_heard = self._read_on
            writer.on_drained = self._drained
            await self._ended.wait()
            self.on_end()
            reader.close()
            if self._client_gone:
                endpoint.abandon()
            else:
                await self._finish(endpoint)
            writer.close()
        finally:
            if self._held.dropped:
                log.warning("the client read too slowly for all it was told", dropped=self._held.dropped)
            # A terminal is shared with the shell that started us: give it back as it was.
            for fd, was in blocking.items():
                os.set_blocking(fd, was)

    async def _finish(self, endpoint: Session) -> None:
        """Let the calls under way end, and the client read what they gave."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _DRAIN
        await endpoint.finish(_DRAIN - _LAST_WORDS)
        await asyncio.wait([asyncio.ensure_future(self._all_said())], timeout=until - loop.time())

    @property
    def client(self) -> str | None:
        """What its client calls itself, once it has."""
        known = None if self._endpoint is None else self._endpoint.session
        info = None if known is None or known.client_info is None else envelopes.members(known.client_info)
        return envelopes.text((info or {}).get("name"))

    def stop(self) -> None:
        """End as if the client had closed its side."""
        self._ended.set()

    def _hear(self, data: bytes) -> None:
        self._hear_all(self._framer.feed(data))
        if self._writer.queued + self._held.waiting > _PAUSE_ABOVE:
            # Not cut off, as over HTTP: a client that is stopped for a while, as in a debugger, would lose everything.
            log.warning("the client does not read its answers: its requests wait", unread=self._backlog())
            self._reader.pause()
        elif self._endpoint is not None and self._endpoint.unheard.behind:
            self._reader.pause()

    def _say(self, frame: Sequence[Buffer]) -> None:
        held = self._held
        if not held.waiting and self._writer.queued < _HOLD_ABOVE:
            self._writer.send(frame)
            return
        if not held.waiting:
            # The pipe may take all that waits at the end of this turn; if not, we are told when it has.
            asyncio.get_running_loop().call_soon(self._release)
        if is_large(frame):
            held.put(Parts([memoryview(part) for part in frame]))
            return
        message = b"".join(frame)
        held.put(message, lossy=notifications.may_be_lost(message))

    def _release(self) -> None:
        self._held.behind = self._writer.queued >= _HOLD_ABOVE
        if self._held.waiting and not self._held.behind:
            held = self._held.take()
            self._writer.send([held] if isinstance(held, bytes) else held.views)

    def _drained(self) -> None:
        self._release()
        self._read_on()

    def _read_on(self) -> None:
        """Take more, if the client reads its answers and all that it sent was heard."""
        if self._endpoint is not None and not self._endpoint.unheard.behind and self._backlog() <= _PAUSE_ABOVE:
            self._reader.resume()

    def _backlog(self) -> int:
        return self._writer.queued + self._held.waiting

    async def _all_said(self) -> None:
        """Wait until the client has read everything, or is gone."""
        await self._writer.drained()
        while self._writer.open and self._held.waiting:
            self._release()
            await self._writer.drained()

    def _broken(self) -> None:
        self._client_gone = True
        self._ended.set()
