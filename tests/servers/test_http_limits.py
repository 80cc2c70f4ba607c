"""Bounds on what one remote server can cost: time, memory, connections."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

import muxway
from tests.pace import crowding
from tests.ports import free_port
from tests.remote.scripted import Remote, answer, behind, event, gateway, serving, stream, text, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.remote.scripted import Handler

MIB = 1 << 20


@functools.cache
def bomb(start: bytes) -> bytes:
    """Gzip of 200 MiB, in less than two."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    pieces = [packer.compress(piece) for piece in (start, *(b"x" * MIB,) * 200)]
    packed = b"".join((*pieces, packer.flush()))
    assert len(packed) < 2 * MIB
    return packed


@contextlib.contextmanager
def at_most(mebibytes: int) -> Iterator[None]:
    """Whatever happens inside takes no more memory than this at any time."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < mebibytes * MIB


@pytest.mark.parametrize(
    ("kind", "status"), [("application/json", 200), ("text/event-stream", 200), ("text/html", 500)]
)
async def test_a_compressed_bomb_costs_no_more_than_its_limit(kind: str, status: int) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: 16 MiB after inflate; here 1."""
    packed = bomb(b"data: " if kind == "text/event-stream" else b'{"jsonrpc":"2.0","x":"')

    async def explode(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.Response:
        headers = {"Content-Encoding": "gzip", "Content-Type": kind}
        return web.Response(status=status, body=packed, headers=headers)

    async with behind(Remote("stateless", calls={"explode": explode}), maxMessageBytes=MIB) as up:
        with at_most(24):
            began = time.monotonic()
            with pytest.raises(muxway.UpstreamError) as failed:
                await up.call("up.explode")
            assert time.monotonic() - began < 5
        assert failed.value.reason == ("too_large" if status == 200 else "lost")
        assert (await up.call("up.echo", {"a": 1})).text == '{"a": 1}'


@pytest.mark.parametrize("how", ["body", "comments", "event"])
async def test_a_slow_drip_is_bounded_by_the_clock_of_its_call(how: str) -> None:
    """docs/behaviour.md#a-remote-server-errs: a byte now and then is no sign of life of the call."""
    begun = {"body": b'{"jsonrpc":"2.0",', "comments": b"", "event": b"data: {"}[how]
    drop = {"body": b" ", "comments": b": still there\n\n", "event": b" "}[how]

    async def drip(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        kind = "application/json" if how == "body" else "text/event-stream"
        response = await stream(request, begun, **{"Content-Type": kind})
        for _ in range(200):
            await response.write(drop)
            await asyncio.sleep(0.05)
        return response

    async with behind(Remote("stateless", calls={"drip": drip}), callTimeout=0.6) as up:
        began = time.monotonic()
        with pytest.raises(muxway.UpstreamError) as failed:
            await up.call("up.drip")
        assert failed.value.reason == "timeout"
        assert 0.6 <= time.monotonic() - began < 2.5 + crowding()
        assert (await up.call("up.echo", {"a": 1})).text == '{"a": 1}'


async def test_an_event_without_end_is_cut_off_and_costs_no_more_than_its_limit() -> None:
    """docs/behaviour.md#size-limits: an endless SSE event."""
    cut = asyncio.Event()

    async def endless(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = await stream(request, b"data: ")
        try:
            while True:
                await response.write(b"x" * 65536)
        finally:
            cut.set()

    async with behind(Remote("stateless", calls={"endless": endless}), maxMessageBytes=MIB) as up:
        with at_most(16), pytest.raises(muxway.UpstreamError, match="over the size limit") as failed:
            await up.call("up.endless")
        assert failed.value.reason == "too_large"
        async with asyncio.timeout(30):
            await cut.wait()
        assert (await up.call("up.echo", {"a": 1})).text == '{"a": 1}'


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_call_is_not_sent_to_another_origin(status: int) -> None:
    """docs/behaviour.md#a-remote-server-errs: no cross-origin redirects, not even to another port of the same host."""
    elsewhere = Remote("stateless")

    async def moved(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.Response:
        return web.Response(status=status, headers={"Location": elsewhere.url})

    async with serving(elsewhere), behind(Remote("stateless", calls={"moved": moved})) as up:
        with pytest.raises(muxway.UpstreamError, match="redirects"):
            await up.call("up.moved")
    assert elsewhere.seen == []


async def test_a_host_name_that_is_never_found_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: connect 5 s, here less; looking up the name is a part of it."""
    monkeypatch.setattr("muxway.net.http_dialing.CONNECT", 0.3)

    async def lost(*_args: object, **_more: object) -> list[Any]:
        await asyncio.sleep(30)
        return []

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lost)
    began = time.monotonic()
    async with gateway("http://slow.example/mcp") as up:
        assert "no connection within 0.3 s" in (up.servers()[0].error or "")
        assert time.monotonic() - began < 5


# --- the circuit --------------------------------------------------------------------------------


def refuse(status: int) -> Handler:
    async def handler(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.Response:
        return web.Response(status=status)

    return handler


async def broken_call(up: muxway.Gateway, tool: str) -> muxway.UpstreamError:
    with pytest.raises(muxway.UpstreamError) as failed:
        await up.call(f"up.{tool}")
    return failed.value


async def test_a_remote_server_that_fails_five_times_in_a_row_is_connected_anew() -> None:
    """docs/behaviour.md#a-remote-server-errs: five failures in a row."""
    remote = Remote(calls={"bad": refuse(503)})
    async with behind(remote) as up:
        for _ in range(4):
            await broken_call(up, "bad")
        assert (await up.call("up.echo", {"a": 1})).text == '{"a": 1}'
        for _ in range(5):
            assert remote.opened == 1
            assert "503" in (await broken_call(up, "bad")).message
        await until(lambda: remote.opened == 2)
        await until(lambda: up.servers()[0].status is muxway.Status.RUNNING)
        assert (await up.call("up.echo", {"a": 2})).text == '{"a": 2}'


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 429])
async def test_a_refusal_of_one_request_does_not_end_the_others(status: int) -> None:
    """RFC 9110 §15.5: 4xx is about the request; RFC 6585 §4: 429 about its pace."""
    remote = Remote("stateless", calls={"bad": refuse(status)})
    async with behind(remote) as up:
        for _ in range(8):
            error = await broken_call(up, "bad")
            assert error.reason == ("overloaded" if status == 429 else "lost")
        assert len(remote.of("server/discover")) == 1
        assert (await up.call("up.echo", {"a": 1})).text == '{"a": 1}'


async def test_an_answer_of_the_server_is_no_failure_whatever_its_status() -> None:
    """Ours: not the server's own JSON-RPC errors, though they come with 500."""

    async def said(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.Response:
        error = {"code": -32000, "message": "out of paper"}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=500)

    remote = Remote("stateless", calls={"said": said})
    async with behind(remote) as up:
        for _ in range(8):
            with pytest.raises(muxway.UpstreamSaid, match="out of paper"):
                await up.call("up.said")
        assert len(remote.of("server/discover")) == 1


async def test_the_wait_that_a_server_asks_for_is_passed_on() -> None:
    """docs/behaviour.md#a-remote-server-errs.

    Everything over the limit answered with a time to come back; also a limit of the server.
    """

    async def busy(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": "7"})

    async with behind(Remote("stateless", calls={"busy": busy})) as up:
        error = await broken_call(up, "busy")
        assert error.data == {"muxway": {"reason": "overloaded", "upstream": "up", "retryAfterMs": 7000}}


async def test_calls_that_break_off_in_their_streams_count_too() -> None:
    """docs/behaviour.md#a-remote-server-errs.

    Transport failures of single requests; here a stream that ends before its answer.
    """

    async def cut(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        return await stream(request, event({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}))

    async def good(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        return await stream(request, event(answer(message, text("good"))))

    remote = Remote("stateless", calls={"cut": cut, "good": good})
    async with behind(remote) as up:
        for _ in range(4):
            assert "before the answer" in (await broken_call(up, "cut")).message
        assert (await up.call("up.good")).text == "good"
        for _ in range(5):
            assert len(remote.of("server/discover")) == 1
            await broken_call(up, "cut")
        await until(lambda: len(remote.of("server/discover")) == 2)


async def test_a_server_that_went_away_is_found_again_without_anybody_doing_anything() -> None:
    """docs/behaviour.md#a-remote-server-errs: the circuit opens, and a later try closes it."""
    port = free_port()

    @contextlib.asynccontextmanager
    async def there() -> Any:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", Remote("stateless").handle)
        runner = web.AppRunner(app, shutdown_timeout=0.2)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
        try:
            yield
        finally:
            await runner.cleanup()

    async with contextlib.AsyncExitStack() as stack:
        async with there():
            up = await stack.enter_async_context(gateway(f"http://127.0.0.1:{port}/mcp"))
            assert (await up.call("up.echo", {"a": 1})).text == '{"a": 1}'
        for _ in range(5):
            await broken_call(up, "echo")
        await until(lambda: up.servers()[0].status is not muxway.Status.RUNNING)
        began = time.monotonic()
        assert (await broken_call(up, "echo")).reason == "not_running"
        assert time.monotonic() - began < 1 + crowding()
        async with there():
            await until(lambda: up.servers()[0].status is muxway.Status.RUNNING)
            assert (await up.call("up.echo", {"a": 2})).text == '{"a": 2}'
