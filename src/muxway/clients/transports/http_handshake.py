"""Requests of handshake clients over Streamable HTTP: a session is opened, used, listened to, ended."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from muxway.clients.session import NO_BATCHES
from muxway.clients.transports.http_gateway import LATER, id_of, not_allowed
from muxway.clients.transports.http_request import Refused
from muxway.clients.transports.http_response import EventResponse, HttpReply, joined
from muxway.clients.transports.http_sessions import HttpSession, HttpSessions
from muxway.errors import HEADER_MISMATCH, RpcError
from muxway.wire import envelopes, revisions
from muxway.wire.envelopes import ABSENT, NotAnEnvelope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muxway.clients.transports.http_connection import HttpConnection
    from muxway.clients.transports.http_gateway import ServedGateway
    from muxway.clients.transports.http_request import RequestHead
    from muxway.wire.envelopes import Buffer, Envelope, Raw

SESSION: Final = b"mcp-session-id"
VERSION: Final = b"mcp-protocol-version"


class HandshakeEndpoint:
    """`POST`, `GET` and `DELETE /mcp` with a session."""

    def __init__(self, gateway: ServedGateway) -> None:
        self._gateway = gateway
        limits = gateway.settings
        self.sessions = HttpSessions(limits.max_sessions, limits.max_sessions_each, limits.session_idle)

    def post(
        self, connection: HttpConnection, head: RequestHead, body: bytes, decode: Callable[[bytes], Envelope]
    ) -> None:
        """Take a message. Raises Refused, ParseError, NotAnEnvelope."""
        try:
            envelope = decode(body)
        except NotAnEnvelope:
            if not envelopes.is_batch(body):
                raise
            self._post_batch(connection, head, body)
            return
        method, params = envelope.method, envelope.params
        if params is not None and "_meta" in params:
            _must_name_no_revision(head, envelope, params["_meta"])
        if method == "initialize" and envelope.id is not ABSENT and not head.all(SESSION):
            self._initialize(connection, head, envelope, method)
            return
        session = head.session
        if (
            session is None
            or session.gone
            or session.identity is not head.identity
            or session.forwarded is not head.forwarded
        ):
            session = self._session_of(head, envelope)
        session.used = monotonic()
        if method is not None and envelope.id is not ABSENT:
            reply = HttpReply(connection, session)
            connection.begin(reply, session.patience)
            session.endpoint.hear_request(envelope, method, reply.say, reply.tell)
            return
        if method is None:
            session.endpoint.hear_answer(envelope)
        else:
            session.endpoint.hear_notice(method, params or {})
        connection.answer(202, b"")

    def _post_batch(self, connection: HttpConnection, head: RequestHead, body: bytes) -> None:
        """Take a JSON array of messages. Raises Refused."""
        if not head.all(SESSION):
            raise Refused(400, NO_BATCHES)
        session = self._session_of(head)
        reply = HttpReply(connection, session)
        connection.begin(reply, session.patience)
        session.endpoint.hear_batch(body, reply.say, reply.tell, lambda: reply.say(()), strict=True)

    def _initialize(self, connection: HttpConnection, head: RequestHead, envelope: Envelope, method: str) -> None:
        gateway = self._gateway
        gateway.must_have_memory(envelope)
        if self.sessions.full:
            raise Refused(429, "too many sessions are open", id_=id_of(envelope), headers=LATER)
        times = gateway.settings
        if self.sessions.crowded_by(head.owner):
            why = f"{times.max_sessions_each} sessions of this token are open: end some with DELETE /mcp"
            raise Refused(429, why, id_=id_of(envelope), headers=LATER)
        gateway.wanted()
        session = HttpSession(gateway.dispatcher(head), head.owner, head.principal, head.view, head.identity)
        session.identify(head.identity, head.forwarded)
        waiting = HttpReply(connection)
        connection.begin(waiting, None)

        def say(frame: Sequence[Buffer]) -> None:
            if connection.under_way is waiting:
                opened = session.endpoint.session is not None
                headers = [(SESSION, session.id.encode())] if opened else ()
                connection.answer(200 if opened else 400, joined(frame), headers)

        session.endpoint.hear_request(envelope, method, say, say)
        if session.endpoint.session is None:
            session.close()
            return
        session.patience = min(times.resumable_after, times.commit_after) if session.primes else times.commit_after
        self.sessions.add(session)

    def _session_of(self, head: RequestHead, envelope: Envelope | None = None) -> HttpSession:
        """The session that a request names, which has shown a sign of life by that. Raises Refused."""
        ids = head.all(SESSION)
        given = ids[0].decode("latin-1").strip() if len(ids) == 1 else None
        session = None if given is None else self.sessions.find(given, head.owner, head.view)
        if session is not None:
            if session.identity is not head.identity or session.forwarded is not head.forwarded:
                session.identify(head.identity, head.forwarded)
            head.session = session
            return session
        if head.one(SESSION) is None:
            why = "the header Mcp-Session-Id is missing: send `initialize` first, its answer has the id"
            raise Refused(400, why, id_=id_of(envelope))
        raise Refused(404, "there is no such session, or not any more: send `initialize` again", id_=id_of(envelope))

    def get(self, connection: HttpConnection, head: RequestHead, *_: object) -> None:
        """Open a session's standalone stream, or read on where another stream broke off. Raises Refused."""
        if head.modern:
            raise not_allowed("POST")
        if not head.all(VERSION) and not head.all(SESSION):
            raise not_allowed("POST, DELETE", "GET /mcp needs the session of an `initialize`; HTTP+SSE is at /sse")
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
        ends = self._gateway.ends
        if head.until is not None:
            ends[outlet] = (head.until, outlet.end)

        def left() -> None:
            ends.pop(outlet, None)
            session.left(outlet)

        EventResponse(connection, outlet, left)

    def delete(self, connection: HttpConnection, head: RequestHead, *_: object) -> None:
        """End a session. Raises Refused."""
        if head.modern:
            raise not_allowed("POST")
        self.sessions.end(self._session_of(head))
        connection.answer(200, b"")


def _must_name_no_revision(head: RequestHead, envelope: Envelope, meta: Raw) -> None:
    """Refuse a message that says of itself that it is of the other era."""
    if revisions.PROTOCOL_VERSION in (envelopes.members(meta) or {}):
        stated = "names a handshake revision" if head.all(VERSION) else "is missing"
        why = f"the header MCP-Protocol-Version {stated}, the body has the envelope of {revisions.NEWEST.date}"
        raise Refused(400, RpcError(why, code=HEADER_MISMATCH), id_=id_of(envelope))
