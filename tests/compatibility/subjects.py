"""What is tried between each client and each server: one function a subject.

A function gets a `Pair`, does something real with it, and returns what came of it: `SAME`, or `converted("how")`, or
`impossible("why")`. Anything else is an AssertionError, and a failure. Its docstring is the sentence on the page.
The tool it calls, if it calls one, is defined beside it and runs in the server; for other methods see `server.py`.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from muxway.protocol.era import SERVER_INFO

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from muxway.testing import ToolScript
    from tests.compatibility.matrix import Pair
    from tests.compatibility.server import Server

OLDEST, NEWEST = "2024-11-05", "2026-07-28"
PATIENCE = 10.0


@dataclass(frozen=True)
class Outcome:
    """What came of one subject between one client and one server."""

    kind: str
    """`same`, `converted`, `impossible`, `failed`, or `absent`: not in the server's revision."""
    words: str = ""


SAME = Outcome("same")
ABSENT = Outcome("absent")


def converted(words: str) -> Outcome:
    """It arrives, in other words."""
    return Outcome("converted", words)


def impossible(words: str) -> Outcome:
    """It does not arrive, for this reason."""
    return Outcome("impossible", words)


@dataclass(frozen=True)
class Subject:
    """Something that may cross."""

    name: str
    title: str
    group: str
    check: Callable[[Pair], Awaitable[Outcome]]
    since: str = OLDEST
    """The first revision whose servers have it."""
    until: str = NEWEST
    """The last one."""
    tool: ToolScript | None = None
    """What the server's tool of this name does; None: it echoes its arguments."""
    definition: Mapping[str, Any] = field(default_factory=dict)
    """What the definition of that tool has besides name and input schema."""
    together: bool = False
    """All clients try it at the same time, and may wait for each other: `Pair.everybody`."""

    @property
    def sentence(self) -> str:
        """What the page says of it."""
        return (self.check.__doc__ or "").strip()

    def exists_in(self, revision: str) -> bool:
        """Whether a server of this revision can have it."""
        return self.since <= revision <= self.until


SUBJECTS: list[Subject] = []


def subject(
    title: str, group: str, **more: Any
) -> Callable[[Callable[[Pair], Awaitable[Outcome]]], Callable[[Pair], Awaitable[Outcome]]]:
    """Make a function a subject."""

    def add(check: Callable[[Pair], Awaitable[Outcome]]) -> Callable[[Pair], Awaitable[Outcome]]:
        SUBJECTS.append(Subject(check.__name__, title, group, check, **more))
        return check

    return add


def says(result: dict[str, Any]) -> ToolScript:
    """A tool that answers with this."""
    return lambda server, request: server.reply(request, result)


def text(words: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": words}


def same(got: object, sent: object) -> Outcome:
    """It must have arrived as it was sent."""
    assert got == sent, f"sent {sent!r}, got {got!r}"
    return SAME


# --- definitions of tools ---------------------------------------------------------------------

DEFINITIONS = "Definitions of tools"


@subject("name, description, input schema", DEFINITIONS, definition={"description": "Ä", "x-vendor": {"n": None}})
async def listing(pair: Pair) -> Outcome:
    """Members that no revision knows are listed too."""
    shown = await pair.definition("listing")
    return same(shown, {"inputSchema": {"type": "object"}, "description": "Ä", "x-vendor": {"n": None}})


@subject("`title`", DEFINITIONS, since="2025-06-18", definition={"title": "A title"})
async def title(pair: Pair) -> Outcome:
    """Clients of 2025-03-26 know a title only among the annotations."""
    shown = await pair.definition("title")
    if shown.get("annotations") == {"title": "A title"}:
        return converted("in `annotations`")
    return same(shown["title"], "A title") if "title" in shown else converted("left out")


@subject("`annotations`", DEFINITIONS, since="2025-03-26", definition={"annotations": {"readOnlyHint": True}})
async def annotations(pair: Pair) -> Outcome:
    """Hints on what a tool does."""
    shown = await pair.definition("annotations")
    return same(shown["annotations"], {"readOnlyHint": True}) if "annotations" in shown else converted("left out")


@subject("`icons`", DEFINITIONS, since="2025-11-25", definition={"icons": [{"src": "https://example.com/i.png"}]})
async def icons(pair: Pair) -> Outcome:
    """Pictures to show beside a tool."""
    shown = await pair.definition("icons")
    return same(shown["icons"], [{"src": "https://example.com/i.png"}]) if "icons" in shown else converted("left out")


@subject(
    "`execution`",
    DEFINITIONS,
    since="2025-11-25",
    until="2025-11-25",
    definition={"execution": {"taskSupport": "optional"}},
)
async def execution(pair: Pair) -> Outcome:
    """Says that a call may run as a task, which muxway does not offer."""
    shown = await pair.definition("execution")
    return same(shown["execution"], {"taskSupport": "optional"}) if "execution" in shown else converted("left out")


_OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}}
_LIST = {"type": "array", "items": {"type": "integer"}}


@subject("`outputSchema` of an object", DEFINITIONS, since="2025-06-18", definition={"outputSchema": _OBJECT})
async def object_schema(pair: Pair) -> Outcome:
    """What the structured content of a result looks like."""
    shown = await pair.definition("object_schema")
    return same(shown["outputSchema"], _OBJECT) if "outputSchema" in shown else converted("left out")


