"""How much each principal lets us keep: calls whose server waits while their client is away, and tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from muxway.calls.call import Call
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muxway.exchange.exchange import Exchange

MOST: Final = 4000
MOST_EACH: Final = 1000
MOST_BYTES: Final = 256 * 1024 * 1024
MOST_BYTES_EACH: Final = 64 * 1024 * 1024
"""What is kept of the calls themselves: a client chooses how large they are, up to the limit of a message."""
_OVERHEAD: Final = 1024
"""What a call takes beside its bytes, about."""


class _Held(NamedTuple):
    number: int = 0
    size: int = 0


_NOTHING: Final = _Held()


class Holding:
    """What is kept for all, and for each."""

    def __init__(self) -> None:
        self._all = _NOTHING
        self._of: dict[bytes, _Held] = {}

    def has_room(self, principal: bytes, size: int) -> bool:
        """Whether so many more bytes of this principal's may be kept."""
        its = self._of.get(principal, _NOTHING)
        return (
            its.number < MOST_EACH
            and self._all.number < MOST
            and its.size + size <= MOST_BYTES_EACH
            and self._all.size + size <= MOST_BYTES
        )

    def is_over(self, principal: bytes) -> bool:
        """Whether this principal's, or all that is kept, has become too large."""
        return self._of.get(principal, _NOTHING).size > MOST_BYTES_EACH or self._all.size > MOST_BYTES

    def take(self, principal: bytes, size: int) -> None:
        """Keep it; whether there is room has been asked."""
        self._add(principal, 1, size)

    def resize(self, principal: bytes, size: int, before: int) -> None:
        """Something that is kept has another size now."""
        self._add(principal, 0, size - before)

    def give_back(self, principal: bytes, size: int) -> None:
        """It is not kept any more."""
        self._add(principal, -1, -size)

    def _add(self, principal: bytes, number: int, size: int) -> None:
        self._all = _Held(self._all.number + number, self._all.size + size)
        its = self._of.get(principal, _NOTHING)
        its = self._of[principal] = _Held(its.number + number, its.size + size)
        if not its.number:
            del self._of[principal]


class ParkedCalls:
    """Calls whose server waits while the client was told to come back, by the names that their states have sealed."""

    def __init__(self) -> None:
        self._calls: dict[str, Exchange] = {}
        self._holding = Holding()

    def __iter__(self) -> Iterator[Exchange]:
        return iter(list(self._calls.values()))

    def has_room(self, exchange: Exchange, size: int) -> bool:
        """Whether this one may be parked too."""
        return self._holding.has_room(exchange.call.caller.principal, size)

    def add(self, exchange: Exchange, size: int) -> None:
        """Park it; whether there is room has been asked."""
        exchange.size = size
        self._holding.take(exchange.call.caller.principal, size)
        self._calls[exchange.key] = exchange

    def find(self, key: str | None) -> Exchange | None:
        """The call of this name, if it is still here."""
        return self._calls.get(key or "")

    def resize(self, exchange: Exchange, size: int) -> bool:
        """It takes so many bytes now; whether that is not too much."""
        if exchange.key not in self._calls:
            return True
        principal = exchange.call.caller.principal
        self._holding.resize(principal, size, exchange.size)
        exchange.size = size
        return not self._holding.is_over(principal)

    def drop(self, exchange: Exchange) -> None:
        """It is parked no more, if it was."""
        if self._calls.pop(exchange.key, None) is not None:
            self._holding.give_back(exchange.call.caller.principal, exchange.size)

    def close(self) -> None:
        """The gateway has stopped: nobody comes back, and the servers are gone."""
        for exchange in self:
            exchange.end()
        self._calls.clear()


def own_call(call: Call) -> Call:
    """The call by itself: what came with it in one message is not kept with it."""
    caller = call.caller
    if caller.revision.stateless:
        # It came with the message, too.
        capabilities, client_info = envelopes.own(caller.capabilities), envelopes.own(caller.client_info)
        caller = replace(caller, capabilities=capabilities, client_info=client_info)
    params = {name: raw.copy() for name, raw in call.params.items()}
    meta = None if call.meta is None else {name: raw.copy() for name, raw in call.meta.items()}
    return Call(caller, call.method, params, meta)


def size_of(call: Call) -> int:
    """Bytes that a call of its own takes."""
    return _OVERHEAD + sum(memoryview(raw).nbytes for raw in (*call.params.values(), *(call.meta or {}).values()))
