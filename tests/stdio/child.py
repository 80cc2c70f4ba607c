"""A small MCP server on real pipes that behaves, or misbehaves, as its arguments say. Standard library only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

SLEEPER = "import time; time.sleep(120)"


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def raw(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def tool_crash(request: dict[str, Any]) -> None:
    sys.stderr.write("Traceback: something broke\nfatal: out of cheese\n")
    sys.stderr.flush()
    os._exit(3)


def tool_kill(request: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def tool_hang(request: dict[str, Any]) -> None:
    """No answer, ever; everything else goes on."""


def tool_close_stdout(request: dict[str, Any]) -> None:
    os.close(1)
    time.sleep(60)


def tool_partial(request: dict[str, Any]) -> None:
    raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[' % request["id"])
    os._exit(0)


def tool_endless(request: dict[str, Any]) -> None:
    raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":"' % request["id"])
    for _ in range(40):
        raw(b"x" * (1 << 20))
    raw(b'"}}\n')


def tool_stderr_flood(request: dict[str, Any]) -> None:
    for n in range(20_000):
        sys.stderr.write(f"line {n} of very much noise on stderr, far more than a pipe holds\n")
    sys.stderr.flush()
    answer(request, {"content": [], "done": True})


def tool_sleep(request: dict[str, Any]) -> None:
    time.sleep(request["params"]["arguments"]["seconds"])
    answer(request, {"content": [], "slept": True})


def tool_environment(request: dict[str, Any]) -> None:
    answer(request, {"content": [], "env": dict(os.environ), "fds": [fd for fd in range(256) if _is_open(fd)]})


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def tool_spawn(request: dict[str, Any]) -> None:
    grandchild = subprocess.Popen([sys.executable, "-c", SLEEPER])
    daemon = subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True)
    answer(request, {"content": [], "pids": [os.getpid(), grandchild.pid, daemon.pid]})


def tool_secret(request: dict[str, Any]) -> None:
    sys.stderr.write(f"my token is {os.environ['TOKEN']}\n")
    sys.stderr.flush()
    os._exit(9)


def tool_big(request: dict[str, Any]) -> None:
    size = request["params"]["arguments"]["size"]
    answer(request, {"content": [{"type": "text", "text": "x" * size}]})


def answer(request: dict[str, Any], result: dict[str, Any]) -> None:
    say({"jsonrpc": "2.0", "id": request["id"], "result": result})


def tool_echo(request: dict[str, Any]) -> None:
    answer(request, {"content": [{"type": "text", "text": json.dumps(request["params"].get("arguments"))}]})


TOOLS = {name.removeprefix("tool_"): function for name, function in globals().items() if name.startswith("tool_")}


def start(mode: str) -> None:
    """Misbehave at the start."""
    if mode == "exit":
        sys.stderr.write("cannot read my database\n")
        sys.exit(7)
    if mode == "junk":
        raw(b"Welcome to the server!\n\xff\xfe\n{not json\n" + b"\x1b[2J\n")
    if mode == "endless":
        while True:
            raw(b"x" * 65536)
    if mode == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def main(mode: str = "plain") -> None:
    start(mode)
    for line in sys.stdin:
        request = json.loads(line)
        method = request.get("method")
        if mode == "mute" or "id" not in request or method is None:
            continue
        if method == "initialize":
            info = {"name": "child", "version": "1"}
            version = request["params"]["protocolVersion"]
            answer(request, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
        elif method == "tools/list":
            answer(request, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]})
        elif method == "tools/call":
            TOOLS[request["params"]["name"]](request)
        else:
            say({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": f"no {method}"}})
    if mode in ("ignore", "linger"):
        time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
