"""Files that belong to other programs: read whole, backed up, replaced at once or not at all.

A file is replaced only if it still has the bytes that were read. Refused are files of other users, those behind a link
of another user, those that may not be written, that somebody holds a lock on, and whatever is no plain file.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from muxway.config.documents import MAX_FILE_BYTES
from muxway.config.expand import home_of
from muxway.errors import MuxwayError
from muxway.log import printable

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

KEPT_BACKUPS = 10
"""Backups kept of one file; the oldest go."""


class FileRefused(MuxwayError):
    """A file cannot or must not be touched; says why."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(printable(f"{path} {why}"))


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file as it was read."""

    path: Path
    """Where it was asked for."""
    real: Path
    """Where it is, behind links."""
    data: bytes | None
    """None if there is none."""
    mode: int = 0o600

    @property
    def text(self) -> str:
        """Its text, empty if there is no file.

        Raises:
            FileRefused: it is not UTF-8.
        """
        try:
            return (self.data or b"").decode("utf-8")
        except UnicodeDecodeError:
            raise FileRefused(self.path, "is not UTF-8") from None


def read(path: Path) -> ReadFile:
    """The file as it is now.

    Raises:
        FileRefused: it must not be touched, or cannot be read.
    """
    try:
        real = _real(path)
        with _opened(real) as stream:
            about = os.fstat(stream.fileno())
            _judge(path, about)
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        if path.is_symlink():
            raise FileRefused(path, "is a link that leads nowhere") from None
        return ReadFile(path, path, None)
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise FileRefused(path, f"cannot be read: {reason}") from None
    if len(data) > MAX_FILE_BYTES:
        raise FileRefused(path, f"is larger than {MAX_FILE_BYTES >> 20} MiB")
    return ReadFile(path, real, data, stat.S_IMODE(about.st_mode))


def is_there(path: Path) -> bool:
    """Whether there is something, as far as this user may look: a folder that is closed to them hides what is in it."""
    try:
        return path.exists()
    except OSError:
        return False


def _opened(path: Path) -> BinaryIO:
    # Without waiting: a pipe that nobody writes to would hold us up for good, before it can be told from a file.
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY))


def _real(path: Path) -> Path:
    """Where the path leads, if all links on its last part are ours."""
    for _ in range(40):
        if not path.is_symlink():
            return path
        if path.lstat().st_uid != os.geteuid():
            raise FileRefused(path, "is a link of another user")
        path = path.parent / path.readlink()
    raise FileRefused(path, "is a link to itself")


def _judge(path: Path, about: os.stat_result) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise FileRefused(path, "is no plain file")
    if about.st_uid != os.geteuid():
        raise FileRefused(path, "belongs to another user")
    if about.st_nlink > 1:
        raise FileRefused(path, "has other names (hard links), which would keep the old content")


def replace(snapshot: ReadFile, data: bytes | None) -> ReadFile:
    """Put these bytes in its place, or remove it; a file that is new can be read by its owner alone.

    Whoever reads it, or ends us in the middle, meets the old file or the new one.

    Raises:
        FileRefused: it is not as it was read any more, or cannot be written.
    """
    path, real = snapshot.path, snapshot.real
    if snapshot.data is not None and not snapshot.mode & stat.S_IWUSR:
        raise FileRefused(path, "is read-only")
    try:
        real.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = None if data is None else _written(real, data, snapshot.mode)
        try:
            with _held(snapshot):
                now = read(path)
                if (now.real, now.data) != (real, snapshot.data):
                    raise FileRefused(path, "was changed meanwhile; nothing was written. Try again")
                if temporary is None:
                    real.unlink()
                else:
                    temporary.replace(real)
        finally:
            if temporary is not None:
                temporary.unlink(missing_ok=True)
        _sync(real.parent)
    except OSError as error:
        raise FileRefused(path, f"cannot be written: {error.strerror}") from None
    return ReadFile(path, real, data, snapshot.mode)


def _written(real: Path, data: bytes, mode: int) -> Path:
    """A file beside it with the new content, on the disk."""
    descriptor, name = tempfile.mkstemp(prefix=f".{real.name}.", dir=real.parent)
    with os.fdopen(descriptor, "wb") as stream:
        try:
            os.fchown(descriptor, -1, real.stat().st_gid)
        except FileNotFoundError:
            pass  # It is new.
        except OSError:
            # It would be open to another group than its owner meant.
            mode &= ~stat.S_IRWXG
        os.fchmod(descriptor, mode)
        stream.write(data)
        stream.flush()
        os.fsync(descriptor)
    return Path(name)


@contextlib.contextmanager
def _held(snapshot: ReadFile) -> Generator[None]:
    """Hold the lock that careful programs take; refuse if another has it."""
    if snapshot.data is None:
        yield
        return
    with _opened(snapshot.real) as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileRefused(snapshot.path, "is locked by another program") from None
        yield


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def state_folder(environ: Mapping[str, str]) -> Path:
    """Where muxway keeps what must not be lost and is no configuration."""
    base = environ.get("XDG_STATE_HOME", "")
    # XDG: a relative path is invalid and to be ignored.
    return (Path(base) if base.startswith("/") else Path(home_of(environ)) / ".local" / "state") / "muxway"


def label_of(path: Path) -> str:
    """What tells what is kept of this file from what is kept of others of its name."""
    return hashlib.blake2b(os.fsencode(path), digest_size=4).hexdigest()


def back_up(snapshot: ReadFile, folder: Path) -> Path | None:
    """Keep the bytes of a file in that folder; None if there is no file."""
    if snapshot.data is None:
        return None
    name = f"{label_of(snapshot.path)}-{snapshot.path.name}"
    is_older = re.compile(rf"\d{{20}}-{re.escape(name)}").fullmatch
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        kept = sorted(file for file in folder.iterdir() if is_older(file.name))
        for old in kept[: max(0, len(kept) - KEPT_BACKUPS + 1)]:
            old.unlink()
        target = folder / f"{time.time_ns():020d}-{name}"
        temporary = _written(target, snapshot.data, 0o600)
        temporary.replace(target)
        _sync(folder)
    except OSError as error:
        raise FileRefused(folder, f"cannot take a backup: {error.strerror}") from None
    return target
