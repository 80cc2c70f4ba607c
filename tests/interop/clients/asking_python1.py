"""A client on the Python SDK 1.x that answers questions: walks the steps of a plan. Runs in `.envs/mcp1`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from asking import ROOT, SAID, Heard, fill_in, plain, walk
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from plan import print_report, read_plan

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

heard = Heard()


async def elicited(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    heard("elicitation/create", plain(params))
    content = fill_in(params.requestedSchema) if isinstance(params, types.ElicitRequestFormParams) else None
    return types.ElicitResult(action="accept", content=content)


async def sampled(_: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    heard("sampling/createMessage", plain(params))
    return types.CreateMessageResult(
        role="assistant", model="none", content=types.TextContent(type="text", text=SAID), stopReason="endTurn"
    )


async def rooted(_: Any) -> types.ListRootsResult:
    heard("roots/list")
    return types.ListRootsResult(roots=[types.Root(uri=ROOT)])


async def noticed(message: Any) -> None:
    if isinstance(message, types.ServerNotification) and message.root.method != "notifications/progress":
        heard(message.root.method, plain(message.root.params) if message.root.params else None)


def acts(session: ClientSession) -> dict[str, Any]:
    async def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            heard("notifications/progress", {"progress": progress, "total": total, "message": message})

        return plain(await session.call_tool(name, arguments, progress_callback=on_progress))

    async def tools() -> list[dict[str, Any]]:
        return [plain(tool) for tool in (await session.list_tools()).tools]

    async def resources() -> list[dict[str, Any]]:
        return [plain(resource) for resource in (await session.list_resources()).resources]

    async def read(uri: str) -> dict[str, Any]:
        return plain(await session.read_resource(uri))

    async def prompt(name: str, arguments: dict[str, str]) -> dict[str, Any]:
        return plain(await session.get_prompt(name, arguments))

    async def complete(ref: dict[str, str], argument: dict[str, str]) -> dict[str, Any]:
        kind = types.PromptReference if ref["type"] == "ref/prompt" else types.ResourceTemplateReference
        return plain(await session.complete(kind(**ref), argument))

    async def watch(uris: list[str]) -> None:
        for uri in uris:
            await session.subscribe_resource(uri)

    return {act.__name__: act for act in (call, tools, resources, read, prompt, complete, watch)}


def reach(plan: dict[str, Any]) -> AbstractAsyncContextManager[Any]:
    """Open the streams to what the plan names."""
    if "command" in plan:
        command, *arguments = plan["command"]
        return stdio_client(StdioServerParameters(command=command, args=arguments, env=plan["env"]))
    return streamablehttp_client(plan["url"], plan["headers"])


async def main() -> None:
    plan = read_plan()
    if plan["mode"] != "legacy":
        # It has no way to ask for an older revision than its own, as older versions of it do.
        types.LATEST_PROTOCOL_VERSION = plan["mode"]
    async with (
        reach(plan) as (read, write, *_),
        ClientSession(
            read,
            write,
            elicitation_callback=elicited,
            sampling_callback=sampled,
            list_roots_callback=rooted,
            message_handler=noticed,
        ) as session,
    ):
        greeting = await session.initialize()
        await session.set_logging_level(plan["level"])
        steps = await walk(plan["steps"], acts(session), heard, McpError)
    print_report({"protocolVersion": greeting.protocolVersion, "steps": steps})


asyncio.run(main())
