"""Files that only their owner may read, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def put(path: Path, content: bytes) -> None:
    """Put this in the place of a file, once its bytes are on the disk. Raises OSError; then the old one is there."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.new")
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # The first trouble is the one to tell of.
            scratch.unlink()
        raise
