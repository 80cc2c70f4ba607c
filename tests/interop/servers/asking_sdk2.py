"""A server of both eras on the Python SDK 2.x that wants something of its caller; runs in `.envs/mcp2`.

    asking_sdk2.py NAME [--modern-only]            over stdio
    asking_sdk2.py NAME [--modern-only] --http     over Streamable HTTP; prints its port on the first line

In a handshake session it sends requests while a call is open; from 2026-07-28 on it ends the call with its questions
and is called again. With `--modern-only` it answers `initialize` as one does that speaks nothing but 2026-07-28.
"""

from __future__ import annotations

import socket
import sys
import warnings
from functools import partial
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from asking_python import offer_what_asks_nothing
from mcp.server import MCPServer
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.mcpserver import Context  # noqa: TC002 - the SDK reads the annotations at run time
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import BaseModel

# Half of what is offered here is of the older era.
warnings.simplefilter("ignore", MCPDeprecationWarning)

UNSUPPORTED_PROTOCOL_VERSION = -32022
MODERN = "2026-07-28"

# The TypeScript SDK drops progress that it reads together with the result.
STEP_SECONDS = 0.05

name = sys.argv[1]
server = MCPServer(name, version="1.0.0")


class Name(BaseModel):
    name: str


class Color(BaseModel):
    color: str


SAY_HI = types.SamplingMessage(role="user", content=types.TextContent(text="Say hi"))
PAGE = {"message": "Please sign in", "url": "https://example.test/sign-in"}


def in_session(ctx: Context) -> bool:
    return ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS


def asking(state: str | None = None, /, **questions: types.InputRequest) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=questions, request_state=state)


def form(message: str, model: type[BaseModel]) -> types.ElicitRequest:
    schema = model.model_json_schema()
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


@server.tool()
async def interview(ctx: Context) -> str | types.InputRequiredResult:
    """Ask the user twice and the model once."""
    if in_session(ctx):
        try:
            who = (await ctx.elicit("Who are you?", Name)).data.name
            color = (await ctx.elicit("Which colour?", Color)).data.color
            said = await ctx.session.create_message([SAY_HI], max_tokens=10, related_request_id=ctx.request_id)
        except MCPError as refusal:
            return f"refused {refusal.code}"
        return f"{who} likes {color}, the model says {said.content.text}"
    given = ctx.input_responses or {}
    if ctx.request_state is None:
        return asking("who", who=form("Who are you?", Name))
    if ctx.request_state == "who":
        sample = types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[SAY_HI], max_tokens=10))
        return asking(given["who"].content["name"], color=form("Which colour?", Color), said=sample)
    color, said = given["color"].content["color"], given["said"].content.text
    return f"{ctx.request_state} likes {color}, the model says {said}"


@server.tool()
async def visit(ctx: Context) -> str | types.InputRequiredResult:
    """Send the user to a page."""
    if in_session(ctx):
        try:
            return (await ctx.elicit_url(**PAGE, elicitation_id="sign-in-1")).action
        except MCPError as refusal:
            return f"refused {refusal.code}"
    declared = ctx.client_capabilities and ctx.client_capabilities.elicitation
    if not declared or declared.url is None:
        data = {"requiredCapabilities": {"elicitation": {"url": {}}}}
        raise MCPError(code=types.MISSING_REQUIRED_CLIENT_CAPABILITY, message="needs a page to be visited", data=data)
    if ctx.input_responses is None:
        return asking(page=types.ElicitRequest(params=types.ElicitRequestURLParams(**PAGE)))
    return ctx.input_responses["page"].action


@server.tool()
async def roots(ctx: Context) -> str | types.InputRequiredResult:
    """Ask where the user works."""
    if in_session(ctx):
        try:
            listed = await ctx.session.list_roots()
        except MCPError as refusal:
            return f"refused {refusal.code}"
    elif ctx.input_responses is None:
        return asking(roots=types.ListRootsRequest())
    else:
        listed = ctx.input_responses["roots"]
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
    await ctx.notify_tools_changed()
    if in_session(ctx):
        await ctx.session.send_tool_list_changed()
    return "grown"


version = 1
watchers: dict[str, Any] = {}
"""URI → the session that subscribed to it last: the gateway has one."""


@server.tool()
async def touch(ctx: Context) -> str:
    """Change the watched resource."""
    global version
    version += 1
    await ctx.notify_resource_updated(f"{name}://watched")
    watcher = watchers.get(f"{name}://watched")
    if watcher is not None:
        await watcher.send_resource_updated(f"{name}://watched")
    return f"version {version}"


@server.resource(f"{name}://watched")
def watched() -> str:
    return f"version {version}"


offer_what_asks_nothing(server, name)


@server.prompt()
async def introduce(ctx: Context) -> str | types.InputRequiredResult:
    """Greet whoever is there."""
    if in_session(ctx):
        return f"Say hello to {(await ctx.elicit('Who are you?', Name)).data.name}"
    if ctx.input_responses is None:
        return asking(who=form("Who are you?", Name))
    return f"Say hello to {ctx.input_responses['who'].content['name']}"


@server.completion()
async def complete(
    ref: types.PromptReference | types.ResourceTemplateReference,
    argument: types.CompletionArgument,
    context: types.CompletionContext | None,
) -> types.Completion:
    offered = ["Ann", "Anton", "Ben"] if isinstance(ref, types.PromptReference) else ["7", "70"]
    return types.Completion(values=[value for value in offered if value.startswith(argument.value)], has_more=False)


# What handshake sessions have beyond it is left to the class below.


async def subscribe(ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
    watchers[str(params.uri)] = ctx.session
    return types.EmptyResult()


async def unsubscribe(ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    watchers.pop(str(params.uri), None)
    return types.EmptyResult()


async def set_level(ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
    """Log everything all the same, as many servers do."""
    return types.EmptyResult()


async def refuse_handshake(ctx: Any, call_next: Any) -> Any:
    if ctx.method == "initialize":
        data = {"supported": [MODERN], "requested": ctx.params.get("protocolVersion")}
        raise MCPError(code=UNSUPPORTED_PROTOCOL_VERSION, message="Unsupported protocol version", data=data)
    return await call_next(ctx)


lowlevel = server._lowlevel_server
lowlevel.create_initialization_options = partial(
    lowlevel.create_initialization_options, NotificationOptions(tools_changed=True, resources_changed=True)
)
lowlevel.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
lowlevel.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)
lowlevel.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
if "--modern-only" in sys.argv:
    server.middleware.append(refuse_handshake)


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
