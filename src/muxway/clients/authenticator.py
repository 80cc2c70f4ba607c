"""The port to whoever judges credentials that the HTTP transport cannot compare by itself: access tokens and API keys.

A verdict that is known comes from a plain call. Only for one that has to be found out elsewhere is there something to
wait for; the transport then takes the request again when it is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    import asyncio

    from muxway.calls.identity import Identity


KEY_PREFIX: Final = b"mxw_"
"""What every API key begins with, also so that scanners for leaked secrets find it."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The credentials are good, here."""

    principal: bytes
    identity: Identity
    view: str | None = None
    """The only view that they open; None: every one that they are good for."""
    until: float | None = None
    """When they end, as the wall clock says; None: whoever knows says so (`still_admits`)."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The credentials are not good here, and why. Never says what stands in them."""

    status: int
    """401: another credential is needed; 403: this one with more scopes; 503: nobody can tell at present."""
    error: str
    """The code of RFC 6750 §3.1; empty if there is none for it."""
    why: str
    identity: Identity | None = None
    """Whose they are, if they are only not enough."""


Verdict: TypeAlias = Admitted | Rejected


class Authenticator(Protocol):
    """Judges bearer tokens. Paths are those of endpoints: `/mcp`, `/mcp/VIEW`, `/sse`, `/sse/VIEW`."""

    demands: bool
    """Whether a request without credentials is turned away."""

    def judges(self, token: bytes) -> bool:
        """Whether a token is for it to judge, going by its looks."""
        ...

    def check(self, token: bytes, path: str) -> Verdict | asyncio.Future[Verdict]:
        """What is known of a token at an endpoint, or the future that will have it."""
        ...

    def still_admits(self, identity: Identity, view: str | None) -> bool:
        """Whether somebody who was let in could still be, in this view, going by all but the token."""
        ...

    def challenge(self, path: str, host: str, rejected: Rejected | None) -> bytes:
        """What `WWW-Authenticate` says at an endpoint, known by this Host, of a credential or of its absence."""
        ...

    def metadata(self, path: str, host: str) -> bytes | asyncio.Future[None] | None:
        """The document at a well-known path, known by this Host, for everybody to read; None if there is none.

        A future if that is not known yet: ask again when it is done.
        """
        ...
