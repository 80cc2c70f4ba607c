"""A client on an official Python SDK, 1.x or 2.x, over HTTP: lists and calls, and prints what came of it.

Runs in `.envs/mcp1` or `.envs/mcp2`: arguments are the transport (`sse`, `http`, or for 2.x a mode) and the URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import sys
from typing import Any

CALL = ("text__count", {"text": "one two three"})
SLOW = ("text__read_aloud", {"text": "one two three", "pause_ms": 50})


async def old(transport: str, url: str) -> dict[str, Any]:
    from mcp import ClientSession

    progress: list[float] = []

    async def on_progress(done: float, *_: object) -> None:
        progress.append(done)

    async with contextlib.AsyncExitStack() as stack:
        if transport == "sse":
            from mcp.client.sse import sse_client

            streams = await stack.enter_async_context(sse_client(url))
        else:
            from mcp.client.streamable_http import streamablehttp_client

            streams = await stack.enter_async_context(streamablehttp_client(url))
        session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
        greeting = await session.initialize()
        names = [tool.name for tool in (await session.list_tools()).tools]
        await session.send_ping()
        result = await session.call_tool(*CALL)
        counted = await session.call_tool(*SLOW, progress_callback=on_progress)
    return report(greeting.protocolVersion, names, result.isError, counted.isError, progress)


async def new(mode: str, url: str) -> dict[str, Any]:
    from mcp import Client

    progress: list[float] = []

    async def on_progress(done: float, *_: object) -> None:
        progress.append(done)

    async with Client(url, mode=mode) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool(*CALL)
        counted = await client.call_tool(*SLOW, progress_callback=on_progress)
        version = client.protocol_version
    return report(version, names, result.is_error, counted.is_error, progress)


def report(version: object, names: list[str], *rest: object) -> dict[str, Any]:
    failed, counting_failed, progress = rest
    return {"version": str(version), "names": names, "failed": [failed, counting_failed], "progress": progress}


client = old if importlib.metadata.version("mcp").startswith("1.") else new
json.dump(asyncio.run(client(*sys.argv[1:])), sys.stdout)
