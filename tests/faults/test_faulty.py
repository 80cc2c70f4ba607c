"""The misbehaving server as users get it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

from muxway.testing import faulty


def run(*arguments: str, words: str = "") -> str:
    command = [sys.executable, "-m", "muxway.testing.faulty", *arguments]
    return subprocess.run(command, input=words, capture_output=True, text=True, timeout=30, check=True).stdout


def test_it_tells_what_it_can_do() -> None:
    """Ours: docs/behaviour.md sends people there."""
    said = run("--list")
    assert [name for name in (*faulty.FAULTS, *faulty.STARTS, *faulty.STOPS) if f"  {name} " not in said] == []
    assert [name for name, do in faulty.FAULTS.items() if not do.__doc__] == []


def test_it_serves_when_it_is_run_as_a_module() -> None:
    """Ours: a few requests by hand, and one fault that is answered under the wrong id."""
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "tools/call",
            "params": {"name": "fault", "arguments": {"kind": "other-id"}},
        },
    ]
    said = [json.loads(line) for line in run(words="".join(json.dumps(each) + "\n" for each in requests)).splitlines()]
    assert said[0]["result"]["protocolVersion"] == "2025-06-18"
    assert [tool["name"] for tool in said[1]["result"]["tools"]] == ["echo", "fault", "who"]
    assert said[2]["id"] not in (1, 2, 3)


def test_it_needs_nothing_but_the_standard_library() -> None:
    """Ours: so that it starts quickly, and can be copied to wherever it is needed."""
    tree = ast.parse(Path(faulty.__file__).read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert [name for name in names if name.partition(".")[0] not in sys.stdlib_module_names] == []
