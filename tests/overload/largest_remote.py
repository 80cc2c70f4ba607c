"""The server of `largest_server` over HTTP, in threads of its own: what it sends comes as JSON, or as events."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from .largest_server import outcome, said

if TYPE_CHECKING:
    from collections.abc import Iterator


class Remote(ThreadingHTTPServer):
    """Answers a call with JSON if it says nothing else, or always with events."""

    daemon_threads = True

    def __init__(self, *, events: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.events = events

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Remote

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Nobody reads it."""

    def answer(self, status: int, body: bytes = b"", kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.answer(405)

    def do_DELETE(self) -> None:
        self.answer(200)

    def do_POST(self) -> None:
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


@contextlib.contextmanager
def remote(*, events: bool) -> Iterator[Remote]:
    """Serve on a free port of loopback."""
    with Remote(events=events) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(10)
