"""A server that floods: ready at first, or never, it then writes the same thing without end.

python flooding.py KIND [--at-once]
"""

from __future__ import annotations

import json
import os
import sys
import threading

KINDS = {
    "short": b"y\n" * 16_384,
    "long": (b"y" * 63 + b"\n") * 512,
    "longer": (b"y" * 4_000 + b"\n") * 16,
    "blank": b"\n" * 32_768,
    "spaces": b" \n" * 16_384,
    "endless": b"y" * 65_536,
    "braces": b'{"id": 3, "name": "x"}\n' * 1_000,
    "arrays": b"[]\n" * 10_000,
    "notices": b'{"jsonrpc":"2.0","method":"notifications/nobody/knows","params":{"x":1}}\n' * 500,
    "logs": b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n' * 500,
    "progress": b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}\n'
    * 500,
    "changes": b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n' * 500,
    "pings": b'{"jsonrpc":"2.0","id":"p","method":"ping"}\n' * 500,
    "answers": b'{"jsonrpc":"2.0","id":1,"result":{}}\n' * 500,
}
TOOLS = [{"name": "echo", "inputSchema": {"type": "object"}}]


def flood(file: int, kind: str) -> None:
    """Write it for as long as somebody reads."""
    while True:
        os.write(file, KINDS[kind])


def main() -> None:
    """Serve, and flood."""
    kind, *more = sys.argv[1:]
    file, kind = (2, kind.removeprefix("stderr-")) if kind.startswith("stderr-") else (1, kind)
    if "--at-once" in more:
        flood(file, kind)
    for line in sys.stdin:
        message = json.loads(line)
        method, id_ = message.get("method"), message.get("id")
        if id_ is None or method is None:
            continue
        answer: dict[str, object] = {"jsonrpc": "2.0", "id": id_}
        if method == "initialize":
            info = {"name": "flood", "version": "1"}
            version = message["params"]["protocolVersion"]
            capabilities = {"tools": {"listChanged": True}, "logging": {}}
            answer["result"] = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
        elif method == "tools/list":
            answer["result"] = {"tools": TOOLS}
        elif method == "tools/call":
            answer["result"] = {"content": [{"type": "text", "text": "done"}]}
        else:
            answer["error"] = {"code": -32601, "message": "no"}
        os.write(1, json.dumps(answer).encode() + b"\n")
        if method == "tools/call":
            threading.Thread(target=flood, args=(file, kind), daemon=True).start()


if __name__ == "__main__":
    main()
