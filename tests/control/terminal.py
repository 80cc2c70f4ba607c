"""A command on a terminal of a certain size."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from typing import TYPE_CHECKING, Self

from tests.pace import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ESCAPE = re.compile(r"\x1b\[[?;\d]*[A-Za-z]")


class Terminal:
    """What a person would see, and the keys under their fingers."""

    def __init__(self, command: Sequence[str], *, columns: int, rows: int) -> None:
        self.said = ""
        self._code: int | None = None
        self._size = struct.pack("4H", rows, columns, 0, 0)
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            # The size is there before the command looks.
            fcntl.ioctl(0, termios.TIOCSWINSZ, self._size)
            # An environment of its own: readline tells libc of a size, behind Python's back.
            env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
            os.execvpe(command[0], command, {**env, "TERM": "xterm"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._code is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._fd)

    def until(self, condition: Callable[[str], bool]) -> None:
        """Read until what was said so far is so."""
        end = time.monotonic() + PATIENCE
        while not condition(self.said):
            assert time.monotonic() < end, self.said
            self._read(0.1)

    def end(self) -> int:
        """Read until it ends; its exit code."""
        end = time.monotonic() + PATIENCE
        while True:
            self._read(0.05)
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
                while self._read(0.05):
                    pass
                return self._code
            assert time.monotonic() < end, self.said

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._fd, keys.encode())

    def modes(self) -> list[object]:
        """How the terminal is set."""
        return termios.tcgetattr(self._fd)

    def frame(self) -> list[str]:
        """The lines of what was drawn last, as they look."""
        whole = [part for part in self.said.split("\x1b[H") if part.rstrip().endswith("\x1b[J")]
        return [line.strip("\r") for line in _ESCAPE.sub("", whole[-1]).split("\n")]

    def lines(self) -> list[str]:
        """Every line it wrote, as it looks."""
        return [line.strip("\r") for line in _ESCAPE.sub("", self.said).split("\n")]

    def _read(self, seconds: float) -> bool:
        if not select.select([self._fd], [], [], seconds)[0]:
            return False
        with contextlib.suppress(OSError):  # Linux says it like this when nobody has the other end open any more.
            data = os.read(self._fd, 65536)
            self.said += data.decode(errors="replace")
            return bool(data)
        return False
