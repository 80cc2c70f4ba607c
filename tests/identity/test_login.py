"""A person logs in: the ways there, and what is refused on them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from hypothesis import given
from hypothesis.strategies import characters, text

from muxway.config import parse_server
from muxway.config.oauth import OAuthConfig
from muxway.identity import device, discovery, oauth_client
from muxway.identity.challenges import Challenge, read_challenge
from muxway.identity.credentials import fetch_for, login_key
from muxway.identity.discovery import (
    Discovered,
    NoLogin,
    OAuthError,
    _is_slash_apart,
    covers,
    discover,
    metadata_places,
    resource_places,
)
from muxway.identity.login import NotOurs, begin, safe_link
from muxway.identity.sign_in import SignIn, sign_out
from muxway.identity.store import AuthorizationServer, LoginKey, TokenStore, canonical
from muxway.net.guarded_fetch import FetchAnswer, GuardedFetch
from muxway.net.sealed_files import StoreError

from .logging_in import log_in, server
from .provider import Provider, agree, query_of, running, visit

if TYPE_CHECKING:
    from collections.abc import Mapping


async def test_a_login_is_kept_with_all_that_a_refresh_needs(provider: Provider, store: TokenStore) -> None:
    """docs/identity.md#laptop: one command, one click."""
    made = await log_in(server(provider))
    assert store.read(login_key(server(provider))) == made
    assert made.registration.kind == "registered"
    assert made.resource == provider.mcp
    assert made.server.issuer == provider.url
    asked = dict(provider.asked)
    assert asked["/register"]["application_type"] == "native"
    assert asked["/authorize"]["resource"] == asked["/token"]["resource"] == provider.mcp
    assert asked["/authorize"]["code_challenge_method"] == "S256"
    assert asked["/authorize"]["scope"] == "read offline_access"


async def test_the_second_login_uses_the_first_ones_client_id(provider: Provider) -> None:
    """MCP 2026-07-28, basic/authorization: registrations are kept, by issuer."""
    first = await log_in(server(provider))
    second = await log_in(server(provider))
    assert first.registration == second.registration
    assert provider.count("/register") == 1
    assert first.token != second.token


async def test_a_written_client_id_wins(provider: Provider) -> None:
    """MCP 2025-11-25, basic/authorization: pre-registered, then a metadata document, then registration."""
    made = await log_in(server(provider, clientId="mine", clientSecret="s3cret-of-mine", scope="read write"))
    assert (made.registration.kind, made.registration.client_id) == ("written", "mine")
    assert provider.count("/register") == 0
    provider.metadata = {"client_id_metadata_document_supported": True}
    made = await log_in(server(provider, clientMetadataUrl="https://example.com/muxway.json"))
    assert (made.registration.kind, made.registration.client_id) == (
        "metadata document",
        "https://example.com/muxway.json",
    )


async def test_no_way_to_a_client_id_says_what_to_register(provider: Provider) -> None:
    """docs/identity.md#client-ids: the error names the redirect URI and the key to write."""
    provider.registration = False
    with pytest.raises(
        OAuthError,
        match=r"register an application there.*redirect URI http://127\.0\.0\.1:\d+/callback.*`oauth\.clientId`",
    ):
        await SignIn(server(provider), TokenStore()).by_browser(lambda _: None)


@pytest.mark.parametrize("form", ["{query}", "  {ended}\n", '"{ended}"', "<{ended}>"])
async def test_a_pasted_address_ends_the_login_where_the_browser_cannot(provider: Provider, form: str) -> None:
    """docs/identity.md#over-ssh: the address that the browser ended at, whole or from its question mark on."""
    pasted: asyncio.Queue[str] = asyncio.Queue()
    wrong = ["", "https://example.com/", "http://[", "http://127.0.0.1/callback?code=x&state=guessed"]

    async def browse(link: str) -> None:
        ended = await agree(link)
        for line in (*wrong, link, form.format(ended=ended, query=ended.partition("?")[2])):
            pasted.put_nowait(line)

    coming: list[Any] = []
    sign_in = SignIn(server(provider), TokenStore())
    made = await sign_in.by_browser(lambda link: coming.append(asyncio.ensure_future(browse(link))), pasted.get)
    assert made.token.access.startswith("access-")


