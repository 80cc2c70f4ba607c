"""Stateless requests of 2026-07-28: the ladder, the table that tells eras apart, headers, streams, disconnects."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from muxway.clients.transports.http_connection import HttpConnection
from muxway.testing import ScriptedServer
from muxway.wire.headers import encode_value

from ..pace import crowding
from .harness import BOTH, ENVELOPE, MODERN, Web, initialize, modern, request
from .test_connections import ALLOWED, SLACK, longest_turn
from .test_sessions import Held, reporting

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    Webs = Callable[..., AbstractAsyncContextManager[Web]]

ECHO = {"name": "s__echo", "arguments": {"a": 1}}
LISTEN = {"notifications": {"toolsListChanged": True}}


def echo() -> dict[str, ScriptedServer]:
    return {"s": ScriptedServer(tools={"echo": None, "report": reporting})}


async def test_a_request_needs_no_session_and_gets_none(web: Webs) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: no sessions, no Last-Event-ID; both are ignored if sent."""
    async with web(echo()) as http:
        answer = await http.stateless("tools/call", ECHO, {"Mcp-Session-Id": "whatever", "Last-Event-ID": "1"})
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert "mcp-session-id" not in answer.headers
        result = answer.json["result"]
        assert (result["resultType"], result["structuredContent"]) == ("complete", {"a": 1})
        assert http.door.sessions == 0


async def test_discovery(web: Webs) -> None:
    """MCP 2026-07-28, server/discover: all versions (ours: newest first), cache hints, the server's name in `_meta`."""
    async with web() as http:
        result = (await http.stateless("server/discover")).json["result"]
        assert result["supportedVersions"][0] == MODERN
        assert isinstance(result["ttlMs"], int)
        assert result["cacheScope"] == "private"
        assert "serverInfo" not in result
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "muxway"


async def test_a_listing_has_its_cache_hints(web: Webs) -> None:
    """MCP 2026-07-28, server/utilities/caching."""
    async with web(echo()) as http:
        result = (await http.stateless("tools/list")).json["result"]
        assert {"resultType", "ttlMs", "cacheScope", "tools"} <= result.keys()


# --- how a request is checked, rung by rung and in its order -------------------------------------


@pytest.mark.parametrize("verb", ["GET", "DELETE", "PUT", "HEAD"])
async def test_rung_1_only_post(verb: str, web: Webs) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: 405, with Allow (RFC 9110 §15.5.6)."""
    async with web() as http:
        answer = await http.open(verb, "/mcp", {"MCP-Protocol-Version": MODERN, "Accept": BOTH})
        assert answer.status == 405
        assert "POST" in answer.headers["allow"]


async def test_rung_1_not_json(web: Webs) -> None:
    """JSON-RPC 2.0 §5: -32700, id null; the status is 400."""
    async with web() as http:
        answer = await http.post(b"{nonsense", {"MCP-Protocol-Version": MODERN})
        assert (answer.status, answer.code, answer.json["id"]) == (400, -32700, None)


@pytest.mark.parametrize("body", [[request("tools/list")], [], 42, "x", {"jsonrpc": "1.0", "id": 1, "method": "x"}])
async def test_rung_1_not_a_single_message(body: Any, web: Webs) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: the body is one message; else -32600, 400."""
    async with web() as http:
        answer = await http.post(body, {"MCP-Protocol-Version": MODERN})
        assert (answer.status, answer.code) == (400, -32600)


@pytest.mark.parametrize("id_", [None, True, 1.5, {"a": 1}, [1]])
async def test_rung_1_not_an_id(id_: Any, web: Webs) -> None:
    """MCP 2026-07-28, basic/index: an id is a string or an integer."""
    async with web() as http:
        answer = await http.stateless("tools/list", id_=id_)
        assert (answer.status, answer.code) == (400, -32600)


async def test_rung_1_a_notification_is_accepted(web: Webs) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: a notification → 202, empty."""
    async with web() as http:
        notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        answer = await http.post(notice, {"MCP-Protocol-Version": MODERN})
        assert (answer.status, answer.body) == (202, b"")


async def test_rung_1_a_response_is_refused(web: Webs) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: the body is never a response."""
    async with web() as http:
        answer = await http.post({"jsonrpc": "2.0", "id": 1, "result": {}}, {"MCP-Protocol-Version": MODERN})
        assert (answer.status, answer.code) == (400, -32600)


