"""People sign on in a browser, at the company's provider; nobody else's answer, cookie or form counts."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from muxway.clients.pages import read_cookies
from muxway.config import parse_config
from muxway.identity.sealed_cookies import SealedCookies
from muxway.identity.sign_on import CALLBACK, SignOn, csrf_field, origin_of
from muxway.identity.web_pages import say, show

from ..serve.harness import Web, a_web
from .company import CLIENT, Browser, Company, company_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from muxway.clients.pages import PageAnswer, PageRequest


@pytest.fixture
async def company() -> AsyncIterator[Company]:
    async with company_of(Company()) as company:
        yield company


def sign_on_at(company: Company, key: str | None = None, **auth: Any) -> SignOn:
    config = parse_config(
        {
            "mcpServers": {"off": {"command": "none", "disabled": True}},
            "gateway": {"auth": {"issuer": company.url, "signOn": {"clientId": CLIENT}, **auth}},
        }
    )
    settings = config.gateway.auth
    assert settings is not None
    assert settings.sign_on is not None
    return SignOn(settings, settings.sign_on, public_url=None, cookies=SealedCookies(key))


@asynccontextmanager
async def pages_with(sign_on: SignOn) -> AsyncIterator[Web]:
    """A gateway with a page that says who is there, and takes a form."""

    async def hello(request: PageRequest) -> PageAnswer:
        who = sign_on.who(request)
        if who is None:
            return await sign_on.begin(request, "/hello?x=1")
        if request.method == "POST":
            return say(200 if sign_on.may_change(request, who) else 403, "changed", request.form.get("what", ""))
        return show(200, who.user, f"{who.subject} of {','.join(who.groups)} {csrf_field(who)}")

    async with a_web() as web:
        web.door.pages.pages = {"/hello": hello, CALLBACK: sign_on.callback}
        yield web


async def test_somebody_signs_on_and_is_known_for_a_while(company: Company) -> None:
    """docs/identity-team.md#the-page-connect: there and back, with PKCE, and no second time."""
    async with pages_with(sign_on_at(company)) as web, Browser("ann") as browser:
        page = await browser.get(f"http://{web.host}/hello")
        assert page.status == 200
        assert "ann of dev" in page.text
        assert page.url == f"http://{web.host}/hello?x=1"
        assert len(company.asked) == 1
        assert "ann of dev" in (await browser.get(f"http://{web.host}/hello")).text
        assert len(company.asked) == 1
        assert page.headers["Cache-Control"] == "no-store"
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize(
    ("claims", "answer"),
    [
        ({"iss": "https://other.example.com"}, {}),
        ({"aud": "another"}, {}),
        ({"aud": [CLIENT, "another"], "azp": "another"}, {}),
        ({"nonce": "another"}, {}),
        ({"nonce": None}, {}),
        ({"exp": 1}, {}),
        ({"sub": None}, {}),
        ({}, {"iss": "https://other.example.com"}),
        ({}, {"state": "another"}),
        ({}, {"code": "another"}),
        ({}, {"error": "access_denied"}),
    ],
    ids=lambda given: str(given)[:40],
)
async def test_what_the_issuer_did_not_say_to_us_signs_nobody_on(
    company: Company, claims: dict[str, Any], answer: dict[str, str]
) -> None:
    """docs/security.md: issuer, audience, nonce, state and `iss` are compared, always."""
    company.claims, company.answer = claims, answer
    async with pages_with(sign_on_at(company)) as web, Browser() as browser:
        assert (await browser.get(f"http://{web.host}/hello")).status in (400, 502)
        company.claims, company.answer = {}, {}
        assert (await browser.get(f"http://{web.host}/hello")).status == 200


async def test_who_breaks_a_sign_on_off_is_told_how_to_try_again(company: Company) -> None:
    """docs/identity-team.md#the-page-connect: with a link to where it began."""
    company.answer = {"error": "access_denied"}
    async with pages_with(sign_on_at(company)) as web, Browser() as browser:
        page = await browser.get(f"http://{web.host}/hello")
        assert page.status == 400
        again = f"http://{web.host}/hello?x=1"
        assert f"<a href='{again}'>Try again</a>" in page.text
        company.answer = {}
        assert "ann of dev" in (await browser.get(again)).text


async def test_a_client_that_the_issuer_refuses_is_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    """docs/identity-team.md#the-page-connect: a wrong secret is the gateway's to mend, so its log has to name it."""

    class Strict(Company):
        async def give(self, request: web.Request) -> web.Response:
            del request
            return web.json_response({"error": "invalid_client"}, status=401)

    async with company_of(Strict()) as company, pages_with(sign_on_at(company)) as pages, Browser() as browser:
        assert (await browser.get(f"http://{pages.host}/hello")).status == 502
    assert "the issuer does not take muxway's `clientId` and `clientSecret` (status 401)" in caplog.text


