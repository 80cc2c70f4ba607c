"""What a server asks over one connection: in the course of a call, or outside any, of the client it is for.

While a question of a call is open it is the caller who takes time: the clock of the call stands still, and another call
may take its turn.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from muxway.calls.server_request import ServerRequest
from muxway.errors import InvalidParams, RpcError
from muxway.log import EventLog
from muxway.servers.attribution import likeliest
from muxway.wire import asking, envelopes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muxway.calls.ports import Client
    from muxway.servers.connection import Connection
    from muxway.servers.pending import Pending
    from muxway.wire.envelopes import Buffer

_MOST_CONSULTED: Final = 32
"""Questions that a client may be asked at once outside any call."""
_TAKEN_UP: Final = 0.2
"""Seconds that a server gets to make use of what its client answered: server-filesystem looks up the roots on disk."""
_MOST_ASKS: Final = 4096
"""Questions that a server may have no answer to yet: as many as calls may be parked, and a few."""

log = EventLog("upstream")


class ServerQuestions:
    """The open questions of one connection."""

    __slots__ = ("_connection", "_consulting", "_unasked", "_unsure", "client", "open")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.client: Client | None = None
        """Whom the connection is for, if it is for one client: it is asked what is asked outside any call."""
        self.open: dict[bytes, Pending] = {}
        """Those of calls, by their ids → the request in whose course each was asked."""
        self._unsure: dict[bytes, list[Pending]] = {}
        """Those of them that may belong to another request of the same party → all that were under way then."""
        self._consulting: dict[bytes, ServerRequest] = {}
        """What the client was asked outside any call, by the ids of these questions."""
        self._unasked = asyncio.Event()

    def hear(self, id_: bytes, method: str, params: envelopes.Params, about: bytes) -> None:
        """The server asks something; `about` is the id of the request on whose stream it came, if it came on one."""
        connection = self._connection
        calls = connection.attribution.of_question(params, about)
        if not calls and self.client is not None and len(self._consulting) < _MOST_CONSULTED:
            self._consult(self.client, id_, method, params)
            return
        if not calls:
            hint = "several callers share the server, or none calls; see `isolation`"
            # Many ask for the roots right after the handshake, when there is nobody yet who could be asked.
            called = any(one.caller is not None for one in connection.peer.ours.values())
            tell = log.warning if called else log.debug
            tell("question refused", upstream=connection.name, method=method, why=hint)
            # Servers show this on stderr, where the user reads it right after the first start.
            why = "it cannot be told for which call this is asked" if called else "nobody calls now, so nobody is asked"
            connection.answer(envelopes.failure(id_, InvalidParams(f"{method}: {why}")))
            return
        self._put(id_, method, params, calls)

    def _put(self, id_: bytes, method: str, params: envelopes.Params, calls: list[Pending]) -> None:
        """Ask something in the course of one of these requests, which are all of one party."""
        connection, pending = self._connection, likeliest(calls)

        def settled() -> None:
            self.open.pop(id_, None)
            self._unsure.pop(id_, None)
            if pending.asks is not None:
                pending.asks.pop(id_, None)
            self._go_on(pending)

        if id_ in self.open:
            # Whoever uses an id again does not wait for the first answer any more.
            self._withdraw(id_)
        if len(self.open) >= _MOST_ASKS or len(pending.asks or ()) >= asking.MOST_OPEN:
            why = f"{method}: at most {asking.MOST_OPEN} questions of a call, and {_MOST_ASKS} in all, may be open"
            connection.answer(envelopes.failure(id_, RpcError(why)))
            return
        # First what starts the clock of the request again: it must not wait for ever, whatever the transport does.
        ask = self._question(id_, method, params, settled)
        self.open[id_] = pending
        if len(calls) > 1:
            self._unsure[id_] = calls
        if pending.asks is None:
            pending.asks = {}
        pending.asks[id_] = ask
        if not pending.paused_at:
            # From here on it is the caller who takes time, and whoever asks the caller has a limit for that.
            pending.paused_at = connection.loop.time()
            pending.limit_at -= pending.paused_at
            pending.deadline = float("inf")
            queue = connection.queue
            queue.exempt += 1
            if queue.waiting:
                queue.let_in()
        try:
            pending.sink.ask(ask)
        except Exception as error:  # noqa: BLE001 - somebody else's messages may come next
            ask.refuse(RpcError(f"{method}: the gateway could not put this question"))
            connection.fell(pending, error)

    def _question(
        self, id_: bytes, method: str, params: envelopes.Params, settled: Callable[[], None]
    ) -> ServerRequest:
        connection = self._connection

        def settle(answer: Sequence[Buffer]) -> None:
            settled()
            connection.answer(answer)

        return ServerRequest(
            connection.name,
            connection.revision,
            method,
            params,
            answer=lambda result: settle(envelopes.result(id_, result)),
            refuse=lambda error: settle(envelopes.failure(id_, error)),
            connection=connection,
            label=connection.label,
        )

    def _go_on(self, pending: Pending) -> None:
        if pending.paused_at and not pending.asks:
            now = self._connection.loop.time()
            pending.paused_at = 0.0
            self._connection.queue.exempt -= 1
            pending.limit_at += now
            pending.deadline = min(now + pending.idle, pending.limit_at)

    # --- withdrawn ------------------------------------------------------------------------------

    def cancelled(self, id_: bytes) -> bool:
        """The server does not want to know any more what it asked under this id. False if it asked nothing."""
        if id_ in self.open:
            self._withdraw(id_)
            return True
        consulting = self._consulting.pop(id_, None)
        if consulting is not None:
            consulting.withdraw()
        return consulting is not None

    def _withdraw(self, id_: bytes) -> None:
        pending = self.open.pop(id_)
        self._unsure.pop(id_, None)
        ask = None if pending.asks is None else pending.asks.pop(id_, None)
        if ask is not None:
            ask.withdraw()
        self._go_on(pending)

    def over(self, pending: Pending) -> None:
        """A request is over: nobody need answer what was asked in its course, unless it was that of another one."""
        asks, pending.asks = pending.asks or {}, None
        for id_, ask in asks.items():
            self.open.pop(id_, None)
            # The roots are the client's and not the call's: many ask for them whenever they hear that they changed.
            if ask.method != asking.ROOTS or self.client is None:
                ask.withdraw()
                self._ask_another(id_, ask)

    def _ask_another(self, id_: bytes, ask: ServerRequest) -> None:
        ours = self._connection.peer.ours
        others = [pending for pending in self._unsure.pop(id_, ()) if ours.get(pending.id) is pending]
        if others:
            self._put(id_, ask.method, ask.params, others)

    def lost(self) -> None:
        """The connection has ended. Questions of calls end with these."""
        consulting, self._consulting = self._consulting, {}
        for ask in consulting.values():
            ask.withdraw()

    # --- outside any call -----------------------------------------------------------------------

    def _consult(self, client: Client, id_: bytes, method: str, params: envelopes.Params) -> None:
        """Ask the client of this connection, which makes no call."""

        def settled() -> None:
            if self._consulting.get(id_) is ask:
                del self._consulting[id_]
            if not self._consulting:
                self._unasked.set()

        ask = self._question(id_, method, params, settled)
        self._consulting[id_] = ask
        self._unasked.clear()
        client.consult(ask)

    async def answered(self, timeout: float) -> None:
        """Wait until what the server has asked outside any call is answered: the first call may depend on it."""
        connection = self._connection
        try:
            async with asyncio.timeout(timeout):
                # Once it answers this, it has heard `notifications/initialized` and has asked what it wants to know.
                await connection.own.ask("ping", {}, timeout=timeout)
                if self._consulting:
                    await self._unasked.wait()
                    await connection.own.ask("ping", {}, timeout=timeout)
                if self._unasked.is_set():
                    # A ping is answered by the side of that. Nothing tells when it is over.
                    await asyncio.sleep(_TAKEN_UP)
        except (TimeoutError, RpcError) as error:
            log.debug("not waited for", upstream=connection.name, why=error)
