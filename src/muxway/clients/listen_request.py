"""One `subscriptions/listen` of a stateless client, from its filter to its end. Every transport has these."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from muxway.calls.call import Call
from muxway.calls.incidents import attempt
from muxway.calls.ports import in_turns
from muxway.calls.sinks import Nobody, Passing
from muxway.clients import notifications
from muxway.clients.unsent import Unsent
from muxway.errors import InvalidParams
from muxway.exchange.subscriptions import MOST, Subscriber
from muxway.wire import asking, envelopes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from muxway.calls.ports import Running, Sink
    from muxway.errors import RpcError
    from muxway.exchange.dispatcher import Dispatcher
    from muxway.exchange.subscriptions import Quota, Settled
    from muxway.wire.envelopes import Buffer, Params

_PATIENCE: Final = 10.0
"""Seconds until what no server has agreed to by then counts as refused."""
_KINDS: Final = ("tools", "prompts", "resources")


class Opening(Passing):
    """The request that opens a stream, on its way through the middleware: they judge it before anything is open.

    To them it is over when the stream may be opened: it may last for as long as the client does.
    """

    __slots__ = ("_call", "_open")

    def __init__(self, sink: Sink, open_: Callable[[Call], None]) -> None:
        super().__init__(sink)
        self._open = open_
        self._call: Call | None = None

    def request(self, dispatcher: Dispatcher, call: Call) -> Running | None:
        """Ask whether the stream may be opened, and if so, open it."""
        return dispatcher.around(call, self, self._granted)

    def _granted(self, call: Call, sink: Sink) -> None:
        self._call = call
        sink.done(b'{"resultType":"complete"}')

    def done(self, *result: Buffer) -> None:
        if self._call is None:
            # Some middleware answered by itself.
            self._sink.done(*result)
        else:
            self._open(self._call)

    def failed(self, error: RpcError) -> None:
        self._sink.failed(error)


class _Wish(Passing):
    """One URI of a stream's filter, on its way through the middleware like any subscription."""

    __slots__ = ("_settled",)

    def __init__(self, settled: Settled) -> None:
        super().__init__(Nobody())
        self._settled = settled

    def done(self, *result: Buffer) -> None:
        del result
        self._settled(None)

    def failed(self, error: RpcError) -> None:
        self._settled(error)


class Listening:
    """What one stream wants to hear of, and hears."""

    def __init__(
        self,
        id_: bytes,
        call: Call,
        dispatcher: Dispatcher,
        tell: Callable[[Sequence[Buffer]], None],
        backlog: Callable[[], float],
        quota: Quota,
    ) -> None:
        """Read the filter.

        Raises:
            RpcError: it is none, wants too much, or wants what its client did not declare.
        """
        self._id = id_
        self._caller = call.caller
        self._dispatcher = dispatcher
        self._tell = tell
        wanted = envelopes.members(call.params.get("notifications", b""))
        if wanted is None:
            raise InvalidParams("subscriptions/listen: params.notifications must be an object")
        if "taskIds" in wanted and not asking.knows_tasks(call.caller.capabilities, call.caller.revision):
            raise asking.needs_tasks("subscriptions/listen with taskIds")
        self._kinds = frozenset(kind for kind in _KINDS if _wants(wanted, f"{kind}ListChanged"))
        self._uris = _uris(wanted)
        if self._uris is not None and len(self._uris) > quota.left:
            raise InvalidParams(f"subscriptions/listen: a client may subscribe to {MOST} URIs")
        self._honoured: set[str] = set()
        self._unsent = Unsent(tell, backlog, id_)
        self._subscriber = Subscriber(dispatcher, quota, self._unsent.updated, call.caller)
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stop: Callable[[], None] | None = None
        self._closed = False

    def begin(self) -> None:
        """Subscribe where that is needed, acknowledge, and tell from then on."""
        if self._kinds:
            self._stop = self._dispatcher.listen(self._lists_changed, lambda: self._caller, stateless=True)
        uris = self._uris or []
        self._waiting = 1 + len(uris)
        if uris:
            self._timer = asyncio.get_running_loop().call_later(_PATIENCE, self._acknowledge)
        in_turns(self._wish(uris))

    def _wish(self, uris: Sequence[str]) -> Iterator[None]:
        """Subscribe to one URI after the other."""
        for uri in uris:
            if not self._waiting or self._closed:
                # It has ended, or what was not agreed to by now counts as refused.
                return
            settled = partial(self._settled, uri)
            wish = Call(self._caller, "resources/subscribe", {"uri": envelopes.Raw(envelopes.encode(uri))})
            attempt(settled, partial(self._dispatcher.around, wish, _Wish(settled), self._subscribe))
            yield
        if self._waiting and not self._closed:
            self._one_less()

    def _subscribe(self, call: Call, sink: Sink) -> None:
        def settled(error: RpcError | None) -> None:
            if error is None:
                sink.done(b"{}")
            else:
                sink.failed(error)

        uri = envelopes.text(call.params.get("uri")) or ""
        if not self._closed:
            self._dispatcher.runtime.subscriptions.subscribe(self._subscriber, uri, settled)

    def _settled(self, uri: str, error: RpcError | None) -> None:
        if self._waiting:
            if error is None:
                self._honoured.add(uri)
            self._one_less()

    def _one_less(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._acknowledge()

    def _acknowledge(self) -> None:
        if self._closed:
            return
        self._waiting = 0
        if self._timer is not None:
            self._timer.cancel()
        honoured: dict[str, object] = {f"{kind}ListChanged": True for kind in _KINDS if kind in self._kinds}
        if self._uris is not None:
            for uri in self._uris:
                if uri not in self._honoured:
                    self._dispatcher.runtime.subscriptions.unsubscribe(self._subscriber, uri)
            honoured["resourceSubscriptions"] = [uri for uri in self._uris if uri in self._honoured]
        self._tell(notifications.acknowledged(self._id, honoured))
        self._unsent.open()

    def _lists_changed(self, kinds: frozenset[str]) -> None:
        self._unsent.lists_changed(kind for kind in _KINDS if kind in kinds & self._kinds)

    def close(self) -> None:
        """The stream has ended."""
        self._closed = True
        self._unsent.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._stop is not None:
            self._stop()
        self._dispatcher.runtime.subscriptions.leave(self._subscriber)


def _wants(wanted: Params, key: str) -> bool:
    raw = bytes(wanted.get(key, b"false"))
    if raw not in (b"true", b"false", b"null"):
        raise InvalidParams(f"subscriptions/listen: params.notifications.{key} must be true or false")
    return raw == b"true"


def _uris(wanted: Params) -> list[str] | None:
    """What is to be subscribed to, each URI once; None if the filter says nothing of it."""
    raw = wanted.get("resourceSubscriptions")
    if raw is None or envelopes.is_null(raw):
        return None
    uris = [envelopes.text(item) for item in envelopes.items(raw) or ()]
    if envelopes.items(raw) is None or None in uris:
        raise InvalidParams("subscriptions/listen: params.notifications.resourceSubscriptions must be a list of URIs")
    return [*dict.fromkeys(uri for uri in uris if uri is not None)]
