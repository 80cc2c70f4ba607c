"""Child processes as the event loop sees them: spawn, hear of their end, end them whole.

The processes themselves belong to the reaper (see `reaper.py`), one per process manager, started with the first child.
This side holds the socket to it and our ends of the pipes. It installs no signal handler and no child watcher, because
muxway is also a library in other people's programs, in any thread; it belongs to the loop that first used it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from array import array
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from muxway.errors import SpawnError
from muxway.log import EventLog
from muxway.net.processes.launch import ReaperProcess
from muxway.net.processes.reaper import MARKER, frame, has_process_table, marks, process_table, unframe

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

_STDOUT_PIPE: Final = 1024 * 1024
_STDIN_PIPE: Final = 256 * 1024
# Linux lets a user without privileges hold 64 MiB of pipes; beyond that *all* their new pipes shrink to 8 KiB.
_PIPE_BUDGET: Final = 32 * 1024 * 1024
# The kernel limits fds under way between processes; this many starts at once are parallel enough.
_SPAWNS_AT_ONCE: Final = 64
# Gateways may stand behind gateways, but one whose config names itself would never end.
_DEEPEST: Final = 4
_KILL_GRACE: Final = 1.0
_CLOSE_GRACE: Final = 3.0
_QUIETLY: Final[int] = getattr(socket, "MSG_NOSIGNAL", 0)  # the host program may not ignore SIGPIPE


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a child ended."""

    status: int
    """Its exit code, or minus the number of the signal that killed it."""
    note: str = ""
    """What else there is to say, when the status is not the child's own word."""

    def __str__(self) -> str:
        if self.status >= 0:
            text = f"exited with status {self.status}"
        else:
            text = f"was killed by {_signal_name(-self.status)}"
        return f"{text} ({self.note})" if self.note else text


class ChildProcess:
    """A running process and everything it started.

    `stdin`, `stdout` and `stderr` are our ends of its pipes, non-blocking. They belong to the caller, who closes them.
    """

    def __init__(self, reaper: _Reaper, child_id: int, pid: int, fds: tuple[int, int, int]) -> None:
        self.id = child_id
        self.pid = pid
        self.stdin, self.stdout, self.stderr = fds
        self._reaper = reaper
        loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[Exit] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()

    @property
    def exited(self) -> asyncio.Future[Exit]:
        """Resolves when the process itself has ended; never raises. Cancelling a wait for it cancels only that wait."""
        return asyncio.shield(self._exited)

    def signal(self, signum: int) -> None:
        """Send a signal to the whole tree. No error when it is gone."""
        if not self._gone.done():
            self._reaper.send({"type": "signal", "id": self.id, "signal": int(signum)})

    async def stop(self, *, close_stdin: Callable[[], None], eof_grace: float = 2.0, term_grace: float = 2.0) -> Exit:
        """End the whole tree, the polite way first: end of input, SIGTERM, SIGKILL.

        Takes at most the two graces and a second. When cancelled on the way, what is left is killed at once.
        """
        close_stdin()
        try:
            if not await self._gone_within(eof_grace):
                self.signal(signal.SIGTERM)
                if not await self._gone_within(term_grace):
                    self.signal(signal.SIGKILL)
                    await self._gone_within(_KILL_GRACE)
        except asyncio.CancelledError:
            self.signal(signal.SIGKILL)
            raise
        if self._exited.done():
            return self._exited.result()
        return Exit(status=-signal.SIGKILL, note=f"process {self.pid} does not react: it hangs in the kernel")

    async def _gone_within(self, seconds: float) -> bool:
        # Unlike wait_for, this leaves the future alone when the time is over or we are cancelled.
        done, _ = await asyncio.wait((self._gone,), timeout=seconds)
        return bool(done)

    def resolve_exit(self, end: Exit) -> None:
        """For the process manager: the process ended."""
        if not self._exited.done():
            self._exited.set_result(end)

    def resolve_gone(self) -> None:
        """For the process manager: nothing is left of its tree."""
        if not self._gone.done():
            self._gone.set_result(None)


