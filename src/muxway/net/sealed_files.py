"""Small secrets in a folder that many processes share: sealed, never torn, changed by one process at a time.

Each file is sealed with AES-256-GCM under a key of the folder, bound to its own name, so that one cannot be put in the
place of another. It is replaced by a rename after its bytes are on the disk: whoever dies meanwhile leaves the old or
the new one. Nobody but its owner may enter the folder; one that others could have written to is refused, not mended.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import importlib
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from muxway.errors import MuxwayError
from muxway.net import private_files

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

_MAGIC: Final = b"MXW1"
_NONCE: Final = 12
_KEY_SIZE: Final = 32
_IN_KEYRING: Final = b"keyring\n"
"""What the key file holds when the key itself is in the system's keyring."""
_SERVICE: Final = "muxway"
_LARGEST: Final = 1 << 20
_ENDING: Final = ".sealed"
_LOOK: Final = 0.02
"""Seconds between two looks whether another process is done."""
LOCK_WAIT: Final = 45.0
"""Seconds to wait for another process: longer than it may wait for an answer."""


class StoreError(MuxwayError):
    """The folder, its key or a file in it cannot be used; the message says which, and what to do."""


class LostError(StoreError):
    """What is in a file cannot be opened any more: it is damaged, or the key it was sealed with is gone."""


class SealedFolder:
    """One folder, made at the first write."""

    def __init__(self, folder: Path, remedy: str = "log in again") -> None:
        self.folder = folder
        self._remedy = remedy
        """What its user does to have in it again what cannot be opened any more."""
        self._key: bytes | None = None

    # --- reading ------------------------------------------------------------------------------

    @property
    def stamp(self) -> int:
        """Changes whenever a file is written or removed, by whichever process; 0 while there is no folder."""
        try:
            return self.folder.stat().st_mtime_ns
        except OSError:
            return 0

    def names(self) -> list[str]:
        """The files there are. Raises StoreError."""
        if not self._is_there():
            return []
        return sorted(path.name.removesuffix(_ENDING) for path in self.folder.glob(f"*{_ENDING}"))

    def read(self, name: str) -> bytes | None:
        """What is in a file; None if there is none.

        Raises:
            LostError: it is torn, or sealed with another key. It may be written anew.
            StoreError: it is open to others, or cannot be read.
        """
        if not self._is_there():
            return None
        return self._open(name, self._path(name))

    def _open(self, name: str, path: Path) -> bytes | None:
        sealed = _read(path)
        if sealed is None:
            return None
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        magic, nonce, text = sealed[:4], sealed[4 : 4 + _NONCE], sealed[4 + _NONCE :]
        try:
            if magic != _MAGIC:
                raise InvalidTag
            return AESGCM(self._have_key()).decrypt(nonce, text, _MAGIC + name.encode())
        except (InvalidTag, ValueError):
            raise LostError(
                f"{path} cannot be opened: it is damaged, or was sealed with another key; {self._remedy}"
            ) from None

    # --- writing ------------------------------------------------------------------------------

    def write(self, name: str, content: bytes, *, locked: bool = False) -> None:
        """Put this into a file, whole; it is on the disk when this returns. Raises StoreError.

        For whoever has `locked` it: what a kill leaves of this, `finish` puts in place.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._make()
        nonce = secrets.token_bytes(_NONCE)
        sealed = _MAGIC + nonce + AESGCM(self._have_key(make=True)).encrypt(nonce, content, _MAGIC + name.encode())
        self._put(self._path(name), sealed, self._next(name) if locked else None)

    def finish(self, name: str) -> None:
        """Put in place what somebody had written who died before it was on the disk. For whoever has locked it."""
        path = self._next(name)
        try:
            written = self._open(name, path) if self._is_there() else None
        except StoreError:
            # Not even all of it was written.
            written = None
        if written is not None:
            self.write(name, written)
        path.unlink(missing_ok=True)

    def remove(self, name: str) -> bool:
        """Remove a file. Returns whether it was there."""
        self._next(name).unlink(missing_ok=True)
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreError(f"{self._path(name)} cannot be removed: {error.strerror}") from None
        return True

    @contextlib.asynccontextmanager
    async def locked(self, name: str) -> AsyncGenerator[None]:
        """Keep every other process from changing this file meanwhile. The lock of one that dies is gone with it.

        Raises:
            StoreError: another process has held it for too long.
        """
        self._make()
        path = self.folder / f"{name}.lock"
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error.strerror}") from None
        try:
            until = asyncio.get_running_loop().time() + LOCK_WAIT
            while not _take(lock):
                if asyncio.get_running_loop().time() > until:
                    raise StoreError(f"another process has held {path} for {LOCK_WAIT:g} s")
                await asyncio.sleep(_LOOK)
            yield
        finally:
            os.close(lock)

    def _put(self, path: Path, content: bytes, scratch: Path | None = None) -> None:
        try:
            private_files.put(path, content, scratch)
            _sync(self.folder)
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror}; nothing was changed") from None

    # --- the folder and its key ---------------------------------------------------------------

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{_ENDING}"

    def _next(self, name: str) -> Path:
        return self.folder / f"{name}.next"

    def _is_there(self) -> bool:
        try:
            about = self.folder.lstat()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreError(f"{self.folder} cannot be read: {error.strerror}") from None
        _check(self.folder, about, stat.S_ISDIR(about.st_mode), "700")
        return True

    def _make(self) -> None:
        if self._is_there():
            return
        try:
            missing = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
            for path in reversed(missing):
                # Whatever the umask is: who may write to a parent may put another folder in the place of this one.
                path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.folder} cannot be made: {error.strerror}") from None
        self._is_there()

    def _have_key(self, *, make: bool = False) -> bytes:
        if self._key is None:
            path = self.folder / "key"
            written = _read(path)
            if written is None and make:
                self._make_key(path)
                written = _read(path)
            if written is None:
                raise LostError(f"{path} is missing: what is sealed beside it cannot be opened; {self._remedy}")
            try:
                key = _from_keyring(self.folder, self._remedy) if written == _IN_KEYRING else written
            except LostError:
                if not make:
                    raise
                path.unlink(missing_ok=True)
                return self._have_key(make=True)
            if len(key) != _KEY_SIZE:
                raise StoreError(f"{path} is damaged: it must hold {_KEY_SIZE} bytes; remove it and {self._remedy}")
            self._key = key
        return self._key

    def _make_key(self, path: Path) -> None:
        key = secrets.token_bytes(_KEY_SIZE)
        content = _IN_KEYRING if _to_keyring(self.folder, key) else key
        scratch = path.with_name(f"key.{os.getpid()}-{secrets.token_hex(4)}.new")
        self._put(scratch, content)
        try:
            # Unlike a rename, this never replaces: whoever was quicker has made the key.
            with contextlib.suppress(FileExistsError):
                os.link(scratch, path)
            _sync(self.folder)
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror}") from None
        finally:
            scratch.unlink(missing_ok=True)


def data_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the user's own data of programs is (XDG base directories: a relative path is to be ignored)."""
    base = environ.get("XDG_DATA_HOME", "")
    return Path(base) if base.startswith("/") else Path(environ.get("HOME") or "/") / ".local" / "share"


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(path: Path) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise StoreError(f"{path} cannot be read: {why}") from None
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(handle)
        _check(path, about, stat.S_ISREG(about.st_mode), "600")
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise StoreError(f"{path} is damaged: it is larger than anything muxway writes")
    return content


