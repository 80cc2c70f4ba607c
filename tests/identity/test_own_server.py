"""The authorization server in front of the company's: who gets tokens, for what, and every way in which nobody does."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from joserfc import jws
from joserfc.jwk import ECKey

from muxway.clients.authenticator import Rejected
from muxway.config import parse_config
from muxway.errors import ConfigError
from muxway.identity import client_registry
from muxway.identity.client_registry import is_redirect_uri
from muxway.identity.own_server import open_server
from muxway.identity.own_tokens import SigningKeys
from muxway.identity.resource_metadata import ProtectedResources
from muxway.identity.sealed_cookies import SealedCookies
from muxway.identity.sign_on import CALLBACK, SignOn
from muxway.identity.verify import AccessTokens, ResourceServer
from muxway.identity.verify_jwt import Checked
from muxway.identity.web_pages import send_to
from muxway.net.guarded_fetch import FetchAnswer
from muxway.net.sealed_files import SealedFolder, data_folder
from muxway.testing import ScriptedServer

from ..serve.harness import Web, a_web, initialize
from .company import CLIENT, Browser, Company, Page, company_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from muxway.identity.authorization_endpoints import AuthorizationEndpoints

BACK = "http://127.0.0.1:3999/callback"
VIEWS: dict[str, Any] = {"reading": {"scopes": ["notes:read"]}}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}


@dataclass
class Program:
    """A client of the authorization server, as a program on somebody's machine is one."""

    web: Web
    id: str = ""
    redirect_uri: str = BACK
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))
    state: str = field(default_factory=lambda: secrets.token_urlsafe(16))

    async def register(self, **changed: Any) -> Any:
        told = {"client_name": "Program <b>", "redirect_uris": [self.redirect_uri], **changed}
        answer = await self.web.ask("POST", "/register", JSON, json.dumps(told).encode())
        if answer.status == 201:
            self.id = answer.json["client_id"]
        return answer

    def link(self, **changed: str | None) -> str:
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()
        usual = {
            "response_type": "code",
            "client_id": self.id,
            "redirect_uri": self.redirect_uri,
            "state": self.state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": f"http://{self.web.host}/mcp",
            "scope": "mcp:tools",
        }
        fields = {name: value for name, value in {**usual, **changed}.items() if value is not None}
        return f"http://{self.web.host}/authorize?{urlencode(fields)}"

    async def ask_user(self, browser: Browser, **changed: str | None) -> Page:
        """Send the user to the page, who signs on, if that is needed; up to where they are asked, or sent back."""
        page = await browser.get(self.link(**changed), follow=False)
        while page.status in (302, 303) and not page.headers["Location"].startswith(self.redirect_uri):
            page = await browser.get(page.headers["Location"], follow=False)
        return page

    async def agree(self, browser: Browser, answer: str = "allow", **changed: str | None) -> dict[str, str]:
        """The same, and what comes back when the user has answered."""
        page = await self.ask_user(browser, **changed)
        if page.status == 200:
            request = page.text.split('name=request value="')[1].split('"')[0].replace("&amp;", "&")
            form = {"csrf": page.field("csrf"), "request": request, "answer": answer}
            page = await browser.post(f"http://{self.web.host}/authorize", form, follow=False)
        assert page.status == 303, page.text
        where = urlsplit(page.headers["Location"])
        assert page.headers["Location"].startswith(self.redirect_uri)
        return {name: values[0] for name, values in parse_qs(where.query).items()}

    async def trade(self, code: str, **changed: str | None) -> Any:
        usual = {
            "grant_type": "authorization_code",
            "code": code,
            "client_id": self.id,
            "redirect_uri": self.redirect_uri,
            "code_verifier": self.verifier,
        }
        return await self.token({**usual, **changed})

    async def refresh(self, token: str, **changed: str | None) -> Any:
        return await self.token(
            {"grant_type": "refresh_token", "refresh_token": token, "client_id": self.id, **changed}
        )

    async def token(self, form: dict[str, str | None], path: str = "/token") -> Any:
        fields = {name: value for name, value in form.items() if value is not None}
        return await self.web.ask("POST", path, FORM, urlencode(fields).encode())

    async def log_in(self, browser: Browser, **changed: str | None) -> dict[str, Any]:
        """All of it: what the program has in the end."""
        if not self.id:
            await self.register()
        answer = await self.trade((await self.agree(browser, **changed))["code"])
        assert answer.status == 200, answer.body
        return answer.json

    async def status(self, access: str, path: str = "/mcp") -> int:
        return (await self.web.post(initialize(), {"Authorization": f"Bearer {access}"}, path=path)).status


