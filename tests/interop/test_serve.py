"""Real clients over HTTP: `muxway serve` in front of servers of every transport and era at the same time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from . import drive, peers, serving, world
from .drive import MODERN, NEWEST_HANDSHAKE, Call, Client, Report, Server, Site

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "a-token-of-the-tests"
REFUSAL_SECONDS = 20
"""Longest time in which a client that is not let in must have said so; most need less than one."""


def site(base: str, transport: str, token: str = "") -> Site:
    """Where the gateway speaks this transport."""
    return Site(f"{base}/{'sse' if transport == 'sse' else 'mcp'}", transport, token)


@dataclass(frozen=True)
class Way:
    """A client and the transport it takes."""

    client: Client
    transport: str
    revision: str
    """What the two of them agree on."""

    @property
    def name(self) -> str:
        return f"{self.client.name}-{self.transport}"

    def site(self, base: str, token: str = "") -> Site:
        return site(base, self.transport, token)


WAYS = [
    Way(Client("python1", "2025-06-18"), "http", "2025-06-18"),
    *(Way(client, "http", NEWEST_HANDSHAKE) for client in drive.LEGACY_CLIENTS),
    *(Way(client, "sse", NEWEST_HANDSHAKE) for client in drive.LEGACY_CLIENTS),
    *(Way(client, "http", MODERN) for client in drive.MODERN_CLIENTS),
]
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)

# How each server behind the gateway is reached → which one it is.
UPSTREAMS = {"session": ("sdk1", "streamable"), "modern": ("sdk2", "streamable"), "old": ("sdk1", "sse")}
TOOLS = {
    *("session__add", "session__count", "session__grow"),
    *("modern__add", "modern__gr__e", "modern__count", "modern__wait"),
    *("old__add", "old__count", "old__grow"),
    *("local__add", "local__echo", "local__fail", "local__refuse", "local__count", "local__wait"),
}
SUMS = {"session": {"result": 42}, "modern": {"result": 42}, "old": {"result": 42}, "local": {"sum": 42}}
ADD = {name: Call(f"{name}__add", {"a": 20, "b": 22}) for name in SUMS}
COUNT = {name: Call(f"{name}__count", {"steps": 3}, progress=True) for name in SUMS}
FAIL = Call("local__fail")
REFUSE = Call("local__refuse")
UNKNOWN = Call("session__no_such_tool")
CALLS = [*ADD.values(), *COUNT.values(), FAIL, REFUSE, UNKNOWN]

each_server = pytest.mark.parametrize("server", SUMS)

Visits = Callable[[Way], Report]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of the gateway in front of all four."""
    local = world.own_server("sdk1")
    with ExitStack() as stack:
        servers = {name: {"url": stack.enter_context(serving.http_server(*kind))} for name, kind in UPSTREAMS.items()}
        entries = servers | {"local": {"command": local.command[0], "args": local.command[1:]}}
        yield stack.enter_context(serving.serve(tmp_path_factory.mktemp("serve"), entries))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a gateway that wants a token."""
    local = world.own_server("sdk1")
    entries = {"local": {"command": local.command[0], "args": local.command[1:]}}
    with serving.serve(tmp_path_factory.mktemp("guarded"), entries, "--token", TOKEN) as url:
        yield url


@pytest.fixture(scope="module")
def visits(gateway: str) -> Visits:
    """What each client saw of the gateway; it comes once and makes all its calls."""
    return drive.once_each(lambda way: drive.run(way.client, way.site(gateway), CALLS))


def outcome(report: Report, call: Call) -> drive.Outcome:
    return report.calls[CALLS.index(call)]


@every_way
def test_all_tools_of_all_servers_are_listed(visits: Visits, way: Way) -> None:
    """docs/behaviour.md#over-http: servers of all transports at the same time, for clients of each revision."""
    report = visits(way)

    assert report.version == way.revision
    assert sorted(report.names) == sorted(TOOLS)


@every_way
@each_server
def test_a_call_gives_its_structured_content(visits: Visits, way: Way, server: str) -> None:
    """docs/behaviour.md#over-http: each tool can be called, whoever offers it."""
    result = outcome(visits(way), ADD[server]).result

    assert result is not None
    assert result["structuredContent"] == SUMS[server]


@every_way
@each_server
def test_progress_arrives_step_by_step(visits: Visits, way: Way, server: str) -> None:
    """MCP 2025-11-25, basic/utilities/progress: through an event stream on either side, whatever its kind."""
    counted = outcome(visits(way), COUNT[server])

    assert counted.progress == [{"progress": n, "total": 3, "message": f"step {n}"} for n in (1, 2, 3)]
    assert counted.text == "counted to 3"


@every_way
def test_a_tool_error_stays_a_result(visits: Visits, way: Way) -> None:
    """MCP 2025-11-25, server/tools: over HTTP, too, `isError` is the tool's own word to the model."""
    failed = outcome(visits(way), FAIL)

    assert failed.result is not None
    assert failed.result["isError"] is True
    assert failed.text == "out of paper"


@every_way
def test_a_json_rpc_error_arrives_unchanged(visits: Visits, way: Way) -> None:
    """docs/errors.md#errors: whatever status the transport gives to it."""
    error = outcome(visits(way), REFUSE).error

    assert error is not None
    assert error["code"] == 4711
    assert error["message"].endswith("not today")
    assert error["data"] == {"hint": "ask later", "nothing": None}


@every_way
def test_a_tool_that_is_not_there_is_an_error_with_its_name(visits: Visits, way: Way) -> None:
    """docs/errors.md#errors: -32601 in handshake revisions, -32602 in 2026-07-28."""
    error = outcome(visits(way), UNKNOWN).error

    assert error is not None
    assert error["code"] == (-32602 if way.revision == MODERN else -32601)
    assert error["message"].endswith(f"Tool not found: {UNKNOWN.name}")


