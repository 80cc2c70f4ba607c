"""The client of a gateway that has exactly one, as on a pipe: who it is decides how servers are greeted.

Servers are started before the client has said anything, but nearly every client speaks at once. Whoever greets a server
waits for that for a moment: then a server of both eras is used in the client's, and is told what it can do and no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muxway.errors import InvalidParams

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.call import Caller
    from muxway.calls.ports import Client
    from muxway.calls.server_request import ServerRequest

_MOST_EARLY: Final = 32
"""Questions of servers that are kept until the client is there."""


class OnlyClient:
    """Implements `calls.ports.Client` for whoever comes."""

    def __init__(self) -> None:
        self.client: Client | None = None
        """Its session; None for a client that has none, and until it is known."""
        self.spoke = False
        """Whether it has said its first word."""
        self._caller: Caller | None = None
        self._curious: list[Callable[[Caller | None], None]] = []
        self._early: list[ServerRequest] = []

    def came(self, client: Client | None, caller: Caller | None) -> None:
        """It has said its first word; None: it has no session, and can be asked nothing outside a call."""
        self.client, self._caller = client, caller
        self.spoke = True
        curious, self._curious = self._curious, []
        for hear in curious:
            hear(caller)
        early, self._early = self._early, []
        for ask in early:
            self.consult(ask)

    def when_met(self, hear: Callable[[Caller | None], None]) -> None:
        """Call with who it is, once it has said its first word; with None if it has no session."""
        if self.spoke:
            hear(self._caller)
        else:
            self._curious.append(hear)

    def consult(self, ask: ServerRequest) -> None:
        """See `calls.ports.Client`; what is asked before it is there waits for it."""
        if self.client is not None:
            self.client.consult(ask)
        elif self.spoke or len(self._early) >= _MOST_EARLY:
            ask.refuse(InvalidParams(f"{ask.method}: the client can be asked only in the course of a call"))
        else:
            self._early.append(ask)
