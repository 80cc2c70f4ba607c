"""`--debug` and `--trace`: what goes by, for whoever looks for a fault."""

from __future__ import annotations

import json
import re
import stat
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Launched

SECRET = 'hunter2"hunter2'


@pytest.fixture
def config(servers: Path) -> Path:
    """The demo servers, one of which has a secret."""
    data = json.loads(servers.read_text())
    data["mcpServers"]["notes"]["env"] = {"API_KEY": SECRET}
    servers.write_text(json.dumps(data))
    return servers


def read(file: Path) -> list[dict[str, Any]]:
    """The lines of a trace."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_every_message_is_in_the_trace_and_in_the_log(
    launch: Callable[..., Launched], config: Path, tmp_path: Path
) -> None:
    """Ours: docs/operating.md#messages: both sides, both directions; secrets masked; nobody else may read the file."""
    file = tmp_path / "trace.jsonl"
    gateway = launch("stdio", config, "--debug", "--trace", file)
    gateway.hello()
    gateway.tools(8)
    answer = gateway.ask(7, "tools/call", name="notes__add", arguments={"text": f"the key is {SECRET}"})
    assert not answer["result"].get("isError")
    assert gateway.process.stdin is not None
    gateway.process.stdin.close()
    gateway.process.stdin = None
    code, _, err = gateway.end()
    assert code == 0
    lines = read(file)
    asked = next(line for line in lines if line["message"].get("id") == 7 and line["way"] == "from client")
    assert asked["message"]["params"]["arguments"]["text"] == "the key is ***"
    onward = [line for line in lines if line["way"] == "to notes" and line["message"].get("method") == "tools/call"]
    assert onward[0]["message"]["params"]["name"] == "add"
    assert {"from client", "to client", "from notes", "to notes", "from clock", "to clock"} <= {
        line["way"] for line in lines
    }
    assert "hunter2" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert re.search(r'debug message way="from client" method=tools/call id=7 bytes=\d+\n', err)
    assert re.search(r'debug message way="to client" method=tools/call id=7 answer=result bytes=\d+ ms=[\d.]+\n', err)
    assert re.search(r'debug message way="to notes" method=tools/call id=\d+ bytes=\d+\n', err)


def test_messages_over_http_are_in_the_trace(launch: Callable[..., Launched], config: Path, tmp_path: Path) -> None:
    """Ours: docs/operating.md#messages: bodies and events alike."""
    file = tmp_path / "trace.jsonl"
    file.touch(0o644)
    gateway = launch("serve", config, "--port", "0", "--trace", file)
    assert gateway.process.stderr is not None
    line = ""
    while "MCP (Streamable HTTP)" not in line:
        line = gateway.process.stderr.readline().decode()
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = urllib.request.Request(line.split()[-1], json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        response.read()
    until(lambda: sum(1 for line in read(file) if line["message"].get("id") == 1 and "client" in line["way"]) == 2)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_trace_that_cannot_be_written_is_told(launch: Callable[..., Launched], config: Path) -> None:
    """Ours: before anything is served."""
    code, _, err = launch("stdio", config, "--trace", "/nowhere/trace").end()
    assert code == 3
    assert "--trace cannot be written to: No such file or directory: /nowhere/trace." in err
