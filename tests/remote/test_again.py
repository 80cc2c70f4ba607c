"""What is done once more at a remote server, and what never is: calls, sessions, streams."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from aiohttp import web

import muxway
from muxway.servers.transports.http_retry import SHORTEST_PAUSE, Pauses, RemoteSession, session_after
from tests.remote.scripted import Remote, behind, stream, until


def _error(message: str, id_: Any = None, code: int = -32000) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}}).encode()


PAID = "payment was made, but the shop's browser session has expired"
REFUSALS: dict[str, tuple[int, bytes, RemoteSession]] = {
    "404": (404, b"", RemoteSession.GONE),
    "404 with an error": (404, _error("Session not found"), RemoteSession.GONE),
    "404 with an error for the request": (404, _error("Session not found", 7), RemoteSession.GONE),
    "404 with an answer": (404, _error("no such row", 7), RemoteSession.FINE),
    "TypeScript SDK": (400, _error("Bad Request: No valid session ID provided"), RemoteSession.GONE),
    "TypeScript SDK, restarted": (400, _error("Bad Request: Server not initialized"), RemoteSession.GONE),
    "Python SDK": (400, _error("Bad Request: Missing session ID", "server-error"), RemoteSession.GONE),
    "text": (400, b"Invalid session ID", RemoteSession.GONE),
    "text with a line end": (400, b"Invalid or missing session ID\n", RemoteSession.GONE),
    "an error without an id": (400, _error("I do not know this session of yours"), RemoteSession.GONE),
    "an object": (400, b'{"error":"Session not found"}', RemoteSession.GONE),
    "an object with a message": (400, b'{"error":{"message":"Session expired."}}', RemoteSession.GONE),
    "work that was done": (400, json.dumps({"error": PAID}).encode(), RemoteSession.DOUBTFUL),
    "work that was done, as text": (400, PAID.encode(), RemoteSession.DOUBTFUL),
    "a known sentence inside another": (400, b"done; then: Invalid session ID", RemoteSession.DOUBTFUL),
    "an error with another id": (400, _error(PAID, "x"), RemoteSession.DOUBTFUL),
    "a page": (400, b"<html><title>Your session has timed out</title></html>", RemoteSession.DOUBTFUL),
    "an answer": (400, _error("No valid session ID", 7), RemoteSession.FINE),
    "an answer with its id as text": (400, _error("No valid session ID", "7"), RemoteSession.FINE),
    "something else": (400, b"bad request", RemoteSession.FINE),
    "nothing": (400, b"", RemoteSession.FINE),
    "401": (401, b"Invalid session ID", RemoteSession.FINE),
    "500": (500, _error("session lost"), RemoteSession.FINE),
}


@pytest.mark.parametrize(("status", "body", "known"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_says_whether_the_request_was_taken(status: int, body: bytes, known: RemoteSession) -> None:
    """MCP 2025-11-25, basic/transports: 404 for a terminated session. 400 only in the known words of the SDKs."""
    assert session_after(status, body, b"7") is known


@pytest.mark.parametrize("name", [name for name, case in REFUSALS.items() if case[2] is not RemoteSession.FINE])
async def test_a_call_is_made_again_only_if_it_is_known_that_it_was_not_taken(name: str) -> None:
    """Ours: no call runs twice (docs/behaviour.md#a-remote-server-errs)."""
    status, body, known = REFUSALS[name]

    async def refuse(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        if message.get("method") == "tools/call" and remote.opened == 1:
            kind = "application/json" if body.startswith(b"{") else "text/plain"
            return web.Response(status=status, body=body, content_type=kind)
        return None

    remote = Remote(posts=refuse)
    async with behind(remote) as up:
        if known is RemoteSession.GONE:
            assert (await up.call("up.echo", {"a": 1})).text == '{"a": 1}'
        else:
            with pytest.raises(muxway.UpstreamError, match="may have run, so it was not sent again") as raised:
                await up.call("up.echo", {"a": 1})
            assert raised.value.reason == "lost"
        assert len(remote.of("tools/call")) == (2 if known is RemoteSession.GONE else 1)
        # The next call finds a session that is known, either way.
        assert (await up.call("up.echo", {"a": 2})).text == '{"a": 2}'
        assert remote.opened == 2


def test_pauses_have_a_floor_and_grow_while_nothing_comes() -> None:
    """Ours: whatever a server wishes for, it is not asked without a break."""
    pauses = Pauses(30.0)
    waits = [pauses.next(0.0, fruitful=False) for _ in range(12)]
    assert waits[0] == SHORTEST_PAUSE
    assert all(later == min(2 * wait, 30.0) for wait, later in itertools.pairwise(waits))
    assert pauses.next(0.0, fruitful=True) == SHORTEST_PAUSE
    assert pauses.next(7.0, fruitful=True) == 7.0
    assert pauses.next(None, fruitful=False) == SHORTEST_PAUSE
    assert Pauses(1.0).next(60.0, fruitful=True) == 60.0


async def test_a_server_that_ends_each_stream_at_once_is_not_asked_without_a_break() -> None:
    """WHATWG HTML, server-sent events §9.2.3: a user agent may wait longer than `retry` says."""
    at: list[float] = []

    async def hasty(remote: Remote, request: web.Request) -> web.StreamResponse:
        at.append(asyncio.get_running_loop().time())
        return await stream(request, f"id: {len(at)}\nretry: 0\ndata:\n\n".encode())

    remote = Remote(gets=hasty)
    async with behind(remote):
        await until(lambda: len(at) == 4)
    pauses = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert all(pause >= floor - 0.02 for pause, floor in zip(pauses, (0.1, 0.2, 0.4), strict=True)), pauses


async def test_a_call_whose_stream_ends_at_once_again_and_again_is_resumed_with_pauses() -> None:
    """The same for the stream of a call."""
    at: list[float] = []

    async def hasty(remote: Remote, request: web.Request) -> web.StreamResponse:
        if "Last-Event-ID" not in request.headers:
            return web.Response(status=405)
        at.append(asyncio.get_running_loop().time())
        if len(at) < 4:
            return await stream(request, f"id: {len(at)}\nretry: 0\ndata:\n\n".encode())
        result = {"jsonrpc": "2.0", "id": called["id"], "result": {"content": []}}
        return await stream(request, f"data: {json.dumps(result)}\n\n".encode())

    called: dict[str, Any] = {}

    async def long(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        called.update(message)
        return await stream(request, b"id: 0\nretry: 0\ndata:\n\n")

    async with behind(Remote(gets=hasty, calls={"long": long})) as up:
        assert (await up.call("up.long")).text == ""
    assert at[3] - at[0] >= 0.2 + 0.4 + 0.8 - 0.05
