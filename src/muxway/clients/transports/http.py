"""The HTTP transport towards clients: every revision of MCP over HTTP, side by side on one port.

    POST, GET, DELETE /mcp       Streamable HTTP: handshake sessions, and stateless requests of 2026-07-28
    … /mcp/NAME, GET /sse/NAME   the same for a view
    GET /sse, POST /messages     HTTP+SSE, of 2024-11-05
    GET /healthz, GET /readyz    for whoever watches over us
    GET /.well-known/…           for whoever has no access token yet

Every request comes in by `take`. What its header means is found out once for all requests with the same one (`_admit`);
which era it is of is decided request by request (`_post`). Nothing is remembered of a stateless one.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from muxway.calls.identity import Denial
from muxway.calls.incidents import internal
from muxway.clients import notifications
from muxway.clients.authenticator import KEY_PREFIX, Admitted, Rejected
from muxway.clients.listen_request import Opening
from muxway.clients.session import NO_BATCHES, Session
from muxway.clients.stateless import Ladder, ListenRequest, StatelessRequest, status_of
from muxway.clients.transports.guard import Guard, Refusal, bearer
from muxway.clients.transports.http_request import Refused
from muxway.clients.transports.http_response import EventResponse, HttpReply, Outlet, event, joined, message_event
from muxway.clients.transports.http_sessions import HttpSession, HttpSessions
from muxway.errors import HEADER_MISMATCH, InvalidRequest, ParseError, RpcError
from muxway.exchange.admission import RETRY_SECONDS
from muxway.wire import envelopes, revisions
from muxway.wire.envelopes import ABSENT, NotAnEnvelope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from muxway.calls.call import Call, Forwarded
    from muxway.calls.identity import Identity
    from muxway.clients.authenticator import Authenticator, Verdict
    from muxway.clients.transports.http_connection import HttpConnection
    from muxway.clients.transports.http_request import HeaderList, RequestHead
    from muxway.exchange.dispatcher import Dispatcher
    from muxway.exchange.runtime import Runtime
    from muxway.net.metronome import Metronome
    from muxway.wire.envelopes import Buffer, Envelope, Raw

Decode: TypeAlias = "Callable[[bytes], Envelope]"
Handler: TypeAlias = "Callable[[HttpConnection, RequestHead, bytes, Decode], None]"
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
_WELL_KNOWN: Final = "/.well-known/"
_FOR_EVERY_PAGE: Final = (
    b"access-control-allow-origin: *\r\naccess-control-allow-methods: GET\r\naccess-control-allow-headers: *\r\n"
)
"""What anybody may know, any page may read. Clients send headers of their own with the question."""
_LONGEST_FORWARDED: Final = 1024
_RENEWED_EVERY: Final = 1.0
"""Seconds after which credentials that somebody else judges are looked at again, also if a client repeats itself."""
_LARGE: Final = 512 * 1024
"""Bytes of a message that another thread opens: to look through each MiB takes some milliseconds, several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """How MCP is served over HTTP."""

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


class _Undecided(Exception):
    """What a request needs to be judged, or answered, has to be found out first."""

    def __init__(self, coming: asyncio.Future[Any]) -> None:
        super().__init__()
        self.coming = coming


