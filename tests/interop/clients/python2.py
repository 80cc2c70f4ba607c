"""A client on the Python SDK 2.x, in the mode the plan names. Runs in `.envs/mcp2`."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from plan import list_until, print_report, read_plan


def plain(model: Any) -> dict[str, Any]:
    """What came over the wire, in its own spelling and without the model's defaults."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


async def list_tools(client: Client) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        tools += map(plain, page.tools)
        cursor = page.next_cursor
        if cursor is None:
            return tools


async def call_tool(client: Client, step: dict[str, Any]) -> dict[str, Any]:
    progress: list[dict[str, Any]] = []
    first_progress = asyncio.Event()

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        progress.append({"progress": done, "total": total, "message": message})
        first_progress.set()

    call = asyncio.create_task(
        client.call_tool(step["name"], step["arguments"], progress_callback=on_progress if step["progress"] else None)
    )
    if step["cancel"]:
        await first_progress.wait()
        call.cancel()
    report: dict[str, Any] = {"progress": progress}
    try:
        return report | {"result": plain(await call)}
    except MCPError as error:
        return report | {"error": {"code": error.code, "message": error.message, "data": error.data}}
    except asyncio.CancelledError:
        return report | {"cancelled": True}


def reach(plan: dict[str, Any]) -> Any:
    """What the plan names, as the client wants to be told."""
    if "command" in plan:
        command, *arguments = plan["command"]
        return StdioServerParameters(command=command, args=arguments, env=plan["env"])
    if plan["transport"] == "sse":
        return sse_client(plan["url"], plan["headers"])
    return streamable_http_client(plan["url"], http_client=create_mcp_http_client(plan["headers"]))


async def main() -> None:
    plan = read_plan()
    async with Client(reach(plan), mode=plan["mode"]) as client:
        tools = await list_until(plan["expect"], plan["seconds"], lambda: list_tools(client))
        calls = [await call_tool(client, step) for step in plan["calls"]]
        version = client.protocol_version
    print_report({"protocolVersion": version, "tools": tools, "calls": calls})


asyncio.run(main())
