"""Two walks that nothing else on the market makes, with real SDKs and the wire looked at."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from . import drive, serving, world
from .asking import INTERVIEW, Upstream
from .drive import MODERN, Client, Server, Site, Step

if TYPE_CHECKING:
    from pathlib import Path

OLD = "2025-06-18"


def entry(server: Server) -> dict[str, Any]:
    """A server as a configuration has it."""
    return {"command": server.command[0], "args": server.command[1:]}


@pytest.mark.parametrize("inner", ["serve", "stdio"])
def test_a_stateless_client_answers_a_2025_server_through_two_gateways(inner: str, tmp_path: Path) -> None:
    """docs/design/decisions/0009-questions-across-eras.md.

    A tool that elicits twice and samples once, over two muxways in a row.
    """
    for directory in ("wire", "inner", "outer"):
        (tmp_path / directory).mkdir()
    server = Upstream("p1", "stdio").server().tapped(tmp_path / "wire")
    steps = [
        # The outer gateway may be ready before the server behind the inner one is.
        Step("tools", expect=["inner__p1__interview"], seconds=drive.LIST_SECONDS),
        Step("call", {"name": "inner__p1__interview", "arguments": {}}),
    ]

    with ExitStack() as stack:
        if inner == "serve":
            base = stack.enter_context(serving.serve(tmp_path / "inner", {"p1": entry(server)}))
            upstream = {"url": f"{base}/mcp"}
        else:
            upstream = entry(world.gateway(tmp_path / "inner", {"p1": server}))
        outer = stack.enter_context(serving.serve(tmp_path / "outer", {"inner": upstream}))
        revision, (_, taken) = drive.walk(Client("python2", MODERN), Site(f"{outer}/mcp"), steps)

    assert revision == MODERN
    assert taken.text == INTERVIEW
    assert [question["message"] for question in taken.of("elicitation/create")] == [
        "[inner/p1] Who are you?",
        "[inner/p1] Which colour?",
    ]
    lines = drive.read_wire(tmp_path / "wire")
    asked = Counter(line.method for line in lines if not line.to_server and line.method and "id" in line.message)
    assert asked == {"elicitation/create": 2, "sampling/createMessage": 1}
    # One call, held open by the inner gateway while the client came back three times.
    assert len([line for line in lines if line.method == "tools/call"]) == 1
    assert not any("io.modelcontextprotocol" in str(line.message) for line in lines if line.method == "tools/call")


@pytest.mark.parametrize("kind", ["p2m", "t2m"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_2025_client_answers_a_server_that_asks_in_rounds(kind: str, transport: str, tmp_path: Path) -> None:
    """docs/design/decisions/0009-questions-across-eras.md.

    A 2025-06-18 client completes a 2026-07-28 server's tool that needs two input rounds.
    """
    wire = tmp_path / "wire"
    wire.mkdir()
    server = Upstream(kind, "stdio").server().tapped(wire)
    client = Client("python1", OLD)
    steps = [
        Step("tools", expect=[f"{kind}__interview"], seconds=drive.LIST_SECONDS),
        Step("call", {"name": f"{kind}__interview", "arguments": {}}),
    ]

    if transport == "stdio":
        revision, (_, taken) = drive.walk(client, world.gateway(tmp_path, {kind: server}), steps)
    else:
        with serving.serve(tmp_path, {kind: entry(server)}) as base:
            revision, (_, taken) = drive.walk(client, Site(f"{base}/mcp"), steps)

    assert revision == OLD
    assert taken.text == INTERVIEW
    assert len(taken.of("elicitation/create")) == 2
    lines = drive.read_wire(wire)
    calls = {line.message["id"]: line.message["params"] for line in lines if line.method == "tools/call"}
    results = [line.message["result"] for line in lines if not line.to_server and line.message.get("id") in calls]
    assert [result["resultType"] for result in results] == ["input_required", "input_required", "complete"]
    for params in calls.values():
        assert params["_meta"]["io.modelcontextprotocol/protocolVersion"] == MODERN
