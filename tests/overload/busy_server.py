"""A stdio server with few hands: `work` takes 40 ms of one of them, `hang` takes one for good, `echo` needs none."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

HANDS = 2
WORK_SECONDS = 0.04
"""Together 50 calls a second: ten times that is still little for the gateway and for who drives it."""
TOOLS = ("work", "hang", "echo")


async def main() -> None:
    """Serve until stdin ends."""
    reader = asyncio.StreamReader(limit=1 << 24)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    hands = asyncio.Semaphore(HANDS)
    running: set[asyncio.Task[None]] = set()
    while line := await reader.readline():
        message = json.loads(line)
        if "id" in message and "method" in message:
            task = asyncio.create_task(answer(message, hands))
            running.add(task)
            task.add_done_callback(running.discard)


async def answer(message: dict[str, Any], hands: asyncio.Semaphore) -> None:
    """Answer one request."""
    method, result = message["method"], {}
    if method == "initialize":
        info = {"name": "busy", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
    elif method == "tools/call":
        if message["params"]["name"] != "echo":
            async with hands:
                await asyncio.sleep(WORK_SECONDS if message["params"]["name"] == "work" else 3600)
        result = {"content": [{"type": "text", "text": message["params"]["name"]}]}
    elif method != "ping":
        say({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": method}})
        return
    say({"jsonrpc": "2.0", "id": message["id"], "result": result})


def say(message: dict[str, Any]) -> None:
    """Send a message."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


asyncio.run(main())
