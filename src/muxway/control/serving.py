"""The gateway's end of the control socket. Whoever asks, and whatever they send, the gateway goes on as before.

A socket that cannot be opened costs a line in the log and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Final, cast

from muxway.control.answering import Answering, ControlRefused
from muxway.control.folders import ENDING, check_folder, folders, sockets, whose
from muxway.errors import ParseError
from muxway.log import EventLog
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from muxway.control.watching import Reloader
    from muxway.gateway import Gateway

_MAX_CONNECTIONS: Final = 16
_BACKLOG: Final = 128
"""Connections that wait in the system until we come to look at them."""
_MAX_REQUEST: Final = 64 * 1024
"""Bytes of one request."""
_REQUEST_WAIT: Final = 5.0
"""Seconds that a request may take to come."""
_READER_WAIT: Final = 10.0
"""Seconds that whoever asked may take to read a part of the answer."""

log = EventLog("control")


class ControlSocket:
    """Answers `muxway status` and its like for one gateway, between `start` and `stop`."""

    def __init__(
        self,
        gateway: Callable[[], Gateway | None],
        door: str,
        reloader: Reloader | None = None,
        client: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Prepare a socket.

        Args:
            gateway: whom to tell about: the one there is now, or None while there is none.
            door: how clients reach it: a URL, or `stdio`.
            reloader: reads the configuration again, if there is one to read.
            client: what its client calls itself, if it has one alone.
        """
        self._answering = Answering(gateway, door, reloader, client)
        self._path: Path | None = None
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Open the socket where it can be opened; log why if it cannot."""
        problems: list[str] = []
        for folder in folders():
            try:
                listener = self._bind(folder)
            except OSError as error:
                problems.append(f"{folder}: {error.strerror or error}")
                continue
            self._server = await asyncio.start_unix_server(
                self._converse, sock=listener, limit=_MAX_REQUEST, backlog=_BACKLOG
            )
            return
        log.warning("no control socket; muxway status and its like cannot reach this gateway", why="; ".join(problems))

    def _bind(self, folder: Path) -> socket.socket:
        folder.mkdir(mode=0o700, exist_ok=True)
        check_folder(folder)
        for _ in sockets(folder):
            pass  # Looking sweeps.
        path = folder / f"{os.getpid()}-{os.urandom(3).hex()}{ENDING}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(path))
            path.chmod(0o600)
        except OSError:
            listener.close()
            raise
        listener.setblocking(False)
        self._path = path
        return listener

    async def stop(self) -> None:
        """Close the socket and remove it. Whoever is being answered is cut off."""
        if self._server is not None:
            self._server.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        for conversation in self._conversations:
            conversation.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)

    # --- one connection -----------------------------------------------------------------------

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a stream's handler is a task
        self._conversations.add(task)
        # So that `drain` waits until all of it is gone.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            async for part in self._parts(reader, writer):
                await _say(writer, part)
        except (OSError, TimeoutError):
            pass  # Gone, or too slow to read.
        finally:
            self._conversations.discard(task)
            writer.transport.abort()

    async def _parts(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> AsyncGenerator[dict[str, object]]:
        """Hear the request; then the parts of its answer."""
        if whose(writer.get_extra_info("socket")) not in (None, os.geteuid(), 0):
            return
        try:
            if len(self._conversations) > _MAX_CONNECTIONS:
                raise ControlRefused("busy", "too many ask at the same time; try again in a moment")
            async with asyncio.timeout(_REQUEST_WAIT):
                request = await _request(reader)
            async for part in self._answering.answer(request, lambda: reader.at_eof() or writer.is_closing()):
                yield part
        except ControlRefused as refusal:
            yield _error(refusal.code, str(refusal))
        except (ConnectionError, TimeoutError):
            return
        except Exception as error:  # noqa: BLE001 - whoever asked should not take it for our end
            log.error("a question could not be answered", error=f"{type(error).__name__}: {error}")
            yield _error("failed", f"it could not be done: {type(error).__name__}: {error}")


def _error(code: str, message: str) -> dict[str, object]:
    return {"error": {"code": code, "message": message}}


async def _request(reader: asyncio.StreamReader) -> dict[str, object]:
    try:
        line = await reader.readline()
    except ValueError:
        raise ControlRefused("bad_request", f"the request is longer than {_MAX_REQUEST} bytes") from None
    if not line:
        raise ConnectionResetError
    try:
        request = envelopes.value(line)
    except ParseError:
        request = None
    if not isinstance(request, dict):
        raise ControlRefused("bad_request", "the request is not a JSON object on one line")
    return cast("dict[str, object]", request)


async def _say(writer: asyncio.StreamWriter, part: dict[str, object]) -> None:
    writer.write(envelopes.encode(part) + b"\n")
    async with asyncio.timeout(_READER_WAIT):
        await writer.drain()
