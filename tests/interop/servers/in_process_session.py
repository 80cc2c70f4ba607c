"""A 2025-11-25 client of a gateway with a server of the SDK in the same process; prints what the client hears."""

from __future__ import annotations

import asyncio
import json
import sys

import muxway

try:
    from mcp.server.mcpserver import Context, MCPServer
except ImportError:  # SDK 1.x
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as MCPServer

talker = MCPServer("talker")


@talker.tool()
async def talk(ctx: Context) -> str:
    """Log something, then answer."""
    await ctx.info("said on the way")
    return "done"


def request(id_: int, method: str, **params: object) -> bytes:
    """A request as a line."""
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode()


async def main() -> None:
    """Shake hands, declare nothing, call, and listen until the answer."""
    heard: list[object] = []
    async with muxway.Gateway.open({"mcpServers": {"off": {"command": "none", "disabled": True}}}) as gateway:
        await gateway.add("talker", server=talker, prefix="")
        door = gateway.memory_door()
        client = {"name": "listener", "version": "1"}
        door.send(request(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client))
        await door.receive()
        door.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        door.send(request(2, "tools/call", name="talk", arguments={}))
        while True:
            message = json.loads(await asyncio.wait_for(door.receive(), 20))
            if message.get("method") == "notifications/message":
                heard.append(message["params"]["data"])
            if message.get("id") == 2:
                heard.append(message["result"]["content"][0]["text"])
                break
        await door.close()
    sys.stdout.write(json.dumps(heard))


asyncio.run(main())
