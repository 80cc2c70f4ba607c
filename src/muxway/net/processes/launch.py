"""Starting the reaper process, with few imports: `muxway stdio` does this first and loads the rest meanwhile."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from muxway.errors import SpawnError
from muxway.net.processes import reaper as reaper_program
from muxway.net.processes.reaper import MARKER

if TYPE_CHECKING:
    from collections.abc import Mapping

# As a module rather than a script: so Python takes the compiled file, which saves 5 ms and a megabyte. Its folder goes
# last on the path, behind the standard library: it has neighbours with names like `http`.
_BOOT = "import sys; sys.path.append(sys.argv[1]); __import__(sys.argv[2]).main(*sys.argv[3:])"


_NEEDED = frozenset(("PATH", "HOME", "LANG", "TMPDIR", "SYSTEMROOT"))


class ReaperProcess:
    """A reaper that has been started, and our end of the socket to it. It ends when that is closed.

    Raises:
        SpawnError: it cannot be started.
    """

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        try:
            self.socket, theirs = socket.socketpair()
        except OSError as error:
            raise SpawnError(f"cannot start the reaper of child processes: {error.strerror}") from error
        program = Path(reaper_program.__file__)
        with theirs:
            try:
                self.process = subprocess.Popen(  # noqa: S603  our own file
                    [
                        sys.executable,
                        "-I",
                        "-S",
                        "-c",
                        _BOOT,
                        program.parent,
                        program.stem,
                        self.token,
                        str(os.getpid()),
                    ],
                    # The socket is its standard input: so it inherits nothing but 0-2.
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    # The mark is for a child on its way from fork to exec.
                    env={**_needed(os.environ), MARKER: self.mark(0)},
                    start_new_session=True,
                )
            except OSError as error:
                self.socket.close()
                raise SpawnError(
                    f"cannot start the reaper of child processes with {sys.executable}: {error.strerror}"
                ) from error
        self.socket.setblocking(False)

    def close(self) -> None:
        """End it, for whoever started it in vain."""
        self.socket.close()
        self.process.wait()

    def mark(self, child_id: int) -> str:
        """What tells the descendants of a child from all other processes."""
        # When we are somebody's child ourselves, his mark stays in front: our children are his descendants too.
        outer = os.environ.get(MARKER)
        return "/".join(filter(None, (outer, f"{self.token}:{child_id}")))


def _needed(environ: Mapping[str, str]) -> dict[str, str]:
    """What Python needs to start. Children get their own variables with each order; ours need not be there to read."""
    kept = ("LD_", "DYLD_", "LC_")
    return {name: value for name, value in environ.items() if name in _NEEDED or name.startswith(kept)}
