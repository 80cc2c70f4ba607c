"""The HTTP door with access tokens: what clients are told, who is let in, and what a newer token leaves alone."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from muxway.clients.transports import http_authorization
from muxway.clients.transports.guard import Guard
from muxway.clients.transports.http_authorization import HttpAuthorization
from muxway.clients.transports.http_connection import HttpConnection
from muxway.identity.verify_jwt import LEEWAY
from muxway.testing import ScriptedServer

from ..serve.harness import BOTH, Web, a_web, initialize, modern, request
from .issuing import ISSUER, OTHER_RSA, PUBLIC, TestIssuer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WELL_KNOWN = "/.well-known/oauth-protected-resource"
VIEWS: dict[str, Any] = {"reading": {"scopes": ["notes:read"]}, "all.of-it": {}}
PROTECTED = [("POST", "/mcp"), ("GET", "/mcp"), ("DELETE", "/mcp"), ("GET", "/sse"), ("POST", "/messages")]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def challenge(answer: Any) -> dict[str, str]:
    """The parameters of `WWW-Authenticate`."""
    scheme, _, rest = answer.headers["www-authenticate"].partition(" ")
    assert scheme == "Bearer"
    return dict(part.split("=", 1) for part in rest.replace('"', "").split(", "))


@pytest.fixture
def issuer() -> TestIssuer:
    return TestIssuer()


@pytest.fixture
async def http(issuer: TestIssuer) -> AsyncIterator[Web]:
    """A gateway on loopback that knows no public URL, with two views."""
    async with a_web({"up": ScriptedServer()}, top={"views": VIEWS}) as web:
        own = tuple(f"http://{name}:{web.port}" for name in ("127.0.0.1", "localhost"))
        web.door.admit((), {}, issuer.server(own=own, views=VIEWS, scopes=["mcp:tools"]))
        yield web


def aud(http: Web, path: str = "/mcp") -> str:
    return f"http://{http.host}{path}"


# --- what clients are told --------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/mcp", "/sse", "/mcp/reading", "/sse/reading", "/mcp/all.of-it"])
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
async def test_every_endpoint_has_metadata_about_the_url_it_was_asked_by(path: str, name: str, http: Web) -> None:
    """RFC 9728 §3.1, §3.3: the path is inserted, and `resource` is the URL that the client uses."""
    answer = await http.ask("GET", f"{WELL_KNOWN}{path}", {"Host": f"{name}:{http.port}"})
    assert answer.status == 200
    told = answer.json
    assert told["resource"] == f"http://{name}:{http.port}{path}"
    assert told["authorization_servers"] == [ISSUER]
    assert told["bearer_methods_supported"] == ["header"]
    assert told["scopes_supported"] == ["mcp:tools", *(["notes:read"] if "reading" in path else [])]
    assert answer.headers["content-type"] == "application/json"


async def test_the_metadata_at_the_root_is_that_of_the_usual_endpoint(http: Web) -> None:
    """MCP 2025-11-25, basic/authorization: clients look at the path first, then at the root."""
    assert (await http.ask("GET", WELL_KNOWN)).json["resource"] == aud(http)
    for nothing in ("/mcp/none", "/other", "x", "/mcp/reading/more"):
        assert (await http.ask("GET", WELL_KNOWN + nothing)).status == 404
    assert (await http.ask("POST", WELL_KNOWN)).status == 405


async def test_any_page_may_read_the_metadata(http: Web) -> None:
    """RFC 9728 §3.1; MCP clients in browsers send `MCP-Protocol-Version` along, so they ask first."""
    for method in ("GET", "OPTIONS"):
        asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "GET"}
        answer = await http.ask(method, f"{WELL_KNOWN}/mcp", asked)
        assert answer.status in (200, 204)
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.headers["access-control-allow-headers"] == "*"
    assert (await http.ask("GET", WELL_KNOWN, {"Host": "evil.example"})).status == 421


async def test_behind_a_proxy_the_public_url_counts(issuer: TestIssuer) -> None:
    """docs/identity-team.md#audiences: whatever a request calls us by."""
    async with a_web({"up": ScriptedServer()}) as web:
        web.door.admit((), {}, issuer.server(public="https://h.example.com/tools/"))
        for place in (WELL_KNOWN, f"{WELL_KNOWN}/mcp", f"{WELL_KNOWN}/tools/mcp"):
            assert (await web.ask("GET", place)).json["resource"] == "https://h.example.com/tools/mcp"
        answer = await web.post(initialize())
        assert challenge(answer)["resource_metadata"] == f"https://h.example.com{WELL_KNOWN}/tools/mcp"
        assert (await web.post(initialize(), bearer(issuer.token(aud=aud(web))))).status == 401
        good = issuer.token(aud="https://h.example.com/tools/mcp")
        assert (await web.post(initialize(), bearer(good))).status == 200


