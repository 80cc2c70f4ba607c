"""A `tools/call` from a client of every revision to a server of every revision, and back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muxway.servers.connection import Connection
from muxway.testing import ScriptedServer
from tests.conftest import HANDSHAKE_REVISIONS, REVISIONS, a_world, said

pytestmark = pytest.mark.leaping


@pytest.mark.parametrize("server_revision", REVISIONS)
@pytest.mark.parametrize("client_revision", REVISIONS)
async def test_a_tool_call_crosses_between_any_two_revisions(client_revision: str, server_revision: str) -> None:
    """docs/compatibility.md#what-crosses: a client of any revision uses a server of any revision."""
    server = ScriptedServer(server_revision, tools={"echo": None})
    async with a_world({"up": server}) as world:
        client = await world.client(client_revision)
        assert await client.tools() == ["up__echo"]
        reply = await client.call("up__echo", {"x": [1, None]})
        assert said(reply.result) == {"x": [1, None]}
        assert ("structuredContent" in reply.result) == (client_revision >= "2025-06-18")
        assert ("resultType" in reply.result) == (client_revision == "2026-07-28")
        sent = next(m for m in server.heard if m.get("method") == "tools/call")
        assert sent["params"]["name"] == "echo"
        meta = sent["params"].get("_meta", {})
        assert ("io.modelcontextprotocol/protocolVersion" in meta) == (server_revision == "2026-07-28")


async def test_ids_of_either_type_come_back_as_they_came() -> None:
    """JSON-RPC 2.0 §5: `1` and `"1"` are different ids, and both may be open at once."""
    release = asyncio.Event()

    async def wait(server: ScriptedServer, request: dict[str, Any]) -> None:
        await release.wait()
        server.reply(request, {"content": [], "for": request["params"]["arguments"]["who"]})

    async with a_world({"up": ScriptedServer(tools={"wait": wait})}) as world:
        client = await world.client()
        for id_ in (7, "7", "seven \u2028", -3):
            client.start("tools/call", {"name": "up__wait", "arguments": {"who": repr(id_)}}, id_=id_)
        release.set()
        for id_ in (7, "7", "seven \u2028", -3):
            assert (await client.answer(id_)).result["for"] == repr(id_)


