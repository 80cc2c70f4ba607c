"""What a client may do wrong: a clear error, and no effect on anyone else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from muxway.testing import RawClient, ScriptedServer
from tests.conftest import HANDSHAKE_REVISIONS, a_world, said


async def _echo_still_works(client: RawClient) -> None:
    assert said((await client.call("up__echo", {"ok": 1})).result) == {"ok": 1}


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        (b"hello", -32700, "not valid JSON"),
        (b'{"jsonrpc":"2.0","id":5,"method":', -32700, "not valid JSON"),
        (b"\xff\xfe\x00", -32700, "not valid JSON"),
        (b"[" * 100_000, -32700, "not valid JSON"),
        (b'{"a":' * 100_000, -32700, "not valid JSON"),
        (b"42", -32600, "a JSON-RPC message is an object"),
        (b'"text"', -32600, "a JSON-RPC message is an object"),
        (b"null", -32600, "a JSON-RPC message is an object"),
        (b"{}", -32600, '"jsonrpc" must be "2.0"'),
        (b'{"jsonrpc":"1.0","id":5,"method":"ping"}', -32600, '"jsonrpc" must be "2.0"'),
        (b'{"jsonrpc":"2.0","id":5,"method":7}', -32600, "method"),
        (b'{"jsonrpc":"2.0","id":5,"method":"tools/list","params":[]}', -32600, "params"),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, "an id is a string or an integer"),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, "an id is a string or an integer"),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, "an id is a string or an integer"),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600, "an id is a string or an integer"),
        (b"[]", -32600, "batches"),
        (b'[{"jsonrpc":"2.0","id":5,"method":"ping"}]', -32600, "batches"),
    ],
)
async def test_a_line_that_is_no_request_gets_an_error_that_says_why(line: bytes, code: int, says: str) -> None:
    """docs/behaviour.md#a-server-talks-nonsense: a client's bad line gets an error that says what is wrong."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        client = await world.client()
        client.say(line)
        error = (await client.answer(5 if b'"id":5' in line and line[:1] != b"[" else None)).error
        assert error["code"] == code
        assert says in error["message"]
        await _echo_still_works(client)


@pytest.mark.parametrize(
    "line", [b"", b"   ", b"\r", b'{"jsonrpc":"2.0","id":99,"result":{}}', b'{"jsonrpc":"2.0","method":"x"}']
)
async def test_lines_that_need_no_answer_get_none(line: bytes) -> None:
    """JSON-RPC 2.0 §4.1: notifications get no answer, known or not. Ours: answers to nothing are dropped."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        door = world.gateway.memory_door()
        client = RawClient(door)
        await client.hello()
        client.say(line)
        await _echo_still_works(client)
        assert door.waiting() == 0


async def test_a_message_after_junk_or_a_byte_order_mark_is_understood() -> None:
    """docs/behaviour.md#a-server-talks-nonsense: junk before a message, BOM, CR LF."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        client = await world.client()
        for id_, prefix in enumerate((b"\xef\xbb\xbf", b"warming up... ", b"\xff\xff "), start=50):
            client.say(prefix + b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\r' % id_)
            assert (await client.answer(id_)).result == {}


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "resources/list", "anything"])
async def test_a_call_before_initialize_is_refused_with_the_remedy(method: str) -> None:
    """docs/errors.md#errors: a call before `initialize`."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        client = RawClient(world.gateway.memory_door())
        error = (await client.ask(method, {"name": "up__echo"})).error
        assert error["code"] == -32600
        assert "send `initialize` first" in error["message"]
        assert (await client.ask("ping")).result == {}
        await client.hello()
        await _echo_still_works(client)


async def test_initialize_twice_is_refused_and_the_session_goes_on() -> None:
    """Ours: one pipe has one handshake session."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        client = await world.client("2025-06-18")
        error = (await client.ask("initialize", {"protocolVersion": "2025-03-26", "capabilities": {}})).error
        assert error["code"] == -32600
        await _echo_still_works(client)


async def test_initialize_without_a_version_says_what_is_missing() -> None:
    """docs/errors.md#errors: wrong params."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        client = RawClient(world.gateway.memory_door())
        error = (await client.ask("initialize", {})).error
        assert error["code"] == -32602
        assert "protocolVersion" in error["message"]


@pytest.mark.parametrize(
    ("asked", "answered"),
    [*((r, r) for r in HANDSHAKE_REVISIONS), ("2026-07-28", "2025-11-25"), ("1999-01-01", "2025-11-25")],
)
async def test_initialize_echoes_a_known_version_and_answers_the_newest_otherwise(asked: str, answered: str) -> None:
    """MCP 2025-11-25, basic/lifecycle: a version that the server speaks is echoed, else it names another."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        client = RawClient(world.gateway.memory_door())
        result = (await client.ask("initialize", {"protocolVersion": asked, "capabilities": {}})).result
        assert result["protocolVersion"] == answered
        offered = {"tools", "prompts", "resources", "logging"}
        assert set(result["capabilities"]) == offered | ({"completions"} if answered > "2024-11-05" else set())


