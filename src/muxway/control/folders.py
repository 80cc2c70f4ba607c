"""Where the control sockets are: in a folder of the user's own, which nobody else may enter."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDING = ".sock"
_CREDENTIALS = struct.Struct("3i")
"""Linux's `struct ucred`: process, user, group."""


def folders() -> list[Path]:
    """Where a gateway of this user may have its socket, the best place first."""
    places: list[Path] = []
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        places.append(Path(runtime) / "muxway")
    # A service and the shell of the same user may not agree on the variable, so this one is always looked at too.
    places.append(Path(os.environ.get("TMPDIR") or "/tmp") / f"muxway-{os.geteuid()}")  # noqa: S108 - checked below
    return places


def check_folder(folder: Path) -> None:
    """See to it that nobody else can have put anything into a folder.

    Raises:
        OSError: it is not there, or somebody could have.
    """
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "is no folder", str(folder))
    if about.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "belongs to another user", str(folder))
    if stat.S_IMODE(about.st_mode) & 0o077:
        raise PermissionError(errno.EPERM, "is open to others: `chmod 700` it", str(folder))


def sockets(folder: Path) -> Iterator[tuple[int, Path]]:
    """The sockets in a folder, each with the process id in its name. What was left by the dead is removed."""
    for path in sorted(folder.glob(f"*{ENDING}")):
        pid = path.name.partition("-")[0]
        if not pid.isdecimal() or not path.is_socket():
            continue
        if _is_left(int(pid), path):
            path.unlink(missing_ok=True)
        else:
            yield int(pid), path


def _is_left(pid: int, path: Path) -> bool:
    """Whether nobody listens there, nor ever will."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError, OverflowError):
        # Its process is gone, or the number is somebody else's by now; or it is a number of another container.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            return probe.connect_ex(str(path)) == errno.ECONNREFUSED
    # It may be about to listen.
    return False


def whose(connection: socket.socket) -> int | None:
    """The user at the other end; None where the system does not tell. The folder keeps others out there."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(credentials)[1]