@pytest.mark.parametrize(("method", "path"), [*PROTECTED, ("POST", "/mcp/reading"), ("GET", "/nothing")])
async def test_without_a_token_a_client_is_told_where_to_get_one(method: str, path: str, http: Web) -> None:
    """RFC 9728 §5.1, RFC 6750 §3; MCP 2025-06-18 and later: 401 with `resource_metadata`, `scope`, and no `error`."""
    answer = await http.ask(method, path, {"Accept": BOTH, "Content-Type": "application/json"})
    assert answer.status == 401
    told = challenge(answer)
    of = {"/messages": "/sse", "/nothing": "/mcp"}.get(path, path)
    assert told.pop("resource_metadata") == f"http://{http.host}{WELL_KNOWN}{of}"
    assert told == {"scope": "mcp:tools notes:read" if "reading" in path else "mcp:tools"}


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
async def test_a_bad_token_is_an_error_in_every_revision(revision: str, http: Web, issuer: TestIssuer) -> None:
    """RFC 6750 §3.1; MCP, basic/authorization: invalid or expired tokens → 401."""
    message, headers = modern("tools/list") if revision == "2026-07-28" else (initialize(revision), {})
    for token in (issuer.token(), issuer.token(aud=aud(http), exp=1), "opaque"):
        answer = await http.post(message, {**headers, **bearer(token)})
        assert answer.status == 401
        told = challenge(answer)
        assert told["error"] == "invalid_token"
        assert told["resource_metadata"] == f"http://{http.host}{WELL_KNOWN}/mcp"
        assert token not in answer.body.decode()


async def test_missing_scopes_are_named_all_at_once(http: Web, issuer: TestIssuer) -> None:
    """RFC 6750 §3.1; MCP 2025-11-25, basic/authorization: 403 with every scope that the operation needs."""
    token = issuer.token(aud=aud(http, "/mcp/reading"), scope="other")
    answer = await http.post(initialize(), bearer(token), path="/mcp/reading")
    assert answer.status == 403
    told = challenge(answer)
    assert told["error"] == "insufficient_scope"
    assert told["scope"] == "mcp:tools notes:read"
    assert told["resource_metadata"] == f"http://{http.host}{WELL_KNOWN}/mcp/reading"
    enough = issuer.token(aud=aud(http, "/mcp/reading"), scope=told["scope"])
    assert (await http.post(initialize(), bearer(enough), path="/mcp/reading")).status == 200


async def test_a_token_comes_once_and_never_in_the_url(http: Web, issuer: TestIssuer) -> None:
    """RFC 6750 §2; MCP, basic/authorization: access tokens MUST NOT be in the query."""
    good = issuer.token(aud=aud(http))
    assert (await http.post(initialize(), path=f"/mcp?access_token={good}")).status == 400
    twice = [("Authorization", f"Bearer {good}"), ("Authorization", f"Bearer {good}")]
    assert (await http.post(initialize(), twice)).status == 400
    for other in ("Basic YW5uOnB3", "Bearer", "Negotiate x"):
        answer = await http.post(initialize(), {"Authorization": other})
        assert answer.status == 401
        assert "error" not in challenge(answer)


async def test_who_has_no_token_learns_nothing_else(http: Web) -> None:
    """Ours: health is for everybody, names of servers are not."""
    assert (await http.ask("GET", "/healthz")).status == 200
    assert "notReady" not in (await http.ask("GET", "/readyz")).json


