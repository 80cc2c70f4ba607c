"""Closing a connection whose client may still be sending, so that it gets to see what it was told last.

A connection that is closed with something unread is reset, and the reset may overtake the answer. So what the client
sends is read, and thrown away, for a moment longer.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    import asyncio

_MOST: Final = 64
"""Connections that are closed in this way at the same time: each takes a file descriptor. Others may be reset."""
_SECONDS: Final = 5.0
_MOST_BYTES: Final = 64 * 1024 * 1024
"""What is read of a client that does not stop sending, in time and in bytes."""
_WRITTEN_AFTER: Final = 0.1
"""Seconds after which a short answer has surely left, so that the client may be told that nothing follows."""
_CHUNK: Final = 65536


def linger(transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
    """A connection is about to be closed: what the client still sends is thrown away from now on."""
    # If there are no files left, it is closed as usual.
    with contextlib.suppress(OSError):
        _Parting.begin(transport, loop)


class _Parting:
    """The other handle on a connection that its transport has closed."""

    _all: ClassVar[set[_Parting]] = set()

    @classmethod
    def begin(cls, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Keep the connection for a moment, unless many are kept already."""
        if len(cls._all) < _MOST:
            handle = os.dup(transport.get_extra_info("socket").fileno())
            cls._all.add(cls(socket.socket(fileno=handle), loop))

    def __init__(self, handle: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._handle = handle
        self._loop = loop
        self._received = 0
        self._timers = [
            loop.call_later(_WRITTEN_AFTER, self._end_writing),
            loop.call_later(_SECONDS, self._end),
        ]
        loop.add_reader(handle, self._discard)

    def _discard(self) -> None:
        try:
            received = self._handle.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        self._received += len(received)
        if not received or self._received > _MOST_BYTES:
            self._end()

    def _end_writing(self) -> None:
        with contextlib.suppress(OSError):
            self._handle.shutdown(socket.SHUT_WR)

    def _end(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._loop.remove_reader(self._handle)
        self._handle.close()
        self._all.discard(self)
