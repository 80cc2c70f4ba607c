"""What takes a call: a server, as far as those need to know it who send calls there.

A server comes and goes. Whoever finds it away learns why, when it is tried again, and where a call may wait for it;
nobody keeps a copy of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Protocol

from muxway.calls.ports import in_turns
from muxway.errors import UpstreamError

if TYPE_CHECKING:
    from muxway.calls.call import Call
    from muxway.calls.identity import Owner
    from muxway.calls.ports import LiveConnection


class Held(Protocol):
    """A call that waits for its server."""

    def release(self) -> None:
        """The server is up, or will not be."""
        ...


class WaitingCalls:
    """Calls that wait for a start, or a reading of a list, to be over, in their order. Who gives up leaves."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: dict[Held, None] = {}

    def release(self) -> None:
        """What they waited for is over, and the catalog shows how things are now: they go on their way."""
        held, self.held = list(self.held), {}
        # There may be many, and to say what is not listed takes time.
        in_turns(call.release() for call in held)


class Gate:
    """Where requests wait while something that all of them need is being prepared. Open, at first: then none waits."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: dict[Held, None] | None = None
        """Those that wait; None: it is open."""

    def shut(self) -> None:
        """Keep those waiting that come from now on."""
        self.held = {}

    def open(self) -> None:
        """Let those go on that wait, and all later ones pass."""
        held, self.held = list(self.held or ()), None
        in_turns(one.release() for one in held)


class Awaited(Protocol):
    """What a call may wait for."""

    @property
    def held(self) -> dict[Held, None]:
        """The calls that wait for it; another dict as soon as they have been let go."""
        ...


class StillStarting(Exception):
    """The call is for a server that is being started, or whose list is being read: what becomes of it is known then."""

    def __init__(self, awaited: Awaited) -> None:
        super().__init__()
        self.queue = awaited.held
        """Where the call may wait."""


class Choose(Protocol):
    """Chooses among the connections of a server."""

    def __call__(self, call: Call, /) -> LiveConnection | None:
        """The connection that a call goes over; None while the server is away.

        Raises:
            StillStarting: it is being opened.
            UpstreamError: it cannot be.
        """
        ...


class Absent(Protocol):
    """What may be away, and says why."""

    @property
    def held(self) -> dict[Held, None]:
        """The calls that wait for its start, or for a reading of a list, to be over."""
        ...

    @property
    def starting(self) -> bool:
        """Whether it is being started; every start ends, well or badly, within the server's own time limit."""
        ...

    @property
    def absence(self) -> str:
        """Why it is away, while it is."""
        ...

    @property
    def retry_in(self) -> float | None:
        """Seconds until it is tried again, if it is not running and will be."""
        ...

    @property
    def locked_out(self) -> str | None:
        """Why somebody has to log in before it can be started; None if nobody has to."""
        ...

    def wake(self) -> bool:
        """Somebody wants to call it. Returns whether it is being started now."""
        ...


class Backend(Absent, Protocol):
    """What takes calls. Connections come and go; the rest lasts. Lists are named by the requests that read them."""

    idle: float
    """Seconds of silence after which a call is given up."""
    limit: float
    """Seconds after which a call is given up in any case."""
    prefix: str
    """What stands before its tools' names in the listing."""
    unprefixed: bool
    """Whether some of its names may stand without the prefix: it has none, or the configuration renames something."""
    bare: bool
    """Whether its words stand as they are: there is no other server, and it has no prefix."""

    @property
    def arriving(self) -> dict[Held, None] | None:
        """Where a list waits while it is being found out what there is for this user; None: nowhere."""
        ...

    @property
    def opening(self) -> dict[Held, None] | None:
        """Where a list for handshake callers waits, while a connection for them is being opened; None: nowhere."""
        ...

    @property
    def connection(self) -> LiveConnection | None:
        """The connection that everybody may share; None while it is away."""
        ...

    @property
    def choose(self) -> Choose:
        """Gives the connection for a call."""
        ...

    def of(self, owner: Owner | None) -> Backend:
        """What takes the calls of a user: itself, unless it is used in the name of each."""
        ...

    def asked(self, listing: str) -> int | None:
        """A client asks for a list: what may be out of date is read again, for the next time.

        Returns for how many milliseconds what is known of it holds; None if the server has no such list.
        """
        ...

    def renew(self, listing: str) -> bool:
        """A client asks for a list, and wants to see what its calls have changed in it, also in silence.

        Returns whether it is being read; calls that wait are released at the end of that.
        """
        ...

    def want(self, listing: str, *, begin: bool) -> bool:
        """Somebody calls what is not in a list: `begin` to read it again, if that was not done a moment ago.

        Returns whether it is being read; calls that wait are released at the end of that.
        """
        ...


def refuse(server: str, backend: Absent) -> NoReturn:
    """Say why a server takes no call: UpstreamError, or StillStarting if it may take one in a moment."""
    if backend.starting or backend.wake():
        raise StillStarting(backend)
    if (locked_out := backend.locked_out) is not None:
        raise UpstreamError(server, "login_needed", locked_out)
    retry_in = backend.retry_in
    why = f'server "{server}" is not running: {backend.absence}'
    if retry_in is not None:
        why += f"; it is started again in {max(retry_in, 0.1):.1f} s"
    raise UpstreamError(server, "not_running", why, retry_after=retry_in)
