"""How a call lives on between a client and a server of these eras: the table, and all of it but parking.

A strategy has no state. It is told of what the server does, and makes the exchange do something about it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from muxway.errors import MISSING_CAPABILITY, RpcError, UpstreamError
from muxway.exchange.exchange import MOST_ROUNDS, Strategy
from muxway.exchange.parking import PARK
from muxway.exchange.seal import LIFETIME, StateTooLarge
from muxway.wire import asking, envelopes
from muxway.wire.revisions import SERVER_INFO

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.exchange.exchange import Exchange
    from muxway.wire.envelopes import Buffer, Params

_PAUSES: Final = (0.05, 0.1, 0.2, 0.25)
"""Seconds before a call is made again that a server put off without a question."""
_RETRY_KEYS: Final = frozenset(("inputResponses", "requestState"))
_ENDLESS: Final = f"asked for input {MOST_ROUNDS} times and still asks"


class _Repeat(Strategy):
    """A handshake caller and a stateless server: the caller is asked, then the call is made again."""

    repeats = True
    asks_itself = True

    def input_required(self, exchange: Exchange, entries: Params | None, state: Buffer | None) -> None:
        exchange.round += 1
        if exchange.round > MOST_ROUNDS:
            _tell(exchange, _ENDLESS)
        elif entries is not None and len(entries) > asking.MOST_OPEN:
            _tell(exchange, f"asked more than {asking.MOST_OPEN} questions at once")
        elif entries is None or (not entries and state is None):
            super().input_required(exchange, entries, state)
        elif not entries:
            pause = _PAUSES[min(exchange.round, len(_PAUSES)) - 1]
            exchange.lease(held=True)
            exchange.start("pause", pause, partial(_repeat, state, {}))
        else:
            try:
                exchange.read_questions(entries, partial(self._settled, state))
            except RpcError as error:
                _tell(exchange, f"asks for what it was told this client cannot give: {error.message}")

    def _settled(self, state: Buffer | None, exchange: Exchange) -> None:
        """Every question has its answer, or the caller refused one."""
        asks = exchange.asking()
        if asks.refusal is None:
            _repeat(state, asks.answers, exchange)
        else:
            # There is no word for "no" in an answer to a stateless server, so the call ends here.
            method, error = asks.refusal
            _tell(exchange, f"asked for {method} and the client refused: {error.message}", error)

    def failed(self, exchange: Exchange, error: RpcError) -> None:
        if error.code == MISSING_CAPABILITY:
            # Only a stateless caller could do something about it; here, the user has to read it.
            needs = ", ".join(_needs(error)) or "a capability"
            _tell(exchange, f"needs what this client does not offer ({needs}): {error.message}")
        else:
            exchange.fail(error)


def _tell(exchange: Exchange, what: str, error: RpcError | None = None) -> None:
    """The call cannot go on: of a tool, its model is told why."""
    upstream = exchange.way.upstream
    why = f'server "{upstream}" {what}'
    if exchange.call.method != "tools/call":
        exchange.fail(error or UpstreamError(upstream, "unsupported", why))
        return
    if exchange.attempt is not None:
        exchange.attempt.abandon()
    exchange.finish(envelopes.encode({"content": [{"type": "text", "text": why}], "isError": True}))


def _needs(error: RpcError) -> list[str]:
    """The capabilities that a server says are missing."""
    data: object = error.data
    needed = cast("dict[str, object]", data).get("requiredCapabilities") if isinstance(data, dict) else None
    return list(cast("dict[str, object]", needed)) if isinstance(needed, dict) else []


def _repeat(state: Buffer | None, answers: dict[str, Buffer], exchange: Exchange) -> None:
    """Make the call again, with these answers and the server's own state."""
    params: dict[str, Any] = {name: raw for name, raw in exchange.call.params.items() if name not in _RETRY_KEYS}
    if answers:
        params["inputResponses"] = msgspec.Raw(envelopes.object_of(answers.items()))
    if state is not None:
        params["requestState"] = state
    exchange.again(msgspec.structs.replace(exchange.call, params=params))


class _SealThrough(Strategy):
    """A stateless caller and a stateless server: questions are passed on, the server's state sealed in ours."""

    def input_required(self, exchange: Exchange, entries: Params | None, state: Buffer | None) -> None:
        if exchange.round >= MOST_ROUNDS:
            exchange.fail_for("unsupported", _ENDLESS)
        elif entries is None or (not entries and state is None):
            super().input_required(exchange, entries, state)
        else:
            try:
                exchange.read_questions(entries, partial(self._settled, state))
            except RpcError as error:
                why = f"asks for what it was told this caller cannot give: {error.message}"
                exchange.fail_for("unsupported", why)

    def _settled(self, state: Buffer | None, exchange: Exchange) -> None:
        """The questions have passed what stands around the call."""
        asks = exchange.asking()
        if asks.refusal is not None:
            method, error = asks.refusal
            exchange.fail_for("unsupported", f"asked, and {method} was refused: {error.message}")
        elif asks.open or not asks.answers:
            kept = envelopes.object_of(asks.answers.items()) if asks.answers else b""
            exchange.ask_caller("wrap", None if state is None else envelopes.text(state), kept)
        else:
            # Nothing is left to ask the caller.
            exchange.round += 1
            _repeat(state, asks.answers, exchange)

    def task_made(self, exchange: Exchange, fields: Params) -> None:
        """The task stays the server's own: only its name is ours, so that it leads nobody else there."""
        native = envelopes.text(fields.get("taskId"))
        call, way, services = exchange.call, exchange.way, exchange.services
        caller = call.caller
        if (
            native is None
            or call.method != "tools/call"
            or not asking.knows_tasks(caller.capabilities, caller.revision)
        ):
            super().task_made(exchange, fields)
            return
        try:
            name = services.seal.name_task(caller, exchange.trace._replace(task=native))
        except StateTooLarge:
            super().task_made(exchange, fields)
            return
        ttl = envelopes.number(fields.get("ttlMs"))
        lifetime = LIFETIME if ttl is None else max(ttl / 1000, 0.0)
        services.passed.add(name, caller.principal, way.connection, lifetime)
        meta: dict[str, Buffer] = {**(envelopes.members(fields.get("_meta", b"")) or {})}
        meta[SERVER_INFO] = way.server_info
        task: dict[str, Buffer] = {**fields, "taskId": envelopes.encode(name)}
        task["_meta"] = envelopes.object_of(meta.items())
        exchange.finish(envelopes.object_of(task.items()))


PASS: Final = Strategy()
REPEAT: Final = _Repeat()
SEAL_THROUGH: Final = _SealThrough()
STRATEGIES: Final[Mapping[tuple[bool, bool], Strategy]] = {
    (False, False): PASS,
    (False, True): REPEAT,
    (True, False): PARK,
    (True, True): SEAL_THROUGH,
}
"""By whether the caller is stateless, and whether the server is."""
