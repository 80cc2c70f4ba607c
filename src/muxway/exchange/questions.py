"""Questions that stand in a result of a stateless upstream: they pass what stands around the request, one by one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from muxway.calls.server_request import ServerRequest
from muxway.errors import RpcError
from muxway.wire import asking, envelopes

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.call import Call
    from muxway.calls.ports import LiveConnection, Sink
    from muxway.wire.envelopes import Buffer, Params


class Questions:
    """Those of one result, until it is known of each what becomes of it. A `core.ports.Running`."""

    def __init__(
        self, upstream: str, link: LiveConnection, call: Call, entries: Params, settled: Callable[[Questions], None]
    ) -> None:
        """Calls `settled` once, perhaps before `put` returns.

        Raises:
            RpcError: this caller cannot be asked them.
        """
        if len(entries) > asking.MOST_OPEN:
            raise RpcError(f"more than {asking.MOST_OPEN} questions at once")
        self.worded: dict[str, Buffer] = {}
        """Those that the caller is to be asked: key → how."""
        self.answers: dict[str, Buffer] = {}
        """Those that were answered on the way: key → answer."""
        self.refusal = ""
        """Why there is no answer, if there is no word for that."""
        self._caller = call.caller
        self._settled = settled
        self._open = len(entries)
        self._over = False
        self._asks: dict[str, ServerRequest] = {}
        for key, raw in entries.items():
            entry = envelopes.members(raw) or {}
            method = envelopes.text(entry.get("method")) or ""
            params = envelopes.members(entry.get("params", b"{}")) or {}
            unfit = asking.refusal(self._caller.capabilities, self._caller.revision, method, params)
            if unfit is not None:
                raise unfit
            self._asks[key] = ask = ServerRequest(
                upstream,
                link.revision,
                method,
                params,
                answer=partial(self._answer, key),
                refuse=partial(self._refuse, key, method),
                label=link.label,
            )
            ask.park = partial(self._put, key, raw, entry, params)

    def put(self, sink: Sink) -> None:
        """Send them to the door, and back."""
        if not self._asks:
            self._settled(self)
        for ask in list(self._asks.values()):
            sink.ask(ask)

    def cancel(self, reason: str | None) -> None:
        """Nobody waits any more."""
        del reason
        self._over = True
        for ask in self._asks.values():
            ask.withdraw()

    def _put(self, key: str, raw: Buffer, entry: Params, params: Params, ask: ServerRequest) -> None:
        if ask.params is params and ask.method != asking.ELICIT:
            # Nothing in it says who asks: it stays the bytes it came as.
            self._settle(key, self.worded, raw)
            return
        try:
            worded = ask.worded(self._caller)
        except RpcError as error:
            ask.refuse(error)
        else:
            self._settle(key, self.worded, envelopes.object_of({**entry, "params": worded or b"{}"}.items()))

    def _answer(self, key: str, answer: bytes) -> None:
        self._settle(key, self.answers, answer)

    def _refuse(self, key: str, method: str, error: RpcError) -> None:
        if method != asking.ELICIT:
            self.refusal = self.refusal or f"{method} was refused: {error.message}"
        self._settle(key, self.answers, asking.CANCELLED)

    def _settle(self, key: str, among: dict[str, Buffer], what: Buffer) -> None:
        if self._over or key in self.worded or key in self.answers:
            return
        among[key] = what
        self._open -= 1
        if not self._open:
            self._over = True
            self._settled(self)