async def test_a_login_by_code_needs_no_browser_here(provider: Provider, store: TokenStore) -> None:
    """docs/identity.md#over-ssh: RFC 8628."""
    shown: list[Any] = []

    def show(code: Any) -> None:
        shown.append(code)
        asyncio.get_running_loop().call_later(1.5, provider.activate)

    made = await SignIn(server(provider), TokenStore()).by_device(show)
    assert shown[0].user_code == "WDJB-MJHT"
    assert store.read(login_key(server(provider))) == made
    assert provider.count("/token") == 2
    provider.device = False
    with pytest.raises(OAuthError, match="no device login"):
        await SignIn(server(provider), TokenStore()).by_device(show)


async def begun(provider: Provider, **oauth: Any) -> tuple[asyncio.Task[Any], str]:
    """A login that waits for the browser, and its link."""
    link: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(SignIn(server(provider, **oauth), TokenStore()).by_browser(link.set_result))
    done, _ = await asyncio.wait([task, link], return_when=asyncio.FIRST_COMPLETED)
    assert link in done
    return task, link.result()


async def test_a_forged_answer_changes_nothing(provider: Provider) -> None:
    """docs/security.md#logins: an answer without our state is refused, and the login goes on waiting."""
    task, link = await begun(provider)
    back = query_of(link)["redirect_uri"]
    for query in ("", "code=stolen", "code=stolen&state=guess", "error=access_denied&state=", "state=a&state=b&code=c"):
        assert await visit(f"{back}?{query}") == 400
    assert await visit(back.replace("/callback", "/other")) == 404
    assert provider.count("/token") == 0
    ended = await agree(link)
    assert await visit(ended) == 200
    await task


async def test_an_answer_is_good_once(provider: Provider) -> None:
    """docs/security.md#logins: single use."""
    task, link = await begun(provider)
    ended = await agree(link)
    provider.slow = 0.3
    assert await visit(ended) == 200
    assert await visit(ended) == 400
    await task
    assert provider.count("/token") == 1


async def test_a_login_ends_after_ten_minutes(provider: Provider) -> None:
    """docs/security.md#logins."""
    config = server(provider)
    async with fetch_for(config) as fetch:
        found = await discover(fetch, provider.mcp, read_challenge([]))
        pending = await begin(fetch, login_key(config), found, config.oauth, (), "http://127.0.0.1:1/callback")
        query = urlencode({"code": "c", "state": pending.state, "iss": provider.url})
        assert pending.is_ours(query)
        assert 599 < pending.ends - time.monotonic() <= 600
        pending.ends = time.monotonic() - 1
        assert not pending.is_ours(query)
        with pytest.raises(NotOurs, match="over"):
            await pending.finish(fetch, query)
    assert provider.count("/token") == 0


@pytest.mark.parametrize(
    ("change", "advertised"),
    [({"iss": "https://other.example.com"}, True), ({"iss": "https://other.example.com"}, False), ({"iss": None}, True),
     ({"iss": "same/"}, True), ({"iss": "https://other.example.com", "error": "access_denied", "code": None}, False)],
)  # fmt: skip
async def test_an_answer_of_another_issuer_is_not_used(
    provider: Provider, change: dict[str, Any], advertised: bool
) -> None:
    """RFC 9207 §2.4; MCP 2026-07-28, basic/authorization: byte for byte, in errors too."""
    provider.iss = advertised
    task, link = await begun(provider)
    ended = urlsplit(await agree(link))
    fields = {name: values[0] for name, values in parse_qs(ended.query).items()} | change
    if fields["iss"] == "same/":
        fields["iss"] = f"{provider.url}/"
    given = urlencode({name: value for name, value in fields.items() if value is not None})
    assert await visit(ended._replace(query=given).geturl()) == 200
    with pytest.raises(OAuthError, match=r"issuer|always says so") as told:
        await task
    assert "access_denied" not in str(told.value)
    assert provider.count("/token") == 0


