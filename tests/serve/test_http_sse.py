"""HTTP+SSE, the transport of 2024-11-05, which many later clients still use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from muxway.clients.transports.guard import Guard
from muxway.testing import ScriptedServer

from ..conftest import HANDSHAKE_REVISIONS
from .harness import Opened, Web, initialize, request
from .test_sessions import Held, reporting

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    Webs = Callable[..., AbstractAsyncContextManager[Web]]


def echo() -> dict[str, ScriptedServer]:
    return {"s": ScriptedServer(tools={"echo": None, "report": reporting})}


async def opened(http: Web, revision: str = "2024-11-05") -> tuple[Opened, str]:
    """A client past its handshake: its stream, and where it posts to."""
    stream = await http.open("GET", "/sse", {"Accept": "text/event-stream"})
    assert stream.status == 200
    first = await stream.event()
    assert first.type == "endpoint"
    where = first.data.decode()
    assert (await http.post(initialize(revision), path=where)).status == 202
    assert (await stream.message())["result"]["protocolVersion"] == revision
    assert (await http.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, path=where)).status == 202
    return stream, where


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
async def test_answers_come_on_the_stream(revision: str, web: Webs) -> None:
    """MCP 2024-11-05, basic/transports: answers are events. Ours: POST gets 202, at any revision."""
    async with web(echo()) as http:
        stream, where = await opened(http, revision)
        await http.post(request("tools/call", {"name": "s__report", "_meta": {"progressToken": 1}}, 2), path=where)
        heard = [await stream.message() for _ in range(3)]
        assert [message.get("method") for message in heard] == ["notifications/progress"] * 2 + [None]
        assert heard[-1]["id"] == 2


async def test_many_clients_at_once(web: Webs) -> None:
    """docs/transports.md#sessions: many clients at once, each with its own answers."""
    async with web(echo()) as http:
        clients = [await opened(http) for _ in range(10)]
        posts = [http.post(request("ping", id_=number), path=where) for number, (_, where) in enumerate(clients)]
        assert [answer.status for answer in await asyncio.gather(*posts)] == [202] * 10
        assert [(await stream.message())["id"] for stream, _ in clients] == list(range(10))


async def test_changes_are_told(web: Webs) -> None:
    """MCP 2024-11-05, basic/transports: server messages are events."""
    async with web(echo()) as http:
        stream, _ = await opened(http)
        http.world.gateway.runtime.publish([])
        assert (await stream.message())["method"] == "notifications/tools/list_changed"


async def test_the_session_ends_with_its_stream(web: Webs) -> None:
    """docs/transports.md#what-a-disconnect-means: the session is gone, and what it ran is cancelled."""
    held = Held()
    server = ScriptedServer(tools={"wait": held})
    async with web({"s": server}) as http:
        stream, where = await opened(http)
        await http.post(request("tools/call", {"name": "s__wait"}), path=where)
        await held.called.wait()
        stream.drop()
        for _ in range(200):
            if server.heard[-1]["method"] == "notifications/cancelled":
                break
            await asyncio.sleep(0.01)
        assert server.heard[-1]["method"] == "notifications/cancelled"
        assert (await http.post(request("ping"), path=where)).status == 404


async def test_the_session_is_its_owners(web: Webs) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: a session belongs to the token that opened it."""
    async with web(guard=Guard(tokens=["a", "b"])) as http:
        stream = await http.open("GET", "/sse", {"Accept": "text/event-stream", "Authorization": "Bearer a"})
        where = (await stream.event()).data.decode()
        assert (await http.post(initialize(), {"Authorization": "Bearer b"}, where)).status == 404
        assert (await http.post(initialize(), {"Authorization": "Bearer a"}, where)).status == 202


@pytest.mark.parametrize(
    ("path", "status"),
    [("/messages", 400), ("/messages?session_id=x", 404), ("/messages?session_id=a&session_id=b", 400)],
)
async def test_a_post_must_name_its_session(path: str, status: int, web: Webs) -> None:
    """docs/errors.md#over-http: a POST names the session that /sse gave: 400 without one, 404 for an unknown one."""
    async with web() as http:
        assert (await http.post(initialize(), path=path)).status == status


async def test_what_cannot_be_read_is_refused_at_once(web: Webs) -> None:
    """Ours: a bad body gets its 400 where it was sent, and the stream goes on."""
    async with web() as http:
        stream, where = await opened(http)
        assert (await http.post(b"{", path=where)).code == -32700
        assert (await http.post(b"5", path=where)).code == -32600
        assert (await http.post(b"{}", {"Content-Type": "text/plain"}, where)).status == 415
        await http.post(request("ping", id_=9), path=where)
        assert (await stream.message())["id"] == 9


async def test_the_stream_shows_life(web: Webs) -> None:
    """docs/transports.md#answers: a comment now and then, so that proxies do not take it for dead."""
    async with web(keep_alive=0.05) as http:
        await (await http.open("GET", "/sse", {"Accept": "text/event-stream"})).comment()


async def test_there_may_be_so_many_clients_and_no_more(web: Webs) -> None:
    """docs/service.md#how-much-it-holds: so many clients of /sse; one more gets 429."""
    async with web(max_sessions=1) as http:
        await opened(http)
        assert (await http.open("GET", "/sse", {"Accept": "text/event-stream"})).status == 429


async def test_one_token_may_connect_so_many_clients_and_no_more(web: Webs) -> None:
    """docs/errors.md#over-http: one token's clients are counted, too: 429."""
    async with web(guard=Guard(tokens=["one", "two"]), max_sessions_each=1) as http:
        statuses = [
            (await http.open("GET", "/sse", {"Accept": "text/event-stream", "Authorization": f"Bearer {token}"})).status
            for token in ("one", "one", "two")
        ]
        assert statuses == [200, 429, 200]
