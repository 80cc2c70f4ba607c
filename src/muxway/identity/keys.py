"""API keys, for machines that cannot log in: made by a command, shown once, kept as digests.

The file is read anew when it has changed, so that a key can be made and revoked while a gateway runs. A key has 256
random bits, so its plain digest tells nobody anything; nobody tries all of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import os
import re
import secrets
import stat
import time
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from muxway.calls.identity import Identity, principal_of
from muxway.clients.authenticator import KEY_PREFIX, Admitted, Rejected
from muxway.errors import MuxwayError, ParseError
from muxway.log import EventLog
from muxway.net import private_files
from muxway.net.sealed_files import data_folder
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from muxway.clients.authenticator import Verdict
    from muxway.config import Config

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?").fullmatch
_RANDOM_BYTES: Final = 32
_LARGEST: Final = 4 * 1024 * 1024
_NOBODY: Final = bytes(32)

log = EventLog("auth")


class KeyFileError(MuxwayError):
    """The file of keys cannot be used; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is kept of a key."""

    name: str
    digest: bytes
    created: float
    view: str | None = None
    """The only view that it opens."""
    expires: float | None = None

    @property
    def mark(self) -> str:
        """Tells it from others that had its name before."""
        return self.digest.hex()[:16]

    def told(self) -> dict[str, object]:
        """As it stands in the file; all but the digest may be shown."""
        told: dict[str, object] = {"name": self.name, "created": self.created, "sha256": self.digest.hex()}
        if self.view is not None:
            told["view"] = self.view
        if self.expires is not None:
            told["expires"] = self.expires
        return told


def key_file(config: Config) -> Path | None:
    """Where the keys of a gateway are: what the configuration says, else a file of its own for each config file."""
    if config.gateway.keys is not None:
        return Path(config.gateway.keys)
    if config.source is None:
        return None
    source = Path(config.source).resolve()
    return data_folder() / "muxway" / "keys" / f"{source.stem}-{sha256(os.fsencode(source)).hexdigest()[:12]}.json"


class KeyFile:
    """The keys of one gateway."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._keys: dict[str, ApiKey] = {}
        self._seen: tuple[int, ...] | None = None
        self._good = 0
        """How many were good when it was last asked."""

    # --- for a gateway that runs ----------------------------------------------------------------

    @property
    def keys(self) -> list[ApiKey]:
        """All that are known, expired ones too."""
        return list(self._keys.values())

    def read(self) -> None:
        """Know what is in the file. Raises KeyFileError."""
        self._seen = self._stamp()
        self._keys = {key.name: key for key in _load(self.path)}
        self._good = self._count()

    def has_changed(self) -> bool:
        """Whether a key was made, revoked or has expired since the last time; the file is then read anew."""
        if self._stamp() != self._seen:
            try:
                self.read()
            except KeyFileError as error:
                # Whoever has damaged it may have meant to revoke one.
                self._keys, self._good = {}, 0
                log.error("no API key counts", why=str(error))
            return True
        good, self._good = self._good, self._count()
        return good != self._good

    def _count(self) -> int:
        now = self._clock()
        return sum(1 for key in self._keys.values() if key.expires is None or key.expires > now)

    def _stamp(self) -> tuple[int, ...] | None:
        try:
            about = self.path.lstat()
        except OSError:
            return None
        return about.st_ino, about.st_mtime_ns, about.st_size, about.st_mode, about.st_uid

    def check(self, token: bytes) -> Verdict:
        """What a key is worth now."""
        name = token.removeprefix(KEY_PREFIX).partition(b"_")[0].decode("latin-1")
        key = self._keys.get(name)
        # Compared in any case, so that the time does not tell which names there are.
        good = hmac.compare_digest(sha256(token).digest(), _NOBODY if key is None else key.digest)
        if key is None or not good:
            return Rejected(401, "invalid_token", "this is no API key of this gateway, or not any more")
        if key.expires is not None and key.expires <= self._clock():
            return Rejected(401, "invalid_token", "the API key has expired")
        return Admitted(principal_of("key", key.name), Identity(key=key.name, subject=key.mark), key.view)

    def still_admits(self, name: str, mark: str, view: str | None) -> bool:
        """Whether what a key opened may stay open. One that was made anew has opened nothing yet."""
        key = self._keys.get(name)
        if key is None or key.mark != mark or (key.expires is not None and key.expires <= self._clock()):
            return False
        return key.view in (None, view)

    # --- for the command ------------------------------------------------------------------------

    def create(self, name: str, *, view: str | None = None, expires: float | None = None) -> str:
        """Make a key, and return it: it is nowhere else. Raises KeyFileError."""
        if _NAME(name) is None:
            raise KeyFileError("the name of a key has small letters, digits and `-`, at most 32, as `ci` or `build-1`")
        text = f"{KEY_PREFIX.decode()}{name}_{secrets.token_urlsafe(_RANDOM_BYTES)}"
        made = ApiKey(name, sha256(text.encode()).digest(), self._clock(), view, expires)
        with _locked(self.path):
            keys = _load(self.path)
            if any(key.name == name for key in keys):
                raise KeyFileError(f'there is a key "{name}" already: revoke it first, or choose another name')
            _store(self.path, [*keys, made])
        return text

    def revoke(self, name: str) -> bool:
        """Forget a key. Returns whether it was there. Raises KeyFileError."""
        with _locked(self.path):
            keys = _load(self.path)
            left = [key for key in keys if key.name != name]
            if len(left) != len(keys):
                _store(self.path, left)
            return len(left) != len(keys)


