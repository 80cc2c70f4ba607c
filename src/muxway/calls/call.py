"""A request on its way through the gateway, and who made it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from muxway.wire.revisions import NEWEST_HANDSHAKE, PROGRESS_TOKEN, Revision

if TYPE_CHECKING:
    from msgspec import Raw

    from muxway.calls.identity import Identity
    from muxway.wire.envelopes import Params


Forwarded: TypeAlias = tuple[tuple[str, str], ...]
"""Headers of a caller that some server is to get: name, in small letters, and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: one per handshake session, or one per stateless request. Never changes."""

    revision: Revision
    """The protocol revision the caller speaks; results are given in its spelling."""
    capabilities: Raw | None = None
    """What the caller declared it can do, as it came."""
    client_info: Raw | None = None
    """The caller's own name and version, as they came. For display only."""
    client: str = ""
    """The profile of its client, if that cannot take everything. Of sessions only: stateless lists are one for all."""
    principal: bytes = b""
    """Whose credentials it came with, as a digest; empty without any. Tokens of one principal may come and go."""
    identity: Identity | None = None
    """What these credentials say of it; None if they say nothing, or there are none."""
    forwarded: Forwarded = ()
    """What of its headers servers may get."""
    party: object = None
    """The connection, session or principal behind it. Calls of one party may learn of each other; None: of nobody."""
    log_level: int | None = None
    """The least severe log messages it wants, as a number of `revisions.LOG_LEVELS`; None if it never said."""
    depth: int = 0
    """How many composed tools the call is inside of: it is one of their steps, made in the name of their caller."""


LIBRARY: Final = Caller(revision=NEWEST_HANDSHAKE)
"""The caller of a Python program that uses the gateway as a library."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """One request. Immutable; a changed one is made with `msgspec.structs.replace`."""

    caller: Caller
    method: str
    params: Params
    meta: Params | None = None
    """`params._meta`, opened one level; None when there is none."""
    everything: bool = False
    """For a list: whether also what is found by search is wanted, which clients get no list of."""

    @property
    def progress_token(self) -> Raw | None:
        """The token under which the caller wants progress, if it does."""
        return None if self.meta is None else self.meta.get(PROGRESS_TOKEN)
