"""Changes and subscriptions over HTTP: on a session's own stream, on `/sse`, on the stream of a stateless request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from muxway.clients.transports.http_server import Limits

from ..noting import MODERN, SUBSCRIPTION, notes, until
from .harness import Opened, request
from .test_http_sse import opened

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from .harness import Web

    Webs = Callable[..., AbstractAsyncContextManager[Web]]

UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
KINDS = ("tools", "prompts", "resources")


async def listening(http: Web, wanted: dict[str, Any], id_: Any = "L7") -> tuple[Opened, dict[str, Any]]:
    """A stream of a stateless client, and what was acknowledged."""
    stream = await http.open_stateless("subscriptions/listen", {"notifications": wanted}, id_=id_)
    ack = await stream.message()
    assert (ack["method"], ack["params"]["_meta"]) == (ACKNOWLEDGED, {SUBSCRIPTION: id_})
    return stream, ack["params"]["notifications"]


# --- sessions ---------------------------------------------------------------------------------------


async def test_a_session_is_told_on_its_own_stream(web: Webs) -> None:
    """MCP 2025-11-25, server/resources: subscribe in a POST; updates come on the GET stream."""
    server = notes()
    async with web({"up": server}) as http:
        client = await http.session()
        stream = await client.listen()
        assert (await client.ask("resources/subscribe", {"uri": "note://a"})).json["result"] == {}
        server.update("note://b")
        server.update("note://a#2")
        assert await stream.message() == {"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": "note://a#2"}}
        assert (await client.ask("resources/unsubscribe", {"uri": "note://a"})).json["result"] == {}
        await until(lambda: not server.watched)


async def test_what_was_missed_is_told_when_the_client_listens(web: Webs) -> None:
    """docs/subscriptions.md#resources: kept per kind and per resource, each told once."""
    server = notes()
    async with web({"up": server}) as http:
        client = await http.session()
        for uri in ("note://a", "note://b"):
            await client.ask("resources/subscribe", {"uri": uri})
        for _ in range(3):
            server.update("note://a")
        await http.world.gateway.add("two", server=notes("2025-11-25", "memo://m", tools={"t": None}))
        stream = await client.listen()
        heard = [await stream.message() for _ in range(4)]
        methods = [f"notifications/{kind}/list_changed" for kind in sorted(KINDS)]
        assert [message["method"] for message in heard] == [*methods, UPDATED]
        server.update("note://b")
        assert (await stream.message())["params"] == {"uri": "note://b"}


async def test_a_session_that_reads_on_misses_nothing(web: Webs) -> None:
    """docs/subscriptions.md#resources: while the stream is broken, news waits."""
    server = notes()
    async with web({"up": server}) as http:
        client = await http.session()
        await client.ask("resources/subscribe", {"uri": "note://a"})
        stream = await client.listen()
        priming = await stream.event()
        stream.drop()
        await until(lambda: not next(iter(http.door._handshake.sessions)).listening)
        server.update("note://a")
        await asyncio.sleep(0.05)
        again = await client.listen(priming.id)
        assert (await again.message())["method"] == UPDATED


async def test_the_end_of_a_session_releases_its_subscriptions(web: Webs) -> None:
    """docs/behaviour.md#changes-and-subscriptions: a server is subscribed to just what somebody wants."""
    server = notes()
    async with web({"up": server}) as http:
        client = await http.session()
        await client.ask("resources/subscribe", {"uri": "note://a"})
        assert server.watched == {"note://a"}
        assert (await http.ask("DELETE", "/mcp", client.headers)).status == 200
        await until(lambda: not server.watched)


async def test_a_client_of_the_old_transport_is_told_on_its_stream(web: Webs) -> None:
    """MCP 2024-11-05, basic/transports: everything comes there; when it breaks, all is released."""
    server = notes()
    async with web({"up": server}) as http:
        stream, where = await opened(http)
        await http.post(request("resources/subscribe", {"uri": "note://a"}, 2), path=where)
        assert await stream.message() == {"jsonrpc": "2.0", "id": 2, "result": {}}
        server.update("note://a")
        assert (await stream.message())["method"] == UPDATED
        await http.world.gateway.add("two", server=notes("2025-11-25", "memo://m", tools={"t": None}))
        heard = {(await stream.message())["method"] for _ in range(3)}
        assert heard == {f"notifications/{kind}/list_changed" for kind in KINDS}
        stream.drop()
        await until(lambda: not server.watched)


