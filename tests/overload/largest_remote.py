"""The server of `largest_server` over HTTP, in threads of its own: what it sends comes as JSON, or as events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .largest_server import outcome, said
from .threaded_remote import RemoteHandler, ThreadedRemote, served

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class Remote(ThreadedRemote):
    """Answers a call with JSON if it says nothing else, or always with events."""

    def __init__(self, *, events: bool) -> None:
        super().__init__(Handler)
        self.events = events


class Handler(RemoteHandler):
    """One connection."""

    server: Remote

    def do_GET(self) -> None:  # noqa: N802 - the library's name
        self.answer(405)

    def do_POST(self) -> None:  # noqa: N802 - the library's name
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in asked or "method" not in asked:
            self.answer(202)
            return
        if asked["method"] == "tools/call":
            frames = said(asked)
        else:
            frames = [json.dumps({"jsonrpc": "2.0", "id": asked["id"], **outcome(asked)}).encode()]
        if self.server.events or len(frames) > 1:
            self.answer(200, b"".join(b"data: %b\n\n" % frame for frame in frames), "text/event-stream")
        else:
            self.answer(200, frames[0])


def remote(*, events: bool) -> AbstractContextManager[Remote]:
    """Serve on a free port of loopback."""
    return served(Remote(events=events))