@pytest.mark.parametrize("lost", ["key", "*.sealed"])
async def test_what_cannot_be_opened_any_more_does_not_hinder_a_new_login(provider: Provider, lost: str) -> None:
    """docs/identity.md#the-token-store: the error says to log in again, and that is enough."""
    config = server(provider)
    await log_in(config)
    for file in TokenStore().folder.glob(lost):
        file.unlink() if lost == "key" else file.write_bytes(b"torn")
    with pytest.raises(StoreError, match="log in again"):
        TokenStore().read(login_key(config))
    await log_in(config)
    assert TokenStore().read(login_key(config)) is not None


async def test_an_address_that_asks_for_no_login_is_told_with_its_status(provider: Provider) -> None:
    """Ours: an error says what to do. A URL with a slip in it is the usual reason."""
    provider.has_metadata = False
    config = parse_server("guarded", {"url": f"{provider.url}/mpc"})
    with pytest.raises(NoLogin, match="HTTP status 404; is its `url` right"):
        await SignIn(config, TokenStore()).by_browser(lambda _: None)


async def test_a_refusal_of_the_user_is_told(provider: Provider) -> None:
    """Ours: what went wrong is said, without what it could do to a terminal."""
    provider.iss = False
    task, link = await begun(provider)
    fields = query_of(link)
    answer = urlencode({"error": "access_denied", "error_description": "no\x1b[2J", "state": fields["state"]})
    assert await visit(f"{fields['redirect_uri']}?{answer}") == 200
    with pytest.raises(OAuthError, match=r"access_denied \(no\\x1b\[2J\)"):
        await task


@pytest.mark.parametrize(
    ("metadata", "resource", "match"),
    [
        ({"issuer": "https://other.example.com"}, {}, "says that it is https://other.example.com"),
        ({"code_challenge_methods_supported": ["plain"]}, {}, "PKCE"),
        ({"code_challenge_methods_supported": None}, {}, "PKCE"),
        ({"token_endpoint": None}, {}, "no token endpoint"),
        ({}, {"resource": "https://other.example.com/mcp"}, "not the address"),
        ({}, {"authorization_servers": []}, "no authorization server"),
        ({}, {"authorization_servers": ["https://169.254.169.254"]}, "no place of a server"),
        ({}, {"authorization_servers": ["file:///etc"]}, "no address|must be https"),
        ({}, {"authorization_servers": ["https://[x"]}, "is no address"),
        ({}, {"authorization_servers": ["https://a\u2100b.com"]}, "is no address"),
        ({"token_endpoint": "https://10.0.0.1/token"}, {}, "private network"),
        ({"registration_endpoint": "https://10.0.0.1/register"}, {}, "private network"),
        ({"authorization_endpoint": "javascript:alert(1)"}, {}, "no web address|not https"),
    ],
)
async def test_metadata_that_cannot_be_trusted_ends_the_login(
    provider: Provider, metadata: dict[str, Any], resource: dict[str, Any], match: str
) -> None:
    """MCP 2026-07-28, basic/authorization; docs/security.md#addresses-that-servers-name."""
    provider.metadata, provider.resource_metadata = metadata, resource
    shown: list[str] = []

    def show(link: str) -> None:
        shown.append(link)
        coming.append(asyncio.ensure_future(browse(link)))

    async def browse(link: str) -> None:
        await visit(await agree(link))

    coming: list[Any] = []
    with pytest.raises(OAuthError, match=match):
        await SignIn(server(provider), TokenStore()).by_browser(show)
    assert TokenStore().all() == []


