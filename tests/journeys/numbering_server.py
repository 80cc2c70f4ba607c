"""A stateless server over stdio that runs every call as a task; its processes count their tasks from 1, each by itself.

A task is over when it is asked after, unless the call was told to `stay`, or to `ask` and the answer is not there yet.
Its result is what was given, and the process.
"""

from __future__ import annotations

import json
import os
from typing import Any

from line_server import Refused, serve, text, tool

TASKS = "io.modelcontextprotocol/tasks"
tasks: list[dict[str, Any]] = []
FORM = {"type": "object", "properties": {}}
QUESTION = {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": FORM, "mode": "form"}}


def shown(number: int, kind: str) -> dict[str, Any]:
    given = tasks[number - 1]
    asks = kind == "complete" and given.get("ask") is True
    over = kind == "complete" and not given.get("stay") and not asks
    status = "completed" if over else "input_required" if asks else "working"
    told = {"taskId": str(number), "status": status, "ttlMs": 60_000, "pollIntervalMs": 10}
    result = {"result": text(json.dumps({"pid": os.getpid(), **given}))} if over else {}
    questions = {"inputRequests": {"sure": QUESTION}} if asks else {}
    return {"resultType": kind, **told, **result, **questions}


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    method, params = message["method"], message.get("params", {})
    if method == "server/discover":
        capabilities = {"tools": {}, "extensions": {TASKS: {}}}
        return {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities}
    if method == "tools/list":
        return {"resultType": "complete", "tools": [tool("work")]}
    if method == "tools/call":
        if TASKS not in params["_meta"]["io.modelcontextprotocol/clientCapabilities"].get("extensions", {}):
            needed = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            raise Refused(code=-32021, message="this tool must be run as a task", data=needed)
        tasks.append(params["arguments"])
        return shown(len(tasks), "task")
    if method == "tasks/update":
        tasks[int(params["taskId"]) - 1]["ask"] = params["inputResponses"]["sure"]["action"]
        return {"resultType": "complete"}
    return shown(int(params["taskId"]), "complete") if method == "tasks/get" else None


serve(answer)
