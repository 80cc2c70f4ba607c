"""A remote server in threads of its own: what it costs is not counted."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator


class ThreadedRemote(ThreadingHTTPServer):
    """Listens on a free port of loopback."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"


class RemoteHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Nobody reads it."""

    def answer(self, status: int, body: bytes = b"", kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_DELETE(self) -> None:
        self.answer(200)


R = TypeVar("R", bound=ThreadedRemote)


@contextlib.contextmanager
def served(remote: R) -> Iterator[R]:
    """Serve until the end."""
    with remote:
        thread = threading.Thread(target=remote.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield remote
        finally:
            remote.shutdown()
            thread.join(10)
