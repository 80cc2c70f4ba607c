"""Handshake sessions over Streamable HTTP: their life, their streams, and what cannot be done to them."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from muxway.clients.transports.guard import Guard
from muxway.testing import ScriptedServer

from ..conftest import HANDSHAKE_REVISIONS
from ..pace import PATIENCE
from .harness import BOTH, Web, initialize, request

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    Webs = Callable[..., AbstractAsyncContextManager[Web]]


async def reporting(server: ScriptedServer, message: dict[str, Any]) -> None:
    """A tool that reports progress twice before it answers."""
    server.progress(message, 1)
    server.progress(message, 2)
    await asyncio.sleep(0.01)
    server.reply(message, {"content": []})


class Held:
    """A tool that answers when told to."""

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self._go = asyncio.Event()

    async def __call__(self, server: ScriptedServer, message: dict[str, Any]) -> None:
        self.called.set()
        if "progressToken" in message["params"].get("_meta", {}):
            server.progress(message, 1)
        await self._go.wait()
        server.reply(message, {"content": [], "structuredContent": {"done": True}})

    def release(self) -> None:
        self._go.set()


def echo() -> dict[str, ScriptedServer]:
    return {"s": ScriptedServer(tools={"echo": None, "report": reporting})}


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
async def test_a_session_lists_and_calls_and_gets_json(revision: str, web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: an answer may be JSON; docs/transports.md#answers: quick ones are."""
    async with web(echo()) as http:
        client = await http.session(revision)
        listed = await client.ask("tools/list")
        assert listed.status == 200
        assert listed.headers["content-type"] == "application/json"
        assert [tool["name"] for tool in listed.json["result"]["tools"]] == ["s__echo", "s__report"]
        called = await client.ask("tools/call", {"name": "s__echo", "arguments": {"a": 1}}, "x")
        assert called.json["id"] == "x"
        # Clients of earlier revisions do not know structured content.
        assert revision < "2025-06-18" or called.json["result"]["structuredContent"] == {"a": 1}