@subject("`outputSchema` of anything else", DEFINITIONS, since=NEWEST, definition={"outputSchema": _LIST})
async def list_schema(pair: Pair) -> Outcome:
    """Before 2026-07-28 the output of a tool is an object, so it is put into one."""
    shown = await pair.definition("list_schema")
    if "outputSchema" not in shown:
        return converted("left out")
    wrapped = {"type": "object", "properties": {"result": _LIST}, "required": ["result"]}
    return converted("under `result`") if shown["outputSchema"] == wrapped else same(shown["outputSchema"], _LIST)


# --- results ----------------------------------------------------------------------------------

RESULTS = "Results"


@subject("text", RESULTS, tool=says({"content": [text("hello")]}))
async def plain(pair: Pair) -> Outcome:
    """What nearly every tool answers with."""
    return same(await pair.content("plain"), [text("hello")])


_IMAGE = {"type": "image", "data": "AA==", "mimeType": "image/png"}


@subject("image", RESULTS, tool=says({"content": [_IMAGE]}))
async def image(pair: Pair) -> Outcome:
    """Known to every revision."""
    return same(await pair.content("image"), [_IMAGE])


_EMBEDDED = {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "hello", "mimeType": "text/plain"}}


@subject("embedded resource", RESULTS, tool=says({"content": [_EMBEDDED]}))
async def embedded(pair: Pair) -> Outcome:
    """Known to every revision."""
    return same(await pair.content("embedded"), [_EMBEDDED])


_AUDIO = {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}


@subject("audio", RESULTS, since="2025-03-26", tool=says({"content": [_AUDIO]}))
async def audio(pair: Pair) -> Outcome:
    """An unknown type of content breaks a client, so older ones get something they know."""
    content = await pair.content("audio")
    resource = {"uri": "muxway://audio/0", "mimeType": "audio/wav", "blob": "AA=="}
    if content == [{"type": "resource", "resource": resource}]:
        return converted("an embedded resource")
    return same(content, [_AUDIO])


_LINK = {"type": "resource_link", "name": "log", "uri": "file:///x.log"}


@subject("resource link", RESULTS, since="2025-06-18", tool=says({"content": [_LINK]}))
async def link(pair: Pair) -> Outcome:
    """Older clients get its name and address."""
    content = await pair.content("link")
    return converted("a text") if content == [text("log: file:///x.log")] else same(content, [_LINK])


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
    definition={"outputSchema": _LIST},
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


# --- calls and listings under way -------------------------------------------------------------

UNDER_WAY = "On the way"


def _report(server: Any, request: dict[str, Any]) -> None:
    server.progress(request, 1, total=2, message="half")
    server.reply(request, {"content": []})


@subject("progress", UNDER_WAY, tool=_report)
async def progress(pair: Pair) -> Outcome:
    """Under the caller's own token. Clients of 2024-11-05 do not know its `message`."""
    token = f"token-{pair.server.name}"
    await pair.reply("progress", _meta={"progressToken": token})
    got = (await pair.client.notice("notifications/progress"))["params"]
    sent = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
    if got == {name: value for name, value in sent.items() if name != "message"}:
        return converted("without its message")
    return same(got, sent)


async def _wait_for_cancel(server: Server, request: dict[str, Any]) -> None:
    if "report" in request["params"]["arguments"]:
        counts = {"running": len(server.waiting), "cancelled": server.cancelled}
        server.reply(request, {"content": [text(json.dumps(counts))]})
    else:
        await server.until_cancelled(request["id"])


@subject("cancellation", UNDER_WAY, tool=_wait_for_cancel)
async def cancel(pair: Pair) -> Outcome:
    """By a notice; over HTTP in 2026-07-28 by closing the connection, towards servers too."""

    async def until(**wanted: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while wanted.items() - (await counts()).items():
                await asyncio.sleep(0.005)

    async def counts() -> dict[str, int]:
        return json.loads((await pair.content("cancel", {"report": True}))[0]["text"])

    before = (await counts())["cancelled"]
    call = pair.client.start("tools/call", {"name": pair.name_of("cancel"), "arguments": {}})
    await until(running=1)
    pair.client.cancel(call)
    await until(running=0, cancelled=before + 1)
    return SAME


def _change(server: Any, request: dict[str, Any]) -> None:
    if "report" not in request["params"]["arguments"]:
        server.change_list()
    server.reply(request, {"content": [text(str(server.told))]})


@subject("a changed list of tools", UNDER_WAY, tool=_change, together=True)
async def list_change(pair: Pair) -> Outcome:
    """Every client is told; a stateless one where it listens, as muxway itself does not yet at such servers."""
    late = pair.name_of("late")
    before = late in await pair.client.names()
    pair.client.notices.clear()
    # One change for all of them: a server that changes its list again and again is listed more and more seldom.
    if await pair.everybody() == 0:
        await pair.content("list_change")
    await pair.everybody()
    if await pair.content("list_change", {"report": True}) == [text("0")]:
        return impossible("not listened for yet")
    async with asyncio.timeout(PATIENCE):
        while (late in await pair.client.names()) == before:
            await pair.client.notice("notifications/tools/list_changed")
    return SAME


@subject("pages of a list", UNDER_WAY)
async def pages(pair: Pair) -> Outcome:
    """Servers' pages are read to the end; clients get pages only if `pageSize` says so, as here."""
    assert pair.client.pages > 1
    names = await pair.client.names()
    expected = {pair.name_of(other.name) for other in SUBJECTS if other.exists_in(pair.server.revision)}
    assert expected <= names, expected - names
    return SAME
