"""A server over stdio whose one tool must be run as a task of 2025-11-25, which takes as many seconds as it is told."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

ends = 0.0


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    global ends
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        info = {"name": "task", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        required = {"execution": {"taskSupport": "required"}}
        return {"tools": [{"name": "slow", "inputSchema": {"type": "object"}, **required}]}
    task = {"taskId": "1", "status": "working" if time.monotonic() < ends else "completed", "pollInterval": 50}
    if method == "tools/call":
        ends = time.monotonic() + params["arguments"]["seconds"]
        return {"task": {**task, "status": "working"}}
    if method == "tasks/get":
        return task
    return {"content": [{"type": "text", "text": "done"}]} if method == "tasks/result" else None


for line in sys.stdin:
    heard = json.loads(line)
    if "id" not in heard or "method" not in heard:
        continue
    result = answer(heard)
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": heard["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": "no such method"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)  # noqa: T201