class HttpClientTransport:
    """Serves MCP over HTTP. An `http_server.RequestHandler`."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        guard: Guard | None = None,
        authenticator: Authenticator | None = None,
        settings: HttpSettings | None = None,
        view: str | None = None,
        ready: Callable[[], bool] = lambda: True,
        troubles: Callable[[], Sequence[Trouble]] = tuple,
        on_denied: Callable[[Denial], None] = lambda _: None,
        on_wanted: Callable[[], None] = lambda: None,
        on_deserted: Callable[[], None] = lambda: None,
        metronome: Metronome | None = None,
    ) -> None:
        """Prepare one; `open` begins its housekeeping, `close` ends everything.

        Args:
            runtime: what answers the requests. May be exchanged while nobody is there.
            guard: who may come in; by default, this machine only.
            authenticator: judges the credentials that the guard does not know.
            settings: limits and times.
            view: what is at `/mcp` and `/sse` for those whose token does not say; by default, everything.
            ready: whether every server is up or has failed; told by `/readyz`.
            troubles: the servers that are not up, told by `/readyz` to those who may use them.
            on_denied: called when somebody is turned away for want of good credentials.
            on_wanted: called before each request that needs the servers.
            on_deserted: called when the last client of `/sse` has left and no other kind of client ever came.
            metronome: watches over the loop while requests arrive.
        """
        self.metronome = metronome
        self.runtime = runtime
        self._guard = guard or Guard()
        self._authenticator = authenticator
        self._settings = limits = settings or HttpSettings()
        self.max_body_bytes, self.keep_alive = limits.max_body_bytes, limits.keep_alive
        self._view = view
        self._ready, self._troubles = ready, troubles
        self._on_wanted, self._on_deserted, self._on_denied = on_wanted, on_deserted, on_denied
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
        self.forwards: tuple[str, ...] = ()
        """Names of headers that some server is to get, in small letters. Set it before `admit`."""
        self._admitted = object()
        """Marks the heads that were looked at under the present terms."""
        self._quiet: asyncio.Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._routes: dict[str, dict[str, Handler]] = {
            "/mcp": {"POST": self._post, "GET": self._get, "DELETE": self._delete},
            "/sse": {"GET": self._open_sse},
            "/messages": {"POST": self._post_sse},
        }
        self._open_routes: dict[str, Handler] = {
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
        self._begin_renewal()

    def admit(
        self, tokens: Iterable[str], views: Mapping[str, str], authenticator: Authenticator | None = None
    ) -> None:
        """Let in those with these tokens, or with what this authenticator takes, from now on; end what others have."""
        self._guard.expect(tokens, views, closed=authenticator is not None and authenticator.demands)
        self._authenticator = authenticator
        self._begin_renewal()
        self.review()

    def review(self) -> None:
        """End what is open and could not be opened now: views, tokens or keys have gone."""
        # What was found out of headers before is not true any more.
        self._admitted = object()
        for session in self._sessions:
            if not self._may_stay(session.owner, session.view, session.identity):
                if self._lost_its_view(session.view):
                    self._sessions.forget(session)
                    self._let_go(session.endpoint, session.close)
                else:
                    self._sessions.end(session)
        for client in list(self._sse.values()):
            if not self._may_stay(client.owner, client.view, client.identity):
                if self._lost_its_view(client.view):
                    self._let_go(client.endpoint, client.outlet.end)
                else:
                    client.outlet.end()
        for exchange, view in list(self._listens.items()):
            caller = exchange.call.caller
            if not self._may_stay(caller.principal, view, caller.identity):
                exchange.done(notifications.listening_ended(exchange.id))

    def _lost_its_view(self, view: str | None) -> bool:
        return view is not None and view not in self.runtime.snapshot.views

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

    def _may_stay(self, owner: bytes, view: str | None, identity: Identity | None) -> bool:
        if view is not None and view not in self.runtime.snapshot.views:
            return False
        if identity is None:
            return self._guard.still_knows(owner, view)
        return self._authenticator is not None and self._authenticator.still_admits(identity, view)

    def _renew(self) -> None:
        # Instead of a look at the clock for each request: what is said of a token holds for a while, not for ever.
        self._admitted = object()
        self._renewal = asyncio.get_running_loop().call_later(_RENEWED_EVERY, self._renew)

    def _begin_renewal(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        if self._authenticator is not None and self._timer is not None:
            self._renew()

    def _sweep(self) -> None:
        self._sessions.sweep()
        seconds = max(0.05, min(30.0, self._settings.session_idle / 4))
        self._timer = asyncio.get_running_loop().call_later(seconds, self._sweep)

    async def close(self, drain: float) -> None:
        """Take no more requests; let what runs end for up to `drain` seconds, cancel the rest, end every stream."""
        self._closing = True
        self._admitted = object()
        for timer in (self._timer, self._renewal):
            if timer is not None:
                timer.cancel()
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

    def take(
        self,
        connection: HttpConnection,
        head: RequestHead,
        body: bytes,
        decode: Decode = envelopes.decode_strict,
        decided: asyncio.Future[Verdict] | None = None,
    ) -> None:
        """Answer one request, now or later; what its credentials are worth may have been decided meanwhile."""
        try:
            if head.admitted is not self._admitted:
                self._admit(head, connection, decided)
            if len(body) > self.max_body_bytes:
                raise _too_large(self.max_body_bytes)
            head.handler(connection, head, body, decode)
        except Refused as refused:
            _refuse(connection, refused)
        except _Undecided as undecided:
            self._decide(connection, head, body, decode, undecided.coming)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client waits for an answer
            failure = internal(error, method=head.method, path=head.path)
            under_way = connection.under_way
            if isinstance(under_way, EventResponse):
                connection.transport.abort()  # The rest of the answer will not come.
                return
            _refuse(connection, Refused(500, failure))
            if under_way is not None:
                under_way.lost()

    def _decide(
        self,
        connection: HttpConnection,
        head: RequestHead,
        body: bytes,
        decode: Decode,
        coming: asyncio.Future[Any],
    ) -> None:
        """Take a request again when it is known what its credentials are worth."""
        waiting, judge = HttpReply(connection), self._authenticator
        connection.begin(waiting, None)

        def decided(coming: asyncio.Future[Any]) -> None:
            if connection.under_way is waiting:
                # Of whom a reload has put somebody else in the place, the word does not count any more.
                self.take(connection, head, body, decode, coming if self._authenticator is judge else None)

        coming.add_done_callback(decided)

    def look(self, connection: HttpConnection, head: RequestHead, size: int) -> bool:
        """Answer a request of whose body so much is there, if that needs no more of it; whether it does not."""
        if head.method != "POST":
            self.take(connection, head, b"")
            return True
        try:
            self._admit(head, connection)
            if size > self.max_body_bytes or head.announces_more_than(self.max_body_bytes):
                raise _too_large(self.max_body_bytes)
        except Refused as refused:
            _refuse(connection, refused)
            return True
        except _Undecided:
            pass  # It will be, when the body is there.
        return False

    def _admit(
        self, head: RequestHead, connection: HttpConnection, decided: asyncio.Future[Verdict] | None = None
    ) -> None:
        """Find out what a head means: who asks, for what, and who takes it. Raises Refused, _Undecided."""
        guard = self._guard
        if head.path.startswith(_WELL_KNOWN) and self._authenticator is not None:
            self._admit_anybody(head, self._authenticator)
            return
        origins = head.all(b"origin")
        _check(guard.refuses_place(head.all(b"host"), origins))
        head.cors = _lines(guard.cors(origins))
        path = head.path.rstrip("/") if len(head.path) > 1 else head.path
        if head.method == "OPTIONS" and head.all(b"access-control-request-method"):
            granted = guard.preflight(origins, head.all(b"access-control-request-headers"))
            if granted is None:
                raise Refused(403, "pages of other origins may not use this server; see --allow-origin")
            head.cors = _lines(granted)
            head.handler = self._preflight
            return
        if path in self._open_routes:
            if head.method != "GET":
                raise _not_allowed("GET")
            head.handler = self._open_routes[path]
            return
        asker = self._asker(head, path, connection, decided)
        path, named = (path[:4], path[5:]) if path.startswith(_VIEWED) else (path, None)
        methods = self._routes.get(path)
        if methods is None:
            raise Refused(404, "there is nothing here; MCP is at /mcp, HTTP+SSE at /sse")
        head.view = self._view_for(asker.view, named)
        head.owner, head.principal, head.identity = asker.owner, asker.principal, asker.identity
        head.forwarded = self._forwarded(head) if self.forwards else ()
        if head.method not in methods:
            raise _not_allowed(", ".join(methods))
        if self._closing:
            raise Refused(503, "the gateway is being stopped", close=True)
        head.handler = methods[head.method]
        if head.handler == self._post:
            head.must_be_json()
            head.must_accept(json=True)
        head.modern = _is_modern(head.all(_VERSION))
        sessions = head.all(_SESSION)
        head.session_id = sessions[0].decode("latin-1").strip() if len(sessions) == 1 else None
        head.admitted = self._admitted

    def _admit_anybody(self, head: RequestHead, authenticator: Authenticator) -> None:
        """Let a request come to what everybody may read, whatever page it is of. Raises Refused."""
        _check(self._guard.refuses_place(head.all(b"host"), ()))
        head.cors = _FOR_EVERY_PAGE
        document = authenticator.metadata(head.path.rstrip("/"), _host(head))
        if isinstance(document, asyncio.Future):
            raise _Undecided(document)
        if document is None:
            raise Refused(404, "there is nothing here; MCP is at /mcp, HTTP+SSE at /sse")
        if head.method == "OPTIONS":
            head.handler = self._preflight
        elif head.method in ("GET", "HEAD"):
            head.handler = partial(_answer, document)
        else:
            raise _not_allowed("GET")

    def _asker(
        self, head: RequestHead, path: str, connection: HttpConnection, decided: asyncio.Future[Verdict] | None
    ) -> _Asker:
        """Find out who asks at an endpoint. Raises Refused, _Undecided."""
        guard, authenticator = self._guard, self._authenticator
        authorizations = head.all(_AUTHORIZATION)
        token = bearer(authorizations)
        if authenticator is None or guard.has(token) or not (authenticator.demands or authenticator.judges(token)):
            if (refusal := guard.refuses_caller(authorizations, connection.address)) is not None:
                raise self._deny(head, connection, refusal, "token")
            if (refusal := guard.refuses_user(connection)) is not None:
                raise self._deny(head, connection, refusal, "user")
            owner, principal = guard.owner(authorizations), guard.principal(authorizations)
            return _Asker(owner, principal, guard.view_of(authorizations), None)
        if len(authorizations) > 1 or b"access_token" in head.query:
            # RFC 6750 §2: one way to send a token, and never in the URL.
            raise Refused(400, "send one access token, in the header Authorization: Bearer <token>")
        at = self._endpoint_of_messages(head) if path == "/messages" else path
        if not token:
            headers = [(b"www-authenticate", authenticator.challenge(at, _host(head), None))]
            why = "an access token is required: log in, as WWW-Authenticate says"
            raise self._deny(head, connection, Refusal(401, why, headers), "token")
        # Most clients show the same token again, also those who send a header and its body apart.
        shown = (token, at, self._admitted)
        if connection.shown == shown:
            return cast("_Asker", connection.asker)
        if decided is not None and decided.cancelled():
            raise Refused(503, "the gateway is being stopped", close=True)
        verdict = authenticator.check(token, at) if decided is None else decided.result()
        if isinstance(verdict, Admitted):
            asker = _Asker(verdict.principal, verdict.principal, verdict.view, verdict.identity)
            connection.shown, connection.asker = shown, asker
            return asker
        if not isinstance(verdict, Rejected):
            raise _Undecided(verdict)
        if verdict.status == 503:
            raise Refused(503, verdict.why, headers=_SOON)
        headers = [(b"www-authenticate", authenticator.challenge(at, _host(head), verdict))]
        rule = "scope" if verdict.status == 403 else "key" if token.startswith(KEY_PREFIX) else "token"
        refusal = guard.refuses_guess(token, connection.address) or Refusal(verdict.status, verdict.why, headers)
        raise self._deny(head, connection, refusal, rule, verdict.identity)

    def _deny(
        self,
        head: RequestHead,
        connection: HttpConnection,
        refusal: Refusal,
        rule: str,
        identity: Identity | None = None,
    ) -> Refused:
        """Somebody is turned away: tell whoever keeps account of that. What is to be raised then."""
        self._on_denied(
            Denial(
                status=refusal.status,
                rule=rule,
                why=refusal.why,
                method=head.method,
                path=head.path,
                address=connection.address,
                identity=identity,
            )
        )
        return Refused(refusal.status, refusal.why, headers=refusal.headers)

    def _endpoint_of_messages(self, head: RequestHead) -> str:
        """What is sent to `/messages` needs what the stream needed that it belongs to."""
        client = self._sse.get(_session_ids(head)[0]) if len(_session_ids(head)) == 1 else None
        return "/sse" if client is None or client.view is None else f"/sse/{client.view}"

    def _forwarded(self, head: RequestHead) -> Forwarded:
        """What of a head some server is to get. Raises Refused."""
        found = ((name, head.one(name.encode())) for name in self.forwards)
        sent = tuple((name, value) for name, value in found if value)
        if any(len(value) > _LONGEST_FORWARDED for _, value in sent):
            raise Refused(400, f"a header that is passed on is longer than {_LONGEST_FORWARDED} characters")
        return sent

    def _view_for(self, bound: str | None, named: str | None) -> str | None:
        """The view that a request is for: what its token says, else what its path says. Raises Refused."""
        if bound is not None:
            if named not in (None, bound):
                raise Refused(403, "this token opens another view, and nothing else: use /mcp")
            return bound
        if named is None:
            return self._view
        if named not in self.runtime.snapshot.views:
            raise self._no_view()
        return named

    def _no_view(self) -> Refused:
        return Refused(404, f"there is no such view; there are: {', '.join(self.runtime.snapshot.views) or 'none'}")

    def _dispatcher(self, head: RequestHead) -> Dispatcher:
        if head.view is not None and head.view not in self.runtime.snapshot.views:
            # A reload has taken it away, and is about to say who may come in.
            raise self._no_view()
        return self.runtime.dispatcher(head.view)

    def _preflight(self, connection: HttpConnection, *_: object) -> None:
        connection.answer(204, b"")

    def _health(self, connection: HttpConnection, *_: object) -> None:
        connection.answer(200, b'{"status":"ok"}')

    def _readiness(self, connection: HttpConnection, head: RequestHead, *_: object) -> None:
        status = "stopping" if self._closing else "ready" if self._ready() else "starting"
        told: dict[str, object] = {"status": status}
        # What the servers are called is nobody's business who may not call them.
        if self._guard.knows_for_all(head.all(_AUTHORIZATION)) and self._guard.refuses_user(connection) is None:
            told["notReady"] = [trouble.told() for trouble in self._troubles()]
        connection.answer(200 if status == "ready" else 503, envelopes.encode(told))

    def _opens_elsewhere(self, connection: HttpConnection, head: RequestHead, body: bytes, decode: Decode) -> bool:
        """Have a large message opened by another thread; it is taken again when that is done. Refuse one too large."""
        if len(body) <= _LARGE or decode is not envelopes.decode_strict:
            return False
        loop = asyncio.get_running_loop()
        waiting = HttpReply(connection)
        connection.begin(waiting, None)

        def opened(opening: asyncio.Future[Envelope]) -> None:
            if connection.under_way is waiting:
                self.take(connection, head, body, lambda _: opening.result())

        loop.run_in_executor(None, envelopes.decode_strict, body).add_done_callback(opened)
        return True

    # --- /mcp ---------------------------------------------------------------------------------

    def _post(self, connection: HttpConnection, head: RequestHead, body: bytes, decode: Decode) -> None:
        """Decide which era a message is of, and answer it."""
        if len(body) > _LARGE and self._opens_elsewhere(connection, head, body, decode):
            return
        try:
            envelope = decode(body)
        except ParseError as error:
            raise Refused(400, error) from None
        except NotAnEnvelope as error:
            if envelopes.is_batch(body) and not head.modern:
                self._post_batch(connection, head, body)
                return
            why = NO_BATCHES if envelopes.is_batch(body) else f"not a JSON-RPC request: {error}"
            raise Refused(400, why, id_=error.id) from None
        if head.modern:
            self._post_stateless(connection, head, envelope)
        elif (meta := (envelope.params or {}).get("_meta")) is not None and _names_revision(meta):
            stated = "names a handshake revision" if head.all(_VERSION) else "is missing"
            why = f"the header MCP-Protocol-Version {stated}, the body has the envelope of {revisions.NEWEST.date}"
            raise Refused(400, RpcError(why, code=HEADER_MISMATCH), id_=_id(envelope))
        else:
            self._post_session(connection, head, envelope)

    def _post_session(self, connection: HttpConnection, head: RequestHead, envelope: Envelope) -> None:
        method = envelope.method
        if method == "initialize" and envelope.id is not ABSENT and not head.all(_SESSION):
            self._initialize(connection, head, envelope, method)
            return
        session = self._session_of(head, envelope)
        if method is not None and envelope.id is not ABSENT:
            reply = HttpReply(connection, session)
            connection.begin(reply, session.patience)
            session.endpoint.hear_request(envelope, method, reply.say, reply.tell)
            return
        if method is None:
            session.endpoint.hear_answer(envelope)
        else:
            session.endpoint.hear_notice(method, envelope.params or {})
        connection.answer(202, b"")

    def _initialize(self, connection: HttpConnection, head: RequestHead, envelope: Envelope, method: str) -> None:
        if not self.runtime.admission.takes_sessions:
            raise Refused(503, RpcError(_NO_MEMORY), id_=_id(envelope), headers=_SOON)
        if self._sessions.full:
            raise Refused(429, "too many sessions are open", id_=_id(envelope), headers=_LATER)
        if self._sessions.crowded_by(head.owner):
            why = f"{self._settings.max_sessions_each} sessions of this token are open: end some with DELETE /mcp"
            raise Refused(429, why, id_=_id(envelope), headers=_LATER)
        self._sse_only = False
        self._on_wanted()
        session = HttpSession(self._dispatcher(head), head.owner, head.principal, head.view, head.identity)
        session.identify(head.identity, head.forwarded)
        waiting = HttpReply(connection)
        connection.begin(waiting, None)

        def say(frame: Sequence[Buffer]) -> None:
            if connection.under_way is waiting:
                opened = session.endpoint.session is not None
                headers = [(_SESSION, session.id.encode())] if opened else ()
                connection.answer(200 if opened else 400, joined(frame), headers)

        session.endpoint.hear_request(envelope, method, say, say)
        if session.endpoint.session is None:
            session.close()
            return
        times = self._settings
        session.patience = min(times.resumable_after, times.commit_after) if session.primes else times.commit_after
        self._sessions.add(session)

    def _post_batch(self, connection: HttpConnection, head: RequestHead, body: bytes) -> None:
        if not head.all(_SESSION):
            raise Refused(400, NO_BATCHES)
        session = self._session_of(head)
        reply = HttpReply(connection, session)
        connection.begin(reply, session.patience)
        session.endpoint.hear_batch(body, reply.say, reply.tell, lambda: reply.say(()), strict=True)

    def _session_of(self, head: RequestHead, envelope: Envelope | None = None) -> HttpSession:
        given = head.session_id
        session = None if given is None else self._sessions.find(given, head.owner, head.view)
        if session is not None:
            if session.identity is not head.identity or session.forwarded != head.forwarded:
                session.identify(head.identity, head.forwarded)
            return session
        id_ = None if envelope is None else _id(envelope)
        if head.one(_SESSION) is None:
            why = "the header Mcp-Session-Id is missing: send `initialize` first, its answer has the id"
            raise Refused(400, why, id_=id_)
        raise Refused(404, "there is no such session, or not any more: send `initialize` again", id_=id_)

    def _get(self, connection: HttpConnection, head: RequestHead, *_: object) -> None:
        """Open a session's standalone stream, or read on where another stream broke off."""
        if head.modern:
            raise _not_allowed("POST")
        if not head.all(_VERSION) and not head.all(_SESSION):
            raise _not_allowed("POST, DELETE", "GET /mcp needs the session of an `initialize`; HTTP+SSE is at /sse")
        head.must_accept(json=False)
        session = self._session_of(head)
        last = head.one(b"last-event-id")
        if last is not None:
            outlet = session.read_on(last)
            if outlet is None:
                raise Refused(400, "Last-Event-ID names no event of this session that is still kept: leave it out")
        elif session.listening:
            raise Refused(409, "another connection listens for this session already")
        else:
            outlet = session.listen()
        EventResponse(connection, outlet, partial(session.left, outlet))

    def _delete(self, connection: HttpConnection, head: RequestHead, *_: object) -> None:
        if head.modern:
            raise _not_allowed("POST")
        self._sessions.end(self._session_of(head))
        connection.answer(200, b"")

    # --- stateless requests -------------------------------------------------------------------

    def _post_stateless(self, connection: HttpConnection, head: RequestHead, envelope: Envelope) -> None:
        self._sse_only = False
        self._on_wanted()
        method = envelope.method
        if method is None:
            raise Refused(400, "this server asks its clients nothing, so there is nothing to respond to")
        if envelope.id is ABSENT:
            connection.answer(202, b"")
            return
        id_ = _id(envelope)
        if id_ is None:
            raise Refused(400, "an id is a string or an integer")
        ladder = self._ladders.get(head.view)
        if ladder is None:
            ladder = self._ladders[head.view] = Ladder()
        dispatcher = self._dispatcher(head)
        try:
            call = ladder.admit(head, envelope, method, dispatcher, head.principal, head.identity, head.forwarded)
        except RpcError as error:
            raise Refused(status_of(error), error, id_=id_) from None
        if method == "subscriptions/listen":
            self._listen(ListenRequest(connection, id=id_, call=call, on_over=self._ended), dispatcher, head.view)
            return
        exchange = StatelessRequest(connection, id=id_, call=call, on_over=self._ended)
        self._exchanges.add(exchange)
        connection.begin(exchange, self._settings.commit_after)
        exchange.begin(dispatcher)

    def _ended(self, exchange: StatelessRequest) -> None:
        """A stateless request has its answer, or nobody who waits for one."""
        self._exchanges.discard(exchange)
        self._listens.pop(exchange, None)
        if self._quiet is not None and not self._exchanges:
            self._quiet.set()

    def _listen(self, exchange: ListenRequest, dispatcher: Dispatcher, view: str | None) -> None:
        connection = exchange.connection

        def opened(call: Call) -> None:
            if connection.under_way is exchange and exchange.open(call, dispatcher):
                self._listens[exchange] = view

        connection.begin(exchange, None)
        exchange.running = Opening(exchange, opened).request(dispatcher, exchange.call)

    # --- HTTP+SSE -----------------------------------------------------------------------------

    def _open_sse(self, connection: HttpConnection, head: RequestHead, *_: object) -> None:
        """Open a client's stream; the connection is its session."""
        head.must_accept(json=False)
        if not self.runtime.admission.takes_sessions:
            raise Refused(503, RpcError(_NO_MEMORY), headers=_SOON)
        if len(self._sse) >= self._settings.max_sessions:
            raise Refused(429, "too many clients are connected", headers=_LATER)
        each = self._settings.max_sessions_each
        if head.owner and sum(client.owner == head.owner for client in self._sse.values()) >= each:
            raise Refused(429, f"{each} clients with this token are connected: close some", headers=_LATER)
        self._on_wanted()
        client = _SseClient(self._dispatcher(head), head.owner, head.principal, head.view, head.identity)
        client.endpoint.identify(head.identity, head.forwarded)
        self._sse[client.id] = client
        client.outlet.put(event(f"/messages?session_id={client.id}".encode(), kind=b"endpoint"))
        EventResponse(connection, client.outlet, partial(self._close_sse, client))

    def _close_sse(self, client: _SseClient) -> None:
        del self._sse[client.id]
        client.endpoint.abandon()
        if not self._sse and self._sse_only and not self._closing:
            asyncio.get_running_loop().call_later(self._settings.sse_linger, self._note_desertion)

    def _note_desertion(self) -> None:
        if not self._sse and self._sse_only and not self._closing:
            self._on_deserted()

    def _post_sse(self, connection: HttpConnection, head: RequestHead, body: bytes, decode: Decode) -> None:
        """Take a message of a client whose answers go to its stream."""
        ids = _session_ids(head)
        if len(ids) != 1:
            raise Refused(400, "the query must have the session_id that /sse gave")
        client = self._sse.get(ids[0])
        if client is None or client.owner != head.owner:
            raise Refused(404, "there is no such session, or not any more: open /sse again")
        client.endpoint.identify(head.identity, head.forwarded)
        head.must_be_json()
        if client.outlet.waiting > _MOST_UNREAD:
            raise Refused(429, "read the answers that wait on /sse first")
        if self._opens_elsewhere(connection, head, body, decode):
            return
        try:
            decode(body)
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
        connection.answer(202, b"")


