"""HTTP+SSE of 2024-11-05: answers on one stream, messages posted elsewhere."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

import muxway

from .scripted import Remote, answer, behind, event, gateway, serving, text, until


@dataclass
class OldRemote(Remote):
    """An HTTP+SSE server: GET gives the stream, POST works at another path only."""

    endpoint: str = "/messages?session_id=s1"
    streams: list[web.StreamResponse] = field(default_factory=list)
    refusal: int = 405
    """The status of a POST to the stream's own address."""
    release: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.revision = "2024-11-05"
        self.sessions = False
        self.gets = OldRemote.listen
        self.posts = OldRemote.take

    async def listen(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        await response.write(f"event: endpoint\r\ndata: {self.endpoint}\r\n\r\n".encode())
        self.streams.append(response)
        await self.release.wait()
        return response

    async def take(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        if request.path != "/messages":
            return web.Response(status=self.refusal)
        params, id_ = message.get("params", {}), message.get("id")
        match message.get("method"):
            case "initialize":
                info = {"name": "old", "version": "1"}
                result = {"protocolVersion": self.revision, "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                result = {
                    "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "big", "bad")]
                }
            case "tools/call" if params["name"] == "big":
                result = text("x" * 200_000)
            case "tools/call" if params["name"] == "bad":
                return web.Response(status=500, text="out of order")
            case "tools/call":
                result = text(str(params["arguments"]))
            case _:
                return web.Response(status=202, text="Accepted")
        assert id_ is not None
        await self.streams[-1].write(event(answer(message, result), event="message"))
        return web.Response(status=202, text="Accepted")


@pytest.mark.parametrize("kind", [{"type": "sse"}, {}])
async def test_an_old_server_is_reached_whether_its_kind_is_given_or_not(kind: dict[str, str]) -> None:
    """docs/transports.md#servers-by-url: discover, initialize, then the stream."""
    remote = OldRemote()
    async with behind(remote, **kind, headers={"X-Key": "k"}) as up:
        (server,) = up.servers()
        assert (server.error, server.revision) == (None, "2024-11-05")
        assert (await up.call("up.echo", {"a": 1})).text == "{'a': 1}"
    (call,) = remote.of("tools/call")
    assert call.path == "/messages?session_id=s1"
    assert {seen.headers.get("X-Key") for seen in remote.seen} == {"k"}
    tried = [seen.method for seen in remote.seen if seen.path == "/mcp" and seen.verb == "POST"]
    assert tried == ([] if kind else ["server/discover", "initialize"])


@pytest.mark.parametrize("status", [400, 404, 405, 415])
async def test_each_way_to_refuse_a_post_leads_to_the_stream(status: int) -> None:
    """MCP 2025-11-25, basic/transports: 400, 404 and 405; 2025-03-26 has any 4xx, so we are lenient on others."""
    async with behind(OldRemote(refusal=status)) as up:
        assert up.servers()[0].status is muxway.Status.RUNNING


@pytest.mark.parametrize("status", [401, 403, 429, 500])
async def test_a_refusal_that_is_about_something_else_does_not(status: int) -> None:
    """MCP 2025-11-25, basic/transports: only 400, 404 and 405 lead there; these are about something else."""
    remote = OldRemote(refusal=status)
    async with behind(remote) as up:
        assert f"HTTP status {status}" in (up.servers()[0].error or "")
    # Whether a login is wanted is looked up (RFC 9728 §3.1); nothing else is.
    assert [seen for seen in remote.of(None, "GET") if not seen.path.startswith("/.well-known/oauth-")] == []


async def test_a_server_said_to_be_http_is_never_tried_as_an_old_one() -> None:
    """docs/transports.md#servers-by-url: `type` decides."""
    remote = OldRemote()
    async with behind(remote, type="http") as up:
        assert "HTTP status 405" in (up.servers()[0].error or "")
    assert remote.of(None, "GET") == []


async def test_a_server_that_speaks_neither_is_told_with_both_reasons() -> None:
    """Ours: whoever configured it must see what was tried."""
    async with behind(Remote(posts=lambda *_: _status(404))) as up:
        error = up.servers()[0].error or ""
    assert "HTTP status 404" in error
    assert "nor does it speak HTTP+SSE: it answered with HTTP status 405" in error


async def _status(status: int) -> web.Response:
    return web.Response(status=status)


async def test_an_endpoint_on_another_origin_is_refused() -> None:
    """docs/security.md#what-is-promised-threat-by-threat: the configured headers would go there."""
    other = Remote()
    async with serving(other) as elsewhere:
        for endpoint in (elsewhere, "//localhost:1/messages", "file:///etc/passwd"):
            async with behind(OldRemote(endpoint=endpoint), type="sse") as up:
                assert "another origin" in (up.servers()[0].error or "")
    assert other.seen == []


async def test_an_absolute_endpoint_on_the_same_origin_is_taken() -> None:
    """MCP 2024-11-05, basic/transports: the endpoint is a URI, absolute or relative (RFC 3986 §4.1)."""
    remote = OldRemote()
    async with serving(remote) as url:
        remote.endpoint = url.replace("/mcp", "/messages?x=1")
        async with gateway(url, type="sse") as up:
            assert up.servers()[0].error is None


async def test_when_the_stream_ends_the_server_is_lost() -> None:
    """docs/transports.md#sessions: on HTTP+SSE the connection is the session."""
    remote = OldRemote()
    async with behind(remote, type="sse") as up:
        remote.release.set()
        await until(lambda: up.servers()[0].status is muxway.Status.FAILED)
        assert "closed its event stream" in (up.servers()[0].error or "")


async def test_an_answer_that_is_too_large_fails_its_call_only() -> None:
    """docs/behaviour.md#size-limits: its call fails; others are undisturbed, though all answers share one stream."""
    async with behind(OldRemote(), type="sse", maxMessageBytes=100_000) as up:
        with pytest.raises(muxway.UpstreamError, match="over the size limit"):
            await up.call("up.big")
        assert (await up.call("up.echo", {"a": 1})).text == "{'a': 1}"


async def test_a_message_that_is_not_taken_fails_its_call_only() -> None:
    """Ours: no answer will come on the stream, so nobody waits for it."""
    async with behind(OldRemote(), type="sse") as up:
        with pytest.raises(muxway.UpstreamError, match=r'server "up" answered with HTTP status 500.*out of order'):
            await up.call("up.bad")
        assert (await up.call("up.echo", {"a": 1})).text == "{'a': 1}"


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (b"data: hello\n\n", "text/event-stream", "did not begin its event stream with an `endpoint`"),
        (b"", "text/event-stream", "closed its event stream"),
        (b"<html>", "text/html", "gave no event stream for a GET"),
        (b"data: " + b"x" * 300_000, "text/event-stream", "did not begin its event stream"),
    ],
)
async def test_a_stream_that_begins_otherwise_is_refused(body: bytes, kind: str, words: str) -> None:
    """MCP 2024-11-05, basic/transports: the first event names the endpoint."""

    async def get(remote: Remote, request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, headers={"Content-Type": kind})

    async with behind(Remote(gets=get), type="sse", maxMessageBytes=100_000) as up:
        (server,) = up.servers()
        assert server.status is muxway.Status.FAILED
        assert words in (server.error or "")


async def test_a_silent_stream_is_asked_before_it_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ours: a stream is idle after 5 min; but many old servers say nothing unless asked."""
    monkeypatch.setattr("muxway.servers.transports.http_sse._IDLE", 0.2)
    monkeypatch.setattr("muxway.servers.transports.http_sse._NUDGED", 1.0)
    deaf = False

    @dataclass
    class Awake(OldRemote):
        def __post_init__(self) -> None:
            super().__post_init__()
            self.posts = Awake.answer_pings

        async def answer_pings(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
            if message.get("method") == "ping" and not deaf:
                await self.streams[-1].write(event(answer(message, {})))
            return await self.take(request, message)

    remote = Awake()
    async with behind(remote, type="sse") as up:
        await until(lambda: len(remote.of("ping")) >= 3)
        assert up.servers()[0].status is muxway.Status.RUNNING
        deaf = True
        await until(lambda: up.servers()[0].restarts)
        assert "sent nothing for 1 s" in caplog.text
