"""The Python SDK 2.x logs in to an MCP server and calls a tool, in both eras. Runs in `.envs/mcp2`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx2
from browser import visit
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

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


async def main(url: str, tool: str, mode: str) -> None:
    found: dict[str, str] = {}

    async def redirect(where: str) -> None:
        found.update(await asyncio.to_thread(visit, where, CALLBACK))

    async def callback() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))

    metadata = OAuthClientMetadata.model_validate(
        {
            "client_name": "python2",
            "redirect_uris": [CALLBACK],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
    )
    storage = Storage()
    auth = OAuthClientProvider(url, metadata, storage, redirect, callback)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        result = await client.call_tool(tool, {})
        print(json.dumps({"text": result.content[0].text, "scope": storage.tokens.scope}))  # noqa: T201


asyncio.run(main(*sys.argv[1:4]))
