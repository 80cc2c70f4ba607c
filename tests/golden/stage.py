"""The gateway as a process, and the peers around it: a test speaks for each of them, in turn.

What a peer hears is written down when the walk asks for it, not when it arrives, so that a transcript does not depend
on who was quicker. What nobody asked for is written down at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..pace import PATIENCE
from .transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

MUXWAY = (sys.executable, "-m", "muxway")
MODERN = "2026-07-28"
BOTH = "application/json, text/event-stream"

Message = dict[str, Any]


def encoded(message: Message | bytes) -> bytes:
    """A message as bytes; bytes are as they are."""
    return message if isinstance(message, bytes) else json.dumps(message, separators=(",", ":")).encode()


def modern(params: Message | None = None, capabilities: Message | None = None) -> Message:
    """Params of a stateless request."""
    return {
        **(params or {}),
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": capabilities or {},
            "io.modelcontextprotocol/clientInfo": {"name": "golden", "version": "9"},
            **(params or {}).get("_meta", {}),
        },
    }


class Voice:
    """One peer's side of a stream of lines."""

    def __init__(self, stage: Stage, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._stage, self.name, self._reader, self._writer = stage, name, reader, writer
        self._asked = 0

    def say(self, message: Message | bytes) -> None:
        """Send one line."""
        self._stage.transcript.said(self.name, "gateway", encoded(message))
        self._writer.write(encoded(message) + b"\n")

    async def hear(self) -> Message:
        """The next line."""
        line = await asyncio.wait_for(self._reader.readline(), PATIENCE)
        assert line, f"{self.name} hears no more: {self._stage.log()}"
        self._stage.transcript.said("gateway", self.name, line)
        return json.loads(line)

    async def ask(self, method: str, params: Message | None = None, id_: str | None = None) -> Message:
        """Send a request and hear everything up to its answer."""
        self._asked += 1
        id_ = id_ or f"c{self._asked}"
        self.say({"jsonrpc": "2.0", "id": id_, "method": method, **({} if params is None else {"params": params})})
        while (heard := await self.hear()).get("id") != id_:
            pass
        return heard

    def tell(self, method: str, params: Message | None = None) -> None:
        """Send a notification."""
        self.say({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})

    def answer(self, request: Message, result: Message) -> None:
        """Answer a request."""
        self.say({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def rest(self) -> None:
        """Write down what nobody asked for, up to the end."""
        with contextlib.suppress(ConnectionError):
            while line := await asyncio.wait_for(self._reader.readline(), PATIENCE):
                self._stage.transcript.said("gateway", self.name, line)

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


class LineServer:
    """A server that the gateway starts. Each start is a `Voice`."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage, self.name = stage, name
        self._path = f"{stage.folder}/{name}"
        self._starts: asyncio.Queue[Voice] = asyncio.Queue()
        self.voices: list[Voice] = []
        self._listening: asyncio.Server | None = None

    def entry(self, **more: Any) -> Message:
        """Its entry in the configuration."""
        program = str(Path(__file__).with_name("pipe_server.py"))
        return {"command": sys.executable, "args": ["-IS", program, self._path], **more}

    async def open(self) -> None:
        """Wait for starts."""
        self._listening = await asyncio.start_unix_server(self._started, self._path)

    def _started(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._starts.put_nowait(Voice(self._stage, self.name, reader, writer))

    async def started(self) -> Voice:
        """The next start."""
        voice = await asyncio.wait_for(self._starts.get(), PATIENCE)
        self.voices.append(voice)
        return voice

    async def close(self) -> None:
        """Take no more starts, and write down what is left."""
        while not self._starts.empty():
            self._stage.transcript.remark(f"{self.name} was started once more")
            self.voices.append(self._starts.get_nowait())
        for voice in self.voices:
            await voice.rest()
            voice.close()
        if self._listening is not None:
            self._listening.close()


@dataclass
class Request:
    """A request that an HTTP server got. It is written down when the walk takes it."""

    method: str
    path: str
    head: bytes
    body: bytes
    _server: HttpServer
    _writer: asyncio.StreamWriter

    @property
    def message(self) -> Message:
        """What it carries."""
        return json.loads(self.body) if self.body else {}

    def reply(self, result: Message, *headers: str) -> None:
        """Answer the request it carries, as JSON."""
        self.respond(200, encoded({"jsonrpc": "2.0", "id": self.message["id"], "result": result}), *headers)

    def respond(self, status: int, body: bytes = b"", *headers: str) -> None:
        """A whole response."""
        typed = ("Content-Type: application/json",) if body else ()
        self._write([f"HTTP/1.1 {status} Fine", f"Content-Length: {len(body)}", *typed, *headers], body)

    def stream(self, *headers: str) -> None:
        """Begin a stream of events."""
        kind = ("Content-Type: text/event-stream", "Transfer-Encoding: chunked")
        self._write(["HTTP/1.1 200 Fine", *kind, *headers], b"")

    def event(self, message: Message | bytes) -> None:
        """One event of a stream."""
        data = b"data: " + encoded(message) + b"\n\n"
        self._server.stage.transcript.said(self._server.name, "gateway", data)
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        """The end of a stream."""
        self._writer.write(b"0\r\n\r\n")

    def _write(self, lines: list[str], body: bytes) -> None:
        data = "\r\n".join((*lines, "", "")).encode() + body
        self._server.stage.transcript.said(self._server.name, "gateway", data)
        self._writer.write(data)


class HttpServer:
    """A server on loopback: every request waits until the walk answers it."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage, self.name = stage, name
        self._waiting: deque[Request] = deque()
        self._came = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []
        self._listening: asyncio.Server | None = None
        self._port = 0

    def entry(self, **more: Any) -> Message:
        """Its entry in the configuration."""
        return {"url": f"http://127.0.0.1:{self._port}/mcp", **more}

    async def open(self) -> None:
        """Listen."""
        self._listening = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self._port = self._listening.sockets[0].getsockname()[1]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length:\s*(\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1])) if length else b""
                method, path, _ = head.split(b" ", 2)
                self._waiting.append(Request(method.decode(), path.decode(), head, body, self, writer))
                self._came.set()
                if method == b"DELETE":
                    # The last word of a gateway that ends; the walk is over by then.
                    writer.write(b"HTTP/1.1 200 Fine\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def request(self, method: str = "POST", of: str | None = None) -> Request:
        """The first request that waits, of this HTTP method and, if given, this method of MCP."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for request in self._waiting:
                    if request.method == method and of in (None, request.message.get("method")):
                        self._waiting.remove(request)
                        self._took(request)
                        return request
                self._came.clear()
                await self._came.wait()

    def _took(self, request: Request) -> None:
        self.stage.transcript.said("gateway", self.name, request.head + request.body)

    async def close(self) -> None:
        """Hang up, and write down what is left."""
        for request in sorted(self._waiting, key=lambda request: (request.method, request.body)):
            self._took(request)
        for writer in self._writers:
            writer.close()
        if self._listening is not None:
            self._listening.close()


class Response:
    """What comes back to a client over HTTP."""

    def __init__(self, stage: Stage, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._stage, self._name, self._reader, self._writer = stage, name, reader, writer
        self._head = self._buffer = b""

    def header(self, name: str) -> str:
        """One header."""
        found = re.search(rf"^{name}:\s*(.*?)\r$", self._head.decode(), re.IGNORECASE | re.MULTILINE)
        assert found, f"no {name} in {self._head!r}"
        return found[1]

    async def head(self) -> Response:
        """Read the status and the headers; write them down with the body, if its length is told."""
        self._head = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), PATIENCE)
        if b"chunked" not in self._head:
            length = re.search(rb"content-length:\s*(\d+)", self._head, re.IGNORECASE)
            self._buffer = await asyncio.wait_for(self._reader.readexactly(int(length[1])), PATIENCE) if length else b""
        self._stage.transcript.said("gateway", self._name, self._head + self._buffer)
        return self

    @property
    def message(self) -> Message:
        """The message in the body."""
        return json.loads(self._buffer)

    async def event(self) -> str:
        """The next event, written down. Comments that keep a stream alive are passed over."""
        while True:
            while b"\n\n" not in self._buffer:
                chunk = await self._chunk()
                assert chunk, "the stream has ended"
                self._buffer += chunk.replace(b"\r\n", b"\n")
            event, _, self._buffer = self._buffer.partition(b"\n\n")
            if not event.startswith(b":"):
                self._stage.transcript.said("gateway", self._name, event)
                return event.decode()

    async def heard(self) -> Message:
        """The message of the next event that has one."""
        while True:
            data = [line[5:].strip() for line in (await self.event()).split("\n") if line.startswith("data:")]
            if any(data):
                return json.loads("\n".join(data))

    async def ended(self) -> None:
        """See that a stream ends here."""
        rest = await self._chunk()
        assert not rest, rest
        self._stage.transcript.remark(f"the stream to {self._name} ends")
        self.close()

    async def _chunk(self) -> bytes:
        size = int(await asyncio.wait_for(self._reader.readline(), PATIENCE), 16)
        return (await asyncio.wait_for(self._reader.readexactly(size + 2), PATIENCE))[:-2]

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


@dataclass
class HttpClient:
    """A client of `muxway serve`; each request has a connection of its own."""

    stage: Stage
    name: str
    headers: dict[str, str] = field(default_factory=dict)

    async def send(self, method: str, path: str, message: Message | bytes = b"", **headers: str) -> Response:
        """Send a request and read the head of its response."""
        body = encoded(message) if message else b""
        given = {"Host": f"127.0.0.1:{self.stage.port}", "Accept": BOTH, **self.headers}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        if body:
            given |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
        data = "\r\n".join(lines).encode() + body
        self.stage.transcript.said(self.name, "gateway", data)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.stage.port, limit=1 << 20)
        self.stage.opened.append(writer)
        writer.write(data)
        return await Response(self.stage, self.name, reader, writer).head()

    async def post(self, message: Message | bytes, path: str = "/mcp", **headers: str) -> Response:
        """POST a message."""
        return await self.send("POST", path, message, **headers)

    async def ask(self, id_: str, method: str, params: Message | None = None, path: str = "/mcp") -> Response:
        """Make a request of a session."""
        return await self.post({"jsonrpc": "2.0", "id": id_, "method": method, "params": params or {}}, path)

    async def ask_modern(
        self, id_: str, method: str, params: Message | None = None, capabilities: Message | None = None
    ) -> Response:
        """Make a stateless request."""
        message: Message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": modern(params, capabilities)}
        named = {"Mcp_Name": params["name"]} if params and "name" in params else {}
        return await self.post(message, MCP_Protocol_Version=MODERN, Mcp_Method=method, **named)

    async def hello(self, revision: str, capabilities: Message | None = None, path: str = "/mcp") -> None:
        """Open a session."""
        answer = await self.ask("c0", "initialize", introduction(revision, capabilities), path)
        self.headers["Mcp-Session-Id"] = answer.header("mcp-session-id")
        if revision >= "2025-06-18":
            self.headers["MCP-Protocol-Version"] = revision
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, path)


def introduction(revision: str, capabilities: Message | None = None) -> Message:
    """How a client with a handshake introduces itself."""
    info = {"name": "golden", "version": "9"}
    return {"protocolVersion": revision, "capabilities": capabilities or {}, "clientInfo": info}


class Stage:
    """Everything of one walk."""

    def __init__(self, title: str, folder: Path, command: Sequence[str]) -> None:
        self.transcript = Transcript(title)
        self.folder = folder
        self._command = command
        self.port = 0
        self.opened: list[asyncio.StreamWriter] = []
        self._servers: list[LineServer | HttpServer] = []
        self._process: asyncio.subprocess.Process | None = None
        self._client: Voice | None = None

    async def line_server(self, name: str) -> LineServer:
        """A server that will be started by the gateway."""
        server = LineServer(self, name)
        await server.open()
        self._servers.append(server)
        return server

    async def http_server(self, name: str) -> HttpServer:
        """A server on loopback."""
        server = HttpServer(self, name)
        await server.open()
        self._servers.append(server)
        return server

    def configure(self, servers: Message, **top: Any) -> None:
        """Write the configuration."""
        (self.folder / "servers.json").write_text(json.dumps({"mcpServers": servers, **top}))

    async def stdio(self, *words: str) -> Voice:
        """Start `muxway stdio`; its client."""
        process = await self._start("stdio", *words)
        assert process.stdin is not None
        assert process.stdout is not None
        self._client = Voice(self, "client", process.stdout, process.stdin)
        return self._client

    async def serve(self, *words: str) -> None:
        """Start `muxway serve`."""
        await self._start("serve", "--port", "0", "--no-watch", *words)
        async with asyncio.timeout(PATIENCE):
            while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", self.log())):
                await asyncio.sleep(0.01)
        self.port = int(found[1])

    async def ready(self) -> None:
        """Wait until every server is up, as /readyz tells."""
        async with asyncio.timeout(PATIENCE):
            while True:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(f"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n".encode())
                status = await reader.readline()
                writer.close()
                if b" 200 " in status:
                    return
                await asyncio.sleep(0.01)

    def client(self, name: str = "client") -> HttpClient:
        """A client of `serve`."""
        return HttpClient(self, name)

    def signal(self, number: signal.Signals) -> None:
        """Send the gateway a signal."""
        assert self._process is not None
        self.transcript.remark(f"{number.name} to the gateway")
        self._process.send_signal(number)

    def log(self) -> str:
        """What the gateway wrote to stderr."""
        return (self.folder / "stderr").read_text()

    async def _start(self, *words: str) -> asyncio.subprocess.Process:
        self.transcript.remark(f"muxway {' '.join(words)}")
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
        homes = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "TMPDIR")
        with (self.folder / "stderr").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(*self._command, *words, "--config", str(self.folder / "servers.json")),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=1 << 20,
                env={**kept, **dict.fromkeys(homes, str(self.folder))},
            )
        return self._process

    async def finish(self) -> None:
        """End the gateway as its user would, and write down what was still said."""
        assert self._process is not None
        assert self._process.stdin is not None
        for writer in self.opened:
            writer.close()
        if self._client is not None:
            self.transcript.remark("the client closes its side")
            self._process.stdin.close()
            await self._client.rest()
        else:
            self.signal(signal.SIGTERM)
        status = await asyncio.wait_for(self._process.wait(), PATIENCE)
        for server in self._servers:
            await server.close()
        self.transcript.remark(f"muxway ends with status {status}")

    def abort(self) -> None:
        """End the gateway, if a walk failed."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


@contextlib.asynccontextmanager
async def a_stage(title: str, command: Sequence[str] = MUXWAY) -> AsyncIterator[Stage]:
    """A stage in a folder of its own, whose name is short: sockets have no long ones."""
    folder = Path(tempfile.mkdtemp(prefix="mw-"))
    stage = Stage(title, folder, command)
    try:
        yield stage
        await stage.finish()
    finally:
        stage.abort()
        shutil.rmtree(folder, ignore_errors=True)


async def transcribe(title: str, walk: Callable[[Stage], Any]) -> str:
    """Go a walk; its transcript."""
    async with a_stage(title) as stage:
        try:
            await walk(stage)
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"{stage.transcript.text}\n{stage.log()}\nThe walk ends here.") from error
    return stage.transcript.text
