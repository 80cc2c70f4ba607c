"""A server over stdio that tells who it is: its process, how often it was called, its era, what it was told.

`python who_server.py [dual|watched]`: handshake only, or both eras, of which the first request decides, as in the
Python SDK; or with a resource to subscribe to.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from line_server import introduction, serve, text, tool

dual = sys.argv[1:] == ["dual"]
watched = sys.argv[1:] == ["watched"]
calls = 0
told: Any = None
modern: bool | None = None


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    global calls, told, modern
    method, params = message["method"], message.get("params", {})
    if method == "initialize" and modern is not True:
        modern, told = False, params["capabilities"]
        offered = {"tools": {}, "resources": {"subscribe": True}} if watched else {"tools": {}}
        return introduction("who", capabilities=offered)
    if method == "server/discover" and dual and modern is not False:
        modern = True
        return {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    if method == "tools/list":
        return {"tools": [tool("who")]}
    if method == "resources/list":
        return {"resources": [{"uri": "who://it", "name": "it"}]}
    if method == "resources/templates/list":
        return {"resourceTemplates": []}
    if method == "resources/subscribe":
        return {}
    if method == "tools/call":
        calls += 1
        if modern:
            told = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        who = {"pid": os.getpid(), "calls": calls, "era": "modern" if modern else "legacy", "told": told}
        return text(json.dumps(who))
    return None


def worded(message: dict[str, Any]) -> dict[str, Any] | None:
    result = answer(message)
    return {"resultType": "complete", **result} if modern and result is not None else result


serve(worded)