@pytest.mark.parametrize("method", ["resources/write", "prompts/call", "completion/list", "no/such"])
async def test_a_method_that_is_not_offered_is_not_found(method: str) -> None:
    """JSON-RPC 2.0 §5.1: -32601 for a method that is not available."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        for revision in ("2025-11-25", "2026-07-28"):
            error = (await (await world.client(revision)).ask(method, {})).error
            assert error["code"] == -32601
            assert method in error["message"]


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"]
)
async def test_handshake_methods_do_not_exist_statelessly(method: str) -> None:
    """MCP 2026-07-28, changelog: they were removed, so JSON-RPC 2.0 §5.1: -32601."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        assert (await (await world.client("2026-07-28")).ask(method, {})).error["code"] == -32601


async def test_a_bad_envelope_is_refused_by_its_own_code() -> None:
    """MCP 2026-07-28, basic/index: -32602 for half an envelope; basic/versioning: -32022 for another version."""
    version, capabilities = "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        client = RawClient(world.gateway.memory_door())
        for meta, code in (
            ({version: "2026-07-28"}, -32602),
            ({version: "2026-07-28", capabilities: []}, -32602),
            ({version: 5, capabilities: {}}, -32602),
            ({version: "2099-01-01", capabilities: {}}, -32022),
            ({version: "2025-11-25", capabilities: {}}, -32022),
        ):
            error = (await client.ask("tools/list", {"_meta": meta})).error
            assert error["code"] == code, meta
        assert error["data"]["supported"][0] == "2026-07-28"
        assert error["data"]["requested"] == "2025-11-25"


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({}, "params.name must be a string"),
        ({"name": 5}, "params.name must be a string"),
        ({"name": "up__echo", "arguments": [1]}, "arguments of up__echo must be an object"),
        ({"name": "up__echo", "arguments": "x"}, "arguments of up__echo must be an object"),
    ],
)
async def test_wrong_call_params_are_named(params: dict[str, Any], says: str) -> None:
    """docs/errors.md#errors: wrong params."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        client = await world.client()
        error = (await client.ask("tools/call", params)).error
        assert error["code"] == -32602
        assert says in error["message"]
        await _echo_still_works(client)


async def test_the_same_id_twice_does_not_disturb_the_first() -> None:
    """docs/errors.md#errors: the same id twice."""
    release = asyncio.Event()

    async def wait(server: ScriptedServer, request: dict[str, Any]) -> None:
        await release.wait()
        server.reply(request, {"content": [], "n": request["params"]["arguments"]["n"]})

    async with a_world({"up": ScriptedServer(tools={"wait": wait, "echo": None})}) as world:
        client = await world.client()
        client.start("tools/call", {"name": "up__wait", "arguments": {"n": 1}}, id_="same")
        client.start("tools/call", {"name": "up__wait", "arguments": {"n": 2}}, id_="same")
        error = (await client.answer(None)).error
        assert error["code"] == -32600
        assert '"same" is already in use' in error["message"]
        release.set()
        assert (await client.answer("same")).result["n"] == 1
        assert (await client.call("up__wait", {"n": 3})).result["n"] == 3


@pytest.mark.leaping  # none of them waits too long because the machine is slow
async def test_ten_thousand_calls_at_once_are_all_answered_to_their_own_callers() -> None:
    """docs/behaviour.md#too-much-at-once: 10,000 calls at once, where so many are allowed."""
    limits = {"maxCalls": 10_000, "maxCallsPerClient": 10_000}
    entries = {"up": {"maxQueue": 10_000}}
    async with a_world({"up": ScriptedServer(tools={"echo": None})}, entries=entries, gateway=limits) as world:
        client = await world.client()
        for n in range(10_000):
            client.start("tools/call", {"name": "up__echo", "arguments": {"n": n}}, id_=f"c{n}")
        for n in range(10_000):
            assert (await client.answer(f"c{n}")).result["structuredContent"] == {"n": n}


async def test_two_clients_with_the_same_ids_get_their_own_answers() -> None:
    """docs/behaviour.md#what-passes-untouched: ids of one connection say nothing on another."""
    entries = {"up": {"maxQueue": 600}}
    limits = {"maxCallsPerClient": 200}
    async with a_world({"up": ScriptedServer(tools={"echo": None})}, entries=entries, gateway=limits) as world:
        clients = [await world.client(revision) for revision in ("2025-11-25", "2026-07-28", "2024-11-05")]
        for n in range(200):
            for index, client in enumerate(clients):
                client.start("tools/call", {"name": "up__echo", "arguments": {"who": index, "n": n}}, id_=100 + n)
        for n in range(200):
            for index, client in enumerate(clients):
                assert said((await client.answer(100 + n)).result) == {"who": index, "n": n}


