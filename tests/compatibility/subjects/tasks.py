"""Tools that run only as tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from muxway.wire.revisions import CLIENT_CAPABILITIES
from tests.compatibility.subjects.base import NEWEST, SAME, converted, same, subject, text
from tests.pace import PATIENCE

if TYPE_CHECKING:
    from tests.compatibility.matrix import Pair
    from tests.compatibility.server import Server
    from tests.compatibility.subjects.base import Outcome

TASKS = "Tasks"
CAPABILITY = {"requests": {"tools": {"call": {}}}}
"""What a server of 2025-11-25 declares that runs tools as tasks."""
EXTENSION = "io.modelcontextprotocol/tasks"
"""How 2026-07-28 has tasks. Both sides declare it."""
_DONE = {"content": [text("done")]}
_TIMES = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}


def _shown(server: Server, id_: str) -> dict[str, Any]:
    """A task as the server's revision shows it. It is over when it is looked at for the second time."""
    status = "completed" if server.looks[id_] > 1 else "working"
    limits = (
        {"ttlMs": 60_000, "pollIntervalMs": 10} if server.revision == NEWEST else {"ttl": 60_000, "pollInterval": 10}
    )
    return {"taskId": id_, "status": status, **_TIMES, **limits}


def _run(server: Server, request: dict[str, Any]) -> None:
    params = request["params"]
    id_ = f"task-{len(server.looks)}"
    if server.revision != NEWEST:
        if "task" in params:
            server.looks[id_] = 0
            server.reply(request, {"task": _shown(server, id_)})
        else:
            server.fail(request, -32601, "only as a task")
    elif EXTENSION in params["_meta"][CLIENT_CAPABILITIES].get("extensions", {}):
        server.looks[id_] = 0
        server.reply(request, {"resultType": "task", **_shown(server, id_)})
    else:
        server.fail(request, -32021, "only as a task", {"requiredCapabilities": {"extensions": {EXTENSION: {}}}})


def answer(server: Server, request: dict[str, Any]) -> None:
    """Answer `tasks/get`, and the `tasks/result` of 2025-11-25."""
    id_ = request["params"]["taskId"]
    if request["method"] == "tasks/result":
        related = {"io.modelcontextprotocol/related-task": {"taskId": id_}}
        server.reply(request, {**_DONE, "_meta": related})
        return
    server.looks[id_] += 1
    task = _shown(server, id_)
    if server.revision == NEWEST and task["status"] == "completed":
        task["result"] = {"resultType": "complete", **_DONE}
    server.reply(request, task)


_ONLY = {"execution": {"taskSupport": "required"}}


@subject("a tool that runs only as a task", TASKS, since="2025-11-25", tool=_run, definition=_ONLY)
async def task_unknown(pair: Pair) -> Outcome:
    """To clients that know no tasks it is a tool like others: muxway asks the server until it is done."""
    result = await pair.result("task_unknown")
    same(result, _DONE)
    return converted("a plain call")


@subject(
    "the same, to a client with the extension",
    TASKS,
    since="2025-11-25",
    clients_since=NEWEST,
    tool=_run,
    definition=_ONLY,
)
async def task_known(pair: Pair) -> Outcome:
    """The client asks until it is done. Tasks of 2025-11-25 servers become those of the extension."""
    client = pair.client
    meta = {"_meta": {CLIENT_CAPABILITIES: {"extensions": {EXTENSION: {}}}}}
    made = (await pair.reply("task_known", **meta)).result
    assert made["resultType"] == "task", made
    assert made["status"] == "working", made
    async with asyncio.timeout(PATIENCE):
        while True:
            task = (await client.ask("tasks/get", {"taskId": made["taskId"], **meta})).result
            if task["status"] == "completed":
                break
            await asyncio.sleep(0.005)
    result = task["result"]
    same(result["content"], _DONE["content"])
    return SAME if pair.server.revision == NEWEST else converted("a task of the extension")
