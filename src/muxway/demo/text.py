"""Demo server of revision 2026-07-28: text statistics, and a slow reader that reports progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muxway.demo.serving import STATELESS, DemoServer, DemoTool, Run, ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXT = {"type": "string", "description": "The text."}
_PAUSE = {"type": "integer", "description": "Milliseconds between two words.", "default": 200}


def _count(arguments: Mapping[str, Any], _: Run) -> dict[str, Any]:
    text = str(arguments["text"])
    words = text.split()
    longest = max(words, key=len, default="")
    return {"characters": len(text), "words": len(words), "lines": len(text.splitlines()), "longest": longest}


def _read_aloud(arguments: Mapping[str, Any], run: Run) -> str:
    words = str(arguments["text"]).split()
    pause = arguments.get("pause_ms", 200)
    if not isinstance(pause, int | float) or pause < 0:
        raise ToolError("pause_ms must be a number of milliseconds, 0 or more")
    for number, word in enumerate(words, 1):
        if run.cancelled.wait(pause / 1000):
            raise ToolError(f"stopped before {word!r}")
        run.progress(number, len(words), word)
    return " ".join(words)


TOOLS = {
    "count": DemoTool("Count the characters, words and lines of a text.", {"text": _TEXT}, ("text",), _count),
    "read_aloud": DemoTool(
        "Read a text word by word, reporting progress.", {"text": _TEXT, "pause_ms": _PAUSE}, ("text",), _read_aloud
    ),
}

if __name__ == "__main__":
    DemoServer("text", STATELESS, TOOLS).serve()
