"""The issuer's keys: rotated, out of reach, and asked for in vain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muxway.clients.authenticator import Admitted, Rejected

from .issuing import OTHER_RSA, TestIssuer
from .test_tokens import judged


async def test_a_new_key_is_fetched_when_a_token_names_it() -> None:
    """docs/identity-team.md#when-the-issuer-is-away-or-changes-its-keys."""
    issuer = TestIssuer()
    server = issuer.server()
    assert isinstance(await judged(server, issuer.token()), Admitted)
    issuer.kid, issuer.key = "k2", OTHER_RSA
    assert isinstance(await judged(server, issuer.token()), Admitted)
    assert issuer.asked == 2


async def test_known_keys_go_on_counting_while_the_issuer_is_away() -> None:
    """Ours: ten minutes without the issuer, and more, cost no call."""
    issuer = TestIssuer()
    server = issuer.server()
    assert isinstance(await judged(server, issuer.token()), Admitted)
    issuer.down = True
    for _ in range(40):
        issuer.clock.ahead += 61
        assert isinstance(await judged(server, issuer.token()), Admitted)
        await asyncio.sleep(0)
    assert 2 <= issuer.asked <= 40


async def test_a_withdrawn_key_counts_ten_minutes_at_most() -> None:
    """docs/identity-team.md#how-long-things-are-remembered."""
    issuer = TestIssuer()
    server = issuer.server()
    token = issuer.token(exp=int(issuer.clock.wall()) + 86400)
    assert isinstance(await judged(server, token), Admitted)
    issuer.kid, issuer.key = "k2", OTHER_RSA
    issuer.clock.ahead += 601
    await judged(server, token)  # This one begins to fetch, in the background.
    for _ in range(3):
        await asyncio.sleep(0)
    issuer.clock.ahead += 61
    assert isinstance(await judged(server, token), Rejected)


async def test_a_thousand_unknown_keys_ask_the_issuer_once_a_minute() -> None:
    """Ours: whoever makes up tokens must not make us a burden to the issuer."""
    issuer = TestIssuer()
    server = issuer.server()
    assert isinstance(await judged(server, issuer.token()), Admitted)
    for minute in range(3):
        for number in range(1000):
            assert isinstance(await judged(server, issuer.token({"kid": f"x{number}"}, jti=number)), Rejected)
        assert issuer.asked == 2 + minute
        issuer.clock.ahead += 61
    issuer.kid, issuer.key = "k2", OTHER_RSA
    assert isinstance(await judged(server, issuer.token()), Admitted)


async def test_many_at_once_wait_for_one_answer() -> None:
    """Ours: the first requests after a start come together."""
    issuer = TestIssuer()
    server = issuer.server()
    tokens = [issuer.token(jti=number) for number in range(50)]
    verdicts = await asyncio.gather(*(judged(server, token) for token in tokens))
    assert all(isinstance(verdict, Admitted) for verdict in verdicts)
    assert issuer.asked == 1


async def test_without_any_key_nobody_is_told_that_its_token_is_bad() -> None:
    """RFC 9110 §15.6.4: a client that hears 401 throws a good token away."""
    issuer = TestIssuer()
    issuer.down = True
    server = issuer.server()
    verdict = await judged(server, issuer.token())
    assert isinstance(verdict, Rejected)
    assert (verdict.status, verdict.error) == (503, "")
    issuer.down = False
    issuer.clock.ahead += 6
    assert isinstance(await judged(server, issuer.token()), Admitted)


@pytest.mark.parametrize("name", ["kty", "use", "key_ops", "alg", "kid", "n", "e", "crv", "x", "x5c"])
@pytest.mark.parametrize("value", [None, 1, True, [], {}, "", "\0", [[]]])
async def test_one_odd_entry_spoils_no_other_key(name: str, value: Any) -> None:
    """Ours: whatever stands in a key set, the keys count that can be read."""
    issuer = TestIssuer()
    issuer.served = [{**issuer.jwks[0], "kid": "odd", name: value}, {name: value}, *issuer.jwks]
    server = issuer.server()
    assert isinstance(await judged(server, issuer.token()), Admitted)
    if value is None and name in ("use", "key_ops", "alg"):
        # As if it were not there.
        assert isinstance(await judged(server, issuer.token({"kid": "odd"})), Admitted)
