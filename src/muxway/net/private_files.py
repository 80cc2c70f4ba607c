"""Files that only their owner may read, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def put(path: Path, content: bytes, scratch: Path | None = None, *, durable: bool = True) -> None:
    """Put this in the place of a file, once its bytes are on the disk. Raises OSError; then the old one is there.

    Until then they are in `scratch`, if that is given, for whoever comes after somebody who died meanwhile. If it need
    not be `durable`, the disk is not waited for: after a crash of the machine the file may be there without its bytes.
    """
    alone = os.O_TRUNC if scratch is not None else os.O_EXCL
    scratch = scratch or path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.new")
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | alone | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # The first trouble is the one to tell of.
            scratch.unlink()
        raise
