"""A small MCP server that says which process it is and what it was started with. Standard library only."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

LOCK = threading.Lock()


def say(message: dict[str, Any]) -> None:
    with LOCK:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def call(request: dict[str, Any]) -> None:
    """Tell who we are, after as many seconds as the caller says, or when it lets us."""
    arguments = request["params"].get("arguments", {})
    time.sleep(arguments.get("seconds", 0))
    if "held" in arguments:
        folder = Path(arguments["held"])
        (folder / "begun").touch()
        while not (folder / "let go").exists():
            time.sleep(0.02)
    who = {"pid": os.getpid(), "arguments": sys.argv[1:], "secret": os.environ.get("SECRET")}
    say({"jsonrpc": "2.0", "id": request["id"], "result": {"content": [], "structuredContent": who}})


def main(*tools: str) -> None:
    if "fail" in tools:
        sys.exit("fail: as I was told")
    for line in sys.stdin:
        request = json.loads(line)
        method = request.get("method")
        if "id" not in request or method is None:
            continue
        if method == "initialize":
            version = request["params"]["protocolVersion"]
            info = {"name": "child", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            say({"jsonrpc": "2.0", "id": request["id"], "result": result})
        elif method == "tools/list":
            listed = [{"name": name, "inputSchema": {"type": "object"}} for name in ("who", *tools)]
            say({"jsonrpc": "2.0", "id": request["id"], "result": {"tools": listed}})
        elif method == "tools/call":
            threading.Thread(target=call, args=(request,), daemon=True).start()
        elif method == "ping":
            say({"jsonrpc": "2.0", "id": request["id"], "result": {}})
        else:
            say({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": f"no {method}"}})


if __name__ == "__main__":
    main(*sys.argv[1:])
