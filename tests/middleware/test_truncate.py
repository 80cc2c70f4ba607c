"""`truncate`: what is cut, what stays valid, and who can read the rest."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from muxway.calls.call import Call, Caller
from muxway.calls.ports import Waiter
from muxway.errors import RpcError
from muxway.middleware.builtin import truncate
from muxway.middleware.builtin.truncate import Truncate
from muxway.testing import RawClient, ScriptedServer
from muxway.wire import envelopes
from muxway.wire.revisions import NEWEST

from ..conftest import REVISIONS, a_world
from .chained import chained

if TYPE_CHECKING:
    from ..conftest import World

URI = re.compile(r"muxway://truncated/[\w-]{22}\?offset=\d+&length=\d+")
LONG = "".join(f"line {number:06} äöü€😀\n" for number in range(20_000))


def saying(result: dict[str, Any], **definition: Any) -> ScriptedServer:
    """A server whose tool says this."""
    shown = [{"name": "say", "inputSchema": {"type": "object"}, **definition}]
    return ScriptedServer(tools={"say": lambda server, request: server.reply(request, result)}, definitions=shown)


def text(*texts: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": one} for one in texts]}


async def read_all(client: RawClient, uri: str) -> bytes:
    """All of it from this slice on, following `next`."""
    whole = b""
    while uri:
        content = (await client.ask("resources/read", {"uri": uri})).result["contents"][0]
        assert content["uri"] == uri
        whole += content["text"].encode() if "text" in content else base64.b64decode(content["blob"])
        uri = content["_meta"]["muxway/truncated"].get("next", "")
    return whole


async def test_a_result_within_the_budget_stays_the_bytes_that_came() -> None:
    async with chained({"up": saying(text("x" * 3000))}, Truncate(bytes=4000)) as world:
        client = await world.client()
        assert (await client.call("up__say")).result == text("x" * 3000)


@pytest.mark.parametrize("blocks", [0, 1, 200])
async def test_large_metadata_is_taken_out_and_the_content_stays(blocks: int) -> None:
    """docs/middleware/truncate.md: everything in a result counts, and every note is true."""
    meta = {"big": "m" * 9000, "small": 1, "n" * 3000: 2}
    result = {**text(*("x" * 20 for _ in range(blocks))), "_meta": meta, "vendor": "v" * 2000}
    async with chained({"up": saying(result)}, Truncate(bytes=5000)) as world:
        client = await world.client()
        got = (await client.call("up__say")).result
        assert len(json.dumps(got, ensure_ascii=False)) < 5200
        assert got["_meta"] == {"small": 1}
        notes = [block["text"] for block in got["content"] if block.get("text", "").startswith("[")]
        assert not any(note.startswith(("[0 ", "[-")) for note in notes)
        assert "`vendor`" in notes[0]
        assert "`_meta.big`" in notes[0]
        found = URI.search(notes[0])
        assert found is not None
        assert json.loads(await read_all(client, found[0])) == {
            "vendor": "v" * 2000,
            "_meta.big": "m" * 9000,
            "_meta." + "n" * 3000: 2,
        }
        assert blocks == 0 or {"type": "text", "text": "x" * 20} in got["content"]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_long_text_becomes_its_beginning_and_end_and_the_rest_can_be_read(revision: str) -> None:
    async with chained({"up": saying(text("before", LONG, "after"))}, Truncate(bytes=10_000)) as world:
        client = await world.client(revision)
        reply = await client.call("up__say")
        assert len(reply.line) < 10_200
        content = reply.result["content"]
        digest = content[1]["text"]
        assert (content[0]["text"], content[-1]["text"]) == ("before", "after")
        assert digest.startswith(LONG[:2000])
        assert digest.endswith(LONG[-500:].strip())
        assert f"{len(LONG.encode()):,} bytes" in digest
        uri = URI.search(digest)
        assert uri is not None
        links = [block for block in content if block["type"] == "resource_link"]
        assert [link["uri"] for link in links] == ([uri[0]] if revision >= "2025-06-18" else [])
        offset = int(uri[0].partition("offset=")[2].partition("&")[0])
        assert await read_all(client, uri[0]) == LONG.encode()[offset:]
        first = (await client.ask("resources/read", {"uri": uri[0]})).result
        assert len(first["contents"][0]["text"].encode()) <= 10_000
        assert ("resultType" in first) == ("ttlMs" in first) == (revision == "2026-07-28")


async def test_slices_of_any_size_put_together_are_the_text() -> None:
    """Ours: a slice never ends within a character, and whoever counts on blindly misses none."""
    body = "aä€😀" * 500
    async with chained({"up": saying(text(body))}, Truncate(bytes=1000)) as world:
        client = await world.client()
        digest = (await client.call("up__say")).result["content"][0]["text"]
        uri = URI.search(digest)
        assert uri is not None
        base = uri[0].partition("?")[0]
        for step in (1, 2, 3, 5, 7, 333):
            pieces = [
                (await client.ask("resources/read", {"uri": f"{base}?offset={offset}&length={step}"})).result
                for offset in range(0, 100 if step < 300 else len(body.encode()), step)
            ]
            whole = "".join(piece["contents"][0]["text"] for piece in pieces)
            assert body.startswith(whole)
            assert len(whole.encode()) >= 97
        for odd in ("?offset=99999999&length=5", "?offset=0&length=0"):
            content = (await client.ask("resources/read", {"uri": base + odd})).result["contents"][0]
            assert content["text"] == ""
        whole = (await client.ask("resources/read", {"uri": base})).result["contents"][0]
        assert len(whole["text"].encode()) <= 1000


async def test_pictures_and_embedded_resources_give_way_to_links() -> None:
    picture = bytes(range(256)) * 100
    encoded = base64.b64encode(picture).decode()
    result = {
        "content": [
            {"type": "image", "data": encoded, "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "file:///a", "blob": encoded}},
            {"type": "resource", "resource": {"uri": "file:///b", "text": LONG, "mimeType": "text/x"}},
            {"type": "audio", "data": "not base64!" * 1000, "mimeType": "audio/x"},
            {"type": "text", "text": "short"},
        ]
    }
    async with chained({"up": saying(result)}, Truncate(bytes=8000)) as world:
        client = await world.client()
        reply = await client.call("up__say")
        assert len(reply.line) < 8200
        content = reply.result["content"]
        assert content[-1] == {"type": "text", "text": "short"}
        links = [block for block in content if block["type"] == "resource_link"]
        assert [link["mimeType"] for link in links] == [
            "image/png",
            "application/octet-stream",
            "text/x",
            "application/json",
        ]
        assert await read_all(client, links[0]["uri"]) == await read_all(client, links[1]["uri"]) == picture
        assert json.loads(await read_all(client, links[3]["uri"])) == result["content"][3]


@pytest.mark.parametrize("count", [5000, 12_000, 30_000])
async def test_too_many_small_blocks_become_the_first_ones_and_a_link(count: int) -> None:
    async with chained({"up": saying(text(*map(str, range(count))))}, Truncate(bytes=5000)) as world:
        client = await world.client()
        reply = await client.call("up__say")
        assert len(reply.line) < 5200
        *shown, note, link = reply.result["content"]
        assert [block["text"] for block in shown] == [str(number) for number in range(len(shown))]
        told = re.search(r"(More than )?([\d,]+) further blocks", note["text"])
        assert told is not None
        number, left = int(told[2].replace(",", "")), count - len(shown)
        assert number == left if count == 5000 else number < left
        rest = json.loads(await read_all(client, link["uri"]))
        assert [block["text"] for block in rest] == [str(number) for number in range(len(shown), count)]


async def test_structured_content_that_does_not_fit_is_taken_out_with_a_note() -> None:
    data = {"rows": [{"n": number} for number in range(2000)]}
    async with chained({"up": saying({"content": [], "structuredContent": data})}, Truncate(bytes=4000)) as world:
        client = await world.client()
        result = (await client.call("up__say")).result
        assert "structuredContent" not in result
        assert "structured content" in result["content"][0]["text"]
        assert json.loads(await read_all(client, result["content"][1]["uri"])) == data


async def test_structured_content_stays_what_the_schema_promises() -> None:
    """MCP: with an output schema, the structured content must be there and fit it."""
    data = {"rows": [{"id": "r1", "body": LONG, "n": 1.0}], "ok": True}
    row = {"type": "object", "properties": {"id": {"type": "string"}, "body": {"type": "string"}}, "required": ["id"]}
    rows = {"type": "array", "items": row}
    schema = {"type": "object", "properties": {"rows": rows, "ok": {"type": "boolean"}}, "required": ["rows", "ok"]}
    answer = {"content": [{"type": "text", "text": json.dumps(data)}], "structuredContent": data}
    async with chained({"up": saying(answer, outputSchema=schema)}, Truncate(bytes=10_000)) as world:
        client = await world.client()
        reply = await client.call("up__say")
        assert len(reply.line) < 10_200
        structured = reply.result["structuredContent"]
        assert jsonschema_rs.is_valid(schema, structured)
        assert structured["rows"][0]["id"] == "r1"
        body = structured["rows"][0]["body"]
        assert body.startswith(LONG[:2000])
        uri = body.partition("all of it: ")[2].rstrip("]")
        assert json.loads(await read_all(client, uri)) == data
    row["properties"]["body"] = {"type": "string", "pattern": "\n$"}
    async with chained({"up": saying(answer, outputSchema=schema)}, Truncate(bytes=10_000)) as world:
        client = await world.client()
        result = (await client.call("up__say")).result
        assert result["structuredContent"] == data
        assert len(json.dumps(result["content"])) < 10_200


async def test_text_that_grows_in_json_is_within_the_budget_all_the_same() -> None:
    hostile = "\x01\x1b[31m" * 50_000
    async with chained({"up": saying(text(hostile, hostile))}, Truncate(bytes=6000)) as world:
        client = await world.client()
        assert len((await client.call("up__say")).line) < 6200


async def ask_as(world: World, caller: Caller, method: str, **params: Any) -> dict[str, Any]:
    """The result of a request of this caller."""
    call = Call(caller, method, {name: envelopes.Raw(envelopes.encode(value)) for name, value in params.items()})
    waiter = Waiter()
    return envelopes.value(
        await asyncio.wait_for(waiter.outcome(world.gateway.runtime.dispatcher().handle(call, waiter)), 10)
    )


async def test_nobody_else_can_read_it() -> None:
    async with chained({"up": saying(text(LONG))}, Truncate()) as world:
        ann, bob = (Caller(revision=NEWEST, principal=who, party=who) for who in (b"ann", b"bob"))
        link = (await ask_as(world, ann, "tools/call", name="up__say"))["content"][1]["uri"]
        assert (await ask_as(world, ann, "resources/read", uri=link))["contents"][0]["text"]
        with pytest.raises(RpcError, match="Resource not found"):
            await ask_as(world, bob, "resources/read", uri=link)
        session, other = await world.client(), await world.client()
        link = (await session.call("up__say")).result["content"][1]["uri"]
        assert "result" in (await session.ask("resources/read", {"uri": link})).message
        error = (await other.ask("resources/read", {"uri": link})).error
        assert (error["code"], error["data"]) == (-32002, {"uri": link})
        for forged in ("muxway://truncated/x", "muxway://truncated/" + "A" * 22, link + "0" * 30):
            assert "error" in (await session.ask("resources/read", {"uri": forged})).message


async def test_it_is_kept_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(truncate, "monotonic", lambda: now)
    kept = Truncate(keep=10)
    async with chained({"up": saying(text(LONG))}, kept) as world:
        client = await world.client()
        link = (await client.call("up__say")).result["content"][1]["uri"]
        now = 9.9
        assert "result" in (await client.ask("resources/read", {"uri": link})).message
        now = 10.1
        assert "call the tool again" in (await client.ask("resources/read", {"uri": link})).error["message"]
        assert (len(kept._kept), kept._size) == (0, 0)


async def test_memory_is_bounded_and_the_oldest_goes_first() -> None:
    size = len(LONG.encode())
    kept = Truncate(bytes=2000, memory=2 * size + 10)
    async with chained({"up": saying(text(LONG))}, kept) as world:
        client = await world.client()
        links = [(await client.call("up__say")).result["content"][1]["uri"] for _ in range(5)]
        readable = ["result" in (await client.ask("resources/read", {"uri": link})).message for link in links]
        assert readable == [False, False, False, True, True]
        assert kept._size == 2 * size
    async with chained({"up": saying(text(LONG))}, Truncate(bytes=2000, memory=0)) as world:
        client = await world.client()
        (block,) = (await client.call("up__say")).result["content"]
        assert "too large to be kept" in block["text"]


async def test_errors_of_tools_are_cut_and_questions_are_not() -> None:
    async with chained({"up": saying({**text(LONG), "isError": True})}, Truncate()) as world:
        client = await world.client()
        result = (await client.call("up__say")).result
        assert result["isError"] is True
        assert len(result["content"][0]["text"]) < 5000

    def asks(server: ScriptedServer, request: dict[str, Any]) -> None:
        params = {"messages": [{"role": "user", "content": {"type": "text", "text": LONG}}], "maxTokens": 1}
        server.need(request, {"q": {"method": "sampling/createMessage", "params": params}}, "s")

    async with chained({"up": ScriptedServer("2026-07-28", tools={"say": asks})}, Truncate()) as world:
        client = RawClient(world.gateway.memory_door(), revision="2026-07-28", capabilities={"sampling": {}})
        asked = (await client.call("up__say")).result["inputRequests"]["q"]
        assert asked["params"]["messages"][0]["content"]["text"] == LONG


async def test_it_can_be_configured() -> None:
    around = [{"use": "truncate", "tokens": 500, "keep": 60, "memory": 1_000_000}]
    async with a_world({"up": saying(text(LONG))}, middleware=around) as world:
        client = await world.client()
        reply = await client.call("up__say")
        assert len(reply.line) < 2200
        assert (await read_all(client, reply.result["content"][1]["uri"])).decode() in LONG


@pytest.mark.parametrize(
    "options",
    [{"bytes": 10}, {"tokens": 10}, {"bytes": 5000, "tokens": 5000}, {"keep": 0}, {"keep": 1e9}, {"memory": -1}],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|not both"):
        Truncate(**options)
