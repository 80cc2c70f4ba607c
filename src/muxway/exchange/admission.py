"""How much may be under way at once: calls of all clients, calls of one, and memory.

Whoever takes a call compares two pairs of numbers and counts one up; everything else happens only at a limit. What is
above it is refused at once, with when to come again, so that what was let in is served well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muxway.calls.ports import later, log
from muxway.errors import RpcError

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS: Final = frozenset(("tools/call", "resources/read", "prompts/get", "completion/complete"))
"""What is counted and may be refused: requests that make servers work. The rest is answered here, or ends such work."""
SHED_SESSIONS: Final = 0.8
SHED_CALLS: Final = 0.9
"""The parts of our memory above which there are no new sessions, and no new calls."""
RETRY_SECONDS: Final = 1
"""After how long a client is told to try again."""
_MEASURED_FOR: Final = 1.0
"""Seconds that a look at the memory holds."""


class Admission:
    """What is under way in a gateway, and whether there may be more of it."""

    __slots__ = ("_calls", "_fullness", "_measured", "_of", "_share", "each", "most", "running")

    def __init__(self) -> None:
        self.running = 0
        """Calls under way. Whoever takes one counts it, and counts it off when it has its outcome."""
        self._of: dict[bytes, int] = {}
        """Calls under way of clients that are known by their credentials only."""
        self._share = 0.0
        self.allow(calls=1024, each=128)

    def allow(self, *, calls: int, each: int, fullness: Callable[[], float | None] | None = None) -> None:
        """Allow so much from now on.

        Args:
            calls: most calls under way.
            each: most calls of one client under way.
            fullness: which part of the memory that we may use is in use; None if that is not known.
        """
        self.each = each
        self.most = calls if fullness is None else 0
        """While fewer than this are `running`, and fewer than `each` of one client, `refusal` need not be asked."""
        self._calls = calls
        self._fullness = fullness
        self._measured = fullness is None

    def enter(self, principal: bytes) -> RpcError | None:
        """Take a call of whoever has these credentials and no session. Why not, or None: then `leave` must follow."""
        # Those who show no credentials cannot be told from each other: only what all may have is a limit for them.
        of_client = self._of.get(principal, 0) if principal else 0
        if self.running >= self.most or of_client >= self.each:
            refusal = self.refusal(of_client)
            if refusal is not None:
                return refusal
        if principal:
            self._of[principal] = of_client + 1
        self.running += 1
        return None

    def leave(self, principal: bytes) -> None:
        """A call that has entered is over."""
        self.running -= 1
        if principal:
            left = self._of[principal] - 1
            if left:
                self._of[principal] = left
            else:
                del self._of[principal]

    def refusal(self, of_client: int = 0) -> RpcError | None:
        """Why one more call, of a client with so many under way, is not taken; None if it is."""
        self._measure()
        if of_client >= self.each:
            return _overloaded(
                f"this client has {of_client} calls under way and may have {self.each} "
                "(gateway.maxCallsPerClient): wait for some to end, then try again"
            )
        if self.running < self.most:
            return None
        if self.most < self._calls:
            return _overloaded("the gateway is short of memory (gateway.maxMemory): try again later")
        return _overloaded(
            f"the gateway has {self.running} calls under way, as many as it takes (gateway.maxCalls): try again later"
        )

    @property
    def takes_sessions(self) -> bool:
        """Whether there is memory for one more session."""
        self._measure()
        return self._share <= SHED_SESSIONS

    def _measure(self) -> None:
        """Look at the memory, unless that was done a moment ago: by a timer, so that no call asks for the time."""
        if self._measured:
            return
        self._measured = True
        share = None if self._fullness is None else self._fullness()
        if share is None:
            self._fullness = None
            self.most = self._calls
            return
        tight, was_tight = share > SHED_CALLS, self._share > SHED_CALLS
        if tight != was_tight:
            said = "short of memory: calls are refused" if tight else "there is memory again: calls are taken"
            log.warning(said, used_percent=int(share * 100))
        self._share = share
        # One call at a time is always taken: memory that the system does not get back must not end our service.
        self.most = min(1, self._calls) if tight else self._calls
        later(_MEASURED_FOR, self._forget)

    def _forget(self) -> None:
        # Whoever comes next looks anew; if nobody does, nothing is measured.
        self._measured = False
        self.most = 0


def _overloaded(why: str) -> RpcError:
    return RpcError(why, data={"muxway": {"reason": "overloaded", "retryAfterMs": RETRY_SECONDS * 1000}})