class _SseClient:
    """A client of HTTP+SSE."""

    def __init__(
        self, dispatcher: Dispatcher, owner: bytes, principal: bytes, view: str | None, identity: Identity | None
    ) -> None:
        self.id = secrets.token_urlsafe(24)
        self.owner = owner
        self.view = view
        self.identity = identity
        self.outlet = Outlet()
        self.endpoint = Session(dispatcher, self._say, principal, lambda: self.outlet.waiting, identity=identity)

    def _say(self, frame: Sequence[Buffer]) -> None:
        message, lossy = message_event(frame)
        self.outlet.put(message, lossy=lossy)


_SSE_ID: Final = (b"session_id", b"sessionId")


class _Asker(NamedTuple):
    """Who makes a request."""

    owner: bytes
    """Whose sessions it may use."""
    principal: bytes
    view: str | None
    """The only view that is open to it; None: any."""
    identity: Identity | None


def _session_ids(head: RequestHead) -> list[str]:
    """What a query gives as the id of a stream of `/sse`."""
    parts = (part.partition(b"=") for part in head.query.split(b"&"))
    return [id_.decode("latin-1") for name, _, id_ in parts if name in _SSE_ID]


def _host(head: RequestHead) -> str:
    """By what name we were called; the guard has let it in."""
    return head.all(b"host")[0].decode("latin-1").strip().lower()


