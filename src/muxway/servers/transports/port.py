"""What a connection needs of a transport towards a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muxway.config.model import ServerConfig
    from muxway.errors import RpcError
    from muxway.wire.envelopes import Buffer
    from muxway.wire.framing import Oversized
    from muxway.wire.large import Opened


RENEWED: Final = "muxway/renewed"
"""The notice that a transport gives in its server's name when a new session has taken the place of the old one."""


class Outgoing(NamedTuple):
    """What a message of ours is, so that whoever carries it need not open it."""

    method: str | None = None
    """None: it is an answer."""
    id: bytes = b""
    """The id that is to be answered; empty for notifications and answers."""
    params: Mapping[str, Buffer] = {}
    """What of its params is known: all that a stateless server wants repeated in headers is among it."""


UNTOLD: Final = Outgoing()
"""An answer; on a pipe, anything."""


class Hear(Protocol):
    """Takes what a server sent."""

    def __call__(self, frames: Sequence[bytes | Oversized], about: bytes = b"", opened: Opened | None = None) -> int:
        """Take frames; `about` is the id of our request on whose own stream they came, where there is such a thing.

        `opened` is what came of the only frame, if it has been opened already, as a large one must be (`wire.large`).

        Returns how many of them answer nothing that was asked.
        """
        ...


class Fail(Protocol):
    """Hears that one request will get no answer, where a transport carries each by itself."""

    def __call__(self, id_: bytes, error: RpcError, *, broken: bool) -> None:
        """A request has failed; `broken`: because the server could not be reached or broke off, whatever was asked."""
        ...


class ServerTransport(Protocol):
    """Carries frames to and from one server. Opened once, closed once."""

    remote: bool
    """Whether each request goes its own way to the server, so that one may fail where another gets through."""

    own_process: bool
    """Whether the server is a process of ours, which ends with the transport, and all that it knows with it."""

    send: Callable[[Sequence[Buffer], Outgoing], None]
    """Queue one frame; never waits. Before and after the connection it does nothing. What the frame is, is told only
    where the server is remote: on a pipe all frames go the same way."""

    @property
    def queued(self) -> int:
        """Bytes accepted by `send` that the server has not taken yet."""
        ...

    async def open(self, hear: Hear, lost: Callable[[str], None], fail: Fail, /) -> None:
        """Connect. From then on `hear` gets every frame and `lost`, at most once, the reason why no more will come.

        `fail` gets each request that fails by itself.

        Raises:
            SpawnError: it could not be started at all.
        """
        ...

    def introduced(self) -> None:
        """The server has been greeted: what it writes for people from now on is worth showing them."""
        ...

    def last_words(self) -> str | None:
        """The last line the server wrote for people, if it has such an outlet."""
        ...

    async def close(self, *, at_once: bool = False) -> None:
        """End the server, kindly first unless `at_once`, and wait until it is gone. `lost` is not called any more."""
        ...


class Credentials(Protocol):
    """What a remote server is shown with each request, where that is not written in the configuration."""

    header: str | None
    """What to send as Authorization now; None: nothing."""
    wanted: bool
    """Whether the server is known to want a login, or has one."""
    on_login: Callable[[], None] | None
    """Called when somebody has logged in after `refused` or `prepare` had said that somebody must."""
    good_until: float
    """When to ask again whether something is `due`, by `time.monotonic`: before that nothing is."""

    @property
    def secrets(self) -> frozenset[str]:
        """Texts that must never be shown."""
        ...

    def fill(self, config: ServerConfig) -> ServerConfig:
        """The configuration with what only this user has put in.

        Raises:
            UpstreamError: "login_needed"; the user has to give it first.
        """
        ...

    def due(self) -> bool:
        """Whether `prepare` has to be awaited before the next request."""
        ...

    async def prepare(self) -> None:
        """See to it that `header` is what to send.

        Raises:
            HttpTrouble: it cannot be had; "login_needed" if that takes a person.
        """
        ...

    async def refused(self, status: int, challenges: Sequence[str], sent: str | None, *, known: bool = False) -> bool:
        """The server refused a request, with 401 or 403, that was sent with this header; `known`: it took others.

        Returns whether it may be sent again, with what `header` is now. Raises as `prepare` does.
        """
        ...

    def close(self) -> None:
        """Nobody will log in any more."""
        ...
