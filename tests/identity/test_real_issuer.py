"""A real OpenID provider, real clients of both SDKs, and `muxway serve` between them, as users would start them."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..interop import drive, peers
from ..ports import free_port
from ..serve.harness import initialize
from ..serve.test_serve import Served

if TYPE_CHECKING:
    from collections.abc import Iterator

REAL = Path(__file__).with_name("real")
TOOL = "clock__now"
MACHINE = {
    "client_id": "machine",
    "client_secret": "machine-s3cr3t",
    "grant_types": ["client_credentials"],
    "redirect_uris": [],
    "response_types": [],
}


GATEWAY = {
    "client_id": "muxway",
    "application_type": "native",
    "redirect_uris": ["http://127.0.0.1/sign-on/callback"],
    "grant_types": ["authorization_code"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "none",
}
"""As whom the gateway signs people on."""


class Provider:
    """oidc-provider as a process of its own."""

    def __init__(self, **given: Any) -> None:
        self.packages = str(peers.ensure("node") / "node_modules")
        self._given = {"packages": self.packages, "clients": [MACHINE, GATEWAY], **given}
        self.start()

    def start(self) -> None:
        """Start it; a second time at the same place, with other keys."""
        command = [str(peers.NODE), str(REAL / "provider.mjs"), json.dumps(self._given)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        self.issuer = self._process.stdout.readline().strip()
        assert self.issuer.startswith("http://127.0.0.1:")
        self._given["port"] = int(self.issuer.rpartition(":")[2])

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=10)

    def post(self, path: str, **form: str) -> Any:
        """What the machine is answered."""
        shown = base64.b64encode(f"{MACHINE['client_id']}:{MACHINE['client_secret']}".encode()).decode()
        asked = urllib.request.Request(f"{self.issuer}{path}", urllib.parse.urlencode(form).encode())
        asked.add_header("Authorization", f"Basic {shown}")
        with urllib.request.urlopen(asked, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def token(self, resource: str, scope: str = "mcp:tools") -> str:
        """An access token for a machine."""
        return self.post("/token", grant_type="client_credentials", resource=resource, scope=scope)["access_token"]


@contextlib.contextmanager
def running(provider: Provider, folder: Path, **auth: Any) -> Iterator[Served]:
    """`muxway serve` that trusts the provider."""
    settings = {"issuer": provider.issuer, "scopes": ["mcp:tools"], "claims": {"user": "email"}, **auth}
    served = Served(folder, gateway={"auth": settings})
    try:
        yield served
    finally:
        served.end()


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.stop()


CLIENTS = {
    "python1": lambda url, _: [peers.python("mcp1"), str(REAL / "python1.py"), url, TOOL],
    "python2, handshake": lambda url, _: [peers.python("mcp2"), str(REAL / "python2.py"), url, TOOL, "legacy"],
    "python2, stateless": lambda url, _: [peers.python("mcp2"), str(REAL / "python2.py"), url, TOOL, "auto"],
    "typescript1": lambda url, packages: [str(peers.NODE), str(REAL / "typescript.mjs"), packages, url, TOOL, "1"],
    "typescript2": lambda url, packages: [str(peers.NODE), str(REAL / "typescript.mjs"), packages, url, TOOL, "2"],
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_logs_in_and_calls_a_tool(client: str, provider: Provider, tmp_path: Path) -> None:
    """docs/identity-team.md#the-gateway: nothing is configured at the client but the URL."""
    with running(provider, tmp_path) as served:
        done = drive.finish(CLIENTS[client](served.url("/mcp"), provider.packages))
        assert done.returncode == 0, f"{done.stderr}\n{served.said()}"
        told = json.loads(done.stdout)
        assert ":" in told["text"]
        assert "mcp:tools" in told["scope"].split()
        assert "Bearer" not in served.said()


