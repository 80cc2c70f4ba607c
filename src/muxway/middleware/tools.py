"""What the definition of a called tool says, for middlewares that choose by it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.middleware.base import Request


def listed_name(request: Request) -> str:
    """The tool's name as it is listed, however the caller spelled it."""
    name: object = request.tool.get("name")
    return name if isinstance(name, str) else request.name


def is_named(request: Request, globs: Sequence[str]) -> bool:
    """Whether the tool is one of these."""
    if not globs:
        return False
    name = listed_name(request)
    return any(fnmatchcase(name, glob) for glob in globs)


def hint(request: Request, name: str) -> bool | None:
    """One of the tool's `annotations`; None if it is not said, or not as it should be."""
    hints: object = request.tool.get("annotations")
    value: object = cast("dict[str, Any]", hints).get(name) if isinstance(hints, dict) else None
    return value if isinstance(value, bool) else None
