"""What servers ask one client: in the course of its calls, or outside of any; until it answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from muxway.calls.incidents import internal
from muxway.errors import InvalidParams, RpcError
from muxway.wire import envelopes
from muxway.wire.asking import ELICIT, BadAnswer
from muxway.wire.envelopes import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muxway.calls.call import Caller
    from muxway.calls.server_request import ServerRequest
    from muxway.clients.session import Session
    from muxway.errors import UpstreamSaid
    from muxway.exchange.dispatcher import Dispatcher
    from muxway.wire.envelopes import Buffer, Envelope

_ANSWER_SECONDS: Final = 600.0
"""How long a client may take to answer."""
_MOST_QUESTIONS: Final = 256
"""What a client may be asked at once, in all its calls together."""
_MOST_EARLY: Final = 32
"""Questions of servers that are kept until the client is ready."""


class ClientQuestion:
    """Something the client was asked, until it answers."""

    __slots__ = ("_ask", "_id", "_session", "_tell", "_timer")

    def __init__(
        self, session: Session, ask: ServerRequest, id_: int, tell: Callable[[Sequence[Buffer]], None]
    ) -> None:
        self._session, self._ask, self._id, self._tell = session, ask, id_, tell
        self._timer = asyncio.get_running_loop().call_later(_ANSWER_SECONDS, self._expire)
        ask.on_withdrawn = self._withdraw

    def answered(self, envelope: Envelope) -> None:
        """The client has answered."""
        self._timer.cancel()
        ask = self._ask
        try:
            if envelope.error is not ABSENT:
                raise envelopes.said_error(envelope.error) or BadAnswer("the client answered with a malformed error")
            ask.answer(ask.check(envelope.result if envelope.result is not ABSENT else b"null"))
        except Exception as error:  # noqa: BLE001 - whatever it is, the server waits for an answer
            ask.refuse(internal(error, method=ask.method))

    def _expire(self) -> None:
        self._forget("nobody answered in time")
        self._ask.give_up(RpcError(f"the client did not answer within {_ANSWER_SECONDS:g} s"))

    def _withdraw(self) -> None:
        self._timer.cancel()
        self._forget("the server does not wait for this any more")

    def _forget(self, why: str) -> None:
        if self._session.peer.ours.pop(self._id, None) is not None:
            params = envelopes.encode({"requestId": self._id, "reason": why})
            self._tell(envelopes.notification("notifications/cancelled", params))


class ClientQuestions:
    """What one client is asked."""

    __slots__ = ("_dispatcher", "_session", "early")

    def __init__(self, session: Session, dispatcher: Dispatcher) -> None:
        self._session = session
        self._dispatcher = dispatcher
        self.early: list[ServerRequest] = []
        """What servers wanted to know before the client was ready."""

    def put(self, ask: ServerRequest, caller: Caller, tell: Callable[[Sequence[Buffer]], None]) -> None:
        """Ask the client; the question goes to `tell`."""
        if len(self._session.peer.ours) >= _MOST_QUESTIONS:
            ask.refuse(RpcError(f"{ask.method}: the client has {_MOST_QUESTIONS} questions to answer already"))
            return
        try:
            params = ask.worded(caller)
        except RpcError as error:
            ask.refuse(error)
            return
        if ask.method == ELICIT and params is not None:
            page = envelopes.text((envelopes.members(params) or {}).get("elicitationId"))
            if page is not None:
                self._dispatcher.runtime.sessions.sent_to_page(ask.connection, page, self._page_done)
        id_ = self._session.peer.mint()
        self._session.peer.ours[id_] = ClientQuestion(self._session, ask, id_, tell)
        tell(envelopes.request(id_, ask.method, params))

    def wait(self, ask: ServerRequest) -> bool:
        """Keep a question until the client is ready. False if too many wait."""
        kept = len(self.early) < _MOST_EARLY
        if kept:
            self.early.append(ask)
        return kept

    def taken(self) -> list[ServerRequest]:
        """Those that were kept, which then are no more."""
        early, self.early = self.early, []
        return early

    def consult(self, ask: ServerRequest, caller: Caller | None) -> None:
        """Ask the client something that belongs to no call; None: it cannot be asked anything now."""
        tell = None if caller is None else self._way_to_ask(caller)
        if tell is None or caller is None:
            ask.refuse(InvalidParams(f"{ask.method}: the client cannot be asked outside a call now"))
        elif (passed := self._dispatcher.screen_ask(caller, ask)) is not None:
            self.put(passed, caller, tell)

    def _way_to_ask(self, caller: Caller) -> Callable[[Sequence[Buffer]], None] | None:
        session = self._session
        if session.backlog() < float("inf"):
            return session.say
        # Over HTTP it need not listen, but the stream of a call that waits will do.
        return next((one.tell for one in session.peer.theirs.values() if one.call.caller is caller), None)

    def note_pages(self, error: UpstreamSaid) -> None:
        """The client is sent to web pages; it wants to hear when a visit is over, if the server says so."""
        data: object = error.data
        listed: object = cast("dict[str, object]", data).get("elicitations") if isinstance(data, dict) else None
        for page in cast("list[object]", listed) if isinstance(listed, list) else ():
            id_: object = cast("dict[str, object]", page).get("elicitationId") if isinstance(page, dict) else None
            if isinstance(id_, str):
                self._dispatcher.runtime.sessions.sent_to_page(error.connection, id_, self._page_done)

    def _page_done(self, id_: str) -> None:
        params = envelopes.encode({"elicitationId": id_})
        self._session.say(envelopes.notification("notifications/elicitation/complete", params))
