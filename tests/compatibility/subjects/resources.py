"""Resources and resource templates. Subscriptions are with the other changes, in `lists`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.compatibility.subjects.base import NEWEST, SAME, converted, same, subject

if TYPE_CHECKING:
    from tests.compatibility.matrix import Pair
    from tests.compatibility.server import Server
    from tests.compatibility.subjects.base import Outcome

RESOURCES = "Resources"
_ICONS = [{"src": "https://example.com/i.png"}]
_NEWS = {"title": ("2025-06-18", "A title"), "icons": ("2025-11-25", _ICONS)}
_PLAIN = {"name": "text", "description": "Words", "mimeType": "text/plain", "x-vendor": {"n": None}}
MISSING = "missing"


def uri(server: str, path: str) -> str:
    """The URI of a resource of the server of this name."""
    return f"matrix://{server}/{path}"


def definition_in(revision: str) -> dict[str, Any]:
    """How a server of this revision lists a resource or template, besides its URI."""
    return {**_PLAIN, **{name: value for name, (since, value) in _NEWS.items() if revision >= since}}


def contents_of(server: str) -> dict[str, dict[str, Any]]:
    """URI → what reading it gives, besides the URI."""
    return {
        uri(server, "text"): {"mimeType": "text/plain", "text": "words"},
        uri(server, "blob"): {"mimeType": "image/png", "blob": "iVBORw0K"},
    }


def read(server: Server, request: dict[str, Any]) -> None:
    """Answer `resources/read`, of what is listed and of what the template stands for."""
    asked = request["params"]["uri"]
    held = contents_of(server.name).get(asked)
    start = uri(server.name, "item/")
    if held is None and asked.startswith(start) and not asked.endswith(MISSING):
        held = {"text": asked.removeprefix(start)}
    if held is not None:
        server.reply(request, {"contents": [{"uri": asked, **held}]})
    else:
        code = -32602 if server.revision == NEWEST else -32002
        server.fail(request, code, "Resource not found", {"uri": asked})


async def _read(pair: Pair, path: str) -> Outcome:
    asked = uri(pair.server.name, path)
    result = pair.plain((await pair.client.ask("resources/read", {"uri": asked})).result)
    held = contents_of(pair.server.name).get(asked, {"text": "7"})
    if not pair.client.stateless:
        return same(result, {"contents": [{"uri": asked, **held}]})
    assert result.pop("ttlMs") == 0
    assert result.pop("cacheScope") == "private"
    return same(result, {"contents": [{"uri": asked, **held}]})


@subject("list of resources", RESOURCES)
async def resource_list(pair: Pair) -> Outcome:
    """Names begin with the server, URIs stay. Members that no revision knows are listed too."""
    asked = uri(pair.server.name, "text")
    shown = (await pair.client.listed("resources"))[asked]
    got = {name: value for name, value in shown.items() if name not in _NEWS}
    return same(got, {"uri": asked, **_PLAIN, "name": f"[{pair.server.name}] text"})


@subject("list of templates", RESOURCES)
async def template_list(pair: Pair) -> Outcome:
    """As for resources."""
    template = uri(pair.server.name, "item/{id}")
    shown = (await pair.client.listed("resourceTemplates"))[template]
    got = {name: value for name, value in shown.items() if name not in _NEWS}
    return same(got, {"uriTemplate": template, **_PLAIN, "name": f"[{pair.server.name}] text"})


@subject("`title` of a resource", RESOURCES, since="2025-06-18")
async def resource_title(pair: Pair) -> Outcome:
    """A name for people."""
    shown = (await pair.client.listed("resources"))[uri(pair.server.name, "text")]
    return same(shown["title"], "A title") if "title" in shown else converted("left out")


@subject("`icons` of a resource", RESOURCES, since="2025-11-25")
async def resource_icons(pair: Pair) -> Outcome:
    """Pictures to show beside it."""
    shown = (await pair.client.listed("resources"))[uri(pair.server.name, "text")]
    return same(shown["icons"], _ICONS) if "icons" in shown else converted("left out")


@subject("text of a resource", RESOURCES)
async def resource_text(pair: Pair) -> Outcome:
    """Clients of 2026-07-28 are also told how long it holds: not at all, if the server does not say."""
    return await _read(pair, "text")


@subject("binary resource", RESOURCES)
async def resource_blob(pair: Pair) -> Outcome:
    """As it is encoded by the server."""
    return await _read(pair, "blob")


@subject("resource of a template", RESOURCES)
async def resource_of_template(pair: Pair) -> Outcome:
    """Nobody lists it; the template tells whose it is."""
    return await _read(pair, "item/7")


@subject("a resource that does not exist", RESOURCES)
async def resource_missing(pair: Pair) -> Outcome:
    """-32002; in 2026-07-28 it is -32602."""
    asked = uri(pair.server.name, f"item/{MISSING}")
    error = (await pair.client.ask("resources/read", {"uri": asked})).error
    codes = {True: -32602, False: -32002}
    assert error == {"code": codes[pair.client.stateless], "message": "Resource not found", "data": {"uri": asked}}
    if pair.client.stateless == (pair.server.revision == NEWEST):
        return SAME
    return converted(f"as {error['code']}")