@asynccontextmanager
async def served(company: Company, **server: Any) -> AsyncIterator[tuple[Web, AuthorizationEndpoints]]:
    """A gateway on loopback with an authorization server of its own."""
    top = {"views": VIEWS}
    async with a_web({"up": ScriptedServer()}, top=top) as web:
        config = parse_config(
            {
                "mcpServers": {"off": {"command": "none", "disabled": True}},
                **top,
                "gateway": {
                    "auth": {
                        "issuer": company.url,
                        "scopes": ["mcp:tools"],
                        "signOn": {"clientId": CLIENT},
                        "server": server,
                    }
                },
            }
        )
        settings = config.gateway.auth
        assert settings is not None
        assert settings.sign_on is not None
        assert settings.server is not None
        own = [f"http://{name}:{web.port}" for name in ("127.0.0.1", "localhost")]
        sign_on = SignOn(settings, settings.sign_on, public_url=None, cookies=SealedCookies())
        resources = ProtectedResources(config, settings, own)
        made = open_server(own[0], settings, settings.server, sign_on, resources)
        resources.server = made.issuer
        tokens = AccessTokens(settings)
        web.door.pages.pages, web.door.pages.endpoints = {**made.pages, CALLBACK: sign_on.callback}, made.endpoints
        web.door.admit((), {}, ResourceServer(tokens, resources, None, made))
        yield web, made
        tokens.close()


@pytest.fixture
async def company() -> AsyncIterator[Company]:
    async with company_of(Company()) as company:
        yield company


def claims_of(token: str) -> dict[str, Any]:
    return json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))


# --- the way in -------------------------------------------------------------------------------


async def test_a_program_registers_itself_and_its_user_lets_it_in(company: Company) -> None:
    """docs/identity-team.md#clients-that-must-register-themselves: from the 401 to the call."""
    async with served(company) as (web, made), Browser("ann") as browser:
        program = Program(web)
        told = (await web.ask("GET", "/.well-known/oauth-protected-resource/mcp")).json
        assert told["authorization_servers"] == [made.issuer]
        page = await program.register()
        assert page.json["token_endpoint_auth_method"] == "none"
        page = await program.ask_user(browser)
        assert page.status == 200
        for shown in ("Program &lt;b&gt;", "mcp:tools", BACK, f"http://{web.host}/mcp", "ann"):
            assert shown in page.text
        said = await program.agree(browser)
        assert (said["state"], said["iss"]) == (program.state, made.issuer)
        answer = await program.trade(said["code"])
        assert answer.headers["cache-control"] == "no-store"
        given = answer.json
        assert (given["token_type"], given["expires_in"], given["scope"]) == ("Bearer", 600, "mcp:tools")
        claims = claims_of(given["access_token"])
        assert (claims["iss"], claims["sub"], claims["aud"]) == (made.issuer, "ann", f"http://{web.host}/mcp")
        assert await program.status(given["access_token"]) == 200
        (session,) = web.door._handshake.sessions
        assert session.identity is not None
        # As the company names them, so that logins at servers are the user's, whichever way they came.
        assert (session.identity.issuer, session.identity.subject) == (company.url, "ann")
        assert (session.identity.client, session.identity.groups) == (program.id, ("dev",))
        # Machines with tokens of the company go on being let in.
        assert await program.status(company.token("bot", f"http://{web.host}/mcp", scope="mcp:tools")) == 200


@pytest.mark.parametrize("cause", ["too many for a cookie", "left out by the company"])
async def test_groups_that_a_sign_on_has_no_room_for_are_known_to_be_missing(cause: str, company: Company) -> None:
    """docs/access.md: no rule that denies a group is lost, however many somebody is in."""
    many = [f"group-{number}" for number in range(500)]
    company.claims = {"groups": many} if "cookie" in cause else {"groups": None, "hasgroups": True}
    async with served(company) as (web, _), Browser("ann") as browser:
        program = Program(web)
        given = await program.log_in(browser)
        renewed = (await program.refresh(given["refresh_token"])).json
        for token in (given["access_token"], renewed["access_token"]):
            assert await program.status(token) == 200
        for session in web.door._handshake.sessions:
            assert session.identity is not None
            assert session.identity.more_groups
            assert len(session.identity.groups) < len(many)


