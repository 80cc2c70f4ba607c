"""Something a server wants of whoever called it, on its way to that caller and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muxway.wire import asking

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.call import Caller
    from muxway.errors import RpcError
    from muxway.wire.envelopes import Buffer, Params
    from muxway.wire.revisions import Revision


class ServerRequest:
    """One question of an upstream to the caller of one of its calls. Answered or refused at most once."""

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
        """The revision of the upstream: answers are given in its words."""
        self.method = method
        self.params = params
        self.open = True
        """Whether the upstream still waits."""
        self.on_withdrawn: Callable[[], None] | None = None
        """Called when the upstream waits no more, so that the caller need not be bothered."""
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
        return asking.worded(caller.revision, self.method, self.params, self.label)

    def check(self, result: Buffer) -> bytes:
        """The caller's answer in the upstream's words. Raises BadAnswer if it is none."""
        return asking.checked(self.method, self.params, result, self.revision)

    def answer(self, result: bytes) -> None:
        """Give the upstream an answer that has been checked."""
        if self.open:
            self.open = False
            self._answer(result)

    def refuse(self, error: RpcError) -> None:
        """Tell the upstream that there will be no answer."""
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
        """The upstream waits no more."""
        if self.open:
            self.open = False
            if self.on_withdrawn is not None:
                self.on_withdrawn()
