"""Clients that do not read: they lose progress and log messages, never an answer, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from muxway.clients.transports.http_response import Outlet
from muxway.clients.transports.http_server import Limits
from muxway.testing import RawClient, ScriptedServer

from ..conftest import a_world
from ..pace import PATIENCE
from ..serve.harness import BOTH, Opened, modern, request
from .piping import stdio

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from ..serve.harness import Web
    from .conftest import Logged

    Webs = Callable[..., AbstractAsyncContextManager[Web]]

WORD = "x" * 2_000
FLOOD = 6_000
"""Notices of 2 KB: more than the sockets and pipes of any system hold."""


async def flooding(server: ScriptedServer, message: dict[str, Any]) -> None:
    """Report more progress than anybody reads, then answer."""
    for number in range(FLOOD):
        server.progress(message, number, message=WORD)
        if number % 50 == 0:
            await asyncio.sleep(0)
    server.reply(message, {"content": [{"type": "text", "text": "the answer"}]})


def flood(id_: int = 1) -> dict[str, Any]:
    return {"name": "s__flood", "arguments": {}, "_meta": {"progressToken": id_}}


# --- the queue of one stream ------------------------------------------------------------------


def test_of_too_many_notices_the_oldest_are_left_out_and_all_else_stays() -> None:
    """docs/behaviour.md#a-client-reads-slowly: 256 messages; replies never dropped."""
    outlet = Outlet()
    outlet.behind = True
    for number in range(1000):
        outlet.put(b"<%d>" % number, lossy=number % 10 != 0)
    said = [int(part) for part in outlet.take().strip(b"<>").split(b"><")]
    kept = [number for number in range(1000) if number % 10 != 0][-256:]
    assert said == sorted([*range(0, 1000, 10), *kept])
    assert outlet.dropped == 900 - 256
    assert outlet.waiting == 0


def test_of_too_much_the_oldest_is_left_out() -> None:
    """docs/behaviour.md#a-client-reads-slowly: 1 MiB, whoever reads."""
    outlet = Outlet()
    for _ in range(100):
        outlet.put(b"x" * 100_000, lossy=True)
    assert outlet.waiting == 1_000_000
    outlet.put(b"y" * 5_000_000, lossy=True)
    assert (outlet.waiting, outlet.dropped) == (5_000_000, 100)


def test_a_flood_leaves_nothing_behind() -> None:
    """Ours: what is left out takes no memory."""
    outlet = Outlet()
    outlet.behind = True
    for _ in range(100_000):
        outlet.put(b"x", lossy=True)
    assert outlet.waiting == 256
    assert outlet.dropped == 100_000 - 256


def test_who_keeps_up_loses_nothing() -> None:
    """Ours: many notices at once, as a server may send them, are no reason by themselves."""
    outlet = Outlet()
    for _ in range(5_000):
        outlet.put(b"x", lossy=True)
    assert (outlet.take(), outlet.dropped) == (b"x" * 5_000, 0)


# --- a slow socket ----------------------------------------------------------------------------


async def slow_socket(http: Web, headers: dict[str, str | None], message: object) -> Opened:
    """Send a request over a connection with a small buffer, of which nothing is read by itself."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    raw.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(raw, ("127.0.0.1", http.port))
    reader, writer = await asyncio.open_connection(sock=raw, limit=4096)
    body = json.dumps(message).encode()
    given = {"Host": http.host, "Content-Type": "application/json", "Accept": BOTH, **headers}
    lines = [f"{name}: {value}" for name, value in given.items() if value is not None]
    writer.write("\r\n".join(["POST /mcp HTTP/1.1", *lines, f"Content-Length: {len(body)}", "", ""]).encode() + body)
    return Opened(reader, writer)


@pytest.mark.parametrize("modern_client", [False, True])
async def test_a_slow_socket_loses_progress_but_not_the_answer(modern_client: bool, web: Webs, logged: Logged) -> None:
    """docs/behaviour.md#a-client-reads-slowly: the call succeeds, others are undisturbed."""
    server = ScriptedServer(tools={"flood": flooding, "echo": None}, remember=False)
    async with web({"s": server}) as http:
        if modern_client:
            message, headers = modern("tools/call", flood())
        else:
            client = await http.session()
            message, headers = request("tools/call", flood()), {**client.headers}
        opened = await slow_socket(http, headers, message)
        other = await http.session()
        async with asyncio.timeout(PATIENCE):
            # Answered, so that all that waits now waits for the reader alone.
            while http.world.gateway.runtime.admission.running > modern_client:
                assert "result" in (await other.ask("tools/call", {"name": "s__echo", "arguments": {}})).json
        heard = await (await opened.head()).messages()
        opened.drop()
        steps = [message["params"]["progress"] for message in heard[:-1]]
        assert steps == sorted(steps)
        assert steps[-1] == FLOOD - 1
        assert len(steps) < FLOOD
        assert heard[-1]["result"]["content"][0]["text"] == "the answer"
        async with asyncio.timeout(PATIENCE):
            while not logged("a client read too slowly for all it was told"):
                await asyncio.sleep(0.01)
        assert logged("a client read too slowly for all it was told")[0]["dropped"] == str(FLOOD - len(steps))


