"""Views over HTTP: by path, by token, for sessions, stateless requests and HTTP+SSE; and by the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from muxway.clients.transports.guard import Guard
from muxway.testing import ScriptedServer

from .harness import Web, initialize, modern, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    Webs = Callable[..., AbstractAsyncContextManager[Web]]

VIEWS = {"agent": {"tools": ["s__get"]}, "admin": {"tools": ["s__drop"]}}
TOP = {"views": VIEWS}
WHOLE = ["s__get", "s__drop"]


def _servers() -> dict[str, ScriptedServer]:
    return {"s": ScriptedServer(tools={"get": None, "drop": None})}


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _names(answer: Any) -> list[str]:
    assert answer.status == 200, answer
    return [tool["name"] for tool in answer.json["result"]["tools"]]


async def _listed(http: Web, path: str, headers: dict[str, str] | None = None) -> list[str]:
    """What a stateless request at this path lists."""
    message, given = modern("tools/list")
    return _names(await http.post(message, {**given, **(headers or {})}, path))


@pytest.mark.parametrize(
    ("path", "expected"), [("/mcp", WHOLE), ("/mcp/agent", ["s__get"]), ("/mcp/admin/", ["s__drop"])]
)
async def test_a_view_is_served_at_its_path(path: str, expected: list[str], web: Webs) -> None:
    """docs/views.md: /mcp/<view>, for both eras."""
    async with web(_servers(), top=TOP) as http:
        assert await _listed(http, path) == expected
        opened = await http.post(initialize(), path=path)
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
        assert _names(await http.post(request("tools/list"), session, path)) == expected
        answer = await http.post(request("tools/call", {"name": "s__drop", "arguments": {}}), session, path)
        assert ("error" in answer.json) == ("s__drop" not in expected)
        other = "/mcp/agent" if path != "/mcp/agent" else "/mcp"
        assert (await http.post(request("tools/list"), session, other)).status == 404, "a session keeps its view"
        assert (await http.ask("DELETE", other, session)).status == 404
        assert (await http.ask("DELETE", path, session)).status == 200


async def test_requests_of_one_connection_are_each_answered_for_their_path(web: Webs) -> None:
    """Ours: the quick way remembers headers, not answers."""
    async with web(_servers(), top=TOP) as http:
        message, given = modern("tools/list")
        body = json.dumps(message).encode()
        opened = await http.connect()
        for path, expected in [("/mcp", 2), ("/mcp/agent", 1), ("/mcp/agent", 1), ("/mcp", 2), ("/mcp/admin", 1)] * 2:
            headers = {"Host": http.host, "Content-Type": "application/json", "Accept": "*/*", **given}
            lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
            lines += [f"Content-Length: {len(body)}", "", ""]
            opened.writer.write("\r\n".join(lines).encode() + body)
            await opened.head()
            assert opened.status == 200
            assert len(json.loads(await opened.rest())["result"]["tools"]) == expected


async def test_an_unknown_view_is_404_with_the_known_names(web: Webs) -> None:
    """docs/views.md#tokens: an unknown view is 404."""
    async with web(_servers(), top=TOP) as http:
        for path in ("/mcp/agnet", "/mcp/agent/more", "/mcp//agent", "/mcp/%61gents"):
            answer = await http.post(request("tools/list"), path=path)
            assert answer.status == 404, path
            assert answer.json["error"]["message"] == "there is no such view; there are: agent, admin"
        assert (await http.ask("GET", "/sse/none", {"Accept": "text/event-stream"})).status == 404
        assert (await http.ask("GET", "/messages/agent")).status == 404


