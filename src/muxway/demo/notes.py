"""Demo server of revision 2025-06-18: notes in memory."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from muxway.demo.serving import DemoServer, DemoTool, Run, ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXT = {"type": "string", "description": "What to remember."}
_TAGS = {"type": "array", "items": {"type": "string"}, "description": "Words to find it by."}
_QUERY = {"type": "string", "description": "A word of the text, or a tag."}
_ID = {"type": "integer", "description": "The note's number."}

_notes: dict[int, dict[str, Any]] = {}
_numbers = itertools.count(1)


def _add(arguments: Mapping[str, Any], _: Run) -> dict[str, Any]:
    number = next(_numbers)
    note = _notes[number] = {"id": number, "text": str(arguments["text"]), "tags": list(arguments.get("tags", []))}
    return note


def _list(_arguments: Mapping[str, Any], _: Run) -> dict[str, Any]:
    return {"notes": list(_notes.values())}


def _search(arguments: Mapping[str, Any], _: Run) -> dict[str, Any]:
    query = str(arguments["query"]).lower()
    return {"notes": [note for note in _notes.values() if query in note["text"].lower() or query in note["tags"]]}


def _delete(arguments: Mapping[str, Any], _: Run) -> str:
    if _notes.pop(arguments["id"], None) is None:
        raise ToolError(f"there is no note {arguments['id']}; there are {sorted(_notes) or 'none'}")
    return f"Deleted note {arguments['id']}."


TOOLS = {
    "add": DemoTool("Remember a note.", {"text": _TEXT, "tags": _TAGS}, ("text",), _add),
    "list": DemoTool("List all notes.", {}, (), _list),
    "search": DemoTool("Find notes by a word or a tag.", {"query": _QUERY}, ("query",), _search),
    "delete": DemoTool("Forget a note.", {"id": _ID}, ("id",), _delete),
}

if __name__ == "__main__":
    DemoServer("notes", "2025-06-18", TOOLS).serve()
