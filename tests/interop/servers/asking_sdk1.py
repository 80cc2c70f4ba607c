"""A handshake server on the Python SDK 1.x that wants something of its caller; runs in `.envs/mcp1`.

    asking_sdk1.py NAME            over stdio
    asking_sdk1.py NAME --http     over Streamable HTTP; prints its port on the first line

All servers named `asking_*` offer the same, as far as their SDK can: `tests/interop/asking.py` says what. NAME is the
scheme of the URIs, so that several of them can stand behind one gateway.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

import anyio
import uvicorn
from asking_python import offer_what_asks_nothing
from mcp import McpError, types
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.lowlevel import NotificationOptions
from pydantic import BaseModel

# The TypeScript SDK drops progress that it reads together with the result.
STEP_SECONDS = 0.05

name = sys.argv[1]
server = FastMCP(name)


class Name(BaseModel):
    name: str


class Color(BaseModel):
    color: str


@server.tool()
async def interview(ctx: Context) -> str:
    """Ask the user twice and the model once."""
    try:
        who = await ctx.elicit("Who are you?", Name)
        color = await ctx.elicit("Which colour?", Color)
        question = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="Say hi"))
        said = await ctx.session.create_message([question], max_tokens=10, related_request_id=ctx.request_id)
    except McpError as refusal:
        return f"refused {refusal.error.code}"
    return f"{who.data.name} likes {color.data.color}, the model says {said.content.text}"


@server.tool()
async def visit(ctx: Context) -> str:
    """Send the user to a page."""
    try:
        answer = await ctx.elicit_url("Please sign in", "https://example.test/sign-in", "sign-in-1")
    except McpError as refusal:
        return f"refused {refusal.error.code}"
    return answer.action


@server.tool()
async def roots(ctx: Context) -> str:
    """Ask where the user works."""
    try:
        listed = await ctx.session.list_roots()
    except McpError as refusal:
        return f"refused {refusal.error.code}"
    return str(listed.roots[0].uri)


@server.tool()
async def count(ctx: Context) -> str:
    """Report progress at every step."""
    for step in (1, 2, 3):
        await ctx.report_progress(step, 3, f"step {step}")
        await anyio.sleep(STEP_SECONDS)
    return "counted"


@server.tool()
async def shout(ctx: Context) -> str:
    """Log a whisper and a shout."""
    await ctx.log("debug", "quiet", logger_name="voice")
    await ctx.log("warning", "loud", logger_name="voice")
    await anyio.sleep(STEP_SECONDS)
    return "shouted"


@server.tool()
def big() -> str:
    """Say half a million characters, which a result has twice: a slow one is an event, and clients take 1 MiB."""
    return "x" * 500_000


@server.tool()
async def grow(tool: str, ctx: Context) -> str:
    """Offer one more tool."""
    server.add_tool(lambda: "new", name=tool)
    await ctx.session.send_tool_list_changed()
    return "grown"


version = 1
watchers: dict[str, Any] = {}
"""URI → the session that subscribed to it last: the gateway has one."""


@server.tool()
async def touch() -> str:
    """Change the watched resource."""
    global version
    version += 1
    watcher = watchers.get(f"{name}://watched")
    if watcher is not None:
        await watcher.send_resource_updated(f"{name}://watched")
    return f"version {version}"


@server.resource(f"{name}://watched")
def watched() -> str:
    return f"version {version}"


offer_what_asks_nothing(server, name)


@server.prompt()
async def introduce(ctx: Context) -> str:
    """Greet whoever is there."""
    return f"Say hello to {(await ctx.elicit('Who are you?', Name)).data.name}"


@server.completion()
async def complete(
    ref: types.PromptReference | types.ResourceTemplateReference,
    argument: types.CompletionArgument,
    context: types.CompletionContext | None,
) -> types.Completion:
    offered = ["Ann", "Anton", "Ben"] if isinstance(ref, types.PromptReference) else ["7", "70"]
    return types.Completion(values=[value for value in offered if value.startswith(argument.value)], hasMore=False)


# What FastMCP leaves to the class below it.
lowlevel = server._mcp_server
without = lowlevel.get_capabilities


def capabilities(_: NotificationOptions, experimental: dict[str, dict[str, Any]]) -> types.ServerCapabilities:
    declared = without(NotificationOptions(tools_changed=True, resources_changed=True), experimental)
    assert declared.resources is not None
    declared.resources.subscribe = True
    return declared


lowlevel.get_capabilities = capabilities


@lowlevel.subscribe_resource()
async def subscribe(uri: Any) -> None:
    watchers[str(uri)] = lowlevel.request_context.session


@lowlevel.unsubscribe_resource()
async def unsubscribe(uri: Any) -> None:
    watchers.pop(str(uri), None)


@lowlevel.set_logging_level()
async def set_level(level: types.LoggingLevel) -> None:
    """Log everything all the same, as many servers do."""


def main() -> None:
    if "--http" not in sys.argv:
        server.run()
        return
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        print(listener.getsockname()[1], flush=True)  # noqa: T201
        config = uvicorn.Config(server.streamable_http_app(), log_level="warning", timeout_graceful_shutdown=0)
        uvicorn.Server(config).run([listener])


main()
