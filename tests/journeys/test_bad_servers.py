"""What a server may do wrong while it answers: its own call fails at once, and nobody else notices."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from muxway.errors import UpstreamError
from muxway.servers.connection import Connection
from muxway.testing import ScriptedServer
from tests.conftest import a_world


def _saying(template: bytes) -> Any:
    """A tool that answers with a line of its own; `@` stands for the request's id."""

    def tool(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.say(template.replace(b"@", json.dumps(request["id"]).encode()))

    return tool


MALFORMED = {
    "bad json": b'{"jsonrpc":"2.0","id":@,"result":{"content":[}',
    "two values": b'{"jsonrpc":"2.0","id":@,"result":{}} trailing',
    "not a number": b'{"jsonrpc":"2.0","id":@,"result":{"x":NaN}}',
    "too deep": b'{"jsonrpc":"2.0","id":@,"result":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "no version": b'{"id":@,"result":{}}',
    "old version": b'{"jsonrpc":"1.0","id":@,"result":{}}',
    "no result": b'{"jsonrpc":"2.0","id":@}',
    "null result": b'{"jsonrpc":"2.0","id":@,"result":null}',
    "list result": b'{"jsonrpc":"2.0","id":@,"result":[]}',
    "error text": b'{"jsonrpc":"2.0","id":@,"error":"no"}',
    "error without code": b'{"jsonrpc":"2.0","id":@,"error":{"message":"no"}}',
    "error with text code": b'{"jsonrpc":"2.0","id":@,"error":{"code":"x","message":"no"}}',
    "null id": b'{"jsonrpc":"2.0","id":null,"result":{}}',
    "array params": b'{"jsonrpc":"2.0","id":@,"result":{},"params":[1]}',
}


@pytest.mark.parametrize("line", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_answer_fails_its_own_call_at_once(line: bytes) -> None:
    """docs/behaviour.md#a-server-talks-nonsense: it never waits for a timeout; others are unaffected."""
    async with a_world({"up": ScriptedServer(tools={"bad": _saying(line), "echo": None})}) as world:
        client = await world.client()
        outcome = await client.call("up__bad")
        assert outcome.error["data"]["muxway"] == {"reason": "malformed", "upstream": "up"}
        assert (await client.call("up__echo", {"ok": 1})).result["structuredContent"] == {"ok": 1}


REPAIRED = {
    "byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":@,"result":{"content":[],"ok":1}}',
    "carriage return": b'{"jsonrpc":"2.0","id":@,"result":{"content":[],"ok":1}}\r',
    "printed before": b'Loading model... {"jsonrpc":"2.0","id":@,"result":{"content":[],"ok":1}}',
    "bytes that are not UTF-8": b'{"jsonrpc":"2.0","id":@,"result":{"content":[],"ok":1,"x":"\xff"}}',
    "a lone surrogate": b'{"jsonrpc":"2.0","id":@,"result":{"content":[],"ok":1,"x":"\\ud800 \\\\ud800"}}',
    "id as a string": b'{"jsonrpc":"2.0","id":"@","result":{"content":[],"ok":1}}',
    "a batch": b'[{"jsonrpc":"2.0","id":@,"result":{"content":[],"ok":1}}]',
    "spaces": b' { "jsonrpc" : "2.0" , "id" : @ , "result" : {"content":[],"ok":1} } ',
    "id last": b'{"result":{"content":[],"ok":1},"id":@,"jsonrpc":"2.0"}',
}


@pytest.mark.parametrize("line", REPAIRED.values(), ids=REPAIRED)
async def test_an_answer_that_can_be_understood_is(line: bytes) -> None:
    """docs/behaviour.md#a-server-talks-nonsense: succeed, or repair."""
    async with a_world({"up": ScriptedServer(tools={"odd": _saying(line)})}) as world:
        assert (await (await world.client()).call("up__odd")).result["ok"] == 1


async def test_junk_before_an_answer_is_skipped() -> None:
    """docs/behaviour.md#a-server-talks-nonsense: pollution does not hurt the call."""

    def tool(server: ScriptedServer, request: dict[str, Any]) -> None:
        for junk in (
            b"",
            b"hello",
            b"\x1b[31mred\x1b[0m",
            b"\x00\x00",
            b"\xff\xfe",
            b"{",
            b"[1,2",
            b'"id":',
            b"42",
            b"{}",
        ):
            server.say(junk)
        server.reply(request, {"content": [], "ok": 1})

    async with a_world({"up": ScriptedServer(tools={"noisy": tool})}) as world:
        assert (await (await world.client()).call("up__noisy")).result["ok"] == 1


async def test_an_answer_to_the_wrong_id_reaches_nobody() -> None:
    """docs/behaviour.md#a-server-talks-nonsense.

    Nothing is ever delivered to the wrong call; unknown, repeated and late ids are dropped.
    """

    def tool(server: ScriptedServer, request: dict[str, Any]) -> None:
        for wrong in (0, -1, 10**30, "x", request["id"] + 1, [], {}, "9999999"):
            server.say({"jsonrpc": "2.0", "id": wrong, "result": {"wrong": True}})
        server.reply(request, {"content": [], "right": True})
        server.reply(request, {"content": [], "twice": True})

    async with a_world({"up": ScriptedServer(tools={"wild": tool, "echo": None})}) as world:
        client = await world.client()
        for _ in range(3):
            assert (await client.call("up__wild")).result == {"content": [], "right": True}
            assert (await client.call("up__echo", {"ok": 1})).result["structuredContent"] == {"ok": 1}


@pytest.mark.parametrize("method", ["ping", "roots/list", "sampling/createMessage", "elicitation/create", "made/up"])
async def test_a_request_of_the_server_is_answered(method: str) -> None:
    """docs/behaviour.md#a-server-talks-nonsense: with the right result, or an error for what was never declared."""

    def tool(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.say({"jsonrpc": "2.0", "id": "s1", "method": method, "params": {}})
        server.reply(request, {"content": []})

    server = ScriptedServer(tools={"asks": tool})
    async with a_world({"up": server}) as world:
        client = await world.client()
        await client.call("up__asks")
        await client.call("up__asks")
        answer = next(m for m in server.heard if m.get("id") == "s1")
        assert ("result" in answer) if method == "ping" else (answer["error"]["code"] == -32601)


async def test_a_flood_of_notices_does_not_drown_the_answer() -> None:
    """docs/behaviour.md#a-server-talks-nonsense: the call is answered all the same."""

    def tool(server: ScriptedServer, request: dict[str, Any]) -> None:
        for n in range(5000):
            server.say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": n}})
            server.say({"jsonrpc": "2.0", "method": f"notifications/unknown{n}"})
        server.reply(request, {"content": [], "ok": 1})

    async with a_world({"up": ScriptedServer(tools={"flood": tool})}) as world:
        assert (await (await world.client()).call("up__flood")).result["ok"] == 1


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list", "no/such"])
async def test_a_stateless_server_that_asks_for_what_was_never_declared_fails_only_that_call(method: str) -> None:
    """MCP 2026-07-28, basic/patterns/mrtr: what was never declared cannot be asked for."""

    def tool(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.need(request, {"q": {"method": method}}, "s")

    async with a_world({"up": ScriptedServer("2026-07-28", tools={"asks": tool, "echo": None})}) as world:
        new = await world.client("2026-07-28")
        assert (await new.call("up__asks")).error["data"]["muxway"] == {"reason": "unsupported", "upstream": "up"}
        old = await world.client("2025-11-25")
        result = (await old.call("up__asks")).result
        assert result["isError"]
        assert method in result["content"][0]["text"]
        assert "result" in (await old.call("up__echo")).message


@pytest.mark.parametrize("wrong", [{}, {"inputRequests": {}}, {"inputRequests": 7, "requestState": "s"}])
async def test_input_required_that_says_nothing_is_malformed(wrong: dict[str, Any]) -> None:
    def tool(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.say({"jsonrpc": "2.0", "id": request["id"], "result": {"resultType": "input_required", **wrong}})

    async with a_world({"up": ScriptedServer("2026-07-28", tools={"asks": tool})}) as world:
        for revision in ("2025-11-25", "2026-07-28"):
            error = (await (await world.client(revision)).call("up__asks")).error
            assert error["data"]["muxway"] == {"reason": "malformed", "upstream": "up"}


# --- starting -------------------------------------------------------------------------------------


async def test_the_era_is_probed_and_remembered() -> None:
    """MCP 2026-07-28, basic/transports/stdio.

    Discover first; anything but a stateless server's own answer means a handshake.
    """
    async with a_world(
        {"old": ScriptedServer("2024-11-05", tools={"a": None}), "new": ScriptedServer("2026-07-28", tools={"b": None})}
    ) as world:
        assert [server.revision for server in world.gateway.servers()] == ["2024-11-05", "2026-07-28"]
        old, new = world.servers["old"], world.servers["new"]
        assert [m["method"] for m in old.heard] == [
            "server/discover",
            "initialize",
            "notifications/initialized",
            "tools/list",
        ]
        assert [m["method"] for m in new.heard] == ["server/discover", "tools/list"]


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": -32601, "message": "?"}},
        {"error": {"code": -32602, "message": "?"}},
        {"error": {"code": 0, "message": ""}},
        {"error": "text"},
        {"result": {}},
        {"result": {"supportedVersions": "x"}},
        {"result": {"supportedVersions": ["2025-06-18"]}},
        {"error": {"code": -32022, "message": "?", "data": {"supported": ["2025-06-18"]}}},
    ],
)
async def test_any_other_answer_to_the_probe_leads_to_a_handshake(answer: dict[str, Any]) -> None:
    """MCP 2026-07-28, basic/transports/stdio: no known modern answer, so a handshake."""

    class Odd(ScriptedServer):
        async def _handle(self, message: dict[str, Any], line: bytes) -> None:
            if message.get("method") == "server/discover":
                self.say({"jsonrpc": "2.0", "id": message["id"], **answer})
            else:
                await super()._handle(message, line)

    async with a_world({"up": Odd("2025-06-18", tools={"a": None})}) as world:
        assert world.gateway.servers()[0].revision == "2025-06-18"


async def test_a_server_of_unknown_revisions_only_is_refused_with_what_we_speak() -> None:
    """MCP 2026-07-28, basic/transports/stdio: nothing mutual → fail, do not fall back."""

    class Future(ScriptedServer):
        async def _handle(self, message: dict[str, Any], line: bytes) -> None:
            self.fail(message, -32022, "?", {"supported": ["2031-01-01"], "requested": "2026-07-28"})

    async with a_world({"up": Future(tools={"a": None})}) as world:
        [server] = world.gateway.servers()
        assert str(server.status) == "failed"
        assert "2031-01-01" in (server.error or "")
        assert "2026-07-28" in (server.error or "")


async def test_a_server_that_dies_of_the_probe_is_started_again_with_a_handshake() -> None:
    """docs/behaviour.md#start: the era is found out, also if asking makes the server crash."""

    class Fragile(ScriptedServer):
        async def _handle(self, message: dict[str, Any], line: bytes) -> None:
            if message.get("method") == "server/discover":
                self.end()
            else:
                await super()._handle(message, line)

        async def serve(self, receive: Any, send: Any) -> None:
            self._ended.clear()
            await super().serve(receive, send)

    async with a_world({"up": Fragile("2025-06-18", tools={"a": None})}) as world:
        assert str(world.gateway.servers()[0].status) == "running"


@pytest.mark.parametrize(("pin", "revision"), [("legacy", "2025-11-25"), ("modern", "2026-07-28")])
async def test_a_pinned_era_is_not_probed(pin: str, revision: str) -> None:
    """docs/configuration.md#servers: `era` says what to speak."""
    server = ScriptedServer(revision, tools={"a": None})
    async with a_world({"up": server}, entries={"up": {"era": pin}}) as world:
        assert world.gateway.servers()[0].revision == revision
        assert server.heard[0]["method"] == ("initialize" if pin == "legacy" else "server/discover")


async def test_a_probe_that_gets_no_answer_is_never_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: a late answer is ignored, and no `notifications/cancelled` is sent for the probe."""
    monkeypatch.setattr("muxway.servers.negotiation._PROBE", 0.3)
    server = ScriptedServer("2025-06-18", tools={"a": None}, silent=frozenset({"server/discover"}))
    async with a_world({"up": server}) as world:
        assert world.gateway.servers()[0].revision == "2025-06-18"
        server.say({"jsonrpc": "2.0", "id": server.heard[0]["id"], "result": {"supportedVersions": ["2026-07-28"]}})
        assert await (await world.client()).tools() == ["up__a"]
        assert not any(message.get("method") == "notifications/cancelled" for message in server.heard)


@pytest.mark.parametrize("silent", ["initialize", "tools/list"])
async def test_a_server_that_never_answers_fails_alone_and_says_why(silent: str) -> None:
    """docs/behaviour.md#start: a server that never answers holds up nobody else."""
    async with a_world(
        {
            "mute": ScriptedServer(tools={"a": None}, silent=frozenset({silent})),
            "up": ScriptedServer(tools={"echo": None}),
        },
        entries={"mute": {"startTimeout": 0.3}},
    ) as world:
        states = {server.name: server for server in world.gateway.servers()}
        assert str(states["mute"].status) == "failed"
        assert "not ready after 0.3 s" in (states["mute"].error or "")
        assert await (await world.client()).tools() == ["up__echo"]


class Slow(ScriptedServer):
    """Lists its tools only when told to."""

    go: asyncio.Event

    async def _handle(self, message: dict[str, Any], line: bytes) -> None:
        if message.get("method") == "tools/list":
            await self.go.wait()
        await super()._handle(message, line)


async def test_a_slow_server_does_not_hold_up_the_others() -> None:
    """docs/behaviour.md#start: the gateway answers at once with what is ready."""
    slow = Slow(tools={"a": None})
    slow.go = asyncio.Event()
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        adding = asyncio.ensure_future(world.gateway.add("slow", server=slow))
        client = await world.client()
        assert await client.tools() == ["up__echo"]
        # Calls to it wait for its start instead of failing; a cancelled one is never sent.
        early = client.start("tools/call", {"name": "slow__a", "arguments": {"early": 1}})
        given_up = client.start("tools/call", {"name": "slow:a", "arguments": {"given": "up"}})
        client.tell("notifications/cancelled", {"requestId": given_up})
        assert (await client.call("up__echo", {"ok": 1})).result["structuredContent"] == {"ok": 1}
        slow.go.set()
        assert (await client.answer(early)).result["structuredContent"] == {"early": 1}
        await client.notice("notifications/tools/list_changed")
        assert str((await adding).status) == "running"
        assert sum(message.get("method") == "tools/call" for message in slow.heard) == 1


async def test_a_call_that_waited_for_a_start_that_fails_gets_the_reason() -> None:
    """Ours: nobody waits for ever."""
    mute = ScriptedServer(tools={"a": None}, silent=frozenset({"tools/list"}))
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        adding = asyncio.ensure_future(world.gateway.add("mute", server=mute, startTimeout=0.5))
        error = (await (await world.client()).call("mute.a")).error
        told = error["data"]["muxway"]
        assert (told["reason"], told["upstream"]) == ("not_running", "mute")
        assert 0 < told["retryAfterMs"] <= 1000
        assert "not ready after 0.5 s" in error["message"]
        await adding


async def test_a_server_without_tools_is_running_with_none() -> None:
    """Ours: a server of resources only is no failure."""

    class NoTools(ScriptedServer):
        async def _handle(self, message: dict[str, Any], line: bytes) -> None:
            if message.get("method") == "initialize":
                self.reply(
                    message, {"protocolVersion": "2025-06-18", "capabilities": {"resources": {}}, "serverInfo": {}}
                )
            else:
                await super()._handle(message, line)

    async with a_world({"up": NoTools()}) as world:
        [server] = world.gateway.servers()
        assert (str(server.status), list(server.tools)) == ("running", [])


async def test_a_server_that_reads_nothing_does_not_keep_others_from_being_asked_for_logs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = {"stuck": ScriptedServer(tools={"echo": None}), "fine": ScriptedServer(tools={"echo": None})}
    async with a_world(servers) as world:
        client = await world.client()
        pending = Connection.begin

        def overloaded(link: Connection, *args: Any, **keys: Any) -> Any:
            if link.name == "stuck":
                raise UpstreamError("stuck", "overloaded", "does not read its input")
            return pending(link, *args, **keys)

        monkeypatch.setattr(Connection, "begin", overloaded)
        assert (await client.ask("logging/setLevel", {"level": "info"})).result == {}
        await client.call("fine__echo")
        asked = [message for message in servers["fine"].heard if message.get("method") == "logging/setLevel"]
        assert [message["params"]["level"] for message in asked] == ["info"]
        monkeypatch.undo()
        await client.call("stuck__echo")
        assert [message["method"] for message in servers["stuck"].heard][-2:] == ["logging/setLevel", "tools/call"]
