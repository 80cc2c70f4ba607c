"""The largest message of each kind that the limits allow, over each transport, holds the event loop for 20 ms at most.

docs/behaviour.md#size-limits. To copy 16 MiB in one go takes half of that by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from muxway.net.metronome import LONG

from ..serve.harness import initialize, request
from . import largest_server
from .largest_remote import remote
from .largest_server import MESSAGES, SIZES, filling, text
from .watched import Watched, watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from muxway import Gateway

ANSWERS = ("result", "error", "error message", "other member")
ASKABLE: dict[str, Any] = {"sampling": {}, "elicitation": {}, "roots": {}}
CHILD = {"command": sys.executable, "args": [largest_server.__file__], "callTimeout": 60}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Watched]:
    """In front of a child, and of remote servers that answer with JSON and with events."""
    with remote(events=False) as plain, remote(events=True) as events:
        servers = {"child": CHILD, "json": {"url": plain.url}, "events": {"url": events.url}}
        with watched(servers) as running:
            for server in servers:
                # What is loaded on first use is loaded once.
                running.call(running.session(), f"{server}__say")
            yield running


SHORT = [
    *(("child", what, "numbers", "large") for what in MESSAGES),
    *(("child", what, "members", "unasked") for what in ("log", "progress", "sampling", "elicitation")),
    *(("child", what, "escapes", "large") for what in ("result", "error message", "answer id")),
    *(("json", what, "numbers", "large") for what in ("result", "error")),
    *(("events", what, "numbers", "large") for what in ("result", "error", "sampling", "log")),
]
LONG_ONES = [
    (server, what, kind, "largest")
    for server in ("child", "json", "events")
    for what in MESSAGES
    for kind in ("numbers", "members", "escapes")
    if server == "child" or what in ANSWERS or server == "events"
]


@pytest.mark.parametrize(
    ("server", "what", "kind", "size"),
    [*SHORT, *(pytest.param(*row, marks=pytest.mark.long) for row in LONG_ONES)],
)
def test_no_message_of_a_server_holds_the_loop(server: str, what: str, kind: str, size: str, gateway: Watched) -> None:
    """Ours: 20 ms; and the call has its answer, but for what could not be read."""
    session = gateway.session(capabilities={} if size == "unasked" else ASKABLE)

    def call() -> None:
        answer = gateway.call(session, f"{server}__say", what=what, kind=kind, size=SIZES[size])
        assert b'"id":7' in answer[:4096] + answer[-4096:]
        if what == "result":
            value = filling(kind, SIZES[size] - 512)
            start = answer.index(b'"x":') + len(b'"x":')
            assert answer[start : start + len(value)] == value
            assert answer[start + len(value) :].rstrip() == b"}}"

    assert gateway.holds_for(LONG, call) < LONG


class Pipes:
    """A client on pipes, which reads and writes in another thread than the gateway's."""

    def __init__(self, gateway: Watched) -> None:
        self._stdin, self._to_door = os.pipe()
        self._from_door, self._stdout = os.pipe()
        self._rest = b""
        gateway.do(self._open)
        self.send(json.dumps(initialize()).encode())
        self.receive()

    async def _open(self, running: Gateway) -> None:
        self._door = running.stdio_door(stdin=self._stdin, stdout=self._stdout)
        self._serving = asyncio.create_task(self._door.serve())

    async def close(self, _: Gateway) -> None:
        os.close(self._to_door)
        await self._serving
        for fd in (self._stdin, self._stdout, self._from_door):
            os.close(fd)

    def send(self, frame: bytes) -> None:
        rest = memoryview(frame + b"\n")
        while rest:
            rest = rest[os.write(self._to_door, rest) :]

    def receive(self) -> bytes:
        while b"\n" not in self._rest:
            self._rest += os.read(self._from_door, 1 << 20)
        line, _, self._rest = self._rest.partition(b"\n")
        return line


@pytest.fixture(scope="module")
def pipes(gateway: Watched) -> Iterator[Pipes]:
    client = Pipes(gateway)
    with contextlib.ExitStack() as stack:
        stack.callback(gateway.do, client.close)
        yield client


def rpc(method: str, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":5,"method":"%b","params":%b}' % (method.encode(), params)


FROM_CLIENTS: dict[str, Callable[[bytes], bytes]] = {
    "arguments": lambda value: rpc("tools/call", b'{"name":"child__say","arguments":{"x":%b}}' % value),
    "arguments for a remote": lambda value: rpc("tools/call", b'{"name":"json__say","arguments":{"x":%b}}' % value),
    "meta": lambda value: rpc("tools/call", b'{"name":"child__say","_meta":{"x":%b}}' % value),
    "other param": lambda value: rpc("resources/read", b'{"uri":"file:///a","x":%b}' % value),
    "uri": lambda value: rpc("resources/read", b'{"uri":%b}' % text("escapes", len(value))),
    "name": lambda value: rpc("tools/call", b'{"name":%b}' % text("escapes", len(value))),
    "ping": lambda value: rpc("ping", b'{"x":%b}' % value),
    "notice": lambda value: b'{"jsonrpc":"2.0","method":"x","params":{"x":%b}}' % value,
    "answer": lambda value: b'{"jsonrpc":"2.0","id":1,"result":{"x":%b}}' % value,
    "batch": lambda value: b"[%b]" % value,
    "broken": lambda value: b'{"x":%b' % value,
}


@pytest.mark.parametrize(
    ("kind", "filled_with", "size"),
    [
        *((kind, "numbers", "large") for kind in FROM_CLIENTS),
        *(
            pytest.param(kind, filled_with, "largest", marks=pytest.mark.long)
            for kind in FROM_CLIENTS
            for filled_with in ("numbers", "escapes")
        ),
    ],
)
def test_no_message_of_a_client_on_pipes_holds_the_loop(
    kind: str, filled_with: str, size: str, gateway: Watched, pipes: Pipes
) -> None:
    """Ours: 20 ms; what it sends next is heard after it."""
    frame = FROM_CLIENTS[kind](filling(filled_with, SIZES[size] - 512))

    def send() -> None:
        pipes.send(frame)
        pipes.send(json.dumps(request("ping", {}, 9)).encode())
        waiting = {b'"id":9', b'"id":5'} if b'"id":5' in frame[:30] else {b'"id":9'}
        while waiting:
            answer = pipes.receive()
            waiting -= {id_ for id_ in waiting if id_ in answer[:40]}

    assert gateway.holds_for(LONG, send) < LONG


@pytest.mark.long
@pytest.mark.parametrize("server", ["child", "json", "events"])
@pytest.mark.parametrize("kind", ["numbers", "escapes"])
@pytest.mark.parametrize("what", ["result", "error"])
def test_no_answer_to_a_client_on_pipes_holds_the_loop(
    server: str, kind: str, what: str, gateway: Watched, pipes: Pipes
) -> None:
    """Ours: 20 ms, and it is all there."""
    arguments = json.dumps({"what": what, "kind": kind, "size": SIZES["largest"]}).encode()
    frame = rpc("tools/call", b'{"name":"%b__say","arguments":%b}' % (server.encode(), arguments))

    def call() -> None:
        pipes.send(frame)
        while b'"id":5' not in (answer := pipes.receive())[:40]:
            pass
        value = filling(kind, SIZES["largest"] - 512)
        assert answer.endswith(value + b"}}")

    assert gateway.holds_for(LONG, call) < LONG