async def test_a_client_is_not_turned_away_while_the_issuer_is_down(issuer: TestIssuer) -> None:
    """RFC 9110 §15.6.4."""
    issuer.down = True
    async with a_web({"up": ScriptedServer()}, authenticator=issuer.server()) as web:
        answer = await web.post(initialize(), bearer(issuer.token()))
        assert answer.status == 503
        assert "retry-after" in answer.headers
        assert "www-authenticate" not in answer.headers


# --- who is let in ----------------------------------------------------------------------------


async def test_a_good_token_opens_what_it_is_for(http: Web, issuer: TestIssuer) -> None:
    """docs/identity-team.md#the-gateway: sessions, stateless requests, views."""
    good = bearer(issuer.token(aud=aud(http)))
    client = await http.session(headers=good)
    assert (await client.ask("tools/list")).status == 200
    assert (await http.stateless("tools/list", headers={**good})).status == 200
    assert (await http.post(initialize(), good, path="/mcp/reading")).status == 401


async def test_whoever_runs_it_reads_which_audience_tokens_have(
    http: Web, issuer: TestIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    """docs/identity-team.md#audiences: in the log, and not once for each request."""
    caplog.set_level("INFO", "muxway")
    for _ in range(3):
        answer = await http.ask("POST", "/mcp", bearer(issuer.token(aud="account")))
        assert answer.status == 401
    (line,) = [one.getMessage() for one in caplog.records if "another audience" in one.getMessage()]
    assert "audience=account" in line
    assert aud(http) in line


async def test_http_sse_is_guarded_as_the_view_it_was_opened_for(http: Web, issuer: TestIssuer) -> None:
    """Ours: `/messages` names no view, its stream does."""
    good = bearer(issuer.token(aud=aud(http, "/sse/reading"), scope="mcp:tools notes:read"))
    stream = await http.open("GET", "/sse/reading", {**good, "Accept": "text/event-stream"})
    assert stream.status == 200
    where = (await stream.event()).data.decode()
    elsewhere = bearer(issuer.token(aud=aud(http, "/sse"), scope="mcp:tools notes:read"))
    assert (await http.post(initialize("2024-11-05"), elsewhere, path=where)).status == 401
    assert (await http.post(initialize("2024-11-05"), good, path=where)).status == 202
    assert (await stream.message())["result"]["protocolVersion"] == "2024-11-05"


@pytest.mark.parametrize("path", ["/sse", "/sse/", "/sse/reading"])
async def test_http_sse_of_a_gateway_that_serves_one_view_takes_one_token_for_both_halves(
    path: str, issuer: TestIssuer
) -> None:
    """Ours: with `--view`, what is at `/sse` is a view, under another address than that of the view."""
    async with a_web({"up": ScriptedServer()}, top={"views": VIEWS}, view="reading") as web:
        web.door.admit((), {}, issuer.server(own=(f"http://{web.host}",), views=VIEWS, view="reading"))
        good = bearer(issuer.token(aud=aud(web, path), scope="notes:read"))
        stream = await web.open("GET", path, {**good, "Accept": "text/event-stream"})
        where = (await stream.event()).data.decode()
        assert (await web.post(initialize("2024-11-05"), good, path=where)).status == 202


async def test_tokens_of_the_configuration_count_beside_access_tokens(issuer: TestIssuer) -> None:
    """docs/identity-team.md#more-than-one-kind: one credential has one kind, and one verdict."""
    async with a_web({"up": ScriptedServer()}, guard=Guard(tokens=["plain-token"])) as web:
        web.door.admit(["plain-token"], {}, issuer.server())
        assert (await web.post(initialize(), bearer("plain-token"))).status == 200
        assert (await web.post(initialize(), bearer(issuer.token()))).status == 200
        assert (await web.post(initialize(), bearer("plain-tokem"))).status == 401
        assert (await web.post(initialize())).status == 401


async def test_guesses_at_a_token_of_the_configuration_are_counted_beside_access_tokens(issuer: TestIssuer) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: ten a minute; signed tokens are no guesses."""
    async with a_web({"up": ScriptedServer()}) as web:
        web.door.admit(["plain-token"], {}, issuer.server())
        statuses = [(await web.post(initialize(), bearer(f"guess-{number}"))).status for number in range(12)]
        assert statuses == [401] * 10 + [429] * 2
        assert (await web.post(initialize(), bearer(issuer.token(exp=1)))).status == 401
        for good in ("plain-token", issuer.token()):
            assert (await web.post(initialize(), bearer(good))).status == 200


async def test_many_expired_tokens_behind_one_address_are_no_guesses(http: Web, issuer: TestIssuer) -> None:
    """Ours: a client that hears 429 would never renew its token."""
    for number in range(30):
        answer = await http.post(initialize(), bearer(issuer.token(aud=aud(http), exp=1, jti=number)))
        assert answer.status == 401


# --- what a newer token leaves alone ------------------------------------------------------------


async def test_a_renewed_token_keeps_the_session_and_another_user_never_has_it(http: Web, issuer: TestIssuer) -> None:
    """MCP 2025-11-25, basic/security_best_practices: a session is bound to its user."""
    client = await http.session(headers=bearer(issuer.token(aud=aud(http))))
    for number in range(20):
        client.headers.update(bearer(issuer.token(aud=aud(http), jti=number)))
        assert (await client.ask("tools/list")).status == 200
    for other in ({"sub": "bob"}, {"client_id": "another"}):
        client.headers.update(bearer(issuer.token(aud=aud(http), **other)))
        assert (await client.ask("tools/list")).status == 404
        assert (await http.ask("DELETE", "/mcp", client.headers)).status == 404
        assert (await http.ask("GET", "/mcp", {**client.headers, "Accept": "text/event-stream"})).status == 404
    client.headers.update(bearer(issuer.token(aud=aud(http), jti="last")))
    assert (await client.ask("tools/list")).status == 200


async def test_a_token_that_ends_is_noticed_on_a_connection_that_stays(http: Web, issuer: TestIssuer) -> None:
    """Ours: what a client repeats byte for byte is not parsed again, but its token is looked at."""
    good = bearer(issuer.token(aud=aud(http), exp=int(issuer.clock.wall()) + 100))
    client = await http.session(headers=good)
    opened = await http.connect()
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    usual = {"Host": http.host, "Content-Type": "application/json", "Accept": BOTH, **client.headers}
    lines = [f"{name}: {value}" for name, value in {**usual, "Content-Length": str(len(body))}.items()]
    message = "\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + body
    statuses: list[int] = []
    async with asyncio.timeout(30):
        while 401 not in statuses:
            opened.writer.write(message)
            statuses.append((await opened.head()).status)
            await opened.rest()
            if len(statuses) == 3:
                issuer.clock.ahead = 200
    assert statuses[:3] == [200, 200, 200]


async def test_credentials_are_looked_at_again_whatever_goes_wrong_meanwhile(
    issuer: TestIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: else a token that has ended would count for as long as its connection stays."""
    monkeypatch.setattr(http_authorization, "_RENEWED_EVERY", 0.001)
    wrong = list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context["exception"]))
    authorization = HttpAuthorization(Guard(), issuer.server(), lambda _: None)
    authorization.open()

    def fail() -> None:
        raise RuntimeError("a stream cannot be ended")

    authorization.on_renewed = fail
    seen = {authorization.terms}
    async with asyncio.timeout(20):
        while len(seen) < 4:
            await asyncio.sleep(0.001)
            seen.add(authorization.terms)
    assert all(isinstance(error, RuntimeError) for error in wrong)
    authorization.on_renewed = lambda: None
    authorization.close()


