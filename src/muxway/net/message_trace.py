"""Messages on their way, for whoever looks for a fault: a log line for each, and whole messages in a file.

Nothing of this is on the way of a message unless it was asked for: then transports are wrapped when they are made.
Secrets of the configuration are masked, and the file can be read by its owner alone.
"""

from __future__ import annotations

import contextlib
import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from muxway.log import EventLog, masker
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from muxway.wire.envelopes import Buffer

_MOST_WAITING: Final = 10_000
"""Requests whose time of sending is remembered, so that the answer can tell how long it took."""
_DEEPEST: Final = 3
"""JSON texts inside each other in which secrets are found."""

log = EventLog("trace", gathered=True)


class MessageTrace:
    """Tells of messages: to the log at `debug`, and to a file if there is one."""

    def __init__(self, file: Path | None = None) -> None:
        """Begin to tell. Raises OSError if the file cannot be written."""
        self.secrets: Callable[[], Iterable[str]] = tuple
        """Gives what is never to be shown, as it is by then."""
        self._known: frozenset[str] = frozenset()
        self._mask = masker(())
        self._asked: dict[tuple[str, bool, bytes], tuple[float, str]] = {}
        self._fd = None if file is None else os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if self._fd is not None:
            # It may have been there before, for others to read.
            os.fchmod(self._fd, 0o600)

    def note(self, peer: str, frame: bytes, *, sent: bool) -> None:
        """A message was sent to a peer, or came from it. A peer is `client`, or a server by its name."""
        members = envelopes.members(frame) or {}
        method, id_ = envelopes.text(members.get("method")), bytes(members.get("id", b""))
        took = None
        if method is not None and id_:
            if len(self._asked) < _MOST_WAITING:
                self._asked[peer, sent, id_] = (time.monotonic(), method)
        elif id_:
            began, method = self._asked.pop((peer, not sent, id_), (None, None))
            took = None if began is None else round((time.monotonic() - began) * 1000, 1)
        kind = "error" if "error" in members else "result" if "result" in members else None
        way = f"to {peer}" if sent else f"from {peer}"
        id_text = id_.decode(errors="replace") or None
        log.debug("message", way=way, method=method, id=id_text, answer=kind, bytes=len(frame), ms=took)
        if self._fd is not None:
            self._write(way, frame)

    def _write(self, way: str, frame: bytes) -> None:
        text = self._masked(frame.decode(errors="replace").strip())
        # What is no message is kept as text, so that each line of the file is JSON.
        message = text.encode() if envelopes.members(text.encode()) is not None else envelopes.encode(text)
        now = envelopes.encode(datetime.now(UTC).isoformat(timespec="milliseconds"))
        line = b'{"time":%b,"way":%b,"message":%b}\n' % (now, envelopes.encode(way), message.replace(b"\n", b" "))
        with contextlib.suppress(OSError):  # a full disk must not end what is looked at
            os.write(self._fd or -1, line)

    def _masked(self, text: str) -> str:
        secrets = frozenset(self.secrets())
        if secrets != self._known:
            self._known = secrets
            # In JSON some of their characters are spelled otherwise; and tools return JSON as text inside of JSON.
            spelled = set(secrets)
            for _ in range(_DEEPEST):
                spelled |= {envelopes.encode(secret).decode()[1:-1] for secret in spelled}
            self._mask = masker(spelled)
        return self._mask(text)

    def close(self) -> None:
        """Write no more."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    # --- transports ---------------------------------------------------------------------------

    def saying(self, peer: str, say: Callable[..., None]) -> Callable[..., None]:
        """What sends frames to a peer, told of."""

        def told(frame: Sequence[Buffer], *more: Any) -> None:
            self.note(peer, b"".join(frame), sent=True)
            say(frame, *more)

        return told

    def hearing(self, peer: str, hear: Callable[..., Any]) -> Callable[..., Any]:
        """What takes frames of a peer, told of."""

        def told(frames: Sequence[Any], *more: Any, **keys: Any) -> Any:
            for frame in frames:
                if isinstance(frame, bytes):
                    self.note(peer, frame, sent=False)
            return hear(frames, *more, **keys)

        return told

    def around(self, transport: Any, server: str) -> Any:
        """The transport to a server, told of from its opening on."""
        connect = transport.open

        async def open_(hear: Callable[..., Any], *more: Any) -> None:
            await connect(self.hearing(server, hear), *more)
            # Some know where to send to only when they are open.
            transport.send = self.saying(server, transport.send)

        transport.open = open_
        return transport