async def test_however_many_strangers_come_while_the_issuer_is_away_it_is_asked_once() -> None:
    """docs/security.md: a page that anybody may open makes no request for each who does."""

    class Away(Company):
        away, metadata_asked = True, 0

        async def metadata(self, request: web.Request) -> web.Response:
            self.metadata_asked += 1
            return web.Response(status=503) if self.away else await super().metadata(request)

    async with company_of(Away()) as company, pages_with(sign_on := sign_on_at(company)) as pages:
        now = [0.0]
        sign_on._metadata._clock = lambda: now[0]
        at_once = await asyncio.gather(*(pages.ask("GET", "/hello") for _ in range(50)))
        later = [await pages.ask("GET", "/hello") for _ in range(20)]
        assert {answer.status for answer in (*at_once, *later)} == {502}
        # Each of the two places where metadata may be, once.
        assert company.metadata_asked == 2
        company.away, now[0] = False, 6.0
        assert (await pages.ask("GET", "/hello")).status == 303
        assert company.metadata_asked == 3
        # What is known counts while it is away again.
        company.away, now[0] = True, 700.0
        assert [(await pages.ask("GET", "/hello")).status for _ in range(5)] == [303] * 5
        assert company.metadata_asked == 5


async def test_an_answer_counts_once_and_in_the_browser_that_asked(company: Company) -> None:
    """docs/security.md: another browser, or a second use: refused."""
    async with pages_with(sign_on_at(company)) as web, Browser("ann") as hers, Browser("bob") as his:
        begun = await hers.get(f"http://{web.host}/hello", follow=False)
        kept = begun.cookies[0].partition(";")[0]
        back = (await hers.get(begun.headers["Location"], follow=False)).headers["Location"]
        assert (await his.get(back)).status == 400
        assert (await hers.get(back, follow=False)).status == 303
        assert (await hers.get(back)).status == 400
        # Not even with the cookie of the beginning.
        again = await web.ask("GET", back.removeprefix(f"http://{web.host}"), {"Cookie": kept})
        assert again.status == 400
        assert len(company.asked) == 1


def test_answers_that_strangers_use_up_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/security.md: whoever begins to sign on, and sends an error back, has us remember that for a while."""
    monkeypatch.setattr("muxway.identity.sign_on._MOST_USED", 3)
    sign_on, now = sign_on_at(Company("https://id.example.com")), [0.0]
    sign_on._now = lambda: now[0]
    assert [sign_on._use(state) for state in ("a", "b", "a", "c", "d", "d", "b")] == [1, 1, 0, 1, 1, 0, 0]
    assert [*sign_on._used] == ["b", "c", "d"]
    now[0] = 601.0
    assert sign_on._use("e")
    assert [*sign_on._used] == ["e"]


async def test_a_cookie_of_another_gateway_is_none(company: Company) -> None:
    """docs/security.md: on one host browsers send cookies to every port."""
    async with pages_with(sign_on_at(company)) as one, pages_with(sign_on_at(company)) as other, Browser() as browser:
        assert (await browser.get(f"http://{one.host}/hello")).status == 200
        assert (await browser.get(f"http://{other.host}/hello", follow=False)).status == 303
    one_key = [sign_on_at(company, "k" * 40) for _ in range(2)]
    async with pages_with(one_key[0]) as one, pages_with(one_key[1]) as other, Browser() as browser:
        # With the same key, but for another address.
        assert (await browser.get(f"http://{one.host}/hello")).status == 200
        assert (await browser.get(f"http://{other.host}/hello", follow=False)).status == 303


async def test_a_form_counts_with_its_token_and_from_our_own_page(company: Company) -> None:
    """docs/security.md: CSRF."""
    async with pages_with(sign_on_at(company)) as web, Browser("ann") as hers, Browser("bob") as his:
        url = f"http://{web.host}/hello"
        mine, other = (await hers.get(url)).field("csrf"), (await his.get(url)).field("csrf")
        for form in ({}, {"csrf": ""}, {"csrf": other}):
            assert (await hers.post(url, {"what": "x", **form})).status == 403
        for origin in ("https://evil.example.com", "null", f"http://{web.host}.evil.example.com"):
            assert (await hers.post(url, {"csrf": mine}, headers={"Origin": origin})).status == 403
        own = {"Origin": f"http://{web.host}"}
        assert (await hers.post(url, {"what": "x", "csrf": mine}, headers=own)).status == 200
        twice = b"csrf=a&csrf=b"
        assert (await web.ask("POST", "/hello", {"Content-Type": "application/json"}, twice)).status == 400
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        assert (await web.ask("POST", "/hello", form, twice)).status == 400
        assert (await web.ask("PUT", "/hello", form, b"")).status == 405


def test_a_cookie_that_comes_twice_is_none() -> None:
    """docs/security.md: one of them may have been slipped in by a neighbour."""
    assert read_cookies([b"a=1; b=2; a=3", b"c=4"]) == {"b": "2", "c": "4"}


def test_origins_are_written_as_browsers_do() -> None:
    """RFC 6454 §6.2."""
    assert origin_of("https://mcp.example.com:443/base") == "https://mcp.example.com"
    assert origin_of("http://127.0.0.1:8080") == "http://127.0.0.1:8080"
