"""`muxway.lock` on disk, and what it says of where a server comes from.

Hashes of packages are asked of `npm` and `pip`, which know the user's registries. What they do not say is left out:
without a registry at hand a lock is still a lock of what the server said.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from muxway.catalog import lock_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muxway.catalog.locking import LockedServer
    from muxway.config.model import ServerConfig

_PATIENCE: Final = 60
"""Seconds for an answer of a registry."""
_NPM: Final = frozenset(("npx", "bunx", "pnpx"))
_PYPI: Final = frozenset(("uvx", "pipx"))
_PACKAGE: Final = re.compile(r"((?:@[\w.-]+/)?[\w.-]+)(?:@|==)(\d[\w.+!-]*)", re.ASCII).fullmatch
_SEMVER: Final = re.compile(r"\d+\.\d+\.\d+(?:[-+]|$)", re.ASCII).match


class Package(NamedTuple):
    """A package at its exact version."""

    registry: str
    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.registry}:{self.name}@{self.version}"


def read(path: Path) -> dict[str, LockedServer] | None:
    """What is locked; None if there is no such file.

    Raises:
        BadLock: it cannot be used.
    """
    try:
        return lock_text.read(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise lock_text.BadLock(f"{path} cannot be read: {error}") from None


def write(path: Path, servers: Mapping[str, LockedServer]) -> bool:
    """Write the file, whole or not at all. False: it says just that already. Raises OSError."""
    data = lock_text.written(servers).encode("utf-8", "surrogatepass")
    # Like any file of the project: others review it.
    mode = 0o644
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == data:
            return False
        mode = stat.S_IMODE(path.stat().st_mode)
    # A link stays a link: what it leads to is the file.
    path = path.resolve()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    return True


def package_of(server: ServerConfig) -> Package | None:
    """The package that a server is started from, if its version is exact."""
    program = PurePath(server.command or "").name
    registry = "npm" if program in _NPM else "pypi" if program in _PYPI else None
    if registry is None:
        return None
    match = next((match for word in server.args if (match := _PACKAGE(word))), None)
    # To npm `1.2` is whatever is newest among 1.2.x.
    is_range = match is not None and registry == "npm" and not _SEMVER(match[2])
    return None if match is None or is_range else Package(registry, match[1], match[2])


def integrity(package: Package, environ: Mapping[str, str] = os.environ) -> str | None:
    """The hash that the registry gives for a package; None if it gives none."""
    if package.registry == "npm":
        said = _said(["npm", "view", f"{package.name}@{package.version}", "dist.integrity", "--json"], environ)
        return said if isinstance(said, str) else None
    wanted = f"{package.name}=={package.version}"
    words = ["pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--report", "-", wanted]
    said = _said(words, environ)
    try:
        hashes = cast("dict[str, Any]", said)["install"][0]["download_info"]["archive_info"]["hashes"]
        return f"sha256-{hashes['sha256']}"
    except (TypeError, KeyError, IndexError):
        return None


def _said(words: list[str], environ: Mapping[str, str]) -> object:
    """What a package manager answers in JSON; None if it has no answer."""
    found = shutil.which(words[0], path=environ.get("PATH"))
    if found is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - without a shell, and the name was checked
            [found, *words[1:]], capture_output=True, text=True, timeout=_PATIENCE, check=False, env={**environ},
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return json.loads(done.stdout) if not done.returncode else None
    except (subprocess.TimeoutExpired, OSError, ValueError):
        return None
