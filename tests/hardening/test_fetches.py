"""What muxway fetches of itself: nothing but from the servers that are configured (docs/security.md)."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

import muxway
from muxway.clients.transports.guard import Guard
from tests.remote.scripted import Remote, behind, gateway, reply, serving
from tests.serve.harness import a_web, modern

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ELSEWHERE = ["http://127.0.0.1:{port}/", "http://localhost:{port}/", "//127.0.0.1:{port}/", "http://[::1]:{port}/"]


class Canary:
    """A listener that nobody has any business with."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.hits = 0


@contextlib.asynccontextmanager
async def a_canary() -> AsyncIterator[Canary]:
    """A canary on a free port of loopback. It counts connections, not requests: to connect is to fetch."""

    async def hit(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        canary.hits += 1
        writer.close()

    server = await asyncio.start_server(hit, "127.0.0.1", 0)
    canary = Canary(server.sockets[0].getsockname()[1])
    async with server:
        yield canary


async def test_a_canary_sings() -> None:
    """Ours: a test that finds nothing must be shown to be able to."""
    async with a_canary() as canary:
        _, writer = await asyncio.open_connection("127.0.0.1", canary.port)
        writer.close()
        async with asyncio.timeout(30):
            while not canary.hits:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("place", ELSEWHERE)
@pytest.mark.parametrize("when", ["initialize", "tools/list", "tools/call", "GET"])
async def test_no_redirect_leads_to_another_origin(place: str, when: str) -> None:
    """docs/security.md#what-is-promised-threat-by-threat.

    Not while it starts, not when it lists, not in a call, not for its stream of news.
    """
    async with a_canary() as canary:
        location = place.format(port=canary.port)

        async def away(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
            if message.get("method") == when:
                return web.Response(status=307, headers={"Location": location})
            return None

        async def get(remote: Remote, request: web.Request) -> web.StreamResponse:
            return web.Response(status=307 if when == "GET" else 405, headers={"Location": location})

        remote = Remote(posts=away, gets=get)
        async with behind(remote, headers={"Authorization": "Bearer s3cr3t"}, startTimeout="5s") as up:
            with contextlib.suppress(muxway.RpcError):
                await up.call("up.echo")
        assert when in {seen.verb if seen.method is None else seen.method for seen in remote.seen}
        assert canary.hits == 0


async def test_references_in_schemas_are_never_fetched() -> None:
    """docs/security.md#what-is-promised-threat-by-threat.

    `$ref`, `$schema`, `$id`, icons and links of a server are text to muxway.
    """
    async with a_canary() as canary:
        url = f"http://127.0.0.1:{canary.port}"
        schema = {
            "$schema": f"{url}/meta",
            "$id": f"{url}/id",
            "type": "object",
            "properties": {"x": {"$ref": f"{url}/x.json"}, "y": {"$dynamicRef": f"{url}/y.json#a"}},
            "allOf": [{"$ref": f"{url}/all.json"}],
        }
        tool = {"name": "t", "inputSchema": schema, "outputSchema": schema, "icons": [{"src": f"{url}/icon.png"}]}

        async def listed(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
            if message.get("method") == "tools/list":
                return reply(message, {"tools": [tool]})
            if message.get("method") == "tools/call":
                link = {"type": "resource_link", "uri": f"{url}/linked", "name": "l"}
                return reply(message, {"content": [link], "structuredContent": {"x": 1}})
            return None

        shape = {"t": {"arguments": {"x": {"description": "d", "rename": "z"}}}}
        async with behind(Remote(posts=listed), shape=shape) as up:
            [shown] = up.tools()
            assert shown.definition["inputSchema"]["allOf"] == schema["allOf"]
            assert (await up.call("up.t", {"z": 1})).content
        assert canary.hits == 0


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_servers_requests_have_only_its_own_headers(era: str) -> None:
    """docs/security.md#what-is-promised-threat-by-threat.

    0 headers of the caller go upstream, in both eras; those of the configuration arrive.
    """
    theirs = {"Authorization": "Bearer t0ken", "Cookie": "c=c00kie", "X-Api-Key": "k3y", "Proxy-Authorization": "pr0xy"}
    remote = Remote(era)
    async with serving(remote) as url, a_web(guard=Guard(tokens=["t0ken"])) as http:
        await http.world.gateway.add("up", url=url, headers={"Authorization": "Bearer 0wn"})
        client = await http.session(headers=theirs)
        assert (await client.ask("tools/call", {"name": "up__echo", "arguments": {}})).status == 200
        message, headers = modern("tools/call", {"name": "up__echo", "arguments": {}})
        assert (await http.post(message, {**headers, **theirs, "X-Other": "0ther"})).status == 200
    assert len(remote.of("tools/call")) == 2
    for seen in remote.seen:
        said = f"{dict(seen.headers)} {seen.message}"
        assert [word for word in ("t0ken", "c00kie", "k3y", "pr0xy", "0ther") if word in said] == []
        assert seen.headers["Authorization"] == "Bearer 0wn"


async def test_one_servers_headers_do_not_reach_another() -> None:
    """docs/security.md#what-is-promised-threat-by-threat: credentials are for the server they are configured for."""
    one, two = Remote(), Remote()
    async with serving(one) as url, serving(two) as other, gateway(url, headers={"X-Api-Key": "k3y"}) as up:
        await up.add("two", url=other)
        await up.call("two.echo")
        await up.call("up.echo")
    assert all("X-Api-Key" in seen.headers for seen in one.seen)
    assert not any("X-Api-Key" in seen.headers for seen in two.seen)


async def test_a_compressed_bomb_of_a_server_fails_its_own_call() -> None:
    """docs/security.md#what-is-promised-threat-by-threat: the limit counts what comes out, while it comes out."""
    packer = zlib.compressobj(6, wbits=31)
    bomb = b"".join(packer.compress(b" " * (1 << 20)) for _ in range(128)) + packer.flush()
    assert len(bomb) < 1 << 20

    async def packed(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        return web.Response(body=bomb, headers={"Content-Type": "application/json", "Content-Encoding": "gzip"})

    async with behind(Remote(calls={"bad": packed})) as up:
        tracemalloc.start()
        try:
            with pytest.raises(muxway.RpcError, match="over the size limit"):
                await up.call("up.bad")
            assert tracemalloc.get_traced_memory()[1] < 64 << 20
        finally:
            tracemalloc.stop()
        assert (await up.call("up.echo", {"still": "here"})).text == '{"still": "here"}'
