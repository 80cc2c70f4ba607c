"""What a request is about: found once, and used by all who judge it.

Chains choose their middlewares by a target, `match` and approvals go by its names, memories are kept by its server,
and `explain` tells of it. There is one for every kind of request that leads to a server, so that none of them has a
way around.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Raw

    from muxway.calls.call import Call
    from muxway.catalog.kinds import Kind
    from muxway.catalog.model import Route


class Chosen(NamedTuple):
    """What a call of a compound tool has chosen."""

    compound: Route
    name: Raw
    """The compound tool's name, as the caller wrote it."""
    upstream: str
    native: str


class Trace(NamedTuple):
    """What a task, or a sealed state, remembers of the call that it belongs to."""

    upstream: str
    tool: str
    """The name that was called, in the caller's words."""
    head: bytes
    """The start of the call as its server got it."""
    task: str = ""
    """What the server calls the task, if it is the server's own."""


class Target(msgspec.Struct, frozen=True, eq=False):
    """What a request is about. Immutable."""

    server: str = ""
    """The server it leads to; empty where that is not one server's."""
    names: tuple[str, ...] = ()
    """The names that it goes by, the one that is listed first. For a subtool, those of its compound tool, too."""
    definition: Mapping[str, Any] = {}
    """The listed definition of the tool or prompt; empty if there is none."""
    kind: Kind | None = None
    """The list that it stands in, or would."""
    call: Call | None = None
    """The call of the subtool that a call of a compound tool stands for; None: the call is what it is."""
    chosen: Chosen | None = None
    """What was chosen, if it is about a subtool."""
    vague: bool = False
    """Whether other arguments may mean another target."""

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from others."""
        return self.server, *self.names


NOTHING: Final = Target()
"""Of a request that is about the gateway itself."""
