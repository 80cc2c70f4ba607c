"""The Python SDK 1.x logs in to an MCP server and calls a tool. Runs in `.envs/mcp1`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from browser import visit
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.auth import OAuthClientMetadata

CALLBACK = "http://127.0.0.1:3999/callback"


class Storage:
    """Keeps what the SDK learns, for as long as this runs."""

    tokens: Any = None
    client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


async def main(url: str, tool: str) -> None:
    found: dict[str, str] = {}

    async def redirect(where: str) -> None:
        found.update(await asyncio.to_thread(visit, where, CALLBACK))

    async def callback() -> tuple[str, str | None]:
        return found["code"], found.get("state")

    metadata = OAuthClientMetadata.model_validate(
        {
            "client_name": "python1",
            "redirect_uris": [CALLBACK],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
    )
    storage = Storage()
    auth = OAuthClientProvider(url, metadata, storage, redirect, callback)
    async with streamablehttp_client(url, auth=auth) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        result = await session.call_tool(tool, {})
        print(json.dumps({"text": result.content[0].text, "scope": storage.tokens.scope}))  # noqa: T201


asyncio.run(main(*sys.argv[1:3]))
