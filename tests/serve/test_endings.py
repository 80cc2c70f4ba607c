"""How requests over HTTP begin and end: other protocols, bodies that are too large, sessions that go."""

from __future__ import annotations

import asyncio
import http.client
import json
from dataclasses import replace
from typing import Any

import pytest

from muxway.clients.transports.guard import Guard
from muxway.testing import ScriptedServer
from tests.pace import PATIENCE
from tests.serve.harness import BOTH, Web, a_web, request

CALL = {"name": "up__echo", "arguments": {"ok": 1}}


def _upgrading(web: Web, body: bytes, *more: str, framing: str | None = None) -> bytes:
    length = f"Content-Length: {len(body)}" if framing is None else framing
    lines = [
        "POST /mcp HTTP/1.1",
        f"Host: {web.host}",
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
        "Content-Type: application/json",
        f"Accept: {BOTH}",
        length,
        *more,
        "",
        "",
    ]
    return "\r\n".join(lines).encode()


async def _send(web: Web, pieces: list[bytes]) -> Any:
    opened = await web.connect()
    for piece in pieces:
        opened.writer.write(piece)
        await opened.writer.drain()
        # So that each is read by itself.
        await asyncio.sleep(0.02)
    return opened


INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "java", "version": "1"}}


@pytest.mark.parametrize("upgrade", ["h2c", "websocket", "TLS/1.3"])
@pytest.mark.parametrize("cut", ["whole", "behind the header", "in the body", "in the header", "byte by byte"])
async def test_a_wish_for_another_protocol_is_not_granted_and_the_body_is_read(cut: str, upgrade: str) -> None:
    """RFC 9110 §7.8: a server may ignore Upgrade. Java's HttpClient sends `Upgrade: h2c` with every first request."""
    async with a_web({"up": ScriptedServer(tools={"echo": None})}) as web:
        body = json.dumps(request("initialize", INITIALIZE)).encode()
        head = _upgrading(web, body).replace(b"h2c", upgrade.encode())
        pieces = {
            "whole": [head + body],
            "behind the header": [head, body],
            "in the body": [head + body[:10], body[10:20], body[20:]],
            "in the header": [head[:60], head[60:] + body],
            "byte by byte": [head[:-1], head[-1:], body[:1], body[1:]],
        }[cut]
        opened = await _send(web, pieces)
        await opened.head()
        assert opened.status == 200
        assert json.loads(await opened.rest())["result"]["protocolVersion"] == "2025-11-25"
        # The connection can be used for the next request, which asks for nothing.
        opened.writer.write(f"GET /healthz HTTP/1.1\r\nHost: {web.host}\r\n\r\n".encode())
        assert (await opened.head()).status == 200


async def test_a_body_behind_a_wish_for_another_protocol_is_no_second_request() -> None:
    """RFC 9112 §11.2: where a request ends must not be seen differently by what stands in front."""
    async with a_web() as web:
        inner = f"GET /healthz HTTP/1.1\r\nHost: {web.host}\r\n\r\n".encode()
        for pieces in ([_upgrading(web, inner) + inner], [_upgrading(web, inner), inner]):
            opened = await _send(web, pieces)
            await opened.head()
            assert opened.status == 400
            await opened.rest()
            opened.writer.write_eof()
            assert await opened.closed() == b""


@pytest.mark.parametrize("cut", [False, True])
async def test_a_chunked_body_behind_a_wish_for_another_protocol_is_read(cut: bool) -> None:
    """RFC 9112 §6.1: the transfer coding says where the body ends."""
    async with a_web() as web:
        body = json.dumps(request("initialize", INITIALIZE)).encode()
        chunked = b"5\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (body[:5], len(body) - 5, body[5:])
        head = _upgrading(web, body, framing="Transfer-Encoding: chunked")
        opened = await _send(web, [head, chunked] if cut else [head + chunked])
        assert (await opened.head()).status == 200


async def test_requests_without_a_body_that_wish_for_another_protocol_follow_each_other() -> None:
    """The same; the second is the next request on the connection."""
    async with a_web() as web:
        one = f"GET /healthz HTTP/1.1\r\nHost: {web.host}\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n".encode()
        opened = await web.raw(one + one)
        for _ in range(2):
            assert (await opened.head()).status == 200
            assert await opened.rest() == b'{"status":"ok"}'


