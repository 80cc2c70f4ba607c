"""A handshake-era server on the Python SDK 1.x; runs in `.envs/mcp1`.

Built on the low-level class, because FastMCP turns every exception into an `isError` result and
`refuse` has to answer with a JSON-RPC error. Offers the same tools as `sdk2.py`.
"""

from __future__ import annotations

import json
from typing import Any

import anyio
from mcp import McpError, types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

# The TypeScript SDK drops progress that it reads together with the result.
STEP_SECONDS = 0.1

server = Server("sdk1", version="1.0.0")


def tool(name: str, description: str, properties: dict[str, Any], output: dict[str, Any] | None = None) -> types.Tool:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return types.Tool(name=name, description=description, inputSchema=schema, outputSchema=output)


NUMBER = {"type": "integer"}
TOOLS = [
    tool(
        "add",
        "Add two whole numbers.",
        {"a": NUMBER, "b": NUMBER},
        {"type": "object", "properties": {"sum": NUMBER}, "required": ["sum"]},
    ),
    tool("echo", "Give the value back as JSON text.", {"value": {}}),
    tool("fail", "End with an isError result.", {}),
    tool("refuse", "End with a JSON-RPC error.", {}),
    tool("count", "Report progress at every step.", {"steps": NUMBER}),
    tool("wait", "Report progress once, then go on until cancelled.", {}),
]


@server.list_tools()
async def list_tools() -> list[types.Tool]:
    return TOOLS


async def call_tool(request: types.CallToolRequest) -> types.ServerResult:
    arguments = request.params.arguments or {}
    structured = None
    match request.params.name:
        case "add":
            structured = {"sum": arguments["a"] + arguments["b"]}
            text = json.dumps(structured)
        case "echo":
            text = json.dumps(arguments["value"], ensure_ascii=False)
        case "fail":
            return result("out of paper", is_error=True)
        case "refuse":
            data = {"hint": "ask later", "nothing": None}
            raise McpError(types.ErrorData(code=4711, message="not today", data=data))
        case "count":
            for step in range(1, arguments["steps"] + 1):
                await report_progress(step, arguments["steps"], f"step {step}")
                await anyio.sleep(STEP_SECONDS)
            text = f"counted to {arguments['steps']}"
        case "wait":
            await report_progress(1, None, "waiting")
            await anyio.sleep_forever()
            text = "never"
        case name:
            raise McpError(types.ErrorData(code=types.INVALID_PARAMS, message=f"Unknown tool: {name}"))
    return result(text, structured)


def result(text: str, structured: dict[str, Any] | None = None, *, is_error: bool = False) -> types.ServerResult:
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
    return types.ServerResult(types.CallToolResult(content=content, structuredContent=structured, isError=is_error))


async def report_progress(progress: float, total: float | None, message: str) -> None:
    context = server.request_context
    if context.meta is not None and context.meta.progressToken is not None:
        await context.session.send_progress_notification(context.meta.progressToken, progress, total, message)


# Registered by hand: the `call_tool` decorator would catch McpError too.
server.request_handlers[types.CallToolRequest] = call_tool


async def main() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
