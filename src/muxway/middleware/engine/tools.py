"""What the definition of a called tool says, for middlewares that choose by it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.middleware.engine.base import Request


def listed_name(request: Request) -> str:
    """The name of what is asked for as it is listed, however the caller spelled it."""
    return names_of(request)[0]


def names_of(request: Request) -> Sequence[str]:
    """Every name that it goes by, the listed one first: of a subtool, that of its compound tool, too."""
    return request.target.names or (request.name,)


def is_named(request: Request, globs: Sequence[str]) -> bool:
    """Whether it is one of these."""
    return bool(globs) and any(fnmatchcase(name, glob) for name in names_of(request) for glob in globs)


def hint(request: Request, name: str) -> bool | None:
    """One of the tool's `annotations`; None if it is not said, or not as it should be."""
    hints: object = request.tool.get("annotations")
    value: object = cast("dict[str, Any]", hints).get(name) if isinstance(hints, dict) else None
    return value if isinstance(value, bool) else None