async def test_session_ids_cannot_be_guessed(web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: visible ASCII, unguessable; docs/transports.md#sessions: 192 bits."""
    async with web() as http:
        ids = {(await http.session()).id for _ in range(50)}
        assert len(ids) == 50
        assert all(re.fullmatch(r"[\x21-\x7e]{22,}", id_) for id_ in ids)


async def test_an_initialize_for_2026_is_answered_with_the_newest_handshake_revision(web: Webs) -> None:
    """MCP 2025-11-25, basic/lifecycle: another version is answered with the newest that has a handshake."""
    async with web() as http:
        answer = await http.post(initialize("2026-07-28"))
        assert answer.json["result"]["protocolVersion"] == "2025-11-25"


async def test_an_initialize_that_fails_opens_no_session(web: Webs) -> None:
    """Ours: only a valid initialize opens a session, so that refused ones cost nothing."""
    async with web() as http:
        answer = await http.post(request("initialize", {"protocolVersion": 5}))
        assert answer.status == 400
        assert answer.code == -32602
        assert "mcp-session-id" not in answer.headers
        assert http.door.sessions == 0


async def test_a_second_initialize_in_a_session_is_refused(web: Webs) -> None:
    """MCP 2025-11-25, basic/lifecycle: initialize is the first interaction. Ours: a session has one."""
    async with web() as http:
        client = await http.session()
        answer = await http.post(initialize(), {"Mcp-Session-Id": client.id})
        assert answer.code == -32600
        assert (await client.ask("ping")).json["result"] == {}


async def test_a_request_without_a_session_is_a_bad_request(web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: a session id that is missing where it is required → 400."""
    async with web() as http:
        for method in ("tools/list", "ping"):
            answer = await http.post(request(method, id_=7))
            assert (answer.status, answer.code, answer.json["id"]) == (400, -32600, 7)
        assert (await http.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 400


@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_an_unknown_session_is_not_found(verb: str, web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: unknown or terminated → 404."""
    async with web() as http:
        headers = {"Mcp-Session-Id": "nobody", "Accept": BOTH, "Content-Type": "application/json"}
        body = json.dumps(request("tools/list")).encode() if verb == "POST" else b""
        assert (await http.ask(verb, "/mcp", headers, body)).status == 404


async def test_a_deleted_session_is_gone(web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: DELETE terminates."""
    async with web() as http:
        client = await http.session()
        stream = await client.listen()
        assert (await http.ask("DELETE", "/mcp", client.headers)).status == 200
        assert await stream.messages() == []
        assert (await client.ask("tools/list")).status == 404
        assert (await http.ask("DELETE", "/mcp", client.headers)).status == 404


async def test_deleting_a_session_cancels_what_it_runs(web: Webs) -> None:
    """Ours: nobody wants the result any more; the request is answered all the same (docs/behaviour.md#over-http)."""
    held = Held()
    server = ScriptedServer(tools={"wait": held})
    async with web({"s": server}) as http:
        client = await http.session()
        calling = asyncio.ensure_future(client.start("tools/call", {"name": "s__wait"}))
        await held.called.wait()
        await http.ask("DELETE", "/mcp", client.headers)
        assert (await calling).status == 404
        # Who hears first, the client or the server, is up to the interpreter.
        async with asyncio.timeout(30):
            while server.heard[-1]["method"] != "notifications/cancelled":
                await asyncio.sleep(0.001)


@pytest.mark.parametrize("other", [{}, {"Authorization": "Bearer b"}])
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_someone_elses_session_does_not_exist(other: dict[str, str], verb: str, web: Webs) -> None:
    """docs/transports.md#sessions: bound to who created it; another token gets 404, and the owner notices nothing."""
    async with web(echo()) as http:
        client = await http.session(headers={"Authorization": "Bearer a"})
        stream = await client.listen()
        assert stream.status == 200
        headers = {"Mcp-Session-Id": client.id, "Accept": BOTH, "Content-Type": "application/json", **other}
        body = json.dumps(request("tools/list")).encode() if verb == "POST" else b""
        assert (await http.ask(verb, "/mcp", headers, body)).status == 404
        assert (await client.ask("tools/list")).status == 200


async def test_an_idle_session_expires_and_a_used_one_does_not(web: Webs) -> None:
    """docs/transports.md#sessions: idle expiry. A stream that is open counts as use."""
    async with web(session_idle=0.3) as http:
        idle, listening = await http.session(), await http.session()
        await listening.listen()
        await asyncio.sleep(0.8)
        assert (await idle.ask("ping")).status == 404
        assert (await listening.ask("ping")).status == 200


async def test_there_may_be_so_many_sessions_and_no_more(web: Webs) -> None:
    """docs/behaviour.md#size-limits: so many sessions, then 429. Those that are open go on."""
    async with web(max_sessions=3) as http:
        clients = [await http.session() for _ in range(3)]
        for client in clients:
            await client.ask("tools/call", {"name": "s__none"})
        assert (await http.post(initialize())).status == 429
        assert (await clients[0].ask("ping")).status == 200
        await http.ask("DELETE", "/mcp", clients[0].headers)
        await http.session()


async def test_a_session_that_never_made_a_call_makes_room_for_a_new_one(web: Webs) -> None:
    """Ours: whoever opens session after session without using them shuts nobody out (docs/behaviour.md#size-limits)."""
    async with web(max_sessions=4) as http:
        used, listening = await http.session(), await http.session()
        await used.ask("tools/call", {"name": "s__none"})
        await listening.listen()
        unused = [await http.session() for _ in range(6)]
        assert http.door.sessions == 4
        assert [(await client.ask("ping")).status for client in unused] == [404] * 4 + [200] * 2
        assert [(await client.ask("ping")).status for client in (used, listening)] == [200, 200]


async def test_when_all_were_used_those_left_behind_make_room(web: Webs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: nor does whoever makes one call in each (docs/behaviour.md#size-limits)."""
    async with web(max_sessions=3) as http:
        clients = [await http.session() for _ in range(3)]
        for client in clients:
            await client.ask("tools/call", {"name": "s__none"})
        await clients[0].listen()
        monkeypatch.setattr("muxway.clients.transports.http_sessions._LEFT_BEHIND", 0.0)
        await http.session()
        assert (await clients[0].ask("ping")).status == 200


def bearer(token: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"Authorization": f"{scheme} {token}"}


async def test_one_token_may_open_so_many_sessions_and_no_more(web: Webs) -> None:
    """docs/behaviour.md#size-limits: so many for each token, then 429. Others do not notice."""
    async with web(guard=Guard(tokens=["one", "two"]), max_sessions_each=3) as http:
        clients = [await http.session(headers=bearer("one", scheme)) for scheme in ("Bearer", "bearer", "BEARER ")]
        refused = await http.post(initialize(), bearer("one"))
        assert refused.status == 429
        assert refused.headers["retry-after"] == "30"
        assert "3 sessions of this token are open" in refused.json["error"]["message"]
        await http.session(headers=bearer("two"))
        assert (await clients[0].ask("ping")).status == 200
        await http.ask("DELETE", "/mcp", clients[0].headers)
        await http.session(headers=bearer("one"))
        assert http.door.sessions == 4


async def test_a_session_left_behind_makes_room_for_a_new_one(web: Webs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: clients on the TypeScript SDK leave without a word; they must not lock their token out for half an hour."""
    async with web(guard=Guard(tokens=["one"]), max_sessions_each=3) as http:
        listening, oldest, newer = [await http.session(headers=bearer("one")) for _ in range(3)]
        await listening.listen()
        monkeypatch.setattr("muxway.clients.transports.http_sessions._LEFT_BEHIND", 0.0)
        await http.session(headers=bearer("one"))
        assert (await oldest.ask("ping")).status == 404
        assert [(await client.ask("ping")).status for client in (listening, newer)] == [200, 200]


async def test_callers_without_a_token_are_counted_together_only(web: Webs) -> None:
    """Ours: where nobody needs a token, nothing tells one caller from another."""
    async with web(max_sessions_each=1) as http:
        for _ in range(3):
            await http.session()


async def test_a_session_id_that_comes_twice_is_a_bad_request(web: Webs) -> None:
    """docs/errors.md#over-http: a doubled header → 400 (RFC 9110 §5.3)."""
    async with web() as http:
        client = await http.session()
        doubled = [("Mcp-Session-Id", client.id), ("Mcp-Session-Id", client.id)]
        assert (await http.post(request("ping"), doubled)).status == 400


async def test_errors_of_a_session_have_status_200(web: Webs) -> None:
    """docs/errors.md#over-http: clients of handshake revisions read a JSON-RPC error only there."""
    async with web() as http:
        client = await http.session()
        for method, params in (("tools/call", {"name": "a__nothing"}), ("no/such", {})):
            answer = await client.ask(method, params)
            assert (answer.status, answer.code) == (200, -32601)


async def test_an_id_still_in_use_is_refused(web: Webs) -> None:
    """MCP 2025-11-25, basic/index: ids are not reused; as no answer can name it, the status tells."""
    held = Held()
    async with web({"s": ScriptedServer(tools={"wait": held})}) as http:
        client = await http.session()
        first = asyncio.ensure_future(client.ask("tools/call", {"name": "s__wait"}))
        await held.called.wait()
        assert (await client.ask("ping")).status == 400
        held.release()
        assert (await first).json["result"]["structuredContent"] == {"done": True}


async def test_two_sessions_may_use_the_same_ids(web: Webs) -> None:
    """docs/behaviour.md#under-all-of-it: no answer is crossed."""
    async with web(echo()) as http:
        clients = [await http.session() for _ in range(8)]
        calls = [
            client.ask("tools/call", {"name": "s__echo", "arguments": {"n": n}}) for n, client in enumerate(clients)
        ]
        answers = await asyncio.gather(*calls)
        assert [answer.json["result"]["structuredContent"]["n"] for answer in answers] == list(range(8))


# --- versions and batches ---------------------------------------------------------------------


async def test_the_version_header_may_be_left_out_in_a_session(web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: there are other ways to know the version; here the session's."""
    async with web() as http:
        client = await http.session()
        assert (await http.post(request("ping"), {"Mcp-Session-Id": client.id})).status == 200


async def test_an_unknown_version_header_is_a_bad_request(web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: an invalid or unsupported version → 400."""
    async with web() as http:
        client = await http.session()
        answer = await http.post(request("ping"), {**client.headers, "MCP-Protocol-Version": "1999-01-01"})
        assert answer.status == 400


async def test_a_batch_is_answered_with_an_array(web: Webs) -> None:
    """MCP 2025-03-26, basic/transports: batches, in sessions of that revision."""
    async with web(echo()) as http:
        client = await http.session("2025-03-26")
        batch = [request("ping", id_=1), {"jsonrpc": "2.0", "method": "notifications/x"}, request("tools/list", id_=2)]
        answer = await http.post(batch, client.headers)
        assert answer.status == 200
        assert [part["id"] for part in answer.json] == [1, 2]


async def test_a_batch_of_too_many_messages_is_refused_as_a_whole(web: Webs) -> None:
    """Ours: 100 messages, whatever they are (docs/behaviour.md#size-limits)."""
    async with web(echo()) as http:
        client = await http.session("2025-03-26")
        pings = [request("ping", id_=number) for number in range(100)]
        assert len((await http.post(pings, client.headers)).json) == 100
        for body in (json.dumps([*pings, 1]).encode(), b"[" + b"1," * 1_900_000 + b"1]"):
            refused = await http.post(body, client.headers)
            assert len(refused.body) < 500
            assert "at most 100 messages" in refused.json["error"]["message"]


@pytest.mark.parametrize("what", ["capabilities", "clientInfo"])
async def test_a_client_that_says_too_much_of_itself_is_refused(what: str, web: Webs) -> None:
    """Ours: it would be kept for as long as the session (docs/behaviour.md#size-limits)."""
    async with web() as http:
        for size, status in ((60_000, 200), (70_000, 400)):
            first = initialize()
            first["params"][what] = {"name": "x", "version": "1", "experimental": {"x": "x" * size}}
            answer = await http.post(first)
            assert answer.status == status
        assert f"params.{what} has more than the 65536 bytes" in answer.json["error"]["message"]
        asked = request("tools/list", {"_meta": {f"io.modelcontextprotocol/{_STATELESS[what]}": {"x": "x" * 70_000}}})
        asked["params"]["_meta"].setdefault("io.modelcontextprotocol/clientCapabilities", {})
        asked["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28"
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
        assert "65536 bytes" in (await http.post(asked, headers)).json["error"]["message"]


async def test_a_session_keeps_little_of_a_large_greeting(web: Webs) -> None:
    """Ours: what a client says of itself, and nothing that came with it."""
    async with web() as http:
        body = json.dumps({**initialize(), "padding": "x" * 3_000_000}).encode()
        assert (await http.post(body)).status == 200
        (session,) = http.door._handshake.sessions  # pyright: ignore[reportPrivateUsage]
        caller = session.endpoint.session
        assert caller is not None
        assert caller.capabilities is not None
        # Only a piece of something larger is not its own copy.
        assert caller.capabilities.copy() is caller.capabilities


_STATELESS = {"capabilities": "clientCapabilities", "clientInfo": "clientInfo"}


async def test_a_batch_of_notifications_is_accepted(web: Webs) -> None:
    """MCP 2025-03-26, basic/transports: only notifications → 202."""
    async with web() as http:
        client = await http.session("2025-03-26")
        assert (await http.post([{"jsonrpc": "2.0", "method": "notifications/x"}], client.headers)).status == 202


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", None])
async def test_a_batch_elsewhere_is_refused(revision: str | None, web: Webs) -> None:
    """MCP 2025-06-18, changelog: batches are gone. docs/errors.md: -32600, here with status 400."""
    async with web() as http:
        headers = (await http.session(revision)).headers if revision else {}
        answer = await http.post([request("ping")], headers)
        assert (answer.status, answer.code) == (400, -32600)


# --- streams ----------------------------------------------------------------------------------


async def test_progress_before_the_answer_makes_it_a_stream(web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: progress goes on the request's own stream, then the answer, then its end."""
    async with web(echo()) as http:
        client = await http.session()
        standalone = await client.listen()
        opened = await client.start("tools/call", {"name": "s__report", "_meta": {"progressToken": "t"}}, 5)
        assert opened.headers["content-type"] == "text/event-stream"
        assert opened.headers["x-accel-buffering"] == "no"
        *progress, answer = await opened.messages()
        assert [(notice["params"]["progressToken"], notice["params"]["progress"]) for notice in progress] == [
            ("t", 1),
            ("t", 2),
        ]
        assert answer["id"] == 5
        http.world.gateway.runtime.publish([])
        assert (await standalone.message())["method"] == "notifications/tools/list_changed"


async def test_a_slow_answer_makes_it_a_stream_with_signs_of_life(web: Webs) -> None:
    """docs/transports.md#answers: an event stream after a while, then comments."""
    held = Held()
    async with web({"s": ScriptedServer(tools={"wait": held})}, commit_after=0.05, keep_alive=0.05) as http:
        client = await http.session()
        opened = await client.start("tools/call", {"name": "s__wait"})
        assert opened.headers["content-type"] == "text/event-stream"
        await opened.comment()
        held.release()
        assert (await opened.messages())[0]["result"]["structuredContent"] == {"done": True}


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
async def test_only_the_newest_handshake_clients_get_a_priming_event(revision: str, web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: a first event with an id and no data; older clients would read that as JSON."""
    async with web(echo()) as http:
        client = await http.session(revision)
        opened = await client.start("tools/call", {"name": "s__report", "_meta": {"progressToken": 1}})
        first = await opened.event()
        assert (first.data == b"") == (revision == "2025-11-25")
        assert first.id


async def test_the_standalone_stream_tells_of_changes(web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: GET carries what belongs to no request."""
    async with web(echo()) as http:
        client = await http.session()
        stream = await client.listen()
        http.world.gateway.runtime.publish([])
        assert (await stream.message())["method"] == "notifications/tools/list_changed"


async def test_a_change_before_the_standalone_stream_is_told_on_it(web: Webs) -> None:
    """Ours: a client that listens a moment too late still learns that its list is old."""
    async with web(echo()) as http:
        client = await http.session()
        http.world.gateway.runtime.publish([])
        assert (await (await client.listen()).message())["method"] == "notifications/tools/list_changed"


async def test_a_second_standalone_stream_is_refused(web: Webs) -> None:
    """docs/transports.md#sessions: 409; the first one is never replaced."""
    async with web(echo()) as http:
        client = await http.session()
        first = await client.listen()
        assert (await client.listen()).status == 409
        http.world.gateway.runtime.publish([])
        await first.message()


async def test_the_standalone_stream_can_be_opened_again_after_it_was_lost(web: Webs) -> None:
    """Ours: a lost connection does not lock its client out."""
    async with web() as http:
        client = await http.session()
        (await client.listen()).drop()
        for _ in range(100):
            if (again := await client.listen()).status == 200:
                break
            await asyncio.sleep(0.01)
        assert again.status == 200


async def test_the_standalone_stream_shows_life(web: Webs) -> None:
    """docs/transports.md#answers: a comment now and then, so that proxies do not take it for dead."""
    async with web(keep_alive=0.05) as http:
        await (await (await http.session()).listen()).comment()


async def test_get_must_accept_events(web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: a GET accepts text/event-stream."""
    async with web() as http:
        client = await http.session()
        assert (await http.ask("GET", "/mcp", {**client.headers, "Accept": "application/json"})).status == 406


# --- disconnects and resumption ---------------------------------------------------------------


async def test_a_disconnect_is_not_a_cancel(web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: a disconnect is no cancel; the client must say notifications/cancelled."""
    held = Held()
    server = ScriptedServer(tools={"wait": held})
    async with web({"s": server}) as http:
        client = await http.session()
        opened = await client.start("tools/call", {"name": "s__wait", "_meta": {"progressToken": 1}})
        await opened.message()
        opened.drop()
        assert (await client.ask("ping", id_=2)).status == 200
        held.release()
        assert (await client.ask("ping", id_=3)).status == 200
        assert all(message.get("method") != "notifications/cancelled" for message in server.heard)


async def test_a_cancelled_request_ends_without_an_answer(web: Webs) -> None:
    """MCP 2025-11-25, basic/utilities/cancellation: no answer to what was cancelled; its POST must end all the same."""
    held = Held()
    async with web({"s": ScriptedServer(tools={"wait": held})}) as http:
        client = await http.session()
        calling = asyncio.ensure_future(client.ask("tools/call", {"name": "s__wait"}, 9))
        await held.called.wait()
        await client.tell("notifications/cancelled", {"requestId": 9})
        answer = await calling
        assert (answer.status, answer.body) == (202, b"")


async def test_a_broken_stream_can_be_read_on(web: Webs) -> None:
    """MCP 2025-11-25, basic/transports: GET with Last-Event-ID replays that stream's later messages only."""
    held = Held()
    async with web({"s": ScriptedServer(tools={"wait": held})}) as http:
        client = await http.session()
        opened = await client.start("tools/call", {"name": "s__wait", "_meta": {"progressToken": 1}}, 4)
        await opened.event()
        progress = await opened.event()
        opened.drop()
        held.release()
        again = await client.listen(progress.id)
        assert again.status == 200
        (answer,) = await again.messages()
        assert answer["id"] == 4
        replayed = await (await client.listen(progress.id)).messages()
        assert replayed == [answer]


async def test_an_answer_that_nobody_was_there_for_is_replayed_from_the_priming_event(web: Webs) -> None:
    """SEP-1699: the priming event's id is enough to get everything."""
    async with web(echo()) as http:
        client = await http.session()
        opened = await client.start("tools/call", {"name": "s__report", "_meta": {"progressToken": 1}})
        priming = await opened.event()
        opened.drop()
        await asyncio.sleep(0.1)
        assert len(await (await client.listen(priming.id)).messages()) == 3


@pytest.mark.parametrize("last", ["1", "0-0", "nonsense", "-1", "", "x" * 500, "a-" + "9" * 40])
async def test_a_last_event_id_that_means_nothing_is_a_bad_request(last: str, web: Webs) -> None:
    """docs/errors.md#over-http: a Last-Event-ID that names nothing we keep → 400."""
    async with web() as http:
        assert (await (await http.session()).listen(last)).status == 400


async def test_an_event_of_another_session_gives_nothing(web: Webs) -> None:
    """docs/transports.md#reading-on: events are looked up inside the caller's session only."""
    async with web(echo()) as http:
        one, other = await http.session(), await http.session()
        opened = await one.start("tools/call", {"name": "s__report", "_meta": {"progressToken": 1}})
        event = await opened.event()
        assert (await other.listen(event.id)).status == 400


async def test_what_is_kept_for_resumption_is_bounded(web: Webs) -> None:
    """docs/transports.md#reading-on: 256 events; what is left of the stream is given."""

    async def chatty(server: ScriptedServer, message: dict[str, Any]) -> None:
        for number in range(400):
            server.progress(message, number)
        await asyncio.sleep(0.01)
        server.reply(message, {"content": []})

    async with web({"s": ScriptedServer(tools={"chat": chatty})}) as http:
        client = await http.session()
        opened = await client.start("tools/call", {"name": "s__chat", "_meta": {"progressToken": 1}})
        priming = await opened.event()
        assert len(await opened.messages()) == 401
        replayed = await (await client.listen(priming.id)).messages()
        assert len(replayed) == 256
        assert "result" in replayed[-1]


async def test_a_session_that_waits_for_its_only_server_gets_its_id_with_the_answer(web: Webs) -> None:
    """docs/names.md#one-server: what the server says of itself is in the answer to `initialize`."""
    async with web(echo(), top={"entries": {"s": {"prefix": ""}}}) as http:
        runtime = http.world.gateway.runtime
        runtime.listings.shut()
        opening = asyncio.create_task(http.session())
        other = asyncio.create_task(http.post(initialize()))
        while not runtime.dispatcher().unmet():
            await asyncio.sleep(0.01)
        assert not opening.done()
        runtime.listings.open()
        client = await asyncio.wait_for(opening, PATIENCE)
        assert [tool["name"] for tool in (await client.ask("tools/list")).json["result"]["tools"]] == ["echo", "report"]
        assert (await other).headers["mcp-session-id"] != client.id
