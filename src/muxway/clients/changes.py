"""What one client hears of changes: which lists, resources and streams of them it asked for."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from muxway.clients.listen_request import Listening, Opening
from muxway.errors import InvalidParams, InvalidRequest, RpcError
from muxway.exchange.subscriptions import Quota, Subscriber
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.call import Call
    from muxway.calls.ports import Sink
    from muxway.clients.session import ClientRequest, Session
    from muxway.exchange.dispatcher import Dispatcher

_UNSUBSCRIBED: Final = 2.0
"""Seconds that a client waits for a server to hear that it does not want to be told of something any more."""
_MOST_LISTENS: Final = 100
"""Streams of changes that one connection may have open."""


class ClientChanges:
    """What one client is told of changes. Requests about that answer False where they are none for their caller."""

    __slots__ = ("_dispatcher", "_quota", "_session", "_subscriber", "streams", "told")

    def __init__(self, session: Session, dispatcher: Dispatcher) -> None:
        self._session = session
        self._dispatcher = dispatcher
        self._quota = Quota()
        self._subscriber: Subscriber | None = None
        self.streams: dict[bytes, Listening] = {}
        """The `subscriptions/listen` that are open, by the keys of these requests."""
        self.told: frozenset[str] = frozenset()
        """What the session was told that there is: of the rest it hears no news."""

    def lists_changed(self, kinds: frozenset[str]) -> None:
        """Some lists have changed."""
        if self._session.ready and (kinds := kinds & self.told):
            self._session.unsent.lists_changed(sorted(kinds))

    def end(self, key: bytes) -> None:
        """A request is over: so is its stream, if it has one."""
        stream = self.streams.pop(key, None)
        if stream is not None:
            stream.close()

    def leave(self) -> None:
        """The session is to hear of nothing more."""
        if self._subscriber is not None:
            self._dispatcher.runtime.subscriptions.leave(self._subscriber)

    def listen(self, exchange: ClientRequest) -> bool:
        """Take `subscriptions/listen`."""
        if not exchange.call.caller.revision.stateless:
            return False
        opening = Opening(exchange, partial(self._open_stream, exchange))
        exchange.running = opening.request(self._dispatcher, exchange.call)
        return True

    def _open_stream(self, exchange: ClientRequest, call: Call) -> None:
        id_ = exchange.id
        if self._session.peer.theirs.get(exchange.key) is not exchange:
            return
        try:
            if len(self.streams) >= _MOST_LISTENS:
                raise InvalidRequest(f"{_MOST_LISTENS} subscriptions/listen are open on this connection: cancel some")
            listening = Listening(id_, call, self._dispatcher, exchange.tell, self._session.backlog, self._quota)
        except RpcError as error:
            exchange.failed(error)
        else:
            self.streams[exchange.key] = listening
            listening.begin()

    def subscribe(self, exchange: ClientRequest) -> bool:
        """Take `resources/subscribe`."""
        return self._about_uri(self._subscribe, "subscribe to", exchange)

    def unsubscribe(self, exchange: ClientRequest) -> bool:
        """Take `resources/unsubscribe`."""
        return self._about_uri(self._unsubscribe, "unsubscribe from", exchange)

    def _about_uri(self, do: Callable[[Call, Sink, str], None], what: str, exchange: ClientRequest) -> bool:
        if exchange.call.caller.revision.stateless:
            return False

        def answer(call: Call, sink: Sink) -> None:
            uri = envelopes.text(call.params.get("uri"))
            if uri is None:
                sink.failed(InvalidParams(f"params.uri must be a string: the URI of the resource to {what}"))
            else:
                do(call, sink, uri)

        exchange.running = self._dispatcher.around(exchange.call, exchange, answer)
        return True

    def _subscribe(self, call: Call, sink: Sink, uri: str) -> None:
        if self._subscriber is None:
            self._subscriber = Subscriber(self._dispatcher, self._quota, self._session.unsent.updated, call.caller)

        def settled(error: RpcError | None) -> None:
            if error is None:
                sink.done(b"{}")
            else:
                sink.failed(error)

        self._dispatcher.runtime.subscriptions.subscribe(self._subscriber, uri, settled)

    def _unsubscribe(self, call: Call, sink: Sink, uri: str) -> None:
        del call
        if self._subscriber is None:
            sink.done(b"{}")
            return
        over = False

        def settled(_: RpcError | None = None) -> None:
            nonlocal over
            timer.cancel()
            if not over:
                over = True
                sink.done(b"{}")

        # A server that takes its time does not hold up its client for long: nothing more of it is passed on.
        timer = asyncio.get_running_loop().call_later(_UNSUBSCRIBED, settled)
        self._dispatcher.runtime.subscriptions.unsubscribe(self._subscriber, uri, settled)
        self._session.unsent.forget(uri)
