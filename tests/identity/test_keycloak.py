"""Keycloak as the company's provider: groups decide who may call what, people sign on, tokens are traded."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from muxway import Gateway
from muxway.config import parse_config

from ..interop import drive, peers
from ..serve.harness import initialize
from ..serve.test_serve import Served
from .keycloak import AUDIENCE, GATEWAY_SECRET, PASSWORD, Keycloak
from .test_real_issuer import CLIENTS, TOOL, inspected

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def keycloak(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keycloak]:
    keycloak = Keycloak(tmp_path_factory.mktemp("keycloak"))
    yield keycloak
    keycloak.stop()


RULES = [{"groups": ["dev"], "do": "allow"}, {"tools": ["clock__*"], "do": "allow"}, {"do": "deny"}]


def tools(served: Served, token: str) -> list[str]:
    """What somebody is shown."""
    headers = {"Authorization": f"Bearer {token}"}
    status, _, said = served.ask("POST", "/mcp", initialize(), **headers)
    assert status == 200, served.said()
    session = {**headers, "Mcp_Session_Id": said["mcp-session-id"], "MCP_Protocol_Version": "2025-11-25"}
    listed = served.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, **session)[1]
    return [tool["name"] for tool in listed["result"]["tools"]]


def test_groups_of_the_realm_decide_who_may_call_what(keycloak: Keycloak, tmp_path: Path) -> None:
    """docs/identity-team.md#who-somebody-is, docs/access.md."""
    auth = {"issuer": keycloak.issuer, "audience": [AUDIENCE], "claims": {"user": "preferred_username"}}
    served = Served(tmp_path, gateway={"auth": auth, "access": RULES})
    try:
        hers, his = tools(served, keycloak.token("ann")), tools(served, keycloak.token("bob"))
        assert [name for name in hers if name.startswith("notes__")]
        assert his
        assert all(name.startswith("clock__") for name in his)
        other = f"{keycloak.token('ann')[:-8]}AAAAAAAA"
        assert served.ask("POST", "/mcp", initialize(), Authorization=f"Bearer {other}")[0] == 401
    finally:
        served.end()


@contextlib.contextmanager
def in_front_of(keycloak: Keycloak, folder: Path) -> Iterator[Served]:
    """A gateway with an authorization server of its own, where people sign on at Keycloak."""
    sign_on = {"clientId": "gateway", "clientSecret": GATEWAY_SECRET, "scopes": ["openid"]}
    claims = {"user": "preferred_username"}
    auth = {"issuer": keycloak.issuer, "scopes": ["mcp:tools"], "signOn": sign_on, "server": {}, "claims": claims}
    served = Served(folder, gateway={"auth": auth, "access": [{"groups": ["dev"], "do": "allow"}, {"do": "deny"}]})
    try:
        yield served
    finally:
        served.end()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_keycloak_does_not_know_logs_in(
    client: str, keycloak: Keycloak, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/identity-team.md#clients-that-must-register-themselves: its user signs on at Keycloak's page."""
    monkeypatch.setenv("LOGIN", f"ann:{PASSWORD}")
    with in_front_of(keycloak, tmp_path) as served:
        done = drive.finish(CLIENTS[client](served.url("/mcp"), str(peers.ensure("node") / "node_modules")))
        assert done.returncode == 0, f"{done.stderr}\n{served.said()}"
        assert ":" in json.loads(done.stdout)["text"]


def test_the_inspector_logs_in_by_keycloak(keycloak: Keycloak, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/identity-team.md#clients-that-must-register-themselves: with nothing but the URL."""
    monkeypatch.setenv("LOGIN", f"ann:{PASSWORD}")
    with in_front_of(keycloak, tmp_path) as served:
        assert TOOL in inspected(served, tmp_path, monkeypatch)


async def test_a_token_is_exchanged_for_one_of_a_server(keycloak: Keycloak, tmp_path: Path) -> None:
    """docs/identity.md#machines: `grant: token_exchange`, at a server that takes tokens for itself alone (RFC 8693)."""
    inner: dict[str, Any] = {"issuer": keycloak.issuer, "audience": ["inner-server"]}
    served = Served(tmp_path, gateway={"auth": inner, "access": [{"users": ["*"], "do": "allow"}, {"do": "deny"}]})
    subject = keycloak.token("ann")
    try:
        # The token that was traded is for others.
        assert served.ask("POST", "/mcp", initialize(), Authorization=f"Bearer {subject}")[0] == 401
        oauth = {
            "grant": "token_exchange",
            "clientId": "gateway",
            "clientSecret": GATEWAY_SECRET,
            "subjectToken": subject,
        }
        config = parse_config({"mcpServers": {"inner": {"url": served.url("/mcp"), "oauth": oauth}}})
        async with Gateway.open(config) as gateway:
            result = await gateway.call(f"inner__{TOOL}", {})
            assert not result.is_error
        assert subject not in served.said()
    finally:
        served.end()
