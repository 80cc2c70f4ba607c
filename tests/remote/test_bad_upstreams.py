"""Remote servers that fail in every way there is: a clear answer each time, and nobody else disturbed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

import muxway

from .scripted import Remote, answer, behind, event, gateway, raw_server, reply, serving, stream, text, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: "


async def failure(up: muxway.Gateway, tool: str = "up.bad") -> str:
    """The message of a call that fails; and the server is still good for others."""
    with pytest.raises(muxway.RpcError) as caught:
        await up.call(tool)
    assert caught.value.message.startswith('server "up" ')
    assert (await up.call("up.echo", {"still": "here"})).text == '{"still": "here"}'
    assert up.servers()[0].status is muxway.Status.RUNNING
    return caught.value.message


def raw(words: bytes, *, reset: bool = False) -> Callable[..., Awaitable[web.StreamResponse]]:
    """A tool whose call is answered with these bytes in place of HTTP, and the end of the connection."""

    async def talk(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        transport.write(words.replace(b"%id%", str(message["id"]).encode()))
        if reset:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.close()
        await asyncio.sleep(60)
        raise AssertionError

    return talk


async def test_a_server_that_refuses_connections_fails_with_its_reason() -> None:
    """docs/behaviour.md#a-remote-server-errs: it says so. Quickly, as there is nothing to wait for."""
    began = time.monotonic()
    for kind in ("http", "sse", "auto"):
        entry = {} if kind == "auto" else {"type": kind}
        async with gateway("http://127.0.0.1:1/mcp", **entry) as up:
            (server,) = up.servers()
            assert server.status is muxway.Status.FAILED
            assert server.error is not None
            assert "cannot be reached" in server.error
            assert "is its URL right?" in server.error
            with pytest.raises(muxway.RpcError, match='server "up" is not running'):
                await up.call("up.echo")
    assert time.monotonic() - began < 10


async def test_a_host_that_does_not_exist_is_named_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/behaviour.md#a-remote-server-errs: the call fails with the reason."""

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    async with gateway("http://nowhere.invalid/mcp") as up:
        assert "its host name is not known" in (up.servers()[0].error or "")


@pytest.mark.parametrize("header", [{"X-Bad": "a\nb"}, {"X Bad": "a"}, {"X-Bad": "€"}])
async def test_a_header_that_cannot_be_sent_is_named(header: dict[str, str]) -> None:
    """Ours: the name, never the value."""
    try:
        async with gateway("http://127.0.0.1:1/mcp", headers=header) as up:
            error = up.servers()[0].error or ""
            assert f"header `{next(iter(header))}`" in error
    except muxway.ConfigError as refused:
        assert next(iter(header)) in str(refused.details)  # noqa: PT017 - either place may notice


