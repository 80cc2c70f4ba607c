"""A server over stdio that works on its client's roots, as server-filesystem does: asks at its start, and on a change.

Its tool `roots` says what it has, and what it was told of its client.
"""

from __future__ import annotations

import json
import sys
from typing import Any

roots: list[str] = []
told: Any = None
asked = 0


def say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)  # noqa: T201


def ask() -> None:
    global asked
    asked += 1
    say({"id": f"roots-{asked}", "method": "roots/list"})


for line in sys.stdin:
    heard = json.loads(line)
    method = heard.get("method")
    if method == "initialize":
        told = heard["params"]["capabilities"]
        info = {"name": "roots", "version": "1"}
        result: Any = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        say({"id": heard["id"], "result": result})
    elif method in ("notifications/initialized", "notifications/roots/list_changed"):
        if "roots" in told:
            ask()
    elif method == "tools/list":
        say({"id": heard["id"], "result": {"tools": [{"name": "roots", "inputSchema": {"type": "object"}}]}})
    elif method == "tools/call":
        text = json.dumps({"roots": roots, "told": told, "asked": asked})
        say({"id": heard["id"], "result": {"content": [{"type": "text", "text": text}]}})
    elif method == "ping":
        say({"id": heard["id"], "result": {}})
    elif method is None and "result" in heard:
        roots = [root["uri"] for root in heard["result"]["roots"]]
    elif "id" in heard and method is not None:
        say({"id": heard["id"], "error": {"code": -32601, "message": "no such method"}})
