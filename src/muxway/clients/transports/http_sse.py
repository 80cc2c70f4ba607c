"""HTTP+SSE of 2024-11-05, towards clients: a stream that is the session, and messages posted beside it."""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from typing import TYPE_CHECKING, Final

from muxway.clients.session import Session
from muxway.clients.transports.http_gateway import LATER
from muxway.clients.transports.http_request import Refused
from muxway.clients.transports.http_response import EventResponse, Outlet, event, message_event
from muxway.errors import InvalidRequest, ParseError
from muxway.wire import envelopes
from muxway.wire.envelopes import NotAnEnvelope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muxway.calls.identity import Identity
    from muxway.clients.transports.http_connection import HttpConnection
    from muxway.clients.transports.http_gateway import ServedGateway
    from muxway.clients.transports.http_request import RequestHead
    from muxway.exchange.dispatcher import Dispatcher
    from muxway.wire.envelopes import Buffer, Envelope

_MOST_UNREAD: Final = 16 * 1024 * 1024
"""Bytes of unread answers above which a client may ask nothing more."""
_ID: Final = (b"session_id", b"sessionId")


class SseClient:
    """A client, for as long as its stream is open."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        owner: bytes,
        principal: bytes,
        view: str | None,
        identity: Identity | None,
        place: str,
    ) -> None:
        self.id = secrets.token_urlsafe(24)
        self.place = place
        """The path at which it was opened: what is at `/sse` may be a view as well."""
        self.owner = owner
        self.view = view
        self.identity = identity
        self.outlet = Outlet()
        self.endpoint = Session(dispatcher, self._say, principal, lambda: self.outlet.waiting, identity=identity)

    def _say(self, frame: Sequence[Buffer]) -> None:
        message, lossy = message_event(frame)
        self.outlet.put(message, lossy=lossy)


class SseEndpoint:
    """`GET /sse`, `POST /messages`."""

    def __init__(self, gateway: ServedGateway, on_deserted: Callable[[], None]) -> None:
        """Prepare; `on_deserted` is called when the last client has left and no other kind of client ever came."""
        self._gateway = gateway
        self._on_deserted = on_deserted
        self._clients: dict[str, SseClient] = {}

    @property
    def clients(self) -> list[SseClient]:
        """Those that are connected."""
        return list(self._clients.values())

    def open(self, connection: HttpConnection, head: RequestHead, *_: object) -> None:
        """Open a client's stream; the connection is its session."""
        gateway = self._gateway
        head.must_accept(json=False)
        gateway.must_have_memory()
        if len(self._clients) >= gateway.settings.max_sessions:
            raise Refused(429, "too many clients are connected", headers=LATER)
        each = gateway.settings.max_sessions_each
        if head.owner and sum(client.owner == head.owner for client in self._clients.values()) >= each:
            raise Refused(429, f"{each} clients with this token are connected: close some", headers=LATER)
        gateway.on_wanted()
        place = head.path.rstrip("/")
        client = SseClient(gateway.dispatcher(head), head.owner, head.principal, head.view, head.identity, place)
        client.endpoint.identify(head.identity, head.forwarded)
        self._clients[client.id] = client
        if head.until is not None:
            gateway.ends[client] = (head.until, client.outlet.end)
        client.outlet.put(event(f"/messages?session_id={client.id}".encode(), kind=b"endpoint"))
        EventResponse(connection, client.outlet, partial(self._close, client))

    def _close(self, client: SseClient) -> None:
        del self._clients[client.id]
        self._gateway.ends.pop(client, None)
        client.endpoint.abandon()
        if self._is_deserted():
            asyncio.get_running_loop().call_later(self._gateway.settings.sse_linger, self._note_desertion)

    def _note_desertion(self) -> None:
        if self._is_deserted():
            self._on_deserted()

    def _is_deserted(self) -> bool:
        return not self._clients and self._gateway.sse_only and not self._gateway.closing

    def place_of(self, head: RequestHead) -> str:
        """What is sent to `/messages` needs what the stream needed that it belongs to: where that was opened."""
        ids = _ids(head)
        client = self._clients.get(ids[0]) if len(ids) == 1 else None
        return "/sse" if client is None else client.place

    def client_of(self, head: RequestHead) -> SseClient:
        """The client that sends this message. Raises Refused."""
        ids = _ids(head)
        if len(ids) != 1:
            raise Refused(400, "the query must have the session_id that /sse gave")
        client = self._clients.get(ids[0])
        if client is None or client.owner != head.owner:
            raise Refused(404, "there is no such session, or not any more: open /sse again")
        client.endpoint.identify(head.identity, head.forwarded)
        ends = self._gateway.ends
        if head.until is not None and client in ends:
            # The stream is the session: it lasts for as long as its client shows newer tokens.
            ends[client] = (max(head.until, ends[client][0]), client.outlet.end)
        head.must_be_json()
        if client.outlet.waiting > _MOST_UNREAD:
            raise Refused(429, "read the answers that wait on /sse first")
        return client

    def post(
        self, connection: HttpConnection, client: SseClient, body: bytes, decode: Callable[[bytes], Envelope]
    ) -> None:
        """Take a message of a client whose answers go to its stream. Raises Refused."""
        is_batch = False
        try:
            decode(body)
        except ParseError as error:
            raise Refused(400, error) from None
        except NotAnEnvelope as error:
            is_batch = envelopes.is_batch(body)
            if not is_batch:
                raise Refused(400, InvalidRequest(f"not a JSON-RPC request: {error}"), id_=error.id) from None
        endpoint = client.endpoint
        if is_batch:
            endpoint.hear_batch(body, endpoint.say, endpoint.say, strict=True)
        else:
            endpoint.hear_all([body])
        connection.answer(202, b"")


def _ids(head: RequestHead) -> list[str]:
    """What a query gives as the id of a stream."""
    parts = (part.partition(b"=") for part in head.query.split(b"&"))
    return [id_.decode("latin-1") for name, _, id_ in parts if name in _ID]
