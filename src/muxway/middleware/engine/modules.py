"""Users' own Python modules, so that a reload can take up what was edited: Python itself imports a module only once.

All that were imported for middlewares, or by a chain file, are known here with how their files looked then. When one
was edited all of them are imported anew, because nobody knows which of them use it. A module that fails leaves every
one as it was.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from muxway.tracebacks import is_users

if TYPE_CHECKING:
    from collections.abc import Generator

Look = tuple[int, int, int]

_known: Final[dict[str, tuple[str, Look]]] = {}
"""Module → its file, and how that looked when it was imported. As `sys.modules`, one for the process."""
_installed: Final[dict[str, tuple[str, Look]]] = {}
"""The same for modules of installed packages, which are left alone: others of their package may be in use anywhere."""


@contextlib.contextmanager
def noted() -> Generator[None]:
    """Know what is imported in here."""
    before = dict(sys.modules)
    try:
        yield
    finally:
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if before.get(name) is module or not isinstance(file, str):
                continue
            look = _look(file)
            if look is not None and is_users(file):
                _known[name] = (file, look)


def note_installed(name: str) -> None:
    """Know this module if it belongs to an installed package."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if isinstance(file, str) and name not in _known and (look := _look(file)) is not None:
        _installed.setdefault(name, (file, look))


def edited() -> tuple[str, ...]:
    """The modules whose files are not as they were when they were imported."""
    return tuple(name for name, (file, look) in _known.items() if _look(file) != look)


def outdated() -> tuple[str, ...]:
    """The same of installed packages. Only a restart takes those up."""
    return tuple(name for name, (file, look) in _installed.items() if _look(file) != look)


@contextlib.contextmanager
def renewed() -> Generator[None]:
    """What is imported in here is read from its file again, if any of the modules was edited.

    If this is left by an exception, all modules are as before.
    """
    if not edited():
        yield
        return
    known = dict(_known)
    modules = {name: sys.modules.pop(name) for name in known if name in sys.modules}
    for file, _ in known.values():
        # What Python keeps compiled is compared by the second; an edit may have been quicker.
        with contextlib.suppress(OSError, NotImplementedError):
            Path(importlib.util.cache_from_source(file)).unlink()
    importlib.invalidate_caches()
    _known.clear()
    try:
        yield
    except BaseException:
        for name in _known:
            sys.modules.pop(name, None)
        sys.modules.update(modules)
        _known.clear()
        _known.update(known)
        raise


def _look(file: str) -> Look | None:
    try:
        about = Path(file).stat()
    except (OSError, ValueError):
        return None
    return about.st_ino, about.st_size, about.st_mtime_ns
