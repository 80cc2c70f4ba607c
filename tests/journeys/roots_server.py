"""A server over stdio that works on its client's roots, as server-filesystem does: asks at its start, and on a change.

Its tool `roots` says what it has, and what it was told of its client. With `--looks-up` it takes the roots up only
after a while in which it goes on to answer.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from line_server import introduction, say, text, tool

roots: list[str] = []
told: Any = None
asked = 0


def ask() -> None:
    global asked
    asked += 1
    say({"id": f"roots-{asked}", "method": "roots/list"})


def take_up(uris: list[str]) -> None:
    global roots
    roots = uris


for line in sys.stdin:
    heard = json.loads(line)
    method = heard.get("method")
    if method == "initialize":
        told = heard["params"]["capabilities"]
        say({"id": heard["id"], "result": introduction("roots")})
    elif method in ("notifications/initialized", "notifications/roots/list_changed"):
        if "roots" in told:
            ask()
    elif method == "tools/list":
        say({"id": heard["id"], "result": {"tools": [tool("roots")]}})
    elif method == "tools/call":
        say({"id": heard["id"], "result": text(json.dumps({"roots": roots, "told": told, "asked": asked}))})
    elif method == "ping":
        say({"id": heard["id"], "result": {}})
    elif method is None and "result" in heard:
        uris = [root["uri"] for root in heard["result"]["roots"]]
        if "--looks-up" in sys.argv:
            threading.Timer(0.05, take_up, [uris]).start()
        else:
            take_up(uris)
    elif "id" in heard and method is not None:
        say({"id": heard["id"], "error": {"code": -32601, "message": "no such method"}})
