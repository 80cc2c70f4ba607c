"""Whether a server of a config is muxway with that same config: it would start itself, which starts itself, and so on.

That happens to whoever points muxway at a client's file that has muxway in it. Told by the words of the entry alone,
so that it is known before anything runs. muxway with another config is fine.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from muxway.config.find import VARIABLES, find_config
from muxway.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muxway.config.expand import Scope
    from muxway.config.model import ServerConfig

_NAMES = frozenset({"muxway", "muxway.exe"})
_SERVING = frozenset({"stdio", "serve"})


def runs_muxway_with(server: ServerConfig, file: Path, scope: Scope) -> bool:
    """Whether the server is a muxway that serves this file."""
    words = _after_muxway([server.command or "", *server.args])
    if words is None or (words and not words[0].startswith("-") and words[0] not in _SERVING):
        return False
    folder = Path(server.cwd) if server.cwd else Path()
    named = [
        word.removeprefix("--config=") if word.startswith("--config=") else word.removeprefix("-c")
        for word in words
        if word not in _SERVING and (word.startswith(("--config=", "-c")) or not word.startswith("-"))
    ]
    if any(_same(folder / word, file) for word in named if word):
        return True
    if any(word in ("-c", "--config") or word.startswith(("-c", "--config=")) for word in words):
        return False
    # Nothing is named, so it is what it finds; other words may be values of options.
    environ = {**scope.environ, **{name: server.env.get(name, "") for name in VARIABLES}}
    try:
        return _same(folder / find_config(None, environ), file)
    except ConfigError:
        return False


def runs_muxway(server: ServerConfig) -> bool:
    """Whether the server is a muxway, with whatever config."""
    words = _after_muxway([server.command or "", *server.args])
    return words is not None and (not words or words[0].startswith("-") or words[0] in _SERVING)


def _after_muxway(words: Sequence[str]) -> Sequence[str] | None:
    """What follows `muxway`, however that is started: by itself, as a module, by uvx; None if it is not there."""
    for index, word in enumerate(words):
        if PurePath(word).name in _NAMES and "=" not in word:
            # `uvx --from muxway muxway`: the last of them is the program.
            rest = words[index + 1 :]
            return _after_muxway(rest) if any(PurePath(one).name in _NAMES for one in rest[:1]) else rest
    return None


def _same(one: Path, other: Path) -> bool:
    try:
        return one.exists() and one.samefile(other)
    except (OSError, ValueError):
        return False
