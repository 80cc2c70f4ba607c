"""A gateway that a team shares: the company's sign-on, a server that wants a login of each user, and the page."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muxway.config import parse_config
from muxway.identity.connect import ConnectPages
from muxway.identity.resource_metadata import ProtectedResources
from muxway.identity.sealed_cookies import SealedCookies
from muxway.identity.sign_on import SignOn
from muxway.identity.verify import AccessTokens, ResourceServer

from ..serve.harness import Web, a_web, initialize, modern
from .company import CLIENT, Browser, Company, Page, company_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from muxway import Gateway
    from muxway.testing import ScriptedServer

    from .provider import Provider

URL_ELICITATION = {"elicitation": {"form": {}, "url": {}}}
AUDIENCE = "https://mcp.example.com/mcp"


@dataclass
class Team:
    """All of it."""

    web: Web
    company: Company
    pages: ConnectPages

    @property
    def gateway(self) -> Gateway:
        return self.web.world.gateway

    @property
    def page(self) -> str:
        return f"http://{self.web.host}/connect"

    def bearer(self, user: str, **claims: Any) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.company.token(user, AUDIENCE, **claims)}"}

    async def ask(
        self, user: str, method: str, params: dict[str, Any] | None = None, *, can: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """A stateless request of a user."""
        given = dict(params or {})
        if can is not None:
            given["_meta"] = {"io.modelcontextprotocol/clientCapabilities": can, **given.get("_meta", {})}
        message, headers = modern(method, given)
        return (await self.web.post(message, {**headers, **self.bearer(user)})).outcome

    async def call(self, user: str, tool: str = "guarded__who", **more: Any) -> dict[str, Any]:
        return (await self.ask(user, "tools/call", {"name": tool, "arguments": {}, **more}))["result"]

    async def says(self, user: str, tool: str = "guarded__who") -> str:
        """What a tool says to a user."""
        return (await self.call(user, tool))["content"][0]["text"]

    async def tools(self, user: str) -> list[str]:
        return [tool["name"] for tool in (await self.ask(user, "tools/list"))["result"]["tools"]]

    async def session(self, user: str, capabilities: dict[str, Any] | None = None) -> dict[str, str]:
        """The headers of a handshake session."""
        hello = initialize()
        hello["params"]["capabilities"] = capabilities or {}
        answer = await self.web.post(hello, self.bearer(user))
        headers = {"Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        headers |= self.bearer(user)
        await self.web.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
        return headers

    async def log_in(self, browser: Browser, server: str = "guarded") -> Page:
        """Somebody connects a server on the page, and agrees to everything."""
        page = await browser.get(self.page)
        form = {"csrf": page.field("csrf"), "server": server, "do": "connect"}
        return await browser.post(self.page, form)


@asynccontextmanager
async def team_at(
    provider: Provider,
    servers: dict[str, ScriptedServer] | None = None,
    top: dict[str, Any] | None = None,
    **oauth: Any,
) -> AsyncIterator[Team]:
    """A gateway in front of a provider's MCP server."""
    async with company_of(Company()) as company:
        auth = {"issuer": company.url, "audience": [AUDIENCE], "signOn": {"clientId": CLIENT}}
        off = {"off": {"command": "none", "disabled": True}}
        config = parse_config({"mcpServers": off, "gateway": {"auth": auth}})
        settings = config.gateway.auth
        assert settings is not None
        assert settings.sign_on is not None
        tokens = AccessTokens(settings)
        authenticator = ResourceServer(tokens, ProtectedResources(config, settings, []))
        async with a_web(servers, top=top) as web:
            web.door.admit((), {}, authenticator)
            gateway = web.world.gateway
            cookies = SealedCookies()
            sign_on = SignOn(settings, settings.sign_on, public_url=None, cookies=cookies, keys=tokens.keys)
            pages = ConnectPages(f"http://{web.host}", lambda: gateway.logins, cookies, sign_on)
            web.door.pages.pages = pages.handlers
            gateway.logins.connect_pages = pages
            await gateway.add("guarded", url=provider.mcp, **({"oauth": oauth} if oauth else {}))
            try:
                yield Team(web, company, pages)
            finally:
                tokens.close()
