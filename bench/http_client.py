"""One client of an HTTP target: its connection, its session, and one request at a time under way.

Everything is raw bytes on a keep-alive socket, because a client library would cost more than the gateway it measures.
Requests are formatted from a template in which only the id differs; ids have the same number of digits, so an answer
that comes in one piece and has the usual length is whole, and only others are taken apart.
"""

from __future__ import annotations

import json
import re
import socket
import struct
from typing import TYPE_CHECKING, Any

from bench.echo_server import padding
from bench.process import REVISION, TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.http_targets import HttpRunning

CLIENT = {"name": "muxway-bench", "version": "1"}
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE).search
CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE).search
SESSION = re.compile(rb"\r\nmcp-session-id: *([^\r]+)", re.IGNORECASE).search
ANSWER = 1 << 18
"""The most that one `recv` takes: any answer of the benchmark."""


class Client:
    """A client of Streamable HTTP: each answer comes on the connection that asked for it."""

    def __init__(self, target: HttpRunning) -> None:
        self.target = target
        self.sent = 0.0
        """When the present request was sent."""
        self._socket = connect(target.port)
        self.head = self._make_head("/mcp")
        """The header of every POST but the value of its length. Has the session: clients can swap theirs."""
        self._template = b""
        self._marks = (b"", b"")
        self._usual = 0
        self._rest = b""

    def _make_head(self, path: str, *more: bytes) -> bytes:
        """The request line and headers of a POST, up to the value of its length."""
        lines = (
            b"POST %b HTTP/1.1" % path.encode(),
            b"Host: 127.0.0.1:%d" % self.target.port,
            b"Content-Type: application/json",
            b"Accept: application/json, text/event-stream",
            *more,
            b"Content-Length: ",
        )
        return b"\r\n".join(lines)

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """What to wait on for an answer."""
        return (self._socket,)

    # Set-up: whole messages, decoded

    def handshake(self) -> None:
        """Open a new session, if the target has any."""
        self.head = self._make_head("/mcp")
        opened = self.ask("initialize", {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": CLIENT})
        revision = b"MCP-Protocol-Version: " + opened["protocolVersion"].encode()
        session = [b"Mcp-Session-Id: " + found[1]] if (found := SESSION(self._rest)) else []
        self.head = self._make_head("/mcp", revision, *session)
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self._response()

    def another(self) -> Client:
        """Another connection of the same session."""
        client = Client(self.target)
        client.head = self.head
        # Thousands of these are closed at once: without this their ports would be taken for a minute.
        client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return client

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Make one request and return its result."""
        number = next(self.target.ids)
        self._post({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return self._result(number, self._response())

    def _post(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        self._socket.sendall(self.head + b"%d\r\n\r\n%b" % (len(body), body))

    def _response(self) -> bytes:
        """Read one response; leave it, with its header, in `_rest` too."""
        self._rest = b""
        while not is_whole(self._rest):
            self._rest += self._recv(self._socket)
        if self._rest[9:10] != b"2":
            raise TargetError(f"{self.target.name} answered {self._rest[:300].decode(errors='replace')!r}")
        return self._rest

    def _result(self, number: int, data: bytes) -> dict[str, Any]:
        for message in messages_in(data):
            if message.get("id") == number and "method" not in message:
                if "result" not in message:
                    raise TargetError(f"{self.target.name} answered with an error: {message.get('error')}")
                return message["result"]
        raise TargetError(f"{self.target.name} gave no answer: {data[:300]!r}")

    def _recv(self, source: socket.socket) -> bytes:
        data = source.recv(ANSWER)
        if not data:
            raise TargetError(f"{self.target.name} closed a connection")
        return data

    # Calls

    def reconnect(self) -> None:
        """Take a new connection: servers close one that was idle while others had their turn."""
        self._socket.close()
        self._socket = connect(self.target.port)

    def prepare(self, tool: str, size: int) -> None:
        """From now on `send` calls this tool; check once, in full, that its result is right."""
        call = b'{"jsonrpc":"2.0","id":%%d,"method":"tools/call","params":{"name":"%b",'
        call += b'"arguments":{"token":"tok-%%d-","size":%d}}}'
        body = call % (tool.encode(), size)
        length = len(body % (1_000_000, 1_000_000))
        self._template = self.head.replace(b"%", b"%%") + b"%d\r\n\r\n" % length + body
        number = next(self.target.ids)
        token = f"tok-{number}-"
        result = self.ask("tools/call", {"name": tool, "arguments": {"token": token, "size": size}})
        if result["content"] != [{"type": "text", "text": token + padding(size - len(token))[0]}]:
            raise TargetError(f"{self.target.name} gave a wrong result: {str(result)[:300]}")
        self._rest = b""

    def send(self, number: int) -> None:
        """Call the tool."""
        self._marks = b'"id":%d' % number, b"tok-%d-" % number
        self._socket.send(self._template % (number, number))

    def receive(self, source: socket.socket) -> bool:
        """Read what is there; whether the call now has its answer. Raises TargetError if it is a wrong one."""
        data = source.recv(ANSWER)
        if len(data) != self._usual or self._rest:
            if not data:
                raise TargetError(f"{self.target.name} closed a connection")
            data = self._rest = self._rest + data
            if not is_whole(data):
                return False
            self._usual, self._rest = len(data), b""
        identity, token = self._marks
        if identity not in data or token not in data:
            raise TargetError(f"{self.target.name} gave another answer: {data[:400]!r}")
        return True

    def close(self) -> None:
        """Leave."""
        for each in self.sockets:
            each.close()


class SseClient(Client):
    """A client of HTTP+SSE: requests are POSTs that are answered with 202, results come on a stream of their own."""

    def __init__(self, target: HttpRunning, path: str) -> None:
        super().__init__(target)
        self._stream = connect(target.port)
        accept = "Accept: text/event-stream\r\n\r\n"
        self._stream.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{target.port}\r\n{accept}".encode())
        heard = b""
        while not (found := re.search(rb"\ndata: ?(/[^\r\n]+)\r?\n", heard)):
            heard += self._recv(self._stream)
        self.head = self._make_head(found[1].decode())
        self._heard = b""
        self._accepted = False

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        return self._socket, self._stream

    def handshake(self) -> None:
        self.ask("initialize", {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": CLIENT})
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self._response()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        number = next(self.target.ids)
        self._post({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        self._response()
        heard = b""
        while b'"id":%d' % number not in heard or not heard.endswith(b"\n\n\r\n"):
            heard += self._recv(self._stream)
        return self._result(number, heard)

    def receive(self, source: socket.socket) -> bool:
        data = source.recv(ANSWER)
        if not data:
            raise TargetError(f"{self.target.name} closed a connection")
        if source is self._socket:
            self._accepted = data.startswith(b"HTTP/1.1 202")
        else:
            self._heard += data
        identity, token = self._marks
        heard = identity in self._heard and token in self._heard and self._heard.endswith(b"\n\n\r\n")
        if not (heard and self._accepted):
            return False
        if self._heard.count(b'"id":') != 1:
            raise TargetError(f"{self.target.name} gave the answer to somebody else's request: {self._heard[:400]!r}")
        self._heard, self._accepted = b"", False
        return True


def connect(port: int) -> socket.socket:
    """A connection that sends at once, as every HTTP client's does."""
    opened = socket.create_connection(("127.0.0.1", port), timeout=None)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def is_whole(data: bytes) -> bool:
    """Whether this is one complete response."""
    head, found, body = data.partition(b"\r\n\r\n")
    if not found:
        return False
    if length := LENGTH(head):
        return len(body) >= int(length[1])
    if CHUNKED(head):
        return data.endswith(b"\r\n0\r\n\r\n")
    return head[9:12] in (b"202", b"204")


def messages_in(data: bytes) -> Iterator[dict[str, Any]]:
    """The JSON-RPC messages of a response or a piece of an event stream, whatever frames them."""
    for line in data.splitlines():
        text = line.removeprefix(b"data:").strip()
        if text.startswith(b"{"):
            yield json.loads(text)
