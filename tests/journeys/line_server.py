"""What the small servers of these tests have in common: a request on each line of stdin, its answer on stdout."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Refused(Exception):
    """A request gets this error."""

    def __init__(self, **error: Any) -> None:
        super().__init__()
        self.error = error


def say(message: dict[str, Any]) -> None:
    """Write a message."""
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)  # noqa: T201


def serve(answer: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Answer each request with the result that `answer` makes of it; None, or `Refused`: with an error."""
    for line in sys.stdin:
        heard = json.loads(line)
        if "id" not in heard or "method" not in heard:
            continue
        error = {"code": -32601, "message": "no such method"}
        try:
            result = answer(heard)
        except Refused as refused:
            result, error = None, refused.error
        say({"id": heard["id"], **({"error": error} if result is None else {"result": result})})


def introduction(name: str, **more: Any) -> dict[str, Any]:
    """The answer to `initialize`."""
    info = {"name": name, "version": "1"}
    return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info, **more}


def tool(name: str, **more: Any) -> dict[str, Any]:
    """A tool as it is listed."""
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def text(said: str) -> dict[str, Any]:
    """The result of a call."""
    return {"content": [{"type": "text", "text": said}]}
