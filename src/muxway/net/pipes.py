"""Reading and writing pipes on the event loop, without streams, tasks or copies.

`asyncio.StreamReader` costs a task and two copies per line; here the loop calls us when
a descriptor is ready, one `read` gives many lines, and one `writev` sends many messages.
Both stdio transports, towards clients and towards servers, stand on this file.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final

from muxway.log import EventLog
from muxway.net.metronome import Metronome
from muxway.wire.pieces import FEW_PARTS, LARGE_FRAME, PAYLOAD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muxway.wire.envelopes import Buffer

_SMALL_READ: Final = 32 * 1024
_LARGE_READ: Final = 256 * 1024
_FEW: Final = 32
"""Lines in one read that are large."""
_PIPE_SIZE: Final = 1024 * 1024
_LARGE_PART: Final = 256 * 1024
_JOINED: Final = 64 * 1024
"""Bytes of several frames up to which it is quicker to copy them together than to name each to the system."""
_MAX_PARTS: Final = 512  # IOV_MAX is 1024 on Linux and macOS; a margin costs nothing
log = EventLog("pipes")

_GONE: Final = frozenset((errno.EPIPE, errno.ECONNRESET, errno.EBADF))


class Turn:
    """The writers that have something to send when the data just read has been dealt with.

    Shared by the pipes of one gateway. Answers to one read leave together, and at once: waiting for
    the loop's next round would cost a system call and a wake-up on every single call.
    """

    __slots__ = ("began", "dirty", "metronome", "reading")

    def __init__(self) -> None:
        self.metronome = Metronome()
        self.reading = False
        self.began = 0.0
        """When, by `perf_counter`."""
        self.dirty: deque[PipeWriter] = deque()


def enlarge(fd: int) -> None:
    """Make a pipe hold a megabyte, where the system allows it: large messages then need far fewer wake-ups."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        # Not a pipe, or the user's pipe allowance is used up: it works as it is, only slower.
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)


