"""A server of the official Python SDK that demands OAuth, and asks the authorization server about each token.

python sdk_server.py ISSUER PORT
"""

from __future__ import annotations

import base64
import json
import sys
import urllib.parse
import urllib.request
from importlib.metadata import version

from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

ISSUER, PORT = sys.argv[1], int(sys.argv[2])
URL = f"http://127.0.0.1:{PORT}/mcp"


class Introspecting(TokenVerifier):
    async def verify_token(self, token: str) -> AccessToken | None:
        import asyncio

        return await asyncio.to_thread(introspected, token)


def introspected(token: str) -> AccessToken | None:
    body = urllib.parse.urlencode({"token": token}).encode()
    pair = base64.b64encode(b"resource-server:resource-server-secret").decode()
    request = urllib.request.Request(f"{ISSUER}/token/introspection", body, {"Authorization": f"Basic {pair}"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        said = json.load(answer)
    if not said.get("active") or said.get("aud") != URL:
        return None
    return AccessToken(
        token=token, client_id=said["client_id"], scopes=said.get("scope", "").split(), resource=said["aud"]
    )


settings = AuthSettings(issuer_url=AnyHttpUrl(ISSUER), resource_server_url=AnyHttpUrl(URL), required_scopes=["read"])
if version("mcp").startswith("1."):
    from mcp.server.fastmcp import FastMCP

    server = FastMCP("guarded", host="127.0.0.1", port=PORT, auth=settings, token_verifier=Introspecting())
    run = lambda: server.run("streamable-http")  # noqa: E731
else:
    from mcp.server import MCPServer

    server = MCPServer("guarded", auth=settings, token_verifier=Introspecting())
    run = lambda: server.run("streamable-http", host="127.0.0.1", port=PORT)  # noqa: E731


@server.tool()
def who() -> str:
    """Says whose token it was."""
    from mcp.server.auth.middleware.auth_context import get_access_token

    token = get_access_token()
    return "nobody" if token is None else token.client_id


run()
