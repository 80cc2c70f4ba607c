"""What an issuer says over HTTP, and what somebody in its place may not make us believe."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from muxway.config import parse_config
from muxway.identity import issuer as asking
from muxway.identity.inspection import inspect_issuer
from muxway.identity.jwks import from_issuer
from muxway.identity.sign_on import read_provider
from muxway.net.http_errors import HttpTrouble

from .issuing import TestIssuer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from muxway.config.auth import AuthSettings

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """A web server on loopback that answers everything so."""
    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield site.name
    finally:
        await runner.cleanup()


class Place:
    """An issuer's web site: path → JSON, or a response."""

    def __init__(self) -> None:
        self.pages: dict[str, Any] = {}
        self.asked: list[str] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        page = self.pages.get(request.path)
        if page is None:
            return web.Response(status=404)
        return page if isinstance(page, web.Response) else web.json_response(page)


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("", "/.well-known/oauth-authorization-server"),
        ("", "/.well-known/openid-configuration"),
        ("/realms/main", "/.well-known/oauth-authorization-server/realms/main"),
        ("/realms/main", "/.well-known/openid-configuration/realms/main"),
        ("/realms/main", "/realms/main/.well-known/openid-configuration"),
        ("/t/", "/t/.well-known/openid-configuration"),
    ],
)
async def test_the_keys_are_found_wherever_the_metadata_is(path: str, where: str, place: Place) -> None:
    """RFC 8414 §3.1, §5; OpenID Connect Discovery, section 4."""
    async with serving(place) as url:
        place.pages[where] = {"issuer": f"{url}{path}", "jwks_uri": f"{url}/keys"}
        place.pages["/keys"] = {"keys": TestIssuer().jwks}
        assert len(await from_issuer(f"{url}{path}", None)) == 1


async def test_written_keys_need_no_metadata(place: Place) -> None:
    """docs/configuration.md#access-tokens: `jwks`."""
    async with serving(place) as url:
        place.pages["/keys"] = {"keys": []}
        assert await from_issuer("https://elsewhere.example", f"{url}/keys") == []
        assert place.asked == ["/keys"]


@pytest.mark.parametrize(
    "lie",
    ["another issuer", "a slash", "no keys", "keys without TLS", "keys in a file", "keys nowhere", "a list"],
)
async def test_metadata_that_is_not_the_issuers_own_is_not_believed(lie: str, place: Place) -> None:
    """RFC 8414 §3.3: `issuer` must be identical, or the metadata must not be used."""
    async with serving(place) as url:
        told: Any = {"issuer": url, "jwks_uri": f"{url}/keys"}
        if lie == "a list":
            told = []
        else:
            told |= {
                "another issuer": {"issuer": "https://evil.example"},
                "a slash": {"issuer": f"{url}/"},
                "no keys": {"jwks_uri": None},
                "keys without TLS": {"jwks_uri": "http://keys.example.com/"},
                "keys in a file": {"jwks_uri": "file:///etc/passwd"},
                "keys nowhere": {"jwks_uri": "https://[x"},
                "keys in our file": {"jwks_uri": "file://localhost/etc/passwd"},
            }[lie]
        place.pages["/.well-known/oauth-authorization-server"] = told
        place.pages["/keys"] = {"keys": TestIssuer().jwks}
        with pytest.raises(HttpTrouble):
            await from_issuer(url, None)
        assert "/keys" not in place.asked


def test_an_issuer_whose_sign_on_is_nowhere_is_told_as_such() -> None:
    """Ours: what is no address is none, and no error of muxway's."""
    with pytest.raises(HttpTrouble, match="authorization_endpoint"):
        read_provider({"authorization_endpoint": "https://[x", "token_endpoint": "https://a.example/"})


async def test_clients_of_2025_03_26_find_the_issuers_metadata_at_our_root(place: Place) -> None:
    """MCP 2025-03-26, basic/authorization: they look at the host of the MCP server, and know of no other place."""
    async with serving(place) as url:
        document = asking.IssuerMetadata(url)
        first = document.document()
        assert isinstance(first, asyncio.Task)
        await first
        assert document.document() is None  # It cannot be had; nobody is asked again for a while.
        place.pages["/.well-known/openid-configuration"] = {"issuer": url, "token_endpoint": f"{url}/token"}
        document = asking.IssuerMetadata(url)
        again = [document.document() for _ in range(3)]
        assert isinstance(again[0], asyncio.Task)
        assert again[0] is again[2]
        await again[0]
        told = document.document()
        assert isinstance(told, bytes)
        assert json.loads(told)["token_endpoint"] == f"{url}/token"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(status: int, place: Place) -> None:
    """Ours: whoever can redirect us could give us keys of its own."""
    async with serving(place) as url:
        place.pages["/keys"] = web.Response(status=status, headers={"Location": f"{url}/other"})
        place.pages["/other"] = {"keys": TestIssuer().jwks}
        with pytest.raises(HttpTrouble, match="redirects"):
            await from_issuer(url, f"{url}/keys")
        assert place.asked == ["/keys"]


@pytest.mark.parametrize("answer", ["huge", "no JSON", "no object", "no set", "status"])
async def test_what_is_no_key_set_is_refused(answer: str, place: Place) -> None:
    """Ours: small, JSON, and what it should be."""
    pages: dict[str, Any] = {
        "huge": web.Response(body=b'{"keys":["' + b"x" * 300_000 + b'"]}'),
        "no JSON": web.Response(text="<html>"),
        "no object": web.Response(text="[]"),
        "no set": {"keys": {}},
        "status": web.Response(status=500),
    }
    async with serving(place) as url:
        place.pages["/keys"] = pages[answer]
        with pytest.raises(HttpTrouble):
            await from_issuer(url, f"{url}/keys")


