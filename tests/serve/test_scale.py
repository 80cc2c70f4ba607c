"""Many clients at once: thousands of sessions and of connections that mostly do nothing. Counts, never clocks."""

from __future__ import annotations

import json
import resource
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest

from ..pace import PATIENCE
from .harness import BOTH, initialize, request
from .test_serve import Served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SESSIONS = 5_000
CONNECTIONS = 10_000
SPARE_FILES = 1_100
"""Files that this process and the command need besides their connections."""
PING = request("ping")


class Wire:
    """One keep-alive connection, as cheap as can be: ten thousand of them fit into a test."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._host = f"127.0.0.1:{port}"

    def post(self, message: object, session: str | None = None) -> tuple[int, dict[str, str], Any]:
        """Send a message to `/mcp`; status, headers and body of the answer."""
        body = json.dumps(message).encode()
        headers = {"Host": self._host, "Content-Type": "application/json", "Accept": BOTH, "Content-Length": len(body)}
        if session is not None:
            headers["Mcp-Session-Id"] = session
        lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        self._socket.sendall("\r\n".join(lines).encode() + body)
        return self._answer()

    def _answer(self) -> tuple[int, dict[str, str], Any]:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._receive()
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < int(headers["content-length"]):
            body += self._receive()
        return int(first.split()[1]), headers, json.loads(body) if body else None

    def _receive(self) -> bytes:
        data = self._socket.recv(65536)
        assert data, "the connection was closed"
        return data

    def open_session(self) -> str:
        """Shake hands; the id of the session."""
        status, headers, answer = self.post(initialize())
        assert status == 200, answer
        return headers["mcp-session-id"]

    def count_words(self, text: str, session: str) -> Any:
        """What the demo's `text__count` says."""
        status, _, answer = self.post(
            request("tools/call", {"name": "text__count", "arguments": {"text": text}}), session
        )
        assert status == 200, answer
        return answer["result"]

    def close(self) -> None:
        """Break off, so that the port is free again at once."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """`muxway serve` in front of the demo servers."""
    served = Served(tmp_path)
    try:
        yield served
        assert served.end()[0] == 0
    finally:
        served.process.kill()
        served.process.wait()


@pytest.fixture
def many_files() -> Iterator[None]:
    """Allow this process as many open files as there will be connections; the command does so by itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + SPARE_FILES
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.fail(f"the system allows {hard} open files, this test needs {wanted}: raise `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_five_thousand_sessions_stay_open_and_each_still_answers(served: Served) -> None:
    """docs/service.md#how-much-it-holds: 10,000 sessions; here 5,000 that idle."""
    wire = Wire(served.port)
    sessions = [wire.open_session() for _ in range(SESSIONS)]
    assert len(set(sessions)) == SESSIONS
    expected = wire.count_words("one two three", sessions[0])
    assert "3" in json.dumps(expected)
    assert [session for session in sessions if wire.count_words("one two three", session) != expected] == []
    wire.close()


@pytest.mark.usefixtures("many_files")
def test_ten_thousand_idle_connections_disturb_nobody_and_can_be_used_again(served: Served) -> None:
    """docs/service.md#how-much-it-holds: 16,000 connections; here 10,000 that idle, with others undisturbed."""
    active = Wire(served.port)
    session = active.open_session()
    expected = active.count_words("one two three", session)
    idle: list[Wire] = []
    try:
        for _ in range(CONNECTIONS):
            idle.append(Wire(served.port))
            assert idle[-1].post(PING, session)[0] == 200
        for _ in range(100):
            assert active.count_words("one two three", session) == expected
        newcomer = Wire(served.port)
        assert newcomer.count_words("one two three", newcomer.open_session()) == expected
        newcomer.close()
        assert {wire.post(PING, session)[0] for wire in idle} == {200}
    finally:
        for wire in (active, *idle):
            wire.close()
