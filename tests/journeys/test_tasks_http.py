"""Tasks over HTTP: the headers that name them, and the stream on which a 2025-11-25 server asks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from muxway.exchange import tasks
from muxway.testing import RawClient, ScriptedServer
from tests.journeys.worker import RELATED, TASKS, Job, Worker
from tests.remote.scripted import Remote, answer, behind, event, reply, stream, text
from tests.serve.harness import a_web

if TYPE_CHECKING:
    import pytest
    from aiohttp import web

KNOWS_TASKS = {"extensions": {TASKS: {}}}
META = {"io.modelcontextprotocol/clientCapabilities": KNOWS_TASKS}
DATES = {"createdAt": "2026-07-28T10:00:00Z", "lastUpdatedAt": "2026-07-28T10:00:00Z"}
NATIVE = "task/ä 1"


async def test_a_request_about_a_task_names_it_in_a_header_as_its_server_does() -> None:
    """MCP tasks extension (SEP-2663): `Mcp-Name` is the taskId, and each hop has its own."""

    async def about_task(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        del remote, request
        task = {"taskId": NATIVE, "status": "working", "ttlMs": None, **DATES}
        if message.get("method") == "tools/call":
            return reply(message, {"resultType": "task", **task})
        if message.get("method") == "tasks/get":
            done = {**task, "status": "completed", "result": text("done")}
            return reply(message, {"resultType": "complete", **done})
        return None

    remote = Remote("stateless", posts=about_task)
    async with behind(remote) as gateway:
        client = RawClient(gateway.memory_door(), revision="2026-07-28", capabilities=KNOWS_TASKS)
        made = (await client.call("up__echo")).result
        shown = (await client.ask("tasks/get", {"taskId": made["taskId"]})).result
        assert shown["result"]["content"] == text("done")["content"]
        assert shown["ttlMs"] is None
    (asked,) = remote.of("tasks/get")
    assert asked.headers["Mcp-Name"] == "=?base64?dGFzay/DpCAx?="
    assert asked.message is not None
    assert asked.message["params"]["taskId"] == NATIVE
    capabilities = asked.message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    assert capabilities == KNOWS_TASKS


async def test_a_2025_server_asks_on_the_stream_of_the_result() -> None:
    """MCP 2025-11-25, basic/utilities/tasks: in `input_required` the caller fetches the result, and is asked there."""
    answered = asyncio.Event()
    given: dict[str, Any] = {}

    async def about_task(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        del remote
        method, params = message.get("method"), message.get("params", {})
        task = {"taskId": "t1", "status": "input_required", "ttl": None, "pollInterval": 20, **DATES}
        if method == "tools/list":
            tool = {"name": "asks", "inputSchema": {}, "execution": {"taskSupport": "required"}}
            return reply(message, {"tools": [tool]})
        if method == "tools/call":
            assert params["task"] == {}
            return reply(message, {"task": task})
        if method == "tasks/get":
            return reply(message, {**task, "status": "completed" if answered.is_set() else "input_required"})
        if method == "tasks/result":
            assert params == {"taskId": "t1", "_meta": {RELATED: {"taskId": "t1"}}}
            question = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
            question["_meta"] = {RELATED: {"taskId": "t1"}}
            ask = {"jsonrpc": "2.0", "id": "e1", "method": "elicitation/create", "params": question}
            response = await stream(request, event(ask))
            await answered.wait()
            result = {**text(given["action"]), "_meta": {RELATED: {"taskId": "t1"}}}
            await response.write(event(answer(message, result)))
            return response
        if method is None and message.get("id") == "e1":
            given.update(message["result"])
            answered.set()
        return None

    async with behind(Remote(posts=about_task)) as gateway:
        client = RawClient(gateway.memory_door(), revision="2025-06-18", capabilities={"elicitation": {}})
        client.answers["elicitation/create"] = lambda _: {"action": "decline"}
        await client.hello()
        result = (await client.call("up__asks")).result
        assert result == text("decline")


async def test_a_client_names_the_task_in_a_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "PATIENCE", 0.05)
    go = asyncio.Event()

    async def slow(server: ScriptedServer, request: dict[str, Any]) -> None:
        await go.wait()
        server.reply(request, text("done"))

    async with a_web({"up": ScriptedServer(tools={"slow": slow})}) as door:
        call = {"name": "up__slow", "arguments": {}, "_meta": META}
        made = (await door.stateless("tools/call", call)).json["result"]
        assert made["resultType"] == "task"
        about = {"taskId": made["taskId"], "_meta": META}
        named: dict[str, str | None] = {"Mcp-Name": made["taskId"]}
        assert (await door.stateless("tasks/get", about, named)).json["result"]["status"] == "working"
        assert (await door.stateless("tasks/get", about)).json["error"]["code"] == -32020
        unknown = await door.stateless("tasks/get", {**about, "taskId": "x"}, {"Mcp-Name": "x"})
        assert (unknown.status, unknown.json["error"]["code"]) == (400, -32602)
        undeclared = await door.stateless("tasks/get", {"taskId": made["taskId"]}, named)
        assert (undeclared.status, undeclared.json["error"]["code"]) == (400, -32021)
        go.set()
        async with asyncio.timeout(30):
            while (shown := (await door.stateless("tasks/get", about, named)).json["result"])["status"] == "working":
                await asyncio.sleep(0.01)
        assert shown["result"]["content"] == text("done")["content"]


async def test_a_client_that_hangs_up_cancels_the_task_it_waits_for() -> None:
    async def endless(job: Job) -> None:
        job.message = "on it"
        await asyncio.Event().wait()

    server = Worker(work={"endless": endless})
    try:
        async with a_web({"up": server}) as door:
            call = {"name": "up__endless", "arguments": {}, "_meta": {"progressToken": 1}}
            waiting = await door.open_stateless("tools/call", call)
            assert (await waiting.message())["params"]["message"] == "on it"
            waiting.drop()
            assert (await server.heard_soon("tasks/cancel"))[0]["taskId"] == "native-0"
    finally:
        server.stop_jobs()
