"""Lists as a whole: their pages, their changes, and what servers say of themselves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from muxway.wire.revisions import SUBSCRIPTION_ID
from tests.compatibility.subjects.base import NEWEST, SAME, SUBJECTS, converted, subject, text
from tests.compatibility.subjects.prompts import SINCE
from tests.compatibility.subjects.resources import contents_of, uri
from tests.pace import PATIENCE

if TYPE_CHECKING:
    from tests.compatibility.matrix import Pair
    from tests.compatibility.server import Server
    from tests.compatibility.subjects.base import Outcome

LISTS = "Lists and changes"
FILLERS = range(6)
"""Each server lists as many more of everything, so that its lists have pages."""


@subject("instructions", LISTS)
async def instructions(pair: Pair) -> Outcome:
    """Those of all servers, each under a heading: in the handshake, or when a client of 2026-07-28 discovers."""
    said = pair.client.instructions
    assert f"## {pair.server.name}\n" in said, said
    assert f"Ask {pair.server.name} kindly." in said, said
    return SAME


async def _all(pair: Pair, member: str, expected: set[str]) -> Outcome:
    listed = await pair.client.list_again(member)
    assert pair.client.pages > 1
    assert expected <= listed.keys(), expected - listed.keys()
    return SAME


@subject("pages of tools", LISTS)
async def tool_pages(pair: Pair) -> Outcome:
    """Servers' pages are read to the end; clients get pages only if `pageSize` says so, as here."""
    names = {pair.name_of(other.name) for other in SUBJECTS if other.exists_in(pair.server.revision)}
    return await _all(pair, "tools", names)


@subject("pages of prompts", LISTS)
async def prompt_pages(pair: Pair) -> Outcome:
    """As for tools."""
    names = {name for name, since in SINCE.items() if pair.server.revision >= since}
    return await _all(pair, "prompts", {pair.name_of(name) for name in (*names, *(f"more_{n}" for n in FILLERS))})


@subject("pages of resources", LISTS)
async def resource_pages(pair: Pair) -> Outcome:
    """As for tools."""
    more = {uri(pair.server.name, f"more/{n}") for n in FILLERS}
    return await _all(pair, "resources", {*contents_of(pair.server.name), *more})


@subject("pages of templates", LISTS)
async def template_pages(pair: Pair) -> Outcome:
    """As for tools."""
    paths = ("item/{id}", *(f"more_{n}/{{id}}" for n in FILLERS))
    return await _all(pair, "resourceTemplates", {uri(pair.server.name, path) for path in paths})


# --- changes ----------------------------------------------------------------------------------


def _change(server: Server, request: dict[str, Any]) -> None:
    arguments = request["params"]["arguments"]
    if "change" in arguments:
        server.change_list(arguments["change"])
    server.reply(request, {"content": [text(str(server.told))]})


async def _changed(pair: Pair, tool: str, kind: str, member: str, late: str) -> Outcome:
    before = late in await pair.client.listed(member)
    pair.client.forget_notices()
    # One change for all of them: a server that changes its list again and again is listed more and more seldom.
    if await pair.everybody() == 0:
        await pair.content(tool, {"change": kind})
    await pair.everybody()
    told = await pair.content(tool)
    assert told != [text("0")], "muxway does not listen"
    async with asyncio.timeout(PATIENCE):
        await pair.client.notice(f"notifications/{kind}/list_changed")
        while (late in await pair.client.list_again(member)) == before:
            await pair.client.notice(f"notifications/{kind}/list_changed")
    return SAME


@subject("a changed list of tools", LISTS, tool=_change, together=True)
async def tools_changed(pair: Pair) -> Outcome:
    """Every client is told; one of 2026-07-28 where it listens, as muxway does at such servers."""
    return await _changed(pair, "tools_changed", "tools", "tools", pair.name_of("late"))


@subject("a changed list of prompts", LISTS, tool=_change, together=True)
async def prompts_changed(pair: Pair) -> Outcome:
    """As for tools."""
    return await _changed(pair, "prompts_changed", "prompts", "prompts", pair.name_of("late"))


@subject("a changed list of resources", LISTS, tool=_change, together=True)
async def resources_changed(pair: Pair) -> Outcome:
    """As for tools."""
    return await _changed(pair, "resources_changed", "resources", "resources", uri(pair.server.name, "late"))


# --- subscriptions ----------------------------------------------------------------------------

_UPDATED = "notifications/resources/updated"


def _update(server: Server, request: dict[str, Any]) -> None:
    server.update(uri(server.name, "text"), request["params"]["arguments"]["part"])
    server.reply(request, {"content": [text(str(server.told))]})


async def _told(pair: Pair, tool: str, part: str = "") -> str:
    """Have the resource updated, or a part of it; returns how many the server told."""
    return (await pair.content(tool, {"part": part}))[0]["text"]


async def _subscribed(pair: Pair, tool: str, part: str) -> Outcome:
    client, resource = pair.client, uri(pair.server.name, "text")
    assert await _told(pair, tool) == "0"
    listening = None
    if client.stateless:
        listening = await client.listen({"resourceSubscriptions": [resource]})
    else:
        assert (await client.ask("resources/subscribe", {"uri": resource})).result == {}
    client.forget_notices()
    assert await _told(pair, tool, part) == "1"
    params = (await client.notice(_UPDATED))["params"]
    assert params.pop("_meta", None) == (None if listening is None else {SUBSCRIPTION_ID: listening})
    assert params == {"uri": resource + part}, params
    if listening is None:
        assert (await client.ask("resources/unsubscribe", {"uri": resource})).result == {}
    else:
        client.cancel(listening)
    async with asyncio.timeout(PATIENCE):
        while await _told(pair, tool) != "0":
            await asyncio.sleep(0.005)
    client.forget_notices()
    assert await _told(pair, tool) == "0"
    assert not [notice for notice in client.notices if notice["method"] == _UPDATED]
    return _in_the_words_of(pair)


def _in_the_words_of(pair: Pair) -> Outcome:
    """In a handshake revision it is a request of its own, in 2026-07-28 part of what is listened for."""
    if pair.client.stateless == (pair.server.revision == NEWEST):
        return SAME
    return converted("by `resources/subscribe`" if pair.client.stateless else "by `subscriptions/listen`")


@subject("subscription to a resource, and its end", LISTS, tool=_update)
async def subscription(pair: Pair) -> Outcome:
    """The server is asked for it when the first client is, and no more after the last."""
    return await _subscribed(pair, "subscription", "")


@subject("subscription: a part is updated", LISTS, tool=_update)
async def subscription_part(pair: Pair) -> Outcome:
    """Whoever subscribed to the whole is told of the part."""
    return await _subscribed(pair, "subscription_part", "#2")
