"""A server object of the official SDK as a server in the same process."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from . import peers


def told(env: str, script: str, *options: str) -> Any:
    """What a script says that runs with one of the SDKs, and with muxway."""
    done = subprocess.run(
        [peers.python(env), *options, str(peers.HERE / "servers" / script)],
        env={**os.environ, "PYTHONPATH": str(peers.ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("env", "revision"), [("mcp1", "2025-11-25"), ("mcp2", "2026-07-28")])
def test_a_server_of_either_sdk_version_runs_inside_the_gateways_process(env: str, revision: str) -> None:
    """docs/library.md#servers-in-this-process: in-process servers from an official-SDK server."""
    assert told(env, "in_process.py") == {
        "status": "running",
        "revision": revision,
        "tools": ["calc__add", "calc__fail"],
        "sum": {"result": 3},
        "failed": True,
        "left": [],
    }


@pytest.mark.parametrize("env", ["mcp1", "mcp2"])
def test_a_session_is_served_by_the_handshake_side_of_a_server_in_the_process(env: str) -> None:
    """2025-11-25, server/utilities/logging: a server may log to a client that set no level; 2026-07-28 wants one."""
    assert told(env, "in_process_session.py", "-W", "ignore") == ["said on the way", "done"]
