"""A server on the Python SDK 2.x; runs in `.envs/mcp2`. Offers the same tools as `sdk1.py`.

The SDK serves both eras on stdio. With `--modern-only` this server answers `initialize` with
"unsupported version", as one does that speaks nothing but 2026-07-28.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context  # noqa: TC002 - the SDK reads the annotations at run time
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel

UNSUPPORTED_PROTOCOL_VERSION = -32022
MODERN = "2026-07-28"

# The TypeScript SDK drops progress that it reads together with the result.
STEP_SECONDS = 0.1

server = MCPServer("sdk2", version="1.0.0")


class Sum(BaseModel):
    sum: int


@server.tool(description="Add two whole numbers.")
def add(a: int, b: int) -> Sum:
    return Sum(sum=a + b)


@server.tool(description="Give the value back as JSON text.")
def echo(value: Any) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=json.dumps(value, ensure_ascii=False))])


@server.tool(description="End with an isError result.")
def fail() -> str:
    raise ToolError("out of paper")


@server.tool(description="End with a JSON-RPC error.")
def refuse() -> str:
    raise MCPError(code=4711, message="not today", data={"hint": "ask later", "nothing": None})


@server.tool(description="Report progress at every step.")
async def count(steps: int, ctx: Context) -> str:
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
        await anyio.sleep(STEP_SECONDS)
    return f"counted to {steps}"


@server.tool(description="Report progress once, then go on until cancelled.")
async def wait(ctx: Context) -> str:
    await ctx.report_progress(1, None, "waiting")
    await anyio.sleep_forever()
    return "never"


async def refuse_handshake(ctx: Any, call_next: Any) -> Any:
    if ctx.method == "initialize":
        data = {"supported": [MODERN], "requested": ctx.params.get("protocolVersion")}
        raise MCPError(code=UNSUPPORTED_PROTOCOL_VERSION, message="Unsupported protocol version", data=data)
    return await call_next(ctx)


parser = argparse.ArgumentParser()
parser.add_argument("--modern-only", action="store_true")
if parser.parse_args().modern_only:
    server.middleware.append(refuse_handshake)
server.run()