async def test_a_reader_that_takes_nothing_is_cut_off_with_a_reason(web: Webs, logged: Logged) -> None:
    """docs/behaviour.md#a-client-reads-slowly: a write stall; the log says who, and why."""
    server = ScriptedServer(tools={"flood": flooding, "echo": None}, remember=False)
    async with web({"s": server}, limits=Limits(stall_seconds=0.3)) as http:
        opened = await slow_socket(http, *reversed(modern("tools/call", flood())))
        async with asyncio.timeout(PATIENCE):
            while not logged("a client was cut off: it read nothing"):
                await asyncio.sleep(0.02)
        facts = logged("a client was cut off: it read nothing")[0]
        assert (facts["client"], facts["seconds"]) == ("127.0.0.1", "0.3")
        received = 0
        with contextlib.suppress(ConnectionError):
            while data := await asyncio.wait_for(opened.reader.read(65536), PATIENCE):
                received += len(data)
        assert received < FLOOD * len(WORD)
        opened.drop()


async def test_a_slow_client_hears_of_a_thousand_changes_once(web: Webs) -> None:
    """docs/behaviour.md#a-client-reads-slowly: `list_changed` coalesced."""
    async with web({"s": ScriptedServer(tools={"echo": None})}) as http:
        client = await http.session()
        await client.listen()
        session = next(iter(http.door._handshake.sessions))
        outlet = session._standalone.outlet
        outlet.put(b": " + b"x" * 100_000 + b"\n\n")
        waiting = outlet.waiting
        for _ in range(1000):
            session.endpoint.unsent.lists_changed(["tools", "prompts"])
        assert outlet.waiting == waiting


# --- a slow pipe ------------------------------------------------------------------------------


async def test_a_slow_pipe_loses_progress_but_not_the_answer(logged: Logged) -> None:
    """docs/behaviour.md#a-client-reads-slowly: also for a client on stdio."""
    server = ScriptedServer(tools={"flood": flooding}, remember=False)
    async with a_world({"s": server}) as world:
        async with stdio(world) as (pipes, _):
            client = RawClient(pipes)
            await client.hello()
            id_ = client.start("tools/call", flood())
            async with asyncio.timeout(PATIENCE):
                admission = world.gateway.runtime.admission
                while not admission.running:
                    await asyncio.sleep(0)
                while admission.running:
                    await asyncio.sleep(0.01)
            reply = await client.answer(id_)
            assert reply.result["content"][0]["text"] == "the answer"
            steps = [notice["params"]["progress"] for notice in client.notices]
            assert steps == sorted(steps)
            assert steps[-1] == FLOOD - 1
            assert len(steps) < FLOOD
        assert logged("the client read too slowly for all it was told")[0]["dropped"] == str(FLOOD - len(steps))


async def test_a_client_that_reads_no_answers_is_not_read_either(logged: Logged) -> None:
    """docs/behaviour.md#a-client-reads-slowly.

    A slow stdio client must not make the memory grow; all it asked is answered once it reads.
    """

    def big(server: ScriptedServer, message: dict[str, Any]) -> None:
        server.reply(message, {"content": [{"type": "text", "text": "y" * 1_000_000}]})

    async with (
        a_world({"s": ScriptedServer(tools={"big": big}, remember=False)}) as world,
        stdio(world) as (pipes, door),
    ):
        client = RawClient(pipes)
        await client.hello()
        asked = 0
        async with asyncio.timeout(PATIENCE):
            while not logged("the client does not read its answers: its requests wait"):
                client.start("tools/call", {"name": "s__big", "arguments": {}}, id_=1000 + asked)
                asked += 1
                await asyncio.sleep(0.005)
        assert 16 <= asked < 60
        held = door._backlog()
        for _ in range(40):
            client.start("tools/call", {"name": "s__big", "arguments": {}}, id_=1000 + asked)
            asked += 1
        await asyncio.sleep(0.3)
        assert door._backlog() < held + 10_000_000
        for number in range(asked):
            assert len((await client.answer(1000 + number)).result["content"][0]["text"]) == 1_000_000
