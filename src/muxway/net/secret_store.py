"""The secrets that this user has given muxway: what `${secret:NAME}` and `${input:NAME}` in a config stand for.

One sealed file for each. With the extra `muxway[keyring]`, the key that opens them is in the system's keyring.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from muxway.net.sealed_files import SealedFolder, StoreError, data_folder

if TYPE_CHECKING:
    from pathlib import Path

LARGEST_SECRET: Final = 64 * 1024
"""Characters. A private key has some 3,000."""
_LONGEST_NAME: Final = 200


class _Record(msgspec.Struct, frozen=True):
    name: str
    value: str
    at: float


class StoredSecret(NamedTuple):
    """What may be told of a secret."""

    name: str
    at: float
    """When it was set, in seconds since 1970."""


def is_name(text: str) -> bool:
    """Whether a secret may have this name: one that a reference can spell, and a terminal can show."""
    return 0 < len(text) <= _LONGEST_NAME and text.isprintable() and text.strip() == text and "}" not in text


class SecretStore:
    """Where the secrets are."""

    def __init__(self, folder: Path | None = None) -> None:
        self._files = SealedFolder(folder or secret_folder(), "set it again")

    def read(self, name: str) -> str | None:
        """A secret; None if it is not set. Raises StoreError."""
        record = self._read(_digest(name))
        return None if record is None else record.value

    def has(self, name: str) -> bool:
        """Whether a secret is set, also one that cannot be opened any more. Raises StoreError."""
        return _digest(name) in self._files.names()

    def all(self, problems: dict[str, None] | None = None) -> list[StoredSecret]:
        """Those that are set, without their values. Why others cannot be told of is put into `problems`, if given.

        Raises:
            StoreError: the folder cannot be used, or one of them, and there is nowhere to tell of it.
        """
        found: list[StoredSecret] = []
        for digest in self._files.names():
            try:
                record = self._read(digest)
            except StoreError as error:
                if problems is None:
                    raise
                problems[str(error)] = None
                continue
            if record is not None:
                found.append(StoredSecret(record.name, record.at))
        return sorted(found)

    def write(self, name: str, value: str) -> None:
        """Set a secret; it is on the disk when this returns. Raises StoreError."""
        if not is_name(name):
            raise StoreError("the name of a secret is printable, has no } and at most 200 characters")
        if not 0 < len(value) <= LARGEST_SECRET:
            raise StoreError(f"a secret has between 1 and {LARGEST_SECRET:,} characters")
        self._files.write(_digest(name), msgspec.json.encode(_Record(name, value, time.time())))

    def remove(self, name: str) -> bool:
        """Forget a secret. Returns whether it was set. Raises StoreError."""
        return self._files.remove(_digest(name))

    def _read(self, digest: str) -> _Record | None:
        content = self._files.read(digest)
        try:
            return None if content is None else msgspec.json.decode(content, type=_Record)
        except msgspec.MsgspecError:
            path = self._files.folder / digest
            raise StoreError(f"{path}.sealed was written by another version of muxway; set it again") from None


def secret_folder() -> Path:
    """Where they are kept. Its time of change tells whether one was set or removed."""
    return data_folder() / "muxway" / "secrets"


def _digest(name: str) -> str:
    # A name from the command line may be no text at all; then there is no secret of that name.
    return hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=16).hexdigest()
