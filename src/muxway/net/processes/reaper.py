"""The parent of every child process: a small program of its own, so that nothing outlives muxway.

The gateway runs `main` in an interpreter of its own and speaks to it over its standard input, a unix socket. Every
message is four bytes of length and that much JSON; the three fds of a new child travel beside its `spawn` message.

    gateway → reaper    spawn {id, argv, path, env, cwd}    signal {id, signal}
    reaper → gateway    started {id, pid}    failed {id, stage, errno}    exited {id, status}    gone {id}
                        broken {reason}: a bug in here; everything is ended and the reaper leaves

Three facts make it work. The reaper is a *child subreaper*: whatever loses its parent becomes its child, so it sees
daemons too. Each child carries a marker in its environment, which its descendants inherit: a stray is traced to its
child by it. And when the gateway is gone, for whatever reason, the socket ends and so does every descendant.

`exited` is the leader's end, `gone` the end of its whole tree. Whatever a leader leaves behind is ended from here.

Standard library only and few imports: this process stands beside every gateway for as long as that lives.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False  # importing it from `typing` would cost this process another megabyte
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Any, NoReturn

    Message = dict[str, Any]

MARKER = "MUXWAY_CHILD"
"""Environment variable of every child: `token:id`, after a `/` those of the gateways it is nested in."""

LEFTOVER_GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL for what a leader left behind."""
ORPHAN_GRACE = 0.3
"""The same for everything, once the gateway is gone: it must all be over well within two seconds."""
EXEC_GRACE = 1.0
"""Seconds for which a stray without any environment may be one whose exec is not finished."""
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 1.0
"""Seconds between two rounds of SIGKILL; doubled each time, since what does not die is stuck in the kernel."""

# Only the end of the gateway ends the reaper: a Ctrl-C or a `kill` of the group must not take the children's parent.
DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Python ignores these two by itself, and an ignored signal would stay ignored across exec.
PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)

STDIO = 3


def frame(message: Message) -> bytes:
    """One message as it goes over the socket."""
    body = json.dumps(message).encode("ascii")
    return len(body).to_bytes(4, "big") + body


def unframe(buffer: bytearray) -> Iterator[Message]:
    """Take every complete message out of `buffer`; the rest stays for the next time."""
    while len(buffer) >= 4:
        end = 4 + int.from_bytes(buffer[:4], "big")
        if len(buffer) < end:
            return
        body = bytes(buffer[4:end])
        del buffer[:end]
        yield json.loads(body)


class ReapedProcess:
    """One line of the process table."""

    __slots__ = ("group", "parent", "pid", "session", "zombie")

    def __init__(self, pid: int, stat: bytes) -> None:
        # The command name comes second, in parentheses, and may itself hold spaces and parentheses.
        state, parent, group, session = stat[stat.rindex(b")") + 2 :].split(b" ", 4)[:4]
        self.pid = pid
        self.parent = int(parent)
        self.group = int(group)
        self.session = int(session)
        self.zombie = state in b"ZX"


def has_process_table() -> bool:
    """Whether /proc is there and shows *our* processes (it may belong to another namespace)."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())  # noqa: PTH115  pathlib is too dear an import here
    except OSError:
        return False


def process_table() -> Iterator[ReapedProcess]:
    """Every process of this machine that we may see."""
    for name in os.listdir("/proc"):  # noqa: PTH208  the same
        if name.isdecimal() and (stat := _read(f"/proc/{name}/stat")):
            yield ReapedProcess(int(name), stat)


def marks(pid: int) -> list[str]:
    """The `token:id` marks in a process's environment, the outermost gateway's first."""
    prefix = MARKER.encode() + b"="
    for entry in _read(f"/proc/{pid}/environ").split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode("ascii", "replace").split("/")
    return []


def _read(path: str) -> bytes:
    """A file of /proc; nothing when the process is gone meanwhile or is not ours to look at."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    chunks: list[bytes] = []
    try:
        while chunk := os.read(fd, 65536):
            chunks.append(chunk)
    except OSError:
        return b""
    finally:
        os.close(fd)
    return b"".join(chunks)


class Child:
    """A leader, and the tree below it."""

    __slots__ = ("asked", "id", "kill_at", "left", "look", "mark", "pause", "pid", "report", "wanted")

    def __init__(self, child_id: int, mark: str, pid: int, report: int) -> None:
        self.id = child_id
        self.mark = mark
        self.pid = pid
        self.report = report
        """Where the forked process tells why it could not exec; -1 once that is settled."""
        self.left = False
        """The leader has exited and been reaped."""
        self.asked = False
        """What it left behind has had its SIGTERM."""
        self.look = False
        """Something changed: see who is left."""
        self.wanted: list[int] = []
        """Signals the gateway wants delivered."""
        self.kill_at: float | None = None
        self.pause = FIRST_PAUSE


