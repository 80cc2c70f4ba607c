"""More connections than there may be, or than the system has files for; and those that only hold their place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muxway import demo
from muxway.clients.transports.http_server import Limits
from muxway.testing import ScriptedServer

from ..pace import PATIENCE
from ..serve.harness import modern
from ..serve.running import Running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from ..serve.harness import Opened, Web
    from .conftest import Logged

    Webs = Callable[..., AbstractAsyncContextManager[Web]]

FEW_FILES = 48
"""So few that they run out before the limit of connections, which leaves a quarter of them for servers."""


async def ping(http: Web, opened: Opened) -> int:
    """Ask over a connection that is open already; the status."""
    opened.writer.write(f"GET /healthz HTTP/1.1\r\nHost: {http.host}\r\n\r\n".encode())
    await opened.head()
    await opened.rest()
    return opened.status


# --- too many ---------------------------------------------------------------------------------


async def test_connections_above_the_limit_get_503_and_the_others_go_on(web: Webs, logged: Logged) -> None:
    """docs/behaviour.md#too-much-at-once: a limit of connections, then 503 at once."""
    async with web(limits=Limits(connections=3)) as http:
        inside = [await http.connect() for _ in range(3)]
        assert [await ping(http, opened) for opened in inside] == [200, 200, 200]
        for _ in range(5):
            began = time.monotonic()
            outside = await http.connect()
            assert await ping(http, outside) == 503
            assert outside.headers["retry-after"] == "1"
            assert outside.headers["connection"] == "close"
            assert await outside.closed() == b""
            assert time.monotonic() - began < 5
            outside.writer.close()
        assert [await ping(http, opened) for opened in inside] == [200, 200, 200]
        inside[0].drop()
        async with asyncio.timeout(PATIENCE):
            while await ping(http, await http.connect()) != 200:
                await asyncio.sleep(0.01)
        assert len(logged("too many connections: new ones are refused")) <= 1


async def test_whoever_stays_after_a_503_is_thrown_out(web: Webs) -> None:
    """Ours: a connection above the limit does not take part of the limit's purpose away."""
    async with web(limits=Limits(connections=1)) as http:
        inside = await http.connect()
        assert await ping(http, inside) == 200
        crowd = [await http.connect() for _ in range(40)]
        for opened in crowd:
            said = await opened.closed()
            # The first ones are told why; so many at once are just closed.
            assert said == b"" or said.startswith(b"HTTP/1.1 503 ")
        assert await ping(http, inside) == 200


def test_files_are_left_for_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: connections do not take every file that the system gives us."""
    room = {}
    for files in (64, 256, 1024, 20_000, 1_000_000, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        room[files] = Limits().room()
    assert room == {
        64: 48,
        256: 192,
        1024: 768,
        20_000: 16_000,
        1_000_000: 16_000,
        resource.RLIM_INFINITY: 16_000,
    }


async def test_who_still_sends_when_he_is_refused_hears_why(web: Webs) -> None:
    """docs/errors.md#over-http: a connection closed with something unread would be reset, and the answer lost."""
    async with web() as http:
        for _ in range(10):
            opened = await http.raw(f"GET /healthz HTTP/1.1\r\nHost: {http.host}\r\n".encode())
            with contextlib.suppress(ConnectionError):
                for number in range(64):
                    opened.writer.write(b"X-%d: " % number + b"x" * 4096 + b"\r\n")
                    await opened.writer.drain()
            assert (await opened.head()).status == 431
            opened.drop()


class Served(Running):
    """`muxway serve` with few files, and one server behind it."""

    def __init__(self, folder: Path) -> None:
        config = demo.config()
        config["mcpServers"] = {"text": config["mcpServers"]["text"]}
        file, self.log = folder / "servers.json", folder / "stderr"
        file.write_text(json.dumps(config))
        limit = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({FEW_FILES},) * 2); "
        run = "os.execv(sys.executable, [sys.executable, '-m', 'muxway', *sys.argv[1:]])"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", limit + run, "serve", "-c", str(file), "--port", "0"], stderr=log
            )
        self.port = int(self.until(r"listens on http://127\.0\.0\.1:(\d+)")[1])
        self.until("1 of 1 servers up")

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 2)

    def call(self, connection: socket.socket) -> bytes:
        """Call a tool; all that is answered."""
        message, headers = modern("tools/call", {"name": "text__count", "arguments": {"text": "one two"}})
        body = json.dumps(message).encode()
        given = {"Host": f"127.0.0.1:{self.port}", "Content-Type": "application/json", **headers}
        lines = [f"{name}: {value}" for name, value in given.items()]
        head = "\r\n".join(["POST /mcp HTTP/1.1", *lines, f"Content-Length: {len(body)}", "", ""])
        with contextlib.suppress(OSError):
            connection.sendall(head.encode() + body)
            return connection.recv(65536)
        return b""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.process.terminate()
    try:
        assert served.process.wait(PATIENCE) == 0
    finally:
        served.process.kill()
        served.process.wait()


def test_without_files_the_open_connections_go_on_and_new_ones_follow_when_there_are_some(served: Served) -> None:
    """docs/behaviour.md#too-much-at-once: no files left; no spinning, no crash, and back at once."""
    first = served.connect()
    assert served.call(first).startswith(b"HTTP/1.1 200 ")
    crowd = [served.connect() for _ in range(2 * FEW_FILES)]
    answered = [connection for connection in crowd if served.call(connection).startswith(b"HTTP/1.1 200 ")]
    assert 0 < len(answered) < FEW_FILES
    before = served.cpu_seconds
    time.sleep(1.0)
    assert served.cpu_seconds - before < 0.5
    assert served.call(first).startswith(b"HTTP/1.1 200 ")
    for connection in crowd:
        connection.close()
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.closing(served.connect()) as newcomer:
            if served.call(newcomer).startswith(b"HTTP/1.1 200 "):
                break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.close()
    assert len(served.said().splitlines()) < 50


# --- slow ones --------------------------------------------------------------------------------


@pytest.mark.parametrize("quick", [True, False])
async def test_a_connection_that_rests_is_closed(quick: bool, web: Webs) -> None:
    """docs/security.md#what-is-promised-threat-by-threat.

    Idle 75 s, here 1; after a quick answer and after a usual one.
    """
    async with web({"s": ScriptedServer(tools={"echo": None})}, idle_connection=1) as http:
        opened = await (http.open_stateless("tools/list") if quick else http.open("GET", "/healthz"))
        assert opened.status == 200
        await opened.rest()
        began = time.monotonic()
        assert await opened.closed() == b""
        assert 0.5 < time.monotonic() - began < 8


async def test_a_connection_that_is_used_is_not_closed(web: Webs) -> None:
    """Ours: each request begins the time anew."""
    async with web(idle_connection=1) as http:
        opened = await http.connect()
        for _ in range(8):
            assert await ping(http, opened) == 200
            await asyncio.sleep(0.25)


def test_the_times_are_those_that_are_promised() -> None:
    """docs/security.md#what-is-promised-threat-by-threat: header 10 s, body 30 s, write stall 10 s, idle 75 s."""
    limits = Limits()
    assert (limits.header_seconds, limits.body_seconds, limits.stall_seconds) == (10, 30, 10)
    assert limits.idle_seconds == 75