# --- who may come in ----------------------------------------------------------------------------


@every_way
def test_a_client_with_the_token_is_let_in(guarded: str, way: Way) -> None:
    """RFC 6750 §2.1: the token goes with every request a client makes, on streams too."""
    report = drive.run(way.client, way.site(guarded, TOKEN), [ADD["local"]])

    assert report.calls[0].result is not None
    assert report.calls[0].result["structuredContent"] == {"sum": 42}


@every_way
@pytest.mark.parametrize("token", ["", "not-this-one"], ids=["none", "wrong"])
def test_a_client_without_the_token_hears_why_and_does_not_hang(guarded: str, way: Way, token: str) -> None:
    """RFC 6750 §3: 401, in the words of each SDK. Over SSE these give only the status to their users."""
    refused = drive.finish(drive.command(way.client, way.site(guarded, token)), REFUSAL_SECONDS)

    assert refused.returncode == 1
    assert refused.stdout == ""
    if way.transport == "sse" or way.client.script == "python1":
        assert re.search(r"\b401\b", refused.stderr), refused.stderr
    else:
        assert "bearer token" in refused.stderr, refused.stderr


# --- Inspector ----------------------------------------------------------------------------------

INSPECTIONS = [("http", "legacy"), ("http", "auto"), ("http", "modern"), ("sse", "legacy")]
every_inspection = pytest.mark.parametrize(("transport", "era"), INSPECTIONS)


@every_inspection
def test_inspector_lists_all_tools(gateway: str, transport: str, era: str) -> None:
    """docs/behaviour.md#over-http: Inspector's CLI works against `muxway serve`."""
    listing = drive.inspect(site(gateway, transport), "--protocol-era", era, "--method", "tools/list")

    assert sorted(tool["name"] for tool in listing["tools"]) == sorted(TOOLS)


@every_inspection
def test_inspector_calls_a_tool_with_a_token(guarded: str, transport: str, era: str) -> None:
    """docs/security.md#what-is-promised-threat-by-threat: and calls, with the token in a header."""
    arguments = ("--method", "tools/call", "--tool-name", "local__add", "--tool-arg", "a=20", "b=22")
    result = drive.inspect(site(guarded, transport, TOKEN), "--protocol-era", era, *arguments)

    assert result["structuredContent"] == {"sum": 42}


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_inspector_says_that_it_is_not_let_in(guarded: str, transport: str) -> None:
    """Ours: it takes any 401 for an invitation to OAuth, and ends with that when nobody is there to log in."""
    refused = drive.finish(drive.inspector(site(guarded, transport), "--method", "tools/list"), REFUSAL_SECONDS)

    assert refused.returncode != 0
    assert "auth_required" in refused.stderr


# --- mcp-remote ---------------------------------------------------------------------------------


@pytest.fixture
def bridge(tmp_path: Path) -> Callable[..., Server]:
    """mcp-remote as a client's configuration would start it: a stdio server that is a client of a URL."""

    def start(url: str, *arguments: str) -> Server:
        script = peers.node_script("mcp-remote/dist/proxy.js")
        return Server([*script, url, "--allow-http", *arguments], {"MCP_REMOTE_CONFIG_DIR": str(tmp_path)})

    return start


@pytest.mark.parametrize(("path", "strategy"), [("/mcp", "http-only"), ("/sse", "sse-only"), ("/mcp", "http-first")])
def test_mcp_remote_bridges_a_stdio_client(
    gateway: str, bridge: Callable[..., Server], path: str, strategy: str
) -> None:
    """docs/behaviour.md#over-http: listing, calls, errors and progress pass a second gateway that is not ours."""
    done = drive.run(drive.PROBE, bridge(gateway + path, "--transport", strategy), CALLS)

    assert sorted(done.names) == sorted(TOOLS)
    assert [(outcome(done, call).result or {}).get("structuredContent") for call in ADD.values()] == [*SUMS.values()]
    assert [[step["progress"] for step in outcome(done, call).progress] for call in COUNT.values()] == [[1, 2, 3]] * 4
    assert (outcome(done, FAIL).result or {})["isError"] is True
    assert (outcome(done, UNKNOWN).error or {})["code"] == -32601


def test_mcp_remote_passes_a_token_and_does_not_log_in(guarded: str, bridge: Callable[..., Server]) -> None:
    """docs/security.md#what-is-promised-threat-by-threat.

    A header from its command line is enough; it neither registers itself nor opens a browser.
    """
    server = bridge(f"{guarded}/mcp", "--header", f"Authorization:Bearer {TOKEN}")
    done = drive.finish(drive.command(drive.PROBE, server, [ADD["local"]]))

    assert done.returncode == 0, done.stderr
    assert '"sum": 42' in done.stdout
    assert not re.search("browser|callback server running|registration", done.stderr, re.IGNORECASE), done.stderr


def test_mcp_remote_with_a_wrong_token_ends_with_the_reason(guarded: str, bridge: Callable[..., Server]) -> None:
    """Ours: it looks for OAuth, finds none, opens no browser, and passes on what we said."""
    server = bridge(f"{guarded}/mcp", "--header", "Authorization:Bearer not-this-one")
    done = drive.finish(drive.command(drive.PROBE, server), REFUSAL_SECONDS)

    assert done.returncode == 1
    assert "HTTP 401" in done.stderr
    assert "bearer token" in done.stderr
    assert "browser" not in done.stderr.lower()
