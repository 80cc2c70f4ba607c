"""What `muxway demo` shows: three tiny servers of three protocol revisions, and a client to reach them.

    notes  2025-06-18  handshake, structured results
    clock  2024-11-05  the oldest handshake, text only
    text   2026-07-28  stateless, a slow tool that reports progress and can be cancelled

The servers are real child processes and know nothing of muxway but `serving.py`, which is standard library only.
"""

from __future__ import annotations

import sys
from typing import Any

SERVERS = ("notes", "clock", "text")


def config() -> dict[str, Any]:
    """A configuration with every demo server, in the shape all MCP clients know."""
    return {
        "mcpServers": {name: {"command": sys.executable, "args": ["-m", f"muxway.demo.{name}"]} for name in SERVERS}
    }
