"""The transport to a server that is reached by URL: one POST per message, answers as JSON or as events.

Speaks Streamable HTTP of every revision, with sessions or without, and knows from the messages that pass by which
it is: an `initialize` result opens a session, an envelope in `_meta` says that there is none. Where a server takes
neither, HTTP+SSE of 2024-11-05 is tried (`http_sse`). The connection above sees frames and nothing of all this.
A request that fails is answered here, with an error that says what happened: one bad answer never ends the others.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

from muxway.config.tls import ServerTls
from muxway.errors import HEADER_MISMATCH, STATELESS_CODES, MethodNotFound, ParseError, SpawnError, UpstreamError
from muxway.log import EventLog
from muxway.net.http_errors import HttpTrouble, excerpt, refusal
from muxway.net.tls import Certificate, client_context
from muxway.servers.transports.http_intake import HttpIntake, one_line
from muxway.servers.transports.http_retry import Pauses, RemoteSession, session_after
from muxway.servers.transports.http_sse import SseServerTransport
from muxway.servers.transports.intake import FLOOD_SECONDS
from muxway.servers.transports.port import RENEWED, Outgoing
from muxway.wire import envelopes
from muxway.wire import headers as names
from muxway.wire.envelopes import ABSENT, Envelope, NotAnEnvelope
from muxway.wire.framing import Oversized
from muxway.wire.sse import SseParser

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from msgspec import Raw

    from muxway.config.model import ServerConfig
    from muxway.net.http_client import HttpClient, HttpResponse
    from muxway.servers.transports.port import Credentials, Fail, Hear
    from muxway.wire.envelopes import Buffer
    from muxway.wire.large import Opened
    from muxway.wire.sse import SseEvent

_SPARE: Final = 36
"""Requests under way at once beside the calls that are let through (maxConcurrency): streams, lists, calls that wait
for their callers. Each has a connection of its own."""
_NOTICES: Final = 8
"""The same for what must not wait behind them: cancellations and answers."""
_NOTICE: Final = 10.0
_RENEWAL: Final = 30.0
_POOL_WAIT: Final = 5.0
_IDLE: Final = 300.0
"""Seconds of silence after which the stream for unasked messages is opened anew."""
_LINGER: Final = 0.25
"""Seconds that a stream may stay open after its answer: if it ends by then, its connection can be used again."""
_TRIES: Final = 5
"""Attempts in a row to resume a stream, without anything new from it."""
_LONGEST_PAUSE: Final = 30.0
_RESUMED_AFTER: Final = 1.0
"""Seconds between two attempts to resume the stream of a call, if the server does not wish for more."""
_UNHURRIED: Final = 1.0
"""Seconds after which the stream for unasked messages is opened anew, if the server does not say."""
_LASTING: Final = 5.0
"""Seconds after which a stream that brought nothing was none in vain: it may just be how long they are kept open."""
_MAY_HAVE_RUN: Final = "the call may have run, so it was not sent again"
_GOODBYE: Final = 2.0
_EXCERPT: Final = 4096
_ERROR_BODY: Final = 256 * 1024
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_AUTHORIZATION: Final = "Authorization"
_REFUSALS: Final = (401, 403)
_MOST_REFUSALS: Final = 3
"""How often one request is sent with other credentials."""
_NO_SSE_HINT: Final = frozenset((401, 403, 429))
"""Refusals that say nothing about which transport is spoken."""
_ANNOTATION: Final = names.ANNOTATION.encode()
_TOOLS_CHANGED: Final = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
_ALL_CHANGED: Final = (
    b'{"jsonrpc":"2.0","method":"%b"}' % RENEWED.encode(),
    _TOOLS_CHANGED,
    b'{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}',
    b'{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}',
)
_PAGES: Final = 100
"""Most pages of a list that are read again."""

log = EventLog("upstream")


class _Ended(NamedTuple):
    """How a stream ended, and how many messages it brought."""

    why: str
    heard: int = 0


class _Doubtful(Exception):
    """A call was refused for a session that may be unknown; whether it was taken is not known."""

    def __init__(self, trouble: HttpTrouble) -> None:
        super().__init__()
        self.trouble = trouble


class _Message:
    """One message on its way."""

    __slots__ = (
        "answered",
        "body",
        "cursor",
        "id",
        "method",
        "params",
        "queued",
        "quiet",
        "session",
        "stateless",
        "task",
        "waiting",
    )

    def __init__(self, body: bytes, about: Outgoing, *, quiet: bool = False) -> None:
        self.body = body
        self.method, self.id, self.params = about
        self.stateless = None if self.method is None else names.stateless_headers(self.method, self.params)
        self.quiet = quiet
        """Whether the answer is for this transport only."""
        self.queued = not quiet
        """Whether it counts as not taken yet."""
        self.session: str | None = None
        """The session id that came with the answer to an `initialize`."""
        self.cursor: Raw | None = None
        """Where the list goes on, of which the answer was a page."""
        self.answered = False
        self.waiting = not quiet
        """Whether it still waits for its turn, so that the server knows nothing of it."""
        self.task: asyncio.Task[None] | None = None

    def again(self) -> _Message:
        """The same once more, for this transport only."""
        return _Message(self.body, Outgoing(self.method, self.id, self.params), quiet=True)

    def is_answer(self, envelope: Envelope) -> bool:
        """Whether this is the answer to it; some servers give a number back as a string."""
        return envelope.method is None and bytes(envelope.id).strip(b'"') == self.id.strip(b'"') != b""


class HttpServerTransport:
    """One remote server."""

    remote = True
    own_process = False

    def __init__(self, config: ServerConfig, max_message_bytes: int, credentials: Credentials | None = None) -> None:
        self._credentials = credentials
        self._greeted = False
        self._name = config.name
        self._config = config
        self._url = config.url or ""
        self._limit = max_message_bytes
        # A server may send back the headers it got, in an error page for instance.
        sent = config.headers.values()
        self._written = config.secrets.union(sent, (value.rpartition(" ")[2] for value in sent))
        self.send: Callable[[Sequence[Buffer], Outgoing], None] = self._send
        self._client: HttpClient | None = None
        self._intake = HttpIntake(self._flooded)
        self._events: SseServerTransport | None = None
        """The HTTP+SSE connection, when that is what the server speaks."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[bytes, _Message] = {}
        self._most = config.max_concurrency + _SPARE
        self._requests = asyncio.Semaphore(self._most)
        self._notices = asyncio.Semaphore(_NOTICES)
        self._queued = 0
        self._closed = False
        # --- what a handshake agreed on ---
        self._session: str | None = None
        self._version: str | None = None
        self._hello: _Message | None = None
        self._initialized: _Message | None = None
        self._gate: asyncio.Task[None] | None = None
        """What later messages wait for: the server must have heard `notifications/initialized` before them."""
        self._params: dict[str, names.ParamHeaders] = {}
        """What the tools of a stateless server want repeated in headers: tool → headers."""
        self._listing: Mapping[str, Buffer] | None = None
        """How its tools were asked for, from the first page on."""
        self._renewal: asyncio.Task[None] | None = None
        self._overhearing: asyncio.Task[None] | None = None

    @property
    def queued(self) -> int:
        return self._queued

    @property
    def _secrets(self) -> frozenset[str]:
        return self._written if self._credentials is None else self._written | self._credentials.secrets

    async def open(self, hear: Hear, lost: Callable[[str], None], fail: Fail, /) -> None:
        # Here, so that whoever has no remote server never loads the library.
        from muxway.net.http_client import HttpClient

        self._hear, self._report_lost, self._report_failure = hear, lost, fail
        config = self._config
        # A context takes milliseconds to make: it reads all the system's authorities.
        tls = None if config.tls == ServerTls() else await asyncio.to_thread(tls_context, config.tls)
        self._client = HttpClient(self._url, config.headers, tls=tls, proxy=config.proxy)
        if self._config.transport == "sse":
            try:
                await self._open_events()
            except HttpTrouble as trouble:
                raise SpawnError(f"it {trouble.what}") from trouble

    def introduced(self) -> None:
        """Nothing to show: it writes for people elsewhere."""
        self._greeted = True

    def last_words(self) -> str | None:
        return None

    async def close(self, *, at_once: bool = False) -> None:
        del at_once
        self._closed = True
        client, self._client = self._client, None
        try:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_GOODBYE)
            if client is not None and self._session is not None:
                await self._end_session(client)
        finally:
            # Also when whoever closes is in a hurry: the connections must not outlive us.
            if self._events is not None:
                self._events.close()
            if client is not None:
                await client.close()

    async def _end_session(self, client: HttpClient) -> None:
        # A courtesy: a server that is gone, slow or keeps its sessions forgets this one by itself some day.
        with contextlib.suppress(HttpTrouble, TimeoutError):
            async with asyncio.timeout(_GOODBYE):
                headers = self._session_headers()
                if self._credentials is not None and self._credentials.header is not None:
                    headers[_AUTHORIZATION] = self._credentials.header
                (await client.request("DELETE", self._url, headers)).close()

    # --- sending ------------------------------------------------------------------------------

    def _send(self, frame: Sequence[Buffer], about: Outgoing) -> None:
        if self._closed or self._client is None:
            return
        if about.method is None and self._version is None and self._events is None:
            # A server of 2026-07-28 may not ask, and has nobody who would take an answer.
            return
        message = _Message(b"".join(frame).rstrip(b"\n"), about)
        if about.method == "tools/list":
            self._listing = {name: raw for name, raw in about.params.items() if name != "cursor"}
        if about.method == "notifications/cancelled":
            self._cancel(message, bytes(about.params["requestId"]))
        else:
            self._start(message)

    def _start(self, message: _Message) -> None:
        if message.id:
            self._running[message.id] = message
        self._queued += len(message.body)
        message.task = self._spawn(self._carry(message, self._gate))
        message.task.add_done_callback(lambda task: self._carried(message, task))
        if message.method == "notifications/initialized":
            self._initialized = message
            self._gate = message.task

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

    def _carried(self, message: _Message, task: asyncio.Task[None]) -> None:
        self._taken(message)
        if self._running.get(message.id) is message:
            del self._running[message.id]
        if not task.cancelled() and task.exception() is not None:
            self._fail(message, HttpTrouble("could not be asked, through a fault in muxway; its log says more"))

    async def _carry(self, message: _Message, gate: asyncio.Task[None] | None) -> None:
        """Bring one message to the server and its answer back, or an error in its place."""
        if gate is not None and not gate.done():
            await asyncio.wait([gate])
        turn = self._requests if message.id else self._notices
        try:
            try:
                async with asyncio.timeout(_POOL_WAIT if turn.locked() else None):
                    await turn.acquire()
            except TimeoutError:
                busy = f"has {self._most} requests under way and did not finish one within {_POOL_WAIT:g} s"
                raise HttpTrouble(f"{busy}; try again later", "overloaded", retry_after=_POOL_WAIT) from None
            try:
                message.waiting = False
                # How long a request may take is the connection's to say; nobody watches over the rest.
                async with asyncio.timeout(None if message.id else _NOTICE):
                    await (self._post(message) if self._events is None else self._post_event(message, self._events))
            except TimeoutError:
                raise HttpTrouble(f"did not take it within {_NOTICE:g} s", "timeout") from None
            finally:
                turn.release()
            if message.id and not message.answered and self._events is None:
                raise HttpTrouble("gave an answer to another request than the one asked", "malformed")
        except HttpTrouble as trouble:
            self._fail(message, trouble)

    def _taken(self, message: _Message) -> None:
        """The server has the message, or never will."""
        if message.queued:
            message.queued = False
            self._queued -= len(message.body)

    def _fail(self, message: _Message, trouble: HttpTrouble) -> None:
        if not message.id:
            log.debug("not taken", upstream=self._name, method=message.method or "an answer", why=trouble.what)
        elif not message.answered and not self._closed:
            message.answered = True
            why = f'server "{self._name}" {trouble.what}'
            error = UpstreamError(self._name, trouble.reason, why, retry_after=trouble.retry_after)
            self._report_failure(message.id, error, broken=trouble.broken)
        shown = self._credentials
        if trouble.reason == "login_needed" and self._greeted and shown is not None and shown.header is None:
            # Nothing else would be answered, either.
            self._lose(trouble.what)

    def _cancel(self, notice: _Message, id_: bytes) -> None:
        """Nobody waits for this request any more."""
        request = self._running.get(id_)
        if request is None or request.task is None:
            # It has been answered, unless answers come another way.
            if self._events is not None:
                self._start(notice)
        elif request.waiting or request.stateless is not None or request.method == "initialize":
            # In 2026-07-28 the closed connection is the cancellation; an `initialize` must not be cancelled at all.
            request.task.cancel()
        else:
            self._start(notice)
            if notice.task is not None:
                self._spawn(self._hang_up(request.task, notice.task))

    async def _hang_up(self, request: asyncio.Task[None], notice: asyncio.Task[None]) -> None:
        # A server need not answer what was cancelled, and some then leave the connection open for ever.
        await asyncio.wait([notice], timeout=_POOL_WAIT)
        await asyncio.wait([request], timeout=1.0)
        request.cancel()

    # --- one exchange -------------------------------------------------------------------------

    async def _request(self, method: str, url: str, headers: dict[str, str], body: bytes | None = None) -> HttpResponse:
        if self._client is None:
            raise HttpTrouble("was stopped")
        credentials = self._credentials
        if credentials is None:
            return await self._client.request(method, url, headers, body)
        for _ in range(_MOST_REFUSALS):
            if credentials.due():
                await credentials.prepare()
            sent = credentials.header
            shown = headers if sent is None else {**headers, _AUTHORIZATION: sent}
            response = await self._client.request(method, url, shown, body)
            if response.status not in _REFUSALS:
                return response
            # It was not taken, so it may be sent again.
            try:
                challenges = response.headers("WWW-Authenticate")
                again = await credentials.refused(response.status, challenges, sent, known=self._greeted)
            except BaseException:
                response.close()
                raise
            if not again:
                return response
            response.close()
        raise HttpTrouble("refuses every login that it has given")

    def _session_headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        if self._version is not None:
            headers[names.VERSION] = self._version
        if self._session is not None:
            headers[names.SESSION] = self._session
        return headers

    def _headers_for(self, message: _Message) -> dict[str, str]:
        headers = {"Content-Type": _JSON, "Accept": f"{_JSON}, {_EVENTS}"}
        if message.stateless is not None:
            return headers | message.stateless | self._param_headers_for(message)
        if message.method == "initialize":
            # For servers of 2026-07-28, which want it with every request; the others do not look.
            return headers | {names.METHOD: message.method}
        return headers | self._session_headers()

    def _param_headers_for(self, message: _Message) -> dict[str, str]:
        if message.method != "tools/call" or not self._params:
            return {}
        wanted = self._params.get(envelopes.text(message.params.get("name")) or "")
        arguments = message.params.get("arguments")
        return {} if arguments is None or wanted is None else names.param_values(wanted, envelopes.value(arguments))

    def _wants_other_headers(self, message: _Message, refusal: bytes) -> bool:
        if message.stateless is None or message.method != "tools/call" or self._listing is None:
            return False
        error = _error_in(refusal)
        said = None if error is None else envelopes.said_error(error)
        return said is not None and said.code == HEADER_MISMATCH

    async def _relearn_headers(self) -> None:
        """List the tools again, to learn which headers they want now."""
        log.info("wants other headers; listing its tools again", upstream=self._name)
        params = dict(self._listing or {})
        for _ in range(_PAGES):
            about = Outgoing("tools/list", b'"muxway-headers"', params)
            page = b"".join(envelopes.request(about.id, "tools/list", envelopes.object_of(params.items())))
            asked = _Message(page.rstrip(b"\n"), about, quiet=True)
            try:
                async with asyncio.timeout(_RENEWAL):
                    await self._exchange(asked)
            except TimeoutError:
                why = f"wants other headers than it said, and did not list its tools again within {_RENEWAL:g} s"
                raise HttpTrouble(why, "timeout") from None
            if asked.cursor is None:
                break
            params["cursor"] = asked.cursor
        # Clients have to learn them too.
        self._hear([_TOOLS_CHANGED])

    async def _post(self, message: _Message) -> None:
        session = self._session
        try:
            if await self._exchange(message):
                return
        except _Doubtful as doubt:
            # It may have been taken, so it is not sent again; whatever comes next finds a session that is known.
            with contextlib.suppress(HttpTrouble):
                await self._renew(session)
            raise doubt.trouble from None
        # The server has refused the message for something that can be mended: so it may be sent again, once.
        if message.stateless is None:
            await self._renew(session)
        else:
            await self._relearn_headers()
        await self._exchange(message, again=True)

    async def _exchange(self, message: _Message, *, again: bool = False) -> bool:
        """Post the message and hear what comes of it.

        False: it was refused, as the server does not know our session any more, or wants other headers.
        """
        session = self._session if message.stateless is None and message.method != "initialize" else None
        parser = SseParser(self._limit)
        async with await self._request("POST", self._url, self._headers_for(message), message.body) as response:
            self._taken(message)
            if not 200 <= response.status < 300:
                start = await response.start(_ERROR_BODY, _GOODBYE)
                if session is not None and message.id:
                    known = session_after(response.status, start, message.id)
                    if known is RemoteSession.DOUBTFUL and not again and message.method == "tools/call":
                        wait = response.header("Retry-After")
                        raise _Doubtful(
                            refusal(response.status, start, self._secrets, retry_after=wait, more=f"; {_MAY_HAVE_RUN}")
                        )
                    if known is not RemoteSession.FINE and not again:
                        return False
                    if response.status == 404 and known is not RemoteSession.FINE:
                        raise HttpTrouble("forgets its sessions as soon as it has opened them")
                if not again and self._wants_other_headers(message, start):
                    return False
                await self._refused(message, response, start)
                return True
            if message.method == "initialize":
                message.session = _session_in(response)
            if not message.id:
                if message.method == "notifications/initialized" and not message.quiet:
                    self._overhear()
                return True
            why = (await self._hear_body(message, response, parser)).why
        if not message.answered and response.content_type == _EVENTS:
            await self._resume(message, parser, why)
        return True

    async def _hear_body(self, message: _Message, response: HttpResponse, parser: SseParser) -> _Ended:
        if response.content_type == _EVENTS:
            return await self._listen(response, parser, message)
        if response.content_type == _JSON or response.content_type.endswith("+json"):
            body = await response.read(self._limit)
            if body:
                body, opened = await self._intake.open(body)
                self._hear_frame(body, message, opened)
                return _Ended("")
        start = await response.start(_EXCERPT, _GOODBYE)
        if not start:
            raise HttpTrouble(f"took the request with HTTP status {response.status} but gave no answer", "malformed")
        kind = response.content_type or "something of no stated type"
        shown = excerpt(start, self._secrets)
        raise HttpTrouble(f"answered with {kind} instead of JSON or an event stream: {shown}", "malformed")

    async def _refused(self, message: _Message, response: HttpResponse, start: bytes) -> None:
        """An HTTP error. What it says in JSON-RPC is the answer; otherwise its status is made into one."""
        error = _error_in(start)
        code = None if error is None else (said.code if (said := envelopes.said_error(error)) is not None else None)
        other = ""
        if self._may_be_events(message, response.status, code):
            try:
                await self._open_events()
            except HttpTrouble as trouble:
                other = f"; nor does it speak HTTP+SSE: it {trouble.what}"
            else:
                log.debug("speaks HTTP+SSE", upstream=self._name)
                if self._events is not None:
                    await self._post_event(message, self._events)
                    return
        if message.id and error is not None and code is not None:
            # Refusals often come with no id or an invented one; it is clear whom this concerns.
            self._heard(message, _with_id(message.id, error))
            return
        wait, challenge = response.header("Retry-After"), response.header("WWW-Authenticate")
        raise refusal(
            response.status, start[:_EXCERPT], self._secrets, retry_after=wait, challenge=challenge, more=other
        )

    def _may_be_events(self, message: _Message, status: int, code: int | None) -> bool:
        return (
            message.method == "initialize"
            and not message.quiet
            and self._config.transport == "auto"
            and 400 <= status < 500
            and status not in _NO_SSE_HINT
            and code not in STATELESS_CODES
        )

    # --- hearing ------------------------------------------------------------------------------

    def _hear_frame(self, frame: bytes, message: _Message | None, known: Opened | None = None) -> int:
        """One JSON-RPC message of the server's, or something that should have been one; what is `known` of it.

        Returns how much of it nobody had asked for.
        """
        if known is None:
            frame = one_line(frame)
        if message is None or message.answered:
            return self._hear([frame], b"" if message is None else message.id, known)
        unasked = 0
        parts = [frame]
        if known is None and envelopes.is_batch(frame):
            with contextlib.suppress(ParseError, NotAnEnvelope):
                parts = envelopes.decode_batch(frame)
        for part in parts:
            opened: Envelope | None = None
            try:
                envelope = opened = _opened(part, known)
            except (ParseError, NotAnEnvelope) as error:
                salvaged = envelopes.salvage(part)
                if salvaged is None:
                    said = excerpt(part[:_EXCERPT], self._secrets)
                    raise HttpTrouble(f"sent an answer that cannot be read ({error}): {said}", "malformed") from None
                envelope = salvaged
            if message.is_answer(envelope):
                self._note_answer(message, envelope)
                answer = self._note_tools(message, envelope, part)
                self._heard(message, answer, opened if answer is part else None)
            elif _nameless_error(envelope):
                self._heard(message, _with_id(message.id, envelope.error))
            else:
                unasked += self._hear([part], message.id, opened)
        return unasked

    def _heard(self, message: _Message, frame: bytes, opened: Envelope | None = None) -> None:
        message.answered = True
        if not message.quiet and not self._closed:
            self._hear([frame], b"", opened)

    def _note_answer(self, message: _Message, envelope: Envelope) -> None:
        if message.method == "initialize" and envelope.result is not ABSENT:
            version = envelopes.text((envelopes.members(envelope.result) or {}).get("protocolVersion"))
            if message.quiet and version != self._version:
                self._lose("came back with another protocol version")
            if version is not None and names.encode_value(version) == version:
                self._version = version
            self._session, self._hello = message.session, message

    def _note_tools(self, message: _Message, envelope: Envelope, frame: bytes) -> bytes:
        """Learn from a list of tools which headers they want; leave out those that want it wrongly, as one must."""
        if message.method != "tools/list" or message.stateless is None:
            return frame
        if _ANNOTATION not in frame and not self._params and not message.quiet:
            return frame
        result = envelopes.members(envelope.result) or {}
        message.cursor = result.get("nextCursor")
        kept: list[bytes] = []
        for tool in envelopes.items(result.get("tools", b"")) or []:
            members = envelopes.members(tool) or {}
            name = envelopes.text(members.get("name")) or ""
            try:
                self._params[name] = names.param_headers(envelopes.value(members.get("inputSchema", b"{}")))
                kept.append(bytes(tool))
            except (names.BadAnnotation, ParseError) as error:
                log.warning("tool left out", upstream=self._name, tool=name, why=error)
        listed = {**result, "tools": b"[" + b",".join(kept) + b"]"}
        return b"".join(envelopes.result(envelope.id, envelopes.object_of(listed.items()))).rstrip(b"\n")

    async def _listen(
        self, response: HttpResponse, parser: SseParser, message: _Message | None, idle: float | None = None
    ) -> _Ended:
        """Hear a stream until its end, or shortly after the answer waited for. Returns how it ended."""
        heard = 0

        def take(event: SseEvent, opened: Opened | None = None) -> int:
            nonlocal heard
            heard += _is_message(event)
            return self._hear_event(event, message, opened)

        try:
            while data := await response.chunk(idle):
                await self._intake.read(data, parser, take, response.handling)
                if message is not None and message.answered:
                    idle = _LINGER
        except HttpTrouble as trouble:
            if trouble.reason in ("too_large", "malformed"):
                raise
            return _Ended("broke off its event stream" if trouble.reason == "lost" else trouble.what, heard)
        return _Ended("ended its event stream", heard)

    def _hear_event(self, event: SseEvent, message: _Message | None, opened: Opened | None = None) -> int:
        """Returns how much of it nobody had asked for."""
        if not _is_message(event):
            return 1
        if not event.cut:
            return self._hear_frame(event.data, message, opened)
        if message is None or message.answered:
            return self._hear([Oversized(event.data)])
        raise HttpTrouble(f"sent an event over the size limit of {self._limit} bytes (maxMessageBytes)", "too_large")

    async def _resume(self, message: _Message, parser: SseParser, why: str) -> None:
        """Take up a stream that ended before its answer, as long as the server says where it stopped."""
        tries, heard = 0, 0
        pauses = Pauses(_RESUMED_AFTER)
        while not message.answered:
            if message.stateless is not None or not parser.last_id or tries == _TRIES:
                after = f", and {tries} attempts to resume it brought nothing" if tries else ""
                raise HttpTrouble(f"{why} before the answer{after}; the call may have run", broken=True)
            parser, known = parser.again(), parser.last_id
            # Also if the server wants none: one that ends each stream at once would have us ask it without a break.
            await asyncio.sleep(min(pauses.next(parser.retry, fruitful=heard > 0), _LONGEST_PAUSE))
            tries, heard = tries + 1, 0
            try:
                response = await self._get(parser.last_id)
            except HttpTrouble as trouble:
                why = trouble.what
                continue
            async with response:
                if response.status != 200 or response.content_type != _EVENTS:
                    raise HttpTrouble(f"{why} before the answer, and did not resume it (HTTP status {response.status})")
                why, heard = await self._listen(response, parser, message)
            if parser.last_id != known:
                tries = 0

    async def _get(self, last_id: str) -> HttpResponse:
        headers = {"Accept": _EVENTS, **self._session_headers()}
        if last_id:
            headers[names.LAST_EVENT_ID] = last_id
        return await self._request("GET", self._url, headers)

    # --- sessions -----------------------------------------------------------------------------

    def _overhear(self) -> None:
        """Open the stream for what the server says unasked."""
        if self._overhearing is not None:
            self._overhearing.cancel()
        self._overhearing = self._spawn(self._keep_overhearing())

    async def _keep_overhearing(self) -> None:
        parser = SseParser(self._limit)
        loop = asyncio.get_running_loop()
        pauses = Pauses(_LONGEST_PAUSE)
        while True:
            began, session, heard = loop.time(), self._session, 0
            try:
                async with await self._get(parser.last_id) as response:
                    if response.status == 404 and session is not None:
                        await self._renew(session)
                        return
                    if 400 <= response.status < 500 and response.status not in (408, 409, 429):
                        log.debug("offers no stream of its own", upstream=self._name, status=response.status)
                        return
                    if response.status < 400 and response.content_type != _EVENTS:
                        return
                    if response.status < 400:
                        _, heard = await self._listen(response, parser, None, _IDLE)
            except HttpTrouble as trouble:
                log.debug("stream broken", upstream=self._name, why=trouble.what)
            # If nothing came of it, the server's wish for haste is not to be trusted.
            fruitful = heard > 0 or loop.time() - began > _LASTING
            wish = parser.retry if parser.retry is not None else _UNHURRIED
            await asyncio.sleep(min(pauses.next(wish, fruitful=fruitful), _LONGEST_PAUSE))
            parser = parser.again()

    async def _renew(self, forgotten: str | None) -> None:
        """Open a new session in place of one that the server has forgotten; once for all who notice."""
        if self._session != forgotten:
            return
        if self._renewal is None or self._renewal.done():
            self._renewal = self._gate = self._spawn(self._shake_hands_again())
        # Whoever gives up waiting must not stop it for the others.
        await asyncio.shield(self._renewal)

    async def _shake_hands_again(self) -> None:
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
        notice = initialized.again()
        try:
            async with asyncio.timeout(_NOTICE):
                await self._exchange(notice)
        except TimeoutError:
            raise HttpTrouble(f"lost its session and did not open a new one within {_NOTICE:g} s", "timeout") from None
        self._overhear()
        # A server that forgot us has most likely been started anew, and may offer something else now.
        self._hear(_ALL_CHANGED)

    # --- HTTP+SSE -----------------------------------------------------------------------------

    async def _open_events(self) -> None:
        if self._client is None:
            raise HttpTrouble("was stopped")
        self._events = await SseServerTransport.open(
            self._client, self._request, self._url, self._limit, self._secrets, self._intake
        )
        self._spawn(self._follow_events(self._events))

    async def _follow_events(self, events: SseServerTransport) -> None:
        self._lose(await events.follow(self._hear_unasked, self._nudge))

    def _hear_unasked(self, event: SseEvent, opened: Opened | None = None) -> int:
        return self._hear_event(event, None, opened)

    def _nudge(self) -> None:
        """Ask the server whether it is there. Its answer is a sign of life; the connection knows no such request."""
        about = Outgoing("ping", b'"muxway-idle"')
        self._start(_Message(b"".join(envelopes.request(about.id, "ping")).rstrip(b"\n"), about))

    async def _post_event(self, message: _Message, events: SseServerTransport) -> None:
        if message.method == "server/discover":
            # This transport is older than that method, and some of its servers fall over what they do not know.
            message.answered = True
            error = MethodNotFound("server/discover: not over HTTP+SSE")
            self._hear([b"".join(envelopes.failure(message.id, error)).rstrip(b"\n")])
            return
        headers = {"Content-Type": _JSON, "Accept": f"{_JSON}, {_EVENTS}", **self._session_headers()}
        async with await self._request("POST", events.endpoint, headers, message.body) as response:
            start = await response.start(_EXCERPT, _GOODBYE)
            if not 200 <= response.status < 300:
                raise refusal(response.status, start, self._secrets, retry_after=response.header("Retry-After"))

    def _flooded(self) -> None:
        self._lose(f"flooded its event streams for {FLOOD_SECONDS:g} s with what nobody asked for")

    def _lose(self, why: str) -> None:
        if not self._closed:
            self._closed = True
            self._report_lost(why)


