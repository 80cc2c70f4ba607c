"""A server over stdio whose one tool must be run as a task of 2025-11-25, which takes as many seconds as it is told."""

from __future__ import annotations

import time
from typing import Any

from line_server import introduction, serve, text, tool

ends = 0.0


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    global ends
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        return introduction("task")
    if method == "tools/list":
        return {"tools": [tool("slow", execution={"taskSupport": "required"})]}
    task = {"taskId": "1", "status": "working" if time.monotonic() < ends else "completed", "pollInterval": 50}
    if method == "tools/call":
        ends = time.monotonic() + params["arguments"]["seconds"]
        return {"task": {**task, "status": "working"}}
    if method == "tasks/get":
        return task
    return text("done") if method == "tasks/result" else None


serve(answer)
