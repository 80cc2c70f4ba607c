"""FastMCP as an aggregator at its best: one client per server, connected once and reused for every call.

    python fastmcp_proxy.py CONFIG [PORT]

Without a port it serves stdio, with one HTTP: stateless and with JSON answers, the fastest way it has.
Out of the box FastMCP opens a fresh connection (for stdio: a fresh process) per request; handing `create_proxy` a
connected client is its documented way to share one. Runs in the peer's own environment, never in muxway's.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from fastmcp import Client, FastMCP
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy


async def main(config: str, port: str | None = None) -> None:
    """Connect every server of the config at once, mount a proxy for each, and serve."""
    servers = json.loads(Path(config).read_text())["mcpServers"]
    clients = {name: Client(StdioTransport(entry["command"], entry["args"])) for name, entry in servers.items()}
    gateway = FastMCP("bench")
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(client) for client in clients.values()))
        for name, client in clients.items():
            gateway.mount(create_proxy(client), namespace=name)
        if port is None:
            await gateway.run_async(transport="stdio", show_banner=False)
        else:
            await gateway.run_http_async(
                host="127.0.0.1",
                port=int(port),
                log_level="error",
                json_response=True,
                stateless_http=True,
                show_banner=False,
            )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