def _session_in(response: HttpResponse) -> str | None:
    session = response.header(names.SESSION)
    if session is not None and not names.is_session_id(session):
        raise HttpTrouble("gave a session id that cannot be sent back", "malformed")
    return session


def _opened(frame: bytes, known: Opened | None) -> Envelope:
    if known is None:
        return envelopes.decode(frame)
    if isinstance(known, Envelope):
        return known
    raise known


def _is_message(event: SseEvent) -> bool:
    # An empty one only tells where to resume.
    return event.type == "message" and event.data != b""


def _nameless_error(envelope: Envelope) -> bool:
    return envelope.method is None and envelope.error is not ABSENT and bytes(envelope.id) in (b"", b"null")


def _with_id(id_: bytes, error: Raw) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_, one_line(bytes(error)))


def _error_in(body: bytes) -> Raw | None:
    """The error member of a JSON-RPC error response."""
    try:
        envelope = envelopes.decode(body)
    except (ParseError, NotAnEnvelope):
        return None
    return None if envelope.error is ABSENT or envelope.method is not None else envelope.error


def tls_context(tls: ServerTls) -> ssl.SSLContext:
    """How a server is known, and we to it. Raises TlsFileError."""
    certificate = None if tls.cert is None else Certificate(tls.cert, tls.key)
    return client_context(tls.ca, certificate, verify=tls.verify)
