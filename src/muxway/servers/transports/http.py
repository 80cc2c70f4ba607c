"""The transport to a server that is reached by URL: one POST per message, answers as JSON or as events.

Speaks Streamable HTTP of every revision, with sessions or without, and knows from the messages that pass by which
it is: an `initialize` result opens a session, an envelope in `_meta` says that there is none. Where a server takes
neither, HTTP+SSE of 2024-11-05 is tried (`http_sse`). The connection above sees frames and nothing of all this.
A request that fails is answered here, with an error that says what happened: one bad answer never ends the others.

A request that can be sent at once, and whose answer comes as one piece of JSON, is sent and heard without a task; all
else is waited for in one.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final

from muxway.calls.incidents import internal
from muxway.errors import ParseError, SpawnError, UpstreamError
from muxway.log import EventLog
from muxway.net.http_errors import HttpTrouble, refusal
from muxway.servers.transports.http_answers import EVENTS, JSON, HttpAnswers, with_id
from muxway.servers.transports.http_message import HttpMessage
from muxway.servers.transports.http_requests import HttpRequests, Turns
from muxway.servers.transports.http_retry import RemoteSession, session_after
from muxway.servers.transports.http_session import GOODBYE, NOTICE, POSTED, TOOLS_CHANGED, HandshakeSession
from muxway.servers.transports.http_sse import SseServerTransport, may_speak_sse
from muxway.servers.transports.http_tool_headers import ToolHeaders
from muxway.servers.transports.intake import FLOOD_SECONDS
from muxway.servers.transports.port import Outgoing
from muxway.wire import envelopes
from muxway.wire import headers as names
from muxway.wire.envelopes import ABSENT, NotAnEnvelope
from muxway.wire.large import LARGE_MESSAGE
from muxway.wire.pieces import is_large
from muxway.wire.sse import SseParser

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from msgspec import Raw

    from muxway.config.model import ServerConfig
    from muxway.net.http_line import HttpResponse
    from muxway.servers.transports.port import Credentials, Fail, Hear
    from muxway.wire.envelopes import Buffer, Envelope

_SPARE: Final = 36
"""Requests under way at once beside the calls that are let through (maxConcurrency): streams, lists, calls that wait
for their callers. Each has a connection of its own."""
_NOTICES: Final = 8
"""The same for what must not wait behind them: cancellations and answers."""
_POOL_WAIT: Final = 5.0
_MAY_HAVE_RUN: Final = "the call may have run, so it was not sent again"
_OUR_FAULT: Final = "could not be asked, through a fault in muxway; its log says more"
_EXCERPT: Final = 4096
_ERROR_BODY: Final = 256 * 1024

log = EventLog("upstream")


class _Doubtful(Exception):
    """A call was refused for a session that may be unknown; whether it was taken is not known."""

    def __init__(self, trouble: HttpTrouble) -> None:
        super().__init__()
        self.trouble = trouble


class HttpServerTransport:
    """One remote server."""

    remote = True
    own_process = False

    def __init__(self, config: ServerConfig, max_message_bytes: int, credentials: Credentials | None = None) -> None:
        self._name = config.name
        self._kind = config.transport
        self._limit = max_message_bytes
        self._most_at_once = min(max_message_bytes, LARGE_MESSAGE)
        """Bytes of an answer that is heard where it is read."""
        self._requests = HttpRequests(config, credentials)
        self._session = HandshakeSession(config.name, self._exchange, self._get, self._spawn)
        self._tool_headers = ToolHeaders(config.name)
        self.send: Callable[[Sequence[Buffer], Outgoing], None] = self._send
        self._events: SseServerTransport | None = None
        """The HTTP+SSE connection, when that is what the server speaks."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[bytes, HttpMessage] = {}
        self._turns = Turns(config.max_concurrency + _SPARE)
        self._notice_turns = Turns(_NOTICES)
        self._queued = 0
        self._closed = False

    @property
    def queued(self) -> int:
        return self._queued

    async def open(self, hear: Hear, lost: Callable[[str], None], fail: Fail, /) -> None:
        self._report_lost, self._report_failure = lost, fail
        self._answers = HttpAnswers(hear, self._limit, lambda: self._requests.secrets, self._note_answer, self._flooded)
        await self._requests.open()
        if self._kind == "sse":
            try:
                await self._open_events()
            except HttpTrouble as trouble:
                raise SpawnError(f"it {trouble.what}") from trouble

    def introduced(self) -> None:
        """Nothing to show: it writes for people elsewhere."""
        self._requests.greeted = True

    def last_words(self) -> str | None:
        return None

    async def close(self, *, at_once: bool = False) -> None:
        del at_once
        self._closed = True
        client, self._requests.client = self._requests.client, None
        try:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=GOODBYE)
            if client is not None:
                await self._session.end(client, self._requests.url, self._requests.shown)
        finally:
            # Also when whoever closes is in a hurry: the connections must not outlive us.
            if self._events is not None:
                self._events.close()
            if client is not None:
                await client.close()

    # --- sending ------------------------------------------------------------------------------

    def _send(self, frame: Sequence[Buffer], about: Outgoing) -> None:
        if self._closed or self._requests.client is None:
            return
        if about.method is None and self._session.version is None and self._events is None:
            # A server of 2026-07-28 may not ask, and has nobody who would take an answer.
            return
        method, _, params = about
        stateless = names.stateless_headers(method or "", params) if "_meta" in params else None
        if is_large(frame):
            message = HttpMessage(b"", *about, stateless, (*frame[:-1], bytes(frame[-1]).rstrip(b"\n")))
        else:
            message = HttpMessage(b"".join(frame).rstrip(b"\n"), *about, stateless)
        if method == "tools/list":
            self._tool_headers.asked(params)
        if method == "notifications/cancelled":
            self._cancel(message, bytes(params["requestId"]))
        else:
            self._start(message)

    def _start(self, message: HttpMessage) -> None:
        message.queued = len(message.body) if message.parts is None else sum(map(len, message.parts))
        self._queued += message.queued
        if message.id:
            self._running[message.id] = message
            # The answer to an `initialize` has a header that must be looked at.
            if message.method != "initialize" and message.parts is None and self._sent_at_once(message):
                return
        self._wait_for(message, self._carry(message, self._session.gate))
        if message.method == "notifications/initialized":
            self._session.initialized(message)

    def _sent_at_once(self, message: HttpMessage) -> bool:
        """Send a message if nothing has to be waited for before; whether that was so."""
        gate = self._session.gate
        if self._events is not None or (gate is not None and not gate.done()) or not self._turns.take_now():
            return False
        message.turn = self._turns
        try:
            message.sent = sent = self._requests.post(self._headers_for(message), message.body)
        except HttpTrouble:
            sent = None  # Why it cannot be sent at all is found out again, and told, by whoever waits for it.
        if sent is None:
            message.turn = None
            self._turns.give_back()
            return False
        message.waiting = False
        sent.response.on_next(partial(self._came, message, sent.response))
        return True

    def _came(self, message: HttpMessage, response: HttpResponse) -> None:
        """Something has come back for a message that nobody waits for: most often, its whole answer."""
        if self._closed:
            return
        is_json = response.status == 200 and response.content_type == JSON
        body = response.whole() if is_json and 0 < response.unread <= self._most_at_once else None
        if body is None:
            self._wait_for(message, self._go_on(message))
            return
        self._over(message)
        try:
            self._answers.take(body, message)
            if not message.answered:
                raise _other_answer()
        except HttpTrouble as trouble:
            self._fail(message, trouble)
        except Exception as error:  # noqa: BLE001 - whatever it is, its caller waits for an answer
            internal(error, upstream=self._name)
            self._fail(message, HttpTrouble(_OUR_FAULT))

    def _wait_for(self, message: HttpMessage, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Have somebody wait for what becomes of a message."""
        message.task = self._spawn(work)
        message.task.add_done_callback(partial(self._carried, message))
        return message.task

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, HttpTrouble):
            log.error("failed inside", upstream=self._name, error=f"{type(error).__name__}: {error}")

    def _carried(self, message: HttpMessage, task: asyncio.Task[None]) -> None:
        self._over(message)
        if not task.cancelled() and task.exception() is not None:
            self._fail(message, HttpTrouble(_OUR_FAULT))

    def _over(self, message: HttpMessage) -> None:
        """Nothing more is done for a message."""
        self._queued -= message.queued
        turns, sent = message.turn, message.sent
        message.queued, message.turn, message.sent = 0, None, None
        if turns is not None:
            turns.give_back()
        if sent is not None and not sent.response.received:
            sent.response.close()
        if self._running.get(message.id) is message:
            del self._running[message.id]

    async def _carry(self, message: HttpMessage, gate: asyncio.Task[None] | None) -> None:
        """Bring one message to the server and its answer back, or an error in its place."""
        if gate is not None and not gate.done():
            await asyncio.wait([gate])
        turns = self._turns if message.id else self._notice_turns
        try:
            await turns.take(_POOL_WAIT)
        except TimeoutError:
            busy = f"has {turns.most} requests under way and did not finish one within {_POOL_WAIT:g} s"
            self._fail(message, HttpTrouble(f"{busy}; try again later", "overloaded", retry_after=_POOL_WAIT))
            return
        message.turn = turns
        await message.put_together()
        message.waiting = False
        await self._go_on(message)

    async def _go_on(self, message: HttpMessage) -> None:
        """Do what is left to do for a message whose turn it is, and which may have been sent."""
        try:
            # How long a request may take is the connection's to say; nobody watches over the rest.
            async with asyncio.timeout(None if message.id else NOTICE):
                if self._events is None:
                    await self._post(message)
                else:
                    await self._events.post(message, self._session.posted)
            if message.id and not message.answered and self._events is None:
                raise _other_answer()
        except TimeoutError:
            self._fail(message, HttpTrouble(f"did not take it within {NOTICE:g} s", "timeout"))
        except HttpTrouble as trouble:
            self._fail(message, trouble)

    def _taken(self, message: HttpMessage) -> None:
        """The server has the message."""
        self._queued -= message.queued
        message.queued = 0

    def _fail(self, message: HttpMessage, trouble: HttpTrouble) -> None:
        if not message.id:
            log.debug("not taken", upstream=self._name, method=message.method or "an answer", why=trouble.what)
        elif not message.answered and not self._closed:
            message.answered = True
            why = f'server "{self._name}" {trouble.what}'
            error = UpstreamError(self._name, trouble.reason, why, retry_after=trouble.retry_after)
            self._report_failure(message.id, error, broken=trouble.broken)
        shown = self._requests.credentials
        if trouble.reason == "login_needed" and self._requests.greeted and shown is not None and shown.header is None:
            # Nothing else would be answered, either.
            self._lose(trouble.what)

    def _cancel(self, notice: HttpMessage, id_: bytes) -> None:
        """Nobody waits for this request any more."""
        request = self._running.get(id_)
        task = None if request is None else request.task
        if request is not None and request.sent is not None and task is None:
            task = self._wait_for(request, self._go_on(request))
        if request is None or task is None:
            # It has been answered, unless answers come another way.
            if self._events is not None:
                self._start(notice)
        elif request.waiting or request.stateless is not None or request.method == "initialize":
            # In 2026-07-28 the closed connection is the cancellation; an `initialize` must not be cancelled at all.
            task.cancel()
        else:
            self._start(notice)
            if notice.task is not None:
                self._spawn(self._hang_up(task, notice.task))

    async def _hang_up(self, request: asyncio.Task[None], notice: asyncio.Task[None]) -> None:
        # A server need not answer what was cancelled, and some then leave the connection open for ever.
        await asyncio.wait([notice], timeout=_POOL_WAIT)
        await asyncio.wait([request], timeout=1.0)
        request.cancel()

    # --- one exchange -------------------------------------------------------------------------

    def _headers_for(self, message: HttpMessage) -> dict[str, str]:
        message.sent_in = None
        if message.stateless is not None:
            return POSTED | message.stateless | self._tool_headers.of(message)
        if message.method == "initialize":
            # For servers of 2026-07-28, which want it with every request; the others do not look.
            return POSTED | {names.METHOD: message.method}
        message.sent_in = self._session.id
        return self._session.posted

    async def _post(self, message: HttpMessage) -> None:
        try:
            if await self._exchange(message):
                return
        except _Doubtful as doubt:
            # It may have been taken, so it is not sent again; whatever comes next finds a session that is known.
            with contextlib.suppress(HttpTrouble):
                await self._session.renew(message.sent_in, self._answers)
            raise doubt.trouble from None
        # The server has refused the message for something that can be mended: so it may be sent again, once.
        if message.stateless is None:
            await self._session.renew(message.sent_in, self._answers)
        else:
            await self._tool_headers.relearn(self._exchange)
            # Clients have to learn them too.
            self._answers.hear([TOOLS_CHANGED])
        await self._exchange(message, again=True)

    async def _exchange(self, message: HttpMessage, *, again: bool = False) -> bool:
        """Post the message, unless it was, and hear what comes of it.

        False: it was refused, as the server does not know our session any more, or wants other headers.
        """
        parser = SseParser(self._limit)
        sent, message.sent = message.sent, None
        session, headers = message.sent_in, self._headers_for(message)
        if sent is not None:
            message.sent_in = session
        async with await self._requests.request("POST", self._requests.url, headers, message.body, sent) as response:
            self._taken(message)
            if not 200 <= response.status < 300:
                start = await response.start(_ERROR_BODY, GOODBYE)
                if message.sent_in is not None and message.id:
                    known = session_after(response.status, start, message.id)
                    if known is RemoteSession.DOUBTFUL and not again and message.method == "tools/call":
                        wait, more = response.header("Retry-After"), f"; {_MAY_HAVE_RUN}"
                        raise _Doubtful(
                            refusal(response.status, start, self._requests.secrets, retry_after=wait, more=more)
                        )
                    if known is not RemoteSession.FINE and not again:
                        return False
                    if response.status == 404 and known is not RemoteSession.FINE:
                        raise HttpTrouble("forgets its sessions as soon as it has opened them")
                if not again and self._tool_headers.are_wrong(message, _error_in(start)):
                    return False
                await self._refused(message, response, start)
                return True
            if message.method == "initialize":
                message.session = _session_in(response)
            if not message.id:
                if message.method == "notifications/initialized" and not message.quiet:
                    self._session.overhear(self._answers)
                return True
            why = (await self._answers.read(message, response, parser)).why
        if not message.answered and response.content_type == EVENTS:
            await self._answers.resume(message, parser, why, self._get)
        return True

    async def _refused(self, message: HttpMessage, response: HttpResponse, start: bytes) -> None:
        """An HTTP error. What it says in JSON-RPC is the answer; otherwise its status is made into one."""
        error = _error_in(start)
        code = None if error is None else (said.code if (said := envelopes.said_error(error)) is not None else None)
        other = ""
        if self._kind == "auto" and may_speak_sse(message, response.status, code):
            try:
                await self._open_events()
            except HttpTrouble as trouble:
                other = f"; nor does it speak HTTP+SSE: it {trouble.what}"
            else:
                log.debug("speaks HTTP+SSE", upstream=self._name)
                if self._events is not None:
                    await self._events.post(message, self._session.posted)
                    return
        if message.id and error is not None and code is not None:
            # Refusals often come with no id or an invented one; it is clear whom this concerns.
            self._answers.answer(message, with_id(message.id, error))
            return
        wait, challenge = response.header("Retry-After"), response.header("WWW-Authenticate")
        raise refusal(
            response.status,
            start[:_EXCERPT],
            self._requests.secrets,
            retry_after=wait,
            challenge=challenge,
            more=other,
        )

    def _note_answer(self, message: HttpMessage, envelope: Envelope, frame: bytes) -> bytes:
        """Learn from the answer to a message of `NOTED` what this transport has to know; what to hear of it."""
        if message.method == "tools/list":
            return self._tool_headers.learn(message, envelope, frame)
        if not self._session.opened_by(message, envelope):
            self._lose("came back with another protocol version")
        return frame

    async def _get(self, last_id: str) -> HttpResponse:
        headers = {"Accept": EVENTS, **self._session.headers}
        if last_id:
            headers[names.LAST_EVENT_ID] = last_id
        return await self._requests.request("GET", self._requests.url, headers)

    # --- HTTP+SSE -----------------------------------------------------------------------------

    async def _open_events(self) -> None:
        self._events = await SseServerTransport.open(self._requests, self._answers)
        self._spawn(self._follow_events(self._events))

    async def _follow_events(self, events: SseServerTransport) -> None:
        self._lose(await events.follow(self._nudge))

    def _nudge(self) -> None:
        """Ask the server whether it is there. Its answer is a sign of life; the connection knows no such request."""
        about = Outgoing("ping", b'"muxway-idle"')
        self._start(HttpMessage(b"".join(envelopes.request(about.id, "ping")).rstrip(b"\n"), *about))

    def _flooded(self) -> None:
        self._lose(f"flooded its event streams for {FLOOD_SECONDS:g} s with what nobody asked for")

    def _lose(self, why: str) -> None:
        if not self._closed:
            self._closed = True
            self._report_lost(why)


def _other_answer() -> HttpTrouble:
    return HttpTrouble("gave an answer to another request than the one asked", "malformed")


def _session_in(response: HttpResponse) -> str | None:
    session = response.header(names.SESSION)
    if session is not None and not names.is_session_id(session):
        raise HttpTrouble("gave a session id that cannot be sent back", "malformed")
    return session


def _error_in(body: bytes) -> Raw | None:
    """The error member of a JSON-RPC error response."""
    try:
        envelope = envelopes.decode(body)
    except (ParseError, NotAnEnvelope):
        return None
    return None if envelope.error is ABSENT or envelope.method is not None else envelope.error