async def test_its_metadata_is_where_each_revision_looks(company: Company) -> None:
    """RFC 8414 §3, RFC 9207, MCP 2025-11-25, basic/authorization; the keys that sign are published, no private half."""
    async with served(company) as (web, made), Browser() as browser:
        for place in ("oauth-authorization-server", "openid-configuration"):
            answer = await web.ask("GET", f"/.well-known/{place}")
            told = answer.json
            assert answer.headers["access-control-allow-origin"] == "*"
            assert told["issuer"] == made.issuer
            assert told["code_challenge_methods_supported"] == ["S256"]
            assert told["authorization_response_iss_parameter_supported"] is True
            assert told["client_id_metadata_document_supported"] is True
            assert told["scopes_supported"] == ["mcp:tools", "notes:read"]
        keys = (await web.ask("GET", "/jwks")).json["keys"]
        assert [set(key) for key in keys] == [{"kty", "crv", "x", "y", "kid", "use", "alg"}]
        access = (await Program(web).log_in(browser))["access_token"]
        assert (
            jws.deserialize_compact(access, ECKey.import_key(keys[0]), algorithms=["ES256"]).headers()["typ"]
            == "at+jwt"
        )
        preflight = await web.ask("OPTIONS", "/token", {"Origin": "https://x", "Access-Control-Request-Method": "POST"})
        assert "POST" in preflight.headers["access-control-allow-methods"]


async def test_behind_a_path_its_metadata_is_where_issuers_with_a_path_have_it(company: Company) -> None:
    """RFC 8414 §3.1 and OpenID Connect Discovery: three places."""
    async with served(company) as (_, made):
        made.issuer = "https://h.example.com/tools"
        places = (
            "/.well-known/oauth-authorization-server/tools",
            "/.well-known/openid-configuration/tools",
            "/tools/.well-known/openid-configuration",
        )
        for place in places:
            told = json.loads(made.document(place) or b"{}")
            assert told["token_endpoint"] == "https://h.example.com/tools/token"
        assert made.document("/.well-known/oauth-authorization-server/other") is None


async def test_who_has_agreed_is_not_asked_again_unless_for_more(company: Company) -> None:
    """docs/identity-team.md#clients-that-must-register-themselves: per client and user, remembered across restarts."""
    async with served(company) as (web, _), Browser("ann") as hers, Browser("bob") as his:
        program = Program(web)
        await program.log_in(hers)
        assert (await program.ask_user(hers)).status == 303
        assert (await program.ask_user(his)).status == 200
        assert (await program.ask_user(hers, prompt="consent")).status == 200
        more = {"scope": "mcp:tools notes:read", "resource": f"http://{web.host}/mcp/reading"}
        assert (await program.ask_user(hers, **more)).status == 200
        await program.agree(hers, **more)
        assert (await program.ask_user(hers, **more)).status == 303
        # What was allowed at one endpoint was not allowed at the other.
        assert (await program.ask_user(hers, scope="mcp:tools notes:read")).status == 200
        other = Program(web)
        await other.register()
        assert (await other.ask_user(hers)).status == 200
        assert (await program.agree(his, answer="deny"))["error"] == "access_denied"
        assert (await program.ask_user(his)).status == 200


async def test_what_must_survive_a_restart_does_and_is_sealed(company: Company) -> None:
    """docs/security.md#the-authorization-server: keys, clients, consents, refresh tokens; nothing in clear."""
    async with served(company) as (web, made), Browser() as browser:
        program = Program(web)
        given = await program.log_in(browser)
        folder = next((data_folder() / "muxway" / "authorization").iterdir())
        everything = b"".join(file.read_bytes() for file in folder.iterdir() if file.name != "key")
        assert len(everything) > 500
        for secret in (given["refresh_token"], given["access_token"], program.id, '"ann"', '"d":"'):
            assert secret.encode() not in everything
        settings = replace(made.tokens._claims, issuer=company.url)
        again = open_server(made.issuer, settings, made._settings, made._sign_on, made.resources)
        assert isinstance(again.tokens.check(given["access_token"].encode()), Checked)
        assert (await again._grants.rotate(given["refresh_token"], program.id)) is not None
        assert again._clients.find(program.id) is not None


async def test_who_signed_on_at_another_company_is_nobody_here(company: Company) -> None:
    """OpenID Connect Core §5.7: a subject is one only with its issuer, also after the configuration names another."""
    async with served(company) as (web, made), Browser() as browser, company_of(Company()) as next_one:
        program = Program(web)
        given = await program.log_in(browser)
        async with served(next_one) as (_, other):
            settings, token = replace(other.tokens._claims, issuer=next_one.url), given["access_token"].encode()
            again = open_server(made.issuer, settings, made._settings, other._sign_on, made.resources)
        assert isinstance(again.tokens.check(token), Rejected)
        web.door.pages.endpoints = again.endpoints
        assert (await program.refresh(given["refresh_token"])).json["error"] == "invalid_grant"
        # Nothing has ended: it is good where it was given.
        web.door.pages.endpoints = made.endpoints
        assert (await program.refresh(given["refresh_token"])).status == 200


