"""A server over stdio that tells who it is: its process, how often it was called, its era, what it was told.

`python lane_server.py [dual|watched]`: handshake only, or both eras, of which the first request decides, as in the
Python SDK; or with a resource to subscribe to.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

dual = sys.argv[1:] == ["dual"]
watched = sys.argv[1:] == ["watched"]
calls = 0
told: Any = None
modern: bool | None = None


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    global calls, told, modern
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize" and modern is not True:
        modern, told = False, params["capabilities"]
        info = {"name": "lane", "version": "1"}
        offered = {"tools": {}, "resources": {"subscribe": True}} if watched else {"tools": {}}
        return {"protocolVersion": "2025-11-25", "capabilities": offered, "serverInfo": info}
    if method == "server/discover" and dual and modern is not False:
        modern = True
        return {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    if method == "tools/list":
        return {"tools": [{"name": "who", "inputSchema": {"type": "object"}}]}
    if method == "resources/list":
        return {"resources": [{"uri": "lane://it", "name": "it"}]}
    if method == "resources/templates/list":
        return {"resourceTemplates": []}
    if method == "resources/subscribe":
        return {}
    if method == "tools/call":
        calls += 1
        if modern:
            told = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        who = {"pid": os.getpid(), "calls": calls, "era": "modern" if modern else "legacy", "told": told}
        return {"content": [{"type": "text", "text": json.dumps(who)}]}
    return None


for line in sys.stdin:
    heard = json.loads(line)
    if "id" not in heard or "method" not in heard:
        continue
    result = answer(heard)
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": heard["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": "no such method"}
    else:
        reply["result"] = {"resultType": "complete", **result} if modern else result
    print(json.dumps(reply), flush=True)  # noqa: T201
