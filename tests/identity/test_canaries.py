"""Secrets of every kind, put everywhere they belong, are nowhere else: not in what is said, shown, started or sent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..serve.harness import initialize, request
from ..serve.test_serve import Served

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN, SECRET = "canary-token-0123456789", "canary-introspection-0123456789"
WRONG = "canary-wrong-0123456789"


def muxway(*words: str) -> str:
    """All that the command says."""
    done = subprocess.run(
        [sys.executable, "-m", "muxway", *words], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr


def of_children(mark: str) -> str:
    """Arguments and variables of every process that a gateway has started."""
    told = ""
    for entry in Path("/proc").iterdir():
        try:
            arguments = (entry / "cmdline").read_bytes() if entry.name.isdecimal() else b""
            if mark.encode() in arguments and b"muxway.demo" in arguments:
                told += (arguments + (entry / "environ").read_bytes()).decode(errors="replace")
        except OSError:
            continue  # It has ended.
    return told


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    auth = {
        "issuer": "http://127.0.0.1:1",
        "introspection": {"url": "http://127.0.0.1:1/ask", "clientId": "muxway", "clientSecret": SECRET},
    }
    served = Served(
        tmp_path,
        gateway={
            "auth": auth,
            "middleware": ["log", {"use": "audit", "path": str(tmp_path / "audit.jsonl")}],
            "maxCalls": 1000,
        },
        MUXWAY_TOKEN=TOKEN,
        MCP_PROXY_LOG_LEVEL="debug",
    )
    yield served
    served.end()


def test_no_secret_is_said_shown_or_handed_on(served: Served, tmp_path: Path) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: logs, answers, audit, status, arguments, variables."""
    config = str(tmp_path / "servers.json")
    made = muxway("key", "create", "ci", "-c", config).splitlines()[0]
    assert made.startswith("mxw_ci_")

    def ask(credential: str, path: str = "/mcp") -> tuple[int, Any]:
        status, body, headers = served.ask("POST", path, initialize(), Authorization=f"Bearer {credential}")
        session = {"Mcp_Session_Id": headers["mcp-session-id"]} if "mcp-session-id" in headers else {}
        said = [body, headers]
        if session:
            call = request("tools/call", {"name": "clock__now", "arguments": {}})
            said += served.ask("POST", path, call, Authorization=f"Bearer {credential}", **session)
        return status, said

    answers = [ask(credential) for credential in (TOKEN, WRONG, f"{WRONG}.a.b", f"{made}x")]
    assert [status for status, _ in answers] == [200, 503, 401, 401]
    answers += [ask(TOKEN, path) for path in ("/mcp/none", f"/mcp?access_token={WRONG}", "/sse")]
    shown = repr(answers)
    shown += muxway("key", "list", "-c", config, "--json")
    shown += muxway("status", "--json", "--pid", str(served.process.pid))
    shown += muxway("check", config)
    shown += muxway("explain", "clock__now", "-c", config)
    children = of_children(str(tmp_path))
    assert "muxway.demo" in children
    shown += children
    served.end()
    shown += served.said() + (tmp_path / "audit.jsonl").read_text()
    secrets = [TOKEN, SECRET, WRONG, made, made.split("_", 2)[2]]
    assert [secret for secret in secrets if secret in shown] == []
    # And all of that has really been looked at.
    assert "clock__now" in shown
    assert json.loads((tmp_path / "audit.jsonl").read_text().splitlines()[-1])["outcome"]
    assert os.environ.get("MUXWAY_TOKEN") is None