class ProcessManager:
    """Starts children and sees to it that none outlives it."""

    def __init__(self, launched: ReaperProcess | None = None) -> None:
        """A process manager; with `launched`, the reaper that has been started ahead of it."""
        self._launched = launched
        self._log = EventLog("process")
        self._ids = itertools.count(1)
        self._reapers: list[_Reaper] = []
        """The last one serves; those before it died and may still be ending what they left."""
        self._slots = asyncio.Semaphore(_SPAWNS_AT_ONCE)
        self._waiting = 0
        """Children that wait for a slot."""
        self._closed = False

    async def start(self) -> None:
        """Start the reaper without waiting for it: its start-up overlaps whatever comes next.

        Raises:
            SpawnError: it cannot be started, or there is none for this platform.
        """
        self._living_reaper()

    async def spawn(self, argv: Sequence[str], *, path: str, env: Mapping[str, str], cwd: str | None) -> ChildProcess:
        """Start a process. Many may start at once.

        Args:
            argv: its arguments, beginning with its own name; no shell sees them.
            path: absolute path of the executable.
            env: its environment; one variable is added, by which its descendants are known.
            cwd: its working folder; None is ours.

        Raises:
            SpawnError: it could not be started; the message says why and what to do.
        """
        if os.environ.get(MARKER, "").count("/") >= _DEEPEST:
            raise SpawnError(
                f"muxway runs inside itself {_DEEPEST + 1} times over: does its config start muxway again?"
            )
        order = _order(argv, path, env, cwd)
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            try:
                return await self._living_reaper().spawn(next(self._ids), order)
            except _ReaperLost:
                # It died before it could answer. The child was not ours yet, so starting it again is no repetition.
                self._log.info("spawning again with a new reaper", path=path)
            try:
                return await self._living_reaper().spawn(next(self._ids), order)
            except _ReaperLost as lost:
                raise SpawnError(f"cannot start {path}: {lost}") from lost
        finally:
            self._slots.release()

    @property
    def count(self) -> int:
        """How many children there are, or are being started."""
        return self._waiting + sum(reaper.count for reaper in self._reapers)

    async def aclose(self) -> None:
        """End every child and the reaper, and wait until they are gone. Bounded; may be called twice."""
        self._closed = True
        await asyncio.gather(*(reaper.close() for reaper in self._reapers))

    def _living_reaper(self) -> _Reaper:
        if sys.platform == "win32":
            raise SpawnError("servers over stdio need Linux or macOS for now; reach this one by URL instead")
        if self._closed:
            raise SpawnError("the gateway is shutting down and starts no more processes")
        if not self._reapers or self._reapers[-1].lost:
            self._reapers = [reaper for reaper in self._reapers if not reaper.ended]
            launched, self._launched = self._launched, None
            self._reapers.append(_Reaper(self._log, launched))
        return self._reapers[-1]


class _ReaperLost(Exception):
    """The reaper died while somebody waited for its answer."""


