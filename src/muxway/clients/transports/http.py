"""The HTTP door: every revision of MCP over HTTP, side by side on one port. An ASGI application.

    POST, GET, DELETE /mcp       Streamable HTTP: handshake sessions, and stateless requests of 2026-07-28
    … /mcp/NAME, GET /sse/NAME   the same for a view
    GET /sse, POST /messages     HTTP+SSE, of 2024-11-05
    GET /healthz, GET /readyz    for whoever watches over us

Which era a request is of is decided request by request (`_post`). Nothing is remembered of a stateless one.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from muxway.calls.incidents import internal
from muxway.calls.ports import Waiter
from muxway.clients import notifications
from muxway.clients.listen_request import Listening, Opening
from muxway.clients.session import NO_BATCHES, Session
from muxway.clients.stateless import Ladder, StatelessRequest, status_of
from muxway.clients.transports.guard import Guard
from muxway.clients.transports.http_request import ClientGone, HttpRequest, Refused
from muxway.clients.transports.http_response import JsonReply, Outlet, PlainEvents, event, joined
from muxway.clients.transports.http_sessions import HttpSession, HttpSessions
from muxway.errors import HEADER_MISMATCH, InvalidRequest, ParseError, RpcError
from muxway.exchange.admission import RETRY_SECONDS
from muxway.exchange.meeting import LONGEST
from muxway.exchange.subscriptions import Quota
from muxway.wire import envelopes, revisions
from muxway.wire.envelopes import ABSENT, NotAnEnvelope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from muxway.calls.call import Call
    from muxway.clients.transports.guard import Refusal
    from muxway.clients.transports.http_connection import HttpConnection, QuickCycle
    from muxway.clients.transports.http_request import Receive, Scope, Send
    from muxway.exchange.switchboard import Switchboard
    from muxway.net.metronome import Metronome
    from muxway.wire.envelopes import Buffer, Envelope

_VERSION: Final = b"mcp-protocol-version"
_SESSION: Final = b"mcp-session-id"
_AUTHORIZATION: Final = b"authorization"
_MOST_UNREAD: Final = 16 * 1024 * 1024
"""Bytes of unread answers above which a client of `/sse` may ask nothing more."""

_LONGEST_CALL: Final = 3600.0
"""Seconds that calls under way are given to end when their view has gone; servers have their own limits for them."""

_LATER: Final = [(b"retry-after", b"30")]
_SOON: Final = [(b"retry-after", b"%d" % RETRY_SECONDS)]
_NO_MEMORY: Final = "the gateway is short of memory (gateway.maxMemory) and opens no new sessions: try again later"
_VIEWED: Final = ("/mcp/", "/sse/")
_LARGE: Final = 512 * 1024
"""Bytes of a message that another thread opens: to look through each MiB takes some milliseconds, several times."""
_NEVER_QUICK: Final = frozenset(("initialize", "subscriptions/listen"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """How the HTTP door behaves."""

    max_body_bytes: int = 4 * 1024 * 1024
    max_sessions: int = 10_000
    """Handshake sessions, and clients of `/sse`, that may be open at once."""
    max_sessions_each: int = 100
    """The same for one bearer token."""
    session_idle: float = 1800.0
    """Seconds after which a session that nobody uses is ended."""
    commit_after: float = 15.0
    """Seconds without an answer after which an event stream is begun: proxies give up on silence."""
    resumable_after: float = 0.5
    """The same for clients that are told where to read on: what they wait for survives a lost connection."""
    keep_alive: float = 15.0
    """Seconds of silence on an event stream after which a comment is sent."""
    sse_linger: float = 5.0
    """Seconds after the last client of `/sse` has left until nobody is thought to come back."""


class Trouble(NamedTuple):
    """A server that is not up."""

    server: str
    state: str
    why: str | None = None
    retry_in: float | None = None
    """Seconds until it is tried again, if that is planned."""

    def told(self) -> dict[str, object]:
        """As JSON says it."""
        told: dict[str, object] = {"server": self.server, "state": self.state}
        if self.why is not None:
            told["why"] = self.why
        if self.retry_in is not None:
            told["retryInMs"] = max(0, round(self.retry_in * 1000))
        return told


class HttpDoor:
    """Serves MCP over HTTP. Must be run by uvicorn with `Connection` as its protocol class."""

    def __init__(
        self,
        switchboard: Switchboard,
        *,
        guard: Guard | None = None,
        settings: HttpSettings | None = None,
        view: str | None = None,
        ready: Callable[[], bool] = lambda: True,
        troubles: Callable[[], Sequence[Trouble]] = tuple,
        on_wanted: Callable[[], None] = lambda: None,
        on_deserted: Callable[[], None] = lambda: None,
        metronome: Metronome | None = None,
    ) -> None:
        """Prepare a door; `open` begins its housekeeping, `close` ends everything.

        Args:
            switchboard: what answers the requests. May be exchanged while nobody is there.
            guard: who may come in; by default, this machine only.
            settings: limits and times.
            view: what is at `/mcp` and `/sse` for those whose token does not say; by default, everything.
            ready: whether every server is up or has failed; told by `/readyz`.
            troubles: the servers that are not up, told by `/readyz` to those who may use them.
            on_wanted: called before each request that needs the servers.
            on_deserted: called when the last client of `/sse` has left and no other kind of client ever came.
            metronome: watches over the loop while requests arrive.
        """
        self.metronome = metronome
        self.switchboard = switchboard
        self._guard = guard or Guard()
        self._settings = settings or HttpSettings()
        self._view = view
        self._ready, self._troubles = ready, troubles
        self._on_wanted, self._on_deserted = on_wanted, on_deserted
        limits = self._settings
        self._sessions = HttpSessions(limits.max_sessions, limits.max_sessions_each, limits.session_idle)
        self._ladders: dict[str | None, Ladder] = {}
        self._exchanges: set[StatelessRequest] = set()
        self._listens: dict[StatelessRequest, str | None] = {}
        """Those who listen, and through which view."""
        self._sse: dict[str, _SseClient] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        """What ends when its calls are over, because its view has gone."""
        self._sse_only = True
        self._closing = False
        self._admitted_as = "muxway.admitted"
        """Where a scope has what was found out about its header."""
        self._quiet: asyncio.Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._routes: dict[str, dict[str, Callable[[HttpRequest], Awaitable[None]]]] = {
            "/mcp": {"POST": self._post, "GET": self._get, "DELETE": self._delete},
            "/sse": {"GET": self._open_sse},
            "/messages": {"POST": self._post_sse},
        }
        self._open_routes: dict[str, Callable[[HttpRequest], Awaitable[None]]] = {
            "/healthz": self._health,
            "/readyz": self._readiness,
        }

    @property
    def routes(self) -> list[tuple[str, str, bool]]:
        """Every method and path that is served, and whether a token is needed for it where there are any."""
        guarded = [(method, path, True) for path, methods in self._routes.items() for method in methods]
        return [*guarded, *(("GET", path, False) for path in self._open_routes)]

    @property
    def sessions(self) -> int:
        """How many handshake sessions are open."""
        return len(self._sessions)

    # --- life ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin housekeeping."""
        self._sweep()

    def admit(self, tokens: Iterable[str], views: Mapping[str, str]) -> None:
        """Let in those with these tokens from now on, as the guard does; end what others, or lost views, have open."""
        self._guard.expect(tokens, views)
        # What was found out of headers before is not true any more.
        self._admitted_as = f"muxway.admitted.{secrets.token_hex(4)}"
        for session in self._sessions:
            if not self._may_stay(session.owner, session.view):
                if self._lost_its_view(session.view):
                    self._sessions.forget(session)
                    self._let_go(session.endpoint, session.close)
                else:
                    self._sessions.end(session)
        for client in list(self._sse.values()):
            if not self._may_stay(client.owner, client.view):
                if self._lost_its_view(client.view):
                    self._let_go(client.endpoint, client.outlet.end)
                else:
                    client.outlet.end()
        for exchange, view in list(self._listens.items()):
            if not self._may_stay(exchange.call.caller.principal, view):
                exchange.done(notifications.listening_ended(exchange.id))

    def _lost_its_view(self, view: str | None) -> bool:
        return view is not None and view not in self.switchboard.views

    def _let_go(self, endpoint: Session, end: Callable[[], None]) -> None:
        """End something whose view has gone as soon as its calls under way are over, as with a server that goes."""
        if endpoint.peer.theirs:
            task = asyncio.get_running_loop().create_task(self._finish(endpoint, end))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
        else:
            end()

    async def _finish(self, endpoint: Session, end: Callable[[], None]) -> None:
        try:
            await endpoint.finish(_LONGEST_CALL)
        finally:
            end()

    def _may_stay(self, owner: bytes, view: str | None) -> bool:
        return (view is None or view in self.switchboard.views) and self._guard.still_knows(owner, view)

    def _sweep(self) -> None:
        self._sessions.sweep()
        seconds = max(0.05, min(30.0, self._settings.session_idle / 4))
        self._timer = asyncio.get_running_loop().call_later(seconds, self._sweep)

    async def close(self, drain: float) -> None:
        """Take no more requests; let what runs end for up to `drain` seconds, cancel the rest, end every stream."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        for exchange in list(self._listens):
            exchange.done(notifications.listening_ended(exchange.id))
        endpoints = [session.endpoint for session in self._sessions]
        endpoints += [client.endpoint for client in self._sse.values()]
        ending = [endpoint.finish(drain) for endpoint in endpoints if endpoint.peer.theirs]
        await asyncio.gather(*ending, self._exchanges_done(drain))
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=drain)
            for task in self._leaving:
                task.cancel()
        for exchange in list(self._exchanges):
            exchange.stop("the gateway is being stopped")
        for session in self._sessions:
            self._sessions.end(session)
        for client in list(self._sse.values()):
            client.outlet.end()

    async def _exchanges_done(self, drain: float) -> None:
        if self._exchanges:
            self._quiet = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), drain)

    # --- the way in ---------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = HttpRequest(scope, receive, send)
        try:
            await self._let_in(request)
        except Refused as refused:
            await request.refuse(refused)
        except ClientGone:
            pass
        except Exception as error:
            failure = internal(error, method=request.method, path=request.path)
            if request.answering:
                raise
            await request.refuse(Refused(500, failure))
        finally:
            request.connection.watch(None)

    async def _let_in(self, request: HttpRequest) -> None:
        guard = self._guard
        origins = request.all(b"origin")
        _check(guard.refuses_place(request.all(b"host"), origins))
        request.cors = guard.cors(origins)
        path = request.path.rstrip("/") if len(request.path) > 1 else request.path
        if request.method == "OPTIONS" and request.all(b"access-control-request-method"):
            granted = guard.preflight(origins, request.all(b"access-control-request-headers"))
            if granted is None:
                raise Refused(403, "pages of other origins may not use this server; see --allow-origin")
            request.cors = granted
            await request.answer(204)
            return
        unguarded = self._open_routes.get(path)
        if unguarded is not None:
            if request.method != "GET":
                raise _not_allowed("GET")
            await unguarded(request)
            return
        _check(guard.refuses_caller(request.all(_AUTHORIZATION), request.address))
        path, named = _split(path)
        methods = self._routes.get(path)
        if methods is None:
            raise Refused(404, "there is nothing here; MCP is at /mcp, HTTP+SSE at /sse")
        request.view = self._view_for(request, named)
        handler = methods.get(request.method)
        if handler is None:
            raise _not_allowed(", ".join(methods))
        if self._closing:
            raise Refused(503, "the gateway is being stopped", headers=[(b"connection", b"close")])
        await handler(request)

    def _view_for(self, request: HttpRequest, named: str | None) -> str | None:
        """The view that a request is for: what its token says, else what its path says. Raises Refused."""
        bound = self._guard.view_of(request.all(_AUTHORIZATION))
        if bound is not None:
            if named not in (None, bound):
                raise Refused(403, "this token opens another view, and nothing else: use /mcp")
            return bound
        if named is None:
            return self._view
        views = self.switchboard.views
        if named not in views:
            raise Refused(404, f"there is no such view; there are: {', '.join(views) or 'none'}")
        return named

    def _board(self, request: HttpRequest) -> Switchboard:
        return self.switchboard if request.view is None else self.switchboard.views[request.view]

    async def _health(self, request: HttpRequest) -> None:
        await request.answer(200, b'{"status":"ok"}')

    async def _readiness(self, request: HttpRequest) -> None:
        status = "stopping" if self._closing else "ready" if self._ready() else "starting"
        told: dict[str, object] = {"status": status}
        # What the servers are called is nobody's business who may not call them.
        if self._guard.knows_for_all(request.all(_AUTHORIZATION)):
            told["notReady"] = [trouble.told() for trouble in self._troubles()]
        await request.answer(200 if status == "ready" else 503, envelopes.encode(told))

    # --- /mcp ---------------------------------------------------------------------------------

    async def _post(self, request: HttpRequest) -> None:
        """Decide which era a message is of, and answer it."""
        request.must_be_json()
        request.must_accept(json=True)
        body = await request.body(self._settings.max_body_bytes)
        versions = request.all(_VERSION)
        modern = _is_modern(versions)
        try:
            envelope = await _decoded(body)
        except ParseError as error:
            raise Refused(400, error) from None
        except NotAnEnvelope as error:
            if envelopes.is_batch(body) and not modern:
                await self._post_batch(request, body)
                return
            why = NO_BATCHES if envelopes.is_batch(body) else f"not a JSON-RPC request: {error}"
            raise Refused(400, why, id_=error.id) from None
        self._sse_only = False
        self._on_wanted()
        if modern:
            await self._post_stateless(request, envelope)
        elif _has_envelope(envelope):
            stated = "names a handshake revision" if versions else "is missing"
            why = f"the header MCP-Protocol-Version {stated}, the body has the envelope of {revisions.NEWEST.date}"
            raise Refused(400, RpcError(why, code=HEADER_MISMATCH), id_=_id(envelope))
        else:
            await self._post_session(request, envelope)

    async def _post_session(self, request: HttpRequest, envelope: Envelope) -> None:
        method = envelope.method
        if method == "initialize" and envelope.id is not ABSENT and not request.all(_SESSION):
            await self._initialize(request, envelope, method)
            return
        session = self._session_of(request, _id(envelope))
        if method is None or envelope.id is ABSENT:
            if method is None:
                session.endpoint.hear_answer(envelope)
            else:
                session.endpoint.hear_notice(method, envelope.params or {})
            await request.answer(202)
            return
        reply = JsonReply()
        session.endpoint.hear_request(envelope, method, reply.say, reply.tell)
        await self._deliver(request, reply, session)

    async def _initialize(self, request: HttpRequest, envelope: Envelope, method: str) -> None:
        if not self.switchboard.admission.takes_sessions:
            raise Refused(503, RpcError(_NO_MEMORY), id_=_id(envelope), headers=_SOON)
        if self._sessions.full:
            raise Refused(429, "too many sessions are open", id_=_id(envelope), headers=_LATER)
        owner = self._guard.owner(request.all(_AUTHORIZATION))
        if self._sessions.crowded_by(owner):
            why = f"{self._settings.max_sessions_each} sessions of this token are open: end some with DELETE /mcp"
            raise Refused(429, why, id_=_id(envelope), headers=_LATER)
        principal = self._guard.principal(request.all(_AUTHORIZATION))
        session = HttpSession(self._board(request), owner, principal, request.view)
        reply = JsonReply()
        session.endpoint.hear_request(envelope, method, reply.say, reply.tell)
        if session.endpoint.session is None:
            session.close()
            await request.answer(400, reply.answer)
            return
        self._sessions.add(session)
        request.connection.watch(reply.lost)
        while not reply.answered and not reply.gone:
            await reply.wait(LONGEST)
        await request.answer(200, reply.answer, [(_SESSION, session.id.encode())])

    async def _post_batch(self, request: HttpRequest, body: bytes) -> None:
        session = self._session_of(request) if request.all(_SESSION) else None
        if session is None:
            raise Refused(400, NO_BATCHES)
        reply = JsonReply()
        session.endpoint.hear_batch(body, reply.say, reply.tell, lambda: reply.say(()), strict=True)
        await self._deliver(request, reply, session)

    def _session_of(self, request: HttpRequest, id_: bytes | None = None) -> HttpSession:
        given = request.session_id or request.one(_SESSION)
        if given is None:
            why = "the header Mcp-Session-Id is missing: send `initialize` first, its answer has the id"
            raise Refused(400, why, id_=id_)
        session = self._sessions.find(given, self._guard.owner(request.all(_AUTHORIZATION)), request.view)
        if session is None:
            raise Refused(404, "there is no such session, or not any more: send `initialize` again", id_=id_)
        return session

    async def _deliver(self, request: HttpRequest, reply: JsonReply, session: HttpSession | None) -> None:
        """Answer with JSON if the answer comes soon and alone, else with events."""
        if not reply.answered:
            request.connection.watch(reply.lost)
            await reply.wait(self.patience(session))
        if reply.alone:
            await request.answer(reply.status if reply.answer else 202, reply.answer)
        else:
            await self._stream(request, reply, session)

    async def _stream(self, request: HttpRequest, reply: JsonReply, session: HttpSession | None) -> None:
        if not reply.gone:
            if session is None:
                plain = PlainEvents()
                reply.stream(plain)
                await request.pump(plain.outlet, self._settings.keep_alive)
            else:
                stream, outlet = session.open_stream()
                reply.stream(stream)
                await self._carry(request, session, outlet)

    async def _carry(self, request: HttpRequest, session: HttpSession, outlet: Outlet) -> None:
        try:
            await request.pump(outlet, self._settings.keep_alive)
        finally:
            session.left(outlet)

    async def _get(self, request: HttpRequest) -> None:
        """Open a session's standalone stream, or read on where another stream broke off."""
        versions = request.all(_VERSION)
        if _is_modern(versions):
            raise _not_allowed("POST")
        if not versions and not request.all(_SESSION):
            raise _not_allowed("POST, DELETE", "GET /mcp needs the session of an `initialize`; HTTP+SSE is at /sse")
        request.must_accept(json=False)
        session = self._session_of(request)
        last = request.one(b"last-event-id")
        if last is not None:
            outlet = session.read_on(last)
            if outlet is None:
                raise Refused(400, "Last-Event-ID names no event of this session that is still kept: leave it out")
        elif session.listening:
            raise Refused(409, "another connection listens for this session already")
        else:
            outlet = session.listen()
        await self._carry(request, session, outlet)

    async def _delete(self, request: HttpRequest) -> None:
        if _is_modern(request.all(_VERSION)):
            raise _not_allowed("POST")
        self._sessions.end(self._session_of(request))
        await request.answer(200)

    # --- stateless requests -------------------------------------------------------------------

    async def _post_stateless(self, request: HttpRequest, envelope: Envelope) -> None:
        method = envelope.method
        if method is None:
            raise Refused(400, "this server asks its clients nothing, so there is nothing to respond to")
        if envelope.id is ABSENT:
            await request.answer(202)
            return
        id_ = _id(envelope)
        if id_ is None:
            raise Refused(400, "an id is a string or an integer")
        try:
            call = self._admit(request, envelope, method)
        except RpcError as error:
            raise Refused(status_of(error), error, id_=id_) from None
        exchange = StatelessRequest(id_, call)
        if method == "subscriptions/listen":
            await self._listen(request, exchange)
            return
        self._exchanges.add(exchange)
        try:
            exchange.begin(self._board(request))
            await self._deliver(request, exchange, None)
        finally:
            self.ended(exchange)

    def _admit(self, request: HttpRequest, envelope: Envelope, method: str) -> Call:
        """The call that a stateless request makes. Raises RpcError."""
        principal = self._guard.principal(request.all(_AUTHORIZATION))
        ladder = self._ladders.get(request.view)
        if ladder is None:
            ladder = self._ladders[request.view] = Ladder()
        return ladder.admit(request, envelope, method, self._board(request), principal)

    def ended(self, exchange: StatelessRequest) -> None:
        """A stateless request has its answer, or nobody who waits for one."""
        self._exchanges.discard(exchange)
        exchange.end()
        if self._quiet is not None and not self._exchanges:
            self._quiet.set()
        if not exchange.answered:
            exchange.cancel("the client has closed the connection")

    # --- the quick way ------------------------------------------------------------------------

    def quick(self, connection: HttpConnection, cycle: QuickCycle, body: bytes) -> bool:
        """Take a plain POST to `/mcp` without a task; False for whatever is not plain, which then goes the usual way.

        Says nothing of its own: all refusals are said in one place, by the usual way.
        """
        if self._closing or len(body) > _LARGE or len(body) > self._settings.max_body_bytes:
            return False
        try:
            # A scope comes again when its header does, byte for byte: what the header says was checked then.
            request: HttpRequest = cycle.scope.get(self._admitted_as) or self._admitted(cycle.scope)
            if not self._guard.knows(request.all(_AUTHORIZATION)):
                return False
            envelope = envelopes.decode_strict(body)
            method, id_ = envelope.method, bytes(envelope.id)
            key = envelopes.read_id(id_)
            if method is None or key is None or method in _NEVER_QUICK:
                return False
            session: HttpSession | None = None
            call: Call | None = None
            if request.modern:
                self._on_wanted()
                call = self._admit(request, envelope, method)
            elif not _has_envelope(envelope):
                session = self._session_of(request)
            board = self._board(request)
        except Exception:  # noqa: BLE001 - nothing has begun: the usual way meets the same, and says what it is
            return False
        # From here on the request is under way, and whatever happens is its outcome: nobody may take it once more.
        if call is not None:
            reply = exchange = StatelessRequest(id_, call)
            self._exchanges.add(exchange)
            self._sse_only = False
            exchange.begin(board)
        elif session is not None:
            reply = JsonReply()
            session.endpoint.hear_request(envelope, method, reply.say, reply.tell, key)
        else:
            return False
        _Quick(self, connection, cycle, reply, session).begin()
        return True

    def _admitted(self, scope: dict[str, Any]) -> HttpRequest:
        """A request whose header may be that of a quick one. Raises Refused."""
        request = HttpRequest(scope)
        if request.all(b"origin"):
            raise Refused(403, "pages are answered the usual way")
        _check(self._guard.refuses_place(request.all(b"host"), ()))
        request.must_be_json()
        request.must_accept(json=True)
        request.view = self._view_for(request, _split(request.path)[1])
        request.modern = _is_modern(request.all(_VERSION))
        request.session_id = request.one(_SESSION)
        scope[self._admitted_as] = request
        return request

    async def stream(self, request: HttpRequest, reply: JsonReply, session: HttpSession | None) -> None:
        """Go on with a quick request that has turned out to need a stream."""
        try:
            await self._stream(request, reply, session)
        finally:
            request.connection.watch(None)
            if isinstance(reply, StatelessRequest):
                self.ended(reply)

    def patience(self, session: HttpSession | None) -> float:
        """Seconds without an answer after which an event stream is begun."""
        if session is not None and session.primes:
            return min(self._settings.resumable_after, self._settings.commit_after)
        return self._settings.commit_after

    async def _listen(self, request: HttpRequest, exchange: StatelessRequest) -> None:
        events = PlainEvents()
        outlet = events.outlet

        def tell(frame: Sequence[Buffer]) -> None:
            if not exchange.answered:
                exchange.tell(frame)

        try:
            board = self._board(request)
            call = await _opened(board, exchange.call)
            listening = Listening(exchange.id, call, board, tell, lambda: outlet.waiting, Quota())
        except RpcError as error:
            raise Refused(status_of(error), error, id_=exchange.id) from None
        exchange.stream(events)
        self._listens[exchange] = request.view
        listening.begin()
        try:
            await request.pump(outlet, self._settings.keep_alive)
        finally:
            del self._listens[exchange]
            listening.close()

    # --- HTTP+SSE -----------------------------------------------------------------------------

    async def _open_sse(self, request: HttpRequest) -> None:
        """Open a client's stream; the connection is its session."""
        request.must_accept(json=False)
        if not self.switchboard.admission.takes_sessions:
            raise Refused(503, RpcError(_NO_MEMORY), headers=_SOON)
        if len(self._sse) >= self._settings.max_sessions:
            raise Refused(429, "too many clients are connected", headers=_LATER)
        owner = self._guard.owner(request.all(_AUTHORIZATION))
        each = self._settings.max_sessions_each
        if owner and sum(client.owner == owner for client in self._sse.values()) >= each:
            raise Refused(429, f"{each} clients with this token are connected: close some", headers=_LATER)
        self._on_wanted()
        principal = self._guard.principal(request.all(_AUTHORIZATION))
        client = _SseClient(self._board(request), owner, principal, request.view)
        self._sse[client.id] = client
        root: str = request.scope.get("root_path", "")
        client.outlet.put(event(f"{root}/messages?session_id={client.id}".encode(), kind=b"endpoint"))
        try:
            await request.pump(client.outlet, self._settings.keep_alive)
        finally:
            del self._sse[client.id]
            client.endpoint.abandon()
            if not self._sse and self._sse_only and not self._closing:
                asyncio.get_running_loop().call_later(self._settings.sse_linger, self._note_desertion)

    def _note_desertion(self) -> None:
        if not self._sse and self._sse_only and not self._closing:
            self._on_deserted()

    async def _post_sse(self, request: HttpRequest) -> None:
        """Take a message of a client whose answers go to its stream."""
        query: bytes = request.scope["query_string"]
        ids = [part.partition(b"=")[2] for part in query.split(b"&") if part.partition(b"=")[0] in _SSE_ID]
        if len(ids) != 1:
            raise Refused(400, "the query must have the session_id that /sse gave")
        client = self._sse.get(ids[0].decode("latin-1"))
        if client is None or client.owner != self._guard.owner(request.all(_AUTHORIZATION)):
            raise Refused(404, "there is no such session, or not any more: open /sse again")
        request.must_be_json()
        if client.outlet.waiting > _MOST_UNREAD:
            raise Refused(429, "read the answers that wait on /sse first")
        body = await request.body(self._settings.max_body_bytes)
        try:
            await _decoded(body)
        except ParseError as error:
            raise Refused(400, error) from None
        except NotAnEnvelope as error:
            if not envelopes.is_batch(body):
                raise Refused(400, InvalidRequest(f"not a JSON-RPC request: {error}"), id_=error.id) from None
        endpoint = client.endpoint
        if envelopes.is_batch(body):
            endpoint.hear_batch(body, endpoint.say, endpoint.say, strict=True)
        else:
            endpoint.hear_all([body])
        await request.answer(202)


