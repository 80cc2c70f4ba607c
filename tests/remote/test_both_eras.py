"""A server by URL that speaks both eras, and is not the same in both: each client sees its own side of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from aiohttp import web

from muxway import Middleware
from muxway.servers import list_freshness
from muxway.testing import RawClient

from ..pace import crowding
from .scripted import MODERN, VERSION_KEY, Remote, answer, behind, event, reply, stream, text, until

if TYPE_CHECKING:
    import muxway

SIDES: dict[bool, list[str]] = {False: ["echo", "old"], True: ["echo", "new", "newer"]}
"""Whether stateless → the tools of that side."""


class Both(Remote):
    """Lists, logs, errs and subscribes otherwise in each era."""

    slow = False
    gained: tuple[str, ...] = ()
    """Tools that its handshake side has, too."""
    pause = 0.0
    """Seconds that a list of the handshake side takes."""

    async def post(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        stateless = VERSION_KEY in message.get("params", {}).get("_meta", {})
        method = message.get("method")
        if method == "initialize" and self.slow:
            await asyncio.sleep(60)
        if method == "initialize":
            info = {"name": "both", "version": "1"}
            has = {"tools": {}, "logging": {}, "resources": {"subscribe": True}}
            return reply(message, {"protocolVersion": "2025-11-25", "capabilities": has, "serverInfo": info})
        if "id" not in message or method is None:
            return web.Response(status=202)
        if method == "server/discover":
            return reply(message, {"supportedVersions": [MODERN], "capabilities": {"tools": {}}})
        if method == "tools/list":
            await asyncio.sleep(0.0 if stateless else self.pause)
            names = [*SIDES[stateless], *(() if stateless else self.gained)]
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
            # The stateless side holds, and is not read again for the asking.
            told = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "public"} if stateless else {}
            return reply(message, {"tools": tools, **told})
        if method == "resources/list":
            return reply(message, {"resources": [{"uri": "note://a", "name": "a"}]})
        if method == "tools/call" and message["params"]["name"] != "echo":
            error = {"code": -32602 if stateless else -32099, "message": f"its own, stateless: {stateless}"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        if method == "tools/call" and not stateless:
            said = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "hello"}}
            return await stream(request, event(said), event(answer(message, text("old"))))
        return reply(message, {**text("new"), "resultType": "complete"} if method == "tools/call" else {})


async def a_client(up: muxway.Gateway, revision: str) -> RawClient:
    """One that declares nothing."""
    client = RawClient(up.memory_door(), revision=revision)
    await client.hello()
    return client


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_a_handshake_client_sees_the_handshake_side(revision: str) -> None:
    """docs/design/decisions/0017: lists, log messages, errors and subscriptions are those it would see without us."""
    remote = Both()
    async with behind(remote) as up:
        client = await a_client(up, revision)
        assert await client.tools() == ["up__echo", "up__old"]
        assert (await client.call("up__echo")).result["content"] == text("old")["content"]
        assert (await client.notice("notifications/message"))["params"]["data"] == "hello"
        assert (await client.call("up__old")).error["code"] == -32099
        assert (await client.ask("resources/subscribe", {"uri": "note://a"})).result == {}
        assert (await client.ask("resources/unsubscribe", {"uri": "note://a"})).result == {}
        await until(lambda: remote.of("resources/unsubscribe"))


async def test_both_may_be_there_and_neither_sees_the_others_side() -> None:
    """2026-07-28, server/utilities/caching: what is listed does not depend on who else is there."""
    async with behind(Both()) as up:
        new = await a_client(up, MODERN)
        assert await new.tools() == ["up__echo", "up__new", "up__newer"]
        old = await a_client(up, "2025-11-25")
        assert await old.tools() == ["up__echo", "up__old"]
        assert await new.tools() == ["up__echo", "up__new", "up__newer"]
        assert (await new.call("up__echo")).result["content"] == text("new")["content"]
        assert (await new.call("up__new")).error["code"] == -32602


async def test_a_side_that_does_not_answer_holds_up_a_list_for_two_seconds() -> None:
    """Ours: whoever lists sees something soon, and hears of the rest when it is there (docs/behaviour.md#start)."""
    remote = Both()
    remote.slow = True
    async with behind(remote) as up:
        client = await a_client(up, "2025-11-25")
        async with asyncio.timeout(5 + crowding()):
            assert await client.tools() == ["up__echo", "up__new", "up__newer"]


async def test_a_program_needs_no_second_connection() -> None:
    """Ours: it hears nothing but results, and is asked nothing."""
    remote = Both()
    async with behind(remote) as up:
        assert (await up.call("up__echo")).text == "new"
    assert remote.of("initialize") == []


async def test_a_server_that_takes_no_handshake_serves_everybody_in_its_own_era() -> None:
    """docs/design/decisions/0017."""
    async with behind(Remote("stateless")) as up:
        client = await a_client(up, "2025-11-25")
        assert await client.tools() == ["up__echo"]
        assert "result" in (await client.call("up__echo", {"a": 1})).message


@pytest.mark.parametrize("how", ["list", "call"])
@pytest.mark.parametrize("pause", [0.0, 0.3])
async def test_what_the_handshake_side_gains_in_silence_is_found(
    how: str, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/behaviour.md#lists: a list is read again when somebody asks, or calls what is not in it, on either side."""
    monkeypatch.setattr(list_freshness, "FRESH", 60.0)
    remote = Both()
    async with asyncio.timeout(30), behind(remote) as up:
        client = await a_client(up, "2025-11-25")
        assert await client.tools() == ["up__echo", "up__old"]
        monkeypatch.setattr(list_freshness, "FRESH", 0.0)
        remote.gained, remote.pause = ("late",), pause
        if how == "call":
            assert (await client.call("up__late")).error["code"] == -32099
        while "up__late" not in await client.tools():
            await asyncio.sleep(0.01)
        new = await a_client(up, MODERN)
        assert await new.tools() == ["up__echo", "up__new", "up__newer"]


class Memory(Middleware):
    """Notes what it is to forget."""

    forgotten: ClassVar[list[str | None]] = []

    def forget(self, server: str | None) -> None:
        Memory.forgotten.append(server)


async def test_what_is_remembered_of_a_server_goes_when_its_handshake_side_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/middleware/writing.md: `forget` is called when a server shows something else, on either side."""
    monkeypatch.setattr(list_freshness, "FRESH", 0.0)
    remote = Both()
    async with asyncio.timeout(30), behind(remote, middleware=[{"use": f"{__name__}:Memory"}]) as up:
        client = await a_client(up, "2025-11-25")
        while await client.tools() != ["up__echo", "up__old"]:
            await asyncio.sleep(0.01)
        monkeypatch.setattr(Memory, "forgotten", [])
        remote.gained = ("late",)
        await client.tools()
        await until(lambda: "up" in Memory.forgotten)