@pytest.mark.parametrize(
    "meta",
    [
        None,
        {},
        {"io.modelcontextprotocol/protocolVersion": MODERN},
        {"io.modelcontextprotocol/clientCapabilities": {}},
        {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": []},
        {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": 5},
    ],
)
async def test_rung_2_the_envelope(meta: Any, web: Webs) -> None:
    """MCP 2026-07-28, basic/index: -32602, 400, under the request's id, even if the headers are wrong as well."""
    async with web() as http:
        body = request("tools/list", {} if meta is None else {"_meta": meta}, 77)
        for headers in ({"Mcp-Method": "tools/list"}, {}, {"Mcp-Method": "else"}):
            answer = await http.post(body, {"MCP-Protocol-Version": MODERN, **headers})
            assert (answer.status, answer.code, answer.json["id"]) == (400, -32602, 77)


@pytest.mark.parametrize(
    "headers",
    [
        {"MCP-Protocol-Version": "2027-01-01"},
        {"Mcp-Method": None},
        {"Mcp-Method": "tools/list"},
        {"Mcp-Method": "Tools/Call"},
        {"Mcp-Name": None},
        {"Mcp-Name": "s__other"},
        {"Mcp-Name": "S__ECHO"},
        {"Mcp-Name": "=?base64?c19fZWNobw?="},
        {"Mcp-Name": "=?base64?!!!?="},
    ],
)
async def test_rung_3_headers_say_what_the_body_says(headers: dict[str, str | None], web: Webs) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http, server validation: -32020, 400."""
    async with web(echo()) as http:
        answer = await http.stateless("tools/call", ECHO, headers, id_="x")
        assert (answer.status, answer.code, answer.json["id"]) == (400, -32020, "x")


@pytest.mark.parametrize("name", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"])
async def test_rung_3_headers_come_once(name: str, web: Webs) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http, server validation. Ours: even if both agree."""
    async with web(echo()) as http:
        message, headers = modern("tools/call", ECHO)
        pairs = [(key, value) for key, value in headers.items() if value is not None]
        answer = await http.post(message, [*pairs, (name, headers[name])])
        assert (answer.status, answer.code) == (400, -32020)


@pytest.mark.parametrize("value", ["s__echo", "  s__echo  ", "=?base64?c19fZWNobw==?="])
async def test_rung_3_names_may_be_padded_or_encoded(value: str, web: Webs) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: decoded, and trimmed (RFC 9110 §5.5), then compared."""
    async with web(echo()) as http:
        assert (await http.stateless("tools/call", ECHO, {"Mcp-Name": value})).status == 200


async def test_rung_3_a_name_beyond_ascii_is_encoded(web: Webs) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http. There is no such tool: what counts is that it is believed."""
    async with web() as http:
        answer = await http.stateless("tools/call", {"name": "größe"}, {"Mcp-Name": encode_value("größe")})
        assert answer.code == -32602


async def test_rung_4_the_version(web: Webs) -> None:
    """MCP 2026-07-28, basic/versioning: -32022, 400, with what is supported; only once the headers agree."""
    async with web() as http:
        meta = {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
        headers = {"MCP-Protocol-Version": "2099-01-01"}
        answer = await http.stateless("tools/list", {"_meta": meta}, headers)
        assert (answer.status, answer.code) == (400, -32022)
        data = answer.json["error"]["data"]
        assert (data["requested"], data["supported"][0]) == ("2099-01-01", MODERN)
        mismatch = await http.stateless("tools/list", {"_meta": meta})
        assert mismatch.code == -32020


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "no/such"]
)
async def test_rung_5_the_method(method: str, web: Webs) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: -32601 with 404."""
    async with web() as http:
        answer = await http.stateless(method, id_=3)
        assert (answer.status, answer.code, answer.json["id"]) == (404, -32601, 3)


async def test_rung_6_the_parameters(web: Webs) -> None:
    """MCP 2026-07-28, server/tools, error handling: an unknown tool is -32602; so are wrong parameters."""
    async with web(echo()) as http:
        cursor = await http.stateless("tools/list", {"cursor": "nonsense"})
        unknown = await http.stateless("tools/call", {"name": "s__nothing"})
        listen = await http.stateless("subscriptions/listen", {"notifications": 5})
        assert [(answer.status, answer.code) for answer in (cursor, unknown, listen)] == [(400, -32602)] * 3


# --- telling the eras apart -----------------------------------------------------------------------


async def test_row_handshake_header_and_no_envelope_is_a_session(web: Webs) -> None:
    """MCP 2026-07-28, basic/versioning: `initialize` selects the handshake; a header of its time may come along."""
    async with web() as http:
        answer = await http.post(initialize(), {"MCP-Protocol-Version": "2025-06-18"})
        assert "mcp-session-id" in answer.headers


async def test_row_handshake_header_with_an_envelope_is_a_contradiction(web: Webs) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: header and body must say the same version: -32020, 400."""
    async with web() as http:
        answer = await http.stateless("tools/list", headers={"MCP-Protocol-Version": "2025-11-25"})
        assert (answer.status, answer.code, answer.json["id"]) == (400, -32020, 1)


async def test_row_envelope_without_the_header_is_a_contradiction(web: Webs) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: every POST has the version in a header: -32020, 400."""
    async with web() as http:
        answer = await http.stateless("tools/list", headers={"MCP-Protocol-Version": None})
        assert (answer.status, answer.code) == (400, -32020)


async def test_row_initialize_without_anything_is_a_handshake(web: Webs) -> None:
    """MCP 2026-07-28, basic/versioning: `initialize` selects the handshake."""
    async with web() as http:
        assert "mcp-session-id" in (await http.post(initialize("2024-11-05"))).headers


async def test_row_nothing_at_all_is_a_bad_request(web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: without a session, where one is required → 400."""
    async with web() as http:
        assert (await http.post(request("tools/list"))).status == 400


async def test_row_get_without_anything_is_not_allowed(web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: GET may get 405; docs/errors.md#over-http: and is told where HTTP+SSE is."""
    async with web() as http:
        answer = await http.ask("GET", "/mcp", {"Accept": "text/event-stream"})
        assert answer.status == 405
        assert "/sse" in answer.json["error"]["message"]


async def test_row_get_with_a_handshake_version_needs_a_session(web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: a session id that is missing where it is required → 400."""
    async with web() as http:
        headers = {"Accept": "text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
        assert (await http.ask("GET", "/mcp", headers)).status == 400


async def test_row_get_and_delete_of_a_session_with_the_modern_header_are_not_allowed(web: Webs) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: GET and DELETE → 405; also of unknown versions."""
    async with web() as http:
        client = await http.session()
        for verb in ("GET", "DELETE"):
            for version in (MODERN, "2099-01-01"):
                headers = {**client.headers, "MCP-Protocol-Version": version, "Accept": BOTH}
                assert (await http.ask(verb, "/mcp", headers)).status == 405
        assert (await client.ask("ping")).status == 200


async def test_both_eras_are_served_side_by_side(web: Webs) -> None:
    """MCP 2026-07-28, basic/versioning: both eras may be served on one endpoint; each request shows its own."""
    async with web(echo()) as http:
        client = await http.session()
        answers = await asyncio.gather(
            *(client.ask("tools/call", ECHO, id_) for id_ in range(5)),
            *(http.stateless("tools/call", ECHO, id_=id_) for id_ in range(5)),
        )
        assert [answer.json["id"] for answer in answers] == [*range(5), *range(5)]
        assert ["resultType" in answer.json["result"] for answer in answers] == [False] * 5 + [True] * 5


# --- Mcp-Param-* --------------------------------------------------------------------------------

MIRROR = {
    "name": "m",
    "inputSchema": {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
            "deep": {"type": "object", "properties": {"on": {"type": "boolean", "x-mcp-header": "On"}}},
        },
    },
}


@pytest.mark.parametrize(
    ("arguments", "headers", "code"),
    [
        ({}, {}, None),
        ({"region": "eu"}, {"Mcp-Param-Region": "eu"}, None),
        ({"region": "grün"}, {"mcp-param-region": encode_value("grün")}, None),
        ({"region": None}, {}, None),
        ({"count": 42}, {"Mcp-Param-Count": "42.0"}, None),
        ({"deep": {"on": True}}, {"Mcp-Param-On": "true"}, None),
        ({}, {"Mcp-Param-Unknown": "x"}, None),
        ({"region": "eu"}, {}, -32020),
        ({"region": "eu"}, {"Mcp-Param-Region": "us"}, -32020),
        ({"region": "eu"}, {"Mcp-Param-Region": "=?base64?!?="}, -32020),
        ({"region": None}, {"Mcp-Param-Region": "eu"}, -32020),
        ({}, {"Mcp-Param-Region": "eu"}, -32020),
        ({"count": 42}, {"Mcp-Param-Count": "43"}, -32020),
        ({"deep": {"on": True}}, {"Mcp-Param-On": "1"}, -32020),
    ],
)
async def test_arguments_that_a_tool_wants_in_headers(
    arguments: dict[str, Any], headers: dict[str, str], code: int | None, web: Webs
) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http, custom headers from tool parameters."""
    async with web({"s": ScriptedServer(tools={"m": None}, definitions=[MIRROR])}) as http:
        answer = await http.stateless("tools/call", {"name": "s__m", "arguments": arguments}, dict(headers))
        assert answer.json.get("error", {}).get("code") == code
        assert answer.status == (200 if code is None else 400)


async def test_large_arguments_are_compared_with_headers_at_once(web: Webs) -> None:
    """docs/behaviour.md#size-limits: they were opened anew for each header, and each member became an object."""
    properties = {f"p{number}": {"type": "string", "x-mcp-header": f"H{number}"} for number in range(50)}
    tool = {"name": "m", "inputSchema": {"type": "object", "properties": properties}}
    async with web({"s": ScriptedServer(tools={"m": None}, definitions=[tool])}) as http:
        arguments = {f"x{number}": 1 for number in range(250_000)}
        message, headers = modern("tools/call", {"name": "s__m", "arguments": {**arguments, "p0": "eu"}})
        body = json.dumps(message, separators=(",", ":")).encode()
        async with longest_turn() as turns:
            answer = await http.post(body, {**headers, "Mcp-Param-H0": "us"})
        assert "mcp-param-h0 " in answer.json["error"]["message"]
        assert turns[0] < ALLOWED * SLACK


# --- streams ------------------------------------------------------------------------------------


async def test_progress_makes_the_answer_a_stream_without_event_ids(web: Webs) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: notices, the response, the end; no event ids, no session."""
    async with web(echo()) as http:
        opened = await http.open_stateless("tools/call", {"name": "s__report", "_meta": {"progressToken": "p"}})
        assert opened.headers["content-type"] == "text/event-stream"
        first = await opened.event()
        assert (first.id, json.loads(first.data)["params"]["progressToken"]) == ("", "p")
        *_, answer = await opened.messages()
        assert answer["result"]["resultType"] == "complete"


async def test_an_error_after_the_stream_began_is_its_last_event(web: Webs) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http: the response ends the stream. The status was sent: 200."""

    async def failing(server: ScriptedServer, message: dict[str, Any]) -> None:
        server.progress(message, 1)
        await asyncio.sleep(0.01)
        server.fail(message, -32602, "no")

    async with web({"s": ScriptedServer(tools={"f": failing})}) as http:
        opened = await http.open_stateless("tools/call", {"name": "s__f", "_meta": {"progressToken": 1}})
        assert opened.status == 200
        assert (await opened.messages())[-1]["error"]["code"] == -32602


@pytest.mark.parametrize("token", [None, 1])
async def test_a_disconnect_is_a_cancel(token: int | None, web: Webs) -> None:
    """MCP 2026-07-28, basic/transports/streamable-http, cancellation: before the stream has begun as well as after."""
    held = Held()
    server = ScriptedServer(tools={"wait": held})
    async with web({"s": server}) as http:
        params: dict[str, Any] = {"name": "s__wait"}
        message, headers = modern("tools/call", params if token is None else {**params, "_meta": {"progressToken": 1}})
        body = json.dumps(message).encode()
        lines = {"Host": http.host, "Accept": BOTH, "Content-Type": "application/json", **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        opened = await http.raw(f"POST /mcp HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await held.called.wait()
        if token is not None:
            await opened.head()
        opened.drop()
        for _ in range(200):
            if server.heard[-1]["method"] == "notifications/cancelled":
                return
            await asyncio.sleep(0.01)
        pytest.fail("the server was not told")


async def test_a_disconnect_just_when_the_stream_begins_is_a_cancel(web: Webs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the stream has been written when the connection is lost."""
    begin_events = HttpConnection.begin_events

    def lost_before(self: HttpConnection, response: Any) -> None:
        self.transport.abort()
        begin_events(self, response)

    monkeypatch.setattr(HttpConnection, "begin_events", lost_before)
    held = Held()
    server = ScriptedServer(tools={"wait": held})
    async with web({"s": server}) as http:
        message, headers = modern("tools/call", {"name": "s__wait", "_meta": {"progressToken": 1}})
        body = json.dumps(message).encode()
        lines = {"Host": http.host, "Accept": BOTH, "Content-Type": "application/json", **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        await http.raw(f"POST /mcp HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        async with asyncio.timeout(30):
            while server.heard[-1]["method"] != "notifications/cancelled":
                await asyncio.sleep(0.01)


async def test_a_subscription_hears_of_changes(web: Webs) -> None:
    """MCP 2026-07-28, basic/patterns/subscriptions: acknowledged, then changes under the request's id, type kept."""
    async with web(echo()) as http:
        opened = await http.open_stateless("subscriptions/listen", LISTEN, id_="L7")
        assert opened.headers["content-type"] == "text/event-stream"
        acknowledged = await opened.message()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["notifications"] == {"toolsListChanged": True}
        http.world.gateway.runtime.publish([])
        changed = await opened.message()
        assert changed["method"] == "notifications/tools/list_changed"
        ids = [m["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for m in (acknowledged, changed)]
        assert ids == ["L7", "L7"]


async def test_a_subscription_hears_only_what_it_asked_for(web: Webs) -> None:
    """MCP 2026-07-28, basic/patterns/subscriptions: only requested kinds; the honoured subset is told."""
    async with web(echo(), keep_alive=0.05) as http:
        opened = await http.open_stateless("subscriptions/listen", {"notifications": {"promptsListChanged": True}})
        assert (await opened.message())["params"]["notifications"] == {"promptsListChanged": True}
        http.world.gateway.runtime.publish([])
        await opened.comment()


async def test_a_subscription_ends_with_a_result_when_the_gateway_stops(web: Webs) -> None:
    """MCP 2026-07-28, basic/patterns/subscriptions: the server SHOULD answer the listen request, then close."""
    async with web() as http:
        opened = await http.open_stateless("subscriptions/listen", LISTEN, id_=4)
        await opened.message()
        await http.door.close(0)
        (end,) = await opened.messages()
        assert (end["id"], end["result"]["resultType"]) == (4, "complete")


async def test_a_stop_lets_calls_end_and_takes_no_new_ones(web: Webs) -> None:
    """docs/behaviour.md#shutdown-and-kill--9, for both eras."""
    held = Held()
    async with web({"s": ScriptedServer(tools={"wait": held})}) as http:
        client = await http.session()
        calls = [
            asyncio.ensure_future(client.ask("tools/call", {"name": "s__wait"})),
            asyncio.ensure_future(http.stateless("tools/call", {"name": "s__wait"})),
        ]
        await held.called.wait()
        await asyncio.sleep(0.05)
        closing = asyncio.ensure_future(http.door.close(5))
        await asyncio.sleep(0.05)
        assert (await http.stateless("tools/list")).status == 503
        assert (await http.ask("GET", "/readyz")).status == 503
        held.release()
        assert [answer.status for answer in await asyncio.gather(*calls)] == [200, 200]
        await asyncio.wait_for(closing, 2 + crowding())
