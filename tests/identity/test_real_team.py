"""A gateway for a team, of real parts: two OpenID providers, a client and a server of the official SDK."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import pytest

from ..interop import drive, peers
from ..ports import free_port
from .company import CLIENT, Browser, Page
from .test_real_issuer import REAL, Provider
from .test_real_provider import HERE, listening, process

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]


async def agreed(browser: Browser, page: Page) -> Page:
    """Fill in whatever a provider asks for."""
    for _ in range(6):
        form = re.search(r"<form[^>]*?action=\"([^\"]*)\"[^>]*>(.*?)</form>", page.text, re.DOTALL)
        if form is None:
            return page
        fields = dict(re.findall(r"<input[^>]*name=\"([^\"]+)\"[^>]*?value=\"([^\"]*)\"", form[2]))
        if 'name="login"' in form[2]:
            fields |= {"login": "ann-there", "password": "any"}
        page = await browser.post(urljoin(page.url, form[1].replace("&amp;", "&")), fields)
    raise AssertionError(page.text)


async def test_a_user_signs_on_connects_a_server_and_calls_it(tmp_path: Path) -> None:
    """docs/identity-team.md: the story, followed."""
    port, issuer_port, server_port = free_port(), free_port(), free_port()
    base, there = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{server_port}/mcp"
    client = {
        "client_id": CLIENT,
        "redirect_uris": [f"{base}/sign-on/callback"],
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code"],
        "response_types": ["code"],
        "application_type": "native",
    }
    company = Provider(clients=[client])
    auth = {"issuer": company.issuer, "scopes": ["mcp:tools"], "signOn": {"clientId": CLIENT, "scopes": ["openid"]}}
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"guarded": {"url": there}}, "gateway": {"auth": auth}}))
    modules = str(peers.ensure("node") / "node_modules")
    provider = (str(peers.NODE), str(HERE / "provider.mjs"), modules, str(issuer_port), there)
    server = (peers.python("mcp2"), str(HERE / "sdk_server.py"), f"http://127.0.0.1:{issuer_port}", str(server_port))
    serve = (sys.executable, "-m", "muxway", "serve", "-c", str(file), "--port", str(port))

    async def called() -> Any:
        import asyncio

        command = [peers.python("mcp2"), str(REAL / "python2.py"), f"{base}/mcp", "guarded__who", "legacy"]
        done = await asyncio.to_thread(drive.finish, command)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["text"]

    try:
        async with process(*provider) as one, process(*server) as two:
            await listening(issuer_port, one)
            await listening(server_port, two)
            async with process(*serve) as three, Browser() as browser:
                await listening(port, three)
                said = await called()
                link = re.search(rf"needs your login: open ({base}/connect\?server=guarded)", said)
                assert link is not None, said
                page = await browser.get(link[1])
                assert page.status == 200
                assert "signed on as <b>ann</b>" in page.text
                form = {"csrf": page.field("csrf"), "server": "guarded", "do": "connect"}
                page = await agreed(browser, await browser.post(f"{base}/connect", form))
                assert (page.status, page.url) == (200, f"{base}/connect")
                assert "Disconnect" in page.text
                assert "needs your login" not in await called()
    finally:
        company.stop()
