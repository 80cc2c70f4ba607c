"""The worst questions and tasks of servers, to clients of 2026-07-28: none holds the event loop."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muxway.net.metronome import LONG

from ..serve.harness import request
from .watched import Watched, watched
from .worst_stateless_server import LOOKS

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = str(Path(__file__).with_name("worst_stateless_server.py"))
ASKABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}}
KNOWS_TASKS = {**ASKABLE, "extensions": {"io.modelcontextprotocol/tasks": {}}}


def a_server(*options: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [SERVER, *options], "callTimeout": 20}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Watched]:
    with watched({"new": a_server(), "old": a_server("legacy")}) as running:
        # What is loaded on first use is loaded once.
        ask(running, "tools/call", {"name": "new__say", "arguments": {"kind": "questions"}}, "new__say", ASKABLE)
        look(running, "task")
        yield running


def ask(gateway: Watched, method: str, params: dict[str, Any], name: str, capabilities: dict[str, Any]) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name}
    return gateway.post(json.dumps(request(method, {**params, "_meta": meta})).encode(), headers)[1]


def look(gateway: Watched, kind: str) -> bytes:
    """Have a task made, and ask after it."""
    call = {"name": "new__say", "arguments": {"kind": kind}}
    task = json.loads(ask(gateway, "tools/call", call, "new__say", KNOWS_TASKS))["result"]["taskId"]
    return ask(gateway, "tasks/get", {"taskId": task}, task, KNOWS_TASKS)


@pytest.mark.parametrize(
    ("server", "kind"),
    [("new", "questions"), ("new", "no questions"), ("new", "state"), ("old", "pages")],
)
def test_no_question_holds_the_loop(server: str, kind: str, gateway: Watched) -> None:
    """docs/behaviour.md#size-limits: 20 ms."""
    call = {"name": f"{server}__say", "arguments": {"kind": kind}}
    assert gateway.holds_for(LONG, lambda: ask(gateway, "tools/call", call, f"{server}__say", ASKABLE)) < LONG


@pytest.mark.parametrize("kind", [*LOOKS, "task error"])
def test_nothing_that_a_server_says_of_a_task_holds_the_loop(kind: str, gateway: Watched) -> None:
    """docs/behaviour.md#size-limits: 20 ms."""
    assert gateway.holds_for(LONG, lambda: look(gateway, kind)) < LONG


def test_an_error_grows_little_by_the_longer_name_of_its_task(gateway: Watched) -> None:
    """Ours: what a server calls its task is replaced in errors by what the client calls it, which is longer."""
    error = json.loads(look(gateway, "task error"))["error"]
    assert error["code"] == -32000
    assert len(error["message"]) < 1_000_000