@pytest.mark.parametrize("era", ["stateless", "handshake"])
@pytest.mark.parametrize(
    ("words", "reset", "expected"),
    [
        (b"", True, "connection"),
        (b"", False, "closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", False, "not HTTP"),
        (f"{HEAD}application/json\r\nContent-Length: 999\r\n\r\n{{".encode(), False, "broke off"),
        (f"{HEAD}application/json\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n{{".encode(), False, "broke off"),
        (f"{HEAD}application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{{".encode(), False, "server"),
        (f"{HEAD}text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n20\r\ndata".encode(), False, "broke off"),
        (f"{HEAD}text/event-stream\r\n\r\ndata: {{".encode(), False, "ended its event stream before the answer"),
        (f"{HEAD}application/json\r\nContent-Encoding: gzip\r\n\r\nnot gzip".encode(), False, "server"),
    ],
)
async def test_a_connection_that_breaks_fails_its_own_call(era: str, words: bytes, reset: bool, expected: str) -> None:
    """docs/behaviour.md#a-remote-server-errs: resets, a truncated chunk."""
    async with behind(Remote(era, calls={"bad": raw(words, reset=reset)})) as up:
        assert expected in await failure(up)


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_a_server_that_stalls_after_its_headers_is_given_up_in_time(kind: str) -> None:
    """docs/behaviour.md#a-remote-server-errs: it stalls; the time limit of calls holds here too."""
    gone = asyncio.Event()

    async def stall(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        try:
            await asyncio.sleep(60)
        finally:
            gone.set()
        return response

    async with behind(Remote("stateless", calls={"bad": stall}), callTimeout=0.5) as up:
        assert "gave no sign for 0.5 s" in await failure(up)
        await asyncio.wait_for(gone.wait(), 30)


@pytest.mark.parametrize("era", ["stateless", "handshake"])
@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "set or renew `headers`"),
        (403, "check the credentials"),
        (404, "check the path of `url`"),
        (405, "check the path of `url`"),
        (429, "gets too many requests; try again later); it asks to wait 7 s"),
        (500, "internal error"),
        (502, "cannot reach it"),
        (418, "HTTP status 418"),
    ],
)
async def test_an_http_error_says_what_it_means(era: str, status: int, advice: str) -> None:
    """docs/behaviour.md#a-remote-server-errs: 401, 403, 404, 429, 500, 502, each with what it means."""

    async def refuse(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        return web.Response(status=status, text="because\x1b[31m\nof this", headers={"Retry-After": "7"})

    async with behind(Remote(era, sessions=False, calls={"bad": refuse})) as up:
        message = await failure(up)
    assert f"HTTP status {status}" in message
    assert advice in message
    assert "because\\x1b[31m of this" in message


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 502])
async def test_a_server_that_refuses_from_the_start_fails_with_the_status(status: int) -> None:
    """docs/behaviour.md#a-remote-server-errs: the same before anything was said."""

    async def refuse(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        return web.Response(status=status)

    async with behind(Remote(posts=refuse)) as up:
        (server,) = up.servers()
        assert server.status is muxway.Status.FAILED
        assert f'server "up" answered with HTTP status {status}' in (server.error or "")


async def test_secrets_that_a_server_sends_back_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: masked, also when a server sends them back."""

    async def tell_tales(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        return web.Response(status=403, text=f"you sent {dict(request.headers)}")

    caplog.set_level(logging.DEBUG)
    headers = {"Authorization": "Bearer s3cr3t-t0ken", "X-Plain": "not-so-secret"}
    async with behind(Remote(calls={"bad": tell_tales}), headers=headers) as up:
        message = await failure(up)
    assert "you sent" in message
    assert "s3cr3t" not in message + caplog.text
    assert "not-so-secret" not in message + caplog.text


@pytest.mark.parametrize("status", [200, 500])
async def test_a_web_page_is_shown_by_its_title(status: int) -> None:
    """docs/behaviour.md#a-remote-server-errs: a page of HTML."""

    async def page(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        body = "<!DOCTYPE html><html><title>Log in</title><body>" + "blah" * 1000
        return web.Response(status=status, text=body, content_type="text/html")

    async with behind(Remote(calls={"bad": page})) as up:
        message = await failure(up)
    assert 'a web page titled "Log in"' in message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("text/plain", b"hello", "answered with text/plain instead of JSON or an event stream: hello"),
        ("application/json", b"", "took the request with HTTP status 200 but gave no answer"),
        ("application/json", b"{nonsense", "sent an answer that cannot be read"),
        ("application/json", b'"a string"', "sent an answer that cannot be read"),
        ("application/json", b"\xff\xfe", "sent an answer that cannot be read"),
        ("application/json", b"[]", "gave an answer to another request"),
        ("application/json", b'{"jsonrpc":"2.0","id":999999,"result":{}}', "gave an answer to another request"),
        ("application/json", b'{"jsonrpc":"2.0","id":%id%,"result":7}', "a result that is not an object"),
        ("application/json", b"[" * 100_000, "sent an answer that cannot be read"),
        ("text/event-stream", b"data: {nonsense\n\n", "sent an answer that cannot be read"),
        ("application/octet-stream", b"\x00\x01", "answered with application/octet-stream"),
    ],
)
async def test_an_answer_that_is_none_fails_its_own_call(kind: str, body: bytes, expected: str) -> None:
    """docs/behaviour.md#a-remote-server-errs: an answer that is none."""

    async def bad(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        filled = body.replace(b"%id%", str(message["id"]).encode())
        return web.Response(body=filled, headers={"Content-Type": kind})

    async with behind(Remote(calls={"bad": bad})) as up:
        assert expected in await failure(up)


async def test_a_request_that_is_only_accepted_fails() -> None:
    """MCP 2025-11-25, basic/transports: 202 is for what needs no answer."""

    async def accept(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        return web.Response(status=202)

    async with behind(Remote(calls={"bad": accept})) as up:
        assert "took the request with HTTP status 202 but gave no answer" in await failure(up)


async def test_an_answer_in_a_batch_is_found() -> None:
    """MCP 2025-03-26, basic/transports: the answer may be an array."""

    async def batch(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        return web.json_response([answer(message, text("in a list"))])

    async with behind(Remote(revision="2025-03-26", calls={"batch": batch})) as up:
        assert (await up.call("up.batch")).text == "in a list"


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_over_the_limit_fails_its_own_call(streamed: bool) -> None:
    """docs/behaviour.md#size-limits: huge bodies, endless events. It is not read to its end."""
    sent = 0

    async def endless(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        nonlocal sent
        kind = "text/event-stream" if streamed else "application/json"
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        await response.write(b'data: {"jsonrpc":' if streamed else b'{"jsonrpc":')
        with contextlib.suppress(ConnectionError):
            while sent < 1 << 28:
                await response.write(b" " * 65536)
                sent += 65536
        return response

    async with behind(Remote(calls={"bad": endless}), maxMessageBytes=200_000) as up:
        assert "over the size limit of 200000 bytes (maxMessageBytes)" in await failure(up)
    assert sent < 1 << 26


async def test_an_answer_just_under_the_limit_arrives() -> None:
    """Ours: python-sdk#3332, where a large event of a remote server fails."""

    async def big(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        result = answer(message, text("x" * 5_000_000))
        return (
            await stream(request, event(result))
            if message["params"]["arguments"]["sse"]
            else reply(message, result["result"])
        )

    async with behind(Remote(calls={"big": big})) as up:
        for sse in (True, False):
            assert len((await up.call("up.big", {"sse": sse})).text) == 5_000_000


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_elsewhere_is_not_followed(status: int) -> None:
    """docs/behaviour.md#a-remote-server-errs: headers are for one origin; another port is another (RFC 6454 §5)."""
    other = Remote()

    async def away(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": f"{other.url}?token=abc"})

    async with serving(other), behind(Remote(calls={"bad": away})) as up:
        message = await failure(up)
    assert "redirects" in message
    assert "token=abc" not in message
    assert other.seen == []


async def test_redirects_in_circles_end() -> None:
    """Ours."""

    async def around(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        if message.get("method") == "tools/call" and message["params"]["name"] == "bad":
            return web.Response(status=307, headers={"Location": "/mcp"})
        return None

    async with behind(Remote("stateless", calls={"bad": raw(b"")}, posts=around)) as up:
        assert "redirects in circles" in await failure(up)


async def test_a_session_id_that_cannot_be_sent_back_is_refused() -> None:
    """MCP 2025-11-25, basic/transports: a session id is visible ASCII."""

    async def odd(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        if message["method"] != "initialize":
            return None
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
        return reply(message, result, headers={"Mcp-Session-Id": "a b"})

    async with behind(Remote(posts=odd)) as up:
        assert "session id that cannot be sent back" in (up.servers()[0].error or "")


async def test_a_server_that_never_says_anything_is_not_waited_for_beyond_its_time() -> None:
    """docs/behaviour.md#a-remote-server-errs: it connects and stays silent; ending the gateway does not wait either."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    began = time.monotonic()
    async with raw_server(silent) as url, gateway(url, startTimeout=1) as up:
        assert "was not ready after 1 s" in (up.servers()[0].error or "")
    assert time.monotonic() - began < 6


async def test_a_slow_call_holds_nobody_up() -> None:
    """Ours: every message has its own request."""
    release = asyncio.Event()

    async def slow(remote: Remote, request: web.Request, message: dict[str, Any]) -> None:
        await release.wait()

    remote = Remote(calls={"slow": slow})
    async with behind(remote) as up:
        calls = [asyncio.create_task(up.call("up.slow")) for _ in range(20)]
        await until(lambda: len(remote.of("tools/call")) == 20)
        assert (await up.call("up.echo", {"a": 1})).text == json.dumps({"a": 1})
        release.set()
        await asyncio.gather(*calls)


async def test_stopping_with_calls_under_way_is_quick() -> None:
    """Ours: close() is bounded, whatever the server does."""

    async def never(remote: Remote, request: web.Request, message: dict[str, Any]) -> None:
        await asyncio.sleep(60)

    remote = Remote(calls={"never": never})
    began = time.monotonic()
    async with serving(remote) as url:
        async with gateway(url) as up:
            call = asyncio.create_task(up.call("up.never"))
            await until(lambda: remote.of("tools/call"))
        with pytest.raises(muxway.RpcError):
            await call
    assert time.monotonic() - began < 5


async def test_a_connection_that_is_never_made_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: 5 s to connect; here less, with a listener whose queue is full."""
    monkeypatch.setattr("muxway.net.http_dialing.CONNECT", 0.3)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        async with gateway(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp") as up:
            assert "no connection within 0.3 s" in (up.servers()[0].error or "")


async def test_more_calls_than_there_are_connections_are_told_so_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: 5 s for a free connection; a cancellation does not wait behind the calls."""
    monkeypatch.setattr("muxway.servers.transports.http._SPARE", 2 - 64)
    monkeypatch.setattr("muxway.servers.transports.http._POOL_WAIT", 0.2)
    release = asyncio.Event()

    async def slow(remote: Remote, request: web.Request, message: dict[str, Any]) -> None:
        await release.wait()

    remote = Remote(calls={"slow": slow})
    async with behind(remote) as up:
        calls = [asyncio.create_task(up.call("up.slow")) for _ in range(2)]
        await until(lambda: len(remote.of("tools/call")) == 2)
        with pytest.raises(muxway.UpstreamError, match="has 2 requests under way") as busy:
            await up.call("up.slow")
        assert busy.value.data["muxway"]["reason"] == "overloaded"
        calls[0].cancel()
        await until(lambda: remote.of("notifications/cancelled"))
        release.set()
        await calls[1]
    assert len(remote.of("tools/call")) == 2
