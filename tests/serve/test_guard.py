"""Safe by default: Host, Origin, CORS and tokens, on every route."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muxway.clients.transports.guard import Guard, is_loopback
from muxway.clients.transports.guesses import Guesses
from muxway.testing import ScriptedServer

from .harness import BOTH, Web, initialize

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    Webs = Callable[..., AbstractAsyncContextManager[Web]]

ROUTES = [
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("OPTIONS", "/mcp"),
    ("GET", "/sse"),
    ("POST", "/messages"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/nothing"),
]
FOREIGN_ORIGINS = [
    "https://evil.example",
    "null",
    "http://localhost.evil.example",
    "http://127.0.0.1.evil.example:3006",
    "http://localhost:1@evil.example",
    "https://localhost%00.evil.example",
    "http://localhost:99999",
    "file://localhost",
    "localhost",
    "",
]


@pytest.mark.parametrize(("verb", "path"), ROUTES)
async def test_a_foreign_host_is_misdirected_on_every_route(verb: str, path: str, web: Webs) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: DNS rebinding; 421 (RFC 9110 §15.5.20)."""
    async with web() as http:
        answer = await http.ask(verb, path, {"Host": f"evil.example:{http.port}", "Accept": BOTH})
        assert answer.status == 421


@pytest.mark.parametrize(("verb", "path"), ROUTES)
async def test_a_foreign_origin_is_forbidden_on_every_route(verb: str, path: str, web: Webs) -> None:
    """MCP 2025-11-25, basic/transports, and streamable-http of 2026-07-28: an invalid Origin → 403."""
    async with web() as http:
        assert (await http.ask(verb, path, {"Origin": "https://evil.example", "Accept": BOTH})).status == 403


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
async def test_origins_that_only_look_like_ours_are_foreign(origin: str, web: Webs) -> None:
    """RFC 6454 §5: `null`, and what begins or ends like ours, is another origin."""
    async with web() as http:
        answer = await http.post(initialize(), {"Origin": origin})
        assert answer.status == 403
        assert http.door.sessions == 0


LOCAL = ["http://localhost:6274", "http://LOCALHOST", "http://127.0.0.1", "https://[::1]:1"]


@pytest.mark.parametrize("origin", LOCAL)
async def test_pages_of_this_machine_may_ask_and_read_the_answer(origin: str, web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: valid local origins are accepted. docs/transports.md#web-pages."""
    async with web() as http:
        asked = await http.ask("OPTIONS", "/mcp", {**PREFLIGHT, "Origin": origin})
        assert (asked.status, asked.headers["access-control-allow-origin"]) == (204, origin)
        answer = await http.post(initialize(), {"Origin": origin})
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, origin)
        assert "Mcp-Session-Id" in answer.headers["access-control-expose-headers"]
        assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize("origin", LOCAL)
def test_pages_of_a_visitors_machine_are_no_pages_of_this_one(origin: str) -> None:
    """Ours: bound to more than loopback, `localhost` in an Origin is somebody else's."""
    guard = Guard(host="0.0.0.0")
    assert guard.preflight([origin.encode()], []) is None


@pytest.mark.parametrize("host", ["{host}/?", "{host}#", "a b", "{host}/public", "", "[::1", "u@{host}", "{host}:1"])
async def test_a_malformed_host_is_a_bad_request(host: str, web: Webs) -> None:
    """RFC 9112 §3.2: a Host that is none → 400."""
    async with web() as http:
        assert (await http.post(initialize(), {"Host": host.format(host=http.host)})).status == 400


async def test_two_hosts_or_none_are_a_bad_request(web: Webs) -> None:
    """RFC 9112 §3.2: no Host, or more than one → 400."""
    async with web() as http:
        assert (await http.post(initialize(), [("Host", http.host), ("Host", http.host)])).status == 400
        assert (await (await http.raw(b"GET /healthz HTTP/1.0\r\n\r\n")).head()).status == 400


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:3006"])
async def test_this_machine_is_known_by_its_names(host: str, web: Webs) -> None:
    """Ours: whatever port it is mapped to."""
    async with web() as http:
        assert (await http.ask("GET", "/healthz", {"Host": host})).status == 200


def test_a_door_on_all_addresses_is_known_by_address_and_by_what_is_allowed() -> None:
    """Ours: an address in Host cannot be rebound, a name can."""
    guard = Guard(host="0.0.0.0", allow_hosts=["mcp.example"])
    refused = {
        host: (refusal := guard.refuses_place([host], ())) and refusal.status
        for host in (b"10.0.0.7:3006", b"[fe80::1]", b"mcp.example", b"evil.example")
    }
    assert refused == {b"10.0.0.7:3006": None, b"[fe80::1]": None, b"mcp.example": None, b"evil.example": 421}
    assert Guard(allow_hosts=["*"]).refuses_place([b"anything.example"], ()) is None