# --- attacks ----------------------------------------------------------------------------------


WRONG: list[dict[str, str | None]] = [
    {"redirect_uri": "https://evil.example.com/callback"},
    {"redirect_uri": "http://127.0.0.1:3999/callback/../evil"},
    {"redirect_uri": "http://127.0.0.1:3999/callback?x=1"},
    {"redirect_uri": "http://127.0.0.1.evil.example.com:3999/callback"},
    {"redirect_uri": "http://user@127.0.0.1:3999/callback"},
    {"redirect_uri": "http://localhost:3999/callback"},
    {"redirect_uri": "https://127.0.0.1:3999/callback"},
    {"redirect_uri": None},
    {"redirect_uri": "http://127.0.0.1:3999/callback#x"},
    {"client_id": "mxc_nobody"},
    {"client_id": None},
    {"client_id": "../keys"},
    {"response_type": "token"},
    {"response_mode": "fragment"},
    {"code_challenge": None},
    {"code_challenge": "short"},
    {"code_challenge_method": "plain"},
    {"code_challenge_method": None},
    {"resource": "https://other.example.com/mcp"},
    {"resource": "http://127.0.0.1:1/mcp"},
    {"request_uri": "https://evil.example.com/request"},
    {"prompt": "none"},
    {"state": "x" * 3000},
]


async def test_what_is_not_right_leads_nowhere(company: Company) -> None:
    """RFC 9700 §4.1, §4.8.2, §4.11: no open redirect, no downgrade of PKCE, no token for others; a page instead."""
    async with served(company) as (web, _), Browser() as browser:
        program = Program(web)
        await program.register()
        for changed in WRONG:
            page = await program.ask_user(browser, **changed)
            assert page.status == 400, changed
            assert "Location" not in page.headers


async def test_a_parameter_that_comes_twice_is_refused(company: Company) -> None:
    """RFC 6749 §3.1."""
    async with served(company) as (web, _), Browser() as browser:
        program = Program(web)
        await program.register()
        await program.ask_user(browser)
        twice = f"{program.link()}&redirect_uri=https%3A%2F%2Fevil.example.com"
        assert (await browser.get(twice, follow=False)).status == 400
        assert (
            await web.ask("POST", "/token", FORM, b"grant_type=refresh_token&client_id=a&client_id=b")
        ).status == 400


async def test_a_port_of_this_machine_is_free_and_nothing_else(company: Company) -> None:
    """RFC 8252 §7.3."""
    async with served(company) as (web, _), Browser() as browser:
        program = Program(web)
        await program.register()
        program.redirect_uri = "http://127.0.0.1:4123/callback"
        answer = await program.trade((await program.agree(browser))["code"])
        assert answer.status == 200
        # What it was asked for with is what counts when the code is traded.
        code = (await program.agree(browser))["code"]
        assert (await program.trade(code, redirect_uri=BACK)).json["error"] == "invalid_grant"


async def test_a_code_is_good_once_and_its_second_use_ends_what_came_of_the_first(company: Company) -> None:
    """RFC 6749 §4.1.2, RFC 9700 §4.5: replay."""
    async with served(company) as (web, _), Browser() as browser:
        program = Program(web)
        await program.register()
        code = (await program.agree(browser))["code"]
        given = (await program.trade(code)).json
        assert await program.status(given["access_token"]) == 200
        assert (await program.trade(code)).json["error"] == "invalid_grant"
        assert await program.status(given["access_token"]) == 401
        assert (await program.refresh(given["refresh_token"])).json["error"] == "invalid_grant"


async def test_a_code_that_comes_twice_at_once_is_good_for_nobody(company: Company) -> None:
    """RFC 6749 §4.1.2: also while what comes of its first use is still being written down."""
    async with served(company) as (web, made), Browser() as browser:
        program = Program(web)
        await program.register()
        code = (await program.agree(browser))["code"]
        opened, loop, came = made._open, asyncio.get_running_loop(), asyncio.Event()
        goes_on = threading.Event()

        def slowly(code: Any) -> Any:
            loop.call_soon_threadsafe(came.set)
            goes_on.wait(10)
            return opened(code)

        made._open = slowly
        first = asyncio.create_task(program.trade(code))
        await came.wait()
        assert (await program.trade(code)).json["error"] == "invalid_grant"
        goes_on.set()
        assert (await first).json["error"] == "invalid_grant"
        assert [name for name in made._grants._files.names() if name.startswith("grant-")] == []


