"""The servers under test: five real ones over data made for the purpose, two of our own, and the gateway in front.

Nothing here starts a process but `git`; a server is only a command until a client runs it.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

from . import peers
from .drive import Call, Server

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SCOPE = "@modelcontextprotocol"
GRAPH = [
    {"type": "entity", "name": "muxway", "entityType": "gateway", "observations": ["forwards bytes", "größer"]},
    {"type": "entity", "name": "MCP", "entityType": "protocol", "observations": []},
    {"type": "relation", "from": "muxway", "to": "MCP", "relationType": "speaks"},
]

LONG_RUNNING = Call("everything__trigger-long-running-operation", {"duration": 0.6, "steps": 3}, progress=True)
UNKNOWN_TOOL = Call("files__no_such_tool")
UNKNOWN_SERVER = Call("nobody__echo")
BARE_NAME = Call("read_graph")
GATEWAY_CALLS = [LONG_RUNNING, UNKNOWN_TOOL, UNKNOWN_SERVER, BARE_NAME]
"""What is called through the gateway only, beside everything in `real_calls`."""


def real_servers(directory: Path) -> dict[str, Server]:
    """The five published servers, each with something to serve in `directory`."""
    files, graph, repository = directory / "files", directory / "graph.jsonl", directory / "repository"
    files.mkdir()
    (files / "note.txt").write_text("first line\nsecond line: äöü €\n", encoding="utf-8")
    graph.write_text("\n".join(map(json.dumps, GRAPH)), encoding="utf-8")
    make_repository(repository)
    servers = [peers.python("servers"), "-m"]
    return {
        "everything": Server([*peers.node_script(f"{SCOPE}/server-everything/dist/index.js"), "stdio"]),
        "files": Server([*peers.node_script(f"{SCOPE}/server-filesystem/dist/index.js"), str(files)]),
        "memory": Server(peers.node_script(f"{SCOPE}/server-memory/dist/index.js"), {"MEMORY_FILE_PATH": str(graph)}),
        "time": Server([*servers, "mcp_server_time", "--local-timezone", "UTC"]),
        "git": Server([*servers, "mcp_server_git", "--repository", str(repository)]),
    }


def make_repository(directory: Path) -> None:
    """A git repository of one commit that is the same whoever makes it, and when."""
    directory.mkdir()
    (directory / "read.me").write_text("hello\n")
    who = {"NAME": "A Tester", "EMAIL": "tester@example.org", "DATE": "2026-01-02T03:04:05+00:00"}
    environment = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}
    # The caller's own settings (signing, hooks, templates) have no say here.
    environment |= {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for command in (["init", "--quiet", "--initial-branch=main"], ["add", "."], ["commit", "--quiet", "-m", "begin"]):
        subprocess.run(["git", *command], cwd=directory, env=environment, check=True)


def real_calls(directory: Path) -> dict[str, list[Call]]:
    """Calls that give the same result every time: texts, pictures, links, structured content, and tool errors."""
    files, repository = str(directory / "files"), str(directory / "repository")
    return {
        "everything": [
            Call("echo", {"message": "grüße, 世界 \u2028 🚀"}),
            Call("get-sum", {"a": 0.1, "b": 2e3}),
            Call("get-sum", {"a": "one"}),
            Call("get-structured-content", {"location": "Chicago"}),
            Call("get-tiny-image"),
            Call("get-annotated-message", {"messageType": "error", "includeImage": True}),
        ],
        "files": [
            Call("read_text_file", {"path": f"{files}/note.txt"}),
            Call("read_text_file", {"path": f"{files}/note.txt", "head": 1}),
            Call("list_directory", {"path": files}),
            Call("read_text_file", {"path": f"{files}/absent.txt"}),
            Call("read_text_file", {"path": "/outside/of/it"}),
        ],
        "memory": [Call("read_graph"), Call("search_nodes", {"query": "gateway"})],
        "time": [
            Call(
                "convert_time", {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "Asia/Kathmandu"}
            ),
            Call("get_current_time", {"timezone": "Mars/Olympus"}),
        ],
        "git": [
            Call("git_status", {"repo_path": repository}),
            Call("git_log", {"repo_path": repository}),
            Call("git_show", {"repo_path": repository, "revision": "HEAD"}),
            Call("git_show", {"repo_path": repository, "revision": "no-such-thing"}),
        ],
    }


def own_server(kind: str) -> Server:
    """One of our small servers: `sdk1` (handshake only), `sdk2` (both eras) or `sdk2-modern` (2026-07-28 only)."""
    sdk, _, era = kind.partition("-")
    script = str(peers.HERE / "servers" / f"{sdk}.py")
    return Server([peers.python(f"mcp{sdk[-1]}"), script, *(["--modern-only"] if era else [])])


HASTY = (str(peers.HERE / "hasty.py"),)
"""How to run a muxway that gathers changes for a moment only."""


def gateway(
    directory: Path, servers: dict[str, Server], *flags: str, program: Sequence[str] = ("-m", "muxway")
) -> Server:
    """The gateway in front of the servers, as a client's configuration would start it."""
    config: dict[str, Any] = {
        "mcpServers": {
            name: {"command": server.command[0], "args": server.command[1:], "env": server.env}
            for name, server in servers.items()
        }
    }
    file = directory / "servers.json"
    file.write_text(json.dumps(config, indent=2))
    return Server([*peers.PYTHON, *program, "stdio", "--config", str(file), *flags])
