"""A fault inside muxway, over HTTP: an answer, once, and nothing that stays behind."""

from __future__ import annotations

from typing import Any

import pytest

from muxway.clients.session import ClientRequest, Session
from muxway.clients.stateless import Ladder, StatelessRequest
from muxway.clients.transports.guard import Guard
from muxway.errors import RpcError
from muxway.exchange.dispatcher import Dispatcher
from muxway.servers.pool import Pool
from muxway.testing import ScriptedServer
from muxway.wire import envelopes
from tests.faulting import Fault
from tests.serve.harness import Client, Response, Web, a_web, request

PORTS: dict[str, tuple[Any, str]] = {
    "the guard": (Guard, "knows"),
    "the guard of a caller": (Guard, "refuses_caller"),
    "the checks of a stateless request": (Ladder, "admit"),
    "who calls": (Session, "_caller"),
    "the middle": (Dispatcher, "answer"),
    "the way to the server": (Pool, "choose"),
    "the sink of a session": (ClientRequest, "done"),
    "the sink of a stateless request": (StatelessRequest, "done"),
    "the frame of the answer": (envelopes, "result"),
}
CALL = {"name": "up__echo", "arguments": {"ok": 1}}


async def test_a_fault_anywhere_is_an_answer_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: an internal error with an incident number; id and count are given back (docs/behaviour.md)."""
    faults = {port: Fault(monkeypatch, *place) for port, place in PORTS.items()}
    up = ScriptedServer(tools={"echo": None})
    async with a_web({"up": up}) as web:
        session = await web.session()
        ways = {
            "session": lambda: session.ask("tools/call", CALL, 7),
            "stateless": lambda: web.stateless("tools/call", CALL, id_=7),
        }
        for port, fault in faults.items():
            for way, call in ways.items():
                fault.armed = True
                before = len(up.heard)
                answer = await call()
                fault.armed = False
                assert len(up.heard) - before <= 1, (port, way)
                if "error" in answer.json:
                    assert answer.json["error"]["data"]["muxway"]["reason"] == "internal", (port, way)
                assert web.world.gateway.runtime.admission.running == 0, (port, way)
                assert (await call()).json["result"]["structuredContent"] == {"ok": 1}, (port, way)
        assert sum(fault.hits for fault in faults.values()) > len(faults)


@pytest.mark.parametrize("error", [RpcError("no"), RuntimeError("no")])
@pytest.mark.parametrize("way", ["session", "stateless"])
async def test_a_request_that_fails_inside_is_not_handled_twice(
    way: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: what has begun is answered, whatever happens to it, and does not begin again (docs/behaviour.md)."""
    handled: list[Any] = []

    def handle(self: Dispatcher, call: Any, sink: Any) -> None:
        handled.append(call)
        raise error

    async with a_web({"up": ScriptedServer(tools={"echo": None})}) as web:
        session = await web.session()
        monkeypatch.setattr(Dispatcher, "handle", handle)
        answer = await _call(web, session, way)
        assert answer.json["error"]["code"] == -32603
        assert len(handled) == 1


async def _call(web: Web, session: Client, way: str) -> Response:
    return await (session.ask("tools/call", CALL) if way == "session" else web.stateless("tools/call", CALL))


PARTS = {
    "a member twice": b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"up__echo"}}',
    "a huge integer": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__echo","x":%b}}'
    % (b"9" * 5000),
    "a notification with a member twice": b'{"jsonrpc":"2.0","method":"a","method":"b"}',
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("alone", [True, False])
async def test_the_parts_of_a_batch_are_as_strict_as_single_messages(part: bytes, alone: bool) -> None:
    """Ours: of two members others might heed the one that we do not (docs/behaviour.md#over-http)."""
    up = ScriptedServer(tools={"echo": None})
    async with a_web({"up": up}) as web:
        session = await web.session("2025-03-26")
        ping = envelopes.encode(request("ping", id_=2))
        body = b"[%b]" % (part if alone else part + b"," + ping)
        answers = (await web.post(body, session.headers)).json
        assert [answer.get("error", {}).get("code") for answer in answers] == [-32600, *([] if alone else [None])]
        assert not any(message["method"] == "tools/call" for message in up.heard)
