"""Streamable HTTP with sessions (2025-03-26 to 2025-11-25) and without (2026-07-28)."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

import muxway
from muxway.net.message_trace import MessageTrace
from muxway.testing import RawClient

from .scripted import MODERN, Remote, answer, behind, event, gateway, reply, serving, stream, text, until

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_stateless_server_is_recognised_and_called() -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: headers repeat the request; no session id, ever."""
    remote = Remote("stateless")
    async with behind(remote) as up:
        (server,) = up.servers()
        assert (server.status, server.revision, server.error) == (muxway.Status.RUNNING, MODERN, None)
        assert (await up.call("up.echo", {"a": 1})).text == '{"a": 1}'
    (call,) = remote.of("tools/call")
    assert call.headers["MCP-Protocol-Version"] == MODERN
    assert (call.headers["Mcp-Method"], call.headers["Mcp-Name"]) == ("tools/call", "echo")
    assert call.headers["Content-Type"] == "application/json"
    assert call.headers["Accept"] == "application/json, text/event-stream"
    assert not [seen for seen in remote.seen if "Mcp-Session-Id" in seen.headers or seen.verb != "POST"]
    assert remote.of("server/discover")[0].headers["Mcp-Method"] == "server/discover"
    assert remote.of("initialize") == []


async def test_a_name_that_is_no_header_value_travels_in_base64() -> None:
    """MCP 2026-07-28, basic/transports/streamable-http, value encoding."""
    remote = Remote("stateless", calls={"größe": lambda *_: _nothing()})
    async with behind(remote) as up:
        await up.call("up.größe")
    assert remote.of("tools/call")[0].headers["Mcp-Name"] == "=?base64?Z3LDtsOfZQ==?="


async def test_arguments_that_a_tool_wants_in_headers_are_repeated_there() -> None:
    """MCP 2026-07-28, basic/transports/streamable-http; a tool that wants it wrongly is left out."""
    good = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    bad = {"type": "object", "properties": {"region": {"type": "number", "x-mcp-header": "Region"}}}

    async def listing(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        if message.get("method") != "tools/list":
            return None
        tools = [{"name": "good", "inputSchema": good}, {"name": "bad", "inputSchema": bad}, {"name": "echo"}]
        return reply(message, {"tools": tools, "ttlMs": 5})

    remote = Remote("stateless", posts=listing)
    async with behind(remote) as up:
        assert "up__bad" not in [tool.name for tool in up.tools()]
        assert up.tools()[0].definition["inputSchema"] == good
        await up.call("up.good", {"region": "größe"})
        await up.call("up.good", {"region": None})
    first, second = remote.of("tools/call")
    assert first.headers["Mcp-Param-Region"] == "=?base64?Z3LDtsOfZQ==?="
    assert "Mcp-Param-Region" not in second.headers


def _mismatch(message: dict[str, Any]) -> web.Response:
    error = {"code": -32020, "message": "Header mismatch"}
    return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=400)