async def test_what_the_newest_token_says_of_a_user_counts_for_a_session(issuer: TestIssuer) -> None:
    """Ours: who has left a group is not kept in it by an open session."""
    async with a_web({"up": ScriptedServer()}, authenticator=issuer.server()) as web:
        client = await web.session(headers=bearer(issuer.token(groups=["dev", "ops"])))
        (session,) = web.door._handshake.sessions
        for groups in (["dev"], ["dev"], []):
            client.headers.update(bearer(issuer.token(groups=groups)))
            assert (await client.ask("tools/list")).status == 200
            caller = session.endpoint.session
            assert caller is not None
            assert caller.identity is not None
            assert caller.identity.groups == tuple(groups)


async def test_a_reload_without_the_issuer_ends_what_its_tokens_opened(http: Web, issuer: TestIssuer) -> None:
    """docs/reload.md: who could not come in now has nothing open."""
    await http.session(headers=bearer(issuer.token(aud=aud(http))))
    http.door.review()
    assert http.door.sessions == 1
    http.door.admit(["plain-token"], {})
    assert http.door.sessions == 0


async def test_a_client_that_leaves_before_it_is_known_who_it_is_leaves_nothing(issuer: TestIssuer) -> None:
    """Ours: whoever waits for the issuer may go."""
    held = asyncio.Event()
    fetch = issuer.fetch

    async def slow(name: str, url: str | None) -> list[Any]:
        await held.wait()
        return await fetch(name, url)

    issuer.fetch = slow  # pyright: ignore[reportAttributeAccessIssue]
    async with a_web({"up": ScriptedServer()}, authenticator=issuer.server()) as web:
        first = await web.raw(_raw(web, issuer))
        second = await web.raw(_raw(web, issuer))
        await asyncio.sleep(0.05)
        first.drop()
        held.set()
        assert (await second.head()).status == 200
        assert web.door.sessions == 1


