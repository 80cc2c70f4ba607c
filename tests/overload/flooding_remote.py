"""A remote server that floods one of its event streams, in threads of its own: what that costs is not counted."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import TYPE_CHECKING, Any

from .threaded_remote import RemoteHandler, ThreadedRemote, served

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 65_536


def event(data: bytes) -> bytes:
    return b"data: %b\n\n" % data


KINDS = {
    "comments": b":\n\n",
    "blank": b"\n",
    "fields": b"id: 1\n",
    "others": b"event: x\ndata: 1\n\n",
    "junk": b"data:y\n\n",
    "notices": event(b'{"jsonrpc":"2.0","method":"notifications/nobody/knows","params":{"x":1}}'),
    "logs": event(b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'),
    "changes": event(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'),
    "answers": event(b'{"jsonrpc":"2.0","id":1,"result":{}}'),
    "lines": b"data:\n",
    "endless": b"data: " + b"y" * (CHUNK - 6),
    "comment": b":" * CHUNK,
    "crumbs": b":",
}
TOOLS = [{"name": "flood", "inputSchema": {"type": "object"}}]


class Flooding(ThreadedRemote):
    """Answers until its tool is called; that call it never answers. It floods the stream of the call, or another."""

    def __init__(self, kind: str, where: str) -> None:
        """`where`: "answer" or "get" (Streamable HTTP), or "sse" (HTTP+SSE)."""
        super().__init__(Handler)
        # All in one chunk, or each byte in one of its own.
        content = KINDS[kind] * (CHUNK // len(KINDS[kind]))
        self.chunk = b"1\r\n:\r\n" * CHUNK if kind == "crumbs" else b"%x\r\n%b\r\n" % (len(content), content)
        self.where = where
        self.called = threading.Event()
        self.over = threading.Event()
        self.stream: Handler | None = None
        """The open stream of HTTP+SSE, where all answers go."""


class Handler(RemoteHandler):
    """One connection."""

    server: Flooding

    def begin(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def say(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def flood(self) -> None:
        # The other side hangs up in the end: that is what is tested.
        with contextlib.suppress(OSError):
            while not self.server.over.is_set():
                self.wfile.write(self.server.chunk)
        self.close_connection = True

    def do_GET(self) -> None:  # noqa: N802 - the library's name
        server = self.server
        if server.where == "answer":
            self.answer(405)
            return
        self.begin()
        if server.where == "sse":
            server.stream = self
            self.say(b"event: endpoint\ndata: /post\n\n")
        server.called.wait()
        self.flood()

    def do_POST(self) -> None:  # noqa: N802 - the library's name
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method = message.get("method")
        sse = self.server.where == "sse"
        if sse and self.path != "/post":
            self.answer(405)
        elif method == "tools/call" and self.server.where == "answer":
            self.begin()
            self.flood()
        elif method == "tools/call":
            self.server.called.set()
            if sse:
                self.answer(202)
            else:
                self.server.over.wait()
        elif "id" not in message:
            self.answer(202)
        else:
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome(message)}).encode()
            if sse:
                assert self.server.stream is not None
                self.server.stream.say(event(body))
            self.answer(202 if sse else 200, b"" if sse else body)


def outcome(message: dict[str, Any]) -> dict[str, Any]:
    if message["method"] == "initialize":
        info = {"name": "flood", "version": "1"}
        capabilities = {"tools": {"listChanged": True}, "logging": {}}
        version = message["params"]["protocolVersion"]
        return {"result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}}
    if message["method"] == "tools/list":
        return {"result": {"tools": TOOLS}}
    return {"error": {"code": -32601, "message": "no"}}


@contextlib.contextmanager
def flooding(kind: str, where: str) -> Iterator[Flooding]:
    """Serve on a free port of loopback."""
    with served(Flooding(kind, where)) as server:
        try:
            yield server
        finally:
            server.over.set()
            server.called.set()
