"""A server whose messages are as bad as the limits allow: what it lists (its argument says), and what its tool says.

What it lists it may list only from when its tool is asked to `change` (second argument), and after that each time with
one entry less.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

KIB, MIB = 1024, 1024 * 1024
PLAIN = {"name": "echo", "inputSchema": {"type": "object"}}
SAY = {"name": "say", "inputSchema": {"type": "object", "properties": {"kind": {"type": "string"}}}}


def tools(kind: str) -> list[dict[str, Any]]:
    """What it lists."""
    schema: dict[str, Any] = {"type": "object"}
    if kind == "many":
        return [{"name": f"tool_{n}", "description": "It does something.", "inputSchema": schema} for n in range(9_990)]
    if kind == "many hidden":
        return [{"name": f"t{n}", "description": "It\u200b does.", "inputSchema": schema} for n in range(9_990)]
    if kind == "names":
        return [{"name": "n" * 5_000 + str(n), "inputSchema": schema} for n in range(500)]
    if kind == "alike":
        return [{"name": "a" * 60 + "\u0430" * (n % 7) + str(n), "inputSchema": schema} for n in range(2_000)]
    if kind == "hidden":
        return [{"name": f"t{n}", "description": "\u200b" * 40_000, "inputSchema": schema} for n in range(20)]
    if kind == "headers":
        properties = {f"p{n}": {"type": "string", "x-mcp-header": f"H{n}"} for n in range(8_000)}
        return [{"name": "annotated", "inputSchema": {"type": "object", "properties": properties}}]
    if kind == "schema":
        deep: dict[str, Any] = {"type": "string"}
        for _ in range(100):
            deep = {"type": "object", "properties": {"x": deep, "y": {"description": "d" * 200}}}
        return [{"name": f"deep{n}", "inputSchema": deep} for n in range(20)]
    return []


LISTS: dict[str, dict[str, Any]] = {
    "resources": {"resources": [{"uri": f"file:///{n}", "name": f"r{n}"} for n in range(9_990)]},
    "templates": {
        "resourceTemplates": [{"uriTemplate": f"x{n}://{{a}}/{{b}}/{{c}}/{{+d}}", "name": "t"} for n in range(5_000)]
    },
    "templates alike": {
        "resourceTemplates": [{"uriTemplate": f"x://{'{a}b' * 7}{n}", "name": "t"} for n in range(128)]
    },
    "prompts": {"prompts": [{"name": f"p{n}", "arguments": [{"name": "a"}]} for n in range(9_990)]},
}


def said(kind: str, id_: Any) -> bytes:
    """What the tool `say` writes."""

    def result(body: bytes) -> bytes:
        return b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (id_, body)

    answer = result(b'{"content":[]}')
    unknown = b'{"jsonrpc":"2.0","method":"notifications/%b","params":%b}\n'
    many = b",".join(b'"k%d":1' % n for n in range(100_000))
    match kind:
        case "text":
            return result(b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * 2 * MIB))
        case "numbers":
            return result(b'{"content":[],"x":[%b1]}' % (b"1," * MIB))
        case "members":
            return result(b'{"content":[],%b}' % many)
        case "blocks":
            return result(b'{"content":[%b]}' % b",".join([b'{"type":"text","text":"x"}'] * 40_000))
        case "links":
            link = b'{"type":"resource_link","uri":"file:///%d","name":"x"}'
            return result(b'{"content":[%b]}' % b",".join(link % n for n in range(2_000)))
        case "many links":
            link = b'{"type":"resource_link","uri":"x://%b%d/%d","name":"x"}'
            return result(b'{"content":[%b]}' % b",".join(link % (b"b" * 100, id_, n) for n in range(10_000)))
        case "error":
            body = b'{"code":1,"message":"%b","data":{%b}}' % (b"m" * MIB, many)
            return b'{"jsonrpc":"2.0","id":%d,"error":%b}\n' % (id_, body)
        case "envelope":
            return b'{"jsonrpc":"2.0","id":%d,%b,"result":{"content":[]}}\n' % (id_, many)
        case "deep":
            return result(b'{"content":[],"x":%b}' % (b"[" * 100 + b"]" * 100)) + b"[" * MIB + b"\n"
        case "broken":
            return b'{"jsonrpc":"2.0","id":%d,"result":{"x":"%b\n' % (id_, b"\\ud800" * (170 * KIB))
        case "surrogates":
            return result(b'{"content":[],"x":"%b"}' % (b"\\ud800" * (170 * KIB)))
        case "latin":
            return result(b'{"content":[],"x":"%b"}' % (b"\xe9" * (1000 * KIB)))
        case "backslashes":
            return b'{"jsonrpc":"2.0","id":"%b\n' % (b"\\" * MIB) + answer
        case "ids":
            return b'{"id":1,' * (120 * KIB) + b"\n" + answer
        case "quoted":
            return b'"id":"' * (150 * KIB) + b"\n" + answer
        case "braces":
            return b"{" * MIB + b"\n" + b'{ "' * (300 * KIB) + b"\n" + answer
        case "spaces":
            return b"{" + b" " * (4 * MIB) + b"\n" + b" " * (4 * MIB) + b"\n" + answer
        case "glued":
            return b'{"jsonrpc":"2.0","method":"x"}' * 30_000 + b"\n" + answer
        case "seams":
            return b'}   {"jsonrpc"' * 60_000 + b"\n" + answer
        case "batch":
            notices = b",".join([b'{"jsonrpc":"2.0","method":"x"}'] * 100)
            return b"[" + b"1," * MIB + b"1]\n" + b"[" + notices + b"]\n" + answer
        case "digits":
            return result(b'{"content":[],"x":"%b"}' % (b"9" * 2 * MIB)) + answer
        case "log":
            return unknown % (b"message", b'{"level":"info","data":{%b},"logger":"%b"}' % (many, b"l" * MIB)) + answer
        case "progress":
            return unknown % (b"progress", b'{"progressToken":%d,"progress":1,%b}' % (id_, many)) + answer
        case "notice":
            return unknown % (b"x", b"{%b}" % many) + answer
        case "updated":
            return unknown % (b"resources/updated", b'{"uri":"%b"}' % (b"file:///" + b"a/" * MIB)) + answer
        case "asks":
            properties = b",".join(b'"p%d":{"type":"string"}' % n for n in range(1_000))
            params = b'{"message":"m","requestedSchema":{"type":"object","properties":{%b}}}' % properties
            ask = b'{"jsonrpc":"2.0","id":"q%d","method":"elicitation/create","params":%b}\n'
            return b"".join(ask % (n, params) for n in range(40)) + answer
        case "requests":
            return b'{"jsonrpc":"2.0","id":"%b","method":"%b"}\n' % (b"i" * MIB, b"m" * MIB) + answer
        case "junk":
            return b"y\n" * (MIB // 2) + b"\n" * MIB + b"\xff\xfe\n" * 100_000 + answer
        case "rows":
            rows = b",".join(b'{"a":%d,"b":"x","c":[1,2]}' % n for n in range(60_000))
            return result(b'{"content":[],"structuredContent":{"rows":[%b]}}' % rows)
        case "items":
            items = b",".join(b'{"a":%d,"b":"%b"}' % (n, b"x" * 2 * KIB) for n in range(1_000))
            return result(b'{"content":[],"structuredContent":{"rows":[%b]}}' % items)
        case "mails":
            return result(
                b'{"content":[{"type":"text","text":"%b"}]}' % (b"a.b@example.com AKIAABCDEFGHIJKLMNOP " * 50_000)
            )
        case "deepest":
            return result(b'{"content":[],"structuredContent":{"rows":%b}}' % (b'[{"x":' * 440 + b"1" + b"}]" * 440))
        case "deepest blocks":
            row = b'[{"x":' * 440 + b"1" + b"}]" * 440
            return result(b'{"content":[],"structuredContent":{"rows":[%b]}}' % b",".join([row] * 200))
        case "stderr":
            for _ in range(16):
                os.write(2, b"y\n" * 16 * KIB)
            return answer
        case "oversized":
            return b"y" * (17 * MIB) + b"\n" + answer
    return answer


def main() -> None:
    """Serve."""
    listing = sys.argv[1] if len(sys.argv) > 1 else ""
    # How many entries are gone; before the first change all are.
    gone: int | None = None if "later" in sys.argv else 0
    for line in sys.stdin:
        message = json.loads(line)
        method, id_ = message.get("method"), message.get("id")
        if id_ is None or method is None:
            continue
        result: Any = None
        if method == "initialize":
            capabilities = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}}
            info = {"name": "hostile", "version": "1"}
            version = message["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
            result["instructions"] = "Ask little."
        elif method == "tools/list":
            say = {**SAY, "description": f"Without {gone}."}
            result = {"tools": [PLAIN, say, *([] if gone is None else tools(listing)[gone:])]}
        elif method in ("resources/list", "resources/templates/list", "prompts/list"):
            member = {"resources/list": "resources", "prompts/list": "prompts"}.get(method, "resourceTemplates")
            result = {member: [] if gone is None else LISTS.get(listing, {}).get(member, [])[gone:]}
        elif method == "tools/call":
            kind = message["params"].get("arguments", {}).get("kind", "")
            data = said(kind, id_)
            if kind == "change":
                gone = 0 if gone is None else gone + 1
                notice = b'{"jsonrpc":"2.0","method":"notifications/%b/list_changed"}\n'
                data += b"".join(notice % kind for kind in (b"tools", b"resources", b"prompts"))
            while data:
                data = data[os.write(1, data) :]
            continue
        answer = {"jsonrpc": "2.0", "id": id_}
        answer |= {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
        data = json.dumps(answer).encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]


if __name__ == "__main__":
    main()
