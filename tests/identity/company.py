"""A company's OpenID provider in this process: who sits in front of a browser is what its cookie there says."""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlencode

from aiohttp import ClientSession, CookieJar, web

from .issuing import RSA, signed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CLIENT = "muxway"


@dataclass
class Company:
    """The provider, and what it does wrong if a test wants that."""

    url: str = ""
    iss: bool = True
    claims: dict[str, Any] = field(default_factory=dict)
    """Put over those of ID tokens."""
    answer: dict[str, str] = field(default_factory=dict)
    """Put over what browsers bring back."""
    codes: dict[str, tuple[dict[str, str], str]] = field(default_factory=dict)
    asked: list[dict[str, str]] = field(default_factory=list)
    """The forms that came to the token endpoint."""

    def token(self, user: str, audience: str, **changed: Any) -> str:
        """An access token of a user, for an MCP client."""
        now = int(time.time())
        usual = {"iss": self.url, "sub": user, "aud": audience, "client_id": "inspector", "exp": now + 300, "iat": now}
        return signed({"alg": "RS256", "kid": "k1", "typ": "at+jwt"}, {**usual, **changed}, RSA)

    async def metadata(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/auth",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/jwks",
                "authorization_response_iss_parameter_supported": self.iss,
            }
        )

    async def jwks(self, _: web.Request) -> web.Response:
        return web.json_response({"keys": [{**RSA.as_dict(private=False), "kid": "k1", "use": "sig"}]})

    async def auth(self, request: web.Request) -> web.Response:
        given = dict(request.query)
        code = secrets.token_urlsafe(16)
        self.codes[code] = given, request.cookies.get("user", "ann")
        said = {"code": code, "state": given["state"], **({"iss": self.url} if self.iss else {}), **self.answer}
        raise web.HTTPFound(f"{given['redirect_uri']}?{urlencode(said)}")

    async def give(self, request: web.Request) -> web.Response:
        form = {name: values[0] for name, values in parse_qs((await request.read()).decode()).items()}
        self.asked.append(form)
        given, user = self.codes.pop(form.get("code", ""), ({}, ""))
        proof = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest()).rstrip(b"=")
        if not user or proof.decode() != given["code_challenge"] or form["redirect_uri"] != given["redirect_uri"]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(time.time())
        usual = {"iss": self.url, "sub": user, "aud": given["client_id"], "exp": now + 300, "iat": now}
        claims = {**usual, "nonce": given["nonce"], "groups": ["dev"], **self.claims}
        claims = {name: value for name, value in claims.items() if value is not None}
        return web.json_response({"id_token": signed({"alg": "RS256", "kid": "k1"}, claims, RSA)})


@asynccontextmanager
async def company_of(company: Company) -> AsyncIterator[Company]:
    """Serve it."""
    app = web.Application()
    app.router.add_get("/.well-known/oauth-authorization-server", company.metadata)
    app.router.add_get("/.well-known/openid-configuration", company.metadata)
    app.router.add_get("/jwks", company.jwks)
    app.router.add_get("/auth", company.auth)
    app.router.add_post("/token", company.give)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    company.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    try:
        yield company
    finally:
        await runner.cleanup()


@dataclass
class Page:
    """What a browser shows."""

    status: int
    url: str
    text: str
    headers: dict[str, str]
    cookies: list[str] = field(default_factory=list)

    def field(self, name: str, after: str = "") -> str:
        """The value of a hidden field, the first one after some text."""
        return self.text[self.text.index(after) :].split(f"name={name} value='")[1].split("'")[0]


class Browser:
    """One browser: it keeps cookies, follows links, and sends forms."""

    def __init__(self, user: str = "ann") -> None:
        self._session = ClientSession(cookie_jar=CookieJar(unsafe=True), cookies={"user": user})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, url: str, *, follow: bool = True) -> Page:
        return await self._ask("GET", url, follow=follow)

    async def post(
        self, url: str, form: dict[str, str], *, follow: bool = True, headers: dict[str, str] | None = None
    ) -> Page:
        return await self._ask("POST", url, follow=follow, data=form, headers=headers or {})

    async def _ask(self, method: str, url: str, *, follow: bool, **more: Any) -> Page:
        async with self._session.request(method, url, allow_redirects=follow, **more) as answer:
            cookies = answer.headers.getall("Set-Cookie", [])
            return Page(answer.status, str(answer.url), await answer.text(), dict(answer.headers), cookies)

    def forget_all(self) -> None:
        """As in a window of another browser."""
        self._session.cookie_jar.clear()
