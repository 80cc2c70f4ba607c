"""`audit`: who did what, one JSON object a line, in a file that is only ever appended to.

Lines are made where the request ends and written by one thread, so that a slow or full disk never holds up a call. What
cannot be written is kept, up to a bound; what is over the bound is counted, and the count is written as soon as writing
works.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections import deque
from hashlib import sha256
from pathlib import Path
from time import gmtime, strftime, time
from typing import TYPE_CHECKING, Any, Final

from muxway.errors import ParseError
from muxway.likeness import short
from muxway.log import EventLog
from muxway.middleware.engine.base import ConfigPath, Middleware
from muxway.middleware.engine.facts import client_of, size_in
from muxway.wire import envelopes

if TYPE_CHECKING:
    from msgspec import Raw

    from muxway.calls.identity import Decision, Denial, Identity
    from muxway.middleware.engine.base import Outcome, Request

_GATHER: Final = 0.05
"""Seconds in which lines are gathered before they are written together: to wake a thread costs more than a line."""
_AGAIN: Final = 1.0
"""Seconds between attempts to write after one has failed."""
_PATIENCE: Final = 5.0
"""Seconds that the end of the gateway waits for the last lines."""
_MOST_WAITING: Final = 16 * 1024 * 1024
"""Bytes that may wait to be written."""
_BATCH: Final = 1000
_LARGE: Final = 16 * 1024
"""Bytes of arguments from which on their digest is left to the thread."""
_SHOWN_OF_PRINCIPAL: Final = 6
_LINE_ENDS: Final = tuple((char.encode(), b"\\u%04x" % ord(char)) for char in "\x85\u2028\u2029")
"""What ends a line to some readers of text, and stands in JSON as it is; and the escapes for it."""

log = EventLog("audit")


class Audit(Middleware):
    """Append one JSON object for each request to a file: when, who, what, a digest of the arguments, how it ended.

    Arguments and results themselves are never in it. A file that cannot be written to (full disk, missing folder, no
    permission) is a warning in the log and holds up no call: lines wait, up to 16 MiB; those over that are counted, and
    the count is written when writing works again. When the file was moved away or deleted, as log rotation does, a new
    one is begun.

    Options:
        path: the file. A relative path begins at the config file's folder. Made with mode 0600 if it is not there; its
            folder must be.

    Lines are written within a twentieth of a second, and all of them before muxway ends.

    Costs about 18 µs a request, and a thread.
    """

    shared = True

    def __init__(self, *, path: ConfigPath) -> None:
        if not path.strip() or "\0" in path:
            raise ValueError('`path` must be the path of a file, such as "audit.jsonl"')
        self._writer = _Writer(Path(path).expanduser())
        self._clock = _AuditClock()

    async def close(self) -> None:
        """Write what is left."""
        await asyncio.to_thread(self._writer.stop)

    def after(self, request: Request, outcome: Outcome) -> None:
        """Write it down."""
        caller = request.caller
        client, version = client_of(caller)
        self._writer.put(
            {
                **_who(caller.identity),
                "time": self._clock.text(time() - outcome.seconds),
                "principal": _shown(caller.principal),
                "client": client,
                "clientVersion": version,
                "revision": caller.revision.date,
                "method": short(request.method),
                "name": short(request.name) or None,
                "server": request.server or None,
                **_decided(request),
                "arguments": None,
                "outcome": outcome.word,
                "code": None if outcome.error is None else outcome.error.code,
                "ms": round(outcome.seconds * 1000, 3),
                "bytesIn": size_in(request),
                "bytesOut": outcome.size,
            },
            request.call.params.get("arguments"),
        )

    def turned_away(self, denial: Denial) -> None:
        """Write down who was not let in, and by what."""
        self._writer.put(
            {
                **_who(denial.identity),
                "time": self._clock.text(time()),
                "address": denial.address or None,
                "method": short(denial.method),
                "path": short(denial.path),
                "outcome": "denied",
                "rule": denial.rule,
                "status": denial.status,
                "why": denial.why,
            },
            None,
        )

    def decided(self, decision: Decision) -> None:
        """Write down what was said to a request that somebody had to agree to, and why not."""
        self._writer.put(
            {
                **_who(decision.identity),
                "time": self._clock.text(time()),
                "principal": _shown(decision.principal),
                "method": short(decision.method),
                "name": short(decision.name) or None,
                "server": decision.server or None,
                "access": "ask",
                "rule": decision.rule,
                "outcome": "approved" if decision.approved else "denied",
                **({} if decision.approved else {"why": decision.why}),
            },
            None,
        )


def _shown(principal: bytes) -> str | None:
    return principal[:_SHOWN_OF_PRINCIPAL].hex() or None


def _who(identity: Identity | None) -> dict[str, Any]:
    """What credentials say of a caller, if they say anything."""
    if identity is None:
        return {}
    if identity.key:
        return {"key": identity.key}
    return {"user": short(identity.user), "issuer": identity.issuer, "clientId": short(identity.client) or None}


def _decided(request: Request) -> dict[str, Any]:
    """The rule that decided about a request, if there are rules for its caller."""
    verdict = request.target.verdict
    if verdict is None:
        return {}
    return {"access": verdict.do, "rule": None if verdict.rule is None else verdict.rule.label}


def digest(arguments: Raw) -> str:
    """The SHA-256 of arguments as canonical JSON: keys sorted, no blanks. The same for every way to write them."""
    try:
        canonical = envelopes.encode(envelopes.value(arguments), order="sorted")
    except ParseError:
        # Valid JSON that Python cannot hold, such as 1e999.
        canonical = bytes(arguments)
    return f"sha256:{sha256(canonical).hexdigest()}"


def _line(record: dict[str, Any], arguments: Raw | None) -> bytes:
    if arguments is not None:
        record["arguments"] = digest(arguments)
    line = envelopes.encode(record)
    if not line.isascii():
        for end, escape in _LINE_ENDS:
            line = line.replace(end, escape)
    return line + b"\n"


class _AuditClock:
    """Writes times. Most are within the second of the one before."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def text(self, when: float) -> str:
        second = int(when)
        if second != self._second:
            self._second, self._text = second, strftime("%Y-%m-%dT%H:%M:%S", gmtime(second))
        return f"{self._text}.{int((when - second) * 1_000_000):06}Z"