ODD = [
    '"x"',
    "-1",
    "1e308",
    "1" + "0" * 399,
    "-1" + "0" * 399,
    "9" * 5000,
    "null",
    "true",
    "[]",
    "{}",
    '"\\ud800"',
    '"9"',
]


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("field", ["client_secret_expires_at", "expires_in", "interval", "scope", "client_id"])
async def test_odd_answers_of_an_authorization_server_are_told_or_do_no_harm(field: str, value: str) -> None:
    """Ours: nothing that it says of a client, a code or a token is an error of muxway's."""
    good = '"client_id":"c","access_token":"t","device_code":"d","user_code":"u","verification_uri":"https://as/d"'
    said = f'{{{good},"{field}":{value}}}' if field != "client_id" else f'{{"{field}":{value}}}'

    class Answering(GuardedFetch):
        async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> FetchAnswer:
            del body, headers
            return FetchAnswer(200, {}, said.encode(), url)

    at = AuthorizationServer(
        issuer="https://as",
        token_endpoint="https://as/token",
        registration_endpoint="https://as/register",
        device_authorization_endpoint="https://as/device",
    )
    key, fetch = LoginKey("local", "", "s", "https://s"), Answering(())
    found = Discovered(server=at, resource=None, scopes=None)
    with contextlib.suppress(OAuthError):
        pending = await begin(fetch, key, found, OAuthConfig(), (), "http://127.0.0.1:1/callback")
        code = await device.ask_code(fetch, pending)
        assert 1 <= code.interval <= 60
        assert code.expires_in <= 1800
        assert pending.login(await oauth_client.ask_token(fetch, at, pending.registration, {})).token.access == "t"


async def test_an_issuer_of_the_first_revision_that_is_no_address_is_told(provider: Provider) -> None:
    """Ours: where there is no protected resource metadata, the server's own host says who it is."""
    provider.metadata = {"issuer": "https://[x"}
    fetch = GuardedFetch([provider.mcp])
    async with fetch:
        with pytest.raises(OAuthError, match="another issuer"):
            await discovery._of_first_revision(fetch, provider.mcp, Challenge(bearer=True), [])


async def test_a_pinned_issuer_is_compared_instead(provider: Provider) -> None:
    """docs/identity.md#client-ids: some publish a foreign issuer; that one is then expected, never just anyone."""
    provider.metadata = {"issuer": "https://odd.example.com"}
    provider.iss = False
    made = await log_in(server(provider, issuer="https://odd.example.com"))
    assert made.server.issuer == "https://odd.example.com"
    with pytest.raises(OAuthError, match=r"says that it is https://odd\.example\.com"):
        await log_in(server(provider, issuer="https://third.example.com"))


async def test_a_server_that_names_another_issuer_gets_nothing_of_the_first(provider: Provider) -> None:
    """docs/security.md#logins: client id, secret and refresh token belong to one issuer."""
    made = await log_in(server(provider))
    async with running(Provider()) as other:
        provider.resource_metadata = {"authorization_servers": [other.url]}
        again = await log_in(server(provider))
        assert again.server.issuer == other.url
        said = str(other.asked)
        assert made.token.access not in said
        assert (made.token.refresh or "") not in said
        assert made.registration.client_id != again.registration.client_id or other.count("/register") == 1
        assert other.count("/register") == 1


EVIL = [
    "javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "vbscript:x", "http://example.com/authorize",
    "https://example.com/$(touch x)`id`", "https://example.com/ --help", "https://user@example.com/", "-https://x",
    "https://", "https://exa\nmple.com/", 'https://example.com/"; rm -rf', "ms-settings:x", "https://example.com\\@evil",
    "smb://example.com/x",
]  # fmt: skip


@pytest.mark.parametrize("link", EVIL)
def test_an_evil_page_is_never_opened(link: str) -> None:
    """docs/security.md#logins: https, or http of this machine; never to a shell."""
    with pytest.raises(OAuthError):
        safe_link(link)


