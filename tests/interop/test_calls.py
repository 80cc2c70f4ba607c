"""What real clients get when they call tools of real servers through the gateway."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from . import drive, world

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Tour

every_client = pytest.mark.parametrize("client", drive.CLIENTS, ids=lambda client: client.name)


def without_hop_keys(result: dict[str, Any] | None) -> dict[str, Any] | None:
    """A result less what belongs to one connection (docs/behaviour.md#what-passes-untouched)."""
    if result is None:
        return None
    meta = {key: value for key, value in result.get("_meta", {}).items() if key != "io.modelcontextprotocol/serverInfo"}
    rest = {key: value for key, value in result.items() if key not in ("_meta", "resultType")}
    return rest | ({"_meta": meta} if meta else {})


@every_client
@pytest.mark.parametrize("server", ["everything", "files", "memory", "time", "git"])
def test_a_call_gives_the_same_result_as_without_the_gateway(tour: Tour, client: drive.Client, server: str) -> None:
    """docs/behaviour.md#what-passes-untouched.

    Everything but the name is untouched, tool errors (`isError`) included.
    """
    visit = tour.through(client)
    direct = tour.direct(client.for_direct_use)[server]

    for call, expected in zip(tour.calls[server], direct.calls, strict=True):
        outcome = visit.outcome(call.under(f"{server}__"))
        assert without_hop_keys(outcome.result) == without_hop_keys(expected.result), call
        assert outcome.error == expected.error, call


@every_client
def test_tool_errors_reach_the_client_as_results(tour: Tour, client: drive.Client) -> None:
    """MCP 2025-11-25, server/tools: `isError`; also proof that the comparison above has errors to compare."""
    visit = tour.through(client)
    failed = {
        server
        for server, calls in tour.calls.items()
        for call in calls
        if (visit.outcome(call.under(f"{server}__")).result or {}).get("isError")
    }

    assert failed == {"everything", "files", "time", "git"}


@every_client
def test_progress_of_a_long_running_tool_arrives_step_by_step(tour: Tour, client: drive.Client) -> None:
    """MCP 2025-11-25, basic/utilities/progress: the SDK hands progress to the callback of the call it belongs to."""
    outcome = tour.through(client).outcome(world.LONG_RUNNING)

    # The server sends the last step and the result at once, and the TypeScript SDKs, without a gateway
    # too, may drop progress read together with the result; the test of the token finds it on the wire.
    steps = [(update["progress"], update["total"]) for update in outcome.progress]
    certain = 2 if client.script.startswith("typescript") else 3
    assert steps in ([(1, 3), (2, 3), (3, 3)], [(1, 3), (2, 3), (3, 3)][:certain])
    assert "Long running operation completed" in outcome.text


@every_client
def test_progress_carries_the_token_that_the_client_chose(tour: Tour, client: drive.Client) -> None:
    """docs/behaviour.md#cancel-and-progress: the caller's own token, of the caller's own type, not the gateway's."""
    wire = tour.through(client).wire
    asked = [
        token
        for line in wire
        if line.to_server
        and line.method == "tools/call"
        and (token := line.message["params"].get("_meta", {}).get("progressToken")) is not None
    ]
    told = [line.message["params"]["progressToken"] for line in wire if line.method == "notifications/progress"]

    assert [json.dumps(token) for token in told] == [json.dumps(asked[0])] * 3
    assert len(asked) == 1


@every_client
@pytest.mark.parametrize("call", [world.UNKNOWN_TOOL, world.UNKNOWN_SERVER], ids=lambda call: call.name)
def test_a_tool_that_is_not_there_is_an_error_with_its_name(tour: Tour, client: drive.Client, call: drive.Call) -> None:
    """docs/errors.md#errors: -32601 in handshake revisions, -32602 in 2026-07-28."""
    error = tour.through(client).outcome(call).error

    assert error is not None
    assert error["code"] == (-32602 if client.is_modern else -32601)
    # The TypeScript SDK 1.x writes the code before the message.
    assert error["message"].endswith(f"Tool not found: {call.name}")


@every_client
def test_a_bare_name_is_an_error_that_asks_for_the_prefix(tour: Tour, client: drive.Client) -> None:
    """docs/names.md#what-a-call-may-say: `Tool name must be prefixed with server key`."""
    error = tour.through(client).outcome(world.BARE_NAME).error

    assert error is not None
    assert error["code"] == -32602
    assert error["message"].endswith("Tool name must be prefixed with server key: read_graph")


def test_what_a_client_writes_through_the_gateway_is_really_written(tmp_path: Path) -> None:
    """Ours: the real job on two real servers."""
    servers = world.real_servers(tmp_path)
    gateway = world.gateway(tmp_path, {name: servers[name] for name in ("files", "memory")})
    file = tmp_path / "files" / "new.txt"
    entity = {"name": "new", "entityType": "test", "observations": ["größer"]}
    calls = [
        drive.Call("files__write_file", {"path": str(file), "content": "tschüß\n"}),
        drive.Call("memory__create_entities", {"entities": [entity]}),
    ]

    drive.run(drive.PROBE, gateway, calls, [call.name for call in calls])

    assert file.read_text(encoding="utf-8") == "tschüß\n"
    graph = (tmp_path / "graph.jsonl").read_text(encoding="utf-8").splitlines()
    assert {"type": "entity", **entity} in map(json.loads, graph)