class _Writer:
    """A thread that appends lines to a file, whatever happens to the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._queue: deque[tuple[bytes | dict[str, Any], Raw | None, int]] = deque()
        # Of each pair the event loop writes one and the thread the other, so neither needs a lock.
        self._put, self._taken = 0, 0
        self._lost, self._told = 0, 0
        # Of the thread alone.
        self._file: int | None = None
        self._identity: tuple[int, int] | None = None
        self._unwritten = b""
        self._torn = b""
        """The start of the next line, if a disk was full in the middle of it."""
        self._size = 0
        self._failing = False

    def put(self, record: dict[str, Any], arguments: Raw | None) -> None:
        """Have a record written; never waits."""
        size = 0 if arguments is None else memoryview(arguments).nbytes
        if self._put - self._taken + size > _MOST_WAITING:
            self._lost += 1
            return
        if size > _LARGE:
            self._queue.append((record, arguments, size))
        else:
            line = _line(record, arguments)
            size = len(line)
            self._queue.append((line, None, size))
        self._put += size
        if not self._wake.is_set():
            self._wake.set()
        if self._thread is None:
            # Not before there is something to write: a configuration is also read to be checked.
            self._thread = threading.Thread(target=self._run, name="muxway audit", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Write what is left, and end. Waits, but not for ever."""
        if self._thread is None:
            return
        self._stopping.set()
        self._wake.set()
        self._thread.join(_PATIENCE)
        lost = len(self._queue) + self._unwritten.count(b"\n") + self._lost - self._told
        if lost:
            log.warning("audit lines lost", path=self._path, lines=lost)

    # --- in the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(_AGAIN if self._failing else None)
            self._stopping.wait(_AGAIN if self._failing else _GATHER)
            self._wake.clear()
            self._write_all()
        self._write_all()
        if self._file is not None:
            os.close(self._file)

    def _write_all(self) -> None:
        while self._unwritten or self._take():
            if not self._write():
                return
            self._taken += self._size
            self._size = 0

    def _take(self) -> bool:
        """Make the next lines those to be written. False if there are none."""
        lines: list[bytes] = []
        while self._queue and len(lines) < _BATCH:
            record, arguments, size = self._queue.popleft()
            lines.append(record if isinstance(record, bytes) else _line(record, arguments))
            self._size += size
        if not self._queue and self._lost > self._told:
            # They came after all that could be kept.
            lost, self._told = self._lost - self._told, self._lost
            log.warning("audit lines lost", path=self._path, lines=lost)
            lines.append(_line({"time": _AuditClock().text(time()), "lost": lost}, None))
        self._unwritten = b"".join(lines)
        return bool(lines)

    def _write(self) -> bool:
        try:
            file = self._opened()
            while self._unwritten:
                written = os.write(file, self._unwritten)
                line_start = self._unwritten.rfind(b"\n", 0, written) + 1
                done = self._unwritten[line_start:written]
                self._torn = done if line_start else self._torn + done
                self._unwritten = self._unwritten[written:]
        except OSError as error:
            self._close()
            if not self._failing:
                self._failing = True
                log.warning("audit cannot be written; calls go on", path=self._path, why=error.strerror or str(error))
            return False
        if self._failing:
            self._failing = False
            log.warning("audit is written again", path=self._path)
        return True

    def _opened(self) -> int:
        """The file, opened anew if what has its name is another one by now."""
        if self._file is not None:
            try:
                now = self._path.stat()
            except FileNotFoundError:
                now = None
            if now is not None and (now.st_dev, now.st_ino) == self._identity:
                return self._file
            self._close()
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        found = os.fstat(self._file)
        identity = (found.st_dev, found.st_ino)
        if identity != self._identity:
            self._unwritten, self._torn = self._torn + self._unwritten, b""
            if stat.S_ISREG(found.st_mode) and found.st_size and os.pread(self._file, 1, found.st_size - 1) != b"\n":
                # Somebody else, or we before a crash, ended in the middle of a line.
                self._unwritten = b"\n" + self._unwritten
        self._identity = identity
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
