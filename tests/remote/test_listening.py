"""Changes and subscriptions of servers that are reached by URL."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from muxway.testing import RawClient

from ..noting import SUBSCRIPTION, notes
from ..serve.harness import a_web
from .scripted import MODERN, Remote, behind, event, gateway, reply, stream, until

if TYPE_CHECKING:
    import muxway

UPDATED = "notifications/resources/updated"
CAPABILITIES = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}


async def told(up: muxway.Gateway, revision: str = "2025-11-25") -> RawClient:
    client = RawClient(up.memory_door(), revision=revision)
    await client.hello()
    return client


class Watched(Remote):
    """A server with one note, of either era."""

    def __init__(self, era: str, **more: Any) -> None:
        super().__init__(era, posts=self._post, gets=self._get, **more)
        self.streams: dict[Any, web.StreamResponse] = {}
        self.tools = ["a"]

    async def _post(self, _: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        method = message.get("method")
        if method == "server/discover" and self.era == "stateless":
            return reply(message, {"supportedVersions": [MODERN], "capabilities": CAPABILITIES})
        if method == "resources/list":
            return reply(message, {"resources": [{"uri": "note://a", "name": "a"}]})
        if method == "resources/templates/list":
            return reply(message, {"resourceTemplates": []})
        if method == "tools/list":
            return reply(message, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]})
        if self.era == "stateless" and method == "subscriptions/listen":
            return await self._listen(request, message)
        if self.era == "stateless" or method == "initialize":
            return None if method != "initialize" else await self._hello(request, message)
        if request.headers.get("Mcp-Session-Id") not in self.live:
            return web.Response(status=404)
        quiet = ("resources/subscribe", "resources/unsubscribe", "logging/setLevel")
        return reply(message, {}) if method in quiet else None

    async def _hello(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        response = await self.post(request, message)
        if self.era == "stateless" or not isinstance(response, web.Response):
            return response
        body = json.loads(response.body)  # type: ignore[arg-type]
        body["result"]["capabilities"] = CAPABILITIES
        return web.json_response(body, headers={"Mcp-Session-Id": response.headers["Mcp-Session-Id"]})

    async def _get(self, _: Remote, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Mcp-Session-Id") not in self.live:
            return web.Response(status=404)
        return await self._keep("session", request)

    async def _listen(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        params = {"_meta": {SUBSCRIPTION: message["id"]}, "notifications": message["params"]["notifications"]}
        ack = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}
        return await self._keep(message["id"], request, event(ack))

    async def _keep(self, id_: Any, request: web.Request, *chunks: bytes) -> web.StreamResponse:
        response = self.streams[id_] = await stream(request, *chunks)
        try:
            await asyncio.sleep(60)
        finally:
            self.streams.pop(id_, None)
        return response

    async def update(self) -> None:
        for id_, response in list(self.streams.items()):
            params = {"uri": "note://a"} if id_ == "session" else {"uri": "note://a", "_meta": {SUBSCRIPTION: id_}}
            await response.write(event({"jsonrpc": "2.0", "method": UPDATED, "params": params}))

    def break_off(self) -> None:
        """Cut every stream."""
        for response in self.streams.values():
            transport = response._req.transport  # type: ignore[union-attr]
            assert transport is not None
            transport.abort()

    def filters(self) -> list[Any]:
        return [seen.message["params"]["notifications"] for seen in self.of("subscriptions/listen") if seen.message]


async def test_a_stateless_server_is_listened_to_on_one_open_request() -> None:
    """docs/subscriptions.md: a wider one is opened first, then the narrower one closed; the end closes it."""
    remote = Watched("stateless")
    async with behind(remote) as up:
        await until(lambda: len(remote.streams) == 1)
        assert remote.filters() == [{"toolsListChanged": True}]
        assert remote.of("subscriptions/listen")[0].headers["Mcp-Method"] == "subscriptions/listen"
        client = await told(up)
        assert (await client.ask("resources/subscribe", {"uri": "note://a"})).result == {}
        assert remote.filters()[1:] == [{"toolsListChanged": True, "resourceSubscriptions": ["note://a"]}]
        await until(lambda: len(remote.streams) == 1)
        await remote.update()
        assert (await client.notice(UPDATED))["params"] == {"uri": "note://a"}
        await client.ask("resources/unsubscribe", {"uri": "note://a"})
        await until(lambda: remote.filters()[-1] == {"toolsListChanged": True} and len(remote.streams) == 1)
    await until(lambda: not remote.streams)


async def test_an_open_stream_is_no_stalled_call() -> None:
    """MCP 2026-07-28, basic/patterns/subscriptions: the request stays open; calls keep their clocks."""
    remote = Watched("stateless")
    async with behind(remote, callTimeout=0.3, callMax=0.5) as up:
        await until(lambda: remote.streams)
        await asyncio.sleep(0.8)
        assert len(remote.of("subscriptions/listen")) == len(remote.streams) == 1
        assert (await up.call("up.a", {"a": 1})).text == '{"a": 1}'


async def test_a_stream_that_breaks_is_opened_again_and_the_lists_are_read_again() -> None:
    """docs/subscriptions.md#resources: listen again, read again; there is no replay."""
    remote = Watched("stateless")
    async with behind(remote) as up:
        client = await told(up)
        await client.ask("resources/subscribe", {"uri": "note://a"})
        await until(lambda: len(remote.streams) == 1)
        remote.tools.append("b")
        remote.break_off()
        await client.notice("notifications/tools/list_changed")
        assert await client.tools() == ["up__a", "up__b"]
        await client.notice(UPDATED)
        assert len(remote.of("subscriptions/listen")) == 3
        await remote.update()
        await client.notice(UPDATED)


