"""An authorization server and an MCP server that wants its tokens, in this process, with every ill will one asks for.

It keeps the rules that clients are held to: PKCE, one use of each code and of each refresh token (a second use ends
the login), `resource` in both requests, tokens good for one resource.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

from aiohttp import ClientSession, web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOOLS = [
    {"name": "who", "description": "Says whose token it was.", "inputSchema": {"type": "object"}},
    {"name": "write", "description": "Needs the scope `write`.", "inputSchema": {"type": "object"}},
]


@dataclass
class Grant:
    """What one login gave."""

    user: str
    scope: str
    resource: str | None
    refresh: str | None = None
    ended: bool = False


@dataclass
class Provider:
    """Both servers, and what was asked of them."""

    lifetime: int = 3600
    rotates: bool = True
    refresh_tokens: bool = True
    registration: bool = True
    device: bool = True
    iss: bool = True
    user: str = "ann"
    scopes: tuple[str, ...] = ("read", "write", "offline_access")
    metadata: dict[str, Any] = field(default_factory=dict)
    """Put over the metadata of the authorization server."""
    resource_metadata: dict[str, Any] = field(default_factory=dict)
    failing: list[int] = field(default_factory=list)
    """Statuses of the next answers of the token endpoint."""
    forgets_clients: bool = False
    """Whether those who registered themselves are not known any more."""
    slow: float = 0.0
    own_tools: bool = False
    """Whether the MCP server has a tool of its own for each user."""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and form of each request to the authorization server."""
    authorizations: list[str | None] = field(default_factory=list)
    """The header Authorization of each request to the MCP server."""
    codes: dict[str, tuple[dict[str, str], str]] = field(default_factory=dict)
    access: dict[str, Grant] = field(default_factory=dict)
    refresh: dict[str, Grant] = field(default_factory=dict)
    spent: dict[str, Grant] = field(default_factory=dict)
    devices: dict[str, tuple[dict[str, str], bool]] = field(default_factory=dict)
    greeted: int = 0
    challenge: str | None = ""
    """What it says to whom it does not know; empty: what it should."""
    has_metadata: bool = True
    refusal: dict[str, str] = field(default_factory=dict)
    """What browsers bring back instead of a code."""
    url: str = ""

    def count(self, path: str) -> int:
        return sum(asked == path for asked, _ in self.asked)

    @property
    def mcp(self) -> str:
        return f"{self.url}/mcp"

    def revoke_all(self) -> None:
        """Every login is over, as when an administrator ends it."""
        for grant in [*self.access.values(), *self.refresh.values()]:
            grant.ended = True
        self.access.clear()
        self.refresh.clear()

    def expire_access(self) -> None:
        """Access tokens are not taken any more; refresh tokens are."""
        self.access.clear()

    # --- the authorization server -------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "revocation_endpoint": f"{self.url}/revoke",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "private_key_jwt"],
            "scopes_supported": list(self.scopes),
            "response_types_supported": ["code"],
            "authorization_response_iss_parameter_supported": self.iss,
        }
        if self.registration:
            document["registration_endpoint"] = f"{self.url}/register"
        if self.device:
            document["device_authorization_endpoint"] = f"{self.url}/device"
        return {**document, **self.metadata}

    async def well_known(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, {}))
        return web.json_response(self.document()) if self.has_metadata else web.Response(status=404)

    async def protected_resource(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, {}))
        if not self.has_metadata:
            return web.Response(status=404)
        return web.json_response({"resource": self.mcp, "authorization_servers": [self.url], **self.resource_metadata})

    async def register(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        self.asked.append(("/register", wanted))
        return web.json_response({**wanted, "client_id": f"made-{len(self.asked)}"}, status=201)

    async def authorize(self, request: web.Request) -> web.Response:
        given = dict(request.query)
        self.asked.append(("/authorize", given))
        code = secrets.token_urlsafe(16)
        self.codes[code] = (given, request.cookies.get("user", self.user))
        answer = {"code": code, "state": given["state"], **({"iss": self.url} if self.iss else {})}
        if self.refusal:
            answer = {**answer, **self.refusal}
            del answer["code"]
        raise web.HTTPFound(f"{given['redirect_uri']}?{urlencode(answer)}")

    async def token(self, request: web.Request) -> web.Response:
        form = {name: values[0] for name, values in parse_qs((await request.read()).decode()).items()}
        self.asked.append(("/token", form))
        if self.slow:
            await asyncio.sleep(self.slow)
        if self.failing:
            status = self.failing.pop(0)
            return web.json_response({"error": "early"} if status == 400 else {}, status=status)
        if self.forgets_clients:
            return web.json_response({"error": "invalid_client"}, status=401)
        match form.get("grant_type"):
            case "authorization_code":
                return self._for_code(form)
            case "refresh_token":
                return self._for_refresh(form)
            case "client_credentials":
                return self._give(Grant("machine", form.get("scope", ""), form.get("resource")), renewable=False)
            case "urn:ietf:params:oauth:grant-type:token-exchange":
                return self._give(
                    Grant(form["subject_token"], form.get("scope", ""), form["resource"]), renewable=False
                )
            case "urn:ietf:params:oauth:grant-type:device_code":
                return self._for_device(form)
        return web.json_response({"error": "unsupported_grant_type"}, status=400)

    def _for_code(self, form: dict[str, str]) -> web.Response:
        given, user = self.codes.pop(form["code"], ({}, ""))
        digest = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        same = all(given.get(name) == form.get(name) for name in ("redirect_uri", "resource"))
        if not given or digest != given["code_challenge"] or not same:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return self._give(Grant(user, given.get("scope", ""), given.get("resource")))

    def _for_refresh(self, form: dict[str, str]) -> web.Response:
        token = form["refresh_token"]
        if token in self.spent:
            # OAuth 2.1 §4.3.1: somebody has a copy, so nobody may go on.
            grant = self.spent[token]
            grant.ended = True
            self.refresh = {name: one for name, one in self.refresh.items() if one is not grant}
            self.access = {name: one for name, one in self.access.items() if one is not grant}
        grant = self.refresh.get(token)
        if grant is None or grant.ended:
            return web.json_response({"error": "invalid_grant"}, status=400)
        if self.rotates:
            del self.refresh[token]
            self.spent[token] = grant
        return self._give(grant, renewable=self.rotates)

    def _for_device(self, form: dict[str, str]) -> web.Response:
        given, agreed = self.devices[form["device_code"]]
        if not agreed:
            return web.json_response({"error": "authorization_pending"}, status=400)
        return self._give(Grant(self.user, given.get("scope", ""), given.get("resource")))

    def _give(self, grant: Grant, *, renewable: bool = True) -> web.Response:
        token = f"access-{secrets.token_urlsafe(16)}"
        self.access[token] = grant
        body: dict[str, Any] = {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime}
        if grant.scope:
            body["scope"] = grant.scope
        if renewable and self.refresh_tokens:
            refresh = f"refresh-{secrets.token_urlsafe(16)}"
            self.refresh[refresh] = grant
            body["refresh_token"] = refresh
        return web.json_response(body)

    async def device_code(self, request: web.Request) -> web.Response:
        form = {name: values[0] for name, values in parse_qs((await request.read()).decode()).items()}
        self.asked.append(("/device", form))
        code = secrets.token_urlsafe(8)
        self.devices[code] = (form, False)
        return web.json_response(
            {
                "device_code": code,
                "user_code": "WDJB-MJHT",
                "verification_uri": f"{self.url}/activate",
                "interval": 1,
                "expires_in": 60,
            }
        )

    def activate(self) -> None:
        """The user types the code in."""
        self.devices = {code: (form, True) for code, (form, _) in self.devices.items()}

    async def revoke(self, request: web.Request) -> web.Response:
        form = {name: values[0] for name, values in parse_qs((await request.read()).decode()).items()}
        self.asked.append(("/revoke", form))
        for known in (self.access, self.refresh):
            known.pop(form["token"], None)
        return web.Response()

    # --- the MCP server -----------------------------------------------------------------------

    async def serve(self, request: web.Request) -> web.Response:
        header = request.headers.get("Authorization")
        self.authorizations.append(header)
        grant = self.access.get((header or "").removeprefix("Bearer "))
        place = f'resource_metadata="{self.url}/.well-known/oauth-protected-resource/mcp"'
        if grant is None and self.challenge != "":
            return web.Response(status=401, headers={"WWW-Authenticate": self.challenge} if self.challenge else {})
        if grant is None:
            error = "" if header is None else ', error="invalid_token"'
            return web.Response(status=401, headers={"WWW-Authenticate": f'Bearer {place}, scope="read"{error}'})
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        name = message.get("params", {}).get("name")
        if message["method"] == "tools/call" and name == "write" and "write" not in grant.scope.split():
            challenge = f'Bearer error="insufficient_scope", scope="write", {place}'
            return web.Response(status=403, headers={"WWW-Authenticate": challenge})
        return self._answer(message, grant)

    def _answer(self, message: dict[str, Any], grant: Grant) -> web.Response:
        match message["method"]:
            case "initialize":
                self.greeted += 1
                result: Any = {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "guarded", "version": "1"},
                }
            case "tools/list":
                own = {"name": f"of-{grant.user}", "inputSchema": {"type": "object"}}
                result = {"tools": [*TOOLS, own] if self.own_tools else TOOLS}
            case "tools/call":
                result = {"content": [{"type": "text", "text": grant.user}]}
            case method if "id" not in message:
                del method
                return web.Response(status=202)
            case _:
                error = {"code": -32601, "message": "not found"}
                return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})


@asynccontextmanager
async def running(provider: Provider) -> AsyncIterator[Provider]:
    """The provider, on a free port of this machine."""
    app = web.Application()
    app.router.add_get("/.well-known/oauth-protected-resource/mcp", provider.protected_resource)
    app.router.add_get("/.well-known/oauth-authorization-server", provider.well_known)
    app.router.add_post("/register", provider.register)
    app.router.add_get("/authorize", provider.authorize)
    app.router.add_post("/token", provider.token)
    app.router.add_post("/device", provider.device_code)
    app.router.add_post("/revoke", provider.revoke)
    app.router.add_route("*", "/mcp", provider.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield provider
    finally:
        await runner.cleanup()


async def agree(link: str) -> str:
    """Somebody opens the link and agrees. Returns the address that the browser ends at, without going there."""
    async with ClientSession() as session, session.get(link, allow_redirects=False) as answer:
        return answer.headers["Location"]


async def visit(link: str) -> int:
    """The status of a page."""
    async with ClientSession() as session, session.get(link, allow_redirects=False) as answer:
        return answer.status


def query_of(link: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