class KeyHolders:
    """Lets in those with an API key, where there is no issuer of access tokens. An `Authenticator`."""

    def __init__(self, keys: KeyFile, *, demands: bool) -> None:
        self._keys = keys
        self.demands = demands

    def judges(self, token: bytes) -> bool:
        return token.startswith(KEY_PREFIX)

    def check(self, token: bytes, path: str) -> Verdict:
        del path
        return self._keys.check(token)

    def still_admits(self, identity: Identity, view: str | None) -> bool:
        return self._keys.still_admits(identity.key, identity.subject, view)

    def challenge(self, path: str, host: str, rejected: Rejected | None) -> bytes:
        del path, host
        return b'Bearer realm="muxway"' + (b', error="invalid_token"' if rejected is not None else b"")

    def metadata(self, path: str, host: str) -> bytes | None:
        del path, host
        return None


class OwnToken:
    """A token that is made because nobody chose one, and kept: in a file that only whoever runs us can read."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self.path = data_folder(environ) / "muxway" / "token"
        self.fresh = False
        """Whether it was made just now."""
        self._text = ""

    @property
    def text(self) -> str:
        """The token; it is made if there is none. Raises KeyFileError."""
        if not self._text:
            with _locked(self.path):
                self._text = self._read() or self._make()
        return self._text

    def _read(self) -> str:
        try:
            about = self.path.lstat()
            text = self.path.read_text("ascii").strip()
        except FileNotFoundError:
            return ""
        except (OSError, ValueError):
            raise KeyFileError(f"{self.path} cannot be read: remove it") from None
        if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
            raise KeyFileError(f"{self.path} may be known to others: remove it")
        return text

    def _make(self) -> str:
        self.fresh = True
        text = secrets.token_urlsafe(_RANDOM_BYTES)
        _write(self.path, text.encode())
        return text


def _load(path: Path) -> list[ApiKey]:
    """The keys in a file; none if there is no file. Raises KeyFileError."""
    try:
        with open(path, "rb", opener=_opened) as file:
            about = os.fstat(file.fileno())
            if about.st_uid not in (os.geteuid(), 0) or stat.S_IMODE(about.st_mode) & 0o022:
                raise KeyFileError(f"{path} could have been written by others: it must be yours, and `chmod 600`")
            content = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None
    try:
        listed = envelopes.value(content)["keys"]
        return [_read_key(entry) for entry in listed]
    except (ParseError, LookupError, TypeError, ValueError, AttributeError, OverflowError):
        raise KeyFileError(f"{path} is damaged: remove it, and make the keys anew") from None


def _opened(path: str, flags: int) -> int:
    """No link; nor is anything waited for, whatever it is that has this name."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _read_key(entry: dict[str, Any]) -> ApiKey:
    view, expires = entry.get("view"), entry.get("expires")
    digest = bytes.fromhex(entry["sha256"])
    if len(digest) != len(_NOBODY) or not (view is None or isinstance(view, str)):
        raise ValueError
    made = ApiKey(str(entry["name"]), digest, float(entry["created"]), view)
    return made if expires is None else replace(made, expires=float(expires))


def _store(path: Path, keys: list[ApiKey]) -> None:
    """Put these into the file. Raises KeyFileError."""
    _write(path, envelopes.encode({"keys": [key.told() for key in keys]}))


def _write(path: Path, content: bytes) -> None:
    """Put this into a file, whole or not at all. Raises KeyFileError."""
    try:
        private_files.put(path, content)
    except OSError as error:
        raise KeyFileError(f"{path} cannot be written: {error.strerror}; nothing was changed") from None


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    """Keep other commands from changing the file meanwhile. Raises KeyFileError."""
    try:
        for folder in reversed([one for one in (path.parent, *path.parent.parents) if not one.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