class _Reaper:
    """One reaper process, the socket to it, and the children it keeps."""

    def __init__(self, log: EventLog, launched: ReaperProcess | None) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._incoming = bytearray()
        self._outgoing: deque[tuple[memoryview, tuple[int, ...]]] = deque()
        self._children: dict[int, ChildProcess] = {}
        self._spawning: dict[int, _Spawning] = {}
        self._enlarged: dict[int, int] = {}
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._burial: asyncio.Task[None] | None = None
        self._closing = False
        self.lost = False
        launched = launched or ReaperProcess()
        self._socket, self._process, self._token, self._mark = (
            launched.socket,
            launched.process,
            launched.token,
            launched.mark,
        )
        self._loop.add_reader(self._socket, self._readable)

    @property
    def ended(self) -> bool:
        """It is gone, and everything it kept."""
        return self._ended.done()

    @property
    def count(self) -> int:
        """How many children it has, or is to start."""
        return len(self._children) + len(self._spawning)

    async def spawn(self, child_id: int, order: dict[str, Any]) -> ChildProcess:
        """Have a child started and wait until its program runs."""
        ours, theirs = _pipes(order["path"])
        self._enlarge(child_id, ours)
        answer: asyncio.Future[ChildProcess | Exception] = self._loop.create_future()
        self._spawning[child_id] = _Spawning(order, ours, answer)
        env = {**order["env"], MARKER: self._mark(child_id)}
        self.send({**order, "type": "spawn", "id": child_id, "env": env}, theirs)
        try:
            outcome = await answer
        except asyncio.CancelledError:
            # It may be running already or start any moment; messages keep their order, so this one finds it.
            self.send({"type": "signal", "id": child_id, "signal": int(signal.SIGKILL)})
            self._spawning.pop(child_id, None)
            self._enlarged.pop(child_id, None)
            _close(ours)
            raise
        if isinstance(outcome, Exception):
            self._enlarged.pop(child_id, None)
            _close(ours)
            raise outcome
        return outcome

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Queue a message and write what the socket takes. The fds are closed once they are on their way."""
        self._outgoing.append((memoryview(frame(message)), fds))
        if len(self._outgoing) == 1 or self.lost:
            self._flush()

    async def close(self) -> None:
        """End everything and wait until it is gone."""
        if not self.lost and not self._closing:
            self._closing = True
            # Half closed: the reaper sees the end of input, and we still hear how each child ended.
            with contextlib.suppress(OSError):  # it is dead already; the reading side is about to notice
                self._socket.shutdown(socket.SHUT_WR)
        try:
            ended = await self._ended_within(_CLOSE_GRACE)
        finally:
            if not self._ended.done():
                # Out of time or cancelled. Without its reaper, we end the children from this side.
                self._process.kill()
        if not ended and not await self._ended_within(_CLOSE_GRACE):
            self._log.error("processes are left behind", pids=sorted(child.pid for child in self._children.values()))

    async def _ended_within(self, seconds: float) -> bool:
        done, _ = await asyncio.wait((self._ended,), timeout=seconds)
        return bool(done)

    def _enlarge(self, child_id: int, ours: tuple[int, int, int]) -> None:
        """Give the pipes room for a whole large message, as long as that is fair to the user's other programs."""
        if not sys.platform.startswith("linux"):
            return
        if sum(self._enlarged.values()) + _STDIN_PIPE + _STDOUT_PIPE > _PIPE_BUDGET:
            return
        self._enlarged[child_id] = _STDIN_PIPE + _STDOUT_PIPE
        for fd, size in zip(ours, (_STDIN_PIPE, _STDOUT_PIPE), strict=False):
            with contextlib.suppress(OSError):  # over some limit: the pipe works all the same, only slower
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)

    # The socket

    def _flush(self) -> None:
        while self._outgoing and not self.lost:
            data, fds = self._outgoing[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
            try:
                sent = self._socket.sendmsg([data], rights, _QUIETLY)
            except BlockingIOError:
                self._loop.add_writer(self._socket, self._flush)
                return
            except OSError:
                # It is dead. The reading side still has its last words, then the end; that is where loss is handled.
                break
            _close(fds)
            if sent < len(data):
                self._outgoing[0] = (data[sent:], ())
            else:
                self._outgoing.popleft()
        for _, fds in self._outgoing:
            _close(fds)
        self._outgoing.clear()
        if not self.lost:
            self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # reset: it died before it had read everything
        if not data:
            self._lose()
            return
        self._incoming += data
        for message in unframe(self._incoming):
            self._hear(message)

    def _hear(self, message: dict[str, Any]) -> None:
        match message:
            case {"type": "started", "id": int(child_id), "pid": int(pid)}:
                # The child is known from here on: its exit may be the very next message.
                if spawning := self._spawning.pop(child_id, None):
                    child = self._children[child_id] = ChildProcess(self, child_id, pid, spawning.ours)
                    spawning.resolve(child)
            case {"type": "failed", "id": int(child_id), "stage": str(stage), "errno": int(number)}:
                if spawning := self._spawning.pop(child_id, None):
                    spawning.resolve(SpawnError(_failure(spawning.order, stage, number)))
            case {"type": "exited", "id": int(child_id), "status": int(status)}:
                if child := self._children.get(child_id):
                    child.resolve_exit(Exit(status=status))
            case {"type": "gone", "id": int(child_id)}:
                self._enlarged.pop(child_id, None)
                if child := self._children.pop(child_id, None):
                    child.resolve_gone()
            case _:
                self._log.error("the reaper of child processes broke", reason=message.get("reason", message))

    # The end

    def _lose(self) -> None:
        """The reaper is gone, or going: because we closed, or because somebody killed it."""
        self.lost = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._flush()
        self._burial = self._loop.create_task(self._bury())

    async def _bury(self) -> None:
        """Collect the dead reaper, end what it can no longer end, and tell everybody who waits."""
        end = Exit(status=await asyncio.to_thread(self._collect))
        if not self._closing or end.status != 0:
            self._log.error("the reaper of child processes died", how=end, children=len(self._children))
            pids = [child.pid for child in self._children.values()]
            left = await asyncio.to_thread(_end_by_force, self._token, pids)
            if left:
                self._log.error("processes are left behind", pids=left)
        for spawning in list(self._spawning.values()):
            spawning.resolve(_ReaperLost(f"the reaper of child processes {end}"))
        self._spawning.clear()
        for child in self._children.values():
            child.resolve_exit(Exit(status=-signal.SIGKILL, note="its status is unknown: the reaper died before it"))
            child.resolve_gone()
        self._children.clear()
        self._ended.set_result(None)

    def _collect(self) -> int:
        try:
            return self._process.wait(_KILL_GRACE)
        except subprocess.TimeoutExpired:
            # It closed its socket but does not leave: that is a bug, and it must not hold anybody up.
            self._process.kill()
            return self._process.wait()


@dataclass(frozen=True, slots=True)
class _Spawning:
    """A child that has been ordered and has not answered yet."""

    order: dict[str, Any]
    ours: tuple[int, int, int]
    answer: asyncio.Future[ChildProcess | Exception]

    def resolve(self, outcome: ChildProcess | Exception) -> None:
        if not self.answer.done():
            self.answer.set_result(outcome)


def _order(argv: Sequence[str], path: str, env: Mapping[str, str], cwd: str | None) -> dict[str, Any]:
    """The spawn message, checked for what no operating system accepts."""
    if not argv:
        raise SpawnError(f"cannot start {path}: argv is empty; it begins with the program's own name")
    for name in env:
        if not name or "=" in name:
            raise SpawnError(f"cannot start {path}: {name!r} cannot be the name of an environment variable")
    try:
        return {
            "argv": [_wire_text(arg) for arg in argv],
            "path": _wire_text(path),
            "env": {_wire_text(name): _wire_text(value) for name, value in env.items()},
            "cwd": _wire_text(cwd or str(Path.cwd())),
        }
    except ValueError as error:
        # The text itself may be a secret of the environment, so it is not shown.
        raise SpawnError(f"cannot start {path}: {error} in its arguments or environment") from None
    except FileNotFoundError:
        raise SpawnError(f"cannot start {path}: our own working folder was deleted; set `cwd`") from None


def _wire_text(text: str) -> str:
    """The text in the form the reaper turns back into the bytes that exec wants, whatever the locale."""
    if "\0" in text:
        raise ValueError("a NUL character")
    try:
        return os.fsencode(text).decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError("a character that cannot be encoded") from None


def _pipes(path: str) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Our ends of three pipes, non-blocking, and the child's."""
    fds: list[int] = []
    try:
        for _ in range(3):
            fds += os.pipe()
    except OSError as error:
        _close(fds)
        raise SpawnError(f"cannot start {path}: {_reason(error.errno)}") from error
    stdin, to_stdin, from_stdout, stdout, from_stderr, stderr = fds
    for fd in (to_stdin, from_stdout, from_stderr):
        os.set_blocking(fd, False)
    return (to_stdin, from_stdout, from_stderr), (stdin, stdout, stderr)


def _close(fds: Collection[int]) -> None:
    for fd in fds:
        os.close(fd)


def _end_by_force(token: str, pids: Collection[int]) -> list[int]:
    """Without a reaper: kill the children's groups, then whoever carries our mark. Returns who would not die."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or somebody else's by now
            os.killpg(pid, signal.SIGKILL)
    if not has_process_table():
        return []
    deadline = time.monotonic() + _KILL_GRACE
    quiet = 0
    # Twice, because a process in the midst of an exec shows no mark for a moment.
    while quiet < 2:
        left = [process.pid for process in process_table() if _is_marked(process.pid, token)]
        if left and time.monotonic() > deadline:
            return left
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        quiet = 0 if left else quiet + 1
        time.sleep(0.005)
    return []


def _is_marked(pid: int, token: str) -> bool:
    return any(mark.startswith(token + ":") for mark in marks(pid))


def _failure(order: dict[str, Any], stage: str, number: int) -> str:
    """What went wrong between fork and exec, and what to do about it."""
    path, cwd = order["path"], order["cwd"]
    if stage == "chdir":
        return f"cannot start {path}: the working folder {cwd}: {_reason(number)}. Check `cwd`"
    match number:
        case errno.ENOENT:
            hint = "it, or the interpreter its first line names, does not exist. Reinstall it or fix its #! line"
        case errno.ENOTDIR:
            hint = "a part of its path is no folder"
        case errno.EACCES:
            hint = f"permission denied. Run `chmod +x {path}`, and check the folders above it"
        case errno.ENOEXEC:
            hint = "it is no program for this machine; if it is a script, its first line must name an interpreter (#!)"
        case errno.E2BIG:
            hint = "its arguments and environment are too long. Pass large values in a file"
        case _:
            hint = _reason(number)
    return f"cannot start {path}: {hint}"


def _reason(number: int | None) -> str:
    match number:
        case errno.EMFILE | errno.ENFILE:
            return "too many open files. Raise the limit (`ulimit -n`)"
        case errno.EAGAIN:
            return "too many processes. Raise the limit (`ulimit -u`, or pids of the container)"
        case errno.ENOMEM:
            return "out of memory"
        case None:
            return "unknown error"
        case _:
            return os.strerror(number).lower()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # real-time signals have no names of their own
