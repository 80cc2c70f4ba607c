"""What a simple aggregator with `server:tool` names says, muxway says with `--separator :`, over a real pipe."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from tests.stdio.harness import Process, connected, muxway

if TYPE_CHECKING:
    from pathlib import Path

SERVERS = """
import json, sys
TOOLS = {
    "filesystem": {"name": "read_file", "description": "Read contents of a file", "inputSchema":
        {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}},
    "postgres": {"name": "query", "description": "Execute SQL query", "inputSchema":
        {"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]}},
}
for line in sys.stdin:
    message = json.loads(line)
    with open(sys.argv[2], "a") as log:
        log.write(line)
    method, reply = message["method"], {"jsonrpc": "2.0", "id": message.get("id")}
    if method == "initialize":
        reply["result"] = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}},
                           "serverInfo": {"name": sys.argv[1], "version": "1"}}
    elif method == "tools/list":
        reply["result"] = {"tools": [TOOLS[sys.argv[1]]]}
    elif method == "tools/call":
        if message["params"]["arguments"].get("path") == "/invalid/path.txt":
            reply["error"] = {"code": -32603, "message": "File not found: /invalid/path.txt",
                              "data": {"errno": -2, "code": "ENOENT"}}
        else:
            reply["result"] = {"content": [{"type": "text", "text": "File contents here..."}]}
    elif "id" in message:
        reply["error"] = {"code": -32601, "message": "Method not found"}
    if "id" in message:
        print(json.dumps(reply), flush=True)
"""
FLAGS = ("--separator", ":", "--name", "mcp-simple-aggregator", "--server-version", "1.0.0")


def _config(folder: Path) -> dict[str, Any]:
    script = folder / "server.py"
    script.write_text(SERVERS)
    return {
        "mcpServers": {
            name: {"command": sys.executable, "args": [str(script), name, str(folder / f"{name}.log")]}
            for name in ("filesystem", "postgres")
        }
    }


async def _exchange(process: Process, request: dict[str, Any]) -> dict[str, Any]:
    process.send(json.dumps(request).encode())
    while "method" in (message := json.loads(await process.receive())):
        pass
    return message


async def test_every_exchange_of_the_document(tmp_path: Path) -> None:
    """docs/names.md and docs/errors.md: greeting, list, call, and each error, as a client of 2024-11-05 sees them."""
    async with muxway(tmp_path, _config(tmp_path), *FLAGS) as process:
        initialize = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2024-11-05",
                "capabilities": {"sampling": {}},
                "clientInfo": {"name": "claude-desktop", "version": "1.0.0"},
            },
        }
        greeting = await _exchange(process, initialize)
        # The document's `"tools": {}` with what we add to it: changes are told, and there is more than tools.
        offered = greeting["result"]["capabilities"]
        assert offered.pop("tools") == {"listChanged": True}
        assert set(offered) == {"prompts", "resources", "logging"}
        offered.clear()
        assert greeting == {
            "jsonrpc": "2.0",
            "id": 1,
            "result": {
                "protocolVersion": "2024-11-05",
                "capabilities": {},
                "serverInfo": {"name": "mcp-simple-aggregator", "version": "1.0.0"},
            },
        }
        process.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        listed: dict[str, Any] = {"result": {"tools": []}}
        while len(listed["result"]["tools"]) < 2:
            listed = await _exchange(process, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        assert listed == {
            "jsonrpc": "2.0",
            "id": 2,
            "result": {
                "tools": [
                    {
                        "name": "filesystem:read_file",
                        "description": "Read contents of a file",
                        "inputSchema": {
                            "type": "object",
                            "properties": {"path": {"type": "string"}},
                            "required": ["path"],
                        },
                    },
                    {
                        "name": "postgres:query",
                        "description": "Execute SQL query",
                        "inputSchema": {
                            "type": "object",
                            "properties": {"sql": {"type": "string"}},
                            "required": ["sql"],
                        },
                    },
                ]
            },
        }

        def call(name: str, path: str = "/home/user/document.txt") -> dict[str, Any]:
            params = {"name": name, "arguments": {"path": path}}
            return {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}

        assert await _exchange(process, call("filesystem:read_file")) == {
            "jsonrpc": "2.0",
            "id": 3,
            "result": {"content": [{"type": "text", "text": "File contents here..."}]},
        }
        sent = json.loads((tmp_path / "filesystem.log").read_text().splitlines()[-1])
        assert sent["method"] == "tools/call"
        assert sent["params"] == {"name": "read_file", "arguments": {"path": "/home/user/document.txt"}}
        assert await _exchange(process, call("invalid:tool_name")) == {
            "jsonrpc": "2.0",
            "id": 3,
            "error": {"code": -32601, "message": "Tool not found: invalid:tool_name"},
        }
        assert await _exchange(process, call("tool_name")) == {
            "jsonrpc": "2.0",
            "id": 3,
            "error": {"code": -32602, "message": "Tool name must be prefixed with server key: tool_name"},
        }
        assert await _exchange(process, call("filesystem:read_file", "/invalid/path.txt")) == {
            "jsonrpc": "2.0",
            "id": 3,
            "error": {
                "code": -32603,
                "message": "File not found: /invalid/path.txt",
                "data": {"errno": -2, "code": "ENOENT"},
            },
        }


async def test_the_same_server_may_be_configured_twice(tmp_path: Path) -> None:
    """docs/names.md#prefixes: by the key of the config; its special characters are preserved."""
    config = _config(tmp_path)
    entry = config["mcpServers"]["filesystem"]
    config["mcpServers"] = {"fs-home": entry, "my-server_v2": entry}
    async with muxway(tmp_path, config, *FLAGS) as process:
        client = await connected(process, "fs-home", "my-server_v2")
        assert await client.tools() == ["fs-home:read_file", "my-server_v2:read_file"]
