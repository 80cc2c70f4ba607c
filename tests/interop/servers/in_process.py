"""Runs a gateway in this process, with a server of the SDK installed here behind it; prints one JSON document."""

from __future__ import annotations

import asyncio
import json
import sys

import muxway

try:
    from mcp.server import MCPServer
except ImportError:  # SDK 1.x
    from mcp.server.fastmcp import FastMCP as MCPServer

calc = MCPServer("calc")


@calc.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@calc.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("on purpose")


async def main() -> None:
    """Add the server to an otherwise empty gateway, use it, remove it."""
    async with muxway.Gateway.open({"mcpServers": {"off": {"command": "none", "disabled": True}}}) as gateway:
        server = await gateway.add("calc", server=calc)
        report = {
            "status": str(server.status),
            "revision": server.revision,
            "tools": [tool.name for tool in gateway.tools()],
            "sum": (await gateway.call("calc.add", {"a": 1, "b": 2})).structured_content,
            "failed": (await gateway.call("calc:fail")).is_error,
        }
        await gateway.remove("calc")
        report["left"] = [tool.name for tool in gateway.tools()]
    sys.stdout.write(json.dumps(report))


asyncio.run(main())
