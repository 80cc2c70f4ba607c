"""Every decision has its line: who was let in, who was not, and by what. Secrets are in none of them."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from muxway.clients.transports.guard import Guard
from muxway.identity.keys import KeyFile
from muxway.testing import ScriptedServer

from ..serve.harness import Web, a_web, initialize
from .issuing import ISSUER, TestIssuer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class Audited:
    """A gateway with an issuer, keys and a token, that writes down everything."""

    def __init__(self, web: Web, path: Path, issuer: TestIssuer, key: str) -> None:
        self.web, self.path, self.issuer, self.key = web, path, issuer, key

    async def lines(self, count: int) -> list[dict[str, Any]]:
        """The lines, as soon as there are so many."""
        async with asyncio.timeout(30):
            while not self.path.exists() or self.path.read_text().count("\n") < count:
                await asyncio.sleep(0.01)
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@pytest.fixture
async def audited(tmp_path: Path) -> AsyncIterator[Audited]:
    path, issuer, file = tmp_path / "audit.jsonl", TestIssuer(), KeyFile(tmp_path / "keys.json")
    key = file.create("ci")
    file.read()
    top = {"middleware": [{"use": "audit", "path": str(path)}], "views": {"admin": {"scopes": ["mcp:admin"]}}}
    up = ScriptedServer(tools={"echo": None})
    async with a_web({"up": up}, top=top, guard=Guard(tokens=["plain-token-1"])) as web:
        web.door._authorization._on_denied = web.world.gateway.turned_away
        server = issuer.server(views={"admin": {"scopes": ["mcp:admin"]}}, claims={"user": "email"})
        server._keys = file
        web.door.admit(["plain-token-1"], {}, server)
        yield Audited(web, path, issuer, key)


async def test_a_call_has_a_line_with_user_and_client(audited: Audited) -> None:
    """docs/middleware/audit.md: whom the token was given to, and which program."""
    client = await audited.web.session(headers=bearer(audited.issuer.token(email="ann@example.com")))
    await client.ask("tools/call", {"name": "up__echo", "arguments": {}})
    (line,) = await audited.lines(1)
    assert (line["user"], line["issuer"], line["clientId"]) == ("ann@example.com", ISSUER, "inspector")
    assert (line["name"], line["outcome"], line["client"]) == ("up__echo", "ok", "raw")
    assert len(line["principal"]) == 12


async def test_a_call_with_a_key_has_its_name(audited: Audited) -> None:
    """docs/middleware/audit.md."""
    client = await audited.web.session(headers=bearer(audited.key))
    await client.ask("tools/call", {"name": "up__echo", "arguments": {}})
    (line,) = await audited.lines(1)
    assert line["key"] == "ci"
    assert "user" not in line


async def test_everybody_who_is_turned_away_has_a_line_and_the_rule(audited: Audited) -> None:
    """docs/middleware/audit.md: no token, a bad one, a bad key, too few scopes."""
    web, issuer = audited.web, audited.issuer
    few = issuer.token(aud="https://mcp.example.com/mcp/admin", email="ann@example.com")
    cases = [
        (None, "/mcp", "token", 401),
        ("wrong", "/mcp", "token", 401),
        (issuer.token(exp=1), "/mcp", "token", 401),
        (f"{audited.key}x", "/mcp", "key", 401),
        (few, "/mcp/admin", "scope", 403),
    ]
    for number, (token, path, rule, status) in enumerate(cases, 1):
        answer = await web.post(initialize(), {} if token is None else bearer(token), path=path)
        assert answer.status == status
        line = (await audited.lines(number))[-1]
        assert (line["outcome"], line["rule"], line["status"], line["path"]) == ("denied", rule, status, path)
        assert line["address"] == "127.0.0.1"
        assert line.get("user") == ("ann@example.com" if rule == "scope" else None)


async def test_another_user_of_the_machine_has_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/middleware/audit.md: rule `user`."""
    monkeypatch.setattr("muxway.clients.transports.http_connection.owner_of", lambda *_: 4711)
    denied: list[Any] = []
    async with a_web({"up": ScriptedServer()}, guard=Guard(own_user=True)) as web:
        web.door._authorization._on_denied = denied.append
        assert (await web.post(initialize())).status == 403
    assert [(one.rule, one.status) for one in denied] == [("user", 403)]


async def test_no_credential_is_shown_anywhere(audited: Audited, caplog: pytest.LogCaptureFixture) -> None:
    """docs/security.md: good ones, bad ones, in logs, answers and the audit."""
    caplog.set_level(logging.DEBUG)
    web, issuer = audited.web, audited.issuer
    good, bad = issuer.token(jti="canary-good"), issuer.token(jti="canary-bad", exp=1)
    shown = ""
    for token in (good, bad, audited.key, f"{audited.key}x", "plain-token-1", "canary-plain"):
        for path in ("/mcp", "/mcp/admin", "/mcp/none", "/sse"):
            answer = await web.post(initialize(), bearer(token), path=path)
            shown += answer.body.decode() + repr(answer.headers)
    shown += (await web.ask("GET", "/readyz", bearer(bad))).body.decode()
    await audited.lines(5)
    shown += audited.path.read_text() + caplog.text
    secrets = [
        good,
        bad,
        audited.key,
        "plain-token-1",
        "canary-plain",
        good.split(".")[2],
        audited.key.split("_", 2)[2],
    ]
    assert [secret for secret in secrets if secret in shown] == []
