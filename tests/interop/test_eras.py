"""Clients of either era in front of servers of either era, with the gateway translating between them.

Alone, half of these pairs cannot talk at all: a client pinned to 2026-07-28 fails against a
handshake-only server, and a handshake client against a server that only speaks 2026-07-28.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from . import drive, world

KINDS = ["sdk1", "sdk2", "sdk2-modern"]
VALUE = {"text": "grüße 🚀", "nothing": None, "list": [1, 2.5, True, {"deep": []}]}
ADD = drive.Call("add", {"a": 20, "b": 22})
ECHO = drive.Call("echo", {"value": VALUE})
FAIL = drive.Call("fail")
REFUSE = drive.Call("refuse")
COUNT = drive.Call("count", {"steps": 3}, progress=True)
WAIT = drive.Call("wait", progress=True, cancel=True)

every_pair = pytest.mark.parametrize(
    ("client", "kind"),
    [pytest.param(client, kind, id=f"{client.name}-{kind}") for client in drive.CLIENTS for kind in KINDS],
)


@dataclass(frozen=True)
class Meeting:
    """One client's run through the gateway to all three kinds of server."""

    steps: list[drive.Call]
    report: drive.Report
    upstream: dict[str, list[drive.Line]]
    """What went over the pipe between the gateway and each server."""

    def outcome(self, kind: str, call: drive.Call) -> drive.Outcome:
        return self.report.calls[self.steps.index(call.under(f"{kind}__"))]


Meet = Callable[[drive.Client], Meeting]


@pytest.fixture(scope="module")
def meet(tmp_path_factory: pytest.TempPathFactory) -> Meet:
    """Let a client meet the three servers, once."""

    @drive.once_each
    def meet(client: drive.Client) -> Meeting:
        directory = tmp_path_factory.mktemp(client.name)
        taps = {kind: directory / kind for kind in KINDS}
        for tap in taps.values():
            tap.mkdir()
        gateway = world.gateway(directory, {kind: world.own_server(kind).tapped(taps[kind]) for kind in KINDS})
        calls = [ADD, ECHO, FAIL, REFUSE, COUNT, *([WAIT] if client.can_cancel else [])]
        # A call after the cancelled one shows that the connection has survived it.
        steps = [call.under(f"{kind}__") for call in [*calls, ADD] for kind in KINDS]
        report = drive.run(client, gateway, steps, [step.name for step in steps])
        return Meeting(steps, report, {kind: drive.read_wire(tap) for kind, tap in taps.items()})

    return meet


@every_pair
def test_a_call_crosses_the_eras(meet: Meet, client: drive.Client, kind: str) -> None:
    """MCP 2026-07-28, basic/versioning.

    The eras do not understand each other; docs/compatibility.md: with muxway they do.
    """
    added = meet(client).outcome(kind, ADD)
    echoed = meet(client).outcome(kind, ECHO)

    assert added.result is not None
    assert added.result["structuredContent"] == {"sum": 42}
    assert json.loads(echoed.text) == VALUE


@every_pair
def test_a_tool_error_stays_a_result(meet: Meet, client: drive.Client, kind: str) -> None:
    """MCP 2025-11-25, server/tools: `isError` is the tool's own word to the model and not an error of the protocol."""
    outcome = meet(client).outcome(kind, FAIL)

    assert outcome.result is not None
    assert outcome.result["isError"] is True
    assert outcome.text.endswith("out of paper")


@every_pair
def test_a_json_rpc_error_arrives_unchanged(meet: Meet, client: drive.Client, kind: str) -> None:
    """docs/errors.md#errors: a server's own error passes with its code, message and data, explicit null included."""
    error = meet(client).outcome(kind, REFUSE).error

    assert error is not None
    assert error["code"] == 4711
    assert error["message"].endswith("not today")
    assert error["data"] == {"hint": "ask later", "nothing": None}


@every_pair
def test_progress_crosses_the_eras(meet: Meet, client: drive.Client, kind: str) -> None:
    """MCP 2025-11-25, basic/utilities/progress: progress belongs to both eras and reads the same in both."""
    outcome = meet(client).outcome(kind, COUNT)

    assert outcome.progress == [{"progress": n, "total": 3, "message": f"step {n}"} for n in (1, 2, 3)]
    assert outcome.text == "counted to 3"


@pytest.mark.parametrize(
    ("client", "kind"),
    [
        pytest.param(client, kind, id=f"{client.name}-{kind}")
        for client in drive.CLIENTS
        if client.can_cancel
        for kind in KINDS
    ],
)
def test_a_cancelled_call_is_cancelled_at_the_server(meet: Meet, client: drive.Client, kind: str) -> None:
    """docs/behaviour.md#cancel-and-progress: the server is told, under the id by which it knows the call."""
    meeting = meet(client)
    sent = [line.message for line in meeting.upstream[kind] if line.to_server]
    waiting = [
        message["id"]
        for message in sent
        if message.get("method") == "tools/call" and message["params"]["name"] == "wait"
    ]
    cancelled = [
        message["params"]["requestId"] for message in sent if message.get("method") == "notifications/cancelled"
    ]

    assert meeting.outcome(kind, WAIT).cancelled
    assert len(waiting) == 1
    assert cancelled == waiting


@every_pair
def test_each_server_is_spoken_to_in_an_era_it_knows_the_clients_if_it_can(
    meet: Meet, client: drive.Client, kind: str
) -> None:
    """docs/behaviour.md#start: the envelope of 2026-07-28 goes to servers that know it, for clients that do."""
    calls = [line.message for line in meet(client).upstream[kind] if line.method == "tools/call"]
    enveloped = {"io.modelcontextprotocol/protocolVersion" in call["params"].get("_meta", {}) for call in calls}

    assert enveloped == {kind == "sdk2-modern" or (kind == "sdk2" and client.is_modern)}