async def test_an_id_is_echoed_in_its_own_spelling() -> None:
    """docs/behaviour.md#what-passes-untouched: payloads and ids stay the bytes that came in."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        client = await world.client()
        client.say(rb'{"jsonrpc":"2.0","id":"a\u0062\/c","method":"tools/list"}')
        assert rb'"id":"a\u0062\/c"' in (await client.answer("ab/c")).line


async def test_an_upstream_error_arrives_unchanged() -> None:
    """docs/errors.md#errors: a server's own errors are forwarded unchanged, code, message and data."""
    data = b'{"errno":-2,"code":"ENOENT","n":1.0,"z":null}'
    error = b'{"code":-32603,"message":"File not found: /x","data":' + data + b',"extra":[]}'

    def fail(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.say(b'{"jsonrpc":"2.0","id":%d,"error":%s}' % (request["id"], error))

    async with a_world({"up": ScriptedServer(tools={"fail": fail})}) as world:
        client = await world.client()
        reply = await client.call("up__fail")
        assert b'"error":' + error in reply.line


@pytest.mark.parametrize("spelling", ["up__echo", "up:echo", "up.echo"])
@pytest.mark.parametrize("separator", ["__", ":", "."])
async def test_calls_are_accepted_in_all_three_spellings_whatever_is_listed(separator: str, spelling: str) -> None:
    """docs/names.md#what-a-call-may-say: all three spellings, with every setting."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}, gateway={"separator": separator}) as world:
        client = await world.client()
        assert await client.tools() == [f"up{separator}echo"]
        assert (await client.call(spelling, {"a": 1})).result["structuredContent"] == {"a": 1}


@pytest.mark.parametrize(("revision", "code"), [*((r, -32601) for r in HANDSHAKE_REVISIONS), ("2026-07-28", -32602)])
async def test_an_unknown_tool_gets_its_revisions_code(revision: str, code: int) -> None:
    """docs/errors.md#errors: -32601 in handshake revisions; in 2026-07-28 -32602, as its page server/tools says."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        client = await world.client(revision)
        error = (await client.call("invalid:tool_name")).error
        assert (error["code"], error["message"]) == (code, "Tool not found: invalid:tool_name")
        error = (await client.call("tool_name")).error
        assert error["code"] == -32602
        assert error["message"] == "Tool name must be prefixed with server key: tool_name"


async def test_an_unknown_tool_error_names_the_nearest_ones() -> None:
    """Ours: an error says what to do."""
    async with a_world({"up": ScriptedServer(tools={"read_file": None})}) as world:
        error = (await (await world.client()).call("up__readfile")).error
        assert error["data"] == {"muxway": {"nearest": ["up__read_file"]}}


@pytest.mark.parametrize("client_revision", REVISIONS)
async def test_progress_arrives_under_the_callers_own_token(client_revision: str) -> None:
    """MCP 2025-11-25, basic/utilities/progress.

    The client's token with its type comes back; 2024-11-05 knows no message.
    """

    def work(server: ScriptedServer, request: dict[str, Any]) -> None:
        server.progress(request, 1, total=2, message="half", vendor={"x": 1})
        server.progress(request, 1, message="not increasing")
        server.progress(request, 2)
        server.reply(request, {"content": []})

    async with a_world({"up": ScriptedServer(tools={"work": work})}) as world:
        client = await world.client(client_revision)
        for token in ("tok", 12):
            await client.call("up__work", _meta={"progressToken": token})
            first = await client.notice("notifications/progress")
            expected = {"progressToken": token, "progress": 1, "total": 2, "message": "half", "vendor": {"x": 1}}
            if client_revision == "2024-11-05":
                del expected["message"]
            assert first["params"] == expected
            second = await client.notice("notifications/progress")
            assert second["params"] == {"progressToken": token, "progress": 2}


async def test_no_token_means_no_token_upstream() -> None:
    """docs/behaviour.md#cancel-and-progress: a token is minted upstream only if the client wants progress."""
    server = ScriptedServer(tools={"echo": None})
    async with a_world({"up": server}) as world:
        await (await world.client()).call("up__echo")
        assert "_meta" not in server.heard[-1]["params"]


async def test_vendor_and_trace_keys_of_meta_travel_on_and_hop_keys_do_not() -> None:
    """docs/behaviour.md#what-passes-untouched: keys that speak of one hop are written anew, all others pass."""
    server = ScriptedServer(tools={"echo": None})
    async with a_world({"up": server}) as world:
        client = await world.client("2026-07-28")
        await client.call("up__echo", _meta={"traceparent": "00-aa-bb-01", "com.example/k": {"deep": [1]}})
        assert server.heard[-1]["params"]["_meta"] == {"traceparent": "00-aa-bb-01", "com.example/k": {"deep": [1]}}


async def test_unknown_params_travel_on() -> None:
    """docs/behaviour.md#what-passes-untouched: lossless; only the name changes."""
    server = ScriptedServer(tools={"echo": None})
    async with a_world({"up": server}) as world:
        await (await world.client()).call("up__echo", {"a": 1}, vendorParam={"x": None}, zz=[1.0])
        assert server.heard[-1]["params"] == {
            "name": "echo",
            "arguments": {"a": 1},
            "vendorParam": {"x": None},
            "zz": [1.0],
        }


async def test_a_cancel_reaches_the_server_and_the_call_gets_no_answer() -> None:
    """MCP 2025-11-25, basic/utilities/cancellation: the receiver stops, frees what it used, and sends no answer."""
    started = asyncio.Event()

    async def hang(server: ScriptedServer, request: dict[str, Any]) -> None:
        started.set()

    server = ScriptedServer(tools={"hang": hang, "echo": None})
    async with a_world({"up": server}) as world:
        client = await world.client()
        id_ = client.start("tools/call", {"name": "up__hang", "arguments": {}})
        await asyncio.wait_for(started.wait(), 5)
        upstream_id = server.heard[-1]["id"]
        client.tell("notifications/cancelled", {"requestId": id_, "reason": "changed my mind"})
        await client.call("up__echo")
        cancelled = next(m for m in server.heard if m.get("method") == "notifications/cancelled")
        assert cancelled["params"] == {"requestId": upstream_id, "reason": "changed my mind"}
        # A late answer of the server is dropped.
        server.say({"jsonrpc": "2.0", "id": upstream_id, "result": {"content": []}})
        assert (await client.call("up__echo", {"still": "fine"})).result["structuredContent"] == {"still": "fine"}
        assert str(id_) not in client._answers


async def test_a_cancel_of_something_unknown_is_ignored() -> None:
    """MCP 2025-11-25, basic/utilities/cancellation: a cancellation of an unknown request may be ignored."""
    async with a_world({"up": ScriptedServer(tools={"echo": None})}) as world:
        client = await world.client()
        client.tell("notifications/cancelled", {"requestId": 4711})
        client.tell("notifications/cancelled")
        client.tell("notifications/made_up", {"x": 1})
        assert (await client.call("up__echo")).result


async def test_a_silent_call_is_given_up_and_the_server_told() -> None:
    """docs/behaviour.md#a-server-hangs: a timeout per call that tells the server."""

    def hang(server: ScriptedServer, request: dict[str, Any]) -> None:
        return None

    server = ScriptedServer(tools={"hang": hang, "echo": None})
    async with a_world({"up": server}, gateway={"callTimeout": 0.3}) as world:
        client = await world.client()
        error = (await client.call("up__hang")).error
        assert error["code"] == -32603
        assert error["data"]["muxway"] == {"reason": "timeout", "upstream": "up"}
        assert 'server "up" gave no sign for 0.3 s' in error["message"]
        await client.call("up__echo")
        assert any(m.get("method") == "notifications/cancelled" for m in server.heard)


async def test_progress_extends_the_idle_clock_but_not_the_hard_limit() -> None:
    """docs/behaviour.md#a-server-hangs: `callTimeout` is idle time, `callMax` is absolute."""

    async def work(server: ScriptedServer, request: dict[str, Any]) -> None:
        for step in range(100):
            server.progress(request, step + 1)
            await asyncio.sleep(0.1)
            if step == request["params"]["arguments"]["steps"]:
                server.reply(request, {"content": []})
                return

    async with a_world(
        {"up": ScriptedServer(tools={"work": work})}, gateway={"callTimeout": 0.4, "callMax": 1.5}
    ) as world:
        client = await world.client()
        ok = await client.call("up__work", {"steps": 8}, _meta={"progressToken": 1})
        assert ok.result == {"content": []}
        error = (await client.call("up__work", {"steps": 99}, _meta={"progressToken": 1})).error
        assert error["data"]["muxway"]["reason"] == "timeout"
        assert "callMax" in error["message"]


# --- byte for byte --------------------------------------------------------------------------------

_NUMBERS = st.sampled_from(
    ["0", "-0", "1.0", "1e5", "1E+5", "0.1e-2", "123456789012345678901234567890", "-1.50", "9007199254740993", "1e400"]
)
_STRINGS = st.one_of(
    st.text(max_size=8).map(lambda s: json.dumps(s, ensure_ascii=False)).filter(lambda s: s.isprintable()),
    st.text(max_size=8).map(json.dumps).filter(lambda s: "\\ud" not in s),
    st.sampled_from(['"\\u0041"', '"\\/"', '"\u2028"', '"\U0001f600"', '"\\ud83d\\ude00"', '"\\"name\\":1"']),
)
_SPACES = st.sampled_from(["", "", "", " ", "  ", "\t"])


def _object(members: list[tuple[str, str]], space: str) -> str:
    return "{" + ",".join(f"{space}{key}{space}:{space}{value}" for key, value in members) + space + "}"


_JSON_TEXT = st.recursive(
    st.one_of(_NUMBERS, _STRINGS, st.sampled_from(["null", "true", "false", "{}", "[]"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
        st.builds(_object, st.lists(st.tuples(_STRINGS, inner), max_size=4), _SPACES),
    ),
    max_leaves=12,
)
_KEYS = st.one_of(_STRINGS, st.sampled_from(['"a"', '"A"', '"\\u0061"', '"name"', '"_meta"', '"id"']))
_OBJECT_TEXT = st.builds(_object, st.lists(st.tuples(_KEYS, _JSON_TEXT), max_size=5), _SPACES)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(arguments=_OBJECT_TEXT, extra=_OBJECT_TEXT)
def test_arguments_and_results_cross_byte_for_byte(arguments: str, extra: str) -> None:
    """docs/behaviour.md#what-passes-untouched.

    Unknown fields, nulls, big integers, odd numbers, duplicate-looking keys and non-ASCII text.
    """

    async def run() -> None:
        result = b'{"content":[],"vendor":' + extra.encode() + b"}"

        def answer(server: ScriptedServer, request: dict[str, Any]) -> None:
            server.say(b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (request["id"], result))

        server = ScriptedServer(tools={"t": answer})
        async with a_world({"up": server}) as world:
            client = await world.client()
            client.say(
                b'{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"arguments":'
                + arguments.encode()
                + b',"name":"up__t"}}'
            )
            line = (await client.answer("x")).line
            assert line == b'{"jsonrpc":"2.0","id":"x","result":' + result + b"}"
            assert b'"arguments":' + arguments.encode() + b"}" in server.lines[-1]

    asyncio.run(run())


async def test_a_late_outcome_of_a_cancelled_request_is_not_the_answer_to_one_with_the_same_id() -> None:
    """An id must not be used twice, but who does it gets no wrong answer for it."""
    server = ScriptedServer(
        tools={"wait": lambda _server, _request: None, "echo": None},
        resources={"file:///a": "a"},
        capabilities={"tools": {}, "resources": {"subscribe": True}},
        silent=frozenset(("resources/subscribe",)),
    )
    async with a_world({"up": server}) as world:
        client = await world.client()
        client.start("resources/subscribe", {"uri": "file:///a"}, id_=900)
        client.tell("notifications/cancelled", {"requestId": 900})
        client.start("tools/call", {"name": "up__wait", "arguments": {}}, id_=900)
        heard: dict[str, dict[str, Any]] = {}
        async with asyncio.timeout(5):
            while not {"resources/subscribe", "tools/call"} <= heard.keys():
                await asyncio.sleep(0.01)
                heard = {message.get("method", ""): message for message in server.heard}
        server.reply(heard["resources/subscribe"], {})
        for _ in range(3):
            await client.call("up__echo")
        server.reply(heard["tools/call"], {"content": [], "right": True})
        assert (await client.answer(900)).result["right"]


async def test_a_call_that_cannot_be_put_into_words_leaves_nothing_behind() -> None:
    """It is answered once, and not again when its time is over."""
    async with a_world({"up": ScriptedServer("2026-07-28", tools={"echo": None})}) as world:
        client = await world.client("2026-07-28")
        meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
        params = json.dumps({"name": "up__echo", "arguments": {}, "_meta": meta})[:-2]
        client.say(
            f'{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{params},'
            '"io.modelcontextprotocol/clientCapabilities":{"x":1e999}}}}'.encode()
        )
        assert "error" in (await client.answer(5)).message
        link = world.gateway.runtime.servers["up"].connection
        assert isinstance(link, Connection)
        assert not link.called
