"""A server on stdio that has what a file says, once another file is there: `listing_server.py STATE GATE`.

STATE holds `{"tools": [names], "instructions": text}`, or `{"fails": true}` for one that ends instead. It is read at
the start, when GATE is there.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def say(answer: dict[str, object]) -> None:
    """Write a line."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **answer}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve until the input ends."""
    state, gate = Path(sys.argv[1]), Path(sys.argv[2])
    while not gate.exists():
        time.sleep(0.01)
    has = json.loads(state.read_text())
    if has.get("fails"):
        sys.exit("it is not to be")
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if method == "initialize":
            info = {"name": "listing", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "serverInfo": info, "capabilities": {"tools": {}}}
            result["instructions"] = has.get("instructions", "")
        elif method == "tools/list":
            result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in has["tools"]]}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": message["params"]["name"]}]}
        elif "id" in message:
            error = {"code": -32601, "message": "no such method"}
            say({"id": message["id"], "error": error})
            continue
        else:
            continue
        say({"id": message["id"], "result": result})


if __name__ == "__main__":
    main()
