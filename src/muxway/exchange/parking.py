"""A stateless caller and a server with a handshake: while the caller gathers answers the call waits here.

The server asks in the middle of its call. The caller's request ends with the questions and a sealed state; it makes
the same request again with the answers, and the call goes on where it was. Or the call has become a task by then:
then the questions are the task's.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from muxway.calls.ports import log
from muxway.calls.sinks import Nobody
from muxway.errors import MISSING_CAPABILITY, URL_ELICITATION_REQUIRED, InvalidParams, RpcError, UpstreamSaid
from muxway.exchange.exchange import MOST_ROUNDS, Strategy
from muxway.exchange.seal import INVALID, LIFETIME, Claims, StateTooLarge
from muxway.wire import asking, envelopes

if TYPE_CHECKING:
    from muxway.calls.call import Call
    from muxway.calls.ports import Running, Sink
    from muxway.calls.server_request import ServerRequest
    from muxway.exchange.exchange import Exchange
    from muxway.wire.envelopes import Buffer, Params

_GATHERING: Final = 0.02
"""Seconds to wait for further questions of one call before the caller is asked them all at once."""
_FULL: Final = "too many calls wait for answers; try again later"
_OURS: Final = frozenset(("inputResponses", "requestState", "task"))
"""Params that are between the caller and the gateway."""
AS_TASK: Final = "task"
"""What a state says of a call that must be made as a task when it is made anew."""


class _Park(Strategy):
    """See above."""

    asks_itself = True

    def asked(self, exchange: Exchange, ask: ServerRequest) -> None:
        if exchange.call.method not in asking.REPEATABLE:
            # It could never be made again with the answers.
            ask.refuse(InvalidParams(f"{ask.method}: {exchange.call.method} cannot ask a stateless caller"))
        elif exchange.key:
            # Whoever would see it is not there; the caller is asked when it comes back with the answers to the others.
            ask.keep()
            exchange.asking().late[ask] = None
            ask.on_withdrawn = partial(_forget_late, exchange, ask)
            if not exchange.fits():
                _forget_late(exchange, ask)
                ask.refuse(RpcError(_FULL))
        else:
            # To the client's side and back: what is around the call sees each question, however its caller is asked.
            ask.park = partial(_arrived, exchange)
            (exchange.asker or exchange.sink).ask(ask)

    def failed(self, exchange: Exchange, error: RpcError) -> None:
        missing = None if exchange.asks is None else exchange.asks.missing
        if error.code == URL_ELICITATION_REQUIRED and isinstance(error, UpstreamSaid):
            _send_to_pages(exchange, error)
        elif missing and isinstance(error, UpstreamSaid):
            # The server failed after it was told that the caller has no answer for it: that is what to mend.
            data = {"requiredCapabilities": missing}
            exchange.fail(RpcError(error.message, code=MISSING_CAPABILITY, data=data))
        else:
            exchange.fail(error)


PARK: Final = _Park()


# --- the server asks ------------------------------------------------------------------------------


def _arrived(exchange: Exchange, ask: ServerRequest) -> None:
    """A question has passed what stands around the call."""
    if not exchange.under_way:
        ask.refuse(RpcError(f"{ask.method}: the call is over"))
        return
    try:
        key = exchange.asking().add(ask, exchange.call.caller)
    except RpcError as error:
        ask.refuse(error)
        return
    ask.on_withdrawn = partial(_drop, exchange, key)
    if not exchange.fits():
        _drop(exchange, key)
        ask.refuse(RpcError(_FULL))
    elif not exchange.key and "gathering" not in exchange.timers:
        exchange.start("gathering", _GATHERING, _gathered)


def _drop(exchange: Exchange, key: str) -> None:
    exchange.asking().drop(key)
    exchange.fits()


def _forget_late(exchange: Exchange, ask: ServerRequest) -> None:
    exchange.asking().late.pop(ask, None)
    exchange.fits()


def _gathered(exchange: Exchange) -> None:
    if exchange.task is not None:
        exchange.task.asks()
    elif exchange.asking().open and not exchange.key:
        _park(exchange)


def _park(exchange: Exchange) -> None:
    """Ask the caller, and wait until it comes back."""
    asks, parked = exchange.asking(), exchange.services.parked
    exchange.round += 1
    if exchange.round > MOST_ROUNDS:
        asks.refuse(f"no call may ask more than {MOST_ROUNDS} times")
        return
    # Only here, where it is parked: of calls that are made all at once each would find room before that.
    size = exchange.settle_down()
    if not parked.has_room(exchange, size):
        log.warning("too many parked calls; a question was refused", upstream=exchange.way.upstream)
        asks.refuse(_FULL)
        return
    exchange.key = secrets.token_urlsafe(16)
    for ask in asks.open.values():
        ask.keep()
    try:
        exchange.end_with_questions("park", exchange.key, asks.entries)
    except StateTooLarge:
        sink, why = exchange.sink, "asks with a state that is too large to be passed on"
        give_up(exchange, "the questions are too large")
        sink.failed(exchange.error("too_large", why))
        return
    # Nothing is kept of the request that has been answered now.
    exchange.sink, exchange.asker = Nobody(), None
    parked.add(exchange, size)
    exchange.start("expiry", LIFETIME, _expire)


def _expire(exchange: Exchange) -> None:
    give_up(exchange, "nobody answered in time")


def give_up(exchange: Exchange, why: str) -> None:
    """The caller of a parked call does not come back."""
    exchange.asking().give_up(why)
    exchange.cancel(why)


# --- the caller comes back ------------------------------------------------------------------------


def resume(exchange: Exchange, call: Call, claims: Claims, sink: Sink) -> Running | None:
    """The caller of a parked call makes it again, with answers. Returns it, if it goes on.

    Raises:
        InvalidParams: it answers questions of an earlier round, or answers wrongly.
    """
    if claims.round != exchange.round:
        raise InvalidParams(INVALID)
    given = envelopes.members(call.params.get("inputResponses", b"{}"))
    if given is None:
        raise InvalidParams("params.inputResponses must be an object: key → answer")
    asks = exchange.asking()
    fit, unfit = asks.check({key: raw for key, raw in given.items() if not envelopes.is_null(raw)})
    for key, error in unfit.items():
        if not envelopes.is_object(given[key]):
            raise InvalidParams(error.message)
        # It is asked again: a user may have left something out.
        log.info("an answer did not fit; asking again", upstream=exchange.way.upstream, why=error.message)
    exchange.services.parked.drop(exchange)
    exchange.key = ""
    exchange.stop("expiry")
    exchange.call, exchange.sink = without_retry(call), sink
    for key, answer in fit.items():
        asks.answer(key, answer)
    if exchange.outcome is not None:
        result, error = exchange.outcome
        exchange.outcome = None
        if error is None:
            exchange.convert(result)
        else:
            PARK.failed(exchange, error)
        return None
    late, asks.late = asks.late, {}
    for ask in late:
        ask.on_withdrawn = None
        PARK.asked(exchange, ask)
    if asks.open:
        # What is missing is asked again, at once.
        exchange.stop("gathering")
        _park(exchange)
    if exchange.key or not exchange.under_way:
        return None
    if exchange.taskable:
        exchange.services.tasks.be_patient(exchange)
    return exchange


def without_retry(call: Call) -> Call:
    """The call without what only the gateway, or only another era, understands."""
    if _OURS.isdisjoint(call.params):
        return call
    params = {name: raw for name, raw in call.params.items() if name not in _OURS}
    return msgspec.structs.replace(call, params=params)


# --- pages to visit first -------------------------------------------------------------------------


def _send_to_pages(exchange: Exchange, error: UpstreamSaid) -> None:
    """The server wants the user to visit web pages first, and to be called anew after that."""
    # Where the data is large it was not read, and nobody visits so many pages.
    said = {} if error.data is None else envelopes.members(error.raw) or {}
    listed = (envelopes.members(said.get("data", b"{}")) or {}).get("elicitations", b"[]")
    asks = exchange.asking()
    pages: Params = {}
    method = envelopes.encode(asking.ELICIT)
    for raw in (envelopes.items(listed) or [])[: asking.MOST_OPEN]:
        params: dict[str, Buffer] = {"mode": b'"url"', **(envelopes.members(raw) or {})}
        entry: dict[str, Buffer] = {"method": method, "params": envelopes.object_of(params.items())}
        pages[asks.key("page")] = msgspec.Raw(envelopes.object_of(entry.items()))
    exchange.round += 1
    if not pages or exchange.round > MOST_ROUNDS:
        exchange.fail(error)
        return
    try:
        exchange.read_questions(pages, _pages_settled)
    except RpcError:
        data = {"requiredCapabilities": asking.required(asking.ELICIT, {"mode": msgspec.Raw(b'"url"')})}
        exchange.fail(RpcError(error.message, code=MISSING_CAPABILITY, data=data))


def _pages_settled(exchange: Exchange) -> None:
    """The pages have passed what stands around the call; those that are open have yet to be shown."""
    asks = exchange.asking()
    if asks.answers and not agreed(asks.answers):
        asks.withdraw()
        exchange.fail(declined(exchange.way.upstream))
    elif not asks.open:
        # The user has been where the server wanted.
        exchange.again(exchange.call)
    elif exchange.task is not None:
        exchange.task.asks()
    else:
        # The call that is then made anew must be made in the same way.
        exchange.ask_caller("url", AS_TASK if exchange.way.as_task else None)


def agreed(answers: Params | dict[str, Buffer]) -> bool:
    """Whether the user agreed to visit every page that was asked for."""
    actions = [envelopes.text((envelopes.members(raw) or {}).get("action")) for raw in answers.values()]
    return bool(actions) and all(action == "accept" for action in actions)


def declined(upstream: str) -> InvalidParams:
    """What a call fails with whose user did not agree."""
    return InvalidParams(f'server "{upstream}" needs the user to visit a page first, who declined')