async def test_a_client_that_waits_for_100_continue_is_told_to_go_on_or_refused() -> None:
    """RFC 9110 §10.1.1."""
    async with a_web(max_body_bytes=1000) as web:
        body = json.dumps(request("initialize", INITIALIZE)).encode()
        for wish in ("", "Connection: Upgrade\r\nUpgrade: h2c\r\n"):
            head = f"POST /mcp HTTP/1.1\r\nHost: {web.host}\r\n{wish}Expect: 100-continue\r\n"
            head += f"Content-Type: application/json\r\nAccept: {BOTH}\r\nContent-Length: "
            opened = await web.raw(f"{head}{len(body)}\r\n\r\n".encode())
            assert (await opened.head()).status == 100
            opened.writer.write(body)
            assert (await opened.head()).status == 200
            refused = await web.raw(f"{head}5000\r\n\r\n".encode())
            assert (await refused.head()).status == 413


@pytest.mark.parametrize("megabytes", [4.3, 6, 20])
@pytest.mark.parametrize("chunked", [False, True])
async def test_whoever_sends_too_much_sees_why_it_is_refused(megabytes: float, chunked: bool) -> None:
    """RFC 9112 §9.6: close in stages, so that a reset does not erase the answer. With an ordinary client."""
    async with a_web() as web:

        def post() -> tuple[int, bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=PATIENCE)
            body = b"x" * int(megabytes * 1024 * 1024)
            headers = {"Content-Type": "application/json", "Accept": BOTH}
            pieces = (body[start : start + 65536] for start in range(0, len(body), 65536)) if chunked else body
            connection.request("POST", "/mcp", pieces, headers, encode_chunked=chunked)
            response = connection.getresponse()
            said = response.status, response.read()
            connection.close()
            return said

        for _ in range(3):
            status, said = await asyncio.to_thread(post)
            assert status == 413
            assert b"is larger than" in said


class Slow:
    """A tool that takes until it is released."""

    def __init__(self) -> None:
        self.started, self.released = asyncio.Event(), asyncio.Event()
        self.server = ScriptedServer(tools={"slow": self._call})

    async def _call(self, server: ScriptedServer, message: dict[str, Any]) -> None:
        self.started.set()
        await self.released.wait()
        server.reply(message, {"content": [], "ok": 1})


@pytest.mark.parametrize("streamed", [False, True], ids=["json", "events"])
async def test_a_call_whose_session_is_deleted_is_answered(streamed: bool) -> None:
    """JSON-RPC 2.0 §5: a request gets a response. MCP, basic/transports: 404 for a session that is no more."""
    slow = Slow()
    async with a_web({"up": slow.server}, resumable_after=0.05 if streamed else 60) as web:
        session = await web.session()
        calling = asyncio.create_task(session.start("tools/call", {"name": "up__slow"}, 9))
        await asyncio.wait_for(slow.started.wait(), PATIENCE)
        opened = await asyncio.wait_for(calling, PATIENCE) if streamed else None
        assert (await web.ask("DELETE", "/mcp", session.headers)).status == 200
        if opened is None:
            opened = await asyncio.wait_for(calling, PATIENCE)
            assert opened.status == 404
            answer = json.loads(await opened.rest())
        else:
            answer = await opened.message()
        assert answer["id"] == 9
        assert answer["error"]["data"]["muxway"]["reason"] == "closed"
        assert web.world.gateway.runtime.admission.running == 0


@pytest.mark.parametrize("token", [False, True], ids=["by path", "by token"])
async def test_a_call_under_way_ends_before_its_view_goes(token: bool) -> None:
    """Ours: as with a server that goes, calls under way end first (docs/behaviour.md#reload)."""
    views = {"some": {"servers": ["up"], **({"token": "t" * 32} if token else {})}}
    known = {"up": {"command": "none", "disabled": True}}
    guard = Guard(tokens=["t" * 32], views={"t" * 32: "some"}) if token else None
    slow = Slow()
    async with a_web(
        {"up": slow.server}, top={"mcpServers": known, "views": views}, guard=guard, view=None if token else "some"
    ) as web:
        headers = {"Authorization": "Bearer " + "t" * 32} if token else {}
        session = await web.session(headers=headers)
        calling = asyncio.create_task(session.ask("tools/call", {"name": "up__slow"}, 9))
        await asyncio.wait_for(slow.started.wait(), PATIENCE)
        runtime = web.world.gateway.runtime
        snapshot = runtime.snapshot
        settings = replace(snapshot.settings, selections={})
        runtime.replace(snapshot.next(settings, snapshot.servers, snapshot.given))
        web.door.admit(["u" * 32] if token else [], {})
        assert (await session.ask("ping")).status in (401, 404)
        slow.released.set()
        answer = await asyncio.wait_for(calling, PATIENCE)
        assert (answer.status, answer.json["result"]["ok"]) == (200, 1)