def _is_modern(versions: Sequence[bytes]) -> bool:
    """Whether a request with these version headers is for the stateless ladder, if only to fail there."""
    if not versions:
        return False
    if len(versions) > 1:
        return True
    revision = revisions.REVISIONS.get(versions[0].decode("latin-1").strip())
    return revision is None or revision.stateless


def _names_revision(meta: Raw) -> bool:
    return revisions.PROTOCOL_VERSION in (envelopes.members(meta) or {})


def _id(envelope: Envelope) -> bytes | None:
    id_ = bytes(envelope.id)
    return None if envelopes.read_id(id_) is None else id_


def _lines(headers: HeaderList) -> bytes:
    return b"".join(b"%b: %b\r\n" % line for line in headers)


def _answer(document: bytes, connection: HttpConnection, *_: object) -> None:
    connection.answer(200, document)


def _refuse(connection: HttpConnection, refused: Refused) -> None:
    body = joined(envelopes.failure(refused.id, refused.error))
    connection.answer(refused.status, body, refused.headers, close=refused.close)


def _check(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise Refused(refusal.status, refusal.why, headers=refusal.headers)


def _not_allowed(methods: str, why: str = "the method is not allowed here") -> Refused:
    return Refused(405, why, headers=[(b"allow", methods.encode())])


def _too_large(limit: int) -> Refused:
    return Refused(413, f"the body is larger than {limit} bytes", close=True)
