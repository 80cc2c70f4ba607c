"""Tokens that only their issuer can read: asked about, remembered for a while, never believed without an audience."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muxway.clients.authenticator import Admitted, Rejected
from muxway.config import parse_config
from muxway.identity.resource_metadata import ProtectedResources
from muxway.identity.verify import AccessTokens, ResourceServer
from muxway.identity.verify_opaque import OpaqueTokens
from muxway.net.http_errors import HttpTrouble

from .issuing import ISSUER, PUBLIC, TestIssuer
from .test_tokens import judged

GOOD: dict[str, Any] = {"active": True, "sub": "ann", "client_id": "cli", "aud": f"{PUBLIC}/mcp", "scope": "mcp:tools"}


class Asked:
    """An introspection endpoint inside the test."""

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, Any]] = {"good": GOOD}
        self.asked: list[str] = []
        self.down = False
        self.held: asyncio.Event | None = None

    async def __call__(self, where: Any, token: str) -> dict[str, Any]:
        assert (where.client_id, where.client_secret) == ("muxway", "s3cr3t")
        self.asked.append(token)
        if self.held is not None:
            await self.held.wait()
        if self.down:
            raise HttpTrouble("cannot be reached")
        return self.answers.get(token, {"active": False})


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def issuer() -> TestIssuer:
    return TestIssuer()


@pytest.fixture
def server(asked: Asked, issuer: TestIssuer) -> ResourceServer:
    asking = {"url": f"{ISSUER}/ask", "clientId": "muxway", "clientSecret": "s3cr3t"}
    config = parse_config(
        {
            "mcpServers": {"off": {"command": "none", "disabled": True}},
            "gateway": {"auth": {"issuer": ISSUER, "introspection": asking}, "publicUrl": PUBLIC},
        }
    )
    settings = config.gateway.auth
    assert settings is not None
    assert settings.introspection is not None
    opaque = OpaqueTokens(settings, settings.introspection, asking=asked)
    clock = issuer.clock
    tokens = AccessTokens(settings, keys=issuer.keys(), opaque=opaque, now=clock.wall, clock=clock)
    return ResourceServer(tokens, ProtectedResources(config, settings, ()))


async def test_a_good_one_is_asked_about_once_in_half_a_minute(
    server: ResourceServer, asked: Asked, issuer: TestIssuer
) -> None:
    """RFC 7662 §4: an answer may be remembered, for a short time."""
    for _ in range(3):
        verdict = await judged(server, "good")
        assert isinstance(verdict, Admitted)
        assert (verdict.identity.user, verdict.identity.client) == ("ann", "cli")
    assert asked.asked == ["good"]
    asked.answers.clear()
    issuer.clock.ahead = 29
    assert isinstance(await judged(server, "good"), Admitted)
    issuer.clock.ahead = 31
    assert isinstance(await judged(server, "good"), Rejected)
    assert asked.asked == ["good", "good"]


async def test_it_is_the_same_principal_as_with_a_jwt(server: ResourceServer, issuer: TestIssuer) -> None:
    """docs/design/decisions/0045-principal.md: how a token is written says nothing of whose it is."""
    opaque, jwt = await judged(server, "good"), await judged(server, issuer.token(client_id="cli"))
    assert isinstance(opaque, Admitted)
    assert isinstance(jwt, Admitted)
    assert opaque.principal == jwt.principal


@pytest.mark.parametrize(
    "changed",
    [
        {"active": False},
        {"active": "true"},
        {"active": 1},
        {"active": None},
        {"aud": None},
        {"aud": "https://other.example/mcp"},
        {"iss": "https://evil.example"},
        {"exp": 1},
        {"exp": "tomorrow"},
        {"nbf": 99999999999},
        {"sub": None, "client_id": None},
        {"cnf": {"jkt": "x"}},
    ],
    ids=str,
)
async def test_what_the_issuer_does_not_vouch_for_here_is_refused(
    changed: dict[str, Any], server: ResourceServer, asked: Asked
) -> None:
    """RFC 7662 §2.2; MCP 2025-11-25, basic/authorization: the audience must be us, also without a JWT."""
    asked.answers["good"] = {name: value for name, value in {**GOOD, **changed}.items() if value is not None}
    verdict = await judged(server, "good")
    assert isinstance(verdict, Rejected)
    assert (verdict.status, verdict.error) == (401, "invalid_token")


async def test_an_issuer_that_is_away_is_no_verdict(server: ResourceServer, asked: Asked) -> None:
    """RFC 9110 §15.6.4."""
    asked.down = True
    verdict = await judged(server, "good")
    assert isinstance(verdict, Rejected)
    assert verdict.status == 503
    asked.down = False
    assert isinstance(await judged(server, "good"), Admitted)


async def test_many_who_wait_for_one_token_ask_once_and_many_tokens_wait_their_turn(
    server: ResourceServer, asked: Asked
) -> None:
    """Ours: whoever makes up tokens must not make us a burden to the issuer."""
    asked.held = asyncio.Event()
    same = [asyncio.ensure_future(judged(server, "good")) for _ in range(20)]
    await asyncio.sleep(0.01)
    assert asked.asked == ["good"]
    others = [asyncio.ensure_future(judged(server, f"made-up-{number}")) for number in range(200)]
    await asyncio.sleep(0.01)
    assert len(asked.asked) <= 32
    asked.held.set()
    assert all(isinstance(verdict, Admitted) for verdict in await asyncio.gather(*same))
    statuses = [verdict.status for verdict in await asyncio.gather(*others) if isinstance(verdict, Rejected)]
    assert len(statuses) == 200
    assert {*statuses} == {401, 503}