async def _decoded(body: bytes) -> Envelope:
    """Open a message. Raises as `messages.decode_strict` does."""
    if len(body) <= _LARGE:
        return envelopes.decode_strict(body)
    return await asyncio.to_thread(envelopes.decode_strict, body)


class _Quick:
    """A request on the quick way, until it has its answer or needs a stream."""

    __slots__ = ("_connection", "_cycle", "_door", "_reply", "_session")

    def __init__(
        self,
        door: HttpDoor,
        connection: HttpConnection,
        cycle: QuickCycle,
        reply: JsonReply,
        session: HttpSession | None,
    ) -> None:
        self._door, self._connection, self._cycle = door, connection, cycle
        self._reply, self._session = reply, session

    def begin(self) -> None:
        self._connection.begin(self._cycle)
        if self._reply.answered:
            self._settle()
            return
        self._reply.on_wake = self._settle
        self._connection.watch(self._reply.lost)
        self._connection.remind(self._door.patience(self._session), self._settle)

    def _settle(self) -> None:
        """There is an answer, or a notice, or nobody any more, or it takes long."""
        reply, connection = self._reply, self._connection
        reply.on_wake = None
        if reply.alone or reply.gone:
            connection.watch(None)
            if isinstance(reply, StatelessRequest):
                self._door.ended(reply)
            if not reply.gone:
                connection.answer(self._cycle, reply.status if reply.answer else 202, reply.answer)
        else:
            # Still watched: the client may leave before the task that streams has its first turn.
            connection.go_on(self._cycle, self._stream)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._door.stream(HttpRequest(scope, receive, send), self._reply, self._session)


