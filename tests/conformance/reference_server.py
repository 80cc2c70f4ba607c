"""A server with every fixture the conformance suite asks for, on the Python SDK 2.x; runs in `.envs/mcp2`.

    reference_server.py [--port N]    Streamable HTTP of every revision; prints its URL as the first line
    reference_server.py --stdio

The names and texts are the suite's, not ours: each scenario's own description says what it expects.
The tools that ask the client something are in `reference_asking.py`. The tasks extension is not here:
the SDK has its types, but nothing that serves them.
"""

from __future__ import annotations

import argparse
import base64
import json
import socket
import struct
import zlib
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import mcp_types as types
import reference_asking
import uvicorn
from mcp.server import MCPServer
from mcp.server.caching import CacheHint
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.mcpserver import Context  # noqa: TC002 - the SDK reads the annotations at run time
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.server.mcpserver.tools import Tool
from mcp.server.streamable_http import EventMessage, EventStore
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import Field

if TYPE_CHECKING:
    from mcp.server.streamable_http import EventCallback

STEP = 0.05
"""Seconds between two notifications of one call: the suite wants to see them come one by one."""

SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

WATCHED = "test://watched-resource"
PLACES = ["paris", "park", "party", "test", "testing"]


def _png() -> bytes:
    """One red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
        + chunk(b"IEND", b"")
    )


def _wav() -> bytes:
    """Eight samples of silence."""
    samples = b"\x80" * 8
    form = struct.pack("<HHIIHH", 1, 1, 8000, 8000, 1, 8)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", len(body)) + body


PNG, WAV = _png(), _wav()
IMAGE = types.ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png")


def json_schema_2020_12_tool() -> str:
    return "nothing to do"


server = MCPServer(
    "reference",
    version="1.0.0",
    cache_hints={
        "tools/list": CacheHint(ttl_ms=1000, scope="public"),
        "resources/read": CacheHint(ttl_ms=2000, scope="private"),
    },
    tools=[
        # The SDK makes schemas from signatures, and no signature gives this one.
        Tool.from_function(
            json_schema_2020_12_tool, description="A schema with the keywords of JSON Schema 2020-12."
        ).model_copy(update={"parameters": SCHEMA_2020_12})
    ],
)
reference_asking.add_to(server)


# Tools: every kind of content.


@server.tool(description="Plain text.")
def test_simple_text() -> types.CallToolResult:
    return said("This is a simple text response for testing.")


@server.tool(description="A picture.")
def test_image_content() -> types.CallToolResult:
    return types.CallToolResult(content=[IMAGE])


@server.tool(description="A sound.")
def test_audio_content() -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.AudioContent(data=base64.b64encode(WAV).decode(), mime_type="audio/wav")]
    )


@server.tool(description="A resource inside the result.")
def test_embedded_resource() -> types.CallToolResult:
    return types.CallToolResult(
        content=[embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")]
    )


@server.tool(description="Text, picture and resource in one result.")
def test_multiple_content_types() -> types.CallToolResult:
    resource = embedded("test://mixed-content-resource", "application/json", json.dumps({"test": "data", "value": 123}))
    return types.CallToolResult(
        content=[types.TextContent(text="Multiple content types test:"), IMAGE, resource],
    )


@server.tool(description="End with an error.")
def test_error_handling() -> str:
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool(description="An argument that also travels as a header.")
def test_header_argument(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    return f"region {region}"


# Tools: notifications on the way to the result.


@server.tool(description="Three log messages.")
async def test_tool_with_logging(ctx: Context) -> str:
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(text)
        await anyio.sleep(STEP)
    return "logged three times"


@server.tool(description="A log message, for those who asked for log messages.")
async def test_logging_tool(ctx: Context) -> str:
    await ctx.info("a message from test_logging_tool")
    return "logged once"


@server.tool(description="Three steps of progress.")
async def test_tool_with_progress(ctx: Context) -> str:
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100)
        await anyio.sleep(STEP)
    return "done in three steps"


@server.tool(description="Close the stream of the answer before the answer is there.")
async def test_reconnection(ctx: Context) -> str:
    await anyio.sleep(STEP)
    await ctx.close_sse_stream()
    # Long enough to be waited for: a gateway may answer quick calls with JSON, where nothing can be resumed.
    await anyio.sleep(1)
    return "the answer, on a resumed stream"


# Tools: changes to what is on offer. `notify_*` reaches whoever listens by 2026-07-28, `send_*` the caller's session.


@server.tool(description="Add a tool, or take it away again.")
async def test_trigger_tool_change(ctx: Context) -> str:
    def test_changing_tool() -> str:
        return "here for now"

    if any(tool.name == test_changing_tool.__name__ for tool in await server.list_tools()):
        server.remove_tool(test_changing_tool.__name__)
    else:
        server.add_tool(test_changing_tool, description="Comes and goes.")
    await ctx.notify_tools_changed()
    if ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
        await ctx.session.send_tool_list_changed()
    return "tools changed"


@server.tool(description="Add a prompt, or take it away again.")
async def test_trigger_prompt_change(ctx: Context) -> str:
    def test_changing_prompt() -> str:
        return "Here for now."

    if any(prompt.name == test_changing_prompt.__name__ for prompt in await server.list_prompts()):
        server.remove_prompt(test_changing_prompt.__name__)
    else:
        server.add_prompt(Prompt.from_function(test_changing_prompt, description="Comes and goes."))
    await ctx.notify_prompts_changed()
    if ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
        await ctx.session.send_prompt_list_changed()
    return "prompts changed"


@server.tool(description="Change the watched resource.")
async def test_trigger_resource_update(ctx: Context) -> str:
    global version
    version += 1
    await ctx.notify_resource_updated(WATCHED)
    for session in watchers.get(WATCHED, {}).values():
        await session.send_resource_updated(WATCHED)
    return f"version {version}"


# Resources. What only the handshake revisions have is left out of the SDK's high level.

version = 1
watchers: dict[str, dict[int, Any]] = {}


@server.resource("test://static-text", mime_type="text/plain", description="A text.")
def static_text() -> str:
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png", description="A picture.")
def static_binary() -> bytes:
    return PNG


@server.resource("test://template/{id}/data", mime_type="application/json", description="One for each id.")
def templated(id: str) -> str:  # noqa: A002 - the suite names it
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


@server.resource(WATCHED, mime_type="text/plain", description="Changes when test_trigger_resource_update is called.")
def watched() -> str:
    return f"version {version}"


@server.resource("test://embedded-resource", mime_type="text/plain", description="What test_embedded_resource embeds.")
def embedded_resource() -> str:
    return "This is an embedded resource content."


@server.resource("test://example-resource", mime_type="text/plain", description="One to name in a prompt.")
def example_resource() -> str:
    return "An example."


@server.resource("test://mixed-content-resource", mime_type="application/json", description="One among other content.")
def mixed_content_resource() -> str:
    return json.dumps({"test": "data", "value": 123})


async def subscribe(ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
    watchers.setdefault(str(params.uri), {})[id(ctx.session)] = ctx.session
    return types.EmptyResult()


async def unsubscribe(ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    watchers.get(str(params.uri), {}).pop(id(ctx.session), None)
    return types.EmptyResult()


async def set_level(ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
    return types.EmptyResult()


lowlevel = server._lowlevel_server
lowlevel.create_initialization_options = partial(
    lowlevel.create_initialization_options, NotificationOptions(prompts_changed=True, tools_changed=True)
)
lowlevel.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
lowlevel.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)
lowlevel.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)


# Prompts and completion.


@server.prompt(description="No arguments.")
def test_simple_prompt() -> str:
    return "This is a simple prompt for testing."


@server.prompt(description="Two arguments.")
def test_prompt_with_arguments(
    arg1: Annotated[str, Field(description="First test argument")],
    arg2: Annotated[str, Field(description="Second test argument")],
) -> str:
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt(description="A resource inside.")
def test_prompt_with_embedded_resource(
    resourceUri: Annotated[str, Field(description="What to embed")],  # noqa: N803 - the suite names it
) -> list[UserMessage]:
    resource = embedded(resourceUri, "text/plain", "Embedded resource content for testing.")
    return [UserMessage(resource), UserMessage("Please process the embedded resource above.")]


@server.prompt(description="A picture inside.")
def test_prompt_with_image() -> list[UserMessage]:
    return [UserMessage(IMAGE), UserMessage("Please analyze the image above.")]


@server.completion()
async def complete(
    ref: types.PromptReference | types.ResourceTemplateReference,
    argument: types.CompletionArgument,
    context: types.CompletionContext | None,
) -> types.Completion:
    values = [place for place in PLACES if place.startswith(argument.value)]
    return types.Completion(values=values, total=len(values), has_more=False)


def said(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)])


def embedded(uri: str, mime_type: str, text: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=mime_type, text=text))


class Events(EventStore):
    """What streams said, for those who come back. Never forgets: the server lives as long as one test run."""

    def __init__(self) -> None:
        self._events: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        seen = int(last_event_id)
        if not 0 < seen <= len(self._events):
            return None
        stream_id = self._events[seen - 1][0]
        for number, (stream, message) in enumerate(self._events[seen:], seen + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--stdio", action="store_true")
    options = parser.parse_args()
    if options.stdio:
        server.run()
        return
    app = server.streamable_http_app(event_store=Events(), retry_interval=100)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", options.port))
        listener.listen(128)
        # The port is open from here on, so whoever reads this line need not wait for more.
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)  # noqa: T201
        uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=0)).run([listener])


if __name__ == "__main__":
    main()