@pytest.mark.parametrize("listed", ["changed", "refused"])
async def test_a_server_that_wants_other_headers_than_it_said_is_asked_what_it_wants(listed: str) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: after -32020 list again, try once more; that stands."""
    wanted = "Region"

    async def posts(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        given = [name for name in request.headers if name.startswith("Mcp-Param-")]
        if message.get("method") == "tools/call" and given != [f"Mcp-Param-{wanted}"]:
            return _mismatch(message)
        if message.get("method") != "tools/list":
            return None
        if wanted == "Zone" and listed == "refused":
            return _mismatch(message)
        annotated = {"type": "object", "properties": {"place": {"type": "string", "x-mcp-header": wanted}}}
        # On a second page, so that all of them have to be read.
        last = "cursor" in message["params"]
        tools = [{"name": "good" if last else "echo", "inputSchema": annotated if last else {"type": "object"}}]
        return reply(message, {"tools": tools, **({} if last else {"nextCursor": "2"})})

    remote = Remote("stateless", posts=posts)
    async with behind(remote) as up:
        await up.call("up.good", {"place": "here"})
        wanted = "Zone"
        if listed == "refused":
            with pytest.raises(muxway.RpcError) as raised:
                await up.call("up.good", {"place": "here"})
            assert raised.value.code == -32020
        else:
            assert (await up.call("up.good", {"place": "here"})).text == '{"place": "here"}'
            # The clients are told.
            await until(lambda: "Zone" in str(up.tools()[-1].definition))
    assert len(remote.of("tools/call")) == 3
    assert remote.of("tools/call")[-1].headers.get("Mcp-Param-Zone") == ("here" if listed == "changed" else None)


async def _nothing() -> None:
    return None


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("kind", ["http", "auto"])
async def test_a_handshake_server_gets_its_session_and_version_on_every_request(revision: str, kind: str) -> None:
    """MCP 2025-11-25, basic/transports: session id and version after `initialize`, not before; DELETE at the end."""
    remote = Remote(revision=revision)
    async with behind(remote, **({"type": kind} if kind != "auto" else {})) as up:
        (server,) = up.servers()
        assert (server.status, server.revision) == (muxway.Status.RUNNING, revision)
        assert (await up.call("up.echo", {"a": 1})).text == '{"a": 1}'
        await until(lambda: remote.of(None, "GET"))
    (hello,) = remote.of("initialize")
    assert "Mcp-Session-Id" not in hello.headers
    assert "MCP-Protocol-Version" not in hello.headers
    # A server of both eras may want it of every request (2026-07-28, basic/transports).
    assert hello.headers["Mcp-Method"] == "initialize"
    later = remote.seen[remote.seen.index(hello) + 1 :]
    assert [seen.method or seen.verb for seen in later if seen.verb != "GET"] == [
        "notifications/initialized",
        "tools/list",
        "tools/call",
        "DELETE",
    ]
    assert {seen.headers["Mcp-Session-Id"] for seen in later} == {"session-1"}
    assert {seen.headers["MCP-Protocol-Version"] for seen in later} == {revision}
    assert remote.live == set()


async def test_a_server_without_sessions_gets_no_session_id() -> None:
    """MCP 2025-11-25, basic/transports: a server may have no sessions."""
    remote = Remote(sessions=False)
    async with behind(remote) as up:
        assert (await up.call("up.echo")).text == "{}"
    assert not [seen for seen in remote.seen if "Mcp-Session-Id" in seen.headers or seen.verb == "DELETE"]


async def test_configured_headers_go_with_every_request_and_cookies_with_none() -> None:
    """docs/transports.md#servers-by-url: headers come from the config alone, but those of the protocol are ours."""

    async def with_cookie(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = await remote.post(request, message)
        response.set_cookie("tracking", "you")
        return response

    remote = Remote(posts=with_cookie)
    async with behind(remote, headers={"Authorization": "Bearer s3cr3t", "content-type": "text/plain"}) as up:
        await up.call("up.echo")
        await until(lambda: remote.of(None, "GET"))
    assert {seen.headers["Authorization"] for seen in remote.seen} == {"Bearer s3cr3t"}
    assert {seen.headers.get("Content-Type") for seen in remote.seen if seen.verb == "POST"} == {"application/json"}
    assert not [seen for seen in remote.seen if "Cookie" in seen.headers]


@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_the_answer_may_come_as_an_event_after_progress(era: str) -> None:
    """MCP 2025-11-25, basic/transports: notices of the request first, then the response, then the end."""

    async def slowly(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        token = message["params"]["_meta"]["progressToken"]
        params = {"progressToken": token, "progress": 1, "message": "half"}
        notice = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        response = await stream(request, b": ping\n\n", event(notice))
        wire = event(answer(message, text("done")), event="message").replace(b"\n", b"\r\n")
        for byte in wire:
            await response.write(bytes([byte]))
        return response

    heard: list[Any] = []
    async with behind(Remote(era, calls={"slow": slowly})) as up:
        result = await up.call("up.slow", on_progress=lambda *told: heard.append(told))
    assert (result.text, heard) == ("done", [(1.0, None, "half")])


async def test_layout_in_an_answer_does_not_reach_the_lines_of_others() -> None:
    """Ours: results are passed on as bytes, and stdio clients read lines."""

    async def pretty(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        body = json.dumps(answer(message, text("a\nb")), indent=2).replace("\n", "\r\n")
        return web.Response(text=body, content_type="application/json")

    async with behind(Remote(calls={"pretty": pretty})) as up:
        door = up.memory_door()
        client = RawClient(door)
        await client.hello()
        line = (await client.call("up__pretty")).line
        assert b"\n" not in line
        assert b"\r" not in line


async def test_a_compressed_answer_is_read() -> None:
    """docs/behaviour.md#size-limits: the limit holds for what comes out."""

    async def packed(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = reply(message, text("x" * message["params"]["arguments"]["size"]))
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async with behind(Remote(calls={"packed": packed}), maxMessageBytes=100_000) as up:
        assert len((await up.call("up.packed", {"size": 50_000})).text) == 50_000
        with pytest.raises(muxway.UpstreamError, match="over the size limit of 100000 bytes"):
            await up.call("up.packed", {"size": 5_000_000})


async def test_a_forgotten_session_is_opened_again_once_for_everybody() -> None:
    """MCP 2025-11-25, basic/transports: 404 means initialize again, without a session id. Ours: once."""
    remote = Remote()
    async with behind(remote) as up:
        remote.live.clear()
        results = await asyncio.gather(*(up.call("up.echo", {"n": n}) for n in range(10)))
        assert [result.text for result in results] == [f'{{"n": {n}}}' for n in range(10)]
        assert remote.opened == 2
        # What was listed before may not hold any more.
        await until(lambda: len(remote.of("tools/list")) == 2)
    assert "Mcp-Session-Id" not in remote.of("initialize")[1].headers
    assert remote.live == set()


async def test_a_session_that_is_forgotten_again_and_again_fails_the_call() -> None:
    """docs/transports.md#servers-by-url: a new `initialize`, once."""

    async def amnesia(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        return web.Response(status=404) if message.get("method") == "tools/call" else None

    remote = Remote(posts=amnesia)
    async with behind(remote) as up:
        with pytest.raises(muxway.UpstreamError, match="forgets its sessions"):
            await up.call("up.echo")
        assert (remote.opened, len(remote.of("tools/call"))) == (2, 2)


async def test_a_new_session_that_is_refused_fails_the_call_and_says_why() -> None:
    """Ours: the reason of the second failure is the one to act on."""

    async def refuse(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        return web.Response(status=503) if message["method"] == "initialize" and remote.opened else None

    remote = Remote(posts=refuse)
    async with behind(remote) as up:
        remote.live.clear()
        with pytest.raises(muxway.UpstreamError, match=r"lost its session, and a new one could not be opened.*503"):
            await up.call("up.echo")


async def test_what_the_server_says_unasked_is_heard_and_its_stream_reopened() -> None:
    """MCP 2025-11-25, basic/transports: the GET stream, resumed with Last-Event-ID after the time the server wishes."""
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}

    async def get(remote: Remote, request: web.Request) -> web.StreamResponse:
        number = len(remote.of(None, "GET"))
        response = await stream(request, b"retry: 20\n", event(changed, id=f"e{number}"))
        if number > 2:
            await asyncio.sleep(60)
        return response

    remote = Remote(gets=get)
    async with behind(remote) as up:
        await until(lambda: len(remote.of(None, "GET")) == 3)
        await until(lambda: len(remote.of("tools/list")) >= 2)
        assert up.servers()[0].status is muxway.Status.RUNNING
    gets = remote.of(None, "GET")
    assert [seen.headers.get("Last-Event-ID") for seen in gets] == [None, "e1", "e2"]
    assert {seen.headers["Accept"] for seen in gets} == {"text/event-stream"}


async def test_a_dropped_stream_is_resumed_where_it_stopped() -> None:
    """MCP 2025-11-25, basic/transports: GET with Last-Event-ID, also for the stream of a POST; many times."""
    pending: list[dict[str, Any]] = []

    async def drop(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        pending.append(message)
        return await stream(request, event("", id="p0"), b"retry: 10\n\n")

    async def get(remote: Remote, request: web.Request) -> web.StreamResponse:
        last = request.headers.get("Last-Event-ID")
        if last is None:
            return web.Response(status=405)
        number = int(last[1:]) + 1
        if number < 8:
            return await stream(request, event("", id=f"p{number}"))
        return await stream(request, event(answer(pending[0], text("late")), id="p8"))

    remote = Remote(calls={"drop": drop}, gets=get)
    async with behind(remote) as up:
        assert (await up.call("up.drop")).text == "late"
    assert len(remote.of("tools/call")) == 1


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_dropped_stream_that_cannot_be_resumed_fails_its_call(era: str) -> None:
    """docs/transports.md#servers-by-url: a broken stream loses the request; it is not repeated."""

    async def drop(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        return await stream(request, b": hello\n\n")

    remote = Remote(era, calls={"drop": drop})
    async with behind(remote) as up:
        with pytest.raises(muxway.UpstreamError, match='server "up" ended its event stream before the answer'):
            await up.call("up.drop")
        assert (await up.call("up.echo")).text == "{}"
    assert len(remote.of("tools/call")) == 2


async def test_resuming_ends_after_a_few_tries_that_bring_nothing() -> None:
    """Ours: an end to resuming what brings nothing."""

    async def drop(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        return await stream(request, event("", id="p0"), b"retry: 10\n\n")

    async def get(remote: Remote, request: web.Request) -> web.StreamResponse:
        return web.Response(status=405) if "Last-Event-ID" not in request.headers else await stream(request)

    remote = Remote(calls={"drop": drop}, gets=get)
    async with behind(remote) as up:
        with pytest.raises(muxway.UpstreamError, match="5 attempts to resume it brought nothing"):
            await up.call("up.drop")
    assert len([seen for seen in remote.of(None, "GET") if "Last-Event-ID" in seen.headers]) == 5


async def test_cancelling_a_stateless_call_closes_its_request() -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: closing the stream cancels; no notification is sent."""
    gone = asyncio.Event()

    async def wait(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            gone.set()
            raise
        raise AssertionError

    remote = Remote("stateless", calls={"wait": wait})
    async with behind(remote) as up:
        call = asyncio.create_task(up.call("up.wait"))
        await until(lambda: remote.of("tools/call"))
        call.cancel()
        await asyncio.wait_for(gone.wait(), 30)
        assert remote.of("notifications/cancelled") == []
        assert (await up.call("up.echo")).text == "{}"


async def test_cancelling_a_handshake_call_says_so_and_then_hangs_up() -> None:
    """MCP 2025-11-25, basic/utilities/cancellation: it is told; and a server need not answer what was cancelled."""
    gone = asyncio.Event()

    async def wait(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = await stream(request, b": wait\n\n")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            gone.set()
            raise
        return response

    remote = Remote(calls={"wait": wait})
    async with behind(remote) as up:
        call = asyncio.create_task(up.call("up.wait"))
        await until(lambda: remote.of("tools/call"))
        call.cancel()
        await until(lambda: remote.of("notifications/cancelled"))
        (request,), (notice,) = remote.of("tools/call"), remote.of("notifications/cancelled")
        assert request.message is not None
        assert notice.message is not None
        assert notice.message["params"]["requestId"] == request.message["id"]
        assert notice.headers["Mcp-Session-Id"] == "session-1"
        await asyncio.wait_for(gone.wait(), 30)


async def test_a_request_of_the_server_is_answered_by_post() -> None:
    """MCP 2025-11-25, basic/transports: a server may ask, here whether we are there."""
    answered = asyncio.Event()

    async def ask(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = await stream(request, event({"jsonrpc": "2.0", "id": "q", "method": "ping"}))
        await asyncio.wait_for(answered.wait(), 30)
        await response.write(event(answer(message, text("thanks"))))
        return response

    async def watch(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        if message.get("id") == "q":
            assert message["result"] == {}
            answered.set()
            return web.Response(status=202)
        return None

    async with behind(Remote(calls={"ask": ask}, posts=watch)) as up:
        assert (await up.call("up.ask")).text == "thanks"


async def test_an_error_in_json_rpc_is_the_answer_at_any_status() -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: errors have statuses. Ours: any status, any id."""
    error = {"code": -32602, "message": "no such thing", "data": {"a": None}}

    async def refuse(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        status, id_ = message["params"]["arguments"]["status"], message["params"]["arguments"]["id"]
        return web.json_response({"jsonrpc": "2.0", "id": id_, "error": error}, status=status)

    async with behind(Remote("stateless", calls={"refuse": refuse})) as up:
        for status, id_ in [(200, None), (400, None), (404, "server-error"), (500, 1)]:
            with pytest.raises(muxway.UpstreamSaid, match="no such thing") as said:
                await up.call("up.refuse", {"status": status, "id": id_})
            assert (said.value.code, said.value.data) == (-32602, {"a": None})


async def test_a_redirect_within_the_origin_is_followed() -> None:
    """RFC 9110 §15.4: only such that keep a POST a POST; docs/transports.md#servers-by-url: same origin only."""

    async def move(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        return web.Response(status=307, headers={"Location": "/mcp/"}) if request.path == "/mcp" else None

    remote = Remote(posts=move)
    async with behind(remote) as up:
        assert (await up.call("up.echo", {"a": 1})).text == '{"a": 1}'
    assert {seen.path for seen in remote.of("tools/call")} == {"/mcp", "/mcp/"}


async def test_many_calls_at_once_share_a_bounded_number_of_connections() -> None:
    """Ours: a pool of connections that are kept alive."""
    most = now = 0

    async def count(remote: Remote, request: web.Request, message: dict[str, Any]) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1

    async with behind(Remote("stateless", calls={"count": count})) as up:
        await asyncio.gather(*(up.call("up.count", {"n": n}) for n in range(300)))
    assert most <= 64


async def test_three_kinds_of_remote_server_work_side_by_side() -> None:
    """docs/transports.md#servers-by-url: different eras behind one gateway, one of them broken."""
    one, two = Remote("stateless"), Remote()
    async with serving(one) as first, serving(two) as second:
        config = {"one": {"url": first}, "two": {"url": second}, "dead": {"url": "http://127.0.0.1:1/mcp"}}
        async with muxway.Gateway.open({"mcpServers": config}) as up:
            assert [server.status.value for server in up.servers()] == ["running", "running", "failed"]
            assert (await up.call("one.echo", {"a": 1})).text == (await up.call("two.echo", {"a": 1})).text


async def test_the_era_can_be_pinned() -> None:
    """docs/transports.md#servers-by-url: `era` saves the probe, and does not look further."""
    async with behind(Remote(), era="legacy") as up:
        assert up.servers()[0].status is muxway.Status.RUNNING
    remote = Remote()
    async with serving(remote) as url, gateway(url, era="modern") as up:
        assert "2026-07-28" in (up.servers()[0].error or "")
    assert remote.of("initialize") == []


@pytest.mark.parametrize("size", [1_000, 3_000_000])
async def test_a_large_message_is_sent_whole(size: int) -> None:
    """Ours: in pieces, with its length said beforehand, as many servers take nothing else."""
    remote = Remote("stateless")
    async with behind(remote) as up:
        assert len((await up.call("up.echo", {"a": "x" * size})).text) == size + 9
    assert "Content-Length" in remote.of("tools/call")[0].headers


async def test_a_session_that_is_unknown_with_status_400_is_opened_again_too() -> None:
    """Ours: what the examples of the TypeScript SDK answer; an error about the request itself is just that."""

    async def refuse(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        if message.get("method") == "tools/call" and message["params"]["name"] == "bad":
            error = {"code": -32000, "message": "no such session in the database"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=400)
        if message.get("method") == "tools/call" and remote.opened == 1:
            error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
            return web.json_response({"jsonrpc": "2.0", "id": None, "error": error}, status=400)
        return None

    remote = Remote(posts=refuse, calls={"bad": lambda *_: _nothing()})
    async with behind(remote) as up:
        with pytest.raises(muxway.UpstreamSaid, match="in the database"):
            await up.call("up.bad")
        assert remote.opened == 1
        assert (await up.call("up.echo", {"a": 1})).text == '{"a": 1}'
        assert remote.opened == 2


async def test_a_refused_renewal_is_tried_again_by_the_next_call() -> None:
    """Ours: a server that is just starting refuses once, not for ever."""
    refused = False

    async def refuse(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse | None:
        nonlocal refused
        if message.get("method") != "initialize" or not remote.opened or refused:
            return None
        refused = True
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": {"code": 1, "message": "not yet"}})

    remote = Remote(posts=refuse)
    async with behind(remote) as up:
        remote.live.clear()
        with pytest.raises(muxway.UpstreamError, match="refused to open a new one"):
            await up.call("up.echo")
        assert (await up.call("up.echo", {"a": 1})).text == '{"a": 1}'


async def test_a_stream_that_stays_open_after_its_answer_holds_nothing_back() -> None:
    """Ours: the answer is not held back by a server that forgets to end its stream."""

    async def linger(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = await stream(request, event(answer(message, text("here"))))
        await asyncio.sleep(60)
        return response

    async with behind(Remote(calls={"linger": linger})) as up:
        async with asyncio.timeout(30):
            assert (await up.call("up.linger")).text == "here"


@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_events_arrive_also_when_each_message_is_shown(
    era: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Ours: docs/operating.md#messages: who looks at the messages changes nothing of them."""

    async def slowly(remote: Remote, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        params = {"progressToken": message["params"]["_meta"]["progressToken"], "progress": 1}
        notice = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        return await stream(request, event(notice), event(answer(message, text("done"))))

    remote = Remote(era, calls={"slow": slowly})
    trace = MessageTrace(tmp_path / "trace.jsonl")
    heard: list[Any] = []
    async with serving(remote) as url, asyncio.timeout(30):
        up = muxway.Gateway(muxway.parse_config({"mcpServers": {"up": {"url": url}}}), trace=trace)
        up.start()
        try:
            result = await up.call("up.slow", on_progress=lambda *told: heard.append(told))
        finally:
            await up.stop()
            trace.close()
    assert (result.text, heard) == ("done", [(1.0, None, None)])
    assert "failed inside" not in caplog.text
    ways = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    methods = [(line["way"], line["message"].get("method")) for line in ways]
    assert methods.count(("to up", "tools/call")) == 1
    assert ("from up", "notifications/progress") in methods