async def test_handshake_and_stateless_requests_share_one_pipe() -> None:
    """docs/behaviour.md#what-passes-untouched: handshake and 2026-07-28 requests side by side."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        door = world.gateway.memory_door()
        modern = RawClient(door, revision="2026-07-28")
        discovered = (await modern.ask("server/discover", id_="d")).result
        assert discovered["supportedVersions"][0] == "2026-07-28"
        assert discovered["resultType"] == "complete"
        legacy = RawClient(door, revision="2025-06-18")
        await legacy.hello()
        assert "resultType" not in (await legacy.call("up__echo", {"a": 1})).result
        assert (await modern.ask("tools/call", {"name": "up__echo", "arguments": {}}, id_="m")).result[
            "resultType"
        ] == "complete"


async def test_a_client_that_leaves_mid_call_cancels_its_own_calls_only() -> None:
    """docs/behaviour.md#client-leaves: closes its end mid-call."""
    started = asyncio.Event()

    def hang(server: ScriptedServer, request: dict[str, Any]) -> None:
        started.set()

    server = ScriptedServer(tools={"hang": hang, "echo": None})
    async with a_world({"up": server}) as world:
        door = world.gateway.memory_door()
        leaving = RawClient(door)
        await leaving.hello()
        leaving.start("tools/call", {"name": "up__hang", "arguments": {}})
        await asyncio.wait_for(started.wait(), 5)
        staying = await world.client()
        await door.close()
        await _echo_still_works(staying)
        assert sum(m.get("method") == "notifications/cancelled" for m in server.heard) == 1


# --- batches --------------------------------------------------------------------------------------


async def test_a_batch_is_answered_as_one_array_in_2025_03_26() -> None:
    """MCP 2025-03-26, basic/index, and JSON-RPC 2.0 §6: batches are taken. Ours: and never forwarded as such."""
    server = ScriptedServer(tools={"echo": None})
    async with a_world({"up": server}) as world:
        client = await world.client("2025-03-26")
        batch: list[Any] = [
            {
                "jsonrpc": "2.0",
                "id": 1001,
                "method": "tools/call",
                "params": {"name": "up__echo", "arguments": {"n": 1}},
            },
            {"jsonrpc": "2.0", "method": "notifications/whatever"},
            {"jsonrpc": "2.0", "id": "1001", "method": "tools/list"},
            {"jsonrpc": "2.0", "id": 1002, "method": "nope"},
            7,
            [],
        ]
        client.say(json.dumps(batch).encode())
        answers = (await client.answer_batch()).result
        by_id = {json.dumps(answer["id"]): answer for answer in answers}
        assert said(by_id["1001"]["result"]) == {"n": 1}
        assert by_id['"1001"']["result"]["tools"][0]["name"] == "up__echo"
        assert by_id["1002"]["error"]["code"] == -32601
        assert [answer["error"]["code"] for answer in answers if answer["id"] is None] == [-32600, -32600]
        assert all(isinstance(message, dict) for message in server.heard)


async def test_a_batch_whose_call_is_cancelled_still_answers_the_rest() -> None:
    """Ours: nobody waits for an answer that will never come."""
    started = asyncio.Event()

    def hang(server: ScriptedServer, request: dict[str, Any]) -> None:
        started.set()

    async with a_world({"up": ScriptedServer(tools={"hang": hang})}) as world:
        client = await world.client("2025-03-26")
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "up__hang", "arguments": {}}}
        client.say(json.dumps([call, {"jsonrpc": "2.0", "id": 2, "method": "ping"}]).encode())
        await asyncio.wait_for(started.wait(), 5)
        client.tell("notifications/cancelled", {"requestId": 1})
        assert [answer["id"] for answer in (await client.answer_batch()).result] == [2]


@pytest.mark.parametrize(
    ("many", "why"),
    [
        (b"1," * 100 + b"1", "at most 100 messages"),
        (b"{}," * 100 + b"{}", "at most 100 messages"),
        (b"1," * 5_000_000 + b"1", "a batch of more than 1048576 bytes"),
    ],
)
async def test_a_batch_of_too_many_messages_is_refused_as_a_whole(many: bytes, why: str) -> None:
    """Ours: with one error, whatever is in it (docs/behaviour.md#size-limits)."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        client = await world.client("2025-03-26")
        client.say(b"[" + many + b"]")
        assert why in (await client.answer(None)).error["message"]
        await _echo_still_works(client)
        assert client.unread == 0


@pytest.mark.parametrize(("line", "code"), [(b"[]", -32600), (b"[1,", -32700), (b"[" * 100_000, -32700)])
async def test_a_batch_that_is_none_is_refused(line: bytes, code: int) -> None:
    """JSON-RPC 2.0 §6."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        client = await world.client("2025-03-26")
        client.say(line)
        assert (await client.answer(None)).error["code"] == code
        await _echo_still_works(client)


@pytest.mark.parametrize("known", [True, False], ids=["session", "stranger"])
async def test_a_long_method_is_not_sent_back_whole(known: bool) -> None:
    """docs/behaviour.md#size-limits: what is said of a foreign word does not grow with it."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        client = await world.client() if known else RawClient(world.gateway.memory_door())
        client.say(json.dumps({"jsonrpc": "2.0", "id": 5, "method": "x" * 1_000_000}).encode())
        error = (await client.answer(5)).error
        assert "xxx…" in error["message"]
        assert len(error["message"]) < 1000