async def test_a_token_bound_to_a_view_opens_only_that_view(web: Webs) -> None:
    """docs/views.md#tokens: each client sees what it should."""
    guard = Guard(tokens=["main"], views={"for-agent": "agent", "for-admin": "admin"})
    async with web(_servers(), top=TOP, guard=guard) as http:
        agent, admin, main = _bearer("for-agent"), _bearer("for-admin"), _bearer("main")
        assert await _listed(http, "/mcp", agent) == ["s__get"]
        assert await _listed(http, "/mcp/agent", agent) == ["s__get"]
        assert await _listed(http, "/mcp", admin) == ["s__drop"]
        assert await _listed(http, "/mcp", main) == WHOLE
        assert await _listed(http, "/mcp/agent", main) == ["s__get"]
        for path in ("/mcp/admin", "/mcp/none"):
            for message, headers in (modern("tools/list"), (request("tools/list"), {}), (initialize(), {})):
                answer = await http.post(message, {**headers, **agent}, path)
                assert answer.status == 403
                assert "admin" not in answer.json["error"]["message"]
        stream = {"Accept": "text/event-stream"}
        assert (await http.ask("GET", "/sse/admin", {**stream, **agent})).status == 403
        for headers in ({}, _bearer("other"), _bearer("for-agen")):
            assert (await http.post(initialize(), headers, "/mcp/agent")).status == 401
            assert (await http.post(initialize(), headers)).status == 401
        session = await http.session(headers=agent)
        assert _names(await session.ask("tools/list")) == ["s__get"]
        assert "error" in (await session.ask("tools/call", {"name": "s__drop", "arguments": {}})).json
        stolen = {**session.headers, **admin}
        assert (await http.post(request("tools/list"), stolen)).status == 404


async def test_tokens_of_views_alone_close_everything_else(web: Webs) -> None:
    """Ours: where some need a token, all do."""
    async with web(_servers(), top=TOP, guard=Guard(views={"for-agent": "agent"})) as http:
        assert (await http.post(initialize())).status == 401
        assert await _listed(http, "/mcp", _bearer("for-agent")) == ["s__get"]


async def test_a_view_can_be_the_default(web: Webs) -> None:
    """docs/views.md: `muxway serve --view`."""
    async with web(_servers(), top=TOP, view="agent") as http:
        assert await _listed(http, "/mcp") == ["s__get"]
        assert await _listed(http, "/mcp/admin") == ["s__drop"]


@pytest.mark.parametrize(("path", "expected"), [("/sse", WHOLE), ("/sse/agent", ["s__get"])])
async def test_http_sse_has_views_too(path: str, expected: list[str], web: Webs) -> None:
    """docs/views.md: /sse/<view>."""
    async with web(_servers(), top=TOP) as http:
        stream = await http.open("GET", path, {"Accept": "text/event-stream"})
        where = (await stream.event()).data.decode()
        await http.post(initialize("2024-11-05"), path=where)
        assert (await stream.message())["id"] == 0
        await http.post(request("tools/list"), path=where)
        assert [tool["name"] for tool in (await stream.message())["result"]["tools"]] == expected
        stream.drop()


