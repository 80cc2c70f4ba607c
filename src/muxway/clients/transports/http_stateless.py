"""Requests of 2026-07-28 over HTTP. Nothing is remembered of them but that they are under way."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

from muxway.clients import notifications
from muxway.clients.listen_request import Opening
from muxway.clients.stateless import Ladder, ListenRequest, StatelessRequest, status_of
from muxway.clients.transports.http_gateway import id_of
from muxway.clients.transports.http_request import Refused
from muxway.errors import RpcError
from muxway.wire.envelopes import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.call import Call
    from muxway.calls.identity import Identity
    from muxway.clients.transports.http_connection import HttpConnection
    from muxway.clients.transports.http_gateway import ServedGateway
    from muxway.clients.transports.http_request import RequestHead
    from muxway.exchange.dispatcher import Dispatcher
    from muxway.wire.envelopes import Envelope


class StatelessEndpoint:
    """`POST /mcp` without a session."""

    def __init__(self, gateway: ServedGateway) -> None:
        self._gateway = gateway
        self._ladders: dict[str | None, Ladder] = {}
        self._requests: set[StatelessRequest] = set()
        self._listens: dict[StatelessRequest, str | None] = {}
        """Those who listen, and through which view."""
        self._quiet: asyncio.Event | None = None

    def post(
        self, connection: HttpConnection, head: RequestHead, body: bytes, decode: Callable[[bytes], Envelope]
    ) -> None:
        """Take a message. Raises Refused, ParseError, NotAnEnvelope."""
        envelope = decode(body)
        self._gateway.wanted()
        method = envelope.method
        if method is None:
            raise Refused(400, "this server asks its clients nothing, so there is nothing to respond to")
        if envelope.id is ABSENT:
            connection.answer(202, b"")
            return
        id_ = id_of(envelope)
        if id_ is None:
            raise Refused(400, "an id is a string or an integer")
        ladder = self._ladders.get(head.view)
        if ladder is None:
            ladder = self._ladders[head.view] = Ladder()
        dispatcher = self._gateway.dispatcher(head)
        try:
            call = ladder.admit(head, envelope, method, dispatcher, head.principal, head.identity, head.forwarded)
        except RpcError as error:
            raise Refused(status_of(error), error, id_=id_) from None
        if method == "subscriptions/listen":
            listen = ListenRequest(connection, id=id_, call=call, on_over=self._ended)
            if head.until is not None:
                self._gateway.ends[listen] = (head.until, partial(_end_listening, listen))
            self._listen(listen, dispatcher, head.view)
            return
        request = StatelessRequest(connection, id=id_, call=call, on_over=self._ended)
        self._requests.add(request)
        connection.begin(request, self._gateway.settings.commit_after)
        request.begin(dispatcher)

    def _ended(self, request: StatelessRequest) -> None:
        """A request has its answer, or nobody who waits for one."""
        self._requests.discard(request)
        self._listens.pop(request, None)
        self._gateway.ends.pop(request, None)
        if self._quiet is not None and not self._requests:
            self._quiet.set()

    def _listen(self, request: ListenRequest, dispatcher: Dispatcher, view: str | None) -> None:
        connection = request.connection

        def opened(call: Call) -> None:
            if connection.under_way is request and request.open(call, dispatcher):
                self._listens[request] = view

        connection.begin(request, None)
        request.running = Opening(request, opened).request(dispatcher, request.call)

    # --- the end ------------------------------------------------------------------------------

    def review(self, may_stay: Callable[[bytes, str | None, Identity | None], bool]) -> None:
        """End those who listen and could not any more."""
        for request, view in list(self._listens.items()):
            caller = request.call.caller
            if not self._gateway.has(view) or not may_stay(caller.principal, view, caller.identity):
                _end_listening(request)

    async def finish(self, drain: float) -> None:
        """End those who listen; let what runs end for up to so many seconds."""
        for request in list(self._listens):
            _end_listening(request)
        if self._requests:
            self._quiet = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), drain)

    def stop(self) -> None:
        """Cancel what is left."""
        for request in list(self._requests):
            request.stop("the gateway is being stopped")


def _end_listening(request: StatelessRequest) -> None:
    request.done(notifications.listening_ended(request.id))
