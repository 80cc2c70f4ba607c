"""What tests of logins have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muxway.config import parse_server
from muxway.identity.sign_in import SignIn
from muxway.identity.store import TokenStore

from .provider import agree, visit

if TYPE_CHECKING:
    from muxway.config.model import ServerConfig
    from muxway.identity.store import Login

    from .provider import Provider


def server(provider: Provider, **oauth: Any) -> ServerConfig:
    """The MCP server of a provider, as it is configured."""
    return parse_server("guarded", {"url": provider.mcp, **({"oauth": oauth} if oauth else {})})


async def log_in(config: ServerConfig, *, scopes: tuple[str, ...] = ()) -> Login:
    """Somebody logs in, with a browser that comes back by itself."""
    import asyncio

    coming: list[asyncio.Task[int]] = []

    async def browse(link: str) -> int:
        return await visit(await agree(link))

    def show(link: str) -> None:
        coming.append(asyncio.ensure_future(browse(link)))

    made = await SignIn(config, TokenStore(), scopes=scopes).by_browser(show)
    assert await coming[0] == 200
    return made
