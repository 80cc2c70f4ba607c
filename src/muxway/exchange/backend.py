"""A server as those see it who send calls to it: whether it is there, and who waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from muxway.calls.ports import in_turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from muxway.calls.call import Call
    from muxway.calls.ports import LiveConnection
    from muxway.catalog.kinds import Kind


class Held(Protocol):
    """A call that waits for its server."""

    def release(self) -> None:
        """The server is up, or will not be."""
        ...


class StillStarting(Exception):
    """The call is for a server that is being started, or whose list is being read: what becomes of it is known then."""

    def __init__(self, member: Member) -> None:
        super().__init__()
        self.member = member


class Home(Protocol):
    """A server that may be away for a while."""

    starting: bool
    """Whether it is being started; every start ends, well or badly, within the server's own time limit."""

    @property
    def retry_in(self) -> float | None:
        """Seconds until it is tried again, if it is not running and will be."""
        ...

    def wake(self) -> bool:
        """Somebody wants to call it. Returns whether it is being started now."""
        ...

    def asked(self, kind: Kind) -> int | None:
        """A client asks for a list: what may be out of date is read again, for the next time.

        Returns for how many milliseconds what is known of it holds; None if the server has no such list.
        """
        ...

    def renew(self, kind: Kind) -> bool:
        """A client asks for a list, and wants to see what its calls have changed in it, also in silence.

        Returns whether it is being read; the end of that is told.
        """
        ...

    def want(self, kind: Kind, *, begin: bool) -> bool:
        """Somebody calls what is not in a list: `begin` to read it again, if that was not done a moment ago.

        Returns whether it is being read; the end of that is told.
        """
        ...


class Member(msgspec.Struct):
    """An upstream as the relay sees it. The link comes and goes; the rest lasts."""

    idle: float
    """Seconds of silence after which a call is given up."""
    limit: float
    """Seconds after which a call is given up in any case."""
    prefix: str = ""
    """What stands before its tools' names in the listing."""
    unprefixed: bool = False
    """Whether some of its names may stand without the prefix: it has none, or the configuration renames something."""
    bare: bool = False
    """Whether its words stand as they are: there is no other server, and it has no prefix."""
    starting: bool = True
    """Whether it is being started; every start ends, well or badly, within the server's own time limit."""
    link: LiveConnection | None = None
    absence: str = "it is still starting"
    """Why there is no link, while there is none."""
    held: dict[Held, None] = {}
    """Calls that wait for the start, or a reading of its list, to be over, in their order. Who gives up leaves."""
    opening: Member | None = None
    """A connection for handshake callers that is being opened, if a list for them should wait for it."""
    home: Home | None = None
    """Who starts it when it is away and somebody calls; None: nobody."""
    choose: Callable[[Call], LiveConnection | None] | None = None
    """Which link a call goes to, where there may be several; None while all calls go to the one."""

    def link_for(self, call: Call) -> LiveConnection | None:
        """The link that a call goes over; None while there is none.

        Raises:
            StillStarting: it is being opened.
            UpstreamError: it cannot be.
        """
        return self.link if self.choose is None else self.choose(call)

    def settle(self, link: LiveConnection | None, absence: str) -> None:
        """The start is over, or the link is gone; or it is being started again."""
        self.starting = link is None and self.home is not None and self.home.starting
        self.link, self.absence = link, absence

    def release(self) -> None:
        """The catalog shows how things are now: calls that waited for that go on their way."""
        held, self.held = list(self.held), {}
        # There may be many, and to say what is not listed takes time.
        in_turns(call.release() for call in held)