async def test_an_issuer_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: whoever waits for it is told to come back."""
    monkeypatch.setattr(asking, "_PATIENCE", 0.2)
    over = asyncio.Event()

    async def silent(_: web.Request) -> web.StreamResponse:
        await over.wait()
        return web.Response()

    async with serving(silent) as url:
        with pytest.raises(HttpTrouble, match="did not answer"):
            await from_issuer(url, f"{url}/keys")
        over.set()


OWN = "/.well-known/oauth-authorization-server"
ASKED = {"url": "{url}/i", "clientId": "m", "clientSecret": "s"}
WHOLE = {"authorization_endpoint": "{url}/auth", "token_endpoint": "{url}/token", "jwks_uri": "{url}/keys"}


@pytest.mark.parametrize(
    ("pages", "auth", "wrong"),
    [
        (None, {}, "gateway.auth.issuer: the issuer cannot be reached: "),
        ({}, {}, "gateway.auth.issuer: the issuer has no metadata: it answered with status 404 at "),
        ({OWN: {"issuer": "{url}/"}}, {}, "gateway.auth.issuer: the issuer has metadata of another issuer, {url}/: "),
        ({OWN: {"issuer": "{url}"}}, {}, "gateway.auth.issuer: the issuer does not say where its keys are"),
        ({OWN: {"issuer": "{url}", **WHOLE}}, {}, "gateway.auth.issuer: the issuer answered with status 404"),
        (
            {OWN: {"issuer": "{url}", **WHOLE}, "/keys": {"keys": [{"kty": "oct", "k": "AAAA"}]}},
            {},
            "gateway.auth.issuer: the issuer has no key that signs access tokens",
        ),
        (
            {OWN: {"issuer": "{url}", "jwks_uri": "{url}/keys"}, "/keys": {"keys": "good"}},
            {"signOn": {"clientId": "muxway"}},
            "gateway.auth.issuer: the issuer does not say where its authorization_endpoint is",
        ),
        ({OWN: {"issuer": "{url}"}}, {"jwks": "{url}/none"}, "gateway.auth.jwks: the issuer answered with status 404"),
        (
            {OWN: {"issuer": "{url}"}, "/i": 401},
            {"introspection": ASKED},
            "gateway.auth.introspection: the issuer does not take muxway's `clientId` and `clientSecret`",
        ),
        (
            {OWN: {"issuer": "{url}"}, "/i": {"keys": []}},
            {"introspection": ASKED},
            "gateway.auth.introspection: the answer about a made-up token is not that it is inactive",
        ),
        (
            {OWN: {"issuer": "{url}", **WHOLE}, "/keys": {"keys": "good"}, "/token": 401},
            {"signOn": {"clientId": "muxway", "clientSecret": "s"}},
            "gateway.auth.signOn: the issuer does not take muxway's `clientId` and `clientSecret`",
        ),
        # These are good.
        (
            {OWN: {"issuer": "{url}", **WHOLE}, "/keys": {"keys": "good"}, "/token": 400},
            {"signOn": {"clientId": "muxway", "clientSecret": "s"}},
            None,
        ),
        ({OWN: {"issuer": "{url}", **WHOLE}, "/keys": {"keys": "good"}}, {"signOn": {"clientId": "muxway"}}, None),
        ({OWN: {"issuer": "{url}"}, "/i": {"active": False}}, {"introspection": ASKED}, None),
    ],
)
async def test_a_wrong_issuer_is_found_before_anybody_is_turned_away(
    pages: dict[str, Any] | None, auth: dict[str, Any], wrong: str | None, place: Place
) -> None:
    """docs/identity-team.md#the-gateway: `muxway check --connect` asks it as the gateway would."""
    async with serving(place) as url:
        given = json.loads(json.dumps({"pages": pages or {}, "auth": auth, "wrong": wrong or ""}).replace("{url}", url))
        place.pages = given["pages"]
        if place.pages.get("/keys") == {"keys": "good"}:
            place.pages["/keys"] = {"keys": TestIssuer().jwks}
        for path, status in [(path, page) for path, page in place.pages.items() if isinstance(page, int)]:
            place.pages[path] = web.Response(status=status)
        settings = settings_of({"issuer": url, **given["auth"]})
        problems, doubts, _ = ([], [], []) if pages is None else await inspect_issuer(settings)
    if pages is None:
        # Nobody is there any more.
        problems, doubts, _ = await inspect_issuer(settings)
    assert doubts == []
    assert [str(one)[: len(given["wrong"])] for one in problems] == ([given["wrong"]] if wrong else [])


async def test_an_issuer_without_metadata_whose_keys_are_written_is_only_doubtful(place: Place) -> None:
    """docs/identity-team.md#the-gateway: tokens are judged; only clients that come without one are lost."""
    place.pages["/keys"] = {"keys": TestIssuer().jwks}
    async with serving(place) as url:
        problems, (doubt,), _ = await inspect_issuer(settings_of({"issuer": url, "jwks": f"{url}/keys"}))
    assert problems == []
    assert "clients cannot find out how to log in" in str(doubt)


def settings_of(auth: dict[str, Any]) -> AuthSettings:
    off = {"off": {"command": "none", "disabled": True}}
    settings = parse_config({"mcpServers": off, "gateway": {"auth": auth}}).gateway.auth
    assert settings is not None
    return settings
