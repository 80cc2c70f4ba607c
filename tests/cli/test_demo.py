"""`muxway demo`: it shows what it claims."""

from __future__ import annotations

import os
import pty
import re
from typing import TYPE_CHECKING

from tests.cli.conftest import processes_with

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Launched


def test_the_demo_shows_servers_tools_calls_and_what_to_do_next(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    """Issue 2, 1: servers, tools, a few real calls with their times; no config, no network, no Node."""
    code, out, err = launch("demo", env={"TMPDIR": str(tmp_path)}).end()
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    for name, revision in (("notes", "2025-06-18"), ("clock", "2024-11-05"), ("text", "2026-07-28")):
        assert re.search(rf"✓ running +{name} +\d tools +\d+ ms +{revision}", out)
    assert "A client of revision 2025-11-25" in out
    assert "A client of revision 2026-07-28" in out
    assert out.count("8 tools") == 2
    assert re.search(r"✓ ok +[\d.]+ ms +notes__add .*\n +\{\"id\": 1", out)
    assert "09:30 in UTC is 18:30" in out
    assert "(after 3 progress notices)" in out
    assert re.search(r"✗ error +[\d.]+ ms +notes__delete id=99\n +there is no note 99", out)
    assert "-32601 Tool not found: notes__ad" in out
    assert re.search(r"100 calls of clock__now, one after another: median [\d.]+ ms", out)
    assert '"args": ["--config", "/path/to/servers.json"]' in out
    assert processes_with(tmp_path) == []
    assert not list(tmp_path.glob("muxway-demo-*"))


def test_the_demo_is_coloured_on_a_terminal_unless_asked_not_to(launch: Callable[..., Launched]) -> None:
    """no-color.org: NO_COLOR wins over the terminal; words and glyphs stay."""
    plain = _on_terminal(launch, {"NO_COLOR": "1", "TERM": "xterm"})
    coloured = _on_terminal(launch, {"TERM": "xterm"})
    assert b"\x1b" not in plain
    assert b"\x1b[32m" in coloured
    assert "✓ ok".encode() in plain


def _on_terminal(launch: Callable[..., Launched], env: dict[str, str]) -> bytes:
    control, terminal = pty.openpty()
    try:
        demo = launch("demo", stdout=terminal, env=env)
        os.close(terminal)
        seen = b""
        while b"Read on" not in seen:
            seen += os.read(control, 65536)
        assert demo.process.wait(timeout=30) == 0
    finally:
        os.close(control)
    return seen