STOLEN: list[dict[str, str | None]] = [
    {"code_verifier": "x" * 43},
    {"code_verifier": None},
    {"code_verifier": ""},
    {"redirect_uri": None},
    {"redirect_uri": "http://127.0.0.1:3998/callback"},
    {"client_id": None},
    {"resource": "https://other.example.com/mcp"},
]


async def test_a_code_in_other_hands_is_worth_nothing(company: Company) -> None:
    """RFC 7636 §4.6, RFC 6749 §4.1.3; and it is used up."""
    async with served(company) as (web, _), Browser() as browser:
        program = Program(web)
        await program.register()
        for changed in STOLEN:
            code = (await program.agree(browser))["code"]
            assert (await program.trade(code, **changed)).status == 400, changed
            assert (await program.trade(code)).status == 400, changed


async def test_a_code_of_another_client_is_refused(company: Company) -> None:
    """RFC 6749 §4.1.3."""
    async with served(company) as (web, _), Browser() as browser:
        program, thief = Program(web), Program(web)
        await program.register()
        await thief.register()
        code = (await program.agree(browser))["code"]
        thief.verifier = program.verifier
        assert (await thief.trade(code)).json["error"] == "invalid_grant"


async def test_a_refresh_token_is_good_once_and_its_second_use_ends_the_login(company: Company) -> None:
    """RFC 9700 §4.14.2: rotation, with detection of reuse."""
    async with served(company) as (web, _), Browser() as browser:
        program, thief = Program(web), Program(web)
        first = await program.log_in(browser)
        second = (await program.refresh(first["refresh_token"], resource=f"http://{web.host}/mcp/")).json
        assert await program.status(second["access_token"]) == 200
        await thief.register()
        assert (await thief.refresh(second["refresh_token"])).json["error"] == "invalid_grant"
        assert (await program.refresh(second["refresh_token"], scope="notes:read")).json["error"] == "invalid_scope"
        third = (await program.refresh(second["refresh_token"])).json
        assert (await program.refresh(first["refresh_token"])).json["error"] == "invalid_grant"
        assert (await program.refresh(third["refresh_token"])).json["error"] == "invalid_grant"
        assert await program.status(third["access_token"]) == 401


async def test_one_refresh_token_used_by_many_at_once_is_used_once(company: Company) -> None:
    """Ours: whoever is second is told so."""
    async with served(company) as (web, _), Browser() as browser:
        program = Program(web)
        given = await program.log_in(browser)
        answers = await asyncio.gather(*(program.refresh(given["refresh_token"]) for _ in range(5)))
        assert sorted(answer.status for answer in answers) == [200, 400, 400, 400, 400]


async def test_a_token_is_for_the_view_it_was_asked_for(company: Company) -> None:
    """RFC 8707; MCP, basic/authorization: sibling audiences."""
    async with served(company) as (web, _), Browser() as browser:
        program = Program(web)
        view = f"http://{web.host}/mcp/reading"
        given = await program.log_in(browser, resource=view, scope="mcp:tools notes:read unknown")
        assert given["scope"] == "mcp:tools notes:read"
        assert await program.status(given["access_token"], "/mcp/reading") == 200
        assert await program.status(given["access_token"]) == 401
        plain = await program.log_in(browser, resource=None, scope=None)
        assert await program.status(plain["access_token"]) == 200
        assert await program.status(plain["access_token"], "/mcp/reading") == 401


async def test_a_login_that_is_given_back_has_ended(company: Company) -> None:
    """RFC 7009: by either token, by its own client, at once."""
    async with served(company) as (web, _), Browser() as browser:
        program, other = Program(web), Program(web)
        await other.register()
        for kind in ("refresh_token", "access_token"):
            given = await program.log_in(browser)
            form = {"token": given[kind], "client_id": other.id}
            assert (await program.token(form, "/revoke")).status == 200
            assert await program.status(given["access_token"]) == 200
            assert (await program.token({**form, "client_id": program.id}, "/revoke")).status == 200
            assert await program.status(given["access_token"]) == 401
            assert (await program.refresh(given["refresh_token"])).status == 400
        assert (await program.token({"token": "nothing.of.ours", "client_id": program.id}, "/revoke")).status == 200


