"""Messages that two readers could understand differently, or that no reader should try (docs/security.md)."""

from __future__ import annotations

import json

import pytest

from muxway.testing import ScriptedServer
from tests.conftest import REVISIONS, a_world

CALL = '"method":"tools/call","params":{"name":"s__safe","arguments":{}}'
DOUBLED = [
    '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"s__evil","arguments":{}},' + CALL + "}",
    '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"s__evil","name":"s__safe","arguments":{}}}',
    '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"s__evil","n\\u0061me":"s__safe","arguments":{}}}',
    '{"jsonrpc":"2.0","id":7,"method":"ping",' + CALL + "}",
]


@pytest.mark.parametrize("line", DOUBLED)
async def test_what_stands_twice_reaches_a_server_once_or_not_at_all(line: str) -> None:
    """docs/security.md#what-is-promised-threat-by-threat.

    The server cannot read another message than the one that was judged here.
    """
    server = ScriptedServer(tools={"safe": None, "evil": None})
    async with a_world({"s": server}, entries={"s": {"hiddenTools": ["evil"]}}) as world:
        client = await world.client()
        await client.ask("ping")
        client.say(line.encode())
        reply = await client.answer(7)
        calls = [raw for raw in server.lines if b"tools/call" in raw]
        if "error" in reply.message:
            assert calls == []
        else:
            [raw] = calls
            assert (raw.count(b'"method"'), raw.count(b'"params"'), raw.count(b'"name"')) == (1, 1, 1)
            assert json.loads(raw)["params"]["name"] == "safe"


@pytest.mark.parametrize("spelling", ["Method", "METHOD", "m\u0435thod"])
async def test_names_of_members_are_exact(spelling: str) -> None:
    """RFC 8259 §8.3 and JSON-RPC 2.0 §2: names of members are exact; a Go server would take `Method` for `method`."""
    server = ScriptedServer(tools={"safe": None})
    async with a_world({"s": server}) as world:
        client = await world.client()
        message = {"jsonrpc": "2.0", "id": 7, spelling: "tools/call", "params": {"name": "s__safe", "arguments": {}}}
        client.say(json.dumps(message).encode())
        assert (await client.ask("ping")).message
        assert not [raw for raw in server.lines if b"tools/call" in raw]


@pytest.mark.parametrize("revision", [REVISIONS[0], REVISIONS[-1]])
@pytest.mark.parametrize("depth", [5_000, 200_000])
async def test_nesting_without_end_is_refused_and_disturbs_nobody(depth: int, revision: str) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: from a client and from a server."""
    deep = "[" * depth + "]" * depth

    def answers(server: ScriptedServer, request: dict[str, object]) -> None:
        server.say(b'{"jsonrpc":"2.0","id":%d,"result":{"content":%s}}' % (request["id"], deep.encode()))

    server = ScriptedServer(tools={"deep": answers, "echo": None})
    async with a_world({"s": server}) as world:
        client = await world.client(revision)
        client.say(b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":%s}}' % deep.encode())
        assert (await client.answer(7)).message["error"]["code"] == -32700
        assert "error" in (await client.call("s__deep")).message
        assert (await client.call("s__echo", {"x": 1})).result