def test_a_door_on_all_addresses_takes_its_own_origin_only() -> None:
    """Ours: a page of the visitor's own machine is not a page of this one."""
    guard = Guard(host="0.0.0.0", allow_hosts=["mcp.example"])
    assert guard.refuses_place([b"mcp.example"], [b"http://mcp.example"]) is None
    assert guard.refuses_place([b"mcp.example:8080"], [b"http://mcp.example:8080"]) is None
    for origin in (b"http://localhost", b"http://mcp.example:8080", b"http://other.example"):
        refusal = guard.refuses_place([b"mcp.example"], [origin])
        assert refusal is not None
        assert refusal.status == 403


def test_what_counts_as_loopback() -> None:
    """docs/security.md#what-is-promised-threat-by-threat: bound to this machine; any other address needs a token."""
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost", "LocalHost")] == [True] * 5
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "", "example.org")] == [False] * 5


# --- CORS -------------------------------------------------------------------------------------

APP = "https://app.example"
PREFLIGHT = {
    "Origin": APP,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "content-type, mcp-session-id, authorization, mcp-param-region, x-other",
}


async def test_a_configured_origin_gets_its_preflight_without_a_token(web: Webs) -> None:
    """WHATWG Fetch, CORS: what MCP clients send must be allowed; a preflight has no credentials."""
    async with web(guard=Guard(allow_origins=[APP], tokens=["t"])) as http:
        answer = await http.ask("OPTIONS", "/mcp", PREFLIGHT)
        assert answer.status == 204
        assert answer.headers["access-control-allow-origin"] == APP
        assert answer.headers["vary"] == "Origin"
        allowed = answer.headers["access-control-allow-headers"].split(", ")
        wanted = {"authorization", "content-type", "mcp-protocol-version", "mcp-session-id", "last-event-id"}
        assert wanted | {"mcp-method", "mcp-name", "mcp-param-region"} <= {*allowed}
        assert "x-other" not in allowed
        assert "access-control-allow-credentials" not in answer.headers


async def test_a_configured_origin_may_read_answers_and_errors(web: Webs) -> None:
    """WHATWG Fetch, CORS: errors too, else a page learns nothing; what MCP clients read is exposed."""
    async with web(guard=Guard(allow_origins=[APP + "/"])) as http:
        answer = await http.post(initialize(), {"Origin": APP})
        assert answer.headers["access-control-allow-origin"] == APP
        assert "Mcp-Session-Id" in answer.headers["access-control-expose-headers"]
        assert (await http.post(b"{", {"Origin": APP})).headers["access-control-allow-origin"] == APP


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://localhost.evil.example", "http://app.example", "null", "localhost"]
)
async def test_other_origins_get_no_preflight(origin: str, web: Webs) -> None:
    """docs/security.md: CORS for pages of this machine and configured origins only."""
    async with web(guard=Guard(allow_origins=[APP])) as http:
        answer = await http.ask("OPTIONS", "/mcp", {**PREFLIGHT, "Origin": origin})
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers


def test_any_origin_may_be_allowed() -> None:
    """docs/reverse-proxy.md#host-and-origin."""
    guard = Guard(allow_origins=["*"])
    for origin in (b"https://evil.example", b"null", b"vscode-webview://1a2b"):
        assert guard.refuses_place([b"localhost"], [origin]) is None
        assert (b"access-control-allow-origin", origin) in guard.cors([origin])
    assert guard.cors([b"https://a.example", b"https://b.example"]) == [(b"vary", b"Origin")]


def test_what_is_allowed_can_change() -> None:
    """docs/reload.md: allowed hosts and origins follow the config; a wrong one changes nothing."""
    guard = Guard(allow_hosts=["old.example"], allow_origins=[APP])
    assert guard.refuses_place([b"old.example"], ()) is None
    with pytest.raises(ValueError, match="write http://localhost:6274"):
        guard.allow(["new.example"], ["localhost:6274"])
    assert guard.refuses_place([b"old.example"], [APP.encode()]) is None
    guard.allow(["new.example"], [])
    assert guard.refuses_place([b"new.example"], ()) is None
    assert [
        refusal and refusal.status
        for refusal in (guard.refuses_place([b"old.example"], ()), guard.refuses_place([b"localhost"], [APP.encode()]))
    ] == [421, 403]


# --- tokens -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Bearer t0ke", "Bearer t0kenn", "Basic t0ken", "t0ken"]
)
async def test_without_the_token_nothing_is_served(given: str | None, web: Webs) -> None:
    """RFC 6750 §3: 401 with a challenge; the answer says what is missing, and never the token."""
    async with web(guard=Guard(tokens=["t0ken"])) as http:
        for verb, path in ROUTES:
            if path in ("/healthz", "/readyz"):
                continue
            answer = await http.ask(verb, path, {"Authorization": given, "Accept": BOTH})
            assert answer.status == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert b"t0ken" not in answer.body