async def test_a_new_session_is_subscribed_in_again() -> None:
    """docs/subscriptions.md#resources: in a new session the level is set, resources subscribed to, lists read again."""
    remote = Watched("handshake")
    async with behind(remote) as up:
        client = await told(up)
        assert (await client.ask("resources/subscribe", {"uri": "note://a"})).result == {}
        assert (await client.ask("logging/setLevel", {"level": "error"})).result == {}
        await until(lambda: remote.streams and remote.of("logging/setLevel"))
        await remote.update()
        await client.notice(UPDATED)
        listed = [len(remote.of(method)) for method in ("tools/list", "resources/list")]
        remote.live.clear()
        assert (await client.call("up__a")).result
        assert (await client.notice(UPDATED))["params"] == {"uri": "note://a"}
        subscribed = remote.of("resources/subscribe")
        assert [seen.headers["Mcp-Session-Id"] for seen in subscribed] == ["session-1", "session-2"]
        levels = [seen.message["params"] for seen in remote.of("logging/setLevel") if seen.message]
        assert levels == [{"level": "error"}] * 2
        await until(lambda: [len(remote.of(m)) for m in ("tools/list", "resources/list")] == [n + 1 for n in listed])


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("revision", ["2025-06-18", MODERN])
async def test_news_crosses_two_gateways(era: str, revision: str) -> None:
    """docs/behaviour.md#changes-and-subscriptions: over two muxways in a row, in every combination of eras."""
    server = notes("2025-11-25", tools={"a": None})
    async with a_web({"far": server}) as http, gateway(f"http://{http.host}/mcp", era=era) as up:
        client = await told(up, revision)
        if client.stateless:
            wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://a"]}
            client.start("subscriptions/listen", {"notifications": wanted}, id_="L")
            ack = await client.notice("notifications/subscriptions/acknowledged")
            assert ack["params"]["notifications"] == wanted
        else:
            assert (await client.ask("resources/subscribe", {"uri": "note://a"})).result == {}
        assert server.subscribed == {"note://a": 1}
        server.update("note://a/b")
        assert (await client.notice(UPDATED))["params"]["uri"] == "note://a/b"
        server.tools["b"] = None
        server.change("tools")
        await client.notice("notifications/tools/list_changed")
        assert await client.tools() == ["up__far__a", "up__far__b"]
        if client.stateless:
            client.tell("notifications/cancelled", {"requestId": "L"})
        else:
            await client.ask("resources/unsubscribe", {"uri": "note://a"})
        await until(lambda: not server.watched)
