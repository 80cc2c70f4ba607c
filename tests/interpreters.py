"""The other interpreters of this machine: the pure folders and the journeys pass on each that muxway is for.

`python -m tests.interpreters` looks for those that `pyproject.toml` names, beside the one that it runs on: on PATH and
among pyenv's. Each gets a venv of its own beside `.venv`, the one that `make test PYTHON=python3.13` uses as well.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.installing import InstallError, install
from tests.interop.peers import UV

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[1]
FOLDERS = [f"tests/{name}" for name in ("wire", "catalog", "config", "exchange", "composed", "journeys")]
AT_ONCE = 2
LOCK = ROOT / "requirements" / "dev.txt"
MOST_SECONDS = 2400
"""For all the folders on one of them; each test has a limit of its own, this is for what hangs beside them."""


def named(pyproject: str) -> list[str]:
    """The versions that a `pyproject.toml` says it is for."""
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', pyproject)


def interpreters(versions: list[str], *, path: str, pyenv: Path) -> dict[str, str]:
    """Version → program, for those that are there and run. A shim on PATH may stand for nothing."""
    found: dict[str, str] = {}
    for version in versions:
        kept = sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))
        for candidate in (shutil.which(f"python{version}", path=path), *map(str, kept)):
            if candidate is not None and version_of(candidate) == version:
                found[version] = candidate
                break
    return found


def version_of(program: str) -> str | None:
    """`3.12`, or None if it does not run."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([program, "-c", ask], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def set_up(version: str, program: str) -> Path:
    """A venv with everything pinned, made anew if it is another interpreter's; quick if it is there."""
    venv = ROOT / f".venv-{version}"
    python = venv / "bin" / "python"
    if not python.exists() or version_of(str(python)) != version:
        _uv("venv", "--quiet", "--clear", "--seed", "--python", program, str(venv))
    _uv("pip", "install", "--quiet", "--python", str(python), "--require-hashes", "-r", str(LOCK))
    _uv("pip", "install", "--quiet", "--python", str(python), "--no-build-isolation", "--no-deps", "-e", str(ROOT))
    return python


def _uv(*arguments: str) -> None:
    install([UV, *arguments], seconds=600)


def check(python: Path, options: Sequence[str]) -> tuple[bool, str]:
    """Run the folders on one of them. Returns whether all is well, and what was said."""
    command = [python, "-m", "pytest", "-q", *options, *FOLDERS]
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        try:
            done = subprocess.run(command, cwd=ROOT, stdout=said, stderr=said, timeout=MOST_SECONDS, check=False)
            well, end = done.returncode == 0, ""
        except subprocess.TimeoutExpired:
            well, end = False, f"not over after {MOST_SECONDS} s\n"
        said.seek(0)
        return well, said.read() + end


def main() -> int:
    """Run them side by side, and show what each said when it is over.

    A process for each is quicker than two processes for one after the other: both have the same work, so neither
    processor waits for the other's last file, and tests are collected once.
    """
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    others = [version for version in named((ROOT / "pyproject.toml").read_text()) if version != here]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = interpreters(others, path=os.environ.get("PATH", ""), pyenv=pyenv)
    for version in others:
        print(f"Python {version}: {found.get(version, 'not on this machine')}", flush=True)
    options = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"] if len(found) == 1 else []
    # One after another: an installer that fails says so at once, and they share one cache and one source folder.
    ready = {version: set_up(version, program) for version, program in found.items()}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = dict(zip(ready, pool.map(lambda one: check(one, options), ready.values()), strict=True))
    # What has failed comes last: of a long output, often the end is all that is kept.
    for version, (well, said) in sorted(outcomes.items(), key=lambda one: not one[1][0]):
        print(f"Python {version}: {said.splitlines()[-1]}" if well else f"Python {version}:\n{said}", flush=True)
    return 0 if all(well for well, _ in outcomes.values()) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InstallError as problem:
        sys.exit(str(problem))
