"""An MCP server on stdin and stdout for tests that hurt it. Standard library only, so that it starts quickly.

child.py MARK [REVISION] [untidy] [tree]

MARK only shows in the command line, so that a test finds its processes again, however they were orphaned. `untidy`
answers some calls twice and says junk between answers; `tree` has a grandchild and a daemon that ignore SIGTERM.
Each tool answers with the token it was given; `work` may take its time, so answers overtake each other.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from typing import Any

MODERN = "2026-07-28"
JUNK = [b"Listening on nothing\n", b"\xff\xfe\x00\n", b"{not json\n", b'{"jsonrpc":"2.0","id":987654321,"result":{}}\n']
SLEEPER = "import signal,sys,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
TOOLS = ("work", "big", "burst")


class Server:
    """Reads requests, keeps those that are not due yet, answers the others."""

    def __init__(self, revision: str, untidy: bool) -> None:
        self.revision, self.untidy = revision, untidy
        self._due: list[tuple[float, int, dict[str, Any]]] = []
        self._order = itertools.count()
        self._dice = random.Random(os.getpid())

    def run(self) -> None:
        rest = b""
        while True:
            wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            if select.select([0], [], [], wait)[0]:
                data = os.read(0, 1 << 16)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._hear(json.loads(line))
            while self._due and self._due[0][0] <= time.monotonic():
                self._finish(heapq.heappop(self._due)[2])

    def _hear(self, request: dict[str, Any]) -> None:
        method = request.get("method")
        if "id" not in request or method is None:
            return
        declared = {"capabilities": {"tools": {"listChanged": True}, "logging": {}}}
        if method == "initialize" and self.revision != MODERN:
            info = {"name": "child", "version": "1"}
            self._answer(request, {"protocolVersion": self.revision, "serverInfo": info, **declared})
        elif method == "server/discover" and self.revision == MODERN:
            self._answer(request, {"supportedVersions": [MODERN], "ttlMs": 0, **declared})
        elif method == "tools/list":
            self._answer(request, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]})
        elif method == "ping":
            self._answer(request, {})
        elif method == "tools/call":
            delay = request["params"]["arguments"].get("ms", 0) / 1000
            heapq.heappush(self._due, (time.monotonic() + delay, next(self._order), request))
        else:
            self._say({"id": request["id"], "error": {"code": -32601, "message": f"no {method}"}})

    def _finish(self, request: dict[str, Any]) -> None:
        params = request["params"]
        arguments = params["arguments"]
        token = params.get("_meta", {}).get("progressToken")
        if token is not None:
            self._say({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        if params["name"] == "burst":
            for number in range(arguments["count"]):
                said = {"level": "info", "data": f"line {number}"}
                self._say({"method": "notifications/message", "params": said})
        text = arguments["token"]
        padding = [{"type": "text", "text": "x" * arguments["size"]}] if params["name"] == "big" else []
        if self.untidy and self._dice.random() < 0.02:
            _write(self._dice.choice(JUNK))
        self._answer(request, {"content": [{"type": "text", "text": text}, *padding]})
        if self.untidy and self._dice.random() < 0.02:
            self._answer(request, {"content": [{"type": "text", "text": text}]})

    def _answer(self, request: dict[str, Any], result: dict[str, Any]) -> None:
        if self.revision == MODERN:
            result = {"resultType": "complete", **result}
        self._say({"id": request["id"], "result": result})

    def _say(self, message: dict[str, Any]) -> None:
        _write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def main(mark: str, *parts: str) -> None:
    if "tree" in parts:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        sleeper = [sys.executable, "-I", "-S", "-c", SLEEPER, mark]
        subprocess.Popen(sleeper, **quiet)
        subprocess.Popen(sleeper, **quiet, start_new_session=True)
    revision = next((part for part in parts if part.startswith("20")), "2025-11-25")
    Server(revision, "untidy" in parts).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
