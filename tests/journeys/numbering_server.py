"""A stateless server over stdio that runs every call as a task; its processes count their tasks from 1, each by itself.

A task is over when it is asked after, unless the call was told to `stay`. Its result is the text that was given.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

tasks: list[dict[str, Any]] = []


def shown(number: int, kind: str) -> dict[str, Any]:
    given = tasks[number - 1]
    over = kind == "complete" and not given.get("stay")
    told = {"taskId": str(number), "status": "completed" if over else "working", "ttlMs": 60_000, "pollIntervalMs": 10}
    text = json.dumps({"pid": os.getpid(), **given})
    result = {"result": {"content": [{"type": "text", "text": text}]}} if over else {}
    return {"resultType": kind, **told, **result}


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    method, params = message.get("method"), message.get("params", {})
    if method == "server/discover":
        capabilities = {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
        return {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities}
    if method == "tools/list":
        return {"resultType": "complete", "tools": [{"name": "work", "inputSchema": {"type": "object"}}]}
    if method == "tools/call":
        tasks.append(params["arguments"])
        return shown(len(tasks), "task")
    return shown(int(params["taskId"]), "complete") if method == "tasks/get" else None


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
