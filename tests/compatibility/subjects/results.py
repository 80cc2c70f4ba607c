"""What tools answer with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from muxway.wire.revisions import SERVER_INFO
from tests.compatibility.subjects.base import NEWEST, SAME, converted, same, says, subject, text
from tests.compatibility.subjects.definitions import LIST_SCHEMA

if TYPE_CHECKING:
    from tests.compatibility.matrix import Pair
    from tests.compatibility.server import Server
    from tests.compatibility.subjects.base import Outcome

RESULTS = "Results"


@subject("text", RESULTS, tool=says({"content": [text("hello")]}))
async def plain(pair: Pair) -> Outcome:
    """What nearly every tool answers with."""
    return same(await pair.content("plain"), [text("hello")])


IMAGE = {"type": "image", "data": "AA==", "mimeType": "image/png"}


@subject("image", RESULTS, tool=says({"content": [IMAGE]}))
async def image(pair: Pair) -> Outcome:
    """Known to every revision."""
    return same(await pair.content("image"), [IMAGE])


def embedded_in(name: str) -> dict[str, Any]:
    """A resource of the server of this name, inside something else."""
    return {"type": "resource", "resource": {"uri": f"file:///{name}/a.txt", "text": "hello", "mimeType": "text/plain"}}


def _say_embedded(server: Server, request: dict[str, Any]) -> None:
    server.reply(request, {"content": [embedded_in(server.name)]})


@subject("embedded resource", RESULTS, tool=_say_embedded)
async def embedded(pair: Pair) -> Outcome:
    """Known to every revision."""
    return same(await pair.content("embedded"), [embedded_in(pair.server.name)])


AUDIO = {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}


@subject("audio", RESULTS, since="2025-03-26", tool=says({"content": [AUDIO]}))
async def audio(pair: Pair) -> Outcome:
    """An unknown type of content breaks a client, so older ones get something they know."""
    content = await pair.content("audio")
    resource = {"uri": "muxway://audio/0", "mimeType": "audio/wav", "blob": "AA=="}
    if content == [{"type": "resource", "resource": resource}]:
        return converted("an embedded resource")
    return same(content, [AUDIO])


def link_to(name: str) -> dict[str, Any]:
    """A link to a resource of the server of this name."""
    return {"type": "resource_link", "name": "log", "uri": f"file:///{name}/x.log"}


def _say_link(server: Server, request: dict[str, Any]) -> None:
    server.reply(request, {"content": [link_to(server.name)]})


@subject("resource link", RESULTS, since="2025-06-18", tool=_say_link)
async def link(pair: Pair) -> Outcome:
    """Older clients get its name and address."""
    content = await pair.content("link")
    sent = link_to(pair.server.name)
    return converted("a text") if content == [text(f"log: {sent['uri']}")] else same(content, [sent])


@subject(
    "structured content, an object",
    RESULTS,
    since="2025-06-18",
    tool=says({"content": [], "structuredContent": {"n": 1}}),
)
async def structured(pair: Pair) -> Outcome:
    """Older clients get it as text, unless the server says it in text already."""
    result = await pair.result("structured")
    if result == {"content": [text('{"n": 1}')]}:
        return converted("a text")
    return same(result, {"content": [], "structuredContent": {"n": 1}})


@subject(
    "structured content, anything else",
    RESULTS,
    since=NEWEST,
    tool=says({"content": [], "structuredContent": [1, 2]}),
    definition={"outputSchema": LIST_SCHEMA},
)
async def structured_list(pair: Pair) -> Outcome:
    """Before 2026-07-28 it is an object; there is always a text for those who look only at that."""
    result = await pair.result("structured_list")
    if result == {"content": [text("[1, 2]")]}:
        return converted("a text")
    if result == {"content": [text("[1, 2]")], "structuredContent": {"result": [1, 2]}}:
        return converted("under `result`, and a text")
    return same(result, {"content": [], "structuredContent": [1, 2]})


@subject("a result that is an error", RESULTS, tool=says({"content": [text("no")], "isError": True}))
async def error_result(pair: Pair) -> Outcome:
    """The tool ran, and could not do it."""
    return same(await pair.result("error_result"), {"content": [text("no")], "isError": True})


@subject(
    "a JSON-RPC error", RESULTS, tool=lambda server, request: server.fail(request, -32011, "no", {"why": [None, 1.0]})
)
async def error(pair: Pair) -> Outcome:
    """With the server's own code and data."""
    reply = await pair.reply("error")
    return same(reply.error, {"code": -32011, "message": "no", "data": {"why": [None, 1.0]}})


_VENDOR = b'{"n":1.0,"none":null,"big":123456789012345678901234567890,"\\u0041":"\\u00e4"}'


def _say_vendor(server: Any, request: dict[str, Any]) -> None:
    known = b'"resultType":"complete",' if server.revision == NEWEST else b""
    head = b'{"jsonrpc":"2.0","id":%b,"result":{%b' % (json.dumps(request["id"]).encode(), known)
    server.say(head + b'"content":[],"x-vendor":' + _VENDOR + b"}}")


@subject("unknown members, as they are written", RESULTS, tool=_say_vendor)
async def vendor(pair: Pair) -> Outcome:
    """`1.0`, explicit nulls, 30-digit numbers and escapes included."""
    line = (await pair.reply("vendor")).line
    assert b'"x-vendor":' + _VENDOR in line, line
    return SAME


@subject("1 MiB", RESULTS, tool=says({"content": [text("x" * (1 << 20))]}))
async def big(pair: Pair) -> Outcome:
    """Up to `maxMessageBytes`, which is 16 MiB."""
    return same(await pair.content("big"), [text("x" * (1 << 20))])


@subject("`resultType`, server info", RESULTS, tool=says({"content": [], "_meta": {"vendor/key": 1}}))
async def envelope(pair: Pair) -> Outcome:
    """Each result of 2026-07-28 has them, no other may. Other keys of `_meta` stay."""
    result = (await pair.reply("envelope")).result
    meta = result["_meta"]
    assert meta.pop("vendor/key") == 1
    assert (result.pop("resultType", None) == "complete") is pair.client.stateless, result
    assert (SERVER_INFO in meta) is pair.client.stateless, result
    if pair.client.stateless == (pair.server.revision == NEWEST):
        return SAME
    return converted("added" if pair.client.stateless else "taken away")
