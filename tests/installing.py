"""Programs that fetch something from the network: a hiccup of a registry is no failure of what is tested.

`python -m tests.installing COMMAND ...` runs one, for the Makefile. Standard library only: it installs all the rest.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PAUSES = (5.0, 20.0)
"""Seconds before the second and the third try."""


class InstallError(RuntimeError):
    """It failed each time; says which command, and how it ended the last time."""


def install(
    command: Sequence[str], *, seconds: float, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> None:
    """Run an installer, up to three times. What it printed is shown when it fails.

    Raises:
        InstallError: it failed each time.
    """
    for pause in (*PAUSES, None):
        failed = _failed(command, seconds, cwd, env)
        if failed is None:
            return
        if pause is None:
            raise InstallError(f"{failed}\nThat was the last of {len(PAUSES) + 1} tries.")
        print(f"{failed}\nIt is tried again in {pause:g} s.", file=sys.stderr, flush=True)
        time.sleep(pause)


def _failed(command: Sequence[str], seconds: float, cwd: Path | None, env: Mapping[str, str] | None) -> str | None:
    """Run it once; returns how it failed, if it did."""
    try:
        subprocess.run(
            command,
            cwd=cwd,
            env=env,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except subprocess.CalledProcessError as error:
        return f"{shlex.join(command)}\nended with {error.returncode}:\n{error.stdout}"
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout
        return f"{shlex.join(command)}\ndid not end within {seconds:g} s:\n{said or ''}"
    return None


if __name__ == "__main__":
    try:
        install(sys.argv[1:], seconds=600)
    except InstallError as problem:
        sys.exit(str(problem))
