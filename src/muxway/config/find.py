"""Which file to read when the user did not say, and saying where we looked when there is none."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from muxway.config.documents import MINIMAL
from muxway.config.expand import expand_tilde, home_of, working_folder
from muxway.errors import ConfigError, Problem
from muxway.log import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLES = ("MUXWAY_CONFIG", "MCP_PROXY_CONFIG_PATH")
"""Variables that may name the file, the first that is set winning."""
_EXTENSIONS = ("json", "jsonc", "toml", "yaml", "yml")
NAMES = tuple(f"muxway.{extension}" for extension in _EXTENSIONS)


def find_config(explicit: str | None = None, environ: Mapping[str, str] | None = None) -> Path:
    """The file to use: the given one, else that of a variable, else the first found here or in the user's folder.

    Raises:
        ConfigError: `file_not_found`, telling where it looked and what to do.
    """
    environ = os.environ if environ is None else environ
    named = [(explicit, "")] + [(environ.get(name), f" (from ${name})") for name in VARIABLES]
    for path, origin in named:
        if path == "-":
            return Path("/dev/stdin")
        if path:
            file = Path(expand_tilde(path, home_of(environ)))
            if not _exists(file):
                raise _not_found(f"Config file not found: {path}{origin}. Check the path.")
            return file
    user = user_config_folder(environ)
    for file in (*map(Path, (*NAMES, ".mcp.json")), *(user / name for name in NAMES)):
        if file.is_file():
            return file
    here, any_of_ours = working_folder(), f"muxway.{{{','.join(_EXTENSIONS)}}}"
    looked = "\n".join(f"  {file}" for file in (here / any_of_ours, here / ".mcp.json", user / any_of_ours))
    raise _not_found(
        f"No config file found. Looked for:\n{looked}\n"
        "Name one with --config FILE or $MUXWAY_CONFIG, have `muxway setup` make one of the servers in your clients, "
        f"or create muxway.json with: {MINIMAL}"
    )


def user_config_folder(environ: Mapping[str, str]) -> Path:
    """Where this user's muxway files live."""
    home = Path(home_of(environ))
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "muxway"
    # XDG: a relative path is invalid and to be ignored.
    base = environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if Path(base).is_absolute() else home / ".config") / "muxway"


def _exists(file: Path) -> bool:
    """Whether there is something of that name; what it is, the reading will tell."""
    try:
        return file.exists()
    except (OSError, ValueError):
        return False


def _not_found(message: str) -> ConfigError:
    lines = "\n".join(map(printable, message.splitlines()))
    return ConfigError("file_not_found", lines, (Problem(path="$", message=lines, code="file_not_found"),))