@pytest.mark.parametrize(
    "client",
    [pytest.param(one, marks=() if one in ("python1", "typescript2") else pytest.mark.long) for one in CLIENTS],
)
def test_a_client_logs_in_at_the_gateway_itself(client: str, provider: Provider, tmp_path: Path) -> None:
    """docs/identity-team.md#clients-that-must-register-themselves: unchanged, at a provider that does not know it."""
    more = {"signOn": {"clientId": "muxway", "scopes": ["openid"]}, "server": {}, "claims": {}}
    with running(provider, tmp_path, **more) as served:
        done = drive.finish(CLIENTS[client](served.url("/mcp"), provider.packages))
        assert done.returncode == 0, f"{done.stderr}\n{served.said()}"
        told = json.loads(done.stdout)
        assert ":" in told["text"]
        assert told["scope"] == "mcp:tools"
        assert "users sign on at" in served.said()


def inspected(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tools that MCP Inspector's command line finds, once its user has logged in with a browser."""
    browser = tmp_path / "bin" / "xdg-open"
    browser.parent.mkdir()
    browser.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{REAL / "open.py"}" "$1"\n')
    browser.chmod(0o755)
    monkeypatch.setenv("PATH", f"{browser.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("BROWSER", str(browser))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MCP_AUTO_OPEN_ENABLED", "true")
    monkeypatch.setenv("MCP_INSPECTOR_SECRET_STORE", "memory")
    callback = f"http://127.0.0.1:{free_port()}/oauth/callback"
    inspector = peers.node_script("@modelcontextprotocol/inspector/clients/launcher/build/index.js")
    where = [served.url("/mcp"), "--transport", "http", "--callback-url", callback]
    done = drive.finish([*inspector, "--cli", *where, "--method", "tools/list"])
    assert done.returncode == 0, f"{done.stderr}\n{served.said()}"
    return [tool["name"] for tool in json.loads(done.stdout)["tools"]]


def test_the_inspector_logs_in(provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/identity-team.md#the-gateway: with nothing but the URL."""
    with running(provider, tmp_path) as served:
        assert TOOL in inspected(served, tmp_path, monkeypatch)


def test_the_issuers_metadata_is_at_our_root(provider: Provider, tmp_path: Path) -> None:
    """MCP 2025-03-26, basic/authorization."""
    with running(provider, tmp_path) as served:
        status, told, headers = served.ask("GET", "/.well-known/oauth-authorization-server")
        assert (status, told["issuer"]) == (200, provider.issuer)
        assert headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("format_", ["jwt", "opaque"])
def test_a_machine_comes_with_a_token_of_its_own(format_: str, tmp_path: Path) -> None:
    """docs/identity-team.md#machines: client credentials; JWTs by their keys, opaque tokens by asking."""
    provider = Provider(format=format_)
    asking = {"url": f"{provider.issuer}/token/introspection", "clientId": "machine", "clientSecret": "machine-s3cr3t"}
    more = {"introspection": asking} if format_ == "opaque" else {}
    try:
        with running(provider, tmp_path, **more) as served:

            def status(token: str, path: str = "/mcp") -> int:
                return served.ask("POST", path, initialize(), Authorization=f"Bearer {token}")[0]

            good = provider.token(served.url("/mcp"))
            assert (good.count(".") == 2) is (format_ == "jwt")
            assert status(good) == 200
            assert status(provider.token("https://other.example/mcp")) == 401
            assert status(provider.token(served.url("/mcp"), "notes:read")) == 403
            assert status(f"{good[:-4]}AAAA") == 401
            if format_ == "opaque":
                revoked = provider.token(served.url("/mcp"))
                provider.post("/token/revocation", token=revoked)
                assert status(revoked) == 401
            assert "machine-s3cr3t" not in served.said()
    finally:
        provider.stop()


def test_keys_that_change_and_an_issuer_that_is_away_fail_no_call(tmp_path: Path) -> None:
    """docs/identity-team.md#when-the-issuer-is-away-or-changes-its-keys."""
    provider = Provider()
    try:
        with running(provider, tmp_path) as served:

            def status(token: str) -> int:
                return served.ask("POST", "/mcp", initialize(), Authorization=f"Bearer {token}")[0]

            first, second = provider.token(served.url("/mcp")), provider.token(served.url("/mcp"))
            assert status(first) == 200
            provider.stop()
            assert [status(token) for token in (first, second)] == [200, 200]
            provider.start()
            assert status(provider.token(served.url("/mcp"))) == 200
            # The old ones were signed with a key that is gone; what was found out of them holds for its minute.
            assert [status(token) for token in (first, second)] == [200, 200]
    finally:
        provider.stop()