def _check(path: Path, about: os.stat_result, right_kind: bool, mode: str) -> None:
    if not right_kind:
        raise StoreError(f"{path} is not what it should be, but a file of another kind; remove it")
    if about.st_uid != os.geteuid():
        raise StoreError(f"{path} belongs to another user; secrets are only kept where nobody else can read them")
    if stat.S_IMODE(about.st_mode) & 0o077:
        raise StoreError(f"{path} is open to other users, so it may be known to them: `chmod {mode}` it")


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _keyring() -> tuple[Any, type[Exception]] | None:
    """The system's keyring and its errors, where the extra is installed."""
    try:
        return importlib.import_module("keyring"), importlib.import_module("keyring.errors").KeyringError
    except ImportError:
        return None


def _to_keyring(folder: Path, key: bytes) -> bool:
    """Put a key into the system's keyring. Returns whether there is one that keeps it."""
    if (found := _keyring()) is None:
        return False
    keyring, trouble = found
    try:
        keyring.set_password(_SERVICE, str(folder), key.hex())
        return keyring.get_password(_SERVICE, str(folder)) == key.hex()
    except trouble:
        return False


def _from_keyring(folder: Path, remedy: str) -> bytes:
    if (found := _keyring()) is None:
        raise StoreError(
            f"the key of {folder} is in the system's keyring: install muxway with the extra, `muxway[keyring]`"
        )
    keyring, trouble = found
    try:
        key = keyring.get_password(_SERVICE, str(folder))
    except trouble as error:
        raise StoreError(f"the key of {folder} is in the system's keyring, which cannot be read: {error}") from None
    if key is None:
        raise LostError(f"the key of {folder} is not in the system's keyring any more; {remedy}")
    return bytes.fromhex(key)