@pytest.mark.parametrize("good", [True, False])
async def test_nothing_more_is_read_of_a_body_before_it_is_known_whose_it_is(
    good: bool, issuer: TestIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/security.md: however much strangers send, with tokens that have to be asked about first."""
    asked, held, fetch, read = asyncio.Event(), asyncio.Event(), issuer.fetch, list[int]()
    received = HttpConnection.data_received

    async def slow(name: str, url: str | None) -> list[Any]:
        asked.set()
        await held.wait()
        return await fetch(name, url)

    def noted(connection: HttpConnection, data: bytes) -> None:
        read.append(len(data))
        received(connection, data)

    issuer.fetch = slow  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr(HttpConnection, "data_received", noted)
    async with a_web({"up": ScriptedServer()}, authenticator=issuer.server()) as web:
        hello = json.dumps(initialize() | {"params": initialize()["params"] | {"more": "x" * 1_000_000}}).encode()
        token = issuer.token() if good else issuer.token(key=OTHER_RSA)
        head = _head(web, token, len(hello))
        opened = await web.raw(head + hello[:100])
        await asked.wait()
        opened.writer.write(hello[100:-1])
        assert (await web.ask("GET", "/healthz")).status == 200
        assert sum(read) < 10_000
        held.set()
        if good:
            opened.writer.write(hello[-1:])
        assert (await opened.head()).status == (200 if good else 401)


def _head(web: Web, token: str, length: int) -> bytes:
    lines = [
        "POST /mcp HTTP/1.1",
        f"Host: {web.host}",
        "Content-Type: application/json",
        f"Accept: {BOTH}",
        f"Authorization: Bearer {token}",
        f"Content-Length: {length}",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def _raw(web: Web, issuer: TestIssuer) -> bytes:
    body = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    body += b'"clientInfo":{"name":"x","version":"1"}}}'
    return _head(web, issuer.token(), len(body)) + body


async def test_the_callers_token_never_reaches_a_server(issuer: TestIssuer) -> None:
    """MCP 2025-11-25, basic/authorization: a server MUST NOT pass through the token it received."""
    up = ScriptedServer()
    async with a_web({"up": up}, authenticator=issuer.server()) as web:
        token = issuer.token(sub="canary-subject")
        client = await web.session(headers=bearer(token))
        await client.ask("tools/call", {"name": "up__echo", "arguments": {}})
        await web.post(request("tools/list"), {**client.headers})
        assert len(up.heard) > 2
        heard = repr(up.lines)
        assert token not in heard
        assert "canary-subject" not in heard


async def test_the_public_name_is_not_believed(http: Web, issuer: TestIssuer) -> None:
    """Ours: whoever has a token for another gateway could call us by its name."""
    other = issuer.token(aud=f"http://127.0.0.1:{http.port + 1}/mcp")
    assert (await http.post(initialize(), {**bearer(other), "Host": f"127.0.0.1:{http.port + 1}"})).status == 401
    assert PUBLIC not in http.host


@pytest.mark.parametrize("kind", ["GET", "listen", "sse"])
async def test_a_stream_ends_with_the_token_it_was_opened_with(kind: str, http: Web, issuer: TestIssuer) -> None:
    """docs/identity-team.md#how-long-things-are-remembered: the client comes back, and hears 401."""
    until = int(time.time()) - LEEWAY + 2
    path = "/sse" if kind == "sse" else "/mcp"
    soon = bearer(issuer.token(aud=aud(http, path), exp=until))
    if kind == "GET":
        client = await http.session(headers=soon)
        stream = await http.open("GET", path, {**client.headers, "Accept": "text/event-stream"})
    elif kind == "sse":
        stream = await http.open("GET", path, {**soon, "Accept": "text/event-stream"})
    else:
        message, headers = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        usual = {"Accept": BOTH, "Content-Type": "application/json"}
        stream = await http.open("POST", path, {**usual, **headers, **soon}, json.dumps(message).encode())
    assert stream.status == 200
    async with asyncio.timeout(30):
        await stream.rest()
    again = await http.ask("GET", path, {**soon, "Accept": "text/event-stream"})
    assert (again.status, challenge(again)["error"]) == (401, "invalid_token")
    assert not http.door.gateway.ends


async def test_a_stream_of_http_sse_lasts_as_long_as_its_client_shows_newer_tokens(
    http: Web, issuer: TestIssuer
) -> None:
    """Ours: there the stream is the session, and to lose it is to lose all."""
    soon = bearer(issuer.token(aud=aud(http, "/sse"), exp=int(time.time()) - LEEWAY + 2))
    stream = await http.open("GET", "/sse", {**soon, "Accept": "text/event-stream"})
    where = (await stream.event()).data.decode()
    newer = bearer(issuer.token(aud=aud(http, "/sse")))
    assert (await http.post(initialize("2024-11-05"), newer, path=where)).status == 202
    ((until, _),) = http.door.gateway.ends.values()
    assert until > time.time() + 200


async def test_a_request_during_a_change_of_who_may_come_in_waits_for_it(issuer: TestIssuer) -> None:
    """docs/reload.md: nobody uses new servers by old terms, nor old servers by new ones."""
    async with a_web({"up": ScriptedServer()}) as web:
        assert (await web.post(initialize())).status == 200
        with web.door.held():
            asking = [asyncio.ensure_future(web.post(initialize(), headers)) for headers in ({}, bearer("plain"))]
            done, _ = await asyncio.wait(asking, timeout=0.1)
            assert not done
            assert (await web.ask("GET", "/healthz")).status == 200
            web.door.admit(["plain"], {}, issuer.server())
        assert [(await one).status for one in asking] == [401, 200]


@pytest.mark.parametrize("end", ["", "/"])
async def test_metadata_is_about_the_url_as_the_client_spells_it(end: str, http: Web, issuer: TestIssuer) -> None:
    """RFC 9728 §3.3: `resource` is identical to what the client uses, also with a slash at the end."""
    resource = (await http.ask("GET", f"{WELL_KNOWN}/mcp{end}")).json["resource"]
    assert resource == f"{aud(http)}{end}"
    assert (await http.post(initialize(), bearer(issuer.token(aud=resource)), path=f"/mcp{end}")).status == 200
    # Of the gateway as a whole, which is no endpoint, the usual one is meant.
    assert (await http.ask("GET", f"{WELL_KNOWN}{end}")).json["resource"] == aud(http)


async def test_the_own_token_is_of_the_user_who_runs_it() -> None:
    """docs/security.md#open-to-you: whoever has it may use what that user is logged in to."""
    guard = Guard()
    guard.expect(["own", "other"], {}, own="own")
    assert guard.principal([b"Bearer own"]) == b""
    assert guard.owner([b"Bearer own"]) != b""
    assert guard.principal([b"Bearer other"]) != b""
    guard.expect(["own", "other"], {})
    assert guard.principal([b"Bearer own"]) != b""


async def test_what_is_served_with_tls_calls_itself_so(issuer: TestIssuer) -> None:
    """RFC 9728 §3.3: without a public URL the name is the request's, the scheme is ours."""
    resources = issuer.server(own=("https://127.0.0.1:1",))._resources
    resources._scheme = "https"
    told = json.loads(resources.document(f"{WELL_KNOWN}/mcp", "127.0.0.1:1") or b"{}")
    assert told["resource"] == "https://127.0.0.1:1/mcp"
    assert b'resource_metadata="https://127.0.0.1:1/' in resources.challenge("/mcp", "127.0.0.1:1", None)
