"""The stdio transport: a server that is a child process, spoken to over its stdin and stdout."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Final

from muxway.errors import SpawnError
from muxway.log import EventLog
from muxway.net.pipes import PipeWriter
from muxway.net.processes.stderr import StderrTail
from muxway.servers.transports import command
from muxway.servers.transports.intake import FLOOD_SECONDS, Intake
from muxway.wire.framing import LineFramer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muxway.config.model import ServerConfig
    from muxway.net.pipes import Turn
    from muxway.net.processes.journal import Journal
    from muxway.net.processes.manager import ChildProcess, Exit, ProcessManager
    from muxway.servers.transports.port import Fail, Hear, Outgoing
    from muxway.wire.envelopes import Buffer
    from muxway.wire.large import Opened

_EXIT_REPORT: Final = 0.5
"""Seconds to wait for the exit status of a child whose output has ended, so that errors can name it."""

_NO_GRACE: Final = {"eof_grace": 0.0, "term_grace": 0.0}

log = EventLog("upstream")


def _nowhere(_frame: Sequence[Buffer], _about: Outgoing) -> None:
    """Before there is a child, there is nobody to send to."""


def _hear_opened(hear: Hear, frame: bytes, opened: Opened) -> int:
    return hear([frame], b"", opened)


class StdioServerTransport:
    """One child process."""

    own_process = True

    def __init__(
        self, config: ServerConfig, processes: ProcessManager, turn: Turn, max_message_bytes: int, journal: Journal
    ) -> None:
        self.remote = False
        self._config = config
        self._processes = processes
        self._turn = turn
        self._framer = LineFramer(max_message_bytes, tails=True)
        self._child: ChildProcess | None = None
        self._stdin: PipeWriter | None = None
        self._stdout: Intake | None = None
        self._stderr: Intake | None = None
        self.send: Callable[[Sequence[Buffer], Outgoing], None] = _nowhere
        self._ending: asyncio.Task[None] | None = None
        self._closed = False
        self._introduced = False
        self.stderr = StderrTail(config.secrets, self._show, asyncio.get_running_loop(), journal)

    @property
    def pid(self) -> int | None:
        """The child's process id, once it has been started."""
        return None if self._child is None else self._child.pid

    @property
    def queued(self) -> int:
        return 0 if self._stdin is None else self._stdin.queued

    async def open(self, hear: Hear, lost: Callable[[str], None], _fail: Fail, /) -> None:
        config = self._config
        if config.command is None:
            raise SpawnError("it has no `command`")
        env = command.child_environment(config.env, inherit=config.inherit_env, environ=os.environ)
        path = command.resolve(config.command, path=env.get("PATH"), cwd=config.cwd)
        argv = [config.command, *config.args]
        child = self._child = await self._processes.spawn(argv, path=path, env=env, cwd=config.cwd)
        self._lost = lost
        turn = self._turn
        self._stdin = PipeWriter(child.stdin, turn, lambda: self._end("stopped reading its input"))
        # From here on, straight to the pipe: every call passes this way.
        self.send = self._stdin.send
        closed = partial(self._end, "closed its output")
        hear_large = partial(_hear_opened, hear)
        self._stdout = Intake(child.stdout, turn, self._framer, hear, closed, self._flooded, hear_large)
        self._stderr = Intake(child.stderr, turn, self.stderr.framer, self.stderr.take, self.stderr.end)
        child.exited.add_done_callback(lambda _: self._end("exited"))

    def introduced(self) -> None:
        self._introduced = True

    def _show(self, line: str) -> None:
        # Before the greeting is over it may only be grumbling about our question which era it speaks.
        (log.info if self._introduced else log.debug)("stderr", upstream=self._config.name, line=line)

    def last_words(self) -> str | None:
        return self.stderr.last()

    def _end(self, what: str) -> None:
        """The child is going or gone. Its exit status and last words arrive on other paths: wait for them, briefly."""
        if self._ending is None and not self._closed:
            self._ending = asyncio.get_running_loop().create_task(self._report(what))

    def _flooded(self) -> None:
        if not self._closed:
            self._lost(f"flooded its output for {FLOOD_SECONDS:g} s with lines that nobody asked for")

    async def _report(self, what: str) -> None:
        child, stdout, stderr = self._child, self._stdout, self._stderr
        if child is None or stdout is None or stderr is None:
            return
        await asyncio.wait([child.exited], timeout=_EXIT_REPORT)
        # What it wrote before it went is still in the pipes.
        await stdout.drain()
        await stderr.drain()
        if not self._closed:
            self._lost(str(child.exited.result()) if child.exited.done() else f"{what}, but goes on running")

    async def close(self, *, at_once: bool = False) -> None:
        self._closed = True
        if self._child is None or self._stdin is None or self._stdout is None or self._stderr is None:
            return
        exit_: Exit = await self._child.stop(close_stdin=self._stdin.close, **(_NO_GRACE if at_once else {}))
        log.debug("child ended", upstream=self._config.name, pid=self._child.pid, how=exit_)
        await self._stderr.drain()
        self.stderr.end()
        self._stdin.close()
        self._stdout.close()
        self._stderr.close()
