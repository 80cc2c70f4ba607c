"""Where users' own Python failed: the line to look at, and the traceback for the log.

Middlewares, plug-ins and chain files are somebody else's code inside our process. Their author needs their own line
first; muxway's frames around it are noise, unless the log is at `debug`.
"""

from __future__ import annotations

import site
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.log import EventLog

_OURS: Final = str(Path(__file__).parent) + "/"
_MOST_FRAMES: Final = 40
"""Frames shown of one traceback: code that calls itself has thousands."""


def is_users(file: str) -> bool:
    """Whether a source file is the user's own: neither muxway's, nor Python's, nor of an installed package."""
    return not file.startswith(("<", _OURS, *_installed()))


def _installed() -> Sequence[str]:
    paths = {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return [f"{path}/" for path in (*paths, *site.getsitepackages(), site.getusersitepackages())]


def place(error: BaseException) -> str:
    """The user's line at which it happened, as `mine.py:12`; empty if no line is known."""
    file, line = _where(error)
    return f"{Path(file).name}:{line}" if file else ""


def located(error: BaseException) -> str:
    """Type and text of an exception, and the user's line at which it happened."""
    at = place(error)
    # Text that names the line itself, as that of a SyntaxError, need not be told it twice.
    text = str(error) if not isinstance(error, SyntaxError) else error.msg
    return f"{type(error).__name__}: {text}" + (f" ({at})" if at else "")


def line_in(error: BaseException, file: Path) -> int | None:
    """The line of this file at which it happened, if it happened there."""
    name, line = _where(error)
    return line if name and Path(name).resolve() == file.resolve() else None


def _where(error: BaseException) -> tuple[str, int | None]:
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        return error.filename, error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    mine = [frame for frame in frames if is_users(frame.filename)]
    # An installed plug-in has no user's line; the last that is not ours is the nearest to it.
    last = (mine or [frame for frame in frames if not frame.filename.startswith(_OURS)])[-1:]
    return (last[0].filename, last[0].lineno) if last else ("", None)


def tell(log: EventLog, error: BaseException) -> None:
    """Log the traceback, without muxway's own frames unless everything is logged."""
    told = traceback.TracebackException.from_exception(error, limit=-_MOST_FRAMES)
    if not log.debugs:
        part: traceback.TracebackException | None = told
        while part is not None:
            mine = [frame for frame in part.stack if not frame.filename.startswith(_OURS)]
            part.stack = traceback.StackSummary.from_list(mine or part.stack)
            part = part.__cause__ or part.__context__
    log.lines("".join(told.format()).rstrip())
