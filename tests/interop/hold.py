"""Stands before the gateway and holds a client's listing or call back until the given tools are there.

    python hold.py TOOL[,TOOL...] COMMAND [ARGUMENT ...]

For clients that start the gateway, list once and leave: the gateway answers a listing at once with
what is ready, which right after the start is nothing. It asks in between with the client's own
envelope and ids of its own, whose answers the client never sees. Standard library only.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from typing import Any, BinaryIO

SECONDS = 40
POLL_SECONDS = 0.1


def from_gateway(gateway: BinaryIO, answers: queue.Queue[dict[str, Any]]) -> None:
    """Pass on what the gateway says, except the answers to our own questions."""
    for line in gateway:
        message = json.loads(line)
        if message.get("id") == __file__:
            answers.put(message)
        else:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


def wait_for(tools: set[str], gateway: BinaryIO, answers: queue.Queue[dict[str, Any]], meta: dict[str, Any]) -> None:
    deadline = time.monotonic() + SECONDS
    question = {"jsonrpc": "2.0", "id": __file__, "method": "tools/list", "params": {"_meta": meta}}
    while time.monotonic() < deadline:
        gateway.write(json.dumps(question).encode() + b"\n")
        gateway.flush()
        if tools <= {tool["name"] for tool in answers.get(timeout=SECONDS)["result"]["tools"]}:
            return
        time.sleep(POLL_SECONDS)
    sys.exit(f"hold: not listed after {SECONDS} s: {sorted(tools)}")


def main() -> None:
    tools, *command = sys.argv[1:]
    answers: queue.Queue[dict[str, Any]] = queue.Queue()
    gateway = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    threading.Thread(target=from_gateway, args=(gateway.stdout, answers)).start()
    with gateway.stdin as to_gateway:  # closing it is what ends the gateway, and with it the thread
        waited = False
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if not waited and message.get("method") in ("tools/list", "tools/call"):
                meta = message.get("params", {}).get("_meta", {})
                meta.pop("progressToken", None)
                wait_for(set(tools.split(",")), to_gateway, answers, meta)
                waited = True
            to_gateway.write(line)
            to_gateway.flush()


main()
