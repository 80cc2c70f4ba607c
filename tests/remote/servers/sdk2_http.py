"""A server on the Python SDK 2.x over HTTP; runs in `.envs/mcp2`. Prints its port on the first line.

sdk2_http.py streamable | json | stateless | sse
"""

from __future__ import annotations

import socket
import sys

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context  # noqa: TC002 - the SDK reads the annotations at run time

kind = sys.argv[1]
server = MCPServer("sdk2", version="1.0.0")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


@server.tool(name="größe")
def size() -> str:
    """A name that no header can carry as it is."""
    return "groß"


@server.tool()
async def count(steps: int, ctx: Context) -> str:
    """Report progress at every step."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
        await anyio.sleep(0.05)
    return f"counted to {steps}"


@server.tool()
async def wait(ctx: Context) -> str:
    """Go on until cancelled; then say so where the test can see it."""
    await ctx.report_progress(1, None, "waiting")
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        print("cancelled", flush=True)  # noqa: T201
        raise
    return "never"


def main() -> None:
    if kind == "sse":
        app = server.sse_app()
    else:
        app = server.streamable_http_app(json_response=kind == "json", stateless_http=kind == "stateless")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        print(listener.getsockname()[1], flush=True)  # noqa: T201
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=0)
        uvicorn.Server(config).run([listener])


main()
