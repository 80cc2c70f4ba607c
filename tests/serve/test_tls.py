"""The HTTP door behind TLS: the same requests, clocks and limits."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING

import pytest

from muxway.clients.transports.http_server import Limits
from muxway.testing import ScriptedServer

from ..certificates import Authority, shake_hands
from ..pace import PATIENCE
from .harness import Opened, a_web

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def contexts(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context with a certificate for this machine, and a client's that trusts it."""
    authority = Authority(tmp_path)
    return authority.server(), authority.client()


async def test_requests_streams_and_refusals_pass_tls(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """Ours: what listens takes a TLS context, and nothing else is different."""
    server, client = contexts
    async with a_web({"s": ScriptedServer(tools={"echo": None})}, tls=server, max_body_bytes=1000) as web:
        web.tls = client
        session = await web.session()
        answer = await session.ask("tools/call", {"name": "s__echo", "arguments": {"ok": 1}})
        assert (answer.status, answer.json["result"]["structuredContent"]) == (200, {"ok": 1})
        stream = await session.listen()
        assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
        refused = await web.post(b"x" * 1001)
        assert (refused.status, refused.headers["connection"]) == (413, "close")


async def test_whoever_speaks_no_tls_is_cut_off(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """Ours: and nobody else notices."""
    server, client = contexts
    async with a_web(tls=server) as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert b"HTTP/1.1" not in await Opened(reader, writer).closed()
        writer.close()
        web.tls = client
        assert (await asyncio.wait_for(web.ask("GET", "/healthz"), PATIENCE)).status == 200


async def test_a_handshake_counts_as_a_connection_and_has_a_clock(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    """docs/behaviour.md#too-much-at-once: also those who never begin to speak."""
    server, client = contexts
    async with a_web(tls=server, limits=Limits(connections=3, header_seconds=1)) as web:
        silent = [await asyncio.open_connection("127.0.0.1", web.port) for _ in range(3)]
        outside = await asyncio.open_connection("127.0.0.1", web.port)
        async with asyncio.timeout(PATIENCE):
            for reader, writer in (outside, *silent):
                assert await Opened(reader, writer).closed() == b""
                writer.close()
        web.tls = client
        assert (await asyncio.wait_for(web.ask("GET", "/healthz"), PATIENCE)).status == 200


async def test_what_comes_with_the_end_of_a_handshake_is_heard(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    """RFC 8446 §2: a client may say something in the same breath."""
    server, client = contexts
    async with a_web(tls=server) as web:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        async with asyncio.timeout(PATIENCE):
            await shake_hands(tls, (incoming, outgoing), (reader, writer))
            tls.write(f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{web.port}\r\n\r\n".encode())
            writer.write(outgoing.read())
            said = b""
            while b"\r\n\r\n" not in said:
                incoming.write(await reader.read(65536))
                with contextlib.suppress(ssl.SSLWantReadError):
                    said += tls.read(65536)
        assert said.startswith(b"HTTP/1.1 200 ")
        writer.close()