class Reaper:
    """The loop. Single threaded, never blocks but in `poll`, and sleeps there while nothing happens."""

    def __init__(self, control: socket.socket, token: str, gateway: int) -> None:
        self._control = control
        self._token = token
        self._pid = os.getpid()
        self._connected = True
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._passed: list[list[int]] = []
        self._children: dict[int, Child] = {}
        self._leaders: dict[int, Child] = {}
        """By pid. A leader stays after its exit, until its tree is gone: its pid still names group and session."""
        self._starting: dict[int, Child] = {}
        self._blank: dict[int, float] = {}
        """Strays that had no environment to look at, and since when."""
        self._subreaper = _become_subreaper()
        self._proc = has_process_table()

        control.setblocking(False)
        self._wake, wakes = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _merely_wake)

        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        self._gateway = _watch(gateway)
        if self._gateway >= 0:
            self._poll.register(self._gateway, select.POLLIN)

    def run(self) -> None:
        """Serve until the gateway is gone."""
        while self._connected:
            for fd, event in self._poll.poll(self._patience()):
                if fd == self._wake:
                    self._drain_wakeups()
                elif fd == self._gateway:
                    self._connected = False
                elif fd in self._starting:
                    self._settle(self._starting[fd])
                else:
                    if event & select.POLLOUT:
                        self._flush()
                    if event & ~select.POLLOUT:
                        self._receive()
            childless = self._reap()
            self._sweep(childless)

    def end_everything(self) -> None:
        """SIGTERM to all descendants, a short grace, then SIGKILL until none is left."""
        waker = select.poll()
        waker.register(self._wake, select.POLLIN)
        deadline = time.monotonic() + ORPHAN_GRACE
        pause = FIRST_PAUSE
        _send_all(self._everyone(), signal.SIGTERM)
        while not (self._reap() and (self._subreaper or not self._everyone())):
            patience = deadline - time.monotonic()
            if patience <= 0:
                _send_all(self._everyone(), signal.SIGKILL)
                patience = pause
                pause = min(pause * 2, LONGEST_PAUSE)
            waker.poll(patience * 1000)
            self._drain_wakeups()

    def say(self, **message: object) -> None:
        """Queue a message for the gateway and send what the socket takes."""
        self._outgoing += frame(message)
        self._flush()

    # What the gateway says

    def _receive(self) -> None:
        try:
            data, ancillary, flags, _ = self._control.recvmsg(
                65536, socket.CMSG_SPACE(STDIO * 4), getattr(socket, "MSG_CMSG_CLOEXEC", 0)
            )
        except BlockingIOError:
            return
        except ConnectionError:
            data, ancillary, flags = b"", [], 0
        if not data:
            self._connected = False
            return
        fds: list[int] = []
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds += memoryview(payload[: len(payload) // 4 * 4]).cast("i")
        for fd in fds:
            os.set_inheritable(fd, False)  # where MSG_CMSG_CLOEXEC does not exist
        # The kernel never joins two sets of fds in one read. A set cut short (we are out of fds) still has its
        # place in the queue: the next child must not get its neighbour's pipes.
        if fds or flags & socket.MSG_CTRUNC:
            self._passed.append(fds)
        self._incoming += data
        for message in unframe(self._incoming):
            if message["type"] == "spawn":
                self._spawn(message, self._passed.pop(0))
            elif child := self._children.get(message["id"]):
                self._wish(child, message["signal"])

    def _wish(self, child: Child, signum: int) -> None:
        if signum == signal.SIGKILL:
            child.kill_at = time.monotonic()
        else:
            child.wanted.append(signum)

    def _flush(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._control.send(self._outgoing)]
        except BlockingIOError:
            self._poll.modify(self._control, select.POLLIN | select.POLLOUT)
            return
        except OSError:
            # The gateway closed its end: nobody is left to tell.
            self._connected = False
            self._outgoing.clear()
        self._poll.modify(self._control, select.POLLIN)

    # Starting

    def _spawn(self, order: Message, fds: list[int]) -> None:
        child_id: int = order["id"]
        try:
            if len(fds) != STDIO:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            report, reports = os.pipe()
            try:
                pid = os.fork()
                if pid == 0:
                    _become(order, fds, reports)
            except OSError:
                os.close(report)
                raise
            finally:
                os.close(reports)
        except OSError as error:
            self.say(type="failed", id=child_id, stage="fork", errno=error.errno)
            return
        finally:
            for fd in fds:
                os.close(fd)
        os.set_blocking(report, False)
        child = Child(child_id, f"{self._token}:{child_id}", pid, report)
        self._children[child_id] = self._leaders[pid] = self._starting[report] = child
        self._poll.register(report, select.POLLIN)

    def _settle(self, child: Child) -> None:
        """The pipe closed itself on exec, or it holds the reason why there was none."""
        try:
            problem = os.read(child.report, 4096)
        except BlockingIOError:
            return
        self._poll.unregister(child.report)
        del self._starting[child.report]
        os.close(child.report)
        child.report = -1
        if problem:
            self.say(type="failed", id=child.id, **json.loads(problem))
            self._forget(child)
        else:
            self.say(type="started", id=child.id, pid=child.pid)

    def _forget(self, child: Child) -> None:
        del self._children[child.id]
        # The number may meanwhile be a newer child's.
        if self._leaders.get(child.pid) is child:
            del self._leaders[child.pid]

    # Ending

    def _reap(self) -> bool:
        """Collect whoever has died, adopted ones too. Returns whether no child of ours is left at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if not pid:
                return False
            self._blank.pop(pid, None)
            leader = self._leaders.get(pid)
            if leader and leader.report >= 0:
                self._settle(leader)
            if leader and leader.id in self._children and not leader.left:
                leader.left = True
                if leader.kill_at is None:
                    leader.kill_at = time.monotonic() + LEFTOVER_GRACE
                self.say(type="exited", id=leader.id, status=os.waitstatus_to_exitcode(status))
            for child in self._children.values():
                child.look |= child.left

    def _sweep(self, childless: bool) -> None:
        """Deliver signals, end leftovers, and notice which trees are gone; one look at the table for all."""
        now = time.monotonic()
        due = [
            child
            for child in self._children.values()
            if child.look or child.wanted or (child.kill_at is not None and child.kill_at <= now)
        ]
        if not due:
            return
        if childless and self._subreaper:
            trees, settled = {}, True
        else:
            trees, settled = self._trees() if self._proc else self._groups()
        for child in due:
            targets = trees.get(child.id, set[int]())
            child.look = False
            if child.left and settled and not targets:
                self.say(type="gone", id=child.id)
                self._forget(child)
                continue
            for signum in child.wanted:
                _send_all(targets, signum)
            child.wanted.clear()
            if child.kill_at is not None and child.kill_at <= now:
                _send_all(targets, signal.SIGKILL)
                child.asked = True
                child.kill_at = now + child.pause
                child.pause = min(child.pause * 2, LONGEST_PAUSE)
            elif child.left and not child.asked:
                _send_all(targets, signal.SIGTERM)
                child.asked = True

    def _patience(self) -> float | None:
        """Milliseconds until the next child is due; None, for ever, while nothing is being ended."""
        due = [child.kill_at for child in self._children.values() if child.kill_at is not None]
        return max(0.0, min(due) - time.monotonic()) * 1000 if due else None

    # Who belongs to whom. A target is what os.kill takes: a pid, or minus the number of a group.

    def _trees(self) -> tuple[dict[int, set[int]], bool]:
        """The living of each child's tree, and whether an absent tree may be called gone."""
        below = _by_parent()
        trees: dict[int, set[int]] = {}
        settled = True
        for top in below.get(self._pid, []):
            if top.zombie:
                # Not reaped yet, so it died while we looked, and what it started may have been missed. Its
                # SIGCHLD is waiting and brings us back.
                settled = False
            owner = self._owner(top)
            if owner is None:
                settled &= not self._may_be_in_exec(top)
                continue
            tree = trees.setdefault(owner.id, set())
            walk = [top]
            while walk:
                process = walk.pop()
                walk += below.get(process.pid, [])
                if not process.zombie:
                    # A group is signalled as one: nobody in it can escape by forking meanwhile.
                    tree.add(-owner.pid if process.group == owner.pid else process.pid)
        return trees, settled

    def _owner(self, top: ReapedProcess) -> Child | None:
        """Whose a child of ours is: a leader, or a stray we adopted when its parent died."""
        leader = self._leaders.get(top.pid) or self._leaders.get(top.session) or self._leaders.get(top.group)
        if leader is not None:
            return leader
        own = [mark for mark in marks(top.pid) if mark.startswith(self._token + ":")]
        return next((child for child in self._children.values() if child.mark in own), None)

    def _may_be_in_exec(self, stray: ReapedProcess) -> bool:
        """Whether a stray may yet show a mark: between two programs, a process has no environment for a moment."""
        if stray.zombie or _read(f"/proc/{stray.pid}/environ"):
            return False
        now = time.monotonic()
        return now - self._blank.setdefault(stray.pid, now) < EXEC_GRACE

    def _groups(self) -> tuple[dict[int, set[int]], bool]:
        """The best to be known without /proc: the children's groups as far as somebody is in them."""
        groups: dict[int, set[int]] = {}
        for child in self._children.values():
            if not child.left or _group_lives(child.pid):
                groups[child.id] = {-child.pid, child.pid} if child.report >= 0 else {-child.pid}
        return groups, True

    def _everyone(self) -> set[int]:
        """All living descendants, whoever started them."""
        if not self._proc:
            return set[int]().union(*self._groups()[0].values())
        below = _by_parent()
        everyone: set[int] = set()
        walk = below.get(self._pid, [])
        while walk:
            process = walk.pop()
            walk += below.get(process.pid, [])
            if not process.zombie:
                everyone.add(process.pid)
        return everyone

    def _drain_wakeups(self) -> None:
        try:
            while os.read(self._wake, 4096):
                pass
        except BlockingIOError:
            pass  # empty, as wanted


def _become(order: Message, fds: list[int], reports: int) -> NoReturn:
    """In the forked process: turn into the child, or say why not."""
    stage = "exec"
    try:
        os.setsid()
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
        # Nothing else is open after exec: all our fds are close-on-exec, and the reaper inherited none but 0-2.
        for signum in (*DEAF_TO, *PYTHON_IGNORES):
            signal.signal(signum, signal.SIG_DFL)
        stage = "chdir"
        os.chdir(_os_bytes(order["cwd"]))
        stage = "exec"
        env = {_os_bytes(name): _os_bytes(value) for name, value in order["env"].items()}
        argv = [_os_bytes(arg) for arg in order["argv"]]
        os.execve(_os_bytes(order["path"]), argv, env)  # noqa: S606  without a shell is the point
    except OSError as error:
        os.write(reports, json.dumps({"stage": stage, "errno": error.errno}).encode())
    finally:
        os._exit(127)


def _os_bytes(text: str) -> bytes:
    """The gateway wrote UTF-8 with escapes for whatever is none, whatever the locale is."""
    return text.encode("utf-8", "surrogateescape")


def _by_parent() -> dict[int, list[ReapedProcess]]:
    below: dict[int, list[ReapedProcess]] = {}
    for process in process_table():
        below.setdefault(process.parent, []).append(process)
    return below


def _send_all(targets: Collection[int], signum: int) -> None:
    for target in targets:
        try:  # noqa: SIM105  contextlib is one more import
            os.kill(target, signum)
        except (ProcessLookupError, PermissionError):
            pass  # gone meanwhile, or it became somebody else (setuid) whom we may not signal


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False  # macOS says "not permitted" when only zombies are left in it
    return True


def _become_subreaper() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    import ctypes  # only where it is of use: it is the dearest import of all

    set_dumpable, set_name, set_child_subreaper = 4, 15, 36
    libc = ctypes.CDLL(None)
    # Our memory and our environment are nobody's business, least of all the children's.
    libc.prctl(set_dumpable, 0, 0, 0, 0)
    libc.prctl(set_name, b"muxway-reaper", 0, 0, 0)
    return libc.prctl(set_child_subreaper, 1, 0, 0, 0) == 0


def _merely_wake(_signum: int, _frame: object) -> None:
    """SIGCHLD needs a handler for the wakeup fd to be written; the loop does the rest."""


def _watch(gateway: int) -> int:
    """A fd that becomes readable when the gateway's process ends, or -1 where there is no such thing.

    The socket alone is not enough: a process the gateway forked without exec holds a copy of its end.
    """
    try:
        fd = os.pidfd_open(gateway)
    except (AttributeError, OSError):
        return -1
    if os.getppid() != gateway:
        # It died before we looked and the number is somebody else's. The socket will tell.
        os.close(fd)
        return -1
    return fd


def main(token: str, gateway: str) -> None:
    """Become the reaper of the gateway at the other end of standard input."""
    for signum in signal.valid_signals():
        # Whatever the gateway's program ignores, its servers should not.
        if signal.getsignal(signum) is signal.SIG_IGN and signum not in PYTHON_IGNORES:
            signal.signal(signum, signal.SIG_DFL)
    for signum in DEAF_TO:
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Set once here, inherited by every child: no core dumps with secrets in them.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir("/")

    reaper = Reaper(socket.socket(fileno=0), token, int(gateway))
    try:
        reaper.run()
    except Exception:
        import traceback

        reaper.say(type="broken", reason=traceback.format_exc())
        raise
    finally:
        reaper.end_everything()
