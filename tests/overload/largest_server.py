"""Every kind of message that a server can send, as large as it may be, and full of what takes longest to read.

As a program it is a server on stdio whose tool `say` sends the message that its arguments name.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

MIB = 1024 * 1024
SIZES = {"largest": 16 * MIB - 1024, "large": 8 * MIB, "unasked": MIB - 1024}
"""What `maxMessageBytes` lets through, half of it, and what is taken of notifications."""
VALUES = {
    "numbers": b"[%b1]",
    "members": b"{%b}",
    "objects": b"[%b1]",
    "strings": b"[%b1]",
    "escapes": b'"%b"',
    "text": b'"%b"',
    "letters": b'"%b"',
    "blanks": b"[%b1]",
}
UNITS = {
    "numbers": b"1,",
    "objects": b'{"a":1},',
    "strings": b'"{,",',
    "escapes": b"\\n",
    "text": b"x, [y] ",
    "letters": "é".encode(),
    "blanks": b" ",
}
MESSAGES = (
    *(
        "result",
        "structured",
        "content",
        "error",
        "error message",
        "sampling",
        "elicitation",
        "roots",
        "ping",
        "unknown",
    ),
    *("log", "progress", "updated", "cancelled", "changed", "notice", "answer id", "request id", "method", "batch"),
    *("broken", "not UTF-8", "other member", "late answer"),
)


def filling(kind: str, size: int) -> bytes:
    """A JSON value of this size."""
    if kind == "members":
        many = b",".join(b'"k%07d":1' % number for number in range(size // 13))
    else:
        many = UNITS[kind] * (size // len(UNITS[kind]))
    return VALUES[kind] % many


def text(kind: str, size: int) -> bytes:
    """A JSON string of this size."""
    return filling(kind if kind in ("text", "escapes", "letters") else "text", size)


def message(what: str, kind: str, size: int, id_: int) -> tuple[bytes, bool]:
    """A message while a call with this id is under way, and whether it is the call's answer."""
    size -= 512
    value = b"" if what in ("error message", "answer id", "request id", "method") else filling(kind, size)
    request = b'{"jsonrpc":"2.0","id":"q","method":"%b","params":%b}'
    notice = b'{"jsonrpc":"2.0","method":"notifications/%b","params":%b}'
    answer = b'{"jsonrpc":"2.0","id":%d,' % id_
    schema = b'{"type":"object","properties":{"a":{"type":"string"}}}'
    match what:
        case "result":
            return answer + b'"result":{"content":[],"x":%b}}' % value, True
        case "structured":
            return answer + b'"result":{"content":[],"structuredContent":{"x":%b}}}' % value, True
        case "content":
            return answer + b'"result":{"content":%b}}' % value, True
        case "error":
            return answer + b'"error":{"code":1,"message":"m","data":%b}}' % value, True
        case "error message":
            return answer + b'"error":{"code":1,"message":%b}}' % text(kind, size), True
        case "sampling":
            said = b'{"messages":[{"role":"user","content":{"type":"text","text":"x"}}],"maxTokens":1,"metadata":%b}'
            return request % (b"sampling/createMessage", said % value), False
        case "elicitation":
            said = b'{"message":"m","requestedSchema":%b,"x":%b}' % (schema, value)
            return request % (b"elicitation/create", said), False
        case "roots":
            return request % (b"roots/list", b'{"x":%b}' % value), False
        case "ping":
            return request % (b"ping", b'{"x":%b}' % value), False
        case "unknown":
            return request % (b"nobody/knows", b'{"x":%b}' % value), False
        case "log":
            return notice % (b"message", b'{"level":"error","data":%b}' % value), False
        case "progress":
            return notice % (b"progress", b'{"progressToken":%d,"progress":1,"x":%b}' % (id_, value)), False
        case "updated":
            return notice % (b"resources/updated", b'{"uri":"file:///a","x":%b}' % value), False
        case "cancelled":
            return notice % (b"cancelled", b'{"requestId":%b}' % value), False
        case "changed":
            return notice % (b"tools/list_changed", b'{"x":%b}' % value), False
        case "notice":
            return notice % (b"nobody/knows", b'{"x":%b}' % value), False
        case "answer id":
            return b'{"jsonrpc":"2.0","id":%b,"result":{}}' % text(kind, size), False
        case "request id":
            return b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % text(kind, size), False
        case "method":
            return b'{"jsonrpc":"2.0","id":"q","method":%b}' % text(kind, size), False
        case "batch":
            return b'[{"jsonrpc":"2.0","method":"x","params":{"x":%b}}]' % value, False
        case "broken":
            return b'{"jsonrpc":"2.0","id":"x","result":{"x":%b}' % value, False
        case "not UTF-8":
            return b'{"jsonrpc":"2.0","id":"x","result":{"x":%b,"y":"\xff"}}' % value, False
        case "other member":
            return b'{"jsonrpc":"2.0","x":%b,"id":%d,"result":{"content":[]}}' % (value, id_), True
        case "late answer":
            return b'{"jsonrpc":"2.0","id":1,"result":{"x":%b}}' % value, False
    raise AssertionError(what)


def outcome(asked: dict[str, Any]) -> dict[str, Any]:
    """What answers anything but a call."""
    method = asked["method"]
    if method == "initialize":
        capabilities = {"tools": {}, "resources": {"subscribe": True}, "logging": {}}
        info = {"name": "largest", "version": "1"}
        version = asked["params"]["protocolVersion"]
        return {"result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}}
    if method == "tools/list":
        return {"result": {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]}}
    if method == "resources/list":
        return {"result": {"resources": []}}
    return {"error": {"code": -32601, "message": "no"}}


def said(asked: dict[str, Any]) -> list[bytes]:
    """What the tool says; the last answers the call."""
    wanted = asked["params"].get("arguments", {})
    answer = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % asked["id"]
    if "what" not in wanted:
        return [answer]
    frame, answers = message(wanted["what"], wanted["kind"], wanted["size"], asked["id"])
    assert len(frame) <= SIZES["largest"]
    return [frame] if answers else [frame, answer]


def main() -> None:
    """Serve."""
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked or "method" not in asked:
            continue
        if asked["method"] == "tools/call":
            data = b"\n".join(said(asked)) + b"\n"
        else:
            data = json.dumps({"jsonrpc": "2.0", "id": asked["id"], **outcome(asked)}).encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]


if __name__ == "__main__":
    main()