async def test_a_view_is_told_only_of_its_own_changes(web: Webs) -> None:
    """docs/views.md#what-is-in-it: list_changed of a view only when that view's list changed."""
    async with web(
        _servers(), top={"views": {"agent": {"tools": ["s__get*"]}, "admin": {"tools": ["s__drop*"]}}}
    ) as http:
        opened = {}
        for view in VIEWS:
            answer = await http.post(initialize(), path=f"/mcp/{view}")
            headers = {"Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
            told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await http.post(told, headers, f"/mcp/{view}")
            opened[view] = await http.open("GET", f"/mcp/{view}", {**headers, "Accept": "text/event-stream"})
        server = http.world.servers["s"]
        for name in ("get_more", "drop_more"):
            server.tools[name] = None
            server.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            changed = "agent" if name == "get_more" else "admin"
            assert (await opened[changed].message())["method"] == "notifications/tools/list_changed"
        assert not any(stream._events for stream in opened.values())


# --- the command ------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "servers.json"
    server = {"command": sys.executable, "args": ["-m", "muxway.demo.notes"]}
    views = {"reading": {"tools": ["notes__s*"], "tokens": ["reading-token-1"]}}
    file.write_text(json.dumps({"mcpServers": {"notes": server}, "views": views}))
    return file


def _muxway(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "muxway", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **more)


def test_the_command_shows_the_tools_of_a_view(config: Path) -> None:
    """docs/views.md: `muxway tools --view NAME`."""
    done = _muxway("tools", "--config", str(config), "--view", "reading", "--json")
    names = [tool["name"] for tool in json.loads(done.stdout)["tools"]]
    whole = _muxway("tools", "--config", str(config), "--json")
    every = [tool["name"] for tool in json.loads(whole.stdout)["tools"]]
    assert names == [name for name in every if name.startswith("notes__s")]
    assert 0 < len(names) < len(every)


@pytest.mark.parametrize("verb", ["stdio", "serve", "tools"])
def test_an_unknown_view_ends_the_command_with_the_known_names(verb: str, config: Path) -> None:
    """docs/cli.md: exit 2."""
    done = _muxway(verb, "--config", str(config), "--view", "raeding")
    assert done.returncode == 2
    assert 'no view "raeding". There are: reading.' in done.stderr


def test_a_view_is_served_on_stdin_and_stdout(config: Path) -> None:
    """docs/views.md: `muxway stdio --view NAME`."""
    message, _ = modern("tools/list")
    done = _muxway(
        "stdio", "--config", str(config), "--view", "reading", "--list-wait", "20", input=json.dumps(message) + "\n"
    )
    names = [tool["name"] for tool in json.loads(done.stdout.splitlines()[0])["result"]["tools"]]
    assert names
    assert all(name.startswith("notes__s") for name in names)


@pytest.fixture
def serving(config: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "muxway", "serve", "--config", str(config), "--port", "0", "--view", "reading"]
    environ = {**os.environ, "MUXWAY_TOKEN": "main-token-1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        while "listens on" not in line:
            assert line, "it ended"
            line = process.stderr.readline()
        yield line.split()[-1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        process.stderr.close()


def test_views_are_served_over_http_by_the_command(serving: str) -> None:
    """docs/views.md: `muxway serve --view NAME`, and tokens of the config."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    def status(path: str, token: str | None) -> int:
        message, given = modern("tools/list")
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        headers |= {name: value for name, value in given.items() if value is not None}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        asked = Request(serving + path, json.dumps(message).encode(), headers)
        try:
            with urlopen(asked, timeout=20) as answer:
                tools = json.load(answer)["result"]["tools"]
                assert all(tool["name"].startswith("notes__s") for tool in tools)
                return answer.status
        except HTTPError as error:
            with error:
                return error.code

    assert status("/mcp", "main-token-1") == 200
    assert status("/mcp/reading", "main-token-1") == 200
    assert status("/mcp/other", "main-token-1") == 404
    assert status("/mcp", "reading-token-1") == 200
    assert status("/mcp/other", "reading-token-1") == 403
    assert status("/mcp", None) == 401


@pytest.mark.parametrize("path", ["/mcp/agent", "/mcp"])
async def test_a_view_that_a_reload_has_just_taken_away_is_no_internal_error(
    path: str, web: Webs, caplog: pytest.LogCaptureFixture
) -> None:
    """docs/views.md: what is not there is 404, also while the rest of a reload is under way."""
    guard = Guard(tokens=["all"], views={"agent-token": "agent"})
    token = _bearer("agent-token" if path == "/mcp" else "all")
    async with web(_servers(), top=TOP, guard=guard) as http:
        assert await _listed(http, path, token) == ["s__get"]
        runtime = http.door.gateway.runtime
        runtime.replace(replace(runtime.snapshot, views={}))
        message, given = modern("tools/list")
        assert (await http.post(message, {**given, **token}, path)).status == 404
        assert (await http.post(initialize(), token, path)).status == 404
        assert (await http.open("GET", path.replace("mcp", "sse"), token)).status == 404
    assert "internal error" not in caplog.text
