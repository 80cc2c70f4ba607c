"""The HTTP transport towards clients: every revision of MCP over HTTP, side by side on one port.

    POST, GET, DELETE /mcp       Streamable HTTP: handshake sessions, and stateless requests of 2026-07-28
    … /mcp/NAME, GET /sse/NAME   the same for a view
    GET /sse, POST /messages     HTTP+SSE, of 2024-11-05
    GET /healthz, GET /readyz    for whoever watches over us
    GET /.well-known/…           for whoever has no access token yet
    GET, POST /connect …         web pages, for people

Every request comes in by `take`. What its header means is found out once for all requests with the same one (`_admit`):
who asks, for what, and of which era a message is, which says who takes it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from muxway.calls.incidents import internal
from muxway.clients.session import NO_BATCHES
from muxway.clients.transports.guard import Guard
from muxway.clients.transports.http_authorization import HttpAuthorization, Undecided
from muxway.clients.transports.http_gateway import HttpSettings, ServedGateway, not_allowed, too_large
from muxway.clients.transports.http_handshake import VERSION, HandshakeEndpoint
from muxway.clients.transports.http_pages import PageEndpoint
from muxway.clients.transports.http_request import Refused
from muxway.clients.transports.http_response import EventResponse, HttpReply, joined
from muxway.clients.transports.http_sse import SseEndpoint
from muxway.clients.transports.http_stateless import StatelessEndpoint
from muxway.errors import ParseError
from muxway.wire import envelopes, revisions
from muxway.wire.envelopes import NotAnEnvelope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from muxway.calls.call import Forwarded
    from muxway.calls.identity import Denial
    from muxway.clients.authenticator import Authenticator, Verdict
    from muxway.clients.session import Session
    from muxway.clients.transports.http_connection import HttpConnection
    from muxway.clients.transports.http_request import RequestHead
    from muxway.exchange.runtime import Runtime
    from muxway.net.metronome import Metronome
    from muxway.wire.envelopes import Envelope

Decode: TypeAlias = "Callable[[bytes], Envelope]"
Handler: TypeAlias = "Callable[[HttpConnection, RequestHead, bytes, Decode], None]"
_LONGEST_CALL: Final = 3600.0
"""Seconds that calls under way are given to end when their view has gone; servers have their own limits for them."""
_VIEWED: Final = ("/mcp/", "/sse/")
_WELL_KNOWN: Final = "/.well-known/"
_LONGEST_FORWARDED: Final = 1024
_LARGE: Final = 512 * 1024
"""Bytes of a message that another thread opens: to look through each MiB takes some milliseconds, several times."""


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
        limits = settings or HttpSettings()
        self.max_body_bytes, self.keep_alive = limits.max_body_bytes, limits.keep_alive
        self.gateway = ServedGateway(runtime, limits, view, on_wanted)
        self._authorization = HttpAuthorization(guard or Guard(), authenticator, on_denied)
        self._handshake = HandshakeEndpoint(self.gateway)
        self._stateless = StatelessEndpoint(self.gateway)
        self._sse = SseEndpoint(self.gateway, on_deserted)
        self.pages = PageEndpoint(self._authorization)
        self._authorization.on_renewed = self.gateway.end_expired
        self._ready, self._troubles = ready, troubles
        self._leaving: set[asyncio.Task[None]] = set()
        """What ends when its calls are over, because its view has gone."""
        self.forwards: tuple[str, ...] = ()
        """Names of headers that some server is to get, in small letters. Set it before `admit`."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._posts: tuple[Handler, ...] = (self._handshake.post, self._stateless.post)
        """Who takes messages at `/mcp`: of the one era, of the other."""
        self._routes: dict[str, dict[str, Handler]] = {
            "/mcp": {"POST": self._handshake.post, "GET": self._handshake.get, "DELETE": self._handshake.delete},
            "/sse": {"GET": self._sse.open},
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
        return len(self._handshake.sessions)

    # --- life ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin housekeeping."""
        self._sweep()
        self._authorization.open()

    def _sweep(self) -> None:
        self._handshake.sessions.sweep()
        seconds = max(0.05, min(30.0, self.gateway.settings.session_idle / 4))
        self._sweeper = asyncio.get_running_loop().call_later(seconds, self._sweep)

    def held(self) -> AbstractContextManager[None]:
        """Let every request wait that comes meanwhile; it is then judged by what holds afterwards."""
        return self._authorization.held()

    def admit(
        self,
        tokens: Iterable[str],
        views: Mapping[str, str],
        authenticator: Authenticator | None = None,
        own: str | None = None,
    ) -> None:
        """Let in those with these tokens, or with what this authenticator takes, from now on; end what others have.

        Whoever has the token `own` is the user who runs us.
        """
        self._authorization.expect(tokens, views, authenticator, own)
        self.review()

    def review(self) -> None:
        """End what is open and could not be opened now: views, tokens or keys have gone."""
        # What was found out of headers before is not true any more.
        self._authorization.terms = object()
        gateway, may_stay, sessions = self.gateway, self._authorization.may_stay, self._handshake.sessions
        for session in sessions:
            if not gateway.has(session.view):
                sessions.forget(session)
                self._let_go(session.endpoint, session.close)
            elif not may_stay(session.owner, session.view, session.identity):
                sessions.end(session)
        for client in self._sse.clients:
            if not gateway.has(client.view):
                self._let_go(client.endpoint, client.outlet.end)
            elif not may_stay(client.owner, client.view, client.identity):
                client.outlet.end()
        self._stateless.review(may_stay)

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

    async def close(self, drain: float) -> None:
        """Take no more requests; let what runs end for up to `drain` seconds, cancel the rest, end every stream."""
        self.gateway.closing = True
        self._authorization.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self.pages.close()
        sessions, clients = self._handshake.sessions, self._sse.clients
        endpoints = [*(session.endpoint for session in sessions), *(client.endpoint for client in clients)]
        ending = [endpoint.finish(drain) for endpoint in endpoints if endpoint.peer.theirs]
        await asyncio.gather(*ending, self._stateless.finish(drain))
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=drain)
            for task in self._leaving:
                task.cancel()
        self._stateless.stop()
        for session in sessions:
            sessions.end(session)
        for client in self._sse.clients:
            client.outlet.end()

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
            if head.admitted is not self._authorization.terms:
                self._admit(head, connection, decided)
            if len(body) > self.max_body_bytes:
                raise too_large(self.max_body_bytes)
            if (
                len(body) > _LARGE
                and head.handler in self._posts
                and self._opens_elsewhere(connection, head, body, decode)
            ):
                return
            head.handler(connection, head, body, decode)
        except Refused as refused:
            _refuse(connection, refused)
        except ParseError as error:
            _refuse(connection, Refused(400, error))
        except NotAnEnvelope as error:
            why = NO_BATCHES if envelopes.is_batch(body) else f"not a JSON-RPC request: {error}"
            _refuse(connection, Refused(400, why, id_=error.id))
        except Undecided as undecided:
            self._decide(connection, head, body, decode, undecided)
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
        undecided: Undecided,
    ) -> None:
        """Take a request again when it is known what its credentials are worth."""
        waiting = HttpReply(connection)
        connection.begin(waiting, None)
        self._when_decided(undecided, connection, waiting, partial(self.take, connection, head, body, decode))

    def _when_decided(
        self,
        undecided: Undecided,
        connection: HttpConnection,
        waiting: HttpReply,
        go_on: Callable[[asyncio.Future[Any] | None], None],
    ) -> None:
        """Go on with a request, if its client still waits, when it is known what its credentials are worth."""
        authorization = self._authorization
        judge = authorization.authenticator

        def decided(coming: asyncio.Future[Any]) -> None:
            if connection.under_way is waiting:
                # Of whom a reload has put somebody else in the place, the word does not count any more.
                stale = undecided.anew or authorization.authenticator is not judge
                go_on(None if stale else coming)

        undecided.coming.add_done_callback(decided)

    def look(
        self,
        connection: HttpConnection,
        head: RequestHead,
        size: int,
        decided: asyncio.Future[Verdict] | None = None,
    ) -> bool:
        """Answer a request of whose body so much is there, if that needs no more of it; whether it does not, for now.

        What its credentials are worth may have been decided since it was looked at last.
        """
        if head.method != "POST":
            self.take(connection, head, b"")
            return True
        try:
            self._admit(head, connection, decided)
            limit = head.limit or self.max_body_bytes
            if size > limit or head.announces_more_than(limit):
                raise too_large(limit)
        except Refused as refused:
            _refuse(connection, refused)
            return True
        except Undecided as undecided:
            # Strangers could send megabytes meanwhile.
            waiting = HttpReply(connection)
            connection.hold(waiting)
            self._when_decided(undecided, connection, waiting, connection.look_again)
            return True
        return False

    def _admit(
        self, head: RequestHead, connection: HttpConnection, decided: asyncio.Future[Verdict] | None = None
    ) -> None:
        """Find out what a head means: who asks, for what, and who takes it. Raises Refused, Undecided."""
        authorization = self._authorization
        if head.path.startswith(_WELL_KNOWN) and authorization.authenticator is not None:
            self._admit_anybody(head, authorization.authenticator)
            return
        path = head.path.rstrip("/") if len(head.path) > 1 else head.path
        if self.pages.has(path):
            if self.pages.admit(head, path):
                head.handler = _preflight
            return
        authorization.check_place(head)
        if head.method == "OPTIONS" and head.all(b"access-control-request-method"):
            authorization.check_preflight(head)
            head.handler = _preflight
            return
        if path in self._open_routes:
            if head.method != "GET":
                raise not_allowed("GET")
            head.handler = self._open_routes[path]
            return
        at = self._sse.place_of(head) if path == "/messages" else path
        asker = authorization.asker(head, at, connection, decided)
        path, named = (path[:4], path[5:]) if path.startswith(_VIEWED) else (path, None)
        methods = self._routes.get(path)
        if methods is None:
            raise Refused(404, "there is nothing here; MCP is at /mcp, HTTP+SSE at /sse")
        head.view = self.gateway.view_for(asker.view, named)
        head.owner, head.principal, head.identity = asker.owner, asker.principal, asker.identity
        head.until = asker.until
        head.forwarded = self._forwarded(head) if self.forwards else ()
        if head.method not in methods:
            raise not_allowed(", ".join(methods))
        if self.gateway.closing:
            raise Refused(503, "the gateway is being stopped", close=True)
        head.handler = methods[head.method]
        head.modern = _is_modern(head.all(VERSION))
        if head.handler in self._posts:
            head.must_be_json()
            head.must_accept(json=True)
            head.handler = self._posts[head.modern]
        head.session = None
        head.admitted = authorization.terms

    def _admit_anybody(self, head: RequestHead, authenticator: Authenticator) -> None:
        """Let a request come to what everybody may read. Raises Refused, Undecided."""
        document = self._authorization.public_document(head, authenticator)
        if head.method == "OPTIONS":
            head.handler = _preflight
        elif head.method in ("GET", "HEAD"):
            head.handler = partial(_answer, document)
        else:
            raise not_allowed("GET")

    def _forwarded(self, head: RequestHead) -> Forwarded:
        """What of a head some server is to get. Raises Refused."""
        found = ((name, head.one(name.encode())) for name in self.forwards)
        sent = tuple((name, value) for name, value in found if value)
        if any(len(value) > _LONGEST_FORWARDED for _, value in sent):
            raise Refused(400, f"a header that is passed on is longer than {_LONGEST_FORWARDED} characters")
        return sent

    # --- who takes it -------------------------------------------------------------------------

    def _health(self, connection: HttpConnection, *_: object) -> None:
        connection.answer(200, b'{"status":"ok"}')

    def _readiness(self, connection: HttpConnection, head: RequestHead, *_: object) -> None:
        status = "stopping" if self.gateway.closing else "ready" if self._ready() else "starting"
        told: dict[str, object] = {"status": status}
        if self._authorization.may_see_servers(head, connection):
            told["notReady"] = [trouble.told() for trouble in self._troubles()]
        connection.answer(200 if status == "ready" else 503, envelopes.encode(told))

    def _post_sse(self, connection: HttpConnection, head: RequestHead, body: bytes, decode: Decode) -> None:
        client = self._sse.client_of(head)
        if not self._opens_elsewhere(connection, head, body, decode):
            self._sse.post(connection, client, body, decode)

    def _opens_elsewhere(self, connection: HttpConnection, head: RequestHead, body: bytes, decode: Decode) -> bool:
        """Have a large message opened by another thread; it is taken again when that is done."""
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


def _is_modern(versions: Sequence[bytes]) -> bool:
    """Whether a request with these version headers is for the stateless ladder, if only to fail there."""
    if not versions:
        return False
    if len(versions) > 1:
        return True
    revision = revisions.REVISIONS.get(versions[0].decode("latin-1").strip())
    return revision is None or revision.stateless


def _preflight(connection: HttpConnection, *_: object) -> None:
    connection.answer(204, b"")


def _answer(document: bytes, connection: HttpConnection, *_: object) -> None:
    connection.answer(200, document)


def _refuse(connection: HttpConnection, refused: Refused) -> None:
    body = joined(envelopes.failure(refused.id, refused.error))
    connection.answer(refused.status, body, refused.headers, close=refused.close)
