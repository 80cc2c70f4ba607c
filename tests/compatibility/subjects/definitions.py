"""How a client sees the tools of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.compatibility.subjects.base import NEWEST, converted, same, subject

if TYPE_CHECKING:
    from tests.compatibility.matrix import Pair
    from tests.compatibility.subjects.base import Outcome

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
    """Says whether a call may run as a task, which is between muxway and the server."""
    shown = await pair.definition("execution")
    return same(shown["execution"], {"taskSupport": "optional"}) if "execution" in shown else converted("left out")


_OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}}
LIST_SCHEMA = {"type": "array", "items": {"type": "integer"}}


@subject("`outputSchema` of an object", DEFINITIONS, since="2025-06-18", definition={"outputSchema": _OBJECT})
async def object_schema(pair: Pair) -> Outcome:
    """What the structured content of a result looks like."""
    shown = await pair.definition("object_schema")
    return same(shown["outputSchema"], _OBJECT) if "outputSchema" in shown else converted("left out")


@subject("`outputSchema` of anything else", DEFINITIONS, since=NEWEST, definition={"outputSchema": LIST_SCHEMA})
async def list_schema(pair: Pair) -> Outcome:
    """Before 2026-07-28 the output of a tool is an object, so it is put into one."""
    shown = await pair.definition("list_schema")
    if "outputSchema" not in shown:
        return converted("left out")
    wrapped = {"type": "object", "properties": {"result": LIST_SCHEMA}, "required": ["result"]}
    return converted("under `result`") if shown["outputSchema"] == wrapped else same(shown["outputSchema"], LIST_SCHEMA)