async def test_logout_gives_the_tokens_back(provider: Provider, store: TokenStore) -> None:
    """RFC 7009; docs/identity.md#laptop: taken back there, forgotten here."""
    made = await log_in(server(provider))
    assert await sign_out(made, store, None) is None
    assert store.all() == []
    assert {form["token"] for path, form in provider.asked if path == "/revoke"} == {
        made.token.access,
        made.token.refresh,
    }
    again = await log_in(server(provider))
    no_way = replace_server(again)
    assert "takes no tokens back" in (await sign_out(no_way, store, None) or "") or store.all() == []


def replace_server(made: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(made, server=msgspec.structs.replace(made.server, revocation_endpoint=None))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('Bearer resource_metadata="https://x/y", scope="a b"', (True, "https://x/y", ("a", "b"), None)),
        ('Basic realm="x", Bearer error="insufficient_scope", scope="a"', (True, None, ("a",), "insufficient_scope")),
        ("bearer", (True, None, None, None)),
        ('Bearer scope="say \\"hi\\""', (True, None, ("say", '"hi"'), None)),
        ("Bearer error=invalid_token", (True, None, None, "invalid_token")),
        ('Digest nonce="x"', (False, None, None, None)),
        ("", (False, None, None, None)),
        ('Bearer scope="', (True, None, None, None)),
        ("Bearer " + 'a="b", ' * 5000, (True, None, None, None)),
    ],
)
def test_challenges_are_read_as_they_are_written(header: str, expected: tuple[Any, ...]) -> None:
    """RFC 9110 §11.6.1: several in one header, in any order, quoted or not."""
    assert tuple(read_challenge([header])) == expected


@given(text(alphabet=characters(codec="latin-1"), max_size=300))
def test_any_challenge_is_read_without_an_error(header: str) -> None:
    """Ours: what a server writes into a header is foreign bytes; what is no challenge is none."""
    challenge = read_challenge([header, f"Bearer {header}"])
    assert all(" " not in scope for scope in challenge.scope or ())


def test_the_places_of_metadata() -> None:
    """MCP 2025-11-25, basic/authorization: three places with a path, two without; RFC 9728 §3.1."""
    none = read_challenge([])
    assert resource_places("https://h/p/mcp", none) == [
        "https://h/.well-known/oauth-protected-resource/p/mcp",
        "https://h/.well-known/oauth-protected-resource",
    ]
    assert metadata_places("https://as/t") == [
        "https://as/.well-known/oauth-authorization-server/t",
        "https://as/.well-known/openid-configuration/t",
        "https://as/t/.well-known/openid-configuration",
    ]
    assert metadata_places("https://as") == [
        "https://as/.well-known/oauth-authorization-server",
        "https://as/.well-known/openid-configuration",
    ]
    assert canonical("HTTPS://H.example.com:443/Mcp#x") == "https://h.example.com/Mcp"
    assert covers("https://h/p", "https://h/p/mcp")
    assert _is_slash_apart("https://as", "https://as/")
    assert not _is_slash_apart("https://as/t", "https://as/t/")
    assert not _is_slash_apart("https://as.evil", "https://as/")
    # A server at the root of its host: with the slash and without, whoever of the two writes it.
    for resource in ("https://h", "https://h/", "HTTPS://H:443/"):
        assert all(covers(resource, url) for url in ("https://h", "https://h/", "https://h/mcp"))
    assert not covers("https://h/p", "https://h")
    assert not covers("https://h/p", "https://h/pq")
    assert not covers("https://h.evil.com/p", "https://h/p")


async def test_a_server_with_credentials_of_its_own_is_not_logged_in_to(provider: Provider) -> None:
    """docs/identity.md#laptop: what is written down wins, and the command says so."""
    config = parse_server("x", {"url": provider.mcp, "headers": {"Authorization": "Bearer of-mine-12345"}})
    for entry, why in (
        (config, "has credentials in its configuration"),
        (parse_server("x", {"url": provider.mcp, "oauth": False}), "oauth: false"),
        (parse_server("x", {"command": "x"}), "is a program on this machine"),
    ):
        with pytest.raises(OAuthError, match=why):
            SignIn(entry, TokenStore())
    assert replace(config, headers={}).oauth.enabled