# --- stateless --------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
async def test_a_stream_hears_of_everything_it_asked_for(era: str, web: Webs) -> None:
    """MCP 2026-07-28, basic/patterns/subscriptions: the honoured subset first, then all kinds, each stamped."""
    server = notes(era)
    async with web({"up": server, "other": notes("2025-11-25", "memo://m")}) as http:
        wanted = {**{f"{kind}ListChanged": True for kind in KINDS}, "resourceSubscriptions": ["note://a", "no://such"]}
        stream, honoured = await listening(http, {**wanted, "unheard": True})
        assert honoured == {**wanted, "resourceSubscriptions": ["note://a"]}
        server.update("note://a/b")
        notice = await stream.message()
        assert notice["params"] == {"_meta": {SUBSCRIPTION: "L7"}, "uri": "note://a/b"}
        await http.world.gateway.add("two", server=notes("2025-11-25", "x://m", tools={"t": None}))
        heard = [await stream.message() for _ in range(3)]
        assert {message["method"] for message in heard} == {f"notifications/{kind}/list_changed" for kind in KINDS}
        assert [message["params"] for message in heard] == [{"_meta": {SUBSCRIPTION: "L7"}}] * 3
        stream.drop()
        await until(lambda: not server.watched)


async def test_streams_of_several_clients_share_one_subscription(web: Webs) -> None:
    """docs/subscriptions.md#resources: one subscription for all; strangers with the same id are not mixed up."""
    server = notes()
    async with web({"up": server}) as http:
        streams = [(await listening(http, {"resourceSubscriptions": ["note://a"]}, 1))[0] for _ in range(5)]
        other, _ = await listening(http, {"resourceSubscriptions": ["note://b"]}, 1)
        assert server.subscribed == {"note://a": 1, "note://b": 1}
        server.update("note://a")
        for stream in streams:
            assert (await stream.message())["params"] == {"_meta": {SUBSCRIPTION: 1}, "uri": "note://a"}
        for stream in streams[1:]:
            stream.drop()
        server.update("note://b")
        assert (await other.message())["params"]["uri"] == "note://b"
        assert server.watched == {"note://a", "note://b"}
        streams[0].drop()
        await until(lambda: server.watched == {"note://b"})


@pytest.mark.parametrize("wanted", [[], {"toolsListChanged": 1}, {"resourceSubscriptions": [1]}])
async def test_a_filter_of_the_wrong_shape_is_refused(wanted: object, web: Webs) -> None:
    """docs/errors.md#over-http: what is wrong with a stateless request is -32602 with status 400."""
    async with web({"up": notes()}) as http:
        answer = await http.stateless("subscriptions/listen", {"notifications": wanted})
        assert (answer.status, answer.code) == (400, -32602)


async def test_a_filter_that_wants_too_much_is_refused(web: Webs) -> None:
    """docs/subscriptions.md#limits: 1,000 URIs."""
    server = notes()
    async with web({"up": server}) as http:
        uris = [f"note://{n}" for n in range(1001)]
        answer = await http.stateless("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
        assert (answer.status, answer.code) == (400, -32602)
        assert server.watched == set()
        _, honoured = await listening(http, {"resourceSubscriptions": uris[:1000]})
        assert honoured["resourceSubscriptions"] == uris[:1000]


async def test_a_client_that_does_not_read_is_told_each_thing_once(web: Webs) -> None:
    """docs/subscriptions.md#resources: what waits for a slow reader does not grow with what happens."""
    long = "note://" + "a" * 1000
    server = notes("2025-11-25", long, "note://last")
    async with web({"up": server}, limits=Limits(stall_seconds=120)) as http:
        stream, _ = await listening(http, {"resourceSubscriptions": [long, "note://last"]})
        stream.writer.transport.pause_reading()
        for _ in range(200):
            for _ in range(100):
                server.update(long)
            await asyncio.sleep(0)
        server.update("note://last")
        stream.writer.transport.resume_reading()
        heard = 0
        while (await stream.message())["params"]["uri"] != "note://last":
            heard += 1
        # Of 20,000 as many as fit into the buffers of the two sockets, and one.
        assert heard < 10_000


async def test_a_stream_ends_with_a_result_and_releases_everything(web: Webs) -> None:
    """MCP 2026-07-28, basic/patterns/subscriptions: the server SHOULD answer the listen request, then close."""
    server = notes()
    async with web({"up": server}) as http:
        stream, _ = await listening(http, {"resourceSubscriptions": ["note://a"]}, 4)
        await http.door.close(0)
        (end,) = await stream.messages()
        assert end == {"jsonrpc": "2.0", "id": 4, "result": {"resultType": "complete", "_meta": {SUBSCRIPTION: 4}}}
        await until(lambda: not server.watched)
