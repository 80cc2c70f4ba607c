"""What a request is about, ready to be called: found once, and used by all who judge it and by whoever sends it.

Chains choose their middlewares by a target, `match` and approvals go by its names, memories are kept by its server,
forwarding takes its head and its conversions, and `explain` tells of it. There is one for every kind of request that
leads to a server, so that none of them has a way around.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from muxway.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Raw

    from muxway.access.rules import Ruling
    from muxway.calls.call import Call
    from muxway.catalog.kinds import Kind
    from muxway.catalog.model import Route
    from muxway.catalog.shaping import Shaping
    from muxway.config.model import CustomTool
    from muxway.errors import RpcError
    from muxway.wire.result_types import Converter


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
    """What a request is about. Immutable; that of a listed tool is made once for all its calls."""

    server: str = ""
    """The server it leads to; empty where that is not one server's."""
    names: tuple[str, ...] = ()
    """The names that it goes by, the one that is listed first. For a subtool, those of its compound tool, too."""
    kind: Kind | None = None
    """The list that it stands in, or would."""
    route: Route | None = None
    """The listed tool or prompt, or what passes for one."""
    head: bytes = b""
    """The start of the request as its server gets it, ready to be followed by the call's own params."""
    shapes: tuple[Shaping, ...] = ()
    """What is done to the arguments, one after the other."""
    reshape: Converter | None = None
    """What the shapes do to the result."""
    rewrite: Converter | None = None
    """What is done to the links in the result."""
    wrapped: bool = False
    """Whether the output is wrapped for callers that know only objects."""
    tasked: bool = False
    """Whether a server of 2025-11-25 runs it only as a task."""
    own: CustomTool | None = None
    """The composed or compound tool of the gateway that it is."""
    call: Call | None = None
    """The call of the subtool that a call of a compound tool stands for; None: the call is what it is."""
    chosen: Route | None = None
    """The compound tool that was called, if this is the subtool which the call has chosen."""
    finder: Route | None = None
    """The tool that it was called by, `call_tool` or one of its tiers; None: by its own name."""
    spelled: Raw | None = None
    """The compound tool's name, as the caller wrote it."""
    vague: bool = False
    """Whether other arguments may mean another target."""
    plain: bool = False
    """Whether calls of it are sent as they came."""
    verdict: Ruling | None = None
    """What rules say of it; None: there are none for its caller."""
    error: RpcError | None = None
    """Why it cannot be called; None: it can."""
    searches: bool = False
    """Whether it is the tool by which others are found."""
    found_in: object = None
    """The catalog it was found in: as long as that is in force, it need not be looked up again."""

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from others."""
        return self.server, *self.names

    @property
    def definition(self) -> Mapping[str, Any]:
        """The listed definition of the tool or prompt; empty if there is none."""
        if self.route is None:
            return {}
        try:
            return self.route.described
        except ParseError:
            # Valid JSON that Python cannot hold, such as 1e999: then its name is all that is known of it.
            return {"name": self.route.public}


NOTHING: Final = Target()
"""Of a request that is about the gateway itself."""
