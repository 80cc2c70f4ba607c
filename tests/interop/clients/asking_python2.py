"""A client on the Python SDK 2.x that answers questions, in the mode the plan names. Runs in `.envs/mcp2`."""

from __future__ import annotations

import asyncio
import warnings
from contextlib import AsyncExitStack
from typing import Any

import mcp_types as types
from asking import ROOT, SAID, Heard, fill_in, plain, walk
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged
from plan import print_report, read_plan

# Half of what is tried here is of the older era.
warnings.simplefilter("ignore", MCPDeprecationWarning)

heard = Heard()


async def elicited(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    heard("elicitation/create", plain(params))
    content = fill_in(params.requested_schema) if isinstance(params, types.ElicitRequestFormParams) else None
    return types.ElicitResult(action="accept", content=content)


async def sampled(_: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    heard("sampling/createMessage", plain(params))
    content = types.TextContent(text=SAID)
    return types.CreateMessageResult(role="assistant", model="none", content=content, stop_reason="endTurn")


async def rooted(_: Any) -> types.ListRootsResult:
    heard("roots/list")
    return types.ListRootsResult(roots=[types.Root(uri=ROOT)])


async def noticed(message: Any) -> None:
    method = getattr(message, "method", None)
    if method is not None and method.startswith("notifications/") and method != "notifications/progress":
        heard(method, plain(message.params) if message.params else None)


def acts(client: Client, stack: AsyncExitStack) -> dict[str, Any]:
    async def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            heard("notifications/progress", {"progress": progress, "total": total, "message": message})

        return plain(await client.call_tool(name, arguments, progress_callback=on_progress))

    async def tools() -> list[dict[str, Any]]:
        return [plain(tool) for tool in (await client.list_tools(cache_mode="refresh")).tools]

    async def resources() -> list[dict[str, Any]]:
        return [plain(resource) for resource in (await client.list_resources(cache_mode="refresh")).resources]

    async def read(uri: str) -> dict[str, Any]:
        return plain(await client.read_resource(uri))

    async def prompt(name: str, arguments: dict[str, str]) -> dict[str, Any]:
        return plain(await client.get_prompt(name, arguments))

    async def complete(ref: dict[str, str], argument: dict[str, str]) -> dict[str, Any]:
        kind = types.PromptReference if ref["type"] == "ref/prompt" else types.ResourceTemplateReference
        return plain(await client.complete(kind(**ref), argument))

    async def watch(uris: list[str]) -> None:
        if client.protocol_version < "2026":
            for uri in uris:
                await client.subscribe_resource(uri)
            return
        listening = client.listen(tools_list_changed=True, resource_subscriptions=uris)
        subscription = await stack.enter_async_context(listening)

        async def follow() -> None:
            async for event in subscription:
                if isinstance(event, ResourceUpdated):
                    heard("notifications/resources/updated", {"uri": event.uri})
                elif isinstance(event, ToolsListChanged):
                    heard("notifications/tools/list_changed")

        following = asyncio.create_task(follow())
        stack.callback(following.cancel)

    return {act.__name__: act for act in (call, tools, resources, read, prompt, complete, watch)}


def reach(plan: dict[str, Any]) -> Any:
    """What the plan names, as the client wants to be told."""
    if "command" in plan:
        command, *arguments = plan["command"]
        return StdioServerParameters(command=command, args=arguments, env=plan["env"])
    return streamable_http_client(plan["url"], http_client=create_mcp_http_client(plan["headers"]))


async def main() -> None:
    plan = read_plan()
    client = Client(
        reach(plan),
        mode=plan["mode"],
        elicitation_callback=elicited,
        sampling_callback=sampled,
        list_roots_callback=rooted,
        message_handler=noticed,
        log_level=plan["level"],
    )
    async with client, AsyncExitStack() as stack:
        if client.protocol_version < "2026":
            await client.set_logging_level(plan["level"])
        steps = await walk(plan["steps"], acts(client, stack), heard, MCPError)
        version = client.protocol_version
    print_report({"protocolVersion": version, "steps": steps})


asyncio.run(main())
