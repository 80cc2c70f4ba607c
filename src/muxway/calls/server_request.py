"""What a server wants of whoever called it, on its way to that caller and back; and all that it wants in one call."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from muxway.calls.ports import new_id
from muxway.errors import RpcError
from muxway.wire import asking, envelopes
from muxway.wire.asking import BadAnswer
from muxway.wire.envelopes import Raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from muxway.calls.call import Caller
    from muxway.calls.ports import LiveConnection, Sink
    from muxway.wire.envelopes import Buffer, Params
    from muxway.wire.revisions import Revision


class ServerRequest:
    """One question of a server to the caller of one of its calls. Answered or refused at most once."""

    __slots__ = (
        "_answer",
        "_refuse",
        "connection",
        "label",
        "method",
        "on_withdrawn",
        "open",
        "params",
        "park",
        "revision",
        "upstream",
    )

    def __init__(
        self,
        upstream: str,
        revision: Revision,
        method: str,
        params: Params,
        *,
        answer: Callable[[bytes], None],
        refuse: Callable[[RpcError], None],
        label: str | None = None,
        connection: object = None,
    ) -> None:
        self.upstream = upstream
        self.label = upstream if label is None else label
        """What the user is told who asks; empty: nothing, as there is but one."""
        self.revision = revision
        """The revision of the server: answers are given in its words."""
        self.method = method
        self.params = params
        self.open = True
        """Whether the server still waits."""
        self.on_withdrawn: Callable[[], None] | None = None
        """Called when the server waits no more, so that the caller need not be bothered."""
        self.connection = connection
        """Where it came from: ids in it mean something there only."""
        self.park: Callable[[ServerRequest], None] | None = None
        """Takes it when it has passed the middleware, if its caller is asked by ending the call; see `arrived`."""
        self._answer = answer
        self._refuse = refuse

    def passed_on(self, answer: Callable[[bytes], None], refuse: Callable[[RpcError], None]) -> ServerRequest:
        """The same question for somebody else to answer."""
        passed = ServerRequest(
            self.upstream,
            self.revision,
            self.method,
            self.params,
            answer=answer,
            refuse=refuse,
            connection=self.connection,
            label=self.label,
        )
        passed.park = self.park
        return passed

    def arrived(self) -> bool:
        """It is where its caller would be asked. False if that is to be done there; else whoever parked it does."""
        park, self.park = self.park, None
        if park is not None:
            park(self)
        return park is not None

    def worded(self, caller: Caller) -> bytes | None:
        """The params to ask this caller with; None where the question has none.

        Raises:
            RpcError: it cannot be asked this.
        """
        refusal = asking.refusal(caller.capabilities, caller.revision, self.method, self.params)
        if refusal is not None:
            raise refusal
        params = self.params
        if asking.lacks_page_id(caller.revision, self.method, params):
            params = {**params, "elicitationId": Raw(envelopes.encode(new_id()))}
        return asking.worded(caller.revision, self.method, params, self.label)

    def check(self, result: Buffer) -> bytes:
        """The caller's answer in the server's words. Raises BadAnswer if it is none."""
        return asking.checked(self.method, self.params, result, self.revision)

    def keep(self) -> None:
        """It may take long to be answered: nothing of the message that it came in is kept with it."""
        self.params = {name: raw.copy() for name, raw in self.params.items()}

    def answer(self, result: bytes) -> None:
        """Give the server an answer that has been checked."""
        if self.open:
            self.open = False
            self._answer(result)

    def refuse(self, error: RpcError) -> None:
        """Tell the server that there will be no answer."""
        if self.open:
            self.open = False
            self._refuse(error)

    def give_up(self, error: RpcError) -> None:
        """Nobody answers: where the protocol has a word for that it is used, else the error."""
        if self.method == asking.ELICIT:
            self.answer(asking.CANCELLED)
        else:
            self.refuse(error)

    def withdraw(self) -> None:
        """The server waits no more."""
        if self.open:
            self.open = False
            if self.on_withdrawn is not None:
                self.on_withdrawn()


class ServerRequests:
    """All that a server asks in one call, until it is settled: whichever way it asks, and its caller is asked.

    A server with a handshake asks in the middle of its call (`add`); a stateless one ends it with questions (`read`). A
    caller with a handshake answers each as it comes; a stateless one is shown `entries`, and comes back with answers.
    """

    __slots__ = ("_count", "answers", "entries", "late", "missing", "on_settled", "open", "refusal")

    def __init__(self) -> None:
        self.open: dict[str, ServerRequest] = {}
        """Those without an answer, by key."""
        self.entries: dict[str, Buffer] = {}
        """How a stateless caller is asked those of them that have passed the middleware."""
        self.answers: dict[str, Buffer] = {}
        """What those of a result were answered."""
        self.refusal: tuple[str, RpcError] | None = None
        """The method of one that was refused, and why, where there is no word for that in an answer."""
        self.late: dict[ServerRequest, None] = {}
        """Those that came while the caller was away: they have yet to pass the middleware."""
        self.missing: dict[str, Any] = {}
        """Capabilities that the caller would have needed."""
        self.on_settled: Callable[[], None] | None = None
        """Called whenever none of a result is on its way to the caller any more: each is shown to it, or answered."""
        self._count = 0

    def key(self, start: str = "q") -> str:
        """A key for one more; never the same one twice in a call."""
        self._count += 1
        return f"{start}{self._count}"

    # --- in the middle of a call ----------------------------------------------------------------

    def add(self, ask: ServerRequest, caller: Caller) -> str:
        """One that has passed the middleware is to be shown to a stateless caller. Returns its key.

        Raises:
            RpcError: this caller cannot be asked this.
        """
        try:
            params = ask.worded(caller)
        except RpcError:
            self.missing |= asking.required(ask.method, ask.params)
            raise
        entry: dict[str, Buffer] = {"method": envelopes.encode(ask.method)}
        if params is not None:
            entry["params"] = params
        key = self.key()
        self.open[key], self.entries[key] = ask, envelopes.object_of(entry.items())
        return key

    # --- in a result ----------------------------------------------------------------------------

    def read(self, upstream: str, connection: LiveConnection, caller: Caller, entries: Params) -> None:
        """Those that stand in a result, in place of any before. `put` sends them on their way.

        Raises:
            RpcError: this caller cannot be asked them; then there is none.
        """
        self.open, self.entries, self.answers, self.refusal = {}, {}, {}, None
        if len(entries) > asking.MOST_OPEN:
            raise RpcError(f"more than {asking.MOST_OPEN} questions at once")
        asks: dict[str, ServerRequest] = {}
        for key, raw in entries.items():
            entry = envelopes.members(raw) or {}
            method = envelopes.text(entry.get("method")) or ""
            params = envelopes.members(entry.get("params", b"{}")) or {}
            unfit = asking.refusal(caller.capabilities, caller.revision, method, params)
            if unfit is not None:
                raise unfit
            asks[key] = ask = ServerRequest(
                upstream,
                connection.revision,
                method,
                params,
                answer=partial(self._answered, key),
                refuse=partial(self._refused, key, method),
                label=connection.label,
            )
            if caller.revision.stateless:
                ask.park = partial(self._arrived, key, raw, entry, params, caller)
        self.open = asks

    def put(self, sink: Sink) -> None:
        """Send what was read to the caller, through what stands around the call."""
        if not self.open:
            self._settle()
        for ask in list(self.open.values()):
            # What became of the others may have settled it.
            if ask.open:
                sink.ask(ask)

    def _arrived(
        self, key: str, raw: Buffer, entry: Params, params: Params, caller: Caller, ask: ServerRequest
    ) -> None:
        """It has passed the middleware, and is to be shown to a stateless caller."""
        if key not in self.open:
            return
        if ask.params is params and ask.method != asking.ELICIT:
            # Nothing in it says who asks: it stays the bytes it came as.
            self.entries[key] = raw
        else:
            try:
                worded = ask.worded(caller)
            except RpcError as error:
                ask.refuse(error)
                return
            self.entries[key] = envelopes.object_of({**entry, "params": worded or b"{}"}.items())
        # Whoever passed it on may want to hear the answer.
        self.open[key] = ask
        self._settle()

    def _answered(self, key: str, answer: bytes) -> None:
        self.drop(key)
        self.answers[key] = answer
        self._settle()

    def _refused(self, key: str, method: str, error: RpcError) -> None:
        if method == asking.ELICIT:
            self._answered(key, asking.CANCELLED)
            return
        self.drop(key)
        self.refusal = method, error
        # The call cannot go on: nobody need think about the others.
        self.withdraw()
        self._settle()

    def _settle(self) -> None:
        if self.on_settled is not None and self.open.keys() <= self.entries.keys():
            self.on_settled()

    # --- the caller answers, or nobody does -----------------------------------------------------

    def check(self, given: Params) -> tuple[dict[str, bytes], dict[str, BadAnswer]]:
        """The answers among these to what is open, in the server's words; and what is wrong with the others."""
        fit: dict[str, bytes] = {}
        unfit: dict[str, BadAnswer] = {}
        for key, ask in self.open.items():
            if key in given:
                try:
                    fit[key] = ask.check(given[key])
                except BadAnswer as error:
                    unfit[key] = error
        return fit, unfit

    def answer(self, key: str, answer: bytes) -> None:
        """Give the server an answer that has been checked, unless that was settled by the answer to another."""
        ask = self.drop(key)
        if ask is not None:
            ask.answer(answer)

    def drop(self, key: str) -> ServerRequest | None:
        """It is settled, or the server waits no more."""
        self.entries.pop(key, None)
        return self.open.pop(key, None)

    def clear(self) -> None:
        """The server waits for none any more, and has said so itself."""
        self.open, self.entries, self.late = {}, {}, {}

    def withdraw(self) -> None:
        """The server waits for none any more."""
        left = [*self.open.values(), *self.late]
        self.clear()
        for ask in left:
            ask.withdraw()

    def give_up(self, why: str) -> None:
        """Nobody answers."""
        for ask in self._emptied():
            ask.give_up(RpcError(why))

    def refuse(self, why: str) -> None:
        """There will be no answers."""
        for ask in self._emptied():
            ask.refuse(RpcError(why))

    def _emptied(self) -> Iterator[ServerRequest]:
        """Each that is open, which then is no more. What becomes of one may settle others."""
        for key in list(self.open):
            ask = self.drop(key)
            if ask is not None:
                yield ask
        late, self.late = self.late, {}
        yield from late

    @property
    def size(self) -> int:
        """Bytes of what is kept of those that are open."""
        size = sum(memoryview(entry).nbytes for entry in self.entries.values())
        return size + sum(memoryview(raw).nbytes for ask in self.late for raw in ask.params.values())