class PipeReader:
    """Calls `on_data` with whatever arrives, and `on_end` once when no more will.

    Pausing is how a slow consumer pushes back: the pipe fills and its writer waits.
    """

    def __init__(
        self,
        fd: int,
        turn: Turn,
        on_data: Callable[[bytes], None],
        on_end: Callable[[], None],
        *,
        close_fd: bool = True,
    ) -> None:
        self._fd = fd
        self._turn = turn
        self._on_data = on_data
        self._on_end = on_end
        self._close_fd = close_fd
        self._loop = asyncio.get_running_loop()
        self._read_size = _SMALL_READ
        self._open = True
        self._paused = True
        self.resume()

    def pause(self) -> None:
        """Stop reading until `resume`."""
        if self._open and not self._paused:
            self._paused = True
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Read again."""
        if self._open and self._paused:
            self._paused = False
            try:
                self._loop.add_reader(self._fd, self._ready)
            except OSError:
                # A regular file is always ready, so no loop can wait for it: `muxway stdio < requests.jsonl`.
                self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        if not self._paused and self._open and self._ready():
            self._loop.call_soon(self._pump)

    @property
    def paused(self) -> bool:
        """Whether it waits for `resume`."""
        return self._paused and self._open

    def read_now(self) -> bool:
        """Read once what is already in the pipe, whether paused or not. False if there is nothing."""
        return self._open and self._ready()

    def close(self) -> None:
        """Stop for good. `on_end` is not called."""
        if self._open:
            self.pause()
            self._open = False
            if self._close_fd:
                os.close(self._fd)

    def _ready(self) -> bool:
        size = self._read_size
        try:
            data = os.read(self._fd, size)
        except BlockingIOError:
            return False
        except OSError as error:
            # A terminal that went away reads as EIO; like any end, there is no more input.
            if error.errno not in _GONE and error.errno != errno.EIO:
                log.error("cannot read", fd=self._fd, error=error.strerror)
            data = b""
        if not data:
            self.close()
            self._on_end()
            return False
        # The buffer is allocated anew for each read, and a large one from the system, which costs more than all
        # the rest of a small call: only while large messages arrive. Of a flood of small ones, only so many at once,
        # so that others have their turn in between.
        if len(data) == size and data.count(b"\n") < _FEW:
            self._read_size = _LARGE_READ
        elif size != _SMALL_READ:
            self._read_size = _SMALL_READ
        turn = self._turn
        turn.began = began = perf_counter()
        if began > turn.metronome.due:
            turn.metronome.look()
        turn.reading = True
        try:
            self._on_data(data)
        finally:
            turn.reading = False
            while turn.dirty:
                turn.dirty.popleft().flush()
        return True


class PipeWriter:
    """Sends frames in order, many per system call, never blocking the loop.

    What the pipe does not take at once waits in a queue; `queued` tells how much. When the
    other end is gone, `on_broken` is called once and everything later is dropped.
    """

    def __init__(self, fd: int, turn: Turn, on_broken: Callable[[], None], *, close_fd: bool = True) -> None:
        self._fd = fd
        self._turn = turn
        self._on_broken = on_broken
        self._close_fd = close_fd
        self._loop = asyncio.get_running_loop()
        self._frames: deque[bytes | memoryview] = deque()
        self._planned = False
        """Whether what is queued is written without another word: when the turn ends, or when there is room."""
        self._waiting = False
        """Whether that is when there is room."""
        self._takes = True
        """Whether it is open and is not about to close."""
        self._drains: list[asyncio.Future[None]] = []
        self.queued = 0
        self.open = True
        self.on_drained: Callable[[], None] | None = None
        """Called each time the queue has become empty after it had to wait."""

    def send(self, frame: Sequence[Buffer | memoryview], _about: object = None) -> None:
        """Queue one frame. It leaves when the turn ends, with all others of the turn; what it is, matters elsewhere."""
        if not self._takes:
            return
        size = len(frame)
        if size > PAYLOAD and (
            len(frame[PAYLOAD]) > LARGE_FRAME or (size > FEW_PARTS and any(len(part) > _LARGE_PART for part in frame))
        ):
            # A listing of megabytes, encoded once for everybody, is not copied for each, nor what takes long to copy.
            self._frames.extend(map(memoryview, frame))
            self.queued += sum(map(len, frame))
        else:
            data = b"".join(frame)
            self._frames.append(data)
            self.queued += len(data)
        if not self._planned:
            self._planned = True
            if self._turn.reading:
                self._turn.dirty.append(self)
            else:
                self._loop.call_soon(self.flush)

    async def drained(self) -> None:
        """Wait until everything queued has been taken by the other side, or it is gone."""
        if self.open and (self._frames or self._planned):
            drain: asyncio.Future[None] = self._loop.create_future()
            self._drains.append(drain)
            await drain

    def close(self) -> None:
        """Send what can be sent without waiting, then close."""
        if self._takes:
            self._takes = False
            if not self._waiting:
                self._write()
            self._end()

    def flush(self) -> None:
        """Send what is queued, as far as the pipe takes it."""
        self._planned = False
        if not self.open:
            return
        frames = self._frames
        if self.queued <= _JOINED:
            # Nearly always so: few bytes, and a pipe with room for them.
            data = frames.popleft() if len(frames) == 1 else b"".join(frames)
            frames.clear()
            try:
                written = os.write(self._fd, data)
            except OSError:
                written = 0  # the long way round finds out what to make of it
            self.queued -= written
            if not self.queued:
                if self._drains:
                    self._end_drains()
                return
            frames.append(memoryview(data)[written:])
        self._write()

    def _write(self) -> None:
        frames = self._frames
        while frames:
            batch = [frames.popleft() for _ in range(min(len(frames), _MAX_PARTS))]
            try:
                written = os.write(self._fd, batch[0]) if len(batch) == 1 else os.writev(self._fd, batch)
            except BlockingIOError:
                written = 0
            except OSError as error:
                if error.errno not in _GONE:
                    log.error("cannot write", fd=self._fd, error=error.strerror)
                self._broken()
                return
            self.queued -= written
            for index, frame in enumerate(batch):
                if written < len(frame):
                    # The pipe is full: what it did not take goes back to the front.
                    frames.extendleft(reversed(batch[index + 1 :]))
                    frames.appendleft(memoryview(frame)[written:] if written else frame)
                    self._wait()
                    return
                written -= len(frame)
        self._done_waiting()

    def _wait(self) -> None:
        if not self._waiting and self._takes:
            self._planned = self._waiting = True
            self._loop.add_writer(self._fd, self._write)

    def _done_waiting(self) -> None:
        self._end_drains()
        if self._waiting:
            self._planned = self._waiting = False
            self._loop.remove_writer(self._fd)
            if self.on_drained is not None:
                self.on_drained()

    def _end_drains(self) -> None:
        drains, self._drains = self._drains, []
        for drain in drains:
            if not drain.done():
                drain.set_result(None)

    def _broken(self) -> None:
        self._end()
        self._on_broken()

    def _end(self) -> None:
        if self._waiting:
            self._waiting = False
            self._loop.remove_writer(self._fd)
        self.open = self._takes = False
        self._frames.clear()
        self.queued = 0
        self._end_drains()
        if self._close_fd:
            with contextlib.suppress(OSError):
                os.close(self._fd)
