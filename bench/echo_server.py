"""The server every target is measured in front of: an MCP server on stdin and stdout, standard library only.

It is built not to be the bottleneck: many requests per read, one write for all their answers, the id found by a
regular expression, the padding encoded once per size. Whatever the fast patterns do not know goes through `json`.
The answer to `echo` starts with the caller's token, so an answer that reaches the wrong request is seen.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from functools import cache

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
UNIT = '{"path": "src/módulo.py", "line": 12, "text": "return x"},\n'
"""What results are padded with: like most real results it has quotes and newlines to escape, and non-ASCII text."""

ID_FIRST = re.compile(
    rb'\{"jsonrpc":"2\.0","id":(\d+|"[^"\\]*"),"method":"tools/call",'
    rb'"params":\{"name":"echo","arguments":\{"token":"([^"\\]*)","size":(\d+)\}\}\}\r?'
).fullmatch
ID_LAST = re.compile(
    rb'\{"method":"tools/call","params":\{"name":"echo","arguments":\{"token":"([^"\\]*)","size":(\d+)\}\},'
    rb'"jsonrpc":"2\.0","id":(\d+|"[^"\\]*")\}\r?'
).fullmatch


@cache
def padding(size: int) -> tuple[str, bytes]:
    """Return text that takes exactly `size` bytes inside a JSON string, and those bytes."""
    unit = UNIT.replace('"', '\\"').replace("\n", "\\n").encode()
    count, rest = divmod(max(size, 0), len(unit))
    return UNIT * count + "x" * rest, unit * count + b"x" * rest


@cache
def ending(size: bytes, token: int) -> bytes:
    """Return what follows a token of this length in a result of this size."""
    return padding(int(size) - token)[1] + b'"}]}'


def tool(name: str, number: int) -> dict[str, object]:
    """Describe one tool in about 200 bytes of JSON."""
    schema = {"type": "object", "properties": {"token": {"type": "string"}, "size": {"type": "integer"}}}
    return {"name": name, "description": f"Tool number {number} of the benchmark's server.", "inputSchema": schema}


class Server:
    """Answers lines with lines; knows nothing of pipes."""

    def __init__(self, tools: int, *, id_last: bool) -> None:
        self._count = tools
        self._id_last = id_last
        self._listing: bytes | None = None

    def answer(self, lines: list[bytes]) -> list[bytes]:
        """Return the pieces to write for these requests, in order."""
        pieces: list[bytes] = []
        for line in lines:
            if found := ID_FIRST(line):
                number, token, size = found.groups()
            elif found := ID_LAST(line):
                token, size, number = found.groups()
            else:
                pieces += self._slowly(line)
                continue
            pieces += self._echo(number, token, size)
        return pieces

    def _echo(self, number: bytes, token: bytes, size: bytes) -> tuple[bytes, ...]:
        rest = ending(size, len(token))
        if self._id_last:
            return (
                b'{"result":{"content":[{"type":"text","text":"',
                token,
                rest,
                b',"jsonrpc":"2.0","id":',
                number,
                b"}\n",
            )
        return (
            b'{"jsonrpc":"2.0","id":',
            number,
            b',"result":{"content":[{"type":"text","text":"',
            token,
            rest,
            b"}\n",
        )

    def _frame(self, number: bytes, result: bytes) -> tuple[bytes, ...]:
        if self._id_last:
            return (b'{"result":', result, b',"jsonrpc":"2.0","id":', number, b"}\n")
        return (b'{"jsonrpc":"2.0","id":', number, b',"result":', result, b"}\n")

    def _slowly(self, line: bytes) -> tuple[bytes, ...]:
        import json  # only gateways that spell requests differently, and the handshake, come here

        if not line.strip():
            return ()
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            return ()
        number, method, params = json.dumps(message["id"]).encode(), message["method"], message.get("params") or {}
        if method == "tools/call" and params.get("name") == "echo":
            arguments = params.get("arguments") or {}
            return self._echo(number, str(arguments.get("token", "")).encode(), b"%d" % arguments.get("size", 200))
        if method == "tools/list":
            if self._listing is None:
                tools = [tool("echo", 0), *(tool(f"tool_{n:05}", n) for n in range(1, self._count))]
                self._listing = json.dumps({"tools": tools}, separators=(",", ":")).encode()
            return self._frame(number, self._listing)
        if method == "initialize":
            asked = params.get("protocolVersion")
            result = {
                "protocolVersion": asked if asked in REVISIONS else REVISIONS[-1],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "echo", "version": "1"},
            }
            return self._frame(number, json.dumps(result).encode())
        if method == "ping":
            return self._frame(number, b"{}")
        error = {"code": -32601, "message": f"Method not found: {method}"}
        return (json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode() + b"\n",)


def write(pieces: list[bytes]) -> None:
    """Write small answers in one go, and large ones without copying them together first."""
    if sum(map(len, pieces)) <= 65536:
        pieces = [b"".join(pieces)]
    while pieces:
        done = os.writev(1, pieces[:512])
        while pieces and done >= len(pieces[0]):
            done -= len(pieces.pop(0))
        if done:
            pieces[0] = pieces[0][done:]


def main() -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", type=int, default=1, help="how many tools to list (default: 1, `echo`)")
    parser.add_argument("--id-last", action="store_true", help="spell answers with the id at the end, as the SDKs do")
    parser.add_argument("--start-delay", type=float, default=0, help="seconds to sleep before the first answer")
    options = parser.parse_args()
    time.sleep(options.start_delay)
    server = Server(options.tools, id_last=options.id_last)
    rest = b""
    while chunk := os.read(0, 1 << 18):
        *lines, rest = (rest + chunk).split(b"\n")
        if pieces := server.answer(lines):
            write(pieces)


if __name__ == "__main__":
    main()
