"""A server on the Python SDK 1.x over HTTP; runs in `.envs/mcp1`. Prints its port on the first line.

sdk1_http.py streamable | json | stateless | sse
"""

from __future__ import annotations

import socket
import sys

import anyio
import uvicorn
from mcp.server.fastmcp import Context, FastMCP

kind = sys.argv[1]
server = FastMCP("sdk1", json_response=kind == "json", stateless_http=kind == "stateless")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


@server.tool()
async def count(steps: int, ctx: Context) -> str:
    """Report progress at every step."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
        await anyio.sleep(0.05)
    return f"counted to {steps}"


@server.tool()
async def grow(ctx: Context) -> str:
    """Offer one more tool and say so, unasked."""
    server.add_tool(lambda: "new", name="grown")
    await ctx.session.send_tool_list_changed()
    return "grown"


def main() -> None:
    app = server.sse_app() if kind == "sse" else server.streamable_http_app()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        print(listener.getsockname()[1], flush=True)  # noqa: T201
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=0)
        uvicorn.Server(config).run([listener])


main()