async def test_with_the_token_it_is(web: Webs) -> None:
    """RFC 6750 §2.1; RFC 9110 §11.1: the scheme's case does not matter."""
    async with web({"s": ScriptedServer(tools={"echo": None})}, guard=Guard(tokens=["t0ken", "other"])) as http:
        for given in ("Bearer t0ken", "bearer other"):
            client = await http.session(headers={"Authorization": given})
            assert (await client.ask("tools/list")).status == 200


async def test_health_is_told_without_a_token_and_says_nothing_else(web: Webs) -> None:
    """docs/service.md#health: /healthz and /readyz need no token, and tell strangers nothing more."""
    async with web(guard=Guard(tokens=["t0ken"])) as http:
        assert (await http.ask("GET", "/healthz")).json == {"status": "ok"}
        assert (await http.ask("GET", "/readyz")).json == {"status": "ready"}
        assert (await http.ask("POST", "/healthz")).status == 405


async def test_credentials_of_the_caller_do_not_reach_a_server(web: Webs) -> None:
    """MCP 2025-11-25, basic/authorization: a client's token is not passed on; nor is the rest of its headers."""
    server = ScriptedServer(tools={"echo": None})
    async with web({"s": server}, guard=Guard(tokens=["t0ken"])) as http:
        client = await http.session(headers={"Authorization": "Bearer t0ken", "Cookie": "c00kie", "X-Api-Key": "k3y"})
        await client.ask("tools/call", {"name": "s__echo", "arguments": {}})
        said = b"".join(server.lines)
        assert not [secret for secret in (b"t0ken", b"c00kie", b"k3y") if secret in said]


# --- guesses ----------------------------------------------------------------------------------


async def test_whoever_guesses_is_told_to_wait_and_whoever_knows_is_not(web: Webs) -> None:
    """docs/service.md#when-it-is-too-much: ten wrong ones a minute, then 429; the right token is never locked out."""
    async with web(guard=Guard(tokens=["t0ken"])) as http:
        for number in range(10):
            assert (await http.post(initialize(), {"Authorization": f"Bearer guess{number}"})).status == 401
        answer = await http.post(initialize(), {"Authorization": "Bearer another"})
        assert answer.status == 429
        assert 0 < int(answer.headers["retry-after"]) <= 60
        assert (await http.post(initialize(), {"Authorization": "Bearer t0ken"})).status == 200
        # A client with a mistake in its configuration goes on hearing what is wrong.
        assert (await http.post(initialize(), {"Authorization": "Bearer guess3"})).status == 401
        # Whoever brings no token has not guessed.
        assert (await http.post(initialize())).status == 401


async def test_a_request_without_a_token_is_no_guess(web: Webs) -> None:
    """Ours: clients ask once to hear that a token is needed."""
    async with web(guard=Guard(tokens=["t0ken"])) as http:
        assert {(await http.post(initialize())).status for _ in range(15)} == {401}


def test_guesses_are_counted_by_network_and_forgotten_after_a_minute() -> None:
    """Ours: whoever has one address of an IPv6 network has all of them."""
    now = 0.0
    guesses = Guesses(lambda: now)
    assert [guesses.add("10.0.0.1", b"%d" % number) for number in range(11)] == [0.0] * 10 + [60.0]
    assert guesses.add("10.0.0.1", b"3") == 0.0, "the same again is no guess"
    assert guesses.add("10.0.0.2", b"x") == 0.0
    assert [guesses.add(f"2001:db8::{number}", b"%d" % number) for number in range(1, 12)] == [0.0] * 10 + [60.0]
    assert guesses.add("2001:db8:0:1::1", b"x") == 0.0
    # As a socket for both writes IPv4 addresses: each is somebody else's.
    assert [guesses.add("::ffff:192.0.2.1", b"%d" % number) for number in range(11)] == [0.0] * 10 + [60.0]
    assert guesses.add("::ffff:192.0.2.2", b"x") == 0.0
    assert guesses.add("192.0.2.1", b"y") == 60.0
    now = 45.0
    assert guesses.add("10.0.0.1", b"x") == 15.0
    now = 60.0
    assert guesses.add("10.0.0.1", b"x") == 0.0


def test_many_addresses_take_little_memory() -> None:
    """Ours: the oldest make room."""
    guesses = Guesses(lambda: 0.0)
    for number in range(10_000):
        guesses.add(f"10.0.{number // 256}.{number % 256}", b"x")
    assert len(guesses._of) == 4096
