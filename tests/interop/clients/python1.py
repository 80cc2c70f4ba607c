"""A client on the Python SDK 1.x: runs a plan against an MCP server. Runs in `.envs/mcp1`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from plan import list_until, print_report, read_plan

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager


def plain(model: Any) -> dict[str, Any]:
    """What came over the wire, in its own spelling and without the model's defaults."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


async def list_tools(session: ClientSession) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        tools += map(plain, page.tools)
        cursor = page.nextCursor
        if cursor is None:
            return tools


async def call_tool(session: ClientSession, step: dict[str, Any]) -> dict[str, Any]:
    progress: list[dict[str, Any]] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        progress.append({"progress": done, "total": total, "message": message})

    report: dict[str, Any] = {"progress": progress}
    try:
        result = await session.call_tool(
            step["name"], step["arguments"], progress_callback=on_progress if step["progress"] else None
        )
    except McpError as error:
        return report | {"error": plain(error.error)}
    return report | {"result": plain(result)}


def reach(plan: dict[str, Any]) -> AbstractAsyncContextManager[Any]:
    """Open the streams to what the plan names."""
    if "command" in plan:
        command, *arguments = plan["command"]
        return stdio_client(StdioServerParameters(command=command, args=arguments, env=plan["env"]))
    if plan["transport"] == "sse":
        return sse_client(plan["url"], plan["headers"])
    return streamablehttp_client(plan["url"], plan["headers"])


async def main() -> None:
    plan = read_plan()
    if plan["mode"] != "legacy":
        # It has no way to ask for an older revision than its own, as older versions of it do.
        types.LATEST_PROTOCOL_VERSION = plan["mode"]
    async with reach(plan) as (read, write, *_), ClientSession(read, write) as session:
        greeting = await session.initialize()
        tools = await list_until(plan["expect"], plan["seconds"], lambda: list_tools(session))
        calls = [await call_tool(session, step) for step in plan["calls"]]
    print_report({"protocolVersion": greeting.protocolVersion, "tools": tools, "calls": calls})


asyncio.run(main())
