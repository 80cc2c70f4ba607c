"""As whom a gateway comes to authorization servers: by its own document, where that is taken and can be read."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from muxway.clients.pages import PageRequest, read_cookies
from muxway.config.oauth import OAuthConfig
from muxway.identity.client_registry import OAuthClients
from muxway.identity.connect import BACK, PATH, ConnectPages
from muxway.identity.gateway_client import DOCUMENT
from muxway.identity.sealed_cookies import SealedCookies
from muxway.identity.store import AuthorizationServer
from muxway.net.guarded_fetch import FetchAnswer
from muxway.net.sealed_files import SealedFolder

from ..serve.harness import a_web
from .provider import agree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from muxway.clients.pages import PageAnswer

    from .provider import Provider

PUBLIC = "https://mcp.example.com/gateway"
TAKEN = {"client_id_metadata_document_supported": True}


@dataclass
class Visitor:
    """Whoever runs the gateway, at its page, by the name that others know it by."""

    pages: ConnectPages
    cookies: dict[str, str] = field(default_factory=dict)

    async def ask(self, path: str, **more: Any) -> PageAnswer:
        asked = PageRequest(
            **{"method": "GET", **more}, path=path, host="mcp.example.com", is_operator=True, cookies=self.cookies
        )
        answer = await self.pages.handlers[path](asked)
        for name, value in answer.headers:
            if name == "set-cookie":
                self.cookies |= read_cookies([value.partition(";")[0].encode()])
        return answer

    async def begin(self) -> str:
        """Press Connect. Where the browser is sent."""
        page = (await self.ask(PATH)).body.decode()
        csrf = page.split("name=csrf value='")[1].split("'")[0]
        answer = await self.ask(PATH, method="POST", form={"csrf": csrf, "server": "guarded", "do": "connect"})
        assert answer.status == 303, answer.body
        return dict(answer.headers)["location"]

    async def end(self, link: str) -> PageAnswer:
        """Agree to it at the authorization server, and come back."""
        return await self.ask(BACK, query=urlsplit(await agree(link)).query)


@asynccontextmanager
async def visiting(
    provider: Provider, base: str = PUBLIC, address: str = "93.184.215.14", **oauth: Any
) -> AsyncIterator[Visitor]:
    async def look_up(host: str) -> list[str]:
        assert host == urlsplit(base).hostname
        return [address]

    async with a_web() as web:
        gateway = web.world.gateway
        await gateway.add("guarded", url=provider.mcp, **({"oauth": oauth} if oauth else {}))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("muxway.identity.gateway_client.addresses_of", look_up)
            yield Visitor(ConnectPages(base, lambda: gateway.logins, SealedCookies()))


def client_id(link: str) -> str:
    return dict(parse_qsl(urlsplit(link).query))["client_id"]


async def test_a_gateway_comes_by_its_own_document_where_that_is_taken(provider: Provider, tmp_path: Path) -> None:
    """MCP 2025-11-25, basic/authorization, client id metadata documents: before registration."""
    provider.metadata = TAKEN
    async with visiting(provider) as visitor:
        link = await visitor.begin()
        assert client_id(link) == PUBLIC + DOCUMENT
        document = await visitor.ask(DOCUMENT)
        assert (document.status, dict(document.headers)["content-type"]) == (200, "application/json")
        told = json.loads(document.body)
        assert (told["client_id"], told["redirect_uris"]) == (PUBLIC + DOCUMENT, [PUBLIC + BACK])
        assert (await visitor.end(link)).status == 303
        assert provider.count("/register") == 0
        traded = [form for path, form in provider.asked if path == "/token"]
        assert traded[0]["client_id"] == PUBLIC + DOCUMENT
        # Once it came back, it is known to be good there.
        assert [client_id(await visitor.begin()) for _ in range(3)] == [PUBLIC + DOCUMENT] * 3

        # An authorization server reads it as it should: one of another gateway of ours, say.
        async def fetch(url: str) -> FetchAnswer:
            return FetchAnswer(200, {}, document.body, url)

        found = await OAuthClients(SealedFolder(tmp_path / "clients"), fetch=fetch).look_up(PUBLIC + DOCUMENT)
        assert found.allows(PUBLIC + BACK)


async def test_a_document_that_nobody_could_read_is_not_insisted_on(provider: Provider) -> None:
    """docs/identity-team.md#the-page-connect: it is told on a page elsewhere, and nothing comes back."""
    provider.metadata = TAKEN
    async with visiting(provider) as visitor:
        assert client_id(await visitor.begin()) == PUBLIC + DOCUMENT
        again = await visitor.begin()
        assert client_id(again).startswith("made-")
        assert (await visitor.end(again)).status == 303
        assert client_id(await visitor.begin()) == client_id(again)
    provider.registration = False
    async with visiting(provider) as visitor:
        assert [client_id(await visitor.begin()) for _ in range(2)] == [PUBLIC + DOCUMENT] * 2


async def test_a_gateway_registers_anew_where_no_login_comes_back(provider: Provider) -> None:
    """docs/identity-team.md#the-page-connect: an authorization server that forgot it tells that to browsers alone."""
    async with visiting(provider) as visitor:
        links = [await visitor.begin() for _ in range(3)]
        assert len({client_id(link) for link in links}) == 1
        again = await visitor.begin()
        assert client_id(again) != client_id(links[0])
        assert (await visitor.end(again)).status == 303
        assert {client_id(await visitor.begin()) for _ in range(3)} == {client_id(again)}


async def test_a_gateway_inside_shows_its_document_to_those_inside(provider: Provider) -> None:
    """docs/identity-team.md#the-page-connect: what the open internet cannot read is no id there."""
    provider.metadata = TAKEN
    async with visiting(provider, address="10.0.0.7") as visitor:
        assert client_id(await visitor.begin()).startswith("made-")
        known_as, outside = (
            visitor.pages._client.known_as,
            AuthorizationServer(
                issuer="https://auth.example.com",
                token_endpoint="https://auth.example.com/token",
                registration_endpoint="https://auth.example.com/register",
                client_id_metadata=True,
            ),
        )
        inside = msgspec.structs.replace(outside, private=True)
        found = [known_as("guarded", OAuthConfig(), server) for server in (outside, inside)]
        assert [one and one.client_id for one in found] == [None, PUBLIC + DOCUMENT]


@pytest.mark.parametrize(
    ("base", "metadata", "oauth", "wanted"),
    [
        (PUBLIC, {}, {}, "made-"),
        ("https://127.0.0.1:8443", TAKEN, {}, "made-"),
        ("https://localhost:8443", TAKEN, {}, "made-"),
        ("http://mcp.example.com", TAKEN, {}, "made-"),
        (PUBLIC, TAKEN, {"clientId": "written"}, "written"),
        (PUBLIC, TAKEN, {"clientMetadataUrl": "https://example.com/c.json"}, "https://example.com/c.json"),
    ],
)
async def test_what_is_written_comes_first_and_what_others_cannot_find_is_no_id(
    base: str, metadata: dict[str, Any], oauth: dict[str, str], wanted: str, provider: Provider
) -> None:
    """docs/identity.md#client-ids: the order."""
    provider.metadata = metadata
    async with visiting(provider, base, **oauth) as visitor:
        assert client_id(await visitor.begin()).startswith(wanted)
        assert (DOCUMENT in visitor.pages.handlers) is (base == PUBLIC)
