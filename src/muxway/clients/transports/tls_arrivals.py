"""Clients that come with TLS: before their handshake is over, too, they are counted, and do not wait for ever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from muxway.clients.transports.http_connection import HttpConnection

_NO_FILES: Final = 1.0
"""Seconds until the next look at who waits, when the system gives us no file for it."""


class TlsArrivals:
    """Takes connections from a listening socket, and gives those who speak TLS a protocol."""

    def __init__(
        self,
        context: ssl.SSLContext,
        make: Callable[[], HttpConnection],
        is_full: Callable[[int], bool],
        patience: float,
    ) -> None:
        """Prepare.

        Args:
            context: what TLS is spoken with.
            make: makes the protocol of a connection.
            is_full: whether there are too many connections, with so many whose handshake is not over.
            patience: seconds that a handshake may take.
        """
        self._context, self._make, self._is_full, self._patience = context, make, is_full, patience
        self._shaking: set[asyncio.Task[None]] = set()
        self._taking: asyncio.Task[None] | None = None
        self._listener: socket.socket | None = None

    def start(self, listener: socket.socket) -> None:
        """Take them from now on."""
        self._listener = listener
        listener.setblocking(False)
        self._taking = asyncio.get_running_loop().create_task(self._take(listener))

    def close(self) -> None:
        """Take no more, and drop those whose handshake is not over."""
        for task in (self._taking, *self._shaking):
            if task is not None:
                task.cancel()
        if self._listener is not None:
            self._listener.close()

    async def _take(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                arrived, _ = await loop.sock_accept(listener)
            except ConnectionError:
                continue  # It has left already.
            except OSError:
                await asyncio.sleep(_NO_FILES)
                continue
            if self._is_full(len(self._shaking) + 1):
                # To tell it why would take the handshake, which is most of the work.
                arrived.close()
            else:
                task = loop.create_task(self._shake_hands(arrived))
                self._shaking.add(task)
                task.add_done_callback(self._shaking.discard)
            # While there are more nothing else would have its turn.
            await asyncio.sleep(0)

    async def _shake_hands(self, arrived: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make, arrived, ssl=self._context, ssl_handshake_timeout=self._patience
            )
        except OSError:
            arrived.close()  # It speaks no TLS, none that we do, or not in time.
        except BaseException:
            arrived.close()
            raise
