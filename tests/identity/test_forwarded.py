"""Chosen headers of callers reach the server they are chosen for; who sends another value shares nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from muxway.clients.transports.guard import Guard
from muxway.config import parse_config
from muxway.errors import ConfigError

from ..remote.scripted import Remote, reply, serving, text
from ..serve.harness import Web, a_web, modern

if TYPE_CHECKING:
    from aiohttp import web as aiohttp_web

NEVER = [
    *("Authorization", "authorization", "Cookie", "Set-Cookie", "X-Api-Key", "Proxy-Authorization", "Proxy-Connection"),
    *("Connection", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Host", "Content-Length"),
    *("Content-Type", "Accept", "Accept-Encoding", "Origin", "Mcp-Session-Id", "MCP-Protocol-Version", "Last-Event-ID"),
]


def parsed(entry: dict[str, Any]) -> Any:
    return parse_config({"mcpServers": {"up": {"url": "https://up.example", **entry}}}).servers["up"]


def test_names_are_read_in_any_spelling() -> None:
    """RFC 9110 §5.1: header names have no case."""
    assert parsed({"forward": ["X-Tenant-Id", "x-trace"]}).forward == ("x-tenant-id", "x-trace")


@pytest.mark.parametrize("name", NEVER)
def test_credentials_and_what_belongs_to_a_connection_are_never_forwarded(name: str) -> None:
    """RFC 9110 §7.6.1; MCP 2025-11-25, basic/authorization: no token is passed through."""
    with pytest.raises(ConfigError, match="never forwarded"):
        parsed({"forward": [name]})


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"forward": ["X Tenant"]}, "not the name of an HTTP header"),
        ({"forward": ["X-Tenant\r\nCookie"]}, "not the name of an HTTP header"),
        ({"forward": "X-Tenant"}, "must be an array"),
        ({"forward": ["X-Tenant"], "headers": {"x-tenant": "1"}}, "is in `headers` already"),
    ],
)
def test_what_cannot_be_meant_is_refused(entry: dict[str, Any], said: str) -> None:
    """docs/configuration.md#servers."""
    with pytest.raises(ConfigError) as caught:
        parsed(entry)
    assert any(said in problem.message for problem in caught.value.details), caught.value.details


def test_a_program_gets_no_headers() -> None:
    """Ours: a key without effect is a mistake."""
    config = parse_config({"mcpServers": {"up": {"command": "x", "forward": ["X-Tenant"]}}})
    assert config.servers["up"].forward == ()
    assert any("only servers by `url`" in problem.message for problem in config.warnings)


async def whose(_: Remote, request: aiohttp_web.Request, message: dict[str, Any]) -> Any:
    """A tool that tells whose session it was called in, and with what."""
    session = request.headers.get("Mcp-Session-Id")
    told = {"tenant": request.headers.get("X-Tenant-Id"), "other": request.headers.get("X-Other"), "session": session}
    return reply(message, text(json.dumps(told)))


async def call(web: Web, headers: dict[str, str], *, stateless: bool = False) -> dict[str, Any]:
    params = {"name": "up__whose", "arguments": {}}
    if stateless:
        message, usual = modern("tools/call", params)
        answer = await web.post(message, {**usual, **headers})
    else:
        client = await web.session(headers=headers)
        answer = await client.ask("tools/call", params)
    assert answer.status == 200, answer.body
    return json.loads(answer.outcome["result"]["content"][0]["text"])


def forwarding(web: Web) -> None:
    web.door.forwards = ("x-tenant-id",)
    web.door.review()


