"""A server of 2026-07-28, or with a handshake (`legacy`), whose questions and tasks are as bad as the limits allow."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

MANY = b",".join(b'"k%d":1' % number for number in range(120_000))
ONES = b"1," * 1_000_000 + b"1"
LINKS = b",".join(b'{"type":"resource_link","uri":"file:///%d","name":"x"}' % number for number in range(10_000))
ASKS = b'{"resultType":"input_required","requestState":"s","inputRequests":%b}'
CALLS = {
    "questions": ASKS % (b"{" + MANY + b"}"),
    "no questions": ASKS % (b"[" + ONES + b"]"),
    "state": b'{"resultType":"input_required","requestState":"%b"}' % (b"s" * 4_000_000),
}
PAGES = b'{"code":-32042,"message":"m","data":{"elicitations":[%b]}}' % ONES
TASK = b'"taskId":"t","ttlMs":60000,"pollIntervalMs":50,"createdAt":"2026-01-01T00:00:00Z"'
LOOKS = {
    "task": b'"status":"completed","result":{"content":[]}',
    "task with links": b'"status":"completed","result":{"content":[%b]}' % LINKS,
    "task with members": b'"status":"completed","result":{"content":[],%b}' % MANY,
    "task among members": b'"status":"completed","result":{"content":[]},%b' % MANY,
    "task with questions": b'"status":"input_required","inputRequests":{%b}' % MANY,
}
TASK_ERROR = b'{"code":-32000,"message":"%b"}' % (b"t " * 1_000_000)
CAPABILITIES: dict[str, Any] = {"tools": {}, "resources": {}}


def main() -> None:
    """Serve."""
    legacy = "legacy" in sys.argv
    called = ""
    for line in sys.stdin:
        message = json.loads(line)
        method, id_ = message.get("method"), message.get("id")
        if id_ is None or method is None:
            continue
        hints = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "public"}
        result, error = b"", b'{"code":-32601,"message":"no"}'
        if method == "server/discover" and not legacy:
            offered = {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
            result = json.dumps({**hints, **offered}).encode()
        elif method == "initialize" and legacy:
            version = message["params"]["protocolVersion"]
            info = {"name": "worst", "version": "1"}
            greeting = {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": info}
            result = json.dumps(greeting).encode()
        elif method == "tools/list":
            result = json.dumps({**hints, "tools": [{"name": "say", "inputSchema": {"type": "object"}}]}).encode()
        elif method == "resources/list":
            result = json.dumps({**hints, "resources": [{"uri": "file:///1", "name": "r"}]}).encode()
        elif method == "tools/call":
            called = message["params"]["arguments"]["kind"]
            if called == "pages":
                error = PAGES
            else:
                result = CALLS.get(called, b'{"resultType":"task","status":"working",%b}' % TASK)
        elif method == "tasks/get" and called == "task error":
            error = TASK_ERROR
        elif method == "tasks/get":
            result = b'{"resultType":"complete",%b,%b}' % (TASK, LOOKS[called])
        said = b'"result":' + result if result else b'"error":' + error
        data = b'{"jsonrpc":"2.0","id":%d,%b}\n' % (id_, said)
        while data:
            data = data[os.write(1, data) :]


if __name__ == "__main__":
    main()