class _SseClient:
    """A client of HTTP+SSE."""

    def __init__(self, switchboard: Switchboard, owner: bytes, principal: bytes, view: str | None) -> None:
        self.id = secrets.token_urlsafe(24)
        self.owner = owner
        self.view = view
        self.outlet = Outlet()
        self.endpoint = Session(switchboard, self._say, principal, lambda: self.outlet.waiting)

    def _say(self, frame: Sequence[Buffer]) -> None:
        message = joined(frame)
        self.outlet.put(event(message), lossy=notifications.may_be_lost(message))


async def _opened(board: Switchboard, call: Call) -> Call:
    """The request that opens a stream, as the middleware pass it on. Raises the RpcError that one refuses it with."""
    waiter = Waiter()
    passed: Call | None = None

    def opened(call: Call) -> None:
        nonlocal passed
        passed = call
        waiter.done(b"{}")

    await waiter.outcome(Opening(waiter, opened).request(board, call))
    if passed is None:
        raise InvalidRequest("a middleware answered the request, so no stream was opened")
    return passed


def _split(path: str) -> tuple[str, str | None]:
    """A path without its view, and the view."""
    return (path[:4], path[5:]) if path.startswith(_VIEWED) else (path, None)


_SSE_ID: Final = (b"session_id", b"sessionId")


def _is_modern(versions: Sequence[bytes]) -> bool:
    """Whether a request with these version headers is for the stateless ladder, if only to fail there."""
    if not versions:
        return False
    if len(versions) > 1:
        return True
    revision = revisions.REVISIONS.get(versions[0].decode("latin-1").strip())
    return revision is None or revision.stateless


def _has_envelope(envelope: Envelope) -> bool:
    meta = (envelope.params or {}).get("_meta")
    return meta is not None and revisions.PROTOCOL_VERSION in (envelopes.members(meta) or {})


def _id(envelope: Envelope) -> bytes | None:
    id_ = bytes(envelope.id)
    return None if envelopes.read_id(id_) is None else id_


def _check(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise Refused(refusal.status, refusal.why, headers=refusal.headers)


def _not_allowed(methods: str, why: str = "the method is not allowed here") -> Refused:
    return Refused(405, why, headers=[(b"allow", methods.encode())])