async def test_consent_cannot_be_framed_forged_or_given_by_somebody_else(company: Company) -> None:
    """RFC 9700 §4.16 (clickjacking), §4.7 (CSRF)."""
    async with served(company) as (web, _), Browser("ann") as hers, Browser("bob") as his:
        program = Program(web)
        await program.register()
        page = await program.ask_user(hers)
        assert page.headers["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        assert "<script" not in page.text
        query = urlsplit(program.link()).query
        url = f"http://{web.host}/authorize"
        theirs = (await program.ask_user(his)).field("csrf")
        for form in ({}, {"csrf": ""}, {"csrf": theirs}):
            answer = await hers.post(url, {"request": query, "answer": "allow", **form}, follow=False)
            assert answer.status == 403
        mine = {"csrf": page.field("csrf"), "request": query, "answer": "allow"}
        evil = {"Origin": "https://evil.example.com"}
        assert (await hers.post(url, mine, follow=False, headers=evil)).status == 403
        # Nor does what was looked at count, but what is sent with the answer.
        changed = {**mine, "request": query.replace("127.0.0.1%3A3999", "evil.example.com")}
        assert (await hers.post(url, changed, follow=False)).status == 400
        assert (await hers.post(url, mine, follow=False)).status == 303


async def test_a_form_of_a_stranger_writes_nothing_into_our_answers(company: Company) -> None:
    """RFC 9110 §5.5: what somebody is to come back to after signing on may come from any page, and is a header then."""
    async with served(company) as (web, _):
        for wrong in ("x\r\nSet-Cookie: muxway-session=evil", "x\n", "\0", "\U0001f600" * 2000, "\\" * 2400):
            body = urlencode({"request": wrong}).encode()
            answer = await web.ask("POST", "/authorize", FORM, body)
            assert answer.status == 400
            assert "set-cookie" not in answer.headers
        assert (await web.ask("GET", f"/authorize?{'x' * 2400}")).status == 303
    assert send_to("/a?b=%20&c='\r\nX: y\u2028é").headers[0] == ("location", "/a?b=%20&c='%0D%0AX:%20y%E2%80%A8%C3%A9")


async def test_an_answer_says_who_gives_it(company: Company) -> None:
    """RFC 9207, also for a refusal: a mix-up of two authorization servers is noticed by the client."""
    async with served(company) as (web, made), Browser() as browser:
        program = Program(web)
        await program.register()
        for answer in ("deny", "allow"):
            assert (await program.agree(browser, answer=answer))["iss"] == made.issuer


async def test_tokens_of_another_gateway_or_another_key_are_none(company: Company, tmp_path: Any) -> None:
    """Ours: the same company in front of two gateways."""
    async with served(company) as (one, _), served(company) as (other, made), Browser() as browser:
        given = await Program(one).log_in(browser)
        assert await Program(other).status(given["access_token"]) == 401
        keys = SigningKeys(SealedFolder(tmp_path / "others"))
        kid, key = keys.present()
        mine, _ = made._keys.present()
        forged = jws.serialize_compact(
            {"alg": "ES256", "typ": "at+jwt", "kid": mine},
            json.dumps({**claims_of(given["access_token"]), "iss": made.issuer, "aud": f"http://{other.host}/mcp"}),
            key,
            algorithms=["ES256"],
        )
        assert kid != mine
        assert await Program(other).status(forged) == 401


# --- clients ----------------------------------------------------------------------------------


UNUSABLE: list[dict[str, Any]] = [
    {"redirect_uris": []},
    {"redirect_uris": "https://app.example.com/back"},
    {"redirect_uris": ["http://app.example.com/back"]},
    {"redirect_uris": ["javascript:alert(1)"]},
    {"redirect_uris": ["data:text/html,x"]},
    {"redirect_uris": ["https://app.example.com/#x"]},
    {"redirect_uris": ["https://user@app.example.com/"]},
    {"redirect_uris": ["https://app.example.com/\r\nSet-Cookie: x"]},
    {"redirect_uris": ["https://app.example.com/" + "x" * 600]},
    {"redirect_uris": [f"https://app.example.com/{number}" for number in range(11)]},
    {"redirect_uris": [1]},
    {"grant_types": ["client_credentials"]},
    {"response_types": ["token"]},
    {"client_name": "x" * 20_000},
]


async def test_a_registration_that_cannot_be_used_is_refused(company: Company) -> None:
    """RFC 7591 §3.2.2, RFC 9700 §4.1."""
    async with served(company) as (web, _):
        for changed in UNUSABLE:
            answer = await Program(web).register(**changed)
            assert answer.status == 400, changed
            assert answer.json["error"] in ("invalid_redirect_uri", "invalid_client_metadata")


async def test_floods_of_registrations_cost_little_and_end(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/security.md#the-authorization-server: so many a minute, so many at once, none of them on the disk."""
    async with served(company) as (web, made), Browser() as browser:
        program = Program(web)
        await program.log_in(browser)
        statuses = [(await Program(web).register()).status for _ in range(25)]
        assert statuses.count(201) == client_registry._EACH_MINUTE - 1
        assert set(statuses) == {201, 429}
        folder = next((data_folder() / "muxway" / "authorization").iterdir())
        assert len([*folder.glob("client-*")]) == 1
        clients = made._clients
        monkeypatch.setattr(client_registry, "_MOST_WAITING", 10)
        body = json.dumps({"redirect_uris": [BACK]}).encode()
        for number in range(50):
            clients.register(body, f"10.0.0.{number}")
        assert len(clients._waiting) == 10
        # Whom somebody has agreed to is not pushed out.
        assert clients.find(program.id) is not None
        late = clients.register(body, "10.0.1.1")
        # Whoever has one address of an IPv6 network has all of them.
        for number in range(client_registry._EACH_MINUTE):
            clients.register(body, f"2001:db8:0:1::{number}")
        with pytest.raises(client_registry.ClientError, match="too many"):
            clients.register(body, "2001:db8:0:1:ffff::1")
        monkeypatch.setattr(clients, "_now", lambda: time.time() + 4000)
        assert clients.find(late.id) is None


@pytest.mark.parametrize("length", ["Content-Length: 65537", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("path", ["/token", "/register", "/revoke", "/jwks", "/authorize", CALLBACK])
async def test_strangers_send_little_to_pages(path: str, length: str, company: Company) -> None:
    """docs/security.md: whoever it is, is found out with the form; so 64 KiB, of which no more is kept."""
    async with served(company) as (web, _):
        lines = [f"POST {path} HTTP/1.1", f"Host: {web.host}", f"Content-Type: {FORM['Content-Type']}", length, "", ""]
        opened = await web.raw("\r\n".join(lines).encode())
        if "chunked" in length:
            opened.writer.write(b"a000\r\n" + b"a" * 0xA000 + b"\r\n" + b"a000\r\n" + b"a" * 0xA000 + b"\r\n")
        assert (await opened.head()).status == 413
        whole = await web.ask("POST", path, FORM, b"a=" + b"a" * 65534)
        assert whole.status != 413


async def test_a_client_that_nobody_uses_is_forgotten_with_its_tokens(company: Company) -> None:
    """docs/security.md#the-authorization-server: after 90 days; a refresh token does not outlive its client."""
    async with served(company) as (web, made), Browser() as browser:
        program = Program(web)
        given = await program.log_in(browser)
        clients = made._clients
        clients._now = lambda: time.time() + 91 * 24 * 3600
        clients.sweep()
        assert clients.find(program.id) is None
        assert (await program.refresh(given["refresh_token"])).json["error"] == "invalid_client"


async def test_registration_can_be_off(company: Company) -> None:
    """docs/configuration.md#access-tokens."""
    async with served(company, registration=False) as (web, _):
        assert "registration_endpoint" not in (await web.ask("GET", "/.well-known/oauth-authorization-server")).json
        assert (await Program(web).register()).status == 401


DOCUMENT = "https://app.example.com/oauth/client.json"


def described(**changed: Any) -> dict[str, Any]:
    return {
        "client_id": DOCUMENT,
        "client_name": "App",
        "redirect_uris": [BACK, "https://app.example.com/back", "com.example.app:/back"],
        **changed,
    }


async def test_a_client_with_a_document_is_let_in_and_asked_about_where_it_could_be_anybody(company: Company) -> None:
    """Client ID metadata documents; RFC 8252 §8.6: every program of this machine can say that it is this one."""
    fetched: list[str] = []

    async def fetch(url: str) -> FetchAnswer:
        fetched.append(url)
        return FetchAnswer(200, {}, json.dumps(described()).encode(), url)

    async with served(company) as (web, made), Browser() as browser:
        made._clients._fetch = fetch
        program = Program(web, id=DOCUMENT)
        page = await web.ask("GET", program.link().removeprefix(f"http://{web.host}"))
        assert (page.status, fetched) == (303, [])
        page = await program.ask_user(browser)
        assert "app.example.com" in page.text
        given = await program.log_in(browser)
        assert await program.status(given["access_token"]) == 200
        assert (await program.refresh(given["refresh_token"])).status == 200
        assert (await program.ask_user(browser)).status == 200
        program.redirect_uri = "com.example.app:/back"
        assert (await program.ask_user(browser)).status == 200
        program.redirect_uri = "https://app.example.com/back"
        assert (await program.ask_user(browser)).status == 303
        assert fetched == [DOCUMENT]


DOCUMENTS: list[tuple[str, Any]] = [
    ("https://127.0.0.1/client.json", None),
    ("https://localhost/client.json", None),
    ("https://169.254.169.254/latest/meta-data", None),
    ("https://[::1]/client.json", None),
    ("https://10.0.0.1/client.json", None),
    ("https://app.example.com", None),
    ("https://app.example.com/", None),
    ("https://user@app.example.com/c.json", None),
    ("https://app.example.com/../c.json", None),
    ("https://app.example.com/a/./c.json", None),
    ("https://app.example.com/a/%2E%2e/c.json", None),
    ("http://app.example.com/c.json", None),
    (DOCUMENT, described(client_id="https://other.example.com/c.json")),
    (DOCUMENT, described(redirect_uris=["http://evil.example.com/"])),
    (DOCUMENT, described(redirect_uris=[])),
    (DOCUMENT, described(token_endpoint_auth_method="client_secret_basic")),
    (DOCUMENT, described(client_name="x" * 20_000)),
    (DOCUMENT, []),
    (DOCUMENT, "moved"),
]


async def test_a_document_that_points_inside_or_is_not_about_itself_is_none(company: Company) -> None:
    """docs/security.md#addresses-that-servers-name: as for every address that somebody else names."""
    async with served(company) as (web, made), Browser() as browser:
        for url, document in DOCUMENTS:

            async def fetch(asked: str, document: Any = document) -> FetchAnswer:
                where = "https://app.example.com/elsewhere" if document == "moved" else asked
                said = described() if document == "moved" else document
                return FetchAnswer(200, {}, json.dumps(said).encode(), where)

            made._clients._fetch = client_registry.fetch_document if document is None else fetch
            page = await Program(web, id=url).ask_user(browser)
            assert page.status == 400, (url, document)
            assert "Location" not in page.headers


@pytest.mark.parametrize(
    ("uri", "may"),
    [
        ("https://app.example.com/back", True), ("http://127.0.0.1/cb", True), ("http://[::1]:1/cb", True),
        ("http://localhost:33418", True), ("cursor://anysphere/cb", True), ("com.example.app:/cb", True),
        ("http://example.com/", False), ("http://127.0.0.1.evil.com/", False), ("javascript:x", False),
        ("JAVASCRIPT:x", False), ("//evil.com", False), ("/cb", False), ("https:///cb", False), ("", False),
        ("https://a b", False), ("https://a\\@b", False), ("file:///etc/passwd", False), ("x:y", False),
    ],
)  # fmt: skip
def test_where_an_answer_may_go(uri: str, may: bool) -> None:
    """RFC 8252 §7, RFC 9700 §4.1."""
    assert is_redirect_uri(uri) is may


def test_keys_are_rotated_and_the_old_ones_go_on_counting(tmp_path: Any) -> None:
    """docs/security.md#the-authorization-server: each month; two before the present one count."""
    files, now = SealedFolder(tmp_path / "keys"), [1e9]
    keys = SigningKeys(files, now=lambda: now[0])
    first, _ = keys.present()
    assert keys.present()[0] == first == SigningKeys(files, now=lambda: now[0]).present()[0]
    now[0] += 31 * 24 * 3600
    second, _ = keys.present()
    assert second != first
    assert keys.find(first, "ES256") is not None
    assert keys.find(first, "RS256") is None
    assert [key["kid"] for key in keys.public()] == [first, second]
    # Another process knows it, too.
    other = SigningKeys(files, now=lambda: now[0])
    assert other.find(second, "ES256") is not None
    for _ in range(3):
        now[0] += 31 * 24 * 3600
        keys.present()
    assert len(keys.public()) == 3
    assert keys.find(first, "ES256") is None


def test_it_needs_to_know_how_people_sign_on() -> None:
    """docs/configuration.md#access-tokens."""
    with pytest.raises(ConfigError, match="signOn"):
        parse_config(
            {
                "mcpServers": {"off": {"command": "none"}},
                "gateway": {"auth": {"issuer": "https://login.example.com", "server": {}}},
            }
        )


async def test_what_is_over_is_forgotten_and_one_damaged_file_holds_nobody_up(company: Company) -> None:
    """docs/security.md#the-authorization-server: at the start, and each day."""
    async with served(company) as (web, made), Browser() as browser:
        program = Program(web)
        first = await program.log_in(browser)
        folder = next((data_folder() / "muxway" / "authorization").iterdir())
        (old,) = folder.glob("grant-*.sealed")
        later = time.time() + 13 * 3600
        made._now = made._grants._now = lambda: later
        assert (await program.refresh(first["refresh_token"])).json["error"] == "invalid_grant"
        torn = folder / "grant-torn.sealed"
        torn.write_bytes(b"torn")
        torn.chmod(0o600)
        made._swept = 0.0
        # Nobody is asked again, and a client that is used is not forgotten.
        assert (await program.ask_user(browser)).status == 303
        await program.log_in(browser)
        assert not old.exists()
        assert torn.exists()
        assert len([*folder.glob("grant-*.sealed")]) == 2