@pytest.mark.parametrize("isolation", ["shared", "principal"])
@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_the_value_arrives_and_decides_who_shares_a_session(era: str, isolation: str, stateless: bool) -> None:
    """docs/identity-team.md#headers-of-callers."""
    remote = Remote(era, calls={"whose": whose})
    async with serving(remote) as url, a_web() as web:
        await web.world.gateway.add("up", url=url, forward=["X-Tenant-Id"], isolation=isolation)
        forwarding(web)
        told = [
            await call(web, headers, stateless=stateless)
            for headers in (
                {"X-Tenant-Id": "one", "X-Other": "canary"},
                {"X-Tenant-Id": "two"},
                {"X-Tenant-Id": "one"},
                {},
            )
        ]
    assert [one["tenant"] for one in told] == ["one", "two", "one", None]
    assert {one["other"] for one in told} == {None}
    if era == "handshake":
        sessions = [one["session"] for one in told]
        assert sessions[0] == sessions[2]
        assert len({*sessions}) == 3


async def test_one_session_may_send_another_value_with_each_request() -> None:
    """Ours: what a request brings counts for that request."""
    remote = Remote(calls={"whose": whose})
    async with serving(remote) as url, a_web() as web:
        await web.world.gateway.add("up", url=url, forward=["X-Tenant-Id"])
        forwarding(web)
        client = await web.session(headers={"X-Tenant-Id": "one"})
        for value in ("one", "two", "one"):
            client.headers["X-Tenant-Id"] = value
            answer = await client.ask("tools/call", {"name": "up__whose", "arguments": {}})
            assert json.loads(answer.outcome["result"]["content"][0]["text"])["tenant"] == value


@pytest.mark.parametrize("scope", ["private", "public"])
async def test_a_cached_result_is_not_given_to_who_sends_another_value(scope: str) -> None:
    """docs/middleware/cache.md: also what a server says is for everybody."""
    asked = 0

    async def counted(remote: Remote, request: aiohttp_web.Request, message: dict[str, Any]) -> Any:
        nonlocal asked
        asked += 1
        told = {**text(request.headers.get("X-Tenant-Id", "")), "ttlMs": 60_000, "cacheScope": scope}
        return reply(message, told)

    remote = Remote("stateless", calls={"whose": counted})
    top = {"middleware": [{"use": "cache", "seconds": 60, "tools": ["*"]}]}
    async with serving(remote) as url, a_web(top=top) as web:
        await web.world.gateway.add("up", url=url, forward=["X-Tenant-Id"])
        forwarding(web)
        message, usual = modern("tools/call", {"name": "up__whose", "arguments": {}})
        for value in ("one", "two", "one", "two"):
            answer = await web.post(message, {**usual, "X-Tenant-Id": value})
            assert answer.outcome["result"]["content"][0]["text"] == value
    assert asked == 2


async def test_only_the_server_that_wants_it_gets_it() -> None:
    """docs/identity-team.md#headers-of-callers."""
    one, two = Remote(calls={"whose": whose}), Remote(calls={"whose": whose})
    async with serving(one) as url, serving(two) as other, a_web(guard=Guard(tokens=["t0ken"])) as web:
        await web.world.gateway.add("up", url=url, forward=["X-Tenant-Id"])
        await web.world.gateway.add("two", url=other)
        forwarding(web)
        client = await web.session(headers={"X-Tenant-Id": "canary", "Authorization": "Bearer t0ken"})
        for name in ("up__whose", "two__whose"):
            assert (await client.ask("tools/call", {"name": name, "arguments": {}})).status == 200
    assert any(seen.headers.get("X-Tenant-Id") == "canary" for seen in one.seen)
    assert not any("canary" in str(dict(seen.headers)) for seen in two.seen)
    assert not any("t0ken" in str(dict(seen.headers)) for seen in (*one.seen, *two.seen))


async def test_a_doubled_or_endless_value_is_refused() -> None:
    """Ours: of two values nobody knows which one counts."""
    async with a_web() as web:
        forwarding(web)
        message, usual = modern("tools/list")
        pairs = [(name, value) for name, value in usual.items() if value is not None]
        doubled = [*pairs, ("X-Tenant-Id", "one"), ("X-Tenant-Id", "two")]
        assert (await web.post(message, doubled)).status == 400
        assert (await web.post(message, {**usual, "X-Tenant-Id": "x" * 2000})).status == 400
        assert (await web.post(message, {**usual, "X-Tenant-Id": "one"})).status == 200
