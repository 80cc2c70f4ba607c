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
from pathlib import Path

import uv

ROOT = Path(__file__).parents[1]
FOLDERS = [f"tests/{name}" for name in ("wire", "catalog", "config", "exchange", "composed", "journeys")]
LOCK = ROOT / "requirements" / "dev.txt"


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
    subprocess.run([uv.find_uv_bin(), *arguments], check=True, timeout=600)


def main() -> int:
    """Run them, one interpreter after the other; the first that fails ends it."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    others = [version for version in named((ROOT / "pyproject.toml").read_text()) if version != here]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = interpreters(others, path=os.environ.get("PATH", ""), pyenv=pyenv)
    for version in others:
        if version not in found:
            print(f"Python {version}: not on this machine", flush=True)
            continue
        print(f"Python {version}: {found[version]}", flush=True)
        python = set_up(version, found[version])
        done = subprocess.run([python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *FOLDERS], cwd=ROOT)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
